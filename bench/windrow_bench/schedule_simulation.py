"""Schedulers on a simulated clock: throughput, lateness, and every run.

Updates of the synopses are notified every `interval` seconds and take `update` seconds; a run takes the seconds that
its tasks cost together. Both are done one after the other, updates first (algorithms 9 to 11). What is measured is
the thesis's: executions of queries per second, and for every execution by how many updates more than its period it
came after the one before (0 if it was early).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windrow_bench.deadline_scheduler import DeadlineScheduler
from windrow_bench.schedule_model.tasks import PeriodicQuery, SubGroup, Task, deepest
from windrow_bench.schedule_model.technique import IN_STEP, Technique


@dataclass(frozen=True)
class JointRun:
    """One joint run: when it began, in seconds, the update it is exact for, and its tasks."""

    begin: float
    update: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Simulated:
    """What came of a simulation."""

    seconds: float
    executions: dict[str, int]
    lateness: dict[str, float]  # mean updates beyond the period, over the executions of each query
    longest: int  # the most updates beyond its period that a query ever waited
    runs: tuple[JointRun, ...]

    @property
    def throughput(self) -> float:
        """Executions of queries per second."""
        return sum(self.executions.values()) / self.seconds

    @property
    def latency(self) -> float:
        """Mean lateness of a query, in updates."""
        return sum(self.lateness.values()) / max(1, len(self.lateness))


def shortened(task: Task) -> int:
    """How many of a task's sub-groups run more often than they ask for."""
    return sum(part.period > task.period for part in task.parts)


def joint_cost(readers: Sequence[PeriodicQuery | SubGroup]) -> float:
    """What one run of all of them together costs."""
    return sum(deepest(readers).values()) + sum(r.finish for r in readers)


def simulate(
    queries: Sequence[PeriodicQuery],
    technique: Technique = IN_STEP,
    *,
    updates: int,
    interval: float = 1.0,
    update: float = 0.0,
    speed: float = 1.0,
    early: bool = False,
    seconds: Callable[[Sequence[SubGroup]], float] | None = None,
) -> Simulated:
    """Run a workload for so many updates; `speed`: cost units per second, unless `seconds` says what a run takes."""
    scheduler = DeadlineScheduler(queries, technique, early=early)
    takes = seconds or (lambda parts: joint_cost(parts) / speed)
    clock, now, runs = 0.0, 0, list[JointRun]()
    while True:
        while now < updates and clock >= (now + 1) * interval:
            now, clock = now + 1, clock + update
        if now >= updates and clock >= (updates + 1) * interval:
            break
        tasks = scheduler.next(now)
        if not tasks:
            if now >= updates:
                break
            clock = (now + 1) * interval
            continue
        runs.append(JointRun(clock, now, tuple(tasks)))
        clock += takes([p for t in tasks for p in t.parts])
        scheduler.ran(tasks, now)
    return _outcome(queries, runs, updates, max(clock, updates * interval))


def _outcome(queries: Sequence[PeriodicQuery], runs: Sequence[JointRun], updates: int, seconds: float) -> Simulated:
    """Lateness of every query; the wait after its last execution counts if it is late by then."""
    last = dict.fromkeys((q.name for q in queries), 0)
    period = {q.name: q.period for q in queries}
    executions = dict.fromkeys(last, 0)
    waits: dict[str, list[int]] = {name: [] for name in last}
    for run in runs:
        for name in (q for t in run.tasks for q in t.queries):
            executions[name] += 1
            waits[name].append(max(0, run.update - last[name] - period[name]))
            last[name] = run.update
    for name, at in last.items():
        if updates - at > period[name]:
            waits[name].append(updates - at - period[name])
    lateness = {name: sum(mine) / len(mine) if mine else 0.0 for name, mine in waits.items()}
    longest = max((w for mine in waits.values() for w in mine), default=0)
    return Simulated(seconds, executions, lateness, longest, tuple(runs))
