"""What a Parquet footer says of row groups: rows, least and greatest times, and zones of columns.

A footer has the ends of a column's values and how many are null, so row groups are the blocks of `Zones`, asked like
those of a run. Ends may be bounds that no value reaches (long texts are cut short, always outwards), so they say only
what is not there. What a footer does not say, or some writer got wrong, is any value.

Cost: a few microseconds for each row group and column that is asked about.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.aggregates.order import encode, has_fixed_codes
from windrow.operators.elements import Int64s, one
from windrow.operators.state.zones import Code, ColumnZones, Zones
from windrow.sources.casting import cast_column
from windrow.sources.data_file import Given
from windrow.sources.intake import FURTHEST, times

_AS_THEY_ARE = (pa.int64(), pa.timestamp("us"))
"""Types whose numbers are the times of a stream."""

_ANY: tuple[Code, Code] = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))
_ANY_TEXT: tuple[Code, Code] = (b"", b"\xff")  # no byte of UTF-8 is 0xFF
_UNORDERED = re.compile(r"parquet-mr version 1\.[0-9]\.")
"""Writers that compared the bytes of decimals."""


_PLAIN = {
    "INT32": pa.int64(), "INT64": pa.int64(), "FLOAT": pa.float64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(),
}  # fmt: skip


@dataclass(frozen=True)
class RowGroups:
    """Row groups of a file whose times are known: their numbers, rows, least and greatest times, and zones."""

    numbers: Int64s
    rows: Int64s
    low: Int64s
    high: Int64s
    zones: Zones


def row_groups(
    stream: StreamDef, footer: Any, groups: Sequence[int], names: Mapping[str, str], given: Given
) -> RowGroups:
    """Those of some row groups whose times are known.

    `names`: the columns that are asked about, as the file has them. `given`: those that its path says.
    """
    bounds = time_bounds(stream, footer, groups)
    known = [(g, *b) for g, b in zip(groups, bounds, strict=True) if b is not None]
    numbers, low, high = np.array(known, np.int64).reshape(len(known), 3).T
    of_path = {n: z for n, z in said_by_folders(stream, given).items() if n not in names}
    spans = {n: _repeated(z, len(known)) for n, z in of_path.items()}
    leaves = _leaves(footer)
    for name, have in names.items():
        if have in leaves:
            spans[name] = _column_zones(stream, name, footer, leaves[have], numbers.tolist())
    rows = np.array([footer.row_group(g).num_rows for g in numbers.tolist()], np.int64)
    return RowGroups(numbers, rows, low, high, Zones(np.arange(len(known) + 1), spans))


def said_by_folders(stream: StreamDef, given: Given) -> dict[str, ColumnZones]:
    """What a path says of columns, as zones of one block; values that do not fit are left to whoever reads them."""
    declared = {c.lower(): c for c in stream.columns}
    found = {}
    for name, text in ((declared[n.lower()], text) for n, text in given if n.lower() in declared):
        try:
            column = cast_column(pa.chunked_array([[text]], pa.string()), stream.columns[name], name, stream.what)
        except (SourceError, pa.ArrowException):
            continue
        codes: Sequence[Code | None] | None = [None] if text is None else _codes(one(column))
        if codes is not None:
            found[name] = ColumnZones(codes, codes, np.array([text is None], np.int64))
    return found


def time_bounds(stream: StreamDef, footer: Any, groups: Sequence[int]) -> list[tuple[int, int] | None]:
    """Least and greatest time of each row group, where every row has one and the footer says so."""
    leaves = _leaves(footer)
    folded = {name.lower(): leaf for name, leaf in reversed(leaves.items())}
    leaf = leaves.get(stream.time, folded.get(stream.time.lower()))
    type_ = None if leaf is None else _statistics_type(footer, leaf)
    if type_ is None or not (pa.types.is_integer(type_) or pa.types.is_temporal(type_)):
        return [None] * len(groups)
    return [_bounds(stream, footer.row_group(g).column(leaf).statistics, type_) for g in groups]


def _bounds(stream: StreamDef, found: Any, type_: pa.DataType) -> tuple[int, int] | None:
    if found is None or not found.has_min_max or not found.has_null_count or found.null_count:
        return None
    if type_ == stream.time_type and type_ in _AS_THEY_ARE and -FURTHEST <= found.min_raw <= found.max_raw <= FURTHEST:
        return found.min_raw, found.max_raw
    try:
        ends = pa.chunked_array([_array([found.min_raw, found.max_raw], type_)])
        column = cast_column(ends, stream.time_type, stream.time, stream.name)
        low, high = times(stream, pa.table({stream.time: column}))
    except (SourceError, pa.ArrowException):  # whoever reads the rows will say it
        return None
    return int(low), int(high)


def _leaves(footer: Any) -> dict[str, int]:
    """The plain columns, which are one leaf each, by name."""
    columns = ((i, footer.schema.column(i)) for i in range(footer.num_columns))
    return {c.name: i for i, c in columns if c.name == c.path and not c.max_repetition_level}


def _column_zones(stream: StreamDef, name: str, footer: Any, leaf: int, groups: Sequence[int]) -> ColumnZones:
    """The ends of a column's values in each row group, and the nulls among them."""
    required = footer.schema.column(leaf).max_definition_level == 0
    told = [footer.row_group(g).column(leaf).statistics for g in groups]
    ends = _ends(stream, name, told, _statistics_type(footer, leaf))
    any_value = _ANY_TEXT if _is_text(stream.columns[name]) else _ANY
    pairs: list[tuple[Code | None, Code | None]] = []
    nulls = np.zeros(len(groups), np.int64)
    for i, (g, found) in enumerate(zip(groups, told, strict=True)):
        counted = found is not None and found.has_null_count
        nulls[i] = 0 if required else found.null_count if counted else 1  # if nobody says how many, there may be some
        empty = counted and found.null_count == footer.row_group(g).num_rows
        pairs.append((None, None) if empty else ends.get(i, any_value))
    return ColumnZones([low for low, _ in pairs], [high for _, high in pairs], nulls)


def _ends(stream: StreamDef, name: str, told: Sequence[Any], type_: pa.DataType | None) -> dict[int, tuple[Code, Code]]:
    """The codes of least and greatest values as declared, of those statistics that have them."""
    if type_ is None:
        return {}
    raw = {i: e for i, found in enumerate(told) if (e := _raw_ends(found, type_)) is not None}
    if pa.types.is_string(type_):  # what is cut short may end within a character
        return raw
    try:
        column = pa.chunked_array([_array([v for pair in raw.values() for v in pair], type_)])
        column = cast_column(column, stream.columns[name], name, stream.name)
    except (SourceError, pa.ArrowException, OverflowError):  # whoever reads the rows will say it
        return {}
    codes = _codes(one(column))
    return {} if codes is None else {i: (codes[2 * n], codes[2 * n + 1]) for n, i in enumerate(raw)}


def _raw_ends(found: Any, type_: pa.DataType) -> tuple[Any, Any] | None:
    if found is None or not found.has_min_max:
        return None
    if pa.types.is_floating(type_):
        return None if math.isnan(found.min) else (found.min, math.nan)  # the greatest may be NaN, which nobody counts
    return found.min_raw, found.max_raw


def _array(raw: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Physical values of statistics as values of a type."""
    if pa.types.is_unsigned_integer(type_):
        return pa.array([v % (1 << type_.bit_width) for v in raw], type_)
    if pa.types.is_decimal(type_):
        whole = [int.from_bytes(v, "big", signed=True) if isinstance(v, bytes) else v for v in raw]
        return pa.array([Decimal(v).scaleb(-type_.scale) for v in whole], type_)
    if pa.types.is_temporal(type_):
        return pa.array(raw, pa.int32() if pa.types.is_date32(type_) else pa.int64()).cast(type_)
    return pa.array(raw, type_)


def _codes(column: pa.Array) -> Sequence[Code] | None:
    """The codes of values (`Zones`); None for types that have none that last."""
    if _is_text(column.type) or pa.types.is_binary(column.type):
        return column.cast(pa.binary()).to_pylist()
    if not has_fixed_codes(column.type):
        return None
    (codes,), _ = encode([column])
    return codes.tolist()


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _statistics_type(footer: Any, leaf: int) -> pa.DataType | None:
    """The type of the values in a column's statistics; None where they say nothing."""
    # Not the Arrow type of the file: seconds, for one, are written as milliseconds.
    column = footer.schema.column(leaf)
    type_ = _type_of(column.physical_type, column.logical_type.to_json())
    ordered = type_ is None or not pa.types.is_decimal(type_) or not _UNORDERED.match(footer.created_by or "")
    return type_ if ordered else None


@functools.cache
def _type_of(physical: str, text: str) -> pa.DataType | None:
    logical = json.loads(text)
    kind, units = logical["Type"], {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
    number = physical in ("INT32", "INT64")
    match kind:
        case "Timestamp" if physical == "INT64":
            return pa.timestamp(units[logical["timeUnit"]], "UTC" if logical["isAdjustedToUTC"] else None)
        case "Time" if physical == "INT64":
            return pa.time64(units[logical["timeUnit"]])
        case "Int" if number:
            signed = pa.int64() if logical["isSigned"] else pa.uint64()
            return signed if physical == "INT64" or logical["isSigned"] else pa.uint32()
        case "Decimal" if logical["precision"] <= 18:
            return pa.decimal128(logical["precision"], logical["scale"])
        case "Date":
            return pa.date32()
        case "String":
            return pa.string()
    return _PLAIN.get(physical) if kind == "None" else None


def _repeated(zones: ColumnZones, blocks: int) -> ColumnZones:
    return ColumnZones([*zones.low] * blocks, [*zones.high] * blocks, zones.nulls.repeat(blocks))
