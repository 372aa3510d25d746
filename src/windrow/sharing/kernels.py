"""Compiled loops of sharing: cells of rows, partials of cells, and what predicates make of them.

Rows come in time order, cut into slices: `first[s]:first[s + 1]` are the rows of slice s. A partial is one (slice,
cell) that occurs; partials are numbered slice by slice, `begin[s]:begin[s + 1]`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def locate(codes, cuts):  # pragma: no cover - compiled
    """The number of cuts at or below each code: a binary search without branches."""
    n, out = len(cuts), np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        c = codes[i]
        at, left = 0, n
        while left > 0:
            half = left >> 1
            go = cuts[at + half] <= c
            at = at + half + 1 if go else at
            left = left - half - 1 if go else half
        out[i] = at
    return out


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
def nest(key, places, at, marks, base, out):  # pragma: no cover - compiled
    """The cell of each row: its key's first, and its places between the cuts of its key; -1 without a key.

    `marks[at[r, k]:at[r, k + 1]]` are the cuts of key k on range r; the last range varies fastest.
    """
    for i in range(len(key)):
        k = key[i]
        if k < 0:
            out[i] = -1
            continue
        code = 0
        for r in range(len(places)):
            place, begin, end = places[r, i], at[r, k], at[r, k + 1]
            low, left = begin, end - begin
            while left > 0:
                half = left >> 1
                go = marks[low + half] <= place
                low = low + half + 1 if go else low
                left = left - half - 1 if go else half
            code = code * (end - begin + 1) + low - begin
        out[i] = base[k] + code


@njit(cache=True)
def look_up(key, places, table, begins, sizes, base, out):  # pragma: no cover - compiled
    """The cell of each row, where what a place adds to it is in a table: `begins[r] + key * sizes[r] + place`."""
    for i in range(len(key)):
        k = key[i]
        if k < 0:
            out[i] = -1
            continue
        cell = base[k]
        for r in range(len(places)):
            cell += table[begins[r] + k * sizes[r] + places[r, i]]
        out[i] = cell


@njit(cache=True)
def matches(cells, key, base, sizes, first, of, low, high):  # pragma: no cover - compiled
    """The predicates whose boxes hold each cell: (first of each cell, predicates). Boxes of key k are those from
    `first[k]` to `first[k + 1]`, those of one predicate side by side."""
    ranges = len(sizes)
    place = np.zeros(ranges, np.int64)
    begin = np.zeros(len(cells) + 1, np.int64)
    found = np.empty(max(len(cells), 16), np.int64)
    n = 0
    for i in range(len(cells)):
        k = key[i]
        code = cells[i] - base[k]
        for r in range(ranges - 1, -1, -1):
            place[r] = code % sizes[r, k]
            code //= sizes[r, k]
        for b in range(first[k], first[k + 1]):
            if n > begin[i] and found[n - 1] == of[b]:
                continue
            inside = True
            for r in range(ranges):
                if place[r] < low[r, b] or place[r] >= high[r, b]:
                    inside = False
                    break
            if inside:
                if n == len(found):
                    more = np.empty(2 * n, np.int64)
                    more[:n] = found
                    found = more
                found[n] = of[b]
                n += 1
        begin[i + 1] = n
    return begin, found[:n].copy()


@njit(cache=True)
def members_of_cells(at, predicates, first, synopses):  # pragma: no cover - compiled
    """The synopses of cells whose predicates are `predicates[at[c]:at[c + 1]]`: (first of each cell, synopses).

    Synopses of predicate p are `synopses[first[p]:first[p + 1]]`.
    """
    begin = np.zeros(len(at), np.int64)
    for c in range(len(at) - 1):
        begin[c + 1] = begin[c]
        for i in range(at[c], at[c + 1]):
            begin[c + 1] += first[predicates[i] + 1] - first[predicates[i]]
    out = np.empty(begin[-1], np.int64)
    n = 0
    for i in range(len(predicates)):
        for j in range(first[predicates[i]], first[predicates[i] + 1]):
            out[n] = synopses[j]
            n += 1
    return begin, out


@njit(cache=True)
def _grown(array, room):  # pragma: no cover - compiled
    more = np.empty((room, array.shape[1]), array.dtype)
    more[: len(array)] = array
    return more


@njit(cache=True)
def settle_runs(
    begin, cell, lanes, edges, due_at, due, ahead, class_at, synopses, segment, base, run_at, run_in, run_low, run_high
):  # pragma: no cover - compiled
    """Partials to entries (synopsis, edge, lanes), by runs; see `settle` for the calendar.

    Segment k is the cells `base[k]:base[k + 1]`, with a Fenwick tree of their sums; run q lies in segment `run_in[q]`.
    What a synopsis has had since it was last looked at is its entry; runs in segments that nothing was added to are
    passed over.
    """
    width, segments, slices = lanes.shape[1], len(base) - 1, len(begin) - 1
    tree = np.zeros((base[segments], width), np.int64)
    touched = np.zeros(segments, np.int64)  # the slice that last added to it, from 1
    seen = np.zeros(len(run_at) - 1, np.int64)  # the slice at which a synopsis was last looked at
    last = np.zeros((len(run_low), width), np.int64)
    total = np.zeros(width, np.int64)
    room, n = max(len(cell), 16), 0
    whose, out = np.empty((room, 2), np.int64), np.empty((room, width), np.int64)
    for s in range(slices + 1):
        if s < slices:
            for r in range(begin[s], begin[s + 1]):
                k = segment[cell[r]]
                touched[k] = s + 1
                low, j = base[k] - 1, cell[r] - base[k] + 1
                size = base[k + 1] - base[k]
                while j <= size:
                    for w in range(width):
                        tree[low + j, w] += lanes[r, w]
                    j += j & -j
        first, end = (due_at[s], due_at[s + 1]) if s < slices else (0, len(class_at) - 1)
        for d in range(first, end):
            c = due[d] if s < slices else d
            for p in range(class_at[c], class_at[c + 1]):
                a = synopses[p]
                for w in range(width):
                    total[w] = 0
                for q in range(run_at[a], run_at[a + 1]):
                    k = run_in[q]
                    if touched[k] <= seen[a]:
                        continue
                    low = base[k] - 1
                    for w in range(width):
                        total[w] -= last[q, w]
                        last[q, w] = 0
                    j = run_high[q] - base[k]
                    while j > 0:
                        for w in range(width):
                            last[q, w] += tree[low + j, w]
                        j -= j & -j
                    j = run_low[q] - base[k]
                    while j > 0:
                        for w in range(width):
                            last[q, w] -= tree[low + j, w]
                        j -= j & -j
                    for w in range(width):
                        total[w] += last[q, w]
                seen[a] = min(s + 1, slices)
                if total[0] == 0:
                    continue
                if n == room:
                    room *= 2
                    whose, out = _grown(whose, room), _grown(out, room)
                whose[n, 0], whose[n, 1] = a, edges[s] if s < slices else ahead[c]
                for w in range(width):
                    out[n, w] = total[w]
                n += 1
    return whose[:n, 0].copy(), whose[:n, 1].copy(), out[:n].copy()


@njit(cache=True)
def settle_members(
    begin, cell, lanes, edges, due_at, due, ahead, class_at, synopses, member_at, members, count
):  # pragma: no cover - compiled
    """The same by members: `members[member_at[c]:member_at[c + 1]]` are the synopses that have cell c."""
    width, slices = lanes.shape[1], len(begin) - 1
    total = np.zeros((count, width), np.int64)  # since a synopsis was last looked at
    room, n = max(len(cell), 16), 0
    whose, out = np.empty((room, 2), np.int64), np.empty((room, width), np.int64)
    for s in range(slices + 1):
        if s < slices:
            for r in range(begin[s], begin[s + 1]):
                for j in range(member_at[cell[r]], member_at[cell[r] + 1]):
                    for w in range(width):
                        total[members[j], w] += lanes[r, w]
        first, end = (due_at[s], due_at[s + 1]) if s < slices else (0, len(class_at) - 1)
        for d in range(first, end):
            c = due[d] if s < slices else d
            for p in range(class_at[c], class_at[c + 1]):
                a = synopses[p]
                if total[a, 0] == 0:
                    continue
                if n == room:
                    room *= 2
                    whose, out = _grown(whose, room), _grown(out, room)
                whose[n, 0], whose[n, 1] = a, edges[s] if s < slices else ahead[c]
                for w in range(width):
                    out[n, w] = total[a, w]
                    total[a, w] = 0
                n += 1
    return whose[:n, 0].copy(), whose[:n, 1].copy(), out[:n].copy()


@njit(cache=True)
def best_of_runs(
    begin,
    cell,
    best,
    some,
    edges,
    segment,
    base,
    run_low,
    run_high,
    owner,
    run_first,
    runs,
    entry_at,
    entry_edge,
    out,
    filled,
):  # pragma: no cover - compiled
    """The greatest code per entry; entries of synopsis a are `entry_at[a]:entry_at[a + 1]`, by edge.

    Per slice and segment that it touches, a tree of best codes over the segment's cells; the runs of segment k are
    `runs[run_first[k]:run_first[k + 1]]`, `owner` says whose they are.
    """
    segments = len(base) - 1
    tree = np.zeros(2 * base[segments], np.int64)
    stamp = np.full(2 * base[segments], -1, np.int64)
    met = np.full(segments, -1, np.int64)
    touched = np.empty(segments, np.int64)
    pointer = entry_at[:-1].copy()
    for s in range(len(begin) - 1):
        count = 0
        for r in range(begin[s], begin[s + 1]):
            if not some[r]:
                continue
            k = segment[cell[r]]
            if met[k] != s:
                met[k] = s
                touched[count] = k
                count += 1
            low, j = 2 * base[k], base[k + 1] - base[k] + cell[r] - base[k]
            while j >= 1 and (stamp[low + j] != s or best[r] > tree[low + j]):
                stamp[low + j], tree[low + j] = s, best[r]
                j >>= 1
        for i in range(count):
            k = touched[i]
            size, low = base[k + 1] - base[k], 2 * base[k]
            for q in range(run_first[k], run_first[k + 1]):
                run = runs[q]
                x, y = run_low[run] - base[k] + size, run_high[run] - base[k] + size
                top, any_ = 0, False
                while x < y:
                    if x & 1:
                        if stamp[low + x] == s and (not any_ or tree[low + x] > top):
                            top, any_ = tree[low + x], True
                        x += 1
                    if y & 1:
                        y -= 1
                        if stamp[low + y] == s and (not any_ or tree[low + y] > top):
                            top, any_ = tree[low + y], True
                    x >>= 1
                    y >>= 1
                if any_:
                    a = owner[run]
                    while pointer[a] < entry_at[a + 1] and entry_edge[pointer[a]] < edges[s]:
                        pointer[a] += 1
                    if pointer[a] == entry_at[a + 1]:  # nobody looks at this synopsis: it is in no class
                        continue
                    if not filled[pointer[a]] or top > out[pointer[a]]:
                        out[pointer[a]], filled[pointer[a]] = top, True


@njit(cache=True)
def best_of_members(
    begin, cell, member_at, members, best, some, edges, entry_at, entry_edge, out, filled
):  # pragma: no cover - compiled
    """The same by members."""
    pointer = entry_at[:-1].copy()
    for s in range(len(begin) - 1):
        for r in range(begin[s], begin[s + 1]):
            if not some[r]:
                continue
            for j in range(member_at[cell[r]], member_at[cell[r] + 1]):
                a = members[j]
                while pointer[a] < entry_at[a + 1] and entry_edge[pointer[a]] < edges[s]:
                    pointer[a] += 1
                if pointer[a] == entry_at[a + 1]:
                    continue
                if not filled[pointer[a]] or best[r] > out[pointer[a]]:
                    out[pointer[a]], filled[pointer[a]] = best[r], True


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
