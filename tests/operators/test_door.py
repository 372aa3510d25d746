"""The door to DuckDB: what an expression could not say, its connection could not do either."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import windrow
from windrow.errors import RuntimeFailure, WindrowError
from windrow.operators import scalar
from windrow.scalar_engine import connect, literal, quote


@pytest.mark.parametrize(
    "text",
    [
        "SELECT content FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '/tmp/windrow-escape.csv'",
        "ATTACH '/tmp/windrow-escape.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 8",
        "SET enable_external_access = true",
        "PRAGMA memory_limit = '99GB'",
        "CREATE PERSISTENT SECRET s (TYPE s3)",
        "SELECT * FROM some_python_variable",
    ],
)
def test_a_connection_reaches_nothing(text: str) -> None:
    """Files, the network, extensions, settings and Python variables are out of reach."""
    some_python_variable = pa.table({"a": [1]})
    with pytest.raises(duckdb.Error):
        connect().execute(text)
    assert some_python_variable.num_rows == 1


def test_a_quoted_type_name_reads_no_file() -> None:
    """A text that ends its cast and goes on reaches nothing, in the binder or in a task."""
    escape = """1::"oid)::varchar || (SELECT content FROM read_text('/etc/hostname')) || ('y\""""
    with pytest.raises(WindrowError):
        windrow.run(f"SELECT {escape} AS x FROM s [RANGE 1]", {"s": {"ts": [1]}}, runtime="local")


def test_names_and_texts_are_quoted_in_one_place() -> None:
    """Whatever they contain."""
    assert connect().execute(f"SELECT {literal(chr(39) + '; DROP')} AS {quote('a' + chr(34) + 'b')}").fetchall() == [
        ("'; DROP",)
    ]


def test_an_error_of_duckdb_itself_stops_one_expression() -> None:
    """A time that DuckDB cannot write invalidates its database: the next expression has another one."""
    late = {"at": pa.array([2 - 2**63], pa.timestamp("us"))}
    with pytest.raises(RuntimeFailure, match="not marked as fallible"):
        scalar.evaluate(late, 1, [('CAST("at" AS VARCHAR)', pa.string())])
    assert scalar.evaluate({"t": pa.array(["ab"])}, 1, [('reverse("t")', pa.string())])[0].to_pylist() == ["ba"]
