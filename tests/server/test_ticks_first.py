"""Ticks go first: the server's loop stands still while a tick computes, but never for long."""

from __future__ import annotations

import threading

import httpx
import pytest

from windrow.engine import Engine
from windrow.server.ticks_first import TicksFirst


def test_the_loop_waits_for_ticks():
    """All of a short tick; of long ones a little, and then for as long as it has gone on since."""
    now, ends = [0.0], [0.0]

    def let_tick_pass(seconds):
        now[0] += min(seconds, ends[0] - now[0])

    with TicksFirst(lambda: now[0] < ends[0], let_tick_pass, lambda: now[0]) as selector:
        selector.select(0)
        assert now[0] == 0  # no tick
        ends[0] = 0.03
        selector.select(0)
        assert now[0] == 0.03  # all of a tick
        now[0], ends[0] = 5.0, 9.0
        selector.select(0)
        assert now[0] == pytest.approx(5.1)  # a little: long idleness is no reason for more
        selector.select(0)
        assert now[0] == pytest.approx(5.1)  # no longer
        now[0] += 0.02
        selector.select(0)
        assert now[0] == pytest.approx(5.14)  # as long as it has gone on


def test_requests_beside_a_long_tick(engine: Engine, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    """A request that comes while a long tick computes is answered before its end."""
    over, running = threading.Event(), threading.Event()

    def hold() -> None:
        running.set()
        over.wait(30)

    monkeypatch.setattr(engine.runtime.store, "sweep", hold)  # the last thing that a tick does
    pushing = threading.Thread(target=engine.push, args=("bid", [{"ts": 1, "auction": "a", "price": 1}]))
    pushing.start()
    try:
        assert running.wait(10)
        assert engine.runtime.tick_runs()
        assert admin.get("/api/ticks").status_code == 200
        assert not over.is_set()
    finally:
        over.set()
        pushing.join()
    assert not engine.runtime.tick_runs()
