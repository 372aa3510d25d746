"""Open sessions: for each key the one that a next row may go on with, all of them in the order of their ends.

What is open for a key is one entry of a hash table, so a row costs O(1): it goes on with the session, or a new one
takes its place. The older one stays until it is released. Sessions are listed in the order of their last rows, which is
that of their ends: those that are complete come first, and nothing is sorted.

Sessions are numbered as they open, so those of one time lie together. Once most numbers are of sessions that are over,
the others are numbered anew: O(1) for each that was released.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.elements import Elements, Int64s, one
from windrow.operators.keytable import KeyTable
from windrow.operators.state.run import ints

SESSION = "_session"
"""The column that numbers the session of a row while it goes through other operators."""


class OpenSessions:
    """The open sessions of each key; a session has a slot, a small integer, until others are numbered anew."""

    def __init__(self, keys: Mapping[str, pa.DataType], gap: int) -> None:
        self.keys, self.gap = dict(keys), gap
        self._table = KeyTable(keys)
        # [keys] the slot of the open session or -1, the time and the number of its last row, and nothing, so that what
        # a row changes is in one line of the cache
        self._current = np.zeros((0, 4), np.int64)
        # [slots] the time of the first row, that of the last one, its number, and the key; of a session that its key
        # knows, only the key knows the last row while rows are followed
        self._slots = np.zeros((0, 4), np.int64)
        self.used = 0  # slots that were given
        self._rows = 0  # that have come
        self.open = np.zeros(0, np.int64)  # slots in the order of the last row
        self._touched = 0  # where, among these, the sessions of the newest rows begin

    @property
    def touched(self) -> Int64s:
        """The slots of the open sessions that the rows given last are of."""
        return self.open[self._touched :]

    def assign(self, rows: Elements) -> Int64s:
        """The slot of each row's session; rows are in the order of time, and none is before one of an earlier call."""
        keys = self._table.slots({k: rows.columns[k] for k in self.keys}, len(rows))
        if len(self._table) > len(self._current):
            fresh = np.full((len(self._table) - len(self._current), 4), -1, np.int64)
            self._current = np.concatenate((self._current, fresh))
        if self.used + len(rows) > len(self._slots):  # each row may open one; what is not used is not touched
            slots = np.empty((max(self.used + len(rows), 2 * len(self._slots)), 4), np.int64)
            slots[: self.used] = self._slots[: self.used]
            self._slots = slots
        sessions, is_last = np.empty(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        given = keys, rows.ts, self.gap, self._rows, self._current, self._slots, self.used
        self.used = _follow(*given, sessions, is_last)
        self.open, self._touched = _in_order(self.open, self._current, self._slots, self._rows, sessions, is_last)
        self._rows += len(rows)
        return sessions

    def complete(self, frontier: int) -> Int64s:
        """The slots of the sessions that have ended, in the order of their ends."""
        return self.open[: _ended(self.open, self._slots, frontier - self.gap)]

    def bounds(self, slots: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Where sessions begin and end, and the number of their keys."""
        return _bounds(self._slots, slots, self.gap)

    def columns(self, keys: Int64s) -> dict[str, pa.Array]:
        """Keys by number."""
        return self._table.rows(keys)

    def release(self, slots: Int64s) -> Int64s | None:
        """Forget complete sessions, and from time to time the keys that have none.

        Returns the old slots in the order of the new ones if sessions are numbered anew.
        """
        if not len(slots):
            return None
        self.open, self._touched = self.open[len(slots) :], max(self._touched - len(slots), 0)
        _forget(slots, self._current, self._slots)
        kept = self.open if 2 * len(self.open) < self.used else None
        if kept is not None:
            self._slots, self.used, self.open = self._slots.take(kept, axis=0), len(kept), np.arange(len(kept))
            _renumber(self._current, self._slots)
        alive = self._current[:, 0] >= 0
        if len(alive) > 1024 and 2 * int(alive.sum()) < len(alive):
            old = self._table.compact(alive)
            renumbered = np.full(len(alive), -1, np.int64)
            renumbered[old] = np.arange(len(old))
            used = self._slots[: self.used, 3]
            self._current, used[:] = self._current[old], renumbered[used]
        return kept

    def table(self) -> pa.Table:
        """The open sessions as a table."""
        first, last, _, numbers = (self._slots[self.open, i] for i in range(4))
        keys = {f"key|{n}": a for n, a in self.columns(numbers).items()}
        return pa.table({SESSION: self.open, "_first": first, "_last": last, **keys})

    def restore(self, table: pa.Table) -> None:
        """Go on from a table of open sessions."""
        slots, first, last = (ints(table, name) for name in (SESSION, "_first", "_last"))
        self._table = KeyTable(self.keys)
        keys = self._table.slots({n: one(table.column(f"key|{n}")) for n in self.keys}, len(slots))
        order = np.argsort(last, kind="stable")
        self.open, number = slots[order], np.arange(len(slots))
        self._touched = self._rows = len(slots)
        self._slots = np.full((int(slots.max(initial=-1)) + 1, 4), -1, np.int64)
        self._slots[self.open] = np.stack((first[order], last[order], number, keys[order]), axis=1)
        self.used = len(self._slots)
        self._current = np.full((len(self._table), 4), -1, np.int64)
        # of two sessions of a key, the newer one
        self._current[keys[order], :3] = np.stack((self.open, last[order], number), axis=1)


@njit(cache=True)
def _follow(  # type: ignore[no-untyped-def]
    keys, ts, gap, before, current, slots, used, session, is_last
):  # pragma: no cover - compiled
    """Write the session of each row; returns how many slots are used then.

    `is_last` is noted of sessions that give way to another.
    """
    for i in range(len(keys)):
        k, t = np.uint64(keys[i]), ts[i]  # unsigned: no index is looked at for being negative
        slot = current[k, 0]
        if slot < 0 or t - current[k, 1] >= gap:
            if slot >= 0:  # it keeps what the key knew of it
                slots[np.uint64(slot), 1], slots[np.uint64(slot), 2] = current[k, 1], current[k, 2]
                if current[k, 2] >= before:
                    is_last[np.uint64(current[k, 2] - before)] = True
            slot = used
            used += 1
            slots[np.uint64(slot), 0], slots[np.uint64(slot), 3] = t, keys[i]
            current[k, 0] = slot
        current[k, 1], current[k, 2] = t, before + i
        session[i] = slot
    return used


@njit(cache=True)
def _ended(open_, slots, bound):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """How many sessions, which are in the order of their last rows, have none after `bound`."""
    low, high = 0, len(open_)
    while low < high:
        middle = (low + high) // 2
        if slots[open_[middle], 1] <= bound:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _bounds(slots, which, gap):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The first instant of sessions, their ends, and the number of their keys."""
    first, end, key = np.empty(len(which), np.int64), np.empty(len(which), np.int64), np.empty(len(which), np.int64)
    for i in range(len(which)):
        slot = np.uint64(which[i])
        first[i], end[i], key[i] = slots[slot, 0], slots[slot, 1] + gap, slots[slot, 3]
    return first, end, key


@njit(cache=True)
def _forget(ended, current, slots):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Sessions are over, of which some are still the ones that their keys know."""
    for slot in ended:
        k = np.uint64(slots[np.uint64(slot), 3])
        if current[k, 0] == slot:
            current[k, 0] = -1


@njit(cache=True)
def _renumber(current, slots):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Tell keys the new slots of the sessions that they know."""
    for i in range(len(slots)):  # in the order of their last rows: of two sessions of a key, it knows the later one
        current[np.uint64(slots[i, 3]), 0] = i


@njit(cache=True)
def _in_order(open_, current, slots, before, session, is_last):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """All sessions in the order of their last rows, given those that were open, and how many of them no row is of."""
    for k in range(len(current)):
        slot, newest = current[k, 0], current[k, 2]
        if slot >= 0 and newest >= before:
            slots[slot, 1], slots[slot, 2] = current[k, 1], newest
            is_last[newest - before] = True
    out, n = np.empty(len(open_) + np.count_nonzero(is_last) + 1, np.int64), 0
    for slot in open_:  # written in any case, and written over if it does not count: no branch to guess
        out[n] = slot
        n += slots[slot, 2] < before
    old = n
    for i in range(len(session)):
        out[n] = session[i]
        n += is_last[i]
    return out[:n], old
