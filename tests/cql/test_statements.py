"""Scripts, declarations and windows as written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow import cql
from windrow.catalog import Catalog
from windrow.errors import WindrowError
from windrow.plan.nodes import Scan, StreamOp, Window, WindowKind, walk

MINUTE = 60_000_000


def definition(text):
    (statement,) = cql.parse(text)
    return cql.bind(statement, Catalog()).definition


def window(plan, text):
    """The spec of the only window on a scan."""
    (found,) = [n.spec for n in walk(plan(text).root) if isinstance(n, Window) and isinstance(n.input, Scan)]
    return found


def test_a_script_splits_at_semicolons_that_are_tokens(catalog):
    """Semicolons in strings, names and comments do not end a statement."""
    script = "SELECT 'a;b' FROM s; -- c; d\n/* ; */ SELECT a AS \"x;y\" FROM s;;\n"
    texts = [s.text for s in cql.parse(script)]
    assert texts == ["SELECT 'a;b' FROM s", '/* ; */ SELECT a AS "x;y" FROM s']
    assert cql.bind(cql.parse(script)[1], catalog).definition.output[0][0] == "x;y"


def test_an_empty_script_has_no_statements():
    """Blank text and comments are no statements."""
    assert cql.parse("") == cql.parse(" ;; -- nothing\n") == ()


def test_queries_are_named_by_position(catalog):
    """A bare SELECT takes its number among all queries of the script."""
    script = "SELECT a FROM s; CREATE QUERY hot AS SELECT a FROM s; EXPLAIN SELECT a FROM s; SELECT b FROM s"
    bound = [cql.bind(s, catalog) for s in cql.parse(script)]
    assert [b.definition.name for b in bound if isinstance(b, cql.Create)] == [
        "q1",
        "hot",
        "q3",
    ]


def test_a_stream_with_all_clauses():
    """Clauses come in any order and keep their values."""
    stream = definition(
        """create stream Bid (auction bigint, price decimal(10, 2), tags varchar[], "at time" timestamp with time zone)
        retain 10 minutes timestamp by "at time" idle after '10 sec' within 1.5 seconds
        from kafka (topic => 'bids', "group.id" => 'g', starting = 5)"""
    )
    assert stream.name == "Bid"
    assert dict(stream.columns) == {
        "auction": pa.int64(),
        "price": pa.decimal128(10, 2),
        "tags": pa.list_(pa.string()),
        "at time": pa.timestamp("us", "UTC"),
    }
    assert (stream.time, stream.slack, stream.idle_after) == ("at time", 1_500_000, 10_000_000)
    assert stream.retain == 10 * MINUTE
    assert stream.options == {"source": "kafka", "topic": "bids", "group.id": "g", "starting": "5"}


@pytest.mark.parametrize("clause", ["TIMESTAMP BY b", "TIMESTAMP b", "TIMESTAMP (b)", "time by B", "ORDER BY b"])
def test_spellings_of_the_time_column(clause):
    """All accepted spellings name the same column."""
    assert definition(f"CREATE STREAM z (a TIMESTAMP, b BIGINT) {clause}").time == "b"


@pytest.mark.parametrize(
    ("columns", "time"), [("ts INT, d TIMESTAMP", "ts"), ("a INT, d TIMESTAMP", "d"), ("TS INT", "TS")]
)
def test_the_time_column_is_found(columns, time):
    """Without a clause it is `ts`, else the only timestamp."""
    assert definition(f"CREATE STREAM z ({columns})").time == time


def test_a_table_with_all_clauses():
    """RETROACTIVE, VALID and WITH are kept."""
    columns = "a INT, f TIMESTAMP, z TIMESTAMP"
    table = definition(f"CREATE TABLE p ({columns}) VALID FROM f TO Z WITH (path = 'p.csv') RETROACTIVE")
    assert (table.retroactive, table.valid, table.options) == (True, ("f", "z"), {"path": "p.csv"})


def test_drop_and_explain(catalog, declare):
    """DROP gives the kind and name, EXPLAIN a plan and a format."""
    known = declare("CREATE QUERY hot AS SELECT a FROM s", catalog)
    script = "DROP QUERY HOT; DROP STREAM IF EXISTS nothing; EXPLAIN hot; EXPLAIN (FORMAT svg) SELECT a FROM s"
    drop, missing, named, drawn = (cql.bind(s, known) for s in cql.parse(script))
    assert drop == cql.Drop("query", "hot", False)
    assert missing == cql.Drop("stream", "nothing", True)
    assert (named.plan.name, named.format, drawn.format) == ("hot", "text", "svg")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("RANGE 12 MINUTES", 12 * MINUTE),
        ("WINDOW '12 min'", 12 * MINUTE),
        ("range 12min", 12 * MINUTE),
        ("RANGE 1 Hour", 60 * MINUTE),
        ("RANGE '1 hour 30 min'", 90 * MINUTE),
        ("RANGE INTERVAL '1' HOUR", 60 * MINUTE),
        ("RANGE 1.5 sec", 1_500_000),
        ("RANGE 20 ms", 20_000),
        ("RANGE 7 us", 7),
        ("RANGE 2 days", 2880 * MINUTE),
    ],
)
def test_spellings_of_a_length(written, size, plan):
    """Lengths may be quoted or not, with any spelling of their unit."""
    spec = window(plan, f"SELECT a FROM s [{written}]")
    assert (spec.kind, spec.size, spec.text) == (WindowKind.RANGE, size, f"[{written}]")


@pytest.mark.parametrize(
    ("written", "kind", "size", "slide", "internal"),
    [
        ("[RANGE 1 min SLIDE 10 sec]", WindowKind.RANGE, MINUTE, MINUTE // 6, False),
        ("[INTERNAL RANGE 1 min]", WindowKind.RANGE, MINUTE, None, True),
        ("[RANGE 1 min INTERNAL SLIDE 1 min]", WindowKind.RANGE, MINUTE, MINUTE, True),
        ("[RANGE UNBOUNDED]", WindowKind.UNBOUNDED, None, None, False),
        ("[WINDOW UNTIL NOW SLIDE 1 min]", WindowKind.UNBOUNDED, None, MINUTE, False),
        ("[now]", WindowKind.NOW, None, None, False),
        ("[rows 10 slide 5 internal]", WindowKind.ROWS, 10, 5, True),
        ("", WindowKind.UNBOUNDED, None, None, False),
    ],
)
@pytest.mark.parametrize("form", ["s {}", "s{}", "s AS z {}", "s z {}", "s {} AS z", "s {} z"])
def test_windows_and_where_the_alias_stands(written, kind, size, slide, internal, form, plan):
    """Every kind of window, with the alias before it or after."""
    spec = window(plan, f"SELECT a FROM {form.format(written)}")
    assert (spec.kind, spec.size, spec.slide, spec.internal) == (kind, size, slide, internal)


def test_partitions_are_internal_names(plan):
    """PARTITION BY names columns of its own stream."""
    assert window(plan, "SELECT a FROM s z [PARTITION BY B, z.n ROWS 3 SLIDE 2]").partition == ("z.b", "z.n")


@pytest.mark.parametrize(
    ("items", "op"),
    [
        ("ISTREAM(*)", StreamOp.ISTREAM),
        ("dstream(a, b AS c)", StreamOp.DSTREAM),
        ("RStream a, b", StreamOp.RSTREAM),
        ("ISTREAM *", StreamOp.ISTREAM),
        ("Istream-restore(*)", StreamOp.ISTREAM_RESTORE),
        ("RSTREAM_RESTORE(DISTINCT a)", StreamOp.RSTREAM_RESTORE),
        ("ISTREAM DISTINCT a", StreamOp.ISTREAM),
        ("DISTINCT ISTREAM(a)", StreamOp.ISTREAM),
        ("a", StreamOp.RSTREAM),
    ],
)
def test_spellings_of_stream_operators(items, op, plan):
    """Operators stand around the list or before it, in any case; a periodic query without one is RSTREAM."""
    root = plan(f"SELECT {items} FROM s [RANGE 5 SEC SLIDE 5 SEC]").root
    assert (root.op, root.period) == (op, 5_000_000)


def test_an_operator_word_can_be_a_column(declare):
    """A column may be called istream."""
    known = declare("CREATE STREAM z (istream BIGINT, ts BIGINT)")
    query = cql.compile_select("SELECT istream, istream + 1 AS b FROM z WHERE istream > 1", known, "q")
    assert [name for name, _ in query.output] == ["istream", "b"]


_VOCABULARY = """
    SELECT FROM WHERE GROUP BY HAVING s t p a n x ts ( ) [ ] , . ; * = > + - 'w' "q" 5 SEC RANGE ROWS SLIDE NOW INTERNAL
    PARTITION JOIN LEFT ON USING ISTREAM WSTREAM DISTINCT COUNT SUM NOT EXISTS IN UNION ALL EXCEPT AS AND OR CREATE
    STREAM TABLE QUERY DROP EXPLAIN CASE WHEN THEN END CAST BETWEEN NULL INTERVAL TIMESTAMP :: { } /* */ -- $1 ? ' "
    OVER LIMIT FILTER LATERAL VALUES WITH
"""
_STARTS = ["", "SELECT ", "SELECT a FROM s ", "SELECT a FROM s [", "CREATE "]


@given(st.lists(st.sampled_from(_VOCABULARY.split()), max_size=14), st.sampled_from(_STARTS))
def test_any_text_binds_or_gets_our_error(catalog, words, start):
    """Nothing but a WindrowError with a place comes out of bad text."""
    try:
        for statement in cql.parse(start + " ".join(words)):
            cql.bind(statement, catalog)
    except WindrowError as error:
        assert error.span is not None
        assert "sqlglot" not in str(error)
