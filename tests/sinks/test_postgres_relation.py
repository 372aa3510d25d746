"""A PostgreSQL table that always equals a relation, against a real server."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, SourceError, StateError
from windrow.sinks.postgres_relation import PostgresRelationSink

pytestmark = pytest.mark.postgres

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k VARCHAR, x DOUBLE) TIMESTAMP BY ts;
    CREATE QUERY open AS SELECT k, x FROM s [RANGE 4];
    CREATE QUERY sums AS SELECT k, SUM(x) AS total FROM s [RANGE 4] GROUP BY k;
    CREATE QUERY stream AS SELECT ISTREAM(k) FROM s [RANGE 4];
"""


def rows(dsn: str, table: str) -> Counter[tuple[Any, ...]]:
    """What a table holds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return Counter(connection.execute(f"SELECT * FROM {table}").fetchall())  # type: ignore[arg-type]


def relation(engine: windrow.Engine, query: str) -> Counter[tuple[Any, ...]]:
    """What a query's relation holds."""
    return Counter(tuple(r.values()) for r in engine[query].snapshot().to_pylist())


def some(chance: random.Random, ts: int) -> dict[str, list[Any]]:
    """A few rows of an instant, with nulls, empty texts and repetitions."""
    n = chance.randrange(1, 5)
    return {
        "ts": [ts] * n,
        "k": [chance.choice([None, "", "a", "it's"]) for _ in range(n)],
        "x": [chance.choice([None, 0.1, 2.0]) for _ in range(n)],
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_table_equals_the_relation(postgres: Any, seed: int) -> None:
    """After every tick, whenever the sink was attached and whatever the table held."""
    chance = random.Random(seed)
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.start()
        for ts in range(1, 14):
            if ts == 4:
                for query in ("open", "sums"):
                    engine.sink(query, "postgres", dsn=postgres.dsn, table=f"t_{query}", mode="upsert")
            engine.push("s", some(chance, ts))
            engine.drain()
            if ts >= 4:
                assert rows(postgres.dsn, "t_open") == relation(engine, "open")
                assert rows(postgres.dsn, "t_sums") == relation(engine, "sums")


def test_restarts(postgres: Any, tmp_path: Path) -> None:
    """A home that goes on finds its table as it was, or fills it anew if it ran without the sink meanwhile."""
    chance = random.Random(5)
    for life, attached in enumerate((True, False, True)):
        with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
            if life == 0:
                engine.execute(SCRIPT)
            if attached:
                engine.sink("open", "postgres", dsn=postgres.dsn, mode="upsert")
            engine.start()
            for ts in range(1 + 5 * life, 6 + 5 * life):
                engine.push("s", some(chance, ts))
            engine.drain()
            assert not attached or rows(postgres.dsn, "open") == relation(engine, "open")


def test_a_tick_is_applied_once(postgres: Any) -> None:
    """A tick that comes again changes nothing; rows that come and go within a tick leave no trace."""
    sink = PostgresRelationSink(postgres.dsn, owner="h")
    sink.fill("q", 1, pa.table({"k": ["a", "a", None]}))
    change = pa.table({"_ts": [2] * 4, "_op": pa.array([-1, 1, -1, 1], pa.int8()), "k": ["a", "b", "z", "z"]})
    for _ in range(2):
        sink.write("q", 2, change)
    assert rows(postgres.dsn, "q") == Counter([("a",), ("b",), (None,)])
    sink.close()


def test_a_table_that_others_change_is_told(postgres: Any) -> None:
    """Rows that should go and are not there are an error, and nothing of that tick is applied."""
    sink = PostgresRelationSink(postgres.dsn, owner="h")
    sink.fill("q", 1, pa.table({"k": ["a"]}))
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM q")
    with pytest.raises(StateError, match="1 rows go, and it had 0"):
        sink.write("q", 2, pa.table({"_ts": [2, 2], "_op": pa.array([-1, 1], pa.int8()), "k": ["a", "b"]}))
    assert rows(postgres.dsn, "q") == Counter()
    sink.close()


def test_what_is_refused(postgres: Any) -> None:
    """Streams have nothing to replace, and modes are two."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        with pytest.raises(BindingError, match="is a stream"):
            engine.sink("stream", "postgres", dsn=postgres.dsn, mode="upsert")
        with pytest.raises(SourceError, match='no mode "merge"'):
            engine.sink("open", "postgres", dsn=postgres.dsn, mode="merge")
