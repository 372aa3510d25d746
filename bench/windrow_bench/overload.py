"""Overload on Spark: a star join that gets three times the rows it can hold for a minute, with a tick budget.

First the capacity is found: the greatest steady input at which no tick takes longer than the budget and nothing is left
behind, with the query as it will run but a budget that never ends. Then the same query with its budget gets half of
that, three times that for a minute, and half again. Rows come in a file per stream and second. R is Zipf, S uniform,
importance uncorrelated, as in the paper's experiments. What random dropping would keep of the importance at the same
rate is the share of rows that was kept.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow_bench.harness import Figure, Ratio, Result, progress, report
from windrow_bench.pipes import Feed, memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from windrow.engine import Engine
    from windrow.runtime.tick_result import TickResult

VALUES, FACTS, TOP = 3000, 200_000, 8
SECOND = 1_000_000
COLUMNS = "(k BIGINT, imp DOUBLE, ts TIMESTAMP) TIMESTAMP BY ts"
QUERY = (
    "SELECT COUNT(*) AS n, SUM(least(r.imp, s.imp)) AS importance FROM r [RANGE 3 SECONDS SLIDE 1 SECOND], f, "
    "s [RANGE 3 SECONDS SLIDE 1 SECOND] WHERE r.k = f.a AND f.b = s.k"
)


@dataclass
class Source:
    """The rows of both streams, second by second, at any rate."""

    seed: int
    kept: dict[int, Mapping[str, pa.Table]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        weight = 1.0 / np.arange(1, VALUES + 1)
        self.weight, self.names = weight / weight.sum(), rng.permutation(VALUES)
        self.importance = np.ceil(TOP * np.arange(1, VALUES + 1) / VALUES)
        pairs = rng.choice(VALUES * VALUES, FACTS, replace=False)
        self.facts = pa.table({"a": pairs // VALUES, "b": pairs % VALUES})

    def rows(self, second: int, rate: float) -> Mapping[str, pa.Table]:
        """Both streams' rows of one second; `rate` is for both together. Rare values matter more."""
        rng = np.random.default_rng([self.seed, second])
        count = int(rate / 2)
        rank = {"r": rng.choice(VALUES, count, p=self.weight), "s": rng.integers(0, VALUES, count)}
        found = {}
        for name, ranks in rank.items():
            ts = np.sort(rng.integers(second * SECOND, (second + 1) * SECOND, count))
            keys = self.names[ranks] if name == "r" else ranks
            columns = {"k": keys, "imp": self.importance[ranks], "ts": pa.array(ts).cast(pa.timestamp("us"))}
            found[name] = pa.table(columns)
        self.kept[second] = found
        return found


class Run:
    """An engine over two feeds that get rows by the clock."""

    def __init__(self, spark: SparkSession, place: Path, source: Source, budget: str) -> None:
        from windrow.engine import Engine

        self.source = source
        self.feeds = {n: Feed(place / n) for n in ("r", "s")}
        self.engine: Engine = Engine(home=str(place / "home"), spark=spark)
        self.engine.table("f", source.facts)
        for name, feed in self.feeds.items():
            self.engine.execute(f"CREATE STREAM {name} {COLUMNS} FROM parquet (path => '{feed.path}')")
        self.engine.execute(f"CREATE QUERY q AS {QUERY} SHED WHEN TICK OVER '{budget}' IMPORTANCE imp")
        self.engine.start()
        self.second = 0
        self.began: float | None = None
        self.memory: list[tuple[float, dict[str, float]]] = []

    def feed(self, rate: float, seconds: int) -> tuple[float, float]:
        """Hand over rows at a rate, a second's worth each second; when it began and ended."""
        if self.began is None:
            self.began = time.time()
        begin = time.time()
        for _ in range(seconds):
            for name, rows in self.source.rows(self.second, rate).items():
                self.feeds[name].put(rows)
            self.second += 1
            self.memory.append((time.time(), {k: v / 1e6 for k, v in memory().items()}))
            time.sleep(max(0.0, self.began + self.second - time.time()))
        return begin, time.time()

    def warm(self, rate: float) -> None:
        """Start workers and compile: feed a little, and wait until all is answered."""
        self.feed(rate / 2, 6)
        self.engine.drain()
        self.began = time.time() - self.second

    @property
    def ticks(self) -> list[TickResult]:
        """Ticks so far that had rows."""
        return [t for t in self.engine.runtime.figures.ticks if _rows(t)]

    def flows(self) -> np.ndarray:
        """Rows seen and kept, importance seen and kept, so far."""
        gate = next(iter(self.engine.runtime.declared.budgets.gates.values()))
        names = ("seen", "kept", "importance_seen", "importance_kept")
        return np.array([sum(getattr(f, n) for f in gate.flows.values()) for n in names], np.float64)


def _rows(tick: TickResult) -> int:
    return sum(n for c, n in tick.counters.items() if c.startswith("rows."))


def capacity(spark: SparkSession, place: Path, source: Source, budget: float, start: float, steps: int) -> float:
    """The greatest rate, in steps of a quarter, at which ticks keep within the budget and up with the rows."""
    run = Run(spark, place, source, "1 hour")
    held, rate = start, start
    try:
        run.warm(start)
        for _ in range(steps):
            begin, end = run.feed(rate, 9)
            late = [t for t in run.ticks if t.ended > begin + 3]
            left = rate * (end - begin) - sum(_rows(t) for t in run.ticks if t.ended > begin)
            if not late or median(t.seconds["total"] for t in late) > budget or left > 2 * budget * rate:
                break
            held, rate = rate, rate * 1.25
    finally:
        run.engine.stop()
    return held


@dataclass
class Outcome:
    """What a run under load showed."""

    rate: float
    points: list[dict[str, Any]]
    loaded: list[dict[str, Any]]  # ticks that ended during the load, but for the first five
    kept: float
    importance: float
    rows_again: int
    exact_again: int
    compared: int
    memory: list[tuple[float, dict[str, float]]]
    grown: dict[str, float]  # by process
    growth: float


def overload(spark: SparkSession, place: Path, source: Source, budget: float, rate: float, seconds: int) -> Outcome:
    """Half the rate, three times the rate, half the rate."""
    run = Run(spark, place, source, f"{budget} seconds")
    try:
        run.warm(rate)
        run.feed(rate / 2, 12)
        before = run.flows()
        begin, end = run.feed(3 * rate, seconds)
        handed = sum(t.num_rows for rows in source.kept.values() for t in rows.values())
        after = run.flows()
        run.feed(rate / 2, 20)
        run.engine.drain()
        ticks = run.ticks
        last = _taken(ticks, handed)
        first = next((t.number for t in ticks if t.number > last and _shed(t) == 0), None)
        spans = run.engine.runtime.declared.budgets.spans["q"]
        answers = run.engine["q"].results()
        exact = _exact(answers)
        compared = _compare(answers, source, run.second, exact)
        status = run.engine.status()
    finally:
        run.engine.stop()
    if spans or status["error"]:
        raise RuntimeError(f"not exact again: {spans}, {status['error']}")
    seen, kept, whole, weight = after - before
    points = [_point(t, begin) for t in ticks]
    loaded = [_point(t, begin) for t in ticks if begin <= t.ended <= end + budget][5:]
    behind = [t.number for t in ticks if t.number > last]
    reached = next((t.number for t in ticks if t.frontier >= exact), behind[-1])
    samples = [m for t, m in run.memory if begin <= t <= end]
    one, two = len(samples) // 3, 2 * len(samples) // 3
    middle, final = samples[one:two], samples[two:]
    grown = {k: median(m[k] for m in final) / median(m[k] for m in middle) for k in final[0]}
    totals = [sum(m.values()) for m in samples]
    grown["all at its greatest"] = max(totals[two:]) / max(totals[one:two])
    return Outcome(
        rate, points, loaded, float(kept / seen), float(weight / whole),
        (first or behind[-1]) - last, max(0, reached - last), compared,
        [(round(t - begin, 1), m) for t, m in run.memory], grown,
        median(sum(m.values()) for m in final) / median(sum(m.values()) for m in middle),
    )  # fmt: skip


def _taken(ticks: Sequence[TickResult], rows: int) -> int:
    """The tick that took the last of so many rows: for ticks, the load ends with it."""
    taken = np.cumsum([_rows(t) for t in ticks])
    return ticks[int(np.searchsorted(taken, rows))].number


def _shed(tick: TickResult) -> int:
    return tick.counters.get("gates.seen", 0) - tick.counters.get("gates.kept", 0)


def _point(tick: TickResult, begin: float) -> dict[str, Any]:
    seen, kept = tick.counters.get("gates.seen", 0), tick.counters.get("gates.kept", 0)
    return {
        "second": round(tick.ended - begin, 2), "tick": tick.number, "seconds": round(tick.seconds["total"], 3),
        "kernels": round(tick.kernels, 3), "rows": seen, "kept": kept,
        **{p: round(tick.seconds.get(f"task.{p}", 0.0), 3) for p in ("receive", "advance", "write")},
    }  # fmt: skip


def _exact(answers: pa.Table) -> int:
    """The instant after the last approximate line."""
    marked = answers.filter(answers["_approximate"])
    return int(pc.max(marked["_ts"]).cast(pa.int64()).as_py()) + SECOND if marked.num_rows else 0


def _compare(answers: pa.Table, source: Source, end: int, since: int) -> int:
    """Answers from `since` on, compared with a replay of the rows that reach them; their number."""
    import windrow

    first = max(0, since // SECOND - 4)
    streams = {n: pa.concat_tables([source.kept[i][n] for i in range(first, end)]) for n in ("r", "s")}
    script = f"CREATE STREAM r {COLUMNS}; CREATE STREAM s {COLUMNS}; CREATE QUERY q AS {QUERY}"
    whole = windrow.run(script, streams, {"f": source.facts}, runtime="local")["q"]
    want = {x["_ts"]: (x["n"], x["importance"]) for x in whole.to_pylist()}
    stamps = answers["_ts"].cast(pa.int64()).to_numpy()
    got = answers.filter(pa.array(stamps >= since)).to_pylist()
    for row in got:
        if want[row["_ts"]] != (row["n"], row["importance"]):
            raise RuntimeError(f"after the load, at {row['_ts']}: {row}, but {want[row['_ts']]}")
    return len(got)


def measure(options: argparse.Namespace) -> int:
    """Run the experiment and report it."""
    from windrow.spark.session import session

    quick = options.quick
    budget, seconds = (1.0, 10) if quick else (2.0, 60)
    spark = session(master="local[2]")
    source = Source(options.seed)
    try:
        with tempfile.TemporaryDirectory() as name, progress() as shown:
            task = shown.add_task("capacity", total=None)
            rate = capacity(spark, Path(name) / "capacity", source, budget, 4_000, 2 if quick else 10)
            shown.update(task, description=f"overload, 3 x {rate:,.0f} rows/s")
            source.kept.clear()
            found = overload(spark, Path(name) / "overload", source, budget, rate, seconds)
    finally:
        spark.stop()
    return report(_result(found, budget, seconds, options), options)


def _result(found: Outcome, budget: float, seconds: int, options: argparse.Namespace) -> Result:
    times = [p["seconds"] for p in found.loaded]
    ratios = [
        Ratio("ticks under load after the first 5: longest / budget", max(times) / budget, 1.2),
        Ratio("importance kept / what random dropping keeps", found.importance / found.kept, 1.5, least=True),
        Ratio("ticks from the load's end until no row is shed", found.rows_again, 5),
        Ratio("ticks from the load's end until answers are exact", found.exact_again, 5),
        Ratio("memory: the load's last third / its middle", found.growth, 1.1),
    ]  # fmt: skip
    summary = {
        "rows/s held": round(found.rate), "rows/s under load": round(3 * found.rate), "budget": budget,
        "ticks": len(times), "median tick": round(median(times), 3), "rows kept": round(found.kept, 4),
        "importance kept": round(found.importance, 4), "answers after the load, compared with a replay": found.compared,
    }  # fmt: skip
    summary |= {f"memory of {kind}, last third / middle": round(ratio, 3) for kind, ratio in found.grown.items()}
    lines = {
        "tick": [(p["second"], p["seconds"]) for p in found.points],
        "kernels": [(p["second"], p["kernels"]) for p in found.points],
        "budget": [(found.points[0]["second"], budget), (found.points[-1]["second"], budget)],
    }
    shares = {
        "rows kept": [(p["second"], 100 * p["kept"] / p["rows"]) for p in found.points if p["rows"]],
    }
    resident = {k: [(t, m.get(k, 0.0)) for t, m in found.memory] for k in found.memory[0][1]}
    figures = [
        Figure("ticks", "Seconds per tick; the load is on from 0 to 60", "seconds", "seconds", lines, log=False),
        Figure("kept", "Share of rows kept", "seconds", "%", shares, log=False),
        Figure("memory", "Resident memory", "seconds", "MB", resident, log=False),
    ]
    parameters = {"values": VALUES, "facts": FACTS, "top importance": TOP, "seconds of load": seconds, "query": QUERY}
    return Result("overload", __doc__ or "", options.seed, parameters, [summary, *found.points], ratios, figures)


__all__: Sequence[str] = ["measure"]
