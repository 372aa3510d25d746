"""The first rows of each partition: the same whatever the batches, after a restart, and with little state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators.changes import cancel
from windrow.operators.elements import INF, Elements, concat
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


def make(kind="row_number", limit=2, offset=0, descending=False, output="r", **more):
    order = [SortKey("x", descending)]
    return TopNOperator(TYPES, ["k"], order, ["s"], limit, offset, kind, output=output, **more)


def retracted(rows, low, frontier):
    """The rows of an advance, and the ends in it as negative elements."""
    came = elements([(r[0], None, *r[2:]) for r in rows if low < r[0] <= frontier])
    ended = [r for r in rows if r[1] is not None and low < r[0] + r[1] <= frontier]
    went = elements([(r[0] + r[1], None, *r[2:]) for r in ended])
    return concat([came, went.negated()])


def elements(rows):
    ts = np.array([r[0] for r in rows], np.int64)
    exp = np.array([INF if r[1] is None else r[0] + r[1] for r in rows], np.int64)
    columns = {n: pa.array([r[i] for r in rows], t) for (n, t), i in zip(TYPES.items(), (2, 3, 4), strict=True)}
    return Elements(ts, exp, np.ones(len(rows), np.int8), columns)


def relation(parts, t):
    """What is there at t: rows with their net counts."""
    found = {}
    for part in parts:
        shown = zip(*(part.columns[c].to_pylist() for c in ("k", "x", "s", "r") if c in part.columns), strict=True)
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


def without_ranks(shown):
    found = {}
    for row, count in shown.items():
        found[row[:3]] = found.get(row[:3], 0) + count
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


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sets(st.integers(0, 40), max_size=6), st.booleans(), st.booleans(), st.integers(0, 3))
@pytest.mark.parametrize("kind", ["row_number", "rank", "dense_rank"])
@pytest.mark.parametrize("strict", [False, True])
def test_without_ranks_nothing_cancels(kind, strict, rows, cuts, restart, descending, limit):
    """The first rows as such, their ends known or told: and no row comes at an instant at which an equal one goes."""
    rows = sorted(rows, key=lambda r: r[0])
    given = {"kind": kind, "limit": limit, "descending": descending, "output": None, "strict": strict}
    operator, parts, low = make(**given), [], -1
    for frontier in [*sorted(cuts), 100]:
        part = elements([r for r in rows if low < r[0] <= frontier])
        parts.append(operator.advance([retracted(rows, low, frontier) if strict else part], frontier))
        low = frontier
        if restart:
            state, operator = operator.state(), make(**given)
            operator.restore(state, frontier)
    log = concat(parts)
    assert len(cancel(log)) == len(log)
    for t in range(42):
        assert relation(parts, t) == without_ranks(defined(rows, t, kind, limit, 0, descending))


@pytest.mark.parametrize("window", [None, 300])
def test_one_row_at_a_time_or_many(window):
    """Instants with one row, which move one other at most, and instants with many, give what the definition says."""
    rng = np.random.default_rng(2)
    for instants in (2000, 40):
        ts = np.sort(rng.integers(0, instants, 600))
        ends = [None if window is None else int(w) for w in rng.integers(1, window or 2, 600)]
        given = zip(ts.tolist(), ends, rng.integers(1, 3, 600).tolist(), rng.integers(0, 90, 600).tolist(), strict=True)
        rows = [(*r, "a") for r in given]
        operator = make(limit=4, output=None)
        parts = [operator.advance([elements(rows[:200])], int(ts[200]) - 1)] if ts[199] < ts[200] else []
        parts.append(operator.advance([elements(rows[200 * len(parts) :])], 10_000))
        for t in range(0, instants, max(1, instants // 50)):
            assert relation(parts, t) == without_ranks(defined(rows, t, "row_number", 4, 0, False))


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
