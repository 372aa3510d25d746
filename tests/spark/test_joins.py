"""Joins on Spark itself: grids, heavy keys and choices, through a restart, with the answer of one process."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow
from windrow.testing import assert_same

pytestmark = pytest.mark.spark

DECLARED = "(k BIGINT, id BIGINT, ts BIGINT) TIMESTAMP BY ts"
QUERIES = {
    "three": "SELECT ISTREAM(a.id, b.id AS i, c.id AS j) "
    "FROM A [RANGE 300] a, B [RANGE 300] b, C [RANGE 300] c WHERE a.k = b.k AND b.k = c.k",
    "both": "SELECT a.k, a.id, b.id AS i FROM A [RANGE 150] a, B [RANGE 150] b WHERE a.k = b.k",
    "chain": "SELECT ISTREAM(a.id, c.id AS j) FROM A [RANGE 200] a, B [RANGE 200] b, C [RANGE 20] c "
    "WHERE a.k = b.k AND b.id = c.id",
    "counts": "SELECT b.k, COUNT(*) AS n, SUM(a.id) AS s FROM A [RANGE 300] a, B [RANGE 300] b WHERE a.k = b.k "
    "GROUP BY b.k",
    "total": "SELECT COUNT(*) AS n, MAX(a.id) AS s FROM A [RANGE 400 SLIDE 200] a, B [RANGE 400 SLIDE 200] b "
    "WHERE a.k = b.k",
}
TICK = 1000


def rows(stream, number, size):
    """One tick of a stream: a third of the rows of A and B have one key, C has few rows at first, then many."""
    rng = np.random.default_rng(10 * number + ord(stream))
    ts = np.sort(rng.integers(TICK * number, TICK * (number + 1), size))
    k = np.where(rng.random(size) < (0.0 if stream == "C" else 0.35), 7, rng.integers(100, 2000, size))
    return pa.table({"k": k, "id": rng.integers(0, 10**6, size), "ts": ts})


def put(folder, number, table):
    """A file appears whole, in its turn."""
    os.makedirs(folder, exist_ok=True)
    pq.write_table(table, f"{folder}/.{number}")
    os.utime(f"{folder}/.{number}", (1_700_000_000 + number, 1_700_000_000 + number))
    os.rename(f"{folder}/.{number}", f"{folder}/{number:03d}.parquet")


def test_joins_adapt_and_answer_as_one_process(spark, tmp_path):
    """Rates change, a key is heavy, the engine restarts: the answers are those of one process, and EXPLAIN says why."""
    given = {s: [] for s in "ABC"}

    def feed(numbers):
        for number in numbers:
            for stream in "ABC":
                size = (40 if number < 3 else 3000) if stream == "C" else 3200
                given[stream].append(rows(stream, number, size))
                put(tmp_path / stream, number, given[stream][-1])

    declared = [f"CREATE STREAM {s} {DECLARED} FROM parquet (path => '{tmp_path / s}', max_files => 1)" for s in "ABC"]
    registered = [f"CREATE QUERY {name} AS {text}" for name, text in QUERIES.items()]
    for stream in "ABC":
        os.makedirs(tmp_path / stream)

    def opened(script=""):
        engine = windrow.Engine(home=str(tmp_path / "home"), spark=spark)
        engine.execute(script)
        for name in QUERIES:
            engine.sink(name, "parquet", path=str(tmp_path / "out"))
        engine.start()
        return engine

    feed(range(4))  # before the engine looks, so that a tick has a file of each stream and rates are those of the rows
    engine = opened("; ".join([*declared, *registered]))
    try:
        engine.drain(600)
    finally:
        engine.stop()
    feed(range(4, 8))
    engine = opened()
    try:
        engine.drain(600)
        shown = {name: json.loads(engine[name].explain("json")).get("joins", []) for name in QUERIES}
        text = engine["three"].explain()
        frontier = engine.runtime.ticker.frontier
    finally:
        engine.stop()
    script = "; ".join(
        [f"CREATE STREAM {s} {DECLARED}" for s in "ABC"] + [f"CREATE QUERY {n} AS {q}" for n, q in QUERIES.items()]
    )
    streams = {s: pa.concat_tables(t) for s, t in given.items()}
    want = windrow.run(script, streams, runtime="local", until=frontier)
    for name in QUERIES:
        parts = sorted((tmp_path / "out" / name).rglob("*.parquet"))
        assert want[name].num_rows
        assert_same(pa.concat_tables([pq.read_table(p, partitioning=None) for p in parts]), want[name])
    (three, heavy) = shown["three"]
    assert set(three["statistics"]) == {"a", "b", "c"} and three["alternatives"] and heavy["heavy keys"] == 1
    assert three["statistics"]["a"]["rate"] == pytest.approx(3.2, rel=0.2)
    assert three["statistics"]["c"]["distinct"] and three["matches per probe"]
    assert "matches per probe" in text and "alternatives" in text
    assert set(shown["counts"][0]["costs"]) == {"00", "01", "10", "11"}
