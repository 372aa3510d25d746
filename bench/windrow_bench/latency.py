"""From rows to the answer: windrow with many queries beside other engines with one, from files and from Kafka.

A second of trades appears at a time: as a file by its rename, or as messages to a topic of a broker on this machine.
Seconds are from just before to the first answer that rests on them, of the query that sums sizes by symbol over ten
seconds, every second; the next rows come when the engine is idle again. Structured Streaming has this query alone:
in append mode, which answers windows that are complete, as windrow does, and in update mode, which answers sooner with
what windows have so far. Flink SQL has it alone, too, of complete windows, from CSV files where the others read
Parquet; it is set to answer early, and counts when its line is read (`latency_flink.py`). windrow has the query among
all monitoring queries of the demo. windrow and Structured Streaming take turns in one session, Flink in a cluster of
its own beside it, and each has the median of its rounds after a few to warm up. The delays of Esper, which has no
files or topics to watch but is handed rows, are on the page of `windrow bench sharing --parts esper`.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from windrow.cli.trades import DECLARATION, monitors, trades
from windrow.errors import RuntimeFailure
from windrow_bench import latency_flink
from windrow_bench.harness import Ratio, Result, parser, progress, report
from windrow_bench.peers.broker import broker, connector
from windrow_bench.pipes import Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN_US = 10**15  # what is not after 1970 is late to Spark
SPAN_US = 10**6
WARM = 4
MODES = {"Structured Streaming, append": "append", "Structured Streaming, update": "update"}
FLINK = "Flink SQL"
PEERS = {"structured": tuple(MODES), "flink": (FLINK,)}
WITHIN = "100 MILLISECONDS"


class Shown(Protocol):
    """Where rows appear: prepared before, shown at once."""

    def prepare(self, rows: pa.Table) -> None: ...
    def show(self) -> None: ...


class Place(Shown, Protocol):
    """That windrow and Spark read."""

    def source(self) -> str:
        """What comes after FROM."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """The same rows as a streaming DataFrame."""


class FlinkPlace(Shown, Protocol):
    """That Flink reads."""

    def table(self) -> latency_flink.FlinkTable:
        """How it reads them."""


class Kind(NamedTuple):
    """Ways to make places of one kind, by a name."""

    place: Callable[[str], Place]
    flink: Callable[[str], FlinkPlace]


class Directory(Feed):
    """A directory of Parquet files."""

    def source(self) -> str:
        """What comes after FROM."""
        return f"parquet (path => '{self.path}', max_files => 1)"

    def frame(self, spark: SparkSession) -> DataFrame:
        """A file a batch."""
        read = spark.readStream.schema(_schema()).option("maxFilesPerTrigger", "1")
        return read.parquet(str(self.path))


class Topic:
    """A topic of one partition: the order of rows is that of their times."""

    def __init__(self, servers: str, name: str) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        self.servers, self.name = servers, name
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
        client = AdminClient({"bootstrap.servers": servers})
        client.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        self._messages: list[bytes] = []

    def prepare(self, rows: pa.Table) -> None:
        """Write messages that nobody has sent yet."""
        self._messages = [json.dumps(row, default=str).encode() for row in rows.to_pylist()]

    def show(self) -> None:
        """Send them."""
        for message in self._messages:
            self._producer.produce(self.name, message)
        if self._producer.flush(30):
            raise RuntimeFailure("the broker does not take messages")

    def source(self) -> str:
        """What comes after FROM."""
        return f"kafka (servers => '{self.servers}', topic => '{self.name}')"

    def frame(self, spark: SparkSession) -> DataFrame:
        """Messages as Spark's connector reads them."""
        from pyspark.sql import functions as F

        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        read = read.option("subscribe", self.name).option("startingOffsets", "earliest")
        value = F.from_json(F.col("value").cast("string"), _schema())
        return read.load().select(value.alias("v")).select("v.*")

    def table(self) -> latency_flink.FlinkTable:
        """Messages as Flink's connector reads them."""
        return latency_flink.messages(self.servers, self.name)


def _schema() -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(trades(1, 0, SPAN_US, seed=1).schema)


@dataclass(frozen=True)
class Engines:
    """All engines over new places of one kind."""

    spark: SparkSession
    scratch: Path
    kind: Kind
    rows: int
    ticks: int

    def windrow(self, name: str, queries: int) -> list[float]:
        """Seconds of each tick."""
        from windrow.engine import Engine

        place, heard = self.kind.place(name), threading.Event()
        with Engine(home=str(self.scratch / name), spark=self.spark) as engine:
            engine.execute(f"CREATE STREAM trade {DECLARATION} WITHIN {WITHIN} FROM {place.source()}")
            engine.execute(";".join(f"CREATE QUERY {n} AS {text}" for n, text in monitors(queries).items()))
            engine["volume"].subscribe(lambda _: heard.set())
            engine.start()
            return self._rounds(place, heard, lambda: engine.drain(60), lambda: engine.wait(0))

    def structured(self, name: str, mode: str) -> list[float]:
        """Seconds of each batch."""
        from pyspark.sql import functions as F

        def answered(frame: DataFrame, _: int) -> None:
            if frame.toArrow().num_rows:
                heard.set()

        place, heard = self.kind.place(name), threading.Event()
        timed = place.frame(self.spark).withColumn("ts", F.col("ts").cast("timestamp"))
        marked = timed.withWatermark("ts", WITHIN.lower())
        grouped = marked.groupBy(F.window("ts", "10 seconds", "1 second"), "symbol").agg(F.sum("size").alias("shares"))
        writer = grouped.writeStream.outputMode(mode).foreachBatch(answered)
        running = writer.option("checkpointLocation", str(self.scratch / name)).start()
        try:
            return self._rounds(place, heard, running.processAllAvailable, lambda: _raise(running.exception()))
        finally:
            running.stop()

    def flink(self, name: str) -> list[float]:
        """Seconds of each second of rows."""
        place, heard = self.kind.flink(name), threading.Event()
        document = latency_flink.job(place.table(), BEGIN_US, WITHIN)
        with latency_flink.running(document, self.scratch / name, heard) as job:
            return self._rounds(place, heard, job.idle, job.look)

    def _rounds(
        self, place: Shown, heard: threading.Event, idle: Callable[[], object], look: Callable[[], object]
    ) -> list[float]:
        took = []
        for tick in range(WARM + self.ticks):
            at = BEGIN_US + tick * SPAN_US
            place.prepare(trades(self.rows, at, at + SPAN_US, seed=tick))
            heard.clear()
            begin = time.perf_counter()
            place.show()
            while tick and not heard.wait(5):  # nothing is complete after the first rows
                look()
            took.append(time.perf_counter() - begin)
            idle()
        return took[WARM:]


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


@contextmanager
def _kinds(parts: Sequence[str], scratch: Path) -> Iterator[Mapping[str, Kind]]:
    """Ways to make places."""
    kinds: dict[str, Kind] = {}
    if "files" in parts:
        kinds["files"] = Kind(
            lambda name: Directory(scratch / f"{name}-rows"),
            lambda name: latency_flink.CSVDirectory(scratch / f"{name}-rows"),
        )
    if "kafka" not in parts:
        yield kinds
        return
    with broker() as servers:
        yield {**kinds, "kafka": Kind(lambda name: Topic(servers, name), lambda name: Topic(servers, name))}


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    options_parser = parser("latency", __doc__ or "")
    options_parser.add_argument("--parts", nargs="+", choices=("files", "kafka"), default=["files", "kafka"])
    options_parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: both")
    options_parser.add_argument("--queries", type=int, default=64, help="of windrow (default: 64)")
    options_parser.add_argument("--rows", type=int, default=1000, help="that appear at a time (default: 1000)")
    options = options_parser.parse_args(list(argv))
    rows, ratios = run(options)
    parameters = {"rows at a time": options.rows, "queries": options.queries}
    about = " ".join((__doc__ or "").split())
    return report(Result("latency", about, options.seed, parameters, rows, ratios), options)


def run(options: Any) -> tuple[list[dict[str, Any]], list[Ratio]]:
    """All chosen parts."""
    from windrow.spark.session import session

    settings = {"spark.jars": ",".join(map(str, connector().glob("*.jar")))} if "kafka" in options.parts else {}
    rows: list[dict[str, Any]] = []
    ratios: list[Ratio] = []
    with (
        progress() as shown,
        tempfile.TemporaryDirectory(prefix="windrow-latency-", ignore_cleanup_errors=True) as folder,
        _kinds(options.parts, Path(folder)) as kinds,
    ):
        task = shown.add_task("starting Spark", total=None)
        spark = session(settings=settings)
        for kind, made in kinds.items():
            engines = Engines(spark, Path(folder), made, options.rows, 4 if options.quick else 12)
            others = [name for peer in options.peers for name in PEERS[peer]]
            took: dict[str, list[float]] = {name: [] for name in ("windrow", *others)}
            for i in range(1 if options.quick else options.repeat):
                shown.update(task, description=f"{kind}, round {i + 1}")
                took["windrow"] += engines.windrow(f"{kind}-w{i}", options.queries)
                for name in others:
                    took[name] += (
                        engines.flink(f"{kind}-f{i}")
                        if name == FLINK
                        else engines.structured(f"{kind}-{MODES[name]}{i}", MODES[name])
                    )
            for name, seconds in took.items():
                low, high = min(seconds), max(seconds)
                count = options.queries if name == "windrow" else 1
                found = {"seconds": median(seconds), "least": low, "most": high}
                rows.append({"from": kind, "engine": name, "queries": count, **found})
            for name in others:
                what = f"from {kind} to the answer: windrow with {options.queries} queries / {name} with one"
                most = 0.5 if name in MODES else None
                ratios.append(Ratio(what, median(took["windrow"]) / median(took[name]), most))
    return rows, ratios
