"""Real processes that are killed with SIGKILL: drivers of the local runtime, and workers of Spark.

A driver reads files that come while it lives, keeps its state under a home and writes answers into files; it is killed
at random moments, at first within its start, then while it works, and another goes on. In the end all files have been
read, and what is written equals a replay: nothing lost, nothing twice. Drivers are forked from a process that has
windrow loaded, so a life costs what the engine costs.

Workers of Spark end themselves in the middle of a tick; the tick is computed again.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import windrow
from windrow.testing import assert_same

ROWS, STEP, FILES = 60, 20, 2
"""Rows of a file, the time between files, and files that come for every life."""

PATIENCE = 300.0
"""Seconds that the last life may take."""

SCRIPT = "CREATE STREAM bid (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 5 {source};"
QUERIES = {
    "best": "SELECT k, MAX(v) AS top FROM bid [RANGE 30] GROUP BY k",
    "flow": "SELECT COUNT(*) AS n, SUM(v) AS s FROM bid [RANGE 40 SLIDE 10] WHERE v > 20",
    "calm": "SELECT COUNT(*) AS n, MAX(v) AS top FROM bid [RANGE 20 SLIDE 5] WHERE v <= 20 AND k < 6",
    "pairs": "SELECT a.k, a.v, b.v AS w FROM bid [RANGE 6] a, bid [RANGE 6] b WHERE a.k = b.k AND a.v > b.v + 70",
    "last": "SELECT k, v FROM bid [PARTITION BY k ROWS 2]",
}
DECLARED = "".join(f"CREATE QUERY {name} AS {text};" for name, text in QUERIES.items())


def drive(folder: str) -> None:
    """One life: take all files there are."""
    with windrow.Engine(runtime="local", home=f"{folder}/home") as engine:
        if "bid" not in engine.catalog.streams:
            source = f"FROM parquet (path => '{folder}/in', maxFilesPerTrigger => 1)"
            sinks = "".join(f"CREATE SINK f_{q} FOR {q} TO parquet (path => '{folder}/out');" for q in QUERIES)
            engine.execute(SCRIPT.format(source=source) + DECLARED + sinks)
        engine.start()
        engine.drain(PATIENCE)


def killed_drivers(kills: int, seed: int, said: Callable[[str], None]) -> int:
    """Kill so many drivers, and check what they have written; returns how many were killed at work."""
    chance = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder:
        (Path(folder) / "in").mkdir()
        brought: list[pa.Table] = []
        killed = lives = 0
        while killed < kills:
            _bring(folder, brought, chance)
            lives += 1
            life = context.Process(target=drive, args=(folder,))
            life.start()
            _kill_some_time(life, folder, chance)
            if life.exitcode not in (0, -signal.SIGKILL):
                raise AssertionError(f"a driver ended by itself with {life.exitcode}")
            killed += life.exitcode == -signal.SIGKILL
            said(f"{killed:,} of {lives:,} drivers killed")
        life = context.Process(target=drive, args=(folder,))
        life.start()
        life.join(PATIENCE)
        if life.exitcode != 0:
            life.kill()
            raise AssertionError(f"the last driver ended with {life.exitcode}")
        _check(folder, pa.concat_tables(brought))
        return killed


def _bring(folder: str, brought: list[pa.Table], chance: random.Random) -> None:
    """A few more files, rows out of order within the slack."""
    for _ in range(FILES):
        number = len(brought)
        rng = np.random.default_rng(chance.getrandbits(32))
        ts = np.sort(rng.integers(number * STEP, (number + 1) * STEP, ROWS))
        ts = ts[np.argsort(ts + rng.integers(0, 5, ROWS), kind="stable")]
        brought.append(pa.table({"k": rng.integers(0, 8, ROWS), "v": rng.integers(0, 100, ROWS), "ts": ts}))
        path = Path(folder) / "in" / f"{number:05d}.parquet"
        pq.write_table(brought[-1], path.with_suffix(".made"))
        path.with_suffix(".made").rename(path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _kill_some_time(life: BaseProcess, folder: str, chance: random.Random) -> None:
    """End a life somewhere within it: after some manifests have been written, and a little more."""
    manifests = Path(folder) / "home" / "manifests"
    awaited = _newest(manifests) + chance.randint(0, 3)
    until = time.monotonic() + 60
    while life.is_alive() and _newest(manifests) < awaited and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(chance.choice((0.0, 0.01, 0.05, 0.3)) * chance.random())
    life.kill()
    life.join()


def _newest(manifests: Path) -> int:
    names = [p.name for p in manifests.glob("*.json")] if manifests.exists() else []
    return max((int(n.split(".")[0]) for n in names if not n.startswith(".")), default=0)


def _check(folder: str, rows: pa.Table) -> None:
    from windrow.store.store import Store

    newest = Store.open(f"{folder}/home", read_only=True).latest()
    assert newest is not None
    replayed = windrow.run(SCRIPT.format(source="") + DECLARED, {"bid": rows}, runtime="local", until=newest.frontier)
    for query, want in replayed.items():
        assert_same(pq.read_table(f"{folder}/out/{query}").sort_by("_ts"), want)


def killed_workers(kills: int, said: Callable[[str], None]) -> int:
    """Let so many workers of Spark end in the middle of a tick; answers are those of a replay."""
    script = (
        "CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] WHERE perilous(k) GROUP BY k;"
        "CREATE QUERY calm AS SELECT k FROM s [RANGE 5];"
    )
    with tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder:
        marks = Path(folder) / "marks"
        marks.mkdir()
        _register_perilous(str(marks), f"{folder}/allowed")
        times = [range(10 * i, 10 * i + 10) for i in range(kills)]
        rows = [pa.table({"ts": list(ts), "k": [t % 4 for t in ts]}) for ts in times]
        with windrow.Engine(runtime="spark", home=f"{folder}/home") as engine:
            engine.execute(script)
            engine.start()
            for number, table in enumerate(rows, 1):
                Path(f"{folder}/allowed").write_text(str(number), encoding="utf-8")
                engine.push("s", table)
                engine.drain(PATIENCE)
                said(f"{len(os.listdir(marks)):,} workers killed")
            frontier = engine.status()["frontier"]
            found = {q: engine[q].results() for q in ("q", "calm")}
        replayed = windrow.run(script, {"s": pa.concat_tables(rows)}, runtime="local", until=frontier)
        for query, table in found.items():
            assert_same(table, replayed[query])
        return len(os.listdir(marks))


def _register_perilous(marks: str, allowed: str) -> None:
    """A function that ends its process, but not this one, while fewer have ended than is allowed."""
    driver = os.getpid()

    def perilous(k: pa.Array) -> pa.Array:
        import os
        import signal

        import pyarrow.compute as pc

        ended = len(os.listdir(marks))
        with open(allowed, encoding="utf-8") as file:
            if os.getpid() != driver and ended < int(file.read()):
                open(f"{marks}/{ended}", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return pc.greater(k, 0)

    windrow.function("perilous", perilous, returns="boolean")
