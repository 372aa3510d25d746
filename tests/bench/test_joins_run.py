"""Joins of the experiments have the results that their names promise, by both methods, whenever they are evaluated."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from windrow_bench.joins_run import GeneralJoin, Streams, join_of

STREAMS = Streams([(1, 12, 4), (2, 8, 5), (1, 15, 3)], 160, 3)


def results(orders: object, method: str, step: int, expiration: int) -> Counter[tuple[object, ...]]:
    join = join_of(STREAMS, orders, method, expiration)  # type: ignore[arg-type]
    assert isinstance(join, GeneralJoin) is not isinstance(orders, str)
    found: Counter[tuple[object, ...]] = Counter()
    for begin in range(0, STREAMS.tuples, step):
        made = join.advance(STREAMS.between(begin, begin + step), begin + step - 1)
        columns = [made.columns[name].to_pylist() for name in sorted(made.columns)]
        found.update(zip(made.ts.tolist(), made.exp.tolist(), made.sign.tolist(), *columns, strict=True))
    return found


@pytest.mark.parametrize("method", ["nested", "hash"])
@pytest.mark.parametrize("step", [1, 9, 40])
def test_new_elements_may_come_anywhere(method: str, step: int) -> None:
    """Where new elements stand in an order changes what is looked at, and no result."""
    rng = np.random.default_rng(step)
    want = results("123", method, step, 0)
    assert want
    for _ in range(4):
        orders = [list(permutations(range(3)))[i] for i in rng.integers(0, 6, 3)]
        assert results(orders, method, step, int(rng.integers(0, 30))) == want


@pytest.mark.parametrize("method", ["nested", "hash"])
@pytest.mark.parametrize("step", [1, 9, 40])
def test_without_restore_what_came_and_went_is_lost(method: str, step: int) -> None:
    """Re-evaluation without restore has the results that are there when it happens, and no others."""
    joins = [join_of(STREAMS, "123", method, 0, restore) for restore in (True, False)]
    lost = 0
    for begin in range(0, STREAMS.tuples, step):
        now, new = begin + step - 1, STREAMS.between(begin, begin + step)
        whole, there = (join.advance(new, now) for join in joins)
        rows = [
            Counter(zip(e.exp.tolist(), *(e.columns[n].to_pylist() for n in sorted(e.columns)), strict=True))
            for e in (whole.filter(whole.exp > now), there)
        ]
        assert rows[0] == rows[1]
        lost += len(whole) - len(there)
    assert (lost > 0) == (step > 1)
