"""SESSION: rows that follow each other by less than a gap, answered when no row can follow any more.

    gap 5      key a   1  3      9   12                       sessions [1, 8) and [9, 17)
               key b       4 6                                session  [4, 11)

A row `gap` or more after the last one of its key opens a new session. A session `[first, last + gap)` is complete once
the frontier reaches its end; it is then seen for that one instant, with its bounds. What is open for a key is one entry
of a hash table, so a row costs O(1).

`SessionWindow` shows the rows themselves, which wait until their session is complete. `SessionAggregate` groups by the
session as such, so no key is looked up again: sums and counts are kept per open session and no row waits; for other
functions rows wait, and each session is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.aggregates import Aggregation
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
        self._current = np.zeros(0, np.int64)  # [keys] slot of the open session of a key, or -1
        self.first = np.zeros(0, np.int64)  # [slots]
        self.last = np.zeros(0, np.int64)
        self._key = np.full(0, -1, np.int64)  # [slots] the key, or -1 if the slot is free

    @property
    def capacity(self) -> int:
        return len(self._key)

    def assign(self, rows: Elements) -> Int64s:
        """The slot of each row's session; rows are in the order of time."""
        keys = self._table.slots({k: rows.columns[k] for k in self.keys}, len(rows))
        current = np.full(len(self._table), -1, np.int64)
        current[: len(self._current)] = self._current
        self._current = current
        free = np.flatnonzero(self._key < 0)
        more = max(_opens(keys, rows.ts, self.gap, current, self.last) - len(free), 0)
        if more:
            free = np.concatenate((free, np.arange(self.capacity, self.capacity + more)))
            self.first, self.last = (np.concatenate((a, np.zeros(more, np.int64))) for a in (self.first, self.last))
            self._key = np.concatenate((self._key, np.full(more, -1, np.int64)))
        return np.asarray(_follow(keys, rows.ts, self.gap, current, self.first, self.last, self._key, free))

    def complete(self, frontier: int) -> Int64s:
        """The slots of the sessions that have ended."""
        return np.flatnonzero((self._key >= 0) & (self.last <= frontier - self.gap))

    def ends(self, slots: Int64s) -> Int64s:
        """Where sessions end."""
        return self.last[slots] + self.gap

    def columns(self, slots: Int64s) -> dict[str, pa.Array]:
        """The keys of sessions."""
        return self._table.rows(self._key[slots])

    def release(self, slots: Int64s) -> None:
        """Forget sessions, and from time to time the keys that have none."""
        keys = self._key[slots]
        mine = self._current[keys] == slots  # else the key has a newer one
        self._current[keys[mine]] = -1
        self._key[slots] = -1
        open_ = self._current >= 0
        if len(open_) > 1024 and 2 * int(open_.sum()) < len(open_):
            old = self._table.compact(open_)
            renumbered = np.full(len(open_) + 1, -1, np.int64)  # the last one stands for a free slot
            renumbered[old] = np.arange(len(old))
            self._current, self._key = self._current[old], renumbered[self._key]
        if self.capacity > 4096 and 4 * int((self._key >= 0).sum()) < self.capacity:
            last = int(np.flatnonzero(self._key >= 0).max(initial=-1)) + 1
            self.first, self.last, self._key = self.first[:last], self.last[:last], self._key[:last]

    def table(self) -> pa.Table:
        """The open sessions as a table."""
        slots = np.flatnonzero(self._key >= 0)
        keys = {f"key|{n}": a for n, a in self.columns(slots).items()}
        return pa.table({SESSION: slots, "_first": self.first[slots], "_last": self.last[slots], **keys})

    def restore(self, table: pa.Table) -> None:
        """Go on from a table of open sessions."""
        slots = ints(table, SESSION)
        capacity = int(slots.max(initial=-1)) + 1
        self.first, self.last = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
        self.first[slots], self.last[slots] = ints(table, "_first"), ints(table, "_last")
        self._table = KeyTable(self.keys)
        keys = self._table.slots({n: one(table.column(f"key|{n}")) for n in self.keys}, len(slots))
        self._key = np.full(capacity, -1, np.int64)
        self._key[slots] = keys
        self._current = np.full(len(self._table), -1, np.int64)
        self._current[keys] = slots


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
        out = self._answered(rows, which, complete, np.arange(len(complete)))
        self._sessions.release(complete)
        return out

    def _advance_early(self, rows: Elements, frontier: int) -> Elements:
        """Sum rows as they come."""
        slots = self._sessions.assign(rows) if len(rows) else np.zeros(0, np.int64)
        rows, slots = self._stepped(rows, slots, frontier)
        complete = self._sessions.complete(frontier)
        out = self._answered(rows, slots, complete, complete)
        self._partials.forget(complete)
        self._sessions.release(complete)
        return out

    def _stepped(self, rows: Elements, which: Int64s, frontier: int) -> tuple[Elements, Int64s]:
        """Rows after the steps, and the number that each of those left came with."""
        if not self.steps:
            return rows, which
        rows = rows.with_columns({**rows.columns, SESSION: pa.array(which)})
        for step in self.steps:
            rows = step.advance([rows], frontier)
        return rows, rows.columns[SESSION].to_numpy()

    def _answered(self, rows: Elements, which: Int64s, complete: Int64s, groups: Int64s) -> Elements:
        """One element per complete session with rows; `which` and `groups`: slots of partials."""
        self._partials.grow(max(self._sessions.capacity, 1))
        sweep = sweep_once(which, groups, len(self._partials.rows))
        columns = {c: rows.columns[c] for c in self._partials.columns}
        count, answers = self._partials.advance(sweep, columns, None, 0)
        at = np.full(len(self._partials.rows), -1, np.int64)
        at[sweep.slots] = sweep.last
        points = at[groups]
        left = count[points] > 0
        points, slots = points[left], complete[left]
        found = {**self._sessions.columns(slots), **self._bounds(slots)}
        shown = {name: found[of] for name, of in self.columns.items()}
        shown |= {a.output: answer.build(points) for a, answer in zip(self.aggregations, answers, strict=True)}
        end = self._sessions.ends(slots)
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
def _opens(keys, ts, gap, current, last):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """How many sessions the rows open."""
    before = np.empty(len(current), np.int64)
    known = current >= 0
    for k in range(len(current)):
        if known[k]:
            before[k] = last[current[k]]
    count = 0
    for i in range(len(keys)):
        k = keys[i]
        if not known[k] or ts[i] - before[k] >= gap:
            count += 1
            known[k] = True
        before[k] = ts[i]
    return count


@njit(cache=True)
def _follow(keys, ts, gap, current, first, last, key, free):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The session of each row; opens sessions in free slots."""
    session = np.empty(len(keys), np.int64)
    used = 0
    for i in range(len(keys)):
        k = keys[i]
        c = current[k]
        if c < 0 or ts[i] - last[c] >= gap:
            c = free[used]
            used += 1
            first[c] = ts[i]
            key[c] = k
            current[k] = c
        last[c] = ts[i]
        session[i] = c
    return session


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
