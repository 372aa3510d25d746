"""Parquet files in pieces of row groups; counts and times of rows from the footer.

A piece reads only the columns that are asked for, in batches, so a file larger than memory passes through it. Row
groups that nobody wants are skipped by what the footer says of their columns, if it also says their times. Cost on the
driver: one read of the footer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.cuts import PIECE_BYTES, Share
from windrow.sources.data_file import DataFile, Given, check_types, declared, find_columns, reading, shaped, with_times
from windrow.sources.footers import RowGroups, row_groups, time_bounds
from windrow.sources.protocol import Report

BATCH_ROWS = 131_072
SMALL = 1 << 20
"""Bytes of which the columns are read one after the other: to wake threads for them costs more than it saves."""


@dataclass(frozen=True)
class ParquetPiece:
    """Row groups `[first, stop)` of a file."""

    file: DataFile
    first: int
    stop: int
    weight: int
    known: tuple[int, int, int] | None = None  # how many rows, their least and greatest time
    skipped: frozenset[int] = frozenset()  # row groups that nobody wants

    def given(self, stream: StreamDef) -> Given:
        """The columns that the path says, and the file does not have."""
        return self.file.given  # less those that it has, since it was cut

    def row_groups(self, stream: StreamDef, columns: Collection[str]) -> RowGroups | None:
        """What the footer says; `columns`: those that are asked about. None for a file that cannot be read: whoever
        reads it says why, and decides."""
        try:
            with self.file.open() as handle, parquet.ParquetFile(handle) as file:
                names = {n: have for n, have in _names(stream, self.file, file).items() if n in columns}
                return row_groups(stream, file.metadata, self._groups(file.metadata), names, self.file.given)
        except (SourceError, pa.ArrowException, OSError):
            return None

    def without(self, numbers: Iterable[int]) -> ParquetPiece:
        """The piece less some row groups."""
        return replace(self, skipped=self.skipped.union(numbers))

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of those row groups."""
        wanted = declared(stream, columns)
        where = f"row groups {self.first} to {self.stop - 1}"
        with (
            reading(stream, self.file.path, where, report),
            self.file.open() as handle,
            parquet.ParquetFile(handle, pre_buffer=not self.file.place.local) as file,
        ):
            names = _names(stream, self.file, file)
            first = 1 + sum(file.metadata.row_group(i).num_rows for i in range(self.first))
            within = " of the row groups that are read" if self.skipped else ""
            for batch in file.iter_batches(
                BATCH_ROWS,
                row_groups=self._groups(file.metadata),
                columns=[names[n] for n in wanted if n in names],
                use_threads=self.weight >= SMALL,
            ):
                rows = shaped(stream, self.file, batch, names, wanted)
                yield with_times(stream, self.file.path, first, rows, report, within)
                first += batch.num_rows

    def _groups(self, footer: Any) -> list[int]:
        return [g for g in range(self.first, min(self.stop, footer.num_row_groups)) if g not in self.skipped]


def _names(stream: StreamDef, file: DataFile, opened: Any) -> dict[str, str]:
    """The file's own name of each declared column; types that do not fit are refused."""
    schema = opened.schema_arrow  # made anew whenever it is asked for
    types = dict(zip(schema.names, schema.types, strict=True))
    names = find_columns(stream, file.path, file.given, schema.names, stream.columns)
    check_types(stream, file, {n: types[have] for n, have in names.items()})
    return names


def cut_parquet(file: DataFile, stream: StreamDef, start: int) -> list[Share]:
    """The row groups from `start` on, in pieces."""
    with file.open() as handle, parquet.ParquetFile(handle) as opened:
        footer = opened.metadata
        groups = range(start, footer.num_row_groups)
        try:
            _names(stream, file, opened)
            bounds = time_bounds(stream, footer, groups)
        except SourceError:  # whoever reads it says so
            bounds = [None] * len(groups)
        mine = file.less_given(opened.schema_arrow.names)
        shares = [_share(mine, footer.row_group(g), g, b) for g, b in zip(groups, bounds, strict=True)]
    return merge([s for s in shares if s.rows])


def merge(groups: list[Share]) -> list[Share]:
    """Join small neighbours, so that a piece is worth its opening."""
    merged: list[Share] = []
    for group in groups:
        last = merged[-1] if merged else None
        if last is not None and last.piece.weight + group.piece.weight <= PIECE_BYTES:
            merged[-1] = _joined(last, group)
        else:
            merged.append(group)
    return merged


def _joined(a: Share, b: Share) -> Share:
    p, q = a.piece, b.piece
    assert isinstance(p, ParquetPiece)
    assert isinstance(q, ParquetPiece)
    bounds = None
    if a.bounds is not None and b.bounds is not None:
        bounds = (min(a.bounds[0], b.bounds[0]), max(a.bounds[1], b.bounds[1]))
    return _shared(p.file, (p.first, q.stop), p.weight + q.weight, (a.rows or 0) + (b.rows or 0), bounds)


def _share(file: DataFile, group: Any, index: int, bounds: tuple[int, int] | None) -> Share:
    return _shared(file, (index, index + 1), int(group.total_byte_size), int(group.num_rows), bounds)


def _shared(file: DataFile, groups: tuple[int, int], weight: int, rows: int, bounds: tuple[int, int] | None) -> Share:
    piece = ParquetPiece(file, *groups, weight, None if bounds is None else (rows, *bounds))
    return Share(piece, groups[1], rows, bounds)
