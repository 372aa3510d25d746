"""Joins spread over partitions: one answer, whatever the grid, the orders, the plans and the heavy keys."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from windrow_tests_in_process import JobTicker

import windrow
from windrow.engine.replay import Replay
from windrow.runtime import program as programs
from windrow.runtime import registered
from windrow.runtime.heavy_keys import HeavyKeys, Threshold
from windrow.runtime.job import Feed
from windrow.runtime.join_choices import JoinChoices
from windrow.store.store import Store
from windrow.testing import assert_same, oracle

SEVERAL_KEYS = (
    "SELECT a.id, b.id AS i, c.id AS j FROM A [RANGE 9] a, B [RANGE 7] b, C [RANGE 5] c WHERE a.k = b.k AND b.j = c.j",
    "SELECT ISTREAM(a.id, c.k) FROM A [ROWS 4] a, B [RANGE 6] b, C [PARTITION BY k ROWS 2] c "
    "WHERE a.k = b.k AND b.j = c.j AND c.x < a.x",
    "SELECT a.k, d.id FROM A [RANGE 5] a, B [RANGE 5] b, C [RANGE 5] c, A [RANGE 3] d "
    "WHERE a.k = b.k AND b.j = c.j AND c.x = d.x",
    "SELECT a.id, b.id AS i FROM A [RANGE 4] a, B [RANGE 4] b WHERE a.x BETWEEN b.x - 1 AND b.x",
    "SELECT a.id, b.id AS i, c.id AS j FROM A [RANGE 3] a CROSS JOIN B [RANGE 2] b CROSS JOIN C [RANGE 2] c",
    "SELECT a.k, COUNT(*) AS n, SUM(c.x) AS s FROM A [RANGE 9] a, B [RANGE 7] b, C [RANGE 5] c "
    "WHERE a.k = b.k AND b.j = c.j GROUP BY a.k",
    "SELECT COUNT(*) AS n, MIN(a.x) AS m FROM A [RANGE 6 SLIDE 3] a, B [RANGE 6 SLIDE 3] b, C [RANGE 3 SLIDE 3] c "
    "WHERE a.k = b.k AND b.j = c.j",
    "SELECT b.j, p.v FROM A [RANGE 6] a, B [RANGE 5] b, C [RANGE 5] c, P p WHERE a.k = b.k AND b.j = c.j AND p.k = c.x",
    # equal groups whose rows differ in other columns lie in different cells
    "SELECT a.j, b.j AS i, COUNT(*) AS n, SUM(a.x) AS s FROM A [RANGE 9] a, B [RANGE 9] b WHERE a.x < b.x "
    "GROUP BY a.j, b.j",
    "SELECT a.j, b.j AS i, MAX(a.x - b.x) AS m FROM A [RANGE 9] a, B [RANGE 9] b WHERE a.x < b.x GROUP BY a.j, b.j",
    "SELECT DISTINCT a.j, b.j AS i FROM A [RANGE 9] a, B [RANGE 9] b WHERE a.x < b.x",
)
ONE_KEY = (
    "SELECT a.id, b.id AS i FROM A [RANGE 9] a, B [RANGE 7] b WHERE a.k = b.k",
    "SELECT b.k, a.id FROM A [RANGE 9] a, B [RANGE 7] b WHERE a.k = b.k",
    "SELECT ISTREAM(a.k, a.id, b.id AS i) FROM A [ROWS 5] a, B [RANGE 7] b WHERE a.k = b.k",
    "SELECT a.k, b.k AS kk, b.x, c.id FROM A [RANGE 5] a, B [RANGE 7] b, C [ROWS 6] c WHERE a.k = b.k AND b.k = c.k",
    "SELECT a.k FROM A [RANGE 4] a, B [RANGE 4] b WHERE a.k = b.k",
    "SELECT a.k, COUNT(*) AS n, MAX(b.x) AS x FROM A [RANGE 9] a, B [RANGE 7] b WHERE a.k = b.k GROUP BY a.k",
    "SELECT b.x, COUNT(*) AS n, SUM(a.x) AS s FROM A [RANGE 9] a, B [ROWS 6] b WHERE a.k = b.k GROUP BY b.x",
    "SELECT RSTREAM(a.id, b.id AS i) FROM A [RANGE 6 SLIDE 3] a, B [RANGE 6 SLIDE 3] b WHERE a.k = b.k",
    "SELECT a.id FROM A [RANGE 6] a WHERE NOT EXISTS (SELECT * FROM B [RANGE 5] b WHERE b.k = a.k)",
    "SELECT a.id, b.id AS i, p.v FROM A [RANGE 6] a, B [RANGE 5] b, P p WHERE a.k = b.k AND p.k = b.x",
    "SELECT DISTINCT a.k, b.x FROM A [RANGE 6] a, B [RANGE 5] b WHERE a.k = b.k",
)


def data(seed, rows=60, heavy=0.0):
    """Three streams and a table; `heavy`: the share of rows that have key 1."""
    rng = np.random.default_rng(seed)

    def stream():
        k = np.where(rng.random(rows) < heavy, 1, rng.integers(0, 5, rows))
        return pa.table({
            "ts": np.sort(rng.integers(0, 40, rows)), "id": np.arange(rows), "x": rng.integers(0, 4, rows),
            "j": rng.integers(0, 4, rows), "k": pa.array([None if rng.random() < 0.05 else int(v) for v in k]),
        })  # fmt: skip

    streams = {name: stream() for name in "ABC"}
    return streams, {"P": pa.table({"k": [0, 1, 1, 2], "v": ["x", "y", "z", "w"]})}


def check(job, home, query, streams, tables, ways=((1, None), (2, 11), (3, 7), (4, 9))):
    """Compare ticks of tasks with the definition."""
    used = {n: s for n, s in streams.items() if f"{n} [" in query}
    tables = tables if "P p" in query else {}
    want = oracle(query, used, tables, None)["q1"]
    assert want.num_rows > 10
    assert_same(windrow.run(query, used, tables, runtime="local", batch_rows=13)["q1"], want)
    for partitions, rows in ways:
        replay = Replay.of(query, used, tables, None)
        got = replay.in_home(str(home / f"{partitions}"), job(2, chaos=partitions), rows, "upa", partitions=partitions)[
            "q1"
        ]
        try:
            assert_same(got, want)
        except AssertionError as error:
            raise AssertionError(f"{query}\n{partitions} partitions, batches of {rows}: {error}") from error


@pytest.mark.parametrize("query", SEVERAL_KEYS)
def test_joins_without_a_common_key_lie_on_a_grid(query, in_process_job, tmp_path):
    """Every combination meets in one cell, however many partitions there are."""
    check(in_process_job, tmp_path, query, *data(1, 40))


@pytest.mark.parametrize("query", ONE_KEY)
def test_heavy_keys_change_no_answer(query, in_process_job, tmp_path, monkeypatch):
    """Keys become heavy in the middle, rows wait beyond the frontier, workers forget: one answer."""
    made = []

    def sensitive(partitions, undo):
        made.append(HeavyKeys(partitions, Threshold(0.4, 2), undo=undo))
        return made[-1]

    monkeypatch.setattr(registered, "HeavyKeys", sensitive)
    check(in_process_job, tmp_path, query, *data(2, 50, heavy=0.5))
    if query in ONE_KEY[:4]:
        assert all(m.saved() for m in made if m.partitions > 1)


@pytest.mark.parametrize("query", [SEVERAL_KEYS[0], SEVERAL_KEYS[2], SEVERAL_KEYS[5], ONE_KEY[3], ONE_KEY[6]])
def test_choices_change_no_answer(query, in_process_job, tmp_path, monkeypatch):
    """Other orders, or another plan, at every tick."""
    turn = iter(range(10_000))
    chosen = JoinChoices.chosen

    def changing(self):
        found = chosen(self)
        at = next(turn)
        for steps in found.values():
            for step, value in steps.items():
                if isinstance(value, str):
                    steps[step] = format(at % 2 ** len(value), f"0{len(value)}b")
                else:
                    n = len(value)
                    steps[step] = tuple(tuple((i + at * (k + 1)) % n for i in range(n)) for k in range(n))
        return found

    monkeypatch.setattr(JoinChoices, "chosen", changing)
    check(in_process_job, tmp_path, query, *data(3, 40))


CHANGING = (
    "SELECT p.v, COUNT(*) AS n, SUM(a.x) AS s FROM A [RANGE 12] a, P p WHERE a.k = p.k GROUP BY p.v",
    "SELECT a.k, COUNT(*) AS n, MAX(p.w) AS m, SUM(p.w) AS s FROM A [RANGE 15] a, B [RANGE 9] b, P p "
    "WHERE a.k = b.k AND p.k = b.x GROUP BY a.k",
    "SELECT SUM(b.x) AS s, MIN(p.w) AS m FROM A [RANGE 12 SLIDE 3] a, B [RANGE 9 SLIDE 3] b, P p "
    "WHERE a.k = p.k AND b.k = p.k AND a.x <= p.w",
)


@pytest.mark.parametrize("query", CHANGING)
@pytest.mark.parametrize("plan", ["auto", "0", "1", "mixed"])
def test_tables_change_under_aggregation_joins(query, plan, in_process_job, tmp_path, monkeypatch):
    """Rows that came before a change end with the table as it was, in every plan."""
    streams, _ = data(5, 60)
    rng = np.random.default_rng(6)
    versions = [
        pa.table({"k": rng.integers(0, 5, 6), "v": rng.choice(["x", "y"], 6), "w": rng.integers(0, 4, 6)})
        for _ in range(4)
    ]
    versions[2] = pa.concat_tables([versions[1].slice(0, 3), versions[2].slice(0, 2), versions[1].slice(0, 1)])
    inputs = 2 if "B [" not in query else 3
    bits = {"0": "0" * inputs, "1": "1" * inputs, "mixed": "01" + "1" * (inputs - 2)}.get(plan, plan)

    def ticked(aggregation, partitions):
        monkeypatch.setattr(programs, "MEASURING", replace(programs.MEASURING, aggregation=aggregation))
        used = {n: s for n, s in streams.items() if f"{n} [" in query}
        replay = Replay.of(query, used, {"P": versions[0]}, None)
        (plan_,) = replay.catalog.queries.values()
        found = []
        with Store.open(str(tmp_path / f"{aggregation}-{partitions}")) as store:
            ticker = JobTicker(in_process_job(2, chaos=partitions), store, {}, partitions)
            ticker.streams = dict(replay.catalog.streams)
            for number in range(9):
                ticker.set_table("p", versions[number // 2 % 4])
                if not number:
                    ticker.add_query(plan_, "upa", 0)
                low, high = 5 * number, 5 * number + 5
                feeds = [
                    Feed(n.lower(), t.filter((pa.compute.field("ts") >= low) & (pa.compute.field("ts") < high)))
                    for n, t in used.items()
                ]
                tick = ticker.tick([f for f in feeds if f.rows.num_rows], until=high - 1)
                ticker.commit(tick)
                found += tick.answers.values()
        return pa.concat_tables(found)

    want = ticked("late", 1)
    assert want.num_rows > 10
    for partitions in (1, 3):
        assert_same(ticked(bits, partitions), want)


def test_copies_of_heavy_keys_are_no_rows_of_a_rate(tmp_path, monkeypatch):
    """A rate counts every row once, also in a tick that brings none of its stream."""
    monkeypatch.setattr(
        registered, "HeavyKeys", lambda partitions, **more: HeavyKeys(partitions, Threshold(0.4, 100), **more)
    )
    rng = np.random.default_rng(1)

    def rows(number, size):
        k = np.where(rng.random(size) < 0.5, 7, rng.integers(100, 2000, size))
        return pa.table({"k": k, "ts": np.sort(rng.integers(1000 * number, 1000 * (number + 1), size))})

    with windrow.Engine(runtime="local", home=str(tmp_path), partitions=2) as engine:
        engine.execute("; ".join(f"CREATE STREAM {s} (k BIGINT, ts BIGINT) TIMESTAMP BY ts" for s in "AB"))
        engine.execute(
            "CREATE QUERY q AS SELECT ISTREAM(a.k, b.ts) FROM A [RANGE 300] a, B [RANGE 300] b WHERE a.k = b.k"
        )
        engine.start()
        for number in range(5):
            engine.push("A", rows(number, 2000))
            engine.push("B", rows(number, 2000))
        engine.push("B", rows(5, 20))
        join, heavy = json.loads(engine["q"].explain("json"))["joins"]
    assert heavy["heavy keys"] == 1
    assert join["statistics"]["a"]["rate"] == pytest.approx(2.0, rel=0.1)
