"""Parquet files in pieces of row groups; counts and times of rows from the footer.

A piece reads only the columns that are asked for, in batches, so a file larger than memory passes through it. Row
groups that nobody wants are skipped by what the footer says of their columns, if it also says their times. Cost on the
driver: one read of the footer.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.elements import one
from windrow.sources.casting import cast_column
from windrow.sources.cuts import PIECE_BYTES, Share
from windrow.sources.data_file import DataFile, check_types, declared, find_columns, reading, shaped, with_times
from windrow.sources.intake import FURTHEST, times
from windrow.sources.protocol import Report

BATCH_ROWS = 131_072

_AS_THEY_ARE = (pa.int64(), pa.timestamp("us"))
"""Types whose numbers are the times of a stream."""


@dataclass(frozen=True)
class RowGroup:
    """What a footer says of a row group: rows, least and greatest time, and of some columns the ends of their values.

    Ends are an array of the declared type, least and greatest, and whether there may be nulls. Of floats the greatest
    is NaN, which no footer counts.
    """

    rows: int
    low: int
    high: int
    ends: Mapping[str, tuple[pa.Array, bool]]


Unwanted = Callable[[RowGroup], bool]


@dataclass(frozen=True)
class ParquetPiece:
    """Row groups `[first, stop)` of a file."""

    file: DataFile
    first: int
    stop: int
    weight: int
    skipped: frozenset[int] = frozenset()  # row groups that nobody wants

    def without(
        self, stream: StreamDef, columns: Sequence[str], unwanted: Unwanted
    ) -> tuple[ParquetPiece, list[RowGroup]]:
        """The piece less the row groups that nobody wants, and these; `columns`: those whose ends are asked about.

        A file that cannot be read stays whole: whoever reads it says why, and decides.
        """
        try:
            with self.file.open() as handle, parquet.ParquetFile(handle) as file:
                footer = file.metadata
                self._names(stream, file)
                groups = self._groups(footer)
                found = {i: g for i in groups if (g := _described(stream, columns, footer, i)) is not None}
        except (SourceError, pa.ArrowException, OSError):
            return self, []
        skipped = {i: g for i, g in found.items() if unwanted(g)}
        return replace(self, skipped=frozenset(skipped)), list(skipped.values())

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
            names = self._names(stream, file)
            first = 1 + sum(file.metadata.row_group(i).num_rows for i in range(self.first))
            within = " of the row groups that are read" if self.skipped else ""
            for batch in file.iter_batches(
                BATCH_ROWS, row_groups=self._groups(file.metadata), columns=[names[n] for n in wanted if n in names]
            ):
                rows = shaped(stream, self.file, batch, names, wanted)
                yield with_times(stream, self.file.path, first, rows, report, within)
                first += batch.num_rows

    def _names(self, stream: StreamDef, file: Any) -> dict[str, str]:
        """The file's own name of each declared column; types that do not fit are refused."""
        types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
        names = find_columns(stream, self.file.path, self.file.given, list(types), stream.columns)
        check_types(stream, self.file, {n: types[have] for n, have in names.items()})
        return names

    def _groups(self, footer: Any) -> list[int]:
        return [g for g in range(self.first, min(self.stop, footer.num_row_groups)) if g not in self.skipped]


def _described(stream: StreamDef, columns: Sequence[str], footer: Any, index: int) -> RowGroup | None:
    """What a footer says of a row group; None if not its times."""
    clock, group = _number_column(stream.time, footer), footer.row_group(index)
    bounds = None if clock is None else _bounds(stream, group.column(clock[0]).statistics, clock[1])
    if bounds is None:
        return None
    ends: dict[str, tuple[pa.Array, bool]] = {}
    for name in columns:
        if (at := _number_column(name, footer)) is not None:
            told = _ends(stream, name, group.column(at[0]).statistics, at[1])
            ends |= {} if told is None else {name: told}
    return RowGroup(int(group.num_rows), *bounds, ends)


def cut_parquet(file: DataFile, stream: StreamDef, start: int) -> list[Share]:
    """The row groups from `start` on, in pieces."""
    with file.open() as handle, parquet.ParquetFile(handle) as opened:
        footer = opened.metadata
        clock = _number_column(stream.time, footer)
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


def _number_column(name: str, footer: Any) -> tuple[int, pa.DataType] | None:
    """The index of a column of numbers or times among the leaves, and the type of the numbers in its statistics."""
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    folded = [p.lower() for p in paths]
    if name not in paths and name.lower() not in folded:
        return None
    index = paths.index(name) if name in paths else folded.index(name.lower())
    type_ = _statistics_type(footer.schema.column(index))
    return None if type_ is None else (index, type_)


def _statistics_type(column: Any) -> pa.DataType | None:
    # Not the Arrow type of the file: seconds, for one, are written as milliseconds.
    return _type_of(column.physical_type, column.logical_type.to_json())


@functools.cache
def _type_of(physical: str, text: str) -> pa.DataType | None:
    logical = json.loads(text)
    if physical == "INT64" and logical["Type"] == "Timestamp":
        unit = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}[logical["timeUnit"]]
        return pa.timestamp(unit, "UTC" if logical["isAdjustedToUTC"] else None)
    if physical in ("DOUBLE", "FLOAT") and logical["Type"] == "None":
        return pa.float64()
    plain = logical["Type"] == "None" or (logical["Type"] == "Int" and logical["isSigned"])
    return pa.int64() if plain and physical in ("INT32", "INT64") else None


def _ends(stream: StreamDef, name: str, found: Any, type_: pa.DataType) -> tuple[pa.Array, bool] | None:
    """Least and greatest value of a column in a row group, and whether it may have nulls; None if nobody can tell."""
    if found is None or not found.has_min_max:
        return None
    try:
        if pa.types.is_floating(type_):
            if math.isnan(found.min):
                return None
            ends = pa.array([found.min, math.nan], pa.float64())
        else:
            ends = pa.array([found.min_raw, found.max_raw], pa.int64()).cast(type_)
        column = cast_column(pa.chunked_array([ends]), stream.columns[name], name, stream.name)
    except (SourceError, pa.ArrowException):  # whoever reads the rows will say it
        return None
    return one(column), not found.has_null_count or found.null_count > 0


def _bounds(stream: StreamDef, found: Any, type_: pa.DataType) -> tuple[int, int] | None:
    """Least and greatest time of a row group, if every row has one and the footer says so."""
    if pa.types.is_floating(type_):
        return None
    if found is None or not found.has_min_max or not found.has_null_count or found.null_count:
        return None
    if type_ == stream.time_type and type_ in _AS_THEY_ARE and -FURTHEST <= found.min_raw <= found.max_raw <= FURTHEST:
        return found.min_raw, found.max_raw
    ends = pa.chunked_array([pa.array([found.min_raw, found.max_raw], pa.int64()).cast(type_)])
    column = cast_column(ends, stream.time_type, stream.time, stream.name)
    low, high = times(stream, pa.table({stream.time: column}))
    return int(low), int(high)
