"""Queries that are one dataflow, in tasks without a JVM: encoded, repeated, out of order, forgotten."""

from __future__ import annotations

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
