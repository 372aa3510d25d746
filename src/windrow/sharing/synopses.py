"""Synopses: pre-aggregated intervals of a window, from which windows of many lengths are answered (thesis 2.3.4).

An interval ends at an edge of some window; there are b of them in the longest. Which synopsis answers depends on the
function and on how many queries read together:

    running          f over everything up to each edge; a window is one subtraction       COUNT, SUM, AVG, VARIANCE
    interval         dyadic: b intervals, b/2 pairs of them, ..., one of all: 2b - 1 in all;
                     a window is at most 2 log b of them                                   MIN, MAX
    basic interval   the b short ones only; a window of n merges n, and on the way from the youngest to the
                     oldest every shorter window of the same instant is answered           MIN, MAX, and counters

A basic interval synopsis reads b intervals for all queries that run together, an interval synopsis log b for each: the
basic one is cheaper from b / log b queries on (8.3.1). AVG reads sums and counts. Functions of all values (DISTINCT,
MEDIAN, QUANTILE, TOP_K) need counters of values in every interval, which a running synopsis would never forget.

Over joins the same three are kept by the time at which results expire (`joins/`).

Here are the structures over the entries of one synopsis, in the order of edges; requests are places `[low, high)`.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import log2

import numpy as np
from numba import njit

from windrow.operators.aggregates.call import EXTREMES, LINEAR, Aggregation
from windrow.operators.aggregates.vectors import Bools, Int64s

FEW_EACH = 16
"""Intervals of a request, on average, up to which each reads its own: to find who could read together takes longer."""


class SynopsisKind(Enum):
    """The synopses by name."""

    RUNNING = "running"
    INTERVAL = "interval"
    BASIC_INTERVAL = "basic interval"
    RUNNING_JOIN = "running join"
    INTERVAL_JOIN = "interval join"
    BASIC_INTERVAL_JOIN = "basic interval join"


def kind_of(calls: Sequence[Aggregation], intervals: float, together: float) -> SynopsisKind:
    """The synopsis that answers some aggregates over `intervals` intervals, of which `together` queries run together.

    >>> peak = Aggregation("max", "x", "m", None)
    >>> [kind_of([peak], 32, q).value for q in (1, 6, 7)]
    ['interval', 'interval', 'basic interval']
    """
    counted = [c for c in calls if c.column is not None and (c.kind not in EXTREMES | LINEAR or c.collapses)]
    if counted:
        return SynopsisKind.BASIC_INTERVAL
    if any(c.kind in EXTREMES for c in calls):
        dyadic = intervals > 2 and together * log2(intervals) < intervals
        return SynopsisKind.INTERVAL if dyadic else SynopsisKind.BASIC_INTERVAL
    return SynopsisKind.RUNNING


class Interval:
    """The greatest codes of dyadic intervals of entries: a request reads at most 2 log b of them."""

    def __init__(self, codes: Int64s, filled: Bools) -> None:
        self._size = 1 << max(0, (len(codes) - 1).bit_length())
        self._codes, self._filled = _dyadic(codes, filled, self._size)

    def between(self, low: Int64s, high: Int64s) -> tuple[Int64s, Bools]:
        """The greatest code of every request, and whether there is any."""
        return _dyadic_best(low, high, self._codes, self._filled, self._size)


class BasicInterval:
    """The greatest codes of the entries themselves: requests with one end are answered in one scan, youngest first."""

    def __init__(self, codes: Int64s, filled: Bools) -> None:
        self._codes, self._filled = codes, filled

    def between(self, low: Int64s, high: Int64s) -> tuple[Int64s, Bools]:
        """The greatest code of every request, and whether there is any."""
        return _scanned_best(np.lexsort((-low, high)), low, high, self._codes, self._filled)


def best_between(low: Int64s, high: Int64s, codes: Int64s, filled: Bools) -> tuple[Int64s, Bools]:
    """The greatest codes of requests from the synopsis that reads fewer intervals for all of them together.

    >>> codes, some = best_between(np.array([0, 1]), np.array([2, 3]), np.array([5, 7, 1]), np.ones(3, np.bool_))
    >>> codes.tolist(), some.tolist()
    ([7, 7], [True, True])
    """
    lengths = np.maximum(high - low, 0)
    if lengths.sum() <= FEW_EACH * len(low):
        return _read_best(low, high, codes, filled)
    joint = np.full(len(codes) + 1, 0, np.int64)
    np.maximum.at(joint, high, lengths)
    dyadic = 2 * len(codes) + float((2 * np.log2(lengths + 1.0)).sum())
    kind = Interval if dyadic < joint.sum() else BasicInterval
    return kind(codes, filled).between(low, high)


@njit(cache=True)
def _read_best(low, high, codes, filled):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    best, some = np.zeros(len(low), np.int64), np.zeros(len(low), np.bool_)
    for q in range(len(low)):
        for at in range(low[q], high[q]):
            if filled[at] and (not some[q] or codes[at] > best[q]):
                best[q], some[q] = codes[at], True
    return best, some


@njit(cache=True)
def _dyadic(codes, filled, size):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """A heap: node i is the best of nodes 2i and 2i + 1; leaf k is node `size + k`."""
    best, some = np.zeros(2 * size, np.int64), np.zeros(2 * size, np.bool_)
    best[size : size + len(codes)] = codes
    some[size : size + len(codes)] = filled
    for i in range(size - 1, 0, -1):
        left, right = 2 * i, 2 * i + 1
        some[i] = some[left] or some[right]
        if some[left] and (not some[right] or best[left] > best[right]):
            best[i] = best[left]
        else:
            best[i] = best[right]
    return best, some


@njit(cache=True)
def _dyadic_best(low, high, codes, filled, size):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    best, some = np.zeros(len(low), np.int64), np.zeros(len(low), np.bool_)
    for q in range(len(low)):
        a, b = low[q] + size, high[q] + size
        while a < b:
            if a & 1:
                if filled[a] and (not some[q] or codes[a] > best[q]):
                    best[q], some[q] = codes[a], True
                a += 1
            if b & 1:
                b -= 1
                if filled[b] and (not some[q] or codes[b] > best[q]):
                    best[q], some[q] = codes[b], True
            a, b = a >> 1, b >> 1
    return best, some


@njit(cache=True)
def _scanned_best(order, low, high, codes, filled):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Requests by their end, shorter ones first: each goes on where the one before it stopped."""
    best, some = np.zeros(len(low), np.int64), np.zeros(len(low), np.bool_)
    end, at, top, found = -1, 0, np.int64(0), False
    for q in order:
        if high[q] != end:
            end, at, top, found = high[q], high[q], np.int64(0), False
        while at > low[q]:
            at -= 1
            if filled[at] and (not found or codes[at] > top):
                top, found = codes[at], True
        best[q], some[q] = top, found
    return best, some
