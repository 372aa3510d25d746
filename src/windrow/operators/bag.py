"""Bag operators by counting: DISTINCT over a strict input, EXCEPT ALL, INTERSECT ALL.

For each distinct row keep how many copies each input has now. The output has f(counts) copies, so it changes exactly
when a count does:

    distinct       min(1, a)          difference     max(0, a - b)          intersection   min(a, b)

The changes of an advance (arrivals, negatives, and the ends that came due) are sorted by row and instant, summed, and
accumulated per row: no loop over rows. This is the counting version of duplicate elimination and of negation in the
thesis (2.2.2, 3.2.2); its output is strict.

State: counts per live row, and the pending ends. Cost per advance: its changes, sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.elements import INF, Elements, Int64s, one
from windrow.operators.keytable import KeyTable
from windrow.operators.protocol import State, Unclocked
from windrow.operators.state.pending import Calendar, Pending
from windrow.operators.state.run import Run, ints

Rule = Callable[[Int64s, Int64s], Int64s]

RULES: Mapping[str, Rule] = {
    "distinct": lambda a, b: np.minimum(a, 1),
    "difference": lambda a, b: np.maximum(a - b, 0),
    "intersection": lambda a, b: np.minimum(a, b),
}


class BagOperator(Unclocked):
    """Keep `rule(copies in the first input, copies in the second)` copies of every row."""

    def __init__(self, rule: str, types: Mapping[str, pa.DataType], pending: Callable[[], Pending] = Calendar) -> None:
        self.rule, self.types = RULES[rule], dict(types)
        self._rows = KeyTable(types)
        self._counts = np.zeros((0, 3), np.int64)  # by slot: copies in a, copies in b, pending ends
        self._pending = pending()

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        slot, time, side, delta = self._changes(inputs, frontier)
        if not len(slot):
            return Elements.empty(self.types)
        order = np.lexsort((time, slot))
        slot, time, side, delta = slot[order], time[order], side[order], delta[order]
        begins = np.flatnonzero(np.concatenate([[True], (np.diff(slot) != 0) | (np.diff(time) != 0)]))
        a = self._running(slot, np.where(side == 0, delta, 0), begins, 0)
        b = self._running(slot, np.where(side == 1, delta, 0), begins, 1)
        slot, time = slot[begins], time[begins]
        last = np.concatenate([np.diff(slot) != 0, [True]])
        copies = self.rule(a, b)
        before = np.concatenate([[0], copies[:-1]])
        first = np.concatenate([[True], last[:-1]])
        before[first] = self.rule(*self._counts[slot[first], :2].T)
        self._counts[slot[last], 0], self._counts[slot[last], 1] = a[last], b[last]
        out = self._emit(slot, time, copies - before)
        self._forget()
        return out

    def _changes(self, inputs: Sequence[Elements], frontier: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """(slot, time, input, change of count) of all that happens up to the frontier."""
        slots, times, sides, deltas = [], [], [], []
        for side, new in enumerate(inputs):
            slot = self._rows.slots(new.columns, len(new))
            self._grow()
            ends_now = new.exp <= frontier
            later = np.flatnonzero(~ends_now & (new.exp != INF))
            ending = np.flatnonzero(ends_now)
            slots += [slot, slot[ending]]
            times += [new.ts, new.exp[ending]]
            deltas += [new.sign.astype(np.int64), -new.sign[ending].astype(np.int64)]
            sides.append(np.full(len(new) + len(ending), side))
            np.add.at(self._counts[:, 2], slot[later], 1)
            held = {"slot": pa.array(slot[later]), "side": pa.array(np.full(len(later), side, np.int8))}
            self._pending.add(Elements(new.ts[later], new.exp[later], new.sign[later], held))
        due = self._pending.due(frontier)
        # what was added a moment ago is later than the frontier, so `due` is old
        if due is not None:
            slot = np.asarray(due.column("slot"))
            slots.append(slot)
            times.append(due.exp)
            deltas.append(-due.sign.astype(np.int64))
            sides.append(np.asarray(due.column("side")).astype(np.int64))
            np.subtract.at(self._counts[:, 2], slot, 1)
        return np.concatenate(slots), np.concatenate(times), np.concatenate(sides), np.concatenate(deltas)

    def _running(self, slot: Int64s, delta: Int64s, begins: Int64s, side: int) -> Int64s:
        """Count after each change of each row: per-row cumulative sum on top of the stored count."""
        change = np.add.reduceat(delta, begins)
        total = np.cumsum(change)
        slots = slot[begins]
        first = np.flatnonzero(np.concatenate([[True], np.diff(slots) != 0]))
        offset = self._counts[slots[first], side] - (total[first] - change[first])
        return total + np.repeat(offset, np.diff(np.append(first, len(slots))))

    def _emit(self, slot: Int64s, time: Int64s, delta: Int64s) -> Elements:
        changed = np.flatnonzero(delta)
        copies = np.repeat(changed, np.abs(delta[changed]))
        sign = np.sign(delta[copies]).astype(np.int8)
        return Elements(time[copies], np.full(len(copies), INF), sign, self._rows.rows(slot[copies]))

    def _grow(self) -> None:
        if len(self._rows) > len(self._counts):
            grown = np.zeros((2 * len(self._rows), 3), np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown

    def _forget(self) -> None:
        """Drop rows without copies or pending ends, once they are the majority."""
        live = np.logical_or.reduce(self._counts[: len(self._rows)] != 0, axis=1)
        if len(live) < 1024 or 2 * np.count_nonzero(live) > len(live):
            return
        renumber = np.cumsum(live) - 1
        kept = self._rows.compact(live)
        self._counts = self._counts[kept].copy()
        waiting = self._pending.parts()
        self._pending.restore(())
        for part in waiting:
            moved = renumber[np.asarray(part.columns["slot"])]
            self._pending.add(part.with_columns({**part.columns, "slot": pa.array(moved)}))

    def state(self) -> State:
        counts = self._counts[: len(self._rows)].copy()  # a run must not change when the counts do
        named = {f"_count{i}": pa.array(counts[:, i]) for i in range(3)}
        return {"rows": (Run(pa.table({**named, **self._rows.arrays()})),), "pending": self._pending.runs()}

    def restore(self, state: State, frontier: int) -> None:
        (run,) = state["rows"]
        self._counts = np.stack([ints(run.table, f"_count{i}") for i in range(3)], axis=1)
        self._rows.restore(ints(run.table, "_hash"), {n: one(run.table.column(n)) for n in self.types})
        self._pending.restore(state["pending"], frontier)
