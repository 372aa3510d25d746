"""What plans and operators both speak of, without an operator: whoever only plans loads no compiler."""

from __future__ import annotations

from collections.abc import Mapping
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


START = "start'"
"""Columns that say when a row came into a window begin so."""

CAME = "came'"
"""Columns that say how many queries there had been when a row came begin so: it is for those of a lesser number."""


@dataclass(frozen=True, eq=False)
class ClockStarts:
    """Where the clocks of queries start: their numbers, in order; the beginning, of those that start with all."""

    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class Lives:
    """From when on and how long queries see rows, by class of queries that are alike in that.

    `start`: the instant at which their clock begins. `sizes`: by the column that says when a row came into a window,
    how long it is there.
    """

    start: NDArray[np.int64]
    sizes: Mapping[str, NDArray[np.int64]]


class Router(Protocol):
    """Knows which queries want a row, and how long.

    `lives`: None if all see rows for as long as they live.
    """

    reads: tuple[str, ...]
    lives: Lives | None

    @property
    def ages(self) -> Mapping[str, str]:
        """Tested columns that are ages, and the columns that say since when."""

    @property
    def queries(self) -> NDArray[np.int64]:
        """The numbers of all queries, in order."""

    def classes(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The classes of queries, if they have `lives`."""

    def pairs(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, query) for all that want it, in the order of rows."""

    def sets(
        self, columns: Mapping[str, pa.Array], rows: int, whole: bool = False
    ) -> tuple[NDArray[np.int64], pa.DictionaryArray, NDArray[np.int64] | None]:
        """(row, set of queries of one class) for all rows that somebody wants, a query in one set of a row at most; and
        the class. `whole`: of all classes at once."""

    def wanted(self, columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
        """Whether any query wants a row."""

    def bounds(self, column: str, told: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """By the numbers by which rows are told apart: the least and the greatest value of a number that somebody may
        want of them; None: any."""

    def lists(self, column: str) -> NDArray[np.bool_] | None:
        """By query: whether it shows a column; None: all do."""


@dataclass(frozen=True)
class SortKey:
    """A column to sort by."""

    column: str
    descending: bool = False
    nulls_first: bool = False
