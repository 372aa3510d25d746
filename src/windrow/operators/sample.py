"""RSTREAM and the RESTORE operators: the whole answer, again and again.

RSTREAM of a periodic query repeats each row at every multiple of the period inside its lifetime; of a continuous query,
at every instant at which the answer changes. RESTORE adds, at each evaluation, the rows that lived and died since the
one before.

State: the elements that are alive (their number is that of one answer). Cost: the rows it emits, however long the
time is in which they are: instants at which the answer is empty cost nothing. Rows are counted before they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from windrow.errors import RuntimeFailure, WindrowError
from windrow.operators.aggregates.vectors import Bools, distinct_values, raw
from windrow.operators.changes import cancel
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.keys import factorize
from windrow.operators.protocol import State, Stateless
from windrow.operators.quantise import round_up
from windrow.operators.row_limit import RowLimit
from windrow.operators.state.ranges import expand
from windrow.operators.state.run import elements_of, run_of
from windrow.operators.state.surviving import surviving

_ROOM = 4096
"""Rows that may be made and cancelled again whatever is left of them."""


class _Alive:
    """Elements that reach beyond the frontier.

    `partition`: the column that divides them into the relations of several queries. One that would be too long is left
    out and `refused`, by the value of that column: the others go on.
    """

    def __init__(self, limit: RowLimit | None = None, partition: tuple[str, ...] = ()) -> None:
        self.limit, self.partition = limit or RowLimit(), partition
        self.refused: dict[int, WindrowError] = {}
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

    def _allowed(self, elements: Elements, query: Int64s, low: Int64s, count: Int64s) -> Bools:
        """The elements of queries that do not answer with too many rows."""
        refused = []
        for number in distinct_values(query).tolist():
            mine = query == number
            try:
                _net(elements.filter(mine), low[mine], count[mine], self.limit)
            except RuntimeFailure as error:
                self.refused[number] = error
                refused.append(number)
        return ~np.isin(query, refused)

    def forget(self, keep: Callable[[Elements], Bools]) -> None:
        """Let go of the elements that `keep` does not keep."""
        self._alive = None if self._alive is None else self._alive.filter(keep(self._alive))

    def state(self) -> State:
        return {"alive": () if self._alive is None else (run_of(self._alive),)}

    def restore(self, state: State, frontier: int) -> None:
        self._alive, self._last = None, frontier
        for run in state["alive"]:
            self._alive = elements_of(run)


class Sample(_Alive):
    """RSTREAM at every `k * period + offset`."""

    def __init__(
        self, period: int, offset: int = 0, limit: RowLimit | None = None, partition: tuple[str, ...] = ()
    ) -> None:
        super().__init__(limit, partition)
        self.period, self.offset = period, offset

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        elements = self._join(inputs[0])
        if self._last == BEGINNING:
            return elements.take(np.zeros(0, np.int64))
        first = int(round_up(np.array([self._last + 1]), self.period, self.offset)[0])
        self.refused, limit = {}, self.limit
        if self.partition:
            elements, limit = self._short_enough(elements, first, frontier), RowLimit(rows=INF)
        out = at_multiples(elements, first, frontier, self.period, limit)
        self._keep(elements, frontier)
        return out

    def _short_enough(self, elements: Elements, first: int, last: int) -> Elements:
        """The elements of queries that do not answer with too many rows; all may have more together."""
        low, count = _multiples(elements, first, last, self.period)
        if int(count.sum()) <= self.limit.rows:
            return elements
        (by,) = self.partition
        return elements.filter(self._allowed(elements, raw(elements.columns[by]).astype(np.int64), low, count))


class Instants(Sample):
    """The relation at every `k * period + offset`, each row as an element of its own that lives for one period."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        rows = super().advance(inputs, frontier)
        return rows.with_lifetimes(rows.ts, rows.ts + self.period)


class RepeatPeriods(Stateless):
    """Elements that live for several periods, at every instant of theirs; those that live for one pass as they are."""

    def __init__(self, period: int, limit: RowLimit | None = None) -> None:
        self.period, self.limit = period, limit or RowLimit()

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        return repeated(rows, self.period, self.limit)


class Moments(_Alive):
    """The whole relation at every instant at which an element begins: RSTREAM of rows that live for one instant."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (new,) = inputs
        elements = self._join(new)
        out = at_instants(elements, distinct_values(new.ts), self.limit)
        self._keep(elements, frontier)
        return out


class Snapshots(_Alive):
    """RSTREAM of a change log: the whole relation at every instant that has a change.

    With a `partition` each query has changes of its own.
    """

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (new,) = inputs
        elements = self._join(new)
        self.refused = {}
        out = (
            self._of_each(elements, new)
            if self.partition
            else at_instants(elements, distinct_values(new.ts), self.limit)
        )
        self._keep(elements, frontier)
        return out

    def _of_each(self, elements: Elements, new: Elements) -> Elements:
        """The relation of each query at its own instants: those of all stand in one row, by query, then by time."""
        (by,) = self.partition
        times, query = distinct_values(new.ts), raw(elements.columns[by]).astype(np.int64)
        places = len(times) + 1  # of a query; the last is behind all of its instants

        def place(queries: Int64s, ts: Int64s) -> Int64s:
            return queries * places + np.searchsorted(times, ts, "left")

        instants = distinct_values(place(raw(new.columns[by]).astype(np.int64), new.ts))
        low, high = (np.searchsorted(instants, place(query, t), "left") for t in (elements.ts, elements.exp))
        count = np.maximum(high - low, 0)
        if int(count.sum()) > self.limit.rows:
            allowed = self._allowed(elements, query, low, count)
            elements, low, count = elements.filter(allowed), low[allowed], count[allowed]
        elements, low, count = _net(elements, low, count, RowLimit(rows=int(count.sum())))
        at = instants[expand(low, count)] if len(low) else low
        return _at(elements, count, times[at % places] if len(low) else low, at)


class Restore(_Alive):
    """ISTREAM_RESTORE / RSTREAM_RESTORE over a change log.

    At each multiple of `period`: what is new (or, for `whole`, all that is there), and what came and went since the
    previous one. Equal rows leave oldest first.
    """

    def __init__(self, period: int, whole: bool, limit: RowLimit | None = None) -> None:
        super().__init__(limit)
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
            parts.append(at_multiples(elements, first, last, self.period, self.limit))
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


def at_instants(elements: Elements, instants: Int64s, limit: RowLimit | None = None) -> Elements:
    """The relation at each of the (sorted) instants, as rows `[instant, INF)`.

    >>> import pyarrow as pa
    >>> e = Elements.positive(np.array([1, 4]), np.array([6, 9]), {"a": pa.array([7, 8])})
    >>> out = at_instants(e, np.array([2, 5, 8]))
    >>> list(zip(out.ts.tolist(), out.columns["a"].to_pylist()))
    [(2, 7), (5, 7), (5, 8), (8, 8)]
    """
    low = np.searchsorted(instants, elements.ts, "left")
    high = np.searchsorted(instants, elements.exp, "left")
    elements, low, count = _net(elements, low, np.maximum(high - low, 0), limit or RowLimit())
    return _at(elements, count, instants[expand(low, count)] if len(low) else low)


def at_multiples(elements: Elements, first: int, last: int, period: int, limit: RowLimit) -> Elements:
    """The relation at `first`, `first + period` and so on up to `last`, as rows `[instant, INF)`.

    >>> import pyarrow as pa
    >>> e = Elements.positive(np.array([1, 4]), np.array([6, 9]), {"a": pa.array([7, 8])})
    >>> out = at_multiples(e, 2, 8, 3, RowLimit())
    >>> list(zip(out.ts.tolist(), out.columns["a"].to_pylist()))
    [(2, 7), (5, 7), (5, 8), (8, 8)]
    """
    elements, low, count = _net(elements, *_multiples(elements, first, last, period), limit)
    return _at(elements, count, first + expand(low, count) * period)


def _multiples(elements: Elements, first: int, last: int, period: int) -> tuple[Int64s, Int64s]:
    """At which of the instants each element is there: the number of the first one, and how many."""
    low, high = (-((first - np.clip(t, first, max(last + 1, first))) // period) for t in (elements.ts, elements.exp))
    return low, np.maximum(high - low, 0)


def repeated(rows: Elements, period: int, limit: RowLimit) -> Elements:
    """Each row as rows that live for one period each, in the order of time if they were."""
    count = (rows.exp - rows.ts) // period
    total = int(count.sum())
    limit.check(total)
    if total == len(rows):
        return rows
    ts = np.repeat(rows.ts, count) + expand(np.zeros(len(rows), np.int64), count) * period
    whole = rows.take(np.repeat(np.arange(len(rows)), count)).with_lifetimes(ts, ts + period)
    return whole.take(np.argsort(ts, kind="stable")) if (np.diff(ts) < 0).any() else whole


def _net(elements: Elements, low: Int64s, count: Int64s, limit: RowLimit) -> tuple[Elements, Int64s, Int64s]:
    """Elements at the numbered instants from `low` on, so many each; where many would cancel, only what is left."""
    total = int(count.sum())
    if total > min(4 * len(elements) + _ROOM, limit.rows) and (elements.sign < 0).any():
        elements, low, count = _stretches(elements, low, count)
        total = int(count.sum())
    limit.check(total)
    return elements, low, count


def _stretches(elements: Elements, low: Int64s, count: Int64s) -> tuple[Elements, Int64s, Int64s]:
    """For every different row the stretches of instants at which it is there, as often as it is."""
    codes, example = factorize(list(elements.columns.values()), len(elements))
    sign = elements.sign.astype(np.int64)
    code, at = np.concatenate((codes, codes)), np.concatenate((low, low + count))
    order = np.lexsort((at, code))
    code, at = code[order], at[order]
    copies = np.cumsum(np.concatenate((sign, -sign))[order])  # of one row they add up to 0
    open_ = np.flatnonzero((copies[:-1] > 0) & (at[1:] > at[:-1]))  # a row is there until its next event
    picks = np.repeat(open_, copies[open_])
    begin, until = at[picks], at[picks + 1]
    rows = elements.take(example[code[picks]]).columns
    return Elements.positive(begin, INF, rows), begin, until - begin


def _at(elements: Elements, count: Int64s, ts: Int64s, by: Int64s | None = None) -> Elements:
    """Elements, so many times each, at instants, in the order of time; `by`: in this order, where nothing cancels."""
    which = np.repeat(np.arange(len(elements)), count)
    if (elements.sign < 0).any():
        shown = elements.take(which)
        log = cancel(Elements(ts, np.full(len(ts), INF), shown.sign, shown.columns))
        return log.take(np.argsort(log.ts, kind="stable"))
    order = np.argsort(ts if by is None else by, kind="stable")
    return Elements.positive(ts[order], INF, elements.take(which[order]).columns)
