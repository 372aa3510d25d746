"""Sorting by digits."""

from __future__ import annotations

import numpy as np
import pytest

from windrow.operators.radix import stable_order, stable_places

LIMITS = np.iinfo(np.int64)


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
@pytest.mark.parametrize(
    ("low", "high"), [(7, 8), (-3, 4), (0, 5000), (10**15, 10**15 + 10**6), (LIMITS.min, LIMITS.max)]
)
def test_the_permutation_that_comparing_gives(size, low, high):
    """Whatever the range, equal keys in their order, over arrays with gaps too."""
    keys = np.random.default_rng(size).integers(low, high, 2 * size, endpoint=high == LIMITS.max)
    keys[: size // 4] = high if high == LIMITS.max else high - 1
    keys[size // 4 : size // 3] = low
    for given in (keys[:size], keys[::2]):
        assert stable_order(given).tolist() == np.argsort(given, kind="stable").tolist()
        assert given[stable_order(given)].tolist() == moved(given, stable_places(given))


def moved(keys, places):
    """The keys where they go."""
    there = np.empty_like(keys)
    there[places] = keys
    return there.tolist()
