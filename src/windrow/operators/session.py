"""SESSION: rows that follow each other by less than a gap, answered when no row can follow any more.

    gap 5      key a   1  3      9   12                       sessions [1, 8) and [9, 17)
               key b       4 6                                session  [4, 11)

A row `gap` or more after the last one of its key opens a new session. A session `[first, last + gap)` is complete once
the frontier reaches its end; it is then seen for that one instant, with its bounds. What is open for a key is one entry
of a hash table, so a row costs O(1). Open sessions are listed in the order of their last rows, which is that of their
ends: those that are complete come first, and nothing is sorted.

`SessionWindow` shows the rows themselves, which wait until their session is complete. `SessionAggregate` groups by the
session as such, so no key is looked up again: sums and counts are added up per open session and no row waits; for other
functions rows wait, and each session is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import Places, PointValues
from windrow.operators.aggregates.call import LINEAR
from windrow.operators.aggregates.partials import Partials
from windrow.operators.aggregates.sweep import MultiplicityChanges, Sweep
from windrow.operators.elements import Elements, Int64s, concat, one
from windrow.operators.keytable import KeyTable
from windrow.operators.protocol import Operator, State
from windrow.operators.state.run import Run, elements_of, ints, run_of

SESSION = "_session"
"""The column that numbers the session of a row while it goes through other operators."""


class OpenSessions:
    """The open sessions of each key; a session has a slot, a small integer, until it is released."""

    def __init__(self, keys: Mapping[str, pa.DataType], gap: int) -> None:
        self.keys, self.gap = dict(keys), gap
        self._table = KeyTable(keys)
        self._current = np.zeros(
            (0, 3), np.int64
        )  # [keys] slot of the open session or -1, time and number of its last row
        self._slots = np.zeros((0, 4), np.int64)  # [slots] as named below
        self._free = np.zeros(0, np.int64)  # slots of no session
        self._rows = 0  # that have come
        self.open = np.zeros(0, np.int64)  # slots in the order of the last row
        self._touched = 0  # where, among these, the sessions of the newest rows begin

    @property
    def first(self) -> Int64s:
        """[slots] The time of the first row."""
        return self._slots[:, 0]

    @property
    def last(self) -> Int64s:
        """[slots] The time of the last row."""
        return self._slots[:, 1]

    @property
    def _key(self) -> Int64s:
        """[slots] The key, or -1 if the slot is free; the fact between is the number of the last row."""
        return self._slots[:, 3]

    @property
    def capacity(self) -> int:
        return len(self._slots)

    @property
    def touched(self) -> Int64s:
        """The slots of the open sessions that the rows given last are of."""
        return self.open[self._touched :]

    def assign(self, rows: Elements) -> Int64s:
        """The slot of each row's session; rows are in the order of time, and none is before one of an earlier call."""
        keys = self._table.slots({k: rows.columns[k] for k in self.keys}, len(rows))
        fresh = np.full((len(self._table) - len(self._current), 3), -1, np.int64)
        self._current = np.concatenate((self._current, fresh))
        sessions, is_last, done = np.empty(len(rows), np.int64), np.zeros(len(rows), np.bool_), 0
        while done < len(rows):
            given = keys, rows.ts, self.gap, self._rows, self._current, self._slots, self._free
            done, used = _follow(*given, done, sessions, is_last)
            self._free = self._free[used:]
            if done < len(rows):
                self._grow()
        self.open, self._touched = _in_order(self.open, self._current, self._slots, self._rows, sessions, is_last)
        self._rows += len(rows)
        return sessions

    def _grow(self) -> None:
        """Make room for twice as many sessions; all slots that there are have one."""
        more = max(64, self.capacity)
        self._free = np.arange(self.capacity, self.capacity + more)
        self._slots = np.concatenate((self._slots, np.full((more, 4), -1, np.int64)))

    def complete(self, frontier: int) -> Int64s:
        """The slots of the sessions that have ended, in the order of their ends."""
        return self.open[: _ended(self.open, self._slots, frontier - self.gap)]

    def ends(self, slots: Int64s) -> Int64s:
        """Where sessions end."""
        return self.last[slots] + self.gap

    def columns(self, slots: Int64s) -> dict[str, pa.Array]:
        """The keys of sessions."""
        return self._table.rows(self._key[slots])

    def release(self, slots: Int64s) -> None:
        """Forget complete sessions, and from time to time the keys that have none."""
        self.open, self._touched = self.open[len(slots) :], max(self._touched - len(slots), 0)
        _forget(slots, self._current, self._slots)
        self._free = np.concatenate((slots, self._free))  # these are in the cache
        alive = self._current[:, 0] >= 0
        if len(alive) > 1024 and 2 * int(alive.sum()) < len(alive):
            old = self._table.compact(alive)
            renumbered = np.full(len(alive) + 1, -1, np.int64)  # the last one stands for a free slot
            renumbered[old] = np.arange(len(old))
            self._current, self._slots[:, 3] = self._current[old], renumbered[self._key]
        if self.capacity > 4096 and 16 * len(self.open) < self.capacity:
            last = int(self.open.max(initial=-1)) + 1
            self._slots, self._free = self._slots[:last].copy(), self._free[self._free < last]

    def table(self) -> pa.Table:
        """The open sessions as a table."""
        keys = {f"key|{n}": a for n, a in self.columns(self.open).items()}
        return pa.table({SESSION: self.open, "_first": self.first[self.open], "_last": self.last[self.open], **keys})

    def restore(self, table: pa.Table) -> None:
        """Go on from a table of open sessions."""
        slots, last = ints(table, SESSION), ints(table, "_last")
        self._table = KeyTable(self.keys)
        keys = self._table.slots({n: one(table.column(f"key|{n}")) for n in self.keys}, len(slots))
        order = np.argsort(last, kind="stable")
        self.open, self._touched, self._rows = slots[order], len(slots), len(slots)
        self._slots = np.full((int(slots.max(initial=-1)) + 1, 4), -1, np.int64)
        self.first[slots], self.last[slots], self._key[slots] = ints(table, "_first"), last, keys
        self._slots[self.open, 2] = np.arange(len(slots))
        self._free = np.flatnonzero(self._key < 0)
        self._current = np.full((len(self._table), 3), -1, np.int64)
        facts = np.stack((self.open, last[order], np.arange(len(slots))), axis=1)
        self._current[keys[order]] = facts  # of two sessions of a key, the newer one


class SessionWindow:
    """The rows of each session of `keys`, at its end, with its bounds in columns `start` and `end`."""

    def __init__(self, keys: Mapping[str, pa.DataType], gap: int, start: str, end: str, type_: pa.DataType) -> None:
        self.keys, self.gap, self.bounds, self.type = dict(keys), gap, (start, end), type_
        self._sessions = OpenSessions(keys, gap)
        self._waiting: list[tuple[Elements, Int64s]] = []  # rows, and the slot of each row's session

    def start(self, ts: int) -> None:
        """Nothing to do."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        self._wait(inputs[0])
        complete = self._sessions.complete(frontier)
        rows, slots = self._taken(inputs[0], complete)
        shown = self._shown(rows, slots)
        self._sessions.release(complete)
        return shown

    def _wait(self, rows: Elements) -> None:
        """Take rows in."""
        if len(rows):
            rows = in_time_order(rows)
            self._waiting.append((rows, self._sessions.assign(rows)))

    def _taken(self, none: Elements, complete: Int64s) -> tuple[Elements, Int64s]:
        """The rows of complete sessions, and the slots of these."""
        done = np.zeros(self._sessions.capacity, np.bool_)
        done[complete] = True
        out: list[tuple[Elements, Int64s]] = []
        rest: list[tuple[Elements, Int64s]] = []
        for held, slots in self._waiting:
            mine = done[slots]
            out.append((held.filter(mine), slots[mine]))
            if not mine.all():
                rest.append((held.filter(~mine), slots[~mine]))
        self._waiting = rest
        if not out:
            return none.slice(len(none)), np.zeros(0, np.int64)
        return concat([e for e, _ in out]), np.concatenate([s for _, s in out])

    def _shown(self, rows: Elements, slots: Int64s) -> Elements:
        """Rows with the bounds of their sessions, alive at the end."""
        end = self._sessions.ends(slots)
        return Elements(end, end + 1, rows.sign, {**rows.columns, **self._bounds(slots)})

    def _bounds(self, slots: Int64s) -> dict[str, pa.Array]:
        both = (self._sessions.first[slots], self._sessions.ends(slots))
        return {name: pa.array(times).cast(self.type) for name, times in zip(self.bounds, both, strict=True)}

    def state(self) -> State:
        """The open sessions with their keys, and the rows that wait."""
        waiting = tuple(run_of(rows, **{SESSION: slots}) for rows, slots in self._waiting)
        return {"open": (Run(self._sessions.table()),), "waiting": waiting}

    def restore(self, state: State, frontier: int) -> None:
        self._sessions.restore(state["open"][0].table)
        self._waiting = [(elements_of(run, SESSION), ints(run.table, SESSION)) for run in state["waiting"]]


class SessionAggregate(SessionWindow):
    """GROUP BY session: one element per session that has rows left after `steps`, which look at each row by itself.

    `columns`: what is shown of the session, by name: a column of its keys, or a bound. `early`: no step reads a bound,
    so rows may be summed as they come.
    """

    def __init__(
        self,
        window: SessionWindow,
        steps: Sequence[Operator],
        columns: Mapping[str, str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        early: bool,
    ) -> None:
        super().__init__(window.keys, window.gap, *window.bounds, window.type)
        self.steps, self.columns, self.aggregations, self.types = (
            tuple(steps),
            dict(columns),
            tuple(aggregations),
            types,
        )
        self.early = early and all(a.kind in LINEAR and not a.distinct for a in aggregations)
        self._partials = Partials(aggregations, types, strict=True)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        if self.early:
            return self._advance_early(in_time_order(inputs[0]), frontier)
        self._wait(inputs[0])
        complete = self._sessions.complete(frontier)
        rows, slots = self._taken(inputs[0], complete)
        number = np.zeros(self._sessions.capacity, np.int64)
        number[complete] = np.arange(len(complete))
        rows, which = self._stepped(self._shown(rows, slots), number[slots], frontier)
        self._partials = Partials(self.aggregations, self.types, strict=True)
        out = self._answered(rows, which, complete)
        self._sessions.release(complete)
        return out

    def _advance_early(self, rows: Elements, frontier: int) -> Elements:
        """Add rows up as they come."""
        slots = self._sessions.assign(rows)
        rows, slots = self._stepped(rows, slots, frontier)
        self._partials.grow(self._sessions.capacity)
        self._partials.add(slots, rows.columns)
        complete = self._sessions.complete(frontier)
        out = self._shown_groups(complete, *self._partials.totals(complete))
        self._partials.forget(complete)
        self._sessions.release(complete)
        self._partials.carry(self._sessions.touched)
        return out

    def _stepped(self, rows: Elements, which: Int64s, frontier: int) -> tuple[Elements, Int64s]:
        """Rows after the steps, and the number that each of those left came with."""
        if not self.steps:
            return rows, which
        rows = rows.with_columns({**rows.columns, SESSION: pa.array(which)})
        for step in self.steps:
            rows = step.advance([rows], frontier)
        return rows, rows.columns[SESSION].to_numpy()

    def _answered(self, rows: Elements, which: Int64s, complete: Int64s) -> Elements:
        """One element per complete session with rows; `which`: the number of each row's session among these."""
        self._partials.grow(max(len(complete), 1))
        sweep = sweep_once(which, np.arange(len(complete)), len(self._partials.rows))
        columns = {c: rows.columns[c] for c in self._partials.columns}
        count, answers = self._partials.advance(sweep, columns, None, 0)
        return self._shown_groups(complete, count[sweep.last], answers, sweep.last)

    def _shown_groups(
        self, complete: Int64s, count: Int64s, answers: Sequence[PointValues], points: Int64s | None = None
    ) -> Elements:
        """Complete sessions that have rows, with their answers, which stand at `points` if not one after the other."""
        left: Places = slice(None) if count.all() else np.flatnonzero(count)
        slots, at = complete[left], left if points is None else points[left]
        end, names = self._sessions.ends(slots), {*self.columns.values()}
        found = self._sessions.columns(slots) if names & self.keys.keys() else {}
        for name, times in zip(self.bounds, (self._sessions.first[slots], end), strict=True):
            found |= {name: pa.array(times).cast(self.type)} if name in names else {}
        shown = {name: found[of] for name, of in self.columns.items()}
        shown |= {a.output: answer.build(at) for a, answer in zip(self.aggregations, answers, strict=True)}
        return Elements(end, end + 1, np.ones(len(slots), np.int8), shown)

    def state(self) -> State:
        """The open sessions with their sums, or the rows that wait."""
        found = dict(super().state())
        if self.early:
            opened = self._sessions.table()
            sums = self._partials.group_columns(ints(opened, SESSION))
            found["open"] = (Run(pa.table({**dict(zip(opened.column_names, opened.columns, strict=True)), **sums})),)
        return found

    def restore(self, state: State, frontier: int) -> None:
        super().restore(state, frontier)
        if self.early:
            opened = state["open"][0].table
            self._partials.restore_groups(ints(opened, SESSION), opened)


def in_time_order(rows: Elements) -> Elements:
    """Rows by time, those of one instant in their order."""
    return rows if (rows.ts[1:] >= rows.ts[:-1]).all() else rows.take(np.argsort(rows.ts, kind="stable"))


def sweep_once(which: Int64s, groups: Int64s, capacity: int) -> Sweep:
    """A sweep in which all rows come at once: two points for each group, before its rows and after them.

    Groups are those that get rows, and the ones given.
    """
    order, slots, ends = _grouped(which, groups, capacity)
    points = np.empty(2 * len(slots), np.int64)
    points[1::2] = ends
    points[2::2] = ends[:-1]
    points[:1] = 0
    feed = MultiplicityChanges(order, np.ones(len(order), np.int64), points)
    return Sweep(slots, 2 * np.arange(len(slots) + 1), np.zeros(2 * len(slots), np.int64), feed)


@njit(cache=True)
def _follow(  # type: ignore[no-untyped-def]
    keys, ts, gap, before, current, slots, free, begin, session, is_last
):  # pragma: no cover - compiled
    """Write the session of each row from `begin` on: up to which row there was a free slot, and how many it took.

    `is_last` is noted of sessions that give way to another.
    """
    used = 0
    for i in range(begin, len(keys)):
        k, t = keys[i], ts[i]
        slot = current[k, 0]
        if slot < 0 or t - current[k, 1] >= gap:
            if used == len(free):
                return i, used
            if slot >= 0:  # it keeps what the key knew of it
                slots[slot, 1], slots[slot, 2] = current[k, 1], current[k, 2]
                if current[k, 2] >= before:
                    is_last[current[k, 2] - before] = True
            slot = free[used]
            used += 1
            slots[slot, 0], slots[slot, 3] = t, k
            current[k, 0] = slot
        current[k, 1], current[k, 2] = t, before + i
        session[i] = slot
    return len(keys), used


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
def _forget(ended, current, slots):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Free the slots of sessions, of which some are still the ones that their keys know."""
    for slot in ended:
        k = slots[slot, 3]
        slots[slot, 3] = -1
        if current[k, 0] == slot:
            current[k, 0] = -1


@njit(cache=True)
def _in_order(open_, current, slots, before, session, is_last):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """All sessions in the order of their last rows, given those that were open, and how many of them no row is of."""
    for k in range(len(current)):
        slot, newest = current[k, 0], current[k, 2]
        if slot >= 0 and newest >= before:
            slots[slot, 1], slots[slot, 2] = current[k, 1], newest
            is_last[newest - before] = True
    out, n = np.empty(len(open_) + np.count_nonzero(is_last), np.int64), 0
    for slot in open_:
        if slots[slot, 2] < before:
            out[n] = slot
            n += 1
    old = n
    for i in range(len(session)):
        if is_last[i]:
            out[n] = session[i]
            n += 1
    return out[:n], old


@njit(cache=True)
def _grouped(which, groups, capacity):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Rows in the order of their groups, the groups, and where each ends; `groups` are there even without rows."""
    ends = np.zeros(capacity + 1, np.int64)
    there = np.zeros(capacity, np.bool_)
    for w in which:
        ends[w + 1] += 1
        there[w] = True
    for g in groups:
        there[g] = True
    for g in range(capacity):
        ends[g + 1] += ends[g]
    at = ends[:capacity].copy()
    order = np.empty(len(which), np.int64)
    for i in range(len(which)):
        order[at[which[i]]] = i
        at[which[i]] += 1
    slots = np.flatnonzero(there)
    return order, slots, ends[1:][slots]
