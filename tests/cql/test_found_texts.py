"""Texts that fuzzing found to raise something else than a WindrowError, or not to come back."""

from __future__ import annotations

import pyarrow as pa
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

DECLARED = "".join(f"CREATE STREAM {n} (ts BIGINT, a BIGINT, b VARCHAR) TIMESTAMP BY ts;" for n in "su")
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
        ("SELECT a FROM u [RANGE 5] WHERE ({}) COLLATE {} = (EXTRACT(DAY FROM 'x'))", "the collation"),
    ],
)
def test_refused(query: str, says: str) -> None:
    """With what is wrong, and at once."""
    with pytest.raises(WindrowError, match=says):
        windrow.run(DECLARED + query, STREAMS, runtime="local")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT NULL AS n FROM s [RANGE 5]",
        "SELECT DISTINCT a, NULL AS n FROM s [RANGE 5]",
        "SELECT NULL AS x, COUNT(*) AS n FROM s [RANGE 5] GROUP BY 1",
    ],
)
def test_answered(query: str) -> None:
    """As the definition has it."""
    script = f"{DECLARED} CREATE QUERY q AS {query}"
    assert_same(windrow.run(script, STREAMS, runtime="local", until=12)["q"], oracle(script, STREAMS, until=12)["q"])
