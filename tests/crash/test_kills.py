"""Exactly once: a pipeline that is killed again and again writes what an uninterrupted one does.

WINDROW_KILLS=20 pytest tests/crash        so many kills at random moments, besides those at chosen points
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow
from windrow.store.failpoints import CHANGES, POINTS
from windrow.testing import assert_same

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

PIPELINE = Path(__file__).with_name("pipeline.py")
KILLS = int(os.environ.get("WINDROW_KILLS", "1"))
FILES = 10 + 2 * KILLS
"""Per stream, one in a batch: enough that every kill hits a pipeline at work."""

_spec = importlib.util.spec_from_file_location("windrow_tests_pipeline", PIPELINE)
pipeline = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pipeline)


def write_input(folder):
    """Both streams as files, rows out of order within the slack; returns them in order of arrival."""
    rng = np.random.default_rng(7)
    found = {}
    for stream, value in (("bid", "v"), ("ask", "w")):
        (folder / stream).mkdir()
        parts = []
        for i in range(FILES):
            ts = np.sort(rng.integers(i * pipeline.STEP, (i + 1) * pipeline.STEP, pipeline.ROWS))
            ts = ts[np.argsort(ts + rng.integers(0, 7, len(ts)), kind="stable")]
            columns = {"k": rng.integers(0, 8, len(ts)), value: rng.integers(0, 400, len(ts)) / 4, "ts": ts}
            parts.append(pa.table(columns))
            path = folder / stream / f"{i:03d}.parquet"
            pq.write_table(parts[-1], path)
            os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))  # Spark takes files in this order
        found[stream] = pa.concat_tables(parts)
    return found


class Run:
    """One life of the pipeline, in a process group of its own."""

    def __init__(self, folder, dsn, crash_at="", servers=""):
        environment = {**os.environ, "WINDROW_CRASH_AT": crash_at, "WINDROW_MASTER": "local[2]"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self.log = open(folder / "log", "ab")  # noqa: SIM115 - closed by wait
        self.process = subprocess.Popen(
            [sys.executable, str(PIPELINE), str(folder), dsn, servers],
            stdout=subprocess.PIPE, stderr=self.log, env=environment, start_new_session=True,
        )  # fmt: skip
        self.started = threading.Event()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self):
        with self.process.stdout as lines:
            for line in lines:
                if line.strip() == b"started":
                    self.started.set()

    def kill_after(self, seconds):
        """SIGKILL the driver so long after it started, if it is still there."""
        while not self.started.wait(0.05) and self.process.poll() is None:
            pass
        deadline = time.time() + seconds
        while time.time() < deadline and self.process.poll() is None:
            time.sleep(0.01)
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)

    def wait(self):
        """The exit code; whatever the driver left behind is gone then."""
        code = self.process.wait(300)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.listener.join(10)
        self.log.close()
        return code


def expected(folder, streams):
    """The local answer up to the frontier that the pipeline reached."""
    from windrow.store.store import Store

    reached = Store.open(folder / "home", read_only=True).latest().frontier
    script = pipeline.SCRIPT.format(bid="", ask="") + pipeline.QUERIES
    assert reached == min(int(np.max(t["ts"])) for t in streams.values()) - 8
    return windrow.run(script, streams, {"names": pipeline.NAMES}, runtime="local", until=reached)


def written_files(folder, query):
    """All rows of a query's files, in the order of ticks."""
    return pq.read_table(folder / "out" / query).sort_by("_ts")


def written_rows(dsn, query, schema):
    """All rows of a query's PostgreSQL table."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        names = ", ".join(f'"{n}"' for n in schema.names)
        rows = connection.execute(f'SELECT {names} FROM "{query}" ORDER BY "_ts"').fetchall()
    columns = list(zip(*rows, strict=True)) if rows else [[]] * len(schema)
    return pa.table([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema.names)


def check(folder, dsn, streams):
    """Files and PostgreSQL hold the uninterrupted answer: nothing lost, nothing twice."""
    for query, want in expected(folder, streams).items():
        assert_same(written_files(folder, query), want)
        assert_same(written_rows(dsn, query, want.schema), want)


@pytest.mark.spark
def test_kills_lose_nothing_and_repeat_nothing(tmp_path, postgres):
    """Crashes at every chosen point and SIGKILLs at random moments; then the rest of the input."""
    streams = write_input(tmp_path)
    chance = random.Random(int(os.environ.get("WINDROW_SEED", "11")))
    crashes = 0
    for point in CHANGES:
        run = Run(tmp_path, postgres.dsn, point)
        assert run.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
        crashes += 1
    for number, point in enumerate(POINTS):
        run = Run(tmp_path, postgres.dsn, f"{point}:{number + 1}")
        assert run.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
        crashes += 1
    for _ in range(KILLS):
        run = Run(tmp_path, postgres.dsn)
        run.kill_after(chance.uniform(0.0, 4.0))
        crashes += run.wait() == -signal.SIGKILL
    last = Run(tmp_path, postgres.dsn)
    assert last.wait() == 0, (tmp_path / "log").read_text()
    check(tmp_path, postgres.dsn, streams)
    chosen = len(CHANGES) + len(POINTS)
    print(f"{crashes} crashes, {chosen} of them at chosen points")
    assert crashes >= chosen


def test_kills_between_kafka_and_postgres(tmp_path, postgres):
    """In process, from topics into tables: chosen points and random moments, and the answer of an unbroken run."""
    kafka = pytest.importorskip("tests.kafka").MockKafka()
    streams = write_input(tmp_path)
    for name, table in streams.items():
        kafka.send(name, [json.dumps(row).encode() for row in table.to_pylist()])
    chance = random.Random(int(os.environ.get("WINDROW_SEED", "11")))
    for point in POINTS:
        run = Run(tmp_path, postgres.dsn, f"{point}:2", kafka.servers)
        assert run.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    crashes = 0
    for _ in range(KILLS):
        run = Run(tmp_path, postgres.dsn, "", kafka.servers)
        run.kill_after(chance.uniform(0.0, 0.5))
        crashes += run.wait() == -signal.SIGKILL
    assert Run(tmp_path, postgres.dsn, "", kafka.servers).wait() == 0, (tmp_path / "log").read_text()
    check(tmp_path, postgres.dsn, streams)
    print(f"{crashes} crashes at random moments")
