"""`windrow bench latency`: both engines answer, and are timed."""

from __future__ import annotations

import argparse

import pytest

from windrow_bench.latency import MODES, run


@pytest.mark.spark
@pytest.mark.slow
def test_files(spark: object) -> None:
    """Files that appear are answered by both; the topic's part needs a session of its own, with Spark's connector."""
    options = argparse.Namespace(parts=["files"], quick=True, repeat=1, queries=3, rows=100, seed=1)
    rows, ratios = run(options)
    assert [(r["engine"], r["queries"]) for r in rows] == [("windrow", 3), *((name, 1) for name in MODES)]
    assert all(0 < r["least"] <= r["seconds"] <= r["most"] for r in rows)
    assert len(ratios) == 2 and all(r.value > 0 for r in ratios)
