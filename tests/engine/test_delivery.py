"""Receivers that are away, raise or hang delay only themselves; nothing is lost, nothing comes twice."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import until

import windrow
from windrow.errors import BindingError
from windrow.runtime import delivery
from windrow.runtime.delivery import Delivery, settle
from windrow.testing import assert_same

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts;
    CREATE QUERY totals AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k;
    CREATE QUERY other AS SELECT ISTREAM(k) FROM s [RANGE 5];
"""


def rows(ts: int) -> dict[str, list[int]]:
    """A few rows of an instant."""
    return {"ts": [ts, ts], "k": [ts % 3, 7]}


class Receiver:
    """A receiver that keeps ticks as PostgreSQL does, each once, and fails or waits when it is told to."""

    def __init__(self) -> None:
        self.got: dict[int, pa.Table] = {}
        self.failing = False
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, query: str, tick: int, table: pa.Table) -> None:
        self.gate.wait()
        if self.failing:
            raise ConnectionError("nobody there")
        assert tick > max(self.got, default=-1) or self.got[tick].equals(table)
        self.got.setdefault(tick, table)

    def table(self) -> pa.Table:
        return pa.concat_tables(list(self.got.values()))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait for the back-off of a real server."""
    monkeypatch.setattr(delivery, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(delivery, "LAST_RETRY", 0.05)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
@settings(max_examples=20)
def test_parcels_are_handed_over_in_order_however_often_each_fails(fails: list[int]) -> None:
    """Each is taken once, after as many failures as it has."""
    left, taken = list(fails), []

    def hand_over(i: int) -> None:
        if left[i]:
            left[i] -= 1
            raise OSError("not yet")
        taken.append(i)

    made = Delivery("somebody", retried=True)
    for i in range(len(fails)):
        made.add(i, 1, lambda i=i: hand_over(i))  # type: ignore[misc]
    until(lambda: made.first_waiting is None)
    assert taken == list(range(len(fails)))
    assert made.status()["failures"] == sum(fails)
    assert made.status()["error"] is None
    made.stop()


def test_a_receiver_that_is_told_once_is_let_go_when_it_is_far_behind() -> None:
    """It keeps nobody's memory."""
    gate = threading.Event()
    made = Delivery("somebody", retried=False, bound=100)
    for i in range(5):
        made.add(i, 60, gate.wait)
    assert "ticks behind" in made.status()["ended"]
    assert made.status()["waiting_bytes"] == 0
    gate.set()
    settle([made], 60)


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_a_callback_that_raises_or_hangs_stops_nobody(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are taken, other queries' sinks get theirs, changes are made; status says what waits, and since when."""
    monkeypatch.setattr(delivery, "HANGS", 0.0)
    bad, good = Receiver(), Receiver()
    bad.failing = how == "raises"
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.sink("totals", "callback", fn=bad)
        engine.sink("other", "callback", fn=good)
        engine.start()
        if how == "hangs":
            bad.gate.clear()
        for ts in range(1, 9):
            engine.push("s", rows(ts))
        engine.execute("CREATE QUERY third AS SELECT k FROM s [RANGE 5]; DROP QUERY third")
        until(lambda: len(good.got) == 7)
        until(
            lambda: engine.status()["sinks"]["totals"]["callback"][f"{'fail' if how == 'raises' else 'hang'}ing_since"]
        )
        said = engine.status()["sinks"]["totals"]["callback"]
        assert said["waiting_ticks"] == 7 and said["waiting_bytes"] > 0
        assert said["waiting_since"] <= time.time()
        if how == "raises":
            assert "raised ConnectionError: nobody there" in said["error"]
        assert engine.ask("SELECT COUNT(*) AS n FROM totals").num_rows == 1
        assert engine.ask_batches("SELECT COUNT(*) AS n FROM totals").read_all().num_rows == 1
        bad.failing = False
        bad.gate.set()
        until(lambda: len(bad.got) == 7)
        assert_same(bad.table(), engine["totals"].results())


def test_a_subscriber_that_hangs_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are told, and status names it."""
    monkeypatch.setattr(delivery, "HANGS", 0.0)
    gate, heard, ticks = threading.Event(), [], []

    def stuck(_: pa.Table) -> None:
        gate.wait()

    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine["totals"].subscribe(stuck)
        engine["totals"].subscribe(heard.append)
        engine.on_tick(lambda _: gate.wait())
        engine.on_tick(ticks.append)
        engine.start()
        for ts in range(1, 5):
            engine.push("s", rows(ts))
        until(lambda: sum(t.num_rows for t in heard) == engine["totals"].results().num_rows > 0)
        until(lambda: ticks == [1, 2, 3, 4])
        engine["totals"].subscribe(stuck)  # one by the same name hides nobody
        names = engine.status()["receivers"]
        assert len(names) == 5 and sum("stuck" in name for name in names) == 2
        label = next(name for name in names if "stuck" in name)
        until(lambda: engine.status()["receivers"][label]["hanging_since"])
        gate.set()


def test_beyond_its_bound_a_query_stops_and_what_it_answered_is_handed_over(tmp_path: Path) -> None:
    """Named in status; the others go on; the outbox is emptied when the receiver is back."""
    bad, good = Receiver(), Receiver()
    bad.failing = True
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.execute(SCRIPT)
        engine.sink("totals", "callback", fn=bad, outbox="3 kB")
        engine.sink("other", "callback", fn=good)
        engine.start()
        for ts in range(1, 30):
            engine.push("s", rows(ts))
        until(lambda: len(good.got) == 28)
        status = engine.status()
        assert 'bytes wait for its sink "callback"' in status["failed"]["totals"]
        assert status["sinks"]["totals"]["callback"]["waiting_ticks"] < 28
        answered = engine["totals"].results()
        bad.failing = False
        until(lambda: engine.status()["sinks"]["totals"]["callback"]["waiting_ticks"] == 0)
        assert_same(bad.table(), answered)
        engine.execute("DROP QUERY totals; CREATE QUERY totals AS SELECT k FROM s [RANGE 5]")
        assert not engine.status()["failed"]


@given(st.lists(st.sampled_from(["rows", "fail", "well", "restart"]), min_size=1, max_size=12))
@settings(max_examples=12)
def test_every_answer_arrives_once_over_failures_and_restarts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """The receiver has what a replay answers, in order, whenever it failed and the engine was restarted."""
    home = tmp_path_factory.mktemp("home") / "h"
    receiver, ts, given_rows = Receiver(), 0, []

    def opened() -> windrow.Engine:
        made = windrow.Engine(runtime="local", home=home)
        if "totals" not in made:
            made.execute(SCRIPT)
        made.sink("totals", "callback", fn=receiver)
        made.start()
        return made

    engine = opened()
    for step in steps:
        if step == "restart":
            engine.stop()
            engine = opened()
        elif step == "rows":
            ts += 1
            given_rows.append(pa.table(rows(ts)))
            engine.push("s", given_rows[-1])
        else:
            receiver.failing = step == "fail"
    receiver.failing = False
    until(lambda: engine.status()["sinks"]["totals"]["callback"]["waiting_ticks"] == 0)
    frontier = engine.status()["frontier"]
    engine.stop()
    if receiver.got:
        want = windrow.run(SCRIPT, {"s": pa.concat_tables(given_rows)}, runtime="local", until=frontier)["totals"]
        assert_same(receiver.table(), want)


@pytest.mark.postgres
def test_a_server_that_is_away_delays_only_its_sink(postgres: Any, tmp_path: Path) -> None:
    """Also over a restart, after which every tick is there once."""
    home, out = tmp_path / "home", str(tmp_path / "out")

    def opened() -> windrow.Engine:
        made = windrow.Engine(runtime="local", home=home)
        if "totals" not in made:
            made.execute(SCRIPT)
        made.sink("totals", "postgres", dsn=postgres.dsn)
        made.sink("totals", "parquet", path=out)
        made.start()
        return made

    engine = opened()
    engine.push("s", rows(1))
    engine.push("s", rows(2))
    engine.drain()
    postgres.stop()
    for ts in range(3, 7):
        engine.push("s", rows(ts))
    engine.execute("CREATE QUERY more AS SELECT k FROM s [RANGE 5]")
    engine.drain()
    said = engine.status()["sinks"]["totals"]
    assert "PostgreSQL is away" in said["postgres"]["error"]
    assert said["postgres"]["waiting_ticks"] == 4 and said["parquet"]["waiting_ticks"] == 0
    engine.stop()
    engine = opened()
    engine.push("s", rows(7))
    postgres.start()
    until(lambda: engine.status()["sinks"]["totals"]["postgres"]["waiting_ticks"] == 0)
    frontier = engine.status()["frontier"]
    engine.stop()
    streams = {"s": pa.concat_tables([pa.table(rows(ts)) for ts in range(1, 8)])}
    want = windrow.run(SCRIPT, streams, runtime="local", until=frontier)["totals"]
    with psycopg.connect(postgres.dsn) as connection:
        found = connection.execute('SELECT "_ts", "_op", k, n FROM totals').fetchall()
    assert sorted(found) == sorted(zip(*(c.to_pylist() for c in want.columns), strict=True))


def test_a_sink_that_is_not_attached_again_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its answers wait for it; attached later it has them all, and `detach` lets it go."""
    home, receiver = tmp_path / "home", Receiver()
    for life in range(3):
        with windrow.Engine(runtime="local", home=home) as engine:
            if life == 0:
                engine.execute(SCRIPT)
            if life != 1:
                engine.sink("totals", "callback", fn=receiver, name="pager")
            engine.start()
            for ts in range(1 + 4 * life, 5 + 4 * life):
                engine.push("s", rows(ts))
            if life == 1:
                assert engine.status()["sinks"]["totals"]["pager"]["missing"]
                assert 'sink "pager" of query "totals" was attached before and is not now' in caplog.text
            engine.drain()
    assert sorted(receiver.got) == list(range(2, 13))
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.detach("totals", "pager")
    with windrow.Engine(runtime="local", home=home) as engine:
        assert "totals" not in engine.status()["sinks"]
        with pytest.raises(BindingError, match='has no sink "pager"'):
            engine.detach("totals", "pager")
