"""The process that Spark forks its Python workers from, with windrow loaded.

Spark's own daemon forks bare workers, and each of them imports Arrow, DuckDB, numba and windrow for a second before its
first task. Imported here they are there once, shared by all workers; and out of sight of the garbage collector, which
PySpark runs after every task.

Workers do much the same at every tick, and keep the memory for it: handed back to the system after each array, it would
be cleared page by page for the next one, which took up to half of a large tick.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

import pyarrow as pa
from pyspark import daemon

import windrow.spark.job  # noqa: F401 - loaded for the workers

KEPT = 512 << 20
"""Bytes of free memory that a worker keeps during a tick (behind it less: `runtime/idle_memory.py`)."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_memory() -> None:
    """Let the allocator of this process, and of those forked from it, keep what is freed; without glibc, do nothing."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT)
        pa.set_memory_pool(pa.system_memory_pool())


if __name__ == "__main__":
    keep_memory()
    gc.collect()
    gc.freeze()
    daemon.manager()
