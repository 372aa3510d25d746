"""Query text computes and can do nothing else: every way out that we know of, through every door of the local runtime.

A probe is the text of an expression, of a query or of a script. It must be refused by a WindrowError or answered like
any other text, and in neither case may a secret appear in what is said or answered, a file come into being, or a later
query see anything of it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.operators import scalar

SECRET = "swordfish"
DECLARED = """
CREATE STREAM s (a BIGINT, x DOUBLE, n VARCHAR, l BIGINT[], p STRUCT(f BIGINT, "g h" VARCHAR), ts BIGINT) RETAIN 100;
CREATE TABLE r (a BIGINT, name VARCHAR);
"""
ROWS = pa.table(
    {
        "a": [1, 2],
        "x": [0.5, 1.5],
        "n": ["one", "two"],
        "l": [[1, 2], [3]],
        "p": [{"f": 1, "g h": "u"}, {"f": 2, "g h": "v"}],
        "ts": [1, 2],
    }
)
NAMES = pa.table({"a": [1, 2], "name": ["one", "two"]})

# {file} is a file with the secret, {out} one that must not come into being, WINDROW_SECRET is in the environment.
EXPRESSIONS = [
    # types
    "1::\"oid)::varchar || (SELECT content FROM read_text('{file}')) || ('y'\"",
    "CAST(1 AS \"BIGINT) || (SELECT content FROM read_text('{file}')) || CAST(1 AS VARCHAR\")",
    'TRY_CAST(1 AS "INT); CREATE MACRO abs(x) AS 7; SELECT CAST(1 AS INT")',
    "1::\"INT); SET TimeZone='Asia/Tokyo'; SELECT (1::INT\"",
    "n::\"VARCHAR; COPY (SELECT 1) TO '{out}'; SELECT 1::VARCHAR\"",
    "1::STRUCT(\"a INT); ATTACH '{out}' AS evil; --\" INT)",
    "NULL::ENUM('a', 'b'') || (SELECT content FROM read_text(''{file}'')) || (''')",
    "1::DECIMAL(10, (SELECT 1))",
    "1::INT[(SELECT 3)]",
    "n::main.VARCHAR",
    'n::"main"."VARCHAR"',
    "1::USER_DEFINED",
    "a::REGCLASS",
    "NULL::INT[100000]",
    # parts, units, zones, collations
    "EXTRACT(\"year' FROM ts), (SELECT content FROM read_text('{file}')) --\" FROM TIMESTAMP '2020-01-01')",
    "EXTRACT(\"HOUR FROM ts) || (SELECT 1\" FROM TIMESTAMP '2020-01-01')",
    "EXTRACT('year' || '' FROM TIMESTAMP '2020-01-01')",
    "INTERVAL '1' \"DAY) || (SELECT content FROM read_text('{file}')) || (\"",
    "INTERVAL '1' DAY_EVIL",
    "INTERVAL (SELECT 1) DAY",
    "TIMESTAMP '2020-01-01' AT TIME ZONE (SELECT content FROM read_text('{file}'))",
    "TIMESTAMP '2020-01-01' AT TIME ZONE current_setting('TimeZone')",
    "n COLLATE \"NOCASE || (SELECT content FROM read_text('{file}')) || \" = 'x'",
    "n COLLATE \"de; DROP TABLE x\" = 'x'",
    "n COLLATE (SELECT 1) = 'x'",
    # functions of the system, however they are spelled
    "getenv('WINDROW_SECRET')",
    "\"getenv\"('WINDROW_SECRET')",
    "main.getenv('WINDROW_SECRET')",
    "system.main.getenv('WINDROW_SECRET')",
    "'WINDROW_SECRET'.getenv()",
    "n.getenv()",
    "current_setting('memory_limit')",
    "'TimeZone'.current_setting()",
    "getvariable('x')",
    "pg_sleep(60)",
    "sleep_ms(60000)",
    "a.sleep_ms()",
    "SLEEP_MS(a * 60000)",
    '"sleep_ms"(60000)',
    "list_transform([60000], lambda v: sleep_ms(v))",
    "list_transform(['WINDROW_SECRET'], lambda v: getenv(v))",
    "list_filter(l, lambda v: sleep_ms(60000) IS NULL)",
    "list_reduce(l, lambda v, w: v + random()::BIGINT)",
    "[getenv(v) FOR v IN ['WINDROW_SECRET']]",
    "list_aggr(l, 'getenv')",
    "list_aggr(l, 'reservoir_quantile', 0.5)",
    "list_aggr(l, n)",
    "random()",
    "uuid()",
    "gen_random_uuid()",
    "now()",
    "current_timestamp",
    "CURRENT_DATE",
    "localtimestamp",
    "current_localtime()",
    "age(TIMESTAMP '2020-01-01')",
    "ago(INTERVAL 1 DAY)",
    "version()",
    "current_user",
    "current_database()",
    "current_query()",
    "in_search_path('memory', 'main')",
    "nextval('seq')",
    "setseed(0.5)",
    "write_log('x')",
    "error('x')",
    "invoke(lambda v: v, 1)",
    "json_serialize_sql('SELECT 1')",
    "json_execute_serialized_sql('x')",
    "from_json('1', '\"INT[100000]\"')",
    "create_sort_key(a, 'ASC')",
    "icu_collate_de(n)",
    "__internal_decompress_string(1)",
    "stats(a)",
    "alias(a)",
    "if(true, getenv('WINDROW_SECRET'), 'x')",
    "CASE WHEN getenv('WINDROW_SECRET') IS NULL THEN 1 END",
    "coalesce(getenv('WINDROW_SECRET'), n)",
    "try(getenv('WINDROW_SECRET'))",
    "{{'k': getenv('WINDROW_SECRET')}}",
    "MAP {{'k': getenv('WINDROW_SECRET')}}",
    "struct_pack(k := getenv('WINDROW_SECRET'))",
    "[getenv('WINDROW_SECRET')]",
    "l[sleep_ms(60000)]",
    "(getenv('WINDROW_SECRET'), 1)",
    "n LIKE getenv('WINDROW_SECRET')",
    "n IN (getenv('WINDROW_SECRET'))",
    "a BETWEEN sleep_ms(60000) AND 1",
    "NOT sleep_ms(60000) IS NULL",
    "-sleep_ms(60000)",
    "sum(sleep_ms(60000))",
    "count(*) FILTER (WHERE getenv('WINDROW_SECRET') IS NULL)",
    "max(n ORDER BY getenv('WINDROW_SECRET'))",
    "quantile(x, (SELECT 0.5))",
    # tables inside expressions
    "(SELECT content FROM read_text('{file}'))",
    "(FROM read_csv('{file}'))",
    "ARRAY(SELECT content FROM read_text('{file}'))",
    "EXISTS (SELECT * FROM read_text('{file}'))",
    "a IN (SELECT a FROM '{file}')",
    "a = ANY (SELECT content FROM read_text('{file}'))",
    "read_text('{file}')",
    "glob('{file}')",
    "query('SELECT 1')",
    "query_table('r')",
    "unnest(l)",
    "unnest(string_split(read_text('{file}'), ','))",
    "COLUMNS(*)",
    "COLUMNS('.*')",
    "COLUMNS(lambda c: c LIKE 'a%')",
    "*COLUMNS(*)",
    # structs, names, parameters, comments, characters
    "p.f.getenv()",
    "p['f; DROP']",
    "p.\"g h\" || (SELECT content FROM read_text('{file}'))",
    '"a"" || (SELECT content FROM read_text(\'{file}\')) || """',
    "a AS \"b, (SELECT content FROM read_text('{file}')) AS c\"",
    "'it''s; DROP TABLE x; --'",
    "'\\'; SELECT content FROM read_text('{file}'); --'",
    "E'\\'; SELECT 1; --'",
    "$$'; SELECT content FROM read_text('{file}'); --$$",
    "U&'\\0027'",
    "'\ue000s.a\ue001'",
    "'\ue001' || n || '\ue000'",
    "n || '\ue000x\ue001' || \"\ue000\"",
    "$1",
    "?",
    "$secret",
    "#1",
    "@@version",
    "a /* */; SELECT 1 /* */",
    "a -- '; SELECT 1",
    "1 - -1 - - -1",
    "/* ' */ a /* \" */",
    "a\u0000; SELECT 1",
    "'\ud800'",
    "0xff",
    "x'00'",
    # too much
    "repeat(n, 1000000000)",
    "repeat('x', a * 1000000000)",
    "length(repeat(repeat(repeat(n, 1000), 1000), 1000))",
    "lpad(n, 2000000000, 'x')",
    "len(range(1000000000))",
    "len(range(a * 1000000000))",
    "len(generate_series(TIMESTAMP '0001-01-01', TIMESTAMP '9999-01-01', INTERVAL 1 MICROSECOND))",
    "printf('%1000000000d', a)",
    "format('{{:>1000000000}}', a)",
    "printf('%*d', 1000000000, a)",
    "replace(replace(replace(replace(n, '', repeat('x', 900)), 'x', repeat('x', 900)), 'x', n), 'x', repeat('x', 900))",
    "list_reduce(range(99)::VARCHAR[], lambda v, w: v || v)",
    "list_reduce([[1], [2]], lambda v, w: v + v)",
    "list_transform(range(9999), lambda v: list_transform(range(9999), lambda w: v * w))",
    "levenshtein(repeat(n, 900), repeat(n, 900))",
    "array_to_string(range(9999), repeat('x', 999))",
    "list_resize(l, 1000000000)",
    "bar(x, 0, 1, 1000000000)",
    "(" * 500 + "a" + ")" * 500,
    "a" + " + a" * 1000,
    "NOT " * 400 + "true",
    "list_transform(l, lambda v: " * 50 + "1" + ")" * 50,
]
QUERIES = [
    "SELECT * FROM '{file}'",
    'SELECT * FROM "{file}"',
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_csv('{file}') AS t",
    "SELECT * FROM s, read_text('{file}') t",
    "SELECT * FROM s, LATERAL (SELECT content FROM read_text('{file}')) t",
    "SELECT * FROM s CROSS JOIN glob('/*')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM pragma_version()",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('s')",
    "SELECT * FROM main.s",
    "SELECT * FROM memory.main.s",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM (VALUES (1)) t(v)",
    "SELECT * FROM unnest([1, 2])",
    "SELECT * FROM s WHERE EXISTS (SELECT * FROM read_text('{file}') f)",
    "SELECT * FROM s WHERE a IN (SELECT size FROM read_blob('{file}'))",
    "WITH f AS (SELECT content FROM read_text('{file}')) SELECT * FROM s, f",
    "WITH RECURSIVE f AS (SELECT 1 AS v UNION ALL SELECT v + 1 FROM f) SELECT * FROM f",
    "WITH s AS (SELECT * FROM s) SELECT * FROM s",
    "PIVOT s ON a USING max(n)",
    "SELECT * FROM s PIVOT (max(n) FOR a IN (1, 2))",
    "UNPIVOT s ON a INTO NAME k VALUE v",
    "SELECT * FROM s TABLESAMPLE 1 ROWS",
    "SELECT * FROM s ORDER BY (SELECT content FROM read_text('{file}'))",
    "SELECT a FROM s GROUP BY (SELECT content FROM read_text('{file}'))",
    "SELECT a FROM s HAVING getenv('WINDROW_SECRET') IS NULL",
    "SELECT a INTO evil FROM s",
    "SELECT * EXCLUDE (a) FROM s",
    "SELECT * REPLACE (getenv('WINDROW_SECRET') AS a) FROM s",
    "SELECT s.* FROM s, r WHERE s.a = r.a AND r.name = getenv('WINDROW_SECRET')",
    'SELECT a FROM s [PARTITION BY "a; DROP TABLE x" ROWS 1]',
    "SELECT a FROM s [RANGE '1; SELECT 1']",
    "SELECT a FROM s LEFT JOIN r ON r.name = getenv('WINDROW_SECRET')",
    "SELECT count(*) FROM s GROUP BY CUBE (" + ", ".join(f"a + {i}" for i in range(50)) + ")",
    "SELECT a FROM s LIMIT " + "9" * 5000,
    "FROM s SELECT a",
    "TABLE s",
    "VALUES (1)",
    "SELECT a FROM s AT (VERSION => 1)",
    "SELECT a FROM s USING SAMPLE 1",
    "SELECT a FROM s; COPY (SELECT 1) TO '{out}'",
    "SELECT a FROM s UNION ALL SELECT content FROM read_text('{file}')",
    "DESCRIBE s",
    "SHOW TABLES",
    "SUMMARIZE s",
]
STATEMENTS = [
    "ATTACH '{out}' AS evil",
    "DETACH memory",
    "USE memory",
    "COPY (SELECT 1) TO '{out}'",
    "COPY s FROM '{file}'",
    "EXPORT DATABASE '{out}'",
    "IMPORT DATABASE '{out}'",
    "INSTALL httpfs",
    "LOAD '{out}'",
    "SET TimeZone = 'Asia/Tokyo'",
    "SET memory_limit = '1TB'",
    "RESET TimeZone",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CREATE MACRO abs(x) AS 7",
    "CREATE FUNCTION abs(x) AS 7",
    "CREATE TYPE evil AS INT",
    "CREATE SECRET x (TYPE s3)",
    "CREATE SEQUENCE seq",
    "CREATE VIEW v AS SELECT content FROM read_text('{file}')",
    "CREATE TABLE t AS SELECT content FROM read_text('{file}')",
    "CREATE TABLE t (a BIGINT DEFAULT getenv('WINDROW_SECRET'))",
    "CREATE TABLE t (a \"BIGINT); COPY (SELECT 1) TO '{out}'; SELECT CAST(1 AS BIGINT\")",
    "CREATE STREAM t (a \"INT) || (SELECT content FROM read_text('{file}')) || CAST(1 AS VARCHAR\", ts BIGINT)",
    "CREATE STREAM t (a INT) || (SELECT 1), ts BIGINT)",
    "CREATE STREAM t (a ENUM('x', 'y'') || (SELECT 1) || ('''), ts BIGINT)",
    "CREATE STREAM t (a INT[1000000], ts BIGINT)",
    "CREATE STREAM t (a " + "STRUCT(a " * 300 + "INT" + ")" * 300 + ", ts BIGINT)",
    "INSERT INTO s VALUES (1)",
    "UPDATE s SET a = 1",
    "DELETE FROM s",
    "DROP TABLE r; DROP MACRO abs",
    "ALTER TABLE r RENAME TO q",
    "TRUNCATE r",
    "VACUUM",
    "CHECKPOINT",
    "BEGIN TRANSACTION",
    "ROLLBACK",
    "PREPARE q AS SELECT 1",
    "EXECUTE q",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN COPY (SELECT 1) TO '{out}'",
    "EXPLAIN (FORMAT JSON) ATTACH '{out}'",
    'EXPLAIN SELECT 1::"INT); CREATE MACRO abs(x) AS 7; SELECT (1::INT" FROM s',
    "SET VARIABLE x = getenv('WINDROW_SECRET')",
    "COMMENT ON TABLE r IS 'x'",
    "; ; ;",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file that holds the secret, which the environment holds too."""
    directory = tmp_path_factory.mktemp("escape")
    (directory / "secret.csv").write_text(f"{SECRET}\n{SECRET}\n")
    os.environ["WINDROW_SECRET"] = SECRET
    yield directory
    del os.environ["WINDROW_SECRET"]


@pytest.fixture(scope="module")
def engine() -> windrow.Engine:
    """One engine for all probes, so that what one leaves behind meets the next."""
    with windrow.Engine(runtime="local") as made:
        made.execute(DECLARED.partition(";")[0])
        made.table("r", NAMES)
        made.push("s", ROWS)
        yield made


def doors(engine: windrow.Engine, query: str):
    """Everything that takes a query."""
    yield lambda: windrow.run(f"{DECLARED} {query}", streams={"s": ROWS}, tables={"r": NAMES}, runtime="local")
    yield lambda: engine.execute(f"EXPLAIN {query}")
    yield lambda: engine.execute(f"EXPLAIN (FORMAT JSON) {query}")
    yield lambda: engine.ask(query)
    yield lambda: engine.execute(f"CREATE QUERY probe AS {query}")
    yield lambda: engine.execute("DROP QUERY IF EXISTS probe")


def harmless(place: Path, call) -> None:
    """The call answers or is refused, soon; in neither case does it show the secret or leave anything behind."""
    before, zone = sorted(p.name for p in place.iterdir()), os.environ.get("TZ")
    start = time.monotonic()
    try:
        said = repr(call())
    except WindrowError as error:
        said = f"{error!r} {error}"
    assert time.monotonic() - start < 50  # those that would wait would wait for a minute
    assert SECRET not in said
    assert sorted(p.name for p in place.iterdir()) == before
    assert os.environ.get("TZ") == zone


def probe(text: str, place: Path) -> str:
    """The text of a probe; one that needs no names may hold braces as they are."""
    return (
        text.replace("{file}", str(place / "secret.csv"))
        .replace("{out}", str(place / "out"))
        .replace("{{", "{")
        .replace("}}", "}")
    )


@pytest.mark.parametrize("text", EXPRESSIONS, ids=range(len(EXPRESSIONS)))
def test_an_expression_computes_and_nothing_else(text, place, engine):
    """In the select list, in WHERE and in GROUP BY."""
    said = probe(text, place)
    for query in (
        f"SELECT {said} FROM s",
        f"SELECT a FROM s WHERE ({said}) IS NOT NULL",
        f"SELECT 1 FROM s GROUP BY {said}",
    ):
        for call in doors(engine, query):
            harmless(place, call)


@pytest.mark.parametrize("text", EXPRESSIONS, ids=range(len(EXPRESSIONS)))
def test_a_function_or_view_can_no_more(text, place):
    """An expression under a name, called in a query under a name."""
    script = f"{DECLARED} CREATE FUNCTION f(x) AS {probe(text, place)}; CREATE VIEW v AS SELECT f(a) AS y FROM s;"
    call = f"{script} SELECT y FROM v"
    harmless(place, lambda: windrow.run(call, streams={"s": ROWS}, tables={"r": NAMES}, runtime="local"))


@pytest.mark.parametrize("text", QUERIES, ids=range(len(QUERIES)))
def test_a_query_reads_streams_and_tables_and_nothing_else(text, place, engine):
    """No file, function or catalog of DuckDB is a relation."""
    for call in doors(engine, probe(text, place)):
        harmless(place, call)


@pytest.mark.parametrize("text", STATEMENTS, ids=range(len(STATEMENTS)))
def test_a_statement_of_duckdb_is_none_of_ours(text, place, engine):
    """Nor is it one behind a statement of ours."""
    said = probe(text, place)
    for script in (said, f"EXPLAIN SELECT a FROM s; {said}"):
        harmless(place, lambda script=script: engine.execute(script))
    harmless(
        place, lambda: windrow.run(f"{DECLARED} {said}", streams={"s": ROWS}, tables={"r": NAMES}, runtime="local")
    )
    harmless(place, lambda: engine.ask(said))


def test_there_are_enough_probes():
    """More than the eighty that were asked for, all different."""
    every = [*EXPRESSIONS, *QUERIES, *STATEMENTS]
    assert len(set(every)) == len(every) >= 80


def test_nothing_of_the_probes_is_left(engine):
    """After all of them expressions mean what they meant, and the engine is as it was."""
    answer = windrow.run(
        f"{DECLARED} SELECT abs(-a) AS v, hour(TIMESTAMPTZ '2020-01-01 12:00:00+00') AS h FROM s",
        streams={"s": ROWS}, tables={"r": NAMES}, runtime="local",
    )["q1"]  # fmt: skip
    assert answer.column("v").to_pylist() == [1, 2]
    assert answer.column("h").to_pylist() == [12, 12]
    assert not engine.catalog.queries
    settings = scalar.connection().sql(
        "SELECT current_setting('enable_external_access'), current_setting('lock_configuration')"
    )
    assert settings.fetchall() == [(False, True)]


def test_private_characters_are_data():
    """U+E000 and its like are characters as any other, in texts and in names."""
    script = """CREATE STREAM s ("\ue000a\ue001" VARCHAR, ts BIGINT);
    SELECT "\ue000a\ue001" || '\ue000ts\ue001' AS "\ue001v\ue000", '\ue001' AS w
    FROM s WHERE "\ue000a\ue001" <> '\ue000'"""
    rows = pa.table({"\ue000a\ue001": ["x", "\ue000"], "ts": [1, 2]})
    answer = windrow.run(script, streams={"s": rows}, runtime="local")["q1"]
    assert answer.column("\ue001v\ue000").to_pylist() == ["x\ue000ts\ue001"]
    assert answer.column("w").to_pylist() == ["\ue001"]
