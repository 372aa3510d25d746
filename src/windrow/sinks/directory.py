"""Answers as files: one per query and tick, under a name that says both.

    path/<query>/tick-0000000042.parquet

A file appears whole, by rename. Writing the same tick again replaces the same file, so a directory never holds an
answer twice; names that readers skip (a leading dot) are all that a crash can leave.
"""

from __future__ import annotations

import os
import tempfile

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from windrow.store.place import Place, segment


class DirectorySink:
    """Writes parquet, or JSON with one object per line; answers without rows write nothing."""

    def __init__(self, path: str | os.PathLike[str], kind: str = "parquet") -> None:
        self.place = Place.of(path)
        self.kind = kind

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Put the file of a tick in place."""
        if table.num_rows:
            data = _parquet(table) if self.kind == "parquet" else _json(table)
            self.place.write(self.name(query, tick), data)

    def name(self, query: str, tick: int) -> str:
        """The file of a query's answer at a tick, relative to the directory."""
        return f"{segment(query)}/tick-{tick:010d}.{self.kind}"

    def close(self) -> None:
        """Nothing to let go of."""


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return sink.getvalue()


def _json(table: pa.Table) -> bytes:
    import duckdb

    # JSON has no NaN and no infinity: they become null.
    plain = pa.table([_finite(column) for column in table.columns], names=table.column_names)
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("answer", plain)
        target = os.path.join(folder, "answer.json")
        connection.execute(f"COPY answer TO '{target}' (FORMAT JSON)")
        with open(target, "rb") as file:
            return file.read()


def _finite(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
