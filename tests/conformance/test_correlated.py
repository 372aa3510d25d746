"""Subqueries that comparisons link to the rows around them: values, LATERAL, and the first row by an order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

DECLARED = """
CREATE STREAM s (id BIGINT, k BIGINT, a BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM q (k BIGINT, b BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE t (k BIGINT, lim BIGINT);
"""
WINDOWS = ("", "[RANGE 6]", "[RANGE 6 SLIDE 3]", "[ROWS 5]")

VALUES = (
    "SELECT s.id, (SELECT COUNT(*) FROM q {w} WHERE q.k = s.k AND q.ts <= s.ts) AS n FROM s {w}",
    "SELECT *, (SELECT MAX(q.b) FROM q {w} WHERE q.b < s.a) AS m FROM s {w}",
    "SELECT s.id, (SELECT SUM(o.a) FROM s {w} o WHERE o.k = s.k AND o.ts BETWEEN s.ts - 3 AND s.ts) AS v FROM s {w}",
    "SELECT s.id, (SELECT MAX(q.b) - s.a FROM q {w} WHERE q.k = s.k AND q.ts <= s.ts) AS d FROM s {w}",
    "SELECT s.id FROM s {w} WHERE s.a > (SELECT AVG(o.a) FROM s {w} o WHERE o.k = s.k AND o.ts < s.ts)",
    "SELECT t.k, (SELECT COUNT(*) FROM s {w} WHERE s.k = t.k AND s.a > t.lim) AS over FROM t",
    "SELECT s.k, COUNT(*) AS n FROM s {w} GROUP BY s.k HAVING COUNT(*) > (SELECT COUNT(*) FROM q {w} WHERE q.k < s.k)",
)
TUMBLING = (
    "SELECT a.id, (SELECT COUNT(*) FROM TUMBLE(q, ts, 2) b WHERE b.k = a.k) AS n FROM TUMBLE(s, ts, 2) a",
    "SELECT a.id FROM TUMBLE(s, ts, 2) a WHERE (SELECT COUNT(*) FROM TUMBLE(q, ts, 2) b WHERE b.k = a.k) = 0",
    "SELECT COUNT(*) AS n, (SELECT COUNT(*) FROM TUMBLE(q, ts, 1) b) AS m FROM TUMBLE(s, ts, 1) a",
    "SELECT a.id, (SELECT SUM(b.b) FROM HOP(q, ts, 1, 2) b WHERE b.k = a.k) AS n FROM HOP(s, ts, 1, 2) a",
)
TWINS = {
    "SELECT s.id, (SELECT q.b FROM q {w} WHERE q.k = s.k AND q.ts <= s.ts ORDER BY q.ts DESC, q.b LIMIT 1) AS b "
    "FROM s {w}":
        "SELECT s.id, (SELECT list(q.b ORDER BY q.ts DESC, q.b)[1] FROM q {w} WHERE q.k = s.k AND q.ts <= s.ts) AS b "
        "FROM s {w}",
    "SELECT *, (SELECT b FROM q {w} WHERE q.k = s.k ORDER BY b LIMIT 1) FROM s {w}":
        "SELECT *, (SELECT MIN(q.b) FROM q {w} WHERE q.k = s.k) AS b FROM s {w}",
    "SELECT s.id FROM s {w} WHERE s.a > (SELECT q.b FROM q {w} WHERE q.ts <= s.ts ORDER BY q.b DESC LIMIT 1)":
        "SELECT s.id FROM s {w} WHERE s.a > (SELECT MAX(q.b) FROM q {w} WHERE q.ts <= s.ts)",
    "SELECT s.id, x.b FROM s {w}, LATERAL (SELECT q.b FROM q {w} WHERE q.k = s.k AND q.ts <= s.ts ORDER BY q.ts DESC, "
    "q.b LIMIT 2) x":
        "SELECT s.id, q.b FROM s {w} JOIN q {w} ON q.k = s.k AND q.ts <= s.ts QUALIFY ROW_NUMBER() OVER (PARTITION BY "
        "s.id ORDER BY q.ts DESC, q.b) <= 2",
    "SELECT g.k, b FROM (SELECT DISTINCT k FROM s {w}) g, LATERAL (SELECT b FROM q {w} WHERE k = g.k ORDER BY b "
    "LIMIT 2)":
        "SELECT g.k, b FROM (SELECT DISTINCT k FROM s {w}) g JOIN (SELECT k, b FROM q {w} QUALIFY ROW_NUMBER() OVER "
        "(PARTITION BY k ORDER BY b, ts) <= 2) x ON x.k = g.k",
    "SELECT * FROM s {w} LEFT JOIN LATERAL (SELECT q.b FROM q {w} WHERE q.b > s.a ORDER BY q.b LIMIT 1) x ON TRUE":
        "SELECT s.*, (SELECT MIN(q.b) FROM q {w} WHERE q.b > s.a) AS b FROM s {w}",
    "SELECT s.id, x.k, x.n FROM s {w} CROSS JOIN LATERAL (SELECT q.k, COUNT(*) AS n FROM q {w} WHERE q.b > s.a GROUP "
    "BY q.k) x":
        "SELECT s.id, q.k, COUNT(*) AS n FROM s {w} JOIN q {w} ON q.b > s.a GROUP BY s.id, q.k",
    "SELECT * FROM s {w}, LATERAL (SELECT COUNT(*) AS n, MAX(b) AS m FROM q {w} WHERE q.k = s.k) x WHERE x.n < 2 "
    "OR m > 4":
        "SELECT s.*, (SELECT COUNT(*) FROM q {w} WHERE q.k = s.k) AS n, (SELECT MAX(b) FROM q {w} WHERE q.k = s.k) AS "
        "m FROM s {w} WHERE (SELECT COUNT(*) FROM q {w} WHERE q.k = s.k) < 2 OR "
        "(SELECT MAX(b) FROM q {w} WHERE q.k = s.k) > 4",
    "SELECT s.id, x.n + 1 AS n FROM s {w} LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM q {w} WHERE q.b > s.a) x ON "
    "TRUE":
        "SELECT s.id, (SELECT COUNT(*) FROM q {w} WHERE q.b > s.a) + 1 AS n FROM s {w}",
}  # fmt: skip


def given():
    rng = np.random.default_rng(5)

    def rows(count, **columns):
        times = np.sort(rng.integers(0, 20, count))
        nulls = rng.random(count) < 0.1
        drawn = {n: pa.array(rng.integers(0, high, count), mask=nulls) for n, high in columns.items()}
        return {**drawn, "ts": times}

    s, q = rows(25, k=3, a=9), rows(25, k=3, b=9)
    return {"s": pa.table({"id": range(25), **s}), "q": pa.table(q)}, {
        "t": pa.table({"k": [0, 1, 7], "lim": [3, 5, 1]})
    }


def agree(text, same):
    want = oracle(f"{DECLARED} CREATE QUERY q1 AS {same}", *given())["q1"]
    assert want.num_rows
    for way in ({}, {"batch_rows": 6}):
        assert_same(windrow.run(f"{DECLARED} CREATE QUERY q1 AS {text}", *given(), runtime="local", **way)["q1"], want)


@pytest.mark.parametrize("text", TUMBLING)
def test_values_over_windows_without_partners_are_those_of_sql(text):
    """A count over a window without a partner is 0, a sum null: only the query itself is silent for empty windows."""
    agree(text, text)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("text", VALUES)
def test_values(text, window):
    """One value for each row around, continuously and periodically."""
    agree(*[text.format(w=window)] * 2)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("text", TWINS)
def test_first_rows(text, window):
    """What an order puts first among the rows that are linked, as other SQL says it."""
    agree(text.format(w=window), TWINS[text].format(w=window))


@pytest.mark.parametrize("op", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_stream_operators(op):
    """Over the answer as a whole."""
    text = f"SELECT {op}(s.id, (SELECT COUNT(*) FROM q [RANGE 6] WHERE q.b > s.a) AS n) FROM s [RANGE 6]"
    agree(text, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s.id, (SELECT COUNT(*) FROM q WHERE coalesce(q.b, s.a) > s.a) AS n FROM s",
        "SELECT s.id, (SELECT COUNT(*) FROM q WHERE q.b IS NOT DISTINCT FROM s.a OR q.b > s.a) AS n FROM s",
        "SELECT s.id, (SELECT COUNT(*) FROM q WHERE q.b > s.a AND q.ts < t.lim) AS n FROM s JOIN t ON s.k = t.k",
    ],
)
def test_what_may_hold_for_nulls_is_refused(text):
    """And what is linked to several inputs."""
    with pytest.raises(WindrowError, match="linked by more than equalities"):
        windrow.run(DECLARED + text, *given(), runtime="local")
