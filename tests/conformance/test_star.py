"""Star joins on Spark's tasks and on Spark: the local answer, exact or shed, whatever the partitions and batches."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.spark.job import SparkJob
from windrow.testing import assert_same, oracle

DECLARE = """
CREATE STREAM r (k BIGINT, a BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM s (k BIGINT, b BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM t (k BIGINT, c BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE f (k BIGINT, a BIGINT, b BIGINT, c BIGINT, vf BIGINT, vt BIGINT) VALID FROM vf TO vt;
"""
ITEMS = "r.ts AS rt, s.ts AS st, f.b"
EXACT = {
    "chain": f"SELECT {ITEMS} FROM r [RANGE 6], f, s [RANGE 6] WHERE r.a = f.a AND f.b = s.b",
    "key": f"SELECT {ITEMS} FROM r [RANGE 6], f, s [RANGE 6] WHERE r.k = f.k AND s.k = f.k AND r.a = f.a AND f.b = s.b",
    "three": f"SELECT ISTREAM({ITEMS}, t.ts AS tt) FROM r [RANGE 4], s [RANGE 5], t [RANGE 6], f "
    "WHERE r.a = f.a AND f.b = s.b AND t.c = f.c",
    "one": "SELECT ISTREAM(r.ts AS rt, f.b) FROM r [RANGE 6], f WHERE r.a = f.a",
    "count": "SELECT f.a, COUNT(*) AS n FROM r [RANGE 6 SLIDE 2], f, s [RANGE 6 SLIDE 2] "
    "WHERE r.a = f.a AND f.b = s.b GROUP BY f.a",
}
PLAIN = "SELECT ISTREAM(r.ts AS rt, s.ts AS st, r.imp AS ri, s.imp AS si) FROM r [RANGE 6], s [RANGE 6] WHERE r.k = s.k"
SHED = ("SIMP", "SIMPPROB", "DIMPPROB", "DGL(alpha => 5)", "RANDOM(seed => 3)", "FIFO")
WAYS = ((1, None), (2, 7), (3, 3))


def data(seed, rows=45):
    """Three streams and facts that come and go."""
    rng = random.Random(seed)
    streams = {}
    for name, key in (("r", "a"), ("s", "b"), ("t", "c")):
        ts = sorted(rng.randrange(rows) for _ in range(rows))
        columns = {"k": [rng.randrange(3) for _ in ts], key: [rng.choice([*range(4), None]) for _ in ts]}
        imp = [float(rng.randint(1, 5)) for _ in ts]
        streams[name] = pa.table({**columns, "imp": imp, "ts": pa.array(ts, pa.int64())})
    begin = [rng.choice([None, rng.randrange(rows)]) for _ in range(12)]
    end = [rng.choice([None, (b or 0) + rng.randrange(25)]) for b in begin]
    keys = {n: [rng.randrange(3 if n == "k" else 4) for _ in range(12)] for n in "kabc"}
    return streams, {"f": pa.table({**keys, "vf": pa.array(begin, pa.int64()), "vt": pa.array(end, pa.int64())})}


def script():
    """All queries, exact and shed, in one."""
    shed = {f"shed_{i}": f"{EXACT['chain']} SHED BY {how} KEEP 6 ROWS IMPORTANCE imp" for i, how in enumerate(SHED)}
    shed |= {f"plain_{i}": f"{PLAIN} SHED BY {how} KEEP 5 ROWS BY NEED IMPORTANCE imp" for i, how in enumerate(SHED)}
    shed["three_shed"] = f"{EXACT['three']} SHED BY DGL KEEP 4 ROWS EACH IMPORTANCE imp"
    shed["roomy"] = f"{EXACT['chain']} SHED BY DIMPPROB KEEP 5000 ROWS IMPORTANCE imp"
    queries = {**EXACT, "plain": PLAIN, **shed}
    return DECLARE + ";".join(f"CREATE QUERY {name} AS {text}" for name, text in queries.items())


def bag(table):
    """Rows with their counts."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("seed", range(4))
def test_tasks_give_the_local_answer(seed, in_process_job, tmp_path):
    """Envelopes in any order, tasks run twice, forgetful workers: the same rows are kept and the same results found."""
    streams, tables = data(seed)
    want = windrow.run(script(), streams, tables, runtime="local")
    for name, answer in oracle(
        DECLARE + ";".join(f"CREATE QUERY {n} AS {q}" for n, q in EXACT.items()), streams, tables
    ).items():
        assert_same(want[name], answer)
    for number, (partitions, rows) in enumerate(WAYS):
        replay = Replay.of(script(), streams, tables)
        got = replay.in_home(
            str(tmp_path / str(number)), in_process_job(2, chaos=number), rows, "upa", partitions=partitions
        )
        for name in want:
            assert_same(got[name], want[name])
        inserted = {
            n: bag(t.filter(pa.compute.equal(t["_op"], 1)) if "_op" in t.column_names else t) for n, t in got.items()
        }
        assert inserted["roomy"] == inserted["chain"]
        assert inserted["three_shed"] <= inserted["three"]
        assert all(inserted[f"plain_{i}"] <= inserted["plain"] for i in range(len(SHED)))
        assert all(bag_of_results(got[f"shed_{i}"]) <= bag_of_results(got["chain"]) for i in range(len(SHED)))


def bag_of_results(table):
    """The results that ever appear, however their appearance is split."""
    return Counter({row[2:]: n for row, n in bag(table).items() if row[1] == 1})


@pytest.mark.spark
def test_spark_gives_the_local_answer(spark, tmp_path):
    """Two partitions, small batches: every exact and shed star join answers as in this process."""
    streams, tables = data(11)
    want = windrow.run(script(), streams, tables, runtime="local")
    replay = Replay.of(script(), streams, tables)
    got = replay.in_home(str(tmp_path), SparkJob(spark), 40, "upa", partitions=2)
    for name in want:
        assert_same(got[name], want[name])


def test_a_star_is_spread():
    """Without KEEP a star runs on all partitions, by a key or through the facts; with KEEP on one."""
    from windrow.catalog import Catalog
    from windrow.engine.script import bind_script
    from windrow.operators.join import JoinOperator
    from windrow.operators.star_join import StarJoinOperator
    from windrow.plan.lower import lower
    from windrow.runtime.partitioning import place
    from windrow.runtime.placement import How

    for query, operator, one in (
        (EXACT["key"], JoinOperator, False),
        (EXACT["chain"], JoinOperator, False),
        (f"{EXACT['key']} SHED BY SIMP KEEP 9 ROWS", StarJoinOperator, True),
    ):
        flow = lower(bind_script(f"{DECLARE} CREATE QUERY q AS {query}", Catalog()).queries["q"], {})
        at = next(i for i, step in enumerate(flow.steps) if isinstance(step.operator, operator))
        assert (place(flow).partitionings[at].how is How.ONE) is one
