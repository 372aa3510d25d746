"""On Spark: SLIDE AT MOST under overload is late in the same way as in process, and exact."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import windrow
from windrow.testing import assert_same, oracle

pytestmark = pytest.mark.spark

JOINED = "FROM s [RANGE {0} SLIDE AT MOST {1}], u [RANGE {0} SLIDE AT MOST {1}] WHERE s.k = u.k"
TEXTS = {
    "often": "SELECT median(v) AS m FROM s [RANGE 9 SLIDE AT MOST 2]",
    "seldom": "SELECT median(v) AS m FROM s [RANGE 20 SLIDE AT MOST 5]",  # hybrid lets it meet the one before
    "distinct": "SELECT k, count(DISTINCT v) AS n FROM s [RANGE 13 SLIDE AT MOST 3] GROUP BY k",
    "sums": "SELECT k, sum(v) AS s FROM s [RANGE 17 SLIDE AT MOST 4] GROUP BY k",
    "joined": f"SELECT count(*) AS n, sum(v) AS x {JOINED.format(8, 4)}",
    "longer": f"SELECT count(*) AS n, sum(v) AS x {JOINED.format(20, 10)}",
    "by_key": f"SELECT s.k, max(w) AS x {JOINED.format(12, 6)} GROUP BY s.k",
}
SCRIPT = """
    CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts;
    CREATE STREAM u (ts BIGINT, k BIGINT, w BIGINT) TIMESTAMP BY ts;
""" + ";".join(f"CREATE QUERY {name} AS {text}" for name, text in TEXTS.items())


def batch(n: int, stream: str) -> pa.Table:
    rng = np.random.default_rng((n, ord(stream)))
    return pa.table({
        "ts": np.sort(rng.integers(6 * n, 6 * n + 6, 30)), "k": rng.integers(0, 5, 30),
        "v" if stream == "s" else "w": rng.integers(0, 9, 30),
    })  # fmt: skip


def test_late_and_exact_on_spark(spark, tmp_path):
    """With hardly any time each answer, over a stream or a join, is right for the instant it names, whatever period
    hybrid chose; after a restart none comes twice."""
    batches = [{stream: batch(n, stream) for stream in "su"} for n in range(8)]
    whole = {stream: pa.concat_tables([b[stream] for b in batches]) for stream in "su"}
    want = oracle(re.sub(r"SLIDE AT MOST \d+", "SLIDE 1", SCRIPT), whole)
    got: dict[str, list[pa.Table]] = {name: [] for name in TEXTS}
    for part in (batches[:4], batches[4:]):
        engine = windrow.Engine(spark=spark, home=tmp_path / "home", sharing="shards", tick_budget="1 us")
        if not got["often"]:
            engine.execute(SCRIPT)
        engine.start()
        for rows in part:
            for stream, table in rows.items():
                engine.push(stream, table)
            engine.drain()
        status = {name: engine.status()["queries"][name]["deadline"] for name in TEXTS}
        for name, parts in got.items():
            parts.append(engine[name].results())
        engine.stop()
    for name, parts in got.items():
        table = pa.concat_tables(parts)
        assert table.num_rows
        instants = pa.array(sorted(set(table["_ts"].to_pylist())), pa.int64())
        assert_same(table, want[name].filter(pc.is_in(want[name]["_ts"], instants)))
        assert status[name]["scheduled"]
    assert status["seldom"]["period"] < status["seldom"]["asked"]
    assert sum(s["skipped"] for s in status.values()) > 0
