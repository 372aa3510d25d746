"""What aggregation sets are made of: changes of entries, the ends that wait, and entries by their key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.sums import SumLanes, relaid
from windrow.operators.aggregates.sweep import in_order
from windrow.operators.aggregates.vectors import opens
from windrow.operators.elements import BEGINNING, Int64s, concat_arrays
from windrow.operators.state.ranges import expand, merge_order, parts, ranges

_MANY = 32


@dataclass(frozen=True)
class Events:
    """Changes of entries in the order (entry, time); one per entry and instant."""

    entry: Int64s
    ts: Int64s
    count: Int64s
    lanes: dict[str, Int64s]  # by column [events, lanes]

    def __len__(self) -> int:
        return len(self.entry)


def summed(entry: Int64s, ts: Int64s, count: Int64s, lanes: Mapping[str, Int64s]) -> Events:
    """Changes in any order, summed per entry and instant."""
    order = in_order(entry, ts)
    e, t = entry[order], ts[order]
    starts = np.flatnonzero(opens(e, t))
    if len(starts) == len(e):
        return Events(e, t, count[order], {c: m[order] for c, m in lanes.items()})
    added = {c: np.add.reduceat(m[order], starts, axis=0) for c, m in lanes.items()}
    return Events(e[starts], t[starts], np.add.reduceat(count[order], starts), added)


class EntryEnds:
    """What leaves entries later: runs sorted by end."""

    def __init__(self) -> None:
        self._runs: list[tuple[Events, dict[str, SumLanes]]] = []

    def put(self, ends: Events, layouts: Mapping[str, SumLanes]) -> None:
        """Let changes wait for their time."""
        if not len(ends):
            return
        self._runs.append((_by_time(ends), dict(layouts)))
        if len(self._runs) > _MANY:
            self._runs.sort(key=lambda r: len(r[0]))
            small, self._runs = self._runs[: _MANY // 2], self._runs[_MANY // 2 :]
            self._runs.append(_concat(small, layouts))

    def take(self, frontier: int, layouts: Mapping[str, SumLanes]) -> Events | None:
        """Remove and return what is due by `frontier`, in the given layouts."""
        due, kept = [], []
        for ends, own in self._runs:
            stop = int(np.searchsorted(ends.ts, frontier, side="right"))
            if stop:
                due.append((_cut(ends, 0, stop), own))
            if stop < len(ends):
                kept.append((_cut(ends, stop, len(ends)) if stop else ends, own))
        self._runs = kept
        return _concat(due, layouts)[0] if due else None

    def everything(self, layouts: Mapping[str, SumLanes]) -> Events:
        """All that waits."""
        if not self._runs:
            none = np.zeros(0, np.int64)
            return Events(none, none, none, {c: np.zeros((0, x.width), np.int64) for c, x in layouts.items()})
        return _concat(self._runs, layouts)[0]

    def latest(self) -> int:
        """When all that waits will be gone."""
        return max((int(ends.ts[-1]) for ends, _ in self._runs), default=BEGINNING)

    def renumber(self, number: Int64s) -> None:
        """Entries have other numbers now."""
        self._runs = [(Events(number[e.entry], e.ts, e.count, e.lanes), own) for e, own in self._runs]


def _cut(ends: Events, begin: int, stop: int) -> Events:
    at = slice(begin, stop)
    return Events(ends.entry[at], ends.ts[at], ends.count[at], {c: m[at] for c, m in ends.lanes.items()})


def _by_time(ends: Events) -> Events:
    if (np.diff(ends.ts) >= 0).all():
        return ends
    order = np.argsort(ends.ts, kind="stable")
    return Events(ends.entry[order], ends.ts[order], ends.count[order], {c: m[order] for c, m in ends.lanes.items()})


def _concat(
    runs: Sequence[tuple[Events, dict[str, SumLanes]]], layouts: Mapping[str, SumLanes]
) -> tuple[Events, dict[str, SumLanes]]:
    together = Events(
        np.concatenate([e.entry for e, _ in runs]),
        np.concatenate([e.ts for e, _ in runs]),
        np.concatenate([e.count for e, _ in runs]),
        {c: np.concatenate([relaid(e.lanes[c], own[c], layout) for e, own in runs]) for c, layout in layouts.items()},
    )
    return _by_time(together), dict(layouts)


class SingleRows:
    """Entries of which each is one row: the same doors as KeyTable, without looking anything up."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self.types = dict(types)
        self._size = 0
        self._chunks: dict[str, list[pa.Array]] = {n: [] for n in types}

    def __len__(self) -> int:
        return self._size

    def slots(self, columns: Mapping[str, pa.Array], length: int) -> Int64s:
        """A new slot for each row."""
        for name, chunks in self._chunks.items():
            chunks.append(columns[name])
        self._size += length
        return np.arange(self._size - length, self._size)

    def rows(self, slots: Int64s) -> dict[str, pa.Array]:
        """The rows in the given slots."""
        picks = pa.array(slots)
        return {n: self.column(n).take(picks) for n in self.types}

    def column(self, name: str) -> pa.Array:
        chunks = self._chunks[name]
        if len(chunks) != 1:
            self._chunks[name] = chunks = [concat_arrays(chunks) if chunks else pa.array([], self.types[name])]
        return chunks[0]

    def compact(self, keep: np.ndarray) -> Int64s:
        """Forget the slots where `keep` is false; returns the old slots in the order of their new numbers."""
        kept = np.flatnonzero(keep[: self._size])
        picks = pa.array(kept)
        self._chunks = {n: [self.column(n).take(picks)] for n in self.types}
        self._size = len(kept)
        return kept


class EntryIndex:
    """Entries by the hash of some join columns: sorted runs, merged as they grow."""

    def __init__(self) -> None:
        self._runs: list[tuple[Int64s, Int64s]] = []

    def insert(self, hashes: Int64s, entries: Int64s) -> None:
        """Add entries."""
        if not len(hashes):
            return
        order = np.argsort(hashes, kind="stable")
        self._runs.append((hashes[order], entries[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            (h1, e1), (h0, e0) = self._runs.pop(), self._runs.pop()
            merged = merge_order([h0, h1])
            self._runs.append((np.concatenate((h0, h1))[merged], np.concatenate((e0, e1))[merged]))

    def probe(self, hashes: Int64s, limit: int) -> Iterator[tuple[Int64s, Int64s]]:
        """(index of the needle, entry) of equal hashes, about `limit` at a time."""
        order = np.argsort(hashes)
        needles = hashes[order]
        for run, entries in self._runs:
            low, count = ranges(needles, run)
            for begin, stop in parts(count, limit):
                left = np.repeat(order[begin:stop], count[begin:stop])
                if len(left):
                    yield left, entries[expand(low[begin:stop], count[begin:stop])]
