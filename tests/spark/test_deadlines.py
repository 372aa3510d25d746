"""On Spark: SLIDE AT MOST under overload is late in the same way as in process, and exact."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import windrow
from windrow.testing import assert_same, oracle

pytestmark = pytest.mark.spark

SCRIPT = "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts;" + ";".join(
    f"CREATE QUERY q{i} AS SELECT {what} FROM s [RANGE {5 + 4 * i} SLIDE AT MOST {1 + i}] {then}"
    for i, (what, then) in enumerate(
        [("median(v) AS m", ""), ("median(v) AS m", ""), ("k, count(DISTINCT v) AS n", "GROUP BY k"),
         ("k, sum(v) AS s", "GROUP BY k"), ("count(*) AS n, max(v) AS m", "")]
    )
)  # fmt: skip


def batch(n: int) -> pa.Table:
    rng = np.random.default_rng(n)
    return pa.table({
        "ts": np.sort(rng.integers(6 * n, 6 * n + 6, 30)), "k": rng.integers(0, 5, 30), "v": rng.integers(0, 9, 30),
    })  # fmt: skip


def test_late_and_exact_on_spark(spark, tmp_path):
    """With hardly any time each answer is right for the instant it names; after a restart none comes twice."""
    batches = [batch(n) for n in range(8)]
    want = oracle(SCRIPT.replace("AT MOST ", ""), {"s": pa.concat_tables(batches)})
    got: dict[str, list[pa.Table]] = {f"q{i}": [] for i in range(5)}
    for part in (batches[:4], batches[4:]):
        engine = windrow.Engine(spark=spark, home=tmp_path / "home", sharing="shards", tick_budget="1 us")
        if not got["q0"]:
            engine.execute(SCRIPT)
        engine.start()
        for rows in part:
            engine.push("s", rows)
            engine.drain()
        status = engine.status()["queries"]
        for name, parts in got.items():
            parts.append(engine[name].results())
        engine.stop()
    for name, parts in got.items():
        table = pa.concat_tables(parts)
        assert table.num_rows
        instants = pa.array(sorted(set(table["_ts"].to_pylist())), pa.int64())
        period = status[name]["deadline"]["period"]
        assert period <= status[name]["deadline"]["asked"]
        if period == status[name]["deadline"]["asked"]:
            assert_same(table, want[name].filter(pc.is_in(want[name]["_ts"], instants)))
    assert sum(s["deadline"]["skipped"] for s in status.values()) > 0
