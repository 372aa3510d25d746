"""The synopsis store: shared answers without GROUP BY, for sums, counts and extremes.

A synopsis is one predicate; its entries are the sums (and best codes) of its rows between two edges of its own
queries' windows. One pass puts the rows into partials, one per (slice, cell), and partials are summed into entries.
The entries of a synopsis are a chain in the order of their edges. A query reads its synopsis with two cursors: one
passes the entries that come into its window and adds them to the query's total, one passes those that leave it and
takes them away:

    edges of the synopsis    12    15    27    30          W[18, 15] at 15: a + b
    entries                  a     b     c     d                    at 30: a + b + c + d - a

So an answer is the query's total, and an entry is touched twice per query, whatever the length of the window. Extremes
have no difference; they are the best over the entries between the cursors.

State: the entries younger than the synopsis's longest window (a handful per window), none of it per cell. So a query
that joins opens a synopsis, one that leaves closes it, and nothing else changes. Cost per advance: rows once per space,
then the synopses that rows reached, then the answers. Entries that nobody needs are dropped when they are as many as
the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import PointValues
from windrow.operators.aggregates.call import EXTREMES
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.state.run import Run, ints
from windrow.sharing.chains import append, listed, passed
from windrow.sharing.lanes import NeededLanes, Packing, code_names, lane_columns, lowered, packed, unpacked
from windrow.sharing.synopses import best_between
from windrow.sharing.windows import SlideWindow

_FEW = 1024
_NONE = -1


@dataclass(frozen=True)
class Entries:
    """Sums and best codes of synopses between their edges; of one synopsis in the order of edges."""

    synopsis: Int64s
    edge: Int64s
    lanes: Int64s  # [entries, lanes]
    packing: Packing
    codes: Mapping[tuple[str, bool], tuple[Int64s, Bools]]

    def table(self) -> pa.Table:
        """The entries for another process, or for a store."""
        columns: dict[str, np.ndarray] = {"account": self.synopsis, "edge": self.edge}
        columns |= lane_columns(self.lanes, self.packing)
        for key, (codes, some) in self.codes.items():
            columns |= dict(zip(code_names(*key), (codes, some), strict=True))
        return pa.table(columns)

    def repacked(self, packing: Packing) -> Int64s:
        """The lanes in another order, with zeros for those that are new."""
        return packed(self.lanes[:, 0], unpacked(self.lanes, self.packing), packing)

    @staticmethod
    def of(table: pa.Table, kept: NeededLanes) -> Entries:
        """The entries of a table that `table` made."""
        lanes, packing = kept.read(table)
        return Entries(ints(table, "account"), ints(table, "edge"), lanes, packing, kept.read_codes(table))


def together(parts: Sequence[Entries], packing: Packing) -> Entries:
    """Entries one after the other, with the lanes of `packing`."""
    synopsis, edge = (np.concatenate([getattr(p, n) for p in parts]) for n in ("synopsis", "edge"))
    lanes = np.concatenate([p.lanes if p.packing == packing else p.repacked(packing) for p in parts])
    codes = {
        key: (np.concatenate([p.codes[key][0] for p in parts]), np.concatenate([p.codes[key][1] for p in parts]))
        for key in parts[0].codes
    }
    return Entries(synopsis, edge, lanes, packing, codes)


@dataclass(frozen=True)
class DueAnswers:
    """Answers that are due: `count[i]` of `reader[i]`, at every `k * slide[i] + offset[i]` from k = `first[i]` on.

    Windows end `lag[i]` before the instant, in the time of rows.
    """

    reader: Int64s
    first: Int64s
    count: Int64s
    slide: Int64s
    offset: Int64s
    lag: Int64s

    @property
    def ts(self) -> Int64s:
        """The instants, reader by reader."""
        if len(self.count) and (self.count == self.count[0]).all():  # as of members in columns
            number = self.first[:, None] + np.arange(self.count[0])  # [readers, instants]
            return (number * self.slide[:, None] + self.offset[:, None]).reshape(-1)
        begins = np.repeat(np.cumsum(self.count) - self.count, self.count)
        number = np.repeat(self.first, self.count) + np.arange(len(begins)) - begins
        return number * np.repeat(self.slide, self.count) + np.repeat(self.offset, self.count)


class SynopsisStore:
    """The entries of all synopses, and those who read them."""

    def __init__(self) -> None:
        self.kept = NeededLanes()
        self._packing = Packing()
        self._bests: tuple[tuple[str, bool], ...] = ()
        self._size = 0  # entries, dead ones among them
        self._edge, self._next, self._before, self._slot = (np.zeros(0, np.int64) for _ in range(4))
        self._lanes = np.zeros((0, 1), np.int64)
        self._codes, self._some = np.zeros((0, 0), np.int64), np.zeros((0, 0), np.bool_)
        self._slots = 0  # that there are: open, closed and free
        self._head, self._tail = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of slots
        self._reach, self._number = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._free: list[int] = []
        self._closed: list[int] = []
        self._readers = Readers()
        self._live = 0  # entries when the dead were last dropped
        self._runs: list[Run] | None = []  # what holds all entries; None: to be made
        self._slot_of = np.zeros(0, np.int64)  # of every synopsis's number, -1 when it is not open

    def __len__(self) -> int:
        return self._size

    # -- synopses and readers ----------------------------------------------------------------------------------------

    def provide(self, calls: Sequence[Aggregation], types: Mapping[str, pa.DataType]) -> None:
        """Keep what these aggregates need from now on."""
        self.kept.provide(calls, types)
        self._fit()

    def open(self, synopsis: int, window: SlideWindow) -> int:
        """A reader of a synopsis, which is opened if it is new."""
        return int(self.open_all(np.array([synopsis]), window)[0])

    def open_all(self, synopses: Int64s, window: SlideWindow) -> Int64s:
        """A reader of each of some synopses, which are opened if they are new."""
        slot = self.slots(synopses)
        new = np.flatnonzero(slot == _NONE)
        if len(new):
            slot[new] = opened = self._new_slots(len(new))
            self._slot_of = _room(self._slot_of, int(synopses.max()) + 1, _NONE)
            self._reach[opened], self._number[opened], self._slot_of[synopses[new]] = 0, synopses[new], opened
        # what leaves a window is taken away at its next instant: it must be there until then
        self._reach[slot] = np.maximum(self._reach[slot], window.range + window.slide + window.lag)
        return self._readers.add(slot, window.range)

    def _new_slots(self, count: int) -> Int64s:
        free, more = self._free[:count], max(count - len(self._free), 0)
        self._free = self._free[count:]
        found = np.concatenate((np.array(free, np.int64), self._slots + np.arange(more)))
        self._slots += more
        if self._slots > len(self._head):
            self._head, self._tail, self._reach, self._number = (
                _room(a, self._slots, _NONE) for a in (self._head, self._tail, self._reach, self._number)
            )
        return found

    def leave(self, readers: Int64s) -> None:
        """Read no longer."""
        self._readers.remove(readers)

    def close(self, synopses: Int64s) -> None:
        """Forget synopses; nobody reads them."""
        slot = self.slots(synopses)
        slot, synopses = slot[slot != _NONE], synopses[slot != _NONE]
        self._closed += slot.tolist()
        self._reach[slot], self._number[slot], self._slot_of[synopses] = _NONE, _NONE, _NONE

    def slots(self, synopses: Int64s) -> Int64s:
        """The slots of synopses; -1 for those that are not open."""
        known = synopses < len(self._slot_of)
        return (
            np.where(known, self._slot_of[np.where(known, synopses, 0)], _NONE)
            if len(self._slot_of)
            else synopses * 0 - 1
        )

    # -- entries -----------------------------------------------------------------------------------------------------

    def add(self, entries: Entries) -> None:
        """Add entries; those of one synopsis and edge become one. Entries of synopses that are not open are dropped."""
        self._runs = None
        self._add(entries)

    def _add(self, entries: Entries) -> None:
        self._fit()
        slot = self.slots(entries.synopsis)
        lanes = entries.lanes if entries.packing == self._packing else entries.repacked(self._packing)
        codes, some = self._codes_of(entries)
        self._grow(self._size + len(slot))
        self._size = int(
            append(
                self._size, slot, entries.edge, lanes, codes, some, self._head, self._tail, self._slot, self._edge,
                self._next, self._before, self._lanes, self._codes, self._some,
            )
        )  # fmt: skip

    def _codes_of(self, entries: Entries) -> tuple[Int64s, Bools]:
        n = len(entries.synopsis)
        codes, some = np.zeros((n, len(self._bests)), np.int64), np.zeros((n, len(self._bests)), np.bool_)
        for k, key in enumerate(self._bests):
            if key in entries.codes:
                codes[:, k], some[:, k] = entries.codes[key]
        return codes, some

    def _fit(self) -> None:
        """Have the lanes and codes that are to be kept."""
        packing, bests = self.kept.packing, tuple(self.kept.bests)
        if packing != self._packing:
            old, self._packing = self._packing, packing
            self._lanes = packed(self._lanes[:, 0], unpacked(self._lanes, old), packing)
            totals = self._readers.totals
            self._readers.totals = packed(totals[:, 0], unpacked(totals, old), packing)
        if bests != self._bests:
            more = len(bests) - len(self._bests)
            self._bests = bests  # what is new comes last
            self._codes = np.concatenate((self._codes, np.zeros((len(self._codes), more), np.int64)), axis=1)
            self._some = np.concatenate((self._some, np.zeros((len(self._some), more), np.bool_)), axis=1)

    def _grow(self, size: int) -> None:
        if size > len(self._edge):
            self._edge, self._next, self._before, self._slot, self._lanes, self._codes, self._some = (
                _room(a, size, 0)
                for a in (self._edge, self._next, self._before, self._slot, self._lanes, self._codes, self._some)
            )

    def forget(self, last: int) -> None:
        """Drop entries that no window after `last` looks at, if they are many."""
        if self._size > 2 * self._live + _FEW:
            self._compact(last)

    def _compact(self, last: int) -> None:
        slot, edge = self._slot[: self._size], self._edge[: self._size]
        keep = (self._reach[slot] >= 0) & (edge > last - self._reach[slot])
        kept = np.flatnonzero(keep)
        place = np.append(np.where(keep, np.cumsum(keep) - 1, _NONE), _NONE)  # place[-1]: of nothing
        self._next, self._before = place[self._next[kept]], place[self._before[kept]]
        self._slot, self._edge = slot[kept], edge[kept]
        self._lanes, self._codes, self._some = self._lanes[kept], self._codes[kept], self._some[kept]
        self._head[:] = _NONE
        firsts = np.flatnonzero(self._before == _NONE)
        self._head[self._slot[firsts]] = firsts
        self._tail = place[self._tail]
        self._readers.moved(place)
        self._size = self._live = len(kept)
        self._free, self._closed = self._free + self._closed, []
        self._trim()

    def _trim(self) -> None:
        """Give up lanes that are zero everywhere, where there are many."""
        for column, (lanes, layout) in unpacked(self._lanes, self._packing).items():
            if layout.width > 6:
                sums = self.kept.sums[column]
                sums.store, sums.layout = lanes, layout
                sums.trim()
                sums.store = np.zeros((0, sums.layout.width), np.int64)
        self._fit()

    # -- state -------------------------------------------------------------------------------------------------------

    def entries(self) -> Entries:
        """All entries of synopses that are open."""
        live = np.flatnonzero(self._reach[self._slot[: self._size]] >= 0)
        codes = {key: (self._codes[live, k], self._some[live, k]) for k, key in enumerate(self._bests)}
        return Entries(self._number[self._slot[live]], self._edge[live], self._lanes[live], self._packing, codes)

    def runs(self) -> tuple[Run, ...]:
        """All entries as runs; what came with `add_all` is written once, and again only when much of it is dead."""
        if self._runs is None or sum(r.table.num_rows for r in self._runs) > 2 * self._size + _FEW:
            self._runs = [Run(self.entries().table())] if self._size else []
        return tuple(self._runs)

    def add_all(self, tables: Sequence[pa.Table]) -> None:
        """Add the entries of tables that like synopsis stores made; what is to be kept has been provided."""
        found = [Entries.of(t, self.kept) for t in tables if t.num_rows]
        for entries in found:
            self._add(entries)
        if found and self._runs is not None:
            self._runs.append(Run(together(found, self._packing).table()))

    def restore(self, runs: Sequence[Run]) -> None:
        """Have the entries again that `runs` named."""
        for run in runs:
            self._add(Entries.of(run.table, self.kept))
        self._runs = list(runs)

    # -- answers -----------------------------------------------------------------------------------------------------

    def edges(self, readers: Int64s) -> Iterator[Int64s]:
        """The edges of the entries that each of some readers may read."""
        order = np.argsort(self._slot[: self._size], kind="stable")
        slots, edges, mine = self._slot[order], self._edge[order], self._readers.slot[readers]
        ends = (np.searchsorted(slots, mine, side).tolist() for side in ("left", "right"))
        return (edges[low:high] for low, high in zip(*ends, strict=True))

    def range_of(self, reader: int) -> int:
        """The length of a reader's window."""
        return int(self._readers.range[reader])

    def answers(self, calls: Sequence[Aggregation], due: DueAnswers) -> tuple[dict[Aggregation, PointValues], int]:
        """The answers of calls, and of how many entries they are made. Instants of a reader come in order."""
        readers, found = self._readers, {}
        asked = (due.reader, due.first, due.count, due.slide, due.offset - due.lag, readers.slot, readers.range)
        chain = (self._head, self._edge, self._next)
        extremes = [c for c in calls if c.kind in EXTREMES and c.column is not None]
        if extremes:
            places, low, high = listed(*asked, *chain, readers.gone)
        for call in extremes:
            key = (str(call.column), call.kind == "min")
            k = self._bests.index(key)
            best, some = best_between(low, high, self._codes[places, k], self._some[places, k])
            found[call] = self.kept.bests[key].answer(best, some, call.type)
        lanes, read = passed(*asked, *chain, readers.came, readers.gone, readers.held, readers.totals, self._lanes)
        return lowered(calls, lanes, self._packing, self.kept) | found, int(read)

    def start_over(self, readers: Int64s) -> None:
        """Let readers that pass over an answer read their windows anew: what they have not passed may be dropped."""
        self._readers.came[readers] = self._readers.gone[readers] = _NONE
        self._readers.held[readers], self._readers.totals[readers] = 0, 0


class Readers:
    """Queries that read synopses: their cursors, and their totals. A cursor is the last entry it has passed."""

    def __init__(self) -> None:
        self.slot, self.range, self.came, self.gone, self.held = (np.zeros(0, np.int64) for _ in range(5))
        self.totals = np.zeros((0, 1), np.int64)
        self._free: list[int] = []
        self._count = 0

    def add(self, slot: Int64s, range_: int) -> Int64s:
        """A reader of each slot that has passed nothing yet."""
        free, more = self._free[: len(slot)], max(len(slot) - len(self._free), 0)
        self._free = self._free[len(slot) :]
        reader = np.concatenate((np.array(free, np.int64), self._count + np.arange(more)))
        self._count += more
        if self._count > len(self.slot):
            self.slot, self.range, self.came, self.gone, self.held, self.totals = (
                _room(a, self._count, 0) for a in (self.slot, self.range, self.came, self.gone, self.held, self.totals)
            )
        self.slot[reader], self.range[reader], self.held[reader] = slot, range_, 0
        self.came[reader] = self.gone[reader] = _NONE
        self.totals[reader] = 0
        return reader

    def remove(self, reader: Int64s) -> None:
        """Their numbers will be given to others."""
        self._free += reader.tolist()
        self.came[reader] = self.gone[reader] = _NONE

    def moved(self, place: Int64s) -> None:
        """Entries have other places."""
        self.came[: self._count] = place[self.came[: self._count]]
        self.gone[: self._count] = place[self.gone[: self._count]]


def _room(array: np.ndarray, size: int, fill: int) -> np.ndarray:
    """The array with room for `size`, and for as many again that come later."""
    if size <= len(array):
        return array
    grown = np.full((2 * size + 16, *array.shape[1:]), fill, array.dtype)
    grown[: len(array)] = array
    return grown
