"""Views, and queries over queries, in an engine: kept over restarts, guarded by who reads them."""

from __future__ import annotations

import pytest

import windrow
from windrow.errors import BindingError, CQLSyntaxError

SCRIPT = """
CREATE STREAM IF NOT EXISTS s (a BIGINT, ts BIGINT) TIMESTAMP BY ts RETAIN 100;
CREATE VIEW IF NOT EXISTS counts AS SELECT a, COUNT(*) AS n FROM s [RANGE 5] GROUP BY a; -- by value
CREATE OR REPLACE QUERY top AS SELECT MAX(n) AS m FROM counts;
CREATE OR REPLACE QUERY hot AS SELECT a, n FROM counts WHERE n > 1;
CREATE OR REPLACE QUERY hottest AS SELECT MAX(n) AS m FROM hot; -- a query over a query
CREATE OR REPLACE VIEW named AS SELECT m FROM hottest;
CREATE OR REPLACE QUERY came AS SELECT ISTREAM(a) FROM s [RANGE 3];
CREATE OR REPLACE QUERY lately AS SELECT COUNT(*) AS k FROM came [RANGE 4];
"""


@pytest.fixture
def engine():
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", {"a": [1, 1, 2, 9], "ts": [1, 2, 3, 4]})  # answered up to 3
        yield engine


def refused(engine, script):
    with pytest.raises(BindingError) as error:
        engine.execute(script)
    return str(error.value)


def test_they_are_answered_and_asked(engine):
    """Queries over views and queries run; a question may read all of them, of streams too."""
    assert engine["top"].snapshot().to_pylist() == [{"m": 2}]
    assert engine["hottest"].snapshot().to_pylist() == [{"m": 2}]
    assert engine["lately"].snapshot().to_pylist() == [{"k": 3}]
    assert engine.ask("SELECT m + 1 AS m FROM named").to_pylist() == [{"m": 3}]
    assert engine.ask("SELECT a, n FROM counts ORDER BY a").to_pylist() == [{"a": 1, "n": 2}, {"a": 2, "n": 1}]
    assert engine.ask("SELECT COUNT(*) AS k FROM came [RANGE 4]").to_pylist() == [{"k": 3}]


def test_one_that_comes_later_begins_with_the_history(engine):
    """As if the text stood in place: from what its streams keep."""
    engine.execute("CREATE QUERY late AS SELECT SUM(n) AS t FROM hot")
    engine.push("s", {"a": [2, 8], "ts": [4, 5]})
    assert engine["late"].snapshot().to_pylist() == [{"t": 4}]


def test_the_script_may_be_run_again(tmp_path):
    """In one engine and after a restart nothing is lost, whoever reads whom."""
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", {"a": [1, 1], "ts": [1, 2]})
        engine.execute(SCRIPT)
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(SCRIPT)
        engine.execute("CREATE OR REPLACE QUERY hot AS SELECT a, n FROM counts WHERE n > 1 /* the same */")
        engine.start()
        engine.push("s", {"a": [1, 9], "ts": [3, 4]})
        assert engine["hottest"].snapshot().to_pylist() == [{"m": 3}]
    with windrow.Engine(runtime="local", home=home) as engine:  # hot was declared last, and hottest reads it
        assert "the same" in engine["hot"].plan.text
        engine.start()
        engine.push("s", {"a": [1, 9], "ts": [4, 5]})
        assert engine["hottest"].snapshot().to_pylist() == [{"m": 4}]
        engine.execute("DROP VIEW counts CASCADE")
    with windrow.Engine(runtime="local", home=home) as engine:
        views, queries = engine.execute("SHOW VIEWS; SHOW QUERIES")
        assert views.num_rows == 0
        assert queries["name"].to_pylist() == ["came", "lately"]


def test_who_is_read_stays(engine):
    """DROP and OR REPLACE with another meaning name the readers; CASCADE takes them along."""
    assert 'query "hot" is read by hottest, named' in refused(engine, "DROP QUERY hot")
    assert 'view "counts" is read by top, hot, hottest, named' in refused(engine, "DROP VIEW counts")
    assert "is read by" in refused(engine, "CREATE OR REPLACE VIEW counts AS SELECT a, 7 AS n FROM s [RANGE 5]")
    replaced = refused(engine, "CREATE OR REPLACE QUERY hot AS SELECT a, n FROM counts WHERE n > 2")
    assert 'line 1, column 1: query "hot" is read by' in replaced
    assert 'stream "s" is read by' in refused(engine, "DROP STREAM s")
    engine.execute("DROP QUERY hot CASCADE")
    assert engine.execute("SHOW QUERIES")[0]["name"].to_pylist() == ["top", "came", "lately"]
    engine.execute("DROP VIEW IF EXISTS counts CASCADE; DROP STREAM s CASCADE")
    assert not engine.catalog.queries


def test_explain_says_what_a_replacement_does(engine):
    """Whether the state is kept, or who stands in the way."""
    same, another, new = engine.execute("""
        EXPLAIN CREATE OR REPLACE QUERY hot AS SELECT a, n FROM counts /* these */ WHERE n > 1;
        EXPLAIN CREATE OR REPLACE QUERY hot AS SELECT a, n FROM counts WHERE n > 2;
        EXPLAIN CREATE QUERY cold AS SELECT a FROM counts WHERE n = 1
    """)
    assert "replaces hot: the plan is the same, its state and its answers are kept" in same
    assert "the plan is another" in another
    assert "refused while hottest, named read it" in another
    assert "replaces" not in new
    assert "cold" not in engine.catalog.queries


def test_cascade_takes_sinks_templates_and_archives(tmp_path):
    """All that needs a stream goes with it."""
    with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.execute(SCRIPT)
        engine.execute("""
            CREATE SINK board FOR hot TO memory;
            CREATE TEMPLATE above (n BIGINT) AS SELECT a FROM counts WHERE n > $n;
            CREATE QUERIES alerts FROM TEMPLATE above VALUES (1), (2);
            CREATE ARCHIVE kept AS SELECT a FROM s [RANGE 5] KEY a EVERY 10;
        """)
        assert "board" in refused(engine, "DROP QUERY hottest CASCADE; DROP QUERY hot")
        engine.execute("DROP STREAM s CASCADE")
        left = [k for k, names in engine.catalog.kinds().items() if names]
        assert left == []


def test_what_reads_itself_is_refused(engine):
    """A view has no meaning before it has one."""
    assert '"v" reads itself' in refused(engine, "CREATE VIEW v AS SELECT a FROM v")
    assert '"named" reads itself' in refused(engine, "CREATE OR REPLACE VIEW named AS SELECT m FROM named")
    assert '"hot" reads itself' in refused(engine, "CREATE OR REPLACE QUERY hot AS SELECT a FROM hot")


def test_errors_have_their_place(engine):
    """In the text of the query; what is wrong inside a view is said of the view."""
    assert "columns are a, n" in refused(engine, "CREATE QUERY x AS SELECT nope FROM hot")
    assert "already exists" in refused(engine, "CREATE VIEW hot AS SELECT a FROM s")
    assert "only one-time queries read" in refused(
        engine,
        """CREATE TEMPLATE t (n BIGINT) AS SELECT a FROM s [NOW] WHERE a > $n;
        CREATE QUERIES g FROM TEMPLATE t VALUES (1);
        CREATE QUERY x AS SELECT a FROM g""",
    )
    with pytest.raises(CQLSyntaxError):
        engine.execute("CREATE VIEW v")


def test_a_view_over_tables_alone():
    """It needs no stream; the query that reads it does."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE TABLE r (a BIGINT, b BIGINT); CREATE VIEW big AS SELECT a FROM r WHERE b > 1")
        engine.table("r", {"a": [1, 2], "b": [1, 2]})
        assert engine.ask("SELECT a FROM big").to_pylist() == [{"a": 2}]


def test_queries_over_a_view_are_planned_once():
    """Texts that differ in constants are one shape, also over a view or a query."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.execute("".join(f"CREATE QUERY v{i} AS SELECT a FROM counts WHERE n > {i};" for i in range(4)))
        engine.execute("".join(f"CREATE QUERY h{i} AS SELECT a FROM hot WHERE n > {i};" for i in range(4)))
        assert engine.catalog.queries["v3"].made is not None
        assert engine.catalog.queries["h3"].made is not None
        assert engine.catalog.queries["v3"].over == ("counts",)
        assert engine.catalog.queries["h3"].over == ("counts", "hot")
