"""Parquet files in pieces of row groups; counts and times of rows from the footer.

A piece reads only the columns that are asked for, in batches, so a file larger than memory passes through it. Cost on
the driver: one read of the footer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from windrow.catalog import StreamDef
from windrow.sources.casting import cast_column
from windrow.sources.cuts import PIECE_BYTES, Share
from windrow.sources.data_file import DataFile, check_types, declared, find_columns, reading, shaped
from windrow.sources.intake import times
from windrow.sources.protocol import Report

BATCH_ROWS = 131_072


@dataclass(frozen=True)
class ParquetPiece:
    """Row groups `[first, stop)` of a file."""

    file: DataFile
    first: int
    stop: int
    weight: int

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
            types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
            names = find_columns(stream, self.file.path, self.file.given, list(types), stream.columns)
            check_types(stream, self.file, {n: types[have] for n, have in names.items()})
            groups = range(self.first, min(self.stop, file.num_row_groups))
            for batch in file.iter_batches(
                BATCH_ROWS, row_groups=groups, columns=[names[n] for n in wanted if n in names]
            ):
                yield shaped(stream, self.file, batch, names, wanted)


def cut_parquet(file: DataFile, stream: StreamDef, start: int) -> list[Share]:
    """The row groups from `start` on, in pieces."""
    with file.open() as handle, parquet.ParquetFile(handle) as opened:
        footer = opened.metadata
        clock = _time_column(stream, footer)
        groups = [_share(file, stream, footer, clock, i) for i in range(start, footer.num_row_groups)]
    return merge([g for g in groups if g.rows])


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
    piece = ParquetPiece(p.file, p.first, q.stop, p.weight + q.weight)
    return Share(piece, b.stop, (a.rows or 0) + (b.rows or 0), bounds)


def _share(file: DataFile, stream: StreamDef, footer: Any, clock: tuple[int, pa.DataType] | None, index: int) -> Share:
    group = footer.row_group(index)
    bounds = None if clock is None else _bounds(stream, group.column(clock[0]).statistics, clock[1])
    piece = ParquetPiece(file, index, index + 1, int(group.total_byte_size))
    return Share(piece, index + 1, int(group.num_rows), bounds)


def _time_column(stream: StreamDef, footer: Any) -> tuple[int, pa.DataType] | None:
    """The index of the time column among the leaves, and the type of the numbers in its statistics."""
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        if column.path.lower() == stream.time.lower():
            type_ = _statistics_type(column)
            return None if type_ is None else (index, type_)
    return None


def _statistics_type(column: Any) -> pa.DataType | None:
    # Not the Arrow type of the file: seconds, for one, are written as milliseconds.
    logical = json.loads(column.logical_type.to_json())
    if column.physical_type == "INT64" and logical["Type"] == "Timestamp":
        unit = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}[logical["timeUnit"]]
        return pa.timestamp(unit, "UTC" if logical["isAdjustedToUTC"] else None)
    plain = logical["Type"] == "None" or (logical["Type"] == "Int" and logical["isSigned"])
    return pa.int64() if plain and column.physical_type in ("INT32", "INT64") else None


def _bounds(stream: StreamDef, found: Any, type_: pa.DataType) -> tuple[int, int] | None:
    """Least and greatest time of a row group, if every row has one and the footer says so."""
    if found is None or not found.has_min_max or not found.has_null_count or found.null_count:
        return None
    ends = pa.chunked_array([pa.array([found.min_raw, found.max_raw], pa.int64()).cast(type_)])
    column = cast_column(ends, stream.time_type, stream.time, stream.name)
    low, high = times(stream, pa.table({stream.time: column}))
    return int(low), int(high)
