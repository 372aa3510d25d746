"""Sorting integers by their digits: the permutation that comparing would give, in a few passes.

Times and order codes are integers of which the upper bits are mostly the same: less the smallest, they have few digits
of 11 bits. A pass per digit, the lowest first, moves each key once. Cost: n per digit; long keys and short arrays are
left to NumPy, which compares.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from windrow.operators.elements import Int64s

_DIGIT = 11
_FEW = 2048
"""So few keys are compared."""


def stable_order(keys: Int64s) -> Int64s:
    """The permutation that sorts integers, equal ones in their order.

    >>> stable_order(np.array([3, 1, 3, 2])).tolist()
    [1, 3, 0, 2]
    """
    if len(keys) < _FEW:
        return np.argsort(keys, kind="stable")
    low = int(keys.min())
    bits = (int(keys.max()) - low).bit_length()
    return np.asarray(_by_digits(keys, low, max(bits, 1)))


@njit(cache=True)
def _by_digits(keys, low, bits):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    passes = (bits + _DIGIT - 1) // _DIGIT
    width = (bits + passes - 1) // passes
    mask = np.uint64((1 << width) - 1)
    places = np.zeros((passes, 1 << width), np.int64)
    key, order = np.empty(len(keys), np.uint64), np.arange(len(keys))
    for i in range(len(keys)):
        key[i] = np.uint64(keys[i]) - np.uint64(low)
        for p in range(passes):
            places[p, (key[i] >> np.uint64(p * width)) & mask] += 1
    next_key, next_order = np.empty_like(key), np.empty_like(order)
    for p in range(passes):
        shift, place, sum_ = np.uint64(p * width), places[p], 0
        for digit in range(len(place)):
            sum_, place[digit] = sum_ + place[digit], sum_
        for i in range(len(keys)):
            digit = (key[i] >> shift) & mask
            at = place[digit]
            place[digit] = at + 1
            next_key[at], next_order[at] = key[i], order[i]
        key, next_key, order, next_order = next_key, key, next_order, order
    return order
