"""MIN and MAX under deletion: the head and the pile answer as a multiset does, and cost what changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation, extremes
from windrow.operators.elements import INF, Elements

TYPES = {"g": pa.int64(), "x": pa.float64()}


def operator(kind: str) -> ContinuousAggregate:
    made = ContinuousAggregate(["g"], [Aggregation(kind, "x", "m", pa.float64())], TYPES, strict=True)
    made.start(0)
    return made


def log(rng: np.random.Generator, batches: int) -> list[Elements]:
    """Rows of a few groups, most of which are taken back later, often the best of their group first."""
    alive: list[tuple[int, float]] = []
    made = []
    for t in range(batches):
        rows: list[tuple[int, int, float, int]] = []
        for _ in range(int(rng.integers(0, 12))):
            value = float(rng.choice([rng.integers(0, 40), np.nan, -0.0, np.inf], p=[0.9, 0.04, 0.03, 0.03]))
            row = (int(rng.integers(0, 3)), value)
            alive.append(row)
            rows.append((10 * t, *row, 1))
        for k in range(min(len(alive), int(rng.integers(0, 11)))):
            alive.sort(key=lambda r: (r[1] != r[1], r[1]), reverse=bool(rng.random() < 0.5))
            rows.append((10 * t + 1 + k % 3, *alive.pop(0), -1))
        ts, g, x, sign = zip(*rows, strict=True) if rows else ((), (), (), ())
        columns = {"g": pa.array(g, pa.int64()), "x": pa.array(x, pa.float64())}
        made.append(Elements(np.array(ts, np.int64), np.full(len(ts), INF), np.array(sign, np.int8), columns))
    return made


def told(output: Elements) -> list[tuple[object, ...]]:
    columns = [a.to_pylist() for a in output.columns.values()]
    return sorted(map(repr, zip(output.ts.tolist(), output.exp.tolist(), output.sign.tolist(), *columns, strict=True)))


@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("head", [1, 3])
def test_head_and_pile_answer_as_a_multiset(kind: str, head: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short heads, so that the pile is filled and read often; with a snapshot in the middle."""
    for seed in range(12):
        batches = log(np.random.default_rng(seed), 40)
        monkeypatch.setattr(extremes, "HEAD", 10**6)
        whole = operator(kind)
        want = [told(whole.advance([b], 10 * t + 9)) for t, b in enumerate(batches)]
        monkeypatch.setattr(extremes, "HEAD", head)
        short, found = operator(kind), []
        for t, b in enumerate(batches):
            found.append(told(short.advance([b], 10 * t + 9)))
            if t % 7 == 3:
                fresh = operator(kind)
                fresh.restore(short.state(), 10 * t + 9)
                short = fresh
        assert found == want, seed
    assert any(len(v._pile[0]) or v._changes for v in short._partials.values.values())


def test_taking_the_best_away_does_not_cost_the_window() -> None:
    """Of 300,000 values the greatest go, a hundred per tick: most ticks look at a small part of them."""
    made, size = operator("max"), 300_000
    values = np.arange(size, dtype=np.float64)
    one = np.zeros(size, np.int64)

    def batch(ts: int, x: np.ndarray, sign: int) -> Elements:
        columns = {"g": pa.array(one[: len(x)]), "x": pa.array(x)}
        return Elements(np.full(len(x), ts), np.full(len(x), INF), np.full(len(x), sign, np.int8), columns)

    made.advance([batch(0, values, 1)], 0)
    looked = []
    for t in range(1, 30):
        made.advance([batch(t, values[size - 100 * t : size - 100 * (t - 1)], -1)], t)
        (multiset,) = made._partials.values.values()
        looked.append(len(multiset.slot))
    assert np.median(looked) < size / 50
