"""A script that can be run again: IF NOT EXISTS, and queries that replace those of their name."""

from __future__ import annotations

import pytest

import windrow
from windrow.errors import BindingError, CQLSyntaxError

SCRIPT = """
CREATE STREAM IF NOT EXISTS s (a BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE IF NOT EXISTS r (a BIGINT);
CREATE QUERY IF NOT EXISTS n AS SELECT COUNT(*) AS n FROM s [RANGE 5];
CREATE OR REPLACE QUERY big AS SELECT a FROM s [RANGE 5] WHERE a > 1;
"""


def test_a_script_may_be_run_again(tmp_path):
    """In one engine and after a restart: nothing is lost, and a query that is replaced begins anew."""
    home = str(tmp_path / "home")
    engine = windrow.Engine(runtime="local", home=home)
    engine.execute(SCRIPT)
    engine.start()
    engine.execute(SCRIPT)
    engine.push("s", {"a": [1, 3, 0], "ts": [1, 2, 3]})  # answered up to 2
    assert engine["n"].snapshot().to_pylist() == [{"n": 2}]
    engine.stop()
    again = windrow.Engine(runtime="local", home=home)
    again.execute(SCRIPT.replace("a > 1", "a > 2"))
    again.start()
    again.push("s", {"a": [2, 4, 0], "ts": [4, 4, 5]})  # answered up to 4
    assert again["n"].snapshot().to_pylist() == [{"n": 5}]
    assert [row["a"] for row in again["big"].snapshot().to_pylist()] == [4]
    again.stop()
    windrow.Engine(runtime="local", home=home).stop()


def test_what_is_there_stays_as_it_is():
    """IF NOT EXISTS does not look at the declaration; a name of another kind is taken."""
    engine = windrow.Engine(runtime="local")
    engine.execute(SCRIPT)
    engine.execute("CREATE QUERY IF NOT EXISTS n AS SELECT MAX(a) AS m FROM s [RANGE 9]")
    assert "[RANGE 5]" in engine["n"].explain()
    with pytest.raises(BindingError, match="already exists"):
        engine.execute("CREATE QUERY IF NOT EXISTS s AS SELECT a FROM s")
    with pytest.raises(CQLSyntaxError, match="QUERY"):
        engine.execute("CREATE OR REPLACE STREAM s (ts BIGINT)")


def test_a_replay_takes_both():
    """In a script the last one of a name is the query."""
    script = SCRIPT + "CREATE OR REPLACE QUERY big AS SELECT a FROM s [RANGE 5] WHERE a > 2"
    answers = windrow.run(script, {"s": {"a": [2, 3], "ts": [1, 1]}}, {"r": {"a": [1]}}, runtime="local")
    assert answers["big"].column("a").to_pylist() == [3]
