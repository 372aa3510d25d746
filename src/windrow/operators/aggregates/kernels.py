"""Compiled sweeps over events sorted by (group, time).

Points are the instants at which a group is looked at, sorted by (group, time); `firsts[g]` is group g's first
point, which stands before all its events and shows the state carried in. `ends[p]` is one past the last event
of point p.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import numpy as np
from numba import njit

from windrow.operators.elements import BEGINNING


@njit(cache=True)
def sweep_lanes(matrix, rows, deltas, ends, firsts, carried):  # pragma: no cover - compiled
    """Lanes at every point: what was carried in plus `delta * matrix[row]` of all events so far."""
    width = matrix.shape[1]
    out = np.empty((len(ends), width), np.int64)
    total = np.zeros(width, np.int64)
    e = 0
    for g in range(len(firsts) - 1):
        for k in range(width):
            total[k] = carried[g, k]
        for p in range(firsts[g], firsts[g + 1]):
            while e < ends[p]:
                delta, row = deltas[e], rows[e]
                for k in range(width):
                    total[k] += delta * matrix[row, k]
                e += 1
            for k in range(width):
                out[p, k] = total[k]
    return out


@njit(cache=True)
def count_in(counts, slots):  # pragma: no cover - compiled
    """Add one to the count of each slot, as often as it occurs."""
    for slot in slots:
        counts[slot] += 1


@njit(cache=True)
def grouped(order, group, groups):  # pragma: no cover - compiled
    """The permutation `order`, stably sorted by the group of what it points at: a counting sort."""
    place = np.zeros(groups + 1, np.int64)
    for i in range(len(group)):
        place[group[i] + 1] += 1
    for g in range(groups):
        place[g + 1] += place[g]
    out = np.empty(len(order), np.int64)
    for i in range(len(order)):
        g = group[order[i]]
        out[place[g]] = order[i]
        place[g] += 1
    return out


@njit(cache=True)
def staircases(firsts, ts, exp, code, held, held_exp, held_code, frontier):  # pragma: no cover - compiled
    """The greatest code alive, as it changes, per group; and the staircases left after `frontier`.

    Elements of group g are `firsts[g]:firsts[g + 1]`, by ts; its carried staircase `held[g]:held[g + 1]`, by exp.
    A staircase is sorted by exp ascending, code strictly descending: its head is the answer, and an
    element that some other outlives and reaches is nowhere in it.
    """
    groups = len(firsts) - 1
    bound = groups + 2 * len(ts) + len(held_exp)
    out_t, out_code, out_some = np.empty(bound, np.int64), np.zeros(bound, np.int64), np.zeros(bound, np.bool_)
    out_firsts, n = np.zeros(groups + 1, np.int64), 0
    keep = len(ts) + len(held_exp)
    left_exp, left_code, left_firsts, left = (
        np.empty(keep, np.int64),
        np.empty(keep, np.int64),
        np.zeros(groups + 1, np.int64),
        0,
    )
    widest = 0
    for g in range(groups):
        widest = max(widest, firsts[g + 1] - firsts[g] + held[g + 1] - held[g])
    xs, cs = np.empty(widest, np.int64), np.empty(widest, np.int64)
    for g in range(groups):
        head, tail = 0, held[g + 1] - held[g]
        for j in range(tail):
            xs[j], cs[j] = held_exp[held[g] + j], held_code[held[g] + j]
        start = n
        out_t[n] = BEGINNING
        if tail:
            out_code[n], out_some[n] = cs[0], True
        n += 1
        for i in range(firsts[g], firsts[g + 1] + 1):
            last = i == firsts[g + 1]
            now = frontier if last else ts[i]
            while head < tail and xs[head] <= now:
                t = xs[head]
                while head < tail and xs[head] == t:
                    head += 1
                if out_t[n - 1] != t or n - 1 == start:
                    n += 1
                out_t[n - 1] = t
                out_some[n - 1] = head < tail
                out_code[n - 1] = cs[head] if head < tail else 0
            if last:
                break
            e, c = exp[i], code[i]
            if e <= now:
                continue
            at = tail
            while at > head and xs[at - 1] >= e:
                at -= 1
            if at < tail and cs[at] >= c:
                continue
            stop = at
            if at < tail and xs[at] == e:
                stop = at + 1
            while at > head and cs[at - 1] <= c:
                at -= 1
            # entries [at, stop) give way to the new one
            moved = tail - stop
            if at + 1 != stop and moved > 0:
                if at + 1 < stop:
                    for j in range(moved):
                        xs[at + 1 + j], cs[at + 1 + j] = xs[stop + j], cs[stop + j]
                else:
                    for j in range(moved - 1, -1, -1):
                        xs[at + 1 + j], cs[at + 1 + j] = xs[stop + j], cs[stop + j]
            tail = at + 1 + moved
            xs[at], cs[at] = e, c
            if at == head:
                if out_t[n - 1] != now or n - 1 == start:
                    n += 1
                out_t[n - 1], out_code[n - 1], out_some[n - 1] = now, c, True
        out_firsts[g + 1] = n
        for j in range(head, tail):
            left_exp[left], left_code[left] = xs[j], cs[j]
            left += 1
        left_firsts[g + 1] = left
    return out_firsts, out_t[:n], out_code[:n], out_some[:n], left_firsts, left_exp[:left], left_code[:left]


@njit(cache=True)
def latest(firsts, times, known, known_times):  # pragma: no cover - compiled
    """For every point, the index of the group's last known entry at or before it; each group has one before all."""
    out = np.empty(len(times), np.int64)
    for g in range(len(firsts) - 1):
        k = known[g]
        for p in range(firsts[g], firsts[g + 1]):
            while k + 1 < known[g + 1] and known_times[k + 1] <= times[p]:
                k += 1
            out[p] = k
    return out


@njit(cache=True)
def _select(tree, size, rank):  # pragma: no cover - compiled
    """The smallest position whose prefix of multiplicities exceeds `rank`."""
    step = 1
    while step * 2 <= size:
        step *= 2
    at = 0
    while step:
        if at + step <= size and tree[at + step] <= rank:
            at += step
            rank -= tree[at]
        step //= 2
    return at


@njit(cache=True)
def order_statistics(  # pragma: no cover - compiled
    firsts, ends, codes, deltas, members, counts, numerators, denominators, fractions, continuous
):
    """For every point and wanted fraction, the members at its lower and upper rank; and the number of values.

    `members[g]:members[g + 1]` are group g's distinct values in order, `counts` their multiplicities carried
    in (updated in place); an event changes the multiplicity of member `codes[e]` by `deltas[e]`.
    """
    wanted = len(fractions)
    points = len(ends)
    low, high = np.zeros((wanted, points), np.int64), np.zeros((wanted, points), np.int64)
    total = np.zeros(points, np.int64)
    widest = 0
    for g in range(len(firsts) - 1):
        widest = max(widest, members[g + 1] - members[g])
    tree = np.zeros(widest + 1, np.int64)
    e = 0
    for g in range(len(firsts) - 1):
        base, size = members[g], members[g + 1] - members[g]
        n = 0
        for j in range(size + 1):
            tree[j] = 0
        for j in range(1, size + 1):
            tree[j] += counts[base + j - 1]
            n += counts[base + j - 1]
            up = j + (j & -j)
            if up <= size:
                tree[up] += tree[j]
        for p in range(firsts[g], firsts[g + 1]):
            while e < ends[p]:
                m, d = codes[e], deltas[e]
                counts[m] += d
                n += d
                j = m - base + 1
                while j <= size:
                    tree[j] += d
                    j += j & -j
                e += 1
            total[p] = n
            if n <= 0:
                continue
            for w in range(wanted):
                if continuous[w]:
                    place = (n - 1) * fractions[w]
                    below, above = np.int64(np.floor(place)), np.int64(np.ceil(place))
                else:
                    # ceil(n * q) of an exact fraction, at least 1
                    below = max(1, -((-n * numerators[w]) // denominators[w])) - 1
                    above = below
                low[w, p] = base + _select(tree, size, below)
                high[w, p] = low[w, p] if above == below else base + _select(tree, size, above)
    return low, high, total


@njit(cache=True)
def most_frequent(firsts, ends, codes, deltas, members, counts, k):  # pragma: no cover - compiled
    """For every point the `k` members of greatest multiplicity (-1 where fewer), and a number that changes with them.

    Ties go to the smaller value. A tournament tree over the group's members: the winner of a pair is the
    greater multiplicity, the left one on ties.
    """
    points = len(ends)
    out = np.full((points, k), -1, np.int64)
    version = np.zeros(points, np.int64)
    widest = 1
    for g in range(len(firsts) - 1):
        while widest < members[g + 1] - members[g]:
            widest *= 2
    weight, winner = np.zeros(widest, np.int64), np.zeros(2 * widest, np.int64)
    taken = np.zeros(k, np.int64)
    e = 0
    for g in range(len(firsts) - 1):
        base, size = members[g], members[g + 1] - members[g]
        leaves = 1
        while leaves < size:
            leaves *= 2
        for j in range(leaves):
            weight[j] = counts[base + j] if j < size else 0
            winner[leaves + j] = j
        for j in range(leaves - 1, 0, -1):
            a, b = winner[2 * j], winner[2 * j + 1]
            winner[j] = a if weight[a] >= weight[b] else b
        for p in range(firsts[g], firsts[g + 1]):
            while e < ends[p]:
                m = codes[e] - base
                counts[codes[e]] += deltas[e]
                weight[m] = counts[codes[e]]
                j = (leaves + m) // 2
                while j:
                    a, b = winner[2 * j], winner[2 * j + 1]
                    winner[j] = a if weight[a] >= weight[b] else b
                    j //= 2
                e += 1
            found = 0
            while found < k:
                m = winner[1]
                if size == 0 or weight[m] <= 0:
                    break
                out[p, found] = base + m
                taken[found] = m
                found += 1
                weight[m] = 0
                j = (leaves + m) // 2
                while j:
                    a, b = winner[2 * j], winner[2 * j + 1]
                    winner[j] = a if weight[a] >= weight[b] else b
                    j //= 2
            for f in range(found):
                m = taken[f]
                weight[m] = counts[base + m]
                j = (leaves + m) // 2
                while j:
                    a, b = winner[2 * j], winner[2 * j + 1]
                    winner[j] = a if weight[a] >= weight[b] else b
                    j //= 2
            if p > firsts[g]:
                same = True
                for f in range(k):
                    if out[p, f] != out[p - 1, f]:
                        same = False
                version[p] = version[p - 1] + (0 if same else 1)
    return out, version


@njit(cache=True)
def scatter(out, at, lanes, factor):  # pragma: no cover - compiled
    """Add `factor * lanes[i]` to `out[at[i]]`."""
    for i in range(len(at)):
        for k in range(lanes.shape[1]):
            out[at[i], k] += factor * lanes[i, k]


@njit(cache=True)
def accumulate(grid, carried):  # pragma: no cover - compiled
    """Running sums down the rows of `grid`, starting from `carried`, in place."""
    for j in range(grid.shape[1]):
        grid[0, j] += carried[j]
    for i in range(1, grid.shape[0]):
        for j in range(grid.shape[1]):
            grid[i, j] += grid[i - 1, j]
