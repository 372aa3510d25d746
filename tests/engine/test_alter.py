"""ALTER: what may be changed while everything goes on, and what is refused."""

from __future__ import annotations

import pytest
from tests.waiting import until

import windrow
from windrow.errors import BindingError, CQLSyntaxError, SourceError, UnsupportedError, WindrowError

SCRIPT = """
CREATE STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE QUERY n AS SELECT COUNT(*) AS n FROM s [RANGE 100];
"""


def count(engine):
    return engine["n"].snapshot()["n"].to_pylist()


def test_within_of_a_stream(tmp_path):
    """More slack holds later answers back and lets rows in that were late; time does not go back."""
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", {"a": [1, 1], "ts": [1, 10]})  # answered up to 9
        engine.push("s", {"a": [1], "ts": [5]})
        assert engine.late("s").num_rows == 1
        engine.execute("ALTER STREAM s SET WITHIN 20")
        engine.push("s", {"a": [1], "ts": [30]})  # up to 9, still
        engine.push("s", {"a": [1, 1], "ts": [15, 9]})  # 9 has been answered
        assert engine.late("s").num_rows == 2
    with windrow.Engine(runtime="local", home=home) as engine:
        assert engine.catalog.streams["s"].slack == 20
        engine.start()
        engine.push("s", {"a": [1], "ts": [60]})  # up to 39
        assert count(engine) == [4]
        engine.execute("ALTER STREAM s SET WITHIN 0 IDLE AFTER 10 SECONDS ON ERROR QUARANTINE")
        found = engine.catalog.streams["s"]
        assert (found.slack, found.idle_after, found.quarantine) == (0, 10_000_000, True)
        engine.push("s", {"a": [1], "ts": [70]})
        assert count(engine) == [5]


def test_options_of_a_source(tmp_path):
    """The source is opened anew and goes on where it was; a wrong option changes nothing."""
    files = tmp_path / "in"
    files.mkdir()
    (files / "1.csv").write_text("a,ts\n1,1\n2,2\n")
    with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.execute(SCRIPT.replace("BY ts;", f"BY ts FROM csv (path => '{files}');"))
        engine.start()
        engine.drain()
        engine.execute("ALTER STREAM s SET (max_bytes => '1000000')")
        (files / "2.csv").write_text("a,ts\n3,3\n4,9\n")
        engine.drain()
        assert count(engine) == [3]
        with pytest.raises(WindrowError):
            engine.execute("ALTER STREAM s SET (nonsense => 1)")
        assert engine.catalog.streams["s"].options["max_bytes"] == "1000000"
        with pytest.raises(UnsupportedError, match='"path" cannot be changed'):
            engine.execute("ALTER STREAM s SET (path => '/')")
        (files / "3.csv").write_text("a,ts\n5,20\n")
        engine.drain()
        assert count(engine) == [4]


def test_keep_of_a_query(tmp_path):
    """Answers last from now on, longer, or no longer; the query goes on, and so it is when it is replaced."""
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", {"a": [1, 1], "ts": [1, 2]})
        with pytest.raises(UnsupportedError, match="not kept"):
            engine.ask("SELECT n FROM n AS OF 1")
        engine.execute("ALTER QUERY n SET KEEP 1000")
        engine.push("s", {"a": [1, 1], "ts": [3, 4]})
        assert engine["n"].plan.text.endswith("KEEP 1000")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.start()
        engine.push("s", {"a": [1], "ts": [9]})
        assert engine.ask("SELECT n FROM n AS OF 8").to_pylist() == [{"n": 4}]
        engine.execute("CREATE OR REPLACE QUERY n AS SELECT COUNT(*) AS n FROM s [RANGE 100] KEEP 2000")
        engine.push("s", {"a": [1], "ts": [10]})
        assert engine.ask("SELECT n FROM n AS OF 8").to_pylist() == [{"n": 4}]
        assert count(engine) == [5]
        engine.execute("ALTER QUERY n SET KEEP NONE")
        with pytest.raises(UnsupportedError, match="not kept"):
            engine.ask("SELECT n FROM n AS OF 8")


def test_options_of_a_sink(tmp_path):
    """The next answers go to the sink as it is now."""
    with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.execute(SCRIPT + f"CREATE SINK files FOR n TO json (path => '{tmp_path / 'one'}')")
        engine.start()
        engine.push("s", {"a": [1, 1], "ts": [1, 2]})
        until(lambda: list((tmp_path / "one").rglob("*.json")))
        engine.execute(f"ALTER SINK files SET (path => '{tmp_path / 'two'}')")
        engine.push("s", {"a": [1], "ts": [3]})
        with pytest.raises(WindrowError):
            engine.execute("ALTER SINK files SET (nonsense => 1)")
        until(lambda: list((tmp_path / "two").rglob("*.json")))


def test_a_script_may_declare_and_alter():
    """Statements follow each other, whatever they change."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT + "ALTER STREAM s SET WITHIN 3; ALTER QUERY n SET KEEP 5")
        assert engine.catalog.streams["s"].slack == 3
        engine.execute("ALTER STREAM s SET WITHIN 4; DROP STREAM s CASCADE")
        assert not engine.catalog.streams


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ("ALTER QUERY n RENAME TO m", UnsupportedError, "cannot be renamed"),
        ("ALTER STREAM s RENAME TO r", UnsupportedError, "cannot be renamed"),
        ("ALTER STREAM s SET RETAIN 5", UnsupportedError, "RETAIN cannot be changed"),
        ("ALTER STREAM s SET (max_bytes => 1)", UnsupportedError, "has no source"),
        ("ALTER STREAM s SET AHEAD 1 HOUR", UnsupportedError, "AHEAD on a clock of ticks"),
        ("ALTER STREAM s SET WITHIN 5 SECONDS", BindingError, "has a unit"),
        ("ALTER STREAM t SET WITHIN 5", BindingError, 'unknown stream "t"'),
        ("ALTER QUERY n SET WITHIN 5", CQLSyntaxError, "KEEP"),
        ("ALTER VIEW v SET x", CQLSyntaxError, "STREAM, TABLE, QUERY or SINK"),
        ("ALTER STREAM s", CQLSyntaxError, "SET"),
    ],
)
def test_what_cannot_be_changed(script, kind, message):
    """It says why, and nothing happens."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        before = engine.catalog
        with pytest.raises(kind, match=message) as error:
            engine.execute(script)
        assert not isinstance(error.value, SourceError)
        assert engine.catalog is before
