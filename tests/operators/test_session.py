"""Sessions: the same whatever the batches, and after a restart at any point."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators.aggregates import Aggregation
from windrow.operators.elements import INF, Elements
from windrow.operators.session import SessionAggregate, SessionWindow
from windrow.testing.window_functions import sessions

KEYS = {"k": pa.int64()}
COUNT = Aggregation("count", None, "n", pa.int64())
SUM = Aggregation("sum", "x", "t", pa.decimal128(38, 0))
LEAST = Aggregation("min", "x", "low", pa.int64())


def window():
    return SessionWindow(KEYS, 4, "start", "end", pa.int64())


def grouped(*calls):
    columns = {"k": "k", "start": "start", "end": "end"}
    return SessionAggregate(window(), [], columns, calls, {"k": pa.int64(), "x": pa.int64()}, early=True)


def run(make, rows, cuts, restart):
    """The rows that come out of batches cut at some times, the state taken out and put back in between."""
    operator, found, low = make(), [], -1
    for frontier in [*cuts, 1000]:
        part = [r for r in rows if low < r[0] <= frontier]
        columns = {n: pa.array([r[i] for r in part], pa.int64()) for i, n in ((1, "k"), (2, "x"))}
        ts = np.array([r[0] for r in part], np.int64)
        out = operator.advance([Elements.positive(ts, INF, columns)], frontier)
        assert ((out.ts > low) & (out.ts <= frontier) & (out.exp == out.ts + 1)).all()
        found += zip(out.ts.tolist(), *(out.columns[c].to_pylist() for c in sorted(out.columns)), strict=True)
        low = frontier
        if restart:
            state, operator = operator.state(), make()
            operator.restore(state, frontier)
    return sorted(found, key=str)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from([None, 1, 2, 3]), st.none() | st.integers(-3, 3)), max_size=30
    ),
    st.sets(st.integers(0, 70), max_size=6),
    st.booleans(),
)
@pytest.mark.parametrize("make", [window, lambda: grouped(COUNT, SUM), lambda: grouped(SUM, LEAST)])
def test_batches_and_restarts_change_nothing(make, rows, cuts, restart):
    """Cut anywhere, with the state written and read at each cut or not; and each session is what it is defined as."""
    rows = sorted(rows, key=lambda r: r[0])
    found = run(make, rows, sorted(cuts), restart)
    assert found == run(make, rows, [], False)
    defined = sessions(4, [r[0] for r in rows], [r[1] for r in rows])
    ends = {(k, end) for (_, k, _), (_, end) in zip(rows, defined, strict=True)}
    assert len({row[0] for row in found}) == len({end for _, end in ends})
    if make is not window:
        assert len(found) == len(ends)


def test_keys_without_a_session_are_forgotten():
    """State is that of open sessions, however many keys there were."""
    operator = grouped(COUNT)
    for at in range(0, 100_000, 10_000):
        keys = np.arange(at, at + 10_000)
        ts = np.full(10_000, at, np.int64)
        operator.advance([Elements.positive(ts, INF, {"k": pa.array(keys), "x": pa.array(keys)})], at)
    assert operator.state()["open"][0].table.num_rows == 10_000
    assert len(operator._sessions._table) < 50_000
    assert operator._sessions.used == len(operator._partials.rows) < 50_000


def test_sums_of_many_sessions_in_the_order_of_their_ends():
    """More sessions than there was room for, doubles of any size: each sum is the nearest to the exact one."""
    rng = np.random.default_rng(7)
    ts = np.sort(rng.integers(0, 4000, 5000))
    keys, x = rng.integers(0, 300, 5000), rng.standard_normal(5000) * 10.0 ** rng.integers(-30, 30, 5000)
    types = {"k": pa.int64(), "x": pa.float64()}
    total = Aggregation("sum", "x", "t", pa.float64())
    operator = SessionAggregate(window(), [], {"k": "k", "start": "start"}, [total], types, early=True)
    parts = []
    for low, high in ((0, 100), (100, 3000), (3000, 5000)):
        given = Elements.positive(ts[low:high], INF, {"k": pa.array(keys[low:high]), "x": pa.array(x[low:high])})
        parts.append(operator.advance([given], int(ts[high - 1]) if high < 5000 else 10_000))
    assert all((p.ts[1:] >= p.ts[:-1]).all() for p in parts)
    found = {
        k: v
        for p in parts
        for k, v in zip(
            zip(*(c.to_pylist() for c in list(p.columns.values())[:2]), strict=True),
            p.columns["t"].to_pylist(),
            strict=True,
        )
    }
    starts: dict[tuple[int, int], list[float]] = {}
    for (start, _), k, v in zip(sessions(4, ts.tolist(), keys.tolist()), keys.tolist(), x.tolist(), strict=True):
        starts.setdefault((k, start), []).append(v)
    assert found == {at: math.fsum(values) for at, values in starts.items()}
