"""What `windrow bench ingest` measures of large state: a window join, its memory, its disk, its ticks, a restart.

`python -m windrow_bench.ingest_memory HOME` is the restart: a process of its own, whose workers know nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow_bench import ingest_data as data
from windrow_bench.pipes import Pipe, disk, private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP_US = 10**6 // data.RATE
COLUMNS = ["ts", "k", "v"]
ROW_BYTES = 32.4
"""Of a live row in a run: its time, its end, its sign and its columns."""


@dataclass(frozen=True)
class JoinMemory:
    """A join over so many live rows, in bytes and milliseconds."""

    live: int
    state: float
    private: float
    disk: float
    tick_ms: float
    tick_cpu_s: float
    restart_s: float


def join(spark: SparkSession, place: Path, live: int, new: int) -> JoinMemory:
    """Ticks of `new` rows until `live` are in the windows of two streams, some more, and a restart."""
    side, half = live // 2, new // 2
    span_ms = side * STEP_US // 1000
    script = (
        f"CREATE QUERY q AS SELECT ISTREAM(a.k, a.v, b.v AS w) FROM l [RANGE {span_ms} MILLISECONDS] a, "
        f"r [RANGE {span_ms} MILLISECONDS] b WHERE a.k = b.k"
    )
    declaration = data.declaration(_rows(1, 0, 0, live))
    pipe = Pipe(spark, place, {"l": declaration, "r": declaration}, script)
    pipe.engine.start()
    filling, ticks = side // half, 6
    times, used, most = [], [], [0.0, 0.0]
    for tick in range(filling + ticks):
        before = _worked(pipe)
        took = pipe.run([{name: _rows(half, tick, seed, live) for seed, name in enumerate("lr")}])
        if tick >= filling:
            times.append(max(took))
            used.append(_worked(pipe) - before)
            most = [max(most[0], float(private("workers"))), max(most[1], float(disk(place / "home")))]
    pipe.engine.stop()
    restart = _restarted(pipe, {name: _rows(half, filling + ticks, seed, live) for seed, name in enumerate("lr")})
    return JoinMemory(live, live * ROW_BYTES, most[0], most[1], median(times), median(used), restart)


def _rows(count: int, tick: int, seed: int, live: int) -> pa.Table:
    made = data.table(count, 4, 1000 * tick + seed, begin_us=tick * count * STEP_US, keys=50 * live)
    return made.select(COLUMNS)


def _worked(pipe: Pipe) -> float:
    """Seconds of kernels so far, of the tasks that took longest."""
    return sum(t.kernels for t in pipe.engine.runtime.figures.ticks)


def _restarted(pipe: Pipe, rows: dict[str, pa.Table]) -> float:
    """Seconds from the session of a new process until the first rows after the restart are answered."""
    for name, table in rows.items():
        pipe.feeds[name].put(table)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "windrow_bench.ingest_memory", str(pipe.place / "home")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return float(done.stdout.splitlines()[-1])


def first_answer(home: str) -> float:
    """Seconds from a new session until everything that waits for a home is answered."""
    from windrow.engine import Engine
    from windrow.spark.session import session

    spark = session()
    begin = time.perf_counter()
    with Engine(home=home, spark=spark) as engine:
        engine.start()
        engine.drain(600)
        took = time.perf_counter() - begin
    spark.stop()
    return took


if __name__ == "__main__":
    print(first_answer(sys.argv[1]))
