"""Bounded input as a live engine would take it: what a declared source holds now, or the files of a path.

Files of a directory and lake tables end; a topic and a rate do not. A path is given to a replay, to a push, or as what
a table holds; whoever gives it, the options of the declaration say how its files are written. Invariant: the rows are
those that a live engine would take, in the same order of arrival, and what it would set aside is. Cost: one pass over
the files, through this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.sources.data_file import DataFile, FileWithoutRows, reading
from windrow.sources.directory import Cutter, cutter
from windrow.sources.files import has_tabs, is_known, kind_of, read_files
from windrow.sources.given_files import files_given, is_plain
from windrow.sources.lines import inflated
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import KINDS, Offset, Piece, Report, check_source, open_source
from windrow.sources.quarantined_rows import NOTHING, QuarantinedRows, timed_rows
from windrow.sources.read_csv import csv_format
from windrow.sources.read_json import json_format
from windrow.sources.tabular import to_table
from windrow.store.place import Place

ENDING = frozenset(kind for kind, module in KINDS.items() if module in ("directory", "delta", "iceberg"))
"""The kinds of sources of which one can say: this is all that is there."""

LINES = frozenset({"csv", "json"})
FORMATS = LINES | {"parquet", "arrow"}
ANY = "file"
"""The kind of files whose names say what they are."""

WHOLE_BYTES = 1 << 30
"""A smaller csv file is parsed as one block, in which values may span lines."""


@dataclass(frozen=True)
class SourceNow:
    """What a declared source has now, as data for a replay: pieces, in order of arrival."""

    stream: StreamDef
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, stream: StreamDef) -> SourceNow:
        """Look at a source until there is nothing new."""
        source = open_source(stream, Place.temporary())
        pieces: list[Piece] = []
        offset: Offset | None = None
        try:
            while not source.drained(offset):
                found = source.poll(offset)
                if found is None:
                    continue  # a long directory is still being listed
                pieces += found.pieces
                offset = found.offset
                source.committed(offset)
        finally:
            source.close()
        return cls(stream, tuple(pieces))

    def rows(self) -> tuple[pa.Table, QuarantinedRows]:
        """All rows, and what cannot be read where the stream sets that aside."""
        aside = QuarantinedRows(self.stream.name)
        report = aside if self.stream.quarantine else None
        batches = [b for piece in self.pieces for b in piece.read(self.stream, None, report)]
        return _timed(self.stream, batches, aside)


def check_options(stream: StreamDef) -> None:
    """Refuse options that there are not, whoever gives the rows; those of a stream without a source say how files are
    written."""
    if stream.options.get("source"):
        check_source(stream)
    elif stream.options:
        options = SourceOptions(stream)
        read_formats(options)
        options.finish()


def read_formats(options: SourceOptions) -> None:
    """Read what can be said of files of the declared format, or else of any."""
    if options.kind not in FORMATS - {"csv"}:
        csv_format(options)
    if options.kind not in FORMATS - {"json"}:
        json_format(options)


def rows_given(stream: StreamDef, given: Any) -> tuple[pa.Table, pa.Table]:
    """The rows of a path or of data in memory, and what cannot be read where the stream sets that aside."""
    if isinstance(given, str | os.PathLike):
        return _rows_of_path(stream, os.fspath(given))
    if isinstance(given, SourceNow):
        rows, unread = given.rows()
        return rows, unread.table()
    return to_table(given, stream.what, dict(stream.columns), stream.added), NOTHING


def _rows_of_path(stream: StreamDef, path: str) -> tuple[pa.Table, pa.Table]:
    what, columns = stream.what, dict(stream.columns)
    files = files_given(path, stream)
    if not any(is_read_as_live(stream, file) for file in files):
        rows = read_files([Path(file.path) for file in files], path, what, columns, stream.added)
        return to_table(rows, what, columns, stream.added), NOTHING
    found, aside = [], [NOTHING]
    for file in files:
        if is_read_as_live(stream, file):
            rows, unread = rows_of_file(stream, file)
            aside.append(unread.table())
        else:
            rows = to_table(file.path, what, columns, stream.added)
        found.append(rows)
    return pa.concat_tables(found).combine_chunks(), pa.concat_tables(aside)


def is_read_as_live(stream: StreamDef, file: DataFile) -> bool:
    """Whether a file is read by the source that the stream declares: then its options say how it is written."""
    name = Path(file.name)
    said = _kind(stream, name) in LINES and _is_declared(stream, name)
    return stream.quarantine or said or not is_known(name) or not is_plain(file)


def rows_of_file(stream: StreamDef, file: DataFile) -> tuple[pa.Table, QuarantinedRows]:
    """The rows of a file that is read so."""
    aside = QuarantinedRows(stream.name)
    return _timed(stream, list(_batches(stream, file, aside if stream.quarantine else None)), aside)


def _timed(
    stream: StreamDef, batches: list[pa.RecordBatch], aside: QuarantinedRows
) -> tuple[pa.Table, QuarantinedRows]:
    table = pa.Table.from_batches(batches, pa.schema(list(stream.columns.items())))
    return timed_rows(stream, table, aside if stream.quarantine else None), aside


def _batches(stream: StreamDef, file: DataFile, report: Report | None) -> Iterator[pa.RecordBatch]:
    _cutter(stream, _said(stream, Path(file.name)))  # an option that is wrong is no fault of the file
    with reading(stream, file.path, report=report):
        live, pieces = pieces_of_file(stream, file)
        for piece in pieces:
            yield from piece.read(live, None, report)


def pieces_of_file(stream: StreamDef, file: DataFile) -> tuple[StreamDef, list[Piece]]:
    """The pieces of a file that is read so, and the stream with a source of such files."""
    said = _said(stream, Path(file.name))
    if said["source"] in LINES:
        lines = _is_array(file) if said["source"] == "json" else file.size < WHOLE_BYTES
        said.setdefault("multiline", str(lines))
    live, cut = _cutter(stream, said)
    return live, [share.piece for share in cut(file, 0)] or [FileWithoutRows(file)]


def _said(stream: StreamDef, path: Path) -> dict[str, str]:
    """How a file is written, as far as its name says it and, if it has the declared format, the declaration."""
    said = {k.lower(): str(v) for k, v in stream.options.items()} if _is_declared(stream, path) else {}
    if has_tabs(path) and not said.keys() & {"sep", "delimiter"}:
        said["sep"] = "\t"
    return {**said, "source": _kind(stream, path)}


def _is_declared(stream: StreamDef, path: Path) -> bool:
    """Whether the options that are declared, if any are, say how a file is written."""
    return bool(stream.options) and _declared_kind(stream) in (ANY, _kind(stream, path))


def _cutter(stream: StreamDef, options: dict[str, str]) -> tuple[StreamDef, Cutter]:
    """The stream with such a source, and how its files are cut."""
    live = replace(stream, options=options)
    return live, cutter(live, SourceOptions(live))


def _kind(stream: StreamDef, path: Path) -> str:
    """The format of a file: what its name says, or else what is declared."""
    declared = _declared_kind(stream)
    return declared if declared in FORMATS and not is_known(path) else kind_of(path, stream.what)


def _declared_kind(stream: StreamDef) -> str:
    """The format that a stream declares, of files or of messages; without a source its options are of any."""
    said = {k.lower(): str(v).lower() for k, v in stream.options.items()}
    kind = said.get("source", ANY)
    return said.get("format", "json") if kind == "kafka" else kind


def _is_array(file: DataFile) -> bool:
    with inflated(file) as content:
        return bool(content.read(1 << 12).lstrip().startswith(b"["))
