"""One aggregate call, and what it needs of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

EXTREMES = frozenset({"min", "max"})
MOMENTS = frozenset({"variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"})
LINEAR = frozenset({"count", "sum", "avg"}) | MOMENTS
RANKED = frozenset({"median", "quantile", "quantile_cont", "quantile_disc"})
FREQUENT = frozenset({"frequent", "frequent_delta"})
SKETCHED = frozenset({"approx_count_distinct", "approx_quantile", "approx_top_k"})
SUMMARISED = FREQUENT | SKETCHED
"""Kept as one summary for each basic window."""
KINDS = EXTREMES | LINEAR | RANKED | SUMMARISED | {"top_k"}


@dataclass(frozen=True)
class Aggregation:
    """`kind(column)` into `output`, of Arrow type `type`; `column` None is COUNT(*).

    Plans and operators have the same. `parameters`: the fraction of a quantile, the k of TOP_K; the k and the threshold
    of FREQUENT.
    """

    kind: str
    column: str | None
    output: str
    type: pa.DataType
    distinct: bool = False
    parameters: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no aggregate function is called {self.kind}")
        if self.column is None and self.kind != "count":
            raise ValueError(f"{self.kind} needs a column")

    @property
    def adds_up(self) -> bool:
        """Whether answers over parts of the rows, kept as sums, add up to the answer over all of them."""
        return self.kind in LINEAR and not self.distinct

    @property
    def collapses(self) -> bool:
        """Whether DISTINCT makes a difference."""
        return self.distinct and self.kind not in EXTREMES


def frequent_type(type_: pa.DataType) -> pa.DataType:
    """The type of the answer of FREQUENT over values of a type."""
    return pa.list_(pa.struct([("value", type_), ("at_least", pa.int64()), ("at_most", pa.int64())]))
