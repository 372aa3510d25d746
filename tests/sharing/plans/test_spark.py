"""Queries that are one dataflow, in tasks: their rows cross exchanges with those of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.testing import assert_same

pytestmark = pytest.mark.spark


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
@pytest.mark.parametrize("seed", [3, 8])
def test_sets_on_spark(make_set: Callable[[int], Any], spark: Any, seed: int) -> None:
    """What tasks answer together is what this process answers one by one."""
    declared, queries, streams, tables, until = make_set(seed)
    script = ";".join([declared, *(f"CREATE QUERY {name} AS {text}" for name, text in queries.items())])
    want = windrow.run(script, streams, tables, runtime="local", until=until, sharing="off")
    got = windrow.run(script, streams, tables, runtime="spark", until=until, spark=spark)
    for name, text in queries.items():
        try:
            assert_same(got[name], want[name])
        except AssertionError as error:
            raise AssertionError(f"{text}: {error}") from error


FORMS = (
    "SELECT k, max(v) AS n FROM s [RANGE 6] GROUP BY k HAVING max(v) > {}",
    "SELECT k, count(*) AS n FROM s [RANGE 6] WHERE v > {} GROUP BY k",
    "SELECT a.k, a.v FROM s [RANGE 5] a WHERE a.v > {} AND NOT EXISTS (SELECT 1 FROM r [RANGE 3] b WHERE b.k = a.k)",
    "SELECT a.k, count(*) AS n FROM s [RANGE 5] a, r [RANGE 4] b WHERE a.k = b.k AND a.v > {} GROUP BY a.k",
)


def test_queries_come_one_at_a_time_on_spark(spark: Any, tmp_path: Path) -> None:
    """Tasks tell apart what newcomers may see, and what is kept for them becomes one when windows have turned over."""
    found: dict[str, dict[str, Any]] = {}
    for runtime, options in (("spark", {"spark": spark, "partitions": 2}), ("local", {"sharing": "off"})):
        with windrow.Engine(runtime=runtime, home=tmp_path / runtime, **options) as engine:  # type: ignore[arg-type]
            for stream in "sr":
                engine.execute(f"CREATE STREAM {stream} (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts")
            engine.start()
            for tick in range(12):
                for stream, step in (("s", 3), ("r", 2)):
                    rows = [{"k": i * tick % step, "v": (i + tick) % 5, "ts": 3 * tick + i // 2} for i in range(5)]
                    engine.push(stream, pa.Table.from_pylist(rows))
                engine.drain()
                if tick < 5:
                    for number, text in enumerate(FORMS):
                        engine.execute(f"CREATE QUERY q{number}{tick} AS {text.format(tick % 4 - 1)}")
            names = [f"q{number}{tick}" for number in range(len(FORMS)) for tick in range(5)]
            found[runtime] = {name: engine[name].results() for name in names}
            if runtime == "spark":
                plans = engine.runtime.ticker.plans.plans.values()
                assert sorted(map(len, plans)) == [4] * len(FORMS)
                assert all(len(p.readers or ()) == len({r.selects for r in (p.readers or {}).values()}) for p in plans)
    for name, table in found["local"].items():
        assert table.num_rows
        assert_same(found["spark"][name], table)
