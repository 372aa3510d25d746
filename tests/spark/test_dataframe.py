"""Answers as DataFrames: the present one, and those to come as a stream."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import windrow

pytestmark = pytest.mark.spark

SCRIPT = """
    CREATE STREAM s (ts TIMESTAMP, k VARCHAR, v BIGINT) TIMESTAMP BY ts;
    CREATE QUERY sums AS SELECT k, SUM(v) AS total FROM s [RANGE 10 SECONDS] GROUP BY k;
"""


def rows(*seconds: int) -> dict[str, list[Any]]:
    """A row at each of these seconds."""
    begin = datetime(2026, 1, 1)
    return {"ts": [begin + timedelta(seconds=s) for s in seconds], "k": ["a"] * len(seconds), "v": list(seconds)}


@pytest.mark.parametrize("runtime", ["local", "spark"])
def test_dataframes(spark: Any, tmp_path: Any, runtime: str) -> None:
    """The batch is the snapshot; the stream has each row of the answer once, across its own restarts."""
    given = {"spark": spark} if runtime == "spark" else {}
    with windrow.Engine(runtime=runtime, home=str(tmp_path / "home"), **given) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", rows(1, 2))
        engine.drain()
        before = engine["sums"].results().num_rows
        came = engine["sums"].dataframe(spark, follow=str(tmp_path / "answers"))
        assert came.isStreaming
        for seconds in ((3, 4), (5, 30)):
            engine.push("s", rows(*seconds))
            engine.drain()
            taken = came.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
            taken.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        answer = engine["sums"].results()
        found = spark.read.parquet(str(tmp_path / "out"))
        assert found.columns == answer.column_names
        assert Counter(map(tuple, found.collect())) == bag(answer.slice(before)) != Counter()
        assert Counter(map(tuple, engine["sums"].dataframe(spark).collect())) == bag(engine["sums"].snapshot())


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(r.values()) for r in table.to_pylist())
