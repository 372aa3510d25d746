"""Bounded input as a live engine would take it: what a declared source holds now, or the files of a path.

Files of a directory and lake tables end; a topic and a rate do not. Invariant: the rows are those that a live engine
would take, in the same order of arrival, and what it would set aside is. Cost: one pass over the files, through this
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.sources.aside import Aside, timed_rows
from windrow.sources.data_file import DataFile, no_rows, reading
from windrow.sources.directory import cutter
from windrow.sources.files import files_of, kind_of
from windrow.sources.lines import inflated
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import KINDS, Offset, Report, open_source
from windrow.store.place import Place

ENDING = frozenset(kind for kind, module in KINDS.items() if module in ("directory", "delta", "iceberg"))
"""The kinds of sources of which one can say: this is all that is there."""

WHOLE_BYTES = 1 << 30
"""A smaller csv file is parsed as one block, in which values may span lines."""


def rows_now(stream: StreamDef) -> tuple[pa.Table, Aside]:
    """All rows of a stream's source, and what cannot be read where the stream sets that aside."""
    source = open_source(stream, Place.temporary())
    batches: list[pa.RecordBatch] = []
    aside = Aside(stream.name)
    offset: Offset | None = None
    try:
        while not source.drained(offset):
            found = source.poll(offset)
            if found is None:
                continue  # a long directory is still being listed
            for piece in found.pieces:
                batches += piece.read(stream, None, aside if stream.quarantine else None)
            offset = found.offset
            source.committed(offset)
    finally:
        source.close()
    return _timed(stream, batches, aside)


def rows_of_path(stream: StreamDef, path: str) -> tuple[pa.Table, pa.Table]:
    """The rows of a file or a directory of a stream that sets aside what cannot be read, and that."""
    parts = [rows_of_file(stream, file) for file in files_of(path, f'stream "{stream.name}"')]
    rows = pa.concat_tables([found for found, _ in parts]).combine_chunks()
    return rows, pa.concat_tables([aside.table() for _, aside in parts])


def rows_of_file(stream: StreamDef, path: Path) -> tuple[pa.Table, Aside]:
    """Those of one file."""
    aside = Aside(stream.name)
    return _timed(stream, list(_batches(stream, path, aside)), aside)


def _timed(stream: StreamDef, batches: list[pa.RecordBatch], aside: Aside) -> tuple[pa.Table, Aside]:
    table = pa.Table.from_batches(batches, pa.schema(list(stream.columns.items())))
    return timed_rows(stream, table, aside if stream.quarantine else None), aside


def _batches(stream: StreamDef, path: Path, report: Report) -> Iterator[pa.RecordBatch]:
    kind = kind_of(path, f'stream "{stream.name}"')
    with reading(stream, str(path), report=report):
        file = DataFile(Place.of(str(path.absolute().parent)), path.name, path.stat().st_size)
        options = {"source": kind} if kind != "tsv" else {"source": "csv", "sep": "\t"}
        if _is_array(file) if kind == "json" else kind in ("csv", "tsv") and file.size < WHOLE_BYTES:
            options["multiLine"] = "true"
        live = replace(stream, options=options)
        shares = cutter(live, SourceOptions(live))(file, 0)
        for share in shares:
            yield from share.piece.read(live, None, report)
        if not shares:
            no_rows(stream, file, report)


def _is_array(file: DataFile) -> bool:
    with inflated(file) as content:
        return bool(content.read(1 << 12).lstrip().startswith(b"["))
