"""FREQUENT: what its summaries prove, what they cost, and that nothing but rows and slices matters."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import windrow
from windrow.errors import WindrowError
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.basic_windows import SummaryQueue
from windrow.operators.aggregates.call import frequent_type
from windrow.operators.aggregates.counts import counted
from windrow.operators.elements import INF, Elements
from windrow.operators.summary_aggregate import PeriodicSummary, RowsSummary
from windrow.testing import assert_same, oracle

CALLS = (
    Aggregation("frequent", "x", "f", frequent_type(pa.int64()), parameters=(2,)),
    Aggregation("frequent_delta", "x", "d", pa.int64(), parameters=(2,)),
)
TYPES = {"x": pa.int64()}

windows = st.tuples(
    st.lists(st.lists(st.integers(0, 12), max_size=12), min_size=1, max_size=6),  # values of each basic window
    st.integers(1, 5),  # k
)


def answer(slices: list[list[int]], k: int, parts: int = 1) -> tuple[list[dict[str, int]], int]:
    """FREQUENT and its delta over basic windows, whose rows come in so many parts."""
    calls = [Aggregation(c.kind, c.column, c.output, c.type, parameters=(k,)) for c in CALLS]
    queue = SummaryQueue(calls, TYPES)
    begin = np.repeat(np.arange(len(slices)), [len(s) for s in slices])
    values = np.array([v for s in slices for v in s], np.int64)
    found = [
        counted(begin[i::parts], np.full(len(begin[i::parts]), 100), None, {"x": pa.array(values[i::parts])})
        for i in range(parts)
    ]
    queue.add(found)
    _, _, columns = queue.answers(np.array([len(slices)]), keyed=False)
    return columns["f"].to_pylist()[0], columns["d"].to_pylist()[0]


@settings(max_examples=150, deadline=None)
@given(windows)
@example(([[1] * 5, [1] * 5], 1))  # one value only: exact
@example(([[1, 2, 3], [4, 5, 6]], 1))  # all values distinct: nothing is proven
def test_what_is_reported_is_frequent_and_the_bounds_hold(case: tuple[list[list[int]], int]) -> None:
    slices, k = case
    found, delta = answer(slices, k)
    true = Counter(v for s in slices for v in s)
    for item in found:
        assert item["at_least"] <= true[item["value"]] <= item["at_most"]
        assert true[item["value"]] > delta
    on_some = {v for s in slices for v, _ in sorted(Counter(s).items(), key=lambda p: (-p[1], p[0]))[:k]}
    assert all(n <= delta for v, n in true.items() if v not in on_some)
    if all(len(set(s)) <= k for s in slices):
        assert delta == 0
        assert {i["value"]: i["at_least"] for i in found} == dict(true)


@settings(max_examples=100, deadline=None)
@given(windows, st.integers(2, 4))
def test_parts_never_change_an_answer(case: tuple[list[list[int]], int], parts: int) -> None:
    slices, k = case
    assert answer(slices, k, parts) == answer(slices, k)


@pytest.mark.parametrize("k", [1, 3])
def test_state_is_k_pairs_per_basic_window_and_the_open_counts(k: int) -> None:
    random = np.random.default_rng(7)
    slide, size, distinct = 500, 10_000, 200
    calls = [Aggregation("frequent", "x", "f", frequent_type(pa.int64()), parameters=(k,))]
    rows, time = RowsSummary((), calls, TYPES, size, slide), PeriodicSummary((), calls, TYPES, slide)
    for first in range(0, 30_000, 700):
        ts = np.arange(first + 1, first + 701)
        values = {"x": pa.array(random.integers(0, distinct, 700))}
        rows.advance([Elements.positive(ts, INF, values)], int(ts[-1]))
        begin = -(-ts // slide) * slide
        time.advance([Elements(begin, begin + size, np.ones(700, np.int8), values)], int(ts[-1]))
        for operator in (rows, time):
            pairs = [len(r.table[f"{k} most frequent x"].combine_chunks().flatten()) for r in operator.queue.runs]
            assert sum(pairs) <= k * size / slide
            assert sum(o.counts.values["x"].num_rows for o in operator._open) <= distinct * 2


QUERIES = """
SELECT FREQUENT(x, 2) AS f, FREQUENT_DELTA(x, 2) AS d FROM s [RANGE 20 SLIDE 5];
SELECT g, FREQUENT(x, 1, 1) AS f, COUNT(*) AS n, MAX(x) AS m FROM s [RANGE 12 SLIDE 4] WHERE x > 0 GROUP BY g;
SELECT g, FREQUENT(x, 2, 0.3) AS f FROM s [ROWS 20 SLIDE 5] WHERE x > 0 GROUP BY g;
SELECT ISTREAM(FREQUENT(x, 2) AS f) FROM HOP(s, ts, 5, 15);
SELECT FREQUENT(t, 1) AS f, LIST(x) AS l FROM s [ROWS 9 SLIDE 3];
"""


def stream(rows: int, seed: int = 3) -> pa.Table:
    random = np.random.default_rng(seed)
    x = pa.array(random.zipf(1.6, rows) % 7, mask=random.random(rows) < 0.1)
    t = pa.array(np.array(["a", "b", "ä", ""])[random.integers(0, 4, rows)])
    return pa.table({"ts": np.sort(random.integers(0, rows, rows)), "g": random.integers(0, 3, rows), "x": x, "t": t})


@pytest.mark.parametrize("batch_rows", [None, 5])
@pytest.mark.parametrize("strategy", ["upa", "negative", "direct"])
def test_answers_are_those_of_the_definition(batch_rows: int | None, strategy: str) -> None:
    data = {"s": stream(80)}
    want = oracle(QUERIES, data)
    got = windrow.run(QUERIES, data, runtime="local", batch_rows=batch_rows, strategy=strategy)
    for name, table in want.items():
        assert_same(got[name], table)


def _shown(e: Elements) -> list[str]:
    columns = [c.to_pylist() for c in e.columns.values()]
    return sorted(map(repr, zip(e.ts.tolist(), e.exp.tolist(), e.sign.tolist(), *columns, strict=True)))


@pytest.mark.parametrize("window", ["[RANGE 20 SLIDE 5]", "[ROWS 20 SLIDE 5]"])
def test_an_operator_goes_on_from_its_state(window: str) -> None:
    random = np.random.default_rng(5)

    def made() -> PeriodicSummary | RowsSummary:
        types = {"g": pa.int64(), **TYPES}
        return (
            RowsSummary(("g",), CALLS, types, 20, 5) if "ROWS" in window else PeriodicSummary(("g",), CALLS, types, 5)
        )

    whole, parted = made(), made()
    for first in range(0, 60, 3):
        ts = np.arange(first + 1, first + 4)
        columns = {"g": pa.array(random.integers(0, 2, 3)), "x": pa.array(random.integers(0, 4, 3))}
        begin = ts if "ROWS" in window else -(-ts // 5) * 5
        end = np.full(3, INF) if "ROWS" in window else begin + 20
        rows = Elements(begin, end, np.ones(3, np.int8), columns)
        again = made()
        again.restore(parted.state(), first)
        a, parted = whole.advance([rows], first + 3), again
        b = parted.advance([rows], first + 3)
        assert _shown(a) == _shown(b)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT FREQUENT(x, 2) AS f FROM s [RANGE 20]", "without SLIDE"),
        ("SELECT FREQUENT(x, 2) AS f FROM s [RANGE 20 SLIDE 6]", "multiple of its SLIDE"),
        ("SELECT FREQUENT(x, 2) AS f FROM s [RANGE UNBOUNDED SLIDE 6]", "multiple of its SLIDE"),
        ("SELECT FREQUENT(x, 2) AS f FROM s [NOW SLIDE 6]", "multiple of its SLIDE"),
        ("SELECT FREQUENT(x, 2) AS f FROM s [ROWS 20 SLIDE 6]", "window of rows"),
        ("SELECT FREQUENT(x, 2) AS f FROM s [PARTITION BY g ROWS 20 SLIDE 5]", "window of rows"),
        ("SELECT FREQUENT(a.x, 2) AS f FROM s [RANGE 6 SLIDE 6] a, s [RANGE 6 SLIDE 6] b WHERE a.g = b.g", "leave in"),
        ("SELECT FREQUENT(x, 0) AS f FROM s [RANGE 6 SLIDE 6]", "whole number"),
        ("SELECT FREQUENT(x, g) AS f FROM s [RANGE 6 SLIDE 6]", "whole number"),
        ("SELECT FREQUENT(x) AS f FROM s [RANGE 6 SLIDE 6]", "2 or 3 arguments"),
        ("SELECT FREQUENT(x, 2, 1.5) AS f FROM s [RANGE 6 SLIDE 6]", "share below 1"),
        ("SELECT FREQUENT(DISTINCT x, 2) AS f FROM s [RANGE 6 SLIDE 6]", "DISTINCT"),
    ],
)
def test_what_cannot_be_summarised_is_refused(query: str, said: str) -> None:
    with pytest.raises(WindrowError, match=said):
        windrow.run(query, {"s": stream(20)}, runtime="local")


def test_explain_says_what_is_kept() -> None:
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (ts BIGINT, x BIGINT)")
    engine.execute("CREATE QUERY q AS SELECT FREQUENT(x, 10) AS f FROM s [RANGE 60 SLIDE 6]")
    assert "10 values per basic window" in engine["q"].explain()
