"""DataFrames that a program hands in, checked against the declaration of their stream.

A time column that is missing or of the wrong type is found before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.casting import fits, sql_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


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
            f'the time column "{stream.time}" of stream "{stream.name}" has type {sql_name(time)}',
            hint="a time column is a TIMESTAMP or an integer",
        )
    for name, wanted in stream.columns.items():
        found = have[names[name.lower()]]
        if not fits(found, _signed(wanted)):
            raise SourceError(
                f'column "{name}" of stream "{stream.name}" is declared {sql_name(wanted)}, '
                f"but the source has {sql_name(found)}",
                hint="change the declaration, or cast the column in the DataFrame",
            )
