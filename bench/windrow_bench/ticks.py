"""Ticks on Spark: their time by phase, rows and queries; churn, recovery, start, and memory over a long run.

Every point feeds files back to back, one per tick, and takes the median. The bare pipeline (foreachBatch and mapInArrow
that only count rows) is measured in the same run, in turns with ours; the least median of several turns counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from windrow.cli.trades import DECLARATION, monitors, trades
from windrow_bench.harness import Figure, Ratio, Result, parser, progress, report
from windrow_bench.pipes import Bare, Pipe, disk, memory
from windrow_bench.start import starts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = {"with an archive": 4.0, "without an archive": 6.0}
"""The most from a session to the first answer."""
ROWS = (1_000, 10_000, 40_000, 100_000, 400_000, 1_000_000)
QUERIES = (1, 4, 16, 64, 256)
SPAN_US = 1_000_000
"""Event time of one tick's trades."""
ONE = (
    "CREATE QUERY one AS SELECT symbol, COUNT(*) AS n, SUM(size) AS shares, MAX(price) AS high "
    "FROM trade [RANGE 60 SECONDS SLIDE 5 SECONDS] GROUP BY symbol"
)
COLUMNS = {
    "symbol": pa.string(),
    "venue": pa.string(),
    "price": pa.float64(),
    "size": pa.int64(),
    "ts": pa.timestamp("us"),
}
PAIRS = "(id BIGINT, key BIGINT, ts BIGINT) TIMESTAMP BY ts"


@dataclass
class Sizes:
    """How much of everything."""

    rows: Sequence[int] = ROWS
    queries: Sequence[int] = QUERIES
    ticks: int = 8
    window: int = 1_000_000
    join_rows: int = 20_000
    churn: int = 100
    lengths: int = 36

    @classmethod
    def quick(cls) -> Sizes:
        return cls((1_000, 40_000), (1, 16), 4, 100_000, 5_000, 10, 10)


@dataclass
class Found:
    """What the parts add to."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Measured(Result):
    """A result with what is too wide for a table: milliseconds by phase, and the samples of the long run."""

    phases: Sequence[Mapping[str, Any]] = ()
    samples: Sequence[Mapping[str, Any]] = ()

    def document(self) -> dict[str, Any]:
        """The result for a program to read."""
        return super().document() | {"phases": list(self.phases), "samples": list(self.samples)}


@dataclass
class Bench:
    """One run in one session."""

    spark: SparkSession
    place: Path
    sizes: Sizes
    repeat: int
    seed: int
    found: Found
    _made_us: int = 0

    def pipe(self, name: str, script: str = ONE, retain: str = "") -> Pipe:
        """A new engine on trades."""
        return Pipe(self.spark, self.place / name, {"trade": f"{DECLARATION} WITHIN 100 MILLISECONDS {retain}"}, script)

    def batch(self, rows: int, span_us: int = SPAN_US) -> pa.Table:
        """The next trades."""
        begin_us, self._made_us = self._made_us, self._made_us + span_us
        return trades(rows, begin_us, self._made_us, seed=self.seed + begin_us)

    def feed(self, pipe: Pipe, rows: int, ticks: int) -> list[float]:
        """Ticks of so many trades; the milliseconds of each."""
        return pipe.run([{"trade": self.batch(rows)} for _ in range(ticks)])

    # -- parts

    def rows_per_tick(self) -> None:
        """One query, more and more rows, in turns with the bare pipeline."""
        pipe, bare = self.pipe("rows"), Bare(self.spark, self.place, COLUMNS)
        pipe.engine.start()
        self.feed(pipe, 1000, 4)
        bare.run([self.batch(1000) for _ in range(3)])
        ours: list[tuple[float, float]] = []
        theirs: list[tuple[float, float]] = []
        for rows in self.sizes.rows:
            ticks = self.sizes.ticks if rows <= 100_000 else 3
            best, least = float("inf"), float("inf")
            for _ in range(self.repeat if rows <= 100_000 else 1):
                least = min(least, median(bare.run([self.batch(rows) for _ in range(ticks + 1)])))
                best = min(best, median(self.feed(pipe, rows, ticks)))
            self.add(
                "rows", rows=rows, queries=1, tick_ms=best, bare_ms=least, ratio=best / least, phases=pipe.phases(ticks)
            )
            ours.append((rows, best))
            theirs.append((rows, least))
            if rows == 40_000:
                self.found.ratios.append(Ratio("tick of 40,000 rows, one aggregate / bare", best / least, 1.5))
        pipe.engine.stop()
        self.found.figures.append(
            Figure("rows", "Time of a tick by its rows, one query", "rows", "ms", {"windrow": ours, "bare": theirs})
        )

    def queries_per_tick(self) -> None:
        """40,000 rows, more and more queries; with most of them, in turns with the bare pipeline."""
        pipe = self.pipe("queries", "")
        pipe.engine.start()
        texts, have = monitors(max(self.sizes.queries)), 0
        line: list[tuple[float, float]] = []
        for count in self.sizes.queries:
            names = list(texts)[have:count]
            pipe.engine.execute("".join(f"CREATE QUERY {n} AS {texts[n]};" for n in names))
            have = count
            self.feed(pipe, 40_000, 2)
            ticks = self.sizes.ticks if count <= 16 else max(3, self.sizes.ticks // 2)
            best = median(self.feed(pipe, 40_000, ticks))
            self.add("queries", rows=40_000, queries=count, tick_ms=best, phases=pipe.phases(ticks))
            line.append((count, best))
        bare, least = Bare(self.spark, self.place / "queries", COLUMNS), float("inf")
        bare.run([self.batch(1000) for _ in range(3)])
        for _ in range(self.repeat):
            least = min(least, median(bare.run([self.batch(40_000) for _ in range(self.sizes.ticks + 1)])))
            best = min(best, median(self.feed(pipe, 40_000, self.sizes.ticks)))
        self.add("queries", rows=40_000, queries=have, tick_ms=best, bare_ms=least, ratio=best / least)
        self.found.ratios.append(Ratio(f"tick of 40,000 rows, {have} queries / bare", best / least, 1.3))
        pipe.engine.stop()
        self.found.figures.append(
            Figure("queries", "Time of a tick of 40,000 rows by queries", "queries", "ms", {"windrow": line})
        )

    def join(self) -> None:
        """Two windows of many rows, joined; each tick brings new rows to both."""
        size, new = self.sizes.window, self.sizes.join_rows
        script = (
            f"CREATE QUERY pairs AS SELECT ISTREAM(a.id AS a, b.id AS b) "
            f"FROM l [RANGE {size}] a, r [RANGE {size}] b WHERE a.key = b.key"
        )
        pipe = Pipe(self.spark, self.place / "join", {"l": PAIRS, "r": PAIRS}, script)
        bare = Bare(self.spark, self.place / "join", COLUMNS)
        pipe.engine.start()
        rng, at = np.random.default_rng(self.seed), 0

        def ticks(count: int, rows: int) -> list[dict[str, pa.Table]]:
            nonlocal at
            made = []
            for _ in range(count):
                ts = np.arange(at, at + rows)
                at += rows
                made.append({s: pa.table({"id": ts, "key": rng.integers(0, size, rows), "ts": ts}) for s in ("l", "r")})
            return made

        pipe.run(ticks(5, size // 5 + new))
        pipe.run(ticks(3, new))
        best, least, answers, met = float("inf"), float("inf"), 0, 0
        for _ in range(self.repeat):
            least = min(least, median(bare.run([self.batch(2 * new) for _ in range(self.sizes.ticks + 1)])))
            before = pipe.engine.status()
            best = min(best, median(pipe.run(ticks(self.sizes.ticks, new))))
            after = pipe.engine.status()
            answers = after["queries"]["pairs"]["answers"] - before["queries"]["pairs"]["answers"]
            met = after["ticks"] - before["ticks"]
        phases, per_tick = pipe.phases(self.sizes.ticks), answers // self.sizes.ticks
        figures = {"rows": 2 * new, "queries": 1, "tick_ms": best, "bare_ms": least, "ratio": best / least}
        self.add(
            "join",
            **figures,
            phases=phases,
            detail={"answers": per_tick, "ticks per pair of files": met / self.sizes.ticks},
        )
        self.found.ratios.append(
            Ratio(f"join tick, 2 x {new:,} rows over windows of {size:,} / bare", best / least, 3.0)
        )
        pipe.engine.stop()

    def churn(self) -> None:
        """Queries come and go while ticks run back to back: the slowest tick against the median."""
        pipe = self.pipe(
            "churn", "".join(f"CREATE QUERY {n} AS {t};" for n, t in monitors(8).items()), "RETAIN 5 SECONDS"
        )
        pipe.engine.start()
        self.feed(pipe, 10_000, self.sizes.ticks)
        calm = self.feed(pipe, 10_000, max(self.sizes.ticks, self.sizes.churn // 4))
        before = pipe.batches()["trade"]
        names = list(monitors(8 + self.sizes.churn).items())[8:]
        keep = 4
        for i in range(len(names) + keep):  # one comes and one goes per tick, and ticks stay back to back
            while pipe.feeds["trade"].count - pipe.batches()["trade"] < 4:
                pipe.feeds["trade"].put(self.batch(10_000))
            ticks = pipe.engine.status()["ticks"]
            if i < len(names):
                pipe.engine.execute(f"CREATE QUERY {names[i][0]} AS {names[i][1]}")
            if i >= keep:
                pipe.engine.execute(f"DROP QUERY {names[i - keep][0]}")
            while pipe.engine.status()["ticks"] == ticks:
                pipe.engine.wait(0)
                time.sleep(0.01)
        pipe.drain()
        busy = pipe.times("trade", after=before)
        pipe.engine.stop()
        middle = median(calm + busy)
        self.add("churn", rows=10_000, queries=8, tick_ms=median(calm), worst_ms=max(calm), ratio=max(calm) / middle)
        detail = {"added": len(names), "dropped": len(names), "ticks": len(busy)}
        figures: dict[str, Any] = {
            "queries": 8 + keep,
            "tick_ms": median(busy),
            "worst_ms": max(busy),
            "ratio": max(busy) / middle,
        }
        self.add("churn", rows=10_000, **figures, detail=detail)
        what = f"{len(names)} queries added and dropped: worst tick / median of the run"
        self.found.ratios.append(Ratio(what, max(busy) / middle, 2.0))
        lines = {"calm": list(enumerate(calm, 1)), "churn": list(enumerate(busy, len(calm) + 1))}
        self.found.figures.append(
            Figure("churn", "Ticks before and while queries come and go", "tick", "ms", lines, log=False)
        )

    def long(self) -> None:
        """Many window lengths: nothing may grow once the windows are full. Then a restart."""
        script = (
            "CREATE QUERY sums AS SELECT symbol, SUM(size) AS n "
            "FROM trade [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY symbol;"
            "CREATE QUERY heavy AS SELECT symbol, COUNT(*) AS n "
            "FROM trade [RANGE 4 SECONDS] WHERE size >= 1500 GROUP BY symbol;"
            f"CREATE QUERY both AS {monitors(7)['both']}"
        )
        pipe = self.pipe("long", script, "RETAIN 4 SECONDS")
        pipe.engine.start()
        samples: list[dict[str, float]] = []
        for length in range(1, self.sizes.lengths + 1):
            times = self.feed(pipe, 10_000, 4)
            state = pipe.engine.status()["state"]
            used = {f"{k} MB": v / 1e6 for k, v in memory().items()}
            home = {"disk MB": disk(pipe.place / "home") / 1e6, "state MB": state["bytes"] / 1e6, "runs": state["runs"]}
            samples.append({"windows": length, "tick_ms": median(times), **home, **used})
        self.found.samples += samples
        rows = pipe.engine.status()["streams"]["trade"]["rows"]
        for at in sorted({1, len(samples) // 3, 2 * len(samples) // 3, len(samples)}):
            sample = samples[at - 1]
            detail = {k: round(v, 2) for k, v in sample.items() if k != "tick_ms"}
            self.add("long", rows=10_000, queries=3, tick_ms=sample["tick_ms"], detail=detail)
        third = len(samples) // 3
        for what in ("disk MB", "state MB", "driver MB", "workers MB"):
            if what in samples[0]:
                middle = sum(s[what] for s in samples[third : 2 * third]) / third
                last = sum(s[what] for s in samples[-third:]) / third
                self.found.ratios.append(
                    Ratio(f"{len(samples)} window lengths, {what[:-3]}: last third / middle", last / middle, 1.1)
                )
        names = [n for n in samples[0] if n.endswith(" MB")]
        lines = {n: [(s["windows"], s[n]) for s in samples] for n in names}
        self.found.figures.append(Figure("long", "A long run: what is kept", "window lengths", "MB", lines, log=False))
        self._recover(pipe, rows)

    def _recover(self, pipe: Pipe, rows: int) -> None:
        pipe.engine.stop()
        begin = time.perf_counter()
        engine = pipe.engine = pipe.open()
        opened = time.perf_counter()
        engine.start()
        pipe.feeds["trade"].put(self.batch(10_000))
        ticks = engine.status()["ticks"]
        while engine.status()["ticks"] == ticks:
            engine.wait(0)
            time.sleep(0.01)
        done = time.perf_counter()
        detail = {
            "open s": round(opened - begin, 2),
            "start to first tick s": round(done - opened, 2),
            "rows before": rows,
        }
        self.add("recovery", queries=3, seconds=done - begin, detail=detail)
        engine.stop()

    def add(
        self,
        part: str,
        *,
        phases: Mapping[str, float] | None = None,
        detail: Mapping[str, float] | None = None,
        **figures: Any,
    ) -> None:
        """A measured point; of the phases, the table has those of the driver."""
        known = {p: ms for p, ms in (phases or {}).items() if "." not in p and p != "total"}
        note = ", ".join(f"{name} {value:,.4g}" for name, value in {**known, **(detail or {})}.items())
        self.found.rows.append({"part": part, **figures, "note": note})
        if phases is not None:
            where = {k: figures[k] for k in ("rows", "queries")}
            self.found.phases.append({"part": part, **where, **phases})


PARTS: Mapping[str, Callable[[Bench], None]] = {
    "rows": Bench.rows_per_tick,
    "join": Bench.join,
    "churn": Bench.churn,
    "long": Bench.long,
    "queries": Bench.queries_per_tick,
}


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    options_parser = parser("ticks", __doc__ or "")
    options_parser.add_argument(
        "--parts", nargs="+", choices=("start", *PARTS), default=["start", *PARTS], help="only these"
    )
    options_parser.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    options = options_parser.parse_args(list(argv))
    sizes = Sizes.quick() if options.quick else Sizes()
    found = run(options, sizes)
    about = " ".join((__doc__ or "").split())
    parameters = {"data": "generated trades", "ticks per point": sizes.ticks, "repeat": options.repeat}
    result = Measured(
        "ticks", about, options.seed, parameters, found.rows, found.ratios, found.figures, found.phases, found.samples
    )
    return report(result, options)


def start(found: Found, master: str | None, repeat: int) -> None:
    """From a session to the first answer of a small script, each time in a new process."""
    measured = list(starts(master, repeat))
    for point in measured:
        note = f"{point['case']}, session seconds {point['session s']}"
        found.rows.append({"part": "start", "seconds": point["answer s"], "note": note})
    for case, most in START_SECONDS.items():
        seconds = median(p["answer s"] for p in measured if p["case"] == case)
        found.ratios.append(Ratio(f"start: seconds from session to first answer, {case} of classes", seconds, most))


def run(options: argparse.Namespace, sizes: Sizes) -> Found:
    """All chosen parts in one session."""
    from windrow.spark.session import session

    found = Found()
    if "start" in options.parts:  # before a session of our own takes memory and time
        start(found, options.master, 1 if options.quick else 3)
    with progress() as shown, tempfile.TemporaryDirectory(prefix="windrow-ticks-", ignore_cleanup_errors=True) as place:
        task = shown.add_task("starting Spark", total=None)
        spark = session(master=options.master)
        bench = Bench(spark, Path(place), sizes, 1 if options.quick else options.repeat, options.seed, found)
        # A side that waits for its turn must not take time from the other.
        settings = {"numRecentProgressUpdates": "5000", "pollingDelay": "100ms"}
        with _settings(spark, {f"spark.sql.streaming.{name}": value for name, value in settings.items()}):
            for part in (p for p in PARTS if p in options.parts):
                shown.update(task, description=part)
                PARTS[part](bench)
    return found


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for a while."""
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
