"""Long runs lie on disk: operators go on with mapped files, superseded ones go, and no answer changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import windrow
from windrow.operators.elements import INF, Elements
from windrow.operators.join import JoinOperator
from windrow.operators.keys import hash_rows
from windrow.operators.state.keyed import KeyedRuns
from windrow.operators.state.pairs import Needles
from windrow.operators.state.run import Run
from windrow.runtime.task_state import RECENT, QueryState, TaskMemory
from windrow.store import runs
from windrow.store.place import Place
from windrow.store.runs import RunStore
from windrow.testing import assert_same

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k BIGINT, name VARCHAR) TIMESTAMP BY ts;
    CREATE STREAM r (ts BIGINT, k BIGINT) TIMESTAMP BY ts;
    CREATE QUERY pairs AS SELECT a.k, a.name, b.ts AS other FROM s [RANGE 9] a, r [RANGE 12] b WHERE a.k = b.k;
    CREATE QUERY alone AS SELECT s.k FROM s [RANGE 9] WHERE NOT EXISTS (SELECT * FROM r [RANGE 3] WHERE r.k = s.k);
"""


def rows(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 6, 120)
    return pa.table({"ts": np.sort(rng.integers(0, 60, 120)), "k": k, "name": [f"n{i}" * 3 for i in k.tolist()]})


def test_operators_go_on_with_mapped_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every run a long one, over a restart: the answers of a replay, and no page of a join in private memory."""
    monkeypatch.setattr(runs, "ALONE", 1)
    streams = {"s": rows(1), "r": rows(2).drop_columns(["name"])}
    reached = min(int(t["ts"][-1].as_py()) for t in streams.values()) - 1
    want = windrow.run(SCRIPT, streams, runtime="local", until=reached)
    for first in (0, 60):
        with windrow.Engine(runtime="local", home=str(tmp_path / "home"), partitions=2) as engine:
            if not first:
                engine.execute(SCRIPT)
            for query in want:
                engine.sink(query, "parquet", path=str(tmp_path / "out"))
            engine.start()
            for at in range(first, first + 60, 12):
                for name, table in streams.items():
                    engine.push(name, table.slice(at, 12))
            engine.drain(60)
            pages = [
                page
                for _, states in engine.runtime.job.memory.attempts.values()
                for state in states.values()
                if isinstance(state, QueryState)
                for step in state.flow.steps
                if isinstance(step.operator, JoinOperator)
                for index in step.operator._indexes.values()
                for page in index._pages
            ]
            assert pages
            assert not any(page.elements.ts.flags.writeable for page in pages)
            named = {ref.path for ref in engine.runtime.ticker.manifest.refs()}
            assert len(named) == len({ref.uid for ref in engine.runtime.ticker.manifest.refs()})
    for query, answer in want.items():
        assert_same(parquet.read_table(tmp_path / "out" / query).sort_by("_ts"), answer)


def test_workers_that_take_turns(tmp_path: Path) -> None:
    """Whoever comes back after another did its work goes on from what that one left: the answers of a replay."""
    streams = {"s": rows(1), "r": rows(2).drop_columns(["name"])}
    reached = min(int(t["ts"][-1].as_py()) for t in streams.values()) - 1
    want = windrow.run(SCRIPT, streams, runtime="local", until=reached)
    with windrow.Engine(runtime="local", home=str(tmp_path / "home"), partitions=2) as engine:
        engine.execute(SCRIPT)
        for query in want:
            engine.sink(query, "parquet", path=str(tmp_path / "out"))
        engine.start()
        workers = [engine.runtime.job.memory, TaskMemory(), TaskMemory()]
        for turn, at in enumerate(range(0, 120, 6)):
            for name, table in streams.items():
                engine.runtime.job.memory = workers[turn % 3 if turn % 7 else 0]
                engine.push(name, table.slice(at, 6))
        engine.drain(60)
    for query, answer in want.items():
        assert_same(parquet.read_table(tmp_path / "out" / query).sort_by("_ts"), answer)


def test_workers_forget_homes_that_nobody_comes_back_to() -> None:
    """The homes that were worked for last are remembered, with all their partitions."""
    memory = TaskMemory()

    def work(home: str) -> None:
        for partition in range(2):
            memory.pop((home, 1, partition), "")
            memory.put((home, 1, partition), "", {})

    for home in ("closed", *("first", "second") * RECENT):
        work(home)
    assert {home for home, _, _ in memory.attempts} == {"first", "second"}
    assert len(memory.attempts) == 4
    for _ in range(RECENT):
        work("second")
    assert set(memory.attempts) == {("second", 1, 0), ("second", 1, 1)}


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=8), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_adopted_runs_are_found_as_before(batches: list[list[int]]) -> None:
    """Keyed runs that are replaced by copies after every insertion, against those that are not."""
    plain, moved = KeyedRuns(["k"]), KeyedRuns(["k"])
    for number, keys in enumerate(batches):
        made = Elements.positive(np.full(len(keys), number), INF, {"k": pa.array(keys, pa.int64())})
        for each in (plain, moved):
            each.insert(made, number)
        moved.adopt({run.uid: Run(pa.table(run.table.to_pydict(), run.table.schema), run.uid) for run in moved.runs()})
    hashes = hash_rows([pa.array(range(5), pa.int64())], 5)
    needles = Needles(hashes, np.full(5, 9), np.full(5, INF), np.ones(5, np.int8))
    found = [
        sorted(
            (int(n), int(ts))
            for met in each.probe(needles, 100)
            for n, ts in zip(met.left, met.times("ts"), strict=True)
        )
        for each in (plain, moved)
    ]
    assert found[0] == found[1]


def test_long_runs_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones share one; all are read back in order."""
    monkeypatch.setattr(runs, "ALONE", 1000)
    store = RunStore(Place.of(tmp_path), sync=False)
    made = [Run(pa.table({"a": range(n)})) for n in (3, 500, 4, 600, 5)]
    refs = store.write(("1", 0), 7, made)
    assert [ref.uid for ref in refs] == [run.uid for run in made]
    assert len({ref.path for ref in refs}) == 3
    assert [store.read(ref, cached=False).table.num_rows for ref in refs] == [3, 500, 4, 600, 5]
