"""A sub-index on disk: blocks of rows, clustered by key and then by end, and a directory that finds them.

    a file  =  Arrow stream of blocks  |  directory          (a file may hold a directory alone)

A block is an Arrow record batch of 8 to 64 KB, cut where the key changes if it can be. The directory has a line for
every living block, of this file and of older ones: where it is, what it must sum to, its first and last key, its first
and last end; and how many rows end in each slot. The directory of the newest file is that of the whole sub-index, so a
sub-index is named by one reference, and changing it writes one file:

    rebuild      living rows and new ones are merged and written anew; older files are let go
    no rebuild   new rows are written as one more stretch of blocks; blocks whose rows have all ended are left out of
                 the directory; nothing old is read. After `CHAIN` files the sub-index is written anew, so a key has
                 2.5 stretches on average, the number the thesis aims at (p. 65)

Law: rows alive at an instant are exactly the rows of living blocks whose end is later. Files are never changed, so a
reference that is kept stays readable while its successors are made.

Cost: a probe reads one directory, the first time, and the blocks that meet its range. A directory is about a
hundredth of the rows; those in use stay in memory.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from windrow.archive.keys import EVERYTHING, KeyRange
from windrow.errors import StateError
from windrow.operators.aggregates.vectors import distinct_values
from windrow.operators.elements import one
from windrow.store.place import Place
from windrow.store.sealed import DAMAGED

LEAST_BYTES, MOST_BYTES = 8 << 10, 64 << 10
"""Between these sizes, before compression, blocks aim at a little more than the rows of a key."""

CHAIN = 4
"""Files that a sub-index consists of at most, when it is not rebuilt at every update."""

TS, EXP = "_ts", "_exp"
_OPTIONS = ipc.IpcWriteOptions(compression="lz4")
_ALONE = ipc.IpcReadOptions(use_threads=False)  # a block is too small to be handed to other threads column by column


@dataclass
class Traffic:
    """What reading and writing has cost: the figures that do not depend on caches."""

    opened: int = 0
    read: int = 0
    created: int = 0
    written: int = 0

    def add(self, other: Traffic) -> None:
        """Count what someone else has done, too."""
        self.opened, self.read = self.opened + other.opened, self.read + other.read
        self.created, self.written = self.created + other.created, self.written + other.written


@dataclass(frozen=True, slots=True)
class SubIndex:
    """A reference to a directory: `bytes` at `offset` of `path`, and what they must sum to.

    `rows`: how many were alive when it was made. `files`: all that its blocks lie in, with the bytes of the living.
    """

    path: str
    offset: int
    bytes: int
    checksum: int
    rows: int
    files: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of living blocks."""
        return sum(self.files.values())


@dataclass(frozen=True)
class Directory:
    """The lines of a directory, and how many rows end in each slot."""

    lines: pa.Table
    files: tuple[str, ...]
    ends: Mapping[int, int]

    def living(self, instant: int, keys: Sequence[str], range_: KeyRange = EVERYTHING) -> np.ndarray:
        """The lines of blocks that may have rows of a range that are alive."""
        mask = self.last_end > instant
        if range_ is not EVERYTHING:
            lows = [one(self.lines.column(f"low.{k}")) for k in keys]
            highs = [one(self.lines.column(f"high.{k}")) for k in keys]
            mask &= range_.meets(lows, highs, self.lines.num_rows)
        return np.flatnonzero(mask)

    # whoever reads needs these many times

    @cached_property
    def last_end(self) -> np.ndarray:
        return self.lines.column("last_end").to_numpy()

    @cached_property
    def places(self) -> tuple[np.ndarray, ...]:
        """File, offset, size and checksum of every block."""
        return tuple(self.lines.column(c).to_numpy() for c in ("file", "offset", "bytes", "checksum"))


class Shelf:
    """Reads and writes the sub-indices of one archive: rows of one schema by one key, under one place."""

    def __init__(self, place: Place, keys: Sequence[str], schema: pa.Schema, *, sync: bool = True) -> None:
        self.place, self.keys, self.sync = place, tuple(keys), sync
        self.schema = pa.schema([*schema, pa.field(TS, pa.int64()), pa.field(EXP, pa.int64())])
        self._head = self.schema.serialize().to_pybytes()  # what a stream of blocks begins with
        self._known: dict[str, Directory] = {}  # by the file that they are in: a file has one at most

    # writing

    def write(
        self, path: str, rows: pa.Table, ends: Mapping[int, int], old: tuple[Directory, int] | None, traffic: Traffic
    ) -> SubIndex:
        """A new version of a sub-index in a new file: these rows, sorted, after the living blocks of `old`."""
        data, lines = self._blocks(rows)
        names: list[str] = []
        tables = []
        if old is not None:
            directory, instant = old
            kept = directory.lines.take(pa.array(directory.living(instant, self.keys)))
            used = distinct_values(kept.column("file").to_numpy())
            names = [directory.files[i] for i in used]
            renumbered = pa.array(np.searchsorted(used, kept.column("file").to_numpy()).astype(np.int32))
            tables.append(kept.set_column(0, "file", renumbered))
        if lines:
            tables.append(self._lines(lines, rows, len(names), data))
            names.append(path)
        whole = pa.concat_tables(tables) if tables else self._lines([], rows, 0, data)
        body = _encoded(whole, names, ends)
        self.place.write(path, b"".join([data, body]), sync=self.sync)
        traffic.created, traffic.written = traffic.created + 1, traffic.written + len(data) + len(body)
        sizes = np.bincount(whole.column("file").to_numpy(), whole.column("bytes").to_numpy(), len(names))
        files = {path: 0} | {name: int(size) for name, size in zip(names, sizes, strict=True)}
        return SubIndex(path, len(data), len(body), zlib.crc32(body), sum(ends.values()), files)

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows by key, those of one key by their end."""
        keys = [(k, "ascending", "at_end") for k in self.keys]
        order = pc.sort_indices(rows, sort_keys=[*keys, (EXP, "ascending", "at_end")])
        return rows.take(order).combine_chunks()

    def _blocks(self, rows: pa.Table) -> tuple[memoryview, list[tuple[int, int, int, int]]]:
        """The blocks of sorted rows as bytes; and of each its first row, its last row + 1, its offset and its size."""
        if not rows.num_rows:
            return memoryview(b""), []
        (batch,) = rows.combine_chunks().to_batches()
        sink, found = pa.BufferOutputStream(), []
        with ipc.new_stream(sink, self.schema, options=_OPTIONS) as writer:
            for begin, end in self._cuts(batch):
                at = sink.tell() or len(self._head)  # the schema goes out with the first
                writer.write_batch(batch.slice(begin, end - begin))
                found.append((begin, end, at, sink.tell() - at))
        return memoryview(sink.getvalue()), found

    def _cuts(self, batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
        """Where blocks begin and end: at the last change of key within a block's size, if there is one."""
        changes = _changes([batch.column(k) for k in self.keys], batch.num_rows)
        width = max(1.0, batch.nbytes / batch.num_rows)
        bucket = 1.25 * batch.num_rows / (len(changes) + 1)
        size = max(1, int(min(max(bucket, LEAST_BYTES / width), MOST_BYTES / width)))
        begin = 0
        while begin < batch.num_rows:
            end = min(begin + size, batch.num_rows)
            before = int(np.searchsorted(changes, end, "right"))  # changes of key up to there
            if end < batch.num_rows and before and changes[before - 1] > begin:
                end = int(changes[before - 1])
            yield begin, end
            begin = end

    def _lines(
        self, blocks: Sequence[tuple[int, int, int, int]], rows: pa.Table, file: int, data: memoryview
    ) -> pa.Table:
        begin, end, offset, size = (
            np.array(column, np.int64) for column in (zip(*blocks, strict=True) if blocks else [()] * 4)
        )
        exp = rows.column(EXP).to_numpy() if rows.num_rows else np.zeros(0, np.int64)
        first, last = pa.array(begin), pa.array(end - 1)
        ends = (np.minimum.reduceat(exp, begin), np.maximum.reduceat(exp, begin)) if blocks else (exp, exp)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "file": pa.array(np.full(len(blocks), file, np.int32)),
            "offset": pa.array(offset),
            "bytes": pa.array(size),
            "checksum": pa.array([zlib.crc32(data[at : at + n]) for *_, at, n in blocks], pa.uint32()),
            "rows": pa.array(end - begin),
            "first_end": pa.array(ends[0]),
            "last_end": pa.array(ends[1]),
        }
        for key in self.keys:
            column = rows.column(key).combine_chunks()
            columns |= {f"low.{key}": column.take(first), f"high.{key}": column.take(last)}
        return pa.table(columns)

    # reading

    def directory(self, found: SubIndex, traffic: Traffic) -> Directory:
        """The directory of a sub-index; from memory, if it was read before."""
        known = self._known.get(found.path)
        if known is not None:
            return known
        (body,) = self.place.read_ranges(found.path, [(found.offset, found.bytes)])
        traffic.opened, traffic.read = traffic.opened + 1, traffic.read + found.bytes
        if body.size != found.bytes or zlib.crc32(body) != found.checksum:
            raise self._damaged(found.path, f"the directory at byte {found.offset} is not what was written")
        try:
            directory = _directory(body)
        except (*DAMAGED, OSError) as error:
            raise self._damaged(found.path, f"the directory at byte {found.offset} has other content") from error
        self._known[found.path] = directory
        return directory

    def forget(self, *, but: Iterable[str] = ()) -> None:
        """Let go of directories that were read before, but for those in some files."""
        kept = set(but)
        self._known = {path: directory for path, directory in self._known.items() if path in kept}

    def blocks(self, directory: Directory, instant: int, range_: KeyRange, traffic: Traffic) -> list[pa.RecordBatch]:
        """The blocks that may have rows of a range that are alive at an instant."""
        lines = directory.living(instant, self.keys, range_)
        found = list(self._checked(directory, lines, traffic))
        if not found:
            return []
        try:
            with ipc.open_stream(pa.py_buffer(b"".join([self._head, *found])), options=_ALONE) as stream:
                return list(stream)
        except (*DAMAGED, OSError) as error:
            raise self._damaged(", ".join(directory.files), "a block has other content") from error

    def check(self, found: SubIndex) -> None:
        """Read all that a sub-index has, and refuse what is not as it was written."""
        directory = self.directory(found, Traffic())
        for _ in self._checked(directory, np.arange(directory.lines.num_rows), Traffic()):
            pass

    def _checked(self, directory: Directory, lines: np.ndarray, traffic: Traffic) -> Iterator[pa.Buffer]:
        """Blocks as they lie on disk."""
        files, offset, size, checksum = (column[lines] for column in directory.places)
        for file in distinct_values(files):
            mine = np.flatnonzero(files == file)
            name = directory.files[file]
            spans, inner = _joined(offset[mine], size[mine])
            data = self.place.read_ranges(name, spans)
            traffic.opened, traffic.read = traffic.opened + 1, traffic.read + sum(s for _, s in spans)
            for line, (span, at) in zip(mine.tolist(), inner, strict=True):
                block = data[span].slice(at, int(size[line]))
                if zlib.crc32(block) != checksum[line]:
                    raise self._damaged(name, f"the block at byte {offset[line]} is not what was written")
                yield block

    def alive(self, blocks: Sequence[pa.RecordBatch], instant: int, range_: KeyRange = EVERYTHING) -> pa.Table:
        """The rows of blocks that are alive at an instant and have a key of a range."""
        rows = pa.Table.from_batches(blocks, self.schema)
        mask = rows.column(EXP).to_numpy() > instant
        if range_ is not EVERYTHING:
            keys = rows.select(list(self.keys)).combine_chunks()
            mask &= range_.holds([one(keys.column(k)) for k in self.keys], rows.num_rows)
        return rows if mask.all() else rows.filter(pa.array(mask))

    def _damaged(self, name: str, what: str) -> StateError:
        return StateError(
            f"corrupt archive file {self.place.path(name)}",
            detail=what,
            hint="restore home from a backup, or drop the archive and create it again",
        )


def _directory(body: pa.Buffer) -> Directory:
    with ipc.open_stream(body, options=_ALONE) as stream:
        lines = stream.read_all().combine_chunks()
    lines.validate(full=True)
    said = json.loads(lines.schema.metadata[b"windrow"])
    return Directory(lines, tuple(said["files"]), dict(zip(said["slots"], said["rows"], strict=True)))


def _changes(columns: Sequence[pa.Array], length: int) -> np.ndarray:
    """The rows whose key differs from the one before."""
    if not columns or length < 2:
        return np.zeros(0, np.int64)
    different = np.zeros(length - 1, np.bool_)
    for column in columns:
        here, before = column.slice(1), column.slice(0, length - 1)
        different |= np.asarray(pc.fill_null(pc.not_equal(here, before), True))
    return np.flatnonzero(different) + 1


def _joined(offset: np.ndarray, size: np.ndarray) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Blocks that lie one behind the other as one span each; and for every block its span and its place in it.

    >>> _joined(np.array([0, 10, 40]), np.array([10, 5, 2]))
    ([(0, 15), (40, 2)], [(0, 0), (0, 10), (1, 0)])
    """
    spans: list[tuple[int, int]] = []
    inner = []
    for at, length in zip(offset.tolist(), size.tolist(), strict=True):
        if spans and sum(spans[-1]) == at:
            inner.append((len(spans) - 1, at - spans[-1][0]))
            spans[-1] = (spans[-1][0], spans[-1][1] + length)
        else:
            inner.append((len(spans), 0))
            spans.append((at, length))
    return spans, inner


def _encoded(lines: pa.Table, files: Sequence[str], ends: Mapping[int, int]) -> bytes:
    said = {"files": list(files), "slots": list(ends), "rows": list(ends.values())}
    table = lines.replace_schema_metadata({b"windrow": json.dumps(said, separators=(",", ":")).encode()})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()
