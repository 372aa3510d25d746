"""Answers by reference are the answers by value, wherever they are read; their files go when nobody needs them."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tests.waiting import until

import windrow
from windrow.operators.elements import INF, Elements, concat
from windrow.plan.dataflow import answer
from windrow.runtime import delivery, kept_answers
from windrow.runtime.kept_answers import TaskAnswers, read, rows_of
from windrow.runtime.messages import WrittenAnswer
from windrow.sinks import PartSink, parse_sink
from windrow.store import runs
from windrow.store.place import Place
from windrow.store.runs import RunStore
from windrow.testing import assert_same

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts;
    CREATE QUERY pairs AS SELECT a.k, b.ts AS other FROM s [RANGE 6] a, s [RANGE 6] b WHERE a.k = b.k;
    CREATE QUERY totals AS SELECT k, COUNT(*) AS n FROM s [RANGE 5 SLIDE 2] GROUP BY k;
"""
ROWS = pa.table({"ts": np.repeat(np.arange(24), 4), "k": np.arange(96) % 7})


@pytest.fixture(autouse=True)
def _everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "BOUND", 1)


def answer_files(home: Path) -> list[Path]:
    return list(home.glob("runs/answers/**/*.arrow"))


def engine_of(home: Path) -> windrow.Engine:
    return windrow.Engine(runtime="local", home=str(home), partitions=3)


def push(engine: windrow.Engine, first: int, last: int) -> None:
    for at in range(first, last, 16):
        engine.push("s", ROWS.slice(at, 16))


def test_times_of_any_kind_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers have times of their stream's type, and tables may have columns that are called as those of state."""
    monkeypatch.setattr(runs, "cache", runs.RunCache(0))
    script = """
        CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts;
        CREATE QUERY q AS SELECT s.k, t._exp FROM s [RANGE 3 SECONDS], t WHERE s.k = t._sign
    """
    rows = pa.table({"ts": pa.array(np.arange(9) * 1_000_000, pa.timestamp("us")), "k": np.arange(9) % 3})
    table = {"_ts": ["a", None, "c"], "_exp": ["x", "y", None], "_sign": [0, 1, 2]}
    with engine_of(tmp_path) as engine:
        engine.table("t", table)
        engine.execute(script)
        engine.start()
        engine.push("s", rows)
        assert len(answer_files(tmp_path))
        want = windrow.run(script, {"s": rows}, {"t": pa.table(table)}, runtime="local", until="1970-01-01 00:00:07")
        assert_same(engine["q"].results(), want["q"])


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_results_subscribers_and_sinks_see_the_same(tmp_path: Path, form: str) -> None:
    """Over a restart, too; a tick's files in a directory are its parts."""
    want = windrow.run(SCRIPT, {"s": ROWS}, runtime="local", until=int(ROWS["ts"][-1].as_py()) - 1)
    told: list[pa.Table] = []
    for first, last in ((0, 48), (48, 96)):
        with engine_of(tmp_path / "home") as engine:
            if "pairs" not in engine:
                engine.execute(SCRIPT)
            for query in want:
                engine.sink(query, form, path=str(tmp_path / "out"))
            engine["pairs"].subscribe(told.append)
            engine.start()
            push(engine, first, last)
            engine.drain(60)
            shown = engine["pairs"].results()
            until(lambda n=shown.num_rows: sum(t.num_rows for t in told) >= n)
            if first == 0:
                told.clear()
    assert_same(pa.concat_tables(told), shown)
    for query in want:
        files = sorted((tmp_path / "out" / query).glob("*"))
        assert not [f for f in files if f.name.startswith(".")]
        if form == "parquet":
            assert_same(pa.concat_tables([parquet.read_table(f) for f in files]), want[query])
    assert any(f.name.endswith("-0001." + form) for f in (tmp_path / "out" / "pairs").glob("*"))


def test_a_short_part_of_a_long_table_stays_as_it_is(tmp_path: Path) -> None:
    """How long an answer is goes by its own rows, not by those of the table that it was cut from."""
    with engine_of(tmp_path / "home") as engine:
        held = engine.runtime.ticker.held
        held.bound = 400
        whole = ROWS.rename_columns(["_ts", "k"])
        answers: dict[str, Any] = {"long": whole, "short": whole.slice(40, 2)}
        held.shorten(1, answers)
    assert isinstance(answers["short"], pa.Table)
    assert isinstance(answers["long"], kept_answers.KeptAnswer)
    assert rows_of(answers["long"]).equals(whole)


def test_files_go_when_nobody_holds_them(tmp_path: Path) -> None:
    """What `results()` has let go of, and sinks have taken, is swept within a few ticks."""
    with engine_of(tmp_path / "home") as engine:
        engine.execute(SCRIPT)
        engine.runtime.declared.outlets["pairs"].recent._limit = 20
        engine.runtime.declared.outlets["totals"].recent._limit = 20
        engine.sink("pairs", "parquet", path=str(tmp_path / "out"))
        engine.start()
        push(engine, 0, 96)
        engine.drain(60)
        assert answer_files(tmp_path / "home")
        assert engine["pairs"].results().num_rows
        for ts in range(100, 108):  # ticks with few rows
            engine.push("s", {"ts": [ts], "k": [1]})
            engine.drain(60)
        gc.collect()
        held = {ref.path for refs in engine.runtime.ticker.manifest.runs.values() for ref in refs}
        for file in answer_files(tmp_path / "home"):
            newest = int(file.name.split("-")[0])
            assert newest >= engine.runtime.ticker.manifest.tick - 6 or str(file.relative_to(tmp_path / "home")) in held
    assert kept_answers.STAGE in {key[0] for key in engine.runtime.ticker.manifest.runs}


def test_a_subscriber_that_is_behind_reads_what_it_was_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its references keep their files, however many ticks have passed."""
    monkeypatch.setattr(delivery, "HANGS", 0.01)  # `drain` does not wait for it
    told: list[pa.Table] = []
    go = threading.Event()

    def slow(table: pa.Table) -> None:
        assert go.wait(60)
        told.append(table)

    with engine_of(tmp_path / "home") as engine:
        engine.execute(SCRIPT)
        outlet = engine.runtime.declared.outlets["pairs"]
        outlet.recent._limit = 1
        engine["pairs"].subscribe(slow)
        got: list[pa.Table] = []
        engine["pairs"].subscribe(got.append)
        engine.start()
        for at in range(0, 96, 8):
            engine.push("s", ROWS.slice(at, 8))
            engine.drain(60)
        go.set()
        until(lambda: sum(t.num_rows for t in told) == outlet.recent.rows)
        until(lambda: sum(t.num_rows for t in got) == outlet.recent.rows)
    assert pa.concat_tables(told).equals(pa.concat_tables(got))


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(0, 300))
@settings(max_examples=60, deadline=None)
def test_parts_in_files_are_the_whole(tmp_path_factory: Any, parts: list[list[int]], bound: int) -> None:
    """Whatever is written when, in whatever order the times of the parts are."""
    catalog = windrow.Engine(runtime="local")
    catalog.execute("CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts; CREATE QUERY q AS SELECT ISTREAM(k) FROM s")
    plan = catalog["q"].plan
    (column,) = (internal for _, internal in plan.output)
    runs = RunStore(Place.of(tmp_path_factory.mktemp("home")), sync=False)
    query = SimpleNamespace(plan=plan, archived=False, parted=False, retain=None)
    program = SimpleNamespace(store=runs, answer_bound=bound, tick=3)
    made = [
        Elements.positive(np.array(ts), INF, {column: pa.array(range(100 * i, 100 * i + len(ts)))})
        for i, ts in enumerate(parts)
    ]
    task = TaskAnswers(program)  # type: ignore[arg-type]
    for part in made:
        task.add("q", query, part)  # type: ignore[arg-type]
    found = list(task.messages({"q": query}))  # type: ignore[dict-item]
    whole = np.concatenate([m.ts for m in made])
    order = np.argsort(whole, kind="stable")
    values = np.concatenate([m.columns[column].to_numpy() for m in made])[order]
    if isinstance(found[0], WrittenAnswer):
        table = read(runs, found[0].refs)
    else:
        assert sum(m.nbytes() for m in made) < bound
        table = rows_of(answer(plan, concat([m.elements for m in found])))  # type: ignore[union-attr]
    assert table["_ts"].to_pylist() == whole[order].tolist()
    assert table["k"].to_pylist() == values.tolist()


def test_sinks_say_whether_they_take_parts(tmp_path: Path) -> None:
    """Directories do; what needs the rows in order does not."""
    assert isinstance(parse_sink({"sink": "parquet", "path": str(tmp_path)}), PartSink)
    assert not isinstance(parse_sink({"sink": "memory"}), PartSink)
