"""Functions over partitions that change: the same whatever the batches, after a restart, and cut in time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators import analytic
from windrow.operators.analytic import AnalyticOperator
from windrow.operators.elements import INF, Elements
from windrow.operators.terms import SortKey
from windrow.plan.analytic_text import over_instant
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import AnalyticCall

TYPES = {"k": pa.int64(), "x": pa.int64()}
CALLS = (
    AnalyticCall("l", "lag", Expr(("lag(", Ref("x"), ")"), pa.int64()), (SortKey("x"),), ("k", "x")),
    AnalyticCall("c", "count", Expr(("count(*)",), pa.int64())),
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(1, 12) | st.none(), st.sampled_from([1, 2, None]), st.integers(0, 3) | st.none()
    ),
    max_size=20,
)


def make():
    return AnalyticOperator(TYPES, ["k"], [(c.output, over_instant(c)) for c in CALLS])


def elements(rows):
    """Elements of rows (ts, length, k, x); those that end in an even number are ended by a negative element."""
    ends = [INF if length is None else ts + length for ts, length, _, _ in rows]
    spelled = [(ts, INF if end % 2 == 0 else end, 1, k, x) for (ts, _, k, x), end in zip(rows, ends, strict=True)]
    spelled += [(end, INF, -1, k, x) for (_, _, k, x), end in zip(rows, ends, strict=True) if end % 2 == 0]
    spelled.sort(key=lambda e: e[0])
    ts, exp, sign = (np.array([e[i] for e in spelled], np.int64) for i in range(3))
    columns = {n: pa.array([e[i] for e in spelled], pa.int64()) for n, i in (("k", 3), ("x", 4))}
    return Elements(ts, exp, sign.astype(np.int8), columns)


def relation(parts, t):
    found = {}
    for part in parts:
        shown = zip(*(part.columns[c].to_pylist() for c in ("k", "x", "l", "c")), strict=True)
        for row, ts, exp, sign in zip(shown, part.ts, part.exp, part.sign, strict=True):
            if ts <= t < exp:
                found[row] = found.get(row, 0) + int(sign)
    return {row: n for row, n in found.items() if n}


def defined(rows, t):
    """The same from the definition."""
    found = {}
    for k in (1, 2, None):
        alive = [r[3] for r in rows if r[2] == k and r[0] <= t and (r[1] is None or t < r[0] + r[1])]
        alive.sort(key=lambda x: (x is None, x))
        for before, x in zip([None, *alive], alive, strict=False):
            row = (k, x, before, len(alive))
            found[row] = found.get(row, 0) + 1
    return found


@pytest.mark.parametrize("at_once", [1, analytic.AT_ONCE])
@settings(max_examples=40, deadline=None)
@given(ROWS, st.sets(st.integers(0, 40), max_size=6), st.booleans())
def test_the_values_at_every_instant(at_once, rows, cuts, restart):
    """Cut anywhere, with the state written and read at each cut or not, computed at once or bit by bit."""
    operator, parts, low = make(), [], -1
    everything = elements(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analytic, "AT_ONCE", at_once)
        for frontier in [*sorted(cuts), 100]:
            part = everything.filter((everything.ts > low) & (everything.ts <= frontier))
            parts.append(operator.advance([part], frontier))
            assert ((parts[-1].ts > low) & (parts[-1].ts <= frontier) & (parts[-1].ts < parts[-1].exp)).all()
            low = frontier
            if restart:
                state, operator = operator.state(), make()
                operator.restore(state, frontier)
    for t in range(42):
        assert relation(parts, t) == defined(rows, t)


def test_a_row_whose_values_stay_is_sent_once():
    """COUNT changes for all rows of a partition, LAG for one; those of other partitions are not touched."""
    operator = AnalyticOperator(TYPES, ["k"], [("l", over_instant(CALLS[0]))])
    ten = Elements.positive(np.arange(10), INF, {"k": pa.array([1] * 10), "x": pa.array(range(0, 20, 2))})
    assert len(operator.advance([ten], 9)) == 10
    more = Elements.positive(np.array([10]), INF, {"k": pa.array([1]), "x": pa.array([5])})
    changed = operator.advance([more], 10)
    assert sorted(zip(changed.sign.tolist(), changed.columns["x"].to_pylist(), strict=True)) == [
        (-1, 6),
        (1, 5),
        (1, 6),
    ]


def test_partitions_without_rows_are_forgotten():
    """What a partition needs goes with its last row."""
    operator = make()
    for k in range(0, 9000, 3000):
        ts, keys = np.full(3000, k), np.arange(k, k + 3000)
        operator.advance([Elements.positive(ts, k + 1, {"k": pa.array(keys), "x": pa.array(keys)})], k)
    operator.advance([Elements.empty(TYPES)], 9000)
    assert len(operator._held) == len(operator._shown) == len(operator._groups) == 0
