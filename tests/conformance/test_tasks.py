"""The tasks of the Spark runtime, without a JVM: local answers, whatever the partitions, the batches and the faults."""

from __future__ import annotations

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.testing import assert_same, oracle, seeded_case

CASES, GROUPS = 120, 12

WAYS = ((1, None, "upa"), (2, 5, "upa"), (3, 3, "negative"), (2, 4, "direct"))
"""(partitions, rows per batch, strategy), none of which may change an answer."""

TABLE_QUERIES = (
    "SELECT a AS c FROM S [RANGE 4] UNION ALL SELECT k AS c FROM P",
    "SELECT a AS c FROM S [RANGE 4] UNION SELECT k AS c FROM P",
    "SELECT k AS c FROM P EXCEPT ALL SELECT a AS c FROM S [ROWS 3]",
    "SELECT a AS c FROM S [ROWS 3] EXCEPT ALL SELECT k AS c FROM P",
    "SELECT a AS c FROM S [RANGE 3] INTERSECT SELECT k AS c FROM P",
    "SELECT p.v FROM P p WHERE NOT EXISTS (SELECT * FROM S [RANGE 3] s WHERE s.a = p.k)",
    "SELECT p.v FROM P p WHERE EXISTS (SELECT * FROM S [RANGE 3] s WHERE s.b > p.k)",
    "SELECT s.a, d.n FROM S [ROWS 2] s, (SELECT k, COUNT(*) AS n FROM P GROUP BY k) d WHERE s.a = d.k",
    "SELECT s.a FROM S [RANGE 5] s WHERE EXISTS (SELECT * FROM P p WHERE p.k = s.a)",
    "SELECT s.a, p.v FROM S [RANGE 5] s LEFT JOIN P p ON p.k = s.a",
    "SELECT p.v, s.a FROM P p LEFT JOIN S [RANGE 5] s ON p.k = s.a",
    "SELECT COUNT(*) AS n FROM S [RANGE 2] s CROSS JOIN P p",
    "SELECT s.a, d.n FROM S [ROWS 2] s, (SELECT p.k, COUNT(*) AS n FROM P p JOIN P q USING (k) GROUP BY p.k) d "
    "WHERE s.a = d.k",
    "SELECT a, (SELECT MAX(q.v) FROM P p JOIN P q ON p.k = q.k AND p.v < q.v) AS m FROM S [RANGE 3]",
    "SELECT s.a, d.n FROM S [RANGE 3] s LEFT JOIN (SELECT q.v, COUNT(DISTINCT p.k) AS n, SUM(p.k) AS t FROM P p "
    "JOIN P q ON p.k <= q.k GROUP BY q.v) d ON s.a = d.n",
    "SELECT COUNT(*) AS n FROM S [RANGE 3] s CROSS JOIN (SELECT p.v, q.v AS w FROM P p LEFT JOIN P q "
    "ON p.k = q.k + 1) d",
    "SELECT COUNT(*) AS n FROM S [RANGE 3] s CROSS JOIN (SELECT PRODUCT(p.k) AS m FROM P p) d",
    "SELECT s.a, SUM(d.k) AS n FROM S [RANGE 3] s CROSS JOIN (SELECT k FROM P EXCEPT SELECT k + 1 FROM P) d "
    "GROUP BY s.a",
    "SELECT COUNT(*) AS n FROM S [RANGE 3] s, (SELECT MIN(p.k) AS k FROM P p JOIN P q USING (k)) d WHERE s.a = d.k",
)
"""Tables are in every partition: each row must count once all the same."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let what tasks send each other be compressed, and travel in several pieces."""
    monkeypatch.setattr("windrow.runtime.wire.LONG", 300)
    monkeypatch.setattr("windrow.runtime.wire.PIECE", 700)
    monkeypatch.setattr("windrow.runtime.wire.BATCH", 2000)


def check(job, home, case, ways=WAYS):
    """Compare ticks of tasks with the local answer."""
    script, streams, tables, until = case
    want = windrow.run(script, streams, tables, runtime="local", until=until)
    for number, (partitions, rows, strategy) in enumerate(ways):
        replay = Replay.of(script, streams, tables, until, strategy=strategy)
        got = replay.in_home(str(home / f"{number}"), job(2, chaos=number), rows, strategy, partitions=partitions)
        for name in want:
            try:
                assert_same(got[name], want[name])
            except AssertionError as error:
                raise AssertionError(f"{script}\n{partitions} partitions, batches of {rows}: {error}") from error


@pytest.mark.parametrize("first", range(5000, 5000 + CASES, GROUPS))
def test_random_cases_equal_the_local_answer(first, in_process_job, tmp_path):
    """Envelopes in any order, repeated tasks and forgetful workers change nothing."""
    for seed in range(first, first + GROUPS):
        check(in_process_job, tmp_path / str(seed), seeded_case(seed))


@pytest.mark.parametrize("query", TABLE_QUERIES)
def test_rows_of_tables_count_once(query, in_process_job, tmp_path):
    """What comes from tables alone is computed everywhere and counted once."""
    rows = [(1, 2, 9), (2, 1, 9), (2, 2, 10), (None, 1, 13), (1, 1, 17), (3, 3, 30)]
    a, b, ts = zip(*rows, strict=True)
    tables = {"P": pa.table({"k": [1, 2, 2, 5], "v": ["x", "y", "z", "w"]})}
    case = (query, {"S": pa.table({"a": a, "b": b, "ts": ts})}, tables, 41)
    assert_same(windrow.run(*case[:3], runtime="local", until=41)["q1"], oracle(*case)["q1"])
    check(in_process_job, tmp_path, case)


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_ties_in_time_keep_their_order_of_arrival(pieces, in_process_job, tmp_path):
    """A ROWS window sees equal times in the order of the source's partitions, however envelopes travel."""
    rows = {"a": list(range(12)), "ts": [1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]}
    script = "SELECT SUM(a) AS s FROM S [ROWS 3]; SELECT a FROM S [ROWS 2 SLIDE 2]"
    want = windrow.run(script, {"S": pa.table(rows)}, runtime="local")
    got = Replay.of(script, {"S": pa.table(rows)}, {}).in_home(
        str(tmp_path), in_process_job(pieces, chaos=1), 5, "upa", partitions=3
    )
    for name in want:
        assert_same(got[name], want[name])


@pytest.mark.parametrize("shape", ["window function", "session", "bounds", "limit"])
def test_operators_with_state_of_their_own_equal_the_local_answer(shape, in_process_job, tmp_path):
    """TUMBLE, HOP, SESSION and LIMIT in tasks, with state that is written and read again."""
    for seed in range(6):
        check(in_process_job, tmp_path / str(seed), seeded_case(seed, shapes=[shape]))
