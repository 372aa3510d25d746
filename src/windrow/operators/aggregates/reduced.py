"""Reduced rows: what an aggregate needs to know of rows that share a group and a lifetime, as one row.

    rows           [ts, exp)  sign  keys  arguments
    reduced rows   [ts, exp)  +1    keys  how many (`rows'`), sums of each argument (`lanes'`), its best (`least'`, ...)

Law: an aggregate answers the same whichever of its rows were reduced, and by whom. Sums are integers (`sums`), so they
add up in any order; among elements that nobody takes back and that end together only the best can ever be MIN or MAX.
An argument whose values are wanted one by one (DISTINCT, MEDIAN, an extreme that may be taken back) is one more key.
Unless a best value is wanted, a row may as well be two changes, one when it comes and one when it ends: the results of
a join, which end when one of their rows does, are fewer by instant than by lifetime.

A column's lanes travel as one list for each row: the layout as one number, then the lanes. Cost: one pass over the
rows, which numbers them by group and lifetime and adds them up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.call import EXTREMES, Aggregation
from windrow.operators.aggregates.mergeable import MergeableAggregate
from windrow.operators.aggregates.sums import SumLanes, Sums, relaid
from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.changes import Clocked
from windrow.operators.elements import INF, Elements, concat

ROWS, LANES = "rows'", "lanes' "
_BEST = {True: "least' ", False: "greatest' "}
_TS, _EXP = "ts'", "exp'"


@dataclass(frozen=True)
class RowWeights:
    """How often each row counts, and the lanes of each column that is summed, with what rows weigh in them."""

    rows: Int64s
    lanes: Mapping[str, tuple[SumLanes, Int64s]]


def is_reduced(columns: Collection[str]) -> bool:
    """Whether these are the columns of reduced rows."""
    return ROWS in columns


def best_of(columns: Mapping[str, pa.Array], column: str, least: bool) -> pa.Array:
    """The values of an argument of MIN or MAX, of rows that may be reduced."""
    return columns.get(_BEST[least] + column, columns.get(column))


def values_of(aggregations: Sequence[Aggregation]) -> tuple[str, ...]:
    """The columns whose values, not sums, are wanted."""
    return tuple(dict.fromkeys(str(a.column) for a in aggregations if not a.adds_up and a.column))


def sums_of(aggregations: Sequence[Aggregation]) -> tuple[str, ...]:
    """The columns whose sums are wanted."""
    return tuple(dict.fromkeys(str(a.column) for a in aggregations if a.adds_up and a.column))


class Reduction:
    """Reduces the rows of GROUP BY `keys` with `aggregations`; `strict` when negative elements may come."""

    def __init__(
        self, keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType], strict: bool
    ) -> None:
        merged = [a for a in aggregations if a.adds_up or (a.kind in EXTREMES and not strict)]
        values = values_of([a for a in aggregations if a not in merged])
        self.keys = tuple(dict.fromkeys((*keys, *values)))
        times = {_TS: pa.int64(), _EXP: pa.int64()}
        lanes = sum(4 if pa.types.is_floating(types[c]) else 2 for c in sums_of(merged))
        # bytes, about, beside the keys: times, sign and count, then the lanes of lists with their heads, then values
        self.width = 25 + 12 * len(sums_of(merged)) + 8 * lanes + 8 * len(values_of(merged))
        self.divides = strict or bool(aggregations and not any(a.kind in EXTREMES for a in aggregations))
        self.rests = 0  # batches that are sent as they are before one is looked at again
        self._cells = MergeableAggregate((*self.keys, *times), merged, {**types, **times})

    def changes(self, elements: Elements) -> Elements:
        """The same rows as what happens when they come and when they end; only if it `divides` them."""
        ending = elements.filter(elements.exp != INF)
        ends = ending.with_lifetimes(ending.exp, np.full(len(ending), INF)).negated()
        return concat([elements.with_lifetimes(elements.ts, np.full(len(elements), INF)), ends])

    def reduced(self, elements: Elements) -> Elements:
        """The same rows, reduced; rows that cancel leave nothing."""
        if not len(elements) or is_reduced(elements.columns):
            return elements
        times = {_TS: pa.array(elements.ts), _EXP: pa.array(elements.exp)}
        part = self._cells.part({**elements.columns, **times}, len(elements), elements.sign)
        *keys, ts, exp = part.keys
        columns = dict(zip(self.keys, keys, strict=True)) | {ROWS: pa.array(part.rows)}
        columns |= {f"{LANES}{c}": listed(layout, lanes) for c, (layout, lanes) in part.lanes.items()}
        columns |= {_BEST[least] + c: values for (c, least), values in part.best.items()}
        found = Elements(ts.to_numpy(), exp.to_numpy(), np.ones(len(ts), np.int8), columns)
        some = part.rows != 0
        if some.all():
            return found
        for _, lanes in part.lanes.values():
            some |= lanes.any(axis=1)
        return found.filter(some)


def alike(parts: Sequence[Elements], reduction: Reduction) -> Sequence[Elements]:
    """Parts with the same columns: if some are reduced, all."""
    if any(len(p) and is_reduced(p.columns) for p in parts):
        return [reduction.reduced(p) for p in parts if len(p)]
    return parts


class ReducedInput(Clocked):
    """Base of aggregates whose rows may come reduced; what waits for their clock to start does so reduced."""

    @property
    def reduction(self) -> Reduction:
        """How rows may be reduced before they come here."""
        raise NotImplementedError

    def _on_time(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        if self._early is not None:
            self._early, *inputs = alike([self._early, *inputs], self.reduction)
        found = super()._on_time(inputs, frontier)
        if self._early is not None:
            self._early = self.reduction.reduced(self._early)
        return found


def listed(layout: SumLanes, lanes: Int64s) -> pa.Array:
    """Lanes as a column of lists."""
    width = lanes.shape[1] + 1
    whole = np.empty((len(lanes), width), np.int64)
    whole[:, 0], whole[:, 1:] = _packed(layout), lanes
    ends = np.arange(0, (len(lanes) + 1) * width, width, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(whole.ravel()))


def unlisted(column: pa.Array) -> tuple[SumLanes, Int64s]:
    """Lanes of lists, brought to one layout."""
    offsets, values = column.offsets.to_numpy(), column.values.to_numpy()
    heads = values[offsets[:-1]]
    found = {int(h): _unpacked(int(h)) for h in distinct_values(heads)}
    whole = SumLanes()
    for layout in found.values():
        whole = whole.union(layout)
    lanes = np.zeros((len(column), whole.width), np.int64)
    for head, layout in found.items():
        at = np.flatnonzero(heads == head)
        own = values[offsets[at][:, None] + 1 + np.arange(layout.width)]
        lanes[at] = relaid(own, layout, whole)
    return whole, lanes


def row_weights(
    blocks: Sequence[Mapping[str, pa.Array]], lengths: Sequence[int], sums: Mapping[str, Sums]
) -> RowWeights:
    """How often rows of some blocks count, those that are reduced as often as they say; `sums`: of each column."""
    counts = [b[ROWS].to_numpy() if ROWS in b else np.ones(n, np.int64) for b, n in zip(blocks, lengths, strict=True)]
    lanes = {
        c: together([unlisted(b[LANES + c]) if is_reduced(b) else _lifted(known, b[c]) for b in blocks])
        for c, known in sums.items()
    }
    return RowWeights(np.concatenate(counts), lanes)


def kept_columns(
    columns: Mapping[str, pa.Array], arguments: Collection[str], values: Collection[str]
) -> dict[str, pa.Array]:
    """What an aggregate must know when rows end: of reduced rows their lanes and `values`, of others all arguments."""
    if not is_reduced(columns):
        return {c: columns[c] for c in arguments}
    return {c: a for c, a in columns.items() if c == ROWS or c.startswith(LANES) or c in values}


def _lifted(sums: Sums, column: pa.Array) -> tuple[SumLanes, Int64s]:
    """The lanes of each row."""
    fresh = Sums(sums.type, *sums.functions)
    lanes = fresh.lift(column)
    return fresh.layout, lanes


def laid_out(sums: Sums, layout: SumLanes, lanes: Int64s) -> Int64s:
    """Lanes as `sums` has them, which is widened to have them all."""
    sums.widen(layout)
    return relaid(lanes, layout, sums.layout)


def together(parts: Sequence[tuple[SumLanes, Int64s]]) -> tuple[SumLanes, Int64s]:
    """The lanes of several blocks of rows, one after the other."""
    if len(parts) == 1:
        return parts[0]
    whole = SumLanes()
    for layout, _ in parts:
        whole = whole.union(layout)
    return whole, np.concatenate([relaid(lanes, layout, whole) for layout, lanes in parts])


def _packed(layout: SumLanes) -> int:
    bounds = (*layout.sums, *layout.squares)
    return int(layout.nulls) | layout.specials << 1 | sum(b << (2 + 12 * k) for k, b in enumerate(bounds))


def _unpacked(code: int) -> SumLanes:
    a, b, c, d = (code >> (2 + 12 * k) & 0xFFF for k in range(4))
    return SumLanes(bool(code & 1), bool(code & 2), (a, b), (c, d))
