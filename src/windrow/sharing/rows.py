"""The rows that families aggregate: a stream's, joined with its tables or not; made once however many read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, one
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.operators.state.run import ints
from windrow.sharing.recognise import FamilySource
from windrow.sources.numbered_rows import SIGN, merged, whole

Runs = Sequence[pa.Table]
"""A table, or what has changed in it, as runs of rows."""


class SourceRows:
    """The rows of a source: a stream's, joined with its tables or not; columns that some query reads."""

    def __init__(self, source: FamilySource, tables: Mapping[str, Runs]) -> None:
        self.source, self._tables = source, tables
        self._changes = 0  # of the tables, since they were indexed
        self.columns: dict[str, pa.DataType] = {}
        self._join: JoinOperator | None = None
        self._shape: tuple[str, ...] = ()

    def read(self, columns: Mapping[str, pa.DataType]) -> None:
        """Have these columns from now on."""
        self.columns |= columns

    def change(self, tables: Mapping[str, Runs], new: Mapping[str, Runs]) -> None:
        """Let tables have changed by the runs that are new."""
        self._tables = tables
        if self._join is None:
            return
        self._changes += 1
        at = BEGINNING + 1 + self._changes  # behind all that is there
        changes = [Elements.empty(self._join.parts[0].columns)]
        for label, part in zip(self.source.tables, self._join.parts[1:], strict=True):
            runs = new[label.partition("#")[0]]
            rows = merged(runs) if runs else None
            changes.append(Elements.empty(part.columns) if rows is None else _elements(rows, part.columns, at))
        self._join.advance(changes, at)

    def take(self, feed: Callable[[str], tuple[Int64s, Mapping[str, pa.Array]]]) -> tuple[Int64s, dict[str, pa.Array]]:
        """New rows in time order."""
        ts, given = feed(self.source.stream)
        named = {f"{self.source.stream}.{c.lower()}": a for c, a in given.items()}
        own = {c: named[c] for c in self.columns if c in named}
        if not self.source.tables:
            return ts, own
        return self._joined(ts, own)

    def _joined(self, ts: Int64s, own: dict[str, pa.Array]) -> tuple[Int64s, dict[str, pa.Array]]:
        if self._join is None or self._shape != tuple(sorted(self.columns)):
            self._open()
        assert self._join is not None
        none = [Elements.empty(p.columns) for p in self._join.parts[1:]]
        found = self._join.advance([Elements.positive(ts, INF, own), *none], int(ts[-1]) if len(ts) else 0)
        if (found.ts[1:] < found.ts[:-1]).any():
            found = found.take(np.argsort(found.ts, kind="stable"))
        return found.ts, found.columns

    def _open(self) -> None:
        """Index the tables; again when a query that joins needs more of their columns."""
        parts = [Part({c: t for c, t in self.columns.items() if _owner(c) == self.source.stream})]
        held = []
        for label in self.source.tables:
            mine = {c: t for c, t in self.columns.items() if _owner(c) == label}
            parts.append(Part(mine, static=True))
            held.append(_elements(whole(self._tables[label.partition("#")[0]]), mine, BEGINNING + 1))
        self._join = JoinOperator(parts, sorted(self.source.equalities))
        self._shape, self._changes = tuple(sorted(self.columns)), 0
        self._join.advance([Elements.empty(parts[0].columns), *held], BEGINNING + 1)


def _elements(rows: pa.Table, columns: Mapping[str, pa.DataType], at: int) -> Elements:
    """The rows of a table, or of what changes it, from an instant on."""
    names = {name.lower(): name for name in rows.column_names}
    arrays = {c: _column(rows, names.get(c.partition(".")[2]), t) for c, t in columns.items()}
    found = Elements.positive(np.full(rows.num_rows, at), INF, arrays)
    return replace(found, sign=ints(rows, SIGN)) if SIGN in rows.column_names else found


def _column(table: pa.Table, name: str | None, type_: pa.DataType) -> pa.Array:
    """A column of a version of a table; null if it is younger than that."""
    return pa.nulls(table.num_rows, type_) if name is None else one(table.column(name)).cast(type_)


def _owner(column: str) -> str:
    return column.partition(".")[0]
