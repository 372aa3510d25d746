"""EXISTS, IN, ANY and ALL as semi-joins.

They stand between the ANDs of WHERE. A plain subquery may be correlated: conditions on its own rows stay inside it,
the others go to the `Semi`. A grouped subquery or a set operation stands for itself, and only IN links it. All that
compare are one test, whether some row compares: `a IN (S)` is `a = ANY (S)`, of several values `(a, b) IN (S)` that all
are equal, and `a < ALL (S)` is `NOT a >= ANY (S)`. Where no row compares but one may, for a null, SQL does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.bounds import is_trivial, symbols
from windrow.cql.dialect import StreamItems
from windrow.cql.expressions import find_aggregate
from windrow.cql.joins import foreign, join, match, validity
from windrow.cql.nesting import taken_together
from windrow.cql.pipeline import Pipeline
from windrow.cql.relations import bind_from
from windrow.cql.scope import Scope, columns_of, resolve, resolved, span_of
from windrow.cql.select_items import expand, select_list
from windrow.cql.shapes import BlockShape, selects_of, unwrap
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.expr import column
from windrow.plan.nodes import Filter, Node, Project, Semi, StreamOp, Union

if TYPE_CHECKING:
    from windrow.cql.select import Binder


_LINK = "link"
_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE, exp.LTE: exp.GT,
}  # fmt: skip


@dataclass(frozen=True)
class MembershipTest:
    """[NOT] EXISTS (query), or whether the value compares with some row of it: value IN (query)."""

    query: exp.Expr
    anti: bool = False
    value: exp.Expr | None = None
    compare: type[exp.Expr] = exp.EQ

    @property
    def values(self) -> list[exp.Expr]:
        """What is compared, column by column."""
        value = self.value.unnest() if self.value is not None else None
        if isinstance(value, exp.Tuple) and self.compare is exp.EQ:
            return list(value.expressions)
        return [] if self.value is None else [self.value]


def membership_of(condition: exp.Expr) -> MembershipTest | None:
    """The test that a condition is, with NOT before it or without."""
    anti = False
    while isinstance(condition, (exp.Not, exp.Paren)):
        anti ^= isinstance(condition, exp.Not)
        condition = condition.this
    if isinstance(condition, exp.Exists):
        return MembershipTest(condition.this, anti)
    if isinstance(condition, exp.In) and condition.args.get("query") is not None:
        return MembershipTest(condition.args["query"], anti, condition.this)
    if type(condition) in _OPPOSITES and isinstance(condition.expression, exp.Any | exp.All):
        every = isinstance(condition.expression, exp.All)
        query = condition.expression.this
        if isinstance(unwrap(query), exp.Query):
            compare = _OPPOSITES[type(condition)] if every else type(condition)
            return MembershipTest(query, anti ^ every, condition.this, compare)
    return None


def check(membership: MembershipTest, binder: Binder) -> None:
    """Refuse stream operators that look at changes."""
    for select in selects_of(membership.query):
        listed = select_list(select, binder.context.source)
        if listed.node is not None and listed.op is not StreamOp.RSTREAM:
            raise UnsupportedError(
                f"{listed.node.this} inside EXISTS or IN",
                hint="remove the stream operator: a condition looks at the relation",
                span=span_of(listed.node, binder.context.source),
            )


def semi_join(pipeline: Pipeline, scope: Scope, membership: MembershipTest, shape: BlockShape, binder: Binder) -> None:
    """Add a `Semi` for one EXISTS or IN; NOT IN is never true of a null, nor once a null is there.

    x NOT IN (S) keeps a row if S is empty, or if x is not null, S has no null, and none that equals x.
    """
    right, correlated = partner(pipeline, scope, membership, shape, binder)
    if membership.value is None or not membership.anti:
        pipeline.node = semi(pipeline.node, right, correlated, membership.anti, binder)
        return
    if len(membership.values) > 1 or membership.compare is not exp.EQ:
        for conditions in (correlated, unknown(correlated)):
            pipeline.node = semi(pipeline.node, right, conditions, True, binder)
        return
    equal = next(c for c in correlated if c.meta.get(_LINK))
    others = [c for c in correlated if c is not equal]
    if not columns_of(equal.expression) <= frozenset(right.schema):
        raise UnsupportedError(
            "NOT IN (SELECT ...) of a column of the query around it",
            hint="write NOT EXISTS (SELECT ... WHERE ...)",
            span=span_of(membership.query, binder.context.source),
        )
    left, null = pipeline.node, exp.Null()
    known_, missing = (
        Filter(left, binder.context.predicate(tree, "NOT IN"))
        for tree in (
            exp.Not(this=exp.Is(this=equal.this.copy(), expression=null)),
            exp.Is(this=equal.this, expression=null),
        )
    )
    left = Union((known_, semi(missing, right, others, True, binder)))
    null_there = Filter(
        right, binder.context.predicate(exp.Is(this=equal.expression.copy(), expression=null), "NOT IN")
    )
    left = semi(left, null_there, others, True, binder)
    pipeline.node = semi(left, right, [*others, equal], True, binder)


def partner(
    pipeline: Pipeline, scope: Scope, membership: MembershipTest, shape: BlockShape, binder: Binder
) -> tuple[Node, list[exp.Expr]]:
    """The rows of the subquery, and the conditions between them and the rows around it."""
    inner = unwrap(membership.query)
    if isinstance(inner, exp.Select) and _is_plain(inner, binder.catalog):
        right, correlated = _correlated(membership, inner, scope, shape, binder)
    else:
        right, correlated = _independent(membership, scope, shape, binder)
    known = frozenset(pipeline.node.schema) | frozenset(right.schema)
    correlated = [c for c in correlated if not is_trivial(c)]
    for condition in correlated:
        foreign(condition, known | symbols(condition), binder.context)
        if symbols(condition) and pipeline.grid is None:
            raise UnsupportedError(
                "the window of a subquery in a condition of a query that has none",
                hint="compare columns of the rows",
                span=span_of(membership.query, binder.context.source),
            )
        pipeline.provide(condition)
    return right, correlated


def semi(left: Node, right: Node, conditions: list[exp.Expr], anti: bool, binder: Binder) -> Node:
    """The left rows with (`anti`: without) a partner."""
    columns = tuple(left.schema)
    matching = match([left, right], conditions, binder.context)
    residual = list(matching.residual)
    residual += [binder.context.predicate(c, "EXISTS") for c in matching.rest]
    made = Semi(matching.nodes[0], matching.nodes[1], tuple(matching.equalities), tuple(residual), anti)
    return keep_columns(made, columns)


def keep_columns(node: Node, names: tuple[str, ...]) -> Node:
    """The node with these columns only."""
    types = node.schema
    return node if tuple(types) == names else Project(node, tuple((n, column(n, types[n])) for n in names))


def _independent(
    membership: MembershipTest, scope: Scope, shape: BlockShape, binder: Binder
) -> tuple[Node, list[exp.Expr]]:
    """A grouped subquery or a set operation: it stands for itself, only IN links it."""
    block = binder.block(membership.query, replace(shape, append=False, mixed=False))
    if membership.value is None:
        return block.node, []
    columns: list[exp.Expr] = [resolved(o.column, membership.value) for o in block.outputs]
    return block.node, _links(membership, scope, columns, binder)


def _links(membership: MembershipTest, scope: Scope, others: list[exp.Expr], binder: Binder) -> list[exp.Expr]:
    """The comparisons that IN asks for, with the columns of its query."""
    values = membership.values
    if len(values) != len(others):
        wanted = "one column" if len(values) == 1 else f"{len(values)} columns"
        raise BindingError(
            f"IN needs a subquery with {wanted}, not {len(others)}",
            span=span_of(membership.query, binder.context.source),
        )
    found = []
    for value, other in zip(values, others, strict=True):
        link = membership.compare(this=resolve(value, scope), expression=other)
        link.meta[_LINK] = True
        found.append(link)
    return found


def unknown(conditions: list[exp.Expr]) -> list[exp.Expr]:
    """The conditions under which nobody knows whether a row compares, for a null."""
    links = [c for c in conditions if c.meta.get(_LINK)]
    both = exp.and_(*(c.copy() for c in links), copy=False)
    return [*(c for c in conditions if not c.meta.get(_LINK)), exp.Is(this=exp.Paren(this=both), expression=exp.Null())]


def _correlated(
    membership: MembershipTest, inner: exp.Select, outer: Scope, shape: BlockShape, binder: Binder
) -> tuple[Node, list[exp.Expr]]:
    """A plain subquery: conditions on its own rows inside it, the others between the two."""
    binder.refuse_clauses(inner)
    scope = Scope(binder.context.source, outer=outer)
    from_ = bind_from(inner, scope, shape, binder)
    plain, nested = binder.where(inner, scope)
    own_columns = frozenset(c for i in from_.inputs for c in i.columns)
    conditions = from_.conditions + plain
    if membership.value is not None:
        items = expand(select_list(inner, binder.context.source).items, scope)
        conditions += _links(membership, outer, [tree for _, tree in items], binder)
    outside = [e for e in outer.entries if not e.is_table]
    tables = [e for e in scope.entries if e.valid is not None]
    if tables and len(from_.inputs) == 1:
        conditions += validity(tables, outside, conditions, binder.context)
    own = [c for c in conditions if columns_of(c) <= own_columns and columns_of(c) and not c.meta.get(_LINK)]
    correlated = [c for c in conditions if c not in own]
    node, rest = join(from_.inputs, own, from_.crossed, False, binder.context)
    pipeline = Pipeline(binder.context, node, grid=binder.grid(shape))
    for condition in taken_together(rest):
        pipeline.filter(condition, "WHERE")
    for membership_ in nested:
        semi_join(pipeline, scope, membership_, shape, binder)
    binder.filter_by_subqueries(pipeline, inner, scope, shape)
    return pipeline.node, correlated


def _is_plain(tree: exp.Select, catalog: Catalog) -> bool:
    """Is it a select without grouping, so that only its rows matter?"""
    items = [i for e in tree.expressions for i in (e.expressions if isinstance(e, StreamItems) else [e])]
    return not (
        any(tree.args.get(clause) for clause in ("group", "having", "qualify", "windows", "limit", "offset"))
        or any(isinstance(n, exp.Window) for i in items for n in i.walk())
        or any(find_aggregate(i, catalog) is not None for i in items)
    )
