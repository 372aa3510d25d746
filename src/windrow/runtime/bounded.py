"""Replay on Spark: the same ticks that serve live streams, fed from bounded tables.

Rows are cut into batches on the driver exactly as the local replay cuts them; each batch is one tick with its frontier
given. State goes through a store in a temporary home, as it would in production.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from windrow.operators.elements import Elements
from windrow.plan.dataflow import answer
from windrow.replay import Answers, Progress, Replay
from windrow.runtime.tick import Ticker
from windrow.spark.job import Feed, Job, SparkJob
from windrow.spark.session import session
from windrow.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS = 1 << 19
"""Rows per tick when the caller does not say: a tick has a fixed cost, so more than in process."""


def run_on_spark(
    replay: Replay,
    *,
    batch_rows: int | None,
    strategy: str,
    progress: Progress | None = None,
    spark: SparkSession | None = None,
    partitions: int | None = None,
    sharing: str = "auto",
) -> Answers:
    """Run every query of a replay on Spark and return the complete answers."""
    spark = session(spark)
    count = partitions or spark.sparkContext.defaultParallelism
    home = tempfile.mkdtemp(prefix="windrow-replay-")
    try:
        return run_on(SparkJob(spark), home, replay, batch_rows, strategy, count, progress, sharing)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def run_on(
    job: Job,
    home: str,
    replay: Replay,
    batch_rows: int | None,
    strategy: str,
    partitions: int,
    progress: Progress | None = None,
    sharing: str = "auto",
) -> Answers:
    """Run every query of a replay by ticks, with state in a new home."""
    functions = {n: f.fn for n, f in replay.catalog.functions.items()}
    parts: dict[str, list[pa.Table]] = {p.name: [] for p in replay.catalog.queries.values()}
    with Store.open(home) as store:
        store.runs = store.runs.unsynced()  # a replay that dies is started anew
        ticker = Ticker(job, store, functions, partitions, sharing if strategy == "upa" else "off")
        _register(ticker, replay, strategy)
        total = sum(len(a.ts) for a in replay.data.values())
        begin = dict.fromkeys(replay.data, 0)
        for done, frontier in replay.frontiers(batch_rows or BATCH_ROWS) if ticker.queries else ():
            feeds = []
            for stream, data in replay.data.items():
                low, high = begin[stream], int(np.searchsorted(data.ts, frontier, "right"))
                begin[stream] = high
                if high > low:
                    feeds.append(Feed(stream, data.rows.slice(low, high - low)))
            tick = ticker.run(feeds, until=frontier)
            for failure in tick.failed.values():
                raise failure
            ticker.commit(tick)
            store.sweep()
            for name, table in tick.answers.items():
                parts[name].append(table)
            if progress is not None:
                progress(done, total)
    answers = {}
    for plan in replay.catalog.queries.values():
        empty = answer(plan, Elements.empty(plan.root.schema))
        answers[plan.name] = pa.concat_tables([empty, *parts[plan.name]]).combine_chunks()
    return Answers(answers, replay.late())


def _register(ticker: Ticker, replay: Replay, strategy: str) -> None:
    ticker.streams = dict(replay.catalog.streams)
    for name, table in replay.tables.items():
        ticker.set_table(name, table)
    plans = [p for p in replay.catalog.queries.values() if replay.starts(p) is not None]
    together = [q for p in plans if (q := ticker.sharing.recognised(p)) is not None]
    if ticker.sharing.sharing == "auto":
        together = ticker.sharing.chosen(together, replay.rate)
    for query in together:
        ticker.add_shared(ticker.sharing.seat(query), replay.starts(query.plan))
    for plan in plans:
        if plan.name not in ticker.sharing.served:
            ticker.add_alone(plan, strategy, replay.starts(plan))
