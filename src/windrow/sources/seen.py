"""What was taken: names in memory at 16 bytes each, and a log of them on disk that an offset can name.

    offset  {"log": [[segment, rows, digest], ...], "tail": [names since], ...}

The newest names are in the offset itself, so a tick writes nothing besides its manifest; when they are many, they
become a segment. A segment absorbs those before it that are not much longer, so there are few, and each name is
rewritten a logarithmic number of times. Segments are named by their content and checked when read.

No clock decides whether a file is new: only its name does. When everything is rewritten, names that are no longer in
the directory and were taken more than a week ago are forgotten.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from windrow.store.place import Place
from windrow.store.sealed import corrupt

Reference = list[object]  # segment, rows, digest: as it stands in an offset

FRESH = 1 << 16
RATIO = 4  # a segment is at least so many times as long as the next
KEPT_SECONDS = 7 * 24 * 3600
SCHEMA = pa.schema([("name", pa.string()), ("taken", pa.int64())])


class NameSet:
    """A set of names as 128-bit hashes; two names that share one are not to be expected in the life of a universe."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._fresh: set[str] = set()
        self._discarded: set[str] = set()  # of those that are hashed
        self._high = np.empty(0, np.int64)  # sorted
        self._low = np.empty(0, np.int64)  # beside it
        self.add(names)

    def __len__(self) -> int:
        return len(self._high) + len(self._fresh) - len(self._discarded)

    def add(self, names: Iterable[str]) -> None:
        """Add names that are not in it."""
        if self._discarded:
            names = set(names)
            names, back = names - self._discarded, names & self._discarded
            self._discarded -= back
        self._fresh.update(names)
        if len(self._fresh) > max(FRESH, len(self._high) // 8):
            high, low = _hashes(list(self._fresh))
            high, low = np.concatenate([self._high, high]), np.concatenate([self._low, low])
            order = np.argsort(high, kind="stable")
            self._high, self._low = high[order], low[order]
            self._fresh = set()

    def discard(self, name: str) -> None:
        """Take one name out; meant for few."""
        if name in self._fresh:
            self._fresh.discard(name)
        else:
            self._discarded.add(name)

    def missing(self, names: Sequence[str]) -> list[str]:
        """The names that are not in it."""
        rest = [n for n in names if n not in self._fresh]
        if not rest or not len(self._high):
            return rest
        high, low = _hashes(rest)
        at = np.searchsorted(self._high, high)
        known = np.zeros(len(rest), np.bool_)
        for step in range(2):  # equal halves are next to each other, and more than two of them are not to be expected
            here = np.minimum(at + step, len(self._high) - 1)
            known |= (self._high[here] == high) & (self._low[here] == low)
        return [rest[i] for i in np.flatnonzero(~known).tolist()] + [n for n in rest if n in self._discarded]


def _hashes(names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    count = len(names)
    high = np.fromiter((hash(n) for n in names), np.int64, count)
    return high, np.fromiter((hash(n + "/") for n in names), np.int64, count)


class SeenLog:
    """Segments of taken names in a place of the home."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.time) -> None:
        self.place = place
        self._clock = clock
        self._held: list[set[str]] = []  # segments of the last offsets that were committed

    def names(self, log: Sequence[Reference]) -> list[str]:
        """Every name in the segments of an offset."""
        return [n for reference in log for n in self._read(reference).column("name").to_pylist()]

    def absorb(
        self, log: Sequence[Reference], tail: Sequence[str], present: Callable[[], NameSet] | None = None
    ) -> list[Reference]:
        """The log with one more segment, which has taken in those before it that are not much longer."""
        left = list(log)
        table = pa.table([list(tail), [int(self._clock())] * len(tail)], schema=SCHEMA)
        while left and int(str(left[-1][1])) <= RATIO * table.num_rows:
            table = pa.concat_tables([self._read(left.pop()), table])
        if not left and present is not None:
            table = self._without_forgotten(table, present)
        return [*left, self._write(table.combine_chunks())]

    def _without_forgotten(self, table: pa.Table, present: Callable[[], NameSet]) -> pa.Table:
        old = pc.less(table.column("taken"), int(self._clock()) - KEPT_SECONDS)
        if not pc.any(old).as_py():
            return table
        gone = present().missing(table.filter(old).column("name").to_pylist())
        forgotten = pc.and_(old, pc.is_in(table.column("name"), pa.array(gone, pa.string())))
        return table.filter(pc.invert(forgotten))

    def keep(self, log: Sequence[Reference], offsets: int = 4) -> None:
        """A manifest holds an offset with this log: delete segments that none of the last few such offsets name."""
        named = {str(r[0]) for r in log}
        if self._held and self._held[-1] == named and len(self._held) >= offsets:
            return
        self._held = [*self._held, named][-offsets:]
        if len(self._held) == offsets:
            for name in self.place.names():
                if name.startswith("seen-") and not any(name in held for held in self._held):
                    self.place.delete(name)

    def _write(self, table: pa.Table) -> Reference:
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, SCHEMA, options=ipc.IpcWriteOptions(compression="zstd")) as out:
            out.write_table(table)
        data = sink.getvalue()
        digest = _digest(data)
        name = f"seen-{digest}.arrow"
        self.place.write(name, data)
        return [name, table.num_rows, digest]

    def _read(self, reference: Reference) -> pa.Table:
        name, _, digest = reference
        data = self.place.read(str(name))
        if _digest(data) != digest:
            raise corrupt("windrow-log of taken files", self.place.path(str(name)), "the digest of its content differs")
        return ipc.open_stream(data).read_all()


def _digest(data: pa.Buffer) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
