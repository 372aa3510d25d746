"""Flink SQL beside the other engines of `windrow bench latency`: one query as a job that runs until it is stopped.

The job has an interpreter of its own and prints its answers (the connector "print"); they come through a pipe, and
count when their line is read here. An answer begins with the number of the second that its window ends with, so that
what is still said of earlier seconds is not taken for the answer that is waited for.

Flink's defaults are for throughput: watermarks every 200 ms, buffers sent after 100 ms, and files are not looked for
at all. Here watermarks follow 10 ms, buffers 1 ms, and new files are looked for every 10 ms. There is one reader, so
that the order of rows is that of their times.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from windrow.errors import RuntimeFailure
from windrow_bench.peers import flink_job, flink_live
from windrow_bench.peers.environment import clean, interpreter, jars

CONNECTOR = ("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2")
SETTINGS = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "pipeline.auto-watermark-interval": "10 ms",
    "execution.buffer-timeout.interval": "1 ms",
}
COLUMNS = "symbol STRING, venue STRING, price DOUBLE, `size` BIGINT, ts TIMESTAMP(6)"
EVERY = "10 ms"
QUIET_S = 0.1
"""Without an answer for so long, the engine is taken to be idle."""
START_S = 120.0
"""The most until the first answer."""
ANSWER = re.compile(r"\+I\[(\d+),")


@dataclass(frozen=True)
class FlinkTable:
    """The options of a table that Flink reads, and the jars that it needs for that."""

    options: Mapping[str, str]
    jars: tuple[Path, ...] = ()


class CSVDirectory:
    """A directory of CSV files: the pip package has no Parquet."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        path.mkdir(parents=True)

    def prepare(self, rows: pa.Table) -> None:
        """Write a file that nobody sees yet."""
        pacsv.write_csv(rows, self.path / f".{self.count:06d}", pacsv.WriteOptions(include_header=False))

    def show(self) -> None:
        """Let the file appear that was prepared."""
        (self.path / f".{self.count:06d}").rename(self.path / f"{self.count:06d}.csv")
        self.count += 1

    def table(self) -> FlinkTable:
        """Its files, as they appear."""
        options = {"connector": "filesystem", "path": str(self.path), "format": "csv", "source.monitor-interval": EVERY}
        return FlinkTable(options)


def messages(servers: str, topic: str) -> FlinkTable:
    """The messages of a topic; Flink's connector is fetched the first time (10 MB)."""
    place = jars(f"flink-kafka-{CONNECTOR[2]}", [CONNECTOR], lambda _: None, "-notransitive")
    assert place is not None
    start = {"scan.startup.mode": "earliest-offset", "properties.bootstrap.servers": servers}
    return FlinkTable({"connector": "kafka", "topic": topic, "format": "json", **start}, tuple(place.glob("*.jar")))


def job(trade: FlinkTable, begin_us: int, within: str) -> dict[str, object]:
    """What the other interpreter runs: the sizes of ten seconds by symbol, every second, with its number.

    >>> str(job(FlinkTable({}), 10**15, "100 MILLISECONDS")["statement"]).partition(" FROM ")[0]
    "INSERT INTO answers SELECT TIMESTAMPDIFF(SECOND, TIMESTAMP '2001-09-09 01:46:40', window_end), symbol, SUM(`size`)"
    """
    begin = datetime.fromtimestamp(begin_us // 10**6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    seconds = int(within.split()[0]) / 1000
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in trade.options.items())
    hop = "HOP(TABLE trade, DESCRIPTOR(`_rt`), INTERVAL '1' SECOND, INTERVAL '10' SECOND)"
    more = {"pipeline.jars": ";".join(j.as_uri() for j in trade.jars)} if trade.jars else {}
    return {
        "settings": SETTINGS | more,
        "declarations": [
            f"CREATE TABLE trade ({COLUMNS}, `_rt` AS CAST(ts AS TIMESTAMP(3)), "
            f"WATERMARK FOR `_rt` AS `_rt` - INTERVAL '{seconds:.3f}' SECOND) WITH ({listed})",
            "CREATE TABLE answers (`number` INT, symbol STRING, shares BIGINT) WITH ('connector' = 'print')",
        ],
        "statement": f"INSERT INTO answers SELECT TIMESTAMPDIFF(SECOND, TIMESTAMP '{begin}', window_end), symbol, "
        f"SUM(`size`) FROM TABLE({hop}) GROUP BY window_start, window_end, symbol",
    }


class Running:
    """A job and what it has said; `heard` is set by the first answer of every second."""

    def __init__(self, process: subprocess.Popen[str], heard: threading.Event, log: Path) -> None:
        self.process, self.heard, self.log = process, heard, log
        self.newest, self._last = 0, time.monotonic()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                answer, self._last = ANSWER.match(line), time.monotonic()
                if answer and int(answer[1]) > self.newest:
                    self.newest = int(answer[1])
                    self.heard.set()

    def idle(self) -> None:
        """Return when nothing has been said for a while."""
        while time.monotonic() - self._last < QUIET_S:
            time.sleep(QUIET_S / 10)

    def look(self) -> None:
        """Raise if it has ended, or says nothing."""
        if not self.newest and time.monotonic() - self._last > START_S:
            raise RuntimeFailure("Flink has no answer", detail=f"its job has run for {START_S:.0f} seconds")
        if self.process.poll() is not None:
            said = self.log.read_text(encoding="utf-8", errors="replace").strip()
            raise RuntimeFailure("Flink stopped", detail=flink_job.reason(said) if said else "it said nothing")


@contextmanager
def running(document: Mapping[str, object], scratch: Path, heard: threading.Event) -> Iterator[Running]:
    """A job that runs until the end of the block."""
    scratch.mkdir(parents=True)
    (scratch / "job.json").write_text(json.dumps(document), encoding="utf-8")
    command = [str(interpreter()), str(Path(flink_live.__file__)), str(scratch / "job.json")]
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=clean(), cwd=scratch,
            start_new_session=True,
        )  # fmt: skip
    made = Running(process, heard, scratch / "log")
    try:
        yield made
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its JVM, too
        process.wait()
        made.listener.join()


__all__ = ["CSVDirectory", "FlinkTable", "Running", "job", "messages", "running"]
