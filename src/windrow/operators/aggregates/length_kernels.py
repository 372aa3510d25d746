"""Compiled sweeps over rows that leave the windows of many queries, each at an instant of its own.

Rows of a group that the same queries want are an entry: a list in the order of time (`after`), from `oldest` to
`newest`. `lanes[r]` is what the rows of its entry before r add up to, `sums[x]` what all of them do. So what a query
has in its window is the difference of two, wherever the ends of its window are:

    lanes   0    1    3    4    6    7 = sums     with b the next row to leave, a the next to come: lanes[a] - lanes[b]
    rows    r0   r1   r2   r3   r4
                 b              a

Lanes are integers that may wrap: differences are exact. Where many rows come or leave at once, next to those that are
there, the rows of an entry are laid side by side first, and what HAVING measures of them (`_side_by_side`): then a step
is two comparisons and a subtraction. The queries of cell c are `members[span[c, 0]:span[c, 1]]`;
`left[place[x] + m]` is the row of entry x that was the last to leave for the m-th of them, or one that is gone.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import numpy as np
from numba import njit

from windrow.operators.aggregates.cell_kernels import BEFORE, HIDDEN, NEAR, differs, passes, room
from windrow.operators.elements import INF

_NEVER = 2**62
"""Later than any row comes or leaves."""

_SHORT = 8
"""Rows of an entry that are laid side by side for each query whatever comes."""


@njit(cache=True)
def _side_by_side(
    x, first, times, after, lanes, oldest, sums, weights, counted, rows, at, prefix, value, rated, near
):  # fmt: skip  # pragma: no cover - compiled
    """Lay out the instants at which rows of entry x came; (how many, the first with new rows).

    `rows[i]` is the last row of instant `at[i]`; `prefix[i]` are the lanes before it, `value[i]` the measures before
    it, `rated[i]` of means the rows that they are over. `near`: how much measures may be off.
    """
    width, measures = lanes.shape[1], len(counted)
    r, i, new = oldest[x], 0, -1
    base = r
    while r >= 0:
        following = after[r]
        if i > 0 and at[i - 1] == times[r] and (rows[i - 1] >= first or r < first):
            i -= 1
        else:
            at[i] = times[r]
            for k in range(width):
                prefix[i, k] = lanes[r, k] - lanes[base, k]
        if new < 0 and r >= first:
            new = i
        rows[i] = r
        i += 1
        r = following
    at[i] = _NEVER
    for k in range(width):
        prefix[i, k] = sums[x, k] - lanes[base, k]
    for m in range(measures):
        value[0, m] = rated[0, m] = size = 0.0
        for e in range(1, i + 1):
            part = 0.0
            for k in range(width):
                piece = weights[m, k] * (prefix[e, k] - prefix[e - 1, k])
                part += piece
                size += abs(piece)
            value[e, m] = value[e - 1, m] + part
            if counted[m] >= 0:
                rated[e, m] = prefix[e, 0] - (prefix[e, counted[m]] if counted[m] > 0 else 0)
        near[m] = size * max(NEAR, 1e-15 * i)
    return i, i if new < 0 else new


@njit(cache=True)
def _extremes(many, at, value, rated, counted, longest, least, most):  # pragma: no cover - compiled
    """Between which values each measure lies in any window that is not longer, whichever rows it has.

    A mean lies between those of single instants; a sum is at most what is positive in the longest window.
    """
    for m in range(len(counted)):
        least[m] = most[m] = up = down = 0.0
        if counted[m] >= 0:
            least[m], most[m] = np.inf, -np.inf
        j = 0
        for i in range(many):
            part = value[i + 1, m] - value[i, m]
            if counted[m] >= 0:
                rate = rated[i + 1, m] - rated[i, m]
                if rate > 0.0:
                    least[m], most[m] = min(least[m], part / rate), max(most[m], part / rate)
                continue
            up, down = up + max(part, 0.0), down + min(part, 0.0)
            while at[j] + longest <= at[i]:
                gone = value[j + 1, m] - value[j, m]
                up, down = up - max(gone, 0.0), down - min(gone, 0.0)
                j += 1
            least[m], most[m] = min(least[m], down), max(most[m], up)


@njit(cache=True)
def _told(stretches, lanes, made, q, g, since, t):  # pragma: no cover - compiled
    """Tell of an answer that ended at t; its lanes are up to the caller."""
    if made == len(stretches):
        stretches, lanes = room(stretches, lanes)
    old = since == BEFORE
    stretches[made, 0], stretches[made, 1] = q, g
    stretches[made, 2], stretches[made, 3] = (t, INF) if old else (since, t)
    stretches[made, 4] = -1 if old else 1
    return stretches, lanes


@njit(cache=True)
def _sweep_entry(
    queries, group, many, new, at, prefix, value, rated, near, sizes, before, frontier, shown, counted, low, high,
    stretches, found, made, leaving, least, most,
):  # fmt: skip  # pragma: no cover - compiled
    """What changes for queries that want the rows of one entry only; `leaving[s]`: the place that is next to leave."""
    width, measures, longest = prefix.shape[1], len(counted), 0
    for s in range(len(queries)):
        longest = max(longest, sizes[queries[s]])
    _extremes(many, at, value, rated, counted, longest, least, most)
    for s in range(len(queries)):
        q = queries[s]
        size, never = sizes[q], False
        for m in range(measures):  # near is that of sums, and so more than that of means
            never |= most[m] + near[m] < low[q, m] or least[m] - near[m] > high[q, m]
        leaving[s] = 0
        if never:
            continue
        i, j, end = new, 0, new
        while j < end:  # the first that had not left before
            middle = (j + end) // 2
            if at[middle] + size <= before:
                j = middle + 1
            else:
                end = middle
        since, t, was_i, was_j = HIDDEN, before, i, j
        while True:
            now = i > j
            for m in range(measures):
                part, rate = value[i, m] - value[j, m], 1.0
                if counted[m] >= 0:
                    rate = rated[i, m] - rated[j, m]
                    now &= rate > 0.0 or (low[q, m] == -np.inf and high[q, m] == np.inf)  # or it is another's
                    rate = max(rate, 1.0)
                now &= not ((part < low[q, m] * rate - near[m]) | (part > high[q, m] * rate + near[m]))
            if since != HIDDEN:
                same = now
                for k in range(len(shown)):
                    c = shown[k]
                    same &= prefix[i, c] - prefix[j, c] == prefix[was_i, c] - prefix[was_j, c]
                if not same:
                    stretches, found = _told(stretches, found, made, q, group, since, t)
                    for k in range(width):
                        found[made, k] = prefix[was_i, k] - prefix[was_j, k]
                    made += 1
                    since = t if now else HIDDEN
            elif now:
                since = t if t > before else BEFORE
            was_i, was_j = i, j
            comes, leaves = at[i], at[j] + size
            t = min(comes, leaves)
            if t > frontier:
                break
            i += comes == t
            j += leaves == t
        if since > BEFORE:
            stretches, found = _told(stretches, found, made, q, group, since, INF)
            for k in range(width):
                found[made, k] = prefix[i, k] - prefix[j, k]
            made += 1
        leaving[s] = j
    return stretches, found, made


@njit(cache=True)
def _sweep_several(
    q, g, node, n, nodes, first, times, after, lanes, oldest, fresh, newest, sums, left, size, start, before, frontier,
    shown, weights, counted, low, high, total, was_total, comes, leaves, stretches, found, made,
):  # fmt: skip  # pragma: no cover - compiled
    """What changes for a query that wants the rows of n entries (`nodes`, from `node` on)."""
    width, mine = lanes.shape[1], node
    for k in range(width):
        total[q, k] = 0
    for h in range(n):  # as it was before
        x, last = nodes[node, 0], left[nodes[node, 1]]
        b = after[last] if last >= oldest[x] else oldest[x]
        while b >= 0 and b < first and times[b] + size <= before:
            left[nodes[node, 1]] = b
            b = after[b]
        a = fresh[x] if newest[x] >= first else -1
        comes[h], leaves[h] = a, b
        for k in range(width):
            total[q, k] += (sums[x, k] if a < 0 else lanes[a, k]) - (sums[x, k] if b < 0 else lanes[b, k])
        node = nodes[node, 2]
    since, due = HIDDEN, start
    if start <= before:
        due = INF
        if passes(total, q, weights, counted, low, high):
            since = BEFORE
    while True:
        t, node = due, mine
        for h in range(n):
            if comes[h] >= 0:
                t = min(t, times[comes[h]])
            if leaves[h] >= 0:
                t = min(t, times[leaves[h]] + size)
        t = max(t, start)
        if t > frontier:
            break
        due = INF
        for k in range(width):
            was_total[q, k] = total[q, k]
        for h in range(n):
            x, a, b = nodes[node, 0], comes[h], leaves[h]
            while a >= 0 and times[a] <= t:
                a = after[a]
            while b != a and times[b] + size <= t:
                left[nodes[node, 1]] = b
                b = after[b]
            for k in range(width):
                if a != comes[h]:
                    total[q, k] += (sums[x, k] if a < 0 else lanes[a, k]) - lanes[comes[h], k]
                if b != leaves[h]:
                    total[q, k] -= (sums[x, k] if b < 0 else lanes[b, k]) - lanes[leaves[h], k]
            comes[h], leaves[h] = a, b
            node = nodes[node, 2]
        was, now = since != HIDDEN, passes(total, q, weights, counted, low, high)
        if was == now and not (was and differs(was_total, total, q, shown)):
            continue
        if was:
            stretches, found = _told(stretches, found, made, q, g, since, t)
            found[made] = was_total[q]
            made += 1
        since = t if now else HIDDEN
    if since > BEFORE:
        stretches, found = _told(stretches, found, made, q, g, since, INF)
        found[made] = total[q]
        made += 1
    return stretches, found, made


@njit(cache=True)
def sweep_lengths(
    groups, first, times, after, lanes, head, following, cell, oldest, fresh, newest, place, held, sums, left, span,
    members, sizes, starts, before, frontier, shown, weights, counted, low, high,
):  # fmt: skip  # pragma: no cover - compiled
    """What changes for queries between `before` and `frontier`: (stretches, their lanes).

    Rows from `first` on are new. A stretch is (query, group, ts, exp, sign). A query sees a row from the instant at
    which it came for as long as `sizes`, and nothing before `starts`.
    """
    queries, width, measures = len(sizes), lanes.shape[1], len(counted)
    total, was_total = np.zeros((queries, width), np.int64), np.zeros((queries, width), np.int64)
    known, chain = np.zeros(queries, np.int64), np.full(queries, -1, np.int64)
    seen, alone = np.empty(queries, np.int64), np.empty(queries, np.int64)
    spot, leaving = np.empty(queries, np.int64), np.empty(queries, np.int64)
    near, least, most = np.empty(measures), np.empty(measures), np.empty(measures)
    nodes = np.empty((1024, 3), np.int64)  # (entry, place in `left`, the node before of the same query)
    comes, leaves = np.empty(1024, np.int64), np.empty(1024, np.int64)
    stretches, found = np.empty((1024, 5), np.int64), np.empty((1024, width), np.int64)
    rows, at, prefix = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty((1024, width), np.int64)
    value, rated = np.empty((1024, measures)), np.empty((1024, measures))
    made = 0
    for i in range(len(groups)):
        g, count, linked = groups[i], 0, 0
        x = head[g]
        several = x >= 0 and following[x] >= 0
        while x >= 0 and several:
            for m in range(span[cell[x], 0], span[cell[x], 1]):
                q = members[m]
                if linked == len(nodes) - 1:
                    nodes, _ = room(nodes, nodes)
                if known[q] == 0:
                    seen[count] = q
                    count += 1
                nodes[linked, 0], nodes[linked, 1], nodes[linked, 2] = x, place[x] + m - span[cell[x], 0], chain[q]
                chain[q], known[q] = linked, known[q] + 1
                linked += 1
            x = following[x]
        x = head[g]
        while x >= 0:
            begin, end, n = span[cell[x], 0], span[cell[x], 1], 0
            new = newest[x] - fresh[x] + 1 if newest[x] >= first else 0
            beside = held[x] <= (end - begin) * (min(new, held[x]) + _SHORT)
            if beside:
                if held[x] >= len(at):
                    rows, at = np.empty(2 * held[x], np.int64), np.empty(2 * held[x], np.int64)
                    prefix = np.empty((len(at), width), np.int64)
                    value, rated = np.empty((len(at), measures)), np.empty((len(at), measures))
                many, new = _side_by_side(
                    x, first, times, after, lanes, oldest, sums, weights, counted, rows, at, prefix, value, rated, near
                )
            for m in range(begin, end):
                q = members[m]
                if several and known[q] != 1:
                    continue
                if beside and starts[q] <= max(before, at[0]):
                    alone[n], spot[n] = q, place[x] + m - begin
                    n += 1
                elif starts[q] <= frontier:
                    nodes[-1, 0], nodes[-1, 1] = x, place[x] + m - begin  # the last node is never that of another
                    stretches, found, made = _sweep_several(
                        q, g, len(nodes) - 1, 1, nodes, first, times, after, lanes, oldest, fresh, newest, sums, left,
                        sizes[q], starts[q], before, frontier, shown, weights, counted, low, high, total, was_total,
                        comes, leaves, stretches, found, made,
                    )  # fmt: skip
            if n > 0:
                stretches, found, made = _sweep_entry(
                    alone[:n], g, many, new, at, prefix, value, rated, near, sizes, before, frontier, shown, counted,
                    low, high, stretches, found, made, leaving, least, most,
                )  # fmt: skip
                for s in range(n):
                    if leaving[s] > 0:
                        left[spot[s]] = rows[leaving[s] - 1]
            x = following[x]
        for s in range(count):
            q = seen[s]
            n, node = known[q], chain[q]
            known[q], chain[q] = 0, -1
            if n == 1 or starts[q] > frontier:
                continue
            if n > len(comes):
                comes, leaves = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
            stretches, found, made = _sweep_several(
                q, g, node, n, nodes, first, times, after, lanes, oldest, fresh, newest, sums, left, sizes[q],
                starts[q], before, frontier, shown, weights, counted, low, high, total, was_total, comes, leaves,
                stretches, found, made,
            )  # fmt: skip
    return stretches[:made], found[:made]
