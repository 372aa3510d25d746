"""Following the first rows of a partition through its events, compiled.

Places are numbered in the order of rank; a class of equal rows has one place with a count. A bitmap of the places with
a count, and a bitmap of its words, find the next one alive wherever it is. After each instant that touches the first
rows, they are compared with those before. Types: all arrays int64 but where said.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

ROW_NUMBER, RANK, DENSE = 0, 1, 2
PLACE, COPY, ORDINAL = 0, 1, 2
"""What is known of a row that is shown: its place, which of its equals it is, and its rank."""


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
def _bitmap(count, base, size):  # pragma: no cover - compiled
    """The places of a partition that have a count, and which words of them are not empty."""
    words = np.zeros((size + 63) >> 6, np.uint64)
    above = np.zeros((len(words) + 63) >> 6, np.uint64)
    for place in range(size):
        if count[base + place] > 0:
            _mark(words, above, place, True)
    return words, above


@njit(cache=True)
def _with_room(log, length):  # pragma: no cover - compiled
    """The log, or a longer one with the same rows."""
    if length <= len(log):
        return log
    grown = np.empty((max(length, 2 * len(log)), log.shape[1]), log.dtype)
    grown[: len(log)] = log
    return grown


@njit(cache=True)
def _most_shown(begins, events, delta, start, limit, kind):  # pragma: no cover - compiled
    """How many rows of a partition are shown at most."""
    most = 1
    for g in range(len(begins) - 1):
        rows = 0
        for c in range(begins[g], begins[g + 1]):
            rows += max(start[c], 0)
        for e in range(events[g], events[g + 1]):
            rows += delta[e] > 0
        most = max(most, min(rows, limit) if kind == ROW_NUMBER else rows)
    return most


@njit(cache=True)
def _walk(words, above, size, base, count, peers, limit, offset, kind, shown):  # pragma: no cover - compiled
    """Write the first rows: how many they are, whether nothing behind them counts, and the last place seen."""
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
            return n, True, last
        for k in range(count[base + p]):
            r = seen + 1 if kind == ROW_NUMBER else before + 1 if kind == RANK else groups
            seen += 1
            if r > bound:
                break
            if r > offset:
                shown[n, PLACE], shown[n, COPY], shown[n, ORDINAL] = p, k, r
                n += 1
        last = p
        p = _next(words, above, p + 1, size)
    return n, seen >= bound if kind != DENSE else False, last


@njit(cache=True)
def _tell(log, told, base, row, now, sign):  # pragma: no cover - compiled
    log[told, 0], log[told, 1], log[told, 2], log[told, 3] = base + row[PLACE], now, sign, row[ORDINAL]
    return told + 1


@njit(cache=True)
def _compare(old, old_n, new, n, base, now, ranked, log, told):  # pragma: no cover - compiled
    """Tell what is in one list of the first rows and not in the other; both are in the order of (place, copy)."""
    i = j = 0
    while i < old_n or j < n:
        if i == old_n:
            order = 1
        elif j == n:
            order = -1
        else:
            order = old[i, PLACE] - new[j, PLACE]
            if order == 0:
                order = old[i, COPY] - new[j, COPY]
        if order == 0 and (not ranked or old[i, ORDINAL] == new[j, ORDINAL]):
            i, j = i + 1, j + 1
            continue
        if order <= 0:
            told = _tell(log, told, base, old[i], now, -1)
            i += 1
        if order >= 0:
            told = _tell(log, told, base, new[j], now, 1)
            j += 1
    return told


@njit(cache=True)
def _insert(shown, at, place):  # pragma: no cover - compiled
    """Put a row in, at a position before which all are as good or better."""
    shown[at, PLACE], shown[at, ORDINAL] = place, 0
    shown[at, COPY] = shown[at - 1, COPY] + 1 if at > 0 and shown[at - 1, PLACE] == place else 0


@njit(cache=True)
def _enter(shown, n, limit, place, base, now, log, told):  # pragma: no cover - compiled
    """One row comes: how many are shown, and how much is told."""
    if n == limit:
        if place >= shown[n - 1, PLACE]:
            return n, told
        n -= 1
        told = _tell(log, told, base, shown[n], now, -1)
    at = n
    while at > 0 and shown[at - 1, PLACE] > place:
        shown[at, PLACE], shown[at, COPY] = shown[at - 1, PLACE], shown[at - 1, COPY]
        at -= 1
    _insert(shown, at, place)
    return n + 1, _tell(log, told, base, shown[at], now, 1)


@njit(cache=True)
def _leave(shown, n, limit, place, words, above, size, count, base, now, log, told):  # pragma: no cover - compiled
    """One row goes, and the next one, if there is one, comes in for it."""
    at = n - 1
    while at >= 0 and shown[at, PLACE] > place:
        at -= 1
    if at < 0 or shown[at, PLACE] != place or shown[at, COPY] < count[base + place]:
        return n, told  # none of those that are shown
    told = _tell(log, told, base, shown[at], now, -1)
    for i in range(at + 1, n):
        shown[i - 1, PLACE], shown[i - 1, COPY] = shown[i, PLACE], shown[i, COPY]
    n -= 1
    if n + 1 < limit:
        return n, told  # all that are alive are shown
    last = shown[n - 1, PLACE] if n else -1
    more = n > 0 and count[base + last] > shown[n - 1, COPY] + 1
    following = last if more else _next(words, above, last + 1, size)
    if following == size:
        return n, told
    _insert(shown, n, following)
    return n + 1, _tell(log, told, base, shown[n], now, 1)


@njit(cache=True)
def follow(
    begins, events, which, time, delta, start, peers, limit, offset, kind, ranked
):  # pragma: no cover - compiled
    """What comes into sight and goes out of it: rows (class, time, sign, rank) of a log, by partition and time.

    Partition g has the classes `begins[g]..begins[g + 1]`, counts `start` before the first event, and the events
    `events[g]..events[g + 1]` in time: `delta` rows of class `which` at `time`. The first rows are walked anew at each
    instant that touches them, but where ranks are not told and one row comes or goes, which moves none of the others.
    """
    room = _most_shown(begins, events, delta, start, limit, kind)
    shown, other = np.empty((room, 3), np.int64), np.empty((room, 3), np.int64)
    log, told = np.empty((1024, 4), np.int64), 0
    count, by_one = start.copy(), kind == ROW_NUMBER and offset == 0 and limit > 0 and not ranked
    for g in range(len(begins) - 1):
        base, size = begins[g], begins[g + 1] - begins[g]
        words, above = _bitmap(count, base, size)
        n, full, last = _walk(words, above, size, base, count, peers, limit, offset, kind, shown)
        e = events[g]
        while e < events[g + 1]:
            first, now, touches = e, time[e], False
            while e < events[g + 1] and time[e] == now:
                c = which[e]
                was = count[c]
                count[c] += delta[e]
                if (was > 0) != (count[c] > 0):
                    _mark(words, above, c - base, count[c] > 0)
                touches |= not full or c - base <= last or (kind != ROW_NUMBER and peers[c] <= peers[base + last])
                e += 1
            if not touches:
                continue
            if by_one and e == first + 1:
                p, log = which[first] - base, _with_room(log, told + 2)
                if delta[first] > 0:
                    n, told = _enter(shown, n, limit, p, base, now, log, told)
                else:
                    n, told = _leave(shown, n, limit, p, words, above, size, count, base, now, log, told)
                full, last = n == limit, shown[n - 1, PLACE] if n else -1
                continue
            shown, other, old_n = other, shown, n
            n, full, last = _walk(words, above, size, base, count, peers, limit, offset, kind, shown)
            log = _with_room(log, told + old_n + n)
            told = _compare(other, old_n, shown, n, base, now, ranked, log, told)
    return log[:told]
