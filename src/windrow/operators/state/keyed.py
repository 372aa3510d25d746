"""Keyed runs: what a join remembers of one input, found by key, and by a range of one column within the key.

Elements are kept in a few runs (pages), each in the order of arrival. New pages are small; pages of similar size are
merged (as in a log-structured merge tree), so there are O(log n) of them and an element is copied O(log n) times in its
life, whole columns at once. Merging drops what has expired and cancels each negative element with the positive element
it ends (the tombstones of a strict input). Where ends come in the order of arrival a long page is at most a share of
all there is: it goes as a whole, soon, and is neither copied nor written again before.

Hash chains over the numbers of all elements find candidates in all pages at once (`chains.py`); numbers ascend from
page to page, so a page knows its elements by them, and has what tells whether a candidate is a partner. Where a band
looks for partners, each page has a sorted index instead: the hash of each key, then the code of the band column, and
the row.

What is `static` is a table: its rows are only met. One that goes must meet nobody who comes later, so its number is
ended in the chains, while its page stays as it is until it is merged with that of the tombstone. So a change of a table
costs its rows, not the table's.

Two laws make that right. Elements older than the last frontier meet only newer ones, so their start no longer matters
and only `(row, exp)` does; and an element with `exp <= frontier` meets nobody.

Cost: per element O(log n) amortised, and O(1) to find it by key, O(log n) per page by band; expiring nothing, O(pages).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.keys import hash_rows, same_rows
from windrow.operators.state.bands import codes_of
from windrow.operators.state.chains import HashChains, by_page, meet, meet_all
from windrow.operators.state.pages import BandIndex, Page, merged, read_only
from windrow.operators.state.pairs import Needles, Pairs
from windrow.operators.state.ranges import band_ranges, meet_ranges, parts
from windrow.operators.state.run import Run, elements_of, run_of
from windrow.operators.state.surviving import surviving

CANDIDATES = 1 << 16
"""Pairs of tombstones and rows that are looked at at a time."""

FANOUT = 2
"""A run is merged into its neighbour when the neighbour is at most FANOUT times larger."""

FEW, SMALL = 8, 1 << 10
"""So few runs with so few rows are left as they are: merging costs as much for a row as for a thousand."""

SHARE, BAND_SHARE, LARGE = 64, 8, 1 << 17
"""What ends in the order of arrival is not merged to more than this share of all there is, if it has so many rows: a
large tick is then copied and written once, however much is alive. A band looks into every page: there are fewer."""


class KeyedRuns:
    """Elements by the key columns `keys`, then by `band`; `strict`: negatives come; `eager`: search all to expire;
    `static`: they are rows of a table, and negatives end rows at once."""

    def __init__(
        self,
        keys: Sequence[str],
        strict: bool = False,
        eager: bool = False,
        band: str | None = None,
        static: bool = False,
    ) -> None:
        self.keys, self.strict, self.eager, self.band, self.static = tuple(keys), strict or static, eager, band, static
        self._pages: list[Page] = []
        self._chains: HashChains | None = None  # made by the first who looks for something
        self._count = 0  # numbers given while there are none
        self._expired = BEGINNING
        self._due = INF  # until then no page has to be looked at for what has ended

    def __len__(self) -> int:
        return sum(len(p.elements.ts) for p in self._pages)

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self._pages) + (0 if self._chains is None else self._chains.nbytes)

    def insert(self, elements: Elements, frontier: int, hashes: Int64s | None = None) -> None:
        """Add elements; `frontier` is the last one reached, for what merging may drop; `hashes`: of keys, if known."""
        if self.band is not None and elements.columns[self.band].null_count:
            valid = np.asarray(elements.columns[self.band].is_valid())  # no range has a null in it
            elements, hashes = elements.filter(valid), None
        if not len(elements):
            return
        self._add(elements, hashes=hashes)
        if self.static and (elements.sign < 0).any():
            self._bury(self._pages[-1])
        size, count = len(self._pages[-1]) if self._pages else 0, 1
        while count < len(self._pages) and len(self._pages[-count - 1]) <= FANOUT * size:
            if self._is_share(self._pages[-1], size + len(self._pages[-count - 1])):
                break
            size, count = size + len(self._pages[-count - 1]), count + 1
        if count > 1 and (count > FEW or size > SMALL):  # all at once: what would be merged again is not in between
            newest, self._pages = self._pages[-count:], self._pages[:-count]
            self._merge(newest, frontier)

    def _is_share(self, page: Page, size: int) -> bool:
        """Whether a page of so many rows, like this one, soon ends as a whole: copying its rows would gain nothing."""
        if size <= LARGE or self.strict or not page.fifo or page.last == INF:
            return False
        return size > len(self) // (SHARE if self.band is None else BAND_SHARE)

    def _bury(self, page: Page) -> None:
        """Let nobody meet the rows that the tombstones of a page end, nor the tombstones."""
        if self.band is not None:
            self.settle()
            return
        if self._chains is None:  # who makes them buries all there is
            self._chained()
            return
        chains, gone = self._chains, page.elements.sign < 0
        stones, numbers = page.elements.filter(gone), page.numbered[gone]
        chains.end(numbers)
        lives = np.full(len(stones), BEGINNING), np.full(len(stones), INF), np.ones(len(stones), np.int8)
        ended, rows = np.zeros(len(stones), np.int64), list(stones.columns.values())
        for pairs in self.probe(Needles(self._hashes(stones), *lives), CANDIDATES):
            older = pairs.times("ts") < stones.ts[pairs.left]
            there = [pairs.column(c).filter(pa.array(older)) for c in stones.columns]
            left, number = pairs.left[older], self._numbers(pairs)[older]
            same = same_rows([c.take(pa.array(left)) for c in rows], there, len(left))
            chains.end(number[same])
            np.add.at(ended, left[same], 1)
        if (ended != 1).any():  # equal rows: how many of them go is to be counted
            self.settle()

    def _numbers(self, pairs: Pairs) -> Int64s:
        """The numbers of the elements of pairs."""
        pages = {id(p.elements): p for p in self._pages}
        return np.concatenate([pages[id(e)].numbered[pairs.right[b:s]] for e, b, s in pairs.sources])

    def _add(self, elements: Elements, run: Run | None = None, hashes: Int64s | None = None) -> None:
        """A page of elements in the order of their arrival."""
        if not len(elements):
            return
        first, band = self._count, None
        if self.band is not None or self._chains is not None:
            hashes = self._hashes(elements) if hashes is None else hashes
        if self.band is not None and hashes is not None:
            rows = np.arange(len(elements), dtype=np.int32)
            band = BandIndex.of(hashes, codes_of(elements.columns[self.band]), rows)
        if self._chains is not None and hashes is not None:
            self._chains.base = self._oldest(self._chains.size)
            if not self._chains.has_room(len(elements)):
                self._renumber(self._chains, len(elements))
            first = self._chains.add(hashes)
        self._count = first + len(elements)
        self._append(Page.of(elements, first, None, band))
        self._pages[-1].run = run

    def _append(self, page: Page) -> None:
        self._pages.append(page)
        self._due = min(self._due, page.half_life)

    def _hashes(self, elements: Elements) -> Int64s:
        return hash_rows([elements.columns[k] for k in self.keys], len(elements))

    def _oldest(self, none: int) -> int:
        """The least number of an element that may have an end to come; `none`: if there is none."""
        return next((n for p in self._pages if (n := p.first_after(self._expired)) is not None), none)

    def _renumber(self, chains: HashChains, room: int) -> None:
        """Number what has not ended from 0 on, and what comes before it below."""
        numbers = np.concatenate([np.empty(0, np.int64), *(p.numbered for p in self._pages)])
        first = -int(np.searchsorted(numbers, chains.base))
        chains.compact(numbers[-first:], room)
        for page in self._pages:
            page.first, page.numbers, first = first, None, first + len(page)

    def _chained(self) -> HashChains:
        """The chains, made of all there is if there are none."""
        if self._chains is None:
            self._chains, pages, self._pages, self._count = HashChains(), self._pages, [], 0
            self._chains.compact(np.empty(0, np.int64), sum(len(p) for p in pages))
            for page in pages:
                self._add(page.elements, page.run)
            for page in list(self._pages) if self.static else ():
                if self._is_chained() and (page.elements.sign < 0).any():
                    self._bury(page)
        return self._chains or self._chained()  # none: all is settled, and no tombstones are left

    def _is_chained(self) -> bool:
        return self._chains is not None

    def expire(self, frontier: int) -> None:
        """Drop runs that have ended, and rewrite those of which half has."""
        self._expired = frontier
        if not self.eager and self._due > frontier:
            return
        pages, size, self._pages, self._due = self._pages, len(self), [], INF

        def whole(page: Page) -> bool:
            """Whether it soon ends as a whole and is little of all there is: writing half of it again gains nothing."""
            return not self.strict and page.fifo and 4 * len(page) <= size

        for page in pages:
            if self.eager:  # the direct approach: look at every element, every time
                if (page.elements.exp > frontier).all():
                    self._append(page)
                else:
                    self._merge([page], frontier)
            elif page.half_life > frontier:
                self._append(page)
            elif page.last > frontier and whole(page):
                self._pages.append(page)
                self._due = min(self._due, page.last)
            elif page.last > frontier:
                self._merge([page], frontier)

    def _merge(self, pages: Sequence[Page], frontier: int) -> None:
        """One page of what is alive in several, less what cancels."""
        found = merged([p.alive(frontier) for p in pages])
        if self.strict and not (self.static and self._pages):  # a tombstone waits for its own row: a later one stays
            keep = surviving(found.elements, INF if self.static else frontier)
            if len(keep) < len(found):
                if self._chains is not None:
                    self._chains.end(np.delete(found.numbered, keep))
                found = found.kept(keep)
        if len(found):
            self._append(found)

    def settle(self) -> None:
        """Merge everything and cancel every negative element now, wherever its positive one is."""
        pages, self._pages = self._pages, []
        self._chains, self._count = None, 0
        if pages:
            elements = concat([p.elements for p in pages])
            self._add(elements.take(surviving(elements, INF)))

    def probe(self, needles: Needles, limit: int) -> Iterator[Pairs]:
        """Pairs that match and live together, at most `limit` (candidates, if by a band) at a time."""
        if not self._pages:
            return
        if self.band is not None:
            yield from self._in_band(needles, limit)
            return
        if not self.keys and not self.static:
            yield from self._product(needles, limit)
            return
        chains, first = self._chained(), int(needles.ts.min(initial=INF))
        chains.base = self._oldest(chains.size)
        those = tuple(read_only(a) for a in (needles.hashes, needles.ts, needles.end, needles.sign))
        for left, number in chains.probe(needles.hashes, limit):
            pairs = self._met(those, first, left, number)
            if len(pairs):
                yield pairs

    def _met(self, needles: tuple[np.ndarray, ...], first: int, left: Int64s, number: Int64s) -> Pairs:
        """The candidates that are pairs, page by page; `first`: the first start of a needle."""
        stops = np.array([len(left)])
        if len(self._pages) > 1:
            left, number, stops = by_page(np.array([p.first for p in self._pages]), left, number)
        right, ts, end = (np.empty(len(left) + 1, np.int64) for _ in range(3))
        to_left, sign, sources = np.empty(len(left) + 1, np.int64), np.empty(len(left) + 1, np.int8), []
        begin = at = 0
        for page, stop in zip(self._pages, stops.tolist(), strict=True):
            if stop > begin:
                candidates = left[begin:stop], number[begin:stop]
                step, elements = page.met(self.keys, first)
                last = meet(candidates, needles, page.places, elements, step, (to_left, right, ts, end, sign), at)
                if last > at:
                    sources.append((page.elements, at, last))
                at = last
            begin = stop
        return Pairs(to_left[:at], right[:at], ts[:at], end[:at], sign[:at], sources)

    def _in_band(self, needles: Needles, limit: int) -> Iterator[Pairs]:
        assert needles.low is not None and needles.high is not None
        order = np.argsort(needles.hashes)  # in order they walk the indexes as caches like
        hashes, lows, highs = needles.hashes[order], needles.low[order], needles.high[order]
        lives = needles.ts, needles.end, needles.sign
        for page in list(self._pages):
            index, there = page.band, page.elements
            assert index is not None
            low, count = band_ranges(hashes, lows, highs, index.hashes, index.codes)
            for begin, stop in parts(count, limit):
                cut = slice(begin, stop)
                candidates = order[cut], low[cut], count[cut]
                left, right, *lifetimes = meet_ranges(candidates, lives, index.rows, (there.ts, there.exp, there.sign))
                if len(left):
                    ts, end, sign = lifetimes
                    yield Pairs(left, right, ts, end, sign, [(there, 0, len(left))])

    def _product(self, needles: Needles, limit: int) -> Iterator[Pairs]:
        """All that live together, where nothing else is asked: there is nothing to look for in chains."""
        lives = tuple(read_only(a) for a in (needles.ts, needles.end, needles.sign))
        pages, size, count = self._pages, len(self), len(needles.ts)
        step = max(1, limit // size)
        for begin in range(0, count, step):
            some, at, sources = (begin, min(begin + step, count)), 0, []
            left, right, ts, end = (np.empty((some[1] - begin) * size + 1, np.int64) for _ in range(4))
            sign = np.empty(len(left), np.int8)
            for page in pages:
                _, (starts, exp, *_) = page.met((), BEGINNING - 1)
                elements = starts, exp, read_only(page.elements.sign)
                last = meet_all(some, lives, elements, len(page), (left, right, ts, end, sign), at)
                if last > at:
                    sources.append((page.elements, at, last))
                at = last
            if at:
                yield Pairs(left[:at], right[:at], ts[:at], end[:at], sign[:at], sources)

    def everything(self) -> list[Elements]:
        """All elements, run by run; of a table, the rows that are there."""
        if self.static and any((p.elements.sign < 0).any() for p in self._pages):
            self.settle()
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
        """Go on from runs; the oldest of them are not indexed again if they are here."""
        kept = self._in_common(runs)
        if kept:
            self._pages, self._count = kept, kept[-1].stop
            self.adopt({run.uid: run for run in runs[: len(kept)]})
            if self._chains is not None:
                self._chains.truncate(self._count)
        else:
            self._pages, self._chains, self._count, self._expired = [], None, 0, BEGINNING
        for run in runs[len(kept) :]:
            self._add(elements_of(run), run)
        if self.static and self.band is not None:
            self.everything()

    def _in_common(self, runs: tuple[Run, ...]) -> list[Page]:
        """The pages of the oldest runs, as far as they follow each other here; none of what may be ended early."""
        if self.strict or self.band is not None or not runs:
            return []
        uids = ["" if p.run is None else p.run.uid for p in self._pages]
        begin = uids.index(runs[0].uid) if runs[0].uid in uids else len(uids)
        same = takewhile(lambda pair: pair[0] == pair[1].uid, zip(uids[begin:], runs, strict=False))
        return self._pages[begin : begin + len(list(same))]
