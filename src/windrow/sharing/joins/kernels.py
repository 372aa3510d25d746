"""Compiled loops of shared joins: the pairs of rows, and synopses of them by expiration time.

Rows of a side are numbered in time order; `prev` links a row to the last one before it with the same key, `head` is the
newest of each key. A pair is found once, by its younger row, so pairs come in the order of their birth.

Pairs are swept into a synopsis: they are added as instants pass their birth, and at each instant all windows that are
due are read. A pair adds one row, the lanes of both its rows, and the codes that are there, to the interval in which
the first of the two leaves its window. Three synopses are swept (`synopsis.py`); they differ in what a pair changes and
what a window reads.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

_FOREVER = np.iinfo(np.int64).max


@njit(cache=True)
def pairs(events, side, begin, ts0, ts1, key0, key1, head0, head1, prev0, prev1, base0, base1, reach0, reach1, out):
    # pragma: no cover - compiled
    """Pair new rows, in time order, with the rows of the other side that came before them, and chain them.

    `events[e]` is the row of event e, of side `side[e]`, counted from its side's base. A row meets rows of side s that
    are less than `reach_s` older; rows with a negative key meet none. Writes (row of side 0, row of side 1) to `out`;
    returns (next event, pairs written), and stops before an event whose pairs do not fit.
    """
    n = 0
    for e in range(begin, len(events)):
        i, first = events[e], n
        if side[e] == 0:
            k = key0[i]
            if k < 0:
                continue
            j = head1[k] - base1
            while j >= 0 and ts1[j] > ts0[i] - reach1:
                if n == len(out):
                    return e, first
                out[n, 0], out[n, 1] = i, j
                n += 1
                j = prev1[j] - base1
            prev0[i], head0[k] = head0[k], base0 + i
        else:
            k = key1[i]
            if k < 0:
                continue
            j = head0[k] - base0
            while j >= 0 and ts0[j] > ts1[i] - reach0:
                if n == len(out):
                    return e, first
                out[n, 0], out[n, 1] = j, i
                n += 1
                j = prev0[j] - base0
            prev1[i], head1[k] = head1[k], base1 + i
    return len(events), n


class PairedRows(NamedTuple):
    """What pairs take from the rows of one side: the place of a row's interval, and whether it is wanted at all."""

    ts: NDArray[np.int64]
    place: NDArray[np.int32]
    wanted: NDArray[np.bool_]
    lanes: NDArray[np.int64]  # [rows, lanes]
    codes: NDArray[np.int64]  # [rows, codes]
    some: NDArray[np.bool_]  # [rows, codes]


class JoinIntervals(NamedTuple):
    """The basic intervals, oldest first: how many rows, then lanes of both sides; and best codes of both sides."""

    lanes: NDArray[np.int64]  # [intervals, 1 + lanes]
    codes: NDArray[np.int64]  # [intervals, codes]
    some: NDArray[np.bool_]


class Asked(NamedTuple):
    """Windows to read: at `instants[u]` those of `first[u]:first[u + 1]`, shorter ones first, from place `low` on."""

    instants: NDArray[np.int64]
    first: NDArray[np.int64]
    low: NDArray[np.int64]


@njit(cache=True)
def basic_interval_join(found, a, b, asked, to):  # pragma: no cover - compiled
    """BIJ: a pair is added to its interval; at an instant the intervals are scanned once, youngest first."""
    out = _blank(len(asked.low), to.lanes.shape[1], to.codes.shape[1])
    width, bests, end = to.lanes.shape[1], to.codes.shape[1], len(to.lanes)
    p = 0
    for u in range(len(asked.instants)):
        p = _added(found, a, b, p, asked.instants[u], to, 0)
        at, before = end, -1
        for r in range(asked.first[u], asked.first[u + 1]):
            if before >= 0:
                out.lanes[r], out.codes[r], out.some[r] = out.lanes[before], out.codes[before], out.some[before]
            while at > asked.low[r]:
                at -= 1
                for k in range(width):
                    out.lanes[r, k] += to.lanes[at, k]
                for k in range(bests):
                    if to.some[at, k] and (not out.some[r, k] or to.codes[at, k] > out.codes[r, k]):
                        out.codes[r, k], out.some[r, k] = to.codes[at, k], True
            before = r
    _added(found, a, b, p, _FOREVER, to, 0)
    return out


@njit(cache=True)
def interval_join(found, a, b, asked, to):  # pragma: no cover - compiled
    """IJ: dyadic intervals, as a heap. A pair changes log b of them, and a window reads log b."""
    out = _blank(len(asked.low), to.lanes.shape[1], to.codes.shape[1])
    width, bests, size = to.lanes.shape[1], to.codes.shape[1], 1
    while size < len(to.lanes):
        size *= 2
    tree = _blank(2 * size, width, bests)
    for i in range(len(to.lanes)):
        node = size + i
        while node >= 1:
            _merge(tree, node, to, i)
            node >>= 1
    p = 0
    for u in range(len(asked.instants)):
        _added(found, a, b, p, asked.instants[u], tree, size)
        p = _added(found, a, b, p, asked.instants[u], to, 0)
        for r in range(asked.first[u], asked.first[u + 1]):
            node, end = asked.low[r] + size, 2 * size
            while node < end:
                if node & 1:
                    _merge(out, r, tree, node)
                    node += 1
                node, end = node >> 1, end >> 1
    _added(found, a, b, p, _FOREVER, to, 0)
    return out


@njit(cache=True)
def running_join(found, a, b, asked, to):  # pragma: no cover - compiled
    """RJ: sums from each interval on. A pair changes all that reach back to it, and a window reads one."""
    out = _blank(len(asked.low), to.lanes.shape[1], 0)
    width, size = to.lanes.shape[1], len(to.lanes)
    running = _blank(size + 1, width, 0)
    for i in range(size - 1, -1, -1):
        for k in range(width):
            running.lanes[i, k] = running.lanes[i + 1, k] + to.lanes[i, k]
    p = 0
    for u in range(len(asked.instants)):
        _added(found, a, b, p, asked.instants[u], running, -1)
        p = _added(found, a, b, p, asked.instants[u], to, 0)
        for r in range(asked.first[u], asked.first[u + 1]):
            out.lanes[r] = running.lanes[asked.low[r]]
    _added(found, a, b, p, _FOREVER, to, 0)
    return out


@njit(cache=True)
def grouped_join(bounds, place, birth, lanes, codes, some, instants, request_at, low):  # pragma: no cover - compiled
    """A BIJ for every segment `bounds[g]:bounds[g + 1]` of pairs, over the intervals that occur there.

    Pair c, born at `birth[c]`, adds `lanes[c]` (lane 0 counts rows) and its codes to interval `place[c]`.

    Returns the answers with rows (lanes, codes, some, request, segment) and the intervals with rows (lanes, codes,
    some, place, segment).
    """
    width, bests, total = lanes.shape[1], codes.shape[1], len(place)
    room, n, kept = 64, 0, 0
    out, out_codes, out_some = _answers(room, width, bests)
    request, segment = np.empty(room, np.int64), np.empty(room, np.int64)
    left, left_codes, left_some = _answers(total, width, bests)
    left_place, left_segment = np.empty(total, np.int64), np.empty(total, np.int64)
    run, run_codes, run_some = np.zeros(width, np.int64), np.zeros(bests, np.int64), np.zeros(bests, np.bool_)
    for g in range(len(bounds) - 1):
        begin, end = bounds[g], bounds[g + 1]
        used = np.unique(place[begin:end])
        b = len(used)
        acc, acc_codes, acc_some = (np.zeros((b, width), np.int64), np.zeros((b, bests), np.int64),
                                    np.zeros((b, bests), np.bool_))  # fmt: skip
        c = begin
        for u in range(len(instants)):
            while c < end and birth[c] <= instants[u]:
                _put(acc, acc_codes, acc_some, np.searchsorted(used, place[c]), lanes, codes, some, c)
                c += 1
            if c == begin:
                continue
            run[:] = 0
            run_some[:] = False
            at = b
            for r in range(request_at[u], request_at[u + 1]):
                while at > 0 and used[at - 1] >= low[r]:
                    at -= 1
                    for k in range(width):
                        run[k] += acc[at, k]
                    for k in range(bests):
                        if acc_some[at, k] and (not run_some[k] or acc_codes[at, k] > run_codes[k]):
                            run_codes[k], run_some[k] = acc_codes[at, k], True
                if run[0] > 0:
                    if n == room:
                        more, more_codes, more_some = _answers(room, width, bests)
                        out, out_codes = np.concatenate((out, more)), np.concatenate((out_codes, more_codes))
                        out_some = np.concatenate((out_some, more_some))
                        request = np.concatenate((request, np.empty(room, np.int64)))
                        segment = np.concatenate((segment, np.empty(room, np.int64)))
                        room *= 2
                    out[n], out_codes[n], out_some[n], request[n], segment[n] = run, run_codes, run_some, r, g
                    n += 1
        for d in range(c, end):
            _put(acc, acc_codes, acc_some, np.searchsorted(used, place[d]), lanes, codes, some, d)
        for at in range(b):
            if acc[at, 0] > 0:
                left[kept], left_codes[kept], left_some[kept] = acc[at], acc_codes[at], acc_some[at]
                left_place[kept], left_segment[kept] = used[at], g
                kept += 1
    answers = (out[:n], out_codes[:n], out_some[:n], request[:n], segment[:n])
    return answers, (left[:kept], left_codes[:kept], left_some[:kept], left_place[:kept], left_segment[:kept])


@njit(cache=True)
def _answers(rows, width, bests):  # pragma: no cover - compiled
    return np.zeros((rows, width), np.int64), np.zeros((rows, bests), np.int64), np.zeros((rows, bests), np.bool_)


@njit(cache=True)
def _put(acc, acc_codes, acc_some, at, lanes, codes, some, c):  # pragma: no cover - compiled
    for k in range(lanes.shape[1]):
        acc[at, k] += lanes[c, k]
    for k in range(codes.shape[1]):
        if some[c, k] and (not acc_some[at, k] or codes[c, k] > acc_codes[at, k]):
            acc_codes[at, k], acc_some[at, k] = codes[c, k], True


@njit(cache=True)
def _blank(rows, width, bests):  # pragma: no cover - compiled
    return JoinIntervals(
        np.zeros((rows, width), np.int64), np.zeros((rows, bests), np.int64), np.zeros((rows, bests), np.bool_)
    )


@njit(cache=True)
def _merge(to, at, other, i):  # pragma: no cover - compiled
    """Add one interval to another."""
    for k in range(to.lanes.shape[1]):
        to.lanes[at, k] += other.lanes[i, k]
    for k in range(to.codes.shape[1]):
        if other.some[i, k] and (not to.some[at, k] or other.codes[i, k] > to.codes[at, k]):
            to.codes[at, k], to.some[at, k] = other.codes[i, k], True


@njit(cache=True)
def _added(found, a, b, p, upto, to, how):  # pragma: no cover - compiled
    """Add the pairs that are born by an instant to intervals; the first that is not.

    `how`: 0, each to its own interval; -1, to all up to its own; else to the nodes of a heap of so many leaves, from
    its own upwards.
    """
    ts0, place0, wanted0, lanes0, codes0, some0 = a.ts, a.place, a.wanted, a.lanes, a.codes, a.some
    ts1, place1, wanted1, lanes1, codes1, some1 = b.ts, b.place, b.wanted, b.lanes, b.codes, b.some
    lanes, codes, some = to.lanes, to.codes, to.some
    wide, wider, many, more = lanes0.shape[1], lanes1.shape[1], codes0.shape[1], codes1.shape[1]
    while p < len(found):
        i, j = found[p, 0], found[p, 1]
        if ts0[i] > upto or ts1[j] > upto:
            break
        p += 1
        if not (wanted0[i] and wanted1[j]):
            continue
        at = min(place0[i], place1[j])
        if how > 0:
            at += how
        while at >= 0:
            lanes[at, 0] += 1
            for k in range(wide):
                lanes[at, 1 + k] += lanes0[i, k]
            for k in range(wider):
                lanes[at, 1 + wide + k] += lanes1[j, k]
            for k in range(many):
                if some0[i, k] and (not some[at, k] or codes0[i, k] > codes[at, k]):
                    codes[at, k], some[at, k] = codes0[i, k], True
            for k in range(more):
                c = many + k
                if some1[j, k] and (not some[at, c] or codes1[j, k] > codes[at, c]):
                    codes[at, c], some[at, c] = codes1[j, k], True
            if how == 0 or (at == 1 and how > 0):
                break
            at = at - 1 if how < 0 else at >> 1
    return p
