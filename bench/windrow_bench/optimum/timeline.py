"""Which rows to keep, when memory has room for `capacity` of them: a maximum on a line, in polynomial time.

A kept row occupies one place of memory from its arrival on, without a gap, and earns a profit at each instant at which
it matches. So row l is a token on the line of instants: at its start it is not kept; moved right to a stop it is kept
until then and has earned that stop's cumulated profit. The number of tokens that cover a cell of the line may not
exceed the capacity:

    maximise     sum over l of profit_l(stop of l)
    subject to   |{l : start of l <= u < stop of l}| <= capacity   for every cell u

The matrix of that linear program has the consecutive-ones property in the cells (each choice covers an interval), so it
is a network matrix and the optimum is integral: a minimum-cost flow of `capacity` units along the line, where a unit is
either idle or inside a row. The paper's dynamic program (section 3.1) finds the same optimum in time exponential in the
capacity; see `exhaustive.py`.

Rows are added one at a time, the last to arrive first. The flow stays optimal: adding a row opens one arc of capacity
one, so one shortest path from where the row's token may go, back to its start, over the moves of other tokens and free
cells, restores the optimum (successive shortest paths). Prices on the line (`price`, cumulated; a cell costs `price[u +
1] - price[u] >= 0`, and 0 while it has room) keep all reduced costs non-negative, so the search is Dijkstra's. The
start is reached as soon as the stretch of free cells to its right is; in this order that is mostly at distance 0, and
among equal distances the search tries the node nearest to the start first. Right of a window around the start
everything counts as reached at distance 0: a lower bound, so the prices stay right. Only if the path found comes from
there is the window widened and the search run again.

Invariants: every token stands at a stop that maximises profit minus price; only full cells have a price. Cost: per row
O(w log w + a), w the instants and a the matches of the rows in its window; measured in `windrow bench star`. Sums of
integer profits are exact (in float64, below 2**53); other profits are summed with rounding.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

TIE = 2.0**-20
"""What a path through the outside of the window counts more, so that at equal length one inside is found.

Less than one, and exact beside any integer below 2**32; profits that are not integers lose at most this much per row.
"""


def place_tokens(
    start: Ints, ptr: Ints, stop: Ints, profit: Floats, cells: int, capacity: int, window: int | None = None
) -> tuple[Ints, float]:
    """The stop of each token (an index into `stop`, or -1: not kept) and the total profit.

    Token l starts at `start[l]`; its stops are `stop[ptr[l]:ptr[l + 1]]`, ascending and right of the start, with
    cumulated profits `profit`. Tokens are in order of start. `window`: how far a search looks at first, twice the
    longest token if not given; it changes no total.

    >>> stops, total = place_tokens(np.array([0, 0]), np.array([0, 1, 2]), np.array([2, 2]), np.array([3.0, 5.0]), 2, 1)
    >>> stops.tolist(), total
    ([-1, 1], 5.0)
    """
    chosen = _place(
        start.astype(np.int64),
        ptr.astype(np.int64),
        stop.astype(np.uint32),
        profit,
        cells,
        capacity,
        window or 0,
        np.zeros(2, np.int64),
    )  # the kernel lets go of the interpreter's lock, so two lines can be solved at once
    return chosen, float(profit[chosen[chosen >= 0]].sum())


@njit(cache=True, inline="always")
def _push(keys, nodes, size, key, node):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Add to a heap ordered by (key, node): the start is left of all, so at equal distance the nearest is first."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if keys[parent] < key or (keys[parent] == key and nodes[parent] <= node):
            break
        keys[i] = keys[parent]
        nodes[i] = nodes[parent]
        i = parent
    keys[i] = key
    nodes[i] = node
    return size + 1


@njit(cache=True, inline="always")
def _pop(keys, nodes, size):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Remove the root; the caller has read it."""
    size -= 1
    key = keys[size]
    node = nodes[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and (
            keys[child + 1] < keys[child] or (keys[child + 1] == keys[child] and nodes[child + 1] < nodes[child])
        ):
            child += 1
        if keys[child] > key or (keys[child] == key and nodes[child] >= node):
            break
        keys[i] = keys[child]
        nodes[i] = nodes[child]
        i = child
    keys[i] = key
    nodes[i] = node
    return size


@njit(cache=True)
def _room(keys, nodes, wanted):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The heap's arrays, grown to hold `wanted` entries."""
    more = wanted + len(keys)
    return np.concatenate((keys, np.empty(more))), np.concatenate((nodes, np.empty(more, np.int64)))


@njit(cache=True)
def _improves(stop, profit, first, last, here, price, dist, reach):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Whether a token's move shortens any path. Without branches: mostly it does not, and the processor must not
    guess."""
    found = 0
    for j in range(np.uint64(first), np.uint64(last)):
        v = stop[j]
        e = here - profit[j] + price[v]
        found += int(e < dist[v]) & int(e < reach)
    return found > 0


@njit(cache=True, nogil=True)
def _place(start, ptr, stop, profit, cells, capacity, window, effort):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    tokens = len(start)
    at = np.full(tokens, -1, np.int64)  # where each token stands: an index into stop, -1 at its start
    price = np.zeros(cells + 1)
    cover = np.zeros(cells + 1, np.int64)
    # tokens that stand at a position, as doubly linked lists
    head = np.full(cells + 1, -1, np.int64)
    after = np.full(tokens, -1, np.int64)
    before = np.full(tokens, -1, np.int64)
    # one search
    dist = np.empty(cells + 1)
    done = np.full(cells + 1, -1, np.int64)
    outside = np.zeros(
        cells + 1, np.bool_
    )  # the path found leads through what is right of the window; its length counts TIE more
    from_node = np.empty(cells + 1, np.int64)
    from_token = np.empty(cells + 1, np.int64)  # the token moved, or -1 for a step through a cell
    from_stop = np.empty(cells + 1, np.int64)
    keys = np.empty(1024)
    nodes = np.empty(1024, np.int64)
    longest = 1
    for token in range(tokens):
        if ptr[token + 1] > ptr[token]:
            longest = max(longest, np.int64(stop[ptr[token + 1] - 1]) - start[token])
    least = max(longest + 1, window if window > 0 else 2 * longest)
    width = least
    low = cells
    search = -1
    for new in range(tokens - 1, -1, -1):
        home = start[new]
        while low > home:
            low -= 1
            price[low] = price[low + 1]  # nobody has wanted these cells yet
        first, last = ptr[new], ptr[new + 1]
        best = 0.0
        for k in range(first, last):
            best = max(best, profit[k] - price[stop[k]] + price[home])
        width = max(least, width // 2)
        while best > 0.0:
            search += 1
            edge = min(cells, home + width)
            free = home  # from here to the start all cells have room
            while free < edge and cover[free] < capacity:
                free += 1
            reach = best  # the distance of the start; staying there costs `best`
            goal = -1
            size = 0
            beyond = best  # the distance of whatever is right of the window, taken as one node
            dist[home : edge + 1 + longest] = best
            for k in range(first, last):
                v = np.int64(stop[k])
                e = best - (profit[k] - price[v] + price[home])
                if e < dist[v]:
                    dist[v] = e
                    outside[v] = False
                    from_node[v] = -1
                    from_token[v] = new
                    from_stop[v] = k
                    if v <= free and e < reach:
                        reach = e
                        goal = v
                    if size + 1 >= len(keys):
                        keys, nodes = _room(keys, nodes, size + 8)
                    size = _push(keys, nodes, size, e, v)
            left_window = False
            while True:
                if not left_window and beyond < reach and (size == 0 or keys[0] >= beyond):
                    left_window = True
                    for u in range(edge + 1, min(cells, edge + longest) + 1):
                        token = head[u]
                        while token >= 0:
                            if start[token] <= edge:
                                k = at[token]
                                here = (profit[k] if k >= 0 else 0.0) - price[u]
                                for j in range(ptr[token] - 1, ptr[token + 1]):
                                    v = np.int64(stop[j]) if j >= ptr[token] else start[token]
                                    if v > edge:
                                        break
                                    e = (
                                        max(0.0, here - (profit[j] if j >= ptr[token] else 0.0) + price[v])
                                        + beyond
                                        + TIE
                                    )
                                    if e < dist[v] and e < reach:
                                        dist[v] = e
                                        outside[v] = True
                                        from_node[v] = -1
                                        if v <= free:
                                            reach = e
                                            goal = v
                                        if size + 1 >= len(keys):
                                            keys, nodes = _room(keys, nodes, size + 8)
                                        size = _push(keys, nodes, size, e, v)
                            token = after[token]
                    if edge < cells and cover[edge] < capacity and beyond + TIE < min(dist[edge], reach):
                        dist[edge] = beyond + TIE
                        outside[edge] = True
                        from_node[edge] = -1
                        if size + 1 >= len(keys):
                            keys, nodes = _room(keys, nodes, size + 8)
                        size = _push(keys, nodes, size, dist[edge], edge)
                if size == 0 or keys[0] >= reach:
                    break
                u = nodes[0]
                d = keys[0]
                size = _pop(keys, nodes, size)
                if done[u] == search or d > dist[u]:
                    continue
                done[u] = search
                effort[0] += 1
                token = head[u]  # then -2: one cell to the right, -3: one cell to the left
                if token < 0:
                    token = -2
                while token != -4:
                    j = 0
                    top = 1
                    here = d
                    if token >= 0:
                        k = at[token]
                        here = (profit[k] if k >= 0 else 0.0) - price[u] + d
                        j = ptr[token] - 1
                        top = ptr[token + 1]
                        if not _improves(stop, profit, ptr[token], top, here, price, dist, reach):
                            top = ptr[token]  # but for its start
                    while j < top:
                        if token >= 0:
                            if j < ptr[token]:
                                v = start[token]
                                e = here + price[v]
                            else:
                                v = np.int64(stop[j])
                                e = here - profit[j] + price[v]
                        elif token == -2:
                            v = min(u + 1, cells)
                            e = d + (price[v] - price[u])
                        else:
                            v = u - 1 if u > home and cover[u - 1] < capacity else u
                            e = d
                        j += 1
                        e = max(d, e)  # below d by rounding only, of profits that are not integers
                        if e >= dist[v] or e >= reach or done[v] == search:
                            continue
                        dist[v] = e
                        if v > edge:
                            beyond = min(beyond, e)
                            continue
                        outside[v] = outside[u]
                        from_node[v] = u
                        from_token[v] = max(token, -1)
                        from_stop[v] = j - 1 if token >= 0 and j > ptr[token] else -1
                        if v <= free:
                            reach = e
                            goal = v
                        if size + 1 >= len(keys):
                            keys, nodes = _room(keys, nodes, size + 8)
                        size = _push(keys, nodes, size, e, v)
                    if token >= 0:
                        token = after[token]
                        if token < 0:
                            token = -2
                    else:
                        token -= 1
            if goal >= 0 and outside[goal]:
                width *= 2  # the best path may leave the window: look further
                effort[1] += 1
                continue
            if reach > 0.0:
                beyond = min(beyond, reach)  # what is beyond keeps its prices, and the window moves against it
                price[home : free + 1] += beyond - reach
                for v in range(free + 1, edge + 1):
                    price[v] += beyond - min(dist[v] - TIE if outside[v] and dist[v] < best else dist[v], reach)
            v = goal
            while v >= 0:
                token = from_token[v]
                u = from_node[v]
                if token >= 0:
                    origin = home
                    if token != new:
                        origin = u
                        if before[token] >= 0:
                            after[before[token]] = after[token]
                        else:
                            head[u] = after[token]
                        if after[token] >= 0:
                            before[after[token]] = before[token]
                        after[token] = head[v]
                        before[token] = -1
                        if head[v] >= 0:
                            before[head[v]] = token
                        head[v] = token
                    for cell in range(min(origin, v), max(origin, v)):
                        cover[cell] += 1 if v > origin else -1
                    at[token] = from_stop[v]
                v = u
            break
        k = at[new]
        v = np.int64(stop[k]) if k >= 0 else home
        after[new] = head[v]
        before[new] = -1
        if head[v] >= 0:
            before[head[v]] = new
        head[v] = new
    return at
