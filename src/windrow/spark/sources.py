"""Sources: from a stream's declaration to a streaming DataFrame with exactly its columns.

    FROM csv | json | parquet (path => 'dir', max_files => 32)     files of a directory, as they appear
    FROM rate (rows_per_second => 100)                             Spark's own generator: timestamp, value
    FROM replay (path => 'file', rows_per_second => 5000)          the rows of a file, at a steady rate (see replay.py)
    FROM kafka (servers => 'host:9092', topic => 't')              values as JSON; needs Spark's Kafka connector

Options that are not named here go to Spark's reader as they are. A user's own DataFrame goes through `conform` like
the others, so a time column that is missing or of the wrong type is found before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError, WindrowError
from windrow.sources.files import read_path
from windrow.spark.unwrap import unwrap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Options = Mapping[str, str]

_FILES = ("csv", "json", "parquet")
_KINDS = (*_FILES, "rate", "replay", "kafka")

# Bad rows stop the engine with the file's name instead of turning into nulls; a header must name the declared columns.
_READER_DEFAULTS = {
    "csv": {"header": "true", "mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}


def open_stream(spark: SparkSession, stream: StreamDef, *, spool: str | None = None) -> DataFrame:
    """The streaming DataFrame of a declared stream; `spool` is where a replayed file is copied to."""
    kind = stream.options.get("source", "").lower()
    if kind not in _KINDS:
        raise SourceError(
            f'stream "{stream.name}" has no source that windrow knows' + (f': "{kind}"' if kind else ""),
            hint=f"write FROM {' | '.join(_KINDS)} (...), or give a DataFrame by engine.stream(...)",
        )
    options = {k.lower(): str(v) for k, v in stream.options.items() if k.lower() != "source"}
    opener: dict[str, Callable[[], DataFrame]] = {
        "rate": lambda: _rate(spark, options),
        "replay": lambda: _replay(spark, stream, options, spool),
        "kafka": lambda: _kafka(spark, stream, options),
    }
    try:
        opened = opener[kind]() if kind in opener else _directory(spark, kind, stream, options)
        return conform(opened, stream)
    except WindrowError:
        raise
    except Exception as error:
        failure = unwrap(error)
        raise SourceError(
            f'cannot open stream "{stream.name}": {failure.primary}', detail=failure.detail, hint=failure.hint
        ) from error


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


def infer(spark: SparkSession, options: Options) -> dict[str, pa.DataType]:
    """The columns of a file source that was declared without any, from the files that are there."""
    kind, path = options.get("source", "").lower(), options.get("path", "")
    if kind == "replay":
        head = read_path(path, "replay")
        return dict(zip(head.schema.names, head.schema.types, strict=True))
    if kind not in _FILES:
        raise SourceError(
            f"a stream FROM {kind or 'nothing'} must declare its columns",
            hint="CREATE STREAM name (column TYPE, ...) ...",
        )
    reader = spark.read.option("header", "true").option("inferSchema", "true")
    try:
        return columns_of(reader.format(kind).load(path))
    except WindrowError:
        raise
    except Exception as error:
        raise SourceError(
            f"cannot find the columns of {path}", detail=unwrap(error).primary, hint="declare the columns"
        ) from error


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


def _need(options: Options, name: str, kind: str) -> str:
    if not options.get(name):
        raise SourceError(f"FROM {kind} needs the option {name}", hint=f"FROM {kind} ({name} => '...')")
    return options[name]


def _directory(spark: SparkSession, kind: str, stream: StreamDef, options: dict[str, str]) -> DataFrame:
    path = _need(options, "path", kind)
    rest = {k: v for k, v in options.items() if k not in {"path", "max_files"}}
    limit = options.get("max_files", rest.pop("maxfilespertrigger", "32"))
    reader = spark.readStream.schema(spark_schema(stream.columns)).format(kind)
    return reader.options(**{**_READER_DEFAULTS[kind], "maxFilesPerTrigger": limit, **rest}).load(path)


def _rate(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    rest = {k: v for k, v in options.items() if k != "rows_per_second"}
    return (
        spark.readStream.format("rate").options(**{"rowsPerSecond": options.get("rows_per_second", "1"), **rest}).load()
    )


def _replay(spark: SparkSession, stream: StreamDef, options: dict[str, str], spool: str | None) -> DataFrame:
    from windrow.spark.replay import open_replay

    path = _need(options, "path", "replay")
    return open_replay(spark, stream.columns, path, options, spool)


def kafka_options(options: Options) -> dict[str, str]:
    """The options of Spark's Kafka connector for a declaration's.

    >>> kafka_options({"servers": "h:9092", "topic": "t"})["subscribe"]
    't'
    """
    known = {"servers", "topic", "topics", "pattern", "starting", "max_rows", "format"}
    made = {"kafka.bootstrap.servers": options.get("servers") or _need(options, "kafka.bootstrap.servers", "kafka")}
    subscriptions = {"topic": "subscribe", "topics": "subscribe", "pattern": "subscribepattern"}
    chosen = [(sparks, options[ours]) for ours, sparks in subscriptions.items() if ours in options]
    chosen += [(k, options[k]) for k in ("subscribe", "subscribepattern", "assign") if k in options]
    if len(chosen) != 1:
        raise SourceError(
            "FROM kafka needs exactly one of topic, topics, pattern",
            hint="FROM kafka (servers => '...', topic => '...')",
        )
    made[chosen[0][0]] = chosen[0][1]
    made["startingoffsets"] = options.get("starting", "earliest")
    made["failondataloss"] = "true"  # rows that Kafka has dropped must not go missing unsaid
    if "max_rows" in options:
        made["maxoffsetspertrigger"] = options["max_rows"]
    return {**made, **{k: v for k, v in options.items() if k not in known}}


def _kafka(spark: SparkSession, stream: StreamDef, options: dict[str, str]) -> DataFrame:
    from pyspark.sql import functions as F

    form = options.get("format", "json").lower()
    if form not in {"json", "csv"}:
        raise SourceError(
            f'FROM kafka cannot read values of format "{form}"', hint="use json or csv, or decode them in a DataFrame"
        )
    made = kafka_options(options)
    try:
        raw = spark.readStream.format("kafka").options(**made).load()
    except Exception as error:
        if "kafka" not in str(error).lower():
            raise
        raise SourceError(
            "Spark's Kafka connector is not on the class path",
            detail=unwrap(error).primary,
            hint=f"start Spark with --packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}",
        ) from error
    schema, text = spark_schema(stream.columns), F.col("value").cast("string")
    if form == "json":
        value = F.from_json(text, schema, {"mode": "FAILFAST"})
    else:
        value = F.from_csv(text, schema.simpleString()[7:-1].replace(":", " "), {"mode": "FAILFAST"})
    return raw.select(value.alias("value")).select("value.*")
