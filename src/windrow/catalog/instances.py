"""The instances of queries from a template: a row of values each, in one Arrow table.

Invariant: no two rows are equal (null equals null), in the order in which they came; a table is a value, adding and
taking away make another. Cost: a change costs a few passes over the columns, and nothing in Python for a row.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.catalog.literals import literal

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class InstanceTable:
    """Rows of values of the parameters of a template.

    >>> one = InstanceTable.empty({"s": pa.int64()}).added(pa.table({"s": [1, 2]}))
    >>> two = one.without(np.array([True, False])).added(pa.table({"s": [5]}))
    >>> [t.column("s").to_pylist() for t in two.since(one)]
    [[5], [1]]
    """

    rows: pa.Table

    @staticmethod
    def empty(parameters: Mapping[str, pa.DataType]) -> InstanceTable:
        """No instance."""
        return InstanceTable(pa.schema(list(parameters.items())).empty_table())

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def added(self, rows: pa.Table) -> InstanceTable:
        """With more of them, none of which is there (`repeated`)."""
        return InstanceTable(pa.concat_tables([self.rows, rows.cast(self.rows.schema)]).combine_chunks())

    def repeated(self, rows: pa.Table) -> int | None:
        """Which of some rows is here already, or stands twice."""
        mine, theirs = row_numbers([self.rows, rows.cast(self.rows.schema)])
        there = np.isin(theirs, mine)
        first = np.zeros(len(theirs), np.bool_)
        first[np.unique(theirs, return_index=True)[1]] = True
        found = np.flatnonzero(there | ~first)
        return int(found[0]) if len(found) else None

    def without(self, gone: npt.NDArray[np.bool_]) -> InstanceTable:
        """Without those that are marked."""
        return InstanceTable(self.rows.filter(pa.array(~gone)))

    def since(self, before: InstanceTable) -> tuple[pa.Table, pa.Table]:
        """What came and what went, to get here from another."""
        if before is self:
            return self.rows.slice(0, 0), self.rows.slice(0, 0)
        old, new = row_numbers([before.rows, self.rows])
        return self.rows.filter(pa.array(~np.isin(new, old))), before.rows.filter(pa.array(~np.isin(old, new)))


def row_numbers(tables: Sequence[pa.Table]) -> list[Int64s]:
    """A number for every row of tables with the same columns: equal rows have equal numbers.

    >>> [n.tolist() for n in row_numbers([pa.table({"a": [1, None]}), pa.table({"a": [None, 2, 1]})])]
    [[0, 1], [1, 2, 0]]
    """
    whole = pa.concat_tables(tables)
    found = np.zeros(whole.num_rows, np.int64)
    for column in whole.columns:
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        size = len(coded.dictionary) + 1
        if len(found) and int(found.max()) > np.iinfo(np.int64).max // size - size:
            found = np.unique(found, return_inverse=True)[1].reshape(-1)
        found = found * size + coded.indices.to_numpy()
    ends = np.cumsum([t.num_rows for t in tables])[:-1]
    return [part.astype(np.int64) for part in np.split(found, ends)]


def positions(rows: pa.Table, among: pa.Table) -> Int64s:
    """Where each of some rows stands in a table; -1 for those that do not."""
    wanted, known = row_numbers([rows, among])
    if not len(known):
        return np.full(len(wanted), -1)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(known[order][at] == wanted, order[at], -1)


def name_of(name: str, values: Iterable[Any]) -> str:
    """What the instance with these values is called."""
    return instance_name(name, [literal(v) for v in values])


def instance_name(name: str, literals: Sequence[str]) -> str:
    """What an instance is called; names that differ in upper and lower case only are told apart by a number.

    >>> instance_name("q", ("1", "2.5")), instance_name("q", ("'A'",)) == instance_name("q", ("'a'",))
    ('q(1, 2.5)', False)
    """
    shown = f"{name}({', '.join(literals)})"
    plain = "".join(text for text in literals if text.startswith("'"))
    return shown if plain == plain.lower() else f"{shown}#{zlib.crc32(plain.encode()):08x}"


__all__ = ["InstanceTable", "instance_name", "name_of", "positions", "row_numbers"]
