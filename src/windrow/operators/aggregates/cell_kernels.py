"""Compiled sweeps over events of cells: what a row does to every query that wants it, without a row for each.

Partials are per (group, cell), in a list for each group: `head[g]` is its first, `after[p]` the next, -1 the end. The
queries of cell c are `members[span[c, 0]:span[c, 1]]`. Lane 0 of every partial counts rows.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import numpy as np
from numba import njit

from windrow.operators.elements import INF

HIDDEN, BEFORE = -(2**63) + 1, -(2**63) + 2
"""Since when an answer is shown: not at all, or since an earlier advance."""

NEAR = 1e-9
"""Bounds are kept to this part of what is added up; whoever reads the answers tests them exactly."""


@njit(cache=True)
def passes(total, q, weights, counted, low, high):  # pragma: no cover - compiled
    """Whether there are rows, and no measure lies surely outside of its bounds."""
    if total[q, 0] <= 0:
        return False
    for m in range(low.shape[1]):
        if low[q, m] == -np.inf and high[q, m] == np.inf:  # it is another's
            continue
        value, size = 0.0, 0.0
        for k in range(total.shape[1]):
            part = weights[m, k] * total[q, k]
            value += part
            size += abs(part)
        if counted[m] >= 0:  # a mean
            rows = float(total[q, 0] - (total[q, counted[m]] if counted[m] > 0 else 0))
            if rows <= 0:
                return False
            value, size = value / rows, size / rows
        near = NEAR * size
        if value < low[q, m] - near or value > high[q, m] + near:
            return False
    return True


@njit(cache=True)
def differs(a, b, q, shown):  # pragma: no cover - compiled
    for k in range(len(shown)):  # noqa: SIM110 - compiled
        if a[q, shown[k]] != b[q, shown[k]]:
            return True
    return False


@njit(cache=True)
def room(places, lanes):  # pragma: no cover - compiled
    """Twice as much room."""
    more, wider = (
        np.empty((2 * len(places), places.shape[1]), np.int64),
        np.empty((2 * len(lanes), lanes.shape[1]), np.int64),
    )
    more[: len(places)] = places
    wider[: len(lanes)] = lanes
    return more, wider


@njit(cache=True)
def sweep_cells(
    groups, begins, times, cells, rows, deltas, waits, matrix, head, after, cell, waiting, store, free, spare, span,
    members, queries, shown, weights, counted, low, high,
):  # fmt: skip  # pragma: no cover - compiled
    """Take the events of each group in; (stretches, their lanes, groups that are empty, free partials left).

    Events of group i are `begins[i]:begins[i + 1]`, by time: row `rows[e]` counts `deltas[e]` more times in `cells[e]`,
    and `waits[e]` more ends of rows are to come there. A stretch is (query, group, ts, exp, sign).
    """
    width = matrix.shape[1]
    total, before = np.zeros((queries, width), np.int64), np.zeros((queries, width), np.int64)
    since, stamp = np.full(queries, HIDDEN, np.int64), np.zeros(queries, np.int64)
    seen, touched = np.empty(queries, np.int64), np.empty(queries, np.int64)
    known = np.zeros(queries, np.bool_)
    where = np.full(len(span), -1, np.int64)
    stretches, lanes = np.empty((1024, 5), np.int64), np.empty((1024, width), np.int64)
    dead = np.empty(len(groups), np.int64)
    made = died = instant = 0
    for i in range(len(groups)):
        g, count = groups[i], 0
        p = head[g]
        while p >= 0:
            c = cell[p]
            where[c] = p
            for m in range(span[c, 0], span[c, 1]):
                q = members[m]
                if not known[q]:
                    known[q] = True
                    seen[count] = q
                    count += 1
                for k in range(width):
                    total[q, k] += store[p, k]
            p = after[p]
        for j in range(count):
            q = seen[j]
            since[q] = BEFORE if passes(total, q, weights, counted, low, high) else HIDDEN
        e, end = begins[i], begins[i + 1]
        while e < end:
            t, changed = times[e], 0
            instant += 1
            while e < end and times[e] == t:
                c, row, delta = cells[e], rows[e], deltas[e]
                p = where[c]
                if p < 0:
                    spare -= 1
                    p = free[spare]
                    cell[p], after[p], head[g], where[c], waiting[p] = c, head[g], p, p, 0
                    for k in range(width):
                        store[p, k] = 0
                waiting[p] += waits[e]
                for k in range(width):
                    store[p, k] += delta * matrix[row, k]
                for m in range(span[c, 0], span[c, 1]):
                    q = members[m]
                    if stamp[q] != instant:
                        if not known[q]:
                            known[q] = True
                            seen[count] = q
                            count += 1
                        stamp[q] = instant
                        touched[changed] = q
                        changed += 1
                        if since[q] != HIDDEN:
                            for k in range(width):
                                before[q, k] = total[q, k]
                    for k in range(width):
                        total[q, k] += delta * matrix[row, k]
                e += 1
            for j in range(changed):
                q = touched[j]
                was, now = since[q] != HIDDEN, passes(total, q, weights, counted, low, high)
                if was == now and not (was and differs(before, total, q, shown)):
                    continue
                if was:
                    if made == len(stretches):
                        stretches, lanes = room(stretches, lanes)
                    old = since[q] == BEFORE
                    stretches[made, 0], stretches[made, 1] = q, g
                    stretches[made, 2], stretches[made, 3] = (t, INF) if old else (since[q], t)
                    stretches[made, 4] = -1 if old else 1
                    lanes[made] = before[q]
                    made += 1
                since[q] = t if now else HIDDEN
        for j in range(count):
            q = seen[j]
            if since[q] > BEFORE:
                if made == len(stretches):
                    stretches, lanes = room(stretches, lanes)
                stretches[made, 0], stretches[made, 1], stretches[made, 2] = q, g, since[q]
                stretches[made, 3], stretches[made, 4] = INF, 1
                lanes[made] = total[q]
                made += 1
            known[q], since[q] = False, HIDDEN
            for k in range(width):
                total[q, k] = 0
        last, p = -1, head[g]
        while p >= 0:
            following = after[p]
            where[cell[p]] = -1
            if store[p, 0] == 0 and waiting[p] == 0:
                if last < 0:
                    head[g] = following
                else:
                    after[last] = following
                free[spare] = p
                spare += 1
            else:
                last = p
            p = following
        if head[g] < 0:
            dead[died] = g
            died += 1
    return stretches[:made], lanes[:made], dead[:died], spare


@njit(cache=True)
def live_partials(groups, head, after):  # pragma: no cover - compiled
    """(group, partial) of all partials of groups."""
    found = 0
    for i in range(len(groups)):
        p = head[groups[i]]
        while p >= 0:
            found += 1
            p = after[p]
    pairs = np.empty((found, 2), np.int64)
    found = 0
    for i in range(len(groups)):
        p = head[groups[i]]
        while p >= 0:
            pairs[found, 0], pairs[found, 1] = groups[i], p
            found += 1
            p = after[p]
    return pairs
