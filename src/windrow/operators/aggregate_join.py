"""Aggregation over a join, computed from aggregation sets (Tran and Lee, figure 4).

Every input is kept as an aggregation set (`aggregation_sets.py`), grouped (an early aggregation) or row by row (the
window itself). A plan is a string of bits, one per input: "00" aggregates late, "01" early on the second input, "11" on
both; for m inputs there are 2**m.

A change of an entry of input i at instant t meets the entries of the other inputs as they are at t: inputs before i
with their changes of that instant, inputs after i without. So the changes of the product telescope:

    d(X * Y * Z) = dX * Y_old * Z_old  +  X_new * dY * Z_old  +  X_new * Y_new * dZ

Each meeting changes the sums of one output group: the count by the product of counts, the sum of an attribute of input
j by the sum in j's entry times the counts of the others (the coalescing property). All are integers, so the answer
equals that of the aggregate over the join exactly. MIN, MAX and the other functions that are no sums work on
multiplicities of values, which are products of counts as well: nothing is ever scanned again. (Where repetitions do not
count, MIN and MAX come here as one value for each group: `early_extremes.py`.)

Tables that change are sets with epochs (`table_versions.py`): no change of theirs is an event, but it decides what the
rows that come later meet.

The late aggregation on top stays (the paper keeps it too): it is the same output state for all plans, which is why a
running operator can change its plan: only the grain of the sets changes.

Invariant: the output is Aggregate(Join(inputs)) at every instant. Cost per advance: the changes times the entries they
meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.sums import SumLanes
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.aggregation_plan import AggregationPlan
from windrow.operators.aggregation_sets import AggregationSet, Versions, combined
from windrow.operators.deltas import Deltas, joined, to_elements
from windrow.operators.elements import BEGINNING, Elements
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.join_steps import JoinStep
from windrow.operators.keytable import KeyTable
from windrow.operators.linear import satisfied
from windrow.operators.protocol import State, Unclocked
from windrow.operators.state.run import Run
from windrow.operators.table_versions import EPOCH, SINCE, UNTIL

PART_ROWS = 1 << 20
"""Meetings are formed in parts of about this many."""


class AggregateDeltas(AggregationPlan, Unclocked):
    """The changes of GROUP BY `keys` with `aggregations` over the join of `parts`; `period`: of evaluation.

    `plan`: bits that say which inputs aggregate early; without it early wherever it can, until told otherwise.
    """

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """The changes of this advance, as elements."""
        return self._changed(inputs, frontier)

    def _changed(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        slots, groups, deltas = self._met(inputs, frontier)
        if deltas is None:
            return Elements.empty(self._changed_types)
        found = to_elements(slots, groups, deltas, self._layouts())
        return found.with_columns({c: found.columns[c] for c in self._changed_types})

    def _met(self, inputs: Sequence[Elements], frontier: int) -> tuple[Int64s, dict[str, pa.Array], Deltas | None]:
        """Take in an advance: the group of each change as a number, the groups by that number, the changes."""
        self._change_tables(inputs, frontier)
        versions = []
        for i, given in enumerate(inputs):
            new = self._join.eligible(i, given)
            if self._versions and i not in self._versions:
                new = new.with_columns({**new.columns, EPOCH: pa.array(np.full(len(new), self._epoch))})
            self._measure(i, new, frontier)
            if i in self._versions:
                new = Elements.empty(self._sides[i].types)
            versions.append(self.sets[i].update(new, frontier))
        deltas = [d for i in range(len(self.sets)) if i not in self._versions for d in self._changes(i, versions)]
        slots, groups = self._numbered(deltas)
        for known, version in zip(self.sets, versions, strict=True):
            known.settle(version)
        self._forget()
        self._last = frontier
        return slots, groups, joined(deltas)

    # tables

    def _change_tables(self, inputs: Sequence[Elements], frontier: int) -> None:
        """Take in what happens to tables, before any row that comes now."""
        changed = [i for i in self._versions if len(inputs[i])]
        if not changed:
            return
        if self._last != BEGINNING:
            self._epoch += 1
        oldest = min((self._oldest(i) for i in range(len(self.parts)) if i not in self._versions), default=self._epoch)
        for i in changed:
            self._versions[i].change(self._join.eligible(i, inputs[i]), self._epoch)
            self._versions[i].forget(oldest)
            self._rebuild(i, frontier)

    def _oldest(self, i: int) -> int:
        """The earliest epoch of which rows of an input are left."""
        live = np.flatnonzero(self.sets[i].count[: len(self.sets[i].table)])
        return int(self._dates(i, EPOCH)[live].min()) if len(live) else self._epoch

    def _rebuild(self, i: int, frontier: int) -> None:
        """The set of a table, from its rows."""
        self.sets[i] = AggregationSet(self._sides[i], self.plan[i] == "1", self._coders[i])
        self.sets[i].settle(self.sets[i].update(self._versions[i].elements(), frontier))

    def _dates(self, i: int, column: str) -> Int64s:
        return np.asarray(self.sets[i].table.column(column).to_numpy())

    def _together(self, j: int, found: Int64s, entries: Mapping[int, Int64s], left: Int64s) -> np.ndarray:
        """Whether table rows were there when stream rows came: entries of j against all that are bound."""
        keep = np.ones(len(found), np.bool_)
        for s, bound in entries.items():
            if (s in self._versions) == (j in self._versions):
                continue
            table, rows, stream, came = (
                (j, found, s, bound[left]) if j in self._versions else (s, bound[left], j, found)
            )
            epoch = self._dates(stream, EPOCH)[came]
            keep &= (self._dates(table, SINCE)[rows] <= epoch) & (epoch < self._dates(table, UNTIL)[rows])
        return keep

    # AS join

    def _changes(self, i: int, versions: Sequence[Versions]) -> Iterator[Deltas]:
        """The changes of output groups that the events of input i make."""
        events = versions[i].events
        some = events.count != 0
        for m in events.lanes.values():
            some |= m.any(axis=1)
        event = np.flatnonzero(some)
        met = 0
        if len(event):
            for deltas in self._extend(i, 0, versions, event, {i: events.entry[event]}, {}, {}):
                met += len(deltas.ts)
                yield deltas
        self._matches[i] = 0.5 * self._matches[i] + (len(event), met)

    def _extend(
        self,
        i: int,
        k: int,
        versions: Sequence[Versions],
        event: Int64s,
        entries: dict[int, Int64s],
        counts: dict[int, Int64s],
        seen: dict[int, Int64s],
    ) -> Iterator[Deltas]:
        path = self._join.paths[i]
        if k == len(path):
            yield self._delta(i, versions, event, entries, counts, seen)
            return
        step = path[k]
        j = step.part
        needles = combined([self._codes(c, entries) for c in step.bound], len(event))
        for left, found in self.sets[j].index(step.keys).probe(needles, PART_ROWS):
            at = versions[i].events.ts[event[left]]
            version = versions[j].at(found, at, j < i)
            count = versions[j].counts(found, version)
            keep = count != 0
            if len(step.keys) > 1:
                for own, bound in zip(step.keys, step.bound, strict=True):
                    mine = self.sets[j].codes[own][found]
                    keep &= mine == self._codes(bound, {s: e[left] for s, e in entries.items()})
            if self._epoch:
                keep &= self._together(j, found, entries, left)
            if not keep.all():
                left, found, version, count = left[keep], found[keep], version[keep], count[keep]
            if not len(left):
                continue
            met = {s: e[left] for s, e in entries.items()} | {j: found}
            if step.residual:
                keep = self._holds(step, met, len(left))
                left, version, count = left[keep], version[keep], count[keep]
                met = {s: e[keep] for s, e in met.items()}
            if len(left):
                yield from self._extend(
                    i,
                    k + 1,
                    versions,
                    event[left],
                    met,
                    {s: c[left] for s, c in counts.items()} | {j: count},
                    {s: v[left] for s, v in seen.items()} | {j: version},
                )

    def _codes(self, column: str, entries: Mapping[int, Int64s]) -> Int64s:
        side = self._owner[column]
        return self.sets[side].codes[column][entries[side]]

    def _column(self, column: str, entries: Mapping[int, Int64s]) -> pa.Array:
        side = self._owner[column]
        return self.sets[side].table.column(column).take(pa.array(entries[side]))

    def _holds(self, step: JoinStep, entries: Mapping[int, Int64s], length: int) -> np.ndarray:
        reads = {c: self._column(c, entries) for f in step.residual for c in f.reads}
        return satisfied(reads, length, step.residual)

    def _delta(
        self,
        i: int,
        versions: Sequence[Versions],
        event: Int64s,
        entries: dict[int, Int64s],
        counts: dict[int, Int64s],
        seen: dict[int, Int64s],
    ) -> Deltas:
        events = versions[i].events
        own = events.count[event]
        others = np.ones(len(event), np.int64)
        for c in counts.values():
            others = others * c
        lanes = {c: m[event] * others[:, None] for c, m in events.lanes.items()}
        for j in counts:
            if self._sides[j].sums:
                rest = own.copy()
                for other, c in counts.items():
                    if other != j:
                        rest *= c
                for column in self._sides[j].sums:
                    lanes[column] = versions[j].lanes_of(column, entries[j], seen[j]) * rest[:, None]
        groups = [self.sets[s].group[entries[s]] for s in self._grouping]
        values = {c: self._column(c, entries) for c in self._values}
        return Deltas(events.ts[event], own * others, lanes, groups, values)

    # the output

    def _numbered(self, deltas: Sequence[Deltas]) -> tuple[Int64s, dict[str, pa.Array]]:
        """The output group of each change as a number, and the groups' columns by that number."""
        length = sum(len(d.ts) for d in deltas)
        if not self.keys or not length:
            return np.zeros(length, np.int64), {}
        parts = [np.concatenate([d.groups[k] for d in deltas]) for k in range(len(self._grouping))]
        sizes = [len(self.sets[s].groups) for s in self._grouping]
        code = parts[0]
        for part, size in zip(parts[1:], sizes[1:], strict=True):
            code = code * size + part
        bound = int(np.prod([float(s) for s in sizes]))
        if bound <= 4 * length + 1024:
            there = np.zeros(bound, np.bool_)
            there[code] = True
            distinct = np.flatnonzero(there)
            number = np.cumsum(there) - 1
            which = number[code]
        else:
            distinct, which = np.unique(code, return_inverse=True)
        columns: dict[str, pa.Array] = {}
        for s, size in reversed(list(zip(self._grouping, sizes, strict=True))):
            columns |= self.sets[s].groups.rows(distinct % size)
            distinct = distinct // size
        return which, {k: columns[k] for k in self.keys}

    def _layouts(self) -> dict[str, SumLanes]:
        return {c: layout for s in self.sets for c, layout in s.layouts.items()}

    def _forget(self) -> None:
        """Drop values of join columns that no entry has any more."""
        live = max(len(s.table) for s in self.sets)
        for name, table in self._tables.items():
            if len(table) > 8192 and len(table) > 4 * live * len(self.sets):
                self._tables[name] = KeyTable(table.types)
                for s, side in zip(self.sets, self._sides, strict=True):
                    s.classes = self._coder(side)
                for s in self.sets:
                    s.recode()

    # state

    def state(self) -> State:
        """The plan, and each input's entries and ends."""
        streams = {i: s for i, s in enumerate(self.sets) if i not in self._versions}
        slots: dict[str, tuple[Run, ...]] = {f"set {i}": s.runs() for i, s in streams.items()}
        slots |= {f"table {i}": (v.run(),) for i, v in self._versions.items()}
        return {**slots, "plan": (Run(pa.table({"plan": [self.plan], "epoch": [self._epoch]})),)}

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state."""
        self.plan = state["plan"][0].table.column("plan")[0].as_py()
        self.sets = [
            AggregationSet(s, bit == "1", c) for s, bit, c in zip(self._sides, self.plan, self._coders, strict=True)
        ]
        self._last, self._epoch = frontier, state["plan"][0].table.column("epoch")[0].as_py()
        for i, s in enumerate(self.sets):
            if i not in self._versions:
                s.restore(state[f"set {i}"])
        for i, versions in self._versions.items():
            versions.restore(state[f"table {i}"][0])
            self._rebuild(i, frontier)


def groups_of(
    keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType], period: int | None
) -> ContinuousAggregate | GridAggregate:
    """The groups that changes belong to; `period`: answers at its multiples only."""
    if period is None:
        return ContinuousAggregate(keys, aggregations, types, strict=True)
    return GridAggregate(keys, aggregations, types, period, strict=True)
