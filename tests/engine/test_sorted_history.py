"""A question about a key finds its rows by search in the runs that are sorted by it: none too few, none too many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.runtime.ask import ask
from windrow.runtime.history_reader import HistoryFigures

ROWS = 30_000
TYPES = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "UBIGINT": pa.uint64(), "DATE": pa.date32()}
TESTS = {
    "k = {0}": lambda k: k == 17,
    "k >= {0} AND k < {1}": lambda k: (k >= 17) & (k < 40),
    "k > {1}": lambda k: k > 40,
    "k IN ({0}, {1})": lambda k: (k == 17) | (k == 40),
    "k = {2}": lambda k: k == 999,
    "k = {0} AND v > 0.5": None,
    "k IS NULL": None,
}


@pytest.mark.parametrize("sql", TYPES)
def test_keys_of_every_type(sql: str) -> None:
    """Equality, ranges, lists, values that are not there, and nulls, which lie last."""
    rng = np.random.default_rng(len(sql))
    k, v, null = rng.integers(0, 60, ROWS), rng.random(ROWS), rng.random(ROWS) < 0.05
    keys = pa.array(k, mask=null).cast(pa.int32() if sql == "DATE" else TYPES[sql]).cast(TYPES[sql])
    literal = [f"DATE '{np.datetime64(n, 'D')}'" if sql == "DATE" else str(n) for n in (17, 40, 999)]
    with windrow.Engine(runtime="local") as engine:
        engine.execute(f"CREATE STREAM s (ts BIGINT, k {sql}, v DOUBLE) TIMESTAMP BY ts RETAIN 100000")
        engine.start()
        engine.push("s", pa.table({"ts": np.arange(ROWS), "k": keys, "v": v}))
        for test, holds in TESTS.items():
            text = f"SELECT ts FROM s [RANGE 90000] WHERE {test.format(*literal)}"
            figures = HistoryFigures()
            got = ask(engine.question(text), figures=figures)
            want = null if holds is None and "NULL" in test else ((k == 17) & (v > 0.5) if holds is None else holds(k))
            want = want if "NULL" in test else want & ~null
            assert sorted(got["ts"].to_pylist()) == np.flatnonzero(want[:-1]).tolist(), test
            if test == "k = {0}":
                assert figures.bytes < figures.of_bytes / 20
