"""Compiled loops over chains of entries, each in the order of its edges.

`head[s]` and `tail[s]` are the first and last entry of chain s; `next_` and `before` link them; -1 is none. A cursor
is the last entry that was passed; with -1, the next one is the head.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def append(
    size, slot, edge, lanes, codes, some, head, tail, slots, edges, next_, before, all_lanes, all_codes, all_some
):  # pragma: no cover - compiled
    """Add entries to their chains, where there is one of the same edge to that; the number of entries then."""
    width, bests = lanes.shape[1], codes.shape[1]
    for i in range(len(slot)):
        s, e = slot[i], edge[i]
        if s < 0:
            continue
        at = tail[s]
        while at >= 0 and edges[at] > e:
            at = before[at]
        if at >= 0 and edges[at] == e:
            for w in range(width):
                all_lanes[at, w] += lanes[i, w]
            for b in range(bests):
                if some[i, b] and (not all_some[at, b] or codes[i, b] > all_codes[at, b]):
                    all_codes[at, b], all_some[at, b] = codes[i, b], True
            continue
        new, follows = size, head[s] if at < 0 else next_[at]
        size += 1
        slots[new], edges[new], before[new], next_[new] = s, e, at, follows
        if at < 0:
            head[s] = new
        else:
            next_[at] = new
        if follows < 0:
            tail[s] = new
        else:
            before[follows] = new
        for w in range(width):
            all_lanes[new, w] = lanes[i, w]
        for b in range(bests):
            all_codes[new, b], all_some[new, b] = codes[i, b], some[i, b]
    return size


@njit(cache=True)
def passed(
    reader, first, count, slide, phase, slot, range_, head, edges, next_, came, gone, held, totals, lanes
):  # pragma: no cover - compiled
    """The totals of readers at their instants, and how many entries these are made of; cursors and totals move on."""
    width = totals.shape[1]
    answers = 0
    for i in range(len(reader)):
        answers += count[i]
    out = np.empty((answers, width), np.int64)
    n, read = 0, 0
    for i in range(len(reader)):
        r = reader[i]
        start = head[slot[r]]
        new, old = came[r], gone[r]
        coming, going = start if new < 0 else next_[new], start if old < 0 else next_[old]
        for k in range(count[i]):
            t = (first[i] + k) * slide[i] + phase[i]
            while coming >= 0 and edges[coming] <= t:
                for w in range(width):
                    totals[r, w] += lanes[coming, w]
                held[r] += 1
                new, coming = coming, next_[coming]
            while going >= 0 and edges[going] <= t - range_[r]:
                for w in range(width):
                    totals[r, w] -= lanes[going, w]
                held[r] -= 1
                old, going = going, next_[going]
            for w in range(width):
                out[n, w] = totals[r, w]
            read += held[r]
            n += 1
        came[r], gone[r] = new, old
    return out, read


@njit(cache=True)
def listed(reader, first, count, slide, phase, slot, range_, head, edges, next_, gone):  # pragma: no cover - compiled
    """The entries in the windows of readers, reader by reader in the order of edges, and for every instant which of
    them are in its window, `[low, high)`; cursors stay where they are."""
    answers = 0
    for i in range(len(reader)):
        answers += count[i]
    low, high = np.empty(answers, np.int64), np.empty(answers, np.int64)
    places = np.empty(max(answers, 16), np.int64)
    n, size = 0, 0
    for i in range(len(reader)):
        r = reader[i]
        at = head[slot[r]] if gone[r] < 0 else next_[gone[r]]
        begin, t, end = size, first[i] * slide[i] + phase[i], n + count[i]
        while n < end and (at >= 0 or begin < size):
            while at >= 0 and edges[at] <= t:
                if size == len(places):
                    more = np.empty(2 * size, np.int64)
                    more[:size] = places
                    places = more
                places[size] = at
                size += 1
                at = next_[at]
            while begin < size and edges[places[begin]] <= t - range_[r]:
                begin += 1
            low[n], high[n] = begin, size
            n, t = n + 1, t + slide[i]
        while n < end:  # nothing is left in its window, nor will come: so it is with most where rows are few
            low[n], high[n] = size, size
            n += 1
    return places[:size].copy(), low, high
