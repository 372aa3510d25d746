"""Shards: shared partials with GROUP BY, and for functions that need the values themselves.

A partial is one (slice, cell, group) that occurs, kept once for all queries over the same group keys, whatever their
windows and predicates. Partials of one advance are a block; blocks of the same index are merged as they age, so there
are few. A query that is due reads the partials whose cells its predicate has and whose edges lie in its windows; all
its instants in the advance are answered together, as differences on a matrix of instants by groups.

DISTINCT, order statistics, TOP_K and extremes of text need values: their partials are (slice, cell, group, values) with
a multiplicity, and the final aggregation is `aggregates.Partials` over them, one group per (instant, group).

A window of many slides is not read again at every instant: its totals per group are kept from one advance to the next,
and only what has come and what has left since is added and taken away. Totals are no state, they can be made anew.

State: partials younger than the longest window, at most one per row. Cost: rows once per space and set of keys; per
due query the partials in its windows, or where totals are kept those that come and go, and the groups.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation, limbs
from windrow.operators.aggregates.answers import PointValues, coded, scalars
from windrow.operators.aggregates.call import EXTREMES, MOMENTS
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.kernels import accumulate
from windrow.operators.aggregates.order import CodeOrder
from windrow.operators.aggregates.partials import Partials
from windrow.operators.aggregates.sums import Cells, Lowering, SumLanes, relaid
from windrow.operators.aggregates.sweep import sweep_of, with_groups
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import Elements, concat, concat_arrays, one
from windrow.operators.keys import factorize
from windrow.operators.state.run import Run, ints
from windrow.sharing.cells import CellSpace, unpacked
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import Edges
from windrow.sharing.kernels import add_to_grid, carry_to_grid, greatest, instants_best, number, tally
from windrow.sharing.lanes import Best, Lanes, SlicedRows, lanes_of
from windrow.sharing.shard_blocks import (
    Chosen,
    DueQuery,
    PartialBlock,
    Picked,
    WindowTotals,
    chosen_of,
    clip,
    relaid_block,
    within,
)
from windrow.sharing.together import RankedWindows, ReadValues, answered

MOST_STAMPS = 1 << 20
MOST_POINTS = 1 << 22
MOST_TOTALS = 1 << 25
"""Numbers kept as totals of windows, at most; queries beyond read their windows anew."""
SLIDES_KEPT = 4
"""Totals are kept of windows that are at least so many slides long."""
_NONE: Int64s = np.zeros(0, np.int64)


class Shards:
    """Blocks over one set of keys: with lanes and best codes, or (`values`) with the values of some columns."""

    def __init__(self, keys: Sequence[str], types: Mapping[str, pa.DataType], values: Sequence[str] = ()) -> None:
        self.keys, self.types, self.values = tuple(keys), types, tuple(values)
        self.groups = Groups([types[k] for k in keys])
        self.sums: dict[str, Lanes] = {}
        self.bests: dict[tuple[str, bool], Best] = {}
        self.blocks: list[PartialBlock] = []
        self._totals: dict[tuple[str, DueQuery], WindowTotals] = {}

    def provide(self, calls: Sequence[Aggregation]) -> None:
        """Keep what these aggregates need from now on."""
        for call in calls:
            if call.column is None or self.values:
                continue
            if call.kind in EXTREMES:
                least = call.kind == "min"
                self.bests.setdefault((call.column, least), Best(self.types[call.column], least))
            else:
                lanes = self.sums.setdefault(call.column, Lanes(self.types[call.column], False, False))
                lanes.require(sums=call.kind != "count", squares=call.kind in MOMENTS)

    def empty(self) -> Shards:
        """Shards like these, without partials."""
        made = Shards(self.keys, self.types, self.values)
        made.bests = dict(self.bests)
        made.sums = {c: s.like() for c, s in self.sums.items()}
        return made

    # -- taking rows in ----------------------------------------------------------------------------------------------

    def settle(
        self, space: CellSpace, epoch: int, ts: Int64s, at: Int64s, cell: Int64s, edges: Edges,
        columns: Mapping[str, pa.Array], wanted: Bools | None, only: frozenset[str] | None = None,
    ) -> int:  # fmt: skip
        """Form the partials of rows in time order: those at `at`, whose cells are `wanted`; returns how many."""
        if wanted is not None:
            inside = wanted[cell]
            at, cell = (at, cell) if inside.all() else (at[inside], cell[inside])
        n = len(cell)
        if n == 0:
            return 0
        picks = pa.array(at)
        columns = {c: columns[c] if n == len(ts) else columns[c].take(picks) for c in self._reads() if c in columns}
        rows = _sliced(ts[at], edges)
        slot = self.groups.lookup([columns[k] for k in self.keys], n) if self.keys else np.zeros(n, np.int64)
        block = (
            self._valued(cell, slot, rows, columns) if self.values else self._summed(cell, slot, rows, columns, space)
        )
        block.space, block.epoch, block.only = space, epoch, only
        self._put(block)
        return len(block)

    def _reads(self) -> list[str]:
        return list(dict.fromkeys([*self.keys, *self.values, *self.sums, *(c for c, _ in self.bests)]))

    def _summed(
        self, cell: Int64s, slot: Int64s, rows: SlicedRows, columns: Mapping[str, pa.Array], space: CellSpace
    ) -> PartialBlock:
        groups = max(self.groups.capacity, 1)
        of_row, edge, cells, slots = _numbered(cell, slot, rows, space.cells, groups)
        count = len(edge)
        placed = Cells(of_row, np.ones(len(of_row), np.int8), count)
        block = PartialBlock(space, 0, edge, cells, slots, tally(of_row, count))
        for column, sums in self.sums.items():
            if column not in columns:  # history has the columns of those who may read it
                continue
            block.lanes[column] = sums.lift(columns[column], placed)
            block.layouts[column] = sums.layout
        for key, best in self.bests.items():
            if key[0] in columns:
                block.bests[key] = best.per_partial(columns[key[0]], of_row, count)
        return block

    def _valued(self, cell: Int64s, slot: Int64s, rows: SlicedRows, columns: Mapping[str, pa.Array]) -> PartialBlock:
        lengths = np.diff(rows.first)
        edge = np.repeat(rows.edges, lengths)
        keys = [pa.array(edge), pa.array(cell), pa.array(slot), *(columns[v] for v in self.values)]
        codes, first = factorize(keys, len(cell))
        picks = pa.array(first)
        values = {v: columns[v].take(picks) for v in self.values}
        return PartialBlock(None, 0, edge[first], cell[first], slot[first], tally(codes, len(first)), values=values)  # type: ignore[arg-type]

    def _put(self, block: PartialBlock) -> None:
        """Keep a block, merged with those of the same index that are of similar size."""
        alike = [
            i
            for i, b in enumerate(self.blocks)
            if b.space is block.space and b.epoch == block.epoch and b.only == block.only
        ]
        while alike and len(self.blocks[alike[-1]]) <= 2 * len(block):
            block = self._merged(self.blocks.pop(alike.pop()), block)
        self.blocks.append(block)

    def _merged(self, a: PartialBlock, b: PartialBlock) -> PartialBlock:
        keys: list[pa.Array] = [
            pa.array(np.concatenate((getattr(a, n), getattr(b, n)))) for n in ("edge", "cell", "slot")
        ]
        values = {v: concat_arrays([a.values[v], b.values[v]]) for v in a.values}
        codes, first = factorize([*keys, *values.values()], len(a) + len(b))
        count, picks = len(first), pa.array(first)
        edge, cell, slot = (k.to_numpy()[first] for k in keys)

        def added(x: Int64s, y: Int64s) -> Int64s:
            out = np.zeros((count, x.shape[1]), np.int64)
            both = np.concatenate((x, y))
            np.add.at(out, codes, both)
            return out

        block = PartialBlock(a.space, a.epoch, edge, cell, slot, added(a.rows, b.rows), only=a.only)
        block.values = {v: c.take(picks) for v, c in values.items()}
        for column in self.sums:
            if column in a.lanes and column in b.lanes:
                layout = a.layouts[column].union(b.layouts[column])
                x, y = (relaid(z.lanes[column], z.layouts[column], layout) for z in (a, b))
                block.lanes[column], block.layouts[column] = _carried(added(x, y), layout), layout
        for key in self.bests:
            if key in a.bests and key in b.bests:
                codes_, filled = (np.concatenate((x, y)) for x, y in zip(a.bests[key], b.bests[key], strict=True))
                block.bests[key] = greatest(codes, codes_, filled, True, count)
        return block if (np.diff(edge) >= 0).all() else block.take(np.argsort(edge, kind="stable"))

    def forget(self, oldest: int, alive: Set[Condition], names: Set[str]) -> None:
        """Drop partials at or before `oldest`, and those that no query reads any more."""
        kept = []
        for block in self.blocks:
            if block.only is not None and not (block.only & names):
                continue
            if not any(c in block.space.number for c in alive):
                continue
            young = block.edge > oldest
            share = int(young.sum())
            if share:
                kept.append(block if 2 * share > len(block) else block.take(np.flatnonzero(young)))
        self.blocks = kept
        self._totals = {k: t for k, t in self._totals.items() if k[0] in names}
        if self.keys and len(self.groups) > 2 * sum(map(len, kept)) + 1024:
            used = np.zeros(self.groups.capacity, np.bool_)
            for block in kept:
                used[block.slot] = True
            dead = self.groups.slots[~used[self.groups.slots]]
            self.groups.release(dead)

    # -- state -------------------------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """Every block as a run with its keys in full; the space travels in the metadata."""
        return [self._run(block) for block in self.blocks]

    def _run(self, block: PartialBlock) -> Run:
        if block.run is None:
            columns: dict[str, pa.Array | np.ndarray] = {
                "edge": block.edge,
                "cell": block.cell,
                "rows": block.rows[:, 0],
            }
            columns |= {f"key|{k}": c for k, c in self._key_columns(block.slot).items()}
            for column, lanes in block.lanes.items():
                names = block.layouts[column].names()
                columns |= {f"{name}|{column}": np.ascontiguousarray(lanes[:, i]) for i, name in enumerate(names)}
            for (column, least), (codes, filled) in block.bests.items():
                mark = "least" if least else "greatest"
                columns |= {f"{mark}|{column}": codes, f"{mark}?|{column}": filled}
            columns |= {f"value|{v}": c for v, c in block.values.items()}
            only = None if block.only is None else sorted(block.only)
            about = {b"plot": block.space.packed, b"block": json.dumps([block.epoch, only]).encode()}
            block.run = Run(pa.table(columns).replace_schema_metadata(about))
        return block.run

    def add(self, table: pa.Table) -> None:
        """Add the partials of a table that like shards made."""
        if table.num_rows:
            self._put(self._block(table))

    def take_back(self, run: Run) -> None:
        """Have a block again that `runs` named."""
        block = self._block(run.table)
        block.run = run
        self.blocks.append(block)

    def _block(self, table: pa.Table) -> PartialBlock:
        epoch, names = json.loads(table.schema.metadata[b"block"])
        only = None if names is None else frozenset(names)
        space = unpacked(table.schema.metadata[b"plot"])
        keys = [one(table.column(f"key|{k}")) for k in self.keys]
        slot = self.groups.lookup(keys, table.num_rows) if keys else np.zeros(table.num_rows, np.int64)
        rows = ints(table, "rows").reshape(-1, 1)
        block = PartialBlock(space, epoch, ints(table, "edge"), ints(table, "cell"), slot, rows, only=only)
        for column, sums in self.sums.items():
            block.lanes[column], block.layouts[column] = lanes_of(table, column)
            sums.widen(block.layouts[column])
        for column, least in self.bests:
            mark = "least" if least else "greatest"
            if f"{mark}|{column}" in table.column_names:
                block.bests[column, least] = (ints(table, f"{mark}|{column}"), ints(table, f"{mark}?|{column}"))
        block.values = {v: one(table.column(f"value|{v}")) for v in self.values}
        return block

    # -- answers -----------------------------------------------------------------------------------------------------

    def answer(self, due: DueQuery, name: str) -> tuple[Elements, int]:
        """One element per live group and instant, and how many partials were read."""
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

    def first_block(self, epoch: int) -> int:
        """How many epochs there are blocks of that are older than this one: queries with the same read the same."""
        return len({b.epoch for b in self.blocks if b.only is None and b.epoch < epoch})

    def answer_together(self, dues: Sequence[DueQuery], names: Sequence[str]) -> tuple[list[Elements], int] | None:
        """The same for queries over values with one predicate and one instant each, in one pass; None: one by one."""
        blocks = [b for b in self.blocks if dues[0].condition in b.space.number]
        if any(b.only is not None and not b.only.isdisjoint(names) for b in blocks):
            return None
        end = np.array([d.end(d.first) for d in dues])
        windows = RankedWindows.of(end - np.array([d.window.range for d in dues]), end)
        low, high = int(windows.begin.min()), int(end.max())
        picked = [p for b in blocks if (p := within(b, dues[0], names[0], low, high)) is not None]
        read = ReadValues.concat([self._reading(p) for p in picked], {v: self.types[v] for v in self.values})
        found = answered(windows, read, dues[0].calls, self.types, bool(self.keys))
        if found is None:
            return None
        columns = pa.table(self._key_columns(found.slots) | found.columns)
        parts, begin = [], 0
        for due, count in zip(dues, found.counts.tolist(), strict=True):
            mine = columns.slice(begin, count)
            shown = {call.output: one(mine.column(call.output)) for call in due.calls}
            keys = {k: one(mine.column(k)) for k in self.keys}
            parts.append(due.elements(np.full(count, due.first), keys | shown))
            begin += count
        return parts, len(read.edge)

    def _reading(self, picked: Picked) -> ReadValues:
        block, at = picked.block, picked.at
        values = {v: block.values[v].take(pa.array(at)) for v in self.values}
        return ReadValues(block.edge[at], block.slot[at], block.rows[at, 0], values)

    # -- totals ------------------------------------------------------------------------------------------------------

    def _steady(self, due: DueQuery) -> bool:
        """Whether totals of the window are kept: it has many slides, and what leaves it can be taken away."""
        return due.window.range >= SLIDES_KEPT * due.window.slide and all(c.kind not in EXTREMES for c in due.calls)

    def _answer_totals(self, due: DueQuery, name: str) -> tuple[Elements, int]:
        key = (name, replace(due, first=0, last=0))
        totals, read = self._totals.pop(key, None), 0
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
        if totals.size + sum(t.size for t in self._totals.values()) <= MOST_TOTALS:
            self._totals[key] = totals
        return concat([self._empty(due), *parts]), read

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
        moves = [(p, 1, due.first_with(p.block.edge[p.at]) - first) for p in new]
        moves += [(p, -1, due.first_with(p.block.edge[p.at] + length) - first) for p in (*new, *old)]

        def summed(base: Int64s, lanes: Callable[[PartialBlock], Int64s]) -> Int64s:
            grid = np.zeros((height * groups, base.shape[1]), np.int64)
            for p, sign, at in moves:
                inside = at < height
                rows = p.at if inside.all() else p.at[inside]
                when = at if inside.all() else at[inside]
                add_to_grid(rows, when * groups + local[p.block.slot[rows]], lanes(p.block), sign, grid)
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
            kept = _carried(np.ascontiguousarray(lanes[tail]), totals.layouts[column])
            kept[gone] = 0
            totals.lanes[column][slots] = kept

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
            lanes = [relaid(c.block.lanes[call.column], c.block.layouts[call.column], layout) for c in chosen]
            lowered[call.column] = Lowering(summed(lanes, layout.width), layout, self.types[call.column], rows)
        return lowered[call.column].answer(call)

    def _key_columns(self, slots: Int64s) -> dict[str, pa.Array]:
        return dict(zip(self.keys, self.groups.keys(slots), strict=True)) if self.keys else {}

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


def _sliced(ts: Int64s, edges: Edges) -> SlicedRows:
    """Rows cut at the edges; the last slice ends at the first edge beyond them."""
    _, every = edges.own(ts, int(ts[-1]))
    every = every[: int(np.searchsorted(every, ts[-1], "left")) + 1]
    return SlicedRows(np.concatenate(([0], np.searchsorted(ts, every, "right"))), every)


def _summed_columns(calls: Sequence[Aggregation]) -> list[str]:
    return list(dict.fromkeys(c.column for c in calls if c.column is not None))


def _numbered(
    cell: Int64s, slot: Int64s, rows: SlicedRows, cells: int, groups: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Number the (slice, cell, slot) that occur: (of each row, then edge, cell and slot of each)."""
    code = cell * groups + slot
    if cells * groups <= MOST_STAMPS:
        of_row, begin, codes = number(rows.first, code, cells * groups)
        return of_row, np.repeat(rows.edges, np.diff(begin)), codes // groups, codes % groups
    slice_ = np.repeat(np.arange(len(rows.edges)), np.diff(rows.first))
    if len(rows.edges) * cells * groups < 2**62:
        found, of_row = np.unique(slice_ * (cells * groups) + code, return_inverse=True)
        codes = found % (cells * groups)
        return of_row.astype(np.int64), rows.edges[found // (cells * groups)], codes // groups, codes % groups
    of_row, first = factorize([pa.array(slice_), pa.array(code)], len(code))
    return of_row, rows.edges[slice_[first]], cell[first], slot[first]


def _carried(lanes: Int64s, layout: SumLanes) -> Int64s:
    """Limbs carried, so that merging again and again does not overflow."""
    limbs.carry(lanes, layout.sums_at, layout.squares_at)
    limbs.carry(lanes, layout.squares_at, layout.width)
    return lanes
