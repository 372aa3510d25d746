"""One-time queries equal the oracle at the instant they name, read little, and disturb nobody."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.answers import bag, relation

import windrow
from windrow.errors import BindingError, RuntimeFailure, UnsupportedError
from windrow.operators import history, join
from windrow.operators.state import zones
from windrow.runtime import ask_parts as asking
from windrow.runtime import state_reader
from windrow.runtime.ask import AskLimits, ask
from windrow.runtime.history_reader import HistoryFigures, youngest_first
from windrow.testing import oracle

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE, w VARCHAR) TIMESTAMP BY ts RETAIN 200;"
TABLE = "CREATE TABLE t (k BIGINT, name VARCHAR);"
NAMES = pa.table({"k": [0, 1, 2, 3, 3], "name": ["a", "b", "c", "d", "e"]})
SPLIT = [
    "SELECT k, v, w FROM s [RANGE 150] WHERE k = 3",
    "SELECT k, v FROM s [RANGE 60] WHERE v > 0.5 AND w IN ('x', 'y')",
    "SELECT COUNT(*) AS n, SUM(v) AS s, MIN(w) AS m FROM s [RANGE 100]",
    "SELECT k, AVG(v) AS a, MAX(v) AS b, COUNT(w) AS c FROM s [RANGE 120] WHERE k <> 4 GROUP BY k HAVING COUNT(*) > 2",
    "SELECT k + 1 AS k1, SUM(v) * 2 AS d FROM s [RANGE 80] GROUP BY k + 1",
    "SELECT w, SUM(k) AS n FROM s [RANGE 90] WHERE w IS NULL OR w = 'z' GROUP BY w",
    "SELECT COUNT(*) AS n FROM s [NOW]",
    "SELECT t.name, COUNT(*) AS n FROM s [RANGE 100], t WHERE s.k = t.k GROUP BY t.name",
]
WHOLE = [
    "SELECT DISTINCT k FROM s [RANGE 50]",
    "SELECT k, MEDIAN(v) AS m, COUNT(DISTINCT w) AS c FROM s [RANGE 70] GROUP BY k",
    "SELECT a.k, a.v, b.v AS bv FROM s [RANGE 12] a, s [RANGE 7] b WHERE a.k = b.k AND a.v < b.v",
    "SELECT k, v FROM s [RANGE 40] WHERE NOT EXISTS (SELECT * FROM t WHERE t.k = s.k)",
    "SELECT s.k, t.name FROM s [RANGE 15] LEFT JOIN t ON s.k = t.k",
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Zones, filters and merges at sizes that tests have."""
    monkeypatch.setattr(history, "WORTH", 8)
    monkeypatch.setattr(history, "FILTERED", 16)
    monkeypatch.setattr(history, "MOST", 64)
    monkeypatch.setattr(zones, "BLOCK", 5)
    monkeypatch.setattr(zones, "FEW", 0)


def batch(seed, begin, end, count):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": np.sort(rng.integers(begin, end, count)),
            "k": pa.array([None if x == 9 else int(x) for x in rng.integers(0, 10, count)], pa.int64()),
            "v": rng.choice([0.25, 0.5, 0.75, np.nan, 1024.0, -8.0, 3.5], count),
            "w": pa.array([None if x == "-" else str(x) for x in rng.choice(list("xyz-"), count)], pa.string()),
        }
    )


class Live:
    """An engine, and all that was pushed to it."""

    def __init__(self, home):
        self.engine = windrow.Engine(runtime="local", home=home)
        self.engine.execute(STREAM)
        self.engine.table("t", NAMES)
        self.engine.start()
        self.pushed = []

    def push(self, ticks, rows=12):
        for _ in range(ticks):
            n = len(self.pushed)
            self.pushed.append(batch(n, 10 * n, 10 * n + 10, rows))
            self.engine.push("s", self.pushed[-1])

    def wanted(self, query, instant):
        """Q(instant), from the definition."""
        rows = pa.concat_tables(self.pushed)
        found = oracle(f"{STREAM} {TABLE} CREATE QUERY q AS {query}", {"s": rows}, {"t": NAMES}, until=instant)["q"]
        return relation(found)


def told(table):
    meta = table.schema.metadata
    return int(meta[b"windrow.as_of"]), meta[b"windrow.isolation"].decode()


@pytest.fixture(params=["memory", "home"])
def live(request, tmp_path):
    made = Live(None if request.param == "memory" else tmp_path / "home")
    yield made
    made.engine.stop()


@pytest.mark.parametrize("isolation", ["snapshot", "latest"])
def test_answers_equal_the_definition(live, isolation):
    """At several moments, every query: Q at the instant that the answer names, which is the frontier."""
    for ticks in (2, 20):
        live.push(ticks)
        for query in SPLIT + WHOLE:
            found = live.engine.ask(query, isolation=isolation)
            as_of, level = told(found)
            assert as_of == live.engine.runtime.ticker.frontier
            assert level == (isolation if query in SPLIT else "snapshot")
            assert bag(found) == live.wanted(query, as_of), query


@pytest.mark.parametrize("query", [SPLIT[i] for i in (0, 3, 5, 7)], ids=range(4))
def test_ticks_while_it_reads(live, query, monkeypatch):
    """With ticks during the reading, `snapshot` is as of its start, `latest` as of the newest tick at its end."""
    live.push(16)
    real, left = asking.rows_of, [0]

    def slow(*given):
        if left[0]:
            left[0] -= 1
            live.push(1)
        return real(*given)

    monkeypatch.setattr(asking, "rows_of", slow)
    for ticks in (20, 1):
        left[0], before = ticks, live.engine.runtime.ticker.frontier
        found = live.engine.ask(query)
        assert told(found) == (before, "snapshot")
        assert bag(found) == live.wanted(query, before)
        left[0] = ticks
        found = live.engine.ask(query, isolation="latest")
        as_of, level = told(found)
        assert level == "latest"
        # staleness: at most one tick, whatever happened meanwhile
        assert live.engine.runtime.ticker.frontier - as_of <= 10
        assert bag(found) == live.wanted(query, as_of)


def test_latest_reads_nothing_twice(live, monkeypatch):
    """Runs that stay are read once; only new ones, and those that merging made anew, are read later."""
    live.push(24, rows=25)
    read, real, left = Counter(), asking.rows_of, [6]

    def noting(run, *given):
        read[run.uid] += 1
        if left[0]:
            left[0] -= 1
            live.push(1)
        return real(run, *given)

    monkeypatch.setattr(asking, "rows_of", noting)
    live.engine.ask("SELECT k, SUM(v) AS s FROM s [RANGE 200] GROUP BY k", isolation="latest")
    assert len(read) > 3
    # runs that stay are read once, but for those that the window's end cuts
    runs = youngest_first(view_runs(live))
    full = [r.uid for r in runs if r.table.num_rows >= history.MOST // 2][3:-2]
    assert full and all(read[uid] <= 1 for uid in full)


def view_runs(live):
    with live.engine.runtime.state() as state:
        return state_reader.kept_runs(state, "s")


def test_keys_and_times_are_pruned(live):
    """A key reads few blocks of each run, the last ticks few runs; the answers are those of a full pass."""
    live.push(20, rows=60)
    engine = live.engine
    by_key, by_time = HistoryFigures(), HistoryFigures()
    found = ask(engine.question("SELECT v FROM s [RANGE 200] WHERE k = 3"), figures=by_key)
    assert found.num_rows == engine.ask("SELECT v, k FROM s [RANGE 200] WHERE k + 0 = 3").num_rows > 50
    assert found.num_rows <= by_key.rows < 400 < 1200
    ask(engine.question("SELECT v FROM s [RANGE 5]"), figures=by_time)
    assert by_time.runs <= 3 < by_time.of_runs
    none = HistoryFigures()
    assert ask(engine.question("SELECT v FROM s [RANGE 200] WHERE k = 77"), figures=none).num_rows == 0
    assert none.rows == 0


def test_parameters_order_and_limit(live):
    """Values come in by name; the answer is sorted as DuckDB sorts, and cut."""
    live.push(5)
    text = "SELECT k, v FROM s [RANGE 50] WHERE k = $key ORDER BY v DESC, ts LIMIT 3"
    found = live.engine.ask(text, {"key": 3})
    everything = live.engine.ask("SELECT k, v FROM s [RANGE 50] WHERE k = 3")
    assert found.column_names == ["k", "v"] and found.num_rows == min(3, everything.num_rows)
    values = sorted(everything.column("v").to_pylist(), key=lambda v: (v == v, -v if v == v else 0))[:3]
    assert [repr(v) for v in found.column("v").to_pylist()] == [repr(v) for v in values]
    with pytest.raises(BindingError, match="no value is given"):
        live.engine.ask(text)


def test_a_running_query_is_not_computed_again(live):
    """What a registered query computes already is read from its relation."""
    live.engine.execute("CREATE QUERY per AS SELECT k, COUNT(*) AS n FROM s [RANGE 50] GROUP BY k")
    live.push(8)
    figures = HistoryFigures()
    asked = live.engine.question("SELECT k, COUNT(*) AS n FROM s [RANGE 50] GROUP BY k")
    found = ask(asked, figures=figures)
    assert bag(found) == bag(live.engine["per"].snapshot()) and figures.of_runs == 0
    joined = "SELECT per.n, s.v FROM s [RANGE 10], per WHERE s.k = per.k"
    assert told(live.engine.ask(joined, isolation="latest"))[1] == "snapshot"


def test_tables_meet_each_other(live):
    """Tables and relations are joined with each other, too: all of them are there."""
    live.engine.execute("CREATE QUERY per AS SELECT k, COUNT(*) AS n FROM s [RANGE 50] GROUP BY k")
    live.push(8)
    found = live.engine.ask("SELECT t.name, per.n FROM t, per WHERE t.k = per.k")
    counts = {r["k"]: r["n"] for r in live.engine["per"].snapshot().to_pylist()}
    want = Counter((r["name"], counts[r["k"]]) for r in NAMES.to_pylist() if r["k"] in counts)
    assert Counter((r["name"], r["n"]) for r in found.to_pylist()) == want != {}
    assert live.engine.ask("SELECT a.name FROM t a, t b WHERE a.k = b.k").num_rows == 7


def test_limits(live):
    """A question that takes too long, or that someone cancels, is given up with a word; others go on."""
    live.push(6)
    for query in (SPLIT[2], WHOLE[0]):
        with pytest.raises(RuntimeFailure, match="took longer than 0 s"):
            live.engine.ask(query, timeout=0.0)
        cancelled = threading.Event()
        cancelled.set()
        with pytest.raises(RuntimeFailure, match="was cancelled"):
            live.engine.ask(query, cancel=cancelled)
        assert live.engine.ask(query, timeout=60).num_rows


PAIRS = "FROM s [RANGE 40] a, s [RANGE 40] b, s [RANGE 40] c"


@pytest.mark.parametrize("rows", [f"SELECT a.k {PAIRS}", f"SELECT COUNT(*) AS n {PAIRS}"])
def test_joins_can_be_given_up(live, monkeypatch, rows):
    """A join looks at its limits for every part of pairs, also where none of them holds; too many rows are refused."""
    live.push(6)
    monkeypatch.setattr(join, "PART_ROWS", 5000)
    looks = []
    cancelled = threading.Event()
    monkeypatch.setattr(AskLimits, "check", lambda limits: looks.append(0) or limits._stop_in_time())
    live.engine.ask(f"{rows} WHERE a.v + b.v + c.v < -1", cancel=cancelled)
    assert len(looks) > 20

    def look(limits):
        limits._stop_in_time()
        if looks.pop():
            cancelled.set()

    monkeypatch.setattr(AskLimits, "check", look)
    looks = [0] * 50 + [1] + [0] * 15
    with pytest.raises(RuntimeFailure, match="was cancelled"):
        live.engine.ask(f"{rows} WHERE a.v + b.v + c.v < -1", cancel=cancelled)
    assert len(looks) == 50  # the look after the one at which it was set
    monkeypatch.undo()
    live.engine._max_rows = 10_000
    with pytest.raises(RuntimeFailure, match="the question joins more than 10,000 rows"):
        live.engine.ask(f"{rows} WHERE a.v < b.v AND b.v < c.v")
    assert live.engine.ask("SELECT a.k FROM s [RANGE 5] a, s [RANGE 5] b WHERE a.v < b.v").num_rows


def test_ticks_go_first():
    """A question waits while a tick computes, but no longer than it has worked, and a little: then it goes on."""
    now, ends = [0.0], [0.0]

    def let_tick_pass(seconds):
        now[0] += min(seconds, ends[0] - now[0])

    limits = AskLimits(None, None, lambda: now[0] < ends[0], let_tick_pass, lambda: now[0])
    limits.check()
    assert now[0] == 0  # no tick
    ends[0] = 0.03
    limits.check()
    assert now[0] == 0.03  # all of a tick
    now[0], ends[0] = 0.5, 9.0
    limits.check()
    assert now[0] == pytest.approx(0.5 + 0.1 + 0.47 - 0.03)  # as long as it has worked, and a little more
    limits.check()
    assert now[0] == pytest.approx(1.04)  # no longer
    limits = AskLimits(0.1, None, lambda: True, let_tick_pass, lambda: now[0])
    limits.check()
    assert now[0] == pytest.approx(1.09)  # half of the time it has
    now[0] += 0.1
    with pytest.raises(RuntimeFailure, match="took longer"):
        limits.check()


def test_bad_questions(live):
    """Levels, windows and operators that do not exist here."""
    with pytest.raises(BindingError, match="no isolation level 'serial'"):
        live.engine.ask("SELECT k FROM s [RANGE 5]", isolation="serial")
    with pytest.raises(BindingError, match="does not keep enough history"):
        live.engine.ask("SELECT k FROM s [RANGE 500]")
    with pytest.raises(UnsupportedError, match="no stream operator"):
        live.engine.ask("SELECT ISTREAM k FROM s [RANGE 5]")


def test_before_the_first_row(live):
    """Nothing has come: an empty answer, and one group for an aggregate without GROUP BY."""
    assert live.engine.ask("SELECT k FROM s [RANGE 5]").num_rows == 0
    assert live.engine.ask("SELECT COUNT(*) AS n FROM s [RANGE 5]", isolation="latest").to_pylist() == [{"n": 0}]


def test_after_a_restart(tmp_path):
    """A history that was left on disk is read as before."""
    made = Live(tmp_path / "home")
    made.push(12)
    before = {q: bag(made.engine.ask(q)) for q in SPLIT}
    made.engine.stop()
    again = windrow.Engine(runtime="local", home=tmp_path / "home")
    assert {q: bag(again.ask(q)) for q in SPLIT} == before
    again.stop()


def test_a_text_is_planned_once_for_a_catalog(live: Live) -> None:
    """What is asked again is not planned again; a change of the catalog plans anew, and AS OF always."""
    engine = live.engine
    plans, text = engine.question_plans(), "SELECT k, v FROM s [RANGE 50] WHERE k = $k"
    first = plans.plan(text, {"k": 3})
    assert plans.plan(text, {"k": 3}) is first is plans.plan(text.replace("$k", "3"))
    assert plans.plan(text, {"k": 4}) is not first
    assert engine.question_plans() is plans
    engine.execute("CREATE QUERY newer AS SELECT k, v FROM s [RANGE 50] WHERE k = 3")
    again = engine.question_plans().plan(text, {"k": 3})
    assert again is not first and (first.running, again.running) == (None, "newer")
    for number in range(600):
        plans.plan(text, {"k": number})
    assert plans.plan(text, {"k": 599}) is plans.plan(text, {"k": 599}) and plans.plan(text, {"k": 3}) is not first
    engine.execute("DROP QUERY newer")
