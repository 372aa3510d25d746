"""Blocks of partials, what a query reads of them, and the totals of a window."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.stretches import breaks_of, pieces
from windrow.operators.aggregates.sums import SumLanes, relaid
from windrow.operators.aggregates.vectors import Bools, Int64s, distinct_values
from windrow.operators.elements import Elements
from windrow.operators.state.run import Run
from windrow.sharing.cells import CellSpace
from windrow.sharing.conditions import Condition
from windrow.sharing.member import Member
from windrow.sharing.windows import SlideWindow


@dataclass(frozen=True)
class DueQuery:
    """A query that has the instants number `first..last` of its window to answer."""

    condition: Condition
    keys: tuple[str, ...]
    calls: tuple[Aggregation, ...]
    window: SlideWindow
    first: int
    last: int
    since: int  # the epoch it joined in: older blocks are not for it
    length: int = 1  # for how many periods an answer lives

    @staticmethod
    def of(member: Member, first: int, last: int, since: int) -> DueQuery:
        """What a member has to answer."""
        return DueQuery(member.condition, member.kind.keys, member.kind.calls, member.window, first, last, since)

    def end(self, number: int) -> int:
        """Where the window ends at an instant, in the time of rows."""
        return number * self.window.slide + self.window.phase

    def first_with(self, times: Int64s) -> Int64s:
        """The number of the first instant whose window ends at or after these times of rows."""
        return -((self.window.phase - times) // self.window.slide)

    def pieces(self, edges: Int64s) -> list[DueQuery]:
        """What is due, with long stretches of equal answers as one; `edges`: of all partials it may read."""
        window = self.window
        breaks = breaks_of(edges, window.range, window.slide, window.phase)
        found = pieces(self.first, self.last - self.first + 1, breaks)
        cut = zip(found.first.tolist(), found.count.tolist(), found.length.tolist(), strict=True)
        return [replace(self, first=first, last=first + count - 1, length=length) for first, count, length in cut]

    def elements(self, numbers: Int64s, columns: dict[str, pa.Array], lengths: Int64s | None = None) -> Elements:
        """Rows that are answers at these instants, each for so many periods."""
        ts = numbers * self.window.slide + self.window.offset
        lives = self.window.slide * (self.length if lengths is None else lengths)
        return Elements(ts, ts + lives, np.ones(len(ts), np.int8), columns)


@dataclass
class PartialBlock:
    """Partials of one space; `epoch` counts the indexes, and a query reads none older than the one it joined in."""

    space: CellSpace
    epoch: int
    edge: Int64s
    cell: Int64s
    slot: Int64s
    rows: Int64s  # [partials, 1]
    layouts: dict[str, SumLanes] = field(default_factory=dict)
    lanes: dict[str, Int64s] = field(default_factory=dict)
    bests: dict[tuple[str, bool], tuple[Int64s, Bools]] = field(default_factory=dict)
    values: dict[str, pa.Array] = field(default_factory=dict)
    only: frozenset[str] | None = None  # history that these queries alone may read
    run: Run | None = None  # once asked for

    def __len__(self) -> int:
        return len(self.edge)

    @cached_property
    def conditions(self) -> frozenset[Condition]:
        """The conditions that may have a partial here: whoever has another finds nothing in the block."""
        known = self.space.conditions
        if len(known) == 1 and isinstance(known[0], Condition):
            return frozenset((known[0],))
        return frozenset(known[p] for p in self.space.concerned(distinct_values(self.cell)).tolist())

    def sorted(self) -> PartialBlock:
        """In the order of edges, as blocks are."""
        return self if (np.diff(self.edge) >= 0).all() else self.take(np.argsort(self.edge, kind="stable"))

    def cut(self, begin: int, end: int) -> PartialBlock:
        """The partials from one place to another."""
        return self.take(np.arange(begin, end))

    def take(self, at: Int64s) -> PartialBlock:
        """The partials at some places."""
        picks = pa.array(at)
        return PartialBlock(
            self.space, self.epoch, self.edge[at], self.cell[at], self.slot[at], self.rows[at], self.layouts,
            {c: m[at] for c, m in self.lanes.items()},
            {k: (c[at], f[at]) for k, (c, f) in self.bests.items()},
            {c: v.take(picks) for c, v in self.values.items()},
            self.only,
        )  # fmt: skip


@dataclass
class WindowTotals:
    """The rows and lanes of every slot in a query's window at instant `at`."""

    at: int
    rows: Int64s  # [slots, 1]
    layouts: dict[str, SumLanes] = field(default_factory=dict)
    lanes: dict[str, Int64s] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.rows.size + sum(m.size for m in self.lanes.values())

    def grown(self, slots: int) -> None:
        """Have room for more slots."""
        more = slots - len(self.rows)
        if more > 0:
            self.rows = _padded(self.rows, more)
            self.lanes = {c: _padded(m, more) for c, m in self.lanes.items()}


def _padded(lanes: Int64s, more: int) -> Int64s:
    return np.concatenate((lanes, np.zeros((more, lanes.shape[1]), np.int64)))


@dataclass(frozen=True)
class Chosen:
    """Partials of a block that a query reads, each at instants `first..last`."""

    block: PartialBlock
    at: Int64s
    first: Int64s
    last: Int64s


def _readable(block: PartialBlock, due: DueQuery, name: str) -> bool:
    """Whether a block is for a query: made since it joined, or its own history; and of its space."""
    mine = block.epoch >= due.since if block.only is None else name in block.only
    return mine and due.condition in block.space.number


def chosen_of(block: PartialBlock, due: DueQuery, name: str) -> Chosen | None:
    if not _readable(block, due, name):
        return None
    inside = block.space.inside(block.space.number[due.condition], block.cell)
    first = np.maximum(due.first_with(block.edge), due.first)
    last = np.minimum(due.first_with(block.edge + due.window.range) - 1, due.last)
    at = np.flatnonzero(inside & (first <= last))
    return Chosen(block, at, first[at], last[at]) if len(at) else None


@dataclass(frozen=True)
class Picked:
    """Partials of a block."""

    block: PartialBlock
    at: Int64s


def within(block: PartialBlock, due: DueQuery, name: str, low: int, high: int) -> Picked | None:
    """The partials that a query reads with edges in `(low, high]`; blocks are in the order of their edges."""
    if block.edge[-1] <= low or high < block.edge[0] or not _readable(block, due, name):
        return None
    begin, end = np.searchsorted(block.edge, (low, high), "right")
    if begin == end:
        return None
    at = begin + np.flatnonzero(block.space.inside(block.space.number[due.condition], block.cell[begin:end]))
    return Picked(block, at) if len(at) else None


def relaid_block(block: PartialBlock, column: str, layout: SumLanes) -> Int64s:
    """The lanes of a column in another layout; those of the block where that is its own."""
    lanes, own = block.lanes[column], block.layouts[column]
    return lanes if own == layout else relaid(lanes, own, layout)


def clip(c: Chosen, local: Int64s, first: int, last: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """(partials, first instant, last instant, local group) within `first..last`, instants counted from `first`."""
    begin, end = np.maximum(c.first, first) - first, np.minimum(c.last, last) - first
    seen = begin <= end
    at, begin, end = (c.at, begin, end) if seen.all() else (c.at[seen], begin[seen], end[seen])
    return at, begin, end, local[c.block.slot[at]]
