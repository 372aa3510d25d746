"""The joins on Spark: against native stream-stream joins and Flink SQL, one heavy key, and windows that do not end.

Every engine reads the same files and its answers are compared as bags. Times are from handing over the query to the
last answer, at the best of several runs; sessions and a first tiny run are not in them (`docs/results/peers.md`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import JoinReport
from windrow.runtime.heavy_keys import Threshold
from windrow.runtime.job import Feed
from windrow.runtime.messages import TaskReport
from windrow.runtime.tick import Ticker
from windrow.runtime.tick_result import TickResult
from windrow.spark.job import SparkJob
from windrow.store.store import Store
from windrow_bench.harness import Ratio
from windrow_bench.peers import Flink, StructuredStreaming, Window, WindowJoin, compare, write_streams
from windrow_bench.reorder import SpreadJoin, settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = tuple[list[dict[str, Any]], list[Ratio]]


def streams(names: Sequence[str], rows: int, keys: int, seed: int) -> dict[str, pa.Table]:
    """Streams of one row per tick each, with uniform keys."""
    rng = np.random.default_rng(seed)
    ts = np.arange(rows)
    return {n: pa.table({"ts": ts, "k": rng.integers(0, keys, rows), "id": ts}) for n in names}


def joining(names: Sequence[str], window: int) -> WindowJoin:
    """The join of the streams on their key; results are told apart by the rows' ids."""
    return WindowJoin(
        "joined", [Window(n, window) for n in names], "k", {f"{n}_id": f"{n}.id" for n in names}, ticks=True
    )


def peers(spark: SparkSession, quick: bool, repeat: int, seed: int, native: bool, flink: bool) -> Found:
    """Two windows on all engines, four on Flink (Structured Streaming has no chain of four that ends)."""
    rows: list[dict[str, Any]] = []
    ratios: list[Ratio] = []
    scale = 10 if quick else 1
    cases = [
        ("two-way", ("l", "r"), 500_000 // scale, 100_000 // scale, 50_000 // scale),
        ("four-way", ("a", "b", "c", "d"), 100_000 // scale, 10_000 // scale, 10_000 // scale),
    ]
    for case, names, size, window, keys in cases:
        data = streams(names, size, keys, seed)
        query = joining(names, window)
        with tempfile.TemporaryDirectory(prefix="windrow-joins-") as place:
            write_streams(place, data)
            sides: list[Any] = []
            if native and case == "two-way":
                sides.append(StructuredStreaming(spark))
            if flink:
                sides.append(Flink())
            ours = Windrow(spark)
            ours.run(joining(names, 10), {n: t.slice(0, 1000) for n, t in data.items()})  # loads the workers
            best, answer = float("inf"), None
            for _ in range(repeat):
                seconds, answer = ours.run(query, {n: Path(place) / n for n in names})
                best = min(best, seconds)
            assert answer is not None
            row = {
                "part": "peers",
                "case": f"{case}, {len(names)} x {size:,} rows",
                "results": len(answer),
                "windrow s": best,
            }
            for side in sides:
                theirs = float("inf")
                for _ in range(1 if side.name == "Flink SQL" else min(repeat, 2)):
                    found = side.run([query], place)
                    theirs = min(theirs, found.seconds)
                different = compare({"joined": answer}, found.answers)
                if different:
                    raise AssertionError(f"{side.name} disagrees on the {case} join: {different['joined']}")
                row |= {f"{side.name} s": theirs, f"{side.name} / windrow": theirs / best}
                if (case, side.name) != ("two-way", "Flink SQL"):  # which has no target
                    ratios.append(Ratio(f"{side.name} / windrow, {case}", theirs / best, 3, least=True))
            rows.append(row)
    return rows, ratios


class Windrow:
    """windrow on Spark, as a replay of files."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def run(self, query: WindowJoin, given: Mapping[str, Any]) -> tuple[float, pa.Table]:
        """Seconds and answer."""
        import windrow

        begin = time.perf_counter()
        answer = windrow.run(query.cql(), {n: _files(d) for n, d in given.items()}, runtime="spark", spark=self.spark)
        return time.perf_counter() - begin, answer["q1"]


def _files(given: Any) -> Any:
    return str(given / "part-00000.parquet") if isinstance(given, Path) else given


class Watched(Ticker):
    """A ticker that keeps the reports of its tasks."""

    reports: Sequence[TaskReport] = ()

    def _prepare(self, tick: TickResult, reports: Sequence[TaskReport]) -> None:
        self.reports = reports
        super()._prepare(tick, reports)


def skew(spark: SparkSession, quick: bool, seed: int, partitions: int = 8) -> Found:
    """A key with half of the rows of both inputs: the largest task with and without its rows spread."""
    from windrow.engine.replay import Replay

    size, window, count = (2500 if quick else 6000), 100, 8
    script = f"SELECT ISTREAM(l.id, r.id AS i) FROM l [RANGE {window}], r [RANGE {window}] WHERE l.k = r.k"
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        pair = {}
        for n in ("l", "r"):
            ts = np.sort(rng.integers(number * 1000, (number + 1) * 1000, size))
            k = np.where(rng.random(size) < 0.5, 7, rng.integers(100, 10**6, size))
            pair[n] = pa.table({"ts": ts, "k": k, "id": np.arange(size) + number * size})
        made.append(pair)
    rows: list[dict[str, Any]] = []
    largest: dict[str, float] = {}
    for name, threshold in (("together", Threshold(1e9)), ("apart", Threshold())):
        replay = Replay.of(script, made[0], {})
        (plan,) = replay.catalog.queries.values()
        with tempfile.TemporaryDirectory(prefix="windrow-skew-") as home, Store.open(home) as store:
            job, ticker = SparkJob(spark), Watched(store, {}, partitions)
            ticker.heavy.threshold = threshold
            for stream in replay.catalog.streams.values():
                ticker.add_stream(stream)
            ticker.add_query(plan, "upa", 0)
            seconds, answers = [], []
            for number, pair in enumerate(made):
                tick = ticker.run(job, [Feed(n, t) for n, t in pair.items()], (number + 1) * 1000 - 1)
                ticker.commit(tick)
                if number >= count - 3:  # windows are full, and the key is known
                    parts = [r for r in ticker.reports if r.stage == 1]
                    seconds.append(max(r.seconds["advance"] for r in parts))
                    told = [r.measured["q1", _join_step(plan_steps(ticker))] for r in parts]
                    results = [m.probes for m in told if isinstance(m, JoinReport)]
                    found = [sum(p.matches for p in probes.values()) for probes in results]
                    answers.append(max(found) / max(sum(found), 1.0))
        largest[name] = min(seconds)
        rows.append({
            "part": "skew", "case": f"heavy key {name}, {partitions} partitions", "largest task s": min(seconds),
            "results of the largest task": float(np.mean(answers)),
        })  # fmt: skip
    ratio = Ratio("largest task, heavy key together / apart", largest["together"] / largest["apart"], 2, least=True)
    return rows, [ratio]


def plan_steps(ticker: Ticker) -> Any:
    """The steps of the only query."""
    (query,) = ticker.queries.values()
    return query.layout.flow.steps  # type: ignore[union-attr]


def _join_step(steps: Any) -> int:
    return next(i for i, s in enumerate(steps) if isinstance(s.operator, JoinOperator))


def expiry(spark: SparkSession, quick: bool, seed: int, partitions: int = 2) -> Found:
    """What looking for ended rows costs where there are none: windows of a million rows per partition, in its task."""
    from windrow.engine.replay import Replay

    live = (100_000 if quick else 1_000_000) * partitions
    rng = np.random.default_rng(seed)
    fills, stills = 10, 10
    script = f"SELECT ISTREAM(l.id, r.id AS i) FROM l [RANGE {100 * live}], r [RANGE {100 * live}] WHERE l.k = r.k"

    def rows(begin: int, end: int) -> pa.Table:
        ts = np.arange(begin, end)
        return pa.table({"ts": ts, "k": rng.integers(0, 2**62, len(ts)), "id": ts})

    catalog = Replay.of(script, {"l": rows(0, 1), "r": rows(0, 1)}, {}).catalog
    (plan,) = catalog.queries.values()
    with tempfile.TemporaryDirectory(prefix="windrow-expiry-") as home, Store.open(home) as store:
        job, ticker = SparkJob(spark), Watched(store, {}, partitions)
        for stream in catalog.streams.values():
            ticker.add_stream(stream)
        ticker.add_query(plan, "upa", 0)
        spent: dict[str, list[float]] = {"advance": [], "task": []}
        for number in range(fills + stills):
            begin = number * live // fills if number < fills else live + number - fills
            end = (number + 1) * live // fills if number < fills else begin + 1
            feeds = [Feed("l", rows(begin, end)), Feed("r", rows(begin, begin + 1))]
            ticker.commit(ticker.run(job, feeds, end - 1))
            if number >= fills:
                parts = [r.seconds for r in ticker.reports if r.stage == 1]
                spent["advance"].append(1000 * max(p["advance"] for p in parts))
                spent["task"].append(1000 * max(sum(p.values()) for p in parts))
    row: dict[str, Any] = {
        "part": "expiry", "case": f"a row comes, nothing of {live // partitions:,} live rows per partition ends",
        "ms": float(np.median(spent["advance"])), "ms, whole task": float(np.median(spent["task"])),
    }  # fmt: skip
    return [row], [Ratio("ms to expire nothing at 1 M live rows, in a task of one partition", row["ms"], 30)]


def reordering(spark: SparkSession, quick: bool, seed: int) -> Found:
    """Ticks until a running join on Spark is within 20% of the best order, after its rates changed."""
    with tempfile.TemporaryDirectory(prefix="windrow-reorder-") as home, Store.open(home) as store:
        cheaper, late, ratios = settled(6, 8, seed, SpreadJoin(SparkJob(spark), store, 2))
    row = {"part": "reorder", "case": "on Spark, 2 partitions", "another order is cheaper by": cheaper, "ticks": late,
           "cost / best at the end": ratios[-1]}  # fmt: skip
    return [row], [Ratio("ticks to the best order after the rates change, Spark", float(late), 5)]
