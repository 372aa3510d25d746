"""Duplicate elimination that stores at most twice its output (the thesis's delta-star, 3.5.2).

When no element ends early, it is enough to know for each distinct row two ends: that of the copy now in the output, and
that of the copy in the window which lives longest (the auxiliary). When the output's copy ends and the auxiliary
outlives it, the auxiliary takes over from that instant.

    window     [1 ───── 6)  [3 ───── 8)  [7 ──── 12)
    output     [1 ───── 6)[6 ─ 8)[8 ──── 12)

The output is weak: ends are known, not in order. As a change log (`log`) a hand-over is no change, so only the first
start and the last end are spelled, and nobody need wait for the ends between. Rows arrive one after another, so the
core is a compiled loop. Cost per advance: new elements, and a look at each slot's end; state: one slot with two ends
per distinct live row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.changes import Clocked, in_order
from windrow.operators.elements import BEGINNING, INF, Elements, one
from windrow.operators.keytable import KeyTable
from windrow.operators.protocol import State
from windrow.operators.state.run import Run, ints


class DeltaStar(Clocked):
    """One copy of every distinct row of an input without negative elements; `log`: as a consolidated change log."""

    def __init__(self, types: Mapping[str, pa.DataType], log: bool = False) -> None:
        super().__init__()
        self.types, self.log = dict(types), log
        self._rows = KeyTable(types)
        self._ends = np.zeros((0, 2), np.int64)  # by slot: end of the output's copy, end of the auxiliary

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        new = self._on_time(inputs, frontier) if self.log else inputs[0]
        slots = self._rows.slots(new.columns, len(new))
        self._grow()
        ts, exp = new.ts, new.exp
        if (ts[1:] < ts[:-1]).any():
            order = np.argsort(ts, kind="stable")
            slots, ts, exp = slots[order], ts[order], exp[order]
        slot, ts, exp, change, live = _walk(self._ends[: len(self._rows)], slots, ts, exp, frontier)
        told = np.flatnonzero(change if self.log else change >= 0)
        slot, ts, exp, change = slot[told], ts[told], exp[told], change[told]
        if self.log:
            out = in_order(Elements(ts, np.full(len(ts), INF), change, self._rows.rows(slot)))
        else:
            out = Elements.positive(ts, exp, self._rows.rows(slot))
        self._forget(frontier, live)
        return out

    def _grow(self) -> None:
        if len(self._rows) > len(self._ends):
            grown = np.full((2 * len(self._rows), 2), BEGINNING, np.int64)
            grown[: len(self._ends)] = self._ends
            self._ends = grown

    def _forget(self, frontier: int, live: int) -> None:
        if len(self._rows) >= 64 and 4 * live < 3 * len(self._rows):
            keep = self._ends[: len(self._rows), 0] > frontier
            self._ends = self._ends[self._rows.compact(keep)].copy()

    @property
    def size(self) -> int:
        """Ends stored: at most two for each row of the output."""
        return int(np.count_nonzero(self._ends[: len(self._rows)] > BEGINNING))

    def state(self) -> State:
        ends = self._ends[: len(self._rows)].copy()  # a run must not change when the ends do
        rows = {n: a for n, a in self._rows.arrays().items() if n in self.types}
        return {
            "rows": (Run(pa.table({"_end0": pa.array(ends[:, 0]), "_end1": pa.array(ends[:, 1]), **rows})),),
            **super().state(),
        }

    def restore(self, state: State, frontier: int) -> None:
        (run,) = state["rows"]
        self._rows, self._ends = KeyTable(self.types), np.zeros((0, 2), np.int64)
        slots = self._rows.slots({n: one(run.table.column(n)) for n in self.types}, run.table.num_rows)
        self._grow()
        self._ends[slots, 0], self._ends[slots, 1] = ints(run.table, "_end0"), ints(run.table, "_end1")
        super().restore(state, frontier)


@njit(cache=True)
def _walk(ends, slots, ts, exp, frontier):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Walk arrivals in time order, then the slots that end.

    Returns what happens (slot, when, until when the copy shown then lives, and +1: the row appears, 0: one copy takes
    over from another, -1: it disappears) and the number of live slots.
    """
    gone = np.iinfo(np.int64).min
    ending = 0
    for s in range(len(ends)):
        ending += gone < ends[s, 0] <= frontier
    limit = 5 * len(slots) + 2 * ending  # three events an arrival, two a slot that it touched or that ends
    out_slot, out_ts, out_exp = np.empty(limit, np.int64), np.empty(limit, np.int64), np.empty(limit, np.int64)
    change = np.empty(limit, np.int8)
    n = 0
    for i in range(len(slots)):
        s = slots[i]
        now, aux = ends[s, 0], ends[s, 1]
        if now <= ts[i] and aux > now:  # the auxiliary took over before this arrival
            out_slot[n], out_ts[n], out_exp[n], change[n] = s, now, aux, 0
            n += 1
            now = aux
        if gone < now < ts[i]:
            out_slot[n], out_ts[n], out_exp[n], change[n] = s, now, now, -1
            n += 1
        if now <= ts[i]:
            out_slot[n], out_ts[n], out_exp[n], change[n] = s, ts[i], exp[i], now < ts[i]
            n += 1
            now = exp[i]
        elif exp[i] > aux:
            aux = exp[i]
        ends[s, 0], ends[s, 1] = now, aux
    live = 0
    for s in range(len(ends)):
        now, aux = ends[s, 0], ends[s, 1]
        if now <= frontier and aux > now:
            out_slot[n], out_ts[n], out_exp[n], change[n] = s, now, aux, 0
            n += 1
            now = aux
        if gone < now <= frontier:
            out_slot[n], out_ts[n], out_exp[n], change[n] = s, now, now, -1
            n += 1
            now = aux = gone
        ends[s, 0], ends[s, 1] = now, aux if aux > now else gone
        live += now > frontier
    return out_slot[:n], out_ts[:n], out_exp[:n], change[:n], live
