"""SHOW and DESCRIBE: what is declared, as tables; and texts as they were written."""

from __future__ import annotations

import pyarrow as pa
import pytest

import windrow
from windrow.catalog import Catalog
from windrow.engine.script import applied
from windrow.errors import BindingError, CQLSyntaxError

SCRIPT = """
-- what comes in
CREATE STREAM trade (sym VARCHAR, price DOUBLE, ts TIMESTAMP) TIMESTAMP BY ts
    WITHIN 1500 MILLISECONDS RETAIN 1 HOUR; -- of the exchange
CREATE TABLE person (id BIGINT, since BIGINT, till BIGINT) VALID FROM since TO till;
/* the hot ones */
CREATE QUERY hot AS
    SELECT sym, MAX(price) AS top  -- of the hour
    FROM trade [RANGE 1 HOUR] GROUP BY sym; -- enough
CREATE TEMPLATE alert (lim DOUBLE) AS SELECT sym FROM trade [NOW] WHERE price > $lim;
CREATE QUERIES alerts FROM TEMPLATE alert VALUES (1), (2);
CREATE SINK board FOR hot TO memory;
"""
HOT = """/* the hot ones */
CREATE QUERY hot AS
    SELECT sym, MAX(price) AS top  -- of the hour
    FROM trade [RANGE 1 HOUR] GROUP BY sym"""


@pytest.fixture
def engine():
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        yield engine


def shown(engine, script):
    (table,) = engine.execute(script)
    assert isinstance(table, pa.Table)
    return table.to_pylist()


def test_show_lists_what_is_declared(engine):
    """A row for each declaration, with its columns and its text."""
    (stream,) = shown(engine, "SHOW STREAMS")
    assert (stream["name"], stream["columns"], stream["time"]) == ("trade", ["sym", "price", "ts"], "ts")
    (table,) = shown(engine, "show tables")
    assert table["text"].endswith("VALID FROM since TO till")
    hot, alerts = shown(engine, "SHOW QUERIES")
    assert (hot["name"], hot["columns"], hot["reads"], hot["sinks"]) == ("hot", ["sym", "top"], ["trade"], ["board"])
    assert (alerts["name"], alerts["reads"]) == ("alerts", ["alert"])
    assert [r["name"] for r in shown(engine, "SHOW SINKS")] == ["board"]
    assert [r["name"] for r in shown(engine, "SHOW TEMPLATES")] == ["alert"]
    assert shown(engine, "SHOW ARCHIVES") == []


def test_like_chooses_by_name(engine):
    """% is any text and _ one character; case does not matter, and nothing else is special."""
    assert [r["name"] for r in shown(engine, "SHOW QUERIES LIKE 'H%t'")] == ["hot"]
    assert [r["name"] for r in shown(engine, "SHOW QUERIES LIKE '_ot'")] == ["hot"]
    assert shown(engine, "SHOW QUERIES LIKE 'h.*'") == []


def test_a_text_that_is_shown_declares_the_same(engine):
    """What SHOW says of streams and tables is what was declared, written anew."""
    from windrow import cql

    catalog = Catalog()
    for kind in ("STREAMS", "TABLES"):
        for row in shown(engine, f"SHOW {kind}"):
            (statement,) = cql.parse(row["text"])
            catalog = applied(cql.bind(statement, catalog), catalog)
    assert dict(catalog.streams) == dict(engine.catalog.streams)
    assert dict(catalog.tables) == dict(engine.catalog.tables)


def test_comments_are_kept(engine, tmp_path):
    """The text of a query is what was written, comments around and inside it included, after a restart too."""
    assert shown(engine, "SHOW QUERIES LIKE 'hot'")[0]["text"] == HOT
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as first:
        first.execute(SCRIPT.replace("CREATE QUERY", "CREATE OR REPLACE QUERY"))
    with windrow.Engine(runtime="local", home=home) as second:
        written = HOT.replace("CREATE QUERY", "CREATE OR REPLACE QUERY")
        assert shown(second, "SHOW QUERIES LIKE 'hot'")[0]["text"] == written


def test_describe_says_what_is_known_of_one(engine):
    """Columns with types, the time column, who reads it, and the statement."""
    rows = shown(engine, "DESCRIBE TRADE")
    assert rows[0]["property"] == "stream"
    facts = {(r["property"], r["name"], r["value"]) for r in rows}
    assert {
        ("column", "sym", "VARCHAR"), ("column", "price", "DOUBLE"), ("time", "ts", "TIMESTAMP"),
        ("read by", "hot", None),
    } <= facts  # fmt: skip
    query = {(r["property"], r["name"], r["value"]) for r in shown(engine, "DESC hot")}
    assert {
        ("query", "hot", HOT),
        ("column", "top", "DOUBLE"),
        ("reads", "trade", None),
        ("sink", "board", None),
    } <= query
    assert ("parameter", "lim", "DOUBLE") in {tuple(r.values()) for r in shown(engine, "DESCRIBE alert")}
    with pytest.raises(BindingError, match='nothing is called "trad"') as error:
        engine.execute("DESCRIBE trad")
    assert "trade" in error.value.hint


def test_it_is_as_it_is_where_the_statement_stands(engine):
    """A script sees its own declarations, and those that it has dropped no longer."""
    before, after = engine.execute(
        "SHOW SINKS; DROP SINK board; CREATE QUERY cold AS SELECT sym FROM trade; SHOW SINKS; SHOW QUERIES"
    )[::2]
    assert before.num_rows == 1
    assert after.column("name").to_pylist() == ["hot", "cold", "alerts"]


def test_secrets_are_not_shown():
    """The value of an option that holds a secret is nobody's business."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE STREAM s (a BIGINT, ts BIGINT)")
        engine.execute("CREATE QUERY q AS SELECT a FROM s")
        engine.catalog = engine.catalog.add(windrow.catalog.SinkDef("p", "q", "postgres", {"dsn": "hush", "t": "x"}))
        text = shown(engine, "SHOW SINKS")[0]["text"] + str(shown(engine, "DESCRIBE p"))
        assert "hush" not in text
        assert "x" in text


@pytest.mark.parametrize("text", ["SHOW", "SHOW EVERYTHING", "SHOW STREAMS LIKE a", "SHOW STREAMS trade", "DESCRIBE"])
def test_what_is_not_understood(text):
    """The error says what may stand there."""
    with windrow.Engine(runtime="local") as engine, pytest.raises(CQLSyntaxError, match="expected"):
        engine.execute(text)


def test_a_replay_passes_over_it():
    """In a script that is replayed they have nobody to answer to."""
    script = "SHOW STREAMS; CREATE QUERY q AS SELECT a FROM s; DESCRIBE q; SHOW QUERIES"
    assert list(windrow.run(script, {"s": {"a": [1], "ts": [1]}}, runtime="local")) == ["q"]
