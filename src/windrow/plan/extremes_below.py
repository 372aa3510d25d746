"""MIN and MAX below a join: what an input must still tell of its rows when repetitions do not count.

    MIN(a.x) over a ⋈ b  =  MIN(m) over (MIN(a.x) AS m GROUP BY the columns of a that the join and the query read) ⋈ b

holds at every instant, because the rows of one group of `a` meet the same rows of `b`. It needs a query in which no
aggregate counts repetitions: MIN, MAX, and functions over DISTINCT values. Then every input is its groups, with the
best value of each: one row for each group instead of one for each value, which changes when the best value does and
not with every row. An input without arguments is its distinct groups.

`operators/early_extremes.py` keeps the groups, or lets rows pass where groups do not pay: any mix is exact.

A table that does not reach back meets rows as they come, and a group is no row: with such a table nothing moves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import EXTREMES


@dataclass(frozen=True)
class ExtremesBelow:
    """The groups of one input, and the best values that are kept of each."""

    keys: tuple[str, ...]
    calls: tuple[Aggregation, ...]

    @property
    def text(self) -> str:
        """For EXPLAIN."""
        best = ", ".join(f"{c.kind.upper()}({c.column})" for c in self.calls)
        return f"{best or 'distinct'} by {', '.join(self.keys)}"


def repetitions_count(calls: Sequence[Aggregation]) -> bool:
    """Whether an answer changes when a row is there twice."""
    return not all(c.kind in EXTREMES or c.distinct for c in calls)


def extremes_below(
    schema: Mapping[str, pa.DataType], read: Collection[str], calls: Sequence[Aggregation]
) -> ExtremesBelow | None:
    """What is to be kept of an input with these columns; `read`: by the join, its residual and GROUP BY.

    None where there is nothing to group by.

    >>> x = Aggregation("min", "x", "least", pa.int64())
    >>> kept = extremes_below({"k": pa.int64(), "x": pa.int64()}, {"k"}, [x])
    >>> kept.keys, kept.calls[0].output
    (('k',), 'x')
    """
    values = {c.column for c in calls if c.kind not in EXTREMES}
    keys = tuple(c for c in schema if c in read or c in values)
    best = {_kept(c, calls): c for c in calls if c.column in schema and c.column not in keys}
    if not keys:
        return None
    return ExtremesBelow(
        keys, tuple(Aggregation(c.kind, c.column, name, schema[str(c.column)]) for name, c in best.items())
    )


def over_extremes(calls: Sequence[Aggregation], kept: Sequence[ExtremesBelow | None]) -> list[Aggregation]:
    """The calls over what is kept."""
    names = {(c.kind, c.column): c.output for below in kept if below is not None for c in below.calls}
    return [replace(c, column=names.get((c.kind, c.column), c.column)) for c in calls]


def _kept(call: Aggregation, calls: Sequence[Aggregation]) -> str:
    """The column of a best value: the argument's name, or one of its own where both ends are wanted."""
    both = len({c.kind for c in calls if c.column == call.column}) > 1
    return f"{call.column}' {call.kind}" if both else str(call.column)
