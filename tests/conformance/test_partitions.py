"""Another number of partitions at a restart: all state lies anew, and no answer changes."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.runtime import registered
from windrow.runtime.heavy_keys import HeavyKeys, Threshold
from windrow.runtime.kept_answers import rows_of
from windrow.runtime.tick import Ticker
from windrow.store.store import Store
from windrow.testing import assert_same, oracle, seeded_case
from windrow.testing.strategies import Case

CASES, GROUPS = 96, 12


def restarted(replay, store, partitions, strategy):
    """A ticker over what is in a store, on so many partitions from now on."""
    ticker = Ticker(store, {}, partitions, "off", keeps_partitions=False)
    for stream in replay.catalog.streams.values():
        ticker.add_stream(stream)
    for name, table in replay.tables.items():
        ticker.set_table(name, table)
    for plan in replay.catalog.queries.values():
        if replay.starts(plan) is not None:
            ticker.add_query(plan, strategy, replay.starts(plan), alone=True)
    ticker.repartition()
    assert ticker.manifest.partitions == ticker.partitions == partitions
    return ticker


def played(case, home, job, strategy, chance, most=4):
    """The answers of a replay that is restarted with another number of partitions in between."""
    script, streams, tables, until = case
    replay = Replay.of(script, streams, tables, until, strategy=strategy)
    parts, before, ticker, numbers = {}, None, None, []
    with Store.open(home) as store:
        for _, frontier in replay.frontiers(chance.choice((2, 3, 5))):
            if ticker is None or chance.random() < 0.4:
                numbers.append(chance.choice([n for n in range(1, most + 1) if n not in numbers[-1:]]))
                ticker = restarted(replay, store, numbers[-1], strategy)
            if not ticker.queries:
                break
            tick = ticker.run(job, list(replay._feeds(before, frontier, job.parallelism)), frontier)
            before = frontier
            assert not tick.failed, tick.failed
            ticker.commit(tick)
            store.sweep()
            for name, table in tick.answers.items():
                parts.setdefault(name, []).append(rows_of(table))
    return {name: pa.concat_tables(found).sort_by("_ts") for name, found in parts.items()}, numbers


def check(case, home, job, strategy, seed):
    """Compare a replay over changing numbers of partitions with the definition."""
    want = oracle(*case)
    got, numbers = played(case, home, job, strategy, random.Random(seed))
    for name, table in want.items():
        try:
            assert_same(got.get(name, table.slice(0, 0)), table)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {strategy}, {numbers} partitions: {case.script}\n{error}") from error


@pytest.mark.parametrize("first", range(7000, 7000 + CASES, GROUPS))
def test_another_number_at_any_restart_changes_nothing(first, in_process_job, tmp_path):
    """Random queries, batches and numbers: answers are those of the definition."""
    for seed in range(first, first + GROUPS):
        strategy = ("upa", "negative", "direct")[seed % 3]
        check(seeded_case(seed), str(tmp_path / str(seed)), in_process_job(2, chaos=seed), strategy, seed)


SPREAD = (
    "SELECT s.a, t.b FROM S [RANGE 9] s, T [RANGE 7] t WHERE s.b < t.b",
    "SELECT s.a, t.a AS c, COUNT(*) AS n, SUM(s.b) AS x FROM S [RANGE 9] s, T [RANGE 7] t WHERE s.b < t.b "
    "GROUP BY s.a, t.a",
    "SELECT DISTINCT s.a, t.a AS c FROM S [RANGE 9] s, T [RANGE 7] t WHERE s.b < t.b",
    "SELECT s.b, t.b AS c FROM S [RANGE 9] s, T [RANGE 7] t WHERE s.a = t.a",
    "SELECT ISTREAM(s.a, s.b, t.b AS c) FROM S [ROWS 5] s, T [RANGE 7] t WHERE s.a = t.a",
    "SELECT s.a, t.b, COUNT(*) AS n, SUM(s.b) AS x FROM S [RANGE 9] s, T [ROWS 6] t WHERE s.a = t.a GROUP BY s.a, t.b",
    "SELECT DISTINCT s.a, t.b FROM S [RANGE 9] s, T [RANGE 7] t WHERE s.a = t.a",
    "SELECT s.b FROM S [RANGE 6] s WHERE NOT EXISTS (SELECT * FROM T [RANGE 5] t WHERE t.a = s.a)",
    "SELECT RSTREAM(a, FREQUENT(b, 2) AS f) FROM S [RANGE 8 SLIDE 4] GROUP BY a",
    "SELECT a, MIN(b) AS x, MAX(b) AS y, COUNT(DISTINCT b) AS d FROM S [ROWS 9] GROUP BY a",
    "SELECT t.b, MIN(s.b) AS x, MAX(s.b) AS y FROM S [RANGE 9] s, T [ROWS 6] t WHERE s.a = t.a GROUP BY t.b",
    "SELECT s.a, MAX(t.a) AS x FROM S [RANGE 9] s, T [RANGE 7] t WHERE s.b < t.b GROUP BY s.a",
)


@pytest.mark.parametrize("query", SPREAD)
def test_what_lies_on_grids_or_apart_is_moved_once(query, in_process_job, tmp_path, monkeypatch):
    """Joins without a key, and keys that are heavy, have copies of rows: each counts once in the new layout."""
    monkeypatch.setattr(
        registered, "HeavyKeys", lambda partitions, **more: HeavyKeys(partitions, Threshold(0.4, 2), **more)
    )
    chance = random.Random(query)
    streams = {
        name: pa.table({
            "a": [chance.choice((1, 1, 1, 2, 3, None)) for _ in range(40)],
            "b": [chance.randrange(5) for _ in range(40)], "ts": sorted(chance.randrange(40) for _ in range(40)),
        })
        for name in "ST" if f"{name} [" in query
    }  # fmt: skip
    for seed in range(2):
        job = in_process_job(2, chaos=seed)
        check(Case(query, streams, {}, None), str(tmp_path / str(seed)), job, "upa", f"{query} {seed}")


def test_parts_of_an_entry_are_added_where_they_meet(tmp_path):
    """Rows that lie anywhere and are summed for each key: when the table beside them changes, all of them count."""
    found = []
    for then in (2, 1, 3):
        for partitions in (2, then):
            with windrow.Engine("local", home=tmp_path / str(then), partitions=partitions) as engine:
                if not engine.catalog.queries:
                    engine.execute("CREATE STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts")
                    engine.table("t", pa.table({"k": [1], "name": ["a"]}), retroactive=True)
                    text = "SELECT name, COUNT(*) AS n FROM s [RANGE 90], t WHERE s.k = t.k GROUP BY name"
                    engine.execute(f"CREATE QUERY q AS {text}")
                else:
                    engine.table("t", pa.table({"k": [1], "name": ["b"]}))
                engine.start()
                first = 20 * (engine.status()["frontier"] is not None)
                engine.push("s", {"k": [1] * 20, "ts": list(range(first, first + 20))})
                engine.drain()
                snapshot = engine["q"].snapshot().to_pylist()
        found.append(snapshot)
    assert found[0] == found[1] == found[2]
