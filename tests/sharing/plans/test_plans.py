"""Continuous queries that are one dataflow answer what each would alone."""

from __future__ import annotations

import cProfile
import json
import pstats
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.operators.terms import QUERY
from windrow.plan.expr import Expr, Ref
from windrow.scalar_engine import connect
from windrow.sharing.plans.canonicalise import canonicalise
from windrow.sharing.plans.shape import PlanColumns
from windrow.testing import assert_same, oracle

Case = tuple[str, dict[str, str], dict[str, Any], dict[str, Any], int]
Forms = dict[str, tuple[str, ...]]


def scripted(declared: str, queries: dict[str, str]) -> str:
    """A script that declares everything."""
    return ";".join([declared, *(f"CREATE QUERY {name} AS {text}" for name, text in queries.items())])


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
@pytest.mark.parametrize(
    ("forms", "seed"),
    [
        *(("FORMS", i) for i in range(12)),
        *(("WHOLE", i) for i in range(6)),
        *(("PERIODIC", i) for i in range(8)),
        *(("ASOF", i) for i in range(6)),
    ],
)
def test_sets_equal_the_oracle(make_set: Callable[..., Case], all_forms: Forms, forms: str, seed: int) -> None:
    """Sharing on, sharing off, and the definition agree, whatever the batches."""
    declared, queries, streams, tables, until = make_set(seed, all_forms[forms])
    script = scripted(declared, queries)
    want = oracle(script, streams, tables, until)
    for sharing in ("auto", "off"):
        got = windrow.run(
            script, streams, tables, runtime="local", until=until, sharing=sharing, batch_rows=[None, 1, 5][seed % 3]
        )
        for name, text in queries.items():
            try:
                assert_same(got[name], want[name])
            except AssertionError as error:
                raise AssertionError(f"sharing {sharing}: {text}: {error}") from error


WHY = (
    *("it is the first of its kind", "a condition may raise", "an expression may raise"),
    "a window of rows counts the rows that it selects",
)
"""Why queries of random sets may run by themselves."""


def test_most_queries_share(make_set: Callable[[int], Case]) -> None:
    """Of random sets most queries are one dataflow with others; who is not says why."""
    said = []
    for seed in range(300, 308):
        declared, queries, streams, tables, _ = make_set(seed)
        engine = windrow.Engine(runtime="local")
        engine.execute(declared)
        for name, rows in tables.items():
            engine.table(name, rows)
        for name, text in queries.items():
            engine.execute(f"CREATE QUERY {name} AS {text}")
        engine.start()
        for name, rows in streams.items():
            engine.push(name, rows.slice(0, 1))
        said += [next(t for t in engine[q].explain().split("\n") if "sharing: " in t) for q in queries]
        engine.stop()
    alone = [text for text in said if "one dataflow with" not in text]
    assert all(any(why in text for why in WHY) for text in alone), alone
    assert len(said) - len(alone) >= 0.6 * len(said)


def played(case: Case, seed: int, sharing: str, home: Path | None = None, retain: str = "") -> dict[str, Any]:
    """Push rows in batches; between them queries come and go and, with a home, the engine is opened again."""
    declared, queries, streams, tables, _ = case
    r = random.Random(seed)

    def opened() -> windrow.Engine:
        return windrow.Engine(runtime="local", sharing=sharing, home=home)

    engine = opened()
    engine.execute(declared.replace("TIMESTAMP BY ts", f"TIMESTAMP BY ts {retain}"))
    for name, rows in tables.items():
        engine.table(name, rows)
    engine.start()
    waiting, here, answers = list(queries.items()), list[str](), dict[str, list[Any]]()
    at = dict.fromkeys(streams, 0)
    while waiting or any(at[n] < rows.num_rows for n, rows in streams.items()):
        for _ in range(r.choice([0, 1, 4])):
            if waiting:
                name, text = waiting.pop()
                engine.execute(f"CREATE QUERY {name} AS {text}")
                here.append(name)
        if here and r.random() < 0.2:
            gone = here.pop(r.randrange(len(here)))
            answers.setdefault(gone, []).append(engine[gone].results())
            engine.execute(f"DROP QUERY {gone}")
        for name, rows in streams.items():
            size = r.randint(1, 5)
            if at[name] < rows.num_rows:
                engine.push(name, rows.slice(at[name], size))
            at[name] += size
        if r.random() < 0.25 and home is not None:
            for name in here:
                answers.setdefault(name, []).append(engine[name].results())
            engine.stop()
            engine = opened()
            engine.start()
            if here and r.random() < 0.7:
                again = r.choice(here)
                engine.execute(f"DROP QUERY {again}")
                engine.execute(f"CREATE QUERY {again} AS {queries[again]}")
    engine.advance(max(max(rows.column("ts").drop_null().to_pylist(), default=0) for rows in streams.values()) + 50)
    snapshots = {f"{n} now": engine[n].snapshot() for n in here if engine[n].plan.has_op}
    for name in here:
        answers.setdefault(name, []).append(engine[name].results())
    engine.stop()
    return {name: pa.concat_tables(found) for name, found in answers.items()} | snapshots


@pytest.mark.parametrize("retain", ["", "RETAIN 6"])
@pytest.mark.parametrize(
    ("forms", "seed"),
    [
        *(("FORMS", i) for i in range(100, 106)),
        ("WHOLE", 100),
        ("WHOLE", 101),
        ("PERIODIC", 102),
        ("PERIODIC", 103),
        ("ASOF", 104),
        ("ASOF", 105),
    ],
)
def test_queries_come_and_go(
    make_set: Callable[..., Case], all_forms: Forms, forms: str, seed: int, retain: str
) -> None:
    """Whenever a query comes, with history or without, and whoever leaves, its answers are those it has alone."""
    case = make_set(seed, all_forms[forms])
    want, got = played(case, seed, "off", retain=retain), played(case, seed, "auto", retain=retain)
    same(want, got, case[1])


@pytest.mark.parametrize(
    ("forms", "seed"),
    [
        *(("FORMS", i) for i in range(200, 204)),
        ("WHOLE", 200),
        ("WHOLE", 201),
        ("PERIODIC", 202),
        ("PERIODIC", 203),
        ("ASOF", 204),
    ],
)
def test_a_home_goes_on(make_set: Callable[..., Case], all_forms: Forms, tmp_path: Path, forms: str, seed: int) -> None:
    """After a restart everybody finds the plan that he shared, and what it remembers."""
    case = make_set(seed, all_forms[forms])
    same(played(case, seed, "off", tmp_path / "off"), played(case, seed, "auto", tmp_path / "on"), case[1])


def same(want: dict[str, Any], got: dict[str, Any], queries: dict[str, str]) -> None:
    """The answers of all queries agree."""
    assert want.keys() == got.keys()
    for name, table in want.items():
        try:
            if name.endswith(" now"):
                rows = [sorted(map(str, t.to_pylist())) for t in (got[name], table)]
                assert rows[0] == rows[1]
            else:
                assert_same(got[name], table)
        except AssertionError as error:
            raise AssertionError(f"{name}: {queries[name.split()[0]]}: {error}") from error


def test_explain_says_with_whom() -> None:
    """EXPLAIN names the others and where rows part; a query that may raise runs, and stops, by itself."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, t VARCHAR, ts BIGINT) TIMESTAMP BY ts")
    for i in range(3):
        engine.execute(f"CREATE QUERY q{i} AS SELECT k, v FROM s [RANGE 5] WHERE v > {i}")
        engine.execute(f"CREATE QUERY bad{i} AS SELECT k FROM s WHERE CAST(t AS BIGINT) > {i}")
    engine.start()
    for ts in (1, 3, 5):
        engine.push("s", {"k": [1], "v": [7], "t": ["x"], "ts": [ts]})
    assert engine.status()["failed"].keys() == {"bad0", "bad1", "bad2"}
    assert "sharing: one dataflow with q0, q2" in engine["q1"].explain()
    assert "by query  route 3 queries" in engine["q1"].explain()
    assert engine["q0"].results().num_rows > 0
    engine.stop()


@pytest.mark.parametrize("retain", ["", "RETAIN 10"])
def test_statements_between_two_ticks_are_one_dataflow(retain: str) -> None:
    """Queries declared one by one in an engine that runs come together until rows come, as in one script."""
    engine = windrow.Engine(runtime="local")
    engine.execute(f"CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts {retain}")
    engine.start()
    engine.push("s", {"k": [1], "v": [7], "ts": [1]})
    for i in range(3):
        engine.execute(f"CREATE QUERY q{i} AS SELECT k FROM s [RANGE 5] GROUP BY k HAVING count(*) > {i}")
    engine.push("s", {"k": [1], "v": [1], "ts": [2]})
    engine.advance(3)
    assert ("sharing: one dataflow with q0, q2" in engine["q1"].explain()) == (not retain)
    assert [len(engine[f"q{i}"].results()) for i in range(3)] == ([1, 1, 0] if retain else [1, 0, 0])
    engine.stop()


def test_who_is_evaluated_too_often_stops_alone() -> None:
    """Of periodic queries that share one may have too many rows, and all together more than one may: others go on."""
    engine = windrow.Engine(runtime="local", max_rows=20)
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    for i in range(4):
        engine.execute(f"CREATE QUERY q{i} AS SELECT k, v FROM s [RANGE 9 SLIDE 3] WHERE v > {3 * i - 3}")
    engine.start()
    engine.push("s", {"k": [1] * 5, "v": [1, 4, 7, 5, 9], "ts": [1, 1, 1, 2, 2]})
    assert "sharing: one dataflow with q0, q2, q3" in engine["q1"].explain()
    engine.push("s", {"k": [1] * 3, "v": [-1, -2, 4], "ts": [3, 3, 20]})
    assert engine.status()["failed"].keys() == {"q0"}
    assert 'query "q0" would answer with 21 rows' in str(engine.status()["failed"]["q0"])
    engine.advance(40)
    assert [len(engine[f"q{i}"].results()) for i in (1, 2, 3)] == [18, 15, 6]
    engine.stop()


def test_who_repeats_too_much_stops_alone(tmp_path: Path) -> None:
    """Of queries that repeat their whole answers one may have too many rows: the others go on, over restarts too."""

    def opened() -> windrow.Engine:
        return windrow.Engine(runtime="local", home=tmp_path / "home", max_rows=20)

    engine = opened()
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    for i in range(3):
        engine.execute(f"CREATE QUERY q{i} AS SELECT RSTREAM(k, v) FROM s [RANGE 50] WHERE v > {3 * i}")
    engine.start()
    engine.push("s", {"k": [1] * 4, "v": [1, 4, 7, 2], "ts": [1, 2, 3, 4]})
    assert "sharing: one dataflow with q0, q2" in engine["q1"].explain()
    engine.push("s", {"k": [1] * 5, "v": [1] * 4 + [9], "ts": [5, 6, 7, 8, 9]})
    assert engine.status()["failed"].keys() == {"q0"}
    assert 'query "q0" would answer with 30 rows' in str(engine.status()["failed"]["q0"])
    engine.push("s", {"k": [1], "v": [8], "ts": [10]})
    assert "sharing: one dataflow with q2" in engine["q1"].explain()
    engine.stop()
    engine = opened()
    engine.start()
    engine.push("s", {"k": [1], "v": [5], "ts": [11]})
    engine.advance(11)
    found = {q: engine[q].results().to_pylist() for q in ("q0", "q1", "q2")}
    engine.stop()
    assert [r["v"] for r in found["q1"]] == [4, 7, 9, 8, 4, 7, 9, 8, 5]
    assert [r["v"] for r in found["q2"]] == [7, 9, 8]
    assert [r["v"] for r in found["q0"]] == [5]  # it began anew


def test_aggregates_of_selections_are_kept_by_cell() -> None:
    """EXPLAIN says so; queries come and go, and each has the answers of its own rows only."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    text = "CREATE QUERY q{0} AS SELECT k, count(*) AS n, sum(v) AS t FROM s [RANGE 5] WHERE v > {0} GROUP BY k"
    for i in range(3):
        engine.execute(text.format(i))
    engine.start()
    engine.push("s", {"k": [1, 1], "v": [1, 2], "ts": [1, 1]})
    engine.push("s", {"k": [1], "v": [5], "ts": [2]})
    assert "by cell   aggregate" in engine["q1"].explain()
    assert "sharing: one dataflow with q0, q2" in engine["q1"].explain()
    engine.execute("DROP QUERY q0")
    engine.execute(text.format(4))
    engine.push("s", {"k": [1], "v": [6], "ts": [3]})
    engine.advance(4)
    assert [r["n"] for r in engine["q1"].snapshot().to_pylist()] == [3]
    assert [r["n"] for r in engine["q4"].snapshot().to_pylist()] == [1]  # not what came before it
    engine.stop()


def test_what_becomes_empty_answers_over_nothing() -> None:
    """Aggregates without GROUP BY that share answer 0 and null from their clocks on, and when rows have gone."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    text = "CREATE QUERY q{0} AS SELECT count(*) AS n, sum(v) AS t FROM s [RANGE 3] WHERE k = {0}"
    for i in range(3):
        engine.execute(text.format(i))
    engine.start()
    engine.push("s", {"k": [1], "v": [5], "ts": [1]})
    assert "sharing: one dataflow with q0, q2" in engine["q1"].explain()
    assert "by reader over nothing" in engine["q1"].explain()
    assert "by cell   aggregate" in engine["q1"].explain()
    engine.advance(2)
    engine.execute(text.format(3))
    engine.advance(9)
    found = {f"q{i}": [tuple(r.values()) for r in engine[f"q{i}"].results().to_pylist()] for i in range(4)}
    assert found["q0"] == found["q2"] == [(1, 1, 0, None)]
    assert sorted(found["q1"]) == [(1, 1, 1, 5), (4, -1, 1, 5), (4, 1, 0, None)]
    assert found["q3"] == [(2, 1, 0, None)]
    engine.stop()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", ["join", "absence"])
def test_who_wants_every_row_shares_with_who_does_not(kind: str, late: bool, tmp_path: Path) -> None:
    """A query without a condition comes to those that have one, or is there and goes; over a restart too."""
    text = {
        "join": "SELECT a.k, a.v, b.v AS w FROM s [RANGE 5] a, r [RANGE 5] b WHERE a.k = b.k",
        "absence": "SELECT a.k, a.v FROM s [RANGE 5] a WHERE NOT EXISTS (SELECT 1 FROM r [RANGE 2] b WHERE a.k = b.k)",
    }[kind]
    wide, found = 2 if late else 1, {}
    for sharing in ("auto", "off"):
        home = tmp_path / sharing
        engine = windrow.Engine(runtime="local", sharing=sharing, home=home)
        engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
        engine.execute("CREATE STREAM r (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
        engine.start()
        for i in range(2):
            engine.execute(f"CREATE QUERY q{i} AS {text}" + (f" AND a.v > {i}" if i != wide else ""))
        rows = []
        for ts in range(30):
            if ts == 10:
                engine.execute(f"CREATE QUERY q2 AS {text}" + ("" if late else " AND a.v > 2"))
            if ts == 20:
                engine.execute(f"DROP QUERY q{wide}")
            if ts == 15:
                rows += engine["q0"].results().to_pylist()
                engine.stop()
                engine = windrow.Engine(runtime="local", sharing=sharing, home=home)
                engine.start()
            engine.push("s", {"k": [ts % 3, ts % 2], "v": [ts % 4, 1], "ts": [ts, ts]})
            engine.push("r", {"k": [ts % 5], "v": [ts], "ts": [ts]})
            if ts == 12 and sharing == "auto":
                assert "sharing: one dataflow with q0, q1" in engine["q2"].explain()
        rows += engine["q0"].results().to_pylist()
        assert not engine.status()["failed"]
        found[sharing] = sorted(map(str, rows))
        engine.stop()
    assert found["auto"] == found["off"]


COMPUTED = (
    *("10 * 0.25", "CAST(1 AS DOUBLE) * 2.5", "-(-3)", "7 - 5", "1 / 3", "9007199254740992 + 1", "0.1 + 0.2"),
    *("2 * CAST(0.1 AS DOUBLE)", "CAST(0.1 AS FLOAT) + 0", "CAST('2' AS BIGINT) - 4", "- CAST(1 AS BIGINT)", "3 % 2"),
)


@pytest.mark.parametrize("computed", COMPUTED)
def test_constants_may_be_computed(computed: str) -> None:
    """A condition on arithmetic of constants means what DuckDB says, whatever it is compared with."""
    big = 9007199254740993
    rows = pa.table({
        "k": pa.array([0, 1, 2, -2, big, big - 1, None, 3], pa.int64()),
        "v": [0.2, 0.30000000000000004, 2.5, 1 / 3, None, float("nan"), 9007199254740992.0, -1.0],
        "f": pa.array([0.1, 2.5, 3.0, 1 / 3, None, float("nan"), -0.0, -1.0], pa.float32()), "ts": list(range(8)),
    })  # fmt: skip
    tests = [f"{column} {operator} {computed}" for column in ("k", "v", "f") for operator in ("=", ">", "<=", "<>")] + [
        f"k BETWEEN {computed} AND {computed} + 2",
        f"v IN ({computed}, 1, 0.2)",
        f"NOT ({computed} < v)",
    ]
    queries = {f"q{i}": f"SELECT ISTREAM(ts AS at) FROM s [NOW] WHERE {test}" for i, test in enumerate(tests)}
    declared = "CREATE STREAM s (k BIGINT, v DOUBLE, f FLOAT, ts BIGINT) TIMESTAMP BY ts"
    got = windrow.run(scripted(declared, queries), {"s": rows}, runtime="local")
    with connect() as connection:
        connection.register("s", rows)
        for name, test in zip(queries, tests, strict=True):
            want = [at for (at,) in connection.sql(f"SELECT ts FROM s WHERE {test} ORDER BY ts").fetchall()]
            assert got[name].column("at").to_pylist() == want, test


def test_computed_constants_are_no_reason_to_run_alone() -> None:
    """`10 * CAST(2.5 AS DOUBLE)` raises for no row: queries share, whichever way they write it."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts")
    having = "CREATE QUERY q{} AS SELECT k, count(*) AS n FROM s [RANGE 5] GROUP BY k HAVING sum(v) > {}"
    for i, limit in enumerate(("10 * CAST(2.5 AS DOUBLE)", "4", "7.5 - 1", "-CAST(3 AS DOUBLE)")):
        engine.execute(having.format(i, limit))
    engine.start()
    engine.push("s", {"k": [1], "v": [5.0], "ts": [1]})
    assert "sharing: one dataflow with q1, q2, q3" in engine["q0"].explain()
    assert "sum(s.v) > 25.0e0" in engine["q0"].explain()
    engine.stop()


APART = {
    "windows": [f"SELECT k, v FROM s [RANGE {5 + i}] WHERE v > 1" for i in range(3)],
    "windows of a join": [f"SELECT a.k, b.v FROM s [RANGE {5 + i}] a, r [RANGE 4] b WHERE a.k = b.k" for i in range(3)],
    "windows of groups": [f"SELECT k, count(*) AS n FROM s [RANGE {5 + i}] GROUP BY k" for i in range(3)],
    "windows of distinct rows": [f"SELECT DISTINCT k FROM s [RANGE {5 + i}] WHERE v > {i}" for i in range(3)],
    "windows before an absence": [
        f"SELECT k FROM s [RANGE {5 + i}] a WHERE NOT EXISTS (SELECT 1 FROM r [RANGE 3] b WHERE b.k = a.k)"
        for i in range(3)
    ],
    "select lists": [
        f"SELECT {shown} FROM s [RANGE 5] a, r [RANGE 5] b WHERE a.k = b.k AND a.v > {i}"
        for i, shown in enumerate(["a.k", "a.v AS x, b.v AS y", "b.v, a.k"])
    ],
    "outer joins": [
        f"SELECT a.k, b.v FROM s [RANGE {5 + i}] a LEFT JOIN r [RANGE 5] b ON a.k = b.k WHERE a.v > {i}"
        for i in range(3)
    ],
    "full joins": [
        f"SELECT a.k, b.v FROM s [RANGE 6] a FULL JOIN r [RANGE 5] b ON a.k = b.k WHERE a.v > {i} OR b.v > {i}"
        for i in range(3)
    ],
    "both sides of a union": [
        f"SELECT k, v FROM s [RANGE {5 + i}] WHERE v > {i} UNION ALL SELECT k, v FROM r [RANGE 4] WHERE v > {2 * i}"
        for i in range(3)
    ],
    "both sides of a difference": [
        f"SELECT k FROM s [RANGE 5] WHERE v > {i} EXCEPT ALL SELECT k FROM r [RANGE {4 + i}] WHERE v > {2 * i}"
        for i in range(3)
    ],
}


@pytest.mark.parametrize("differ", APART)
def test_what_may_differ(differ: str) -> None:
    """Queries that differ so are one dataflow, and say so; one that is dropped leaves the others as they were."""
    found = {}
    for sharing in ("auto", "off"):
        engine = windrow.Engine(runtime="local", sharing=sharing)
        engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
        engine.execute("CREATE STREAM r (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
        for i, text in enumerate(APART[differ]):
            engine.execute(f"CREATE QUERY q{i} AS {text}")
        engine.start()
        for ts in range(0, 20, 2):
            engine.push("s", {"k": [ts % 3, 1], "v": [2, ts], "ts": [ts, ts]})
            engine.push("r", {"k": [ts % 5], "v": [ts], "ts": [ts]})
            if ts == 4 and sharing == "auto":
                assert "sharing: one dataflow with q0, q2" in engine["q1"].explain()
            if ts == 10:
                engine.execute("DROP QUERY q2")
        engine.advance(40)
        for i in range(2):
            found[sharing, i] = sorted(map(str, engine[f"q{i}"].results().to_pylist()))
        engine.stop()
    for i in range(2):
        assert found["auto", i] == found["off", i]
        assert found["auto", i]


CONSTANTS = {
    "numbers": ["k, {i} AS rule, v", "k, v", "{i} + 1 AS rule, v, k", "v, {i}.5 AS x, k"],
    "texts": ["k, 'rule {i}' AS rule, v, '' AS e", "'it''s {i}' AS t, k, v", "k, v, NULL AS rule"],
    "types": [
        "k, v, CAST({i} AS TINYINT) AS a",
        "k, v, DATE '2024-01-0{i}' AS a",
        "k, v, 2 ** {i} AS a",
        "k, v, {i} > 2 AS a",
    ],
    "nothing else": ["{i} AS rule", "'a' AS rule, {i} AS x", "{i} AS rule, {i} AS again"],
}
"""Select lists with constants; those of one line are one form."""
SHOWING = {
    "RELATION": "SELECT {0} FROM s [RANGE 5] WHERE v > {1}",
    "ISTREAM": "SELECT ISTREAM({0}) FROM s [NOW] WHERE v > {1}",
    "RSTREAM": "SELECT RSTREAM({0}) FROM s [RANGE 5] WHERE v > {1}",
    "GROUP BY": "SELECT {0} FROM (SELECT k, max(v) AS v FROM s [RANGE 5] GROUP BY k HAVING max(v) > {1}) x",
}


@pytest.mark.parametrize("showing", SHOWING)
@pytest.mark.parametrize("constants", CONSTANTS)
def test_constants_are_of_queries_and_not_of_rows(constants: str, showing: str, tmp_path: Path) -> None:
    """Queries that show different constants, or none, are one dataflow; each has its own of its own type."""
    lists = CONSTANTS[constants]
    queries = {
        f"q{i}": SHOWING[showing].format(lists[i % len(lists)].replace("{i}", str(1 + i // 2)), i % 4) for i in range(8)
    }
    declared = "CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts"
    rows = pa.table(
        {"k": [i % 3 for i in range(40)], "v": [i * 7 % 6 for i in range(40)], "ts": [i // 4 for i in range(40)]}
    )
    case = (declared, queries, {"s": rows}, {}, 20)
    want = oracle(scripted(declared, queries), {"s": rows}, {}, 20)
    for sharing in ("auto", "off"):
        got = windrow.run(scripted(declared, queries), {"s": rows}, runtime="local", until=20, sharing=sharing)
        for name in queries:
            assert_same(got[name], want[name])
    alone, shared = played(case, 1, "off", tmp_path / "off"), played(case, 1, "auto", tmp_path / "on")
    same(alone, shared, queries)
    assert {n: t.schema for n, t in alone.items()} == {n: t.schema for n, t in shared.items()}
    engine = windrow.Engine(runtime="local")
    engine.execute(scripted(declared, queries))
    engine.start()
    engine.push("s", rows)
    assert "and 2 more" in engine["q0"].explain()
    engine.stop()


def test_plans_that_began_with_constants_keep_them() -> None:
    """A home of a version in which constants were columns of shared plans goes on with these."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    engine.execute("CREATE QUERY q AS SELECT 7 AS rule, 'a' AS t FROM s [RANGE 5] WHERE v > 1")
    form = canonicalise(engine["q"].plan)
    assert [name for name, _ in form.constants] == ["'a'", "7"]
    assert [name for name, _ in form.showing({"7"}).shown] == ["7"]
    assert [name for name, _ in form.showing({"7"}).constants] == ["'a'"]
    assert form.showing({"0.k"}) is form


def calls(count: int, text: str) -> int:
    """How many calls of functions a tick makes in which nobody answers."""
    engine = windrow.Engine(runtime="local")
    for stream in "sr":
        engine.execute(f"CREATE STREAM {stream} (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    for i in range(count):
        engine.execute(f"CREATE QUERY q{i} AS {text.format(100 + i, 5 + i % 4)}")
    engine.start()

    def push(ts: int) -> None:
        for stream in "sr":
            engine.push(stream, {"k": [1], "v": [5], "ts": [ts]})

    for ts in range(4):
        push(ts)
    profile = cProfile.Profile()
    profile.runcall(push, 10)
    engine.stop()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v FROM s [RANGE {1}] WHERE v > {0}",
        "SELECT k, count(*) AS n FROM s [RANGE 5] WHERE v > {0} GROUP BY k",
        "SELECT a.k, b.v FROM s [RANGE {1}] a, r [RANGE 5] b WHERE a.k = b.k AND a.v > {0}",
    ],
)
def test_a_tick_does_not_grow_with_queries(text: str) -> None:
    """Ten times as many queries that answer nothing make no call more."""
    assert calls(80, text) <= calls(8, text) + 20


def test_a_shape_is_written_and_read() -> None:
    """What a plan's rows consist of is the same after a restart."""
    schema = (("0.k", "k", pa.int64()), ("0.t", "t", pa.timestamp("us", "UTC")))
    doubled = Expr(("(", Ref("0.k"), " * 2)"), pa.int64())
    shape = PlanColumns({"double": doubled}, (schema, ()), (frozenset({"0.t"}), frozenset()), frozenset({1}))
    assert PlanColumns.read(json.loads(json.dumps(shape.plain()))) == shape


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_newcomer_joins_a_shared_join(tmp_path: Path, partitions: int) -> None:
    """At any tick, over restarts too: it shares the state and has no result with a row from before it came."""
    text = "SELECT a.k, a.v, b.v AS w FROM s [RANGE {1}] a, r [RANGE 9] b WHERE a.k = b.k AND a.v > {0}"
    found: dict[str, dict[str, Any]] = {}
    for sharing in ("auto", "off"):

        def opened(sharing: str = sharing) -> windrow.Engine:
            return windrow.Engine(runtime="local", sharing=sharing, home=tmp_path / sharing, partitions=partitions)

        engine = opened()
        engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 2")
        engine.execute("CREATE STREAM r (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
        for i in range(3):
            engine.execute(f"CREATE QUERY q{i} AS {text.format(i, 6 + i)}")
        engine.start()
        for ts in range(24):
            engine.push("s", {"k": [ts % 3, 1], "v": [2, ts], "ts": [ts, max(ts - 1, 0)]})
            engine.push("r", {"k": [ts % 2], "v": [ts], "ts": [ts]})
            if ts == 7:
                engine.execute(f"CREATE QUERY late AS {text.format(1, 7)}")
            if ts == 9 and sharing == "auto":
                assert "sharing: one dataflow with q0, q1, q2" in engine["late"].explain()
            if ts == 12:
                engine.execute("DROP QUERY q2")
            if ts == 14:
                engine.stop()
                engine = opened()
                engine.start()
                engine.execute(f"CREATE QUERY later AS {text.format(0, 8)}")
        engine.advance(60)
        if sharing == "auto":
            assert "sharing: one dataflow with q0, q1, late" in engine["later"].explain()
        found[sharing] = {q: engine[q].results() for q in ("q0", "q1", "late", "later")}
        engine.stop()
    for name, table in found["off"].items():
        assert table.num_rows
        assert_same(found["auto"][name], table)


def test_the_state_of_a_query_goes_with_it() -> None:
    """What is kept of a dropped query's answers is gone with the next tick, whatever its windows."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    for i in range(4):
        text = f"SELECT k, count(*) AS n FROM s [RANGE UNBOUNDED] WHERE v > {i} GROUP BY k HAVING count(*) > {i % 2}"
        engine.execute(f"CREATE QUERY q{i} AS {text}")
    engine.start()

    def push(ts: int) -> None:
        engine.push("s", {"k": list(range(10)), "v": [9] * 10, "ts": [ts] * 10})

    def kept() -> list[int]:
        (state,) = [s for _, states in engine.runtime.job.memory.attempts.values() for s in states.values()]
        tables = [r.table for slot, runs in state.slots(1, 0) if slot.endswith("/rows") for r in runs]
        return [query for table in tables for query in table[QUERY].to_pylist()]

    for ts in range(4):
        push(ts)
    assert len(set(kept())) == 4
    assert len(kept()) >= 40
    for i in range(3):
        engine.execute(f"DROP QUERY q{i}")
    push(9)
    engine.advance(12)
    assert len(set(kept())) == 1
    for ts in range(20, 60):
        push(ts)
    assert len(kept()) <= 200  # what cancels does not pile up
    assert engine["q3"].snapshot().num_rows == 10
    engine.stop()


def test_windows_of_groups_move_with_their_partitions(tmp_path: Path) -> None:
    """Aggregates that differ in their windows go on when a home is opened with other partitions."""
    found: dict[str, dict[str, Any]] = {}
    names = [f"q{i}" for i in range(4)]
    for sharing in ("auto", "off"):

        def opened(partitions: int, sharing: str = sharing) -> windrow.Engine:
            return windrow.Engine(runtime="local", sharing=sharing, home=tmp_path / sharing, partitions=partitions)

        engine = opened(1)
        engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
        for i, name in enumerate(names):
            text = f"SELECT k, count(*) AS n, sum(v) AS t FROM s [RANGE {4 + 3 * i}] GROUP BY k HAVING count(*) > 1"
            engine.execute(f"CREATE QUERY {name} AS {text}")
        engine.start()
        answers: dict[str, list[Any]] = {name: [] for name in names}
        for ts in range(40):
            engine.push("s", {"k": [ts % 3, ts % 5, 7], "v": [ts, 2, 1], "ts": [ts] * 3})
            if ts in (12, 25):
                for name in names:
                    answers[name].append(engine[name].results())
                engine.stop()
                engine = opened(3 if ts == 12 else 2)
                engine.start()
        engine.advance(90)
        found[sharing] = {n: pa.concat_tables([*answers[n], engine[n].results()]) for n in names}
        engine.stop()
    for name, table in found["off"].items():
        assert table.num_rows
        assert_same(found["auto"][name], table)


def calls_of_changes(text: str, count: int) -> int:
    """How many calls of functions it takes beside many queries that one comes, one goes, and rows are answered."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
    engine.start()
    engine.execute("".join(f"CREATE QUERY q{i} AS {text.format(100 + i, i % 4)};" for i in range(count)))

    def change(i: int) -> None:
        engine.execute(f"CREATE QUERY z{i} AS {text.format(50 + i, i % 4)}")
        engine.push("s", {"k": [1], "v": [5], "ts": [2 * i]})
        engine.execute(f"DROP QUERY q{i}")
        engine.push("s", {"k": [1], "v": [5], "ts": [2 * i + 1]})

    for i in range(4):
        change(i)
    profile = cProfile.Profile()
    profile.runcall(change, 4)
    engine.stop()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v FROM s [RANGE 5] WHERE k = {1} AND v > {0}",
        "SELECT k, v FROM s [RANGE 1{1}] WHERE v > {0}",
        "SELECT k, count(*) AS n FROM s [RANGE 5] WHERE k = {1} GROUP BY k HAVING count(*) > {0}",
    ],
)
def test_a_change_costs_what_it_changes(text: str) -> None:
    """Who comes and who goes is no more work beside many queries than beside few, but for a look at each."""
    _, few, many = (calls_of_changes(text, count) for count in (20, 300, 1500))
    assert many < few + 8 * 1200


def test_status_lowers_nobody_who_shares() -> None:
    """Figures about queries of a shared plan are had without making each one's operators."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts")
    engine.start()
    engine.execute("".join(f"CREATE QUERY q{i} AS SELECT ts FROM s [RANGE 5] WHERE k = {i};" for i in range(4)))
    engine.push("s", pa.table({"k": [1, 2], "ts": [0, 1]}))
    assert {figures["quality"] for figures in engine.status()["queries"].values()} == {None}
    assert not any("layout" in vars(query) for query in engine.runtime.ticker.queries.values())
    engine.stop()
