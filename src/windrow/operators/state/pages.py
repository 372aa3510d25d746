"""Pages: elements of one run in the order of arrival, their numbers, and where a band looks for them.

Numbers ascend with arrival. They follow each other until elements leave from between others; then the page tells them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.keys import signed_values
from windrow.operators.state.run import Run

_NONE, _NO_SIGNS = np.empty(0, np.int64), np.empty(0, np.int8)


@dataclass(frozen=True, slots=True, eq=False)
class BandIndex:
    """Rows of a page by the hash of their key, then by the code of a column."""

    hashes: Int64s
    codes: Int64s
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, hashes: Int64s, codes: Int64s, rows: NDArray[np.int32]) -> BandIndex:
        """Put it in order."""
        order = np.lexsort((codes, hashes))
        return cls(hashes[order], codes[order], rows[order])

    def renumbered(self, rows: NDArray[np.int32]) -> BandIndex:
        """The same over fewer elements: negative rows are gone."""
        keep = rows >= 0
        return BandIndex(self.hashes[keep], self.codes[keep], rows[keep])

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.codes.nbytes + self.rows.nbytes


@dataclass(slots=True, eq=False)
class Page:
    """One run: elements in the order of arrival, and their numbers, which follow each other unless they are told."""

    elements: Elements
    first: int
    numbers: Int64s | None
    band: BandIndex | None
    fifo: bool  # ends ascend
    half_life: int  # half of the elements have ended by then
    last: int
    newest: int  # the last start
    positive: bool
    run: Run | None = None
    _met: tuple[Elements, int, tuple[np.ndarray, ...]] | None = None  # what `met` looks at, of which elements

    @classmethod
    def of(cls, elements: Elements, first: int, numbers: Int64s | None = None, band: BandIndex | None = None) -> Page:
        exp, middle = elements.exp, len(elements) // 2
        if not len(exp):
            return cls(elements, first, numbers, band, True, INF, BEGINNING, BEGINNING, True)
        if len(exp) == 1:  # rows that come one by one are not worth a round of kernels
            end = int(exp[0])
            return cls(elements, first, numbers, band, True, end, end, int(elements.ts[0]), bool(elements.sign[0] > 0))
        newest, positive = int(elements.ts.max()), bool((elements.sign > 0).all())
        if (exp[1:] >= exp[:-1]).all():
            return cls(elements, first, numbers, band, True, int(exp[middle]), int(exp[-1]), newest, positive)
        half = int(np.partition(exp, middle)[middle])
        return cls(elements, first, numbers, band, False, half, int(exp.max()), newest, positive)

    def __len__(self) -> int:
        return len(self.elements.ts)

    @property
    def nbytes(self) -> int:
        index = 0 if self.band is None else self.band.nbytes
        return self.elements.nbytes() + index + (0 if self.numbers is None else self.numbers.nbytes)

    @property
    def numbered(self) -> Int64s:
        """The numbers of all elements."""
        return np.arange(self.first, self.first + len(self)) if self.numbers is None else self.numbers

    def first_after(self, frontier: int) -> int | None:
        """A number before which all have ended by `frontier`; None: all have."""
        if self.last <= frontier:
            return None
        exp, begin = self.elements.exp, 0
        if self.fifo and exp[0] <= frontier:
            begin = int(exp.searchsorted(frontier, "right"))
        return self.first + begin if self.numbers is None else int(self.numbers[begin])

    @property
    def stop(self) -> int:
        """The number after the last."""
        return self.first + len(self) if self.numbers is None else int(self.numbers[-1]) + 1

    @property
    def places(self) -> tuple[int, int, Int64s]:
        """Where elements are by their numbers, for `chains.meet`."""
        return self.first, len(self), _NONE if self.numbers is None else self.numbers

    def met(self, keys: Sequence[str], first: int) -> tuple[int, tuple[np.ndarray, ...]]:
        """What else it looks at: starts, if they may come after `first`, ends, signs and keys, where it needs them."""
        if self._met is None or self._met[0] is not self.elements:
            exp, step = self.elements.exp, 1
            if len(exp) and not exp.strides[0]:
                exp, step = exp[:1], 0
            signs = _NO_SIGNS if self.positive else self.elements.sign
            values = signed_values([self.elements.columns[k] for k in keys])
            arrays = self.elements.ts, exp, signs, _NONE if values is None else values
            self._met = self.elements, step, tuple(map(read_only, arrays))
        _, step, (starts, *others) = self._met
        return step, (starts if self.newest > first else _NOTHING, *others)

    def alive(self, frontier: int) -> Page:
        """What has not ended by `frontier`."""
        exp = self.elements.exp
        if self.fifo:  # the ended ones are a prefix: no element need be moved
            begin = int(np.searchsorted(exp, frontier, "right"))
            return self if not begin else self._without(begin)
        keep = exp > frontier
        return self if keep.all() else self.kept(np.flatnonzero(keep))

    def _without(self, begin: int) -> Page:
        numbers = None if self.numbers is None else self.numbers[begin:]
        band = None if self.band is None else self.band.renumbered(self.band.rows - np.int32(begin))
        first = self.first + begin if numbers is None or not len(numbers) else int(numbers[0])
        return Page.of(self.elements.slice(begin), first, numbers, band)

    def kept(self, index: Int64s) -> Page:
        """The elements at `index`, which ascends."""
        numbers, band = self.numbered[index], None
        if self.band is not None:
            places = np.full(len(self), -1, np.int32)
            places[index] = np.arange(len(index), dtype=np.int32)
            band = self.band.renumbered(places[self.band.rows])
        return Page.of(self.elements.take(index), int(numbers[0]) if len(numbers) else self.first, numbers, band)


def merged(pages: Sequence[Page]) -> Page:
    """Pages as one, the oldest first."""
    filled = [p for p in pages if len(p)]
    if len(filled) <= 1:
        return filled[0] if filled else pages[0]
    told = any(p.numbers is not None for p in filled)
    follow = not told and all(a.first + len(a) == b.first for a, b in pairwise(filled))
    numbers = None if follow else np.concatenate([p.numbered for p in filled])
    band, begins = None, np.cumsum([0, *(len(p) for p in filled[:-1])])
    indexes = [p.band for p in filled if p.band is not None]
    if indexes:
        rows = [x.rows + np.int32(begin) for x, begin in zip(indexes, begins, strict=True)]
        hashes, codes = (np.concatenate([getattr(x, name) for x in indexes]) for name in ("hashes", "codes"))
        band = BandIndex.of(hashes, codes, np.concatenate(rows))
    return Page.of(concat([p.elements for p in filled]), filled[0].first, numbers, band)


def read_only(array: np.ndarray) -> np.ndarray:
    """The array in a type that does not depend on who made it: kernels are compiled for each."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


_NOTHING = read_only(_NONE)
