"""Rows that no query gets: those that came too late, and those that cannot be read as declared.

    home/late/<stream>/tick-0000000042.parquet             the rows
    home/quarantine/<stream>/tick-0000000042.parquet       file, position, reason and what is written there

They are named by the manifest of the tick that took the rows around them, so each is here once, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from windrow.catalog import StreamDef
from windrow.errors import StateError
from windrow.sinks.directory import DirectorySink
from windrow.sources.quarantined_rows import SCHEMA
from windrow.store.place import Place

SHOWN = pa.schema([("tick", pa.int64()), *SCHEMA])


def output_name(stream: str) -> str:
    """The name under which a manifest keeps them until they are in their place: one no query can have."""
    return f"!{stream.lower()}"


class RowsByTick:
    """Rows of streams that no query gets, by tick: files in a folder of the home, or in memory.

    Writing those of a tick again changes nothing.
    """

    def __init__(self, place: Place | None) -> None:
        self._place = place
        self._held: dict[str, dict[int, pa.Table]] = {}

    def write(self, stream: str, tick: int, rows: pa.Table) -> None:
        """Keep the rows of a tick."""
        if self._place is None:
            self._held.setdefault(stream, {})[tick] = rows
        else:
            DirectorySink(self._place.uri, "parquet").write(stream, tick, rows)

    def read(self, stream: str, schema: pa.Schema) -> dict[int, pa.Table]:
        """All rows of a stream, by tick; null in columns that it did not have then."""
        if self._place is None:
            return {tick: _with_columns(t, schema) for tick, t in self._held.get(stream.lower(), {}).items()}
        return dict(self._files(self._place, stream, lambda file: _with_columns(parquet.read_table(file), schema)))

    def count(self, stream: str) -> int:
        """How many rows of a stream there are."""
        if self._place is None:
            return sum(t.num_rows for t in self._held.get(stream.lower(), {}).values())
        return sum(about.num_rows for _, about in self._files(self._place, stream, parquet.read_metadata))

    @staticmethod
    def _files(place: Place, stream: str, read: Callable[[pa.BufferReader], Any]) -> Iterator[tuple[int, Any]]:
        folder = DirectorySink(place.uri, "parquet").name(stream.lower(), 0).rpartition("/")[0]
        for name in sorted(n for n in place.names(folder) if n.endswith(".parquet")):
            try:
                tick = int(name.rsplit("-", 1)[-1].removesuffix(".parquet"))
                yield tick, read(pa.BufferReader(place.read(name)))
            except (ValueError, OSError, pa.ArrowException) as error:
                raise StateError(
                    f"corrupt file {place.uri}/{name}",
                    detail=str(error).split("\n", 1)[0],
                    hint="restore it from a backup, or move it away: no query reads the rows in it",
                ) from None


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(rows.column_names)
    columns = [rows.column(f.name).cast(f.type) if f.name in there else pa.nulls(len(rows), f.type) for f in schema]
    return pa.table(columns, schema=schema)


def late(kept: RowsByTick, stream: StreamDef) -> pa.Table:
    """All rows of a stream that came too late."""
    schema = pa.schema(list(stream.columns.items()))
    return pa.concat_tables([schema.empty_table(), *kept.read(stream.name, schema).values()])


def malformed(kept: RowsByTick, stream: str) -> pa.Table:
    """All that could not be read of a stream: tick, file, position, reason, text."""
    parts = [
        t.add_column(0, SHOWN.field("tick"), pa.array([n] * t.num_rows, pa.int64()))
        for n, t in sorted(kept.read(stream, SCHEMA).items())
    ]
    return pa.concat_tables([SHOWN.empty_table(), *parts])
