"""A runtime on Spark: its job, its DataFrames and its error messages around the runtime that all jobs share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from windrow.runtime.runtime import Runtime
from windrow.runtime.settings import Settings
from windrow.spark.job import SparkJob
from windrow.spark.session import session
from windrow.spark.streaming import SparkFrames
from windrow.spark.unwrap import unwrap
from windrow.store.sealed import STATE, as_written
from windrow.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_runtime(
    home: str | os.PathLike[str] | None,
    spark: SparkSession | None,
    functions: Mapping[str, Callable[..., object]],
    settings: Settings,
) -> Runtime:
    """The runtime over a home; without one, over a directory that goes with it."""
    temporary = tempfile.mkdtemp(prefix="windrow-home-") if home is None else None
    store = Store.open(home if home is not None else temporary or "")
    try:
        spark = session(spark)
        store.check()
        job = SparkJob(spark)
        job.wake()
        with as_written(STATE, f"in {store.place.uri}"):
            made = Runtime(job, store, functions, settings, frames=SparkFrames(), explain=unwrap)
    except BaseException:
        store.close()
        raise
    if temporary is not None:
        made.on_close(lambda: shutil.rmtree(temporary, ignore_errors=True))
    return made
