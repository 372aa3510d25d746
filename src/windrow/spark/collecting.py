"""Collecting what the tasks of a Spark job give: again when workers go away, or given up when nobody wants it.

`mapped` runs any function over small values, for what is done beside ticks: parts of large questions, archives.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from windrow.spark.unwrap import lost, unwrap, workers_lost

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

LOG = logging.getLogger("windrow.engine")

Given = TypeVar("Given")
Done = TypeVar("Done")

ATTEMPTS = 4
"""How often a job is run when workers go away."""

WATCH = 0.05
"""Seconds between two looks at whether a job beside ticks is still wanted."""

GIVEN = pa.schema([("given", pa.binary())])
"""Bytes that the driver has, or gets, as they go through the JVM."""


def collected(run: Callable[[], Done]) -> Done:
    """Run a job; again if Python workers or executors went away: nothing has happened until a manifest names it."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return run()
        except Exception as error:
            if not lost(error):
                raise unwrap(error) from error
            LOG.warning("workers of Spark went away from a job, time %d of %d", attempt, ATTEMPTS)
            if attempt == ATTEMPTS:
                raise workers_lost(error, attempt) from error
            time.sleep(0.25 * 2**attempt)
    raise AssertionError


def mapped(
    context: SparkContext, work: Callable[[Given], Done], values: Sequence[Given], tasks: int,
    check: Callable[[], None] | None,
) -> list[Done]:  # fmt: skip
    """What a function gives for each value, in so many tasks at most; `check` raises when it is no longer wanted."""
    from pyspark import cloudpickle

    packed = [cloudpickle.dumps((work, value)) for value in values]  # type: ignore[no-untyped-call]
    if not packed:
        return []
    job = context.parallelize(packed, min(len(packed), tasks)).mapPartitions(_worked)
    done = collected(job.collect) if check is None else _watched(context, job, check)
    return [pickle.loads(made) for made in done]


def _worked(packed: Iterable[bytes]) -> Iterator[bytes]:
    for each in packed:
        work, value = pickle.loads(each)
        yield pickle.dumps(work(value))


def _watched(context: SparkContext, job: RDD[bytes], check: Callable[[], None]) -> list[bytes]:
    """Run a job in a thread of its own; when `check` raises, its tasks are cancelled."""
    from pyspark import InheritableThread

    tag = f"windrow-{uuid.uuid4().hex}"
    done: list[list[bytes] | Exception] = []

    def run() -> None:
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        try:
            done.append(collected(job.collect))
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
