"""SESSION: rows that follow each other by less than a gap, answered when no row can follow any more.

    gap 5      key a   1  3      9   12                       sessions [1, 8) and [9, 17)
               key b       4 6                                session  [4, 11)

A row `gap` or more after the last one of its key opens a new session. A session `[first, last + gap)` is complete once
the frontier reaches its end; it is then seen for that one instant, with its bounds (`open_sessions`).

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
from windrow.operators.aggregates.vectors import fixed
from windrow.operators.elements import Elements, Int64s, concat
from windrow.operators.open_sessions import SESSION, OpenSessions
from windrow.operators.protocol import Operator, State, Unclocked
from windrow.operators.state.run import Run, elements_of, ints, run_of


class SessionWindow(Unclocked):
    """The rows of each session of `keys`, at its end, with its bounds in columns `start` and `end`."""

    def __init__(self, keys: Mapping[str, pa.DataType], gap: int, start: str, end: str, type_: pa.DataType) -> None:
        self.keys, self.gap, self.bounds, self.type = dict(keys), gap, (start, end), type_
        self._sessions = OpenSessions(keys, gap)
        self._waiting: list[tuple[Elements, Int64s]] = []  # rows, and the slot of each row's session

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        self._wait(inputs[0])
        complete = self._sessions.complete(frontier)
        rows, slots = self._taken(inputs[0], complete)
        shown = self._shown(rows, slots)
        self._release(complete)
        return shown

    def _wait(self, rows: Elements) -> None:
        """Take rows in."""
        if len(rows):
            rows = in_time_order(rows)
            self._waiting.append((rows, self._sessions.assign(rows)))

    def _taken(self, none: Elements, complete: Int64s) -> tuple[Elements, Int64s]:
        """The rows of complete sessions, and the slots of these."""
        done = np.zeros(self._sessions.used, np.bool_)
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
        *both, _ = self._sessions.bounds(slots)
        bounds = {name: fixed(times, None, self.type) for name, times in zip(self.bounds, both, strict=True)}
        return Elements(both[1], both[1] + 1, rows.sign, {**rows.columns, **bounds})

    def _release(self, complete: Int64s) -> None:
        """Forget sessions of which no row waits; those that stay may get other numbers."""
        given = self._sessions.used
        kept = self._sessions.release(complete)
        if kept is not None and self._waiting:
            number = np.empty(given, np.int64)
            number[kept] = np.arange(len(kept))
            self._waiting = [(rows, number[slots]) for rows, slots in self._waiting]

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
        number = np.zeros(self._sessions.used, np.int64)
        number[complete] = np.arange(len(complete))
        rows, which = self._stepped(self._shown(rows, slots), number[slots], frontier)
        self._partials = Partials(self.aggregations, self.types, strict=True)
        out = self._answered(rows, which, complete)
        self._release(complete)
        return out

    def _advance_early(self, rows: Elements, frontier: int) -> Elements:
        """Add rows up as they come."""
        slots = self._sessions.assign(rows)
        rows, slots = self._stepped(rows, slots, frontier)
        self._partials.grow(self._sessions.used)
        self._partials.add(slots, rows.columns)
        complete = self._sessions.complete(frontier)
        out = self._shown_groups(complete, *self._partials.totals(complete))
        kept = self._sessions.release(complete)
        if kept is not None:
            self._partials.keep(kept)
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
        (*both, keys), names = self._sessions.bounds(slots), {*self.columns.values()}
        found = self._sessions.columns(keys) if names & self.keys.keys() else {}
        for name, times in zip(self.bounds, both, strict=True):
            found |= {name: fixed(times, None, self.type)} if name in names else {}
        shown = {name: found[of] for name, of in self.columns.items()}
        shown |= {a.output: answer.build(at) for a, answer in zip(self.aggregations, answers, strict=True)}
        return Elements(both[1], both[1] + 1, np.ones(len(slots), np.int8), shown)

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
    return rows.take(np.argsort(rows.ts, kind="stable")) if _goes_back(rows.ts) else rows


@njit(cache=True)
def _goes_back(ts):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Whether some time is less than the one before it; without a way out early, so that many are compared at once."""
    found = 0
    for i in range(1, len(ts)):
        found += ts[i] < ts[i - 1]
    return found > 0


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
