"""The way in: rows in arrival order become rows in time order, and rows that come too late are set aside.

A row is late when its time is below the greatest time of the rows before it, less the stream's slack. That depends on
the rows and their order alone, not on how they are cut into batches. Rows that are not late are complete up to

    frontier = greatest time so far - slack - 1

because any later row below that would be late. Ties in time keep arrival order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.elements import BEGINNING, Int64s, one


@dataclass(frozen=True)
class Arrivals:
    """Rows of one stream: times and columns in one order, and the late rows."""

    ts: Int64s
    rows: pa.Table
    late: pa.Table


def times(stream: StreamDef, table: pa.Table) -> Int64s:
    """The time of each row: microseconds for timestamps and dates, ticks for integers."""
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
            return one(column.cast(pa.int64())).to_numpy()
        except pa.ArrowInvalid as error:
            raise SourceError(
                f'stream "{stream.name}" has a time that is no 64-bit integer', detail=str(error)
            ) from error
    raise SourceError(
        f'column {stream.time} of stream "{stream.name}" cannot be a time',
        detail=f"its type is {type_}",
        hint="a time column is a TIMESTAMP, a DATE or an integer",
    )


def split_late(ts: Int64s, slack: int, greatest: int = BEGINNING) -> tuple[np.ndarray, int]:
    """Which rows are late, and the greatest time after them all.

    >>> late, top = split_late(np.array([5, 3, 9, 4]), 2)
    >>> late.tolist(), top
    ([False, False, False, True], 9)
    """
    if not len(ts):
        return np.zeros(0, np.bool_), greatest
    before = np.maximum.accumulate(np.concatenate([[greatest], ts[:-1]]))
    bound = np.where(before > BEGINNING + slack, before - slack, BEGINNING)
    return ts < bound, max(greatest, int(ts.max()))


def arrivals(stream: StreamDef, table: pa.Table) -> Arrivals:
    """A whole bounded stream: late rows apart, the others sorted by time."""
    ts = times(stream, table)
    late, _ = split_late(ts, stream.slack)
    kept = np.flatnonzero(~late)
    order = kept[np.argsort(ts[kept], kind="stable")]
    in_order = len(order) == len(ts) and bool((np.diff(order) == 1).all())
    rows = table if in_order else table.take(pa.array(order))
    return Arrivals(ts[order], rows.combine_chunks(), table.filter(pa.array(late)))
