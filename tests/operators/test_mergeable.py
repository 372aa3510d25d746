"""Aggregates of parts merge to what aggregating all rows at once gives, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.mergeable import MergeableAggregate, merges
from windrow.operators.elements import INF, Elements
from windrow.operators.grid_aggregate import GridAggregate

TYPES = {"g": pa.string(), "h": pa.float64(), "i": pa.int64(), "f": pa.float64(), "s": pa.string()}
VALUES = {
    "g": [None, "", "a", "b"],
    "h": [None, 0.0, -0.0, 1.5, math.nan],
    "i": [None, 0, 1, -5, 2**63 - 1, -(2**63), 2**31],
    "f": [None, 0.0, -0.0, 0.1, 0.2, -0.3, 1e16, -1e16, 1e300, 5e-324, math.nan, math.inf, -math.inf],
    "s": [None, "", "a", "é", "\U0001f600"],
}
KINDS = ("count", "sum", "avg", "variance", "stddev_pop")
CALLS = [
    Aggregation("count", None, "n", pa.int64()),
    *(Aggregation(k, "f", f"{k}_f", pa.int64() if k == "count" else pa.float64()) for k in KINDS),
    *(Aggregation(k, "i", f"{k}_i", pa.int64() if k == "count" else pa.float64()) for k in KINDS if k != "sum"),
    Aggregation("sum", "i", "sum_i", pa.decimal128(38, 0)),
    *(Aggregation(k, c, f"{k}_{c}", TYPES[c]) for c in ("i", "f", "s", "h") for k in ("min", "max")),
]

rows = st.lists(st.fixed_dictionaries({c: st.sampled_from(v) for c, v in VALUES.items()}), max_size=30)


def columns(found):
    return {c: pa.array([r[c] for r in found], t) for c, t in TYPES.items()}


def shown(table):
    """Rows as sorted text: NaN equals NaN, -0.0 equals 0.0."""
    return sorted(repr([0.0 if v == 0 else v for v in row.values()]) for row in table.to_pylist())


@given(found=rows, cuts=st.lists(st.integers(0, 30), max_size=4), keys=st.sampled_from([(), ("g",), ("g", "h")]))
def test_parts_merge_to_the_whole(found, cuts, keys):
    """However rows are cut, and in whatever order parts are merged, the answer is that of periodic aggregation."""
    aggregate = MergeableAggregate(keys, CALLS, TYPES)
    bounds = sorted({0, len(found), *(c for c in cuts if c <= len(found))})
    parts = [
        aggregate.part(columns(found[a:b]), b - a) for a, b in zip([0, *bounds], [*bounds, len(found)], strict=True)
    ]
    first = aggregate.merged(parts)
    second = aggregate.merged([aggregate.merged(parts[1:] or parts), *(parts[:1] if len(parts) > 1 else [])])
    operator = GridAggregate(keys, CALLS, TYPES, 1)
    operator.start(0)
    whole = operator.advance([Elements.positive(np.zeros(len(found), np.int64), INF, columns(found))], 0)
    want = shown(pa.table(whole.columns))
    assert shown(pa.table(aggregate.answer(first))) == want
    assert shown(pa.table(aggregate.answer(second))) == want


@pytest.mark.parametrize(
    ("kind", "distinct", "merging"),
    [
        ("sum", False, True),
        ("max", True, True),
        ("count", True, False),
        ("median", False, False),
        ("top_k", False, False),
    ],
)
def test_what_merges(kind, distinct, merging):
    """Sums, counts, moments, MIN and MAX; not what needs all values of a group."""
    assert merges([Aggregation(kind, "i", "x", pa.int64(), distinct)]) is merging
