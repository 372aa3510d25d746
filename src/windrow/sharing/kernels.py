"""Compiled loops of sharing: cells of rows, partials of cells, and what predicates make of them.

Rows come in time order, cut into slices: `first[s]:first[s + 1]` are the rows of slice s. A partial is one (slice,
cell) that occurs; partials are numbered slice by slice, `begin[s]:begin[s + 1]`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def locate(codes, cuts, out):  # pragma: no cover - compiled
    """The number of cuts at or below each code: a binary search without branches."""
    n = len(cuts)
    for i in range(len(codes)):
        c = codes[i]
        at, left = 0, n
        while left > 0:
            half = left >> 1
            go = cuts[at + half] <= c
            at = at + half + 1 if go else at
            left = left - half - 1 if go else half
        out[i] = at


@njit(cache=True)
def number(first, code, cells):  # pragma: no cover - compiled
    """Number the (slice, cell) that occur: each row's partial, the slices' first partials, the partials' cells."""
    slices = len(first) - 1
    of_row = np.empty(len(code), np.int64)
    begin = np.zeros(slices + 1, np.int64)
    stamp, known = np.full(cells, -1, np.int64), np.zeros(cells, np.int64)
    cell = np.empty(min(len(code), slices * cells), np.int64)
    n = 0
    for s in range(slices):
        for i in range(first[s], first[s + 1]):
            c = code[i]
            if stamp[c] != s:
                stamp[c], known[c] = s, n
                cell[n] = c
                n += 1
            of_row[i] = known[c]
        begin[s + 1] = n
    return of_row, begin, cell[:n].copy()


@njit(cache=True)
def tally(of_row, count):  # pragma: no cover - compiled
    """How many rows each partial has."""
    out = np.zeros((count, 1), np.int64)
    for i in range(len(of_row)):
        out[of_row[i], 0] += 1
    return out


@njit(cache=True)
def settle(begin, cell, lanes, cells, run_at, run_low, run_high, own_at, slot_of, edges, own_edges, out):
    # pragma: no cover - compiled
    """Sum partials into (predicate, own slice) entries: `out[slot]` of the entry whose edge first reaches the slice's.

    A predicate is runs of cells `[low, high)`, so a slice's running sums over cells give it by differences.
    `own_edges` of predicate p are `own_at[p]:own_at[p + 1]`; entry k of it is `slot_of[k]`.
    """
    width, predicates = lanes.shape[1], len(run_at) - 1
    buffer = np.zeros((cells + 1, width), np.int64)
    pointer = own_at[:-1].copy()
    for s in range(len(begin) - 1):
        if begin[s] == begin[s + 1]:
            continue
        buffer[:] = 0
        for r in range(begin[s], begin[s + 1]):
            for k in range(width):
                buffer[cell[r] + 1, k] += lanes[r, k]
        for c in range(cells):
            for k in range(width):
                buffer[c + 1, k] += buffer[c, k]
        for p in range(predicates):
            while own_edges[pointer[p]] < edges[s]:
                pointer[p] += 1
            at = slot_of[pointer[p]]
            for j in range(run_at[p], run_at[p + 1]):
                low, high = run_low[j], run_high[j]
                for k in range(width):
                    out[at, k] += buffer[high, k] - buffer[low, k]


@njit(cache=True)
def settle_sparse(begin, cell, lanes, member_at, members, own_at, slot_of, edges, own_edges, out):
    # pragma: no cover - compiled
    """The same partial by partial: each is added to every predicate its cell belongs to."""
    width = lanes.shape[1]
    pointer = own_at[:-1].copy()
    for s in range(len(begin) - 1):
        for r in range(begin[s], begin[s + 1]):
            c = cell[r]
            for j in range(member_at[c], member_at[c + 1]):
                p = members[j]
                while own_edges[pointer[p]] < edges[s]:
                    pointer[p] += 1
                at = slot_of[pointer[p]]
                for k in range(width):
                    out[at, k] += lanes[r, k]


@njit(cache=True)
def settle_best(begin, cell, best, some, member_at, members, own_at, slot_of, edges, own_edges, out, filled):
    # pragma: no cover - compiled
    """The greatest code per (predicate, own slice) entry."""
    pointer = own_at[:-1].copy()
    for s in range(len(begin) - 1):
        for r in range(begin[s], begin[s + 1]):
            if not some[r]:
                continue
            c = cell[r]
            for j in range(member_at[c], member_at[c + 1]):
                p = members[j]
                while own_edges[pointer[p]] < edges[s]:
                    pointer[p] += 1
                at = slot_of[pointer[p]]
                if not filled[at] or best[r] > out[at]:
                    out[at], filled[at] = best[r], True


@njit(cache=True)
def greatest(of_row, codes, valid, some_null, count):  # pragma: no cover - compiled
    """The greatest code of each partial, and whether it has any."""
    best, some = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    for i in range(len(of_row)):
        if some_null and not valid[i]:
            continue
        at = of_row[i]
        if not some[at] or codes[i] > best[at]:
            best[at], some[at] = codes[i], True
    return best, some


@njit(cache=True)
def instants_best(row, first, last, slot, groups, codes, filled, height):  # pragma: no cover - compiled
    """The greatest code per (instant, group): chosen rows count at instants `first..last`."""
    best, some = np.zeros(height * groups, np.int64), np.zeros(height * groups, np.bool_)
    for j in range(len(row)):
        r = row[j]
        if not filled[r]:
            continue
        for i in range(first[j], last[j] + 1):
            at = i * groups + slot[j]
            if not some[at] or codes[r] > best[at]:
                best[at], some[at] = codes[r], True
    return best, some


@njit(cache=True)
def add_to_grid(row, at, lanes, sign, grid):  # pragma: no cover - compiled
    """Add (or, with sign -1, take away) the lanes of chosen rows at points of a grid."""
    for j in range(len(row)):
        for k in range(lanes.shape[1]):
            grid[at[j], k] += sign * lanes[row[j], k]


@njit(cache=True)
def carry_to_grid(row, first, last, slot, groups, lanes, grid):  # pragma: no cover - compiled
    """Differences on the matrix of instants by groups: chosen rows enter at `first` and leave after `last`."""
    height = len(grid) // groups
    for j in range(len(row)):
        enter, leave = first[j] * groups + slot[j], (last[j] + 1) * groups + slot[j]
        for k in range(lanes.shape[1]):
            grid[enter, k] += lanes[row[j], k]
        if last[j] + 1 < height:
            for k in range(lanes.shape[1]):
                grid[leave, k] -= lanes[row[j], k]
