"""Answers that last: KEEP, results by time, and relations as of an instant."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, StateError, UnsupportedError
from windrow.sinks.answer_log import AnswerLog
from windrow.testing import oracle

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts RETAIN 100;"
QUERY = "SELECT k, COUNT(*) AS n FROM s [RANGE 15] GROUP BY k"
KEPT = f"{STREAM} CREATE QUERY q AS {QUERY} KEEP 100000;"


def batch(n, rows=8):
    rng = np.random.default_rng(n)
    return pa.table({"ts": np.sort(rng.integers(10 * n, 10 * n + 10, rows)), "k": rng.integers(0, 4, rows)})


def bag(table):
    return Counter((r["k"], r["n"]) for r in table.to_pylist())


def wanted(pushed, instant):
    log = oracle(f"{STREAM} CREATE QUERY q AS {QUERY}", {"s": pa.concat_tables(pushed)}, until=instant)["q"]
    found = Counter()
    for r in log.to_pylist():
        found[r["k"], r["n"]] += r["_op"]
    return +found


@pytest.mark.parametrize("at_home", [True, False])
def test_the_past_is_there(tmp_path, at_home):
    """Every instant up to the frontier can be asked for, and the log is the whole answer; after a restart, too."""
    home = tmp_path / "home" if at_home else None
    engine = windrow.Engine(runtime="local", home=home)
    engine.execute(KEPT)
    engine.start()
    pushed = [batch(n) for n in range(12)]
    for part in pushed[:8]:
        engine.push("s", part)
    if at_home:
        engine.stop()
        engine = windrow.Engine(runtime="local", home=home)
        engine.start()
    for part in pushed[8:]:
        engine.push("s", part)
    frontier = engine.runtime.ticker.frontier
    first = int(pushed[0].column("ts")[0].as_py())
    for instant in [*range(first, frontier, 13), frontier]:
        assert bag(engine.ask(f"SELECT * FROM q AS OF {instant}")) == wanted(pushed, instant), instant
    found = engine.ask(
        "SELECT a.k, b.n - a.n AS more FROM q AS OF $a a, q AS OF $b b WHERE a.k = b.k", {"a": 40, "b": 90}
    )
    before, after = dict(wanted(pushed, 40).keys()), dict(wanted(pushed, 90).keys())
    assert dict(found.to_pylist()[i].values() for i in range(found.num_rows)) == {
        k: after[k] - before[k] for k in before if k in after
    }
    log = engine["q"].results(since=30, until=60)
    assert log.num_rows and set(log.column("_ts").to_pylist()) <= set(range(30, 60))
    everything = engine["q"].results(since=0)
    want = oracle(f"{STREAM} CREATE QUERY q AS {QUERY}", {"s": pa.concat_tables(pushed)}, until=frontier)["q"]
    assert Counter(map(str, everything.to_pylist())) == Counter(map(str, want.to_pylist()))
    if at_home:
        folder = home / "answers" / "q"
        engine.stop()
        read = duckdb.sql(f"SELECT count(*) FROM '{folder}/stretch=*/*.parquet'").fetchall()
        assert read == [(everything.num_rows,)]
    else:
        engine.stop()


def test_times(tmp_path):
    """On a clock of timestamps instants are timestamps, in any zone; a dropped query's answers are deleted."""
    engine = windrow.Engine(runtime="local", home=tmp_path / "home")
    engine.execute(
        "CREATE STREAM m (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT v FROM m [RANGE 1 HOUR] KEEP 7 DAYS"
    )
    engine.start()
    noon = dt.datetime(2026, 3, 1, 12)
    times = [noon + dt.timedelta(minutes=30 * i) for i in range(8)]
    engine.push("m", pa.table({"ts": pa.array(times, pa.timestamp("us")), "v": list(range(8))}))
    text = "SELECT v FROM q AS OF TIMESTAMP '{}' ORDER BY v"
    assert engine.ask(text.format("2026-03-01 13:10:00")).column("v").to_pylist() == [1, 2]
    assert engine.ask(text.format("2026-03-01 15:10:00+02:00")).column("v").to_pylist() == [1, 2]
    between = engine["q"].results(since=noon, until=noon + dt.timedelta(minutes=31))
    assert between.column("v").to_pylist() == [0, 1]
    assert list((tmp_path / "home" / "answers" / "q").glob("date=2026-03-01/*.parquet"))
    engine.execute("DROP QUERY q")
    assert not list((tmp_path / "home").glob("answers/q/**/*.parquet"))
    engine.stop()


def test_what_is_not_kept():
    """Queries without KEEP, streams, unknown names, and instants before the first."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(
            f"{KEPT} CREATE QUERY plain AS {QUERY}; CREATE QUERY i AS SELECT ISTREAM k FROM s [RANGE 5] KEEP 10"
        )
        engine.start()
        for n in range(3, 8):
            engine.push("s", batch(n))
        with pytest.raises(UnsupportedError, match='answers of "plain" are not kept'):
            engine.ask("SELECT * FROM plain AS OF 50")
        with pytest.raises(UnsupportedError, match="are not kept"):
            engine["plain"].results(since=5)
        with pytest.raises(UnsupportedError, match="no relation to look at"):
            engine.ask("SELECT * FROM i AS OF 50")
        with pytest.raises(BindingError, match='query "nobody" does not exist'):
            engine.ask("SELECT * FROM nobody AS OF 50")
        with pytest.raises(StateError, match="not kept for so long"):
            engine.ask("SELECT * FROM q AS OF 2")
        with pytest.raises(BindingError, match="this clock counts ticks"):
            engine["q"].results(since=dt.datetime(2026, 1, 1))
        for since in ("5", 5.5):
            with pytest.raises(BindingError, match="is no instant"):
                engine["q"].results(since=since)
        with pytest.raises(StateError, match="not kept for so long"):
            engine.ask("SELECT * FROM q AS OF -2")


def test_answers_that_cannot_be_kept_are_not_lost_elsewhere(tmp_path, monkeypatch):
    """A full disk stops the tick behind its commit: sinks and subscribers have the answers, and a start keeps them."""
    heard, seen = [], []
    with windrow.Engine("local", home=tmp_path) as engine:
        engine.execute(KEPT + f"CREATE QUERY p AS {QUERY}")
        engine.sink("p", "callback", fn=lambda query, tick, table: seen.append(table))
        engine["q"].subscribe(heard.append)
        engine.start()
        with monkeypatch.context() as patch:
            patch.setattr(AnswerLog, "_put", lambda *_: (_ for _ in ()).throw(StateError("the disk is full")))
            with pytest.raises(StateError, match="disk is full"):
                engine.push("s", batch(0))
        engine.start()
        engine.push("s", batch(1))
        engine.drain()
        kept = engine["q"].results(since=0)
        assert kept.num_rows
        for found in (heard, seen):
            assert pa.concat_tables(found).sort_by("_ts").to_pylist() == kept.to_pylist()
