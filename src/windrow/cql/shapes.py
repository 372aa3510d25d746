"""What the windows of a query make of it, before anything is bound: continuous or periodic, kept for ever or not.

A block is a SELECT or a set operation with the subqueries that are part of it: those in expressions, and those of FROM
that are no streams of their own. All of them are evaluated together, so they have one period. A UNION ALL of SELECTs
that all have a stream operator merges streams, each of a block of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from windrow.cql.dialect import WINDOW
from windrow.cql.nesting import common_table
from windrow.cql.select_items import select_list
from windrow.cql.walks import nodes
from windrow.cql.windows import Amount, WindowClause
from windrow.cql.wstream import INTERNAL
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.nodes import StreamOp, WindowKind

if TYPE_CHECKING:
    from windrow.cql.select import Binder

RESTORE = (StreamOp.ISTREAM_RESTORE, StreamOp.RSTREAM_RESTORE)


@dataclass(frozen=True)
class BlockShape:
    """What the windows of a block make of it.

    `period`: evaluated at every `k * period + offset` only. `append`: continuous and every window is INTERNAL.
    `mixed`: continuous, some windows are INTERNAL, some not. `quantise`: inputs are seen at the period's multiples.
    `aligned`: evaluated per window of TUMBLE or HOP, so a window without rows has no answer. `size`: the longest RANGE;
    None if it has other windows, and so no bounds. `session`: evaluated at the ends of sessions. `at_most`: the period
    is a deadline.
    """

    period: int | None = None
    offset: int = 0
    append: bool = False
    mixed: bool = False
    quantise: bool = True
    aligned: bool = False
    size: int | None = None
    session: bool = False
    at_most: bool = False

    def within(self, around: BlockShape) -> BlockShape:
        """The shape of a block that is evaluated with the one around it."""
        return replace(around, append=self.append, mixed=self.mixed, size=self.size)


def window_of(table: exp.Expr) -> WindowClause | None:
    """The window written on a table or subquery."""
    alias = table.args.get("alias")
    written = alias.meta.get(WINDOW) if isinstance(alias, exp.TableAlias) else None
    clause: WindowClause | None = written or table.meta.get(WINDOW)
    return clause


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """The tables and subqueries of FROM, in order."""
    from_ = select.args.get("from_")
    if from_ is None:
        return []
    found = [from_.this]
    for join_ in (from_.this.args.get("joins") or []) + (select.args.get("joins") or []):
        found.append(join_.this)
        found.extend(inner.this for inner in join_.this.args.get("joins") or [])
    return found


def unwrap(tree: exp.Expr) -> exp.Expr:
    """A query without the parentheses around it."""
    while isinstance(tree, (exp.Subquery, exp.Paren)) and not window_of(tree):
        tree = tree.this
    return tree


def selects_of(tree: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs of a block: itself, or the branches of a set operation."""
    tree = unwrap(tree)
    if isinstance(tree, exp.SetOperation):
        yield from selects_of(tree.this)
        yield from selects_of(tree.expression)
    elif isinstance(tree, exp.Select):
        yield tree


def queries_in(select: exp.Select) -> Iterator[exp.Expr]:
    """The subqueries in a SELECT's expressions, outermost ones only."""
    parts = [p for key, p in select.args.items() if key not in ("from_", "joins", "with_")]
    parts += [p for j in select.args.get("joins") or () for key, p in j.args.items() if key != "this"]
    for part in parts:
        for tree in part if isinstance(part, list) else [part]:
            if isinstance(tree, exp.Expr):
                yield from _outermost(tree)


def _outermost(tree: exp.Expr) -> Iterator[exp.Expr]:
    found = [tree] if isinstance(tree, exp.Query) else [n for n in nodes(tree, exp.Query) if isinstance(n, exp.Query)]
    return (unwrap(n) for n in found)


def shape_of(tree: exp.Expr, binder: Binder) -> BlockShape:
    """The shape of a block; a query of WITH is looked at once, however often it is read."""
    if id(tree) not in binder.shapes:
        binder.shapes[id(tree)] = (tree, _shape(tree, binder))
    return binder.shapes[id(tree)][1]


def merges_streams(tree: exp.Expr, binder: Binder) -> bool:
    """Whether a block is a UNION ALL whose branches are all streams, by an operator of their own."""
    tree = unwrap(tree)
    if not isinstance(tree, exp.Union) or tree.args.get("distinct"):
        return False
    return all(select_list(s, binder.context.source).op is not None for s in selects_of(tree))


def _shape(tree: exp.Expr, binder: Binder) -> BlockShape:
    if merges_streams(tree, binder):
        return BlockShape()
    clauses = list(clauses_of(tree, binder))
    internal = [c is not None and c.internal for c in clauses]
    feeds = any(s.meta.get(INTERNAL) for s in selects_of(tree))
    windows = _windows(tree, binder, clauses)
    ops = {select_list(s, binder.context.source).op for s in selects_of(tree)}
    period, offset = _grid(windows, binder)
    every = feeds or (bool(internal) and all(internal))
    mixed = any(internal) and not every and period is None
    aligned = any(c is not None and c.aligned for c in windows)
    session = next((c for c in windows if c is not None and c.kind is WindowKind.SESSION), None)
    if session is not None:
        _check_session(session, period, {select_list(s, binder.context.source).node for s in selects_of(tree)}, binder)
    if aligned and ops & set(RESTORE):
        raise UnsupportedError(
            "RESTORE over TUMBLE or HOP",
            hint="write a window with a SLIDE: s [RANGE 10 MINUTES SLIDE 10 MINUTES]",
        )
    append, quantise = every and period is None, not ops & set(RESTORE)
    at_most = _at_most(windows, bool(ops & set(RESTORE)), binder)
    return BlockShape(period, offset, append, mixed, quantise, aligned, _longest(windows), session is not None, at_most)


def _at_most(windows: list[WindowClause | None], restores: bool, binder: Binder) -> bool:
    """Whether the SLIDE of a block is a deadline: then it is on every window that has one."""
    periodic = [c for c in windows if c is not None and c.period is not None]
    deadline = next((c for c in periodic if c.at_most), None)
    if deadline is None:
        return False
    other = next((c for c in periodic if not c.at_most), None)
    if other is not None:
        raise BindingError(
            f"{deadline.text} has a deadline and {other.text} has none",
            hint="write SLIDE AT MOST in all windows of a query, or in none",
            span=binder.context.source.span(other.offset),
        )
    if restores:
        raise UnsupportedError(
            "RESTORE with SLIDE AT MOST",
            detail="what came and went since the last evaluation depends on when that was",
            hint="write SLIDE without AT MOST, or RSTREAM or ISTREAM without RESTORE",
            span=binder.context.source.span(deadline.offset),
        )
    return True


def _check_session(clause: WindowClause, period: int | None, ops: set[exp.Expr | None], binder: Binder) -> None:
    """Refuse a SLIDE or a stream operator beside SESSION."""
    span = binder.context.source.span(clause.offset)
    if period is not None:
        raise UnsupportedError(
            "SESSION and windows with a SLIDE in one query",
            detail="one is evaluated at the ends of sessions, the others at the multiples of the SLIDE",
            hint="join them as streams: FROM (SELECT ... FROM SESSION(...)) [RANGE 1 HOUR]",
            span=span,
        )
    if ops - {None}:
        raise UnsupportedError(
            "a stream operator over SESSION",
            detail="the answer is a stream already: every session once, at its end",
            hint="remove the stream operator",
            span=span,
        )


def _grid(windows: list[WindowClause | None], binder: Binder) -> tuple[int | None, int]:
    """The one SLIDE of a block, and the one offset."""
    periodic = [(c.period, c) for c in windows if c is not None and c.period is not None]
    if not periodic:
        return None, 0
    first, clause = periodic[0]
    offset = _offset(clause)
    for amount, other in periodic[1:]:
        if amount.value != first.value:
            raise BindingError(
                f"SLIDE {amount.text} differs from SLIDE {first.text} in one query",
                hint="use one SLIDE in a query; a subquery has its own if a window is on it: (SELECT ...) [ROWS 10]",
                span=binder.context.source.span(amount.offset),
            )
        if _offset(other) != offset:
            raise BindingError(
                f"{other.text} and {clause.text} have different offsets",
                hint="use one offset in a query: the whole is evaluated at the same instants",
                span=binder.context.source.span(other.offset),
            )
    return first.value, offset


def _offset(clause: WindowClause) -> int:
    assert clause.period is not None
    return clause.shift.value % clause.period.value if clause.shift is not None else 0


def _longest(windows: list[WindowClause | None]) -> int | None:
    """The longest RANGE; None when a window is none."""
    if any(c is None or c.kind is not WindowKind.RANGE for c in windows):
        return None
    return max((c.size.value for c in windows if c is not None and isinstance(c.size, Amount)), default=None)


def _windows(tree: exp.Expr, binder: Binder, own: list[WindowClause | None] | None = None) -> list[WindowClause | None]:
    """The windows of a block (`own`) and of the subqueries of FROM that are evaluated with it, each once."""
    if id(tree) not in binder.windows:
        found = dict.fromkeys(clauses_of(tree, binder) if own is None else own)
        for source in (s for select in selects_of(tree) for s in sources_of(select)):
            query = query_in(source)
            if query is not None and not stands_alone(source, query, binder):
                found |= dict.fromkeys(_windows(query, binder))
        binder.windows[id(tree)] = (tree, list(found))
    return binder.windows[id(tree)][1]


def clauses_of(tree: exp.Expr, binder: Binder) -> Iterator[WindowClause | None]:
    """The windows of all stream references of a block; None for a stream without one."""
    for select in selects_of(tree):
        for source in sources_of(select):
            if window_of(source) or _is_stream(source, binder):
                yield window_of(source)
        for query in queries_in(select):
            yield from clauses_of(query, binder)


def _is_stream(source: exp.Expr, binder: Binder) -> bool:
    return (
        isinstance(source, exp.Table)
        and query_in(source) is None
        and (source.name.lower() not in binder.catalog.tables)
    )


def query_in(source: exp.Expr) -> exp.Expr | None:
    """The query that an item of FROM stands for, if it is one."""
    return source.this if isinstance(source, exp.Subquery) else common_table(source)


def stands_alone(source: exp.Expr, query: exp.Expr, binder: Binder) -> bool:
    """Whether a subquery of FROM is a stream of its own, and not part of the query around it."""
    if window_of(source) is not None:
        return True
    operators = any(select_list(s, binder.context.source).node is not None for s in selects_of(query))
    return operators or shape_of(query, binder).append
