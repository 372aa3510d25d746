"""Slices: rows of one group with one quantised lifetime, summed before anything else happens to them.

On a grid of evaluation instants many rows share `(ts, exp, group)`. One pass numbers these cells and sums the
rows' lanes into them; from then on an advance costs what the cells cost, not the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.pending import RowEnds
from windrow.operators.aggregates.sums import Cells, SumLanes
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import Elements


@dataclass(frozen=True)
class Slices:
    """Cells with their lifetime and group, and which cell each row is in."""

    ts: Int64s
    exp: Int64s
    slot: Int64s
    cells: Cells


def slices_of(elements: Elements, slot: Int64s, groups: int, period: int) -> Slices:
    """Number the cells of elements whose slots are below `groups`."""
    life, ts, exp = _lifetimes(elements, period)
    code = life * groups + slot
    bound = len(ts) * groups
    if bound <= 2 * len(code) + 4096:
        cells = Cells(code, elements.sign, bound)
        return Slices(np.repeat(ts, groups), np.repeat(exp, groups), np.tile(np.arange(groups), len(ts)), cells)
    used, of_row = np.unique(code, return_inverse=True)
    return Slices(ts[used // groups], exp[used // groups], used % groups, Cells(of_row, elements.sign, len(used)))


def _lifetimes(elements: Elements, period: int) -> tuple[Int64s, Int64s, Int64s]:
    """The lifetime of each element as a number, and the ends of the numbered lifetimes."""
    ts, exp = elements.ts, elements.exp
    first = int(ts.min())
    steps = (ts - first) // period
    span = exp - ts
    if steps.max() <= 4 * len(ts):
        starts = first + np.arange(int(steps.max()) + 1) * period
        if (span == span[0]).all():
            return steps, starts, starts + span[0]
        if (exp == exp[0]).all():
            return steps, starts, np.full(len(starts), exp[0])
    ends, end = np.unique(exp, return_inverse=True)
    begins, begin = np.unique(ts, return_inverse=True)
    pairs, life = np.unique(begin * len(ends) + end, return_inverse=True)
    return life, begins[pairs // len(ends)], ends[pairs % len(ends)]


def ends_of(exp: Int64s, slot: Int64s, lanes: dict[str, Int64s]) -> RowEnds:
    """Cells that wait for their end; lanes without any value are left out."""
    columns = {name: pa.array(lane) for name, lane in lanes.items() if lane.any()}
    return RowEnds(exp, slot.astype(np.int32), np.ones(len(exp), np.int8), columns)


def lanes_of(rows: RowEnds, prefix: str, layout: SumLanes, out: Int64s) -> None:
    """Read one column's lanes of waiting cells into `out`, which has `layout`."""
    places = {f"{prefix}{name}": k for k, name in enumerate(layout.names())}
    for name, column in rows.columns.items():
        if name in places:
            out[:, places[name]] = column.to_numpy()


def layout_of(rows: RowEnds, prefix: str) -> SumLanes:
    """The layout of one column's lanes in waiting cells."""
    return SumLanes.of_names([n[len(prefix) :] for n in rows.columns if n.startswith(prefix)])
