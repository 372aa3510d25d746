"""UNNEST in a select list: the rows that SQL makes of lists, wherever the relation goes next."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow
from windrow.engine.replay import Replay
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

SCRIPT = """
CREATE STREAM S (ts BIGINT, k BIGINT, l BIGINT[], m VARCHAR[], f DOUBLE[2]);
CREATE TABLE P (n BIGINT, l BIGINT[]);
CREATE QUERY one AS SELECT k, UNNEST(l) AS x FROM S [RANGE 4];
CREATE QUERY two AS SELECT UNNEST(l) AS x, k, unnest(m) AS y FROM S [ROWS 3];
CREATE QUERY same AS SELECT k, UNNEST(l) + UNNEST(l) AS x, UNNEST(l) * 10 AS y FROM S [RANGE 3 SLIDE 2];
CREATE QUERY fixed AS SELECT UNNEST(f) AS x, UNNEST([k, 7]) AS y FROM S [RANGE 3];
CREATE QUERY only AS SELECT DISTINCT UNNEST(l) AS x FROM S [ROWS 4];
CREATE QUERY entering AS SELECT ISTREAM(k, UNNEST(m) AS y) FROM S [RANGE 2];
CREATE QUERY leaving AS SELECT DSTREAM(UNNEST(l) AS x) FROM S [RANGE 4 SLIDE 3];
CREATE QUERY case_ AS SELECT coalesce(UNNEST(l), -1) AS x, CASE WHEN k > 1 THEN UNNEST(m) END AS y FROM S [RANGE 4];
CREATE QUERY frequent AS SELECT k, UNNEST(TOP_K(l, 2)) AS x, COUNT(*) AS n FROM S [RANGE 5] GROUP BY k;
CREATE QUERY counted AS SELECT q.x, COUNT(*) AS n FROM (SELECT k, UNNEST(l) AS x FROM S [RANGE 5]) AS q GROUP BY q.x;
CREATE QUERY periodic AS
    SELECT q.x, SUM(q.k) AS n FROM (SELECT k, UNNEST(l) AS x FROM S [RANGE 5 SLIDE 2]) AS q GROUP BY q.x;
CREATE QUERY joined AS SELECT q.x, p.n FROM (SELECT UNNEST(l) AS x FROM S [RANGE 5]) AS q JOIN P AS p ON p.n = q.x;
CREATE QUERY tabled AS SELECT s.k, p.x FROM S AS s [RANGE 3] JOIN (SELECT n, UNNEST(l) AS x FROM P) AS p ON p.n = s.k;
CREATE QUERY united AS SELECT UNNEST(l) AS x FROM S [RANGE 4] EXCEPT ALL SELECT k AS x FROM S [ROWS 2];
"""
FROM = """
CREATE STREAM S (ts BIGINT, k BIGINT, l BIGINT[], m VARCHAR[], f DOUBLE[2]);
CREATE TABLE P (n BIGINT, l BIGINT[]);
CREATE QUERY comma AS SELECT s.k, u.x FROM S AS s [RANGE 4], UNNEST(s.l) AS u(x) WHERE u.x > s.k;
CREATE QUERY crossed AS SELECT s.k, x, n FROM S AS s [ROWS 3] CROSS JOIN UNNEST(s.m) WITH ORDINALITY AS u(x, n);
CREATE QUERY padded AS SELECT s.k, u.x FROM S AS s [RANGE 3 SLIDE 2] LEFT JOIN UNNEST(s.l) AS u(x) ON TRUE;
CREATE QUERY tallied AS SELECT u.x, COUNT(*) AS n FROM S AS s [RANGE 5], UNNEST(s.l) AS u(x) GROUP BY u.x;
CREATE QUERY twice AS SELECT a.x, b.y FROM S AS s [RANGE 3], UNNEST(s.l) AS a(x), UNNEST(s.m) AS b(y);
CREATE QUERY met AS SELECT s.k, u.x, p.n FROM S AS s [RANGE 4], UNNEST(s.l) AS u(x), P AS p WHERE p.n = u.x;
CREATE QUERY made AS SELECT s.k, v.a FROM S AS s [RANGE 4], LATERAL (SELECT s.k * 2 + 1 AS a) AS v(a) WHERE v.a > 1;
CREATE QUERY some AS
    SELECT s.k, v.x FROM S AS s [RANGE 4] CROSS JOIN LATERAL (SELECT x FROM UNNEST(s.l) AS u(x) WHERE x > s.k) AS v(x);
CREATE QUERY given AS SELECT ISTREAM(s.k, u.x) FROM S AS s [RANGE 2], UNNEST([s.k, 7]) AS u(x);
CREATE QUERY tables AS SELECT s.k, u.x FROM S AS s [RANGE 3] JOIN P AS p ON p.n = s.k CROSS JOIN UNNEST(p.l) AS u(x);
"""

lists = st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3)
texts = st.none() | st.lists(st.none() | st.sampled_from("ab"), max_size=3)
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), lists, texts), max_size=12)


def streams(found):
    times, at = [], 0
    for step, *_ in found:
        at += step
        times.append(at)
    columns = {
        "ts": pa.array(times, pa.int64()),
        "k": pa.array([k for _, k, _, _ in found], pa.int64()),
        "l": pa.array([x for *_, x, _ in found], pa.list_(pa.int64())),
        "m": pa.array([y for *_, y in found], pa.list_(pa.string())),
        "f": pa.array([None if k == 3 else [k / 2, None] for _, k, _, _ in found], pa.list_(pa.float64(), 2)),
    }
    return {"S": pa.table(columns)}


TABLES = {"P": pa.table({"n": [0, 1, 1, None], "l": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64()))})}


@pytest.mark.parametrize("script", [SCRIPT, FROM], ids=["in the select list", "in FROM"])
@settings(max_examples=12)
@given(rows, st.sampled_from([None, 1, 3]), st.sampled_from(["upa", "negative", "direct"]))
def test_rows_of_lists_are_those_of_sql(script, found, batch, strategy):
    """Nulls, empty lists, several lists side by side, expressions around them, above and below aggregates and joins."""
    want = oracle(script, streams(found), TABLES)
    got = windrow.run(script, streams(found), TABLES, runtime="local", batch_rows=batch, strategy=strategy)
    for name in want:
        assert_same(got[name], want[name])


def test_tasks_unnest_too(in_process_job, tmp_path):
    """Spread over partitions, from state in files."""
    choose = random.Random(1)
    some = [
        (choose.randint(0, 1), choose.randint(0, 3), choose.choices([0, 1, 2, None], k=choose.randint(0, 3)), ["a"])
        for _ in range(20)
    ]
    want = oracle(SCRIPT, streams(some), TABLES)
    replay = Replay.of(SCRIPT, streams(some), TABLES)
    got = replay.in_home(str(tmp_path), in_process_job(2, chaos=3), 6, "upa", partitions=2)
    for name in want:
        assert_same(got[name], want[name])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT k FROM S WHERE UNNEST(l) > 1", "makes rows"),
        ("SELECT SUM(UNNEST(l)) AS s FROM S", "makes rows"),
        ("SELECT UNNEST(l) AS x, COUNT(*) AS n FROM S GROUP BY UNNEST(l)", "makes rows"),
        ("SELECT generate_subscripts(l, 1) AS x FROM S", "makes rows"),
        ("SELECT UNNEST(UNNEST([l])) AS x FROM S", "several levels"),
        ("SELECT UNNEST([l], recursive := true) AS x FROM S", "several levels"),
        ("SELECT UNNEST(k) AS x FROM S", "UNNEST of a BIGINT"),
        ("SELECT UNNEST({a: k}) AS x FROM S", "UNNEST of a STRUCT"),
        ("SELECT UNNEST(MAP {'a': k}) AS x FROM S", "UNNEST of a MAP"),
        ("SELECT x FROM S, UNNEST(k) AS u(x)", "UNNEST of a BIGINT"),
        ("SELECT x FROM S a JOIN S b ON a.k = b.k, UNNEST(a.l || b.l) AS u(x)", "several parts of FROM"),
        ("SELECT x FROM S RIGHT JOIN UNNEST(l) AS u(x) ON TRUE", "RIGHT JOIN"),
        ("SELECT x FROM S LEFT JOIN UNNEST(l) AS u(x) ON x > 1", "LEFT JOIN"),
        ("SELECT n FROM S, LATERAL (SELECT COUNT(*) AS n FROM UNNEST(S.l) AS u(x)) AS v", "more than the row"),
        ("SELECT n FROM S, LATERAL (SELECT b.k AS n FROM S b WHERE coalesce(b.k, 0) > S.k) AS v", "more than the row"),
    ],
)
def test_what_unnest_cannot_do_is_refused(query, said):
    """Before anything runs, with a hint."""
    with pytest.raises(WindrowError, match=said) as caught:
        Replay.of(query, streams([]), {})
    assert caught.value.hint
