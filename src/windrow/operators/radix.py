"""Sorting integers by their digits: the permutation that comparing would give, in a few passes.

Times and order codes are integers of which the upper bits are mostly the same: less the smallest, they have few digits
of 11 bits. A pass per digit, the lowest first, moves each key once. Cost: n per digit; long keys and short arrays are
left to NumPy, which compares.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from windrow.operators.elements import Int64s
from windrow.operators.scatter import inverse

_DIGIT, _WIDE = 11, 14
"""Bits of a digit; of the only one, if there are as many keys as it has values."""
_FEW = 2048
"""So few keys are compared."""


def stable_order(keys: Int64s) -> Int64s:
    """The permutation that sorts integers, equal ones in their order.

    >>> stable_order(np.array([3, 1, 3, 2])).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(keys, kind="stable") if len(keys) < _FEW else _sorted(keys, False)


def stable_places(keys: Int64s) -> Int64s:
    """Where each integer goes when they are sorted, equal ones in their order: the inverse of `stable_order`.

    >>> stable_places(np.array([3, 1, 3, 2])).tolist()
    [2, 0, 3, 1]
    """
    return inverse(np.argsort(keys, kind="stable")) if len(keys) < _FEW else _sorted(keys, True)


def _sorted(keys: Int64s, places: bool) -> Int64s:
    low = int(keys.min())
    bits = max(1, (int(keys.max()) - low).bit_length())
    passes = 1 if bits <= min(_WIDE, len(keys).bit_length()) else -(-bits // _DIGIT)
    return np.asarray(_by_digits(keys, low, passes, -(-bits // passes), places))


@njit(cache=True)
def _by_digits(keys, low, passes, width, inverse):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    mask = np.uint64((1 << width) - 1)
    starts = np.zeros((passes, 1 << width), np.int64)
    key, order = np.empty(len(keys), np.uint64), np.arange(len(keys))
    for i in range(len(keys)):
        key[i] = np.uint64(keys[i]) - np.uint64(low)
        for p in range(passes):
            starts[p, (key[i] >> np.uint64(p * width)) & mask] += 1
    next_key, next_order = np.empty_like(key), np.empty_like(order)
    for p in range(passes):
        shift, start, sum_ = np.uint64(p * width), starts[p], 0
        for digit in range(len(start)):
            sum_, start[digit] = sum_ + start[digit], sum_
        if p == passes - 1:
            for i in range(len(keys)):
                digit = (key[i] >> shift) & mask
                at = start[digit]
                start[digit] = at + 1
                if inverse:
                    next_order[order[i]] = at
                else:
                    next_order[at] = order[i]
            return next_order
        for i in range(len(keys)):
            digit = (key[i] >> shift) & mask
            at = start[digit]
            start[digit] = at + 1
            next_key[at], next_order[at] = key[i], order[i]
        key, next_key, order, next_order = next_key, key, next_order, order
    return order
