"""`a LEFT JOIN b WITHIN 1 HOUR ON a.id = b.id`, as ksql writes it: a bound on how far apart in time two rows may be.

    WITHIN d              b.time BETWEEN a.time - d AND a.time + d
    WITHIN (d, e)         b.time BETWEEN a.time - d AND a.time + e

Where several streams stand before it, a.time is the last of their times, as a pair of rows comes with its later one.
GRACE PERIOD g, how late rows may be, is a property of streams: it is read where theirs is g or more.
It is one more condition of the join and nothing else: outer joins pad what no row meets within the range, and what is
remembered is bounded by windows, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from windrow.catalog import StreamDef
from windrow.cql.scope import Entry, resolved
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.windows import Amount, Clock, parse_amount
from windrow.errors import BindingError, UnsupportedError

WITHIN = "within"  # meta key: the JoinRange of a source
_HINT = "write a LEFT JOIN b WITHIN 1 HOUR ON a.id = b.id"


@dataclass(frozen=True)
class JoinRange:
    """How long before and after the row on the left the one on the right may be."""

    before: Amount
    after: Amount
    offset: int
    grace: Amount | None = None


def at_within(cursor: Cursor) -> bool:
    """Whether a range follows, and not a source that is called so."""
    if cursor.word != "WITHIN":
        return False
    after = Cursor(cursor.source, cursor.tokens, cursor.index + 1)
    after.accept("(")
    return after.kind in ("NUMBER", "STRING") or after.word == "INTERVAL"


def parse_within(cursor: Cursor) -> JoinRange:
    """Parse WITHIN and what follows it; the cursor moves behind it."""
    offset = cursor.offset
    cursor.expect("WITHIN")
    pair = cursor.accept("(")
    before = after = parse_amount(cursor, "WITHIN")
    if pair:
        cursor.expect(",", hint="write WITHIN (1 HOUR, 2 HOURS)")
        after = parse_amount(cursor, "WITHIN")
        cursor.expect(")", hint="write WITHIN (1 HOUR, 2 HOURS)")
    grace = None
    if cursor.accept("GRACE"):
        cursor.expect("PERIOD", hint="write WITHIN 1 HOUR GRACE PERIOD 10 MINUTES")
        grace = parse_amount(cursor, "GRACE PERIOD")
    return JoinRange(before, after, offset, grace)


def within_of(source: exp.Expr) -> JoinRange | None:
    """The range of a source that is joined, if it has one."""
    alias = source.args.get("alias")
    return alias.meta.get(WITHIN) if alias is not None else None


def within_conditions(
    range_: JoinRange, left: Sequence[Entry], right: Entry, clock: Clock, source: ScriptText
) -> list[exp.Expr]:
    """What a range asks of the times of streams."""
    timed = [resolved(e.time) for e in left if e.time is not None]
    span = source.span(range_.offset)
    if right.time is None or not timed:
        raise BindingError(
            "WITHIN bounds the times of two streams",
            detail="streams stand before it, and one behind it",
            hint="compare the times in ON: b.ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts + INTERVAL 1 HOUR",
            span=span,
        )
    begin, end = (a.on(clock, source, "WITHIN") for a in (range_.before, range_.after))
    if min(begin, end) < 0:
        raise BindingError("WITHIN a negative length", hint=_HINT, span=span)
    mine = timed[0] if len(timed) == 1 else exp.Anonymous(this="greatest", expressions=timed)
    other = resolved(right.time)
    found: list[exp.Expr] = [
        exp.GTE(this=other, expression=exp.Sub(this=mine.copy(), expression=_length(begin, clock))),
        exp.LTE(this=other.copy(), expression=exp.Add(this=mine.copy(), expression=_length(end, clock))),
    ]
    for tree in found:
        tree.meta["start"] = range_.offset
    return found


def check_grace(grace: Amount, where: str, streams: Sequence[StreamDef], clock: Clock, source: ScriptText) -> None:
    """Refuse a grace period that streams do not grant, for later rows would not be there."""
    length = grace.on(clock, source, "GRACE PERIOD")
    for stream in streams:
        if stream.slack < length:
            raise UnsupportedError(
                f'GRACE PERIOD {grace.text} on {where} "{stream.name}", which does not wait that long',
                detail="how late rows may be is a property of a stream",
                hint=f"declare it with TIMESTAMP BY {stream.time} WITHIN {grace.text}",
                span=source.span(grace.offset),
            )


def _length(value: int, clock: Clock) -> exp.Expr:
    if clock is Clock.TICKS:
        return exp.Literal.number(value)
    return exp.Interval(this=exp.Literal.string(str(value)), unit=exp.Var(this="MICROSECOND"))
