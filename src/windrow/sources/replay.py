"""A file replayed at a steady rate, exactly once.

The file is copied once into an Arrow file in `spool` (under home), so an offset is a number of rows of that copy, and a
restart reads the same rows again whatever became of the original. After t seconds of running `rows_per_second * t` rows
are due; time during which the engine was down does not count. A poll takes what is due, at most `max_rows` (five
seconds' worth, unless said).

Cost: the copy, once, through memory; then each piece reads only the record batches that hold its rows, memory-mapped
when local.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from windrow.catalog import StreamDef
from windrow.sources.casting import conform
from windrow.sources.cuts import PIECE_BYTES
from windrow.sources.data_file import declared, reading
from windrow.sources.files import read_path
from windrow.sources.intake import times
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Available, Offset, Report
from windrow.store.place import Place

CHUNK_ROWS = 16_384


def read_options(stream: StreamDef, *, may_write: bool = False) -> tuple[str, float, int]:
    """The path that a declaration names, its rows per second and the most rows of a tick."""
    options = SourceOptions(stream)
    path = options.need("path")
    rate = options.amount("rows_per_second", 1000.0)
    most = options.number("max_rows", max(1, int(rate * 5)))  # a slow start must not end in one huge tick
    options.number("partitions", 1)  # pieces are cut by their bytes; kept for declarations that say it
    options.finish()
    return path, rate, most


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> ReplaySource:
    """The rows of a file, in file order."""
    path, rate, most = read_options(stream)
    with reading(stream, path):
        copy = _copied(spool, path, stream)
    return ReplaySource(stream, copy, rate, most, time.monotonic)


@dataclass(frozen=True)
class ArrowCopy:
    """The Arrow copy of a file."""

    place: Place
    name: str
    rows: int
    size: int

    def slices(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `[start, stop)` as record batches."""
        file, ends = ipc.open_file(self.place.read(self.name)), _ends(self)
        for index in range(bisect.bisect_right(ends, start), len(ends)):
            batch = file.get_batch(index)
            first = ends[index] - batch.num_rows
            if first >= stop:
                return
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            yield batch.slice(low, high - low)


@functools.lru_cache(maxsize=16)
def _ends(copy: ArrowCopy) -> list[int]:
    """The row behind each record batch of a copy."""
    file = ipc.open_file(copy.place.read(copy.name))
    return list(itertools.accumulate(file.get_batch(i).num_rows for i in range(file.num_record_batches)))


def _copied(spool: Place, path: str, stream: StreamDef) -> ArrowCopy:
    """The copy of a file, made on first use."""
    columns, added = stream.columns, stream.added
    schema = pa.schema(list(columns.items()))
    key = hashlib.blake2b(f"{path}\n{schema}".encode(), digest_size=8).hexdigest()
    note = _note(spool, path, key)
    if note is None:
        table = conform(read_path(path, "replay", columns, added), "replay", columns, added)
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, schema) as out:
            out.write_table(table, max_chunksize=CHUNK_ROWS)
        spool.write(f"{key}.arrow", sink.getvalue())
        note = {"rows": table.num_rows, "source": path}
        spool.write(f"{key}.json", json.dumps(note).encode())  # last: it says that the copy is whole
    name = f"{note.get('key', key)}.arrow"
    return ArrowCopy(spool, name, int(str(note["rows"])), spool.names()[name])


def _note(spool: Place, path: str, key: str) -> dict[str, object] | None:
    """What was written down about the copy of a path; a copy under another key was made by an earlier version."""
    names = [n for n in spool.names() if n.endswith(".json")]
    for name in sorted(names, key=lambda n: n != f"{key}.json"):
        note = json.loads(bytes(spool.read(name)))
        if name == f"{key}.json" or note.get("source") == path:
            return {**note, "key": name.removesuffix(".json")}
    return None


@dataclass(frozen=True)
class ReplayPiece:
    """Rows `[start, stop)` of a copy."""

    copy: ArrowCopy
    start: int
    stop: int
    weight: int

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Those rows."""
        wanted = pa.schema(list(declared(stream, columns).items()))
        with reading(stream, self.copy.place.path(self.copy.name), f"rows from {self.start}", report):
            for batch in self.copy.slices(self.start, self.stop):
                yield batch.select(wanted.names).cast(wanted)


class ReplaySource:
    """Rows that are due by the clock since the first poll."""

    def __init__(self, stream: StreamDef, copy: ArrowCopy, rate: float, most: int, clock: Callable[[], float]) -> None:
        self.stream, self.copy = stream, copy
        self._rate, self._most, self._clock = rate, most, clock
        self._began: tuple[float, int] | None = None
        self._row_bytes = max(1, copy.size // max(1, copy.rows))

    def poll(self, offset: Offset | None) -> Available | None:
        """The rows that have become due behind `offset`."""
        start = _row(offset)
        stop = min(self._due(start), start + self._most)
        if stop <= start:
            return None
        step = max(1, PIECE_BYTES // self._row_bytes)
        ends = [*range(start, stop, step), stop]
        pieces = [ReplayPiece(self.copy, a, b, (b - a) * self._row_bytes) for a, b in itertools.pairwise(ends)]
        return Available({"row": stop}, tuple(pieces), stop - start, self._bounds(start, stop))

    def committed(self, offset: Offset) -> None:
        """Nothing is kept besides the copy."""

    def drained(self, offset: Offset | None) -> bool:
        """Whether all rows that are due were taken."""
        return _row(offset) >= self._due(_row(offset))

    def close(self) -> None:
        """Nothing is open."""

    def _due(self, start: int) -> int:
        if self._began is None:
            self._began = (self._clock(), start)
        since, row = self._began
        return min(self.copy.rows, row + int(self._rate * (self._clock() - since)))

    def _bounds(self, start: int, stop: int) -> tuple[int, int] | None:
        if not self.copy.place.local:
            return None
        column = pa.chunked_array([b.column(self.stream.time) for b in self.copy.slices(start, stop)])
        if column.null_count:
            return None
        found = pc.min_max(column).as_py()
        ends = pa.table({self.stream.time: pa.array([found["min"], found["max"]], column.type)})
        low, high = times(self.stream, ends)
        return int(low), int(high)


def _row(offset: Offset | None) -> int:
    return 0 if offset is None else int(offset["row"])
