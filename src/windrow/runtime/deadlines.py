"""Deadlines of a live engine, on the driver: what is known of every query with SLIDE AT MOST, and what status says.

Before a tick `program` says which of them there are, what runs cost and how many seconds there are for them; after it
`ran` takes in what was evaluated. A query that cannot be late is evaluated at every multiple, and `unscheduled` has the
reason.

Over a join, queries that read one synopsis are evaluated, when they are late, at multiples of what all their periods
and windows have in common: its grid. The synopsis is cut there, so it must not be much finer than windows are; else it
is each query's own period. A grid that becomes finer serves a window when all that it holds came since.

Cost: a record per query; nothing for queries without deadlines.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from windrow.errors import WindrowError
from windrow.operators.elements import BEGINNING
from windrow.runtime.deadline_program import Deadline, DeadlineProgram
from windrow.runtime.evaluation_costs import EvaluationCosts, RunCost
from windrow.schedule.arrival import period_on_arrival
from windrow.schedule.technique import BY_NAME, Technique
from windrow.sharing.member import Spent
from windrow.sharing.query_group import HeldInstants
from windrow.store.manifest_values import LastEvaluation

MOST_CUTS = 1024
"""Into how many parts a grid may cut the longest window that is read on it."""


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
    synopsis: Hashable = None  # the synopsis over a join that it reads; None: it reads one stream
    grid: int = 0
    fine: int = BEGINNING  # from here on the grid serves it


@dataclass
class Deadlines:
    """The driver's side: what is known of every query with a deadline."""

    budget: float | None = None  # seconds of a tick, of which what is not needed otherwise is for them
    technique: Technique = BY_NAME["late-pending"]
    records: dict[str, DeadlineRecord] = field(default_factory=dict)
    costs: EvaluationCosts = field(default_factory=EvaluationCosts)
    unscheduled: dict[str, tuple[int, str]] = field(default_factory=dict)  # periods of those never late, and why
    _grids: dict[Hashable, int] = field(default_factory=dict)
    _rest: float | None = None  # seconds of a tick without them
    _free: int = BEGINNING  # up to here everything was evaluated

    def __bool__(self) -> bool:
        return bool(self.records)

    def add(self, name: str, record: DeadlineRecord) -> None:
        """Keep the deadlines of one more query."""
        self.records[name] = record
        self.unscheduled.pop(name, None)

    def drop(self, name: str) -> None:
        """Forget a query."""
        self.records.pop(name, None)
        self.unscheduled.pop(name, None)

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
        self._cut(previous)
        queries = {
            n: Deadline(r.period, self.done(r), r.group, r.depth, r.clock, r.grid, r.fine)
            for n, r in self.records.items()
        }
        allowance = max(0.0, AIM * self.budget - (self._rest or 0.0)) if until is None else None
        return DeadlineProgram.of(queries, self.costs.groups, allowance, previous, self.technique.joint)

    def _cut(self, previous: int) -> None:
        """The grids of all joins; one that becomes finer now cuts what comes after `previous`."""
        readers: dict[Hashable, list[DeadlineRecord]] = {}
        for record in self.records.values():
            if record.synopsis is not None:
                readers.setdefault(record.synopsis, []).append(record)
        for synopsis, mine in readers.items():
            grid = gcd(*(r.period for r in mine), *(r.depth for r in mine))
            cut = max(r.depth for r in mine) <= MOST_CUTS * grid
            finer = synopsis in self._grids and grid % self._grids[synopsis]
            for record in mine:
                if finer and record.grid:
                    record.fine = previous + record.depth
                record.grid = grid if cut else record.period
            self._grids[synopsis] = grid
        self._grids = {s: g for s, g in self._grids.items() if s in readers}

    def ran(self, found: Mapping[str, HeldInstants], spent: Mapping[str, Spent], frontier: int, previous: int) -> None:
        """Take in what a tick evaluated; `spent`: by group."""
        self.costs.observe(spent)
        for name, at in found.items():
            record = self.records.get(name)
            if record is not None:
                self._evaluated(record, at, frontier, previous)

    def _evaluated(self, record: DeadlineRecord, at: HeldInstants, frontier: int, previous: int) -> None:
        newest, period = (at.first + at.times - 1) * at.step, record.period
        late, due = 0, self.due(record)
        if due is not None:
            passed = newest // period - (due // period - 1)  # multiples since, with this one
            record.skipped += max(0, passed - at.times)
            late = max(0, frontier - due) if due <= previous else 0
        record.late, record.latest, record.waited = late, max(record.latest, late), record.waited + late
        record.on_time += at.times if late == 0 else at.times - 1
        record.done, record.evaluations = newest, record.evaluations + at.times

    def free(self, frontier: int) -> None:
        """Everything was evaluated up to here."""
        self._free = frontier

    def done(self, record: DeadlineRecord) -> int | None:
        """The instant for which a query was evaluated last; None if it has not been."""
        if self._free == BEGINNING:
            return record.done
        free = self._free // record.period * record.period
        return free if record.done is None else max(free, record.done)

    def due(self, record: DeadlineRecord) -> int | None:
        """The multiple that is next: the one after that which a query was evaluated at, or nearest to."""
        done = self.done(record)
        return None if done is None else ((done + (record.period - 1) // 2) // record.period + 1) * record.period

    def observe(self, total: float, spent: float) -> None:
        """A tick is over: how long it took, and how much of that was for queries with deadlines."""
        rest = max(0.0, total - spent)
        self._rest = rest if self._rest is None else self._rest + RECENT * (rest - self._rest)

    def saved(self) -> dict[str, LastEvaluation]:
        """For the manifest: the periods of queries, and the instants for which they were evaluated last.

        Without a budget periods are those asked for, and all are evaluated at their newest multiple: nothing to say.
        """
        return (
            {} if self.budget is None else {n: LastEvaluation(r.period, self.done(r)) for n, r in self.records.items()}
        )

    def status(self, name: str, frontier: int | None) -> dict[str, Any] | None:
        """What a query's user may know of its deadlines; None if it has none. Times are in units of the clock."""
        if name in self.unscheduled:
            return self._unscheduled(name, frontier)
        record = self.records.get(name)
        if record is None:
            return None
        due = self.due(record)
        waits = 0 if due is None or frontier is None else max(0, frontier - due)
        cost = self.costs.groups.get(record.group, RunCost())
        return {
            "scheduled": True, "why": None,
            "period": record.period, "asked": record.asked, "done": self.done(record), "due": due, "late": waits,
            "late_last": record.late, "late_most": record.latest, "late_sum": record.waited,
            "evaluations": record.evaluations, "on_time": record.on_time, "skipped": record.skipped,
            "seconds": round(cost.read * record.depth + cost.finish, 6),
        }  # fmt: skip

    def _unscheduled(self, name: str, frontier: int | None) -> dict[str, Any]:
        """Of a query that is evaluated at every multiple, whatever that takes."""
        period, why = self.unscheduled[name]
        done = None if frontier is None else frontier // period * period
        return {
            "scheduled": False, "why": why, "period": period, "asked": period,
            "done": done, "due": None if done is None else done + period, "late": 0,
        }  # fmt: skip
