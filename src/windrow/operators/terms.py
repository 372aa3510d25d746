"""What plans and operators both speak of, without an operator: whoever only plans loads no compiler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

QUERY = "query'"
"""The column that says whose row it is: a name that no user can give."""

QUERY_TYPE = pa.int32()

QUERIES = "queries'"
"""The column that says whose row it is, where a row comes once for all of them: a set (`query_sets.py`)."""

QUERIES_TYPE = pa.dictionary(pa.int32(), pa.binary())


class Router(Protocol):
    """Knows which queries want a row."""

    reads: tuple[str, ...]

    @property
    def queries(self) -> Collection[int]:
        """The numbers of all queries."""

    def sets(
        self, columns: Mapping[str, pa.Array], rows: int
    ) -> tuple[NDArray[np.int64], pa.DictionaryArray, NDArray[np.int64] | None]:
        """(row, set of queries) for all rows that somebody wants, a query in one set of a row at most; and before which
        instant those of the set show nothing."""

    def bounds(self, column: str) -> Mapping[int, tuple[float, float]]:
        """By query: the least and the greatest value of a number that it may want; all others want any."""

    def pairs(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, query) for all that want it, in the order of rows."""

    def wanted(self, columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
        """Whether any query wants a row."""

    def starts(self, queries: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Before which instant each of these queries shows nothing; None: they show all."""


@dataclass(frozen=True)
class SortKey:
    """A column to sort by."""

    column: str
    descending: bool = False
    nulls_first: bool = False
