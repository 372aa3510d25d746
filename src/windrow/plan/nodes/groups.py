"""Nodes whose answer depends on several rows of one input, or of inputs with equal schemas: ranks, functions OVER a
partition, duplicates, bags and aggregates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.operators.aggregates.call import FREQUENT, SKETCHED, Aggregation
from windrow.operators.terms import ClockStarts, SortKey
from windrow.plan.expr import Expr
from windrow.plan.nodes.node import Binary, Nary, Unary

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class TopN(Unary):
    """Rows whose rank within their partition is in `(offset, offset + limit]`; `output`: the rank as a column.

    `kind` is row_number, rank or dense_rank. Rows that tie in `order` are ordered by the values of `ties`.
    """

    partition: tuple[str, ...] = ()
    order: tuple[SortKey, ...] = ()
    ties: tuple[str, ...] = ()
    limit: int = 1
    offset: int = 0
    kind: str = "row_number"
    output: str | None = None

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.input.schema if self.output is None else {**self.input.schema, self.output: pa.int64()}


@dataclass(frozen=True)
class AnalyticCall:
    """One function OVER a partition, into `output`: `call` is its text, `frame` that of its frame or empty.

    `function` is its name. Rows that tie in `order` are ordered by the values of `ties`, if the function can tell.
    """

    output: str
    function: str
    call: Expr
    order: tuple[SortKey, ...] = ()
    ties: tuple[str, ...] = ()
    frame: str = ""

    @property
    def type(self) -> pa.DataType:
        return self.call.type

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        return self.call.columns | {k.column for k in self.order} | set(self.ties)


@dataclass(frozen=True)
class Analytic(Unary):
    """Every row with the values of functions over the rows that agree with it on `partition`."""

    partition: tuple[str, ...] = ()
    calls: tuple[AnalyticCall, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, **{c.output: c.type for c in self.calls}}


@dataclass(frozen=True)
class Distinct(Unary):
    """One copy of every distinct row."""


@dataclass(frozen=True)
class Union(Nary):
    """The merge of inputs with equal schemas (same internal names)."""

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.parts[0].schema


@dataclass(frozen=True)
class Difference(Binary):
    """EXCEPT ALL: bag difference of inputs with equal schemas."""


@dataclass(frozen=True)
class Intersection(Binary):
    """INTERSECT ALL: bag intersection of inputs with equal schemas."""


@dataclass(frozen=True)
class Aggregate(Unary):
    """GROUP BY `keys` (none: one row, even over nothing); keys and aggregate arguments are plain columns.

    `grid`: the period and offset of the evaluations, of aggregates that summarise the rows of each (FREQUENT).
    """

    keys: tuple[str, ...] = ()
    calls: tuple[Aggregation, ...] = ()
    grid: tuple[int, int] | None = None

    @property
    def summarised(self) -> int:
        """How many values of each basic window are kept, about; 0 if it is no aggregate by summaries."""
        kept = [int(c.parameters[0]) for c in self.calls if c.kind in FREQUENT]
        return max([*kept, *(1024 for c in self.calls if c.kind in SKETCHED)], default=0)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        types = self.input.schema
        return {**{k: types[k] for k in self.keys}, **{c.output: c.type for c in self.calls}}


@dataclass(frozen=True)
class OverNothing(Unary):
    """An aggregate without GROUP BY for several queries (it groups by `QUERY`), with the row over nothing for who
    has no rows (`operators/over_nothing.py`). `clocks`: where they start."""

    clocks: ClockStarts = None  # type: ignore[assignment]


@dataclass(frozen=True)
class HolisticCall:
    """One aggregate that needs all values of a group, into `output`: `call` is its text."""

    output: str
    call: Expr

    @property
    def type(self) -> pa.DataType:
        return self.call.type


@dataclass(frozen=True)
class Holistic(Unary):
    """GROUP BY `keys` with aggregates that are computed anew from a group's rows; nothing where there are no rows."""

    keys: tuple[str, ...] = ()
    calls: tuple[HolisticCall, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        types = self.input.schema
        return {**{k: types[k] for k in self.keys}, **{c.output: c.type for c in self.calls}}
