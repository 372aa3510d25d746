"""Rows that came too late: never lost, kept beside the state, in files under home or in memory."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import parquet

from windrow.catalog import StreamDef
from windrow.sinks.directory import DirectorySink
from windrow.store.place import Place
from windrow.store.store import StateStore


class LateRowsStore:
    """The late rows of all streams; writing those of a tick again changes nothing."""

    def __init__(self, store: StateStore) -> None:
        self._place = store.place.below("late") if store.place is not None else None
        self._held: dict[str, dict[int, pa.Table]] = {}

    def write(self, stream: str, tick: int, rows: pa.Table) -> None:
        """Keep the late rows of a tick."""
        if self._place is None:
            self._held.setdefault(stream, {})[tick] = rows
        else:
            self._sink(self._place).write(stream, tick, rows)

    def read(self, stream: StreamDef) -> pa.Table:
        """All late rows of a stream."""
        columns = dict(stream.columns)
        tables = [pa.schema(list(columns.items())).empty_table()]
        key = stream.name.lower()
        if self._place is None:
            tables += self._held.get(key, {}).values()
        else:
            folder = self._sink(self._place).name(key, 0).rpartition("/")[0]
            for name in sorted(self._place.names(folder)):
                if name.endswith(".parquet"):
                    data = pa.BufferReader(self._place.read(name))
                    tables.append(parquet.read_table(data).select(list(columns)))
        return pa.concat_tables([t.cast(tables[0].schema) for t in tables])

    @staticmethod
    def _sink(place: Place) -> DirectorySink:
        return DirectorySink(place.uri, "parquet")
