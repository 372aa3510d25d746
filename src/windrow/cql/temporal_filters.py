"""Conditions that compare the time of rows with NOW(), as windows: what other systems call temporal filters.

    FROM s WHERE ts > NOW() - INTERVAL '5 minutes' AND a > 1    ->    FROM s [RANGE 5 MINUTES] WHERE a > 1
    FROM s WHERE mz_now() <= ts + INTERVAL '1 hour'             ->    FROM s [RANGE 1 hour and 1 microsecond]
    FROM a LEFT JOIN b ON a.k = b.k AND b.ts > NOW() - ...      ->    FROM a LEFT JOIN b [RANGE ...] ON a.k = b.k

Q(t) asks at t, so NOW() in such a condition is t, and no clock is looked at: the rows with ts > t - T and ts <= t are
those of the window (t - T, t]; `>=` takes in the row at t - T, one microsecond further. `ts <= NOW()` holds for all.
Law: a condition of WHERE on the rows of one input commutes with the joins above it, unless they pad that input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from windrow.cql.dialect import WINDOW
from windrow.cql.group_windows import length_of
from windrow.cql.proctime import is_clock
from windrow.cql.scope import INSTANT, conjuncts, offset_of
from windrow.cql.shapes import query_in, sources_of, window_of
from windrow.cql.source import ScriptText
from windrow.cql.windowed_selects import put_window
from windrow.cql.windows import Amount, WindowClause
from windrow.plan.nodes import WindowKind

if TYPE_CHECKING:
    from windrow.cql.select import Binder

_SHIFTS = {"timestamp_sub": -1, "date_sub": -1, "timestamp_add": 1, "date_add": 1}
_FLIPPED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}

_Terms = list[tuple[int, exp.Expr]]  # what is added, with its sign


def place_temporal_filters(tree: exp.Expr, binder: Binder) -> None:
    """Put windows on the streams whose time such conditions bound, in the tree itself."""
    for select in list(tree.find_all(exp.Select)) if any(map(is_clock, tree.walk())) else ():
        where = select.args.get("where")
        if where is not None:
            kept = list(_rest(where.this, _certain(select), binder))
            select.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
        for join in select.args.get("joins") or ():
            on = join.args.get("on")
            if on is not None and not join.method and (join.side or "").upper() in ("", "LEFT"):
                kept = list(_rest(on, [join.this], binder))
                join.set("on", exp.and_(*kept, copy=False) if kept else exp.true())


def _certain(select: exp.Select) -> list[exp.Expr]:
    """The inputs of FROM that no join pads."""
    found = sources_of(select)
    padded: set[int] = set()
    for place, join in enumerate(select.args.get("joins") or (), start=1):
        side = (join.side or "").upper()
        if side in ("RIGHT", "FULL"):
            padded.update(range(place))
        if side in ("LEFT", "FULL") or join.method:
            padded.add(place)
    nested = any(s.args.get("joins") for s in found)
    return [] if nested else [s for place, s in enumerate(found) if place not in padded]


def _rest(condition: exp.Expr, inputs: list[exp.Expr], binder: Binder) -> Iterator[exp.Expr]:
    """What a condition asks beside the windows that are put on the inputs."""
    for part in conjuncts(condition):
        pair = [part]
        if isinstance(part, exp.Between) and not part.args.get("symmetric"):
            low, high = part.args["low"].copy(), part.args["high"].copy()
            pair = [exp.GTE(this=part.this.copy(), expression=low), exp.LTE(this=part.this.copy(), expression=high)]
        bounds = [_bound(p, binder.context.source) for p in pair]
        if None in bounds or not all(_place(b, inputs, binder) for b in bounds if b is not None):
            yield part


def _bound(part: exp.Expr, source: ScriptText) -> tuple[exp.Column, Amount | None] | None:
    """The time column that a comparison with NOW() bounds, and the length of its window; None: all of the past."""
    kind = type(part)
    if kind not in _FLIPPED:
        return None
    left, right = _terms(part.this, 1), _terms(part.expression, -1)
    if left is None or right is None:
        return None
    terms = left + right
    times = [(sign, node) for sign, node in terms if isinstance(node, exp.Column)]
    clocks = [sign for sign, node in terms if is_clock(node)]
    if len(times) != 1 or clocks != [-times[0][0]]:
        return None
    (sign, time), lengths = times[0], [(s, n) for s, n in terms if isinstance(n, exp.Interval)]
    assert isinstance(time, exp.Column)
    kind = _FLIPPED[kind] if sign < 0 else kind
    for _, length in lengths:
        length.meta.setdefault("start", offset_of(time) or 0)
    amounts = [(s * sign, length_of(n, "RANGE", source)) for s, n in lengths]
    total = sum(s * a.value for s, a in amounts)  # time - now + total > 0
    if kind in (exp.LT, exp.LTE):
        return (time, None) if total < 0 or (kind is exp.LTE and total == 0) else None
    if total <= 0 or not all(a.has_unit for _, a in amounts):
        return None
    text = " ".join(a.text for _, a in amounts)
    return time, Amount(total + (kind is exp.GTE), True, text, offset_of(time) or 0)


def _terms(node: exp.Expr, sign: int) -> _Terms | None:
    """The terms of a sum of times and lengths; None for anything else."""
    if isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and is_clock(node.this)):
        return _terms(node.this, sign)
    if isinstance(node, exp.Column | exp.Interval) or is_clock(node):
        return [(sign, node)]
    if isinstance(node, exp.Add | exp.Sub):
        pair = node.this, node.expression, 1 if isinstance(node, exp.Add) else -1
    elif isinstance(node, exp.Anonymous) and node.name.lower() in _SHIFTS and len(node.expressions) == 2:
        pair = node.expressions[0], node.expressions[1], _SHIFTS[node.name.lower()]
    else:
        return None
    left, right = _terms(pair[0], sign), _terms(pair[1], sign * pair[2])
    return None if left is None or right is None else left + right


def _place(bound: tuple[exp.Column, Amount | None], inputs: list[exp.Expr], binder: Binder) -> bool:
    """Put the window on the one input that the time is of; whether that could be done."""
    time, length = bound
    found = [s for s in inputs if _may_have(s, time, binder)]
    if len(found) != 1:
        return False
    (source,) = found
    stream = binder.catalog.streams.get(source.name.lower()) if query_in(source) is None else None
    if length is None:
        return stream is not None and time.name.lower() in (stream.time.lower(), INSTANT)
    if window_of(source) is not None:
        return False
    at = offset_of(time) or 0
    clause = WindowClause(WindowKind.RANGE, f"[RANGE {length.text}]", at, size=length, time=(time.name, at))
    if stream is None:
        return put_window(source, clause, binder.catalog)
    source.meta[WINDOW] = clause
    return True


def _may_have(source: exp.Expr, time: exp.Column, binder: Binder) -> bool:
    """Whether a column that is called so may be the time of an input, or stand in the way of another's."""
    if time.table:
        return time.table.lower() == (source.alias or source.name).lower()
    if query_in(source) is not None:
        return True
    declared = binder.catalog.streams.get(source.name.lower()) or binder.catalog.tables.get(source.name.lower())
    return declared is None or any(c.lower() == time.name.lower() for c in (INSTANT, *declared.columns))
