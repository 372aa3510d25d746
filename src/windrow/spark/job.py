"""One Spark job per tick, whatever the number of queries; stages as many as the deepest query needs.

source A ─ mapInArrow ┐ source B ─ mapInArrow ┼─ union ─ repartitionById ─ mapInArrow (stage 1) ─ repartitionById ─
mapInArrow (stage 2) ... ─► driver
                      ┘
"""

from __future__ import annotations

import contextlib
import functools
import gc
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from windrow.runtime.exchange import SCHEMA, pack
from windrow.runtime.feed import BLOBS, blobs, feed, feed_blobs
from windrow.runtime.program import Program
from windrow.runtime.stage import Stage
from windrow.spark.unwrap import unwrap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Feed:
    """New rows of a stream, as a DataFrame or a table; `only`: they are history, for one new query."""

    stream: str
    rows: Any
    only: str | None = None


class Job(Protocol):
    """Runs the tasks of a tick."""

    def run(self, feeds: Sequence[Feed], program: Program, stages: int) -> pa.Table:
        """What the last stage sends to the driver, as envelopes."""


_awake: set[str] = set()
"""Applications that have run a job."""


class SparkJob:
    """Runs the tasks of a tick on Spark."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

        self.spark = spark
        types = {pa.int32(): IntegerType(), pa.string(): StringType(), pa.binary(): BinaryType()}
        self._schema, self._blobs = StructType(), StructType()
        for made, schema in ((self._schema, SCHEMA), (self._blobs, BLOBS)):
            for column in schema:
                made.add(column.name, types[column.type])

    def wake(self) -> None:
        """Run a job of a tick's shape beside whatever comes first, once: ticks then find Spark awake."""
        application = self.spark.sparkContext.applicationId
        if application not in _awake:
            _awake.add(application)
            threading.Thread(target=self._wake, name="windrow-wake", daemon=True).start()

    def _wake(self) -> None:
        one = pa.Table.from_batches(pack([(0, 0, "", "", b"")], 0))
        with contextlib.suppress(Exception):  # whatever is wrong, the first tick says it
            made = self.spark.createDataFrame(one, self._schema).mapInArrow(_nothing, self._schema)
            made.repartitionById(2, made["to"]).mapInArrow(_nothing, self._schema).toArrow()

    def run(self, feeds: Sequence[Feed], program: Program, stages: int) -> pa.Table:
        envelopes = self._envelopes(feeds, program)
        shipped = pickle.dumps(program)
        for stage in range(1, stages + 1):
            spread = envelopes.repartitionById(program.partitions, envelopes["to"])
            envelopes = spread.mapInArrow(_stage_task(shipped, stage, stage == stages), self._schema)
        try:
            return envelopes.toArrow()
        except Exception as error:
            raise unwrap(error) from error

    def _envelopes(self, feeds: Sequence[Feed], program: Program) -> DataFrame:
        shipped = pickle.dumps(replace(program, runs={}, generations={}))
        tables = [(f.stream, f.only, f.rows) for f in feeds if isinstance(f.rows, pa.Table)]
        found = [
            f.rows.mapInArrow(_feed_task(shipped, f.stream), self._schema)
            for f in feeds
            if not isinstance(f.rows, pa.Table)
        ]
        # Without rows there must still be something to shuffle: Spark would skip the stages of an empty relation.
        if tables or not found:
            packed = blobs(tables or [("", None, pa.table({"nothing": [0]}))], program.partitions)
            found.append(self.spark.createDataFrame(packed, self._blobs).mapInArrow(_blobs_task(shipped), self._schema))
        return functools.reduce(lambda a, b: a.union(b), found)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _feed_task(shipped: bytes, stream: str) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return feed(pickle.loads(shipped), stream, batches, _here())

    return run


def _blobs_task(shipped: bytes) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return feed_blobs(pickle.loads(shipped), batches, _here())

    return run


def _stage_task(shipped: bytes, stage: int, last: bool) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from Stage(pickle.loads(shipped), stage, _here(), last).run(batches)
        _freeze()

    return run


_tasks = 0


def _freeze() -> None:
    """Take what the first tasks have loaded out of the garbage collector's sight.

    PySpark collects garbage after every task; over all that Arrow, DuckDB and numba bring that takes 80 ms.
    """
    global _tasks
    _tasks += 1
    if _tasks in (1, 4):
        gc.collect()
        gc.freeze()


def _here() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
