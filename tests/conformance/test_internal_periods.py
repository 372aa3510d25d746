"""INTERNAL beside SLIDE changes nothing, and streams that UNION ALL merges keep their own periods."""

from __future__ import annotations

import pyarrow as pa
import pytest

import windrow
from windrow.testing import oracle

DECLARED = """
CREATE STREAM S (a BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM T (a BIGINT, ts BIGINT) TIMESTAMP BY ts;
"""
GIVEN = {"S": pa.table({"a": [1, 2, 3], "ts": [1, 2, 5]}), "T": pa.table({"a": [7, 8], "ts": [1, 4]})}


def answered(query: str) -> list[tuple[int, ...]]:
    (table,) = windrow.run(DECLARED + query, GIVEN, runtime="local", until=12).values()
    (want,) = oracle(DECLARED + query, GIVEN, until=12).values()
    rows = [tuple(r.values()) for r in table.to_pylist()]
    assert sorted(rows) == sorted(tuple(r.values()) for r in want.to_pylist())
    return sorted(rows)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT S.a, T.a AS b FROM S [RANGE 3{}], T [RANGE 5 SLIDE 2] WHERE S.a < T.a",
        "SELECT ISTREAM(S.a, T.a AS b) FROM S [RANGE 3], T [RANGE 5 SLIDE 2{}] WHERE S.a < T.a",
        "SELECT a FROM S [RANGE 3{}] UNION ALL SELECT a FROM T [RANGE 2 SLIDE 2]",
        "SELECT DSTREAM(a) FROM (SELECT a FROM S [RANGE 3{}] UNION ALL SELECT a FROM T [RANGE 2 SLIDE 2]) q",
        "SELECT ISTREAM(a, (SELECT MAX(T.a) FROM T [RANGE 4 SLIDE 3]) AS m) FROM S [RANGE 2{}]",
        "SELECT DSTREAM(a, (SELECT MAX(T.a) FROM T [RANGE 2{}]) AS m) FROM S [RANGE 7 SLIDE 5]",
        "SELECT COUNT(*) AS n FROM S [RANGE 3{}] CROSS JOIN T [RANGE 5 SLIDE 2]",
    ],
)
def test_internal_beside_a_slide_changes_nothing(query: str) -> None:
    """On any window of a query that a SLIDE makes periodic, in joins, branches and subqueries."""
    assert answered(query.format(" INTERNAL")) == answered(query.format(""))


def test_streams_that_are_merged_keep_their_periods() -> None:
    """Branches with stream operators are streams of their own: one may be periodic, and another not."""
    merged = "SELECT {0}(a) FROM S [RANGE 3] UNION ALL SELECT {0}(a) FROM T [RANGE 2 SLIDE 2]"
    assert answered(merged.format("ISTREAM")) == [(1, 1), (2, 2), (2, 7), (4, 8), (5, 3)]
    assert answered(merged.format("DSTREAM")) == [(4, 1), (4, 7), (5, 2), (6, 8), (8, 3)]
    differ = "SELECT ISTREAM(a) FROM S [RANGE 3 SLIDE 4] UNION ALL SELECT ISTREAM(a) FROM T [RANGE 2 SLIDE 2]"
    assert answered(differ) == [(2, 7), (4, 2), (4, 8)]
    kept = "SELECT DSTREAM(a) FROM S [RANGE 3 INTERNAL] UNION ALL SELECT DSTREAM(a) FROM T [RANGE 2]"
    assert answered(kept) == [(3, 7), (6, 8)]
