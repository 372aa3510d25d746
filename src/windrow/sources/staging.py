"""Bounded streams for tasks: rows are read where they lie, or from copies in one folder that all tasks reach.

    parts ─ look, in tasks ─► times ─ judged by the driver ─► parts in the order of their times: read where they lie
                                                          └─► others ─ settle, in tasks ─► copies by time, late rows

Columns of typed files (Parquet, Arrow) are cheap to read again: of them a look takes the times alone. Other files are
parsed once and copied, with the columns that somebody reads. A part whose times are not in order, or with late rows, is
copied in the order of its times, ties in order of arrival. Parts are in order of arrival; they may overlap in time.

Invariant: rows never pass through the driver, but for those that it was given in memory. Cost: the driver reads the
times (8 bytes a row); of what is copied each row is written once, where rows may be late twice.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.aggregates.vectors import Bools
from windrow.operators.elements import BEGINNING, Int64s, one
from windrow.operators.state.zones import Zones
from windrow.sources.intake import Arrivals, split_late, times
from windrow.sources.parts import InputPart, parts_of
from windrow.sources.protocol import Report
from windrow.sources.quarantined_rows import SCHEMA, check_few
from windrow.store.place import Place

BATCH_ROWS = 1 << 16
_TIMES = " times"  # no column is declared by such a name

Tasks = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Runs a function over values in tasks; results in order."""


@dataclass(frozen=True)
class Wish:
    """What is read of a stream: columns (None: all), and of which blocks rows may concern somebody (None: of all)."""

    columns: tuple[str, ...] | None = None
    holds: Callable[[Zones], Bools] | None = None

    def of(self, stream: StreamDef) -> list[str]:
        """The declared columns, the time among them."""
        read = None if self.columns is None else {c.lower() for c in self.columns}
        return [c for c in stream.columns if read is None or c == stream.time or c.lower() in read]

    def leaves_out(self, stream: StreamDef, part: InputPart) -> bool:
        """Whether no row of a part concerns anybody, as far as its footer says so."""
        piece = None if self.holds is None else part.groups
        told = None if piece is None else piece.row_groups(stream, set(stream.columns))
        if piece is None or told is None or self.holds is None:
            return False
        return len(told.numbers) == piece.stop - piece.first and not self.holds(told.zones).any()


ALL = Wish()


@dataclass(frozen=True)
class StagedPart:
    """Rows of one part: how many, their least and greatest time, and whether they are in its order.

    `name`: a file in the folder, of rows and times, or where the part is read itself (`direct`) of times alone.
    """

    part: InputPart | None  # None: rows that the driver had
    name: str
    rows: int
    low: int
    high: int
    in_order: bool
    direct: bool
    weight: int
    idle: bool = False  # nobody wants any of its rows
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
        """The rows, mapped where they lie on a disk."""
        with _opened(self.place, self.name) as file:
            for number in range(self.low // BATCH_ROWS, -(-self.high // BATCH_ROWS)):
                begin = number * BATCH_ROWS
                low, high = max(self.low, begin), min(self.high, begin + BATCH_ROWS)
                batch = file.get_batch(number).slice(low - begin, high - low)
                yield batch.select(list(stream.columns if columns is None else columns))


@dataclass(frozen=True)
class PartRange:
    """Rows `[low, high)` of a part, as a piece of work."""

    part: InputPart
    low: int
    high: int
    weight: int

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows where they lie."""
        yield from self.part.table(stream, columns).rows.slice(self.low, self.high - self.low).to_batches()


@dataclass(frozen=True)
class StagedRows:
    """A bounded stream: all times in order, those of each part, the late rows, and what was set aside."""

    place: Place
    parts: tuple[StagedPart, ...]
    times: tuple[Int64s, ...]
    ts: Int64s
    late: pa.Table
    aside: pa.Table

    def between(self, after: int | None, frontier: int, tasks: int) -> Iterator[RowRange | PartRange]:
        """The rows with times in `(after, frontier]`, in pieces for so many tasks."""
        spans = []
        for part, ts in zip(self.parts, self.times, strict=True):
            low = 0 if after is None else int(np.searchsorted(ts, after, "right"))
            spans.append((part, low, int(np.searchsorted(ts, frontier, "right"))))
        step = max(1, -(-sum(high - low for _, low, high in spans) // tasks))
        for part, low, high in spans:
            if part.idle or low == high:
                continue
            if part.direct and part.part is not None:
                yield PartRange(part.part, low, high, part.weight * (high - low) // part.rows)
                continue
            for at in range(low, high, step):
                rows = min(step, high - at)
                yield RowRange(self.place, part.name, at, at + rows, part.weight * rows // part.rows)

    @property
    def weight(self) -> int:
        """About how many bytes are to be read."""
        return sum(p.weight for p in self.parts if not p.idle)

    @property
    def edges(self) -> Int64s:
        """Times at which parts begin that are read whole if no tick ends within them."""
        return np.array(sorted(p.low for p in self.parts if p.direct and not p.idle), np.int64)


class Staging:
    """Lets tasks read streams; copies lie in a folder that driver and tasks reach."""

    def __init__(self, place: Place, tasks: Tasks) -> None:
        self.place, self._tasks = place, tasks

    def table(self, stream: StreamDef, rows: Arrivals, wish: Wish = ALL) -> StagedRows:
        """Rows that the driver has."""
        name = f"{stream.name.lower()}.arrow"
        self.place.make()
        low, high = (int(rows.ts[0]), int(rows.ts[-1])) if len(rows.ts) else (BEGINNING, BEGINNING)
        weight = write_rows(self.place, name, rows.rows.select(wish.of(stream)), rows.ts)
        part = StagedPart(None, name, len(rows.ts), low, high, True, False, weight)
        return StagedRows(self.place, (part,), (rows.ts,), rows.ts, rows.late, rows.aside)

    def path(self, stream: StreamDef, path: str, until: int | None, wish: Wish = ALL) -> StagedRows:
        """Rows of a file or a directory, which tasks read."""
        return self.parts(stream, parts_of(path, stream), until, wish, path)

    def parts(
        self, stream: StreamDef, given: Sequence[InputPart], until: int | None, wish: Wish = ALL, path: str = ""
    ) -> StagedRows:
        """Rows of parts, which tasks read; `path`: where they are from."""
        self.place.make()
        place = self.place
        looked = self._tasks(lambda item: _look(item, stream, place, wish), list(enumerate(given)))
        parts: list[StagedPart] = [part for part, _ in looked]
        aside = pa.concat_tables([SCHEMA.empty_table(), *_left(place, [name for _, name in looked])])
        check_few(stream.name, aside)
        _check_missing(stream, path, parts)
        parts = [p for p in parts if p.rows]
        arrived = [_times(place, p.name) for p in parts]
        late = _late(stream, parts, arrived, until)
        others = [i for i, p in enumerate(parts) if not p.in_order or late[i].any()]
        settled = self._tasks(
            lambda item: _settle(item, stream, place, wish), [(parts[i], np.flatnonzero(late[i])) for i in others]
        )
        for i, (part, _) in zip(others, settled, strict=True):
            parts[i] = part
            arrived[i] = np.sort(arrived[i][~late[i]])
        schema = pa.schema(list(stream.columns.items()))
        gone = pa.concat_tables([schema.empty_table(), *_left(place, [name for _, name in settled])])
        ts = np.concatenate([np.empty(0, np.int64), *arrived])
        follow = (ts[1:] >= ts[:-1]).all()
        return StagedRows(place, tuple(parts), tuple(arrived), ts if follow else np.sort(ts), gone, aside)


def _look(item: tuple[int, InputPart], stream: StreamDef, place: Place, wish: Wish) -> tuple[StagedPart, str | None]:
    """What is to be known of a part; it is copied if it must be parsed, or is to be sorted anyway.

    Also the name of a file of what cannot be read.
    """
    number, part = item
    name, columns = f"{stream.name.lower()}-{number:06d}.arrow", wish.of(stream)
    found = part.table(stream, [stream.time, *part.checked(stream)] if part.typed else columns)
    ts = times(stream, found.rows)
    in_order, direct = bool((ts[1:] >= ts[:-1]).all()), part.typed
    aside = _put(place, f"{name}.aside", found.aside)
    if direct and not in_order and not stream.within:
        found, direct = part.table(stream, columns), False
    low, high = (int(ts.min()), int(ts.max())) if len(ts) else (BEGINNING, BEGINNING)
    rows = found.rows.select([] if direct else columns)
    if not in_order and not stream.within:  # nothing is late: all that is known is in the order of its times
        order = np.argsort(ts, kind="stable")
        rows, ts, in_order = rows.take(pa.array(order)), ts[order], True
    weight = write_rows(place, name, rows, ts) if len(ts) else 0
    idle = direct and wish.leaves_out(stream, part)
    weight = max(part.weight, 8 * len(columns) * len(ts)) if direct else weight  # files are packed, rows are not
    return StagedPart(part, name, len(ts), low, high, in_order, direct, weight, idle, found.missing), aside


def _settle(
    item: tuple[StagedPart, Int64s], stream: StreamDef, place: Place, wish: Wish
) -> tuple[StagedPart, str | None]:
    """Set late rows apart, and copy the others in the order of their times; also the name of a file of late rows.

    An item is a part, and which of its rows are late.
    """
    part, late = item
    assert part.part is not None
    ts, columns = _times(place, part.name), wish.of(stream)
    if part.direct:
        rows = part.part.table(stream, columns).rows
    else:
        with _opened(place, part.name) as file:
            rows = file.read_all().select(columns)
    kept = np.delete(np.arange(len(ts)), late)
    order = kept[np.argsort(ts[kept], kind="stable")]
    name = f"{part.name.removesuffix('.arrow')}-settled.arrow"
    weight = write_rows(place, name, rows.take(pa.array(order)), ts[order]) if len(order) else 0
    gone = None
    if len(late):
        gone = _put(place, f"{name}.late", part.part.table(stream).rows.take(pa.array(late)))
    return replace(part, name=name, rows=len(order), in_order=True, direct=False, weight=weight), gone


def _late(stream: StreamDef, parts: Sequence[StagedPart], arrived: Sequence[Int64s], until: int | None) -> list[Bools]:
    """Which rows of each part are late, each judged by those that arrived before it."""
    late = [np.zeros(len(ts), np.bool_) for ts in arrived]
    follow = all(p.in_order for p in parts) and all(a.high <= b.low for a, b in itertools.pairwise(parts))
    if not stream.within or follow:
        return late
    ts = np.concatenate(arrived)
    seen = np.arange(len(ts)) if until is None else np.flatnonzero(ts <= until)  # rows after it judge nobody
    whole = np.zeros(len(ts), np.bool_)
    whole[seen] = split_late(ts[seen], stream.slack)
    return np.split(whole, np.cumsum([len(t) for t in arrived])[:-1])


def write_rows(place: Place, name: str, rows: pa.Table, ts: Int64s) -> int:
    """An Arrow file of rows and their times, in batches of `BATCH_ROWS`; about how many bytes rows are."""
    whole = rows.append_column(_TIMES, pa.array(ts)).combine_chunks() if rows.num_columns else pa.table({_TIMES: ts})
    with place.filesystem.open_output_stream(place.path(name)) as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        for batch in whole.to_batches(BATCH_ROWS):
            writer.write_batch(batch)
    return int(whole.nbytes)


def _times(place: Place, name: str) -> Int64s:
    with _opened(place, name) as file:
        found = [file.get_batch(i).column(_TIMES).to_numpy() for i in range(file.num_record_batches)]
    return one(pa.chunked_array(found, pa.int64())).to_numpy() if len(found) > 1 else found[0]


@contextlib.contextmanager
def _opened(place: Place, name: str) -> Iterator[pa.ipc.RecordBatchFileReader]:
    path = place.path(name)
    with pa.memory_map(path) if place.local else place.filesystem.open_input_file(path) as source:
        yield pa.ipc.open_file(source)


def _put(place: Place, name: str, rows: pa.Table) -> str | None:
    """Write rows, if there are any, for the driver to find."""
    if not rows.num_rows:
        return None
    with place.filesystem.open_output_stream(place.path(name)) as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return name


def _left(place: Place, names: Sequence[str | None]) -> Iterator[pa.Table]:
    """What tasks have put aside; on a disk it is mapped."""
    for name in names:
        if name is not None:
            with _opened(place, name) as file:
                yield file.read_all()


def _check_missing(stream: StreamDef, path: str, parts: Sequence[StagedPart]) -> None:
    """A key that is missing in some files of JSON is null there; one that no file has is an error."""
    gone = [c for c in stream.columns if c not in stream.added and parts and all(c in p.missing for p in parts)]
    if gone:
        raise SourceError(
            f'{stream.what}: the data has no column "{gone[0]}"',
            detail=f"the files are those of {path}",
            hint="declare only columns that the files have",
        )


__all__ = ["PartRange", "RowRange", "StagedRows", "Staging", "Tasks", "Wish", "write_rows"]
