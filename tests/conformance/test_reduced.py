"""Rows that only feed an aggregate are reduced before they travel: on any number of partitions, to the same answers."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.runtime import exchange
from windrow.runtime.exchange import By
from windrow.testing import assert_same, oracle, seeded_case

QUERIES = (
    "SELECT k, COUNT(*) AS n, SUM(i) AS s, AVG(f) AS m, SUM(f) AS t FROM S [RANGE 7] GROUP BY k",
    "SELECT COUNT(*) AS n, COUNT(i) AS c, VARIANCE(i) AS v, SUM(d) AS d FROM S [RANGE 5]",
    "SELECT k, MIN(f) AS a, MAX(f) AS b, MIN(t) AS c FROM S [RANGE 6] GROUP BY k",
    "SELECT k, t, MAX(i) AS a, MIN(i) AS b, SUM(i) AS c, COUNT(*) AS n FROM S [RANGE 6] GROUP BY k, t",
    "SELECT k, COUNT(DISTINCT i) AS n, MEDIAN(f) AS m, SUM(i) AS s FROM S [RANGE 6] GROUP BY k",
    "SELECT k FROM S [RANGE 3] GROUP BY k",
    "SELECT t, SUM(i) AS s, MAX(i) AS m FROM S [ROWS 9] GROUP BY t",
    "SELECT k, COUNT(*) AS n FROM S GROUP BY k HAVING COUNT(*) > 2",
    "SELECT RSTREAM(k, SUM(i) AS s, MIN(f) AS m) FROM S [ROWS 20 SLIDE 5] GROUP BY k",
    "SELECT a.k, SUM(a.i * b.i) AS s, COUNT(*) AS n FROM S [RANGE 6] a, T [RANGE 4] b WHERE a.i = b.i GROUP BY a.k",
    "SELECT a.k, b.t, SUM(a.f + b.i) AS s, MAX(a.i - b.i) AS n FROM S [RANGE 6 SLIDE 3] a, T [RANGE 6 SLIDE 3] b "
    "WHERE a.i = b.i GROUP BY a.k, b.t",
    "SELECT SUM(a.i * b.i) AS s, MIN(a.f * b.i) AS m FROM S [RANGE 4 SLIDE 2] a, T [RANGE 4 SLIDE 2] b WHERE a.i < b.i",
    "SELECT a.k, COUNT(b.i) AS n, SUM(b.f) AS s FROM S [RANGE 5] a LEFT JOIN T [RANGE 4] b ON a.i = b.i GROUP BY a.k",
    "SELECT k, SUM(i) AS s FROM (SELECT k, i FROM S [RANGE 5] UNION ALL SELECT k, i FROM T [RANGE 3]) u GROUP BY k",
    "SELECT n, COUNT(*) AS c FROM (SELECT k, COUNT(*) AS n FROM S [RANGE 6] GROUP BY k) g GROUP BY n",
)
FLOATS = (None, 0.0, -0.0, 0.5, 1.25, -3.0, 1024.0, float("nan"), float("inf"))
"""Of finite ones the definition has exact sums, too."""

WAYS = ((1, "always"), (2, "sometimes"), (3, "never"), (3, "always"), (4, "sometimes"), (5, "always"))
"""(partitions, which batches are reduced), none of which may change an answer."""


def case(seed):
    """Two streams with few keys and instants, and nulls."""
    chance = random.Random(seed)

    def stream(rows):
        return pa.table({
            "k": pa.array([chance.choice((1, 2, None)) for _ in range(rows)], pa.int64()),
            "t": pa.array([chance.choice(("x", "y", None)) for _ in range(rows)]),
            "i": pa.array([chance.choice((0, 1, 2, 3, None)) for _ in range(rows)], pa.int64()),
            "f": pa.array([chance.choice(FLOATS) for _ in range(rows)], pa.float64()),
            "d": pa.array([chance.choice((1, 2, None)) for _ in range(rows)], pa.decimal128(9, 2)),
            "ts": sorted(chance.randrange(24) for _ in range(rows)),
        })  # fmt: skip

    return {"S": stream(72), "T": stream(36)}


@pytest.fixture(autouse=True)
def looking(monkeypatch):
    """Let no batch be sent without a look at it."""
    monkeypatch.setattr(exchange, "RESTS", 0)


def always(elements, reduction):
    """Every batch is reduced, by instant if it may be."""
    return By.INSTANT if reduction.divides else By.LIFETIME


def sometimes(seed):
    """Whether a batch is reduced, and by what, by chance."""
    chance = random.Random(seed)
    return lambda elements, reduction: chance.choice((None, By.LIFETIME, always(elements, reduction)))


@pytest.mark.parametrize("query", QUERIES)
def test_any_number_of_partitions_reduced_or_not(query, in_process_job, tmp_path, monkeypatch):
    """No batch, every batch or any batch reduced, over one to five partitions: the answers are the definition's."""
    worth = {"never": lambda *_: None, "always": always, "sometimes": sometimes(query)}
    streams = {n: t for n, t in case(query).items() if f" {n} [" in query or f" {n} " in query}
    (want,) = oracle(query, streams, {}, 30).values()
    for partitions, way in WAYS:
        monkeypatch.setattr(exchange, "worth_reducing", worth[way])
        home, job = str(tmp_path / f"{way}{partitions}"), in_process_job(2, chaos=partitions)
        (got,) = Replay.of(query, streams, {}, 30).in_home(home, job, 24, "upa", partitions=partitions).values()
        try:
            assert_same(got, want)
        except AssertionError as error:
            raise AssertionError(f"{query}\n{way} reduced, {partitions} partitions: {error}") from error


@pytest.mark.parametrize("first", range(8100, 8136, 12))
def test_random_queries_with_whatever_is_reduced(first, in_process_job, tmp_path, monkeypatch):
    """Random queries by every strategy, with batches reduced by chance: the answers are the definition's."""
    for seed in range(first, first + 12):
        monkeypatch.setattr(exchange, "worth_reducing", sometimes(seed))
        script, streams, tables, until = seeded_case(seed)
        want, strategy = oracle(script, streams, tables, until), ("upa", "negative", "direct")[seed % 3]
        replay = Replay.of(script, streams, tables, until, strategy=strategy)
        job = in_process_job(2, chaos=seed)
        got = replay.in_home(str(tmp_path / str(seed)), job, 5, strategy, partitions=2 + seed % 3)
        for name, table in want.items():
            try:
                assert_same(got[name], table)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {strategy}: {script}\n{error}") from error


def test_few_groups_are_reduced_and_many_are_not():
    """What travels is decided by how many rows share a group and an instant, and EXPLAIN tells."""
    rows = 4096
    few = pa.table({"k": [i % 4 for i in range(rows)], "v": [1] * rows, "ts": [i // 1024 for i in range(rows)]})
    many = few.set_column(0, "k", pa.array(range(rows)))
    for given, partitions, told in (
        (few, 2, "4,096 rows travelled as 16,"),
        (many, 2, "4,096 rows travelled as 4,096,"),
        (few, 1, None),  # nothing travels
    ):
        engine = windrow.Engine(runtime="local", partitions=partitions)
        engine.execute("CREATE STREAM S (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
        engine.execute("CREATE QUERY q AS SELECT k, SUM(v) AS s FROM S [RANGE 9] GROUP BY k")
        engine.start()
        engine.push("S", given)
        engine.drain()
        shown, reduced = engine["q"].explain(), json.loads(engine["q"].explain("json")).get("reduced")
        if told is None:
            assert "travelled" not in shown and reduced is None
        else:
            assert told in shown and reduced["rows"] == rows
        engine.stop()
