"""The answer of a shared plan, parted by query: one sort and one gather for all of them, then slices.

Constants that queries show are columns of values taken by query, made for all queries at once that differ in them only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s, raw
from windrow.operators.elements import Elements
from windrow.operators.route import by_number
from windrow.operators.terms import QUERY
from windrow.sharing.plans.canonical import Canonical
from windrow.sharing.plans.constants import value_of
from windrow.sharing.plans.form_columns import FormColumns


@dataclass(frozen=True)
class ShownAnswer:
    """How a query of a shared plan shows its answer."""

    name: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    has_op: bool
    time_type: pa.DataType
    constants: Mapping[str, pa.Array]  # those of its columns that are no columns of the plan, each of one value

    @cached_property
    def alike(self) -> Hashable:
        """What two queries have in common that show the same but for the values of constants."""
        columns = tuple((i, self.constants[c].type) if c in self.constants else c for i, c in enumerate(self.columns))
        return columns, self.names

    @classmethod
    def of(cls, form: Canonical) -> ShownAnswer:
        """How a query shows what its canonical form answers."""
        plan = form.plan
        names = ("_ts", *(("_op",) if plan.has_op else ()), *(name for name, _ in form.output))
        constants = {c: value_of(e) for c, e in form.constants}
        return cls(plan.name, tuple(c for _, c in form.output), names, plan.has_op, plan.time_type, constants)


class InstanceRows(NamedTuple):
    """Rows of the queries of a block as users see them, and which of its queries each row is of."""

    block: str
    table: pa.Table
    which: Int64s


def of_many(rows: Elements, block: str, forms: FormColumns, at: Int64s, which: Int64s) -> InstanceRows:
    """The rows of a block: those at some places of an answer, in the order in which they stand."""
    shown = ShownAnswer.of(forms.form)
    rows = rows.take(at)
    ts, sign = pa.array(rows.ts).cast(shown.time_type), pa.array(rows.sign)
    columns = {**rows.columns, **forms.constants_of(which)}
    arrays = [ts, *((sign,) if shown.has_op else ()), *(columns[c] for c in shown.columns)]
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
    mine = [shown.get(number) for number in query[first].tolist()]
    tables = _tables(rows, mine, ends - first)
    for who, low, high in zip(mine, first.tolist(), ends.tolist(), strict=True):
        if who is not None:
            yield who, tables[who.alike].slice(low, high - low)


def _tables(rows: Elements, queries: Sequence[ShownAnswer | None], counts: Int64s) -> dict[Hashable, pa.Table]:
    """All rows as some queries show them, by what these have in common; `counts`: how many rows each has."""
    alike: dict[Hashable, dict[int, ShownAnswer]] = {}
    for place, query in enumerate(queries):
        if query is not None:
            alike.setdefault(query.alike, {})[place] = query
    if not alike:
        return {}
    some, found = next(iter(next(iter(alike.values())).values())), {}
    ts, sign = pa.array(rows.ts).cast(some.time_type), pa.array(rows.sign)
    for key, members in alike.items():
        one = next(iter(members.values()))
        columns = {i: rows.columns[c] for i, c in enumerate(one.columns) if c not in one.constants}
        if one.constants:
            whose = np.zeros(len(queries), np.int64)  # of other queries any
            whose[list(members)] = np.arange(len(members))
            picks = pa.array(np.repeat(whose, counts))
            for i in set(range(len(one.columns))) - columns.keys():
                columns[i] = pa.concat_arrays([m.constants[m.columns[i]] for m in members.values()]).take(picks)
        arrays = [ts, *((sign,) if one.has_op else ()), *(columns[i] for i in range(len(one.columns)))]
        found[key] = pa.Table.from_arrays(arrays, names=one.names)
    return found


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
