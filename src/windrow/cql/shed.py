"""SHED bound to a SELECT: the join in bounded memory, the importance of its rows, and the tick budget.

A shed join is a star: streams linked by equalities to one fact table, or to each other on the same keys. Conditions on
one input are put below it here, once and for all, because which rows are shed depends on the rows that come; whatever
needs several inputs is checked on the results. One stream with a table needs no memory, so its join stays the ordinary,
exact one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.expressions import BindingContext, has_user_function
from windrow.cql.importance import Importance
from windrow.cql.joins import JoinInput, join, match
from windrow.cql.relations import From
from windrow.cql.scope import columns_of
from windrow.cql.shapes import BlockShape
from windrow.cql.shed_syntax import ShedClause
from windrow.errors import BindingError, Span, UnsupportedError
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import (
    Equality,
    Filter,
    Node,
    Scan,
    Shedding,
    StarJoin,
    TableScan,
    TickBudget,
    Window,
    WindowKind,
    walk,
)

if TYPE_CHECKING:
    from windrow.cql.joins import Matching

__all__ = ["shed_join", "tick_budget"]


# -- importance ------------------------------------------------------------------------------------------


def tick_budget(
    clause: ShedClause, from_: From, importance: Importance, other: TickBudget | None, context: BindingContext
) -> TickBudget | None:
    """The tick budget, with each stream's importance over its own columns; `other`: that of another block."""
    weights = list(other.importance) if other is not None else []
    for i, expr in importance.exprs.items():
        scan = next((s for s in walk(from_.inputs[i].node) if isinstance(s, Scan)), None)
        if scan is not None:
            own = {internal: name for internal, name, _ in scan.columns}
            if not expr.columns <= own.keys():
                if clause.budget is None:
                    continue  # a budget for all queries sheds it by chance
                raise UnsupportedError(
                    "SHED WHEN with an importance that a subquery computes",
                    detail="rows are shed before anything is computed",
                    hint="name columns of the stream itself",
                    span=context.source.span(clause.offset),
                )
            parts = tuple(Ref(own[p.name]) if isinstance(p, Ref) else p for p in expr.parts)
            if all(stream != scan.stream for stream, _ in weights):
                weights.append((scan.stream, Expr(parts, expr.type, expr.functions)))
    budgets = [b for b in (clause.budget.value if clause.budget else None, other.us if other else None) if b]
    return TickBudget(min(budgets, default=None), tuple(weights)) if budgets or weights else None


# -- the join --------------------------------------------------------------------------------------------


def shed_join(
    clause: ShedClause,
    from_: From,
    conditions: list[exp.Expr],
    importance: Importance,
    shape: BlockShape,
    context: BindingContext,
) -> tuple[Node, list[exp.Expr]]:
    """The join of FROM in bounded memory, and the conditions that stay above it."""
    span = context.source.span(clause.offset)
    streams = [i for i in from_.inputs if not i.entries[0].is_table]
    tables = [i for i in from_.inputs if i.entries[0].is_table]
    _check_parts(streams, tables, shape, span, context)
    if len(streams) == 1:
        return join(from_.inputs, conditions, from_.crossed, False, context)
    parts = [*streams, *tables]
    nodes, rest = _filtered(parts, conditions, context)
    matching = match(nodes, rest, context)
    keys, facts, spare = _links(matching, streams, tables, span)
    residual = [*matching.residual, *(_condition(e) for e in spare)]
    positions = [from_.inputs.index(s) for s in streams]
    weights = tuple(importance.columns.get(p) for p in positions)
    valid = _valid(streams, tables, context)
    shedding = _shedding(clause, streams, context)
    return StarJoin(tuple(matching.nodes), keys, facts, weights, shedding, valid, tuple(residual)), matching.rest


def _check_parts(
    streams: Sequence[JoinInput], tables: Sequence[JoinInput], shape: BlockShape, span: Span, context: BindingContext
) -> None:
    """Refuse what is no star."""
    hint = "SHED BY takes streams with time windows, joined with one fact table or with each other on the same keys"
    if any(len(i.entries) > 1 for i in (*streams, *tables)):
        raise UnsupportedError("SHED BY with an outer join", hint=hint, span=span)
    if shape.mixed:
        raise UnsupportedError(
            "SHED BY with a mix of INTERNAL and other windows", hint="make all windows INTERNAL, or none", span=span
        )
    if len(tables) > 1:
        names = ", ".join(t.label for t in tables)
        raise UnsupportedError(
            f"SHED BY with several tables ({names})", hint="join the others around a subquery that sheds", span=span
        )
    if not streams or (len(streams) == 1 and not tables):
        raise BindingError(
            "SHED BY in a query that joins nothing", detail="only a join keeps rows to match", hint=hint, span=span
        )
    for table in tables:
        scan = next(s for s in walk(table.node) if isinstance(s, TableScan))
        if scan.retroactive:
            raise UnsupportedError(
                f'SHED BY with the retroactive table "{scan.table}"',
                hint="facts reach rows that come after them: declare the table without RETROACTIVE",
                span=span,
            )
    for stream in streams if len(streams) > 1 else ():
        window = next((w for w in walk(stream.node) if isinstance(w, Window)), None)
        place = context.source.span(context.offsets.get(stream.entries[0].alias, 0))
        if window is None or _top(stream.node) is not window:
            raise UnsupportedError(
                f'SHED BY with the subquery "{stream.label}", whose rows are no stream', hint=hint, span=place
            )
        if window.spec.kind is WindowKind.ROWS:
            raise UnsupportedError(
                f'SHED BY with a ROWS window on "{stream.label}"',
                detail="a row must know when it will leave, to be worth keeping or not",
                hint="use a time window: [RANGE 1 MINUTE]",
                span=place,
            )


def _top(node: Node) -> Node:
    """The first node that is not a projection."""
    from windrow.plan.nodes import Project

    while isinstance(node, Project):
        node = node.input
    return node


def _filtered(
    parts: Sequence[JoinInput], conditions: Sequence[exp.Expr], context: BindingContext
) -> tuple[list[Node], list[exp.Expr]]:
    """The inputs under the conditions that read one of them alone, and the other conditions."""
    nodes = [p.node for p in parts]
    rest = []
    for condition in conditions:
        columns = columns_of(condition)
        sides = [i for i, p in enumerate(parts) if not columns.isdisjoint(p.columns)]
        if len(sides) == 1 and not has_user_function(condition, context.catalog):
            nodes[sides[0]] = Filter(nodes[sides[0]], context.predicate(condition, "WHERE"))
        else:
            rest.append(condition)
    return nodes, rest


Keys = tuple[tuple[str, ...], ...]


def _links(
    matching: Matching, streams: Sequence[JoinInput], tables: Sequence[JoinInput], span: Span
) -> tuple[Keys, Keys, list[Equality]]:
    """(keys by stream, the table's columns that equal them, equalities left over)."""
    owner = {c: i for i, node in enumerate(matching.nodes) for c in node.schema}
    if not tables:
        return (*_shared_keys(matching, owner, streams, span),)
    table = len(streams)
    keys: list[list[str]] = [[] for _ in streams]
    facts: list[list[str]] = [[] for _ in streams]
    spare = []
    for e in matching.equalities:
        sides = {owner[e.left]: e.left, owner[e.right]: e.right}
        other = next(s for s in sides if s != table) if table in sides else -1
        if other < 0 or e.null_safe:
            spare.append(e)
            continue
        keys[other].append(sides[other])
        facts[other].append(sides[table])
    for stream, found in zip(streams, keys, strict=True):
        if not found:
            raise UnsupportedError(
                f'SHED BY: stream "{stream.label}" is not linked to the table "{tables[0].label}" by an equality',
                hint=f"add a condition such as {stream.label}.k = {tables[0].label}.k",
                span=span,
            )
    return tuple(map(tuple, keys)), tuple(map(tuple, facts)), spare


def _shared_keys(
    matching: Matching, owner: dict[str, int], streams: Sequence[JoinInput], span: Span
) -> tuple[Keys, Keys, list[Equality]]:
    """Streams joined with each other: every class of equal columns must reach all of them."""
    classes: list[set[str]] = []
    for e in matching.equalities:
        if e.null_safe:
            raise UnsupportedError("SHED BY with IS NOT DISTINCT FROM", hint="join with =", span=span)
        touched = [c for c in classes if e.left in c or e.right in c]
        classes = [c for c in classes if c not in touched] + [{e.left, e.right}.union(*touched)]
    keys: list[list[str]] = [[] for _ in streams]
    for members in classes:
        own = [sorted(c for c in members if owner[c] == i) for i in range(len(streams))]
        if not all(len(c) == 1 for c in own):
            raise UnsupportedError(
                "SHED BY: the streams are not all joined on the same keys",
                detail=f"{', '.join(sorted(members))} are equal, but every stream must have one key",
                hint="join all streams on the same columns, or through a fact table",
                span=span,
            )
        for i, c in enumerate(own):
            keys[i].append(c[0])
    return tuple(map(tuple, keys)), (), []


def _condition(e: Equality) -> Expr:
    sign = " IS NOT DISTINCT FROM " if e.null_safe else " = "
    return Expr(("(", Ref(e.left), sign, Ref(e.right), ")"), pa.bool_())


def _valid(
    streams: Sequence[JoinInput], tables: Sequence[JoinInput], context: BindingContext
) -> tuple[str, str] | None:
    """The table's active interval; every stream is linked to it and must have a time."""
    valid = tables[0].entries[0].valid if tables else None
    if valid is None:
        return None
    for stream in streams:
        if stream.entries[0].time is None:
            raise UnsupportedError(
                f'table "{tables[0].label}" has active intervals, but the subquery "{stream.label}" has no time column',
                hint="join the table inside the subquery",
                span=context.source.span(context.offsets.get(tables[0].label, 0)),
            )
    for column in valid:
        type_ = tables[0].node.schema[column]
        if not (pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
            raise UnsupportedError(
                f"an active interval of type {types.sql_name(type_)} under SHED BY",
                hint="declare its columns as BIGINT for ticks, or TIMESTAMP",
                span=context.source.span(context.offsets.get(tables[0].label, 0)),
            )
    return valid


def _shedding(clause: ShedClause, streams: Sequence[JoinInput], context: BindingContext) -> Shedding:
    assert clause.keep is not None and clause.heuristic is not None
    count = len(streams)
    least = 1 if clause.divide == "each" else 2 if clause.divide == "need" else count
    if clause.keep < least:
        share = {"each": "for each stream", "need": "for all streams"}.get(
            clause.divide, f"divided among {count} streams"
        )
        raise BindingError(
            f"KEEP {clause.keep} ROWS {share}",
            hint=f"keep at least {least} row{'s' if least > 1 else ''}",
            span=context.source.span(clause.keep_offset),
        )
    if clause.heuristic == "DGL":
        _check_ends(streams, context)
    keep = {"each": clause.keep, "need": clause.keep}.get(clause.divide, clause.keep // count)
    p = clause.parameters
    return Shedding(
        clause.heuristic, (keep,) * count, clause.divide == "need",
        p.get("alpha", 10.0), p.get("beta", 1.0), int(p.get("seed", 0)), " ".join(clause.text.split()),
    )  # fmt: skip


def _check_ends(streams: Sequence[JoinInput], context: BindingContext) -> None:
    """DGL weighs a row by the time it has left."""
    for stream in streams:
        window = next(w for w in walk(stream.node) if isinstance(w, Window))
        if window.spec.kind is WindowKind.UNBOUNDED:
            raise BindingError(
                f'SHED BY DGL needs a window on "{stream.label}"',
                detail="a row that never expires has no remaining lifetime to weigh",
                hint="write [RANGE 1 MINUTE], or shed by another heuristic",
                span=context.source.span(context.offsets.get(stream.entries[0].alias, 0)),
            )
