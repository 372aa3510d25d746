"""RSTREAM and the RESTORE operators: the whole answer, again and again.

RSTREAM of a periodic query repeats each row at every multiple of the period inside its lifetime; of a continuous query,
at every instant at which the answer changes. RESTORE adds, at each evaluation, the rows that lived and died since the
one before.

State: the elements that are alive (their number is that of one answer). Cost: the rows it emits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windrow.operators.changes import cancel
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.keys import factorize
from windrow.operators.protocol import State
from windrow.operators.quantise import round_up
from windrow.operators.state.keyed import surviving
from windrow.operators.state.ranges import expand
from windrow.operators.state.run import elements_of, run_of


class _Alive:
    """Elements that reach beyond the frontier."""

    def __init__(self) -> None:
        self._alive: Elements | None = None
        self._last = BEGINNING

    def start(self, ts: int) -> None:
        """The first evaluation is not before `ts`."""
        self._last = ts - 1

    def _join(self, new: Elements) -> Elements:
        return new if self._alive is None else concat([self._alive, new])

    def _keep(self, elements: Elements, frontier: int) -> None:
        rest = elements.filter(elements.exp > frontier)
        self._alive = rest.take(surviving(rest, frontier)) if (rest.sign < 0).any() else rest
        self._last = frontier

    def state(self) -> State:
        return {"alive": () if self._alive is None else (run_of(self._alive),)}

    def restore(self, state: State, frontier: int) -> None:
        self._alive, self._last = None, frontier
        for run in state["alive"]:
            self._alive = elements_of(run)


class Sample(_Alive):
    """RSTREAM at every `k * period + offset`."""

    def __init__(self, period: int, offset: int = 0) -> None:
        super().__init__()
        self.period, self.offset = period, offset

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        elements = self._join(inputs[0])
        if self._last == BEGINNING:
            return elements.take(np.zeros(0, np.int64))
        first = int(round_up(np.array([self._last + 1]), self.period, self.offset)[0])
        instants = np.arange(first, frontier + 1, self.period)
        out = at_instants(elements, instants)
        self._keep(elements, frontier)
        return out


class Instants(Sample):
    """The relation at every `k * period + offset`, each row as an element of its own that lives for one period."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        rows = super().advance(inputs, frontier)
        return rows.with_lifetimes(rows.ts, rows.ts + self.period)


class Snapshots(_Alive):
    """RSTREAM of a change log: the whole relation at every instant that has a change."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (log,) = inputs
        elements = self._join(log)
        out = at_instants(elements, np.unique(log.ts))
        self._keep(elements, frontier)
        return out


class Moments(_Alive):
    """The whole relation at every instant at which an element begins: RSTREAM of rows that live for one instant."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (new,) = inputs
        elements = self._join(new)
        out = at_instants(elements, np.unique(new.ts))
        self._keep(elements, frontier)
        return out


class Restore(_Alive):
    """ISTREAM_RESTORE / RSTREAM_RESTORE over a change log.

    At each multiple of `period`: what is new (or, for `whole`, all that is there), and what came and went since the
    previous one. Equal rows leave oldest first.
    """

    def __init__(self, period: int, whole: bool) -> None:
        super().__init__()
        self.period, self.whole = period, whole
        self._waiting: Elements | None = None  # changes after the last evaluation

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        log = inputs[0] if self._waiting is None else concat([self._waiting, inputs[0]])
        last = frontier // self.period * self.period  # the newest evaluation reached
        due = log.ts <= last
        self._waiting = log.filter(~due)
        log = log.filter(due)
        old = self._alive if self._alive is not None else log.take(np.zeros(0, np.int64))
        at = round_up(log.ts, self.period)
        parts = [self._short(old, log, at)]
        moved = log.with_lifetimes(at, log.exp)
        if self.whole:
            elements = concat([old, moved])
            first = int(round_up(np.array([self._last + 1]), self.period)[0])
            parts.append(at_instants(elements, np.arange(first, last + 1, self.period)))
        else:
            netted = cancel(moved)
            fresh = netted.filter(netted.sign > 0)
            parts.append(Elements.positive(fresh.ts, INF, fresh.columns))
        evaluated = max(self._last, last)
        self._keep(concat([old, log]), last)
        self._last = evaluated
        return concat(parts)

    def _short(self, old: Elements, log: Elements, at: Int64s) -> Elements:
        """Per (evaluation, row): disappearances beyond what the previous evaluation had."""
        both = concat([old, log])
        when = np.concatenate([np.full(len(old), BEGINNING), at])
        rows, _ = factorize(list(both.columns.values()), len(both))
        order = np.lexsort((when, rows))
        rows, when, sign = rows[order], when[order], both.sign[order].astype(np.int64)
        begins = (
            np.flatnonzero(np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(when) != 0)])) if len(rows) else rows
        )
        if not len(begins):
            return log
        net = np.add.reduceat(sign, begins)
        gone = np.add.reduceat((sign < 0).astype(np.int64), begins)
        row, when_ = rows[begins], when[begins]
        total = np.cumsum(net)
        first = np.flatnonzero(np.concatenate([[True], np.diff(row) != 0]))
        offset = np.repeat(total[first] - net[first], np.diff(np.append(first, len(row))))
        before = total - net - offset  # copies at the previous evaluation
        short = np.where(when_ == BEGINNING, 0, np.maximum(gone - before, 0))
        picks = np.repeat(np.arange(len(short)), short)
        source = both.take(order[begins[picks]])
        return Elements.positive(when_[picks], INF, source.columns)

    def state(self) -> State:
        waiting = () if self._waiting is None else (run_of(self._waiting),)
        return {**super().state(), "waiting": waiting}

    def restore(self, state: State, frontier: int) -> None:
        super().restore(state, frontier)
        self._waiting = None
        for run in state["waiting"]:
            self._waiting = elements_of(run)


def at_instants(elements: Elements, instants: Int64s) -> Elements:
    """The relation at each of the (sorted) instants, as rows `[instant, INF)`.

    >>> import pyarrow as pa
    >>> e = Elements.positive(np.array([1, 4]), np.array([6, 9]), {"a": pa.array([7, 8])})
    >>> out = at_instants(e, np.array([2, 5, 8]))
    >>> list(zip(out.ts.tolist(), out.columns["a"].to_pylist()))
    [(2, 7), (5, 7), (5, 8), (8, 8)]
    """
    low = np.searchsorted(instants, elements.ts, "left")
    high = np.searchsorted(instants, elements.exp, "left")
    count = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(elements)), count)
    ts = instants[expand(low, count)] if len(which) else np.zeros(0, np.int64)
    repeated = elements.take(which)
    log = Elements(ts, np.full(len(ts), INF), repeated.sign, repeated.columns)
    if (log.sign < 0).any():
        log = cancel(log)
    return log.take(np.argsort(log.ts, kind="stable"))
