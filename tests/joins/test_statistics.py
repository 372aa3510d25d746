"""What is measured of running inputs is near the truth and follows it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from windrow.operators.elements import Elements
from windrow.operators.keys import hash_rows
from windrow.operators.sketch import DistinctSketch
from windrow.operators.statistics import InputStatistics


@pytest.mark.parametrize("values", [3, 200, 5_000, 300_000])
def test_distinct_is_near_the_truth(values: int) -> None:
    """Small sets are counted, large ones estimated within a quarter."""
    rng = np.random.default_rng(values)
    sketch = DistinctSketch()
    seen: set[int] = set()
    for batch in range(20):
        keys = rng.integers(0, values, 20_000)
        seen |= set(keys.tolist())
        sketch.add(hash_rows([pa.array(keys)], len(keys)), batch + 100)
    assert sketch.estimate() == pytest.approx(len(seen), rel=0.0 if values <= 200 else 0.25)


def test_distinct_forgets() -> None:
    """What has expired counts no more."""
    sketch = DistinctSketch()
    sketch.add(hash_rows([pa.array(range(100))], 100), 10)
    sketch.add(hash_rows([pa.array(range(5))], 5), 20)
    sketch.expire(10)
    assert sketch.estimate() == 5


def test_rate_follows_a_change() -> None:
    """Three advances after a change the rate is near the new one."""
    statistics = InputStatistics({"k": "s.k"})
    for t, rate in enumerate([10] * 10 + [100] * 3):
        ts = np.full(rate * 10, 10 * t)
        statistics.observe(Elements.positive(ts, ts + 50, {"s.k": pa.array(np.arange(rate * 10) % 7)}), 10 * t + 9)
    observed = statistics.observed(0)
    assert 80 <= observed.rate <= 100
    assert observed.rows == pytest.approx(observed.rate * 50)
    assert observed.values == {"k": 7.0}
