"""What `windrow bench ingest` measures of an engine that runs on: appearance to answer, large answers, a long run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.cli.trades import DECLARATION, monitors, trades
from windrow_bench import ingest_data as data
from windrow_bench.ingest_run import ONE
from windrow_bench.pipes import Pipe, memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPAN_US = 10**6
ROWS = 10_000


def appearance(spark: SparkSession, place: Path, streams: int, queries: int, ticks: int) -> float:
    """The median of seconds from the appearance of a file (of each stream, one) to the answer of every stream.

    The files are written before, and appear together, by renames.
    """
    names = [f"trade{i}" for i in range(streams)]
    texts = list(monitors(queries).values()) if streams == 1 else [monitors(1)["volume"]] * streams
    script = ";".join(
        f"CREATE QUERY q{i} AS {text.replace('trade [', f'{names[i % streams]} [')}" for i, text in enumerate(texts)
    )
    pipe = Pipe(spark, place, dict.fromkeys(names, f"{DECLARATION} WITHIN 100 MILLISECONDS"), script)
    heard = [threading.Event() for _ in names]
    for i, event in enumerate(heard):  # the first query of each stream answers every second of event time
        pipe.engine[f"q{i}"].subscribe(_set(event))
    pipe.engine.start()
    took = []
    for tick in range(ticks + 4):
        batch = trades(ROWS, tick * SPAN_US, (tick + 1) * SPAN_US, seed=tick)
        for event in heard:
            event.clear()
        for feed in pipe.feeds.values():
            feed.prepare(batch)
        begin = time.perf_counter()
        for feed in pipe.feeds.values():
            feed.show()
        while tick > 0 and not all(event.wait(5) for event in heard):
            pipe.engine.wait(0)
        took.append(time.perf_counter() - begin)
        pipe.drain()
    pipe.engine.stop()
    return median(took[4:])


def _set(event: threading.Event) -> Callable[[pa.Table], None]:
    return lambda rows: event.set()


@dataclass(frozen=True)
class LargeAnswers:
    """Ticks with large answers, and the driver's memory behind each."""

    tick_ms: float
    driver_mb: list[float]

    @property
    def growth(self) -> float:
        """The end against the beginning: medians of thirds."""
        third = max(1, len(self.driver_mb) // 3)
        return median(self.driver_mb[-third:]) / median(self.driver_mb[:third])


def answers(spark: SparkSession, place: Path, rows: int, ticks: int, *, sink: bool) -> LargeAnswers:
    """Every row of a tick is an answer."""
    made = data.table(1)
    script = "CREATE QUERY q AS SELECT ISTREAM(k, v, w) FROM s [NOW]"
    pipe = Pipe(spark, place, {"s": data.declaration(made)}, script)
    if sink:
        pipe.engine.sink("q", "parquet", path=str(place / "out"))
    pipe.engine.start()
    times, driver = [], []
    for tick in range(ticks + 2):
        span_us = rows * (10**6 // data.RATE)
        took = pipe.run([{"s": data.table(rows, begin_us=tick * span_us)}])
        if tick >= 2:
            times += took
            driver.append(memory().get("driver", 0) / 1e6)
    pipe.engine.stop()
    return LargeAnswers(median(times), driver)


def along(spark: SparkSession, place: Path, rows: int, ticks: int) -> list[float]:
    """Milliseconds of ticks of the same size, back to back."""
    pipe = Pipe(spark, place, {"s": data.declaration(data.table(1))}, ONE)
    pipe.engine.start()
    span_us = rows * (10**6 // data.RATE)
    pipe.run([{"s": data.table(rows, begin_us=tick * span_us)} for tick in range(2)])
    times = pipe.run([{"s": data.table(rows, begin_us=(tick + 2) * span_us)} for tick in range(ticks)])
    pipe.engine.stop()
    return times
