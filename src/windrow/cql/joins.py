"""One FROM clause as one n-way join: which conditions are equalities, which are residual, which are missing.

A condition between exactly two inputs that equates a value of one with a value of the other is an `Equality`
of two columns (computed and cast below the join where they are not plain columns of one type). Any other
condition over several inputs is residual. The rest reads one input at most and stays a filter above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.expressions import BindingContext, has_user_function
from windrow.cql.pipeline import extend
from windrow.cql.scope import Entry, columns_of, resolved, span_of
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.expr import Expr, column
from windrow.plan.nodes import Equality, Join, LeftJoin, Node, Project, Semi, Union


@dataclass
class JoinInput:
    """One input of a join: its node and the entries of FROM that it carries."""

    node: Node
    entries: list[Entry]
    internal: bool = False

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.node.schema)

    @property
    def label(self) -> str:
        return ", ".join(e.alias for e in self.entries)


@dataclass
class Matching:
    """Conditions sorted by what a join can do with them."""

    nodes: list[Node]
    equalities: list[Equality] = field(default_factory=list)
    residual: list[Expr] = field(default_factory=list)
    rest: list[exp.Expr] = field(default_factory=list)


def match(nodes: Sequence[Node], conditions: Iterable[exp.Expr], context: BindingContext) -> Matching:
    """Sort resolved conditions into equalities, residual predicates and the rest."""
    matching = Matching(list(nodes))
    for condition in conditions:
        sides = _sides(condition, matching.nodes)
        if len(sides) < 2 or has_user_function(condition, context.catalog):
            matching.rest.append(condition)
        elif not _equate(condition, matching, context):
            matching.residual.append(context.predicate(condition, "a join condition"))
    return matching


def _sides(tree: exp.Expr, nodes: Sequence[Node]) -> set[int]:
    columns = columns_of(tree)
    return {i for i, node in enumerate(nodes) if not columns.isdisjoint(node.schema)}


def _equate(condition: exp.Expr, matching: Matching, context: BindingContext) -> bool:
    """Add the condition as an equality if it is one between two inputs."""
    if not isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
        return False
    left, right = condition.this, condition.expression
    one, other = _sides(left, matching.nodes), _sides(right, matching.nodes)
    if len(one) != 1 or len(other) != 1 or one == other:
        return False
    context.expr(condition)  # DuckDB agrees that the two can be compared
    a, b = context.expr(left), context.expr(right)
    if not types.comparable(a.type, b.type):
        raise BindingError(
            "type mismatch",
            detail=f"cannot compare {types.sql_name(a.type)} with {types.sql_name(b.type)}",
            hint="CAST one side to the type that is meant",
            span=span_of(condition, context.source),
        )
    common = types.common_type(a.type, b.type)
    sides = sorted([(one.pop(), a), (other.pop(), b)], key=lambda side: side[0])  # left is the earlier input
    names = [_key(matching, index, expr, common, context) for index, expr in sides]
    matching.equalities.append(Equality(names[0], names[1], isinstance(condition, exp.NullSafeEQ)))
    return True


def _key(matching: Matching, index: int, expr: Expr, common: pa.DataType, context: BindingContext) -> str:
    """The column of an input that holds the key in the common type."""
    if expr.type != common:
        expr = Expr(("CAST(", *expr.parts, f" AS {types.sql_name(common)})"), common)
    if expr.column is not None:
        return expr.column
    name = context.computed(expr)
    matching.nodes[index] = extend(matching.nodes[index], {name: expr})
    return name


def join(
    inputs: Sequence[JoinInput],
    conditions: list[exp.Expr],
    crossed: set[tuple[int, int]],
    mixed: bool,
    context: BindingContext,
) -> tuple[Node, list[exp.Expr]]:
    """The join of all inputs, and the conditions that stay above it."""
    if len(inputs) == 1:
        return inputs[0].node, conditions
    _check_connected(inputs, conditions, crossed, context)
    entries = [e for i in inputs for e in i.entries]
    conditions = conditions + validity(entries, entries, conditions, context)
    matching = match([i.node for i in inputs], conditions, context)
    flags = tuple(i.internal for i in inputs) if mixed else ()
    return Join(tuple(matching.nodes), tuple(matching.equalities), tuple(matching.residual), flags), matching.rest


def _check_connected(
    inputs: Sequence[JoinInput], conditions: Iterable[exp.Expr], crossed: set[tuple[int, int]], context: BindingContext
) -> None:
    """Every input must be linked to the others by conditions or by CROSS JOIN."""
    group = list(range(len(inputs)))

    def merge(members: Iterable[int]) -> None:
        roots = {group[m] for m in members}
        target = min(roots, default=0)
        group[:] = [target if g in roots else g for g in group]

    nodes = [i.node for i in inputs]
    for condition in conditions:
        merge(_sides(condition, nodes))
    for pair in crossed:
        merge(pair)
    for i, g in enumerate(group):
        if g != group[0]:
            raise BindingError(
                f"no join condition between {inputs[0].label} and {inputs[i].label}",
                hint=f"add a condition such as {_suggest(inputs[0], inputs[i])}, or write CROSS JOIN",
                span=context.source.span(context.offsets.get(inputs[i].entries[0].alias, 0)),
            )


def _suggest(left: JoinInput, right: JoinInput) -> str:
    a, b = left.entries[0], right.entries[0]
    shared = [c.name for c in a.columns if b.find(c.name) and c.internal != a.time] or ["k"]
    return f"{a.alias}.{shared[0]} = {b.alias}.{shared[0]}"


def validity(
    tables: Iterable[Entry], others: Sequence[Entry], conditions: Iterable[exp.Expr], context: BindingContext
) -> list[exp.Expr]:
    """What VALID FROM a TO b asks: a <= s.time < b for every stream s that a condition links to the table."""
    conditions = list(conditions)
    wanted: list[exp.Expr] = []
    for table in tables:
        if table.valid is None:
            continue
        linked = [e for e in others if not e.is_table and _linked(table, e, conditions)]
        for entry in linked or [e for e in others if not e.is_table]:
            if entry.time is None:
                raise UnsupportedError(
                    f'table "{table.alias}" has active intervals, but the subquery "{entry.alias}" has no time column',
                    hint="join the table inside the subquery",
                    span=context.source.span(context.offsets.get(table.alias, 0)),
                )
            begin, end = table.valid
            wanted.append(_bound(begin, exp.LTE(this=resolved(begin), expression=resolved(entry.time))))
            wanted.append(_bound(end, exp.LT(this=resolved(entry.time), expression=resolved(end))))
    for tree in wanted:
        tree.meta["start"] = context.offsets.get("", 0)
    return wanted


def _bound(name: str, inside: exp.Expr) -> exp.Expr:
    """A null bound is open."""
    return exp.Or(this=exp.Is(this=resolved(name), expression=exp.Null()), expression=inside)


def _linked(a: Entry, b: Entry, conditions: Iterable[exp.Expr]) -> bool:
    return any(
        not columns.isdisjoint(a.internals) and not columns.isdisjoint(b.internals)
        for columns in map(columns_of, conditions)
    )


def foreign(condition: exp.Expr, known: frozenset[str], context: BindingContext) -> None:
    """Refuse a condition that reads columns two queries further out."""
    if columns_of(condition) - known:
        raise UnsupportedError(
            "a subquery may refer only to the query directly around it", span=span_of(condition, context.source)
        )


def full_join(left: LeftJoin) -> Node:
    """The left join, and the right rows without a match with nulls on the left."""
    swapped = tuple(Equality(e.right, e.left, e.null_safe) for e in left.equalities)
    alone = Semi(left.right, left.left, swapped, left.residual, anti=True)
    nulls = [(n, types.null_of(t)) for n, t in left.left.schema.items()]
    kept = [(n, column(n, t)) for n, t in left.right.schema.items()]
    return Union((left, Project(alone, (*nulls, *kept))))
