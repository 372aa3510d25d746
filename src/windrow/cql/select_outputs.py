"""The select list of a block, computed at the top of its pipeline.

    [Aggregate -> HAVING] -> functions OVER -> QUALIFY -> UNNEST -> Project [-> Distinct] [-> first rows]

Each stage rewrites the trees of the items, of ORDER BY and of the conditions above it, so that they speak of columns
that the stage has made. Cost: a walk of each tree per stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.aggregates import BlockAggregates
from windrow.cql.analytic import Analytics
from windrow.cql.bounds import is_symbol
from windrow.cql.emission import Output
from windrow.cql.expressions import find_aggregate
from windrow.cql.grouping_sets import MOST as MOST_SETS
from windrow.cql.grouping_sets import count_of, has_sets, sets_of
from windrow.cql.memberships import keep_columns
from windrow.cql.nesting import taken_together
from windrow.cql.ordering import first_rows, limit_of, order_of, sort_key, term_tree
from windrow.cql.pipeline import Pipeline
from windrow.cql.scope import Scope, columns_of, conjuncts, resolve, resolved, span_of
from windrow.cql.select_items import SelectList, expand
from windrow.cql.shapes import BlockShape
from windrow.cql.subqueries import Subqueries
from windrow.cql.unnest import unnested
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.terms import SortKey
from windrow.plan.expr import Expr, column
from windrow.plan.nodes import Distinct, Project

if TYPE_CHECKING:
    from windrow.cql.select import Binder


class BlockOutputs:
    """Computes the select list of one block at the top of its pipeline."""

    def __init__(
        self,
        select: exp.Select,
        listed: SelectList,
        scope: Scope,
        pipeline: Pipeline,
        shape: BlockShape,
        ends: str | None,
        binder: Binder,
    ) -> None:
        self.scope, self.pipeline, self.shape, self.ends = scope, pipeline, shape, ends
        self.context, self.catalog = binder.context, binder.catalog
        self.subqueries = Subqueries(scope, shape, binder)
        self.listed = listed = replace(listed, items=[self.subqueries.lift(i) for i in listed.items])
        self.items = items = expand(listed.items, scope)
        starless = len(items) == len(listed.items)
        pairs = list(zip(items, listed.items, strict=False)) if starless else []
        self.also = {name: _argument(item) for (name, _), item in pairs}
        group, having = select.args.get("group"), select.args.get("having")
        self.sets = _key_sets(group, items, scope, self.catalog) if group is not None else None
        self.having = resolve(self.subqueries.lift(having.this), scope) if having is not None else None
        qualify = select.args.get("qualify")
        self.qualify = [resolve(c, scope, over=True) for c in conjuncts(qualify.this)] if qualify is not None else []
        self.limit = limit_of(select, binder)
        self.terms = order_of(select) if self.limit is not None else []
        aliases = {name.lower(): tree for (name, tree), _ in pairs}
        self.order = [term_tree(term, items, aliases, scope, binder) for term in self.terms]

    def bind(self) -> tuple[Output, ...]:
        """The columns of the answer, after every stage."""
        keys = self._group()
        self.subqueries.attach(self.pipeline)
        analytics = Analytics(self.pipeline, keys)
        self._rewrite(analytics.rewrite)
        analytics.finish()
        for tree in self.qualify:
            self.pipeline.filter(tree, "QUALIFY")
        self.items = unnested(self.items, self.pipeline)
        columns, outputs = self._columns()
        self._finish(columns, outputs)
        return outputs

    def _rewrite(self, rewrite: Callable[[exp.Expr], exp.Expr]) -> None:
        """Let everything above a stage speak of its columns."""
        self.items = [(name, rewrite(tree)) for name, tree in self.items]
        self.order = [rewrite(tree) for tree in self.order]
        self.qualify = [rewrite(tree) for tree in self.qualify]

    def _group(self) -> tuple[str, ...]:
        """Aggregate, if anything asks for it; returns the columns that tell rows apart from here on."""
        listing = [*(t for _, t in self.items), *self.order, *self.qualify]
        stated = self.sets is not None or self.having is not None
        if not stated and not any(find_aggregate(t, self.catalog) for t in listing):
            schema = self.pipeline.node.schema
            columns = (c.internal for e in self.scope.entries for c in e.columns if c.internal in schema)
            return tuple(dict.fromkeys(columns))
        sets = self.sets or [[]]
        session = _session_keys([k for keys in sets for k in keys], self.scope, self.ends)
        sets = [[*keys, *session] for keys in sets]
        grouping = BlockAggregates(self.pipeline, self.scope, sets, self.subqueries.columns)
        self._rewrite(grouping.rewrite)
        wanted = taken_together(list(conjuncts(self.having))) if self.having is not None else []
        conditions = [grouping.rewrite(c) for c in wanted]
        above = grouping.finish(per_window=self.shape.aligned or (self.sets is not None and len(sets) == 1))
        self.subqueries.attach(above, grouping.rewrite)
        for tree in conditions:
            above.filter(tree, "HAVING")
        self.pipeline.node, self.pipeline.calls = above.node, {}
        return tuple(dict.fromkeys(grouping.keys.values()))

    def _columns(self) -> tuple[dict[str, Expr], tuple[Output, ...]]:
        """What is computed, by internal name, and what of it is shown in which order."""
        columns: dict[str, Expr] = {}
        outputs = []
        symbolic = any(not is_symbol(tree) for _, tree in self.items)  # a relation needs some column
        for name, tree in self.items:
            if symbolic and is_symbol(tree):
                outputs.append(Output(name, tree.name, self.context.types[tree.name]))
                continue
            expr = self.pipeline.expr(tree)
            internal = _known(expr, columns) or self.context.computed(expr)
            columns[internal] = expr
            outputs.append(Output(name, internal, expr.type, self.also.get(name)))
        if self.ends is not None:
            columns[self.ends] = column(self.ends, self.context.types[self.ends])
        return columns, tuple(outputs)

    def _finish(self, columns: dict[str, Expr], outputs: tuple[Output, ...]) -> None:
        """Project, take one copy of each row, and the first rows."""
        pipeline, shown = self.pipeline, tuple(columns)
        keys = [self._sorted_by(term, tree, columns) for term, tree in zip(self.terms, self.order, strict=True)]
        if tuple(columns) != tuple(pipeline.node.schema):
            pipeline.node = Project(pipeline.node, tuple(columns.items()))
        if self.listed.distinct:
            pipeline.node = Distinct(pipeline.node)
        if self.limit is not None:
            ties = tuple(dict.fromkeys(o.column for o in outputs if o.column in columns))
            partition = () if self.ends is None else (self.ends,)
            pipeline.node = keep_columns(first_rows(pipeline.node, keys, ties, self.limit, partition), shown)

    def _sorted_by(self, term: exp.Ordered, tree: exp.Expr, columns: dict[str, Expr]) -> SortKey:
        """The key of a term, over a column that is computed for it if nothing else has it."""
        expr = self.pipeline.expr(tree)
        name = _known(expr, columns)
        if self.listed.distinct and name not in columns:
            raise BindingError(
                "ORDER BY of what SELECT DISTINCT does not show",
                hint="add it to the select list",
                span=self.scope.span(term),
            )
        name = name or self.context.fresh(expr.sql(lambda n: n), expr.type)
        columns[name] = expr
        return sort_key(term, name)


def _known(expr: Expr, columns: Mapping[str, Expr]) -> str | None:
    """The column that has the value of an expression already."""
    return expr.column or next((n for n, e in columns.items() if e == expr), None)


def _key_sets(
    group: exp.Group, items: list[tuple[str, exp.Expr]], scope: Scope, catalog: Catalog
) -> list[list[exp.Expr]]:
    """The sets of trees to group by: columns, expressions, ordinals, select aliases, or ALL."""
    for key in ("grouping_sets", "cube", "rollup", "totals"):
        if group.args.get(key):
            raise UnsupportedError(
                f"WITH {key.replace('_', ' ').upper()}",
                hint="write GROUP BY ROLLUP (a, b)",
                span=span_of(group, scope.source),
            )
    if group.args.get("all"):
        return [[t for _, t in items if find_aggregate(t, catalog) is None]]
    if (count := count_of(group)) > MOST_SETS:
        raise UnsupportedError(
            f"{count:,} sets of keys in one GROUP BY",
            hint=f"write at most {MOST_SETS}",
            span=span_of(group, scope.source),
        )
    found = sets_of(group) if has_sets(group) else [tuple(group.expressions)]
    return [[_key(tree, items, scope) for tree in keys] for keys in found]


def _key(tree: exp.Expr, items: list[tuple[str, exp.Expr]], scope: Scope) -> exp.Expr:
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return _ordinal(tree, items, scope)
    return resolve(tree, scope)


def _ordinal(tree: exp.Literal, items: list[tuple[str, exp.Expr]], scope: Scope) -> exp.Expr:
    position = int(tree.name) if tree.name.isdigit() else 0
    if not 1 <= position <= len(items):
        raise BindingError(
            f"GROUP BY {tree.name}: the select list has {len(items)} items",
            hint="count from 1",
            span=span_of(tree, scope.source),
        )
    return items[position - 1][1]


def _session_keys(keys: list[exp.Expr], scope: Scope, ends: str | None) -> list[exp.Expr]:
    """What an aggregate over sessions is grouped by besides: the session itself, unless its bounds are named."""
    if ends is None:
        return []
    named = {c for k in keys for c in columns_of(k)}
    found = [ends]
    for entry in scope.entries:
        if not named & set(entry.session[-2:]):
            found += entry.session
    return [resolved(c) for c in dict.fromkeys(found)]


def _argument(item: exp.Expr) -> str | None:
    """The column's name when an unnamed item is a function of just that column."""
    only = item.expressions[0] if isinstance(item, exp.Anonymous) and len(item.expressions) == 1 else None
    return str(only.name) if isinstance(only, exp.Column) and not isinstance(only.this, exp.Star) else None
