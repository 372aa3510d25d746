"""A disk in memory that fails as disks do: at any call, by a schedule.

Every name and every file has two states: what programs see, and what is on the platter. `create` with a sync moves a
file's bytes there, `sync` the names of a directory. A process that is killed leaves what programs saw; a power failure
leaves of every name that was not synced the old one or the new, of every file that was not synced all, a part or
nothing, and a directory that its parent does not know takes with it what is in it. Which, a seed decides.

Calls are numbered. A fault is due at the call of its number, or at the first one after it that it can befall:

    killed, power   the process ends: this call, and any after it, raises `Ended`; a write is cut in the middle
    full            the disk has no room, for some calls
    slow            the call takes minutes by the clock
    lost, torn      the disk says that it has synced a file, and has not, or in part: found at the next power failure
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from windrow.store.disk import Disk, HeldFile

ROOT = "/simulated"
ENDS = ("killed", "power")
LIES = ("lost", "torn")
KINDS = (*ENDS, "full", "slow", *LIES)


class Ended(BaseException):
    """The process has been killed, or its power has gone: nothing it does has any effect."""


@dataclass(frozen=True, order=True)
class Fault:
    """What happens at which call."""

    at: int
    kind: str
    seed: int = 0


@dataclass(eq=False)
class _File:
    """The bytes that programs see, and those on the platter: None if they have never been synced."""

    data: bytes
    synced: bytes | None = None
    lying: bool = False  # the platter has something else than was promised


@dataclass
class SimulatedDisk(Disk):
    """Everything under `ROOT`; other paths are the real disk's."""

    faults: list[Fault] = field(default_factory=list)
    clock: list[float] = field(default_factory=lambda: [1.7e9])
    calls: int = 0
    ended: str | None = None
    lied: bool = False
    happened: list[Fault] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    observed: Callable[[str, str], None] | None = None  # told of every call before it has an effect

    def __post_init__(self) -> None:
        super().__init__()
        self._real = Disk()
        self._known.add(ROOT)
        self._seen: dict[str, _File | None] = {ROOT: None}  # by path; None: a directory
        self._platter: dict[str, _File | None] = {ROOT: None}
        self._locks: set[str] = set()
        self._full = 0
        self.faults = sorted(self.faults)

    # what happens to a machine

    def restart(self) -> None:
        """A new process, on the disk as the end of the last one left it."""
        if self.ended == "power":
            self._lose(random.Random(self.happened[-1].seed))
        self.ended = None
        self._locks.clear()
        self._known = {ROOT}
        self._full = 0

    def end(self, kind: str) -> None:
        """End the process here."""
        self.ended = kind
        raise Ended(kind)

    def _lose(self, chance: random.Random) -> None:
        kept: dict[str, _File | None] = {ROOT: None}
        for path in sorted({*self._seen, *self._platter}):
            before, after = self._platter.get(path, ...), self._seen.get(path, ...)
            found = after if before is after or chance.random() < 0.5 else before
            if found is not ... and os.path.dirname(path) in {*kept, os.path.dirname(ROOT)}:
                kept[path] = _left(found, chance)
        self._seen = kept
        self._platter = dict(kept)

    # calls

    def _call(self, what: str, path: str) -> str | None:
        """Count a call; the kind of a fault that it must carry out itself."""
        if self.ended is not None:
            raise Ended(self.ended)
        if self.observed is not None:
            self.observed(what, path)
        self.calls += 1
        self.trace.append(f"{what} {path}")
        writes = what in ("create", "rename", "make", "lock")
        if self._full and writes:
            self._full -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        fault = next((f for f in self.faults if f.at < self.calls and _befalls(f.kind, what, path)), None)
        if fault is None:
            return None
        self.faults.remove(fault)
        self.happened.append(fault)
        if fault.kind == "slow":
            self.clock[0] += 1 + fault.seed % 300
            return None
        if fault.kind == "full":
            self._full = fault.seed % 4
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if fault.kind in ENDS and what != "create":
            if fault.seed % 2 and what in ("rename", "remove"):  # it had its effect, and nobody was told
                getattr(self, f"_{what}")(*path.split(" -> "))
            self.end(fault.kind)
        return fault.kind

    def read(self, path: str) -> pa.Buffer:
        if not _mine(path):
            return self._real.read(path)
        self._call("read", path)
        return pa.py_buffer(self._file(path).data)

    def read_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        if not _mine(path):
            return self._real.read_ranges(path, spans)
        self._call("read", path)
        data = self._file(path).data
        return [pa.py_buffer(data[offset : offset + size]) for offset, size in spans]

    def names(self, folder: str, recursive: bool) -> dict[str, int]:
        if not _mine(folder):
            return self._real.names(folder, recursive)
        self._call("list", folder)
        under = {p: f for p, f in sorted(self._seen.items()) if p.startswith(f"{folder}/") and f is not None}
        return {p: len(f.data) for p, f in under.items() if recursive or os.path.dirname(p) == folder}

    def exists(self, path: str) -> bool:
        if not _mine(path):
            return self._real.exists(path)
        self._call("look", path)
        return path in self._seen

    def make(self, folder: str, sync: bool) -> None:
        if _mine(folder):
            super().make(folder, sync)
        else:
            self._real.make(folder, sync)

    def _is_folder(self, path: str) -> bool:
        return path in self._seen

    def _make_folder(self, path: str) -> None:
        self._call("make", path)
        self._seen[path] = None

    def create(self, path: str, data: bytes | pa.Buffer, sync: bool) -> None:
        if not _mine(path):
            return self._real.create(path, data, sync)
        kind = self._call("create", path)
        written = bytes(data)
        if kind in ENDS:
            self._seen[path] = _File(written[: len(written) // 2])
            self.end(kind)
        made = self._seen[path] = _File(written)
        if kind in LIES:
            made.lying, self.lied = True, True
            made.synced = None if kind == "lost" else written[: len(written) // 2]
        elif sync:
            self._call("sync file", path)
            made.synced = written
        return None

    def rename(self, old: str, new: str) -> None:
        if not _mine(old):
            return self._real.rename(old, new)
        self._call("rename", f"{old} -> {new}")
        return self._rename(old, new)

    def _rename(self, old: str, new: str) -> None:
        self._seen[new] = self._file(old)
        del self._seen[old]

    def sync(self, folder: str) -> None:
        if not _mine(folder):
            return self._real.sync(folder)
        self._call("sync", folder)
        for path in [p for p in self._platter if os.path.dirname(p) == folder]:
            if path not in self._seen:
                del self._platter[path]
        self._platter |= {p: f for p, f in self._seen.items() if os.path.dirname(p) == folder}
        return None

    def remove(self, path: str) -> None:
        if not _mine(path):
            return self._real.remove(path)
        self._call("remove", path)
        return self._remove(path)

    def _remove(self, path: str) -> None:
        self._seen.pop(path, None)

    def lock(self, path: str) -> HeldFile | None:
        if not _mine(path):
            return self._real.lock(path)
        self._call("lock", path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self._seen.setdefault(path, _File(b""))
        self._locks.add(path)
        return _SimulatedLock(self, path)

    def _file(self, path: str) -> _File:
        found = self._seen.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found


class _SimulatedLock(HeldFile):
    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def write(self, data: bytes) -> None:
        if self._disk.ended is not None:
            raise Ended(self._disk.ended)
        found = self._disk._seen.get(self._path)
        if found is not None:
            found.data = data

    def close(self) -> None:
        if self._disk.ended is None:
            self._disk._locks.discard(self._path)


def _mine(path: str) -> bool:
    return path.startswith(ROOT)


def _befalls(kind: str, what: str, path: str) -> bool:
    """Whether a fault of a kind can happen at such a call."""
    if kind == "full":
        return what in ("create", "rename", "make")
    if kind in LIES:  # a manifest that is lost takes the home back to the one before, which nobody can know
        return what == "create" and "/runs/" in path
    return True


def _left(found: _File | None, chance: random.Random) -> _File | None:
    """What a power failure leaves of a file."""
    if found is None:
        return None
    if found.synced is not None and not found.lying:
        return _File(found.synced, found.synced)
    if found.lying:
        data = found.synced or b""
        return _File(data, data)
    data = found.data[: chance.choice((0, len(found.data) // 2, len(found.data)))]
    return _File(data, data)
