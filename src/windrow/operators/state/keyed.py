"""Keyed runs: what a join remembers of one input, found by key, and by a range of one column within the key.

Elements are kept in a few runs, each in the order of arrival under a sorted index: the hash of each key (then the code
of the band column, if there is one) and the row it belongs to. New runs are small; runs of similar size are merged (as
in a log-structured merge tree), so a probe looks into O(log n) indexes and an element is copied O(log n) times in its
life: whole columns at once, since only the index is put in order. Merging drops what has expired and cancels each
negative element with the positive element it ends (the tombstones of a strict input).

Two laws make that right. Elements older than the last frontier meet only newer ones, so their start no longer matters
and only `(row, exp)` does; and an element with `exp <= frontier` meets nobody.

Cost: per element O(log n) amortised; per probe O(log n) per run plus its matches; expiring nothing, O(runs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.keys import hash_rows, same_rows
from windrow.operators.state.bands import codes_of
from windrow.operators.state.ranges import band_ranges, merge_order, parts, ranges
from windrow.operators.state.run import Run, elements_of, run_of

FANOUT = 2
"""A run is merged into its neighbour when the neighbour is at most FANOUT times larger."""

Int32s = NDArray[np.int32]


@dataclass(slots=True, eq=False)
class Page:
    """One run: elements in the order of arrival, and the index that finds them."""

    elements: Elements
    hashes: Int64s  # sorted
    codes: Int64s | None  # of the band column, sorted within a hash
    rows: Int32s  # whose they are
    fifo: bool  # ends ascend
    half_life: int  # half of the elements have ended by then
    last: int
    run: Run | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        codes = 0 if self.codes is None else self.codes.nbytes
        return self.elements.nbytes() + self.hashes.nbytes + codes + self.rows.nbytes

    def alive(self, frontier: int) -> Page:
        """What has not ended by `frontier`."""
        exp = self.elements.exp
        if self.fifo:  # the ended ones are a prefix: no element need be moved
            begin = int(np.searchsorted(exp, frontier, "right"))
            return self if not begin else self._indexed(self.elements.slice(begin), self.rows - np.int32(begin))
        keep = exp > frontier
        if keep.all():
            return self
        return self.kept(np.flatnonzero(keep))

    def kept(self, index: Int64s) -> Page:
        """The elements at `index`, which ascends."""
        renumbered = np.full(len(self.elements), -1, np.int32)
        renumbered[index] = np.arange(len(index), dtype=np.int32)
        return self._indexed(self.elements.take(index), renumbered[self.rows])

    def _indexed(self, elements: Elements, rows: Int32s) -> Page:
        """The same index over fewer elements: negative rows are gone."""
        keep = rows >= 0
        return _page(elements, self.hashes[keep], None if self.codes is None else self.codes[keep], rows[keep])


def _page(elements: Elements, hashes: Int64s, codes: Int64s | None, rows: Int32s) -> Page:
    exp, middle = elements.exp, len(elements) // 2
    if not len(exp):
        return Page(elements, hashes, codes, rows, True, INF, BEGINNING)
    if (exp[1:] >= exp[:-1]).all():
        return Page(elements, hashes, codes, rows, True, int(exp[middle]), int(exp[-1]))
    half = int(np.partition(exp, middle)[middle])
    return Page(elements, hashes, codes, rows, False, half, int(exp.max()))


@dataclass(frozen=True, slots=True)
class HashOrder:
    """The hashes of some elements' keys, sorted, and whose they are."""

    hashes: Int64s
    rows: Int64s

    @classmethod
    def of(cls, columns: Sequence[pa.Array], length: int) -> HashOrder:
        """Of the elements whose keys are the given columns."""
        hashes = hash_rows(columns, length)
        rows = np.argsort(hashes)
        return cls(hashes[rows], rows)


@dataclass(frozen=True, slots=True)
class Needles:
    """What looks for partners: its keys, the interval in which each lives, the range of codes it wants."""

    order: HashOrder
    ts: Int64s
    end: Int64s
    low: Int64s | None = None
    high: Int64s | None = None


class KeyedRuns:
    """Elements by the key columns `keys`, then by `band`; `strict`: negatives come; `eager`: search all to expire."""

    def __init__(self, keys: Sequence[str], strict: bool = False, eager: bool = False, band: str | None = None) -> None:
        self.keys, self.strict, self.eager, self.band = tuple(keys), strict, eager, band
        self._pages: list[Page] = []

    def __len__(self) -> int:
        return sum(len(p) for p in self._pages)

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self._pages)

    def insert(self, elements: Elements, frontier: int, order: HashOrder | None = None) -> None:
        """Add elements; `frontier` is the last one reached, for what merging may drop; `order`: of them, if known."""
        if self.band is not None and elements.columns[self.band].null_count:
            elements = elements.filter(np.asarray(elements.columns[self.band].is_valid()))  # no range has a null in it
        if not len(elements):
            return
        self._add(elements, order=order)
        size, count = len(self._pages[-1]), 1
        while count < len(self._pages) and len(self._pages[-count - 1]) <= FANOUT * size:
            size, count = size + len(self._pages[-count - 1]), count + 1
        if count > 1:  # all at once: what would be merged again is not merged in between
            merged, self._pages = self._pages[-count:], self._pages[:-count]
            self._merge(merged, frontier)

    def _add(self, elements: Elements, run: Run | None = None, order: HashOrder | None = None) -> None:
        """A page of elements in the order of their arrival."""
        if not len(elements):
            return
        keys, codes = [elements.columns[k] for k in self.keys], None
        if self.band is None:
            order = order or HashOrder.of(keys, len(elements))
        else:
            hashes, codes = hash_rows(keys, len(elements)), codes_of(elements.columns[self.band])
            rows = np.lexsort((codes, hashes))
            order, codes = HashOrder(hashes[rows], rows), codes[rows]
        self._pages.append(_page(elements, order.hashes, codes, order.rows.astype(np.int32)))
        self._pages[-1].run = run

    def expire(self, frontier: int) -> None:
        """Drop runs that have ended, and rewrite those of which half has."""
        if not self.eager and all(p.half_life > frontier for p in self._pages):
            return
        pages, self._pages = self._pages, []
        for page in pages:
            if self.eager:  # the direct approach: look at every element, every time
                if (page.elements.exp > frontier).all():
                    self._pages.append(page)
                else:
                    self._merge([page], frontier)
            elif page.half_life > frontier:
                self._pages.append(page)
            elif page.last > frontier:
                self._merge([page], frontier)

    def _merge(self, pages: Sequence[Page], frontier: int) -> None:
        """One page of what is alive in several, less what cancels."""
        merged = pages[-1].alive(frontier)
        for page in reversed(pages[:-1]):  # the newest, which are small, first
            merged = _merged(page.alive(frontier), merged)
        if self.strict:
            keep = surviving(merged.elements, frontier)
            if len(keep) < len(merged):
                merged = merged.kept(keep)
        if len(merged):
            self._pages.append(merged)

    def settle(self) -> None:
        """Merge everything and cancel every negative element now, wherever its positive one is."""
        pages, self._pages = self._pages, []
        if pages:
            elements = concat([p.elements for p in pages])
            self._add(elements.take(surviving(elements, INF)))

    def probe(self, needles: Needles, limit: int) -> Iterator[tuple[Elements, Int64s, Int64s]]:
        """(remembered elements, indices into the needles, indices into the remembered) of pairs that match.

        Only pairs that live together. At most `limit` candidates at a time, and one needle's at least.
        """
        hashes, order = needles.order.hashes, needles.order.rows  # in order they walk the indexes as caches like
        ts, end = needles.ts[order], needles.end[order]
        for page in list(self._pages):
            there = page.elements
            if page.codes is None:
                low, count = ranges(hashes, page.hashes)
            else:
                assert needles.low is not None and needles.high is not None
                low, count = band_ranges(hashes, needles.low[order], needles.high[order], page.hashes, page.codes)
            for begin, stop in parts(count, limit):
                cut = slice(begin, stop)
                left, right = _living(
                    order[cut], low[cut], count[cut], ts[cut], end[cut], page.rows, there.ts, there.exp
                )
                if len(left):
                    yield there, left, right

    def everything(self) -> list[Elements]:
        """All elements, run by run."""
        return [p.elements for p in self._pages]

    def runs(self) -> tuple[Run, ...]:
        for page in self._pages:
            if page.run is None:
                page.run = run_of(page.elements)
        return tuple(p.run for p in self._pages if p.run is not None)

    def adopt(self, runs: Mapping[str, Run]) -> None:
        """Go on with runs of the same uid and content that lie elsewhere."""
        for page in self._pages:
            found = None if page.run is None else runs.get(page.run.uid)
            if found is not None:
                page.run, page.elements = found, elements_of(found)

    def restore(self, runs: tuple[Run, ...]) -> None:
        self._pages = []
        for run in runs:
            self._add(elements_of(run), run)


def _merged(older: Page, newer: Page) -> Page:
    """Two pages as one."""
    if not len(older) or not len(newer):
        return older if len(older) else newer
    elements = concat([older.elements, newer.elements])
    rows = np.concatenate([older.rows, newer.rows + np.int32(len(older))])
    hashes = np.concatenate([older.hashes, newer.hashes])
    if older.codes is None or newer.codes is None:
        order = merge_order([older.hashes, newer.hashes])
        return _page(elements, hashes[order], None, rows[order])
    codes = np.concatenate([older.codes, newer.codes])
    order = np.lexsort((codes, hashes))
    return _page(elements, hashes[order], codes[order], rows[order])


@njit(cache=True)
def _living(needles, low, count, ts, end, rows, starts, ends):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The pairs of needles and the rows in their ranges whose lifetimes meet, as two arrays of indices."""
    total = count.sum()
    found, there = np.empty(total, np.int64), np.empty(total, np.int64)
    k = 0
    for i in range(len(low)):
        for at in range(low[i], low[i] + count[i]):
            j = rows[at]
            if starts[j] < end[i] and ts[i] < ends[j]:
                found[k], there[k] = needles[i], j
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
