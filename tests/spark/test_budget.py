"""Tick budgets on Spark: rows shed in stage 0, the same in every attempt, and what status, answers and restarts say."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from windrow_tests_in_process import JobTicker

import windrow
from windrow.catalog import Catalog
from windrow.engine.script import bind_script
from windrow.errors import StateError
from windrow.plan.weights import gate_of
from windrow.runtime.job import Feed
from windrow.store.store import Store

COLUMNS = "(k BIGINT, v BIGINT, imp DOUBLE, ts BIGINT)"
DECLARE = f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts;"
QUERY = "SELECT k, COUNT(*) AS n FROM s [RANGE 15] GROUP BY k SHED WHEN TICK OVER '{budget}' IMPORTANCE imp"


def rows(number, size=400):
    """Ten ticks of time."""
    rng = np.random.default_rng(number)
    ts = np.sort(rng.integers(10 * number, 10 * (number + 1), size))
    columns = {"k": rng.integers(0, 4, size), "v": rng.integers(0, 9, size), "imp": rng.integers(1, 9, size) / 2}
    return pa.table({**columns, "ts": ts})


@pytest.mark.parametrize("chaos", [None, 1, 2])
def test_retried_tasks_shed_the_same_rows(in_process_job, tmp_path, chaos):
    """Quotas travel with the tick's program: whatever happens to its tasks, the same rows pass."""
    query = "SELECT ISTREAM(k, v, imp, ts AS at) FROM s [RANGE 5] SHED WHEN TICK OVER '1 s' IMPORTANCE imp"
    catalog = bind_script(
        f"{DECLARE} CREATE QUERY q AS {query}; CREATE QUERY p AS {query.split(' SHED')[0]}", Catalog()
    )
    got = []
    for attempt in range(2):
        with Store.open(tmp_path / str(attempt)) as store:
            ticker = JobTicker(in_process_job(4, chaos=chaos if attempt else None), store, {}, 2)
            for stream in catalog.streams.values():
                ticker.add_stream(stream)
            for plan in catalog.queries.values():
                ticker.add_query(plan, "upa")
            ticker.quotas = {gate_of(catalog.queries["q"]): {"s": 50}}
            answers = []
            for number in range(3):
                tick = ticker.tick([Feed("s", rows(number))])
                ticker.commit(tick)
                answers.append(tick.answers)
                assert sorted((r.seen, r.kept) for r in tick.admitted) == [(200, 50)] * 2
            got.append([sorted(map(str, pa.concat_tables([a[q] for a in answers]).to_pylist())) for q in "qp"])
    assert got[0] == got[1]
    assert set(got[0][0]) < set(got[0][1])


def put(folder, number):
    """A file appears whole, as sources want it."""
    os.makedirs(folder, exist_ok=True)
    pq.write_table(rows(number), f"{folder}/.{number}")
    os.utime(f"{folder}/.{number}", (1_700_000_000 + number, 1_700_000_000 + number))
    os.rename(f"{folder}/.{number}", f"{folder}/{number:03d}.parquet")


@pytest.mark.spark
def test_ticks_over_budget_shed_and_say_so(spark, tmp_path):
    """A budget nothing can meet sheds from the second tick on; other queries stay exact; a restart remembers."""
    folder = f"{tmp_path}/in"
    declare = f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts FROM parquet (path => '{folder}', maxFilesPerTrigger => 1);"
    plain = "SELECT k, COUNT(*) AS n FROM s [RANGE 15] GROUP BY k"
    for number in range(4):
        put(folder, number)
    with windrow.Engine(home=f"{tmp_path}/home", spark=spark) as engine:
        engine.execute(f"{declare} CREATE QUERY q AS {QUERY.format(budget='1 ms')}; CREATE QUERY x AS {plain}")
        engine.start()
        engine.drain()
        status = json.loads(json.dumps(engine.status()))
        shed = status["queries"]["q"]["quality"]["time"]
        assert shed["shedding"] and shed["rows_shed"] > 0 and not shed["exact"]
        assert shed["approximate_until"] >= 39 + 15
        assert status["queries"]["x"]["quality"] is None
        assert status["shedding"]["gates"][0]["rows_that_fit"] < 1000
        answer = engine["q"].results()
        assert answer.column_names == ["_ts", "_op", "k", "n", "_error_n", "_approximate"]
        assert answer["_approximate"].to_pylist()[-1]
        want = windrow.run(
            f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts; {plain}",
            {"s": pa.concat_tables(rows(i) for i in range(4))}, runtime="local", until=status["frontier"],
        )["q1"]  # fmt: skip
        from windrow.testing import assert_same

        assert_same(engine["x"].results(), want)
    with windrow.Engine(home=f"{tmp_path}/home", spark=spark) as engine:
        after = engine["q"].quality()["time"]
        assert (after["rows_shed"], after["approximate_until"]) == (shed["rows_shed"], shed["approximate_until"])
    with pytest.raises(StateError, match="tick budget"):
        windrow.Engine(home=f"{tmp_path}/home", spark=spark, tick_budget="1 second")
