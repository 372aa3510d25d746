"""Duplicate elimination: exact, and in the space the thesis promises."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.operators.bag import BagOperator
from windrow.operators.changes import Changes
from windrow.operators.delta_star import DeltaStar
from windrow.operators.elements import Elements

K = {"k": pa.int64()}


def elements(rows):
    ts, exp, value = zip(*rows, strict=True) if rows else ((), (), ())
    return Elements.positive(np.array(ts, np.int64), np.array(exp, np.int64), {"v": pa.array(value, pa.int64())})


def relation(parts, t):
    found = {}
    for part in parts:
        for ts, exp, sign, v in zip(part.ts, part.exp, part.sign, part.columns["v"].to_pylist(), strict=True):
            if ts <= t < exp:
                found[v] = found.get(v, 0) + int(sign)
    return {v: n for v, n in found.items() if n}


lifetimes = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 3)), max_size=25)


@given(rows=lifetimes, step=st.integers(1, 21))
def test_both_versions_keep_one_copy(rows, step):
    """delta-star and the counting version have, at every instant, one copy of each value that is alive."""
    rows = sorted((t, t + length, v) for t, length, v in rows)
    star, counting, outs = DeltaStar({"v": pa.int64()}), BagOperator("distinct", {"v": pa.int64()}), ([], [])
    for begin in range(0, 31, step):
        batch = elements([r for r in rows if begin <= r[0] < begin + step])
        for operator, out in zip((star, counting), outs, strict=True):
            out.append(operator.advance([batch], begin + step - 1))
    for t in range(30):
        want = {v: 1 for ts, exp, v in rows if ts <= t < exp}
        assert relation(outs[0], t) == want
        assert relation(outs[1], t) == want


def test_delta_star_stores_at_most_twice_its_output():
    """Over a long run with many duplicates the stored ends stay within twice the distinct live values."""
    star, rng = DeltaStar({"v": pa.int64()}), np.random.default_rng(3)
    for tick in range(60):
        ts = np.arange(tick * 500, (tick + 1) * 500)
        value = rng.integers(0, 300, 500) + 50 * tick
        star.advance([Elements.positive(ts, ts + 2000, {"v": pa.array(value)})], int(ts[-1]))
        live = star._ends[: len(star._rows), 0] > ts[-1]
        stored = np.count_nonzero(star._ends[: len(star._rows)][live] > ts[-1])
        assert stored <= 2 * np.count_nonzero(live)
        assert len(star._rows) <= 2 * np.count_nonzero(live)


@pytest.mark.parametrize(
    "make", [lambda: DeltaStar(K), lambda: DeltaStar(K, log=True), lambda: BagOperator("distinct", K)]
)
def test_a_state_stays_as_it_was_taken(make):
    """One row's counters lie side by side in memory; a run taken from them must not follow them."""
    operator = make()
    operator.advance([Elements.positive(np.array([1]), 4, {"k": pa.array([7])})], 2)
    (run,) = operator.state()["rows"]
    before = run.table.to_pydict()
    operator.advance([Elements.positive(np.array([3]), 9, {"k": pa.array([7])})], 20)
    assert run.table.to_pydict() == before


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12), st.integers(1, 6)), max_size=25),
    cuts=st.sets(st.integers(1, 20)),
    restart=st.booleans(),
)
def test_delta_star_spells_its_own_log(rows, cuts, restart):
    """The log of delta-star is the consolidated change log of its lifetimes, batch by batch."""
    rows = sorted(rows, key=lambda r: r[1])
    own, covered, changes, last = DeltaStar(K, log=True), DeltaStar(K), Changes(), 0
    for frontier in [*sorted(cuts), 30]:
        now = [r for r in rows if last < r[1] <= frontier]
        key, ts, size = (np.array([r[i] for r in now], np.int64) for i in range(3))
        new = Elements.positive(ts, ts + size, {"k": pa.array(key, pa.int64())})
        log = changes.advance([covered.advance([new], frontier)], frontier)
        got = own.advance([new], frontier)
        assert seen(got) == seen(log)
        if restart:
            state, own = own.state(), DeltaStar(K, log=True)
            own.restore(state, frontier)
        last = frontier


def seen(log):
    return sorted(zip(log.ts.tolist(), log.sign.tolist(), log.columns["k"].to_pylist(), strict=True))
