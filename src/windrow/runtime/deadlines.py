"""Deadlines of a live engine: which queries with SLIDE AT MOST are evaluated in a tick, and together (thesis 8.4).

A query with a deadline is evaluated at multiples of its period, as one with a period is, while there is time. When the
budget of a tick does not suffice for all that are due, they are taken in the order of their deadlines, each at the
newest multiple only: what lies before it is skipped, nothing that is answered is wrong, and every answer carries the
instant for which it is exact. Who has to wait is late, and the first of the next tick; so nobody starves.

    d = 0   due in this tick        d < 0   late: due before, and not yet evaluated

The technique says which of a group (queries that one pass answers, `cost_group`) run together with the one that is
chosen: none but its sub-group, those with the same d, those that are late, or all that are late or due.

Law: of the multiples up to the frontier before, only the newest is ever evaluated in this tick. State must be kept for
one period longer than windows need, so that this one can be. `evaluated` is a pure function of what the driver ships
and the frontier, so that all tasks and the driver decide alike. Cost: an array operation over all queries with
deadlines, and a step for each that is due; nothing without a budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windrow.errors import WindrowError
from windrow.operators.elements import BEGINNING, INF, Int64s
from windrow.runtime.evaluation_costs import EvaluationCosts, RunCost
from windrow.schedule.arrival import period_on_arrival
from windrow.schedule.technique import BY_NAME, HYBRID_LATE_PENDING, Joint, Technique
from windrow.sharing.member import Spent
from windrow.sharing.query_group import Instants


@dataclass(frozen=True)
class Deadline:
    """A query's period, the instant it was evaluated for last, the group it runs with, and the length of its window."""

    period: int
    done: int | None = None
    group: str = ""
    depth: int = 0
    clock: str = ""  # under which name it starts, if not its own


@dataclass(frozen=True)
class DeadlineProgram:
    """All queries with deadlines, by name in lower case, as arrays, and the seconds there are; None: what it takes."""

    names: tuple[str, ...]
    clocks: tuple[str, ...]
    period: Int64s
    done: Int64s
    group: Int64s  # the number of the group
    depth: Int64s
    costs: tuple[RunCost, ...]  # by group
    allowance: float | None = None
    previous: int = BEGINNING  # the frontier before this tick
    joint: Joint = Joint.PENDING

    @staticmethod
    def of(
        queries: Mapping[str, Deadline], costs: Mapping[str, RunCost], allowance: float | None = None,
        previous: int = BEGINNING, joint: Joint = Joint.PENDING,
    ) -> DeadlineProgram:  # fmt: skip
        """The program of some queries, and of what runs of their groups cost."""
        groups = {g: i for i, g in enumerate(dict.fromkeys(q.group for q in queries.values()))}
        return DeadlineProgram(
            tuple(queries),
            tuple(q.clock or name for name, q in queries.items()),
            np.array([q.period for q in queries.values()], np.int64),
            np.array([BEGINNING if q.done is None else q.done for q in queries.values()], np.int64),
            np.array([groups[q.group] for q in queries.values()], np.int64),
            np.array([q.depth for q in queries.values()], np.int64),
            tuple(costs.get(g, RunCost()) for g in groups),
            allowance, previous, joint,
        )  # fmt: skip


def evaluated(program: DeadlineProgram, frontier: int, starts: Mapping[str, int]) -> dict[str, Instants]:
    """At which multiples of their periods queries are evaluated by `frontier`; those that wait are left out.

    >>> two = {"a": Deadline(5, 10, "a"), "b": Deadline(3, 9, "b")}
    >>> costs = {"a": RunCost(finish=1.0), "b": RunCost(finish=1.0)}
    >>> evaluated(DeadlineProgram.of(two, costs), 20, {"a": 0, "b": 0})
    {'b': (4, 3, 0), 'a': (3, 2, 1)}
    >>> evaluated(DeadlineProgram.of(two, costs, 1.5), 20, {"a": 0, "b": 0})
    {'b': (6, 1, 0)}
    """
    due = _due(program, frontier, starts)
    everything = list(_runs(program, due))
    needed = sum(_cost(program, due, run) for run in everything)
    if program.allowance is None or needed <= program.allowance:
        return {due.names[i]: (due.first[i], due.count[i], k) for k, run in enumerate(everything) for i in run}
    found: dict[str, Instants] = {}
    newest = due.newest()
    left = program.allowance
    for k, run in enumerate(everything):
        cost = _cost(program, newest, run)
        if found and cost > left:
            break
        left -= cost
        found |= {due.names[i]: (newest.first[i], 1, k) for i in run}
    return found


@dataclass(frozen=True)
class _Due:
    """Queries that are due: their places in the program, the multiples, and d."""

    at: list[int]
    names: list[str]
    first: list[int]
    count: list[int]
    left: list[int]

    def newest(self) -> _Due:
        """The newest multiple of each."""
        newest = [first + count - 1 for first, count in zip(self.first, self.count, strict=True)]
        return _Due(self.at, self.names, newest, [1] * len(newest), self.left)


def _due(program: DeadlineProgram, frontier: int, starts: Mapping[str, int]) -> _Due:
    begin = np.array([starts.get(clock, INF) for clock in program.clocks], np.int64)
    undone = np.maximum(begin - 1, program.done) // program.period + 1
    last = frontier // program.period
    at = np.flatnonzero((last >= undone) & (begin <= frontier))
    fresh = np.minimum(last, program.previous // program.period + 1)
    first = np.maximum(undone, fresh)[at]
    deadline = (undone * program.period)[at]
    left = np.where(deadline > program.previous, 0, deadline - program.previous - 1)
    order = np.lexsort((program.done[at], left))
    at, first, left = at[order], first[order], left[order]
    names = [program.names[i] for i in at.tolist()]
    return _Due(at.tolist(), names, first.tolist(), (last[at] - first + 1).tolist(), left.tolist())


def _runs(program: DeadlineProgram, due: _Due) -> Iterator[list[int]]:
    """Joint runs, the earliest deadline first, as places among those that are due."""
    group, period = program.group[due.at].tolist(), program.period[due.at].tolist()
    members: dict[int, list[int]] = {}
    for i, g in enumerate(group):
        members.setdefault(g, []).append(i)
    taken: set[int] = set()
    for i, g in enumerate(group):
        if i in taken:
            continue
        least = due.left[i]
        most = {Joint.LATE: -1, Joint.PENDING: 0}.get(program.joint, least) if least < 0 else least
        run = [
            j
            for j in members[g]
            if j not in taken and due.left[j] <= most and (program.joint is not Joint.NONE or period[j] == period[i])
        ]
        taken.update(run)
        members[g] = [j for j in members[g] if j not in taken]
        yield run


def _cost(program: DeadlineProgram, due: _Due, run: list[int]) -> float:
    cost = program.costs[program.group[due.at[run[0]]]]
    times = max(due.count[i] for i in run)
    return cost.read * times * int(program.depth[[due.at[i] for i in run]].max()) + cost.finish * sum(
        due.count[i] for i in run
    )


def technique_of(name: str) -> Technique:
    """The technique that a user names."""
    if name not in BY_NAME:
        raise WindrowError(f"unknown schedule {name!r}", hint=f"use one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


AIM = 0.8
"""The share of a tick's budget that is used."""
RECENT = 0.3
"""The weight of the newest tick in running means."""


@dataclass
class DeadlineRecord:
    """What became of a query's deadlines; `asked`: the period in its text, which may be longer than its own."""

    period: int
    asked: int
    group: str
    depth: int
    done: int | None = None
    evaluations: int = 0
    on_time: int = 0
    skipped: int = 0  # multiples that were not evaluated
    late: int = 0  # by how much the last evaluation came after its deadline, in units of the clock
    latest: int = 0  # the most of all
    waited: int = 0  # the sum of all
    clock: str = ""  # under which name it starts, if not its own


@dataclass
class Deadlines:
    """The driver's side: what is known of every query with a deadline."""

    budget: float | None = None  # seconds of a tick, of which what is not needed otherwise is for them
    technique: Technique = HYBRID_LATE_PENDING
    records: dict[str, DeadlineRecord] = field(default_factory=dict)
    costs: EvaluationCosts = field(default_factory=EvaluationCosts)
    _rest: float | None = None  # seconds of a tick without them
    _free: int = BEGINNING  # up to here everything was evaluated

    def __bool__(self) -> bool:
        return bool(self.records)

    def add(self, name: str, record: DeadlineRecord) -> None:
        """Keep the deadlines of one more query."""
        self.records[name] = record

    def drop(self, name: str) -> None:
        """Forget a query."""
        self.records.pop(name, None)

    def period(self, group: str, period: int, depth: int) -> int:
        """The period at which a query that comes is to run, so that it meets others of its group; `depth`: it reads."""
        others = [(r.period, float(r.depth)) for r in self.records.values() if r.group == group]
        if self.budget is None or not depth:
            return period
        cost = self.costs.groups.get(group)
        finish = cost.finish / cost.read if cost is not None and cost.read else None
        return period_on_arrival(self.technique.forming, period, depth, others, finish)

    def program(self, previous: int, until: int | None = None) -> DeadlineProgram | None:
        """What tasks need to know of the next tick; None if all of them are evaluated as if they had a period.

        `previous`: the frontier before it; `until`: time is given from outside, and nothing waits.
        """
        if not self.records or self.budget is None:
            return None
        queries = {n: Deadline(r.period, self.done(r), r.group, r.depth, r.clock) for n, r in self.records.items()}
        allowance = max(0.0, AIM * self.budget - (self._rest or 0.0)) if until is None else None
        return DeadlineProgram.of(queries, self.costs.groups, allowance, previous, self.technique.joint)

    def ran(
        self, found: Mapping[str, Instants], spent: Iterable[Mapping[str, Spent]], frontier: int, previous: int
    ) -> None:
        """Take in what a tick evaluated; `spent`: of each task, by group."""
        self.costs.observe(spent)
        for name, (first, count, _) in found.items():
            record = self.records.get(name)
            if record is not None:
                self._evaluated(record, first, count, frontier, previous)

    def _evaluated(self, record: DeadlineRecord, first: int, count: int, frontier: int, previous: int) -> None:
        newest = (first + count - 1) * record.period
        late, done = 0, self.done(record)
        if done is not None:
            record.skipped += (newest - done) // record.period - count
            due = done + record.period
            late = max(0, frontier - due) if due <= previous else 0
        record.late, record.latest, record.waited = late, max(record.latest, late), record.waited + late
        record.on_time += count if late == 0 else count - 1
        record.done, record.evaluations = newest, record.evaluations + count

    def free(self, frontier: int) -> None:
        """Everything was evaluated up to here."""
        self._free = frontier

    def done(self, record: DeadlineRecord) -> int | None:
        """The instant for which a query was evaluated last; None if it has not been."""
        if self._free == BEGINNING:
            return record.done
        free = self._free // record.period * record.period
        return free if record.done is None else max(free, record.done)

    def observe(self, total: float, spent: float) -> None:
        """A tick is over: how long it took, and how much of that was for queries with deadlines."""
        rest = max(0.0, total - spent)
        self._rest = rest if self._rest is None else self._rest + RECENT * (rest - self._rest)

    def saved(self) -> dict[str, list[int | None]]:
        """For the manifest: the periods of queries, and the instants for which they were evaluated last."""
        return {n: [r.period, self.done(r)] for n, r in self.records.items()}

    def status(self, name: str, frontier: int | None) -> dict[str, Any] | None:
        """What a query's user may know of its deadlines; None if it has none. Times are in units of the clock."""
        record = self.records.get(name)
        if record is None:
            return None
        done = self.done(record)
        due = None if done is None else done + record.period
        waits = 0 if due is None or frontier is None else max(0, frontier - due)
        cost = self.costs.groups.get(record.group, RunCost())
        return {
            "period": record.period, "asked": record.asked, "done": done, "due": due, "late": waits,
            "late_last": record.late, "late_most": record.latest, "late_sum": record.waited,
            "evaluations": record.evaluations, "on_time": record.on_time, "skipped": record.skipped,
            "seconds": round(cost.read * record.depth + cost.finish, 6),
        }  # fmt: skip
