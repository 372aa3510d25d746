"""Queries that are one dataflow, in tasks without a JVM: encoded, repeated, out of order, forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.store.store import Store
from windrow.testing import assert_same
from windrow_bench.in_process import InProcessJob


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
@pytest.mark.parametrize("seed", range(600, 604))
def test_sets_in_tasks(make_set: Callable[[int], Any], tmp_path: Path, seed: int) -> None:
    """Whatever happens to tasks and messages, several partitions answer what this process answers one by one."""
    declared, queries, streams, tables, until = make_set(seed)
    script = ";".join([declared, *(f"CREATE QUERY {name} AS {text}" for name, text in queries.items())])
    want = windrow.run(script, streams, tables, runtime="local", until=until, sharing="off")
    job, store = InProcessJob(chaos=seed, partitions=3), Store.open(tmp_path / "home")
    replay = Replay.of(script, streams, tables, until=until)
    got = replay.play(replay.registered(job, store, "upa"), job, 5)
    store.close()
    for name, text in queries.items():
        try:
            assert_same(got[name], want[name])
        except AssertionError as error:
            raise AssertionError(f"{text}: {error}") from error


def _three(sharing: str, seed: int) -> dict[str, list[str]]:
    """The answers of three queries over three partitions, of which the one that shows least leaves half way."""
    choose = random.Random(seed)
    absent = "NOT EXISTS (SELECT * FROM b [RANGE 2] WHERE b.k = a.k)"
    shown = {"q0": "a.k, a.v", "q1": "a.k", "q2": "a.v, a.k"}
    with windrow.Engine(runtime="local", partitions=3, sharing=sharing) as engine:
        engine.execute(
            "CREATE STREAM a (k BIGINT, v BIGINT, ts BIGINT); CREATE STREAM b (k BIGINT, v BIGINT, ts BIGINT);"
        )
        for i, (name, columns) in enumerate(shown.items()):
            engine.execute(f"CREATE QUERY {name} AS SELECT {columns} FROM a [RANGE 3] WHERE a.v > {i} AND {absent}")
        engine.start()
        found, now = {name: list[str]() for name in shown}, 0
        for step in range(30):
            now += choose.choice([1, 1, 2])
            rows = [{"k": choose.randint(0, 1), "v": choose.randint(0, 5), "ts": now} for _ in range(3)]
            engine.push(choose.choice("aaab"), rows)
            engine.advance(now)
            if step == 14:
                assert sharing == "off" or "one dataflow with q0, q2" in engine["q1"].explain()
                found["q1"] += map(str, engine["q1"].results().to_pylist())
                engine.execute("DROP QUERY q1")
        engine.advance(now + 20)
        for name in ("q0", "q2"):
            found[name] += map(str, engine[name].results().to_pylist())
    return {name: sorted(rows) for name, rows in found.items()}


@pytest.mark.parametrize("seed", range(6))
def test_queries_that_show_less(seed: int) -> None:
    """What cancels for a query that drops columns lies in one partition, and stays where it is when that query goes."""
    assert _three("auto", seed) == _three("off", seed)
