"""What experiments on Spark drive: directories fed one file per tick, an engine over them, and the bare pipeline.

The bare pipeline is the least that any Spark job of this shape does: `foreachBatch`, `mapInArrow`, and a count of the
rows. Both sides read files of the same rows. The time of a bare tick is what Spark itself says of the whole micro-batch
(`triggerExecution`), listing files and writing offsets included; windrow's is the whole of a turn from planning to
sinks, its manifest with the offsets included.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from windrow.engine import Engine
    from windrow.runtime.tick import Tick


class Feed:
    """A directory that one stream reads, a file per tick, in the order of `put`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._mtime_ns = time.time_ns() - 3_600 * 10**9
        path.mkdir(parents=True, exist_ok=True)

    def put(self, rows: pa.Table) -> None:
        """Let a file appear, whole, and newer than those before it."""
        hidden = self.path / f".{self.count:06d}"
        parquet.write_table(rows, hidden, row_group_size=100_000)
        self._mtime_ns += 20_000_000  # the source orders by time of change, in milliseconds
        os.utime(hidden, ns=(self._mtime_ns, self._mtime_ns))
        hidden.rename(self.path / f"{self.count:06d}.parquet")
        self.count += 1


class Pipe:
    """An engine over one or more feeds."""

    def __init__(self, spark: SparkSession, place: Path, streams: Mapping[str, str], script: str = "") -> None:
        self.spark, self.place, self.streams = spark, place, streams
        self.feeds = {name: Feed(place / name) for name in streams}
        self.engine = self.open()
        for name, declaration in streams.items():
            self.engine.execute(
                f"CREATE STREAM {name} {declaration} FROM parquet (path => '{self.feeds[name].path}', max_files => 1)"
            )
        if script:
            self.engine.execute(script)

    def open(self) -> Engine:
        """An engine on this pipe's home, new or again."""
        from windrow.engine import Engine

        return Engine(home=str(self.place / "home"), spark=self.spark)

    def run(self, ticks: Sequence[Mapping[str, pa.Table]], seconds: float = 600.0) -> list[float]:
        """Feed files as ticks, back to back; the milliseconds of each (with several streams, of the slowest)."""
        before = self.batches()
        for tables in ticks:
            for name, rows in tables.items():
                self.feeds[name].put(rows)
        self.drain(seconds)
        per_stream = [self.times(name, after=before[name]) for name in self.streams]
        return [max(times) for times in zip(*per_stream, strict=False)]

    def drain(self, seconds: float = 600.0) -> None:
        """Wait until all files are answered."""
        self.engine.drain(seconds)

    def batches(self) -> dict[str, int]:
        """The number of the last tick that had rows of each stream, counted from 0; -1 before the first."""
        return {n: len(self._ticks(n)) - 1 for n in self.streams}

    def times(self, name: str, after: int = -1) -> list[float]:
        """Milliseconds of each tick with rows of a stream."""
        return [1000 * t.seconds["total"] for t in self._ticks(name)[after + 1 :]]

    def _ticks(self, name: str) -> list[Tick]:
        return [t for t in self.engine.runtime.figures.ticks if t.counters.get(f"rows.{name}")]

    def phases(self, last: int) -> dict[str, float]:
        """Milliseconds by phase, as a mean of the last ticks."""
        return self.engine.runtime.figures.phases(last)


class Bare:
    """The pipeline that only counts rows."""

    def __init__(self, spark: SparkSession, place: Path, columns: Mapping[str, pa.DataType]) -> None:
        self.spark, self.feed, self._columns = spark, Feed(place / "bare"), columns
        self._checkpoint = str(place / "bare-checkpoint")
        self.rows = 0

    def run(self, ticks: Sequence[pa.Table]) -> list[float]:
        """Feed files as ticks, back to back; the milliseconds of each."""
        for rows in ticks:
            self.feed.put(rows)
        query = self._start()
        try:
            query.processAllAvailable()
            times = [_milliseconds(p) for p in query.recentProgress if p.numInputRows]
        finally:
            query.stop()
        return times[1:]  # a stream that has just started pays for that in its first batch

    def _start(self) -> Any:
        from windrow.spark.sources import spark_schema

        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"n": [sum(b.num_rows for b in batches)]})

        def each(frame: DataFrame, number: int) -> None:
            self.rows += sum(frame.mapInArrow(count, "n long").toArrow().column("n").to_pylist())

        reader = self.spark.readStream.schema(spark_schema(self._columns)).option("maxFilesPerTrigger", "1")
        writer = reader.parquet(str(self.feed.path)).writeStream.foreachBatch(each).queryName("bare")
        return writer.option("checkpointLocation", self._checkpoint).start()


def _milliseconds(progress: Any) -> float:
    return float(progress.durationMs["triggerExecution"])


def memory() -> dict[str, int]:
    """Resident bytes of this process, of the JVM below it, and of the Python workers below that; {} without /proc.

    Mapped files count: a run that is deleted but still mapped takes disk that no listing shows.
    """
    found: dict[int, tuple[int, str, int]] = {}  # process -> parent, kind, bytes
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = entry.joinpath("status").read_text(encoding="utf-8")
            command = entry.joinpath("cmdline").read_bytes().split(b"\0")[0]
        except OSError:  # it has ended meanwhile
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        kind = "jvm" if command.endswith(b"java") else "workers"
        found[int(entry.name)] = (int(fields["PPid"]), kind, 1024 * int(fields.get("VmRSS", "0 kB").split()[0]))
    here = os.getpid()
    if here not in found:
        return {}
    found[here] = (0, "driver", found[here][2])
    below = {here}
    while grown := {p for p, (parent, _, _) in found.items() if parent in below} - below:
        below |= grown
    return {kind: sum(found[p][2] for p in below if found[p][1] == kind) for kind in ("driver", "jvm", "workers")}


def disk(path: Path) -> int:
    """Bytes of all files under a directory."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:  # swept meanwhile
                continue
    return total
