"""Totals of windows, kept from one advance to the next.

A window of many slides is not read again at every instant: its totals per group stay, and only what has come and what
has left since is added and taken away. Totals are no state, they can be made anew from the partials.

Cost: the partials that come and go, and the groups at every instant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import scalars
from windrow.operators.aggregates.call import EXTREMES
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.kernels import accumulate
from windrow.operators.aggregates.sums import SumLanes, relaid
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import Elements, concat
from windrow.sharing.kernels import add_to_grid
from windrow.sharing.shard_blocks import DueQuery, PartialBlock, Picked, WindowTotals, relaid_block, within
from windrow.sharing.shard_partials import ShardPartials, carried

MOST_POINTS = 1 << 22
MOST_TOTALS = 1 << 25
"""Numbers kept as totals of windows, at most; queries beyond read their windows anew."""
SLIDES_KEPT = 4
"""Totals are kept of windows that are at least so many slides long."""


class ShardTotals(ShardPartials):
    """Shards that keep the totals of long windows."""

    def _steady(self, due: DueQuery) -> bool:
        """Whether totals of the window are kept: it has many slides, and what leaves it can be taken away."""
        return due.window.range >= SLIDES_KEPT * due.window.slide and all(c.kind not in EXTREMES for c in due.calls)

    def _answer_totals(self, due: DueQuery, name: str) -> tuple[Elements, int]:
        key = (name, replace(due, first=0, last=0, length=1))
        totals, read = self._totals.pop(key, None), 0
        self._numbers -= 0 if totals is None else totals.size
        if totals is None or totals.at != due.first - 1:
            totals, read = self._totals_at(due, name, due.first - 1)
        parts: list[Elements] = []
        first = due.first
        while first <= due.last:
            alive = int((totals.rows > 0).sum()) + 1
            last = min(first + max(1, MOST_POINTS // alive) - 1, due.last)
            moved, seen = self._moved(due, name, totals, first, last)
            parts.append(moved)
            first, read = last + 1, read + seen
        if self._numbers + totals.size <= MOST_TOTALS:
            self._totals[key] = totals
            self._numbers += totals.size
        return concat(parts) if parts else self._empty(due), read

    def _empty(self, due: DueQuery) -> Elements:
        return Elements.empty({**{k: self.types[k] for k in self.keys}, **{c.output: c.type for c in due.calls}})

    def _totals_at(self, due: DueQuery, name: str, at: int) -> tuple[WindowTotals, int]:
        """The totals of a window, read from all its partials."""
        totals = WindowTotals(at, np.zeros((self.groups.capacity, 1), np.int64))
        end = due.end(at)
        found = [p for b in self.blocks if (p := within(b, due, name, end - due.window.range, end)) is not None]
        self._add(totals, due, found, 1)
        return totals, sum(len(p.at) for p in found)

    def _add(self, totals: WindowTotals, due: DueQuery, picked: Sequence[Picked], sign: int) -> None:
        for p in picked:
            np.add.at(totals.rows, p.block.slot[p.at], sign * p.block.rows[p.at])
        for column in _summed_columns(due.calls):
            layout = totals.layouts.get(column, SumLanes())
            for p in picked:
                layout = layout.union(p.block.layouts[column])
            self._widened(totals, column, layout)
            for p in picked:
                lanes = relaid(p.block.lanes[column][p.at], p.block.layouts[column], layout)
                np.add.at(totals.lanes[column], p.block.slot[p.at], sign * lanes)

    def _widened(self, totals: WindowTotals, column: str, layout: SumLanes) -> None:
        known = totals.lanes.get(column)
        if known is None:
            totals.lanes[column] = np.zeros((len(totals.rows), layout.width), np.int64)
        elif totals.layouts[column] != layout:
            totals.lanes[column] = relaid(known, totals.layouts[column], layout)
        totals.layouts[column] = layout

    def _moved(self, due: DueQuery, name: str, totals: WindowTotals, first: int, last: int) -> tuple[Elements, int]:
        """The answers at instants `first..last`, and the totals moved there."""
        totals.grown(self.groups.capacity)
        begin, end, length = due.end(first - 1), due.end(last), due.window.range
        new = [p for b in self.blocks if (p := within(b, due, name, begin, end)) is not None]
        gone = min(end - length, begin)  # what comes and leaves within the interval is among the new
        old = [p for b in self.blocks if (p := within(b, due, name, begin - length, gone)) is not None]
        present = totals.rows[:, 0] > 0
        for p in new:
            present[p.block.slot[p.at]] = True
        slots = np.flatnonzero(present)
        if not len(slots):
            totals.at = last
            return self._empty(due), 0
        local = np.cumsum(present) - 1
        height, groups = last - first + 1, len(slots)
        instants = [(p, 1, due.first_with(p.block.edge[p.at]) - first) for p in new]
        instants += [(p, -1, due.first_with(p.block.edge[p.at] + length) - first) for p in (*new, *old)]
        moves = []  # the partials that come or go, and where on the grid
        for p, sign, at in instants:
            inside = np.flatnonzero(at < height)
            if len(inside):
                picked = p.at[inside]
                moves.append((p.block, sign, picked, at[inside] * groups + local[p.block.slot[picked]]))

        def summed(base: Int64s, lanes: Callable[[PartialBlock], Int64s]) -> Int64s:
            grid = np.zeros((height * groups, base.shape[1]), np.int64)
            for block, sign, picked, places in moves:
                add_to_grid(picked, places, lanes(block), sign, grid)
            accumulate(grid.reshape(height, -1), np.ascontiguousarray(base[slots]).reshape(-1))
            return grid

        rows = summed(totals.rows, lambda b: b.rows)
        columns: dict[str, Int64s] = {}
        for column in _summed_columns(due.calls):
            layout = totals.layouts.get(column, SumLanes())
            for p in (*new, *old):
                layout = layout.union(p.block.layouts[column])
            self._widened(totals, column, layout)
            if layout.width:
                relay = partial(relaid_block, column=column, layout=layout)
                columns[column] = summed(totals.lanes[column], relay)
            else:
                columns[column] = np.zeros((height * groups, 0), np.int64)
        found = self._shown(due, slots, rows[:, 0], columns, totals.layouts, first)
        self._settled(totals, slots, rows, columns, height, groups, last)
        return found, sum(len(p.at) for p in (*new, *old))

    def _shown(
        self, due: DueQuery, slots: Int64s, rows: Int64s, columns: Mapping[str, Int64s],
        layouts: Mapping[str, SumLanes], first: int,
    ) -> Elements:  # fmt: skip
        shown, groups = np.flatnonzero(rows > 0), max(len(slots), 1)
        lowered = {c: Lowering(m, layouts[c], self.types[c], rows) for c, m in columns.items()}
        found = self._key_columns(slots[shown % groups])
        for call in due.calls:
            answer = scalars(rows, None, call.type) if call.column is None else lowered[call.column].answer(call)
            found[call.output] = answer.build(shown)
        return due.elements(first + shown // groups, found)

    def _settled(
        self, totals: WindowTotals, slots: Int64s, rows: Int64s, columns: Mapping[str, Int64s],
        height: int, groups: int, last: int,
    ) -> None:  # fmt: skip
        """Keep the totals of the last instant; limbs are carried, so that adding and taking away never overflows."""
        tail = slice((height - 1) * groups, height * groups)
        gone = rows[tail, 0] == 0
        totals.at = last
        totals.rows[slots] = rows[tail]
        for column, lanes in columns.items():
            kept = carried(np.ascontiguousarray(lanes[tail]), totals.layouts[column])
            kept[gone] = 0
            totals.lanes[column][slots] = kept


def _summed_columns(calls: Sequence[Aggregation]) -> list[str]:
    return list(dict.fromkeys(c.column for c in calls if c.column is not None))
