"""The engine in front of the local runtime: declarations, atomic scripts, answers, one-time queries."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, SourceError, WindrowError

BID = "CREATE STREAM bid (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts RETAIN 10;"


@pytest.fixture
def engine():
    """A running local engine with one stream."""
    with windrow.Engine(runtime="local") as made:
        made.execute(BID)
        made.start()
        yield made


def rows(*given):
    """Rows (k, v, ts) of the stream."""
    k, v, ts = zip(*given, strict=True)
    return pa.table({"k": k, "v": pa.array(v, pa.float64()), "ts": ts})


def test_answers_follow_the_rows(engine):
    """Results, snapshot and subscribers see each part of the answer."""
    engine.execute("CREATE QUERY n AS SELECT COUNT(*) AS n FROM bid [RANGE 5]")
    seen = []
    engine["n"].subscribe(seen.append)
    engine.push("bid", rows((1, 1, 1), (1, 2, 3), (1, 3, 10)))
    engine.drain()
    assert engine["n"].results().num_rows == sum(t.num_rows for t in seen) > 0
    assert engine["n"].snapshot().to_pylist() == [{"n": 0}]


def test_a_new_query_starts_with_the_kept_window(engine):
    """RETAIN gives a query registered later its history."""
    engine.push("bid", rows((1, 1, 1), (1, 2, 8), (1, 3, 10)))
    engine.execute("CREATE QUERY n AS SELECT COUNT(*) AS n FROM bid [RANGE 5]")
    assert engine["n"].snapshot().to_pylist() == [{"n": 1}]


def test_a_script_takes_effect_as_a_whole_or_not_at_all(engine):
    """An error in the last statement undoes the first, whether found when binding or when running."""
    with pytest.raises(BindingError):
        engine.execute(
            "CREATE QUERY a AS SELECT k FROM bid [RANGE 5]; CREATE QUERY b AS SELECT nothing FROM bid [RANGE 5]"
        )
    with pytest.raises(SourceError):
        engine.execute(
            "CREATE QUERY a AS SELECT k FROM bid [RANGE 5]; CREATE TABLE p (k BIGINT) FROM parquet (path => '/nowhere')"
        )
    assert "a" not in engine
    engine.execute("CREATE QUERY a AS SELECT k FROM bid [RANGE 5]")


def test_create_and_drop_in_one_script(engine):
    """A script may drop what it made, and IF EXISTS of nothing does nothing."""
    engine.execute("CREATE QUERY a AS SELECT k FROM bid [RANGE 5]; DROP QUERY a; DROP QUERY IF EXISTS z")
    assert "a" not in engine


def test_one_time_queries_see_one_moment(engine):
    """ask reads kept rows and relation-valued answers; a window beyond what is kept is refused."""
    engine.execute("CREATE QUERY n AS SELECT k, COUNT(*) AS n FROM bid [RANGE 5] GROUP BY k")
    engine.push("bid", rows((1, 1, 1), (2, 2, 8), (1, 3, 9), (1, 3, 12)))
    assert engine.ask("SELECT COUNT(*) AS c FROM bid [RANGE 5]").to_pylist() == [{"c": 2}]
    assert engine.ask("SELECT SUM(n) AS c FROM n").to_pylist() == [{"c": 2}]
    with pytest.raises(BindingError, match=r"for \[RANGE 50\]\ndetail: it keeps \d+ ticks"):
        engine.ask("SELECT COUNT(*) AS c FROM bid [RANGE 50]")


def test_a_subscriber_that_fails_stops_nothing(engine, caplog):
    """The answer is there, the fault is logged."""
    caplog.set_level("WARNING", logger="windrow")
    engine.execute("CREATE QUERY n AS SELECT COUNT(*) AS n FROM bid [RANGE 5]")
    engine["n"].subscribe(lambda table: 1 / 0)
    engine.push("bid", rows((1, 1, 1), (1, 2, 3)))
    assert engine["n"].results().num_rows
    engine.drain()
    assert "subscriber" in caplog.text


def test_late_rows_are_counted_and_kept(engine):
    """A row below what time has passed goes to the late output."""
    engine.push("bid", rows((1, 1, 5), (1, 2, 9), (3, 0, 4)))  # rows of one tick never make each other late
    engine.push("bid", rows((7, 0, 2)))
    assert engine.late("bid")["k"].to_pylist() == [7]
    assert engine.status()["streams"]["bid"]["late"] == 1


def test_status_is_plain_json(engine):
    """Whatever is in it, a program can read it."""
    engine.execute("CREATE QUERY n AS SELECT COUNT(*) AS n FROM bid [RANGE 5]")
    assert json.loads(json.dumps(engine.status()))["runtime"] == "local"


def test_functions_registered_later_are_known(engine):
    """A function need not be there when the engine is made."""
    windrow.function("twice", lambda a: pa.compute.multiply(a, 2), returns="bigint")
    engine.execute("CREATE QUERY d AS SELECT twice(k) AS d FROM bid [RANGE 5]")
    engine.push("bid", rows((4, 1, 1), (1, 2, 3)))
    assert engine["d"].results()["d"].to_pylist() == [8]


def test_unknown_names_say_what_there_is(engine):
    """A query that is not there, a runtime that is not."""
    with pytest.raises(BindingError, match="does not exist"):
        engine["nothing"]
    with pytest.raises(WindrowError, match="unknown runtime"):
        windrow.Engine(runtime="quantum")


def test_history_meets_tables_in_a_periodic_query():
    """A periodic query over a table join that comes late counts the kept rows from its first evaluation."""
    engine = windrow.Engine(runtime="local")
    engine.table("p", {"k": [1, 2], "v": ["a", "b"]})
    engine.execute("CREATE STREAM s (k BIGINT, ts BIGINT) RETAIN 100")
    engine.start()
    engine.push("s", {"k": [1, 2, 1], "ts": [25, 30, 33]})
    engine.advance(33)
    engine.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 20 SLIDE 4], p WHERE s.k = p.k")
    engine.advance(36)
    assert [tuple(r.values()) for r in engine["q"].results().to_pylist()] == [(36, 3)]
