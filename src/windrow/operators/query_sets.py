"""Sets of queries on rows: numbered where they are met, each with its members.

A row says who wants it by a set, as a value of the column `QUERIES` (a dictionary of packed numbers), so that rows of
any task and of any time mean the same. An operator gives every set that it meets a number, its cell.

Invariant: a cell's members are those of its set that are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s, distinct_values, raw
from windrow.operators.state.run import ints

_MANY = 1024
"""Sets that are kept though no row may have them any more."""


def packed(queries: Int64s) -> bytes:
    """A set as a value of the column."""
    return queries.astype("<i4").tobytes()


class QuerySets:
    """The sets met so far, for the queries that are there."""

    def __init__(self, queries: Int64s | Sequence[int]) -> None:
        self._sets: list[bytes] = []  # by cell
        self._cell: dict[bytes, int] = {}
        self._holes: list[int] = []  # cells that nothing has
        self._most = _MANY
        self.only(queries)

    def only(self, queries: Int64s | Sequence[int]) -> None:
        """Have these queries, in order, and no others."""
        self.numbers = np.asarray(queries, np.int64)  # by the number that members have here
        self._rebuild()

    def _rebuild(self) -> None:
        self._spans = np.zeros((max(64, 2 * len(self._sets)), 2), np.int64)
        self._pool, self._used = np.zeros(1024, np.int64), 0
        for each, cell in self._cell.items():
            self._put(cell, each)

    def _put(self, cell: int, each: bytes) -> None:
        """Note the members of a cell."""
        mine = np.frombuffer(each, "<i4").astype(np.int64)
        at = np.searchsorted(self.numbers, mine)
        there = at < len(self.numbers)
        there[there] = self.numbers[at[there]] == mine[there]
        found = at[there]
        end = self._used + len(found)
        if cell >= len(self._spans):
            self._spans = np.concatenate((self._spans, np.zeros_like(self._spans)))
        if end > len(self._pool):
            self._pool = np.concatenate((self._pool, np.zeros(max(end, len(self._pool)), np.int64)))
        self._pool[self._used : end] = found
        self._spans[cell] = self._used, end
        self._used = end

    def cells(self, column: pa.DictionaryArray) -> Int64s:
        """The cell of every row."""
        sets = column.dictionary.to_pylist()
        for each in sets:
            if each not in self._cell:
                cell = self._holes.pop() if self._holes else len(self._sets)
                if cell == len(self._sets):
                    self._sets.append(each)
                self._sets[cell], self._cell[each] = each, cell
                self._put(cell, each)
        found: Int64s = np.array([self._cell[each] for each in sets], np.int64)
        return found[raw(column.indices)] if sets else found

    @property
    def members(self) -> tuple[Int64s, Int64s]:
        """Where the members of each cell begin and end, and the members."""
        return self._spans[: len(self._sets)], self._pool

    def tidy(self, live: Callable[[], Int64s]) -> None:
        """Forget the sets that no row has, now and then; `live`: the cells that are in use."""
        if len(self._cell) <= self._most:
            return
        used = set(distinct_values(live()).tolist())
        gone = [(each, cell) for each, cell in self._cell.items() if cell not in used]
        for each, cell in gone:
            del self._cell[each]
            self._holes.append(cell)
        self._most = max(_MANY, 2 * len(self._cell))
        self._rebuild()

    def table(self) -> pa.Table:
        """The sets as a table."""
        sets, cells = pa.array(list(self._cell), pa.binary()), pa.array(list(self._cell.values()), pa.int64())
        return pa.table({"cell": cells, "queries": sets})

    def restore(self, table: pa.Table) -> None:
        """Take them back."""
        cells = ints(table, "cell").tolist()
        self._cell = dict(zip(table.column("queries").to_pylist(), cells, strict=True))
        self._sets = [b""] * (max(cells, default=-1) + 1)
        for each, cell in self._cell.items():
            self._sets[cell] = each
        self._holes = sorted(set(range(len(self._sets))) - set(cells))
        self._rebuild()
