"""Subqueries inside expressions: one value by a join, EXISTS and IN by a mark.

A subquery that aggregates without GROUP BY has one row, so its value comes by a join: with every row, or, where
equalities link it to the query around it, as a left join with its groups (COUNT of nothing is 0). EXISTS, IN,
ANY and ALL that do not stand between the ANDs of WHERE become a column that is true for the rows of the semi-join and
false for the others; of IN, null where no row is equal but one may be, unless only what is true counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql.aggregates import BlockAggregates
from windrow.cql.expressions import find_aggregate
from windrow.cql.joins import join, match
from windrow.cql.memberships import (
    MembershipTest,
    check,
    keep_columns,
    membership_of,
    partner,
    semi,
    semi_join,
    unknown,
)
from windrow.cql.ordering import limit_of
from windrow.cql.pipeline import Pipeline, extend
from windrow.cql.relations import bind_from
from windrow.cql.scope import Scope, columns_of, has_subquery, resolve, resolved, span_of
from windrow.cql.select_items import expand, select_list
from windrow.cql.shapes import BlockShape, unwrap
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.expr import Expr, column
from windrow.plan.nodes import Join, LeftJoin, Node, Project, Union

if TYPE_CHECKING:
    from windrow.cql.select import Binder

Rewrite = Callable[[exp.Expr], exp.Expr]
_CLAUSES = ("group", "having", "qualify", "windows", "limit", "offset", "distinct")


@dataclass(frozen=True)
class _Value:
    """A bound scalar subquery: the relation, and the pairs (outside, its column) that link it."""

    node: Node
    links: tuple[tuple[exp.Expr, str], ...] = ()
    certain: bool = False  # there is a row whatever happens


@dataclass
class Subqueries:
    """Takes subqueries out of the expressions of one block, and puts what they compute into its pipeline."""

    scope: Scope
    shape: BlockShape
    binder: Binder
    values: list[_Value] = field(default_factory=list)
    marks: list[tuple[str, MembershipTest, bool]] = field(default_factory=list)  # and whether only truth counts
    columns: set[str] = field(default_factory=set)
    _condition: bool = False

    def lift(self, tree: exp.Expr, condition: bool = False) -> exp.Expr:
        """The tree with a column in the place of every subquery; of a condition only matters whether it is true."""
        if not has_subquery(tree):
            return tree
        self._condition = condition
        return tree.copy().transform(self._replace, copy=False)

    def attach(self, pipeline: Pipeline, rewrite: Rewrite = lambda tree: tree) -> None:
        """Compute the columns; `rewrite` turns columns of FROM into those of the pipeline."""
        for value in self.values:
            pipeline.node = self._joined(pipeline, value, rewrite)
        for name, test, decided in self.marks:
            pipeline.node = self._marked(pipeline, name, test, decided)
        self.values, self.marks = [], []

    def reads(self, tree: exp.Expr) -> frozenset[str]:
        """The columns of the rows that a tree and what links its subqueries read."""
        links = (outside for value in self.values for outside, _ in value.links)
        return frozenset().union(*(columns_of(t) for t in (tree, *links))) - self.columns

    def _replace(self, node: exp.Expr) -> exp.Expr:
        test = membership_of(node) if not isinstance(node, exp.Not | exp.Paren) else None
        if test is not None:
            check(test, self.binder)
            name = self.binder.context.fresh("exists", pa.bool_())
            self.marks.append((name, test, test.value is None or (self._condition and _decides(node))))
            self.columns.add(name)
            return resolved(name, node)
        if isinstance(node, (exp.Any, exp.All)) or not isinstance(node, (exp.Subquery, exp.Select)):
            return node
        return self._value(node)

    # -- one value ---------------------------------------------------------------------------------------------------

    def _value(self, node: exp.Expr) -> exp.Expr:
        query = unwrap(node)
        select = query if isinstance(query, exp.Select) else None
        aggregates = select is not None and any(find_aggregate(i, self.binder.catalog) for i in select.expressions)
        if select is not None and aggregates and not any(select.args.get(c) for c in _CLAUSES):
            return self._aggregate(select, node)
        limit = limit_of(query, self.binder)
        if limit is None or limit.count != 1 or limit.ties:
            raise UnsupportedError(
                "a subquery that may have several rows where one value is expected",
                hint="aggregate it: (SELECT MAX(a) FROM ...), add LIMIT 1, or join it in FROM",
                span=span_of(node, self.binder.context.source),
            )
        block = self.binder.block(query, replace(self.shape, append=False, mixed=False))
        self._one(len(block.outputs), node)
        self.values.append(_Value(keep_columns(block.node, (block.outputs[0].column,))))
        self.columns.add(block.outputs[0].column)
        return resolved(block.outputs[0].column, node)

    def _one(self, count: int, node: exp.Expr) -> None:
        if count != 1:
            raise BindingError(
                f"a subquery in an expression has one column, not {count}",
                span=span_of(node, self.binder.context.source),
            )

    def _aggregate(self, select: exp.Select, node: exp.Expr) -> exp.Expr:
        """A subquery with one row, or one for each group of rows that equalities link to the query around it."""
        binder, context = self.binder, self.binder.context
        binder.refuse_clauses(select)
        scope = Scope(context.source, outer=self.scope)
        from_ = bind_from(select, scope, self.shape, binder)
        plain, nested = binder.where(select, scope)
        own_columns = frozenset(c for i in from_.inputs for c in i.columns)
        conditions = from_.conditions + plain
        own = [c for c in conditions if columns_of(c) <= own_columns]
        links = [self._link(c, own_columns) for c in conditions if c not in own]
        below, rest = join(from_.inputs, own, from_.crossed, False, context)
        pipeline = Pipeline(context, below, grid=binder.grid(self.shape))
        for condition in rest:
            pipeline.filter(condition, "WHERE")
        for membership in nested:
            semi_join(pipeline, scope, membership, self.shape, binder)
        binder.filter_by_subqueries(pipeline, select, scope, self.shape)
        items = expand(select_list(select, binder.context.source).items, scope)
        self._one(len(items), node)
        if not columns_of(items[0][1]) <= own_columns:
            raise UnsupportedError(
                "a subquery in an expression that computes with columns of the query around it",
                hint="compute around the subquery, or join it in FROM",
                span=span_of(node, context.source),
            )
        grouping = BlockAggregates(pipeline, scope, [[inside for _, inside in links]])
        item, keys = grouping.rewrite(items[0][1]), [grouping.rewrite(inside) for _, inside in links]
        above = grouping.finish()
        expr = above.expr(item)
        name = context.fresh(expr.sql(lambda n: n), expr.type)
        names = [context.fresh(k.name, context.types[k.name]) for k in keys]
        outputs = [(new, column(k.name, context.types[k.name])) for new, k in zip(names, keys, strict=True)]
        made = Project(above.node, (*outputs, (name, expr)))
        self.values.append(_Value(made, tuple(zip((o for o, _ in links), names, strict=True)), certain=not links))
        self.columns.add(name)
        return self._of_nothing(items[0][1], resolved(name, node), bool(links))

    def _link(self, condition: exp.Expr, own: frozenset[str]) -> tuple[exp.Expr, exp.Expr]:
        """The two sides of an equality: outside, inside."""
        if isinstance(condition, exp.EQ):
            for outside, inside in ((condition.this, condition.expression), (condition.expression, condition.this)):
                if columns_of(inside) and columns_of(inside) <= own and not columns_of(outside) & own:
                    return outside, inside
        raise UnsupportedError(
            "a subquery in an expression that is linked by more than equalities",
            hint="link it by comparisons of columns of one input, with tables (WHERE s.k = i.k AND s.b < i.b), or "
            "join it in FROM",
            span=span_of(condition, self.binder.context.source),
        )

    def _of_nothing(self, item: exp.Expr, value: exp.Expr, linked: bool) -> exp.Expr:
        """COUNT of nothing is 0, all other aggregates are null."""
        counts = [n for n in item.find_all(exp.Anonymous) if n.name.lower() in ("count", "count_star")]
        if not linked or not counts:
            return value
        if counts != [item]:
            raise UnsupportedError(
                "an expression of COUNT in a subquery that is linked to the query around it",
                hint="let COUNT stand alone in the subquery, and compute around it",
                span=span_of(item, self.binder.context.source),
            )
        return exp.Anonymous(this="coalesce", expressions=[value, exp.Literal.number(0)])

    def _joined(self, pipeline: Pipeline, value: _Value, rewrite: Rewrite) -> Node:
        if value.certain:
            return Join((pipeline.node, value.node))
        conditions = [exp.EQ(this=rewrite(outside), expression=resolved(key)) for outside, key in value.links]
        matching = match([pipeline.node, value.node], conditions, self.binder.context)
        residual = [*matching.residual, *(self.binder.context.predicate(c, "a subquery") for c in matching.rest)]
        return LeftJoin(matching.nodes[0], matching.nodes[1], tuple(matching.equalities), tuple(residual))

    # -- a mark ------------------------------------------------------------------------------------------------------

    def _marked(self, pipeline: Pipeline, name: str, test: MembershipTest, decided: bool) -> Node:
        right, conditions = partner(pipeline, self.scope, test, self.shape, self.binder)
        there, absent = (semi(pipeline.node, right, conditions, anti, self.binder) for anti in (False, True))
        parts: list[tuple[Node, bool | None]] = [(there, not test.anti)]
        if not decided:
            open_ = unknown(conditions)
            parts.append((semi(absent, right, open_, False, self.binder), None))
            absent = semi(absent, right, open_, True, self.binder)
        values = {True: "true", False: "false", None: "CAST(NULL AS BOOLEAN)"}
        parts.append((absent, test.anti))
        return Union(tuple(extend(part, {name: Expr((values[is_],), pa.bool_())}) for part, is_ in parts))


def _decides(node: exp.Expr) -> bool:
    """Does a condition ask of the node only whether it is true?"""
    while node.parent is not None:
        node = node.parent
        if not isinstance(node, exp.And | exp.Or | exp.Paren):
            return False
    return True


def filter_by(pipeline: Pipeline, scope: Scope, condition: exp.Expr, shape: BlockShape, binder: Binder) -> None:
    """Keep the rows for which a condition with subqueries holds."""
    subqueries = Subqueries(scope, shape, binder)
    tree = resolve(subqueries.lift(condition, condition=True), scope)
    if not subqueries.reads(tree) <= frozenset(pipeline.node.schema):
        raise UnsupportedError(
            "a subquery inside an expression of a subquery that reads the query around both",
            hint="join it in FROM",
            span=span_of(condition, binder.context.source),
        )
    subqueries.attach(pipeline)
    pipeline.filter(tree, "WHERE")
