"""What tasks read of bounded input: files, parts of files, pieces of a source; in order of arrival.

A part can be read again, and as few columns of it as are asked for. Law: the rows of the parts, put together, are those
that `bounded` gives of the whole, whatever columns are asked for, as long as the time is among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.bounded import is_read_as_live, pieces_of_file, rows_of_file
from windrow.sources.casting import fits
from windrow.sources.data_file import DataFile, declared, reading
from windrow.sources.files import columns_of, read_columns, read_file, typed
from windrow.sources.given_files import files_given
from windrow.sources.protocol import Piece
from windrow.sources.quarantined_rows import SCHEMA, QuarantinedRows, timed_rows
from windrow.sources.read_arrow import ArrowPiece, cut_arrow
from windrow.sources.read_parquet import ParquetPiece, cut_parquet
from windrow.sources.tabular import plain_type, to_table
from windrow.store.place import Place


@dataclass(frozen=True)
class PartRows:
    """Rows of a part, declared columns that it does not have (null in the rows), and what is set aside."""

    rows: pa.Table
    missing: tuple[str, ...] = ()
    aside: pa.Table = field(default_factory=SCHEMA.empty_table)


class InputPart(Protocol):
    """Rows that a task reads."""

    @property
    def weight(self) -> int:
        """About how many bytes it is to read."""

    @property
    def groups(self) -> ParquetPiece | None:
        """Whose footer tells of its rows."""

    @property
    def typed(self) -> bool:
        """Whether columns are read one by one, so that it costs little to read it again."""

    def checked(self, stream: StreamDef) -> Sequence[str]:
        """Columns whose values must be looked at, whoever reads them: they may not fit what is declared."""

    def table(self, stream: StreamDef, columns: Sequence[str] | None = None) -> PartRows:
        """These declared columns of its rows, or all."""


@dataclass(frozen=True)
class PathPart:
    """A file, or row groups or record batches `[first, stop)` of one, read as any data that a program gives."""

    path: str
    weight: int
    first: int = 0
    stop: int | None = None
    alone: bool = True  # the file has no other parts

    @property
    def groups(self) -> ParquetPiece | None:
        """Whose footer tells of its rows."""
        path = Path(self.path)
        if self.stop is None or typed(path) != "parquet":
            return None
        file = DataFile(Place.of(str(path.parent)), path.name, path.stat().st_size)
        return ParquetPiece(file, self.first, self.stop, self.weight)

    @property
    def typed(self) -> bool:
        """Whether it is one of a file that says its types."""
        return self.stop is not None

    def checked(self, stream: StreamDef) -> Sequence[str]:
        """The columns of other types than are declared."""
        have = {n.lower(): t for n, t in columns_of(Path(self.path)).items()}
        known = ((n, have.get(n.lower()), t) for n, t in stream.columns.items())
        return [n for n, found, t in known if found is not None and not fits(plain_type(found), t)]

    def table(self, stream: StreamDef, columns: Sequence[str] | None = None) -> PartRows:
        """These declared columns of its rows, or all."""
        path, what, wanted = Path(self.path), stream.what, declared(stream, columns)
        every = dict(stream.columns)
        if self.stop is None:
            found = read_file(path, what, every, stream.added)
        else:
            found = read_columns(path, what, every, stream.added, wanted, range(self.first, self.stop))
        have = {n.lower() for n in found.column_names}
        asked = every if self.stop is None else wanted
        missing = tuple(n for n in asked if n.lower() not in have)
        for name in missing:
            found = found.append_column(name, pa.nulls(found.num_rows, asked[name]))
        where = what
        if self.stop is not None and not self.alone:
            where = f"{what}: {self.path}, parts {self.first} to {self.stop - 1}"
        return PartRows(to_table(found, where, schema=asked).select(list(wanted)), missing)


@dataclass(frozen=True)
class WholeFile:
    """A file that cannot be cut; whoever reads it says why, or sets it aside."""

    file: DataFile
    weight: int = 1
    groups: ParquetPiece | None = None
    typed: bool = False

    def checked(self, stream: StreamDef) -> Sequence[str]:
        """All are read."""
        return ()

    def table(self, stream: StreamDef, columns: Sequence[str] | None = None) -> PartRows:
        """These declared columns of its rows, or all."""
        rows, aside = rows_of_file(stream, self.file)
        return PartRows(rows.select(list(declared(stream, columns))), (), aside.table())


@dataclass(frozen=True)
class PiecePart:
    """A piece of a source, or of a file that is read as one by these options."""

    piece: Piece
    options: Mapping[str, str]

    @property
    def weight(self) -> int:
        """About how many bytes it is to read."""
        return self.piece.weight

    @property
    def groups(self) -> ParquetPiece | None:
        """Whose footer tells of its rows."""
        return self.piece if isinstance(self.piece, ParquetPiece) else None

    @property
    def typed(self) -> bool:
        """Whether it is one of a file that says its types."""
        return isinstance(self.piece, ParquetPiece) or (
            isinstance(self.piece, ArrowPiece) and self.piece.stop is not None
        )

    def checked(self, stream: StreamDef) -> Sequence[str]:
        """None: a source refuses files by their types."""
        return ()

    def table(self, stream: StreamDef, columns: Sequence[str] | None = None) -> PartRows:
        """These declared columns of its rows, or all."""
        aside = QuarantinedRows(stream.name)
        report = aside if stream.quarantine else None
        live = replace(stream, options=self.options)
        schema = pa.schema(list(declared(stream, columns).items()))
        rows = pa.Table.from_batches(list(self.piece.read(live, columns, report)), schema)
        return PartRows(timed_rows(stream, rows, report), (), aside.table())


def parts_of_source(stream: StreamDef, pieces: Sequence[Piece]) -> list[InputPart]:
    """What tasks are to read of what a stream's source has."""
    return [PiecePart(piece, stream.options) for piece in pieces]


def parts_of(path: str, stream: StreamDef) -> list[InputPart]:
    """What tasks are to read of a file or a directory, in order of arrival."""
    found: list[InputPart] = []
    for file in files_given(path, stream):
        found += _live_parts(stream, file) if is_read_as_live(stream, file) else _given_parts(stream, file)
    return found


def _live_parts(stream: StreamDef, file: DataFile) -> list[InputPart]:
    try:
        with reading(stream, file.path):
            live, pieces = pieces_of_file(stream, file)
    except SourceError:
        if not stream.quarantine:
            raise
        return [WholeFile(file)]
    return [PiecePart(piece, live.options) for piece in pieces]


def _given_parts(stream: StreamDef, file: DataFile) -> list[InputPart]:
    kind = typed(Path(file.path))
    if kind is None:
        return [PathPart(file.path, file.size)]
    with reading(stream, file.path):
        cut = cut_parquet(file, stream, 0) if kind == "parquet" else cut_arrow(file, 0)
    pieces = [share.piece for share in cut]
    ranged = [p for p in pieces if isinstance(p, ParquetPiece | ArrowPiece) and p.stop is not None]
    if len(ranged) == len(pieces) > 0:
        return [PathPart(file.path, p.weight, p.first, p.stop, len(ranged) == 1) for p in ranged]
    return [PathPart(file.path, file.size)]
