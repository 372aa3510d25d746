"""ASOF JOIN: the newest row at or before, whatever the windows, the batches, the partitions and restarts."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.errors import BindingError, UnsupportedError
from windrow.optimize import names
from windrow.testing import assert_same, oracle, seeded_case

CASES, GROUPS = 24, 8
STREAMS = {
    "t": pa.table({"ts": [1, 3, 5, 6, 9], "k": ["x", "x", "y", "x", "x"], "p": [1, 2, 3, 4, 5]}),
    "q": pa.table({"ts": [2, 4, 6, 6], "k": ["x"] * 4, "b": [10, 20, 31, 30]}),
}


def run(query, **more):
    found = windrow.run(query, STREAMS, runtime="local", **more)["q1"]
    return sorted((tuple(r.values()) for r in found.to_pylist()), key=str)


WAYS = ({}, {"batch_rows": 7, "strategy": "negative"}, {"batch_rows": 3, "strategy": "direct"})


@pytest.mark.parametrize("first", range(0, CASES, GROUPS))
def test_random_cases_equal_the_oracle(first):
    """By times and by other values, with streams, queries and tables, continuous and periodic."""
    for seed in range(first, first + GROUPS):
        script, streams, tables, until = seeded_case(seed, shapes=("asof",))
        want = oracle(script, streams, tables, until)
        for way in (*WAYS, {"batch_rows": 2, "without": names()}):
            got = windrow.run(script, streams, tables, runtime="local", until=until, **way)
            for name in want:
                assert_same(got[name], want[name])


@pytest.mark.parametrize("first", range(1000, 1012, 4))
def test_partitions_and_restarts_change_nothing(first, in_process_job, run_with_restarts, tmp_path):
    """The same answers from tasks, and from states that were written and read before every batch."""
    for seed in range(first, first + 4):
        case = seeded_case(seed, shapes=("asof",))
        want, strategy = oracle(*case), ("upa", "negative", "direct")[seed % 3]
        replay = Replay.of(*case, strategy=strategy)
        home = str(tmp_path / str(seed))
        got = replay.in_home(home, in_process_job(2, chaos=seed), 4, strategy, partitions=1 + seed % 3)
        for name in want:
            assert_same(got[name], want[name])
        for name, table in run_with_restarts(*case, 4, strategy).items():
            if table is not None:
                assert_same(table, want[name])


@pytest.mark.parametrize("on", ["", "l.a = r.a AND ", "l.s = r.s AND l.a = r.a AND "])
@pytest.mark.parametrize("order", ["l.ts >= r.ts", "l.b > r.b"])
def test_rows_of_count_windows_tie_in_the_order_of_arrival(on, order, in_process_job, run_with_restarts, tmp_path):
    """Whether the join's keys tell the window's partitions apart or not; one after the other or in tasks."""
    script = (
        f"SELECT l.a, l.b, r.n AS m FROM S [RANGE 3] l ASOF LEFT JOIN S [PARTITION BY a, s ROWS 2] r ON {on}{order}"
    )
    chance = random.Random(script)
    picked = {
        name: [chance.choice(values) for _ in range(40)] for name, values in (("a", "xy"), ("s", "pq"), ("b", "12"))
    }
    rows = pa.table({**picked, "n": list(range(40)), "ts": [i // 4 for i in range(40)]})
    case = (script, {"S": rows}, {}, 15)
    want = oracle(*case)["q1"]
    assert_same(windrow.run(script, {"S": rows}, runtime="local", until=15)["q1"], want)
    assert_same(run_with_restarts(*case, 5, "upa")["q1"], want)
    got = Replay.of(*case).in_home(str(tmp_path), in_process_job(2, chaos=1), 5, "upa", partitions=3)
    assert_same(got["q1"], want)


def test_of_equal_times_the_last_to_arrive_is_met():
    """Rows of the same instant included; strictly before for `>`."""
    at_or_before = "SELECT p, b FROM t ASOF JOIN q ON t.k = q.k AND t.ts >= q.ts"
    assert run(at_or_before) == [(3, 1, 2, 10), (6, 1, 4, 30), (9, 1, 5, 30)]
    assert run(at_or_before.replace(">=", ">")) == [(3, 1, 2, 10), (6, 1, 4, 20), (9, 1, 5, 30)]


def test_a_window_on_the_right_bounds_which_rows_count():
    """A row is padded when its partner has left."""
    assert run("SELECT p, b FROM t [RANGE 4] ASOF LEFT JOIN q [RANGE 2] ON t.k = q.k AND t.ts >= q.ts WHERE p = 2") == [
        (3, 1, 2, 10), (4, -1, 2, 10), (4, 1, 2, None), (7, -1, 2, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "join",
    [
        "ASOF JOIN q USING (k, ts)",
        "ASOF JOIN q ON q.ts <= t.ts AND q.k = t.k",
        "ASOF INNER JOIN q MATCH_CONDITION (t.ts >= q.ts) ON t.k = q.k",
        "ASOF JOIN (SELECT * FROM q) AS q ON t.k = q.k AND t.ts >= q.ts AND TRUE",
    ],
)
def test_other_spellings(join):
    """DuckDB's USING, the inequality turned around, and MATCH_CONDITION."""
    rows = [r[1:] for r in run(f"SELECT p, b FROM t {join.replace(' AND TRUE', '')}") if r[2] < 4]
    assert rows == [(1, 2, 10)]


def test_times_of_streams_are_followed_as_they_come():
    """EXPLAIN says which: one pair a row, or anew whenever either side changes."""
    engine = windrow.Engine(runtime="local")
    engine.execute(
        "CREATE STREAM t (k BIGINT, x BIGINT, ts BIGINT) TIMESTAMP BY ts;"
        "CREATE STREAM q (k BIGINT, x BIGINT, ts BIGINT) TIMESTAMP BY ts;"
        "CREATE QUERY a AS SELECT t.x FROM t ASOF JOIN q ON t.k = q.k AND t.ts >= q.ts;"
        "CREATE QUERY b AS SELECT t.x FROM t [RANGE 5 SLIDE 5] ASOF LEFT JOIN q [RANGE 9] ON t.ts > q.ts;"
        "CREATE QUERY c AS SELECT t.x FROM t ASOF JOIN q ON t.k = q.k AND t.x >= q.x"
    )
    assert "asof join" in engine["a"].explain()
    assert "asof left join" in engine["b"].explain()
    assert "analytic" in engine["c"].explain()


@pytest.mark.parametrize(
    "condition, error, message",
    [
        ("t.k = q.k", BindingError, "one inequality"),
        ("t.ts >= q.ts AND t.p > q.b", BindingError, "one inequality"),
        ("t.ts >= q.ts AND t.p <> q.b", BindingError, "more than equalities"),
        ("t.ts <= q.ts", UnsupportedError, "first row afterwards"),
        ("t.ts >= q.k", BindingError, "type mismatch"),
    ],
)
def test_conditions_that_it_cannot_follow(condition, error, message):
    """Refused with what to write instead."""
    with pytest.raises(error, match=message):
        run(f"SELECT p FROM t ASOF JOIN q ON {condition}")


@pytest.mark.parametrize("join", ["ASOF RIGHT JOIN", "ASOF FULL JOIN"])
def test_other_sides_are_refused(join):
    """Only left rows look for partners."""
    with pytest.raises(UnsupportedError, match="JOIN"):
        run(f"SELECT p FROM t {join} q ON t.ts >= q.ts")


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("t [RANGE 5]", "DECIMAL(38, 2)", r'table "p" by a DECIMAL\(38,2\)'),
        ("t [ROWS 5]", "BIGINT", "no window of time over one stream"),
    ],
)
def test_tables_that_it_cannot_follow(left, right, message):
    """What is wrong is named: the type that is compared, or what the table is joined with."""
    declared = f"CREATE STREAM t (ts BIGINT, k {right}) TIMESTAMP BY ts; CREATE TABLE p (k {right});"
    with pytest.raises(UnsupportedError, match=message) as refused:
        windrow.run(f"{declared} SELECT t.ts AS at FROM {left} ASOF JOIN p ON t.k >= p.k", {}, {}, runtime="local")
    assert "RETROACTIVE" in refused.value.hint
