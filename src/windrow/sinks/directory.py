"""Answers as files: one per query and tick, under a name that says both.

    path/<query>/tick-0000000042.parquet

A file appears whole, by rename. Writing the same tick again replaces the same file, so a directory never holds an
answer twice; names that readers skip (a leading dot) are all that a crash can leave.

A long answer that tasks have written is a file for each part, the times of one before those of the next:

    path/<query>/tick-0000000042-0000.parquet, tick-0000000042-0001.parquet, ...

They are written under names that readers skip, and renamed when all are there.

A file of Parquet says for which frontier its rows are exact in its metadata (`windrow.as_of`); beside files of JSON,
`path/<query>/_as_of` says it of the newest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import parquet

from windrow.sinks.json_text import row_objects
from windrow.sinks.protocol import as_of
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
            self._note(query, tick, as_of(table.schema))

    def name(self, query: str, tick: int) -> str:
        """The file of a query's answer at a tick, relative to the directory."""
        return f"{segment(query)}/tick-{tick:010d}.{self.kind}"

    def write_part(self, query: str, tick: int, number: int, part: pa.Table) -> object:
        """Write one of several files of a tick under a name that readers skip."""
        data = _parquet(part) if self.kind == "parquet" else _json(part)
        name = f"{segment(query)}/.tick-{tick:010d}-{number:04d}.{self.kind}"
        self.place.write(name, data)
        return name, as_of(part.schema)

    def publish(self, query: str, tick: int, parts: Sequence[object]) -> None:
        """Give the files of a tick their names; a file that is alone has that of the tick."""
        written: list[tuple[str, str | None]] = list(parts)  # type: ignore[arg-type]
        for number, (name, _) in enumerate(written):
            alone = self.name(query, tick)
            shown = alone.removesuffix(f".{self.kind}") + f"-{number:04d}.{self.kind}"
            self.place.move(name, alone if len(parts) == 1 else shown)
        self._note(query, tick, written[0][1] if written else None)

    def _note(self, query: str, tick: int, frontier: str | None) -> None:
        """Say, beside files that cannot, up to where they tell."""
        if self.kind == "json" and frontier is not None:
            said = json.dumps({"tick": tick, "as_of": int(frontier)})
            self.place.write(f"{segment(query)}/_as_of", said.encode())

    def folder(self, query: str) -> str:
        """Where the files of a query go; it is there from now on."""
        self.place.make(segment(query))
        return self.place.path(segment(query))

    def close(self) -> None:
        """Nothing to let go of."""


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return sink.getvalue()


def _json(table: pa.Table) -> bytes:
    return "".join(f"{text}\n" for text in row_objects(table).to_pylist()).encode(errors="replace")
