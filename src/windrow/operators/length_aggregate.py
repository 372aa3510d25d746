"""Continuous aggregation for many queries whose windows have different lengths.

A row comes once, with the set of queries that want it and the instant at which it came (`route.py`), and leaves for
each of them when its window is over. Rows are kept once, for the longest window, in the order of time, and those of a
group and a set are a list with running sums; a query's window is two places in it:

    rows of a group   ──r──r─────r──r────r───r──►  time
    RANGE 10                        [========)
    RANGE 30             [===================)         what it holds: the difference of the sums at its two ends

So a length costs a comparison for each row that leaves, in a compiled loop (`aggregates/length_kernels.py`): no rows
are copied, sorted or kept for it.

Law: the output is that of `CellAggregate` over a row for each length, less stretches that HAVING drops. Invariant: rows
are in the order of time, and every one is in the longest window. State: the rows, as they came. Cost per advance: a
sort of the new rows by group, and a step for each row that comes or leaves and each query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow.errors import StateError
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.length_kernels import sweep_lengths
from windrow.operators.aggregates.pending import RowEnds
from windrow.operators.aggregates.reduced import Reduction, kept_columns
from windrow.operators.aggregates.row_lists import RowLists
from windrow.operators.aggregates.vectors import Int64s, distinct_values, raw
from windrow.operators.elements import BEGINNING, INF, Elements
from windrow.operators.protocol import State
from windrow.operators.query_aggregate import CELL, QueryAggregate
from windrow.operators.radix import stable_order
from windrow.operators.terms import QUERIES, Router

_LONG = 1 << 61
"""A window that nothing leaves."""


class LengthAggregate(QueryAggregate):
    """GROUP BY for many queries; `since`: the column that says when a row came into the windows."""

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        router: Router,
        since: str,
    ) -> None:
        super().__init__(keys, aggregations, types, router)
        self.since = since
        self._router = router
        self._rows = RowLists(self._width)
        self._frontier = BEGINNING
        self._everyone = False  # all groups are to be looked at

    @cached_property
    def reduction(self) -> Reduction:
        """How rows may be reduced before they come here: they stay rows, since they end more than once."""
        found = Reduction((*self.keys, QUERIES, self.since), self.aggregations, self._types, True)
        found.divides = False
        return found

    def follow(self, other: QueryAggregate) -> None:
        """Go on for the queries of another: rows say who wants them, so only the ends of windows are to be found."""
        assert isinstance(other, LengthAggregate)
        longest = self._longest
        super().follow(other)
        self._router, self._everyone = other._router, True
        self._rows.pack(self._groups.slots, self._sets.members[0])
        if self._longest < longest:  # rows of those who have left are over
            for rows in self._pending.take(INF):
                self._keep(replace(rows, exp=np.minimum(rows.exp, raw(rows.columns[self.since]) + self._longest)))

    def _lives(self) -> tuple[Int64s, Int64s]:
        """How long the queries see rows, and from when on."""
        lives, numbers = self._router.lives, self._sets.numbers
        assert lives is not None
        kind = self._router.classes(numbers)
        starts = np.maximum(lives.start[kind], self._start)
        return np.minimum(lives.sizes[self.since][kind], _LONG), starts

    @property
    def _longest(self) -> int:
        return int(self._lives()[0].max(initial=0))

    # -- one advance -------------------------------------------------------------------------------------------------

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """The stretches of constant answer that begin, and the ends of those sent before."""
        elements = self._on_time(inputs, frontier)
        before, self._frontier = self._frontier, frontier
        sizes, starts = self._lives()
        self._pending.take(frontier)
        self._put(elements)
        rows, first = self._rows, self._rows.end - len(elements)
        groups = self._touched(first, sizes, starts, before, frontier)
        stretches, lanes = sweep_lengths(
            groups, first, rows.times, rows.after, rows.lanes, rows.head, rows.following, rows.cell, rows.oldest,
            rows.fresh, rows.newest, rows.place, rows.count, rows.sums, rows.left, *self._sets.members, sizes, starts,
            before, frontier, self._shown(), *self._bounds(),
        )  # fmt: skip
        output = self._output(stretches, lanes)
        if len(groups):
            self._saved = {}
            until = frontier - int(sizes.max(initial=0))
            self._groups.release(rows.drop(groups, until, self._groups.slots, self._sets.members[0]))
            self._sets.tidy(lambda: rows.cell[rows.entries(self._groups.slots)])
        return output

    def _put(self, elements: Elements) -> None:
        """Let rows come."""
        if not len(elements):
            return
        times = raw(elements.columns[self.since])
        if (times[1:] < times[:-1]).any():
            elements = elements.take(stable_order(times))
            times = raw(elements.columns[self.since])
        slots = self._groups.lookup([elements.columns[k] for k in self.keys], len(elements))
        cells = self._sets.cells(elements.columns[QUERIES])
        kept = kept_columns(elements.columns, self._sums, ())
        kept |= {self.since: elements.columns[self.since], CELL: pa.array(cells)}
        self._keep(RowEnds(elements.exp, slots.astype(np.int32), elements.sign, kept))
        self._link(times, slots, cells, self._matrix([elements]))

    def _keep(self, rows: RowEnds) -> None:
        """Let rows be part of the state until their end."""
        at = np.flatnonzero(rows.exp > self._frontier)
        if len(at):
            self._pending.put(rows if len(at) == len(rows) else rows.take(at))

    def _link(self, times: Int64s, slots: Int64s, cells: Int64s, matrix: Int64s) -> None:
        self._rows.put(times, slots, cells, matrix, self._sets.members[0], self._groups.capacity)

    def _kept_lanes(self, now: Sequence[Int64s] | None = None) -> Sequence[Int64s]:
        if now is not None:
            self._rows.relaid(now)
        return (self._rows.lanes, self._rows.sums)

    def _touched(self, first: int, sizes: Int64s, starts: Int64s, before: int, frontier: int) -> Int64s:
        """The groups in which rows come or leave; `first`: the first row that comes."""
        rows, begins = self._rows, ((starts > before) & (starts <= frontier)).any()
        if self._everyone or begins:
            self._everyone = False
            return self._groups.slots
        low = max(before, BEGINNING + _LONG)
        ends = distinct_values(sizes)
        spans = np.searchsorted(rows.live, np.stack((low - ends, frontier - ends)), side="right") + rows.first
        parts, done = [rows.groups[first : rows.end]], first  # from the last rows backwards: short windows first
        for begin, end in zip(*(side.tolist() for side in spans), strict=True):
            parts.append(rows.groups[begin : min(end, done)])
            done = min(done, begin)
        touched = np.concatenate(parts)
        if 8 * len(touched) < self._groups.capacity:
            return distinct_values(touched)
        mark = np.zeros(self._groups.capacity, np.bool_)
        mark[touched] = True
        return np.flatnonzero(mark)

    # -- state -------------------------------------------------------------------------------------------------------

    def restore(self, state: State, frontier: int = BEGINNING) -> None:
        """Go on from a state."""
        if "cells" in state:
            raise StateError(
                "this home was written by an older version of windrow, whose state of aggregates that share and differ "
                "in their windows is not read",
                detail="nothing has been changed",
                hint="drop the queries with the version that wrote the home, and create them again with this one",
            )
        super().restore(state, frontier)
        self._frontier, self._rows, self._everyone = frontier, RowLists(self._width), True
        rows = [RowEnds.of(run) for run in state["pending"]]
        rows = [r.take(np.flatnonzero(r.exp > frontier)) for r in rows]
        if sum(map(len, rows)):
            self._relink(rows)
        self._groups.release(np.setdiff1d(self._groups.slots, self._rows.groups[: self._rows.end]))

    def _relink(self, rows: Sequence[RowEnds]) -> None:
        times = np.concatenate([raw(r.columns[self.since]) for r in rows])
        order, matrix = stable_order(times), self._matrix(rows)
        slots = np.concatenate([r.slot.astype(np.int64) for r in rows])
        cells = np.concatenate([raw(r.columns[CELL]) for r in rows])
        self._link(times[order], slots[order], cells[order], matrix[order])
