"""Aggregation sets: a window summed up by what a join over it can tell apart (Tran and Lee, definitions 3 and 4).

An entry stands for the rows of one input that agree on the input's entry columns: its join attributes, its grouping
attributes of the query, the columns that residual predicates read, and the arguments of functions that are no sums
(rule 1). It holds how many rows there are and the lanes of every summed column (rule 2; `aggregates/sums`). Ungrouped,
every row is an entry of its own: that is the plain window.

AS update: an arriving row adds to its entry at `ts` and takes itself away again at `exp`; ends wait, summed per (entry,
end), so rows that share both cost one. Events of an advance, sorted by (entry, time), are at once the history of every
entry, so the set can be looked at as of any instant of the advance (`Versions`).

    entry 7      base 3 --+1--> 4 --------- -1--> 3         count as of t: the last event at or before t
                          t=5               t=9

Law: entries are a bag, whatever their grain. So a running set can change its grain (`regrouped`) and no answer changes.
Cost: a lookup per new row, a sort of the events; state is one entry per group plus the pending ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.aggregates.sums import SumLanes, Sums
from windrow.operators.aggregates.vectors import grown, opens
from windrow.operators.aggregation_entries import EntryEnds, EntryIndex, Events, SingleRows, summed
from windrow.operators.elements import INF, Elements, Int64s, one
from windrow.operators.keys import mix
from windrow.operators.keytable import KeyTable
from windrow.operators.state.run import Run, ints

VALUE = "value"
"""The one column of a class's table of values."""

_SEED = np.uint64(0x8445D61A4E774912)


@dataclass(frozen=True)
class JoinSide:
    """One input of an aggregation join, by what its columns are for."""

    types: Mapping[str, pa.DataType]
    group: tuple[str, ...]  # grouping attributes of the query
    join: tuple[str, ...]  # columns of equalities
    other: tuple[str, ...]  # read by residual predicates, or arguments of functions that are no sums
    sums: Mapping[str, tuple[bool, bool]]  # summed columns: whether sums, whether squares are wanted
    strict: bool = False

    @property
    def entry(self) -> tuple[str, ...]:
        """The columns on which the rows of an entry agree."""
        return tuple(dict.fromkeys((*self.group, *self.join, *self.other)))


def combined(codes: Sequence[Int64s], length: int) -> Int64s:
    """One number per row from the codes of its columns; for one column the code itself."""
    if not codes:
        return np.zeros(length, np.int64)
    result = codes[0].view(np.uint64)
    for more in codes[1:]:
        result = mix((result ^ (result >> np.uint64(29))) * _SEED + more.view(np.uint64))
    return result.view(np.int64)


class AggregationSet:
    """The entries of one input; `grouped`: rows that agree share one (an early aggregation), else each has its own."""

    def __init__(self, side: JoinSide, grouped: bool, classes: Mapping[str, KeyTable]) -> None:
        self.side, self.grouped, self.classes = side, grouped, classes
        # negatives must find the row they end: without grouping, the summed columns tell rows apart as well
        whole = side.strict and not grouped
        names = tuple(dict.fromkeys((*side.entry, *(side.sums if whole else ()))))
        types = {c: side.types[c] for c in names}
        self.table: KeyTable | SingleRows = KeyTable(types) if grouped or side.strict else SingleRows(types)
        self.groups = KeyTable({c: side.types[c] for c in side.group})
        self.sums = {c: Sums(side.types[c], *wanted) for c, wanted in side.sums.items()}
        self.count = np.zeros(0, np.int64)
        self.group = np.zeros(0, np.int64)  # slot in `groups`
        self.codes = {c: np.zeros(0, np.int64) for c in side.join}  # equal codes, equal values, in all inputs
        self.ends = EntryEnds()
        self.indexes: dict[tuple[str, ...], EntryIndex] = {}

    def __len__(self) -> int:
        return int(np.count_nonzero(self.count[: len(self.table)]))

    @property
    def layouts(self) -> dict[str, SumLanes]:
        """The lanes of each summed column."""
        return {c: s.layout for c, s in self.sums.items()}

    # AS update

    def update(self, new: Elements, frontier: int) -> Versions:
        """Take in an advance; the entries' counts and lanes stay as they were until `settle`."""
        entry = self._enter({c: new.columns[c] for c in self.table.types}, len(new))
        count = new.sign.astype(np.int64)
        lanes = {c: self._lifted(s, new.columns[c]) * count[:, None] for c, s in self.sums.items()}
        layouts = self.layouts
        later = np.flatnonzero((new.exp > frontier) & (new.exp != INF))
        ended = np.flatnonzero(new.exp <= frontier)
        due = self.ends.take(frontier, layouts)
        if len(later):
            waiting = summed(entry[later], new.exp[later], -count[later], {c: -m[later] for c, m in lanes.items()})
            self.ends.put(waiting, layouts)
        parts = [(entry, new.ts, count, lanes)]
        if len(ended):
            parts.append((entry[ended], new.exp[ended], -count[ended], {c: -m[ended] for c, m in lanes.items()}))
        if due is not None:
            parts.append((due.entry, due.ts, due.count, due.lanes))
        if len(parts) == 1:
            events = summed(*parts[0])
        else:
            events = summed(
                np.concatenate([p[0] for p in parts]),
                np.concatenate([p[1] for p in parts]),
                np.concatenate([p[2] for p in parts]),
                {c: np.concatenate([p[3][c] for p in parts]) for c in lanes},
            )
        return Versions(self, events)

    @staticmethod
    def _lifted(sums: Sums, column: pa.Array) -> Int64s:
        return sums.lift(column) if len(column) else np.zeros((0, sums.layout.width), np.int64)

    def _enter(self, columns: Mapping[str, pa.Array], length: int) -> Int64s:
        """The entry of each row; new entries are empty."""
        before = len(self.table)
        entry = self.table.slots(columns, length)
        after = len(self.table)
        if after > len(self.count):
            room = max(after, 2 * len(self.count))
            self.count = grown(self.count, room)
            self.group = grown(self.group, room)
            self.codes = {c: grown(h, room) for c, h in self.codes.items()}
            for s in self.sums.values():
                s.grow(room)
        if after > before:
            self._describe(np.arange(before, after))
        return entry

    def _describe(self, fresh: Int64s) -> None:
        """Group and hashes of new entries, and their places in the indexes."""
        rows = self.table.rows(fresh)
        self.group[fresh] = self.groups.slots({c: rows[c] for c in self.side.group}, len(fresh))
        for c, known in self.codes.items():
            known[fresh] = self.classes[c].slots({VALUE: rows[c]}, len(fresh))
        for keys, index in self.indexes.items():
            index.insert(self.key(keys, fresh), fresh)

    def key(self, columns: Sequence[str], entries: Int64s) -> Int64s:
        """The hash of the entries' join columns."""
        return combined([self.codes[c][entries] for c in columns], len(entries))

    def index(self, keys: tuple[str, ...]) -> EntryIndex:
        """The index by some join columns, made when first asked for."""
        if keys not in self.indexes:
            self.indexes[keys] = EntryIndex()
            everyone = np.arange(len(self.table))
            self.indexes[keys].insert(self.key(keys, everyone), everyone)
        return self.indexes[keys]

    def settle(self, versions: Versions) -> None:
        """Make what an advance did the new state, and forget what is empty once it is the greater part."""
        last = versions.last
        touched = versions.events.entry[last]
        self.count[touched] = versions.count[last]
        for c, s in self.sums.items():
            s.store[touched] = s.canonical(versions.lanes[c][last])
        size = len(self.table)
        if size > 1024 and np.count_nonzero(self.count[:size]) < size // 2:
            self._compact()

    def _compact(self) -> None:
        keep = self.count[: len(self.table)] != 0
        waiting = self.ends.everything(self.layouts)
        keep[waiting.entry] = True  # a strict input may be empty for now
        if keep.sum() > len(keep) // 2:
            return
        kept = self.table.compact(keep)
        number = np.full(len(keep), -1, np.int64)
        number[kept] = np.arange(len(kept))
        self.ends.renumber(number)
        self.count = self.count[kept]
        self.codes = {c: h[kept] for c, h in self.codes.items()}
        for s in self.sums.values():
            s.store = s.store[kept]
        self.groups = KeyTable(self.groups.types)
        rows = self.table.rows(np.arange(len(kept)))
        self.group = self.groups.slots({c: rows[c] for c in self.side.group}, len(kept))
        self._reindex()

    def _reindex(self) -> None:
        names, self.indexes = list(self.indexes), {}
        for keys in names:
            self.index(keys)

    def recode(self) -> None:
        """The tables of the classes are new: look all values up again."""
        rows = self.table.rows(np.arange(len(self.table)))
        for c, known in self.codes.items():
            known[: len(self.table)] = self.classes[c].slots({VALUE: rows[c]}, len(self.table))
        self._reindex()

    # changing the grain

    def regrouped(self, grouped: bool) -> AggregationSet:
        """The same bag with another grain; a strict set cannot be taken apart again and stays."""
        if grouped == self.grouped or (self.side.strict and not grouped):
            return self
        other = AggregationSet(self.side, grouped, self.classes)
        for c, s in self.sums.items():
            other.sums[c].widen(s.layout)
        live = np.arange(len(self.table))
        count = self.count[live]
        lanes = {c: s.store[live] for c, s in self.sums.items()}
        waiting = self.ends.everything(self.layouts)
        if grouped:
            entry = other._enter(self._entry_rows(live), len(live))
            other._add(entry, count, lanes)
            other.ends.put(summed(entry[waiting.entry], waiting.ts, waiting.count, waiting.lanes), other.layouts)
            return other
        # every waiting end becomes an entry that holds just what will leave; the rest never ends
        cells = other._enter(self._entry_rows(waiting.entry), len(waiting))
        other._add(cells, -waiting.count, {c: -m for c, m in waiting.lanes.items()})
        other.ends.put(Events(cells, waiting.ts, waiting.count, waiting.lanes), other.layouts)
        np.add.at(count, waiting.entry, waiting.count)
        for c, m in lanes.items():
            np.add.at(m, waiting.entry, waiting.lanes[c])
        rest = np.flatnonzero(count)
        other._add(other._enter(self._entry_rows(rest), len(rest)), count[rest], {c: m[rest] for c, m in lanes.items()})
        return other

    def _entry_rows(self, entries: Int64s) -> dict[str, pa.Array]:
        rows = self.table.rows(entries)
        return {c: rows[c] for c in self.side.entry}

    def _add(self, entry: Int64s, count: Int64s, lanes: Mapping[str, Int64s]) -> None:
        np.add.at(self.count, entry, count)
        for c, s in self.sums.items():
            np.add.at(s.store, entry, lanes[c])
            s.store[entry] = s.canonical(s.store[entry])

    # state

    def runs(self) -> tuple[Run, Run]:
        """Entries and ends."""
        live = np.arange(len(self.table))
        rows = self.table.rows(live)
        entries = {"_count": pa.array(self.count[live]), **{f"key|{c}": a for c, a in rows.items()}}
        waiting = self.ends.everything(self.layouts)
        ends = {"_entry": pa.array(waiting.entry), "_exp": pa.array(waiting.ts), "_count": pa.array(waiting.count)}
        for c, s in self.sums.items():
            for k, lane in enumerate(s.layout.names()):
                entries[f"{lane}|{c}"] = pa.array(s.store[live, k])
                ends[f"{lane}|{c}"] = pa.array(waiting.lanes[c][:, k])
        return Run(pa.table(entries)), Run(pa.table(ends))

    def restore(self, runs: Sequence[Run]) -> None:
        """Go on from what `runs` returned, for an empty set of the same side and grain; an entry may be in parts."""
        entries, ends = (r.table for r in runs)
        for c, s in self.sums.items():
            s.widen(SumLanes.of_names([x.split("|", 1)[0] for x in entries.column_names if x.endswith(f"|{c}")]))
        entry = self._enter({c: one(entries.column(f"key|{c}")) for c in self.table.types}, entries.num_rows)
        self._add(entry, ints(entries, "_count"), self._lanes(entries))
        of = entry[ints(ends, "_entry")]
        self.ends.put(summed(of, ints(ends, "_exp"), ints(ends, "_count"), self._lanes(ends)), self.layouts)

    def _lanes(self, table: pa.Table) -> dict[str, Int64s]:
        """The lanes of each summed column, as `runs` wrote them."""
        found = {}
        for c, s in self.sums.items():
            lanes = [ints(table, f"{lane}|{c}") for lane in s.layout.names()]
            found[c] = np.stack(lanes, axis=1) if lanes else np.zeros((table.num_rows, 0), np.int64)
        return found


class Versions:
    """A set during one advance: its events, and what each entry holds after each of them."""

    def __init__(self, of: AggregationSet, events: Events) -> None:
        self.set, self.events = of, events
        n = len(events)
        first = np.flatnonzero(opens(events.entry))
        self.last = np.append(first[1:], n) - 1 if n else first
        sizes = np.diff(np.append(first, n))
        self.count = _running(events.count, first, sizes, of.count[events.entry[first]])
        self.lanes = {
            c: _running(m, first, sizes, of.sums[c].store[events.entry[first]]) for c, m in events.lanes.items()
        }
        self._begin = np.zeros(len(of.table) + 1, np.int64)
        self._stop = np.zeros(len(of.table) + 1, np.int64)
        self._begin[events.entry[first]] = first
        self._stop[events.entry[first]] = first + sizes

    def at(self, entries: Int64s, ts: Int64s, inclusive: bool) -> Int64s:
        """The event after which each entry is looked at, as of `ts` or just before; -1 before all."""
        return _latest(self._begin, self._stop, self.events.ts, entries, ts, inclusive)

    def counts(self, entries: Int64s, version: Int64s) -> Int64s:
        """Rows of the entries in these versions."""
        return np.where(version < 0, self.set.count[entries], self.count[version] if len(self.count) else 0)

    def lanes_of(self, column: str, entries: Int64s, version: Int64s) -> Int64s:
        """Lanes of the entries in these versions."""
        lanes = self.set.sums[column].store[entries]
        later = np.flatnonzero(version >= 0)
        if len(later):
            lanes[later] = self.lanes[column][version[later]]
        return lanes


def _running(change: Int64s, first: Int64s, sizes: Int64s, base: Int64s) -> Int64s:
    """Running sums within each entry, from what it held before."""
    total = np.cumsum(change, axis=0)
    before = total[first] - change[first]
    return total + np.repeat(base - before, sizes, axis=0)


@njit(cache=True)
def _latest(begin, stop, times, entries, ts, inclusive):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    out = np.empty(len(entries), np.int64)
    for i in range(len(entries)):
        left = first = begin[entries[i]]
        right = stop[entries[i]]
        t = ts[i]
        while left < right:
            middle = (left + right) // 2
            if times[middle] < t or (inclusive and times[middle] == t):
                left = middle + 1
            else:
                right = middle
        out[i] = left - 1 if left > first else -1
    return out
