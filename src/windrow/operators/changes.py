"""A relation as a change log, consolidated.

Turns lifetimes into what happens at each instant: +1 when an element starts, -1 when it ends (the reverse for negative elements), and cancels,
within one instant, rows that leave with equal rows that enter. The output is open elements `[t, INF)` with signs: the same relation, spelled as
a log.

Only instants with changes of both signs can cancel anything; all other changes pass through uncompared.
State: pending ends, in the structure that the input's update pattern allows. Cost per advance: its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.operators.keys import factorize
from windrow.operators.protocol import State, Stateless
from windrow.operators.state.pending import Calendar, Pending


class Changes:
    """The consolidated change log of its input, in time order."""

    def __init__(self, pending: Callable[[], Pending] = Calendar) -> None:
        self._pending = pending()
        self._start = BEGINNING

    def start(self, ts: int) -> None:
        """What began before `ts` (history given to a new query) appears at `ts`, if it is still there then."""
        self._start = ts

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        new = self._from_start(inputs[0])
        self._pending.add(new.filter(new.exp != INF))
        parts = [as_log(new, new.ts, 1)]
        due = self._pending.due(frontier)
        if due is not None:
            parts.append(as_log(due, due.exp, -1))
        log = cancel(concat(parts))
        return log.take(np.argsort(log.ts, kind="stable"))

    def _from_start(self, new: Elements) -> Elements:
        if len(new) and new.ts.min() < self._start:
            new = new.filter(new.exp > self._start)
            return new.with_lifetimes(np.maximum(new.ts, self._start), new.exp)
        return new

    def state(self) -> State:
        return {"pending": self._pending.runs()}

    def restore(self, state: State, frontier: int) -> None:
        self._pending.restore(state["pending"])


class Retract(Changes):
    """Spell every end as a negative element: what a window sends in the negative-tuple strategy.

    Unlike `Changes` it cancels nothing: each element is followed by its own negative.
    """

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (new,) = inputs
        self._pending.add(new.filter(new.exp != INF))
        parts = [as_log(new, new.ts, 1)]
        due = self._pending.due(frontier)
        if due is not None:
            parts.append(as_log(due, due.exp, -1))
        return concat(parts)


class Entering(Stateless):
    """ISTREAM of a change log (and the append-only answer of INTERNAL windows): rows that appear, for ever."""

    sign = 1

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (log,) = inputs
        rows = log.filter(log.sign == self.sign)
        return Elements.positive(rows.ts, INF, rows.columns)


class Leaving(Entering):
    """DSTREAM of a change log: rows that disappear."""

    sign = -1


def as_log(elements: Elements, at: np.ndarray, factor: int) -> Elements:
    """Open elements at the given instants, signs multiplied by `factor`."""
    sign = elements.sign if factor == 1 else -elements.sign
    return Elements(at, np.full(len(elements), INF), sign, elements.columns)


def cancel(log: Elements) -> Elements:
    """Net the changes of each (instant, row); k copies remain as k elements.

    >>> log = Elements(np.array([5, 5, 5]), np.array([INF] * 3), np.array([1, -1, 1], np.int8), {"a": pa.array([1, 1, 2])})
    >>> cancel(log).columns["a"].to_pylist()
    [2]
    """
    entering = log.sign > 0
    if entering.all() or not entering.any():
        return log
    both = np.intersect1d(log.ts[entering], log.ts[~entering])
    if not len(both):
        return log
    mixed = np.isin(log.ts, both)
    index = np.flatnonzero(mixed)
    part = log.take(index)
    codes, first = factorize([pa.array(part.ts), *part.columns.values()], len(part))
    net = np.bincount(codes, part.sign, minlength=len(first)).astype(np.int64)
    kept = np.repeat(np.arange(len(first)), np.abs(net))
    rows = part.take(first[kept])
    netted = Elements(rows.ts, rows.exp, np.sign(net[kept]).astype(np.int8), rows.columns)
    return concat([log.take(np.flatnonzero(~mixed)), netted])
