"""A file replayed at a steady rate, exactly once.

The file is copied once into an Arrow file in `spool` (under home), whose name is kept by the stream's declaration. An
offset is a number of rows of that copy, so a restart reads the same rows again whatever became of the original. After
t seconds of running `rows_per_second * t` rows are due; time during which the engine was down does not count. A batch
takes what is due, at most `max_rows` (five seconds' worth, unless said).

Cost: the copy, once, through memory; then each batch reads only the record batches that hold its rows, memory-mapped
when local.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from windrow.errors import SourceError
from windrow.sources.casting import conform
from windrow.sources.files import read_path
from windrow.store.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "windrow_replay"
CHUNK_ROWS = 16_384


def open_replay(
    spark: SparkSession,
    columns: Mapping[str, pa.DataType],
    path: str,
    options: Mapping[str, str],
    spool: str | None,
) -> DataFrame:
    """The streaming DataFrame of a file's rows in file order."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from windrow.spark.sources import spark_schema

    rate = _rate(options)
    schema = spark_schema(columns)
    target = Place.of(spool or tempfile.mkdtemp(prefix="windrow-replay-"))
    name, rows = spooled(target, path, to_arrow_schema(schema, timezone="UTC"))
    spark.dataSource.register(ReplaySource)
    given = {
        "place": target.uri,
        "name": name,
        "rows": str(rows),
        "rate": str(rate),
        "max_rows": str(_max_rows(options, rate)),
        "partitions": options.get("partitions", "1"),
    }
    return spark.readStream.format(NAME).schema(schema).options(**given).load()


def spooled(target: Place, path: str, schema: pa.Schema) -> tuple[str, int]:
    """The name and row count of the Arrow copy of a file, made on first use."""
    key = hashlib.blake2b(f"{path}\n{schema}".encode(), digest_size=8).hexdigest()
    name, note = f"{key}.arrow", f"{key}.json"
    if not (target.exists(note) and target.exists(name)):
        rows = _copy(target, path, schema, name)
        target.write(note, json.dumps({"rows": rows, "source": path}).encode())  # last: it says that the copy is whole
    return name, int(json.loads(bytes(target.read(note)))["rows"])


def _copy(target: Place, path: str, schema: pa.Schema, name: str) -> int:
    what = "replay"
    declared = dict(zip(schema.names, schema.types, strict=True))
    table = conform(read_path(path, what, declared), what, declared)
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema) as out:
        out.write_table(table, max_chunksize=CHUNK_ROWS)
    target.write(name, sink.getvalue())
    return int(table.num_rows)


def _rate(options: Mapping[str, str]) -> float:
    text = options.get("rows_per_second", "1000")
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if rate <= 0:
        raise SourceError(f'rows_per_second is "{text}"', hint="it is a number of rows above zero")
    return rate


def _max_rows(options: Mapping[str, str], rate: float) -> int:
    """The most rows of one batch: a slow start must not end in one huge tick."""
    text = options.get("max_rows", str(max(1, int(rate * 5))))
    if not text.isdecimal() or int(text) == 0:
        raise SourceError(f'max_rows is "{text}"', hint="it is a number of rows above zero")
    return int(text)


class Span(InputPartition):
    """Rows `[start, stop)` of the copy."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__((start, stop))
        self.start, self.stop = start, stop


class ReplayReader(DataSourceStreamReader):
    """Offsets are row numbers; the latest one follows the clock from where this reader started."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.place = Place(options["place"])
        self.name = options["name"]
        self.rows = int(options["rows"])
        self.rate = float(options["rate"])
        self.max_rows = int(options["max_rows"])
        self.partitions_per_batch = int(options["partitions"])
        self._began: tuple[float, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        if self._began is None:
            self._began = (time.monotonic(), start["row"])
        since, row = self._began
        due = row + int(self.rate * (time.monotonic() - since))
        return {"row": max(start["row"], min(self.rows, due, start["row"] + self.max_rows))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["row"], end["row"]
        step = max(1, -(-(last - first) // self.partitions_per_batch))
        return [Span(at, min(at + step, last)) for at in range(first, last, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        yield from slices(self.place, self.name, partition.start, partition.stop)


def slices(place: Place, name: str, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Rows `[start, stop)` of an Arrow file as record batches."""
    file = ipc.open_file(place.read(name))
    at = 0
    for index in range(file.num_record_batches):
        if at >= stop:
            return
        batch = file.get_batch(index)
        low, high = max(start - at, 0), min(stop - at, batch.num_rows)
        if low < high:
            yield batch.slice(low, high - low)
        at += batch.num_rows


class ReplaySource(DataSource):
    """The data source that Spark knows as `windrow_replay`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReplayReader(self.options)
