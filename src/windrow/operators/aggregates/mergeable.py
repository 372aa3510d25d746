"""Aggregates of parts of the rows, to be merged: what a one-time query keeps of each run that it has read.

A part's groups have exact partials: rows, lanes of integers (`sums`), and the best value of MIN and MAX. Merging adds
lanes and compares values, so it gives to the bit what aggregating all rows at once gives, in whatever order parts are
merged, and parts can be left out again before. Functions that need all values of a group (DISTINCT, MEDIAN, TOP_K) do
not merge.

Cost: one pass over the rows of a part; a merge costs the groups of all parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.answers import scalars
from windrow.operators.aggregates.call import EXTREMES, LINEAR, MOMENTS, Aggregation
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.limbs import add_rows
from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.sums import Cells, SumLanes, Sums, relaid
from windrow.operators.aggregates.vectors import Int64s, validity
from windrow.operators.elements import concat_arrays
from windrow.operators.keys import factorize

_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Partial:
    """Groups of some rows: their keys, how many rows each has, lanes by column, best values by (column, least)."""

    keys: tuple[pa.Array, ...]
    rows: Int64s
    lanes: Mapping[str, tuple[SumLanes, Int64s]]
    best: Mapping[tuple[str, bool], pa.Array]


def merges(aggregations: Sequence[Aggregation]) -> bool:
    """Whether these aggregates of parts can be merged."""
    return all(a.kind in EXTREMES or (a.kind in LINEAR and not a.distinct) for a in aggregations)


class MergeableAggregate:
    """GROUP BY of rows that are all there at one instant, in parts."""

    def __init__(
        self, keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType]
    ) -> None:
        self.keys, self.aggregations, self._types = tuple(keys), tuple(aggregations), types
        linear = [a for a in aggregations if a.kind in LINEAR and a.column is not None]
        self.summed = {
            str(a.column): (
                any(o.kind != "count" for o in linear if o.column == a.column),
                any(o.kind in MOMENTS for o in linear if o.column == a.column),
            )
            for a in linear
        }
        self.best = {(str(a.column), a.kind == "min") for a in aggregations if a.kind in EXTREMES}

    def part(self, columns: Mapping[str, pa.Array], length: int, sign: np.ndarray | None = None) -> Partial:
        """The groups of some rows; `sign`: how often each counts, if some are taken back."""
        keys = [columns[k] for k in self.keys]
        group, first = factorize(keys, length)
        count = len(first) if keys else 1  # without keys there is one group, rows or not
        cells = Cells(group, np.ones(length, np.int8) if sign is None else sign, count)
        lanes = {}
        for name, wanted in self.summed.items():
            sums = Sums(self._types[name], *wanted)
            lanes[name] = (sums, sums.lift(columns[name], cells))
        return Partial(
            tuple(k.take(pa.array(first)) for k in keys),
            np.bincount(group, sign, count).astype(np.int64),  # exact: a double counts further than there are rows
            {name: (sums.layout, sums.canonical(matrix)) for name, (sums, matrix) in lanes.items()},
            {(name, least): _best(columns[name], group, count, least) for name, least in self.best},
        )

    def empty(self) -> Partial:
        """The groups of no rows."""
        return self.part({name: pa.array([], type_) for name, type_ in self._types.items()}, 0)

    def merged(self, parts: Sequence[Partial]) -> Partial:
        """The groups of all rows of some parts, at least one; of several, each may have a group more than once."""
        if len(parts) == 1:
            return parts[0]
        keys = [concat_arrays([p.keys[i] for p in parts]) for i in range(len(self.keys))]
        rows = np.concatenate([p.rows for p in parts])
        group, first = factorize(keys, len(rows))
        count = len(first) if keys else 1
        total = np.zeros(count, np.int64)
        np.add.at(total, group, rows)
        best = {key: _best(concat_arrays([p.best[key] for p in parts]), group, count, key[1]) for key in self.best}
        lanes = {name: self._added(name, [p.lanes[name] for p in parts], group, count) for name in self.summed}
        return Partial(tuple(k.take(pa.array(first)) for k in keys), total, lanes, best)

    def _added(
        self, name: str, parts: Sequence[tuple[SumLanes, Int64s]], group: Int64s, count: int
    ) -> tuple[SumLanes, Int64s]:
        sums = Sums(self._types[name], *self.summed[name])
        for layout, _ in parts:
            sums.widen(layout)
        matrix = np.zeros((count, sums.layout.width), np.int64)
        together = np.concatenate([relaid(lanes, layout, sums.layout) for layout, lanes in parts])
        add_rows(together, group, np.ones(len(group), np.int8), matrix, 0)
        return sums.layout, sums.canonical(matrix)

    def answer(self, partial: Partial) -> dict[str, pa.Array]:
        """The key columns and the value of every aggregate, a row for each group."""
        found = dict(zip(self.keys, partial.keys, strict=True))
        for call in self.aggregations:
            found[call.output] = self._value(call, partial)
        return found

    def _value(self, call: Aggregation, partial: Partial) -> pa.Array:
        if call.column is None:
            return scalars(partial.rows, None, call.type).build(slice(None))
        if call.kind in EXTREMES:
            return partial.best[call.column, call.kind == "min"].cast(call.type)
        layout, lanes = partial.lanes[call.column]
        lowering = Lowering(lanes, layout, self._types[call.column], partial.rows)
        return lowering.answer(call).build(slice(None))


def _best(column: pa.Array, group: Int64s, count: int, least: bool) -> pa.Array:
    """The least or greatest value of every group; null where it has none."""
    (codes,), order = encode([column])
    valid = validity(column)
    if valid is not None:
        codes, group = codes[valid], group[valid]
    found = np.full(count, _LEAST)
    np.maximum.at(found, group, ~codes if least else codes)
    some = np.zeros(count, np.bool_)
    some[group] = True
    found = np.where(some, found, -1 if least else 0)  # a code that can be decoded, whatever is there
    return order.decode(~found if least else found, None if some.all() else some)
