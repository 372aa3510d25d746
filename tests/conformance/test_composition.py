"""Queries over views and over queries: the same as their texts in place of their names, at every instant."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow
from windrow.errors import BindingError, UnsupportedError
from windrow.testing import assert_same, oracle
from windrow.testing.strategies import SHAPES, cases

DECLARED = "CREATE STREAM s (k BIGINT, x BIGINT, ts BIGINT) TIMESTAMP BY ts;"
STREAM = {
    "s": pa.table(
        {"k": [1, 2, 1, 3, 2, 1, 1, 2], "x": [5, 3, 8, 1, 3, 9, 2, 7], "ts": [1, 2, 2, 4, 5, 9, 10, 10]},
    )
}
RELATION = "SELECT k, COUNT(*) AS n FROM s [RANGE 4] GROUP BY k"
PERIODIC = "SELECT k, COUNT(*) AS n FROM s [RANGE 4 SLIDE 2] GROUP BY k"
ROWS = "SELECT ISTREAM(k, x) FROM s [RANGE 3]"
PAIRS = (
    (RELATION, "SELECT MAX(n) AS m FROM v"),
    (RELATION, "SELECT a.k, b.n FROM v a JOIN v b ON a.n = b.n, s [NOW] WHERE s.k = a.k"),
    (RELATION, "SELECT s.x FROM s [RANGE 2] WHERE EXISTS (SELECT 1 FROM v WHERE v.k = s.k AND v.n > 1)"),
    (RELATION, "SELECT k FROM v UNION SELECT x FROM s [RANGE 1]"),
    (PERIODIC, "SELECT COUNT(*) AS m FROM v WHERE n = 2"),
    (PERIODIC, "SELECT COUNT(*) AS m FROM v [ROWS 3]"),
    (ROWS, "SELECT k, SUM(x) AS t FROM v [RANGE 5] GROUP BY k"),
    (ROWS, "SELECT RSTREAM(AVG(x) AS t) FROM v w [RANGE 6 SLIDE 3]"),
    (ROWS, "SELECT x FROM v [PARTITION BY k ROWS 1]"),
    ("SELECT WSTREAM(x)[ROWS 2] FROM s [RANGE 3]", "SELECT COUNT(*) AS n FROM v"),
    ("SELECT k, x FROM s [RANGE 4] ORDER BY x DESC LIMIT 2", "SELECT SUM(x) AS t FROM v"),
)


def written(kind):
    """All pairs in one script."""
    named = [f"CREATE {kind} v{i} AS {inner}" for i, (inner, _) in enumerate(PAIRS)]
    read = [f"CREATE QUERY q{i} AS {outer.replace('FROM v', f'FROM v{i}')}" for i, (_, outer) in enumerate(PAIRS)]
    read = [r.replace("JOIN v b", f"JOIN v{i} b").replace("v.", f"v{i}.") for i, r in enumerate(read)]
    return f"{DECLARED} {'; '.join(named)}; {'; '.join(read)}"


def agree(got, want):
    assert set(got) == set(want)
    for name in want:
        assert_same(got[name], want[name])


@pytest.mark.parametrize("kind", ["VIEW", "QUERY"])
def test_a_name_means_its_text(kind):
    """What is asked of a view or a query is what is asked of its text; a view has no answer of its own."""
    want = oracle(written(kind), STREAM, until=15)
    assert ("v0" in want) == (kind == "QUERY")
    agree(windrow.run(written(kind), STREAM, runtime="local", until=15, batch_rows=3), want)


@pytest.mark.spark
def test_both_runtimes_agree():
    """On Spark as in process."""
    want = windrow.run(written("QUERY"), STREAM, runtime="local", until=15)
    agree(windrow.run(written("QUERY"), STREAM, runtime="spark", until=15), want)


@settings(max_examples=12, deadline=None)
@given(cases(shapes=[s for s in SHAPES if s != "mixed"], max_rows=8), st.sampled_from(["VIEW", "QUERY"]))
def test_any_query_may_be_read(case, kind):
    """Whatever a query is, how many rows it has is the count over its name; a stream is counted in a window."""
    declared, _, query = case.script.rpartition("\n")
    for window in ("", " [ROWS 3]"):
        reader = f"CREATE QUERY q AS SELECT COUNT(*) AS n FROM inside{window}"
        script = f"{declared} CREATE {kind} inside AS {query}; {reader}"
        try:
            got = windrow.run(script, case.streams, case.tables, runtime="local", until=case.until)
        except (BindingError, UnsupportedError) as error:  # a window on a relation, RESTORE inside, ...
            with pytest.raises(type(error)):
                in_place = f"{declared} SELECT COUNT(*) AS n FROM ({query}) inside{window}"
                windrow.run(in_place, case.streams, case.tables, runtime="local", until=case.until)
            continue
        agree(got, oracle(script, case.streams, case.tables, case.until))


def test_names_of_with_come_first():
    """A WITH hides views of its names, and the text of a view sees no WITH but its own."""
    script = (
        DECLARED
        + """
        CREATE VIEW v AS SELECT k FROM s [RANGE 3];
        CREATE VIEW w AS SELECT k + 10 AS k FROM v;
        CREATE QUERY q AS WITH v AS (SELECT x AS k FROM s [NOW]) SELECT w.k, v.k AS x FROM w CROSS JOIN v;
        CREATE QUERY r AS WITH v AS (SELECT k * 2 AS k FROM v) SELECT k FROM v
    """
    )
    same = (
        DECLARED
        + """
        CREATE QUERY q AS SELECT w.k, v.k AS x FROM (SELECT k + 10 AS k FROM s [RANGE 3]) w
            CROSS JOIN (SELECT x AS k FROM s [NOW]) v;
        CREATE QUERY r AS SELECT k * 2 AS k FROM s [RANGE 3]
    """
    )
    agree(windrow.run(script, STREAM, runtime="local"), oracle(same, STREAM))
