"""A counter and the time: `rows_per_second` rows a second, row i stamped with the instant at which it was due.

    offset  {"began": microseconds since 1970, "row": next value}

As with Spark's source of this name, rows of the time during which the engine was down are made up for. With
`rampUpTime` the rate grows from zero for so long. Rows are a function of their number, so a piece is two numbers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.catalog.lengths import seconds
from windrow.errors import SourceError
from windrow.operators.elements import one
from windrow.sources.casting import cast_column, fits, sql_name
from windrow.sources.data_file import declared
from windrow.sources.intake import times
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Available, Offset, Report
from windrow.store.place import Place

BATCH_ROWS = 131_072
PIECE_ROWS = 1 << 20
ROW_BYTES = 16
COLUMNS = {"timestamp": pa.timestamp("us", "UTC"), "value": pa.int64()}


@dataclass(frozen=True)
class RateCurve:
    """How many rows are due after some seconds, and when a row is due; the rate grows linearly for `ramp` seconds."""

    rate: float
    ramp: float

    def rows(self, seconds: float) -> int:
        """Rows due after so many seconds."""
        if seconds <= 0:
            return 0
        if seconds < self.ramp:
            return int(self.rate * seconds * seconds / (2 * self.ramp))
        return int(self.rate * (seconds - self.ramp / 2))

    def seconds(self, rows: np.ndarray) -> np.ndarray:
        """When rows of these numbers are due."""
        late = rows / self.rate + self.ramp / 2
        early = np.sqrt(2 * self.ramp * rows / self.rate)
        return np.where(late < self.ramp, early, late)


def read_options(stream: StreamDef, *, may_write: bool = False) -> tuple[RateCurve, int]:
    """The rate that a declaration describes, and the most rows of a tick."""
    options = SourceOptions(stream)
    rate = options.amount("rows_per_second", 1.0, "rowsPerSecond")
    ramp = options.text("rampUpTime")
    most = options.number("max_rows", max(1_000_000, int(rate * 5)))
    options.number("numPartitions", 1)  # pieces are cut by rows; kept for declarations that say it
    options.finish()
    try:
        return RateCurve(rate, seconds(ramp or "0")), most
    except ValueError:
        raise options.refusal(f'rampUpTime is "{ramp}"', "write it as 5s") from None


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> RateSource:
    """The generator that a declaration describes."""
    curve, most = read_options(stream)
    _check_columns(stream)
    return RateSource(stream, curve, most, time.time)


def _check_columns(stream: StreamDef) -> None:
    for name, type_ in stream.columns.items():
        found = COLUMNS.get(name.lower())
        if found is None:
            raise SourceError(
                f'the source of stream "{stream.name}" has no column "{name}"',
                detail="its columns are timestamp TIMESTAMPTZ and value BIGINT",
                hint="declare only columns that the source has",
            )
        if not fits(found, type_):
            raise SourceError(
                f'column "{name}" of stream "{stream.name}" is declared {sql_name(type_)}, '
                f"but the source has {sql_name(found)}",
                hint="change the declaration",
            )


@dataclass(frozen=True)
class RatePiece:
    """Rows `[start, stop)` of a generator."""

    curve: RateCurve
    began: int
    start: int
    stop: int

    @property
    def weight(self) -> int:
        """Bytes of the rows made."""
        return ROW_BYTES * (self.stop - self.start)

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Make the rows."""
        wanted = declared(stream, columns)
        for low, high in itertools.pairwise([*range(self.start, self.stop, BATCH_ROWS), self.stop]):
            made = {"timestamp": self.stamps(low, high), "value": pa.array(np.arange(low, high))}
            arrays = [
                one(cast_column(pa.chunked_array([made[n.lower()]]), t, n, stream.name)) for n, t in wanted.items()
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(wanted.items())))

    def stamps(self, low: int, high: int) -> pa.Array:
        """The instants at which rows are due."""
        micros = self.began + np.round(self.curve.seconds(np.arange(low, high)) * 1e6).astype(np.int64)
        return pa.array(micros).cast(COLUMNS["timestamp"])


class RateSource:
    """Rows that are due by the clock on the wall since the first poll ever."""

    def __init__(self, stream: StreamDef, curve: RateCurve, most: int, clock: Callable[[], float]) -> None:
        self.stream = stream
        self._curve, self._most, self._clock = curve, most, clock
        self._first = int(clock() * 1e6)

    def poll(self, offset: Offset | None) -> Available | None:
        """The rows that have become due behind `offset`."""
        began, start = self._position(offset)
        stop = min(self._due(began), start + self._most)
        if stop <= start:
            return None
        ends = [*range(start, stop, PIECE_ROWS), stop]
        pieces = [RatePiece(self._curve, began, a, b) for a, b in itertools.pairwise(ends)]
        return Available({"began": began, "row": stop}, tuple(pieces), stop - start, self._bounds(began, start, stop))

    def committed(self, offset: Offset) -> None:
        """Nothing is kept."""

    def drained(self, offset: Offset | None) -> bool:
        """Whether all rows that are due were taken."""
        began, row = self._position(offset)
        return row >= self._due(began)

    def close(self) -> None:
        """Nothing is open."""

    def _bounds(self, began: int, start: int, stop: int) -> tuple[int, int]:
        """The times of the first and the last row."""
        ends = [RatePiece(self._curve, began, row, row + 1) for row in (start, stop - 1)]
        found = pa.Table.from_batches([b for piece in ends for b in piece.read(self.stream, [self.stream.time])])
        low, high = times(self.stream, found)
        return int(low), int(high)

    def _position(self, offset: Offset | None) -> tuple[int, int]:
        return (self._first, 0) if offset is None else (int(offset["began"]), int(offset["row"]))

    def _due(self, began: int) -> int:
        return self._curve.rows(self._clock() - began / 1e6)
