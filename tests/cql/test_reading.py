"""Statements that read what is live: archives, kept answers, and one-time queries."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from windrow import cql
from windrow.archive import ArchiveLayout
from windrow.catalog import Catalog, TableDef
from windrow.catalog.literals import literal
from windrow.cql.one_time import OneTimeSelect
from windrow.cql.parameters import with_values
from windrow.errors import BindingError, CQLSyntaxError, UnsupportedError, WindrowError

STREAMS = """
CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE, w VARCHAR) TIMESTAMP BY ts;
CREATE STREAM r (ts BIGINT, k BIGINT, l BIGINT[]) TIMESTAMP BY ts;
CREATE STREAM m (ts TIMESTAMP, key BIGINT) TIMESTAMP BY ts;
CREATE TABLE t (k BIGINT, name VARCHAR);
"""


@pytest.fixture(scope="module")
def catalog():
    found = Catalog()
    for statement in cql.parse(STREAMS):
        found = found.add(cql.bind(statement, found).definition)
    return found


def bound(text, catalog):
    (statement,) = cql.parse(text)
    return cql.bind(statement, catalog)


def archive(text, catalog):
    return bound(f"CREATE ARCHIVE a AS {text}", catalog).definition


def test_an_archive(catalog):
    """All clauses; the key is a column of the answer, as it is spelled there."""
    found = archive("SELECT k AS Id, v FROM s [RANGE 100] KEY id EVERY 10 PARTITIONS 2 x 8 REBUILD", catalog)
    assert (found.name, found.keys, found.every, found.lifetime) == ("a", ("Id",), 10, 100)
    assert found.layout == ArchiveLayout(2, 8, rebuild=True)
    assert list(found.columns) == ["Id", "v"]
    found = archive("SELECT * FROM s [RANGE 100] KEY k, w EVERY '10'", catalog)
    assert (found.keys, found.layout, found.rebuild) == (("k", "w"), None, None)
    assert archive(
        "SELECT * FROM s [RANGE 9] KEY k EVERY 3 NO REBUILD PARTITIONS 4x4", catalog
    ).layout == ArchiveLayout(4, 4)
    assert archive("SELECT * FROM s [RANGE 9] KEY k EVERY 3 PARTITIONS 9", catalog).layout == ArchiveLayout(3, 3)
    assert archive("SELECT key FROM m [RANGE 1 HOUR] KEY key EVERY '10 minutes'", catalog).every == 600_000_000


@pytest.mark.parametrize(
    ("text", "lifetime"),
    [
        ("SELECT s.k FROM s [RANGE 100], r [RANGE 30] WHERE s.k = r.k", 30),
        ("SELECT s.k FROM s [RANGE 100], t WHERE s.k = t.k", 100),
        ("SELECT DISTINCT k FROM s [RANGE 100]", 100),
        ("SELECT k FROM s [RANGE 100] UNION ALL SELECT k FROM r [RANGE 150]", 150),
        ("SELECT k FROM s [NOW]", 1),
        ("SELECT k FROM s [RANGE 100] LEFT JOIN t USING (k)", 100),
    ],
)
def test_how_long_rows_may_live(catalog, text, lifetime):
    """The greatest lifetime comes from the windows."""
    assert archive(f"{text} KEY k EVERY 5", catalog).lifetime == lifetime


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT k, COUNT(*) AS n FROM s [RANGE 9] GROUP BY k KEY k EVERY 3", UnsupportedError, "strict"),
        ("SELECT k FROM s [ROWS 9] KEY k EVERY 3", UnsupportedError, "strict"),
        ("SELECT k FROM s [RANGE UNBOUNDED] KEY k EVERY 3", UnsupportedError, "never end"),
        ("SELECT ISTREAM k FROM s [RANGE 9] KEY k EVERY 3", UnsupportedError, "keeps a relation"),
        ("SELECT k FROM s [RANGE 9 SLIDE 3] KEY k EVERY 3", UnsupportedError, "keeps a relation"),
        ("SELECT k FROM s [RANGE 9] KEY kk EVERY 3", BindingError, 'no column "kk"'),
        ("SELECT l FROM r [RANGE 9] KEY l EVERY 3", BindingError, "has no order"),
        ("SELECT k FROM s [RANGE 9] KEY k EVERY 0", BindingError, "EVERY is too short"),
        ("SELECT k FROM s [RANGE 9] KEY k EVERY '10 minutes'", BindingError, "has a unit"),
        ("SELECT k FROM s [RANGE 9] KEY k EVERY 3 PARTITIONS 7", BindingError, "7 is not a square"),
        ("SELECT k FROM s [RANGE 9] KEY k EVERY 3 TWICE", CQLSyntaxError, "expected PARTITIONS"),
        ("SELECT k FROM s [RANGE 9]", CQLSyntaxError, "needs KEY and EVERY"),
    ],
)
def test_what_cannot_be_archived(catalog, text, error, message):
    """Each refusal says why, and where."""
    with pytest.raises(error) as found:
        archive(text, catalog)
    assert message in str(found.value) and found.value.span is not None


def test_archives_have_names_of_their_own(catalog):
    """An archive's name is taken, what it reads stays, and it can be dropped."""
    found = bound("CREATE ARCHIVE a AS SELECT k FROM s [RANGE 9] KEY k EVERY 3", catalog)
    with_it = catalog.add(found.definition)
    with pytest.raises(BindingError, match='archive "a" already exists'):
        bound("CREATE QUERY a AS SELECT k FROM s [RANGE 9]", with_it)
    with pytest.raises(BindingError, match='stream "s" is read by a'):
        bound("DROP STREAM s", with_it)
    assert bound("DROP ARCHIVE A", with_it).name == "a"
    assert with_it.drop("archive", "a").archives == {}


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("SELECT * FROM m [RANGE 1 HOUR] KEEP 7 DAYS", 7 * 86_400_000_000),
        ("SELECT * FROM m [RANGE 1 HOUR] KEEP '90 seconds'", 90_000_000),
        ("SELECT * FROM s [RANGE 5] KEEP 1000", 1000),
        ("SELECT keep.k FROM s [RANGE 5] AS keep", None),
    ],
)
def test_keep(catalog, text, keep):
    """KEEP stands at the end, in units of the query's clock; a name may be KEEP."""
    found = bound(f"CREATE QUERY q AS {text}", catalog)
    assert found.definition.keep == keep
    again = cql.compile_select(found.definition.text, catalog, "q")  # as a home remembers it
    assert again == found.definition


def test_keep_needs_a_time(catalog):
    """Units must fit the clock."""
    with pytest.raises(BindingError, match="has a unit"):
        bound("CREATE QUERY q AS SELECT * FROM s [RANGE 5] KEEP 7 DAYS", catalog)


# -- one-time queries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (False, "FALSE"),
        (-7, "-7"),
        (1e300, "1e+300"),
        (float("nan"), "CAST('nan' AS DOUBLE)"),
        (Decimal("1.50"), "1.50"),
        ("a'; DROP", "'a''; DROP'"),
        (b"\x00'", "CAST('\\x00\\x27' AS BLOB)"),
        (dt.datetime(2026, 3, 1, 12), "TIMESTAMP '2026-03-01 12:00:00'"),
        (dt.date(2026, 3, 1), "DATE '2026-03-01'"),
        (dt.timedelta(minutes=1), "INTERVAL '60000000 microseconds'"),
        ([1, "b"], "(1, 'b')"),
        (pa.scalar(5), "5"),
    ],
)
def test_values_become_literals(value, text):
    """A value is a literal and nothing else."""
    assert literal(value) == text


def test_parameters():
    """By name, by number and in order; not in strings, comments and quoted names."""
    assert with_values("$a ? $$ $a $$ '$a' \"$a\" -- $a\n$b", {"a": 1, "1": 2, "b": 3}) == (
        "1 2 $$ $a $$ '$a' \"$a\" -- $a\n3"
    )
    assert with_values("a > ? AND b < ? [RANGE $3]", [1, 2, 30]) == "a > 1 AND b < 2 [RANGE 30]"
    with pytest.raises(BindingError, match=r"no value is given for \$y"):
        with_values("$y", {"x": 1})
    with pytest.raises(BindingError, match=r"\$x is given a value"):
        with_values("SELECT 1", {"x": 1})
    with pytest.raises(BindingError, match="cannot be the value"):
        with_values("$x", {"x": object()})


def finished(text, catalog, answer):
    return OneTimeSelect.parse(text).bind(catalog).finished(answer)


def test_order_by_and_limit(catalog):
    """By column, by place, by what is not selected; nulls last, NaN greatest; then a slice."""
    nan = float("nan")
    answer = pa.table({"k": [1, 2, None, 4], "v": [0.5, nan, 1.5, None]})
    select = "SELECT k, v FROM s [RANGE 5]"
    assert finished(f"{select} ORDER BY v DESC LIMIT 2", catalog, answer).column("k").to_pylist() == [2, None]
    assert finished(f"{select} ORDER BY 2 NULLS FIRST OFFSET 1", catalog, answer).column("k").to_pylist() == [
        1,
        None,
        2,
    ]
    found = OneTimeSelect.parse(f"{select} ORDER BY w || 'x' DESC, K").bind(catalog)
    assert [shown for shown, _ in found.plan.output] == ["k", "v", "order by 0"]
    with_key = answer.append_column("order by 0", pa.array(["a", "b", None, "b"]))
    assert found.finished(with_key).column_names == ["k", "v"]
    assert found.finished(with_key).column("k").to_pylist() == [2, 4, 1, None]
    grouped = OneTimeSelect.parse("SELECT k FROM s [RANGE 5] GROUP BY k ORDER BY SUM(v) LIMIT 3").bind(catalog)
    assert len(grouped.plan.output) == 2 and grouped.limit == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT k FROM s [RANGE 5] ORDER BY 2", "the answer has 1 columns"),
        ("SELECT DISTINCT k FROM s [RANGE 5] ORDER BY v", "not selected"),
        ("SELECT k FROM s [RANGE 5] ORDER BY ALL", "ORDER BY ALL"),
        ("SELECT k FROM s [RANGE 5] LIMIT k", "whole number"),
        ("SELECT k FROM s [RANGE 5] LIMIT 10%", "whole number"),
        ("DROP QUERY q", "expected one SELECT"),
        ("SELECT 1 AS a FROM t; SELECT 2 AS a FROM t", "expected one SELECT"),
        ("SELECT * FROM q AS OF k", "AS OF needs an instant"),
        ("SELECT * FROM q AS OF TIMESTAMP 'soon'", "AS OF needs an instant"),
    ],
)
def test_what_a_one_time_query_cannot_do(catalog, text, message):
    """Clear refusals."""
    with pytest.raises(WindrowError, match=message):
        OneTimeSelect.parse(text).bind(catalog)


def test_as_of_is_for_one_time_queries(catalog):
    """A continuous query follows the present."""
    with pytest.raises(UnsupportedError, match="AS OF"):
        bound("CREATE QUERY q AS SELECT t.k FROM s [RANGE 5], t AS OF 7 WHERE s.k = t.k", catalog)


def test_as_of(catalog):
    """Every instant of a query is a table of its own; aliases stay."""
    text = "SELECT a.k, q.k AS b FROM q AS OF TIMESTAMP '2026-03-01 12:00:00+02:00' a, q AS OF 7 WHERE a.k = q.k"
    found = OneTimeSelect.parse(text)
    assert found.travels == {
        "q as of 2026-03-01 10:00:00": ("q", dt.datetime(2026, 3, 1, 10)),
        "q as of 7": ("q", 7),
    }
    tables = {n: TableDef(n, {"k": pa.int64()}) for n in found.travels}
    plan = found.bind(Catalog(catalog.streams, tables)).plan
    assert set(plan.tables) == set(found.travels)
    assert OneTimeSelect.parse("SELECT * FROM q AS OF $at", {"at": dt.datetime(2026, 3, 1)}).travels
