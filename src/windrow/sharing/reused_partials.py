"""Running queries that answer a one-time aggregate: most of its window is in their partials already.

A periodic query's partials end at the edges of its window (`windows`). So of a question's window the stretch between
two edges is read from partials of a query that tests the same rows, and only what lies before and behind from rows:

    t - size      low                                  high     t
       |-- rows --|====== entries or partials of q =====|- rows -|

`q` may have more aggregates and more group keys than the question, and the question may test key columns of `q`
besides: partials of other groups are left out, those of groups that the question does not tell apart are added up.

Law: rows with a time in (low, high] for which the question's predicate holds are in exactly these partials, because
both ends are edges for as long as `q` has been there, and partials younger than its range and a period are kept.
Cost: the partials of the family in memory once, nothing per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.answers import coded
from windrow.operators.aggregates.call import EXTREMES, MOMENTS, Aggregation
from windrow.operators.aggregates.mergeable import MergeableAggregate, Partial
from windrow.operators.aggregates.order import CodeOrder
from windrow.operators.aggregates.sums import SumLanes
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import one
from windrow.operators.state.run import Run, ints
from windrow.plan.nodes import QueryPlan
from windrow.sharing.cells import unpacked
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import window_cuts
from windrow.sharing.family import slot
from windrow.sharing.index import PredicateIndex
from windrow.sharing.lanes import code_names, lanes_of
from windrow.sharing.member import FamilyMember, Member
from windrow.sharing.recognise import NotShared, Recognised, recognise
from windrow.sharing.shard_partials import carried

LEDGER = "ledger"
"""The slot of entries."""


def as_member(plan: QueryPlan) -> Recognised | None:
    """A one-time aggregate as if it were periodic; None: no partials could answer it."""
    try:
        found = recognise(replace(plan, root=replace(plan.root, period=1), made=None))
    except NotShared:
        return None
    # rows of a join have met the tables of their own time, a question those of now
    return None if found.source.tables or _by_values(found.member) else found


def _by_values(member: Member) -> bool:
    return member.kind.shards is not None and bool(member.kind.shards[1])


@dataclass(frozen=True)
class ReusedPartials:
    """The stretch `(low, high]` of a question's window, and whose partials have it; `wanted`: of which keys."""

    entry: FamilyMember
    low: int
    high: int
    wanted: Condition | None

    @property
    def slot(self) -> str:
        """Where the partials are in the family's state."""
        key = self.entry.member.kind.shards
        return LEDGER if key is None else slot(key)


def reused_partials(
    asked: Recognised, entries: Iterable[FamilyMember], frontier: int, technique: str
) -> ReusedPartials | None:  # fmt: skip
    """Of the members of a family, the one that has the longest stretch of the window; None if that is under half."""
    size = asked.member.window.range
    needed = _needs(asked.member.kind.calls)
    best: ReusedPartials | None = None
    for entry in entries:
        member = entry.member
        if _by_values(member) or not set(asked.member.kind.keys) <= set(member.kind.keys):
            continue
        tested, wanted = _tested(asked.member.condition, member)
        if not tested or not needed <= _needs(member.kind.calls):
            continue
        low, high = _stretch(member, frontier - size, frontier, technique)
        if 2 * (high - low) >= size and (best is None or high - low > best.high - best.low):
            best = ReusedPartials(entry, low, high, wanted)
    return best


def _needs(calls: Sequence[Aggregation]) -> set[tuple[str, str]]:
    """What must be kept of columns to answer calls."""
    found = set()
    for call in calls:
        if call.column is not None:
            kinds = (call.kind,) if call.kind in EXTREMES else ("count", "sum", "squares")
            last = 1 if call.kind in EXTREMES or call.kind == "count" else 3 if call.kind in MOMENTS else 2
            found |= {(call.column, kind) for kind in kinds[:last]}
    return found


def _tested(asked: Condition, member: Member) -> tuple[bool, Condition | None]:
    """Whether a member has all rows of a condition, and what its keys must be besides."""
    if asked == member.condition:
        return True, None
    if len(asked.boxes) != 1 or len(member.condition.boxes) != 1:
        return False, None
    mine, wants = dict(member.condition.boxes[0]), dict(asked.boxes[0])
    keys = {a: v for a, v in wants.items() if a.sql in member.kind.keys}
    others = all(mine.get(a) == v for a, v in wants.items() if a not in keys)
    narrower = all(a in wants and (a not in keys or (keys[a] & v) == keys[a]) for a, v in mine.items())
    return others and narrower, Condition((tuple(keys.items()),))


def _stretch(member: Member, after: int, upto: int, technique: str) -> tuple[int, int]:
    """The first edge of a member's windows from `after` on that it still has, and the last up to `upto`."""
    window = member.window
    oldest = max(after, upto - window.range - window.slide)
    cuts = window_cuts(window, technique)
    low = min(-(-(oldest - offset) // step) * step + offset for step, offset in cuts)
    high = max((upto - offset) // step * step + offset for step, offset in cuts)
    return low, high


def partial_of(found: ReusedPartials, asked: Recognised, aggregate: MergeableAggregate, runs: Iterable[Run]) -> Partial:
    """What the partials in the runs of their slot give to the question; its names are the aggregate's own."""
    names = dict(asked.shown)
    keys = {k: names[k] for k in aggregate.keys}
    calls = {c.output: c for c in asked.member.kind.calls}
    columns = {str(c.column): str(calls[names[c.output]].column) for c in aggregate.aggregations if c.column}
    types = {name: f.type for name, f in asked.member.kind.formulas.items()}
    parts = [
        Partial(
            tuple(table.keys[keys[k]] for k in aggregate.keys), table.rows,
            {own: table.lanes(columns[own]) for own in aggregate.summed},
            {(own, least): table.best(columns[own], least, types[columns[own]]) for own, least in aggregate.best},
        )
        for table in _picked(found, runs)
    ]  # fmt: skip
    return aggregate.merged([aggregate.empty(), *parts])


@dataclass(frozen=True)
class _Partials:
    """Partials that a question wants, of one run."""

    table: pa.Table
    keys: Mapping[str, pa.Array]

    @property
    def rows(self) -> Int64s:
        return ints(self.table, "rows")

    def lanes(self, column: str) -> tuple[SumLanes, Int64s]:
        lanes, layout = lanes_of(self.table, column)
        return layout, carried(lanes, layout)

    def best(self, column: str, least: bool, type_: pa.DataType) -> pa.Array:
        codes, some = (ints(self.table, n) for n in code_names(column, least))
        found = np.where(some, ~codes if least else codes, 0)
        return coded(found, None if some.all() else some, CodeOrder(type_), type_).build(slice(None))


def _picked(found: ReusedPartials, runs: Iterable[Run]) -> Iterator[_Partials]:
    for table in (run.table for run in runs):
        edge = ints(table, "edge")
        inside = (edge > found.low) & (edge <= found.high) & _mine(found.entry, table)
        picked = table if inside.all() else table.filter(pa.array(inside))
        keys = {k: one(picked.column(f"key|{k}")) for k in found.entry.member.kind.keys}
        if found.wanted is not None and picked.num_rows:
            index = PredicateIndex([found.wanted])
            cells = index.cells(0, index.places(keys), picked.num_rows)
            there = (cells >= 0) & index.spaces[0].inside(0, np.maximum(cells, 0))
            picked, keys = picked.filter(pa.array(there)), {k: c.filter(pa.array(there)) for k, c in keys.items()}
        if picked.num_rows:
            yield _Partials(picked, keys)


def _mine(entry: FamilyMember, table: pa.Table) -> Bools:
    """Which partials of a table are for a member."""
    if entry.synopsis is not None:
        return np.asarray(ints(table, "account") == entry.synopsis)
    epoch, only = json.loads(table.schema.metadata[b"block"])  # history is for some queries alone
    space = unpacked(table.schema.metadata[b"plot"])
    for_it = epoch >= entry.epoch if only is None else entry.member.name in only
    if not for_it or entry.member.condition not in space.number:
        return np.zeros(table.num_rows, np.bool_)
    return np.asarray(space.inside(space.number[entry.member.condition], ints(table, "cell")))
