"""Functions in SQL: expressions in the place of calls, kept as text, guarded by who calls them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.testing import assert_same, oracle

DECLARED = "CREATE STREAM s (a BIGINT, b BIGINT, ts BIGINT) TIMESTAMP BY ts;"
FUNCTIONS = """
CREATE FUNCTION plus(x BIGINT, y BIGINT) AS x + y;
CREATE FUNCTION doubled(x) AS plus(x, x);
CREATE FUNCTION small(x SMALLINT) AS x % 3 = 1 OR x IS NULL;
CREATE FUNCTION kind(x, y) AS CASE WHEN x > y THEN 'over' WHEN x < y THEN 'under' ELSE 'even' END;
"""
QUERIES = """
CREATE QUERY q1 AS SELECT doubled(a) AS t, plus(b, doubled(1)) AS p FROM s [RANGE 4] WHERE small(b);
CREATE QUERY q2 AS SELECT kind(a, b) AS k, SUM(plus(a, b)) AS n FROM s [RANGE 6 SLIDE 3] GROUP BY kind(a, b);
CREATE QUERY q3 AS SELECT ISTREAM(doubled(doubled(a)) - b AS d) FROM s [ROWS 3];
CREATE VIEW v AS SELECT doubled(a) AS t FROM s [RANGE 2];
CREATE QUERY q4 AS SELECT MAX(doubled(t)) AS m FROM v
"""
small = st.one_of(st.none(), st.integers(-3, 9))
rows = st.lists(st.tuples(small, small, st.integers(0, 12)), max_size=12)


@settings(max_examples=15)
@given(rows)
def test_a_call_is_the_expression(given_rows):
    """As DuckDB's macros compute it, wherever an expression may stand."""
    import pyarrow as pa

    columns = list(zip(*sorted(given_rows, key=lambda r: r[2]), strict=True)) or [(), (), ()]
    data = {"s": pa.table([pa.array(list(c), pa.int64()) for c in columns], names=["a", "b", "ts"])}
    script = DECLARED + FUNCTIONS + QUERIES
    got, want = windrow.run(script, data, runtime="local", until=15), oracle(script, data, until=15)
    for name in want:
        assert_same(got[name], want[name])


def test_aggregates_and_names():
    """A function may hold aggregates; a column that has no name is called what was written."""
    script = DECLARED + "CREATE FUNCTION share(x, y) AS SUM(x) / SUM(y); SELECT share(a, b), a AS k FROM s GROUP BY a"
    answer = windrow.run(script, {"s": {"a": [3, 3], "b": [1, 2], "ts": [1, 1]}}, runtime="local")["q1"]
    assert answer.to_pylist() == [{"_ts": 1, "_op": 1, "share(a, b)": 2.0, "k": 3}]
    typed = DECLARED + "CREATE FUNCTION f(x BIGINT) RETURNS VARCHAR AS x + 1; SELECT f(a) AS r FROM s WHERE f(a) = '4'"
    assert windrow.run(typed, {"s": {"a": [3], "b": [1], "ts": [1]}}, runtime="local")["q1"]["r"].to_pylist() == ["4"]


def test_as_postgresql_writes_them():
    """LANGUAGE SQL, before or behind a body between dollars; the body is one expression still."""
    given = {"s": {"a": [3], "b": [1], "ts": [1]}}
    for rest in (
        "LANGUAGE SQL AS $$SELECT x + y;\n$$", "AS $$ select x + y $$ LANGUAGE sql", "AS $$x + y$$",
        "LANGUAGE SQL AS x + y",
    ):  # fmt: skip
        script = f"{DECLARED} CREATE FUNCTION f(x BIGINT, y BIGINT) RETURNS DOUBLE {rest}; SELECT f(a, b) AS r FROM s"
        assert windrow.run(script, given, runtime="local")["q1"]["r"].to_pylist() == [4.0]
    for rest, message in (
        ("LANGUAGE javascript AS $$ return x; $$", "windrow.function"),
        ("LANGUAGE SQL AS $$SELECT x; SELECT y$$", "syntax error"),
        ("LANGUAGE SQL AS $$SELECT x FROM s$$", "syntax error"),
        ("LANGUAGE SQL AS $$SELECT (SELECT 1)$$", "subquery"),
        ("AS $$SELECT x AS BIGINT), (y$$", "one expression"),
        ("AS $$x$$ IMMUTABLE", "the end of the function"),
        ("AS $$$$", "syntax error"),
        ("AS $$SELECT 'x$$", "not closed"),
    ):
        with pytest.raises(WindrowError, match=message):
            windrow.run(
                f"{DECLARED} CREATE FUNCTION f(x, y) RETURNS DOUBLE {rest}; SELECT f(a, b) FROM s",
                given,
                runtime="local",
            )


def test_they_last_and_are_guarded(tmp_path):
    """A home keeps them as text; who is called is not dropped, nor replaced by something else."""
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(DECLARED.replace("BY ts", "BY ts RETAIN 9") + FUNCTIONS + QUERIES)
        again = "CREATE OR REPLACE FUNCTION plus(x BIGINT, y BIGINT) AS x + y -- the same"
        engine.execute(again)
        engine.execute("CREATE FUNCTION IF NOT EXISTS plus(x) AS x")
        for script in ("DROP FUNCTION plus", "CREATE OR REPLACE FUNCTION plus(x BIGINT, y BIGINT) AS x - y"):
            with pytest.raises(BindingError, match='function "plus" is called by q1, q2, q3, q4, v, doubled'):
                engine.execute(script)
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.start()
        engine.push("s", {"a": [2, 9], "b": [1, 1], "ts": [1, 2]})
        assert engine["q1"].snapshot().to_pylist() == [{"t": 4, "p": 3}]
        assert engine.ask("SELECT plus(t, 1) AS n FROM v").to_pylist() == [{"n": 5}]
        listed, known = engine.execute("SHOW FUNCTIONS LIKE 'plus'; DESCRIBE plus")
        assert listed["text"].to_pylist() == [again]
        assert {"property": "parameter", "name": "x", "value": "BIGINT"} in known.to_pylist()
        engine.execute("DROP FUNCTION plus CASCADE")
        assert list(engine.catalog.macros) == ["small", "kind"]
        assert not engine.catalog.queries
    with windrow.Engine(runtime="local", home=home) as engine:
        assert list(engine.catalog.macros) == ["small", "kind"]


def test_templates_call_them():
    """The text of a template is a text like others."""
    script = (
        DECLARED
        + FUNCTIONS
        + """
        CREATE TEMPLATE over (n BIGINT) AS SELECT plus(a, $n) AS p FROM s [NOW] WHERE doubled(a) > $n;
        CREATE QUERIES q FROM TEMPLATE over VALUES (1), (5)
    """
    )
    answer = windrow.run(script, {"s": {"a": [2], "b": [0], "ts": [1]}}, runtime="local")["q"]
    assert answer.select(["n", "p"]).to_pylist() == [{"n": 1, "p": 3}]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("f(x BIGINT) AS x + y", '"y" is no parameter of "f"'),
        ("f(x BIGINT) AS f(x)", '"f" calls itself'),
        ("f(x VARCHAR) AS read_text(x)", "not a function of queries"),
        ("f(x BIGINT) AS now()", "now"),
        ("abs(x BIGINT) AS x", '"abs" is a function already'),
        ("f(x BIGINT) AS (SELECT MAX(a) FROM s)", "a subquery in a function"),
        ("f(x BIGINT) AS x FROM s", "one expression"),
        ("f(x BIGINT) AS x, 1", "one expression"),
        ("f(x BIGINT, X BIGINT) AS x", "one name twice"),
        ("f(x NONSENSE) AS x", "unknown type"),
        ("f(x VARCHAR) AS x + x", "f"),
        ("f(x) AS list_transform([1], x -> x)", "of a lambda in it"),
    ],
)
def test_what_is_no_function(function, message):
    """It is refused where it is declared, not where it is called."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(DECLARED)
        with pytest.raises(WindrowError, match=message):
            engine.execute(f"CREATE FUNCTION {function}")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT plus(a) FROM s", "called with 1 argument"),
        ("SELECT plus(a, b) OVER () FROM s", "OVER or FILTER"),
        ("SELECT plus(DISTINCT a, b) FROM s", "this argument"),
        ("SELECT each(z) FROM (SELECT a AS z FROM s) t", "a parameter of a lambda"),
        ("SELECT plux(a, b) FROM s", 'did you mean "plus"'),
        (f"SELECT {'doubled(' * 25}a{')' * 25} FROM s", "parts|nesting|deeply|operators"),
    ],
)
def test_what_is_no_call(query, message):
    """A call has an expression for each parameter, and what it grows to has a bound."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(DECLARED + FUNCTIONS + "CREATE FUNCTION each(x) AS list_transform([1, 2], z -> z + x)")
        with pytest.raises((BindingError, UnsupportedError), match=message):
            engine.execute(f"CREATE QUERY q AS {query}")
