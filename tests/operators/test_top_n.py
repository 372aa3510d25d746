"""The first rows of each partition: the same whatever the batches, after a restart, and with little state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators.elements import INF, Elements
from windrow.operators.terms import SortKey
from windrow.operators.top_n import TopNOperator

TYPES = {"k": pa.int64(), "x": pa.int64(), "s": pa.string()}
ROWS = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(1, 12) | st.none(), st.sampled_from([1, 2, None]),
        st.integers(0, 3) | st.none(), st.sampled_from(["a", "b"]),
    ),
    max_size=25,
)  # fmt: skip


def make(kind="row_number", limit=2, offset=0, descending=False, **more):
    order = [SortKey("x", descending)]
    return TopNOperator(TYPES, ["k"], order, ["s"], limit, offset, kind, output="r", **more)


def elements(rows):
    ts = np.array([r[0] for r in rows], np.int64)
    exp = np.array([INF if r[1] is None else r[0] + r[1] for r in rows], np.int64)
    columns = {n: pa.array([r[i] for r in rows], t) for (n, t), i in zip(TYPES.items(), (2, 3, 4), strict=True)}
    return Elements(ts, exp, np.ones(len(rows), np.int8), columns)


def relation(parts, t):
    """What is there at t: rows with their net counts."""
    found = {}
    for part in parts:
        shown = zip(*(part.columns[c].to_pylist() for c in ("k", "x", "s", "r")), strict=True)
        for row, ts, exp, sign in zip(shown, part.ts, part.exp, part.sign, strict=True):
            if ts <= t < exp:
                found[row] = found.get(row, 0) + int(sign)
    return {row: n for row, n in found.items() if n}


def defined(rows, t, kind, limit, offset, descending):
    """The same from the definition."""
    found = {}
    for k in (1, 2, None):
        alive = [r for r in rows if r[2] == k and r[0] <= t and (r[1] is None or t < r[0] + r[1])]

        def key(r):
            return (r[3] is None, -(r[3] or 0) if descending else (r[3] or 0))

        alive.sort(key=lambda r: (*key(r), r[4]))
        for i, r in enumerate(alive):
            better = [b for b in alive if key(b) < key(r)]
            rank = {"row_number": i + 1, "rank": len(better) + 1, "dense_rank": len({key(b) for b in better}) + 1}[kind]
            if offset < rank <= offset + limit:
                row = (k, r[3], r[4], rank)
                found[row] = found.get(row, 0) + 1
    return found


@settings(max_examples=40, deadline=None)
@given(
    ROWS, st.sets(st.integers(0, 40), max_size=6), st.booleans(), st.booleans(), st.integers(1, 3), st.integers(0, 2)
)
@pytest.mark.parametrize("kind", ["row_number", "rank", "dense_rank"])
def test_the_first_rows_at_every_instant(kind, rows, cuts, restart, descending, limit, offset):
    """Cut anywhere, with the state written and read at each cut or not."""
    rows = sorted(rows, key=lambda r: r[0])
    operator, parts, low = make(kind, limit, offset, descending), [], -1
    for frontier in [*sorted(cuts), 100]:
        part = [r for r in rows if low < r[0] <= frontier]
        parts.append(operator.advance([elements(part)], frontier))
        assert ((parts[-1].ts > low) & (parts[-1].ts <= frontier) & (parts[-1].ts < parts[-1].exp)).all()
        low = frontier
        if restart:
            state, operator = operator.state(), make(kind, limit, offset, descending)
            operator.restore(state, frontier)
    for t in range(42):
        assert relation(parts, t) == defined(rows, t, kind, limit, offset, descending)


@pytest.mark.parametrize("descending", [False, True])
def test_rows_that_cannot_be_shown_any_more_are_forgotten(descending):
    """Of a window of rows in random order few wait; of rows that never leave, as many as are shown."""
    rng = np.random.default_rng(1)
    windowed, endless = make(limit=5, descending=descending), make(limit=5, descending=descending)
    for step in range(10):
        ts = np.sort(rng.integers(step * 1000, step * 1000 + 1000, 4000))
        values = {"k": pa.array(rng.integers(0, 2, 4000)), "x": pa.array(rng.integers(0, 10**9, 4000))}
        columns = {**values, "s": pa.array(["a"] * 4000)}
        for operator, exp in ((windowed, ts + 5000), (endless, np.full(4000, INF))):
            rows = Elements(ts, exp, np.ones(4000, np.int8), columns)
            operator.advance([rows], step * 1000 + 999)
    assert len(windowed._held) < 200
    assert len(endless._held) == 10
