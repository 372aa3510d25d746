"""The rows that families aggregate: a stream's, joined with its tables or not; made once however many read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, one
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.sharing.recognise import FamilySource


class SourceRows:
    """The rows of a source: a stream's, joined with its tables or not; columns that some query reads."""

    def __init__(self, source: FamilySource, tables: Mapping[str, pa.Table]) -> None:
        self.source, self._tables = source, tables
        self.columns: dict[str, pa.DataType] = {}
        self._join: JoinOperator | None = None
        self._shape: tuple[str, ...] = ()

    def read(self, columns: Mapping[str, pa.DataType]) -> None:
        """Have these columns from now on."""
        self.columns |= columns

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
            table = self._tables[label.partition("#")[0]]
            names = {name.lower(): name for name in table.column_names}
            arrays = {c: one(table.column(names[c.partition(".")[2]])).cast(t) for c, t in mine.items()}
            held.append(Elements.positive(np.full(table.num_rows, BEGINNING + 1), INF, arrays))
        self._join = JoinOperator(parts, sorted(self.source.equalities))
        self._shape = tuple(sorted(self.columns))
        self._join.advance([Elements.empty(parts[0].columns), *held], BEGINNING + 1)


def _owner(column: str) -> str:
    return column.partition(".")[0]
