"""Deadlines: which tasks run next, earliest deadline first.

A task ran last at update `done` and should run again no later than `done + period`: its deadline. The time left,

    d(T) = done + period - now

is what the thesis counts down. A task is on time if d >= 0 when it is done, due at d = 0, late below. After a run it
has its full period again, however late it was: catching up would make an overload worse. (In step, a task that was
late by at most half a period is due at its next multiple.)

Two readings of the listings are settled here. A task runs only if its synopses changed since it last ran (else idle
repeats would count as throughput), and the task with the least time left is the one chosen ("any task of V" might
starve it). So no query starves: while a task is late, every other is chosen at most once before it.

`early`: whether tasks that are not due run when nothing else does. The scheduler reads no clock: `now` is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from windrow.schedule.technique import Joint
from windrow_bench.schedule_model.tasks import PeriodicQuery, Task
from windrow_bench.schedule_model.technique import IN_STEP, Technique


@dataclass
class _DeadlineEntry:
    task: Task
    done: int  # the update as of which it ran last
    due: int  # its deadline

    def left(self, now: int) -> int:
        return self.due - now


class DeadlineScheduler:
    """The tasks of a workload and their deadlines."""

    def __init__(
        self,
        queries: Iterable[PeriodicQuery] = (),
        technique: Technique = IN_STEP,
        now: int = 0,
        early: bool = False,
    ) -> None:
        self.technique, self.early = technique, early
        self._entries: list[_DeadlineEntry] = []
        self.replan(queries, now)

    @property
    def tasks(self) -> list[Task]:
        """All tasks."""
        return [e.task for e in self._entries]

    @property
    def done(self) -> dict[str, int]:
        """The update as of which every query ran last."""
        return {q: e.done for e in self._entries for q in e.task.queries}

    def replan(self, queries: Iterable[PeriodicQuery], now: int, done: Mapping[str, int] | None = None) -> None:
        """Form tasks anew for a changed workload. Queries keep when they ran last; new ones begin now."""
        known = {**self.done, **(done or {})}
        self._entries = []
        for task in self.technique.tasks(queries):
            last = min(known.get(q, now) for q in task.queries)
            self._entries.append(_DeadlineEntry(task, last, self._deadline(task, last)))

    def next(self, now: int) -> list[Task]:
        """The tasks to run together now, none if nothing is to be done; `ran` must follow."""
        ready = [e for e in self._entries if e.done < now]
        if not ready:
            return []
        first = min(ready, key=lambda e: (e.left(now), e.done))
        least = first.left(now)
        if least > 0 and not self.early:
            return []
        if self.technique.joint is Joint.NONE:
            return [first.task]
        most = self._most(least)
        return [e.task for e in ready if e is first or (e.task.group == first.task.group and e.left(now) <= most)]

    def _most(self, least: int) -> int:
        """The most time that tasks may have left to run together with one that has the least."""
        match self.technique.joint:
            case Joint.LATE if least < 0:
                return -1
            case Joint.PENDING if least < 0:
                return 0
        return least

    def ran(self, tasks: Sequence[Task], at: int) -> None:
        """Tasks have run on the synopses as of update `at`."""
        mine = set(map(id, tasks))
        for entry in self._entries:
            if id(entry.task) in mine:
                entry.done, entry.due = at, self._deadline(entry.task, at)

    def _deadline(self, task: Task, done: int) -> int:
        beyond = done % task.period  # since its last multiple
        kept = self.technique.in_step and 2 * beyond <= task.period
        return done + task.period - (beyond if kept else 0)

    def late(self, now: int) -> dict[str, int]:
        """By how many updates each query is late now; those that are not are left out."""
        return {
            q: now - e.done - part.period
            for e in self._entries
            for part in e.task.parts
            if now - e.done > part.period
            for q in part.queries
        }
