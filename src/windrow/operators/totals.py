"""Groups whose changes come ready made: how many rows more or less, and by how much each lane.

The aggregation over a join meets entries, not rows, so its output groups are fed with changes (`Deltas`) instead of
elements. Changes add up: those of several partitions, summed per group and instant, are those of the whole. So where an
aggregation join is spread over partitions, each sends its changes as elements of `delta_schema`, and `Totals` absorbs
them where the groups live.

A column's lanes (`aggregates/sums`) travel as one list per change: the layout as one number, then the lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregate import ContinuousAggregate, GroupedAggregate, Swept
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import LINEAR
from windrow.operators.aggregates.sums import SumLanes, relaid
from windrow.operators.aggregates.sweep import MultiplicityChanges, in_order, sweep_of
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, INF, Elements, concat_arrays
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.keytable import KeyTable
from windrow.operators.protocol import State

ROWS, LANES = "rows'", "lanes' "

LIMIT = 2**31
"""A group of so many join results at once would overflow its lanes."""


@dataclass(frozen=True)
class Deltas:
    """Changes of output groups: when, how many rows, by how much the lanes; `groups`: slots of grouping attributes."""

    ts: Int64s
    rows: Int64s
    lanes: dict[str, Int64s]
    groups: list[Int64s]
    values: dict[str, pa.Array]


def is_sum(call: Aggregation) -> bool:
    """Whether a call is a sum of what its rows bring."""
    return call.kind in LINEAR and not call.distinct


def values_of(aggregations: Sequence[Aggregation]) -> tuple[str, ...]:
    """The columns whose values, not sums, are wanted."""
    return tuple(dict.fromkeys(str(a.column) for a in aggregations if not is_sum(a) and a.column))


def sums_of(aggregations: Sequence[Aggregation]) -> tuple[str, ...]:
    """The columns whose sums are wanted."""
    return tuple(dict.fromkeys(str(a.column) for a in aggregations if is_sum(a) and a.column))


def joined(deltas: Sequence[Deltas]) -> Deltas | None:
    """All changes in one; None if there are none. Groups are left out."""
    if len(deltas) <= 1:
        return deltas[0] if deltas else None
    first = deltas[0]
    return Deltas(
        np.concatenate([d.ts for d in deltas]),
        np.concatenate([d.rows for d in deltas]),
        {c: np.concatenate([d.lanes[c] for d in deltas]) for c in first.lanes},
        [],
        {c: concat_arrays([d.values[c] for d in deltas]) for c in first.values},
    )


# -- changes as elements ---------------------------------------------------------------------------------------------


def delta_schema(
    keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType]
) -> dict[str, pa.DataType]:
    """The columns of changes that travel."""
    schema = {c: types[c] for c in (*keys, *values_of(aggregations))}
    lanes = {f"{LANES}{c}": pa.list_(pa.int64()) for c in sums_of(aggregations)}
    return {**schema, ROWS: pa.int64(), **lanes}


def to_elements(
    slots: Int64s, keys: Mapping[str, pa.Array], deltas: Deltas, layouts: Mapping[str, SumLanes]
) -> Elements:
    """Changes as elements, those of one group, value and instant added up; `keys`: the groups, by slot."""
    group = slots
    if deltas.values:
        table = KeyTable({c: a.type for c, a in deltas.values.items()})
        group = table.slots(deltas.values, len(slots)) * (int(slots.max(initial=0)) + 1) + slots
    order = in_order(group, deltas.ts)
    g, t = group[order], deltas.ts[order]
    opens = np.ones(len(g), np.bool_)
    opens[1:] = (g[1:] != g[:-1]) | (t[1:] != t[:-1])
    starts = np.flatnonzero(opens)
    rows = np.add.reduceat(deltas.rows[order], starts)
    lanes = {c: np.add.reduceat(m[order], starts, axis=0) for c, m in deltas.lanes.items()}
    some = rows != 0
    for m in lanes.values():
        some |= m.any(axis=1)
    kept = np.flatnonzero(some)
    first = order[starts[kept]]
    picks = pa.array(slots[first])
    columns = {c: a.take(picks) for c, a in keys.items()}
    columns |= {c: a.take(pa.array(first)) for c, a in deltas.values.items() if c not in columns}
    columns[ROWS] = pa.array(rows[kept])
    columns |= {f"{LANES}{c}": _list(m[kept], layouts[c]) for c, m in lanes.items()}
    return Elements.positive(deltas.ts[first], INF, columns)


def from_elements(elements: Elements, aggregations: Sequence[Aggregation]) -> tuple[Deltas | None, dict[str, SumLanes]]:
    """Changes from elements, and the layouts of their lanes."""
    if not len(elements):
        return None, {c: SumLanes() for c in sums_of(aggregations)}
    lanes, layouts = {}, {}
    for c in sums_of(aggregations):
        lanes[c], layouts[c] = _unlist(elements.columns[f"{LANES}{c}"])
    values = {c: elements.columns[c] for c in values_of(aggregations)}
    rows = elements.columns[ROWS].to_numpy()
    return Deltas(elements.ts, rows, lanes, [], values), layouts


def _list(lanes: Int64s, layout: SumLanes) -> pa.Array:
    width = lanes.shape[1] + 1
    whole = np.empty((len(lanes), width), np.int64)
    whole[:, 0], whole[:, 1:] = _packed(layout), lanes
    ends = np.arange(0, (len(lanes) + 1) * width, width, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(whole.ravel()))


def _unlist(column: pa.Array) -> tuple[Int64s, SumLanes]:
    """Lanes of lists, brought to one layout."""
    offsets, values = column.offsets.to_numpy(), column.values.to_numpy()
    heads = values[offsets[:-1]]
    found = {int(h): _unpacked(int(h)) for h in np.unique(heads)}
    whole = SumLanes()
    for layout in found.values():
        whole = whole.union(layout)
    lanes = np.zeros((len(column), whole.width), np.int64)
    for head, layout in found.items():
        at = np.flatnonzero(heads == head)
        own = values[offsets[at][:, None] + 1 + np.arange(layout.width)]
        lanes[at] = relaid(own, layout, whole)
    return lanes, whole


def _packed(layout: SumLanes) -> int:
    bounds = (*layout.sums, *layout.squares)
    return int(layout.nulls) | layout.specials << 1 | sum(b << (2 + 12 * k) for k, b in enumerate(bounds))


def _unpacked(code: int) -> SumLanes:
    a, b, c, d = (code >> (2 + 12 * k) & 0xFFF for k in range(4))
    return SumLanes(bool(code & 1), bool(code & 2), (a, b), (c, d))


# -- groups ----------------------------------------------------------------------------------------------------------


class Weighted(GroupedAggregate):
    """Groups whose events have weights and lanes of their own."""

    def take_in(
        self, slots: Int64s, deltas: Deltas | None, layouts: Mapping[str, SumLanes], frontier: int, every_group: bool
    ) -> Swept | None:
        """Apply changes; None when nothing happens to any group."""
        begins = not self.keys and not self._begun and BEGINNING < self._start <= frontier
        if deltas is None and not begins and not every_group:
            return None
        if not self.keys and not (self._begun or begins):
            return None
        if self.keys:
            self._partials.grow(self._groups.capacity)
        none = np.zeros(0, np.int64)
        ts, weights = (none, none) if deltas is None else (np.maximum(deltas.ts, self._start), deltas.rows)
        sweep = sweep_of(slots, ts, np.arange(len(ts)), weights)
        sweep = self._mark(sweep, begins, self._groups.slots if every_group and self.keys else None)
        partials, feed = self._partials, sweep.feed
        total = np.concatenate(([0], np.cumsum(feed.deltas)))
        rows = total[feed.ends] - (total[feed.ends[sweep.firsts[:-1]]] - partials.rows[sweep.slots])[sweep.group]
        if len(rows) and rows.max() >= LIMIT:
            raise RuntimeFailure(
                "too many join results in one group",
                detail=f"{int(rows.max())} rows are joined at once",
                hint="make a window shorter, or group by more columns",
            )
        partials.rows[sweep.slots] = rows[sweep.last]
        position = partials._position(sweep.slots) if partials.values else rows
        members = {c: v.advance(sweep, self._value(deltas, c), position) for c, v in partials.values.items()}
        once = MultiplicityChanges(feed.rows, np.ones(len(feed.rows), np.int64), feed.ends)
        for (column, distinct), sums in partials.sums.items():
            if distinct:
                sums.advance(sweep, members[column].distinct.feed, members[column].values)
                continue
            sums.widen(layouts[column])
            lanes = np.zeros((0, layouts[column].width), np.int64) if deltas is None else deltas.lanes[column]
            sums.sweep(sweep, once, relaid(lanes, layouts[column], sums.layout))
        alive = rows > 0
        if not self.keys:
            alive[:] = True
            alive[0] = self._begun
        self._begun = self._begun or begins
        self._saved = {}
        return Swept(sweep, alive, partials._lower(sweep, rows, members, {}))

    def slots_of(self, changes: Elements) -> Int64s:
        """The group of each change."""
        if not self.keys:
            return np.zeros(len(changes), np.int64)
        return self._groups.lookup([changes.columns[k] for k in self.keys], len(changes))

    def _value(self, deltas: Deltas | None, column: str) -> pa.Array:
        return pa.array([], self._types[column]) if deltas is None else deltas.values[column]

    def _done(self, swept: Swept) -> None:
        self._release(swept.sweep.slots[~swept.alive[swept.sweep.last]])


class ContinuousTotals(ContinuousAggregate, Weighted):
    def absorb(self, slots: Int64s, deltas: Deltas | None, layouts: Mapping[str, SumLanes], frontier: int) -> Elements:
        """The stretches of constant answer that the changes make."""
        swept = self.take_in(slots, deltas, layouts, frontier, False)
        self._previous = frontier
        if swept is None:
            return Elements.empty(self.schema)
        output = self._stretches(swept)
        self._done(swept)
        return output


class GridTotals(GridAggregate, Weighted):
    def absorb(self, slots: Int64s, deltas: Deltas | None, layouts: Mapping[str, SumLanes], frontier: int) -> Elements:
        """The answers at the evaluation instants."""
        looks = frontier // self.period > self._previous // self.period
        swept = self.take_in(slots, deltas, layouts, frontier, looks)
        output = Elements.empty(self.schema) if swept is None else self._instants(swept, frontier)
        self._previous = frontier
        if swept is not None:
            self._done(swept)
        return output


def totals(
    keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType], period: int | None
) -> ContinuousTotals | GridTotals:
    """The groups of an aggregation over a join; `period`: answers at its multiples only."""
    if period is None:
        return ContinuousTotals(keys, aggregations, types, strict=True)
    return GridTotals(keys, aggregations, types, period, strict=True)


class Totals:
    """GROUP BY over changes that come as elements."""

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        period: int | None = None,
    ) -> None:
        self.keys, self.aggregations, self.period = tuple(keys), tuple(aggregations), period
        self._groups = totals(keys, aggregations, types, period)
        self.schema = self._groups.schema

    def start(self, ts: int) -> None:
        """The clock starts at `ts`."""
        self._groups.start(ts)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """What the aggregate sends in this advance."""
        (changes,) = inputs
        deltas, layouts = from_elements(changes, self.aggregations)
        return self._groups.absorb(self._groups.slots_of(changes), deltas, layouts, frontier)

    def state(self) -> State:
        return self._groups.state()

    def restore(self, state: State, frontier: int) -> None:
        self._groups.restore(state, frontier)
