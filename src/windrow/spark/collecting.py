"""Collecting what the tasks of a Spark job give: again when workers go away, or given up when nobody wants it.

`mapped` runs any function over small values, for what is done beside ticks: parts of large questions, archives.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.spark.unwrap import lost, unwrap, workers_lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOG = logging.getLogger("windrow.engine")

ATTEMPTS = 4
"""How often a job is run when workers go away."""

WATCH = 0.05
"""Seconds between two looks at whether a job beside ticks is still wanted."""

GIVEN = pa.schema([("given", pa.binary())])
"""Bytes that the driver has, or gets, as they go through the JVM."""


def collected(frame: DataFrame) -> pa.Table:
    """Run a job; again if Python workers or executors went away: nothing has happened until a manifest names it."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return frame.toArrow()
        except Exception as error:
            if not lost(error):
                raise unwrap(error) from error
            LOG.warning("workers of Spark went away from a job, time %d of %d", attempt, ATTEMPTS)
            if attempt == ATTEMPTS:
                raise workers_lost(error, attempt) from error
            time.sleep(0.25 * 2**attempt)
    raise AssertionError


def mapped(
    spark: SparkSession, schema: StructType, work: Callable[[Any], Any], values: Sequence[Any], tasks: int,
    check: Callable[[], None] | None,
) -> list[Any]:  # fmt: skip
    """What a function gives for each value, in so many tasks at most; `check` raises when it is no longer wanted.

    `schema`: that of `GIVEN`.
    """
    from pyspark import cloudpickle

    packed = [cloudpickle.dumps((work, value)) for value in values]  # type: ignore[no-untyped-call]
    if not packed:
        return []
    frame = spark.range(0, len(packed), 1, min(len(packed), tasks)).mapInArrow(_work_task(packed), schema)
    done = collected(frame) if check is None else _watched(spark, frame, check)
    found: dict[int, Any] = dict(pickle.loads(row.as_buffer()) for row in done.column("given"))
    return [found[i] for i in range(len(packed))]


def _work_task(packed: Sequence[bytes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                work, value = pickle.loads(packed[number])
                made = pickle.dumps((number, work(value)))
                yield pa.RecordBatch.from_arrays([pa.array([made], pa.binary())], schema=GIVEN)

    return run


def _watched(spark: SparkSession, frame: DataFrame, check: Callable[[], None]) -> pa.Table:
    """Run a job in a thread of its own; when `check` raises, its tasks are cancelled."""
    from pyspark import InheritableThread

    context, tag = spark.sparkContext, f"windrow-{uuid.uuid4().hex}"
    done: list[pa.Table | Exception] = []

    def run() -> None:
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        try:
            done.append(collected(frame))
        except Exception as error:
            done.append(error)

    thread = InheritableThread(target=run, name="windrow-question")
    thread.daemon = True
    thread.start()
    try:
        while thread.is_alive():
            check()
            thread.join(WATCH)
    except BaseException:
        context.cancelJobsWithTag(tag)
        raise
    if isinstance(done[0], Exception):
        raise done[0]
    return done[0]
