"""ASOF JOIN: each left row with the newest right row at or before its time, of those with an equal key.

    right (key x)   |-- r1 at 2 ------------|-- r2 at 6 -----------
    left  (key x)         l1 at 3: r1     l2 at 5: r1    l3 at 6: r2

The right side is a window of time over a stream and its times are the stream's, so whatever a left row can meet has
come when the row itself is seen, and of the right rows the newer ones live longer: a pair is made once, and lives while
both do. With `pad`, a left row is there with nulls while it has no partner: at once, or when its partner has left.
A table that does not reach back (`static`) is met as it is when the left row comes.

State: of the right side the rows that are alive, or only the newest of each key if left rows come in the order of their
times (`recent`); padded rows that are still to begin. Cost per advance: its rows and the right rows held, put in the
order of (key, time) by counting, and a binary search for each left row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.aggregates.order import encode
from windrow.operators.elements import INF, Elements, Int64s, concat
from windrow.operators.keytable import KeyTable
from windrow.operators.protocol import State, Unclocked
from windrow.operators.state.run import elements_of, run_of
from windrow.operators.state.surviving import surviving
from windrow.operators.window import in_value_order

Equalities = Sequence[tuple[str, str, bool]]


class AsofOperator(Unclocked):
    """Join on `equalities` (left, right, null_safe) and `left_time >= right_time` (`>` if `strict`).

    `derived`: right rows of one time are in the order of their values, else of arrival.
    """

    def __init__(
        self,
        left: Mapping[str, pa.DataType],
        right: Mapping[str, pa.DataType],
        equalities: Equalities,
        times: tuple[str, str],
        *,
        strict: bool = False,
        pad: bool = False,
        derived: bool = False,
        static: bool = False,
        recent: bool = False,
    ) -> None:
        self.left, self.right = dict(left), dict(right)
        self.equalities, self.times = tuple(equalities), times
        self.strict, self.pad, self.derived = strict, pad, derived
        self.static, self.recent = static, recent and not static
        self._forget()

    def _forget(self) -> None:
        self._keys = KeyTable({r: self.right[r] for _, r, _ in self.equalities})
        self._held = Elements.empty(self.right)  # in the order of their times
        self._index: tuple[Int64s, Int64s, Int64s] | None = None  # see `_indexed`
        self._waiting = Elements.empty({**self.left, **self.right})

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        left, right = inputs
        if len(right):
            self._take(right)
        found = self._matched(left, frontier) if len(left) else [self._waiting.slice(0, 0)]
        if not self.static:
            self._expire(frontier)
        if len(self._waiting):
            begun = self._waiting.ts <= frontier
            found.append(self._waiting.filter(begun))
            self._waiting = self._waiting.filter(~begun)
        return concat(found)

    # -- the right side --------------------------------------------------------------------------------------------

    def _take(self, right: Elements) -> None:
        """Remember right rows that can be met, in the order of their times and arrival."""
        known = _not_null(right, [self.times[1], *(r for _, r, safe in self.equalities if not safe)])
        right = right.filter(known)
        both = concat([self._held, right])
        if self.static and (right.sign < 0).any():
            both = both.take(surviving(both, INF))
        if self.derived:
            both = in_value_order(both.with_lifetimes(np.zeros(len(both), np.int64), both.exp))
        times = _codes(both.columns[self.times[1]])
        if (np.diff(times) < 0).any():
            both = both.take(np.argsort(times, kind="stable"))
        self._held, self._index = both, None

    def _expire(self, frontier: int) -> None:
        alive = self._held.exp > frontier
        if self.recent and len(self._held):
            order, bounds, _ = self._indexed()
            newest = np.zeros(len(order), np.bool_)
            newest[order[bounds[1:][np.diff(bounds) > 0] - 1]] = True
            alive &= newest
        if not alive.all():
            self._held, self._index = self._held.filter(alive), None

    def _indexed(self) -> tuple[Int64s, Int64s, Int64s]:
        """The held rows by slot and time, where each slot begins, and their times in that order."""
        if self._index is None:
            if len(self._keys) > 1024 + 4 * len(self._held):
                self._keys = KeyTable(self._keys.types)
            slots = self._keys.slots({r: self._held.columns[r] for _, r, _ in self.equalities}, len(self._held))
            order, bounds = by_slot(slots, len(self._keys))
            times = _codes(self._held.columns[self.times[1]])[order]
            self._index = (order, bounds, times)
        return self._index

    # -- the left side ---------------------------------------------------------------------------------------------

    def _matched(self, left: Elements, frontier: int) -> list[Elements]:
        partner = self._partners(left)
        end = np.where(partner >= 0, self._held.exp[partner] if len(self._held) else INF, 0)
        meets = (partner >= 0) & (end > left.ts)
        found = [self._pairs(left, partner, np.flatnonzero(meets), np.minimum(left.exp, end))]
        if self.pad:
            begin = np.where(meets, np.maximum(left.ts, end), left.ts)
            padded = self._padded(left, begin, np.flatnonzero(begin < left.exp))
            later = padded.ts > frontier
            if later.any():
                self._waiting = concat([self._waiting, padded.filter(later)])
                padded = padded.filter(~later)
            found.append(padded)
        return found

    def _partners(self, left: Elements) -> Int64s:
        """The held row that each left row meets, or -1."""
        if not len(self._held):
            return np.full(len(left), -1, np.int64)
        order, bounds, times = self._indexed()
        slots = self._keys.slots({r: left.columns[c] for c, r, _ in self.equalities}, len(left))
        known = _not_null(left, [self.times[0], *(c for c, _, safe in self.equalities if not safe)])
        if not known.all():
            slots = np.where(known, slots, len(bounds))
        return newest_before(slots, _codes(left.columns[self.times[0]]), bounds, times, order, self.strict)

    def _pairs(self, left: Elements, partner: Int64s, picks: Int64s, end: Int64s) -> Elements:
        rows = left if len(picks) == len(left) else left.take(picks)
        theirs = pa.array(partner[picks])
        columns = {**rows.columns, **{n: a.take(theirs) for n, a in self._held.columns.items()}}
        return Elements(rows.ts, end[picks], rows.sign, columns)

    def _padded(self, left: Elements, begin: Int64s, picks: Int64s) -> Elements:
        rows = left.take(picks)
        nulls = {n: pa.nulls(len(rows), t) for n, t in self.right.items()}
        return Elements(begin[picks], rows.exp, rows.sign, {**rows.columns, **nulls})

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The right rows that may be met, and the padded rows that are still to begin."""
        return {"held": (run_of(self._held),), "waiting": (run_of(self._waiting),)}

    def restore(self, state: State, frontier: int) -> None:
        self._forget()
        (held,), (waiting,) = state["held"], state["waiting"]
        self._held, self._waiting = elements_of(held), elements_of(waiting)


def _not_null(rows: Elements, columns: Sequence[str]) -> np.ndarray:
    known = np.ones(len(rows), np.bool_)
    for name in columns:
        if rows.columns[name].null_count:
            known &= np.asarray(rows.columns[name].is_valid())
    return known


def _codes(column: pa.Array) -> Int64s:
    """Integers in the order of the values; anything at nulls."""
    (codes,), _ = encode([column])
    return codes


@njit(cache=True)
def by_slot(slots, count):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Rows by slot, in their own order within each, and where the rows of each slot begin."""
    bounds = np.zeros(count + 1, np.int64)
    for i in range(len(slots)):
        bounds[slots[i] + 1] += 1
    for s in range(count):
        bounds[s + 1] += bounds[s]
    at = bounds[:-1].copy()
    order = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        order[at[slots[i]]] = i
        at[slots[i]] += 1
    return order, bounds


@njit(cache=True)
def newest_before(slots, times, bounds, held, order, strict):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """For each row the last one of its slot with a time at or before its own (before, if `strict`), or -1.

    Slot s has the places `bounds[s]..bounds[s + 1]` of `held` (times, ascending) and `order` (rows).
    """
    found = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        s = slots[i]
        found[i] = -1
        if s + 1 >= len(bounds):
            continue
        low, high = bounds[s], bounds[s + 1]
        begin = low
        while low < high:  # the first place that is too late
            middle = (low + high) >> 1
            if held[middle] < times[i] or (held[middle] == times[i] and not strict):
                low = middle + 1
            else:
                high = middle
        if low > begin:
            found[i] = order[low - 1]
    return found
