"""Archives of a running engine equal their relation at every update, also after restarts and kills."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, StateError, UnsupportedError
from windrow.runtime import archives
from windrow.testing import oracle

STREAMS = """
CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts;
CREATE STREAM r (ts BIGINT, k BIGINT, w BIGINT) TIMESTAMP BY ts;
"""
JOIN = "SELECT s.k, s.v, r.w FROM s [RANGE 60], r [RANGE 40] WHERE s.k = r.k"
PLAIN = "SELECT k, v FROM s [RANGE 50] WHERE v > 0.2"


def batch(n, stream, rows=9):
    rng = np.random.default_rng(2 * n + (stream == "r"))
    third = {"v": rng.random(rows)} if stream == "s" else {"w": rng.integers(0, 5, rows)}
    return pa.table({"ts": np.sort(rng.integers(10 * n, 10 * n + 10, rows)), "k": rng.integers(0, 6, rows), **third})


class Live:
    def __init__(self, home, query=JOIN, clauses="KEY k EVERY 20 PARTITIONS 3 x 3"):
        self.engine = windrow.Engine(runtime="local", home=home)
        self.home, self.query, self.n = home, query, 0
        if "a" not in self.engine.catalog.archives:
            self.engine.execute(f"{STREAMS} CREATE ARCHIVE a AS {query} {clauses};")
        self.engine.start()

    def push(self, ticks):
        for _ in range(ticks):
            for stream in ("s", "r"):
                self.engine.push(stream, batch(self.n, stream))
            self.n += 1

    def wanted(self, instant):
        """The relation at an instant, from the definition."""
        given = {s: pa.concat_tables([batch(i, s) for i in range(self.n)]) for s in ("s", "r")}
        log = oracle(f"{STREAMS} CREATE QUERY q AS {self.query}", given, until=instant)["q"]
        found = Counter()
        for row in log.to_pylist():
            found[tuple(v for n, v in row.items() if n not in ("_ts", "_op"))] += row["_op"]
        return +found

    def check(self):
        archive = self.engine.archive("a")
        table = archive.scan()
        as_of = int(table.schema.metadata[b"windrow.as_of"])
        assert as_of == self.engine.runtime.ticker.frontier // 20 * 20
        want = self.wanted(as_of)
        assert bag(table) == want
        for key in (0, 3, 5, 99):
            assert bag(archive.probe(key)) == Counter({r: n for r, n in want.items() if r[0] == key})
        assert bag(archive.probe(low=2, high=3)) == Counter({r: n for r, n in want.items() if 2 <= r[0] <= 3})
        return want


def bag(table):
    return Counter(tuple(r.values()) for r in table.to_pylist())


@pytest.mark.parametrize(
    "clauses", ["KEY k EVERY 20 PARTITIONS 3 x 3", "KEY k EVERY 20 PARTITIONS 2 x 2 REBUILD", "KEY k EVERY 20"]
)
@pytest.mark.parametrize("at_home", [True, False])
def test_it_equals_the_relation(tmp_path, at_home, clauses):
    """Probe, range and scan show the query's relation at the last multiple of EVERY, as time goes on."""
    live = Live(tmp_path / "home" if at_home else None, clauses=clauses)
    seen = 0
    for _ in range(6):
        live.push(3)
        seen += len(live.check())
    assert seen > 50
    live.engine.stop()


def test_after_a_restart(tmp_path):
    """An archive goes on where it was, with the rows that waited, and its files are all that is kept."""
    live = Live(tmp_path / "home", PLAIN)
    live.push(9)
    for _ in range(3):
        before = live.check()
        live.engine.stop()
        again = Live(tmp_path / "home", PLAIN)
        again.n = live.n
        live = again
        assert live.check() == before
        live.push(5)
        live.check()
    status = live.engine.status()["archives"]["a"]
    assert status["layout"] == "3 x 3 no rebuild" and status["rows"] > 0
    files = len(list((tmp_path / "home" / "runs" / "archive").rglob("*.arrow")))
    assert files < 9 * 5 * 3
    live.engine.execute("DROP ARCHIVE a")
    for _ in range(4):
        live.engine.push("s", batch(live.n, "s"))
        live.n += 1
    assert not list((tmp_path / "home" / "runs" / "archive").rglob("*.arrow"))
    live.engine.stop()


KILLED = """
import sys
sys.path.insert(0, {here!r})
import test_archive
live = test_archive.Live({home!r})
live.n = {n}
live.push(30)
"""


@pytest.mark.parametrize(("point", "times"), [("after archive", 8), ("before manifest", 13), ("after manifest", 12)])
def test_after_a_kill(tmp_path, point, times):
    """Killed in the midst of an update: the archive has the update before, or the one after, and goes on."""
    home = tmp_path / "home"
    code = KILLED.format(here=os.path.dirname(__file__), home=str(home), n=0)
    environment = {**os.environ, "WINDROW_CRASH_AT": f"{point}:{times}", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    live = Live(home)
    frontier = live.engine.runtime.ticker.frontier
    live.n = frontier // 10 + 2  # what was pushed: more rows than the frontier has reached change nothing up to it
    archive = live.engine.archive("a")
    table = archive.scan()
    as_of = int(table.schema.metadata[b"windrow.as_of"])
    assert bag(table) == live.wanted(as_of)
    assert as_of == frontier // 20 * 20
    live.engine.stop()


def test_layouts_change_while_it_is_read(tmp_path, monkeypatch):
    """By hand, gradually or at once; and by itself, when questions become many."""
    live = Live(tmp_path / "home")
    live.push(8)
    archive = live.engine.archive("a")
    archive.migrate("2 x 2", rebuild=True)
    for _ in range(8):
        live.push(2)
        live.check()
    assert archive.status["layout"] == "2 x 2 rebuild"
    archive.migrate("4 x 4", gradually=False)
    live.push(2)
    live.check()
    assert archive.status["layout"] == "4 x 4 no rebuild"
    live.engine.stop()
    monkeypatch.setattr(archives, "REVIEW", 2)
    chosen = Live(None, clauses="KEY k EVERY 20")
    for _ in range(12):
        chosen.push(2)
        for _ in range(150):
            chosen.engine.archive("a").probe(3)
        chosen.check()
    assert chosen.engine.archive("a").status["layout"] == "2 x 2 rebuild"
    chosen.engine.stop()


def test_one_time_queries_read_archives(tmp_path):
    """As a table, joined with others; a test of the key probes."""
    live = Live(None, PLAIN, "KEY k EVERY 20")
    live.push(9)
    want = live.check()
    ask = live.engine.ask
    assert bag(ask("SELECT * FROM a")) == want
    assert bag(ask("SELECT * FROM a WHERE k = 3 AND v > 0.5")) == Counter(
        {r: n for r, n in want.items() if r[0] == 3 and r[1] > 0.5}
    )
    assert bag(ask("SELECT * FROM a WHERE k > 1 AND k <= 4")) == Counter(
        {r: n for r, n in want.items() if 1 < r[0] <= 4}
    )
    assert bag(ask("SELECT * FROM a WHERE k IN (0, 5)")) == Counter({r: n for r, n in want.items() if r[0] in (0, 5)})
    totals = ask("SELECT k, COUNT(*) AS n FROM a GROUP BY k ORDER BY k").to_pylist()
    assert {r["k"]: r["n"] for r in totals} == Counter(k for (k, _), n in want.items() for _ in range(n))
    live.engine.stop()


def test_bad_input():
    """Before the first update, wrong keys, names that do not exist, and what cannot be archived."""
    live = Live(None, PLAIN, "KEY k EVERY 20")
    with pytest.raises(StateError, match="no update yet"):
        live.engine.archive("a").scan()
    live.push(4)
    with pytest.raises(BindingError, match="takes a key, or low and high"):
        live.engine.archive("a").probe()
    with pytest.raises(BindingError, match="is no value of the key"):
        live.engine.archive("a").probe("three")
    with pytest.raises(BindingError, match='archive "b" does not exist'):
        live.engine.archive("b")
    with pytest.raises(UnsupportedError, match="cannot be archived"):
        live.engine.execute("CREATE ARCHIVE b AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k KEY k EVERY 5")
    live.check()
    live.engine.stop()


def test_a_replay_has_no_archive():
    """`run` refuses what only an engine can keep."""
    with pytest.raises(UnsupportedError, match="in a replay"):
        windrow.run(f"{STREAMS} CREATE ARCHIVE a AS {PLAIN} KEY k EVERY 5", {"s": batch(0, "s")}, runtime="local")
