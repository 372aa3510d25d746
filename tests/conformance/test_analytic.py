"""Functions OVER a partition, bounded ranks, and the first rows where they meet the rest of the language."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.testing import assert_same, oracle

DECLARED = "CREATE STREAM s (k BIGINT, x DOUBLE, t VARCHAR, ts BIGINT) TIMESTAMP BY ts;\n"
WINDOWS = ("[RANGE 5]", "[RANGE 6 SLIDE 3]", "[ROWS 7]")
QUERIES = (
    "SELECT k, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM s {w}",
    "SELECT k, x FROM s {w} QUALIFY DENSE_RANK() OVER (PARTITION BY k ORDER BY x) BETWEEN 2 AND 3",
    "SELECT k, x - LAG(x) OVER (PARTITION BY k ORDER BY ts) AS d FROM s {w}",
    "SELECT t, AVG(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS m FROM s {w}",
    "SELECT k, MAX(x) - MIN(x) AS d, RANK() OVER (ORDER BY MAX(x) - MIN(x) DESC) AS r FROM s {w} GROUP BY k",
    "SELECT k, x FROM s {w} WHERE x IN (SELECT x FROM s {w} ORDER BY x LIMIT 2)",
    "SELECT k, x FROM s {w} WHERE k IN (SELECT k FROM s {w} QUALIFY ROW_NUMBER() OVER (ORDER BY x) = 1)",
    "SELECT [x, k] AS l, t FROM s {w} ORDER BY l DESC LIMIT 3",
)


def rows(count=60, seed=5):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "k": random.integers(0, 3, count),
            "x": random.integers(0, 9, count) / 4,
            "t": [f"t{i}" for i in range(count)],
            "ts": np.sort(random.integers(0, 25, count)),
        }
    )


@pytest.mark.parametrize("query", QUERIES)
def test_the_oracle_agrees(query):
    """At every instant, row by row and at once, with and without the rule that bounds ranks."""
    script = DECLARED + ";\n".join(query.format(w=w) for w in WINDOWS)
    want = oracle(script, {"s": rows()})
    for way in ({}, {"batch_rows": 4}, {"without": ["rank_top_n"]}):
        got = windrow.run(script, {"s": rows()}, runtime="local", **way)
        for name in want:
            assert_same(got[name], want[name])


def test_a_named_window_is_the_window_it_names():
    """With a partition from one name and an order from another."""
    named = (
        "SELECT k, SUM(x) OVER w AS a, RANK() OVER v AS b FROM s [RANGE 5] "
        "WINDOW w AS (PARTITION BY k), v AS (w ORDER BY x)"
    )
    spelled = (
        "SELECT k, SUM(x) OVER (PARTITION BY k) AS a, RANK() OVER (PARTITION BY k ORDER BY x) AS b FROM s [RANGE 5]"
    )
    got = windrow.run(f"{DECLARED}{named};{spelled}", {"s": rows()}, runtime="local")
    assert got["q1"].equals(got["q2"])


def test_a_bounded_rank_is_a_top_n():
    """In QUALIFY and in a subquery; other uses of a rank are not."""
    engine = windrow.Engine(runtime="local")
    engine.execute(
        DECLARED + "CREATE QUERY a AS SELECT k FROM s [RANGE 5] QUALIFY RANK() OVER (ORDER BY x) <= 3;"
        "CREATE QUERY b AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) n FROM s) WHERE n<3;"
        "CREATE QUERY c AS SELECT k FROM s [RANGE 5] QUALIFY RANK() OVER (ORDER BY x) <= k"
    )
    plans = [engine[q].explain() for q in "abc"]
    assert ["top" in p for p in plans] == [True, True, False]
    assert ["analytic" in p for p in plans] == [False, False, True]


def test_bounds_that_differ_are_plans_that_differ():
    """Queries whose texts differ in the bound of a rank only; a bound below 1 shows nothing."""
    ranked = "SELECT k, x FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY x) AS r FROM s [RANGE 5]) WHERE r"
    bounds = [f"{op} {n}" for n in (3, 1, 0, 2) for op in ("<=", "<", "=")]
    script = DECLARED + ";\n".join(f"CREATE QUERY q{i} AS {ranked} {b}" for i, b in enumerate(bounds))
    got = windrow.run(script, {"s": rows()}, runtime="local")
    for name, want in oracle(script, {"s": rows()}).items():
        assert_same(got[name], want)


@pytest.mark.spark
def test_both_runtimes_agree():
    """Functions and bounded ranks by partition, on Spark."""
    script = DECLARED + ";\n".join(q.format(w="[RANGE 5]") for q in QUERIES[:3])
    want = windrow.run(script, {"s": rows()}, runtime="local")
    got = windrow.run(script, {"s": rows()}, runtime="spark")
    for name in want:
        assert_same(got[name], want[name])
