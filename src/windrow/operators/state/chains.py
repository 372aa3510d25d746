"""Hash chains: the numbers of elements by a part of the hash of their key, the newest first.

An element gets the next number when it is added. Its cell holds 32 bits of the hash, its tag, and a link: the next
older element in the same bucket, which is the lower bits of the tag. All else is read where the element lies: a tag
that is equal makes a candidate, whose key and lifetime whoever probes compares. Cells form a ring: the oldest, whose
elements have ended, are written over, and a chain ends where a link leads back beyond `base`, the oldest number that
somebody may meet. So nothing is taken out one by one; elements between others that have ended are passed over. Where
there is no more room, elements are numbered anew (`compact`). All needles go down their chains together, one cell at a
time, so that no read waits for the one before it, wherever in memory the cells are.

Cost: O(1) to add an element, O(1) plus the elements of its bucket to probe; 8 bytes an element and 4 a bucket, of
which there are at least as many as elements.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from windrow.operators.elements import Int64s
from windrow.operators.keys import mix_one

TAG, LINK = 0, 1
"""The columns of a cell. A link is the next cell's number plus one (0: none), all bits turned if it meets nobody."""

_NUMBERS = 2**31 - 1

ROOM = 1 << 13
"""Candidates that a few needles are given room for at once: every part of a result is a round of its own for all that
a join of many inputs does with it."""


class HashChains:
    """Elements by the hash of their key."""

    def __init__(self) -> None:
        self.size = self.base = 0  # numbers given; the least that somebody may meet
        self._cells = np.empty((0, 2), np.int32)
        self._lap = 0  # the number whose cell is the first, of the newest numbers
        self._heads = np.zeros(1, np.int32)  # the newest number of each bucket, plus one

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes + self._heads.nbytes

    def has_room(self, count: int) -> bool:
        """Whether so many more can be added."""
        return self.size + count - self.base <= len(self._cells) and self.size + count < _NUMBERS

    def add(self, hashes: Int64s) -> int:
        """Number elements, for which there is room, and return the first number."""
        first = self.size
        self.size += len(hashes)
        _link(self._cells, self._lap, first, hashes, self._heads)
        if self.size - self._lap >= len(self._cells):
            self._lap += len(self._cells)
        return first

    def end(self, numbers: Int64s) -> None:
        """Let elements meet nobody from now on."""
        at = (numbers[numbers >= self.base] - self._lap) % max(1, len(self._cells))
        links = self._cells[at, LINK]
        self._cells[at, LINK] = np.where(links < 0, links, ~links)

    def truncate(self, size: int) -> None:
        """Forget the elements from a number on."""
        if size < self.size:
            _unlink(self._cells, self._lap, size, self.size, self._heads)
            self.size = size
            if size < self._lap:
                self._lap -= len(self._cells)

    def compact(self, numbers: Int64s, room: int) -> None:
        """Keep some elements, which ascend from `base` on and get the numbers from 0 on, and make room for more."""
        before, lap = self._cells, self._lap
        self._cells = np.empty((max(16, (len(numbers) + room) * 3 // 2), 2), np.int32)
        self._heads = np.zeros(1 << (len(self._cells) - 1).bit_length(), np.int32)
        self.size, self.base, self._lap = len(numbers), 0, 0
        _relink(before, lap, numbers, self._cells, self._heads)

    def probe(self, hashes: Int64s, limit: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Needles and the numbers of elements with their tags; about `limit` at a time."""
        for begin in range(0, len(hashes), limit):
            which, places = _heads_of(hashes, begin, min(begin + limit, len(hashes)), self._heads, self.base)
            waiting = len(which)
            room = min(limit, max(ROOM, 2 * waiting)) + 1
            while waiting:
                left, number = np.empty(room, np.int64), np.empty(room, np.int64)
                waiting, count = _walk(
                    hashes, (self._cells, self._lap, self.base), which, places, waiting, (left, number)
                )
                if count:
                    yield left[:count], number[:count]
                room = min(limit, 4 * room) + 1


@njit(cache=True)
def _link(cells, lap, first, hashes, heads):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the cells of elements with the numbers from `first` on, each in front of its bucket's chain."""
    mask, at = len(heads) - 1, first - lap
    for i in range(len(hashes)):
        if at == len(cells):
            at = 0
        tag = np.int32(hashes[i] >> 32)
        bucket = tag & mask
        cells[at, TAG], cells[at, LINK] = tag, heads[bucket]
        heads[bucket] = first + i + 1
        at += 1


@njit(cache=True)
def _unlink(cells, lap, begin, stop, heads):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Take elements out that are the newest, the last one first: each is in front of its bucket's chain."""
    mask = len(heads) - 1
    for one in range(stop - 1, begin - 1, -1):
        at = one - lap
        if at < 0:
            at += len(cells)
        link = cells[at, LINK]
        heads[cells[at, TAG] & mask] = link ^ (link >> np.int32(31))


@njit(cache=True)
def _relink(before, lap, numbers, cells, heads):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the cells of elements in another ring, where they have the numbers from 0 on."""
    mask = len(heads) - 1
    for i in range(len(numbers)):
        at = numbers[i] - lap
        if at < 0:
            at += len(before)
        tag = before[at, TAG]
        bucket = tag & mask
        cells[i, TAG], cells[i, LINK] = tag, ~heads[bucket] if before[at, LINK] < 0 else heads[bucket]
        heads[bucket] = i + 1


@njit(cache=True)
def _heads_of(hashes, begin, stop, heads, base):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The needles whose buckets are not empty, and where their chains begin."""
    mask, count = len(heads) - 1, 0
    which, places = np.empty(stop - begin + 1, np.int64), np.empty(stop - begin + 1, np.int32)
    for i in range(begin, stop):
        place = heads[(hashes[i] >> 32) & mask]
        which[count], places[count] = i, place
        count += place > base
    return which[:count], places[:count]


@njit(cache=True)
def _walk(hashes, chains, which, places, waiting, found):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Let needles go down their chains, all by one cell at a time, while there is room, and write the candidates.

    Returns how many needles still wait in `which` and `places`, and how many candidates there are.
    """
    cells, lap, base = chains
    left, number = found
    count = 0
    while 0 < waiting < len(left) - count:
        on = 0
        for k in range(waiting):
            i, one = which[k], np.int64(places[k]) - 1
            at = one - lap
            if at < 0:
                at += len(cells)
            tag, link = cells[at, TAG], cells[at, LINK]
            # written in any case, and counted if it is a candidate: guessing would cost more
            left[count], number[count] = i, one
            count += (tag == np.int32(hashes[i] >> 32)) & (link >= 0)
            link ^= link >> np.int32(31)  # turned back
            which[on], places[on] = i, link
            on += link > base
        waiting = on
    return waiting, count


@njit(cache=True)
def by_page(firsts, left, number):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Candidates in the order of the pages that their numbers lie in, whose first numbers ascend; where each ends."""
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
    to_left, to_number = np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        at = stops[page[k]]
        stops[page[k]] = at + 1
        to_left[at], to_number[at] = left[k], number[k]
    return to_left, to_number, stops[:pages]


@njit(cache=True)
def meet(candidates, needles, page, elements, step, pairs, at):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the pairs of needles and elements of a page that have one key and live together; returns where they end.

    `page`: its first number, how many elements it has, and their numbers, if they do not follow each other. An element
    that is not there any more has ended. Of `elements`, starts, signs and keys may be empty: all began before the
    needles, are positive, are compared by others. `step` is 0 where all have one end.
    """
    left, number = candidates
    hashes, begins, ends, signs = needles
    first, size, numbers = page
    other_begins, other_ends, other_signs, keys = elements
    to_left, to_right, ts, end, sign = pairs
    for k in range(len(left)):
        i, j = left[k], number[k] - first
        if len(numbers):
            j = np.searchsorted(numbers, number[k])
            there = j < size and numbers[j] == number[k]
        else:
            there = j < size
        if not there:
            continue
        begin, stop = begins[i], min(ends[i], other_ends[j * step])
        if len(other_begins):
            begin = max(begin, other_begins[j])
        # written in any case, as in a walk
        to_left[at], to_right[at], ts[at], end[at] = i, j, begin, stop
        sign[at] = signs[i] * other_signs[j] if len(other_signs) else signs[i]
        same = len(keys) == 0 or mix_one(np.int64(keys[j])) == hashes[i]
        at += same & (begin < stop)
    return at


@njit(cache=True)
def meet_all(some, needles, elements, size, pairs, at):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the pairs of some needles and all elements of a page that live together; returns where they end."""
    begins, ends, signs = needles
    other_begins, other_ends, other_signs = elements
    to_left, to_right, ts, end, sign = pairs
    step = 1 if len(other_ends) == size else 0
    for i in range(some[0], some[1]):
        for j in range(size):
            begin, stop = max(begins[i], other_begins[j]), min(ends[i], other_ends[j * step])
            to_left[at], to_right[at], ts[at], end[at] = i, j, begin, stop
            sign[at] = signs[i] * other_signs[j]
            at += begin < stop
    return at
