"""Searching sorted hashes: ranges of equals, ranges within a band, and what to do with a range.

Needles and haystack are sorted arrays of 64-bit codes. A range is where a needle's equals begin in the haystack and how
many there are; `expand` spells ranges out as indices. Cost: O(log n) a needle, less when needles are dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numba import njit

from windrow.operators.elements import Int64s


def parts(count: Int64s, limit: int) -> list[tuple[int, int]]:
    """Cut needles with so many candidates each into pieces of at most `limit` candidates.

    >>> parts(np.array([3, 3, 9, 1]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    total = int(count.sum())
    if total <= limit:
        return [(0, len(count))] if total else []
    ends = np.cumsum(count)
    cuts = [0]
    while cuts[-1] < len(count):
        done = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(int(np.searchsorted(ends, done + limit, side="right")), cuts[-1] + 1))
    return list(pairwise(cuts))


@njit(cache=True)
def ranges(needles, haystack):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """For each of the sorted needles, where its equals begin in the sorted haystack and how many there are; gallops."""
    low = np.zeros(len(needles), np.int64)
    count = np.zeros(len(needles), np.int64)
    at, n = 0, len(haystack)
    first = last = 0
    for i in range(len(needles)):
        x = needles[i]
        if i == 0 or x != needles[i - 1]:
            step = 1
            while at + step < n and haystack[at + step] < x:
                step *= 2
            left, right = at + step // 2, min(at + step, n)
            if at < n and haystack[at] >= x:
                left = right = at
            while left < right:
                middle = (left + right) // 2
                if haystack[middle] < x:
                    left = middle + 1
                else:
                    right = middle
            first = at = left
            step = 1
            while at + step < n and haystack[at + step] == x:
                step *= 2
            left, right = first, min(at + step, n)
            while left < right:
                middle = (left + right) // 2
                if haystack[middle] <= x:
                    left = middle + 1
                else:
                    right = middle
            last = left
        low[i], count[i] = first, last - first
    return low, count


@njit(cache=True)
def band_ranges(needles, lows, highs, haystack, codes):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """For each needle, where the haystack has its hash and a code in `[low, high]`: two binary searches."""
    low = np.zeros(len(needles), np.int64)
    count = np.zeros(len(needles), np.int64)
    n = len(haystack)
    for i in range(len(needles)):
        if lows[i] > highs[i]:
            continue
        x, bound = needles[i], lows[i]
        left, right = 0, n
        while left < right:
            middle = (left + right) // 2
            if haystack[middle] < x or (haystack[middle] == x and codes[middle] < bound):
                left = middle + 1
            else:
                right = middle
        low[i] = left
        bound, right = highs[i], n
        while left < right:
            middle = (left + right) // 2
            if haystack[middle] < x or (haystack[middle] == x and codes[middle] <= bound):
                left = middle + 1
            else:
                right = middle
        count[i] = left - low[i]
    return low, count


def merge_order(parts: Sequence[Int64s]) -> Int64s:
    """The order that merges one or two sorted arrays, given end to end.

    >>> merge_order([np.array([1, 5]), np.array([3])]).tolist()
    [0, 2, 1]
    """
    if len(parts) == 1:
        return np.arange(len(parts[0]))
    merged: Int64s = _merge_two(parts[0], parts[1])
    return merged


@njit(cache=True)
def _merge_two(a, b):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    order = np.empty(len(a) + len(b), np.int64)
    i = j = 0
    for k in range(len(order)):
        if j >= len(b) or (i < len(a) and a[i] <= b[j]):
            order[k] = i
            i += 1
        else:
            order[k] = len(a) + j
            j += 1
    return order


def expand(low: Int64s, count: Int64s) -> Int64s:
    """`low[i], low[i] + 1, ... (count[i] of them)` for each i, in one array.

    >>> expand(np.array([5, 9]), np.array([2, 1])).tolist()
    [5, 6, 9]
    """
    total = int(count.sum())
    ends = np.cumsum(count)
    return np.arange(total) + np.repeat(low - (ends - count), count)


@njit(cache=True)
def meet_ranges(candidates, needles, rows, elements):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The pairs of needles and the rows in their ranges whose lifetimes meet."""
    which, low, count = candidates
    begins, ends, signs = needles
    other_begins, other_ends, other_signs = elements
    room, at = count.sum(), 0
    left, right, ts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    end, sign = np.empty(room, np.int64), np.empty(room, np.int8)
    for k in range(len(which)):
        i = which[k]
        for place in range(low[k], low[k] + count[k]):
            j = rows[place]
            begin, stop = max(begins[i], other_begins[j]), min(ends[i], other_ends[j])
            if begin < stop:
                left[at], right[at], ts[at], end[at] = i, j, begin, stop
                sign[at] = signs[i] * other_signs[j]
                at += 1
    return left[:at], right[:at], ts[:at], end[:at], sign[:at]
