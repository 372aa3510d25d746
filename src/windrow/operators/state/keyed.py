"""Keyed runs: what a join remembers of one input, found by key, and by a range of one column within the key.

Elements are kept in a few runs, each sorted by the hash of its key (then by the code of the band column, if there is
one, else by arrival). New runs are small; runs of similar size are merged (as in a log-structured merge tree), so a
probe looks into O(log n) runs by binary search and an element is copied O(log n) times in its life. Merging drops what
has expired and cancels each negative element with the positive element it ends (the tombstones of a strict input).

Three laws make that right. Elements older than the last frontier meet only newer ones, so their start no longer matters
and only `(row, exp)` does; an element with `exp <= frontier` meets nobody; and where starts and ends ascend together
within each key (`fifo`), the elements alive during an interval are neighbours, so a probe finds them by binary search
too.

Cost: per element O(log n) amortised; per probe O(log n) per run plus its matches; expiring nothing, O(runs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.elements import INF, Elements, Int64s, concat
from windrow.operators.keys import hash_rows, same_rows
from windrow.operators.state.bands import codes_of
from windrow.operators.state.run import Run, elements_of, run_of

_HASH = "_hash"
FANOUT = 2
"""A run is merged into its neighbour when the neighbour is at most FANOUT times larger."""


@dataclass(slots=True, eq=False)
class Sorted:
    """Elements sorted by the hash of their key, and by `codes` where there is a band column."""

    elements: Elements
    hashes: Int64s
    codes: Int64s | None
    half_life: int  # half of the elements have ended by then
    last: int
    fifo: bool
    run: Run | None = None

    def __len__(self) -> int:
        return len(self.hashes)


def _sorted(elements: Elements, hashes: Int64s, codes: Int64s | None) -> Sorted:
    exp = elements.exp
    half = int(np.partition(exp, len(exp) // 2)[len(exp) // 2])
    fifo = codes is None and bool(_ascending(hashes, elements.ts, exp))
    return Sorted(elements, hashes, codes, half, int(exp.max()), fifo)


class KeyedRuns:
    """Elements by the key columns `keys`, then by `band`; `strict`: negatives come; `eager`: search all to expire."""

    def __init__(self, keys: Sequence[str], strict: bool = False, eager: bool = False, band: str | None = None) -> None:
        self.keys, self.strict, self.eager, self.band = tuple(keys), strict, eager, band
        self._runs: list[Sorted] = []

    def __len__(self) -> int:
        return sum(len(r) for r in self._runs)

    @property
    def nbytes(self) -> int:
        return sum(r.elements.nbytes() + r.hashes.nbytes for r in self._runs)

    def hash(self, elements: Elements) -> Int64s:
        """The hash of each element's key."""
        return hash_rows([elements.columns[k] for k in self.keys], len(elements))

    def insert(self, elements: Elements, frontier: int) -> None:
        """Add elements; `frontier` is the last one reached, for what merging may drop."""
        if self.band is not None and elements.columns[self.band].null_count:
            elements = elements.filter(np.asarray(elements.columns[self.band].is_valid()))  # no range has a null in it
        if not len(elements):
            return
        self._runs.append(self._ordered(elements))
        while len(self._runs) > 1 and len(self._runs[-2]) <= FANOUT * len(self._runs[-1]):
            newer, older = self._runs.pop(), self._runs.pop()
            self._push(*self._merge([older, newer], frontier))

    def _ordered(self, elements: Elements) -> Sorted:
        hashes, codes = self.hash(elements), self._codes(elements)
        order = np.argsort(hashes, kind="stable") if codes is None else np.lexsort((codes, hashes))
        return _sorted(elements.take(order), hashes[order], None if codes is None else codes[order])

    def _codes(self, elements: Elements) -> Int64s | None:
        return None if self.band is None else codes_of(elements.columns[self.band])

    def expire(self, frontier: int) -> None:
        """Drop runs that have ended, and rewrite those of which half has."""
        if self.eager:  # the direct approach: look at every element, every time
            runs, self._runs = self._runs, []
            for run in runs:
                keep = run.elements.exp > frontier
                self._push(*self._kept(run, keep) if not keep.all() else (run.elements, run.hashes, run.codes))
            return
        if any(r.half_life <= frontier for r in self._runs):
            runs, self._runs = self._runs, []
            for run in runs:
                if run.half_life > frontier:
                    self._runs.append(run)
                elif run.last > frontier:
                    self._push(*self._merge([run], frontier))

    @staticmethod
    def _kept(run: Sorted, keep: np.ndarray) -> tuple[Elements, Int64s, Int64s | None]:
        return run.elements.filter(keep), run.hashes[keep], None if run.codes is None else run.codes[keep]

    def _push(self, elements: Elements, hashes: Int64s, codes: Int64s | None) -> None:
        if len(elements):
            self._runs.append(_sorted(elements, hashes, codes))

    def _merge(self, runs: Sequence[Sorted], frontier: int) -> tuple[Elements, Int64s, Int64s | None]:
        live = [np.flatnonzero(r.elements.exp > frontier) for r in runs]
        hashes = [r.hashes[m] for r, m in zip(runs, live, strict=True)]
        codes = [r.codes[m] for r, m in zip(runs, live, strict=True) if r.codes is not None]
        offsets = np.cumsum([0, *(len(r) for r in runs[:-1])])
        order = merge_order(hashes) if not codes else np.lexsort((np.concatenate(codes), np.concatenate(hashes)))
        index = np.concatenate([m + o for m, o in zip(live, offsets, strict=True)])[order]
        elements = concat([r.elements for r in runs]).take(index)
        merged, coded = np.concatenate(hashes)[order], np.concatenate(codes)[order] if codes else None
        if self.strict:
            keep = surviving(elements, frontier)
            elements, merged = elements.take(keep), merged[keep]
            coded = None if coded is None else coded[keep]
        return elements, merged, coded

    def settle(self) -> None:
        """Merge everything and cancel every negative element now, wherever its positive one is."""
        runs, self._runs = self._runs, []
        if runs:
            elements = concat([r.elements for r in runs])
            elements = elements.take(surviving(elements, INF))
            if len(elements):
                self._runs.append(self._ordered(elements))

    def probe(self, needles: Needles, limit: int) -> Iterator[tuple[Elements, Int64s, Int64s]]:
        """(remembered elements, indices into the needles, indices into the remembered) of pairs that match.

        Only pairs that live together. At most `limit` candidates at a time, and one needle's at least.
        """
        order = np.argsort(needles.hashes)  # sorted needles walk the runs in order, which caches like
        hashes, ts, end = needles.hashes[order], needles.ts[order], needles.end[order]
        for run in list(self._runs):
            there = run.elements
            if run.codes is None:
                low, count = _ranges(hashes, ts, end, run.hashes, there.ts, there.exp, run.fifo)
            else:
                assert needles.low is not None and needles.high is not None
                low, count = _band_ranges(hashes, needles.low[order], needles.high[order], run.hashes, run.codes)
            for begin, stop in _parts(count, limit):
                left, right = _expand(
                    low[begin:stop], count[begin:stop], ts[begin:stop], end[begin:stop], there.ts, there.exp, run.fifo
                )
                if len(left):
                    yield there, order[left + begin] if begin else order[left], right

    def everything(self) -> list[Elements]:
        """All elements, run by run."""
        return [r.elements for r in self._runs]

    def runs(self) -> tuple[Run, ...]:
        for r in self._runs:
            if r.run is None:
                r.run = run_of(r.elements, **{_HASH: r.hashes})
        return tuple(r.run for r in self._runs if r.run is not None)

    def restore(self, runs: tuple[Run, ...]) -> None:
        self._runs = []
        for run in runs:
            elements = elements_of(run, _HASH)
            restored = _sorted(elements, run.table.column(_HASH).to_numpy(), self._codes(elements))
            restored.run = run
            self._runs.append(restored)


@dataclass(frozen=True, slots=True)
class Needles:
    """What looks for partners: the hash of each key, the interval in which it lives, the range of codes it wants."""

    hashes: Int64s
    ts: Int64s
    end: Int64s
    low: Int64s | None = None
    high: Int64s | None = None


def _parts(count: Int64s, limit: int) -> list[tuple[int, int]]:
    """Cut needles with so many candidates each into pieces of at most `limit` candidates.

    >>> _parts(np.array([3, 3, 9, 1]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(count)
    if not len(ends) or not ends[-1]:
        return []
    cuts = [0]
    while cuts[-1] < len(count):
        done = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(int(np.searchsorted(ends, done + limit, side="right")), cuts[-1] + 1))
    return list(pairwise(cuts))


@njit(cache=True)
def _ascending(hashes, ts, exp):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Whether starts and ends ascend within every run of equal hashes."""
    for i in range(1, len(hashes)):
        if hashes[i] == hashes[i - 1] and (ts[i] < ts[i - 1] or exp[i] < exp[i - 1]):
            return False
    return True


@njit(cache=True)
def _ranges(needles, ts, end, haystack, starts, ends, fifo):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """For each of the sorted needles, where its equals begin in the sorted haystack and how many there are; gallops.

    Where `fifo`, only those that live at some instant of `[ts, end)`.
    """
    low = np.zeros(len(needles), np.int64)
    count = np.zeros(len(needles), np.int64)
    at, n = 0, len(haystack)
    first = last = 0
    for i in range(len(needles)):
        x = needles[i]
        if i == 0 or x != needles[i - 1]:
            step = 1
            while at + step < n and haystack[at + step] < x:
                step *= 2
            left, right = at + step // 2, min(at + step, n)
            if at < n and haystack[at] >= x:
                left = right = at
            while left < right:
                middle = (left + right) // 2
                if haystack[middle] < x:
                    left = middle + 1
                else:
                    right = middle
            first = at = left
            step = 1
            while at + step < n and haystack[at + step] == x:
                step *= 2
            left, right = first, min(at + step, n)
            while left < right:
                middle = (left + right) // 2
                if haystack[middle] <= x:
                    left = middle + 1
                else:
                    right = middle
            last = left
        if not fifo:
            low[i], count[i] = first, last - first
            continue
        left, right = first, last
        while left < right:
            middle = (left + right) // 2
            if ends[middle] <= ts[i]:
                left = middle + 1
            else:
                right = middle
        low[i] = left
        right = last
        while left < right:
            middle = (left + right) // 2
            if starts[middle] < end[i]:
                left = middle + 1
            else:
                right = middle
        count[i] = left - low[i]
    return low, count


@njit(cache=True)
def _band_ranges(needles, lows, highs, haystack, codes):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """For each needle, where the haystack has its hash and a code in `[low, high]`: two binary searches."""
    low = np.zeros(len(needles), np.int64)
    count = np.zeros(len(needles), np.int64)
    n = len(haystack)
    for i in range(len(needles)):
        if lows[i] > highs[i]:
            continue
        x, bound = needles[i], lows[i]
        left, right = 0, n
        while left < right:
            middle = (left + right) // 2
            if haystack[middle] < x or (haystack[middle] == x and codes[middle] < bound):
                left = middle + 1
            else:
                right = middle
        low[i] = left
        bound, right = highs[i], n
        while left < right:
            middle = (left + right) // 2
            if haystack[middle] < x or (haystack[middle] == x and codes[middle] <= bound):
                left = middle + 1
            else:
                right = middle
        count[i] = left - low[i]
    return low, count


@njit(cache=True)
def _expand(low, count, ts, end, starts, ends, fifo):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The pairs of the ranges whose lifetimes meet, as two arrays of indices."""
    total = count.sum()
    found = np.empty(total, np.int64)
    there = np.empty(total, np.int64)
    k = 0
    for i in range(len(low)):
        for j in range(low[i], low[i] + count[i]):
            if fifo or (starts[j] < end[i] and ts[i] < ends[j]):
                found[k] = i
                there[k] = j
                k += 1
    return found[:k], there[:k]


@njit(cache=True)
def intersected(left, right, ts, end, sign, starts, ends, signs):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Lifetimes and signs of pairs: the later start, the earlier end, the product."""
    n = len(left)
    out_ts, out_end, out_sign = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int8)
    for k in range(n):
        i, j = left[k], right[k]
        out_ts[k] = max(ts[i], starts[j])
        out_end[k] = min(end[i], ends[j])
        out_sign[k] = sign[i] * signs[j]
    return out_ts, out_end, out_sign


def merge_order(parts: Sequence[Int64s]) -> Int64s:
    """The order that merges one or two sorted arrays, given end to end.

    >>> merge_order([np.array([1, 5]), np.array([3])]).tolist()
    [0, 2, 1]
    """
    if len(parts) == 1:
        return np.arange(len(parts[0]))
    merged: Int64s = _merge_two(parts[0], parts[1])
    return merged


@njit(cache=True)
def _merge_two(a, b):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    order = np.empty(len(a) + len(b), np.int64)
    i = j = 0
    for k in range(len(order)):
        if j >= len(b) or (i < len(a) and a[i] <= b[j]):
            order[k] = i
            i += 1
        else:
            order[k] = len(a) + j
            j += 1
    return order


def expand(low: Int64s, count: Int64s) -> Int64s:
    """`low[i], low[i] + 1, ... (count[i] of them)` for each i, in one array.

    >>> expand(np.array([5, 9]), np.array([2, 1])).tolist()
    [5, 6, 9]
    """
    total = int(count.sum())
    ends = np.cumsum(count)
    return np.arange(total) + np.repeat(low - (ends - count), count)


def surviving(elements: Elements, frontier: int) -> Int64s:
    """Indices that remain when positives and negatives of one `(row, exp)` that began by `frontier` cancel, in order.

    >>> signs = np.array([1, 1, -1], np.int8)
    >>> e = Elements(np.array([1, 2, 3]), np.array([INF] * 3), signs, {"a": pa.array([7, 8, 7])})
    >>> surviving(e, 5).tolist()
    [1]
    """
    if (elements.sign > 0).all():
        return np.arange(len(elements))
    columns = list(elements.columns.values())
    rows = hash_rows(columns, len(elements))
    settled = elements.ts <= frontier
    order = np.lexsort((elements.sign, elements.exp, rows, ~settled))
    same = (np.diff(rows[order]) == 0) & (np.diff(elements.exp[order]) == 0) & settled[order][1:]
    if same.any():
        pairs = np.flatnonzero(same)
        left, right = pa.array(order[pairs]), pa.array(order[pairs + 1])
        equal = same_rows([c.take(left) for c in columns], [c.take(right) for c in columns], len(pairs))
        same[pairs] = equal
    group = np.concatenate([[0], np.cumsum(~same)])
    signs = elements.sign[order].astype(np.int64)
    net = np.bincount(group, signs).astype(np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    rank = np.arange(len(order)) - starts[group]
    size = np.bincount(group)
    # negatives sort first: a negative net keeps the head of its group, a positive net the tail
    keep = np.where(net[group] < 0, rank < -net[group], rank >= (size - net)[group])
    keep |= ~settled[order]
    return np.sort(order[keep])
