"""The compiled loops of a join in bounded memory: rows enter, meet through facts, and the least important ones leave.

Rows that hold a fact are a linked list per fact and stream, so a row meets its partners without a search. Cost of an
instant: its rows times the facts that they hold, their results, and the rows that are dropped.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def _draw(seed, count):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The count-th number of the splitmix64 sequence of a seed."""
    x = seed + np.uint64(count + 1) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def _matches(row, t, streams, stream, ptr, facts, fact_end, held):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """mn: the combinations of other streams' rows that meet a row through facts active at t."""
    total = 0
    for p in range(ptr[row], ptr[row + 1]):
        f = facts[p]
        if fact_end[f] > t:
            ways = 1
            for other in range(streams):
                if other != stream[row]:
                    ways *= held[other, f]
            total += ways
    return total


@njit(cache=True)
def _link(row, stream, ptr, facts, head, after, before, held, row_of, place, free):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Enter a row into the list of each of its facts. Places are used again, the newest first: those in use lie close
    together, whatever the number of rows and facts."""
    s = stream[row]
    for p in range(ptr[row], ptr[row + 1]):
        f = facts[p]
        if free[0] > 0:
            q = free[free[0] + 1]
            free[0] -= 1
        else:
            q = free[1]
            free[1] += 1
        place[p] = q
        row_of[q] = row
        after[q] = head[s, f]
        before[q] = -1
        if head[s, f] >= 0:
            before[head[s, f]] = q
        head[s, f] = q
        held[s, f] += 1


@njit(cache=True)
def _unlink(row, stream, ptr, facts, head, after, before, held, place, free):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    s = stream[row]
    for p in range(ptr[row], ptr[row + 1]):
        f, q = facts[p], place[p]
        if before[q] >= 0:
            after[before[q]] = after[q]
        else:
            head[s, f] = after[q]
        if after[q] >= 0:
            before[after[q]] = before[q]
        held[s, f] -= 1
        free[0] += 1
        free[free[0] + 1] = q


@njit(cache=True, inline="always")
def _room(out, spans, size):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The arrays of results, twice as long when they are full."""
    if size < out.shape[1]:
        return out, spans
    longer = np.empty((out.shape[0], 2 * size), np.int32)
    longer[:, :size] = out
    wider = np.empty((2, 2 * size), np.int64)
    wider[:, :size] = spans
    return longer, wider


@njit(cache=True)
def _join_two(row, stream, exp, t, ptr, facts, row_of, head, after, joined, instant, emit, out, spans, size):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Combine a new row with the earlier rows of the one other stream."""
    own = stream[row]
    other = 1 - own
    for p in range(ptr[row], ptr[row + 1]):
        f = facts[p]
        q = head[other, f]
        while q >= 0:
            x = row_of[q]
            q = after[q]
            if x > row:  # a newer row of this instant: it will find this one
                continue
            joined[x] = instant
            if emit:
                out, spans = _room(out, spans, size)
                out[own, size] = row
                out[other, size] = x
                out[2, size] = f
                spans[0, size] = t
                spans[1, size] = min(exp[row], exp[x])
                size += 1
    return out, spans, size


@njit(cache=True)
def _join(
    row,
    streams,
    stream,
    exp,
    t,
    ptr,
    facts,
    row_of,
    head,
    after,
    joined,
    instant,
    emit,
    out,
    spans,
    size,
    pick,
    cursor,
    others,
):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Combine a new row with the earlier rows of all other streams; `out` may be replaced by a longer one."""
    if streams == 2:
        return _join_two(row, stream, exp, t, ptr, facts, row_of, head, after, joined, instant, emit, out, spans, size)
    count = 0
    for other in range(streams):
        if other != stream[row]:
            others[count] = other
            count += 1
    pick[stream[row]] = row
    for p in range(ptr[row], ptr[row + 1]):
        f = facts[p]
        depth = 0
        cursor[0] = head[others[0], f]
        while depth >= 0:
            q = cursor[depth]
            if q < 0:
                depth -= 1
                if depth >= 0:
                    cursor[depth] = after[cursor[depth]]
                continue
            x = row_of[q]
            if x > row:  # a newer row of this instant: it will find this one
                cursor[depth] = after[q]
                continue
            pick[others[depth]] = x
            if depth < count - 1:
                depth += 1
                cursor[depth] = head[others[depth], f]
                continue
            for other in range(count):
                joined[pick[others[other]]] = instant
            if emit:
                out, spans = _room(out, spans, size)
                end = exp[row]
                for other in range(streams):
                    out[other, size] = pick[other]
                    end = min(end, exp[pick[other]])
                out[streams, size] = f
                spans[0, size] = t
                spans[1, size] = end
                size += 1
            cursor[depth] = after[q]
    return out, spans, size


@njit(cache=True)
def run_instants(
    streams,
    stream,
    ts,
    exp,
    imp,
    prio,
    matches,
    ptr,
    facts,
    fact_end,
    stored,
    heuristic,
    keep,
    shared,
    alpha,
    beta,
    seed,
    evict_first,
    drops,
    counts,
    sums,
):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    total = len(stream)
    number = len(fact_end)
    head = np.full((streams, number), -1, np.int32)
    held = np.zeros((streams, number), np.int64)
    after = np.empty(len(facts), np.int32)
    before = np.empty(len(facts), np.int32)
    row_of = np.empty(len(facts), np.int32)
    place = np.empty(len(facts), np.int32)  # of a row's fact in the lists
    free = np.empty(len(facts) + 2, np.int64)  # places to be used again: their number, the first never used, then they
    free[:2] = 0
    last_end = np.empty(total, np.int64)  # when the last of a row's facts ends
    sizes = np.zeros(streams, np.int64)
    for i in range(total):
        sizes[stream[i]] += 1
        last_end[i] = -(2**63)
        for p in range(ptr[i], ptr[i + 1]):
            last_end[i] = max(last_end[i], fact_end[facts[p]])
    memory = np.empty((streams, max(1, sizes.max() if streams else 1)), np.int64)
    low = np.zeros(streams, np.int64)  # memory[s, low[s]:high[s]] are the rows of stream s, oldest first
    high = np.zeros(streams, np.int64)
    next_end = np.full(streams, 2**63 - 1, np.int64)  # no row of the stream has its last fact end before this
    for i in range(stored):
        s = stream[i]
        memory[s, high[s]] = i
        high[s] += 1
        next_end[s] = min(next_end[s], last_end[i])
        _link(i, stream, ptr, facts, head, after, before, held, row_of, place, free)
    joined = np.full(total, -1, np.int64)
    leaving = np.empty(total, np.int64)
    out = np.empty((streams + 1, 1024), np.int32)
    spans = np.empty((2, 1024), np.int64)
    size = 0
    pick = np.zeros(streams, np.int64)
    cursor = np.zeros(streams, np.int64)
    others = np.zeros(streams, np.int64)
    group = stored
    while group < total:
        t = ts[group]
        end = group
        while end < total and ts[end] == t:
            end += 1
        # 1: expired rows, and rows whose facts have all ended
        for s in range(streams):
            while low[s] < high[s] and exp[memory[s, low[s]]] <= t:
                _unlink(memory[s, low[s]], stream, ptr, facts, head, after, before, held, place, free)
                low[s] += 1
            if next_end[s] <= t:
                next_end[s] = 2**63 - 1
                write = low[s]
                for k in range(low[s], high[s]):
                    row = memory[s, k]
                    if last_end[row] <= t:
                        _unlink(row, stream, ptr, facts, head, after, before, held, place, free)
                    else:
                        memory[s, write] = row
                        write += 1
                        next_end[s] = min(next_end[s], last_end[row])
                high[s] = write
        # 2: new rows enter, if they hold a fact, and join
        for row in range(group, end):
            counts[0] += 1
            if ptr[row] == ptr[row + 1]:
                counts[1] += 1
                continue
            s = stream[row]
            sums[0] += imp[row]
            sums[2] += float(exp[row]) - float(t)
            memory[s, high[s]] = row
            high[s] += 1
            next_end[s] = min(next_end[s], last_end[row])
            _link(row, stream, ptr, facts, head, after, before, held, row_of, place, free)
        if heuristic == 3 or not evict_first:
            for row in range(group, end):
                out, spans, size = _join(
                    row, streams, stream, exp, t, ptr, facts, row_of, head, after, joined, group, not evict_first,
                    out, spans, size, pick, cursor, others,
                )  # fmt: skip
        # 3: priorities
        full = False
        rows = 0
        for s in range(streams):
            rows += high[s] - low[s]
            full = full or (not shared and high[s] - low[s] > keep[s])
        full = full or (shared and rows > keep[0])
        for row in range(group, end):
            if heuristic == 0:
                prio[row] = imp[row]
            elif 1 <= heuristic <= 3:
                matches[row] = _matches(row, t, streams, stream, ptr, facts, fact_end, held)
                prio[row] = imp[row] * matches[row]
        if heuristic == 3:
            for s in range(streams):
                for k in range(low[s], high[s]):
                    row = memory[s, k]
                    if row >= group:
                        continue
                    if joined[row] == group:
                        mn = _matches(row, t, streams, stream, ptr, facts, fact_end, held)
                        prio[row] += imp[row] * mn * (float(exp[row]) - float(t)) / alpha
                    else:
                        prio[row] = max(0.0, prio[row] - beta)
        elif heuristic == 2 and full:
            for s in range(streams):
                for k in range(low[s], high[s]):
                    row = memory[s, k]
                    matches[row] = _matches(row, t, streams, stream, ptr, facts, fact_end, held)
                    prio[row] = imp[row] * matches[row]
        # 4: who leaves
        gone = 0
        while full:
            full = False
            for s in range(streams):
                first, last = (0, streams) if shared else (s, s + 1)
                rows = 0
                for m in range(first, last):
                    rows += high[m] - low[m]
                if rows <= keep[s] or (shared and s > 0):
                    continue
                full = True
                where, at = -1, -1
                if heuristic == 4:
                    at = np.int64(
                        _draw(seed + np.uint64(s) * np.uint64(0xD1B54A32D192ED03), drops[s]) % np.uint64(rows)
                    )
                    where = first
                    while at >= high[where] - low[where]:
                        at -= high[where] - low[where]
                        where += 1
                    at += low[where]
                else:
                    least = -1
                    fewest = -1
                    for m in range(first, last):
                        for k in range(low[m], high[m]):
                            row = memory[m, k]
                            if least >= 0:
                                if heuristic == 5:
                                    if ts[row] >= ts[least]:
                                        break  # rows of one stream are in order of time
                                elif prio[row] > prio[least]:
                                    continue
                                elif prio[row] == prio[least]:
                                    if heuristic == 0:
                                        if ts[row] >= ts[least]:
                                            continue
                                    elif imp[row] > imp[least]:
                                        continue
                                    elif imp[row] == imp[least]:
                                        if heuristic == 3:
                                            if fewest < 0:
                                                fewest = _matches(least, t, streams, stream, ptr, facts, fact_end, held)
                                            mn = _matches(row, t, streams, stream, ptr, facts, fact_end, held)
                                        else:
                                            fewest = matches[least]
                                            mn = matches[row]
                                        if mn > fewest or (mn == fewest and ts[row] >= ts[least]):
                                            continue
                            least, where, at = row, m, k
                            fewest = -1
                drops[s] += 1
                row = memory[where, at]
                leaving[gone] = row
                gone += 1
                if at == low[where]:
                    low[where] += 1
                else:
                    for k in range(at, high[where] - 1):
                        memory[where, k] = memory[where, k + 1]
                    high[where] -= 1
                counts[2] += 1
                sums[1] += imp[row]
                sums[3] += float(exp[row]) - float(t)
        for g in range(gone):
            if leaving[g] < group or not evict_first:
                _unlink(leaving[g], stream, ptr, facts, head, after, before, held, place, free)
        if evict_first:
            for row in range(group, end):
                out, spans, size = _join(
                    row, streams, stream, exp, t, ptr, facts, row_of, head, after, joined, group, True,
                    out, spans, size, pick, cursor, others,
                )  # fmt: skip
            for g in range(gone):
                if leaving[g] >= group:
                    _unlink(leaving[g], stream, ptr, facts, head, after, before, held, place, free)
        group = end
    counts[3] += size
    kept = np.empty(int((high - low).sum()), np.int64)
    write = 0
    for s in range(streams):
        for k in range(low[s], high[s]):
            kept[write] = memory[s, k]
            write += 1
    return out[:, :size], spans[:, :size], kept
