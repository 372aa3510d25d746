"""One-time aggregates from the partials of running queries, and in tasks: the same answers, other ways."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from tests.answers import bag, relation

import windrow
from windrow.errors import RuntimeFailure
from windrow.operators import history
from windrow.operators.state import zones
from windrow.runtime import ask_parts
from windrow.runtime.ask import ask
from windrow.runtime.history_reader import HistoryFigures
from windrow.runtime.inspection import Inspection
from windrow.testing import oracle

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE, w VARCHAR, d DECIMAL(9, 2)) TIMESTAMP BY ts RETAIN 200;"
RUNNING = """
CREATE QUERY everything AS SELECT COUNT(*) AS n, SUM(v) AS s, AVG(d) AS a, MIN(v) AS m FROM s [RANGE 120 SLIDE 7];
CREATE QUERY by_key AS SELECT k, w, SUM(v) AS s, COUNT(w) AS c, MAX(d) AS m, VARIANCE(k) AS v, STDDEV(v) AS z
    FROM s [RANGE 100 SLIDE 10] GROUP BY k, w;
CREATE QUERY some AS SELECT ISTREAM k, SUM(v) AS s FROM s [RANGE 90 SLIDE 4] WHERE v > 0.4 GROUP BY k HAVING SUM(v) > 3;
CREATE QUERY hopping AS SELECT MIN(k) AS m FROM HOP(s, ts, 6, 102);
"""
COVERED = {
    "SELECT COUNT(*) AS n, SUM(v) AS s, MIN(v) AS m FROM s [RANGE 100]": "everything",
    "SELECT AVG(d) AS a, COUNT(d) AS c FROM s [RANGE 60]": "everything",
    "SELECT k, w, SUM(v) AS s, COUNT(*) AS n FROM s [RANGE 80] GROUP BY k, w HAVING COUNT(*) > 1": "by_key",
    "SELECT w, MAX(d) AS m, AVG(v) AS a, VAR_POP(k) AS p, VARIANCE(v) AS q FROM s [RANGE 90] GROUP BY w": "by_key",
    "SELECT k, SUM(v) AS s FROM s [RANGE 95] WHERE k IN (1, 3) GROUP BY k": "by_key",
    "SELECT COUNT(*) AS n, VARIANCE(k) AS s FROM s [RANGE 70] WHERE w = 'x' AND k < 5": "by_key",
    "SELECT COUNT(*) AS n FROM s [RANGE 70] WHERE w IS NULL": "by_key",
    "SELECT k, AVG(v) AS a FROM s [RANGE 64] WHERE v > 0.4 GROUP BY k ORDER BY a DESC, k": "some",
    "SELECT SUM(v) AS s FROM s [RANGE 80] WHERE v > 0.4 AND k = 3": "some",
    "SELECT MIN(k) AS m, COUNT(*) AS n FROM s [RANGE 71]": "hopping",
}
NOT_COVERED = [
    "SELECT SUM(ts) AS s FROM s [RANGE 100]",  # no partials of this column
    "SELECT COUNT(*) AS n FROM s [RANGE 80] WHERE v > 0.5",  # nor of this predicate
    "SELECT MIN(w) AS m FROM s [RANGE 80]",
    "SELECT k, MAX(v) AS m FROM s [RANGE 80] GROUP BY k",
    "SELECT COUNT(*) AS n FROM s [RANGE 3]",  # less than a period
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Runs, zones and merges at sizes that tests have."""
    monkeypatch.setattr(history, "WORTH", 8)
    monkeypatch.setattr(history, "MOST", 64)
    monkeypatch.setattr(zones, "BLOCK", 5)


def batch(n, rows=300):
    rng = np.random.default_rng(n)
    return pa.table({
        "ts": np.sort(rng.integers(10 * n, 10 * n + 10, rows)),
        "k": pa.array([None if x == 6 else int(x) for x in rng.integers(0, 7, rows)], pa.int64()),
        "v": rng.choice([0.25, 0.1, 0.7, np.nan, np.inf, 1024.0, -8.0, 3.5], rows),
        "w": pa.array([None if x == "-" else str(x) for x in rng.choice(list("xyz-"), rows)], pa.string()),
        "d": pa.array(rng.integers(-999, 999, rows)).cast(pa.decimal128(21, 2)).cast(pa.decimal128(9, 2)),
    })  # fmt: skip


class Live:
    """An engine with queries that run, and all that was pushed to it."""

    def __init__(self, home, partitions):
        self.engine = windrow.Engine(runtime="local", home=home, partitions=partitions)
        self.pushed = []

    def push(self, ticks):
        for _ in range(ticks):
            self.pushed.append(batch(len(self.pushed)))
            self.engine.push("s", self.pushed[-1])

    def from_rows(self, query):
        """The answer without any partials, which `test_ask` holds against the definition."""
        with patch.object(Inspection, "reused_partials", lambda *_: None):
            found = self.engine.ask(query)
        assert read(found) == "history"
        return bag(found)

    def wanted(self, query, instant):
        query = query.partition(" ORDER BY")[0]
        found = oracle(f"{STREAM} CREATE QUERY q AS {query}", {"s": pa.concat_tables(self.pushed)}, until=instant)["q"]
        return relation(found)


def read(table):
    return table.schema.metadata[b"windrow.from"].decode()


@pytest.fixture(params=["memory", "home", "three partitions"])
def live(request, tmp_path):
    made = Live(None if request.param == "memory" else tmp_path / "home", 3 if "three" in request.param else None)
    made.engine.execute(STREAM + RUNNING)
    made.engine.start()
    yield made
    made.engine.stop()


def test_partials_answer_exactly(live):
    """At every frontier, whatever it is to the periods: what the definition says, and read from whom."""
    live.push(14)
    for step in (1, 2, 4):
        for query, whose in COVERED.items():
            for isolation in ("snapshot", "latest"):
                found = live.engine.ask(query, isolation=isolation)
                meta = found.schema.metadata
                assert (read(found), meta[b"windrow.isolation"]) == (f"partials of {whose}", isolation.encode()), query
                assert int(meta[b"windrow.as_of"]) == live.engine.runtime.ticker.frontier
                assert bag(found) == live.from_rows(query), query
        live.engine.runtime.advance(live.engine.runtime.ticker.frontier + step)
    for query in NOT_COVERED:
        assert read(live.engine.ask(query)) == "history", query


def test_partials_equal_the_definition(tmp_path):
    """All of them, from the rows that were pushed."""
    live = Live(tmp_path / "home", 2)
    live.engine.execute(STREAM + RUNNING)
    with live.engine:
        live.engine.start()
        live.push(13)
        for query, whose in COVERED.items():
            found = live.engine.ask(query)
            assert read(found) == f"partials of {whose}"
            assert bag(found) == live.wanted(query, int(found.schema.metadata[b"windrow.as_of"])), query


@pytest.mark.parametrize("seed", range(4))
def test_random_windows_predicates_and_keys(tmp_path, seed):
    """Whoever covers what: the answer is that of the rows, and some questions are covered."""
    rng = np.random.default_rng(seed)
    tests = ["", "", " WHERE v > 0.4", " WHERE v > 0.4 AND k < 4"]
    calls = ["COUNT(*)", "SUM(v)", "AVG(v)", "MIN(v)", "MAX(k)", "COUNT(v)", "STDDEV(k)"]

    def aggregate(window, more=""):
        keys = list(rng.choice(["k", "w"], rng.integers(0, 3), replace=False))
        listed = [*keys, *(f"{c} AS c{i}" for i, c in enumerate(rng.choice(calls, rng.integers(1, 4), replace=False)))]
        test = str(rng.choice(tests))
        test += (" AND " if test else " WHERE ") + more if more else ""
        return f"SELECT {', '.join(listed)} FROM s [{window}]{test}{' GROUP BY ' + ', '.join(keys) if keys else ''}"

    live = Live(tmp_path / "home", int(rng.integers(1, 4)))
    windows = [f"RANGE {rng.integers(60, 130)} SLIDE {rng.choice([10, 15, 30])}" for _ in range(6)]
    live.engine.execute(STREAM + ";".join(f"CREATE QUERY q{i} AS {aggregate(w)}" for i, w in enumerate(windows)))
    covered = 0
    with live.engine:
        live.engine.start()
        for ticks in (13, 2):
            live.push(ticks)
            for _ in range(12):
                query = aggregate(f"RANGE {rng.integers(20, 120)}", str(rng.choice(["", "k = 3", "w IS NULL"])))
                found = live.engine.ask(query)
                covered += read(found).startswith("partials")
                assert bag(found) == live.from_rows(query), query
    assert covered > 0


def test_few_rows_are_read(live):
    """Only rows at the two ends of the window are looked at."""
    live.push(16)
    around, whole = HistoryFigures(), HistoryFigures()
    ask(live.engine.question("SELECT SUM(v) AS s FROM s [RANGE 110]"), figures=around)
    ask(live.engine.question("SELECT SUM(ts) AS s FROM s [RANGE 110]"), figures=whole)
    assert whole.rows > 3000 and around.rows < 440
    live.engine.runtime.advance(161)  # 161 and 49 are edges of `everything`
    none = HistoryFigures()
    ask(live.engine.question("SELECT SUM(v) AS s FROM s [RANGE 112]"), figures=none)
    assert none.rows == 0


def test_who_comes_and_goes(live):
    """A query that comes later covers what it was given; one that has had no tick, or is gone, covers nothing."""
    live.push(15)
    query = "SELECT COUNT(*) AS n, MAX(k) AS m FROM s [RANGE 90]"
    assert read(live.engine.ask(query)) == "history"
    live.engine.execute("CREATE QUERY later AS SELECT MAX(k) AS m FROM s [RANGE 100 SLIDE 5]")
    for ticks in (0, 1, 4):
        live.push(ticks)
        found = live.engine.ask(query)
        assert bag(found) == live.from_rows(query)
    assert read(found) == "partials of later"
    live.engine.execute("DROP QUERY later")
    assert read(live.engine.ask(query)) == "history"


def test_who_has_failed(live):
    """A query that a row makes fail covers nothing from that tick on, even for who still knows of it."""
    live.engine.execute("CREATE QUERY fragile AS SELECT SUM(CAST(w || '1' AS INT)) AS s FROM s [RANGE 100 SLIDE 5]")
    live.push(15)
    question = live.engine.question("SELECT SUM(CAST(w || '1' AS INT)) AS s FROM s [RANGE 90]")
    assert "fragile" in live.engine.runtime.status()["failed"]
    runtime = live.engine.runtime
    with runtime.state() as state:
        assert runtime.reused_partials(question.planned.asked, state) is None
    question = live.engine.question("SELECT SUM(v) AS s FROM s [RANGE 90]")
    with runtime.state() as state:
        assert runtime.reused_partials(question.planned.asked, state)[1].entry.member.name == "everything"
        object.__setattr__(state, "manifest" if hasattr(state, "manifest") else "lapsed", lapsed(state))
        assert runtime.reused_partials(question.planned.asked, state)[1].entry.member.name != "everything"


def lapsed(state):
    """A state in which `everything` has failed."""
    return replace(state.manifest, lapsed=("everything",)) if hasattr(state, "manifest") else ("everything",)


def test_after_a_restart(tmp_path):
    """Partials that were left on disk answer, before and after the next tick."""
    made = Live(tmp_path / "home", 2)
    made.engine.execute(STREAM + RUNNING)
    made.engine.start()
    made.push(15)
    made.engine.stop()
    made.engine = windrow.Engine(runtime="local", home=tmp_path / "home", partitions=2)
    for _ in range(2):
        for query, whose in COVERED.items():
            found = made.engine.ask(query)
            assert read(found) == f"partials of {whose}"
            assert bag(found) == made.from_rows(query), query
        made.engine.start()
        made.push(1)
    made.engine.stop()


def test_it_is_said_before(live):
    """What a question would be read from, without asking it."""
    live.push(15)
    explain = lambda text: live.engine.question(text).explain().rstrip().splitlines()[-1]  # noqa: E731
    assert explain("SELECT SUM(v) AS s FROM s [RANGE 100]").startswith("once, from partials of everything over (")
    assert explain("SELECT k FROM s [RANGE 100]").endswith("bytes, in this process")
    live.engine.execute("CREATE QUERY now AS SELECT k, COUNT(*) AS n FROM s [RANGE 50] GROUP BY k")
    assert explain("SELECT k, COUNT(*) AS n FROM s [RANGE 50] GROUP BY k") == "once, from the relation of now"
    assert explain("SELECT n FROM now") == "once, from tables"


LARGE = [
    "SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(w) AS m FROM s [RANGE 150] GROUP BY k",
    "SELECT SUM(ts) AS s, AVG(d) AS a FROM s [RANGE 120] WHERE w <> 'x'",
    "SELECT t.name, COUNT(*) AS n FROM s [RANGE 100], t WHERE s.k = t.k GROUP BY t.name",
]


@pytest.fixture
def in_tasks(live, monkeypatch, in_process_job):
    """Everything is large, and tasks get what can be shipped."""
    monkeypatch.setattr(ask_parts, "LARGE", 0)
    monkeypatch.setattr(ask_parts, "PIECE", 2000)
    monkeypatch.setattr(live.engine.runtime.job, "map", in_process_job(2).map)
    live.engine.table("t", pa.table({"k": [0, 1, 2, 3, 3], "name": ["a", "b", "c", "d", "e"]}))
    return live


@pytest.mark.parametrize("isolation", ["snapshot", "latest"])
def test_tasks_answer_the_same(in_tasks, monkeypatch, isolation):
    """In pieces, with ticks meanwhile: as of the start, or of the newest tick at the end."""
    live, real, left = in_tasks, in_tasks.engine.runtime.job.map, [0]
    live.push(16)

    def slow(work, values, check, at_once):
        if left[0]:
            left[0] -= 1
            live.push(1)
        return real(work, values, check, at_once)

    monkeypatch.setattr(live.engine.runtime.job, "map", slow)
    for query in LARGE[:2]:
        left[0], before = 3, live.engine.runtime.ticker.frontier
        found = live.engine.ask(query, isolation=isolation)
        assert read(found).startswith("history, ") and read(found).endswith(" pieces in tasks")
        as_of = int(found.schema.metadata[b"windrow.as_of"])
        assert as_of == (before if isolation == "snapshot" else live.engine.runtime.ticker.frontier)
        assert bag(found) == live.wanted(query, as_of)
    left[0] = 0
    joined = live.engine.ask(LARGE[2], isolation=isolation)
    monkeypatch.setattr(ask_parts, "LARGE", 1 << 40)
    assert bag(joined) == bag(live.engine.ask(LARGE[2])) != {}


def test_tasks_are_given_up(in_tasks):
    """Between pieces, by time or by an event; a selection is no matter for tasks."""
    in_tasks.push(8)
    with pytest.raises(RuntimeFailure, match="took longer than 0 s"):
        in_tasks.engine.ask(LARGE[0], timeout=0.0)
    assert read(in_tasks.engine.ask("SELECT k, v FROM s [RANGE 100]")) == "history"
