"""Compiled loops over basic windows: counting, cutting to the most frequent, and moving the window over them.

Slices of one group lie side by side: `firsts[g]:firsts[g + 1]`. A slice is in the window from instant number `come` to
just before instant number `go`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def count_slices(first, code, codes):  # pragma: no cover - compiled
    """The codes of every stretch of rows `first[s]:first[s + 1]` with their counts; negative codes count nothing.

    O(1) per row: a code's place is remembered with the stretch it was last seen in.
    """
    seen, place = np.full(codes, -1, np.int64), np.empty(codes, np.int64)
    begin = np.zeros(len(first), np.int64)
    found, count = np.empty(len(code), np.int64), np.zeros(len(code), np.int64)
    n = 0
    for s in range(len(first) - 1):
        for row in range(first[s], first[s + 1]):
            c = code[row]
            if c < 0:
                continue
            if seen[c] != s:
                seen[c], place[c], found[n] = s, n, c
                n += 1
            count[place[c]] += 1
        begin[s + 1] = n
    return begin, found[:n].copy(), count[:n].copy()


@njit(cache=True)
def _worse(a, b, count, code):  # pragma: no cover - compiled
    return count[a] < count[b] or (count[a] == count[b] and code[a] > code[b])


@njit(cache=True)
def _sift(heap, at, size, count, code):  # pragma: no cover - compiled
    """Let a node of a heap, whose worst is at the root, sink to its place."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _worse(heap[child + 1], heap[child], count, code):
            child += 1
        if not _worse(heap[child], heap[at], count, code):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@njit(cache=True)
def cut(first, code, count, k):  # pragma: no cover - compiled
    """The k pairs of each slice that have the greatest counts, best first, of equal ones those with smaller codes.

    Returns their places, where each slice's begin, and the count of the k-th: 0 where nothing was left out.
    """
    slices = len(first) - 1
    begin, least = np.zeros(slices + 1, np.int64), np.zeros(slices, np.int64)
    for s in range(slices):
        begin[s + 1] = begin[s] + min(k, first[s + 1] - first[s])
    kept = np.empty(begin[-1], np.int64)
    for s in range(slices):
        size = begin[s + 1] - begin[s]
        heap = kept[begin[s] : begin[s + 1]]
        for i in range(size):
            heap[i] = first[s] + i
        for i in range(size // 2 - 1, -1, -1):
            _sift(heap, i, size, count, code)
        for p in range(first[s] + size, first[s + 1]):
            if _worse(heap[0], p, count, code):
                heap[0] = p
                _sift(heap, 0, size, count, code)
        if first[s + 1] - first[s] > k:
            least[s] = count[heap[0]]
        for last in range(size - 1, 0, -1):
            heap[0], heap[last] = heap[last], heap[0]
            _sift(heap, 0, last, count, code)
    return kept, begin, least


@njit(cache=True)
def contents(firsts, come, going, go, rows, instants, always):  # pragma: no cover - compiled
    """What a group's window holds, as it changes: its versions, and which one each instant shows.

    `come` is in order within a group, `going` lists its slices in the order of `go`. Points are (group, instant) at
    which the window has rows, or all of them (`always`). Returns the versions' first per group, instant and rows, and
    the points' instant, group and version.
    """
    groups, slices = len(firsts) - 1, len(come)
    begin, at, held = np.zeros(groups + 1, np.int64), np.empty(2 * slices + groups, np.int64), \
        np.empty(2 * slices + groups, np.int64)  # fmt: skip
    room = 1024
    instant, group, version = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    v, n = 0, 0
    for g in range(groups):
        a, d, total, fresh = firsts[g], firsts[g], 0, True
        for i in range(instants):
            while a < firsts[g + 1] and come[a] <= i:
                total += rows[a]
                a, fresh = a + 1, True
            while d < firsts[g + 1] and go[going[d]] <= i:
                total -= rows[going[d]]
                d, fresh = d + 1, True
            if fresh:
                at[v], held[v] = i, total
                v, fresh = v + 1, False
            if total > 0 or always:
                if n == room:
                    room *= 2
                    instant, group, version = _roomier(instant, room), _roomier(group, room), _roomier(version, room)
                instant[n], group[n], version[n] = i, g, v - 1
                n += 1
        begin[g + 1] = v
    return begin, at[:v].copy(), held[:v].copy(), instant[:n].copy(), group[:n].copy(), version[:n].copy()


@njit(cache=True)
def _roomier(array, room):  # pragma: no cover - compiled
    out = np.empty(room, array.dtype)
    out[: len(array)] = array
    return out


@njit(cache=True)
def frequent_sweep(
    firsts, come, going, go, versions, at, delta, total, begin, pair, count, pairs, least, share
):  # pragma: no cover - compiled
    """Algorithm 6 for every version of every group: the pairs whose counters are above delta, least and the share.

    Slice s has the summary `begin[s]:begin[s + 1]` of (pair, count). A pair's true count is at least its counter and at
    most that plus the deltas of the slices that lack it. Returns delta and the list of each version, and the lists:
    pair, at least, at most.
    """
    counter, covered = np.zeros(pairs, np.int64), np.zeros(pairs, np.int64)
    live, place, alive = np.empty(pairs, np.int64), np.empty(pairs, np.int64), 0
    deltas, lists = np.zeros(versions[-1], np.int64), np.zeros(versions[-1] + 1, np.int64)
    room = 1024
    which, low, high = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    n = 0
    for g in range(len(firsts) - 1):
        a, d, bound, rows = firsts[g], firsts[g], 0, 0
        for j in range(alive):
            counter[live[j]] = covered[live[j]] = 0
        alive = 0
        for v in range(versions[g], versions[g + 1]):
            while a < firsts[g + 1] and come[a] <= at[v]:
                bound += delta[a]
                rows += total[a]
                for p in range(begin[a], begin[a + 1]):
                    c = pair[p]
                    if counter[c] == 0:
                        live[alive], place[c] = c, alive
                        alive += 1
                    counter[c] += count[p]
                    covered[c] += delta[a]
                a += 1
            while d < firsts[g + 1] and go[going[d]] <= at[v]:
                s = going[d]
                bound -= delta[s]
                rows -= total[s]
                for p in range(begin[s], begin[s + 1]):
                    c = pair[p]
                    counter[c] -= count[p]
                    covered[c] -= delta[s]
                    if counter[c] == 0:
                        alive -= 1
                        live[place[c]] = live[alive]
                        place[live[alive]] = place[c]
                d += 1
            deltas[v] = bound
            for j in range(alive):
                c = live[j]
                if counter[c] > bound and counter[c] > least and counter[c] > share * rows:
                    if n == room:
                        room *= 2
                        which, low, high = _roomier(which, room), _roomier(low, room), _roomier(high, room)
                    which[n], low[n], high[n] = c, counter[c], counter[c] + bound - covered[c]
                    n += 1
            lists[v + 1] = n
    return deltas, lists, which[:n].copy(), low[:n].copy(), high[:n].copy()
