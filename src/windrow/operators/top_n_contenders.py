"""Which rows of a partition may ever be among its first, compiled: only those have to wait.

A row contends until as many better rows as are shown have come that end no earlier than it. Types: all arrays int64
but where said.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from windrow.operators.elements import INF
from windrow.operators.top_n_kernels import DENSE, ROW_NUMBER

_BEST, _WORST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@njit(cache=True)
def contenders_without_end(slots, codes, held_slots, held_codes, groups, bound):  # pragma: no cover - compiled
    """Which rows have fewer than `bound` strictly better ones before them, given those that wait, if nothing ends.

    Smaller codes are better. Rows are in time; those of equal codes are no better than each other, so this holds
    whatever orders them further.
    """
    worst = np.full(groups, _WORST)  # of the best codes of each group, once these are enough
    best = np.full((groups, bound), _WORST)  # ascending
    keep = np.zeros(len(slots), np.bool_)
    for i in range(-len(held_slots), len(slots)):
        g, code = (slots[i], codes[i]) if i >= 0 else (held_slots[i], held_codes[i])
        if code > worst[g]:
            continue
        if i >= 0:
            keep[i] = True
        at = bound - 1
        while at > 0 and best[g, at - 1] > code:
            best[g, at] = best[g, at - 1]
            at -= 1
        best[g, at] = code
        worst[g] = best[g, bound - 1]
    return keep


@njit(cache=True)
def contenders(rows, bounds, codes, ts, exp, held, bound):  # pragma: no cover - compiled
    """Which rows have fewer than `bound` strictly better ones at some instant, or may once; the first `held` all do.

    Partition g has the rows `rows[bounds[g]..bounds[g + 1]]`, those that wait first, then the others in time. Smaller
    codes are better; rows of equal codes are no better than each other, so this holds whatever orders them further.
    A row is forgotten once `bound` better ones live as long as it does. What is left is walked for each row.
    """
    keep = np.zeros(len(codes), np.bool_)
    row, worse = np.empty(64, np.int64), np.empty(64, np.int64)  # in the order of codes; how many outdo each
    for g in range(len(bounds) - 1):
        n, next_end = 0, INF
        for at in range(bounds[g], bounds[g + 1]):
            r = rows[at]
            code, end = codes[r], exp[r]
            while r >= held and next_end <= ts[r]:  # some leave: others may be among the first from then on
                n, next_end = _left(row, worse, n, exp, next_end)
                _mark_first(row, n, codes, keep, bound)
            if r >= held and n >= bound and code > codes[row[bound - 1]] and next_end >= end:
                continue  # all of these live as long as it does
            place = n
            while place > 0 and codes[row[place - 1]] > code:  # behind its equals
                place -= 1
            first = place
            while first > 0 and codes[row[first - 1]] == code:
                first -= 1
            outdone = 0
            for i in range(first):
                outdone += exp[row[i]] >= end
            keep[r] = r < held or first < bound
            if outdone < bound:
                if n + 1 >= len(row):
                    row, worse = np.append(row, row), np.append(worse, worse)  # as much room again
                for i in range(n, place, -1):
                    row[i], worse[i] = row[i - 1], worse[i - 1]
                row[place], worse[place] = r, outdone
                n += 1
                next_end = min(next_end, end)
                left = place + 1
                for i in range(place + 1, n):
                    count = worse[i] + (exp[row[i]] <= end)
                    if count < bound:
                        row[left], worse[left] = row[i], count
                        left += 1
                n = left
        for i in range(n):
            keep[row[i]] = True
    return keep


@njit(cache=True)
def _left(row, worse, n, exp, now):  # pragma: no cover - compiled
    """Take out the rows that have ended: how many are left, and when the next one ends."""
    left, next_end = 0, INF
    for i in range(n):
        if exp[row[i]] > now:
            row[left], worse[left] = row[i], worse[i]
            next_end = min(next_end, exp[row[i]])
            left += 1
    return left, next_end


@njit(cache=True)
def _mark_first(row, n, codes, keep, bound):  # pragma: no cover - compiled
    """Note the rows that fewer than `bound` are better than."""
    better = 0
    for i in range(n):
        if i > 0 and codes[row[i]] != codes[row[i - 1]]:
            better = i
        if better >= bound:
            return
        keep[row[i]] = True


@njit(cache=True)
def skyband(part, peers, exp, alive, bound, kind):  # pragma: no cover - compiled
    """Which rows, in the order of rank, may still be among the first `bound`: fewer better ones outlive them.

    Better ones are all before (ROW_NUMBER), those of better peers (RANK), or these groups of peers (DENSE).
    """
    keep = np.zeros(len(part), np.bool_)
    longest = np.empty(bound, np.int64)  # a heap of the latest ends among better ones, the least on top
    held, at, n = 0, 0, len(part)
    while at < n:
        if at == 0 or part[at] != part[at - 1]:
            held = 0
        stop = at + 1
        if kind != ROW_NUMBER:
            while stop < n and peers[stop] == peers[at]:
                stop += 1
        best = _BEST
        for i in range(at, stop):
            if alive[i]:
                keep[i] = held < bound or longest[0] < exp[i]
                best = max(best, exp[i])
        for i in range(at, stop):
            if not alive[i] or (kind == DENSE and exp[i] != best):
                continue
            if held < bound:
                longest[held] = exp[i]
                k = held
                held += 1
                while k > 0 and longest[(k - 1) >> 1] > longest[k]:
                    longest[(k - 1) >> 1], longest[k] = longest[k], longest[(k - 1) >> 1]
                    k = (k - 1) >> 1
            elif longest[0] < exp[i]:
                longest[0] = exp[i]
                k = 0
                while True:
                    child = 2 * k + 1
                    if child >= bound:
                        break
                    if child + 1 < bound and longest[child + 1] < longest[child]:
                        child += 1
                    if longest[child] >= longest[k]:
                        break
                    longest[child], longest[k] = longest[k], longest[child]
                    k = child
            if kind == DENSE:
                break
        at = stop
    return keep
