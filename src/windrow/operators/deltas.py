"""Changes of the groups of an aggregation over a join: how many rows more or less, and by how much each lane.

The join meets entries, not rows, so its groups are fed with changes (`Deltas`) instead of elements. Changes add up:
those of several partitions, summed per group and instant, are those of the whole. They travel as elements that never
end, which are rows reduced already (`aggregates/reduced`): an aggregate takes them for what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.reduced import LANES, ROWS, listed, sums_of, values_of
from windrow.operators.aggregates.sums import SumLanes
from windrow.operators.aggregates.sweep import in_order
from windrow.operators.aggregates.vectors import Int64s, opens
from windrow.operators.elements import INF, Elements, concat_arrays
from windrow.operators.keytable import KeyTable


@dataclass(frozen=True)
class Deltas:
    """Changes of output groups: when, how many rows, by how much the lanes; `groups`: slots of grouping attributes."""

    ts: Int64s
    rows: Int64s
    lanes: dict[str, Int64s]
    groups: list[Int64s]
    values: dict[str, pa.Array]


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
    starts = np.flatnonzero(opens(g, t))
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
    columns |= {f"{LANES}{c}": listed(layouts[c], m[kept]) for c, m in lanes.items()}
    return Elements.positive(deltas.ts[first], INF, columns)
