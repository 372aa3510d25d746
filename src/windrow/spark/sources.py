"""DataFrames that a program hands in, checked against the declaration of their stream.

A time column that is missing or of the wrong type is found before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


def conform(frame: DataFrame, stream: StreamDef) -> DataFrame:
    """The declared columns of a streaming DataFrame, in order and of the declared types, or a SourceError."""
    from pyspark.sql import functions as F

    if not frame.isStreaming:
        raise SourceError(
            f'the DataFrame of stream "{stream.name}" is not a streaming one',
            hint="build it with spark.readStream; a fixed DataFrame can be a table, or be replayed by windrow.run",
        )
    have = columns_of(frame)
    names = {n.lower(): n for n in have}
    _check_columns(stream, have, names)
    return frame.select(
        *(F.col(f"`{names[n.lower()]}`").cast(spark_type(t)).alias(n) for n, t in stream.columns.items())
    )


def columns_of(frame: DataFrame) -> dict[str, pa.DataType]:
    """The columns of a DataFrame as Arrow types, to declare a stream or table from."""
    from pyspark.sql.pandas.types import to_arrow_type

    found = {}
    for column in frame.schema.fields:
        try:
            found[column.name] = to_arrow_type(column.dataType, timezone="UTC")
        except Exception as error:
            raise SourceError(
                f'column "{column.name}" has type {column.dataType.simpleString()}, which windrow cannot read',
                hint="cast it, or leave it out of the DataFrame",
            ) from error
    return found


def spark_type(type_: pa.DataType) -> DataType:
    """The Spark type that holds an Arrow type; TIMESTAMP without a zone stays without one."""
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(_signed(type_), prefer_timestamp_ntz=True)
    except Exception as error:
        raise SourceError(f"Spark has no type for {type_}", hint="declare the column with another type") from error


def spark_schema(columns: Mapping[str, pa.DataType]) -> StructType:
    """The Spark schema of declared columns."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(n, spark_type(t)) for n, t in columns.items()])


def _signed(type_: pa.DataType) -> pa.DataType:
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
    return wider.get(type_, pa.float32() if type_ == pa.float16() else type_)


def _check_columns(stream: StreamDef, have: Mapping[str, pa.DataType], names: Mapping[str, str]) -> None:
    shown = ", ".join(f"{n} {t}" for n, t in have.items())
    if stream.time.lower() not in names:
        raise SourceError(
            f'the source of stream "{stream.name}" has no time column "{stream.time}"',
            detail=f"its columns are {shown}",
            hint="name the column that holds the time: TIMESTAMP BY column",
        )
    missing = [n for n in stream.columns if n.lower() not in names]
    if missing:
        raise SourceError(
            f'the source of stream "{stream.name}" has no column "{missing[0]}"',
            detail=f"its columns are {shown}",
            hint="declare only columns that the source has",
        )
    time = have[names[stream.time.lower()]]
    if not (pa.types.is_timestamp(time) or pa.types.is_integer(time)):
        raise SourceError(
            f'the time column "{stream.time}" of stream "{stream.name}" has type {time}',
            hint="a time column is a TIMESTAMP or an integer",
        )
    for name, wanted in stream.columns.items():
        found = have[names[name.lower()]]
        if not _fits(found, wanted):
            raise SourceError(
                f'column "{name}" of stream "{stream.name}" is declared {wanted}, but the source has {found}',
                hint="change the declaration, or cast the column in the DataFrame",
            )


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of `found` is a value of `wanted`: the same kind, and not narrower."""
    wanted = _signed(wanted)
    if found == wanted or pa.types.is_null(found):
        return True
    kinds = pa.types
    if kinds.is_integer(found) and kinds.is_integer(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    if kinds.is_floating(wanted):
        return kinds.is_floating(found) and bool(found.bit_width <= wanted.bit_width)
    if kinds.is_decimal(wanted):
        whole = wanted.precision - wanted.scale
        if kinds.is_integer(found):
            return bool(whole >= {8: 3, 16: 5, 32: 10, 64: 19}[found.bit_width])
        return kinds.is_decimal(found) and bool(found.scale <= wanted.scale and found.precision - found.scale <= whole)
    same = (kinds.is_timestamp, _is_text, _is_bytes, kinds.is_nested)
    return any(check(found) and check(wanted) for check in same)


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _is_bytes(type_: pa.DataType) -> bool:
    return pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)
