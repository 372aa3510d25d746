"""Comparisons of a stream's time with NOW() are windows: the answer is that of the window, at every instant."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

DECLARED = """
CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP) TIMESTAMP BY ts;
CREATE STREAM u (k BIGINT, ts TIMESTAMP) TIMESTAMP BY ts;
CREATE TABLE t (k BIGINT, name VARCHAR);
CREATE VIEW seen AS SELECT k, ts AS at FROM s WHERE v > 1;
"""
OPEN, CLOSED = "[RANGE 5 MINUTES]", "[RANGE 300000001 MICROSECONDS]"
COUNTED = "SELECT k, COUNT(*) AS n FROM s {} GROUP BY k"

WRITTEN = {
    "SELECT k, COUNT(*) AS n FROM s WHERE ts > NOW() - INTERVAL '5 minutes' GROUP BY k": COUNTED.format(OPEN),
    "SELECT k, COUNT(*) AS n FROM s WHERE ts >= NOW() - INTERVAL '5' MINUTE GROUP BY k": COUNTED.format(CLOSED),
    "SELECT v FROM s WHERE v > 2 AND CURRENT_TIMESTAMP - INTERVAL 5 MINUTES < ts":
        f"SELECT v FROM s {OPEN} WHERE v > 2",
    "SELECT v FROM s WHERE ts > CURRENT_TIMESTAMP::TIMESTAMP - INTERVAL 5 MINUTES": f"SELECT v FROM s {OPEN}",
    "SELECT v FROM s WHERE mz_now() <= ts + INTERVAL '5 minutes'": f"SELECT v FROM s {CLOSED}",
    "SELECT v FROM s WHERE NOW() - ts < INTERVAL '4 minutes' + INTERVAL '1 minute'": f"SELECT v FROM s {OPEN}",
    "SELECT v FROM s WHERE ts BETWEEN NOW() - INTERVAL '5 minutes' AND NOW()": f"SELECT v FROM s {CLOSED}",
    "SELECT v FROM s WHERE ts > TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 5 MINUTE)": f"SELECT v FROM s {OPEN}",
    "SELECT v FROM s WHERE ts <= NOW()": "SELECT v FROM s",
    "SELECT t.k, COUNT(s.k) AS n FROM t LEFT JOIN s ON t.k = s.k AND s.ts > NOW() - INTERVAL '5 minutes' GROUP BY t.k":
        f"SELECT t.k, COUNT(s.k) AS n FROM t LEFT JOIN s {OPEN} ON t.k = s.k GROUP BY t.k",
    "SELECT s.k, name FROM s JOIN t ON s.k = t.k WHERE ts > NOW() - INTERVAL '5 minutes'":
        f"SELECT s.k, name FROM s {OPEN} JOIN t ON s.k = t.k",
    "SELECT s.v, u.ts FROM s, u WHERE s.k = u.k AND s.ts > NOW() - INTERVAL 5 MINUTE AND "
    "u.ts > NOW() - INTERVAL 1 HOUR":
        f"SELECT s.v, u.ts FROM s {OPEN}, u [RANGE 1 HOUR] WHERE s.k = u.k",
    "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.ts > NOW() - INTERVAL '5 minutes')":
        f"SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u {OPEN} WHERE u.k = t.k)",
    "WITH r AS (SELECT * FROM s WHERE ts > NOW() - INTERVAL '5 minutes') SELECT k, COUNT(*) AS n FROM r GROUP BY k":
        COUNTED.format(OPEN),
    "SELECT k, COUNT(*) AS n FROM seen WHERE at > NOW() - INTERVAL '5 minutes' GROUP BY k":
        f"SELECT k, COUNT(*) AS n FROM s {OPEN} WHERE v > 1 GROUP BY k",
    "SELECT ISTREAM(k, v) FROM s WHERE ts > NOW() - INTERVAL '5 minutes' AND v > 1":
        f"SELECT ISTREAM(k, v) FROM s {OPEN} WHERE v > 1",
    "SELECT k, SUM(v) AS n FROM s WHERE ts > NOW() - INTERVAL '5 minutes' GROUP BY k ORDER BY n DESC LIMIT 1":
        f"SELECT k, SUM(v) AS n FROM s {OPEN} GROUP BY k ORDER BY n DESC LIMIT 1",
}  # fmt: skip


def given():
    """Rows that are exactly five minutes apart, and others."""
    at = [dt.datetime(2024, 3, 30, 22, 50) + dt.timedelta(minutes=m) for m in (0, 2, 5, 5, 7, 10, 16, 21, 26.5)]
    s = pa.table({"k": [1, 2, 1, 2, 2, 1, 1, 2, 1], "v": [1, 2, 3, 4, 1, 2, 3, 1, 2], "ts": at})
    return {"s": s, "u": s.select(["k", "ts"])}, {"t": pa.table({"k": [1, 2, 3], "name": ["a", "b", "c"]})}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_comparison_with_now_is_a_window(text):
    """At every instant, at once and by few rows."""
    want = oracle(f"{DECLARED} CREATE QUERY q AS {WRITTEN[text]}", *given())["q"]
    assert want.num_rows
    for way in ({}, {"batch_rows": 2}):
        assert_same(windrow.run(f"{DECLARED} CREATE QUERY q AS {text}", *given(), runtime="local", **way)["q"], want)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT v FROM s WHERE v > 1 OR ts > NOW() - INTERVAL '5 minutes'", "changes by itself"),
        ("SELECT v FROM s WHERE ts > NOW()", "changes by itself"),
        ("SELECT v FROM s WHERE ts < NOW() - INTERVAL '5 minutes'", "changes by itself"),
        ("SELECT v FROM s [RANGE 1 HOUR] WHERE ts > NOW() - INTERVAL '5 minutes'", "changes by itself"),
        ("SELECT t.k FROM t LEFT JOIN s ON t.k = s.k WHERE s.ts > NOW() - INTERVAL '5 minutes'", "changes by itself"),
        ("SELECT a.v FROM s a, s b WHERE ts > NOW() - INTERVAL '5 minutes'", 'ambiguous column "ts"'),
        ("SELECT v FROM s WHERE ts > NOW() - INTERVAL '1 month'", "is not a length of time"),
    ],
)
def test_other_comparisons_are_refused(text, says):
    """What is no window of time, or would be one below an outer join."""
    with pytest.raises(WindrowError, match=says):
        windrow.run(DECLARED + text, *given(), runtime="local")
