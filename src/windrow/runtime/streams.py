"""A stream as the driver sees it: its declaration, its source, and what has come.

Rows come from a source that the loop polls (`sources/protocol.py`), or from the program itself (`push`). A stream that
may be silent (IDLE AFTER) follows the clock on the wall once it has been silent for that long. One that cannot be
read is stopped: its time stands still, and it is tried again from the same place, after 1, 2, 4, ... seconds.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import WindrowError
from windrow.operators.elements import BEGINNING
from windrow.sources.casting import conform
from windrow.sources.protocol import Available, Offset, Piece, Report, Source
from windrow.store.place import Place, segment

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds before a stream that cannot be read is tried again: at first, and at most."""


@dataclass
class Stopped:
    """Why and since when a stream stands still, by the wall; how often it was tried, and when it is tried again."""

    error: WindrowError
    since: float
    again: float
    tries: int = 1


@dataclass(eq=False)
class Stream:
    """One declared stream; `uid` tells it from others that had its name."""

    definition: StreamDef
    source: Source
    uid: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    seen: float = field(default_factory=time.time)  # when rows last came, by the wall
    rows: int = 0
    late: int = 0
    quarantined: int = 0
    data: Any = None  # the DataFrame that it was given, if any
    stopped: Stopped | None = None

    @property
    def key(self) -> str:
        return self.definition.name.lower()

    def stop(self, error: WindrowError, now: float) -> Stopped:
        """Read nothing until it is time to try again."""
        before = self.stopped
        tries = 1 if before is None else before.tries + 1
        pause = min(FIRST_RETRY * 2 ** min(tries - 1, 30), LAST_RETRY)
        self.stopped = Stopped(error.kept(), now if before is None else before.since, now + pause, tries)
        return self.stopped

    def silent_for(self, now: float) -> float | None:
        """Seconds since rows last came, if that is longer than the stream may hold time back."""
        after = self.definition.idle_after
        silent = now - self.seen
        if after is None or self.stopped is not None:  # one that cannot be read is not silent: its rows are to come
            return None
        return silent if silent > after / 1e6 else None

    def reached(self, now: float, mark: int) -> int | None:
        """How far the time of a silent stream has come: its last time and what has passed since; None: it cannot say.

        A clock that counts ticks says nothing about the wall's, and a stream that has had no row has no time.
        """
        silent = self.silent_for(now)
        if silent is None or mark == BEGINNING or pa.types.is_integer(self.definition.time_type):
            return None
        return mark + int(silent * 1e6)


def folder_of(stream: StreamDef, uid: str, of: str = "sources") -> str:
    """The folder of a home that is a declared stream's own."""
    return f"{of}/{segment(stream.name.lower())}-{uid}"


@dataclass(frozen=True, eq=False)
class PushedTable:
    """Rows handed in by the program, in memory."""

    table: pa.Table

    @property
    def weight(self) -> int:
        return int(self.table.nbytes)

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows."""
        yield from (_as_declared(b, stream) for b in self.table.to_batches())


@dataclass(frozen=True)
class PushedFile:
    """Rows handed in by the program, in a file."""

    place: Place
    name: str
    weight: int

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows."""
        with pa.ipc.open_file(self.place.read(self.name)) as file:
            for i in range(file.num_record_batches):
                yield _as_declared(file.get_batch(i), stream)


def _as_declared(batch: pa.RecordBatch, stream: StreamDef) -> pa.RecordBatch:
    """Rows that were pushed before the columns of their stream changed, as it has them now."""
    if batch.schema.names == list(stream.columns):
        return batch
    found = conform(pa.Table.from_batches([batch]), f'stream "{stream.name}"', stream.columns, stream.added)
    return found.combine_chunks().to_batches()[0] if found.num_rows else batch.slice(0, 0)


class PushSource:
    """Rows that the program hands in. An offset counts the tables taken.

    With a `spool` they are files until the manifest of their tick is in place, so what was pushed is not lost when the
    process ends before its tick. `taken`: how many have been taken when it is opened; the next ones count from there.
    """

    def __init__(self, spool: Place | None = None, taken: int = 0) -> None:
        self._spool = spool
        self._lock = threading.Lock()
        self._pieces: dict[int, PushedTable | PushedFile] = {}
        self._last = taken
        if spool is not None:
            for name, size in spool.names().items():
                if name.endswith(".arrow"):
                    self._pieces[int(name.removesuffix(".arrow"))] = PushedFile(spool, name, size)
            self._pieces = dict(sorted(self._pieces.items()))
            self._last = max([taken, *self._pieces])

    def push(self, table: pa.Table, *, spooled: bool) -> None:
        """Hand in rows; `spooled`: they survive the process from now on."""
        with self._lock:
            number = self._last + 1
            if spooled and self._spool is not None:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)
                name, data = f"{number:012d}.arrow", sink.getvalue()
                self._spool.write(name, data)
                self._pieces[number] = PushedFile(self._spool, name, data.size)
            else:
                self._pieces[number] = PushedTable(table)
            self._last = number

    def poll(self, offset: Offset | None) -> Available | None:
        """The tables behind `offset`."""
        with self._lock:
            taken = int(offset["pushed"]) if offset else 0
            self._last = max(self._last, taken)
            found: dict[int, Piece] = {n: p for n, p in self._pieces.items() if n > taken}
            return Available({"pushed": max(found)}, tuple(found.values())) if found else None

    def committed(self, offset: Offset) -> None:
        """Let go of the tables up to `offset`."""
        with self._lock:
            for number in [n for n in self._pieces if n <= offset["pushed"]]:
                piece = self._pieces.pop(number)
                if isinstance(piece, PushedFile):
                    piece.place.delete(piece.name)

    def drained(self, offset: Offset | None) -> bool:
        """Whether all tables are before `offset`."""
        return self.poll(offset) is None

    def close(self) -> None:
        """Nothing is open."""
