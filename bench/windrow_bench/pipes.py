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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from windrow.engine import Engine
    from windrow.runtime.tick_result import TickResult


class Feed:
    """A directory that one stream reads, a file per tick, in the order of `put`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._mtime_ns = time.time_ns() - 3_600 * 10**9
        path.mkdir(parents=True, exist_ok=True)

    def put(self, rows: pa.Table) -> None:
        """Let a file appear, whole, and newer than those before it."""
        self.prepare(rows)
        self.show()

    def prepare(self, rows: pa.Table) -> None:
        """Write a file that nobody sees yet."""
        hidden = self.path / f".{self.count:06d}"
        parquet.write_table(rows, hidden, row_group_size=100_000)
        self._mtime_ns += 20_000_000  # the source orders by time of change, in milliseconds
        os.utime(hidden, ns=(self._mtime_ns, self._mtime_ns))

    def show(self) -> None:
        """Let the file appear that was prepared."""
        (self.path / f".{self.count:06d}").rename(self.path / f"{self.count:06d}.parquet")
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

    def _ticks(self, name: str) -> list[TickResult]:
        return [t for t in self.engine.runtime.figures.ticks if t.counters.get(f"rows.{name}")]

    def phases(self, last: int) -> dict[str, float]:
        """Milliseconds by phase, as a mean of the last ticks."""
        return self.engine.runtime.figures.phases(last)


class Bare:
    """The pipeline that only counts rows."""

    def __init__(self, spark: SparkSession, place: Path, columns: Mapping[str, pa.DataType]) -> None:
        self.spark, self.feed, self._columns = spark, Feed(place / "bare"), pa.schema(columns)
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
        from pyspark.sql.pandas.types import from_arrow_schema

        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"n": [sum(b.num_rows for b in batches)]})

        def each(frame: DataFrame, number: int) -> None:
            self.rows += sum(frame.mapInArrow(count, "n long").toArrow().column("n").to_pylist())

        reader = self.spark.readStream.schema(from_arrow_schema(self._columns)).option("maxFilesPerTrigger", "1")
        writer = reader.parquet(str(self.feed.path)).writeStream.foreachBatch(each).queryName("bare")
        return writer.option("checkpointLocation", self._checkpoint).start()


def _milliseconds(progress: Any) -> float:
    return float(progress.durationMs["triggerExecution"])


def memory() -> dict[str, int]:
    """Resident bytes of this process, of the JVM below it, and of the Python workers below that; {} without /proc.

    Mapped files count: a run that is deleted but still mapped takes disk that no listing shows.
    """
    found = _tree()
    return {kind: sum(p.resident for p in found if p.kind == kind) for kind in KINDS} if found else {}


def private(kind: str) -> int:
    """Bytes that processes of a kind have written and share with nobody: mapped files do not count; 0 without /proc."""
    return sum(_private(p.number) for p in _tree() if p.kind == kind)


def _private(number: int) -> int:
    try:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has ended meanwhile
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


def processor() -> float:
    """Seconds that this process and those below it have had a processor: what a busy machine can repeat."""
    return sum(p.seconds for p in _tree())


KINDS = ("driver", "jvm", "workers")


@dataclass(frozen=True)
class _Process:
    number: int
    parent: int
    kind: str
    resident: int
    seconds: float


def _tree() -> list[_Process]:
    """This process and all below it."""
    found: dict[int, _Process] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = entry.joinpath("status").read_text(encoding="utf-8")
            command = entry.joinpath("cmdline").read_bytes().split(b"\0")[0]
            ticks = entry.joinpath("stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:15]
        except OSError:  # it has ended meanwhile
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        kind = "driver" if int(entry.name) == os.getpid() else "jvm" if command.endswith(b"java") else "workers"
        resident = 1024 * int(fields.get("VmRSS", "0 kB").split()[0])
        # children that have ended count with whoever waited for them
        seconds = sum(int(t) for t in ticks) / os.sysconf("SC_CLK_TCK")
        found[int(entry.name)] = _Process(int(entry.name), int(fields["PPid"]), kind, resident, seconds)
    below = {os.getpid()} & found.keys()
    while grown := {p for p, each in found.items() if each.parent in below} - below:
        below |= grown
    return [found[p] for p in below]


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
