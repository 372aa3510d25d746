"""Texts that fuzzing found to raise something else than a WindrowError, or not to come back."""

from __future__ import annotations

import pyarrow as pa
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

DECLARED = "".join(f"CREATE STREAM {n} (ts BIGINT, a BIGINT, b VARCHAR) TIMESTAMP BY ts;" for n in "su")
DECLARED += "CREATE TABLE r (k BIGINT);"
ROWS = pa.table({"ts": [1, 2, 3, 8], "a": [1, 2, 1, 2], "b": ["x", "y", None, "z"]})
STREAMS = {"s": ROWS, "u": ROWS}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM s [ROWS 9223372036854775808]", "more than a window can hold"),
        ("SELECT * FROM s [PARTITION BY a ROWS 9223372036854775808]", "more than a window can hold"),
        ("SELECT a FROM s [RANGE 1e999999999]", "not a length of time"),
        ("SELECT a FROM s [RANGE '1e999999999 days']", "not a length of time"),
        ("SELECT a FROM s [RANGE 1e99]", "too long a time"),
        ("SELECT a + INTERVAL q 5 MINUTES FROM s", "unknown type"),
        ("SELECT b, (SELECT max(s.a) FROM u [RANGE 3]) FROM s [RANGE 5]", "columns of the query around it"),
        ("SELECT b FROM s [RANGE 5] WHERE a NOT IN (SELECT s.a FROM u [RANGE 5])", "of a column"),
        ("SELECT last((SELECT max(a) FROM u [RANGE 3])) AS c FROM s [RANGE 5]", "a subquery inside an aggregate"),
        ("SELECT k FROM r WHERE k IN (SELECT window_start FROM HOP(s, ts, 2, 3))", "the window of a subquery"),
        ("SELECT string_agg(b, ORDER BY ts) FROM s [RANGE 5]", "an argument is missing"),
        (
            "CREATE TABLE w (k DOUBLE); CREATE TEMPLATE t (k BIGINT) AS SELECT a FROM s WHERE a = $k;"
            "CREATE QUERIES g FROM TEMPLATE t USING TABLE w",
            "do not fit the parameters",
        ),
        ("CREATE FUNCTION f(k DECIMAL(99)) AS k; SELECT f(a) FROM s", "unknown type"),
        ("CREATE FUNCTION f(k UUID) AS k; SELECT f(b) FROM s", "a value of this type"),
        (
            "CREATE TEMPLATE t (k BIGINT, m DOUBLE) AS SELECT a FROM s WHERE a = $k AND a > $m;"
            f"CREATE QUERIES g FROM TEMPLATE t VALUES (1, 2.{'9' * 60}), (2 [ROWS 3], NULL)",  # was read 2 ** 60 ways
            "are literals",
        ),
        ("SELECT a FROM u [RANGE 5] WHERE ({}) COLLATE {} = (EXTRACT(DAY FROM 'x'))", "the collation"),
    ],
)
def test_refused(query: str, says: str) -> None:
    """With what is wrong, and at once."""
    with pytest.raises(WindrowError, match=says):
        windrow.run(
            DECLARED + query, STREAMS, {"r": pa.table({"k": [1]}), "w": pa.table({"k": [0.5]})}, runtime="local"
        )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT NULL AS n FROM s [RANGE 5]",
        "SELECT DISTINCT a, NULL AS n FROM s [RANGE 5]",
        "SELECT a, b FROM s [RANGE 9] ORDER BY a DESC LIMIT 9223372036854775807",
        "SELECT a, b FROM s [RANGE 9] ORDER BY a DESC LIMIT 9223372036854775806 OFFSET 1",
        "SELECT NULL AS x, COUNT(*) AS n FROM s [RANGE 5] GROUP BY 1",
        "SELECT COUNT(*) AS n FROM s [RANGE 5] GROUP BY ROLLUP (NULL)",
    ],
)
def test_answered(query: str) -> None:
    """As the definition has it."""
    script = f"{DECLARED} CREATE QUERY q AS {query}"
    tables = {"r": pa.table({"k": [1]})}
    assert_same(
        windrow.run(script, STREAMS, tables, runtime="local", until=12)["q"],
        oracle(script, STREAMS, tables, until=12)["q"],
    )


@pytest.mark.parametrize("statement", ["DROP SELECT a FROM s", "SHOW x", "ALTER TABLE x FOO y"])
def test_refused_without_a_word_elsewhere(statement: str, caplog: pytest.LogCaptureFixture) -> None:
    """The error says all; the parser underneath says nothing to a log."""
    with pytest.raises(WindrowError, match="expected a SELECT"):
        windrow.run(f"{DECLARED} CREATE QUERY q AS {statement}", STREAMS, runtime="local")
    assert not caplog.records
