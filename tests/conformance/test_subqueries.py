"""Subqueries in expressions, NOT IN with nulls, marks under OR, FULL JOIN and grouping sets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.testing import assert_same, oracle

DECLARED = """
CREATE STREAM s (k BIGINT, x DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM r (k BIGINT, y DOUBLE, ts BIGINT) TIMESTAMP BY ts;
"""
WINDOWS = (("[RANGE 4]", "[RANGE 6]"), ("[RANGE 6 SLIDE 3]", "[RANGE 4 SLIDE 3]"), ("[ROWS 5]", "[RANGE 3]"))
QUERIES = (
    "SELECT s.k, s.x FROM s {w} WHERE x > (SELECT AVG(y) FROM r {v})",
    "SELECT s.k, s.x - (SELECT MAX(y) FROM r {v}) AS d FROM s {w}",
    "SELECT s.k, (SELECT COUNT(*) FROM r {v} WHERE r.k = s.k) AS n FROM s {w}",
    "SELECT s.k, (SELECT SUM(y) + 1 FROM r {v} WHERE r.k = s.k AND r.y > 1) AS t FROM s {w}",
    "SELECT k, COUNT(*) AS n FROM s {w} GROUP BY k HAVING COUNT(*) > (SELECT COUNT(*) / 3 FROM r {v})",
    "SELECT k, COUNT(*) AS n, (SELECT MIN(y) FROM r {v} WHERE r.k = s.k) AS m FROM s {w} GROUP BY k",
    "SELECT s.k, (SELECT y FROM r {v} ORDER BY y DESC LIMIT 1) AS top FROM s {w}",
    "SELECT s.k, s.x FROM s {w} WHERE x > 1.5 OR EXISTS (SELECT 1 FROM r {v} WHERE r.k = s.k)",
    "SELECT s.k, s.x FROM s {w} WHERE x > 1.5 OR NOT EXISTS (SELECT 1 FROM r {v} WHERE r.k = s.k AND r.y < s.x)",
    "SELECT s.k, s.x FROM s {w} WHERE x < 1 OR k IN (SELECT k FROM r {v})",
    "SELECT s.k, EXISTS (SELECT 1 FROM r {v} WHERE r.k = s.k) AS there FROM s {w}",
    "SELECT s.k, s.x FROM s {w} WHERE k NOT IN (SELECT k FROM r {v})",
    "SELECT s.k, s.x FROM s {w} WHERE k NOT IN (SELECT k FROM r {v} WHERE r.y > s.x)",
    "SELECT s.k, s.x FROM s {w} WHERE 2 NOT IN (SELECT k FROM r {v})",
    "SELECT s.k, s.x FROM s {w} WHERE x NOT IN (SELECT MAX(y) FROM r {v} GROUP BY k)",
    "SELECT k, x, y FROM s {w} FULL JOIN r {v} USING (k)",
    "SELECT s.k AS a, r.k AS b, x, y FROM s {w} FULL JOIN r {v} ON s.k = r.k AND x < y AND x > 0.5 AND y > 1",
    "SELECT k, x, COUNT(*) AS n, GROUPING(k, x) AS g FROM s {w} GROUP BY ROLLUP (k, x)",
    "SELECT 'all' AS whose, k, COUNT(*) AS n FROM s {w} GROUP BY ROLLUP ('all', k)",
    "SELECT k, x > 1 AS b, SUM(x) AS t FROM s {w} GROUP BY CUBE (k, b) HAVING COUNT(*) > 1",
    "SELECT k, x, LIST(x ORDER BY x) AS l FROM s {w} GROUP BY GROUPING SETS ((k, x), k, ())",
    "SELECT s.k AS a, r.k AS b, COUNT(*) AS n FROM s {w} FULL JOIN r {v} ON s.k = r.k GROUP BY s.k, r.k",
)


def rows(value, seed, count=35, nulls=0.06):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "k": pa.array(random.integers(0, 4, count), mask=random.random(count) < nulls),
            value: pa.array(random.integers(0, 9, count) / 4, mask=random.random(count) < nulls),
            "ts": np.sort(random.integers(0, 25, count)),
        }
    )


STREAMS = {"s": rows("x", 1), "r": rows("y", 2)}


@pytest.mark.parametrize("query", QUERIES)
def test_the_oracle_agrees(query):
    """At every instant, at once and by few rows."""
    script = DECLARED + ";\n".join(query.format(w=w, v=v) for w, v in WINDOWS)
    want = oracle(script, STREAMS)
    for way in ({}, {"batch_rows": 5}, {"strategy": "negative", "batch_rows": 9}):
        got = windrow.run(script, STREAMS, runtime="local", **way)
        for name in want:
            assert_same(got[name], want[name])


@pytest.mark.spark
def test_both_runtimes_agree():
    """A value, a mark, NOT IN and a full join, on Spark."""
    script = DECLARED + ";\n".join(QUERIES[i].format(w="[RANGE 4]", v="[RANGE 6]") for i in (0, 2, 7, 11, 15))
    want = windrow.run(script, STREAMS, runtime="local")
    got = windrow.run(script, STREAMS, runtime="spark")
    for name in want:
        assert_same(got[name], want[name])
