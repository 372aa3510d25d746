"""From partials to entries: two ways, which give the same.

By runs: sums of cells stand in a Fenwick tree per key, so a partial is added in log(cells of its key), and what a
predicate has as of now is found as fast, as the difference at the ends of its runs. For predicates that are few runs,
however many there are.

By members: a partial is added to every synopsis whose predicate has its cell. For predicates that are many runs, or
only known as boxes, which few cells share.

Either way a synopsis is looked at at its own edges, and only if rows have reached it since.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windrow.operators.aggregates.vectors import Bools, Int64s, distinct_values
from windrow.operators.radix import stable_order
from windrow.sharing.cells import CellRuns, CellSpace
from windrow.sharing.edges import Edges
from windrow.sharing.kernels import best_of_members, best_of_runs, members_of_cells, settle_members, settle_runs

FEW_RUNS = 4
"""Predicates of no more runs than this, on average, are settled by runs."""
MOST_MEMBERS = 1 << 22
"""Tests of boxes that are made once for all cells; beyond, they are made for the cells that occur."""


@dataclass(frozen=True)
class SettleTimes:
    """When synopses are looked at: those of a class at the ends of slices that list it, and for the edge ahead.

    `edges[s]` ends slice s, the last slice is open; classes due then are `due[due_at[s]:due_at[s + 1]]`; synopses of
    class c are `synopses[class_at[c]:class_at[c + 1]]`.
    """

    edges: Int64s
    due_at: Int64s
    due: Int64s
    ahead: Int64s
    class_at: Int64s
    synopses: Int64s

    @staticmethod
    def of(edges: Edges, ts: Int64s, class_at: Int64s, synopses: Int64s) -> SettleTimes:
        """The calendar of classes for rows at sorted times."""
        last = int(ts[-1])
        own_at, own = edges.own(ts, last)
        of, now = np.repeat(np.arange(len(own_at) - 1), np.diff(own_at)), own <= last
        closed = distinct_values(own[now])
        slice_ = np.searchsorted(closed, own[now])
        order = stable_order(slice_)
        ahead = np.zeros(len(own_at) - 1, np.int64)
        later, first = np.unique(of[~now], return_index=True)
        ahead[later] = own[~now][first]
        due_at = np.searchsorted(slice_[order], np.arange(len(closed) + 2))
        return SettleTimes(np.append(closed, last), due_at, of[now][order], ahead, class_at, synopses)

    def first(self, ts: Int64s) -> Int64s:
        """The first row of every slice, and the end."""
        return np.concatenate(([0], np.searchsorted(ts, self.edges[:-1], "right"), [len(ts)]))

    @property
    def arrays(self) -> tuple[Int64s, ...]:
        return self.edges, self.due_at, self.due, self.ahead, self.class_at, self.synopses


Summed = tuple[Int64s, Int64s, Int64s]
"""(synopsis, edge, lanes) of entries, those of a synopsis in the order of edges."""


class ByRuns:
    """Synopses of a space whose predicates are few runs."""

    def __init__(self, space: CellSpace, predicates: Int64s) -> None:
        self._base = space.base
        self._segment = np.repeat(np.arange(len(space.base) - 1), np.diff(space.base))
        self._runs: CellRuns = space.runs.take(predicates)
        self._run_in = self._segment[self._runs.low]

    def sums(self, begin: Int64s, cells: Int64s, lanes: Int64s, calendar: SettleTimes) -> Summed:
        """The entries of partials, which are in `cells`; those of slice s are `begin[s]:begin[s + 1]`."""
        runs = self._runs
        found: Summed = settle_runs(
            begin, cells, lanes, *calendar.arrays, self._segment, self._base, runs.first, self._run_in, runs.low,
            runs.high,
        )  # fmt: skip
        return found

    def best(
        self, begin: Int64s, cells: Int64s, best: Int64s, some: Bools, calendar: SettleTimes, at: Int64s, edge: Int64s,
        out: Int64s, filled: Bools,
    ) -> None:  # fmt: skip
        """The greatest codes of entries; those of synopsis a are `at[a]:at[a + 1]`."""
        best_of_runs(
            begin, cells, best, some, calendar.edges, self._segment, self._base, self._runs.low, self._runs.high,
            *self._by_segment, at, edge, out, filled,
        )  # fmt: skip

    @cached_property
    def _by_segment(self) -> tuple[Int64s, Int64s, Int64s]:
        """(whose each run is, first run of every segment, runs by segment)."""
        runs = self._runs
        owner = np.repeat(np.arange(len(runs.first) - 1), np.diff(runs.first))
        order = stable_order(self._run_in)
        return owner, np.searchsorted(self._run_in[order], np.arange(len(self._base))), order


class ByMembers:
    """Synopses of a space whose predicates are looked up cell by cell."""

    def __init__(self, space: CellSpace, predicates: Int64s) -> None:
        self._space, self._count = space, len(predicates)
        self._order = stable_order(predicates)  # synopses by predicate
        self._first = np.searchsorted(predicates[self._order], np.arange(space.predicates + 1))
        self._all = self._members(np.arange(space.cells)) if space.tests <= MOST_MEMBERS else None

    def _members(self, cells: Int64s) -> tuple[Int64s, Int64s]:
        """The synopses of cells: (first of each cell, synopses)."""
        at, predicates = self._space.members(cells)
        found: tuple[Int64s, Int64s] = members_of_cells(at, predicates, self._first, self._order)
        return found

    def _of(self, cells: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """(cells by number, first synopsis of each number, synopses)."""
        if self._all is not None:
            return cells, *self._all
        found, of = np.unique(cells, return_inverse=True)
        return of.reshape(-1).astype(np.int64), *self._members(found)

    def sums(self, begin: Int64s, cells: Int64s, lanes: Int64s, calendar: SettleTimes) -> Summed:
        """The entries of partials, which are in `cells`; those of slice s are `begin[s]:begin[s + 1]`."""
        cell, at, members = self._of(cells)
        found: Summed = settle_members(begin, cell, lanes, *calendar.arrays, at, members, self._count)
        return found

    def best(
        self, begin: Int64s, cells: Int64s, best: Int64s, some: Bools, calendar: SettleTimes, at: Int64s, edge: Int64s,
        out: Int64s, filled: Bools,
    ) -> None:  # fmt: skip
        """The greatest codes of entries; those of synopsis a are `at[a]:at[a + 1]`."""
        best_of_members(begin, *self._of(cells), best, some, calendar.edges, at, edge, out, filled)


def settling(space: CellSpace, predicates: Int64s) -> ByRuns | ByMembers:
    """How the synopses of a space are settled; synopsis i is of predicate `predicates[i]`."""
    if space.boxed or len(space.runs.low) > FEW_RUNS * space.predicates + FEW_RUNS:
        return ByMembers(space, predicates)
    return ByRuns(space, predicates)
