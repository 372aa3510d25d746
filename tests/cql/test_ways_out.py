"""More ways out of a query text: each is refused, or answered like any other text, and shows nothing it should not.

Scripts are replayed; queries are also explained and asked of an engine that all of them share.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow as pa
import pytest

import windrow

_spec = importlib.util.spec_from_file_location("windrow_tests_escape", Path(__file__).parent / "test_escape.py")
_escape = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_escape)

DECLARED = """
CREATE STREAM s (a BIGINT, x DOUBLE, n VARCHAR, l BIGINT[], p STRUCT(f BIGINT, "g h" VARCHAR), m MAP(VARCHAR, BIGINT),
    b BLOB, j JSON, ts BIGINT) RETAIN 100;
CREATE TABLE r (a BIGINT, name VARCHAR);
"""
ROWS = pa.table(
    {
        "a": [1, 2, 3],
        "x": [0.5, 1.5, None],
        "n": ["one", "two", None],
        "l": [[1, 2], [3], []],
        "p": [{"f": 1, "g h": "u"}, {"f": 2, "g h": "v"}, None],
        "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "b": [b"a\x00", b"\xff", None],
        "j": ['{"a": 1}', "[1]", None],
        "ts": [1, 2, 3],
    }
)
NAMES = pa.table({"a": [1, 2], "name": ["one", "two"]})
SCRIPTS = [
    "CREATE QUERY a AS SELECT repeat(n, 900) AS v FROM s; CREATE QUERY b AS SELECT repeat(v, 900) AS w FROM "
    "a; SELECT length(repeat(w, 900)) FROM b",
    "CREATE VIEW a AS SELECT repeat(n, 900) AS v FROM s; CREATE VIEW b AS SELECT repeat(v, 900) AS w FROM a; "
    "SELECT length(repeat(w, 900)) FROM b",
    "CREATE FUNCTION f(x) AS repeat(x, 900); SELECT length(f(f(f(n)))) FROM s",
    "CREATE FUNCTION f(x) AS x || x; SELECT "
    "length(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(f(n))))))))))))))))))))))))))))) FROM s",
    "CREATE TEMPLATE t (k BIGINT) AS SELECT repeat(n, $k) AS v FROM s; CREATE QUERIES q FROM TEMPLATE t "
    "VALUES (1), (1000000000)",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT printf($k, a) AS v FROM s; CREATE QUERIES q FROM TEMPLATE t "
    "VALUES ('%d'), ('%1000000000d')",
    "CREATE TEMPLATE t (k BIGINT) AS SELECT list_resize(l, $k) AS v FROM s; CREATE QUERIES q FROM TEMPLATE t "
    "VALUES (1), (999999999)",
    "CREATE TABLE rules (k BIGINT); CREATE TEMPLATE t (k BIGINT) AS SELECT len(range($k)) AS v FROM s; "
    "CREATE QUERIES q FROM TEMPLATE t USING TABLE rules",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT n::$k FROM s; CREATE QUERIES q FROM TEMPLATE t VALUES ('INT')",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT EXTRACT($k FROM TIMESTAMP '2020-01-01') FROM s; CREATE QUERIES "
    "q FROM TEMPLATE t VALUES ('hour')",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT * FROM $k; CREATE QUERIES q FROM TEMPLATE t VALUES ('s')",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT $k(n) FROM s; CREATE QUERIES q FROM TEMPLATE t VALUES ('getenv')",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT n COLLATE $k = 'x' FROM s; CREATE QUERIES q FROM TEMPLATE t "
    "VALUES ('nocase')",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT list_aggr(l, $k) FROM s; CREATE QUERIES q FROM TEMPLATE t "
    "VALUES ('sum'), ('getenv')",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT n AS v FROM s WHERE n = $k; CREATE QUERIES q FROM TEMPLATE t "
    "VALUES (''' || getenv(''WINDROW_SECRET'') || ''')",
    "CREATE TEMPLATE t (k VARCHAR) AS SELECT TIMESTAMP '2020-01-01' AT TIME ZONE $k AS v FROM s; CREATE "
    "QUERIES q FROM TEMPLATE t VALUES ('x; SELECT 1')",
    "SELECT repeat(n, 1) AS v FROM s; SELECT repeat(n, 9) AS v FROM s; SELECT repeat(n, 999999999) AS v FROM s",
    "SELECT printf('%1d', a) AS v FROM s; SELECT printf('%9d', a) AS v FROM s; SELECT printf('%999999999d', "
    "a) AS v FROM s",
    "SELECT printf('%2d', a) AS v FROM s; SELECT printf('%*d', a) AS v FROM s",
    "SELECT list_aggr(l, 'sum') AS v FROM s; SELECT list_aggr(l, 'avg') AS v FROM s; SELECT list_aggr(l, "
    "'getenv') AS v FROM s",
    "SELECT p['f'] AS v FROM s; SELECT p['g'] AS v FROM s",
    "SELECT '1'::BIGINT FROM s; SELECT 'a'::BIGINT FROM s",
    "SELECT n::ENUM('x'');getenv(''WINDROW_SECRET') FROM s",
]
QUERIES = [
    "SELECT quantile(x, 2) FROM s [ROWS 4]",
    "SELECT quantile(x, -1e308) FROM s [ROWS 4]",
    "SELECT quantile(x, NULL) FROM s [ROWS 4]",
    "SELECT quantile(x, 'nan'::DOUBLE) FROM s [ROWS 4]",
    "SELECT top_k(n, 1000000000000) FROM s [ROWS 4]",
    "SELECT top_k(n, -1) FROM s [ROWS 4]",
    "SELECT top_k(n, a) FROM s [ROWS 4]",
    "SELECT approx_top_k(n, 1000000000) FROM s [ROWS 4]",
    "SELECT frequent(n, 1000000000) FROM s [RANGE 4 SLIDE 2]",
    "SELECT frequent(n, -1) FROM s [RANGE 4 SLIDE 2]",
    "SELECT approx_quantile(x, 0.5, 1000000000) FROM s [ROWS 4]",
    "SELECT arg_max(n, a, 1000000000) FROM s [ROWS 4]",
    "SELECT max(n, 1000000000) FROM s [ROWS 4]",
    "SELECT histogram(n, [1]) FROM s [ROWS 4]",
    "SELECT string_agg(n, getenv('WINDROW_SECRET')) FROM s [ROWS 4]",
    "SELECT list(getenv('WINDROW_SECRET')) FROM s [ROWS 4]",
    "SELECT mode(n) WITHIN GROUP (ORDER BY getenv('WINDROW_SECRET')) FROM s [ROWS 4]",
    "SELECT first(n ORDER BY random()) FROM s [ROWS 4]",
    "SELECT sum(a) OVER (ORDER BY getenv('WINDROW_SECRET')) FROM s [ROWS 4]",
    "SELECT ntile(1000000000) OVER () FROM s [ROWS 4]",
    "SELECT lag(a, 1000000000000) OVER () FROM s [ROWS 4]",
    "SELECT lag(a, -1, getenv('x')) OVER () FROM s [ROWS 4]",
    "SELECT nth_value(a, 0) OVER () FROM s [ROWS 4]",
    "SELECT sum(a) OVER (ROWS BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW) FROM s [ROWS 4]",
    "SELECT a FROM s QUALIFY getenv('WINDROW_SECRET') IS NULL",
    "SELECT a FROM s [ROWS 4] QUALIFY row_number() OVER (ORDER BY random()) = 1",
    "SELECT a FROM s [RANGE 9223372036854775807]",
    "SELECT a FROM s [RANGE 9223372036854775808]",
    "SELECT a FROM s [ROWS 9223372036854775808]",
    "SELECT a FROM s [RANGE 0]",
    "SELECT a FROM s [RANGE -1]",
    "SELECT count(*) FROM s [RANGE 9223372036854775807 SLIDE 9223372036854775807]",
    "SELECT count(*) FROM s [RANGE 9223372036854775807 SLIDE 1]",
    "SELECT count(*) FROM s [RANGE 1 SLIDE 9223372036854775807]",
    "SELECT count(*) FROM TUMBLE(s, ts, 0)",
    "SELECT count(*) FROM HOP(s, ts, 0, 5)",
    "SELECT count(*) FROM SESSION(s, ts, 0)",
    "SELECT count(*) FROM TUMBLE(s, ts, 5, 9223372036854775807)",
    "SELECT count(*) FROM TUMBLE(s, ts, 5, -1)",
    "SELECT count(*) FROM HOP(s, ts, 1, 100000000)",
    "SELECT a FROM s [RANGE '1e400 seconds']",
    "SELECT a FROM s [RANGE 1.5]",
    "SELECT a FROM s [PARTITION BY n ROWS 0]",
    "SELECT a FROM s LIMIT -1",
    "SELECT RSTREAM(a) FROM s [ROWS 5] ORDER BY a LIMIT 1 OFFSET 9223372036854775807",
    "SELECT RSTREAM(a) FROM s [ROWS 5] ORDER BY a LIMIT 1e3",
    "SELECT RSTREAM(a) FROM s [ROWS 5] ORDER BY 99999999999999999999",
    "SELECT RSTREAM(a) FROM s [ROWS 5] ORDER BY getenv('x') LIMIT 1",
    "SELECT * FROM range(10)",
    "SELECT * FROM generate_series(1,10)",
    "SELECT * FROM s, range(a) t(i)",
    "SELECT * FROM duckdb_functions()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_table_info('s')",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM sqlite_schema",
    "SELECT * FROM temp.s",
    "SELECT * FROM system.information_schema.columns",
    "SELECT * FROM read_json_auto('{file}')",
    "SELECT * FROM read_parquet(['{file}'])",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT * FROM '{file}' t, s",
    "SELECT * FROM s JOIN '{file}' f ON true",
    "SELECT * FROM s SEMI JOIN '{file}' f ON true",
    "SELECT * FROM s ASOF JOIN '{file}' f ON s.ts >= f.ts",
    "SELECT * FROM s POSITIONAL JOIN '{file}'",
    "SELECT (SELECT max(column0) FROM '{file}') FROM s",
    "SELECT a FROM s WHERE n = ALL (SELECT * FROM '{file}')",
    "SELECT * FROM unnest(s.l)",
    "SELECT * FROM s, unnest(l) u(v)",
    "SELECT * FROM s, unnest(range(1000000000)) u(v)",
    "SELECT * FROM s, unnest([getenv('WINDROW_SECRET')]) u(v)",
    "SELECT * FROM arrow_scan(1,2,3)",
    "SELECT * FROM seq_scan('s')",
    "SELECT * FROM rows",
    "SELECT * FROM R",
    "SELECT * FROM sys",
    "SELECT * FROM _row",
    "SELECT * FROM repeat_row(1, num_rows => 1000000)",
    "SELECT * FROM test_all_types()",
    "SELECT * FROM json_execute_serialized_sql('x')",
    "SELECT * FROM sql_auto_complete('SEL')",
    "SELECT * FROM which_secret('x','s3')",
    "SELECT * FROM force_checkpoint()",
    "SELECT rowid FROM s",
    "SELECT s FROM s",
    "SELECT s.rowid FROM s",
    "SELECT filename FROM s",
    "SELECT _row FROM s",
    'SELECT "s.a" FROM s',
    "SELECT c0 FROM s",
    'SELECT "__from" FROM s',
    'SELECT "@window_end" FROM s [RANGE 4 SLIDE 2]',
    'SELECT "s.a#2" FROM s',
    "SELECT * LIKE 'a%' FROM s",
    "SELECT * RENAME (a AS b) FROM s",
    "SELECT COLUMNS('x|a') FROM s",
    "SELECT s.* EXCLUDE (a) REPLACE (getenv('WINDROW_SECRET') AS n) FROM s",
    "SELECT a FROM s WHERE $$x$$ = getenv($$WINDROW_SECRET$$)",
    "SELECT n.upper().getenv() FROM s",
    "SELECT n.list_transform(lambda c: getenv(c)) FROM s",
    "SELECT l.list_transform(x -> getenv(x)) FROM s",
    "SELECT list_transform(['WINDROW_SECRET'], x -> x.getenv()) FROM s",
    "SELECT list_transform(['x'], getenv -> getenv) FROM s",
    "SELECT list_transform(['WINDROW_SECRET'], lambda getenv: getenv(getenv)) FROM s",
    "SELECT apply(['WINDROW_SECRET'], getenv) FROM s",
    'SELECT list_filter(l, lambda "v"" || getenv(\'x\')": true) FROM s',
    'SELECT struct_pack("a"" := getenv(\'WINDROW_SECRET\'), b" := 1) FROM s',
    "SELECT {{'a'': getenv(''WINDROW_SECRET''), ''b': 1}} FROM s",
    'SELECT {{"x\'": 1}} FROM s',
    "SELECT MAP([getenv('WINDROW_SECRET')], [1]) FROM s",
    "SELECT union_value(k := getenv('WINDROW_SECRET')) FROM s",
    "SELECT union_extract(union_value(k := 1), 'k') FROM s",
    "SELECT union_tag(1) FROM s",
    'SELECT n::UNION("a"" INT, b VARCHAR) -- " INT) FROM s',
    "SELECT n::STRUCT(a INT, A INT) FROM s",
    "SELECT n::DECIMAL(39,0) FROM s",
    "SELECT n::DECIMAL(0,0) FROM s",
    "SELECT n::DECIMAL(3,4) FROM s",
    "SELECT n::DECIMAL(99999999999999999999) FROM s",
    "SELECT n::VARCHAR(99999999999999999999) FROM s",
    "SELECT n::TIMESTAMP(9) FROM s",
    "SELECT n::TIME(3) WITH TIME ZONE FROM s",
    "SELECT n::INTERVAL YEAR FROM s",
    "SELECT n::BIGINT[0] FROM s",
    "SELECT n::BIGINT[-1] FROM s",
    "SELECT n::BIGINT[][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][] FROM s",
    "SELECT ''.format(a) FROM s",
    "SELECT '{{}}'.format(a) FROM s",
    "SELECT '{{0}}{{0}}{{0}}{{0}}'.format(repeat(n, 900)) FROM s",
    "SELECT length(format('{{0}}{{0}}{{0}}{{0}}{{0}}{{0}}{{0}}{{0}}{{0}}{{0}}', repeat(n, 900))) FROM s",
    "SELECT length(printf('%1$s%1$s%1$s%1$s%1$s%1$s%1$s%1$s%1$s%1$s', repeat(n, 900))) FROM s",
    "SELECT strptime(n, repeat('%Y', 9000)) FROM s",
    "SELECT date_trunc(n, TIMESTAMP '2020-01-01') FROM s",
    "SELECT date_part([n], TIMESTAMP '2020-01-01') FROM s",
    "SELECT date_part(['year', 'epoch'], TIMESTAMP '2020-01-01') FROM s",
    "SELECT time_bucket(INTERVAL 0 DAY, TIMESTAMP '2020-01-01') FROM s",
    "SELECT time_bucket(INTERVAL '-1' DAY, TIMESTAMP '2020-01-01') FROM s",
    "SELECT INTERVAL 99999999999999999999 DAYS FROM s",
    "SELECT INTERVAL '999999999' YEARS FROM s",
    "SELECT make_timestamp(9223372036854775807) FROM s",
    "SELECT epoch_ms(9223372036854775807) FROM s",
    "SELECT to_timestamp(1e300) FROM s",
    "SELECT make_date(2147483647, 1, 1) FROM s",
    "SELECT 9223372036854775807 + a FROM s",
    "SELECT -9223372036854775808 FROM s",
    "SELECT 1e999 FROM s",
    "SELECT 1_000 FROM s",
    "SELECT chr(0) FROM s",
    "SELECT chr(55296) FROM s",
    "SELECT chr(-1) FROM s",
    "SELECT chr(1114112) FROM s",
    "SELECT '\x00' FROM s",
    "SELECT n || chr(0) || n AS v FROM s",
    "SELECT decode(b) FROM s",
    "SELECT decode('\\xFF'::BLOB) FROM s",
    "SELECT b::VARCHAR FROM s",
    "SELECT b::BIT::VARCHAR FROM s",
    "SELECT b[1] FROM s",
    "SELECT substr(b,1,2) FROM s",
    "SELECT 0x" + "f" * 400 + " FROM s",
    "SELECT " + "9" * 5000 + " FROM s",
    "SELECT 1." + "9" * 5000 + " FROM s",
    "SELECT length(format('" + "{{0}}" * 3000 + "', n)) FROM s",
    'SELECT a AS "' + "x" * 100_000 + '" FROM s',
    "SELECT " + "x" * 100_000 + " FROM s",
    "SELECT * FROM " + '"' + "../" * 1000 + 'etc/passwd"',
    "SELECT \u0430 FROM s",  # a Cyrillic letter that looks like a
    "SELECT \uff41 FROM s",
    "SELECT a\u200b FROM s",
    "SELECT ge\u200btenv('WINDROW_SECRET') FROM s",
    "SELECT \uff47etenv('WINDROW_SECRET') FROM s",
    "SELECT GETENV\u00a0('WINDROW_SECRET') FROM s",
    "SELECT 'a\u202e' FROM s",
    "SELECT a FROM s\x00; ATTACH '{out}'",
    "SELECT a FROM s -- \r ; ATTACH '{out}'",
    "SELECT a FROM s /* /* */ ; ATTACH '{out}' */",
    "SELECT a FROM s WHERE n = '\\' OR getenv('WINDROW_SECRET') IS NULL --'",
    "SELECT a FROM s WHERE n = e'\\'' OR getenv(''WINDROW_SECRET'') --'",
]


place = _escape.place


@pytest.fixture(scope="module")
def engine() -> windrow.Engine:
    """One engine for all probes."""
    with windrow.Engine(runtime="local") as made:
        made.execute(DECLARED.partition(";")[0])
        made.table("r", NAMES)
        made.push("s", ROWS)
        yield made


def replay(text: str) -> object:
    """A script over the rows."""
    return windrow.run(f"{DECLARED} {text}", streams={"s": ROWS}, tables={"r": NAMES}, runtime="local")


@pytest.mark.parametrize("text", SCRIPTS, ids=range(len(SCRIPTS)))
def test_scripts(text: str, place: Path) -> None:
    """Through views, functions, templates and texts that differ in literals."""
    _escape.harmless(place, lambda: replay(_escape.probe(text, place)))


@pytest.mark.parametrize("text", QUERIES, ids=range(len(QUERIES)))
def test_queries(text: str, place: Path, engine: windrow.Engine) -> None:
    """Relations, names, types, numbers, windows and characters that are not what they seem."""
    said = _escape.probe(text, place)
    _escape.harmless(place, lambda: replay(said))
    _escape.harmless(place, lambda: engine.execute(f"EXPLAIN {said}"))
    _escape.harmless(place, lambda: engine.ask(said))
    _escape.harmless(place, lambda: engine.execute(f"CREATE QUERY probe AS {said}"))
    _escape.harmless(place, lambda: engine.push("s", ROWS.slice(0, 1).set_column(8, "ts", pa.array([3]))))
    _escape.harmless(place, lambda: engine.execute("DROP QUERY IF EXISTS probe"))


def test_they_are_others() -> None:
    """None of them is among the first ones, and there are more than eighty."""
    every = {*SCRIPTS, *QUERIES}
    assert len(every) == len(SCRIPTS) + len(QUERIES) >= 80
    assert not every & {*_escape.EXPRESSIONS, *_escape.QUERIES, *_escape.STATEMENTS}
