"""SLIDE AT MOST in an engine without a tick budget: nobody can be late, and nothing is done or kept for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.schedule import two_streams
from tests.schedule.two_streams import DECLARED

import windrow
from windrow.errors import StateError
from windrow.testing import assert_same, oracle

JOIN = "FROM r [RANGE {0} SLIDE AT MOST {1}], s [RANGE {0} SLIDE AT MOST {1}] WHERE r.k = s.k"
TEXTS = {
    "median": "SELECT median(a) AS m FROM r [RANGE 40 SLIDE AT MOST 20]",
    "often": "SELECT median(a) AS m FROM r [RANGE 21 SLIDE AT MOST 7]",
    "by_key": "SELECT k, count(DISTINCT a) AS n FROM r [RANGE 30 SLIDE AT MOST 15] GROUP BY k",
    "sums": "SELECT count(*) AS n, sum(a) AS x FROM r [RANGE 24 SLIDE AT MOST 8] WHERE a > 3",
    "extremes": "SELECT min(a) AS x, max(a) AS y FROM r [RANGE 30 SLIDE AT MOST 10]",
    "joined": f"SELECT count(*) AS n, sum(a) AS x {JOIN.format(8, 4)}",
    "longer": f"SELECT count(*) AS n, sum(a) AS x {JOIN.format(20, 10)}",
}
SCRIPT = DECLARED + ";".join(f"CREATE QUERY {n} AS {t}" for n, t in TEXTS.items())
LAST = 161


rows = partial(two_streams.rows, each=3)


def push(running: windrow.Engine, first: int) -> None:
    for stream in "rs":
        running.push(stream, rows(stream, first, first + 4))


def work(running: windrow.Engine) -> tuple[object, ...]:
    """What families did so far, and what they hold."""
    sharing = running.runtime.ticker.sharing
    done = [f.counters for f in (*sharing.families.values(), *sharing.joins.families.values())]
    return done, running.status()["state"]


def test_both_spellings_are_the_same_work() -> None:
    """Without a budget rows, partials, reads, answers and the bytes of state are those of SLIDE, at every tick."""
    one, other = (windrow.Engine(runtime="local", sharing="shards") for _ in range(2))
    one.execute(SCRIPT)
    other.execute(SCRIPT.replace("SLIDE AT MOST", "SLIDE"))
    for running in (one, other):
        running.start()
    for first in range(1, LAST, 4):
        for running in (one, other):
            push(running, first)
        assert work(one) == work(other)
        assert one.runtime.ticker.manifest.deadlines == {}
    for name in TEXTS:
        assert_same(one[name].results(), other[name].results())
        assert one[name].results().num_rows
    one.stop()
    other.stop()


def test_queries_from_a_template_are_members_in_columns() -> None:
    """Whichever way the period is spelled; with a budget, where each may be late, they are queries by themselves."""
    found, blocks = {}, {}
    for slide, budget in (("AT MOST 8", None), ("8", None), ("AT MOST 8", "1 hour")):
        running = windrow.Engine(runtime="local", tick_budget=budget, schedule="edf")
        running.execute(
            f"{DECLARED} CREATE TEMPLATE t (least BIGINT) AS "
            f"SELECT count(*) AS n, sum(a) AS x FROM r [RANGE 24 SLIDE {slide}] WHERE a > $least;"
            f"CREATE QUERIES q FROM TEMPLATE t VALUES {', '.join(f'({n})' for n in range(-40, 40))}"
        )
        running.start()
        for first in range(1, LAST, 4):
            push(running, first)
        blocks[slide, budget] = len(running.runtime.declared.groups.live["q"].blocks)
        found[slide, budget] = running["q"].results()
        running.stop()
    assert blocks == {("AT MOST 8", None): 1, ("8", None): 1, ("AT MOST 8", "1 hour"): 0}
    one, *others = found.values()
    assert one.num_rows == 80 * ((LAST - 2) // 8)
    for other in others:
        assert_same(one, other)


def test_with_a_budget_more_is_kept() -> None:
    """What the test before counts tells the two apart where somebody may be late: one more period of rows is kept."""
    found = {}
    for budget in (None, "1 hour"):
        running = windrow.Engine(runtime="local", sharing="shards", tick_budget=budget, schedule="edf")
        running.execute(DECLARED + f"CREATE QUERY median AS {TEXTS['median']}")
        running.start()
        for first in range(1, LAST, 4):
            push(running, first)
        found[budget] = running.status()["state"]["bytes"]
        running.stop()
    assert found[None] < found["1 hour"]


def test_a_home_keeps_whether_it_has_a_budget(tmp_path: Path) -> None:
    """What is kept depends on it: a home without a budget is not opened with one, nor the other way round; opened as
    it was left it goes on, and status knows how far."""
    for budget, other in ((None, "1 hour"), ("1 hour", None)):
        home, parts = str(tmp_path / f"home-{budget}"), {name: list[pa.Table]() for name in TEXTS}
        done: dict[str, int | None] = dict.fromkeys(TEXTS)
        for begin in (1, 81):
            running = windrow.Engine(runtime="local", sharing="shards", home=home, tick_budget=budget, schedule="edf")
            if begin == 1:
                running.execute(SCRIPT)
            assert {n: q["deadline"]["done"] for n, q in running.status()["queries"].items()} == done
            running.start()
            for first in range(begin, begin + 80, 4):
                push(running, first)
            for name, found in parts.items():
                found.append(running[name].results())
            done = {n: q["deadline"]["done"] for n, q in running.status()["queries"].items()}
            running.stop()
        with pytest.raises(StateError, match="written with tick budget") as raised:
            windrow.Engine(runtime="local", sharing="shards", home=home, tick_budget=other)
        assert raised.value.hint
        want = oracle(SCRIPT, {s: rows(s, 1, LAST) for s in "rs"}, until=LAST - 2)
        for name, found in parts.items():
            assert_same(pa.concat_tables(found), want[name])
