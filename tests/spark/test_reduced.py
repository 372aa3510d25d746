"""Aggregates on Spark: tasks send one row for each group and instant, and the answers are those of this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.spark.job import SparkJob
from windrow.store.store import Store
from windrow.testing import assert_same

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SCRIPT = """
CREATE QUERY sums AS SELECT k, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS m FROM s [RANGE 20] GROUP BY k;
CREATE QUERY pairs AS SELECT a.k, SUM(a.x * b.x) AS s FROM s [RANGE 6 SLIDE 3] a, r [RANGE 6 SLIDE 3] b
    WHERE a.j = b.j GROUP BY a.k;
CREATE QUERY log AS SELECT a.k, AVG(a.x + b.x) AS s FROM s [RANGE 6] a, r [RANGE 6] b WHERE a.j = b.j GROUP BY a.k
"""


def test_rows_are_reduced_by_the_tasks_that_have_them(spark: Any, tmp_path: Any) -> None:
    """A stream and two joins, grouped by a key that they do not lie by."""
    rng = np.random.default_rng(3)

    def rows(count: int) -> pa.Table:
        return pa.table({
            "k": rng.integers(0, 3, count), "j": rng.integers(0, 5, count), "x": rng.random(count),
            "ts": np.sort(rng.integers(0, 40, count)),
        })  # fmt: skip

    streams = {"s": rows(6000), "r": rows(200)}
    want, replay = windrow.run(SCRIPT, streams, runtime="local"), Replay.of(SCRIPT, streams, {})
    with Store.open(str(tmp_path)) as store:
        job = SparkJob(spark)
        ticker = replay.registered(job, store, "upa", partitions=3, sharing="off")
        got = replay.play(ticker, job, 2500)
    for name, table in want.items():
        assert_same(got[name], table)
        told = ticker.reduced.describe(name)
        assert told is not None and 4 * told["sent"] < told["rows"], (name, told)
