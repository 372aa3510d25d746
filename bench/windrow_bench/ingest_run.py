"""What `windrow bench ingest` times: windrow, live on Spark, and Structured Streaming, over the files of one directory.

"seconds" is from handing over the declaration and the queries to the last answer, planning included; the session is
there already. `python -m windrow_bench.ingest_run WORK` measures one piece of work in a process of its own, which the
caller may pin to cores, and prints seconds as JSON: rows are generated there, so nothing is shared but the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow_bench import ingest_data as data
from windrow_bench.pipes import processor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Source = Callable[[SparkSession], DataFrame]

ONE = (
    "CREATE QUERY q AS SELECT k, COUNT(*) AS n, SUM(v) AS total "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE w < 300 GROUP BY k"
)
GROUPS = (
    "CREATE QUERY q AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
)
JOIN = (
    "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(a.v) AS total FROM l [RANGE 1 SECOND SLIDE 1 SECOND] a, "
    "r [RANGE 1 SECOND SLIDE 1 SECOND] b WHERE a.k = b.k"
)


def shared(count: int) -> str:
    """Windows times conditions, as in C regular."""
    made, side = [], max(1, round(count**0.5))
    for i in range(count):
        window, test = divmod(i, side)
        made.append(
            f"CREATE QUERY q{i} AS SELECT SUM(v) AS total FROM s "
            f"[RANGE {5 + window} SECONDS SLIDE {2 + window % 7} SECONDS] WHERE w < {200 + 800 * test // side}"
        )
    return ";".join(made)


@dataclass(frozen=True)
class Ran:
    """One run: seconds in all, of which for statements, and the answers by query."""

    seconds: float
    planning: float
    answers: Mapping[str, pa.Table]
    processor: float  # seconds of processor time, of all processes
    phases: Mapping[str, float] = field(default_factory=dict)


def windrow_live(spark: SparkSession, sources: Mapping[str, str], script: str) -> Ran:
    """Streams by name, as `(columns) TIMESTAMP BY ts FROM ...`, read once by an engine with a home of its own."""
    from windrow.engine import Engine

    with (
        tempfile.TemporaryDirectory(prefix="windrow-ingest-", ignore_cleanup_errors=True) as home,
        Engine(home=home, spark=spark) as engine,
    ):
        begin, used = time.perf_counter(), processor()
        engine.execute(";".join(f"CREATE STREAM {name} {source}" for name, source in sources.items()))
        engine.execute(script)
        planned = time.perf_counter()
        engine.start()
        engine.drain(900)
        done, used = time.perf_counter(), processor() - used
        answers = {name: engine[name].results() for name in engine.catalog.queries}
        phases = engine.runtime.figures.phases(1)
    return Ran(done - begin, planned - begin, answers, used, phases)


def structured(spark: SparkSession, source: Source) -> Ran:
    """The query `ONE` as Spark's guide writes it: a watermark, a window, append mode, everything available at once."""
    from pyspark.sql import functions as F

    found: list[pa.Table] = []
    with tempfile.TemporaryDirectory(prefix="windrow-ingest-", ignore_cleanup_errors=True) as checkpoint:
        begin, used = time.perf_counter(), processor()
        read = source(spark)
        # ours are (t - 10 s, t]: a window's row of the first instant belongs to the one before
        event = (F.col("ts").cast("timestamp") - F.expr("INTERVAL '1' MICROSECOND")).alias("at")
        marked = read.select(event, "k", "v", "w").withWatermark("at", "1 millisecond").where("w < 300")
        grouped = marked.groupBy(F.window("at", "10 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
        writer = grouped.writeStream.outputMode("append").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", checkpoint)
        query = writer.foreachBatch(lambda frame, _: found.append(frame.toArrow())).start()
        query.awaitTermination()
        seconds, used = time.perf_counter() - begin, processor() - used
    return Ran(seconds, 0.0, {"q": pa.concat_tables(found)}, used)


def streamed_files(place: Path, form: str, rows: pa.Table) -> Source:
    """The files of a directory as a streaming DataFrame."""
    return lambda spark: spark.readStream.format(form).schema(_schema(rows)).option("header", "true").load(str(place))


def streamed_topics(servers: str, topics: Sequence[str], rows: pa.Table) -> Source:
    """Topics of JSON as a streaming DataFrame, by Spark's own connector."""

    def read(spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as F

        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
        parsed = F.from_json(F.col("value").cast("string"), _schema(rows))
        return reader.load().select(parsed.alias("row")).select("row.*")

    return read


def _schema(rows: pa.Table) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(rows.schema)


def from_files(place: Path, form: str, rows: pa.Table, **options: object) -> str:
    """A stream's declaration over a directory."""
    words = "".join(f", {name} => {value}" for name, value in options.items())
    return f"{data.declaration(rows)} FROM {form} (path => '{place}'{words})"


# -- one piece of work in a process of its own -------------------------------------------------------------------------


def pinned(work: str, rows: int, cores: int, repeat: int) -> dict[str, float]:
    """Seconds of a piece of work in a new process on so many cores; the best of several."""
    cpus = sorted(os.sched_getaffinity(0))[:cores]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": str(cores)}
    command = ["taskset", "-c", ",".join(map(str, cpus)), sys.executable, "-m", "windrow_bench.ingest_run"]
    words = [work, str(rows), str(cores), str(repeat)]
    done = subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, env=environment, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _sources(work: str, rows: int, place: Path) -> Mapping[str, str]:
    if work == "join":
        sides = {name: data.table(rows // 2, 4, seed, keys=100_000) for seed, name in enumerate("lr")}
        return {n: from_files(data.write(t, place / n, "parquet", 4), "parquet", t) for n, t in sides.items()}
    made = data.table(rows, 4, keys=100_000 if work == "groups" else 1000)
    return {"s": from_files(data.write(made, place / "s", "parquet", 4), "parquet", made)}


SCRIPTS: Mapping[str, Callable[[], str]] = {
    "one": lambda: ONE,
    "groups": lambda: GROUPS,
    "join": lambda: JOIN,
    "shared": lambda: shared(256),
}


WARM = 4
"""Runs before those that count: a JVM that has just started interprets most of what a job does in it."""


def measure(work: str, rows: int, cores: int, repeat: int) -> dict[str, float]:
    """The best of several runs, after some over the same rows: fewer would be no job at all, but a small tick."""
    from windrow.spark.session import session

    spark = session(master=f"local[{cores}]")
    with tempfile.TemporaryDirectory(prefix="windrow-ingest-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        sources = _sources(work, rows, place)
        runs = [windrow_live(spark, sources, SCRIPTS[work]()) for _ in range(WARM + repeat)][WARM:]
    spark.stop()
    best = min(runs, key=lambda r: r.seconds - r.planning)
    used = min(r.processor for r in runs)
    return {"seconds": best.seconds - best.planning, "planning": best.planning, "processor": used, **best.phases}


def _print(words: Sequence[str]) -> None:
    work, *numbers = words
    result: dict[str, Any] = measure(work, *(int(n) for n in numbers))
    print(json.dumps(result))


if __name__ == "__main__":
    _print(sys.argv[1:])
