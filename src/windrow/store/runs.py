"""Runs in files: written once by whoever computed them, read by reference, memory-mapped when local.

A task writes the runs of its tick into one file (a pack), each an Arrow IPC file in itself, so that a tick costs one
file per task however many operators it runs; long runs have files of their own, which go when they are superseded:

    runs/<stage>/<partition>/<tick>-<uid>.arrow   =   run | padding | run | padding | ...

The file name carries the tick, so an unreferenced file of a finished tick is known to be an orphan (a failed or
speculative attempt): only a manifest makes a run real. A `RunRef` is all that is needed to read a run back; its
checksum and length are checked the first time a process reads it, so torn bytes are refused, never misread.

This module imports no Spark: it runs on executors. Cost: a write is one sequential copy and one sync; a read that is
in the process's cache is a dictionary lookup, one that is not is a mapping and one pass for the checksum.
"""

from __future__ import annotations

import os
import threading
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyarrow import ipc

from windrow.errors import StateError
from windrow.operators.state.run import Run
from windrow.store.place import Place, segment

_ALIGN = 64
ALONE = 1 << 20
"""Bytes from which on a run has a file of its own."""

CACHE_MB = int(os.environ.get("WINDROW_RUN_CACHE_MB", "1024"))


@dataclass(frozen=True, slots=True)
class RunRef:
    """Where a run is: `bytes` at `offset` of the file `path` (relative to home), and what they must sum to."""

    uid: str
    path: str
    rows: int
    bytes: int
    checksum: int
    offset: int = 0


class RunCache:
    """Recently read runs of this process by uid; the least recently used go first when over `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, uid: str) -> Run | None:
        """The cached run, now the most recently used."""
        with self._lock:
            run = self._runs.get(uid)
            if run is not None:
                self._runs.move_to_end(uid)
            return run

    def put(self, run: Run) -> None:
        """Remember a run; one larger than the limit is not kept."""
        with self._lock:
            if run.uid in self._runs or run.nbytes > self.limit:
                return
            self._runs[run.uid] = run
            self.held += run.nbytes
            while self.held > self.limit:
                _, old = self._runs.popitem(last=False)
                self.held -= old.nbytes

    def drop(self, uids: Iterable[str]) -> None:
        """Forget runs that are over: a mapped file takes its room until nobody looks at it."""
        with self._lock:
            for uid in uids:
                run = self._runs.pop(uid, None)
                self.held -= run.nbytes if run is not None else 0

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._runs.clear()
            self.held = 0

    def __len__(self) -> int:
        return len(self._runs)


cache = RunCache(CACHE_MB << 20)
"""The cache of this process: workers are reused between ticks."""


class RunPlace(Protocol):
    """Where runs are kept; `durable`: they are there after the process has ended."""

    @property
    def durable(self) -> bool: ...

    @property
    def uri(self) -> str: ...

    def write(self, parts: Sequence[str | int], tick: int, runs: Sequence[Run]) -> tuple[RunRef, ...]:
        """Keep runs; returns their references in order."""

    def read(self, ref: RunRef, *, cached: bool = True) -> Run:
        """The run of a reference; `cached`: it is likely to be read again."""

    def mapped(self, ref: RunRef) -> Run | None:
        """A long run as it lies on disk, if it can be used there."""


class MemoryRuns:
    """Runs that live as long as this process; state stays with the tasks that hold it."""

    durable = False
    uri = ""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def write(self, parts: Sequence[str | int], tick: int, runs: Sequence[Run]) -> tuple[RunRef, ...]:
        self._runs |= {run.uid: run for run in runs}
        return tuple(RunRef(run.uid, "/".join(map(str, parts)), run.table.num_rows, run.nbytes, 0) for run in runs)

    def read(self, ref: RunRef, *, cached: bool = True) -> Run:
        return self._runs[ref.uid]

    def mapped(self, ref: RunRef) -> Run | None:
        return None

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all runs but these."""
        self._runs = {uid: self._runs[uid] for uid in uids if uid in self._runs}


@dataclass(frozen=True, slots=True)
class RunStore:
    """Reads and writes runs under a place; a small value that is sent to executors.

    `sync`: a written file survives a power failure, not only the end of the process. `trusted`: files of this tick and
    later were written while this engine runs, so nothing can have torn them and their checksums are not looked at.
    """

    place: Place
    sync: bool = True
    trusted: int | None = None

    @property
    def durable(self) -> bool:
        return True

    @property
    def uri(self) -> str:
        return self.place.uri

    def trusting(self, tick: int) -> RunStore:
        """The same runs, those of `tick` and later not checked."""
        return replace(self, trusted=tick)

    def unsynced(self) -> RunStore:
        """The same runs, written for this process's life only."""
        return replace(self, sync=False)

    def write(self, parts: Sequence[str | int], tick: int, runs: Sequence[Run]) -> tuple[RunRef, ...]:
        """Write runs into new files of the folder `parts`; returns their references in order."""
        groups = [[run] for run in runs if run.nbytes >= ALONE]
        groups.append([run for run in runs if run.nbytes < ALONE])
        found = {ref.uid: ref for group in groups if group for ref in self._pack(parts, tick, group)}
        return tuple(found[run.uid] for run in runs)

    def _pack(self, parts: Sequence[str | int], tick: int, runs: Sequence[Run]) -> tuple[RunRef, ...]:
        name = pack_name(parts, tick)
        refs, content, at = list[RunRef](), list[bytes | pa.Buffer](), 0
        for run in runs:
            data, padding = _file_of(run), -at % _ALIGN  # Arrow buffers must stay aligned to be used in place
            at += padding
            refs.append(RunRef(run.uid, name, run.table.num_rows, data.size, zlib.crc32(data), at))
            content += (b"\0" * padding, data)
            at += data.size
        self.place.write(name, content[-1] if len(runs) == 1 else b"".join(content), sync=self.sync)
        return tuple(refs)

    def read(self, ref: RunRef, *, cached: bool = True) -> Run:
        """The run of a reference; checked when this process first reads it."""
        known = cache.get(ref.uid)
        if known is None:
            known = self.checked(ref)
            if cached:
                cache.put(known)
        return known

    def checked(self, ref: RunRef) -> Run:
        """The run of a reference as it is on disk now."""
        data = self.place.read(ref.path)
        if data.size < ref.offset + ref.bytes:
            raise _torn(self.place, ref, f"{data.size} bytes long, {ref.offset + ref.bytes} expected")
        span = data.slice(ref.offset, ref.bytes)
        trusted = self.trusted is not None and (tick_of(ref.path) or 0) >= self.trusted
        if not trusted and zlib.crc32(memoryview(span)) != ref.checksum:
            raise _torn(self.place, ref, "the checksum differs")
        try:
            table = ipc.open_file(span).read_all()
        except (pa.ArrowException, OSError) as error:
            raise _torn(self.place, ref, str(error)) from error
        return Run(table, ref.uid)

    def mapped(self, ref: RunRef) -> Run | None:
        return self.read(ref, cached=False) if self.place.local and ref.bytes >= ALONE else None


def pack_name(parts: Sequence[str | int], tick: int) -> str:
    """A new name for a file of runs, relative to home."""
    folder = "/".join(segment(str(p)) for p in parts)
    return f"runs/{folder}/{tick:010d}-{uuid.uuid4().hex}.arrow"


def tick_of(name: str) -> int | None:
    """The tick in a pack's name; None for any other file.

    >>> tick_of("runs/s0/3/0000000042-ab.arrow"), tick_of("runs/readme")
    (42, None)
    """
    base = name.rpartition("/")[2].lstrip(".")
    digits, dash, _ = base.partition("-")
    return int(digits) if dash and digits.isdecimal() else None


def _file_of(run: Run) -> pa.Buffer:
    """A run as an Arrow file of one batch: readers see one chunk per column."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, run.table.schema) as writer:
        writer.write_table(run.table.combine_chunks())
    return sink.getvalue()


def _torn(place: Place, ref: RunRef, what: str) -> StateError:
    return StateError(
        f"corrupt run {place.path(ref.path)}",
        detail=f"run {ref.uid} of {ref.rows} rows at byte {ref.offset}: {what}",
        hint="restore home from a backup, or start with a new home",
    )
