"""Keyed runs: what a join remembers of one input, found by key.

Elements are kept in a few runs, each sorted by the hash of its key. New runs are small; runs of similar size are merged (as in a
log-structured merge tree), so a probe looks into O(log n) runs by binary search and an element is copied
O(log n) times in its life. Merging drops what has expired and cancels each negative element with the positive
element it ends (the tombstones of a strict input).

Two laws make that right. Elements older than the last frontier meet only newer ones, so their start no longer matters and
only `(row, exp)` does; and an element with `exp <= frontier` meets nobody.

Cost: per element O(log n) amortised; per probe O(log n) per run plus its matches; expiring nothing, O(runs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.elements import INF, Elements, Int64s, concat
from windrow.operators.keys import hash_rows, same_rows
from windrow.operators.state.run import Run, elements_of, run_of

_HASH = "_hash"
FANOUT = 2
"""A run is merged into its neighbour when the neighbour is at most FANOUT times larger."""


@dataclass(slots=True, eq=False)
class Sorted:
    """Elements sorted by the hash of their key."""

    elements: Elements
    hashes: Int64s
    half_life: int  # half of the elements have ended by then
    last: int
    run: Run | None = None

    def __len__(self) -> int:
        return len(self.hashes)


def _sorted(elements: Elements, hashes: Int64s) -> Sorted:
    exp = elements.exp
    half = int(np.partition(exp, len(exp) // 2)[len(exp) // 2])
    return Sorted(elements, hashes, half, int(exp.max()))


class KeyedRuns:
    """Elements by the key columns `keys`; `strict`: negative elements come."""

    def __init__(self, keys: Sequence[str], strict: bool = False, eager: bool = False) -> None:
        self.keys, self.strict, self.eager = tuple(keys), strict, eager
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
        if not len(elements):
            return
        hashes = self.hash(elements)
        order = np.argsort(hashes)
        self._runs.append(_sorted(elements.take(order), hashes[order]))
        while len(self._runs) > 1 and len(self._runs[-2]) <= FANOUT * len(self._runs[-1]):
            newer, older = self._runs.pop(), self._runs.pop()
            self._push(self._merge([older, newer], frontier))

    def expire(self, frontier: int) -> None:
        """Drop runs that have ended, and rewrite those of which half has."""
        if self.eager:  # the direct approach: look at every element, every time
            runs, self._runs = self._runs, []
            for run in runs:
                keep = run.elements.exp > frontier
                self._push((run.elements.filter(keep), run.hashes[keep]) if not keep.all() else (run.elements, run.hashes))
            return
        if any(r.half_life <= frontier for r in self._runs):
            runs, self._runs = self._runs, []
            for run in runs:
                if run.half_life > frontier:
                    self._runs.append(run)
                elif run.last > frontier:
                    self._push(self._merge([run], frontier))

    def _push(self, part: tuple[Elements, Int64s]) -> None:
        if len(part[0]):
            self._runs.append(_sorted(*part))

    def _merge(self, runs: Sequence[Sorted], frontier: int) -> tuple[Elements, Int64s]:
        live = [np.flatnonzero(r.elements.exp > frontier) for r in runs]
        sorted_hashes = [r.hashes[m] for r, m in zip(runs, live, strict=True)]
        offsets = np.cumsum([0, *(len(r) for r in runs[:-1])])
        order = merge_order(sorted_hashes)
        hashes = np.concatenate(sorted_hashes)[order]
        index = np.concatenate([m + o for m, o in zip(live, offsets, strict=True)])[order]
        elements = concat([r.elements for r in runs]).take(index)
        if self.strict:
            keep = surviving(elements, frontier)
            elements, hashes = elements.take(keep), hashes[keep]
        return elements, hashes

    def settle(self) -> None:
        """Merge everything and cancel every negative element now, wherever its positive one is."""
        runs, self._runs = self._runs, []
        if runs:
            elements = concat([r.elements for r in runs])
            elements = elements.take(surviving(elements, INF))
            hashes = self.hash(elements)
            order = np.argsort(hashes)
            self._push((elements.take(order), hashes[order]))

    def probe(self, hashes: Int64s) -> list[tuple[Elements, Int64s, Int64s]]:
        """For each run, the pairs (probe index, run index) whose hashes are equal."""
        order = np.argsort(hashes)  # sorted needles walk the runs in order, which caches like
        needles = hashes[order]
        return [(r.elements, order[p], q) for r in self._runs for p, q in (_matches(needles, r.hashes),) if len(p)]

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
            restored = _sorted(elements, run.table.column(_HASH).to_numpy())
            restored.run = run
            self._runs.append(restored)


@njit(cache=True)
def _matches(needles, haystack):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """All pairs of equal values of two sorted arrays, as two arrays of indices; gallops through the longer one."""
    low = np.empty(len(needles), np.int64)
    count = np.zeros(len(needles), np.int64)
    at, total, n = 0, 0, len(haystack)
    for i in range(len(needles)):
        x = needles[i]
        if i and x == needles[i - 1]:
            low[i], count[i] = low[i - 1], count[i - 1]
            total += count[i]
            continue
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
        at = left
        end = at
        while end < n and haystack[end] == x:
            end += 1
        low[i], count[i] = at, end - at
        total += end - at
    found = np.empty(total, np.int64)
    there = np.empty(total, np.int64)
    k = 0
    for i in range(len(needles)):
        for j in range(count[i]):
            found[k] = i
            there[k] = low[i] + j
            k += 1
    return found, there


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

    >>> e = Elements(np.array([1, 2, 3]), np.array([INF] * 3), np.array([1, 1, -1], np.int8), {"a": pa.array([7, 8, 7])})
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


