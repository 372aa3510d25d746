"""The way in of a replay: rows in arrival order become rows in time order, and those that came too late are set aside.

A stream without WITHIN is taken in the order of its times: all its rows are known. With WITHIN its rows are judged in
the order of their arrival: a row is late when its time is below the greatest time of the rows before it, less the
slack. That depends on the rows and their order alone, not on how they are cut into batches. Ties in time keep arrival
order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.elements import BEGINNING, Int64s, one


@dataclass(frozen=True)
class Arrivals:
    """Rows of one stream: times and columns in one order, the late rows, and what was set aside (`aside.SCHEMA`)."""

    ts: Int64s
    rows: pa.Table
    late: pa.Table
    aside: pa.Table = field(default_factory=lambda: pa.table({}))


FURTHEST = 2**62
"""No time is further from zero, and no window longer than half of that, so that no sum of times overflows."""


def times(stream: StreamDef, table: pa.Table) -> Int64s:
    """The time of each row: microseconds for timestamps and dates, ticks for integers."""
    ts = _times(stream, table)
    if len(ts) and not (ts.min() >= -FURTHEST and ts.max() <= FURTHEST):
        row = int(np.argmax(too_far(stream, table)))
        raise SourceError(
            f'stream "{stream.name}" has a time that is too far from zero',
            detail=f"row {row + 1}: column {stream.time} is {ts[row]}, and times go to 2^62 either way",
            hint="filter such rows out",
        )
    return ts


def too_far(stream: StreamDef, table: pa.Table) -> np.ndarray:
    """Which rows have times that are refused."""
    ts = _times(stream, table)
    return (ts < -FURTHEST) | (ts > FURTHEST)


def _times(stream: StreamDef, table: pa.Table) -> Int64s:
    column = table.column(stream.time)
    type_ = column.type
    if column.null_count:
        row = int(pc.index(column.is_null(), pa.scalar(True)).as_py())
        raise SourceError(
            f'stream "{stream.name}" has a row without a time',
            detail=f"row {row + 1}: column {stream.time} is NULL",
            hint="filter such rows out, or declare another time column with TIMESTAMP BY",
        )
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        micros = column.cast(pa.timestamp("us", getattr(type_, "tz", None)), safe=False).cast(pa.int64())
        return one(micros).to_numpy()
    if pa.types.is_integer(type_):
        try:
            return one(column if pa.types.is_int64(type_) else column.cast(pa.int64())).to_numpy()
        except pa.ArrowInvalid as error:
            raise SourceError(
                f'stream "{stream.name}" has a time that is no 64-bit integer', detail=str(error)
            ) from error
    raise SourceError(
        f'column {stream.time} of stream "{stream.name}" cannot be a time',
        detail=f"its type is {type_}",
        hint=f"a time is a TIMESTAMP or an integer; text is read as one where it is declared so: "
        f"CREATE STREAM {stream.name} ({stream.time} TIMESTAMP, ...) TIMESTAMP BY {stream.time}",
    )


def split_late(ts: Int64s, slack: int) -> np.ndarray:
    """Which rows are late, each judged by those that arrived before it.

    >>> split_late(np.array([5, 3, 9, 4]), 2).tolist()
    [False, False, False, True]
    """
    if not len(ts):
        return np.zeros(0, np.bool_)
    before = np.maximum.accumulate(np.concatenate([[BEGINNING], ts[:-1]]))
    return ts < np.where(before > BEGINNING + slack, before - slack, BEGINNING)


def arrivals(stream: StreamDef, table: pa.Table, until: int | None = None) -> Arrivals:
    """A whole bounded stream, seen up to `until`: late rows apart, the others sorted by time."""
    ts = times(stream, table)
    if (ts[1:] >= ts[:-1]).all():  # nothing to sort, and so nothing late
        return Arrivals(ts, table.combine_chunks(), table.slice(0, 0))
    late = np.zeros(len(ts), np.bool_)
    if stream.within:  # else all rows are known, and taken in the order of their times
        seen = np.flatnonzero(ts <= until) if until is not None else np.arange(len(ts))  # rows after it judge nobody
        late[seen] = split_late(ts[seen], stream.slack)
    if not late.any() and bool((ts[1:] >= ts[:-1]).all()):
        return Arrivals(ts, table.combine_chunks(), table.slice(0, 0))
    kept = np.flatnonzero(~late)
    order = kept[np.argsort(ts[kept], kind="stable")]
    return Arrivals(ts[order], table.take(pa.array(order)).combine_chunks(), table.filter(pa.array(late)))
