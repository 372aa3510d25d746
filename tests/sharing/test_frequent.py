"""FREQUENT shared: one pass over the rows, each query its own summaries, and the answers of the definition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from windrow_tests_in_process import sliced

import windrow
from windrow.engine.replay import Replay
from windrow.operators.elements import Elements, concat
from windrow.operators.state.run import Run
from windrow.sharing.family import Family
from windrow.sharing.recognise import NotShared, recognise
from windrow.testing import assert_same, oracle

QUERIES = """
SELECT FREQUENT(x, 2) AS f, FREQUENT_DELTA(x, 2) AS d FROM s [RANGE 20 SLIDE 5];
SELECT FREQUENT(x, 1) AS f, COUNT(*) AS d FROM s [RANGE 21 SLIDE 7] WHERE g > 0;
SELECT FREQUENT(x, 3, 1) AS f FROM s [RANGE 4 SLIDE 2] WHERE x < 3 OR g = 1;
SELECT g, FREQUENT(x, 1, 1) AS f, COUNT(*) AS n FROM s [RANGE 12 SLIDE 4] WHERE x > 0 GROUP BY g;
SELECT g, FREQUENT(x, 2) AS f, FREQUENT(t, 1) AS n FROM s [RANGE 12 SLIDE 3] GROUP BY g;
SELECT ISTREAM(FREQUENT(x, 2) AS f) FROM HOP(s, ts, 5, 15);
SELECT TOP_K(x, 2) AS f FROM s [RANGE 15 SLIDE 5];
"""


def stream(rows: int, seed: int = 3) -> pa.Table:
    random = np.random.default_rng(seed)
    x = pa.array(random.zipf(1.6, rows) % 7, mask=random.random(rows) < 0.1)
    t = pa.array(np.array(["a", "b", "ä", ""])[random.integers(0, 4, rows)])
    return pa.table({"ts": np.sort(random.integers(0, rows, rows)), "g": random.integers(0, 3, rows), "x": x, "t": t})


def families(script: str, data: pa.Table, count: int) -> tuple[list[Family], np.ndarray, dict[str, pa.Array]]:
    """Like families of the queries of a script, and all rows."""
    replay = Replay.of(script, {"s": data}, {})
    made = [Family() for _ in range(count)]
    for family in made:
        for plan in replay.catalog.queries.values():
            family.join(recognise(plan).member)
    ts, columns = sliced(replay, "s", {"s": 0}, 10**9)
    return made, ts, {f"s.{n}": a for n, a in columns.items()}


def part(columns: dict[str, pa.Array], at: np.ndarray) -> dict[str, pa.Array]:
    return {n: a.take(pa.array(at)) for n, a in columns.items()}


def through_bytes(run: Run) -> Run:
    """A run as a file would give it back."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, run.table.schema) as writer:
        writer.write_table(run.table)
    return Run(pa.ipc.open_file(sink.getvalue()).read_all(), run.uid)


def bag(elements: Elements) -> list[str]:
    columns = [c.to_pylist() for c in elements.columns.values()]
    return sorted(map(repr, zip(elements.ts.tolist(), elements.exp.tolist(), *columns, strict=True)))


@pytest.mark.parametrize("batch_rows", [None, 11])
def test_shared_answers_are_those_of_the_definition(batch_rows: int | None) -> None:
    data = {"s": stream(120)}
    want = oracle(QUERIES, data)
    got = windrow.run(QUERIES, data, runtime="local", sharing="shards", batch_rows=batch_rows)
    for name, table in want.items():
        assert_same(got[name], table)


def test_tasks_and_restarts_never_change_an_answer() -> None:
    """Rows dealt to tasks tick by tick, and the family rebuilt from its runs before each."""
    (whole, tasks), ts, columns = families(QUERIES, stream(120), 2)
    end = int(ts[-1]) + 30
    want = whole.advance(ts, columns, end)
    for name in tasks.joined:
        tasks.begin(name, int(ts[0]))
    found: dict[str, list[Elements]] = {}
    frontiers = [*range(int(ts[0]) + 6, int(ts[-1]), 7), end]
    for before, frontier in zip([int(ts[0]) - 1, *frontiers], frontiers, strict=False):
        at = np.flatnonzero((ts > before) & (ts <= frontier))
        for some in (at[0::2], at[1::2]):
            tasks.absorb(tasks.reduce(ts[some], part(columns, some)))
        for name, rows in tasks.advance(np.zeros(0, np.int64), {}, frontier).items():
            found.setdefault(name, []).append(rows)
        (again,), _, _ = families(QUERIES, stream(120), 1)
        again.resume(tasks.epoch, tasks.next_synopsis)
        for name in again.joined:
            again.begin(name, int(ts[0]))
        again.hold({n: tuple(map(through_bytes, runs)) for n, runs in tasks.held().items()}, frontier)
        for name in again.joined:
            again.done(name)
        tasks = again
    for name, rows in want.items():
        assert bag(concat(found[name])) == bag(rows)


def test_a_family_keeps_k_pairs_per_period_and_the_counts_of_open_periods() -> None:
    random = np.random.default_rng(1)
    k, slide, size, distinct, rows = 3, 50, 1000, 40, 4000
    data = pa.table({"ts": np.arange(1, rows + 1), "x": random.integers(0, distinct, rows)})
    (family,), ts, columns = families(f"SELECT FREQUENT(x, {k}) AS f FROM s [RANGE {size} SLIDE {slide}]", data, 1)
    for first in range(0, rows, 30):
        at = np.arange(first, min(first + 30, rows))
        family.advance(ts[at], part(columns, at), int(ts[at[-1]]))
        (shards,) = family.shards.values()
        (queue,) = shards._queues.values() or [None]
        if queue is not None:
            name = next(n for n in queue.runs[0].table.column_names if n.startswith(f"{k} most"))
            assert sum(len(r.table[name].combine_chunks().flatten()) for r in queue.runs) <= k * size / slide
        if first > 2 * slide:
            # the open period, the one before it, and what waits to be swept
            assert sum(map(len, shards.blocks)) <= 6 * distinct


def test_a_query_that_joins_a_running_engine_reads_its_history(tmp_path) -> None:  # type: ignore[no-untyped-def]
    data = stream(90)
    script = "SELECT FREQUENT(x, 2) AS f, COUNT(*) AS n FROM s [RANGE 20 SLIDE 5] WHERE g > {}"
    want = oracle(";".join(script.format(i) for i in range(2)), {"s": data})
    shown: dict[str, list[pa.Table]] = {"q1": [], "q2": []}
    home = str(tmp_path / "home")
    for step, (begin, end) in enumerate(((0, 30), (30, 60), (60, 90))):
        engine = windrow.Engine(runtime="local", home=home)
        if step == 0:
            engine.execute("CREATE STREAM s (ts BIGINT, g BIGINT, x BIGINT, t VARCHAR) RETAIN 40")
            engine.execute(f"CREATE QUERY q1 AS {script.format(0)}")
        engine.start()
        if step == 1:
            engine.execute(f"CREATE QUERY q2 AS {script.format(1)}")
        engine.push("s", data.slice(begin, end - begin))
        engine.drain()
        for name in shown:
            if step or name == "q1":
                shown[name].append(engine[name].results())
        engine.stop()
    for name, parts in shown.items():
        got = {r["_ts"]: r for p in parts for r in p.to_pylist()}
        for row in want[name].to_pylist():
            if row["_ts"] in got:
                assert got[row["_ts"]] == row
        assert len(got) >= 6


def test_a_deadline_is_no_basic_window() -> None:
    replay = Replay.of("SELECT FREQUENT(x, 2) AS f FROM s [RANGE 20 SLIDE AT MOST 5]", {"s": stream(9)}, {})
    (plan,) = replay.catalog.queries.values()
    with pytest.raises(NotShared, match="AT MOST"):
        recognise(plan)
