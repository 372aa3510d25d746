"""APPROX_COUNT_DISTINCT, APPROX_QUANTILE, APPROX_TOP_K: the errors they promise; only rows and slices matter."""

from __future__ import annotations

import datasketches
import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.basic_windows import SummaryQueue
from windrow.operators.aggregates.counts import counted
from windrow.operators.aggregates.sketches import ThetaSummary
from windrow.testing import assert_same, oracle

SMALL = """
SELECT APPROX_COUNT_DISTINCT(x) AS a, APPROX_QUANTILE(x, 0.5) AS q, COUNT(*) AS n FROM s [RANGE 20 SLIDE 6];
SELECT g, APPROX_TOP_K(x, 2) AS b, APPROX_TOP_K(t, 3) AS e, MAX(x) AS m FROM s [RANGE 10 SLIDE 5] GROUP BY g;
SELECT g, APPROX_QUANTILE(x, 0.9) AS q, FREQUENT(t, 2) AS f FROM s [RANGE 12 SLIDE 3] WHERE x > 1 GROUP BY g;
SELECT g, APPROX_COUNT_DISTINCT(t) AS a, APPROX_TOP_K(x, 2) AS b FROM s [RANGE 9] GROUP BY g;
SELECT APPROX_COUNT_DISTINCT(t) AS a FROM s [ROWS 9];
"""


def stream(rows: int, seed: int = 3) -> pa.Table:
    random = np.random.default_rng(seed)
    x = pa.array(random.zipf(1.6, rows) % 7, mask=random.random(rows) < 0.1)
    t = pa.array(np.array(["a", "b", "ä", ""])[random.integers(0, 4, rows)])
    return pa.table({"ts": np.sort(random.integers(0, rows, rows)), "g": random.integers(0, 3, rows), "x": x, "t": t})


@pytest.mark.parametrize("way", [{}, {"batch_rows": 7}, {"sharing": "shards", "batch_rows": 11}])
def test_of_few_values_they_are_exact(way: dict[str, object]) -> None:
    data = {"s": stream(100)}
    want = oracle(SMALL, data)
    got = windrow.run(SMALL, data, runtime="local", **way)  # type: ignore[arg-type]
    for name, table in want.items():
        assert_same(got[name], table)


@pytest.fixture(scope="module")
def large() -> pa.Table:
    random = np.random.default_rng(11)
    rows = 60_000
    x = np.minimum(random.zipf(1.2, rows), 10**12)
    return pa.table({"ts": np.arange(1, rows + 1), "x": x, "y": random.lognormal(0, 3, rows)})


QUERY = """
SELECT APPROX_COUNT_DISTINCT(y) AS d, APPROX_QUANTILE(y, 0.01) AS a, APPROX_QUANTILE(y, 0.5) AS b,
  APPROX_QUANTILE(y, 0.99) AS c, APPROX_TOP_K(x, 5) AS k FROM s [RANGE 30000 SLIDE 10000]
"""


def test_the_errors_they_promise(large: pa.Table) -> None:
    """Three standard errors of distinct counts, ranks within 1 %, counts within 0.18 % of the rows."""
    x, y = large["x"].to_numpy(), large["y"].to_numpy()
    for row in windrow.run(QUERY, {"s": large}, runtime="local")["q1"].to_pylist():
        window = slice(max(0, row["_ts"] - 30_000), row["_ts"])
        ys = np.sort(y[window])
        assert abs(row["d"] / len(np.unique(ys)) - 1) < 3 / 64
        for name, fraction in (("a", 0.01), ("b", 0.5), ("c", 0.99)):
            assert abs(np.searchsorted(ys, row[name]) / len(ys) - fraction) <= 0.01
        values, counts = np.unique(x[window], return_counts=True)
        fifth = np.sort(counts)[-5]
        of = dict(zip(values.tolist(), counts.tolist(), strict=True))
        assert all(of[v] >= fifth - 0.0018 * len(ys) for v in row["k"])


@pytest.mark.parametrize("slices", [1, 12, 60])
@pytest.mark.parametrize("kind", ["pareto", "drifting", "alternating", "few values", "two heaps"])
def test_quantiles_are_within_one_percent_of_the_rows(kind: str, slices: int) -> None:
    random = np.random.default_rng(4)
    rows, number = 1000 * slices, np.repeat(np.arange(slices), 1000)
    uniform = random.random(rows)
    values = {
        "pareto": lambda: random.pareto(0.5, rows), "drifting": lambda: uniform + number,
        "alternating": lambda: uniform * np.where(number % 2, 1, 1000),
        "few values": lambda: np.floor(20 * uniform), "two heaps": lambda: np.where(uniform < 0.5, -1e6, 1e6) + uniform,
    }[kind]()  # fmt: skip
    fractions = (0.001, 0.1, 0.5, 0.75, 0.99)
    calls = [Aggregation("approx_quantile", "y", f"{f}", pa.float64(), parameters=(f,)) for f in fractions]
    queue = SummaryQueue(calls, {"y": pa.float64()})
    queue.add([counted(number, np.full(rows, 1000), None, {"y": pa.array(values)})])
    _, _, found = queue.answers(np.array([slices]), keyed=False)
    ordered = np.sort(values)
    for fraction in fractions:
        low, high = (np.searchsorted(ordered, found[f"{fraction}"][0].as_py(), side) for side in ("left", "right"))
        assert low / rows - 0.01 <= fraction <= high / rows + 0.01


def test_batches_and_sharing_never_change_an_answer(large: pa.Table) -> None:
    want = windrow.run(QUERY, {"s": large}, runtime="local")["q1"]
    assert windrow.run(QUERY, {"s": large}, runtime="local", batch_rows=7_001)["q1"].equals(want)
    shared = windrow.run(QUERY + ";" + QUERY, {"s": large}, runtime="local", sharing="shards")
    assert shared["q1"].equals(want)
    assert shared["q2"].equals(want)


def test_a_theta_sketch_is_that_of_the_library() -> None:
    """It reads what we write, and a union of slices in any order is the sketch of all values."""
    random = np.random.default_rng(2)
    parts = [pa.array(np.unique(random.integers(0, 50_000, n))) for n in (0, 1, 2, 4096, 9_000, 20_000)]
    whole = pa.array(np.unique(np.concatenate([p.to_numpy() for p in parts])))

    def sketch(values: pa.Array) -> datasketches.compact_theta_sketch:
        made = ThetaSummary("x", pa.int64()).columns(np.array([0, len(values)]), values, np.ones(len(values), np.int64))
        return datasketches.compact_theta_sketch.deserialize(made["distinct x"][0].as_py())

    for order in (parts, parts[::-1]):
        union = datasketches.theta_union(12)
        for part in order:
            union.update(sketch(part))
        assert union.get_result().get_estimate() == sketch(whole).get_estimate()
    assert sketch(whole).get_lower_bound(3) <= len(whole) <= sketch(whole).get_upper_bound(3)
    assert [sketch(p).get_estimate() for p in parts[:3]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("APPROX_QUANTILE(x, 2)", "a column and a constant"),
        ("APPROX_TOP_K(x)", "a column and a constant"),
        ("APPROX_COUNT_DISTINCT(x, t)", "one argument"),
        ("APPROX_TOP_K([x], 2)", "TOP_K"),
        ("APPROX_QUANTILE(t, 0.5)", "DOUBLE|convert|CAST"),
    ],
)
def test_what_is_refused(call: str, said: str) -> None:
    with pytest.raises(WindrowError, match=said):
        windrow.run(f"SELECT {call} AS a FROM s [RANGE 6 SLIDE 6]", {"s": stream(20)}, runtime="local")
