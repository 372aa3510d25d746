"""Windows as slices: how a stream is cut so that partial aggregates of the pieces answer every window.

A window W[r, s] holds `(t - r, t]` at every multiple t of s. A sliced window `W(s1, ..., sm)` cuts every period
`s1 + ... + sm` at its edges `s1, s1 + s2, ...`. W[r, s] can be answered from it exactly when some of its last
slices add up to `r mod s` (lemma 1), because then both ends of every window are edges.

    W[18, 15]   paned   (3, 3, 3, 3, 3)      all slices as long as the greatest common divisor
                paired  (12, 3)              at most two slices: the fewest possible (theorem 1)

Krishnamurthy, Wu, Franklin, section 3. One sliced window with the edges of several has as many as fall into the least
common multiple of their periods; so `edges_between` finds those of a stretch instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd

import numpy as np

from windrow.operators.aggregates.vectors import distinct_values
from windrow.operators.elements import Int64s

PAIRED, PANED = "paired", "paned"


@dataclass(frozen=True, order=True)
class SlideWindow:
    """`[RANGE range SLIDE slide]` in ticks, evaluated at every `k * slide + offset`.

    `lag`: it holds `(t - lag - range, t - lag]` at t. HOP, which holds `[t - range, t)`, has a lag of 1.
    """

    range: int
    slide: int
    offset: int = 0
    lag: int = 0

    def __post_init__(self) -> None:
        if self.range < 1 or self.slide < 1:
            raise ValueError(f"a window of range {self.range} and slide {self.slide}")

    @property
    def phase(self) -> int:
        """Where windows end in the time of rows: at every `k * slide + phase`."""
        return self.offset - self.lag


@dataclass(frozen=True)
class SlicedWindow:
    """A sliced window by its vector of slices.

    >>> SlicedWindow((12, 3)).period, SlicedWindow((12, 3)).edges
    (15, (12, 15))
    """

    slices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.slices or min(self.slices) < 1:
            raise ValueError(f"a sliced window of {self.slices}")

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def period(self) -> int:
        return sum(self.slices)

    @property
    def edges(self) -> tuple[int, ...]:
        """Where slices end, within one period."""
        return tuple(accumulate(self.slices))


def paned(window: SlideWindow) -> SlicedWindow:
    """Equal slices.

    >>> paned(SlideWindow(18, 15)).slices
    (3, 3, 3, 3, 3)
    """
    g = gcd(window.range, window.slide)
    return SlicedWindow((g,) * (window.slide // g))


def paired(window: SlideWindow) -> SlicedWindow:
    """At most two slices.

    >>> paired(SlideWindow(18, 15)).slices, paired(SlideWindow(30, 15)).slices
    ((12, 3), (15,))
    """
    second = window.range % window.slide
    return SlicedWindow((window.slide - second, second) if second else (window.slide,))


def sliced(window: SlideWindow, technique: str = PAIRED) -> SlicedWindow:
    """The window's slices by the named technique."""
    return {PAIRED: paired, PANED: paned}[technique](window)


def edges_between(windows: Sequence[SlideWindow], after: int, upto: int, technique: str = PAIRED) -> Int64s:
    """All slice edges in `(after, upto]`, in order.

    >>> edges_between([SlideWindow(18, 15)], 0, 40).tolist()
    [12, 15, 27, 30]
    """
    found = [np.zeros(0, np.int64)]
    for w in windows:
        if technique == PANED:
            found.append(multiples(gcd(w.range, w.slide), w.phase, after, upto))
            continue
        found.append(multiples(w.slide, w.phase, after, upto))
        if w.range % w.slide:
            found.append(multiples(w.slide, w.phase - w.range % w.slide, after, upto))
    return distinct_values(np.concatenate(found))


def multiples(step: int, offset: int, after: int, upto: int) -> Int64s:
    """All `k * step + offset` in `(after, upto]`."""
    first, last = (after - offset) // step + 1, (upto - offset) // step
    return np.arange(first, last + 1) * step + offset if last >= first else np.zeros(0, np.int64)


def least_rate(windows: Iterable[SlideWindow] | Counter[SlideWindow], technique: str = PAIRED) -> float:
    """Inequality 1: the rows per tick above which sharing slices costs less; equal windows may be counted.

    >>> least_rate([SlideWindow(18, 15), SlideWindow(12, 9)]) < 1
    True
    """
    counted = Counter(windows)
    if counted.total() < 2:
        return float("inf")
    rate = slice_rate(counted, technique)
    final = sum(n * (rate * w.range / w.slide - 2 * w.range / w.slide**2) for w, n in counted.items())
    return final / (counted.total() - 1)


def slice_rate(windows: Iterable[SlideWindow], technique: str = PAIRED) -> float:
    """Common slices per tick, estimated without composing: counted over a stretch of the longest slides."""
    distinct = sorted(set(windows))
    stretch = 4 * max(w.slide for w in distinct)
    return len(edges_between(distinct, 0, stretch, technique)) / stretch


def worth_sharing(windows: Sequence[SlideWindow], rows_per_tick: float, technique: str = PAIRED) -> bool:
    """Whether queries with these windows should share, at a measured rate."""
    return len(windows) > 1 and rows_per_tick > least_rate(windows, technique)
