"""Periodic evaluation as a change of lifetimes.

A periodic query looks only at multiples of its period, and a multiple t lies in `[ts, exp)` exactly when it lies in
`[up(ts), up(exp))`. So every operator above computes the periodic answer without knowing that it is one.

    period 10:   ts=3 ──────── exp=27        →   [10, 30): seen at 10 and 20
                 ts=12 ─ exp=19              →   [20, 20): never seen
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windrow.operators.elements import Elements, Int64s, concat
from windrow.operators.protocol import State, Stateless
from windrow.operators.state.run import elements_of, run_of


class Quantise(Stateless):
    """Move both ends of each lifetime up to the next multiple of the period.

    State: the elements whose moved start lies beyond the frontier, at most one period of input.
    """

    def __init__(self, period: int) -> None:
        self.period = period
        self._waiting: list[Elements] = []

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        rows = concat([*self._waiting, *inputs])
        ts, exp = round_up(rows.ts, self.period), round_up(rows.exp, self.period)
        seen = ts < exp
        due = ts <= frontier
        self._waiting = [] if due.all() else [rows.take(np.flatnonzero(~due & seen))]
        return rows.with_lifetimes(ts, exp).filter(due & seen)

    def state(self) -> State:
        return {"waiting": tuple(run_of(e) for e in self._waiting)}

    def restore(self, state: State, frontier: int) -> None:
        self._waiting = [elements_of(r) for r in state["waiting"]]


def round_up(times: Int64s, period: int) -> Int64s:
    """The least multiple of `period` that is not below each time; the two ends of time stay.

    >>> round_up(np.array([-3, 0, 1, 10]), 5).tolist()
    [0, 0, 5, 10]
    """
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    steps = -(-times // period)
    safe = (times > low + period) & (times < high - period)
    return np.where(safe, steps * period, times)
