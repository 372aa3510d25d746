"""Hash chains: the numbers of elements by the hash of their key, the newest first.

An element gets the next number when it is added. Its cell holds the hash of its key, its end, and a link: the next
older element in the same bucket, beside the sign. Cells form a ring: the oldest, whose elements nobody keeps any more,
are written over, and a chain ends where a link leads back beyond `base`, the oldest number that somebody keeps. So
nothing is taken out one by one; elements between others that have ended are passed over. Where there is no more room,
elements are numbered anew (`compact`). All needles go down their chains together, one cell at a time, so that no read
waits for the one before it, wherever in memory the cells are.

Law: an element that began by the last frontier meets only newer ones, so its start does not matter. The starts of those
that came since are kept beside the cells.

Cost: O(1) to add an element, O(1) plus the elements of its bucket to probe; 24 bytes an element and 4 a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from windrow.operators.elements import BEGINNING, Int64s

HASH, END, LINK = 0, 1, 2
"""The columns of a cell; a link is 256 times the next cell's number plus one (0: none), plus the sign as a byte."""


_NUMBERS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Met:
    """Needles and the numbers of elements that they meet, from when to when, and the product of the signs."""

    left: Int64s
    number: Int64s
    ts: Int64s
    end: Int64s
    sign: NDArray[np.int8]


class HashChains:
    """Elements by the hash of their key."""

    def __init__(self) -> None:
        self.size = self.base = 0  # numbers given; the least that is kept
        self._cells = np.empty((0, 3), np.int64)
        self._lap = 0  # the number whose cell is the first, of the newest numbers
        self._heads = np.zeros(1, np.int32)  # the newest number of each bucket, plus one
        self._fresh, self._starts = 0, np.empty(0, np.int64)  # of the elements from that number on

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes + self._heads.nbytes + self._starts.nbytes

    def has_room(self, count: int) -> bool:
        """Whether so many more can be added."""
        return self.size + count - self.base <= len(self._cells) and self.size + count < _NUMBERS

    def add(self, hashes: Int64s, ts: Int64s, exp: Int64s, sign: NDArray[np.int8], anew: bool) -> int:
        """Number elements, for which there is room, and return the first number; `anew`: time has gone on since."""
        first, count = self.size, len(hashes)
        self.size += count
        if anew:
            self._fresh, self._starts = first, ts
        else:
            self._starts = np.concatenate((self._starts, ts))
        _link(self._cells, self._lap, first, (hashes, exp, sign), self._heads)
        if self.size - self._lap >= len(self._cells):
            self._lap += len(self._cells)
        return first

    def end(self, numbers: Int64s) -> None:
        """Let elements meet nobody from now on."""
        self._cells[(numbers - self._lap) % len(self._cells), END] = BEGINNING

    def compact(self, numbers: Int64s, room: int) -> None:
        """Keep some elements, which ascend and get the numbers from 0 on, and make room for more."""
        count = len(numbers)
        kept = self._cells[(numbers - self._lap) % max(1, len(self._cells))]
        new = int(np.searchsorted(numbers, self._fresh))
        self._starts, self._fresh = self._starts[numbers[new:] - self._fresh], new
        self._cells = np.empty((max(16, (count + room) * 3 // 2), 3), np.int64)
        self._heads = np.zeros(1 << (len(self._cells) - 1).bit_length(), np.int32)
        self.size, self.base, self._lap = count, 0, 0
        _link(self._cells, 0, 0, (kept[:, HASH], kept[:, END], kept[:, LINK].astype(np.int8)), self._heads)

    def probe(self, hashes: Int64s, ts: Int64s, end: Int64s, sign: NDArray[np.int8], limit: int) -> Iterator[Met]:
        """Pairs of needles and elements with equal hashes that live together; about `limit` at a time."""
        needles = hashes, ts, end, sign
        chains = self._cells, self._lap, self.base, self._fresh, self._starts
        for begin in range(0, len(hashes), limit):
            which, places = _heads_of(hashes, begin, min(begin + limit, len(hashes)), self._heads, self.base)
            waiting = len(which)
            room = min(limit, 2 * waiting) + 1
            while waiting:
                left, number, begins, ends = (np.empty(room, np.int64) for _ in range(4))
                signs = np.empty(room, np.int8)
                found = left, number, begins, ends, signs
                waiting, count = _walk(needles, chains, which, places, waiting, found)
                if count:
                    yield Met(left[:count], number[:count], begins[:count], ends[:count], signs[:count])
                room = min(limit, 4 * room) + 1


@njit(cache=True)
def _link(cells, lap, first, elements, heads):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the cells of elements with the numbers from `first` on, each in front of its bucket's chain."""
    hashes, ends, signs = elements
    mask, at = len(heads) - 1, first - lap
    for i in range(len(hashes)):
        if at == len(cells):
            at = 0
        bucket = hashes[i] & mask
        cells[at, HASH], cells[at, END] = hashes[i], ends[i]
        cells[at, LINK] = np.int64(heads[bucket]) << 8 | np.int64(signs[i]) & 0xFF
        heads[bucket] = first + i + 1
        at += 1


@njit(cache=True)
def _heads_of(hashes, begin, stop, heads, base):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The needles whose buckets are not empty, and where their chains begin."""
    mask, count = len(heads) - 1, 0
    which, places = np.empty(stop - begin + 1, np.int64), np.empty(stop - begin + 1, np.int64)
    for i in range(begin, stop):
        place = heads[hashes[i] & mask]
        which[count], places[count] = i, place
        count += place > base
    return which[:count], places[:count]


@njit(cache=True)
def _walk(needles, chains, which, places, waiting, found):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Let needles go down their chains, all by one cell at a time, while there is room, and write the pairs.

    Returns how many needles still wait in `which` and `places`, and how many pairs there are.
    """
    hashes, ts, end, sign = needles
    cells, lap, base, fresh, starts = chains
    left, number, begins, ends, signs = found
    count = 0
    while 0 < waiting < len(left) - count:
        on = 0
        for k in range(waiting):
            i, one = which[k], places[k] - 1
            at = one - lap
            if at < 0:
                at += len(cells)
            link, first = cells[at, LINK], ts[i]
            last = min(end[i], cells[at, END])
            if one >= fresh:
                first = max(first, starts[one - fresh])
            # written in any case, and counted if it is a pair: guessing would cost more
            left[count], number[count], begins[count], ends[count] = i, one, first, last
            signs[count] = sign[i] * np.int8(link & 0xFF)
            count += (cells[at, HASH] == hashes[i]) & (first < last)
            which[on], places[on] = i, link >> 8
            on += link >> 8 > base
        waiting = on
    return waiting, count


@njit(cache=True)
def by_page(firsts, left, number, ts, end, sign):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Pairs in the order of the pages that their numbers lie in, whose first numbers ascend; and where each ends."""
    pages, n = len(firsts), len(number)
    page, stops = np.empty(n, np.int32), np.zeros(pages + 1, np.int64)
    for k in range(n):
        p = pages - 1
        while number[k] < firsts[p]:
            p -= 1
        page[k] = p
        stops[p + 1] += 1
    for p in range(pages):
        stops[p + 1] += stops[p]
    to_left, to_number, to_ts = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    to_end, to_sign = np.empty(n, np.int64), np.empty(n, np.int8)
    for k in range(n):
        at = stops[page[k]]
        stops[page[k]] = at + 1
        to_left[at], to_number[at], to_ts[at], to_end[at], to_sign[at] = left[k], number[k], ts[k], end[k], sign[k]
    return to_left, to_number, to_ts, to_end, to_sign, stops[:pages]
