"""One aggregate call, and what it needs of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

EXTREMES = frozenset({"min", "max"})
MOMENTS = frozenset({"variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"})
LINEAR = frozenset({"count", "sum", "avg"}) | MOMENTS
RANKED = frozenset({"median", "quantile", "quantile_cont", "quantile_disc"})
KINDS = EXTREMES | LINEAR | RANKED | {"top_k"}


@dataclass(frozen=True)
class Aggregation:
    """`kind(column)` into `output`, of Arrow type `type`; `column` None is COUNT(*).

    `parameters`: the fraction of a quantile, the k of TOP_K.
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
    def collapses(self) -> bool:
        """Whether DISTINCT makes a difference."""
        return self.distinct and self.kind not in EXTREMES
