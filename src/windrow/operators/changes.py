"""A relation as a change log, consolidated.

Turns lifetimes into what happens at each instant: +1 when an element starts, -1 when it ends (the reverse for negative
elements), and cancels, within one instant, rows that leave with equal rows that enter. The output is open elements `[t,
INF)` with signs: the same relation, spelled as a log.

Only equal hashes with both signs can cancel anything; all other changes pass through uncompared.
State: pending ends, in the structure that the input's update pattern allows. Cost per advance: its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat, gathered, same_end
from windrow.operators.keys import factorize, hash_rows, mix
from windrow.operators.protocol import State, Stateless
from windrow.operators.quantise import QuantiseOperator
from windrow.operators.radix import stable_order, stable_places
from windrow.operators.scatter import scattered
from windrow.operators.state.pending import Calendar, Ended, Pending
from windrow.operators.state.run import Run, elements_of, ints, run_of


class Clocked:
    """Base of operators that show nothing before their clock starts.

    In a periodic block the clock starts at the first evaluation, which may lie beyond the frontier. What comes before
    it (rows of tables, which have always been there) waits until it can be seen.
    """

    def __init__(self) -> None:
        self._start = BEGINNING
        self._early: Elements | None = None

    def start(self, ts: int) -> None:
        """What began before `ts` (history given to a new query) appears at `ts`, if it is still there then."""
        self._start = ts

    def _on_time(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """What may be seen by now, none of it from before the start."""
        new = concat(inputs if self._early is None else [self._early, *inputs])
        self._early = new if frontier < self._start else None
        return from_start(new, self._start) if self._early is None else new.take(np.zeros(0, np.int64))

    def state(self) -> State:
        """What waits for the clock to start."""
        if self._early is None:
            return {}
        return {"early": (Run(pa.table({"start": [self._start]})), run_of(self._early))}

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state; of its slots, one is looked at here."""
        self._early = None
        if "early" in state:
            clock, rows = state["early"]
            self._start, self._early = int(ints(clock.table, "start")[0]), elements_of(rows)


class Changes(Clocked):
    """The consolidated change log of its input, in time order.

    `timestamped`: equal elements have equal lifetimes and are positive (`plan/timestamped.py`): nothing can cancel.
    `only`: of this sign; the rows of the other are looked at as far as they may cancel something, and not copied.
    `seen`: moves what tables change between two evaluations of a periodic query to the later one.
    """

    def __init__(
        self,
        pending: Callable[[], Pending] = Calendar,
        timestamped: bool = False,
        only: int = 0,
        seen: QuantiseOperator | None = None,
    ) -> None:
        super().__init__()
        self._pending, self.timestamped, self.only, self._seen = pending(), timestamped, only, seen

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        if self._seen is not None:
            inputs = [self._seen.advance(inputs, frontier)]
        new = self._on_time(inputs, frontier)
        ending = new.filter(new.exp != INF)
        rest = ending if self.timestamped else cancel(ending)  # what cancels for its whole life need not wait
        self._pending.add(rest)
        if rest is not ending:
            new = concat([new.filter(new.exp == INF), rest])
        due = self._pending.due(frontier)
        if self.timestamped or not self._may_cancel(new, due):
            return _log(new if self.only >= 0 else new.slice(0, 0), due if self.only <= 0 else None)
        return in_order(cancel(_log(new, due, ordered=False)))

    @staticmethod
    def _may_cancel(new: Elements, due: Ended | None) -> bool:
        """Whether some change may have an equal one of the other sign at its instant."""
        if not (new.sign > 0).all() or (due is not None and not (due.sign > 0).all()):
            return True
        return due is not None and len(new) > 0 and _opposite(new, due)

    def replace_rows(self, part: int, keep: Callable[[Elements], np.ndarray], more: Sequence[Elements]) -> None:
        """Let go of the waiting rows that `keep` does not keep, and let others wait."""
        mine = [e.filter(keep(e)) for e in self._pending.parts()]
        together = [e for e in (*mine, *more) if len(e)]
        self._pending = type(self._pending)()
        if together:
            rows = concat(together)
            self._pending.add(rows.take(np.argsort(rows.exp, kind="stable")))

    def state(self) -> State:
        waiting = {} if self._seen is None else self._seen.state()
        return {"pending": self._pending.runs(), **waiting, **super().state()}

    def restore(self, state: State, frontier: int) -> None:
        self._pending.restore(state["pending"], frontier)
        if self._seen is not None:
            self._seen.restore({"waiting": (), **state}, frontier)
        super().restore(state, frontier)


class Retract(Changes):
    """Spell every end as a negative element: what a window sends in the negative-tuple strategy.

    Unlike `Changes` it cancels nothing: each element is followed by its own negative.
    """

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (new,) = inputs
        self._pending.add(new.filter(new.exp != INF))
        return _log(new, self._pending.due(frontier), ordered=False)


class Entering(Stateless):
    """ISTREAM of a change log (and the append-only answer of INTERNAL windows): rows that appear, for ever."""

    sign = 1

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (log,) = inputs
        rows = log.filter(log.sign == self.sign)
        return Elements.positive(rows.ts, INF, rows.columns)


class Starting(Clocked):
    """ISTREAM of timestamped rows: what starts, for ever; no end is waited for."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        rows = self._on_time(inputs, frontier)
        return in_order(Elements.positive(rows.ts, INF, rows.columns))


class Appearing(Clocked):
    """The answer of INTERNAL windows that only select, project and join: every result once, when it comes into being.

    The end of a lifetime undoes nothing. A negative element does, at its own instant only: a ROWS window sends one
    for a row that another displaces, and what the displaced row would have met at that instant never was. Law: rows of
    ROWS windows carry their number, so a negative element cancels the results of its own row and no equal one.
    """

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        rows = self._on_time(inputs, frontier)
        rows = cancel(rows.with_lifetimes(rows.ts, np.full(len(rows), INF)))
        rows = rows.filter(rows.sign > 0)
        return in_order(Elements.positive(rows.ts, INF, rows.columns))


class Leaving(Entering):
    """DSTREAM of a change log: rows that disappear."""

    sign = -1


def from_start(elements: Elements, start: int) -> Elements:
    """What lives at `start` or later, none of it from before."""
    if len(elements) and elements.ts.min() < start:
        elements = elements.filter(elements.exp > start)
        return elements.with_lifetimes(np.maximum(elements.ts, start), elements.exp)
    return elements


def in_order(elements: Elements) -> Elements:
    """The elements in the order of their starts."""
    ts = elements.ts
    return elements if (ts[1:] >= ts[:-1]).all() else elements.take(stable_order(ts))


def _log(new: Elements, due: Ended | None, ordered: bool = True) -> Elements:
    """What comes at its start, and what has ended, with the opposite sign, at its end: open elements.

    `ordered`: by their starts. What has ended is copied here once, from where it waited to where it goes.
    """
    if due is None:
        log = Elements(new.ts, same_end(len(new)), new.sign, new.columns)
        return in_order(log) if ordered else log
    ts, sign = np.concatenate((new.ts, due.exp)), np.concatenate((new.sign, -due.sign))
    to = None if not ordered or (ts[1:] >= ts[:-1]).all() else stable_places(ts)
    if to is not None:
        ts, sign = _at(to, ts), _at(to, sign)
    come = slice(0, len(new))
    put = gathered if to is None else partial(scattered, to=to)
    columns = {n: put([(a, come), *due.places(n)]) for n, a in new.columns.items()}
    return Elements(ts, same_end(len(ts)), sign, columns)


def _at(to: Int64s, values: np.ndarray) -> np.ndarray:
    """Values where they go."""
    moved = np.empty_like(values)
    moved[to] = values
    return moved


def _opposite(new: Elements, due: Ended) -> bool:
    """Whether a row that comes and one that leaves at its instant may be equal: by instants, then column by column."""
    come, gone = mix(new.ts.view(np.uint64)), mix(due.exp.view(np.uint64))
    comers, leavers = np.arange(len(new)), np.arange(len(due))
    for name in (None, *new.columns):
        if name is not None:
            column = new.columns[name]
            column = column if len(comers) == len(new) else gathered([(column, comers)])
            other = due.column(name) if len(leavers) == len(due) else due.values(name, leavers)
            come = mix(come ^ hash_rows([column], len(come)).view(np.uint64))
            gone = mix(gone ^ hash_rows([other], len(gone)).view(np.uint64))
        keep = _in_filter(come, gone), _in_filter(gone, come)
        comers, come = comers[keep[0]], come[keep[0]]
        leavers, gone = leavers[keep[1]], gone[keep[1]]
        if not len(comers) or not len(leavers):
            return False
    return bool(np.isin(come, gone).any())


@njit(cache=True)
def _in_filter(hashes, others):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Where a hash may be among the others: a bit for each of those, in a table that a cache holds."""
    bits = 10
    while (1 << bits) < 16 * len(others) and bits < 20:
        bits += 1
    table, shift = np.zeros(1 << (bits - 6), np.uint64), np.uint64(64 - bits)
    for h in others:
        place = h >> shift
        table[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))
    keep = np.empty(len(hashes), np.bool_)
    for i in range(len(hashes)):
        place = hashes[i] >> shift
        keep[i] = (table[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1) != 0
    return keep


def cancel(elements: Elements) -> Elements:
    """Net the signs of equal rows with equal lifetimes; k copies remain as k elements.

    >>> ones, rows = np.array([1, -1, 1], np.int8), {"a": pa.array([1, 1, 2])}
    >>> log = Elements(np.array([5, 5, 5]), np.array([INF] * 3), ones, rows)
    >>> cancel(log).columns["a"].to_pylist()
    [2]
    """
    index = _opposed(elements)
    if not len(index):
        return elements
    part = elements.take(index)
    codes, first = factorize([pa.array(part.ts), pa.array(part.exp), *part.columns.values()], len(part))
    net = np.bincount(codes, part.sign, minlength=len(first)).astype(np.int64)
    kept = np.repeat(np.arange(len(first)), np.abs(net))
    rows = part.take(first[kept])
    netted = Elements(rows.ts, rows.exp, np.sign(net[kept]).astype(np.int8), rows.columns)
    rest = np.ones(len(elements), np.bool_)
    rest[index] = False
    return concat([elements.take(np.flatnonzero(rest)), netted])


def _opposed(elements: Elements) -> Int64s:
    """Indices of elements that may have an equal one of the other sign: all that have, and few others.

    Compares hashes, column by column, of those that are still in doubt: most logs are done after one column.
    """
    index = np.arange(len(elements))
    positive = elements.sign > 0
    if positive.all() or not positive.any():
        return index[:0]
    hashes = mix(mix(elements.ts.view(np.uint64)) + elements.exp.view(np.uint64))
    for column in elements.columns.values():
        column = column if len(index) == len(elements) else column.take(pa.array(index))
        hashes = mix(hashes ^ hash_rows([column], len(index)).view(np.uint64))
        keep = _has_both(hashes, positive)
        index, hashes, positive = index[keep], hashes[keep], positive[keep]
        if not len(index):
            break
    return index


@njit(cache=True)
def _has_both(hashes, positive):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Where a hash occurs with both signs."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    table = np.zeros(size, np.uint64)
    seen = np.zeros(size, np.uint8)  # bit 0: negative, bit 1: positive; 0: free
    home = np.empty(len(hashes), np.int64)
    for i in range(len(hashes)):
        at = np.int64(hashes[i] & np.uint64(size - 1))
        while seen[at] and table[at] != hashes[i]:
            at = (at + 1) & (size - 1)
        table[at] = hashes[i]
        seen[at] |= 2 if positive[i] else 1
        home[i] = at
    keep = np.empty(len(hashes), np.bool_)
    for i in range(len(hashes)):
        keep[i] = seen[home[i]] == 3
    return keep
