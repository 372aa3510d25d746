"""The partials of shards: formed from rows, merged as they age, dropped when no window reads them, kept as runs.

A partial is one (slice, cell, group) that occurs, once for all queries over the same group keys, whatever their windows
and predicates; with values it is one (slice, cell, group, values) with a multiplicity. Partials of one advance are a
block; blocks of the same index are merged as they age, so there are few, and a window of a few advances merges none.
Time passes, so two blocks overlap at a seam: only there partials are compared, the rest is laid end to end.

Cost: rows once per space and set of keys; a partial is copied as often as the logarithm of their number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Self

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation, limbs
from windrow.operators.aggregates.basic_windows import SummaryQueue
from windrow.operators.aggregates.call import EXTREMES, MOMENTS
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.sums import Cells, SumLanes
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import concat_arrays, one
from windrow.operators.keys import factorize
from windrow.operators.state.run import Run, ints
from windrow.sharing.cells import CellSpace, unpacked
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import Edges
from windrow.sharing.kernels import greatest, number, tally
from windrow.sharing.lanes import Best, Lanes, SlicedRows, lanes_of
from windrow.sharing.shard_blocks import DueQuery, PartialBlock, WindowTotals, relaid_block

MOST_STAMPS = 1 << 20
MOST_SIMILAR = 7
"""Blocks of similar size that wait for one more before they are merged: a short window hardly ever merges."""


class ShardPartials:
    """Blocks over one set of keys: with lanes and best codes, or (`values`) with the values of some columns."""

    def __init__(self, keys: Sequence[str], types: Mapping[str, pa.DataType], values: Sequence[str] = ()) -> None:
        self.keys, self.types, self.values = tuple(keys), types, tuple(values)
        self.groups = Groups([types[k] for k in keys])
        self.sums: dict[str, Lanes] = {}
        self.bests: dict[tuple[str, bool], Best] = {}
        self.blocks: list[PartialBlock] = []
        self._queues: dict[str, SummaryQueue] = {}  # of queries by summaries
        self._saved: dict[str, Run] = {}  # their runs with keys in full, by uid
        self._totals: dict[tuple[str, DueQuery], WindowTotals] = {}
        self._numbers = 0  # how many they are made of

    @property
    def conditions(self) -> set[Condition]:
        """The conditions that have a partial."""
        return {c for block in self.blocks for c in block.conditions}

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

    def empty(self) -> Self:
        """Shards like these, without partials."""
        made = type(self)(self.keys, self.types, self.values)
        made.bests = dict(self.bests)
        made.sums = {c: s.like() for c, s in self.sums.items()}
        return made

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
        """Keep a block; as soon as there are several of one index and of similar size they become one."""
        alike = [
            i
            for i, b in enumerate(self.blocks)
            if b.space is block.space and b.epoch == block.epoch and b.only == block.only
        ]
        similar: list[int] = []
        while alike and len(self.blocks[alike[-1]]) <= 2 * len(block):
            similar.append(alike.pop())
            if len(similar) == MOST_SIMILAR:
                for i in similar:
                    block = self._merged(self.blocks.pop(i), block)
                similar.clear()
        self.blocks.append(block)

    def _merged(self, a: PartialBlock, b: PartialBlock) -> PartialBlock:
        """Both as one, in the order of their edges: only where their times overlap can partials be the same."""
        early, late = int(np.searchsorted(a.edge, b.edge[0])), int(np.searchsorted(b.edge, a.edge[-1], "right"))
        if early == len(a) and late == 0:
            return self._after_each_other([a, b])
        seam = self._added(a.cut(early, len(a)), b.cut(0, late))
        return self._after_each_other([a.cut(0, early), seam, b.cut(late, len(b))])

    def _after_each_other(self, blocks: Sequence[PartialBlock]) -> PartialBlock:
        """Blocks of one index whose edges follow each other, as one."""
        head, *more = blocks = [b for b in blocks if len(b)]
        if not more:
            return head
        edge, cell, slot, rows = (
            np.concatenate(parts) for parts in zip(*((b.edge, b.cell, b.slot, b.rows) for b in blocks), strict=True)
        )
        block = PartialBlock(head.space, head.epoch, edge, cell, slot, rows, only=head.only)
        block.values = {v: concat_arrays([b.values[v] for b in blocks]) for v in head.values}
        for column in self.sums:
            if all(column in b.lanes for b in blocks):
                layout = SumLanes()
                for b in blocks:
                    layout = layout.union(b.layouts[column])
                parts = [relaid_block(b, column, layout) for b in blocks]
                block.lanes[column], block.layouts[column] = np.concatenate(parts), layout
        for key in self.bests:
            if all(key in b.bests for b in blocks):
                codes, filled = (np.concatenate(parts) for parts in zip(*(b.bests[key] for b in blocks), strict=True))
                block.bests[key] = codes, filled
        return block

    def _added(self, a: PartialBlock, b: PartialBlock) -> PartialBlock:
        """Both as one, equal partials added up."""
        both = self._after_each_other([a, b])
        keys: list[pa.Array] = [pa.array(k) for k in (both.edge, both.cell, both.slot)]
        codes, first = factorize([*keys, *both.values.values()], len(both))
        if len(first) == len(both):
            return both.sorted()
        made = both.take(first)
        made.rows = _sums(codes, both.rows, len(first))
        for column, lanes in both.lanes.items():
            made.lanes[column] = carried(_sums(codes, lanes, len(first)), both.layouts[column])
        for key, (best, filled) in both.bests.items():
            made.bests[key] = greatest(codes, best, filled, True, len(first))
        return made.sorted()

    def forget(self, oldest: int, alive: Set[Condition], names: Set[str]) -> None:
        """Drop partials at or before `oldest`, and those that no query reads any more."""
        kept = []
        for block in self.blocks:
            if block.only is not None and not (block.only & names):
                continue
            if not any(c in block.space.number for c in alive):
                continue
            old = int(np.searchsorted(block.edge, oldest, "right"))
            if old < len(block):
                kept.append(block if 2 * old < len(block) else block.cut(old, len(block)))
        self.blocks = kept
        read = self.conditions
        self._totals = {k: t for k, t in self._totals.items() if k[0] in names and k[1].condition in read}
        self._numbers = sum(t.size for t in self._totals.values())
        if self.keys and len(self.groups) > 2 * sum(map(len, kept)) + 1024:
            used = np.zeros(self.groups.capacity, np.bool_)
            for slots in self._used():
                used[slots] = True
            dead = self.groups.slots[~used[self.groups.slots]]
            self.groups.release(dead)

    def _used(self) -> list[Int64s]:
        """Slots of groups that must not be forgotten."""
        return [block.slot for block in self.blocks]

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

    def _key_columns(self, slots: Int64s) -> dict[str, pa.Array]:
        return dict(zip(self.keys, self.groups.keys(slots), strict=True)) if self.keys else {}


def _sliced(ts: Int64s, edges: Edges) -> SlicedRows:
    """Rows cut at the edges; the last slice ends at the first edge beyond them."""
    _, every = edges.own(ts, int(ts[-1]))
    every = every[: int(np.searchsorted(every, ts[-1], "left")) + 1]
    return SlicedRows(np.concatenate(([0], np.searchsorted(ts, every, "right"))), every)


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


def _sums(codes: Int64s, lanes: Int64s, count: int) -> Int64s:
    """The sums of lanes with the same code."""
    found = np.zeros((count, lanes.shape[1]), np.int64)
    np.add.at(found, codes, lanes)
    return found


def carried(lanes: Int64s, layout: SumLanes) -> Int64s:
    """Limbs carried, so that merging again and again does not overflow."""
    limbs.carry(lanes, layout.sums_at, layout.squares_at)
    limbs.carry(lanes, layout.squares_at, layout.width)
    return lanes
