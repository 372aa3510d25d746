"""On Spark: one-time queries at both levels, archives and kept answers, as in process."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import windrow
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
