"""The answer of a shared plan, parted by query: one sort and one gather for all of them, then slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s, raw
from windrow.operators.elements import Elements
from windrow.operators.route import by_number
from windrow.operators.terms import QUERY
from windrow.sharing.plans.canonical import Canonical


@dataclass(frozen=True)
class ShownAnswer:
    """How a query of a shared plan shows its answer."""

    name: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    has_op: bool
    time_type: pa.DataType

    @classmethod
    def of(cls, form: Canonical) -> ShownAnswer:
        """How a query shows what its canonical form answers."""
        plan = form.plan
        names = ("_ts", *(("_op",) if plan.has_op else ()), *(name for name, _ in form.output))
        return cls(plan.name, tuple(c for _, c in form.output), names, plan.has_op, plan.time_type)


class InstanceRows(NamedTuple):
    """Rows of the queries of a block as users see them, and which of its queries each row is of."""

    block: str
    table: pa.Table
    which: Int64s


def of_many(rows: Elements, block: str, form: Canonical, at: Int64s, which: Int64s) -> InstanceRows:
    """The rows of a block: those at some places of an answer, in the order in which they stand."""
    shown = ShownAnswer.of(form)
    rows = rows.take(at)
    ts, sign = pa.array(rows.ts).cast(shown.time_type), pa.array(rows.sign)
    arrays = [ts, *((sign,) if shown.has_op else ()), *(rows.columns[c] for c in shown.columns)]
    return InstanceRows(block, pa.Table.from_arrays(arrays, names=shown.names), which)


def parted(rows: Elements, shown: Mapping[int, ShownAnswer]) -> Iterator[tuple[ShownAnswer, pa.Table]]:
    """The tables that users see, of all queries that have rows, each in the order of its times.

    Rows of queries that are not `shown` have nobody to see them.
    """
    if not len(rows) or not shown:
        return
    rows = _ordered(rows)
    query = raw(rows.columns[QUERY])
    first = np.flatnonzero(np.diff(query, prepend=-1))
    ends = np.append(first[1:], len(query))
    one = next(iter(shown.values()))
    ts, sign = pa.array(rows.ts).cast(one.time_type), pa.array(rows.sign)
    tables: dict[tuple[tuple[str, ...], ...], pa.Table] = {}  # of all rows, as some queries show them
    for number, low, high in zip(query[first].tolist(), first.tolist(), ends.tolist(), strict=True):
        mine = shown.get(number)
        if mine is not None:
            alike = (mine.columns, mine.names)
            if alike not in tables:
                arrays = [ts, *((sign,) if mine.has_op else ()), *(rows.columns[c] for c in mine.columns)]
                tables[alike] = pa.Table.from_arrays(arrays, names=mine.names)
            yield mine, tables[alike].slice(low, high - low)


def of_one(rows: Elements, number: int) -> Elements:
    """The rows of one query."""
    return rows.filter(raw(rows.columns[QUERY]) == number)


def _ordered(rows: Elements) -> Elements:
    """By query, then by time, then as they came; what lies so already stays."""
    query, ts = raw(rows.columns[QUERY]), rows.ts
    back = ts[1:] < ts[:-1]
    sorted_ = bool((query[1:] >= query[:-1]).all())
    if not back.any():
        return rows if sorted_ else rows.take(by_number(query))
    if sorted_ and not (back & (query[1:] == query[:-1])).any():
        return rows
    return rows.take(np.lexsort((ts, query)))
