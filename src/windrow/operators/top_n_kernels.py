"""Following the first rows of a partition through its events, compiled.

Places are numbered in the order of rank; a class of equal rows has one place with a count. A bitmap of the places with
a count, and a bitmap of its words, find the next one alive wherever it is. After each instant that touches the first
rows, they are walked and compared with those before. Types: all arrays int64 but where said.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from windrow.operators.elements import INF

ROW_NUMBER, RANK, DENSE = 0, 1, 2
_SENT = np.iinfo(np.int64).min


@njit(cache=True)
def _lowest(word):  # pragma: no cover - compiled
    """The number of the lowest bit of a word that has one."""
    n = 0
    if word & np.uint64(0xFFFFFFFF) == 0:
        n, word = n + 32, word >> np.uint64(32)
    if word & np.uint64(0xFFFF) == 0:
        n, word = n + 16, word >> np.uint64(16)
    if word & np.uint64(0xFF) == 0:
        n, word = n + 8, word >> np.uint64(8)
    if word & np.uint64(0xF) == 0:
        n, word = n + 4, word >> np.uint64(4)
    if word & np.uint64(0x3) == 0:
        n, word = n + 2, word >> np.uint64(2)
    if word & np.uint64(0x1) == 0:
        n += 1
    return n


@njit(cache=True)
def _next(words, above, place, size):  # pragma: no cover - compiled
    """The first place at or after `place` that is set; `size` if there is none."""
    if place >= size:
        return size
    at = place >> 6
    word = words[at] >> np.uint64(place & 63)
    if word != 0:
        return place + _lowest(word)
    at += 1
    if at >= len(words):
        return size
    top = at >> 6
    word = above[top] >> np.uint64(at & 63)
    if word == 0:
        top += 1
        while top < len(above) and above[top] == 0:
            top += 1
        if top == len(above):
            return size
        at = (top << 6) + _lowest(above[top])
    else:
        at += _lowest(word)
    return (at << 6) + _lowest(words[at])


@njit(cache=True)
def _mark(words, above, place, alive):  # pragma: no cover - compiled
    at = place >> 6
    bit = np.uint64(1) << np.uint64(place & 63)
    up = np.uint64(1) << np.uint64(at & 63)
    if alive:
        words[at] |= bit
        above[at >> 6] |= up
    else:
        words[at] &= ~bit
        if words[at] == 0:
            above[at >> 6] &= ~up


@njit(cache=True)
def _more(array):  # pragma: no cover - compiled
    grown = np.empty(2 * len(array), array.dtype)
    grown[: len(array)] = array
    return grown


@njit(cache=True)
def _walk(
    words, above, size, base, count, peers, limit, offset, kind, place, copy, rank
):  # pragma: no cover - compiled
    """The first rows as (place, copy, rank): how many, whether nothing behind them counts, and the last place seen."""
    bound = limit + offset
    n, seen, groups, p, last_peers, before = 0, 0, 0, _next(words, above, 0, size), -1, 0
    last = -1
    while p < size:
        if peers[base + p] != last_peers:
            last_peers, before = peers[base + p], seen
            groups += 1
        if (
            (kind == ROW_NUMBER and seen >= bound)
            or (kind == RANK and before >= bound)
            or (kind == DENSE and groups > bound)
        ):
            return n, True, last, place, copy, rank
        for k in range(count[base + p]):
            r = seen + 1 if kind == ROW_NUMBER else before + 1 if kind == RANK else groups
            seen += 1
            if r > bound:
                break
            if r > offset:
                if n == len(place):
                    place, copy, rank = _more(place), _more(copy), _more(rank)
                place[n], copy[n], rank[n] = p, k, r
                n += 1
        last = p
        p = _next(words, above, p + 1, size)
    full = seen >= bound if kind != DENSE else False
    return n, full, last, place, copy, rank


@njit(cache=True)
def follow(
    begins, events, which, time, delta, start, peers, limit, offset, kind, ranked
):  # pragma: no cover - compiled
    """What is shown, from when to when: arrays (class, begin, end, sign, rank).

    Partition g has the classes `begins[g]..begins[g + 1]`, counts `start` before the first event, and the events
    `events[g]..events[g + 1]` in time: `delta` rows of class `which` at `time`.
    """
    size = 1024
    shown, begin, end, rank_out = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    signs = np.empty(size, np.int8)
    out = 0
    count = start.copy()
    place, copy, rank = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    old_place, old_copy, old_rank = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    since, old_since = np.empty(64, np.int64), np.empty(64, np.int64)
    for g in range(len(begins) - 1):
        base, places = begins[g], begins[g + 1] - begins[g]
        words = np.zeros((places + 63) >> 6, np.uint64)
        above = np.zeros((len(words) + 63) >> 6, np.uint64)
        for p in range(places):
            if count[base + p] > 0:
                _mark(words, above, p, True)
        n, full, last, place, copy, rank = _walk(
            words, above, places, base, count, peers, limit, offset, kind, place, copy, rank
        )
        if len(since) < len(place):
            since = np.empty(len(place), np.int64)
        for i in range(n):
            since[i] = _SENT
        e = events[g]
        while e < events[g + 1]:
            now, touches = time[e], False
            while e < events[g + 1] and time[e] == now:
                c = which[e]
                p = c - base
                was = count[c]
                count[c] += delta[e]
                if (was > 0) != (count[c] > 0):
                    _mark(words, above, p, count[c] > 0)
                touches |= not full or p <= last or (kind != ROW_NUMBER and peers[c] <= peers[base + last])
                e += 1
            if not touches:
                continue
            old_place, place = place, old_place
            old_copy, copy = copy, old_copy
            old_rank, rank = rank, old_rank
            old_since, since = since, old_since
            old_n = n
            n, full, last, place, copy, rank = _walk(
                words, above, places, base, count, peers, limit, offset, kind, place, copy, rank
            )
            if len(since) < len(place):
                since = np.empty(len(place), np.int64)
            # both are in the order of (place, copy)
            i = j = 0
            while i < old_n or j < n:
                if (
                    i < old_n
                    and j < n
                    and old_place[i] == place[j]
                    and old_copy[i] == copy[j]
                    and (not ranked or old_rank[i] == rank[j])
                ):
                    since[j] = old_since[i]
                    i, j = i + 1, j + 1
                    continue
                goes = i < old_n and (
                    j == n or old_place[i] < place[j] or (old_place[i] == place[j] and old_copy[i] <= copy[j])
                )
                if not goes:
                    since[j] = now
                    j += 1
                    continue
                if out == len(shown):
                    shown, begin, end, rank_out, signs = (
                        _more(shown),
                        _more(begin),
                        _more(end),
                        _more(rank_out),
                        _more(signs),
                    )
                shown[out], rank_out[out] = base + old_place[i], old_rank[i]
                if old_since[i] == _SENT:
                    begin[out], end[out], signs[out] = now, INF, -1
                else:
                    begin[out], end[out], signs[out] = old_since[i], now, 1
                out += 1
                i += 1
        for i in range(n):
            if since[i] != _SENT:
                if out == len(shown):
                    shown, begin, end, rank_out, signs = (
                        _more(shown),
                        _more(begin),
                        _more(end),
                        _more(rank_out),
                        _more(signs),
                    )
                shown[out], rank_out[out] = base + place[i], rank[i]
                begin[out], end[out], signs[out] = since[i], INF, 1
                out += 1
    return shown[:out], begin[:out], end[:out], signs[:out], rank_out[:out]


@njit(cache=True)
def contenders(rows, bounds, codes, ts, exp, held, bound):  # pragma: no cover - compiled
    """Which rows have fewer than `bound` strictly better ones at some instant, or may once; the first `held` all do.

    Partition g has the rows `rows[bounds[g]..bounds[g + 1]]`, those that wait first, then the others in time. Smaller
    codes are better; rows of equal codes are no better than each other, so this holds whatever orders them further.
    A row is forgotten once `bound` better ones live as long as it does. What is left is walked for each row.
    """
    keep = np.zeros(len(codes), np.bool_)
    size = 64
    row, worse = np.empty(size, np.int64), np.empty(size, np.int64)  # in the order of codes; how many outdo each
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
                    row, worse = _more(row), _more(worse)
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
        best = _SENT
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
