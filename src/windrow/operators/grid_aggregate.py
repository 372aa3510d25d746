"""Periodic aggregation: the answer of GROUP BY at every multiple of the period.

The input's lifetimes are quantised: `ts` and `exp` are multiples of the period (or INF). For every evaluation
instant t in (previous, frontier], t >= start, each live group has one element `[t, t + period)`; a global
answer always has one.

Sums and counts are kept as slices (`aggregates/slices`): rows are summed per (group, ts, exp) in one pass,
the slices become differences on a matrix of instants by groups, and running sums down the matrix are the
answers.

            group 0   group 1
    t=0     +a        +b            differences; state enters at the top row
    t=1     +c
    t=2     -a        -b            a and b expire

There is no loop over rows, groups or instants outside compiled code. Where most of the matrix would be empty
(many groups that live for a short time within one long advance) the same slices are swept group by group
instead. Other functions sweep rows and are looked at on the grid.

Where an advance has many more instants than changes (a gap in time), the element of a stretch of constant answers is
`[t, t + k * period)`: `sample.RepeatPeriods` makes k of it, above the selections that may leave none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregate import GroupedAggregate, Swept
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import PointValues, scalars
from windrow.operators.aggregates.call import LINEAR
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.kernels import accumulate, scatter, sweep_lanes
from windrow.operators.aggregates.limbs import add_rows
from windrow.operators.aggregates.partials import check_rows
from windrow.operators.aggregates.pending import RowEnds, joined
from windrow.operators.aggregates.reduced import LANES, ROWS, is_reduced, laid_out, unlisted
from windrow.operators.aggregates.slices import ends_of, lanes_of, layout_of, slices_of
from windrow.operators.aggregates.sums import Sums
from windrow.operators.aggregates.sweep import sweep_of, with_groups
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.operators.quantise import shifted

_ROOM = 65_536
"""Cells that a matrix may have whatever is in them."""
_MOST = 1 << 20
"""Cells that a matrix may have beyond what changes in it."""


@dataclass(frozen=True)
class SliceLanes:
    """Slices with their lanes: how many rows, then the lanes of each column."""

    ts: Int64s
    exp: Int64s
    slot: Int64s
    rows: Int64s  # [slices, 1]
    sums: list[Int64s]  # per column [slices, lanes]


class GridAggregate(GroupedAggregate):
    """GROUP BY at every `k * period + offset`; `strict` when negative elements may come.

    All inside is on a clock that shows `offset` less, on which evaluations are at multiples of the period.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        period: int,
        *,
        offset: int = 0,
        strict: bool = False,
        expiration: str = "calendar",
    ) -> None:
        super().__init__(keys, aggregations, types, strict=strict, expiration=expiration)
        self.period, self.offset = period, offset
        self._linear = bool(aggregations) and all(a.kind in LINEAR and not a.distinct for a in aggregations)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """One element per live group and evaluation instant."""
        rows, frontier = [shifted(e, -self.offset) for e in inputs], frontier - self.offset
        output = self._advance_linear(rows, frontier) if self._linear else self._advance_rows(rows, frontier)
        self._previous = frontier
        return shifted(output, self.offset)

    def start(self, ts: int) -> None:
        """The clock starts at `ts`."""
        super().start(ts - self.offset)

    # -- rows: any function ------------------------------------------------------------------------------------------

    def _advance_rows(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        swept = self._sweep(inputs, frontier, every_group=frontier // self.period > self._previous // self.period)
        if swept is None:
            return Elements.empty(self.schema)
        output = self._instants(swept, frontier)
        self._release(swept.sweep.slots[~swept.alive[swept.sweep.last]])
        return output

    def _instants(self, swept: Swept, frontier: int) -> Elements:
        """Every stretch of constant answer, at the evaluation instants in it."""
        sweep, period = swept.sweep, self.period
        begin = np.maximum(sweep.times, max(self._previous + 1, self._start))
        until = np.full(len(begin), frontier + 1)
        until[:-1] = np.where(sweep.virtual[1:], frontier + 1, sweep.times[1:])
        first, stop = -(-begin // period), -(-until // period)
        shown = np.flatnonzero(swept.alive & (stop > first))
        counts = stop[shown] - first[shown]
        if counts.sum() > 4 * len(shown) + _MOST:
            return self._shown(swept, shown, first[shown] * period, stop[shown] * period)
        points = np.repeat(shown, counts)
        within = np.arange(len(points)) - np.repeat(np.cumsum(counts) - counts, counts)
        ts = (first[points] + within) * period
        return self._shown(swept, points, ts, ts + period)

    def _shown(self, swept: Swept, points: Int64s, ts: Int64s, exp: Int64s) -> Elements:
        """The answers at points of a sweep, over the given lifetimes."""
        columns = self._key_columns(swept.sweep.slots[swept.sweep.group[points]])
        columns |= {a.output: answer.build(points) for a, answer in zip(self.aggregations, swept.answers, strict=True)}
        return Elements(ts, exp, np.ones(len(ts), np.int8), columns)

    # -- slices: sums and counts -------------------------------------------------------------------------------------

    def _advance_linear(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        elements = concat(inputs)
        if self._start == BEGINNING and len(elements):
            self._start = int(elements.ts.min())
        due = self._pending.take(frontier)
        first = -(-max(self._previous + 1, self._start) // self.period)
        instants = max(frontier // self.period - first + 1, 0) if self._start > BEGINNING else 0
        if not (len(elements) or due or instants):
            return Elements.empty(self.schema)
        # rows of tables have always been there: nobody looks before `first`, and arithmetic on BEGINNING overflows
        elements = elements.with_lifetimes(np.maximum(elements.ts, first * self.period), elements.exp)
        self._saved = {}
        live = len(self._groups)
        slots = self._slots(elements)
        groups = self._groups.capacity if self.keys else 1
        for rows in due:
            for prefix, sums in self._columns:
                sums.widen(layout_of(rows, prefix))
        arriving = self._arriving(elements, slots, groups)
        leaving = self._leaving(arriving, due, frontier)
        self._wait(arriving, frontier)
        changes = len(arriving.ts) + len(leaving.ts)
        shown = instants * (live if self.keys else 1)  # answers that are there in any case
        if instants * groups <= 4 * (changes + min(shown, _MOST)) + _ROOM:
            output = self._on_matrix(arriving, leaving, first, instants, groups)
        else:
            output = self._group_by_group(arriving, leaving, frontier)
        present = self._groups.slots
        self._release(present[self._partials.rows[present] == 0])
        return output

    @property
    def _columns(self) -> list[tuple[str, Sums]]:
        """The lanes of each column, with the prefix of their names in state."""
        return [(f"{column}|", sums) for (column, _), sums in self._partials.sums.items()]

    def _arriving(self, elements: Elements, slots: Int64s, groups: int) -> SliceLanes:
        """Slices of the new rows; rows that came reduced are slices."""
        if len(elements) == 0:
            none = np.zeros(0, np.int64)
            empty = [np.zeros((0, sums.layout.width), np.int64) for _, sums in self._columns]
            return SliceLanes(none, none, none, np.zeros((0, 1), np.int64), empty)
        if is_reduced(elements.columns):
            counts = elements.columns[ROWS].to_numpy().copy()  # kernels are compiled for arrays that may be written
            sums = [(LANES + c, s) for (c, _), s in self._partials.sums.items()]
            lanes = [laid_out(s, *unlisted(elements.columns[name])) for name, s in sums]
            return SliceLanes(elements.ts, elements.exp, slots, counts[:, None], lanes)
        slices = slices_of(elements, slots, groups, self.period)
        rows = np.zeros((len(slices.cells), 1), np.int64)
        add_rows(np.ones((len(elements), 1), np.int64), slices.cells.of_row, slices.cells.sign, rows, 0)
        lanes = [sums.lift(elements.columns[c], slices.cells) for (c, _), sums in self._partials.sums.items()]
        return SliceLanes(slices.ts, slices.exp, slices.slot, rows, lanes)

    def _leaving(self, arriving: SliceLanes, due: list[RowEnds], frontier: int) -> SliceLanes:
        """Slices that end by `frontier`: of those that just arrived, and of those that waited."""
        ended = np.flatnonzero(arriving.exp <= frontier)
        waited = joined(due) if due else None
        m = 0 if waited is None else len(waited)
        blocks = [
            np.zeros((m, 1), np.int64),
            *(np.zeros((m, sums.layout.width), np.int64) for _, sums in self._columns),
        ]
        exp, slot = arriving.exp[ended], arriving.slot[ended]
        if waited is not None:
            exp, slot = np.concatenate((exp, waited.exp)), np.concatenate((slot, waited.slot))
            blocks[0][:, 0] = waited.columns["rows"].to_numpy() if "rows" in waited.columns else 0
            for lanes, (prefix, sums) in zip(blocks[1:], self._columns, strict=True):
                lanes_of(waited, prefix, sums.layout, lanes)
        if len(ended):
            own = [arriving.rows, *arriving.sums]
            blocks = [np.concatenate((a[ended], b)) for a, b in zip(own, blocks, strict=True)]
        return SliceLanes(exp, exp, slot, blocks[0], blocks[1:])

    def _wait(self, arriving: SliceLanes, frontier: int) -> None:
        """Let slices that end later wait."""
        later = (arriving.exp > frontier) & (arriving.exp != INF)
        if not self._strict:
            later &= arriving.rows[:, 0] > 0
        chosen = np.flatnonzero(later)
        lanes = {"rows": arriving.rows[chosen, 0]}
        for (prefix, sums), matrix in zip(self._columns, arriving.sums, strict=True):
            lanes |= {prefix + name: matrix[chosen, k] for k, name in enumerate(sums.layout.names())}
        self._pending.put(ends_of(arriving.exp[chosen], arriving.slot[chosen], lanes))

    def _on_matrix(self, arriving: SliceLanes, leaving: SliceLanes, first: int, instants: int, groups: int) -> Elements:
        """Differences on the matrix of instants by groups, then running sums."""
        height = max(instants, 1)
        into, out_of = (
            np.maximum(-(-times // self.period) - first, 0) * groups + slot
            for times, slot in ((arriving.ts, arriving.slot), (leaving.exp, leaving.slot))
        )

        def summed(carried: Int64s, come: Int64s, go: Int64s) -> Int64s:
            grid = np.zeros((height * groups, come.shape[1]), np.int64)
            scatter(grid, into, come, 1)
            scatter(grid, out_of, go, -1)
            accumulate(grid.reshape(height, -1), carried.reshape(-1))
            return grid

        partials = self._partials
        rows = summed(partials.rows[:groups], arriving.rows, leaving.rows)[:, 0]
        partials.rows[:groups] = rows[-groups:]
        for (_, sums), come, go in zip(self._columns, arriving.sums, leaving.sums, strict=True):
            sums.points = summed(sums.store[:groups], come, go) if come.shape[1] else np.zeros((len(rows), 0), np.int64)
            sums.store[:groups] = sums.canonical(sums.points[-groups:].copy())
        if not instants:
            return Elements.empty(self.schema)
        alive = rows > 0
        shown = slice(None) if not self.keys or alive.all() else np.flatnonzero(alive)
        ts = np.repeat((first + np.arange(instants)) * self.period, groups)[shown]
        columns = self._key_columns(np.tile(np.arange(groups), instants)[shown])
        columns |= {
            a.output: answer.build(shown) for a, answer in zip(self.aggregations, self._answers(rows), strict=True)
        }
        return Elements(ts, ts + self.period, np.ones(len(ts), np.int8), columns)

    def _answers(self, rows: Int64s) -> list[PointValues]:
        """The answers at the points whose lanes have been computed."""
        check_rows(rows)
        lowerings = {
            column: Lowering(sums.points, sums.layout, sums.type, rows)
            for (column, _), sums in self._partials.sums.items()
        }
        return [
            scalars(rows, None, a.type) if a.column is None else lowerings[a.column].answer(a)
            for a in self.aggregations
        ]

    def _group_by_group(self, arriving: SliceLanes, leaving: SliceLanes, frontier: int) -> Elements:
        """The same slices as events of a sweep."""
        come, go = len(arriving.ts), len(leaving.exp)
        sweep = sweep_of(
            np.concatenate((arriving.slot, leaving.slot)),
            np.maximum(np.concatenate((arriving.ts, leaving.exp)), self._start),
            np.arange(come + go),
            np.repeat(np.array([1, -1]), (come, go)),
        )
        idle = np.zeros(len(self._partials.rows), np.bool_)
        idle[self._groups.slots if self.keys else 0] = True
        idle[sweep.slots] = False
        sweep = with_groups(sweep, np.flatnonzero(idle))
        feed, held = sweep.feed, self._partials.rows
        matrix = np.concatenate((arriving.rows, leaving.rows))
        rows = sweep_lanes(matrix, feed.rows, feed.deltas, feed.ends, sweep.firsts, held[sweep.slots, None])[:, 0]
        held[sweep.slots] = rows[sweep.last]
        for (_, sums), a, b in zip(self._columns, arriving.sums, leaving.sums, strict=True):
            sums.sweep(sweep, feed, np.concatenate((a, b)))
        alive = rows > 0 if self.keys else np.ones(len(rows), np.bool_)
        return self._instants(Swept(sweep, alive, self._answers(rows)), frontier)
