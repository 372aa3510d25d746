"""What other systems write: their functions, ASOF JOIN and tables as of now mean what they mean there."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, UnsupportedError, WindrowError

START = dt.datetime(2024, 5, 1, 17, 4, 9, 120_000)
TIMES = [START + dt.timedelta(seconds=s) for s in (0, 1, 5, 31)]
S = pa.table({"ts": TIMES, "k": [1, 2, 1, 1], "u": ["a/b/c?id=7", "x", None, "a//d&id=9"]})
P = pa.table({"k": [1, 2], "v": ["one", "two"], "since": [TIMES[1], TIMES[0]]})


def run(query: str) -> list[tuple[object, ...]]:
    found = windrow.run(query, {"s": S}, {"p": P}, runtime="local")["q1"]
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=str)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("DATE_FORMAT(ts, 'yyyy-MM-dd')", "strftime(ts, '%Y-%m-%d')"),
        ("date_format(ts, 'd.M.yy hh:mm:ss.SSS a')", "strftime(ts, '%-d.%-m.%y %I:%M:%S.%g %p')"),
        ("date_format(ts, 'yyyy''T''HH')", "strftime(ts, '%YT%H')"),
        ("FORMAT_DATE('HH:mm', ts)", "strftime(ts, '%H:%M')"),
        ("FORMAT_TIMESTAMP('%H:%M', ts)", "strftime(ts, '%H:%M')"),
        ("TO_CHAR(ts, 'YYYY-MM-DD HH24:MI:SS.US')", "strftime(ts, '%Y-%m-%d %H:%M:%S.%f')"),
        ("to_char(ts, 'HH:MI')", "strftime(ts, '%I:%M')"),
        ("SPLIT_INDEX(u, '/', k)", "string_split(u, '/')[k + 1]"),
        ("nvl(nvl(NULL, NULL), k)", "k"),
        ("nvl2(u, 1, 2)", "CASE WHEN u IS NULL THEN 2 ELSE 1 END"),
        ("iif(k = 1, u, 'z')", "CASE WHEN k = 1 THEN u ELSE 'z' END"),
        ("zeroifnull(nullifzero(k - 1))", "k - 1"),
        ("isnull(u) OR isnotnull(u)", "TRUE"),
        ("regexp_like(u, 'id') AND rlike(u, '7')", "u LIKE '%id=7'"),
        ("locate('b', u)", "strpos(u, 'b')"),
        ("truncate(k / 2)", "trunc(k / 2)"),
        ("size([k, 1]) + array_size([k])", "3"),
        ("to_date('2024-05-02') - to_date('2024-05-01')", "1"),
        ("datediff('2024-05-03', ts)", "2"),
        ("unix_timestamp(ts)", "floor(epoch_us(ts) / 1000000)::BIGINT"),
        ("from_unixtime(60)", "'1970-01-01 00:01:00'"),
        (
            "TIMESTAMPDIFF(SECOND, TIMESTAMP '2024-05-01 17:04:09', ts)",
            "date_sub('second', TIMESTAMP '2024-05-01 17:04:09', ts)",
        ),
        ("TIMESTAMPADD(MINUTES, k, ts)", "ts + to_minutes(k)"),
        ("dateadd(day, -1, ts)", "ts - INTERVAL 1 DAY"),
        ("(regexp_match(u, '(id)=([0-9]+)'))[2]", "nullif(regexp_extract(u, '(id)=([0-9]+)', 2), '')"),
    ],
)
def test_functions(theirs: str, ours: str) -> None:
    """Of Flink, Spark, Feldera and PostgreSQL, as DuckDB's."""
    assert run(f"SELECT {theirs} AS c FROM s") == run(f"SELECT {ours} AS c FROM s")


@pytest.mark.parametrize(
    "pattern",
    ["yyyy-'W'ww", "GGG", "yyyyy", "MMMMM", "k", "@windrow 000@"],
)
def test_patterns_that_are_not_known(pattern: str) -> None:
    """Refused, whatever they mean elsewhere."""
    quoted = pattern.replace("'", "''")
    with pytest.raises(BindingError, match="with the pattern"):
        run(f"SELECT DATE_FORMAT(ts, '{quoted}') AS c FROM s")


def test_patterns_that_differ_are_texts_that_differ() -> None:
    """Several queries of one shape are planned once, but not if a text in quotes is a pattern."""
    patterns = ["%Y", "%m", "%H", "%M"]
    texts = [f"CREATE QUERY q{i} AS SELECT DATE_FORMAT(ts, '{p}') AS c FROM s" for i, p in enumerate(("yyyy", "MM"))]
    texts += [f"CREATE QUERY r{i} AS SELECT strftime(ts, '{p}') AS c FROM s" for i, p in enumerate(patterns)]
    texts += ["CREATE QUERY q2 AS SELECT DATE_FORMAT(ts, 'HH') AS c FROM s"]
    texts += ["CREATE QUERY q3 AS SELECT DATE_FORMAT(ts, 'mm') AS c FROM s"]
    found = windrow.run(";".join(texts), {"s": S}, {"p": P}, runtime="local")
    for i in range(4):
        assert found[f"q{i}"].equals(found[f"r{i}"])


def test_a_user_function_of_such_a_name_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered comes first."""
    monkeypatch.setattr("windrow.engine.functions._registered", {})
    windrow.function("to_char", lambda t, p: p, returns="VARCHAR")
    assert [c for _, _, c in run("SELECT to_char(ts, 'nothing') AS c FROM s")] == ["nothing"] * 4


def test_a_table_as_of_now() -> None:
    """FOR SYSTEM_TIME AS OF PROCTIME(), by itself and by a column that is named for it."""
    plain = run("SELECT s.k, v FROM s JOIN p ON s.k = p.k")
    assert run("SELECT s.k, v FROM s JOIN p FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = p.k") == plain
    named = "(SELECT *, PROCTIME() AS now_ FROM s) b JOIN p FOR SYSTEM_TIME AS OF b.now_ AS t ON b.k = t.k"
    assert run(f"SELECT b.k, v FROM {named}") == plain


@pytest.mark.parametrize("join", ["LEFT ASOF JOIN p MATCH_CONDITION s.ts >= p.since ON s.k = p.k",
                                  "ASOF LEFT JOIN p MATCH_CONDITION (s.ts >= p.since) ON s.k = p.k"])  # fmt: skip
def test_asof_joins(join: str) -> None:
    """Feldera's and Snowflake's order of words."""
    assert run(f"SELECT v FROM s {join}") == run("SELECT v FROM s ASOF LEFT JOIN p ON s.k = p.k AND s.ts >= p.since")


def test_sessions_in_group_by() -> None:
    """As Flink once wrote them."""
    theirs = (
        "SELECT k, COUNT(*) AS n, SESSION_START(b.ts, INTERVAL '10' SECOND) AS a FROM s b "
        "GROUP BY b.k, SESSION(b.ts, INTERVAL '10' SECOND)"
    )
    ours = "SELECT k, COUNT(*) AS n, window_start AS a FROM SESSION(s PARTITION BY k, ts, '10 s') GROUP BY ALL"
    assert run(theirs) == run(ours)


def test_a_window_that_is_shown_whole() -> None:
    """Has the name that Spark gives it, and the bounds as its fields."""
    query = "SELECT window(ts, '10 seconds'), COUNT(*) AS n FROM s GROUP BY window(ts, '10 seconds')"
    found = windrow.run(query, {"s": S}, runtime="local")["q1"]
    assert found.column_names == ["_ts", "window", "n"]
    assert [f.name for f in found.schema.field("window").type] == ["start", "end"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("TIMESTAMP(0)", "TIMESTAMP_S"),
        ("TIMESTAMP(3)", "TIMESTAMP_MS"),
        ("TIMESTAMP(6)", "TIMESTAMP"),
        ("TIMESTAMP_LTZ", "TIMESTAMPTZ"),
        ("MAP<STRING, INT>", "MAP(VARCHAR, INT)"),
        ("ARRAY<ARRAY<INT>>", "INT[][]"),
        ("STRUCT<a INT, b STRING>", "STRUCT(a INT, b VARCHAR)"),
    ],
)
def test_types(theirs: str, ours: str) -> None:
    """Declared and in casts, types in the words of Flink and Spark are those of DuckDB."""
    engine = windrow.Engine(runtime="local")
    engine.execute(f"CREATE STREAM s (a {theirs}, b {ours}, ts BIGINT) TIMESTAMP BY ts")
    columns = engine.catalog.streams["s"].columns
    assert columns["a"] == columns["b"]
    assert run(f"SELECT CAST(NULL AS {theirs}) AS a FROM s") == run(f"SELECT CAST(NULL AS {ours}) AS a FROM s")


@pytest.mark.parametrize("clock", ["NOW()", "CURRENT_TIMESTAMP"])
def test_the_clock_on_the_wall_is_refused(clock: str) -> None:
    """An answer depends on the rows alone."""
    with pytest.raises((UnsupportedError, WindrowError), match="changes by itself"):
        run(f"SELECT {clock} AS t FROM s")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("nvl(k)", "NVL takes 2 arguments, not 1"),
        ("dateadd(fortnight, 1, ts)", "unit fortnight"),
        ("timestampdiff('day', ts, ts)", "unit day"),
    ],
)
def test_calls_that_are_not_known(call: str, says: str) -> None:
    """A number of arguments, and units, that no system has."""
    with pytest.raises(BindingError, match=says):
        run(f"SELECT {call} AS c FROM s")
