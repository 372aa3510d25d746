"""Bounded streams for tasks: rows lie as Arrow files in one folder, which tasks of the same machine memory-map.

    path ─ parts (files, row groups, batches) ─ stage, in tasks ─► in order of arrival ─ settle, in tasks ─┐
    table ─ sorted by the driver ──────────────────────────────────────────────────────────────────────────┴► by time

A staged file has the declared columns and, last, the time of each row. Every file is in the order of its times, ties in
order of arrival; files are in order of arrival. What is late is decided as `intake` does for a whole table: a task
needs for that only the greatest time of the rows before its file.

Cost: each row is written once and never seen by the driver, which reads the times alone (8 bytes a row); a stream whose
files do not follow each other in time is written twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.elements import BEGINNING, Int64s, one
from windrow.sources.aside import SCHEMA
from windrow.sources.bounded import is_read_as_live, rows_of_file
from windrow.sources.data_file import DataFile, reading
from windrow.sources.files import files_of, read_file, typed
from windrow.sources.intake import Arrivals, split_late, times
from windrow.sources.protocol import Report
from windrow.sources.read_arrow import ArrowPiece, cut_arrow
from windrow.sources.read_parquet import ParquetPiece, cut_parquet
from windrow.sources.tabular import to_table
from windrow.store.place import Place

BATCH_ROWS = 1 << 16
_TIMES = " times"  # no column is declared by such a name

Tasks = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Runs a function over values in tasks; results in order."""


@dataclass(frozen=True)
class PathPart:
    """A file, or row groups or record batches `[first, stop)` of one."""

    path: str
    first: int = 0
    stop: int | None = None

    def table(self, stream: StreamDef) -> tuple[pa.Table, tuple[str, ...], pa.Table]:
        """The declared columns of its rows, those of them that it does not have, as nulls, and what is set aside."""
        what = stream.what
        if is_read_as_live(stream, Path(self.path)):
            rows, aside = rows_of_file(stream, Path(self.path))
            return rows, (), aside.table()
        columns = dict(stream.columns)
        rows = read_file(Path(self.path), what, columns, stream.added, self.first, self.stop)
        found = {n.lower() for n in rows.column_names}
        missing = tuple(n for n in columns if n.lower() not in found)
        for name in missing:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, columns[name]))
        where = what if self.stop is None else f"{what}: {self.path}, parts {self.first} to {self.stop - 1}"
        return to_table(rows, where, schema=columns), missing, SCHEMA.empty_table()


def parts_of(path: str, stream: StreamDef) -> list[PathPart]:
    """What tasks are to read of a file or a directory, in order of arrival."""
    found: list[PathPart] = []
    for file in files_of(path, stream.what):
        kind = typed(file)
        if kind is None or stream.quarantine:
            found.append(PathPart(str(file)))
            continue
        with reading(stream, str(file)):
            opened = DataFile(Place.of(str(file.parent)), file.name, file.stat().st_size, ())
            cut = cut_parquet(opened, stream, 0) if kind == "parquet" else cut_arrow(opened, 0)
        pieces = [share.piece for share in cut]
        ranged = [p for p in pieces if isinstance(p, ParquetPiece | ArrowPiece) and p.stop is not None]
        if len(ranged) == len(pieces) > 1:
            found += [PathPart(str(file), p.first, p.stop) for p in ranged]
        else:
            found.append(PathPart(str(file)))
    return found


@dataclass(frozen=True)
class StagedFile:
    """Rows of one part in a folder: how many, their least and greatest time, and whether they are in its order.

    `judging`: the greatest time of those that may make others late.
    """

    name: str
    rows: int
    low: int
    high: int
    judging: int
    in_order: bool
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowRange:
    """Rows `[low, high)` of a staged file, as a piece of work."""

    place: Place
    name: str
    low: int
    high: int
    weight: int

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows, mapped where they lie."""
        with pa.ipc.open_file(self.place.read(self.name)) as file:
            for number in range(self.low // BATCH_ROWS, -(-self.high // BATCH_ROWS)):
                begin = number * BATCH_ROWS
                low, high = max(self.low, begin), min(self.high, begin + BATCH_ROWS)
                batch = file.get_batch(number).slice(low - begin, high - low)
                yield batch.select(list(stream.columns if columns is None else columns))


@dataclass(frozen=True)
class StagedRows:
    """A bounded stream in files: all times in order, those of each file, the late rows, and what was set aside."""

    place: Place
    files: tuple[StagedFile, ...]
    times: tuple[Int64s, ...]
    ts: Int64s
    late: pa.Table
    aside: pa.Table

    def between(self, after: int | None, frontier: int, tasks: int) -> Iterator[RowRange]:
        """The rows with times in `(after, frontier]`, in pieces for so many tasks."""
        spans = []
        for file, ts in zip(self.files, self.times, strict=True):
            low = 0 if after is None else int(np.searchsorted(ts, after, "right"))
            spans.append((file.name, low, int(np.searchsorted(ts, frontier, "right"))))
        step = max(1, -(-sum(high - low for _, low, high in spans) // tasks))
        for name, low, high in spans:
            for at in range(low, high, step):
                yield RowRange(self.place, name, at, min(at + step, high), min(step, high - at))


class Staging:
    """Puts streams into a folder, by tasks where it can."""

    def __init__(self, place: Place, tasks: Tasks) -> None:
        self.place, self._tasks = place, tasks

    def table(self, stream: StreamDef, rows: Arrivals) -> StagedRows:
        """Rows that the driver has."""
        name = f"{stream.name.lower()}.arrow"
        self.place.make()
        low, high = (int(rows.ts[0]), int(rows.ts[-1])) if len(rows.ts) else (BEGINNING, BEGINNING)
        write_rows(self.place, name, rows.rows, rows.ts)
        file = StagedFile(name, len(rows.ts), low, high, high, True)
        return StagedRows(self.place, (file,), (rows.ts,), rows.ts, rows.late, rows.aside)

    def path(self, stream: StreamDef, path: str, until: int | None) -> StagedRows:
        """Rows of a file or a directory, which tasks read."""
        self.place.make()
        parts = list(enumerate(parts_of(path, stream)))
        place = self.place
        staged = self._tasks(lambda item: _stage(item, stream, place, until), parts)
        files: list[StagedFile] = [file for file, _ in staged]
        aside = pa.concat_tables([SCHEMA.empty_table(), *(rows for _, rows in staged)])
        _check_missing(stream, path, files)
        files = [f for f in files if f.rows]
        late = pa.schema(list(stream.columns.items())).empty_table()
        if not _follow(files):
            before = _before(files) if stream.within else [BEGINNING] * len(files)
            judged = list(zip(files, before, strict=True))
            settled = self._tasks(lambda item: _settle(item, stream, place, until), judged)
            files = [file for file, _ in settled]
            late = pa.concat_tables([late, *(rows for _, rows in settled)])
        read = tuple(_times(place, file.name) for file in files)
        ts = np.concatenate([np.empty(0, np.int64), *read])
        return StagedRows(place, tuple(files), read, ts if _follow(files) else np.sort(ts), late, aside)


def _stage(
    item: tuple[int, PathPart], stream: StreamDef, place: Place, until: int | None
) -> tuple[StagedFile, pa.Table]:
    """Write the rows of a part as they arrive; the other rows are those that cannot be read."""
    number, part = item
    rows, missing, aside = part.table(stream)
    name, ts = f"{stream.name.lower()}-{number:06d}.arrow", times(stream, rows)
    if not len(ts):
        return StagedFile(name, 0, BEGINNING, BEGINNING, BEGINNING, True, missing), aside
    write_rows(place, name, rows, ts)
    judging = ts if until is None else ts[ts <= until]
    in_order = bool((ts[1:] >= ts[:-1]).all())
    greatest = int(judging.max(initial=BEGINNING))
    return StagedFile(name, len(ts), int(ts.min()), int(ts.max()), greatest, in_order, missing), aside


def _settle(
    item: tuple[StagedFile, int], stream: StreamDef, place: Place, until: int | None
) -> tuple[StagedFile, pa.Table]:
    """Set late rows apart, and write the others in the order of their times.

    An item is a file and the greatest time before it.
    """
    file, before = item
    with pa.ipc.open_file(place.read(file.name)) as opened:
        whole = opened.read_all()
    rows, ts = whole.select(list(stream.columns)), one(whole.column(_TIMES)).to_numpy()
    late = np.zeros(len(ts), np.bool_)
    if stream.within:
        seen = np.arange(len(ts)) if until is None else np.flatnonzero(ts <= until)
        late[seen] = split_late(np.concatenate([[before], ts[seen]]), stream.slack)[1:]
    kept = np.flatnonzero(~late)
    order = kept[np.argsort(ts[kept], kind="stable")]
    name = f"{file.name.removesuffix('.arrow')}-settled.arrow"
    write_rows(place, name, rows.take(pa.array(order)), ts[order])
    return replace(file, name=name, rows=len(order), in_order=True), rows.filter(pa.array(late))


def write_rows(place: Place, name: str, rows: pa.Table, ts: Int64s) -> None:
    """An Arrow file of rows and their times, in batches of `BATCH_ROWS`."""
    whole = rows.append_column(_TIMES, pa.array(ts)).combine_chunks()
    with pa.OSFile(place.path(name), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        for batch in whole.to_batches(BATCH_ROWS):
            writer.write_batch(batch)


def _times(place: Place, name: str) -> Int64s:
    with pa.ipc.open_file(place.read(name)) as file:
        found = [file.get_batch(i).column(_TIMES).to_numpy() for i in range(file.num_record_batches)]
    return np.concatenate([np.empty(0, np.int64), *found])


def _follow(files: Sequence[StagedFile]) -> bool:
    """Whether all rows are in the order of their times."""
    return all(f.in_order for f in files) and all(a.high <= b.low for a, b in itertools.pairwise(files))


def _before(files: Sequence[StagedFile]) -> list[int]:
    """For each file the greatest time of the rows before it."""
    reached = np.maximum.accumulate([BEGINNING, *(f.judging for f in files)])
    return [int(t) for t in reached[:-1]]


def _check_missing(stream: StreamDef, path: str, files: Sequence[StagedFile]) -> None:
    """A key that is missing in some files of JSON is null there; one that no file has is an error."""
    gone = [c for c in stream.columns if c not in stream.added and files and all(c in f.missing for f in files)]
    if gone:
        raise SourceError(
            f'{stream.what}: the data has no column "{gone[0]}"',
            detail=f"the files are those of {path}",
            hint="declare only columns that the files have",
        )


__all__ = ["PathPart", "RowRange", "StagedRows", "Staging", "Tasks", "parts_of", "write_rows"]
