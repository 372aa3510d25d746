"""Shards: shared partials with GROUP BY, and for functions that need the values themselves.

A query that is due reads the partials (`shard_partials.py`) whose cells its predicate has and whose edges lie in its
windows; all its instants in the advance are answered together, as differences on a matrix of instants by groups. Of a
window of many slides totals are kept (`shard_totals.py`).

DISTINCT, order statistics, TOP_K and extremes of text need values: the final aggregation is `aggregates.Partials` over
their partials, one group per (instant, group).

Who has keys and no partial in its cells has no answer, and is not asked.

State: partials younger than the longest window, at most one per row. Cost: rows once per space and set of keys; per
due query the partials in its windows, or where totals are kept those that come and go, and the groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import PointValues, coded, scalars
from windrow.operators.aggregates.call import EXTREMES
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.kernels import accumulate
from windrow.operators.aggregates.order import CodeOrder
from windrow.operators.aggregates.partials import Partials
from windrow.operators.aggregates.sums import SumLanes
from windrow.operators.aggregates.sweep import sweep_of, with_groups
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import Elements, concat, concat_arrays, one
from windrow.sharing.kernels import carry_to_grid, instants_best
from windrow.sharing.ranked_windows import RankedWindows, ReadValues, answered
from windrow.sharing.shard_blocks import Chosen, DueQuery, Picked, chosen_of, clip, relaid_block, within
from windrow.sharing.shard_summaries import ShardSummaries, summarises
from windrow.sharing.shard_totals import MOST_POINTS

_NONE: Int64s = np.zeros(0, np.int64)


class Shards(ShardSummaries):
    """Blocks over one set of keys: with lanes and best codes, or (`values`) with the values of some columns."""

    def answer(self, due: DueQuery, name: str) -> tuple[Elements, int]:
        """One element per live group and instant, and how many partials were read."""
        if summarises(due.calls):
            return self._answer_summaries(due, name)
        if self.keys and not self.values and self._steady(due):
            return self._answer_totals(due, name)
        chosen = [c for b in self.blocks if (c := chosen_of(b, due, name)) is not None]
        read = sum(len(c.at) for c in chosen)
        if self.keys and not read:
            return self._empty(due), 0
        if self.values:
            return self._answer_values(due, chosen), read
        local, slots = self._local(chosen)
        step = max(1, MOST_POINTS // max(len(slots), 1))
        parts = [
            self._answer_sums(due, chosen, local, slots, first, min(first + step - 1, due.last))
            for first in range(due.first, due.last + 1, step)
        ]
        return concat(parts), read

    @property
    def edges(self) -> Int64s:
        """The edges of all partials."""
        return np.concatenate([_NONE, *(b.edge for b in self.blocks)])

    def first_block(self, epoch: int) -> int:
        """How many epochs there are blocks of that are older than this one: queries with the same read the same."""
        return len({b.epoch for b in self.blocks if b.only is None and b.epoch < epoch})

    def answer_together(self, dues: Sequence[DueQuery], names: Sequence[str]) -> tuple[list[Elements], int] | None:
        """The same for queries over values with one predicate and one instant each, in one pass; None: one by one.

        Those with the same window at the same instant have one answer (CS8).
        """
        if summarises(dues[0].calls):
            return None
        blocks = [b for b in self.blocks if dues[0].condition in b.space.number]
        if any(b.only is not None and not b.only.isdisjoint(names) for b in blocks):
            return None
        end = np.array([d.end(d.first) for d in dues])
        spans = np.stack((end - np.array([d.window.range for d in dues]), end))
        (begin, end), of = np.unique(spans, axis=1, return_inverse=True)
        windows = RankedWindows.of(begin, end)
        low, high = int(windows.begin.min()), int(end.max())
        picked = [p for b in blocks if (p := within(b, dues[0], names[0], low, high)) is not None]
        read = ReadValues.concat([self._reading(p) for p in picked], {v: self.types[v] for v in self.values})
        found = answered(windows, read, dues[0].calls, self.types, bool(self.keys))
        if found is None:
            return None
        columns = pa.table(self._key_columns(found.slots) | found.columns)
        parts, first = [], np.cumsum(found.counts) - found.counts
        for due, window in zip(dues, of.reshape(-1).tolist(), strict=True):
            count = int(found.counts[window])
            mine = columns.slice(int(first[window]), count)
            shown = {call.output: one(mine.column(call.output)) for call in due.calls}
            keys = {k: one(mine.column(k)) for k in self.keys}
            parts.append(due.elements(np.full(count, due.first), keys | shown))
        return parts, len(read.edge)

    def _reading(self, picked: Picked) -> ReadValues:
        block, at = picked.block, picked.at
        values = {v: block.values[v].take(pa.array(at)) for v in self.values}
        return ReadValues(block.edge[at], block.slot[at], block.rows[at, 0], values)

    def _local(self, chosen: Sequence[Chosen]) -> tuple[Int64s, Int64s]:
        """Slots that occur, numbered without gaps: (number of each slot, slots)."""
        if not self.keys:
            return np.zeros(1, np.int64), np.zeros(1, np.int64)
        table = np.zeros(self.groups.capacity, np.int64)
        for c in chosen:
            table[c.block.slot[c.at]] = 1
        return np.cumsum(table) - table, np.flatnonzero(table)

    def _answer_sums(
        self, due: DueQuery, chosen: Sequence[Chosen], local: Int64s, slots: Int64s, first: int, last: int
    ) -> Elements:
        height, groups = last - first + 1, len(slots)
        points = height * groups
        clipped = [clip(c, local, first, last) for c in chosen]

        def summed(lanes: Sequence[Int64s], width: int) -> Int64s:
            grid = np.zeros((points, width), np.int64)
            for (row, begin, end, slot), matrix in zip(clipped, lanes, strict=True):
                carry_to_grid(row, begin, end, slot, groups, matrix, grid)
            accumulate(grid.reshape(height, -1), np.zeros(groups * width, np.int64))
            return grid

        rows = summed([c.block.rows for c in chosen], 1)[:, 0]
        shown = np.flatnonzero(rows > 0) if self.keys else np.arange(points)
        lowered: dict[str, Lowering] = {}
        columns = self._key_columns(slots[shown % groups])
        for call in due.calls:
            columns[call.output] = self._lowered(call, chosen, clipped, summed, rows, groups, height, lowered).build(
                shown
            )
        return due.elements(first + shown // groups, columns)

    def _lowered(self, call: Aggregation, chosen, clipped, summed, rows, groups, height, lowered) -> PointValues:  # type: ignore[no-untyped-def]
        if call.column is None:
            return scalars(rows, None, call.type)
        if call.kind in EXTREMES:
            key = (call.column, call.kind == "min")
            best, some = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
            for (row, begin, end, slot), c in zip(clipped, chosen, strict=True):
                codes, filled = c.block.bests[key]
                b, s = instants_best(row, begin, end, slot, groups, codes, filled, height)
                best = np.where(s & (~some | (b > best)), b, best)
                some |= s
            return coded(
                ~best if key[1] else best, None if some.all() else some, CodeOrder(self.types[call.column]), call.type
            )
        if call.column not in lowered:
            layout = SumLanes()
            for c in chosen:
                layout = layout.union(c.block.layouts[call.column])
            lanes = [relaid_block(c.block, call.column, layout) for c in chosen]
            lowered[call.column] = Lowering(summed(lanes, layout.width), layout, self.types[call.column], rows)
        return lowered[call.column].answer(call)

    def _answer_values(self, due: DueQuery, chosen: Sequence[Chosen]) -> Elements:
        """Multiplicities of values, one group per (instant, group)."""
        local, slots = self._local(chosen)
        height, groups = due.last - due.first + 1, len(slots)
        group, row, delta, base = [_NONE], [_NONE], [_NONE], 0
        for c in chosen:
            at, begin, end, slot = clip(c, local, due.first, due.last)
            counts = end - begin + 1
            which = np.repeat(np.arange(len(at)), counts)
            instant = np.repeat(begin, counts) + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
            group.append(instant * groups + slot[which])
            row.append(at[which] + base)
            delta.append(c.block.rows[at[which], 0])
            base += len(c.block)
        groups_of, rows_of = np.concatenate(group), np.concatenate(row)
        sweep = sweep_of(groups_of, np.zeros(len(groups_of), np.int64), rows_of, np.concatenate(delta))
        if not self.keys:
            missing = np.ones(height, np.bool_)
            missing[sweep.slots] = False
            sweep = with_groups(sweep, np.flatnonzero(missing))
        partials = Partials(due.calls, self.types, strict=True)
        partials.grow(height * groups)
        columns = {
            v: concat_arrays([pa.array([], self.types[v]), *(c.block.values[v] for c in chosen)]) for v in self.values
        }
        _, answers = partials.advance(sweep, columns, None, 0)
        order = np.argsort(sweep.slots, kind="stable")
        shown, points = sweep.slots[order], sweep.last[order]
        found = self._key_columns(slots[shown % groups])
        found |= {c.output: a.build(points) for c, a in zip(due.calls, answers, strict=True)}
        return due.elements(due.first + shown // groups, found)
