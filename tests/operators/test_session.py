"""Sessions: the same whatever the batches, and after a restart at any point."""

from __future__ import annotations

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
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from([None, 1, 2, 3]), st.integers(-3, 3)), max_size=30),
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
