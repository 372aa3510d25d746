"""Star joins over facts that live in PostgreSQL, change while the queries run, and go away for a while."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow

pytestmark = pytest.mark.spark


def put(folder, number, rows):
    """A file appears whole, as sources want it."""
    os.makedirs(folder, exist_ok=True)
    pq.write_table(rows, f"{folder}/.{number}")
    os.utime(f"{folder}/.{number}", (1_700_000_000 + number, 1_700_000_000 + number))
    os.rename(f"{folder}/.{number}", f"{folder}/{number:03d}.parquet")


def rows(key, number):
    """Twenty rows of ten ticks, keys in turn."""
    ts = [10 * number + i // 2 for i in range(20)]
    return pa.table({key: [(i + number) % 4 for i in range(20)], "imp": [1.0 + i % 3 for i in range(20)], "ts": ts})


def stream(name, key, folder):
    """The declaration of a stream of files."""
    os.makedirs(f"{folder}/{name}", exist_ok=True)
    source = f"FROM parquet (path => '{folder}/{name}', maxFilesPerTrigger => 1)"
    return f"CREATE STREAM {name} ({key} BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts {source};"


def expected(changes, frontier, files):
    """Results by definition: each fact is active on [from, to), rows meet within 8 ticks, all up to the frontier."""
    found = set()
    r = [(x["a"], x["ts"]) for i in range(files) for x in rows("a", i).to_pylist() if x["ts"] <= frontier]
    s = [(x["b"], x["ts"]) for i in range(files) for x in rows("b", i).to_pylist() if x["ts"] <= frontier]
    for (a, b), (begin, end) in changes.items():
        for ra, rt in r:
            for sb, st in s:
                if (ra, sb) == (a, b) and begin <= min(rt, st) and max(rt, st) < end and abs(rt - st) < 8:
                    found.add((a, b, rt, st))
    return found


@pytest.mark.postgres
def test_facts_in_postgres_change_while_the_query_runs(spark, postgres, tmp_path):
    """A change counts for rows from then on, in exact and in shed joins; a server that is away changes nothing."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS star_facts")
        connection.execute("CREATE TABLE star_facts (a BIGINT, b BIGINT)")
        connection.execute("INSERT INTO star_facts VALUES (0, 1), (2, 2), (3, 0)")
    items, condition = "ISTREAM(f.a, f.b, r.ts AS rt, s.ts AS st)", "r.a = f.a AND f.b = s.b"
    star = f"SELECT {items} FROM r [RANGE 8], f, s [RANGE 8] WHERE {condition}"
    table = f"FROM postgres (dsn => '{postgres.dsn}', table => 'star_facts')"
    changes = {(0, 1): (-1, 1000), (2, 2): (-1, 1000), (3, 0): (-1, 1000)}

    def feed(engine, number):
        put(f"{tmp_path}/r", number, rows("a", number))
        put(f"{tmp_path}/s", number, rows("b", number))
        engine.drain()

    def check(engine, files):
        frontier = engine.status()["frontier"]
        want = expected(changes, frontier, files)
        for query in ("exact", "shed"):
            got = [tuple(x.values())[1:] for x in engine[query].results().to_pylist()]
            assert set(got) == want
            assert len(got) % len(want) == 0  # rows repeat within an instant

    with windrow.Engine(home=f"{tmp_path}/home", spark=spark) as engine:
        engine.execute(
            stream("r", "a", tmp_path) + stream("s", "b", tmp_path)
            + f"CREATE TABLE f (a BIGINT, b BIGINT) {table}; CREATE QUERY exact AS {star};"
            f"CREATE QUERY shed AS {star} SHED BY DGL KEEP 500 ROWS IMPORTANCE imp"
        )  # fmt: skip
        engine.start()
        feed(engine, 0)
        check(engine, 1)
        reached = max(s["greatest"] for s in engine.status()["streams"].values())
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute("INSERT INTO star_facts VALUES (1, 3); DELETE FROM star_facts WHERE a = 2")
        engine.refresh("f")
        changes |= {(1, 3): (reached + 1, 1000), (2, 2): (-1, reached + 1)}
        feed(engine, 1)
        check(engine, 2)
        postgres.stop()
        before = time.time()
        engine.refresh("f")
        feed(engine, 2)
        check(engine, 3)
        status = engine.status()["tables"]["f"]
        assert before - 1 <= status["failing_since_us"] / 1e6 <= time.time() and status["error"]
        assert status["rows"] == 3
        postgres.start()
        engine.refresh("f")
        assert engine.status()["tables"]["f"]["failing_since_us"] is None
        memory = engine["shed"].quality()["memory"]
        assert memory["exact"] and memory["rows_seen"] > 0 and memory["rows_filtered"] > 0
