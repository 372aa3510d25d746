"""The process that Spark forks its Python workers from, with windrow loaded.

Spark's own daemon forks bare workers, and each of them imports Arrow, DuckDB, numba and windrow for a second before its
first task. Imported here they are there once, shared by all workers; and out of sight of the garbage collector, which
PySpark runs after every task.
"""

from __future__ import annotations

import gc

from pyspark import daemon

import windrow.spark.feed
import windrow.spark.stage  # noqa: F401 - loaded for the workers

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()
