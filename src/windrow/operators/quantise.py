"""Periodic evaluation as a change of lifetimes.

A periodic query looks only at multiples of its period, and a multiple t lies in `[ts, exp)` exactly when it lies in
`[up(ts), up(exp))`. So every operator above computes the periodic answer without knowing that it is one.

    period 10:   ts=3 ──────── exp=27        →   [10, 30): seen at 10 and 20
                 ts=12 ─ exp=19              →   [20, 20): never seen
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.protocol import State, Unclocked
from windrow.operators.state.run import elements_of, run_of


class QuantiseOperator(Unclocked):
    """Move both ends of each lifetime up to the next `k * period + offset`; `before`: to the next one after it.

    State: the elements whose moved start lies beyond the frontier, at most one period of input; none if whoever reads
    them takes them as they come (`waits` false).
    """

    def __init__(self, period: int, offset: int = 0, before: bool = False, waits: bool = True) -> None:
        self.period, self.offset, self.before, self.waits = period, offset, before, waits
        self._waiting: list[Elements] = []

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        rows = concat([*self._waiting, *inputs])
        ts, exp = self._moved(rows.ts), self._moved(rows.exp)
        seen = ts < exp
        moved = rows.with_lifetimes(ts, exp)
        if not seen.all():
            at = np.flatnonzero(seen)
            rows, moved, ts = rows.take(at), moved.take(at), ts[at]
        due = ts <= frontier
        count = int(np.count_nonzero(due)) if self.waits else len(due)
        if count == len(due):
            self._waiting = []
            return moved
        if due[:count].all():  # they came in order: nothing need be copied
            self._waiting = [rows.slice(count)]
            return moved.slice(0, count)
        self._waiting = [rows.filter(~due)]
        return moved.filter(due)

    def _moved(self, times: Int64s) -> Int64s:
        if self.before:
            times = np.where(times == INF, INF, times + 1)
        return round_up(times, self.period, self.offset)

    def state(self) -> State:
        return {"waiting": tuple(run_of(e) for e in self._waiting)}

    def restore(self, state: State, frontier: int) -> None:
        self._waiting = [elements_of(r) for r in state["waiting"]]


def shifted(elements: Elements, by: int) -> Elements:
    """The elements on a clock that shows `by` more; the two ends of time stay."""
    if not by:
        return elements
    ts = np.where(elements.ts == BEGINNING, BEGINNING, elements.ts + by)
    return elements.with_lifetimes(ts, np.where(elements.exp == INF, INF, elements.exp + by))


def round_up(times: Int64s, period: int, offset: int = 0) -> Int64s:
    """The least `k * period + offset` that is not below each time; the two ends of time stay.

    >>> round_up(np.array([-3, 0, 1, 10]), 5).tolist(), round_up(np.array([-3, 3, 5]), 5, 3).tolist()
    ([0, 0, 5, 10], [-2, 3, 8])
    """
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    safe = (times > low + 2 * period) & (times < high - 2 * period)
    steps = -((offset - times) // period) if offset else -(-times // period)
    moved = steps * period + offset if offset else steps * period
    return moved if safe.all() else np.where(safe, moved, times)
