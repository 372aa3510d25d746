"""Rows per second from files and topics to answers, live on Spark, and what limits them.

"parquet", "csv", "json", "kafka": one grouped aggregate with a filter, and 256 that share, by number of columns (with
more columns fewer rows, as many values); beside it a bare pyarrow read, and Structured Streaming and Flink SQL (where
installed) with the one query. Kafka is a broker on loopback if it and Spark's connector are there or can be fetched,
else librdkafka's mock cluster. "files": the same rows in more files of a tick. "cores": processes pinned to one core
and to two, over fewer rows and over more, after runs that warm up. "regular": C regular over trades, one query and 256.
"appear": from a file's appearance to the answer, with one query, with 64, and with 16 streams. "sink": a million answer
rows a tick into Parquet, against the same without a sink, and the driver's memory. "memory": a window join over ten
million live rows. "length": rows per second along a run. Parts that are run alone take their place in the record. Sides
of a ratio take turns and count with their best. "cpu_s" is processor time of all processes of an engine, which a busy
machine can repeat; with --clock cpu the ratios of the formats are of that.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import RuntimeFailure
from windrow_bench import ingest_data as data
from windrow_bench import ingest_live as live
from windrow_bench import ingest_memory
from windrow_bench.harness import Ratio, Result, beside, best_of, commit, parser, progress, report, results_directory
from windrow_bench.ingest_run import (
    ONE,
    Ran,
    from_files,
    pinned,
    shared,
    streamed_files,
    streamed_topics,
    structured,
    windrow_live,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from windrow_bench.ingest_run import Source

READS = ("ts", "k", "v", "w")


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    rows: Mapping[str, int]
    columns: Sequence[int]
    queries: int
    files: Sequence[int]
    work: Sequence[int]
    trades: int
    appear: int
    ticks: int
    answers: int
    live: int

    @classmethod
    def full(cls) -> Sizes:
        rows = {"parquet": 8_000_000, "csv": 2_000_000, "json": 2_000_000, "kafka": 500_000}
        return cls(rows, (4, 16), 256, (1, 8, 32), (4_000_000, 16_000_000), 1_140_000, 64, 12, 1_000_000, 10_000_000)

    @classmethod
    def quick(cls) -> Sizes:
        rows = {"parquet": 1_000_000, "csv": 200_000, "json": 200_000, "kafka": 50_000}
        return cls(rows, (4,), 64, (1, 8), (500_000,), 100_000, 64, 5, 100_000, 500_000)


@dataclass
class Found:
    """What the parts add to."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)


@dataclass
class Bench:
    """One run in one session."""

    spark: SparkSession
    place: Path
    sizes: Sizes
    repeat: int
    seed: int
    found: Found
    peers: bool = True
    clock: str = "wall"

    def warm(self) -> None:
        """Load what every engine loads once."""
        rows = data.table(20_000)
        directory = data.write(rows, self.place / "warm" / "s", "parquet", 2)
        for script in (ONE, shared(4)):
            windrow_live(self.spark, {"s": from_files(directory, "parquet", rows)}, script)
        if self.peers:
            structured(self.spark, streamed_files(directory, "parquet", rows))

    def add(self, part: str, **figures: Any) -> None:
        self.found.rows.append({"part": part, **figures})

    def ratio(self, name: str, value: float, target: float | None, *, least: bool = False) -> None:
        """The name begins with the part."""
        self.found.ratios.append(Ratio(name, value, target, least))

    # -- parts

    def files_of(self, form: str) -> None:
        """A format by columns; the best of turns for each side."""
        for columns in self.sizes.columns:
            rows = data.table(self.sizes.rows[form] * 4 // columns, columns, self.seed)
            place = data.write(rows, self.place / f"{form}-{columns}" / "s", form)
            peer = streamed_files(place, form, rows)
            self._point(form, columns, rows, from_files(place, form, rows), place, peer)

    def _point(
        self, form: str, columns: int, rows: pa.Table, source: str, place: Path | None, peer: Source | None
    ) -> None:
        runs: dict[str, list[Ran]] = {}
        many = f"windrow, {self.sizes.queries} queries"

        def windrow(name: str, script: str) -> Callable[[], None]:
            return lambda: runs.setdefault(name, []).append(windrow_live(self.spark, {"s": source}, script))

        def spark_alone() -> None:
            assert peer is not None
            runs.setdefault("Structured Streaming", []).append(structured(self.spark, peer))

        sides: dict[str, Callable[[], object]] = {
            "windrow": windrow("windrow", ONE),
            many: windrow(many, shared(self.sizes.queries)),
        }
        if place is not None:
            sides |= {"bare read": lambda: data.bare(place, READS)}
        sides |= {"Structured Streaming": spark_alone} if self.peers and peer is not None else {}
        took = best_of(self.repeat, sides)
        took |= {name: min(r.seconds for r in found) for name, found in runs.items()}
        used = {name: min(r.processor for r in found) for name, found in runs.items()}
        if place is not None:
            used |= best_of(self.repeat, {"bare read": sides["bare read"]}, "cpu")
        _same(runs)
        for name, seconds in took.items():
            more = {"cpu_s": used[name]} if name in used else {}
            more |= {"planning_s": min(r.planning for r in runs[name])} if name in runs else {}
            rate = rows.num_rows / seconds
            self.add(form, columns=columns, engine=name, seconds=seconds, rows_per_s=rate, **more)
        if self.peers and place is not None:
            self._flink(form, columns, rows, place.parent)
        self._format_targets(form, columns, used if self.clock == "cpu" else took)

    def _format_targets(self, form: str, columns: int, took: Mapping[str, float]) -> None:
        ours, what = took["windrow"], f"{form}: {columns} columns, one query"
        if "Structured Streaming" in took:
            asked = 1.5 if form == "kafka" else 2.5
            self.ratio(
                f"{what}, Structured Streaming / windrow", took["Structured Streaming"] / ours, asked, least=True
            )
        if "bare read" in took:
            asked_of_bare = 0.15 if form == "parquet" and columns == 4 else None
            self.ratio(f"{what}, bare read / windrow", took["bare read"] / ours, asked_of_bare, least=True)

    def _flink(self, form: str, columns: int, rows: pa.Table, place: Path) -> None:
        from windrow_bench.peers import SECOND, Flink, SlidingAggregate
        from windrow_bench.peers.environment import MARK, OVERRIDE, VERSION, cache

        skipped = None
        if form == "json":
            skipped = "the peer reads parquet and csv"
        elif not (cache() / f"flink-{VERSION}" / MARK).exists() and not os.environ.get(OVERRIDE):
            skipped = f"apache-flink {VERSION} is not installed"
        if skipped is not None:
            self.add(form, columns=columns, engine="Flink SQL", note=f"skipped: {skipped}")
            return
        sums = {"n": "COUNT(*)", "total": "SUM(v)"}
        query = SlidingAggregate("q", "s", 10 * SECOND, 10 * SECOND, sums, "w < 300", ["k"])
        seconds = Flink().run([query], place).seconds
        rate = rows.num_rows / seconds
        self.add(form, columns=columns, engine="Flink SQL", seconds=seconds, rows_per_s=rate)

    def kafka(self) -> None:
        """A topic of a broker, or of the mock cluster."""
        try:
            import confluent_kafka  # noqa: F401
        except ModuleNotFoundError:
            self.add("kafka", engine="windrow", note="skipped: confluent-kafka is not installed")
            return
        from windrow_bench.peers import broker

        rows = data.table(self.sizes.rows["kafka"], 4, self.seed)
        with contextlib.ExitStack() as held:
            real = "kafka-clients" in (self.spark.conf.get("spark.jars", "") or "")
            topic = data.Topic(rows, held.enter_context(broker.broker()) if real else None)
            # fetches of several partitions interleave: one tick takes them all, so no row is late
            options = f"servers => '{topic.servers}', topics => '{','.join(topic.topics)}'"
            source = f"{data.declaration(rows)} FROM kafka ({options})"
            peer = streamed_topics(topic.servers, topic.topics, rows) if real else None
            self._point("kafka", 4, rows, source, None, peer)
        if peer is None:
            note = "skipped: no broker, or no jar of Spark's connector"
            self.add("kafka", columns=4, engine="Structured Streaming", note=note)

    def files(self) -> None:
        """The same rows in more files of one tick."""
        rows = data.table(self.sizes.rows["parquet"] // 2, 4, self.seed)
        for files in self.sizes.files:
            place = data.write(rows, self.place / f"files-{files}" / "s", "parquet", files)
            source = {"s": from_files(place, "parquet", rows, max_files=64)}
            best = min(windrow_live(self.spark, source, ONE).seconds for _ in range(self.repeat))
            self.add("files", files=files, seconds=best, rows_per_s=rows.num_rows / best)

    def cores(self) -> None:
        """A process on one core, and on two: where a job has little to do, and where it has more."""
        for work, rows in itertools.product(("groups", "join", "shared"), self.sizes.work):
            took = {}
            for cores in (1, 2):
                one = pinned(work, rows, cores, self.repeat)
                took[cores] = one["seconds"]
                figures = {"rows_per_s": rows / one["seconds"], "cpu_s": one["processor"], "job_ms": one.get("job")}
                self.add("cores", work=work, rows=rows, cores=cores, seconds=one["seconds"], **figures)
            self.ratio(f"cores: {work} over {rows:,} rows, one core / two cores", took[1] / took[2], 1.7, least=True)

    def regular(self) -> None:
        """C regular: 256 queries against one of them, beyond planning."""
        from windrow_bench.sharing import market
        from windrow_bench.sharing_ends import Ends, of_trades, queries

        (self.place / "regular").mkdir()
        ends = Ends(of_trades(market(self.sizes.trades, self.seed)), self.place / "regular", self.seed)
        wanted = queries(ends.data, "C regular", 256, self.seed)
        best = dict.fromkeys((1, 256), float("inf"))
        for _ in range(self.repeat + 1):
            for count in best:
                seconds, _, phases = ends.run_live(wanted[:count])
                best[count] = min(best[count], seconds - phases["register s"])
        for count, seconds in best.items():
            self.add("regular", queries=count, seconds=seconds, rows_per_s=self.sizes.trades / seconds)
        self.ratio("regular: C regular beyond planning, 256 queries / one", best[256] / best[1], 2.5)

    def appear(self) -> None:
        """From a file's appearance to the answer."""
        one = live.appearance(self.spark, self.place / "appear-1", 1, 1, self.sizes.ticks)
        many = live.appearance(self.spark, self.place / "appear-64", 1, self.sizes.appear, self.sizes.ticks)
        streams = live.appearance(self.spark, self.place / "appear-16", 16, 16, self.sizes.ticks)
        for count, queries, seconds in ((1, 1, one), (1, self.sizes.appear, many), (16, 16, streams)):
            self.add("appear", streams=count, queries=queries, seconds=seconds)
        what = "from a file's appearance to the answer"
        self.ratio(f"appear: seconds {what}, {self.sizes.appear} queries", many, 0.30)
        self.ratio(f"appear: {what}, 16 streams / one", streams / one, 1.5)

    def sink(self) -> None:
        """Large answers into Parquet."""
        kept = live.answers(self.spark, self.place / "kept", self.sizes.answers, self.sizes.ticks, sink=True)
        plain = live.answers(self.spark, self.place / "plain", self.sizes.answers, self.sizes.ticks, sink=False)
        for name, got in (("parquet", kept), ("none", plain)):
            figures = {"tick_ms": got.tick_ms, "driver_mb_first": got.driver_mb[0], "driver_mb_last": got.driver_mb[-1]}
            self.add("sink", sink=name, answers=self.sizes.answers, **figures)
        what = f"sink: {self.sizes.answers:,} answer rows a tick into Parquet"
        self.ratio(f"{what}, tick / tick without a sink", kept.tick_ms / plain.tick_ms, 1.5)
        self.ratio(f"{what}, driver's memory at the end / before", kept.growth, 1.1)

    def memory(self) -> None:
        """A window join, with a tenth of the live rows and with all of them."""
        live, new = self.sizes.live, self.sizes.live // 20
        small, large = (
            ingest_memory.join(self.spark, self.place / f"live-{rows}", rows, new) for rows in (live // 10, live)
        )
        for got in (small, large):
            figures = {"state_mb": got.state / 1e6, "private_mb": got.private / 1e6, "disk_mb": got.disk / 1e6}
            times = {"tick_ms": got.tick_ms, "kernels_s": got.tick_cpu_s, "restart_s": got.restart_s}
            self.add("memory", live=got.live, new=new, **figures, **times)
        what = f"memory: join over {live:,} live rows"
        self.ratio(f"{what}, private memory of workers / state", large.private / large.state, 3.0)
        self.ratio(f"{what}, disk under home / state", large.disk / large.state, 1.5)
        self.ratio(f"{what}, tick / with a tenth of them", large.tick_ms / small.tick_ms, 1.1)
        self.ratio(f"{what}, seconds to the first answer after a restart", large.restart_s, 3.0)

    def length(self) -> None:
        """Ticks of the same size along a run."""
        times = live.along(self.spark, self.place / "length", self.sizes.work[0] // 10, 3 * self.sizes.ticks)
        third = len(times) // 3
        first, last = (sorted(part)[third // 2] for part in (times[:third], times[-third:]))
        for name, ms in (("first third", first), ("last third", last)):
            self.add("length", of=name, tick_ms=ms, rows_per_s=1000 * (self.sizes.work[0] // 10) / ms)
        self.ratio("length: ticks of a run, last third / first", last / first, 1.2)


def _same(runs: Mapping[str, Sequence[Ran]]) -> None:
    """Engines that answered the one query gave as many rows that count as many."""
    seen = {
        (len(r.answers["q"]), pc.sum(r.answers["q"]["n"]).as_py())
        for found in runs.values()
        for r in found
        if "q" in r.answers
    }
    if len(seen) > 1:
        raise AssertionError(f"the answers differ: {seen}")


PARTS: Mapping[str, Callable[[Bench], None]] = {
    **{form: partial(Bench.files_of, form=form) for form in data.FORMATS},
    "kafka": Bench.kafka,
    "files": Bench.files,
    "regular": Bench.regular,
    "appear": Bench.appear,
    "sink": Bench.sink,
    "memory": Bench.memory,
    "length": Bench.length,
    "cores": Bench.cores,
}


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    options_parser = parser("ingest", __doc__ or "")
    formats = ("formats", *data.FORMATS, "kafka")
    choices = (formats[0], *PARTS)
    options_parser.add_argument("--parts", nargs="+", choices=choices, help="only these; formats: all of them")
    options_parser.add_argument("--no-peers", action="store_true", help="leave other engines out")
    options_parser.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    options = options_parser.parse_args(list(argv))
    wanted = options.parts or list(PARTS)
    options.parts = [p for p in PARTS if p in wanted or (p in formats and "formats" in wanted)]
    sizes, measured = Sizes.quick() if options.quick else Sizes.full(), commit()
    found = run(options, sizes)
    about = " ".join((__doc__ or "").split())
    parameters = {"rows": ", ".join(f"{k} {v:,}" for k, v in sizes.rows.items()), "repeat": options.repeat}
    directory = options.out or (None if options.quick else results_directory())
    mine = [{**row, "commit": measured} for row in found.rows]
    rows, ratios = beside("ingest", directory, list(PARTS), options.parts, mine, found.ratios)
    return report(Result("ingest", about, options.seed, parameters, rows, ratios), options)


def run(options: argparse.Namespace, sizes: Sizes) -> Found:
    """All chosen parts; those in processes of their own when the session is gone."""
    from pyspark.sql import SparkSession

    from windrow.spark.session import session

    found, owned = Found(), SparkSession.getActiveSession() is None
    repeat = 1 if options.quick else options.repeat
    with (
        progress() as shown,
        tempfile.TemporaryDirectory(prefix="windrow-ingest-", ignore_cleanup_errors=True) as place,
    ):
        task = shown.add_task("starting Spark", total=None)
        spark = session(master=options.master, settings=_connector(options) if owned else None)
        bench = Bench(spark, Path(place), sizes, repeat, options.seed, found, not options.no_peers, options.clock)
        bench.warm()
        for part in (p for p in PARTS if p in options.parts):
            if part == "cores" and owned:
                spark.stop()
            shown.update(task, description=part)
            PARTS[part](bench)
    return found


def _connector(options: argparse.Namespace) -> Mapping[str, str] | None:
    """The jars of Spark's Kafka connector, for a session that needs them and can have them."""
    if "kafka" not in options.parts or options.no_peers:
        return None
    from windrow_bench.peers import broker

    try:
        broker.jars()
        place = broker.connector()
    except RuntimeFailure:
        return None
    return {"spark.jars": ",".join(map(str, sorted(place.glob("*.jar"))))}
