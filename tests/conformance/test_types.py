"""Every type of DuckDB in every operator: the oracle's answer, or a refusal with a hint before anything runs."""

from __future__ import annotations

import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.errors import UnsupportedError, WindrowError
from windrow.testing import assert_same, oracle
from windrow.testing.random_types import VALUES

OPERATORS = {
    "filter": "SELECT x, ts AS t FROM S [RANGE 4] WHERE x IS NOT NULL",
    "compare": "SELECT a.x, b.ts AS t FROM S AS a [RANGE 3], S AS b [RANGE 3] WHERE a.x <= b.x",
    "project": "SELECT x AS y, coalesce(x, x) AS z FROM S [ROWS 3]",
    "group": "SELECT x, COUNT(*) AS n FROM S [RANGE 4] GROUP BY x",
    "group_periodic": "SELECT x, COUNT(x) AS n FROM S [RANGE 4 SLIDE 2] GROUP BY x",
    "distinct": "SELECT DISTINCT x FROM S [RANGE 4]",
    "distinct_rows": "SELECT DISTINCT x FROM S [ROWS 3]",
    "join": "SELECT a.x, b.ts AS t FROM S AS a [RANGE 4], S AS b [ROWS 3] WHERE a.x = b.x",
    "left_join": "SELECT a.x, b.x AS z, b.k FROM S AS a [RANGE 4] LEFT JOIN S AS b [RANGE 2] ON a.x = b.x",
    "table_join": "SELECT S.x, P.n FROM S [RANGE 4] JOIN P ON S.x = P.x",
    "aggregate_join": "SELECT P.n, COUNT(S.x) AS c FROM S [RANGE 4 SLIDE 2] JOIN P ON S.x = P.x GROUP BY P.n",
    "extremes": "SELECT MIN(x) AS a, MAX(x) AS b FROM S [RANGE 4]",
    "extremes_rows": "SELECT k, MIN(x) AS a, MAX(x) AS b FROM S [ROWS 5] GROUP BY k",
    "extremes_periodic": "SELECT k, MIN(x) AS a, MAX(x) AS b FROM S [RANGE 6 SLIDE 2] GROUP BY k",
    "count_distinct": "SELECT COUNT(DISTINCT x) AS a, COUNT(x) AS b FROM S [RANGE 4]",
    "count_distinct_periodic": "SELECT k, COUNT(DISTINCT x) AS a FROM S [RANGE 4 SLIDE 2] GROUP BY k",
    "top_k": "SELECT TOP_K(x, 2) AS a FROM S [RANGE 4]",
    "quantile": "SELECT QUANTILE(x, 0.4) AS a FROM S [ROWS 4]",
    "median": "SELECT MEDIAN(x) AS a FROM S [RANGE 4]",
    "avg": "SELECT AVG(x) AS a FROM S [RANGE 4 SLIDE 2]",
    "sum": "SELECT SUM(x) AS a FROM S [RANGE 4]",
    "partition": "SELECT x, k FROM S [PARTITION BY x ROWS 1]",
    "member": "SELECT a.x FROM S AS a [RANGE 4] WHERE a.x IN (SELECT b.x FROM S AS b [ROWS 2])",
    "no_member": "SELECT a.x FROM S AS a [RANGE 4] WHERE NOT EXISTS (SELECT 1 FROM S AS b [RANGE 1] WHERE b.x = a.x)",
    "unite": "SELECT x FROM S [RANGE 2] UNION SELECT x FROM S [ROWS 2]",
    "subtract": "SELECT x FROM S [RANGE 4] EXCEPT ALL SELECT x FROM S [ROWS 2]",
    "meet": "SELECT x FROM S [RANGE 4] INTERSECT SELECT x FROM P",
    "entering": "SELECT ISTREAM(x) FROM S [RANGE 3]",
    "leaving": "SELECT DSTREAM(x) FROM S [ROWS 2]",
    "sampled": "SELECT RSTREAM(x) FROM S [RANGE 3 SLIDE 2]",
    "snapshots": "SELECT RSTREAM(x) FROM S [ROWS 2]",
    "restored": "SELECT ISTREAM_RESTORE(x) FROM S [RANGE 2 SLIDE 3]",
    "windowed": "SELECT WSTREAM(x)[ROWS 2] FROM S [RANGE 3]",
}

NUMBERS = tuple(t for t in VALUES if t.startswith(("DECIMAL", "FLOAT", "DOUBLE")) or t.endswith("INT"))
NUMBERS = (*(t for t in NUMBERS if "[" not in t), "INTEGER", "UINTEGER")
TIMES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ")
REFUSED = {
    "sum": {t for t in VALUES if t not in (*NUMBERS, "BOOLEAN")},
    "avg": {t for t in VALUES if t not in (*NUMBERS, *TIMES)},
    "median": {"HUGEINT", "DECIMAL(38, 0)", "INTERVAL", "INTERVAL[]"},
    "quantile": {"INTERVAL[]"},
}
"""Operators that take values of some types only."""

LAYOUTS = {
    "BOOLEAN", "INTEGER", "UBIGINT", "HUGEINT", "FLOAT", "DECIMAL(4, 1)", "VARCHAR", "BLOB", "DATE", "TIMESTAMP_NS",
    "INTERVAL", "DOUBLE[]", "INTEGER[2]", "STRUCT(a INTEGER, b VARCHAR)", "MAP(VARCHAR, INTEGER)",
}  # fmt: skip
"""One type of each layout that state and files have."""

NOT_KEPT = {
    "UUID": "'00000000-0000-0000-0000-000000000001'",
    "ENUM('a', 'b')": "'b'",
    "BIT": "'101'",
    "TIMETZ": "'01:02:03+02'",
    "UHUGEINT": "5",
    "BIGNUM": "5",
    "VARIANT": "5",
    "UNION(n INTEGER, s VARCHAR)": "5",
    "GEOMETRY": "'POINT (1 1)'",
    "STRUCT(a UUID[])": "{a: []}",
}
"""Types whose values change their meaning in Arrow, so that no column holds them."""


def given(type_):
    """A stream and a table with a column of a type: all its values, twice where they fit, and nulls."""
    values, choose = VALUES[type_], random.Random(3)
    some = [*values, *(choose.choice([*values, "NULL"]) for _ in range(14 - len(values)))]
    engine = duckdb.connect(config={"threads": 1})
    engine.execute("SET TimeZone = 'UTC'")
    rows = ", ".join(f"({i // 2}, {i % 2}, CAST({v} AS {type_}))" for i, v in enumerate(some))
    stream = engine.sql(f"SELECT * FROM (VALUES {rows}) AS v(ts, k, x)").to_arrow_table()
    rows = ", ".join(f"(CAST({v} AS {type_}), {i})" for i, v in enumerate([*values, "NULL", values[0]]))
    return {"S": stream}, {"P": engine.sql(f"SELECT * FROM (VALUES {rows}) AS v(x, n)").to_arrow_table()}


def declared(type_):
    return f"CREATE STREAM S (ts BIGINT, k BIGINT, x {type_}); CREATE TABLE P (x {type_}, n INTEGER);"


def script(type_):
    """One script with every operator that takes the type."""
    taken = [o for o in OPERATORS if type_ not in REFUSED.get(o, ())]
    return declared(type_) + ";".join(f"CREATE QUERY {o} AS {OPERATORS[o]}" for o in taken)


def check(got, want):
    for name in want:
        try:
            assert_same(got[name], want[name])
        except AssertionError as error:
            raise AssertionError(f"{OPERATORS[name]}: {error}") from error


@pytest.mark.parametrize("type_", VALUES)
def test_every_operator_takes_every_type_or_refuses_it(type_, run_with_restarts):
    """In one batch; for one type of each layout in small ones, with a restart from the runs before each of them."""
    streams, tables = given(type_)
    want = oracle(script(type_), streams, tables, 12)
    if type_ in LAYOUTS:
        check(run_with_restarts(script(type_), streams, tables, 12, 5, "negative" if len(type_) % 2 else "upa"), want)
    else:
        check(windrow.run(script(type_), streams, tables, runtime="local", until=12), want)
    for operator in REFUSED:
        if type_ in REFUSED[operator]:
            with pytest.raises(WindrowError) as caught:
                Replay.of(declared(type_) + OPERATORS[operator], streams, tables)
            assert caught.value.hint


@pytest.mark.parametrize(
    "type_", ["DOUBLE", "INTERVAL", "STRUCT(l INTEGER[], m MAP(INTEGER, DOUBLE))[]", "DECIMAL(38, 5)"]
)
def test_tasks_take_every_type(type_, in_process_job, tmp_path):
    """State in files, rows between partitions, forgetful workers."""
    streams, tables = given(type_)
    want = oracle(script(type_), streams, tables, 12)
    replay = Replay.of(script(type_), streams, tables, 12)
    check(replay.in_home(str(tmp_path), in_process_job(2, chaos=1), 4, "upa", partitions=2), want)


@pytest.mark.parametrize("type_", NOT_KEPT)
def test_types_that_no_column_holds_are_refused(type_):
    """Declared or computed; inside an expression they are DuckDB's own business."""
    with pytest.raises(UnsupportedError, match='column "x" of type') as caught:
        Replay.of(declared(type_) + OPERATORS["filter"], {}, {})
    assert "declare it" in caught.value.hint
    streams, tables = given("INTEGER")
    value = f"CAST({NOT_KEPT[type_]} AS {type_})"
    with pytest.raises(UnsupportedError, match="a value of this type") as caught:
        Replay.of(f"SELECT {value} AS y FROM S", streams, tables)
    assert "CAST it AS" in caught.value.hint
    windrow.run(f"SELECT {value} IS NULL AS y FROM S", streams, tables, runtime="local")


@pytest.mark.parametrize("value", ["12345678901234567890123456789", "-12345678901234567890123456789"])
@pytest.mark.parametrize("written", ["CAST({} AS HUGEINT)", "{} + 0", "CAST('{}' AS DECIMAL(38, 0))", "{}"])
def test_constants_keep_all_of_their_digits(value, written):
    """A number of more digits than Python's decimals keep is compared as it is written."""
    near = pa.array([Decimal(value), Decimal(value[:-1] + "8"), Decimal(value[:-2] + "90")], pa.decimal128(38, 0))
    rows = {"S": pa.table({"ts": [1, 2, 3], "x": near})}
    script = declared("HUGEINT").replace("k BIGINT, ", "")
    for operator in ("=", "<=", "<"):
        query = f"{script} SELECT ISTREAM(ts AS t) FROM S [NOW] WHERE x {operator} {written.format(value)}"
        assert_same(windrow.run(query, rows, runtime="local")["q1"], oracle(query, rows)["q1"])


def test_infinite_times_are_greater_than_all_others():
    """DuckDB's infinities are values of their own in extremes, groups and means."""
    rows = {"ts": [1, 2, 3, 4], "d": ["2020-01-01", "infinity", "-infinity", "infinity"]}
    query = """
        CREATE STREAM S (ts BIGINT, d VARCHAR);
        SELECT RSTREAM(CAST(MIN(d::DATE) AS VARCHAR) AS a, CAST(MAX(d::TIMESTAMP) AS VARCHAR) AS b,
            CAST(AVG(d::DATE) AS VARCHAR) AS c, COUNT(DISTINCT d::DATE) AS n) FROM S [ROWS 2]
    """
    found = windrow.run(query, {"S": rows}, runtime="local")["q1"].to_pylist()
    assert [tuple(r.values())[1:] for r in found] == [
        ("2020-01-01", "2020-01-01 00:00:00", "2020-01-01 00:00:00", 1),
        ("2020-01-01", "infinity", "148133-07-06 14:00:27.387903", 2),
        ("-infinity", "infinity", "1970-01-01 00:00:00", 2),
    ]
