"""The doubly partitioned index: an archive's rows on disk, updated in bulk, probed by key and scanned (thesis ch. 4).

The state of an index is a small frozen value that names files; an update writes new files and returns a new value. It
is real when a manifest names it: until then nothing has happened, and whoever holds the old value reads on undisturbed.

    update i    rows that came since the last update and are alive now, into the E sub-indices of slot i;
                rows that have ended leave the G sub-indices of the slots that are over
    probe       one directory of each sub-index, and the blocks that meet the range
    migrate     a second index beside the first: new rows go to the new one, the old one only runs empty (or, at once,
                all rows are put into the new one); readers see both as one

Invariant: at the instant of its last update an index holds exactly the rows of its relation, ts <= instant < exp.
Cost of an update: the opened sub-indices when they are rebuilt, the new rows when they are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from windrow.archive.keys import EVERYTHING, OPEN, KeyRange, check_key
from windrow.archive.layout import ArchiveLayout
from windrow.archive.subindex import CHAIN, EXP, TS, Directory, Shelf, SubIndex, Traffic
from windrow.errors import StateError, UnsupportedError
from windrow.store.place import Place

Made = TypeVar("Made")
Given = TypeVar("Given")


@dataclass(frozen=True)
class SubIndices:
    """The sub-indices of one layout, by number; those without rows are left out."""

    layout: ArchiveLayout
    parts: Mapping[int, SubIndex] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows that were alive when each sub-index was last written."""
        return sum(part.rows for part in self.parts.values())

    @property
    def size(self) -> int:
        """Bytes of living blocks."""
        return sum(part.size for part in self.parts.values())


@dataclass(frozen=True)
class ArchiveState:
    """What an archive is after an update: the slot that it ended, and its indices, the newest layout first."""

    slot: int
    indices: tuple[SubIndices, ...]

    @property
    def layout(self) -> ArchiveLayout:
        """The layout that new rows go to."""
        return self.indices[0].layout

    def files(self) -> set[str]:
        """Every file that readers of this state may open."""
        return {file for index in self.indices for part in index.parts.values() for file in part.files}


@dataclass(frozen=True)
class Update:
    """A new state, the sub-indices that were opened for it (of each index), and what that cost."""

    state: ArchiveState
    opened: tuple[frozenset[int], ...]
    traffic: Traffic


class ArchiveIndex:
    """Updates and reads the index of one archive; `every` and `lifetime` are in the clock's units."""

    def __init__(
        self,
        place: Place,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        every: int,
        lifetime: int,
        name: Callable[[int], str],
        sync: bool = True,
    ) -> None:
        if every < 1 or lifetime < 1:
            raise UnsupportedError("an archive needs a positive time between updates, and rows that live for some time")
        for reserved in (TS, EXP):
            if reserved in schema.names:
                raise UnsupportedError(f'an archive has no column "{reserved}"', hint="give it another name with AS")
        check_key(keys, schema)
        self.shelf = Shelf(place, keys, schema, sync=sync)
        self.every, self.lifetime = every, lifetime
        self.p = -(-lifetime // every)  # slots that a lifetime spans
        self._name = name

    # slots

    def slot(self, instant: int) -> int:
        """The last slot that is over at an instant."""
        return instant // self.every

    def as_of(self, state: ArchiveState) -> int:
        """The instant at which the state is exact."""
        return state.slot * self.every

    def empty(self, layout: ArchiveLayout, instant: int) -> ArchiveState:
        """An archive without rows."""
        return ArchiveState(self.slot(instant), (SubIndices(layout),))

    # updating

    def update(self, state: ArchiveState, rows: pa.Table, slot: int | None = None) -> Update:
        """The state at the end of a later slot (by default the next), with the rows that came until then.

        `rows` have the archive's columns, `_ts` and `_exp`. Those that have ended are never written.
        """
        slot = state.slot + 1 if slot is None else slot
        if slot <= state.slot:
            raise StateError(f"update {slot} of an archive that has had update {state.slot}")
        traffic, now = Traffic(), slot * self.every
        rows = self._checked(rows, now)
        over = range(max(state.slot, slot - self.p) + 1, slot + 1)
        indices, opened = [], []
        for i, index in enumerate(state.indices):
            new = self._divided(index.layout, rows, slot) if i == 0 else {}
            touched = index.layout.deleting(over, self.p) | (
                set(index.layout.inserting(slot, self.p)) if i == 0 else set()
            )
            indices.append(replace(index, parts=self._written(index, touched, new, slot, traffic)))
            opened.append(frozenset(touched))
        kept = [index for i, index in enumerate(indices) if i == 0 or index.parts]
        self.shelf.forget(but=(part.path for index in kept for part in index.parts.values()))
        return Update(ArchiveState(slot, tuple(kept)), tuple(opened), traffic)

    def _checked(self, rows: pa.Table, now: int) -> pa.Table:
        rows = rows.select(self.shelf.schema.names).cast(self.shelf.schema)
        ts, exp = (rows.column(name).to_numpy() for name in (TS, EXP))
        # a lifetime is bounded by what a row could still live when it was inserted: unsigned, for ends without end
        too_long = exp.astype(np.uint64) - ts.astype(np.uint64) > np.uint64(self.lifetime)
        if too_long.any():
            raise UnsupportedError(
                "a row lives longer than its archive keeps rows",
                detail=f"from {ts[too_long][0]} to {exp[too_long][0]}, and the archive keeps {self.lifetime}",
                hint="archive a query whose windows are no longer than that",
            )
        if (ts > now).any():
            raise StateError(f"a row of {ts.max()} in an update of an archive as of {now}")
        alive = exp > now
        return rows if alive.all() else rows.filter(pa.array(alive))

    def _slots(self, instants: np.ndarray) -> np.ndarray:
        """The slots in which instants lie: (s - 1) * every < instant <= s * every."""
        return -(-instants // self.every)

    def _divided(self, layout: ArchiveLayout, rows: pa.Table, slot: int) -> dict[int, pa.Table]:
        """New rows by the sub-index that they go to."""
        numbers = layout.inserting(slot, self.p)
        return self._split(layout, rows, np.full(rows.num_rows, numbers[0], np.int64))

    def _split(self, layout: ArchiveLayout, rows: pa.Table, first: np.ndarray) -> dict[int, pa.Table]:
        """Rows by sub-index, given the first one of each row's part of insertion."""
        if not rows.num_rows:
            return {}
        parts = np.array(layout.expiration_parts(self.p))
        number = first + parts[self._slots(rows.column(EXP).to_numpy()) % self.p]
        order = np.argsort(number, kind="stable")
        rows = rows.take(pa.array(order))
        found, begins = np.unique(number[order], return_index=True)
        ends = [*begins[1:].tolist(), rows.num_rows]
        return {int(n): rows.slice(b, e - b) for n, b, e in zip(found, begins.tolist(), ends, strict=True)}

    def _written(
        self, index: SubIndices, touched: Iterable[int], new: Mapping[int, pa.Table], slot: int, traffic: Traffic
    ) -> dict[int, SubIndex]:
        parts = dict(index.parts)
        busy = [n for n in sorted(touched) if n in parts or n in new]
        costs = [Traffic() for _ in busy]

        def one(i: int) -> SubIndex | None:
            number = busy[i]
            return self._rewritten(index.layout, parts.get(number), new.get(number), slot, costs[i])

        for number, part in zip(busy, in_parallel(one, range(len(busy))), strict=True):
            parts.pop(number, None)
            if part is not None:
                parts[number] = part
        for cost in costs:
            traffic.add(cost)
        return parts

    def _rewritten(
        self, layout: ArchiveLayout, old: SubIndex | None, new: pa.Table | None, slot: int, traffic: Traffic
    ) -> SubIndex | None:
        """A sub-index as of the end of a slot; None when it has no rows left."""
        now = slot * self.every
        directory = self.shelf.directory(old, traffic) if old is not None else None
        ends = {s: n for s, n in directory.ends.items() if s > slot} if directory is not None else {}
        anew = layout.rebuild or directory is None
        if new is None and directory is not None and (not anew or ends == directory.ends):
            assert old is not None
            return old if anew else self._trimmed(old, directory, ends, slot, traffic)
        if new is not None:
            slots, counts = np.unique(self._slots(new.column(EXP).to_numpy()), return_counts=True)
            for s, n in zip(slots.tolist(), counts.tolist(), strict=True):
                ends[s] = ends.get(s, 0) + n
        if not ends:
            return None
        rows = self.shelf.schema.empty_table() if new is None else new
        if directory is not None and (anew or len(directory.files) >= CHAIN):
            kept = self.shelf.alive(self.shelf.blocks(directory, now, EVERYTHING, traffic), now)
            rows, directory = pa.concat_tables([kept, rows]), None
        before = None if directory is None else (directory, now)
        return self.shelf.write(self._name(slot), self.shelf.sorted(rows), ends, before, traffic)

    def _trimmed(
        self, old: SubIndex, directory: Directory, ends: Mapping[int, int], slot: int, traffic: Traffic
    ) -> SubIndex | None:
        """A sub-index that nothing came to, without blocks whose rows have all ended; the same if it has none."""
        if not ends:
            return None
        if len(directory.living(slot * self.every, self.shelf.keys)) == directory.lines.num_rows:
            return old
        empty = self.shelf.schema.empty_table()
        return self.shelf.write(self._name(slot), empty, ends, (directory, slot * self.every), traffic)

    # migrating

    def migrate(self, state: ArchiveState, layout: ArchiveLayout, *, gradually: bool = True) -> Update:
        """The same rows under another layout: beside the old index until it has run empty, or in its place at once."""
        if gradually:
            indices = (SubIndices(layout), *(index for index in state.indices if index.parts))
            return Update(replace(state, indices=indices), (), Traffic())
        traffic = Traffic()
        rows = self._read(state, EVERYTHING, traffic)
        slots = np.minimum(self._slots(rows.column(TS).to_numpy()), state.slot)
        g = np.array([layout.insertion_part(s, self.p) for s in range(self.p)])
        new = self._split(layout, rows, g[slots % self.p] * layout.expirations)
        parts = self._written(SubIndices(layout), new, new, state.slot, traffic)
        made = replace(state, indices=(SubIndices(layout, parts),))
        return Update(made, (frozenset(parts),), traffic)

    # reading

    def probe(
        self,
        state: ArchiveState,
        key: Any = OPEN,
        *,
        low: Any = OPEN,
        high: Any = OPEN,
        traffic: Traffic | None = None,
        check: Callable[[], None] | None = None,
    ) -> pa.Table:
        """The rows with a key (a value or a tuple), or with keys from `low` to `high`, both included.

        `check` is called before each sub-index is read, and may raise.
        """
        if key is not OPEN:
            low = high = key
        range_ = KeyRange.of(self.shelf.keys, self.shelf.schema, low, high)
        range_ = EVERYTHING if range_ == EVERYTHING else range_
        return self._read(state, range_, traffic or Traffic(), check).drop_columns([TS, EXP])

    def scan(self, state: ArchiveState, *, traffic: Traffic | None = None) -> pa.Table:
        """All rows."""
        return self._read(state, EVERYTHING, traffic or Traffic()).drop_columns([TS, EXP])

    def _read(
        self, state: ArchiveState, range_: KeyRange, traffic: Traffic, check: Callable[[], None] | None = None
    ) -> pa.Table:
        parts = [part for index in state.indices for _, part in sorted(index.parts.items())]
        costs = [Traffic() for _ in parts]

        def one(i: int) -> list[pa.RecordBatch]:
            if check is not None:
                check()
            directory = self.shelf.directory(parts[i], costs[i])
            return self.shelf.blocks(directory, self.as_of(state), range_, costs[i])

        apart = range_ is EVERYTHING or not self.shelf.place.local
        found = in_parallel(one, range(len(parts))) if apart else [one(i) for i in range(len(parts))]
        for cost in costs:
            traffic.add(cost)
        return self.shelf.alive([block for blocks in found for block in blocks], self.as_of(state), range_)


def in_parallel(make: Callable[[Given], Made], given: Sequence[Given]) -> list[Made]:
    """Do independent pieces of work that read, write and sort: most of it outside the interpreter's lock."""
    workers = min(len(given), 2 * (os.cpu_count() or 1))
    if workers < 2:
        return [make(g) for g in given]
    with ThreadPoolExecutor(workers, "windrow-archive") as pool:
        return list(pool.map(make, given))
