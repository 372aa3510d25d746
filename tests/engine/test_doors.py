"""Every door says in `windrow.as_of` for which instant its answer is exact, and is; on both runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet
from tests.waiting import until

import windrow
from windrow.runtime import kept_answers
from windrow.testing import assert_same, oracle

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts RETAIN 500;"
RELATION = "SELECT k, COUNT(*) AS n, SUM(v) AS t FROM s [RANGE 30] GROUP BY k"
PERIODIC = "SELECT k, SUM(v) AS t FROM s [RANGE 20 SLIDE 5] GROUP BY k"
ARCHIVED = "SELECT k, v FROM s [RANGE 40]"
SCRIPT = f"""{STREAM}
    CREATE QUERY relation AS {RELATION} KEEP 10000;
    CREATE QUERY periodic AS {PERIODIC};
    CREATE ARCHIVE a AS {ARCHIVED} KEY k EVERY 10 PARTITIONS 2 x 2;
"""
TICKS = 6


def batch(n: int) -> pa.Table:
    rng = np.random.default_rng(n)
    ts = np.sort(rng.integers(7 * n, 7 * n + 7, 20))
    return pa.table({"ts": ts, "k": rng.integers(0, 4, 20), "v": rng.integers(0, 9, 20)})


def rows(ticks: int = TICKS) -> pa.Table:
    return pa.concat_tables([batch(n) for n in range(ticks)])


def as_of(table: pa.Table | pa.RecordBatchReader) -> int:
    return int(table.schema.metadata[b"windrow.as_of"])


def changes(query: str, instant: int) -> pa.Table:
    """All that a query answers up to an instant, from the definition."""
    return oracle(f"{STREAM} CREATE QUERY q AS {query}", {"s": rows()}, until=instant)["q"]


def relation(query: str, instant: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in changes(query, instant).to_pylist():
        found[tuple(v for n, v in row.items() if n not in ("_ts", "_op"))] += row["_op"]
    return +found


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in table.to_pylist())


def last(query: str, instant: int) -> Counter[tuple[Any, ...]]:
    """What a periodic query answers at its last multiple."""
    found = changes(query, instant)
    return bag(found.filter(pc.equal(found["_ts"], instant // 5 * 5)).drop_columns(["_ts"]))


@pytest.fixture(params=["local", "memory", "tasks", pytest.param("spark", marks=pytest.mark.spark)])
def given(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An engine's arguments: with a home and without, with answers in files that tasks have written, and on Spark."""
    kind = request.param
    if kind == "memory":
        return {"runtime": "local"}
    if kind == "tasks":
        monkeypatch.setattr(kept_answers, "BOUND", 1)
        return {"runtime": "local", "home": tmp_path / "home", "partitions": 3}
    more = {"spark": request.getfixturevalue("spark"), "partitions": 2} if kind == "spark" else {}
    return {"runtime": kind, "home": tmp_path / "home", **more}


@pytest.fixture
def engine(given: dict[str, Any]) -> Iterator[windrow.Engine]:
    with windrow.Engine(**given) as made:
        made.execute(SCRIPT)
        made.start()
        yield made


def push(engine: windrow.Engine, first: int = 0, ticks: int = TICKS) -> None:
    for n in range(first, ticks):
        engine.push("s", batch(n))
        engine.drain(240)


def test_readings(engine: windrow.Engine) -> None:
    """Questions at both levels, snapshots, archives, the past: each equals the definition at its instant."""
    push(engine)
    frontier = engine.runtime.ticker.frontier
    for level in ("snapshot", "latest"):
        for question in (RELATION, "SELECT k, v FROM s [RANGE 25] WHERE v > 3"):
            found = engine.ask(question, isolation=level)
            assert as_of(found) == frontier and bag(found) == relation(question, frontier)
            reader = engine.ask_batches(question, isolation=level)
            assert as_of(reader) == frontier and bag(reader.read_all()) == relation(question, frontier)
    for found in (engine["relation"].snapshot(), engine.ask("SELECT * FROM relation")):
        assert as_of(found) == frontier and bag(found) == relation(RELATION, frontier)
    found = engine.ask("SELECT * FROM periodic")
    assert as_of(found) == frontier and bag(found) == last(PERIODIC, frontier)
    assert as_of(engine["periodic"].snapshot()) == frontier
    archived = [engine.archive("a").scan(), engine.ask("SELECT * FROM a")]
    archived += [engine.archive("a").probe(low=0, high=9), engine.ask("SELECT * FROM a WHERE k IN (0, 1, 2, 3)")]
    for found in archived:
        assert as_of(found) == frontier // 10 * 10 and bag(found) == relation(ARCHIVED, frontier // 10 * 10)
    for instant in (frontier // 2, frontier + 100):
        found = engine.ask(f"SELECT * FROM relation AS OF {instant}")
        assert as_of(found) == min(instant, frontier) and bag(found) == relation(RELATION, min(instant, frontier))


def test_changes(engine: windrow.Engine, tmp_path: Path) -> None:
    """Results, subscribers and sinks: all that was answered up to the instant, and nothing else."""
    heard: dict[str, list[pa.Table]] = {"relation": [], "periodic": []}
    taken: dict[str, list[pa.Table]] = {"relation": [], "periodic": []}
    for name in heard:
        engine[name].subscribe(heard[name].append)
        engine.sink(name, "callback", fn=lambda query, tick, table: taken[query].append(table))
        engine.sink(name, "parquet", path=str(tmp_path / "out"))
    frontiers = []
    for n in range(TICKS):
        push(engine, n, n + 1)
        frontiers.append(engine.runtime.ticker.frontier)
        for name, query in (("relation", RELATION), ("periodic", PERIODIC)):
            found = engine[name].results()
            assert as_of(found) == frontiers[-1]
            assert_same(found, changes(query, frontiers[-1]))
    kept = engine["relation"].results(since=0)
    assert as_of(kept) == frontiers[-1]
    assert_same(kept, changes(RELATION, frontiers[-1]))
    until(lambda: all(sum(t.num_rows for t in heard[n]) == engine[n].results().num_rows for n in heard))
    for name, query in (("relation", RELATION), ("periodic", PERIODIC)):
        files = sorted((tmp_path / "out" / name).glob("*.parquet"))
        for doors in (heard[name], taken[name], [parquet.read_table(f, partitioning=None) for f in files]):
            some = [t for t in doors if t.num_rows]
            assert {as_of(t) for t in some} <= set(frontiers)
            for instant in {as_of(t) for t in some}:
                assert_same(pa.concat_tables([t for t in some if as_of(t) <= instant]), changes(query, instant))


def test_what_waits_for_a_sink_keeps_its_instant(given: dict[str, Any], tmp_path: Path) -> None:
    """Answers that a sink could not take are handed over after a restart as they would have been."""
    if "home" not in given:
        pytest.skip("without a home nothing waits over a restart")

    def away(query: str, tick: int, table: pa.Table) -> None:
        raise RuntimeError("away")

    with windrow.Engine(**given) as engine:
        engine.execute(SCRIPT)
        engine.sink("relation", "callback", name="out", fn=away)
        engine.start()
        for n in range(3):
            engine.push("s", batch(n))
            engine.runtime.drain(240)
        frontier = engine.runtime.ticker.frontier
    taken: list[pa.Table] = []
    with windrow.Engine(**given) as engine:
        engine.sink("relation", "callback", name="out", fn=lambda query, tick, table: taken.append(table))
        engine.start()
        assert as_of(engine["relation"].results()) == frontier
        engine.drain(240)
    assert taken and max(map(as_of, taken)) == frontier
    for instant in map(as_of, taken):
        mine = pa.concat_tables([t for t in taken if as_of(t) <= instant])
        want = oracle(f"{STREAM} CREATE QUERY q AS {RELATION}", {"s": rows(3)}, until=instant)["q"]
        assert_same(mine, want)


TEMPLATES = {
    "alert (key BIGINT) AS SELECT COUNT(*) AS n FROM s [RANGE 20] WHERE k = $key": "VALUES (0), (1), (9)",
    "alert (key BIGINT, every BIGINT) AS SELECT SUM(v) AS t FROM s [RANGE 20 SLIDE $every] WHERE k = $key": (
        "VALUES (0, 5), (1, 5), (1, 10), (9, 5)"
    ),
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_queries_from_a_template_are_a_table(engine: windrow.Engine, template: str) -> None:
    """`FROM` their name: the values of the parameters and the answer of each instance, at its own last multiple."""
    engine.execute(f"CREATE TEMPLATE {template}; CREATE QUERIES hot FROM TEMPLATE alert {TEMPLATES[template]}")
    push(engine)
    engine.execute("DROP QUERIES hot WHERE key = 9")
    frontier = engine.runtime.ticker.frontier
    text = template.partition(" AS ")[2]
    want: Counter[tuple[Any, ...]] = Counter()
    for values in engine["hot"].instances().to_pylist():
        query = text.replace("$key", str(values["key"])).replace("$every", str(values.get("every")))
        every = values.get("every")
        if every is None:
            found = relation(query, frontier)
        else:
            at = changes(query, frontier)
            found = bag(at.filter(pc.equal(at["_ts"], frontier // every * every)).drop_columns(["_ts"]))
        want += Counter({(*values.values(), *row): n for row, n in found.items()})
    got = engine.ask("SELECT * FROM hot")
    assert as_of(got) == frontier and bag(got) == want != {}
    counted = engine.ask("SELECT COUNT(*) AS n FROM hot WHERE key = 1").to_pylist()
    assert counted == [{"n": sum(n for row, n in want.items() if row[0] == 1)}]
