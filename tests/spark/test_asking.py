"""On Spark: one-time queries at both levels, archives and kept answers, as in process."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import RuntimeFailure
from windrow.runtime import ask_parts
from windrow.testing import oracle

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts RETAIN 500;"
ARCHIVE = "SELECT k, v FROM s [RANGE 60] WHERE v > 1"
QUERIES = [
    "SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m FROM s [RANGE 150] GROUP BY k",
    "SELECT k, v FROM s [RANGE 80] WHERE k = 3",
    "SELECT DISTINCT k FROM s [RANGE 100]",
]


def batch(n, rows=40):
    rng = np.random.default_rng(n)
    ts = np.sort(rng.integers(10 * n, 10 * n + 10, rows))
    return pa.table({"ts": ts, "k": rng.integers(0, 7, rows), "v": rng.choice([0.5, 1.5, 2.25, 8.0], rows)})


def wanted(query, pushed, instant):
    log = oracle(f"{STREAM} CREATE QUERY q AS {query}", {"s": pa.concat_tables(pushed)}, until=instant)["q"]
    found = Counter()
    for row in log.to_pylist():
        found[tuple(v for n, v in row.items() if n not in ("_ts", "_op"))] += row["_op"]
    return +found


def bag(table):
    return Counter(tuple(r.values()) for r in table.to_pylist())


def test_reading_on_spark(spark, tmp_path):
    """Every door equals the definition at the instant it names, before and after a restart."""
    pushed = []
    for first in (True, False):
        with windrow.Engine(runtime="spark", spark=spark, home=tmp_path / "home", partitions=2) as engine:
            if first:
                engine.execute(
                    f"{STREAM} CREATE ARCHIVE a AS {ARCHIVE} KEY k EVERY 20 PARTITIONS 2 x 2;"
                    f"CREATE QUERY q AS {QUERIES[0]} KEEP 100000"
                )
            engine.start()
            for _ in range(4):
                pushed.append(batch(len(pushed)))
                engine.push("s", pushed[-1])
                engine.drain()
            for query in QUERIES:
                for isolation in ("snapshot", "latest"):
                    found = engine.ask(query, isolation=isolation)
                    as_of = int(found.schema.metadata[b"windrow.as_of"])
                    assert bag(found) == wanted(query, pushed, as_of), query
            table = engine.archive("a").scan()
            as_of = int(table.schema.metadata[b"windrow.as_of"])
            want = wanted(ARCHIVE, pushed, as_of)
            assert bag(table) == want != {}
            assert bag(engine.archive("a").probe(3)) == Counter({r: n for r, n in want.items() if r[0] == 3})
            past = as_of // 2
            assert bag(engine.ask(f"SELECT * FROM q AS OF {past}")) == wanted(QUERIES[0], pushed, past)


def test_large_questions_are_jobs(spark, tmp_path, monkeypatch):
    """Runs are read by tasks at both levels, given up by time; partials of running queries answer, too."""

    def dawdle(k):
        import time

        time.sleep(600)
        return k

    windrow.function("dawdle", dawdle, returns="bigint")
    monkeypatch.setattr(ask_parts, "LARGE", 0)
    monkeypatch.setattr(ask_parts, "PIECE", 2000)
    with windrow.Engine(runtime="spark", spark=spark, home=tmp_path / "home", partitions=2) as engine:
        engine.execute(f"{STREAM} CREATE QUERY sums AS SELECT SUM(v) AS s FROM s [RANGE 120 SLIDE 5]")
        engine.start()
        pushed = []
        for _ in range(3):
            pushed.append(batch(len(pushed), 400))
            engine.push("s", pushed[-1])
            engine.drain()
        engine.runtime.advance(40)  # an edge of `sums`, as is 15: no row is read for what it has
        asked = [(QUERIES[0], "pieces in tasks"), ("SELECT COUNT(*) AS n, AVG(v) AS a FROM s [RANGE 25]", "sums")]
        for query, read in asked:
            for isolation in ("snapshot", "latest"):
                found = engine.ask(query, isolation=isolation)
                meta = found.schema.metadata
                assert meta[b"windrow.from"].decode().endswith(read)
                assert meta[b"windrow.isolation"].decode() == isolation
                assert bag(found) == wanted(query, pushed, int(meta[b"windrow.as_of"]))
        with pytest.raises(RuntimeFailure, match="took longer than 2 s"):
            engine.ask("SELECT SUM(dawdle(k)) AS s FROM s [RANGE 100]", timeout=2)
        engine.push("s", batch(5, 400))
        engine.drain(60)
        assert engine.runtime.ticker.frontier > 40
        running = spark.sparkContext.statusTracker().getActiveJobsIds()
        assert running == []  # what was given up takes no core
