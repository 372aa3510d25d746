"""Which queries with SLIDE AT MOST are evaluated in a tick, and together (thesis 8.4): what the driver ships to tasks.

A query with a deadline is evaluated at multiples of its period, as one with a period is, while there is time. When the
budget of a tick does not suffice for all that are due, they are taken in the order of their deadlines, each once: what
lies before is skipped, nothing that is answered is wrong, and every answer carries the instant for which it is exact.
Who has to wait is late, and the first of the next tick; so nobody starves.

    d = 0   due in this tick        d < 0   late: due before, and not yet evaluated

The technique says which of a group (queries that one pass answers, their `cost_group`) run together with the one that
is chosen: none but its sub-group, those with the same d, those that are late, or all that are late or due.

At which instant a query is evaluated that is taken once depends on what it reads:

    one stream    slices tell what came when: at its newest multiple, which may lie before this tick
    a join        the synopsis is as of now: at the newest instant of this tick on its grid (`Deadline.grid`)

Law: of the multiples up to the frontier before, only the newest is ever evaluated in this tick, so the state of one
stream is kept for one period longer than windows need; a join's is not. Without a budget nobody waits, and nothing is
kept for it: a home with one is not opened without, nor the other way round. `evaluated` is a pure function of what is
shipped and of the frontier: all tasks and the driver decide alike. Cost: an array operation over all queries with
deadlines, and a step for each that is due; nothing without a budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from windrow.operators.elements import BEGINNING, INF, Int64s
from windrow.runtime.evaluation_costs import RunCost
from windrow.schedule.technique import Joint
from windrow.sharing.query_group import HeldInstants


@dataclass(frozen=True)
class Deadline:
    """A query's period, the instant it was evaluated for last, the group it runs with, and the length of its window.

    `grid`: over a join, a divisor of the period at whose multiples from `fine` on it can be read; before, only at those
    of the period. 0: over one stream.
    """

    period: int
    done: int | None = None
    group: str = ""
    depth: int = 0
    clock: str = ""  # under which name it starts, if not its own
    grid: int = 0
    fine: int = BEGINNING


@dataclass(frozen=True)
class DeadlineProgram:
    """All queries with deadlines, by name in lower case, as arrays, and the seconds there are; None: what it takes."""

    names: tuple[str, ...]
    clocks: tuple[str, ...]
    period: Int64s
    done: Int64s
    group: Int64s  # the number of the group
    depth: Int64s
    grid: Int64s
    fine: Int64s
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
        known = [
            (q.period, BEGINNING if q.done is None else q.done, groups[q.group], q.depth, q.grid, q.fine)
            for q in queries.values()
        ]
        period, done, group, depth, grid, fine = np.array(known, np.int64).reshape(-1, 6).T.copy()
        clocks = tuple(q.clock or name for name, q in queries.items())
        of_groups = tuple(costs.get(g, RunCost()) for g in groups)
        return DeadlineProgram(
            tuple(queries), clocks, period, done, group, depth, grid, fine, of_groups, allowance, previous, joint
        )

    def grids(self, names: Iterable[str]) -> dict[str, int]:
        """The grids of those of these queries that read a join."""
        known = dict(zip(self.names, self.grid.tolist(), strict=True))
        return {n: grid for n in names if (grid := known.get(n.lower(), 0))}


def evaluated(program: DeadlineProgram, frontier: int, starts: Mapping[str, int]) -> dict[str, HeldInstants]:
    """At which instants queries are evaluated by `frontier`; those that wait are left out.

    >>> two = {"a": Deadline(5, 10, "a"), "b": Deadline(3, 9, "b")}
    >>> costs = {"a": RunCost(finish=1.0), "b": RunCost(finish=1.0)}
    >>> {n: tuple(at) for n, at in evaluated(DeadlineProgram.of(two, costs), 20, {"a": 0, "b": 0}).items()}
    {'b': (4, 3, 0, 3), 'a': (3, 2, 1, 5)}
    >>> {n: tuple(at) for n, at in evaluated(DeadlineProgram.of(two, costs, 1.5), 20, {"a": 0, "b": 0}).items()}
    {'b': (6, 1, 0, 3)}
    """
    due = _due(program, frontier, starts)
    everything = list(_runs(program, due))
    needed = sum(_cost(program, due, run) for run in everything)
    if program.allowance is None or needed <= program.allowance:
        return {due.names[i]: due.at(i, k) for k, run in enumerate(everything) for i in run}
    found: dict[str, HeldInstants] = {}
    once = due.once
    left = program.allowance
    for k, run in enumerate(everything):
        cost = _cost(program, once, run)
        if found and cost > left:
            break
        left -= cost
        found |= {due.names[i]: once.at(i, k) for i in run}
    return found


def held_back(
    program: DeadlineProgram, names: Iterable[str], frontier: int, starts: Mapping[str, int]
) -> dict[str, HeldInstants]:
    """The instants of these queries; those that wait have none."""
    found = evaluated(program, frontier, starts)
    return {n: found.get(n.lower(), HeldInstants(0, 0, 0, 1)) for n in names}


@dataclass(frozen=True)
class _Due:
    """Queries that are due: their places in the program, d, the instants if there is time for all; else `newest`."""

    places: list[int]
    names: list[str]
    left: list[int]
    first: list[int]
    count: list[int]
    step: list[int]
    newest: tuple[list[int], list[int]]  # (number, step)

    def at(self, i: int, run: int) -> HeldInstants:
        return HeldInstants(self.first[i], self.count[i], run, self.step[i])

    @property
    def once(self) -> _Due:
        """Each at its newest instant only."""
        first, step = self.newest
        return _Due(self.places, self.names, self.left, first, [1] * len(first), step, self.newest)


def _due(program: DeadlineProgram, frontier: int, starts: Mapping[str, int]) -> _Due:
    period, previous = program.period, program.previous
    begin = np.array([starts.get(clock, INF) for clock in program.clocks], np.int64)
    undone = np.maximum((begin - 1) // period + 1, (program.done + (period - 1) // 2) // period + 1)
    last, fresh = frontier // period, previous // period + 1  # the newest multiple, and the first of this tick
    places = np.flatnonzero((last >= undone) & (begin <= frontier))
    reads_join = program.grid > 0
    fine = reads_join & (frontier // np.maximum(program.grid, 1) * program.grid >= program.fine)
    step = np.where(fine, program.grid, period)
    newest = frontier // step
    first = np.maximum(undone, np.where(reads_join, fresh, np.minimum(last, fresh)))
    some = last >= first  # multiples that can be evaluated; else a join is read between two
    places = places[(some | (newest * step > previous))[places]]
    deadline = undone * period
    left = np.where(deadline > previous, 0, deadline - previous - 1)
    places = places[np.lexsort((program.done[places], left[places]))]
    first, count, every = (
        np.where(some, first, newest),
        np.where(some, last - first + 1, 1),
        np.where(some, period, step),
    )
    return _Due(
        places.tolist(), [program.names[i] for i in places.tolist()], left[places].tolist(), first[places].tolist(),
        count[places].tolist(), every[places].tolist(), (newest[places].tolist(), step[places].tolist()),
    )  # fmt: skip


def _runs(program: DeadlineProgram, due: _Due) -> Iterator[list[int]]:
    """Joint runs, the earliest deadline first, as places among those that are due."""
    group, period = program.group[due.places].tolist(), program.period[due.places].tolist()
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
    cost = program.costs[program.group[due.places[run[0]]]]
    times = max(due.count[i] for i in run)
    return cost.read * times * int(program.depth[[due.places[i] for i in run]].max()) + cost.finish * sum(
        due.count[i] for i in run
    )
