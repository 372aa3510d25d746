"""Strict results by calendar or by key: when, that no answer changes, and that a home goes on as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.answers import bag, relation

import windrow
from windrow.engine.replay import Replay
from windrow.optimize import optimize
from windrow.plan.cost import Statistics
from windrow.plan.nodes import QueryPlan
from windrow.testing import assert_same, oracle

DECLARED = "".join(f"CREATE STREAM {s} (ts BIGINT, k BIGINT, {v} BIGINT) TIMESTAMP BY ts;" for s, v in ("av", "bw"))
ABSENT = "SELECT * FROM a [RANGE 40] WHERE NOT EXISTS (SELECT * FROM b [RANGE {0}] WHERE b.k = a.k)"
TEXTS = {
    "not exists": ABSENT.format(2),
    "exists": "SELECT a.v FROM a [RANGE 40] WHERE EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k)",
    "left join": "SELECT a.k, a.v, b.w FROM a [RANGE 40] LEFT JOIN b [RANGE 2] ON a.k = b.k",
    "residual": "SELECT * FROM a [RANGE 40] WHERE NOT EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k AND b.w > a.v)",
    "joined": "SELECT a.v, c.v AS u FROM a [RANGE 40], a [RANGE 30] AS c WHERE a.k = c.k "
    "AND NOT EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k)",
    "entering": "SELECT ISTREAM a.v FROM a [RANGE 40] WHERE NOT EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k)",
    "leaving": "SELECT DSTREAM a.v FROM a [RANGE 40] WHERE NOT EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k)",
}


def streams(seed: int, rows: int = 40) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    made = {}
    for name, value in (("a", "v"), ("b", "w")):
        ts = np.sort(rng.integers(0, 120, rows))
        made[name] = pa.table({"ts": ts, "k": rng.integers(0, 4, rows), value: rng.integers(0, 3, rows)})
    return made


def planned(text: str, without: tuple[str, ...] = ()) -> QueryPlan:
    return Replay.of(f"{DECLARED} CREATE QUERY q AS {text}", streams(0), {}, None, without=without).catalog.queries["q"]


def test_results_that_end_early_are_kept_by_key() -> None:
    """A short window of partners ends many results early, a long one few; other strategies are left as they are."""
    assert planned(ABSENT.format(2)).by_key
    assert not planned(ABSENT.format(40)).by_key
    assert not planned(ABSENT.format(2), without=("announce_ends",)).by_key
    assert planned(ABSENT.format(2)).run_by("upa") == "negative"
    assert planned(ABSENT.format(2)).run_by("direct") == "direct"


@pytest.mark.parametrize(("values", "by_key"), [(10, True), (1e6, False)])
def test_statistics_decide(values: float, by_key: bool) -> None:
    """With as many keys as rows a partner ends one result, whatever the windows."""
    statistics = Statistics(rate=1, values=values)
    assert optimize(planned(ABSENT.format(2)), statistics=statistics).by_key is by_key


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM a [RANGE 40] WHERE NOT EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k)",
        "SELECT * FROM a [ROWS 5] WHERE NOT EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k)",
        "SELECT * FROM a [RANGE 40], b [RANGE 2] WHERE a.k = b.k",
        "SELECT * FROM a [RANGE 40 SLIDE 5] WHERE NOT EXISTS (SELECT * FROM b [RANGE 5 SLIDE 5] WHERE b.k = a.k)",
    ],
)
def test_only_rows_of_windows_by_time_are_chosen_for(text: str) -> None:
    """Groups, counted rows, periodic answers and results that never end early stay as they are."""
    assert not planned(text).by_key


@pytest.mark.parametrize("name", TEXTS)
def test_no_answer_changes(name: str) -> None:
    """By key, by calendar and the definition agree at every instant, however the rows are cut into batches."""
    script = f"{DECLARED} CREATE QUERY q AS {TEXTS[name]}"
    assert planned(TEXTS[name]).by_key
    for seed in range(3):
        given = streams(seed)
        want = oracle(script, given, {}, 170)["q"]
        for batch_rows, without in ((None, ()), (7, ()), (7, ("announce_ends",))):
            got = windrow.run(script, given, until=170, runtime="local", batch_rows=batch_rows, without=without)
            assert_same(got["q"], want)


def test_explain_says_so() -> None:
    """The strategy that runs it, with its patterns and state."""
    script = f"{DECLARED} CREATE QUERY q AS {TEXTS['not exists']}"
    with windrow.Engine(runtime="local") as engine:
        engine.execute(script)
        shown = engine["q"].explain()
        assert "strategy negative (results by key: most would end early)" in shown
        assert json.loads(engine["q"].explain("json"))["strategy"] == "negative"


@pytest.mark.parametrize("first", [(), ("announce_ends",)], ids=["by key", "by calendar"])
def test_a_home_goes_on_as_it_was_written(tmp_path: Path, first: tuple[str, ...]) -> None:
    """What a home has by calendar, as older ones have all, stays so; what it has by key does, too."""
    given, script = streams(3), f"{DECLARED} CREATE QUERY q AS {TEXTS['not exists']}"
    for begin, end, without in ((0, 60, first), (60, 120, ())):
        with windrow.Engine(runtime="local", home=tmp_path, without=without) as engine:
            if not begin:
                engine.execute(script)
            assert engine["q"].plan.by_key is (not first)
            engine.start()
            for name, rows in given.items():
                at = np.asarray(rows["ts"])
                engine.push(name, rows.filter(pa.array((at >= begin) & (at < end))))
            engine.advance(end - 1)
            want = relation(windrow.run(script, given, until=end - 1, runtime="local", without=("announce_ends",))["q"])
            assert bag(engine["q"].snapshot()) == want and want
