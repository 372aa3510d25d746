"""Windows as slices: how a stream is cut so that partial aggregates of the pieces answer every window.

A window W[r, s] holds `(t - r, t]` at every multiple t of s. A sliced window `W(s1, ..., sm)` cuts every period
`s1 + ... + sm` at its edges `s1, s1 + s2, ...`. W[r, s] can be answered from it exactly when some of its last
slices add up to `r mod s` (lemma 1), because then both ends of every window are edges.

    W[18, 15]   paned   (3, 3, 3, 3, 3)      all slices as long as the greatest common divisor
                paired  (12, 3)              at most two slices: the fewest possible (theorem 1)

Krishnamurthy, Wu, Franklin, section 3. Cost of composing: the number of edges in the least common multiple of the
periods, which is why nothing but tests and EXPLAIN composes; `slices` finds edges on the fly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import gcd, lcm

import numpy as np

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

    def stretched(self, times: int) -> SlicedWindow:
        """The same cuts over a period so many times as long."""
        return SlicedWindow(self.slices * times)

    def answers(self, window: SlideWindow) -> bool:
        """Whether the window's answers can be computed from this window's slices (lemma 1)."""
        start = self.period - window.range % window.slide
        return self.period == window.slide and (start == self.period or start in self.edges)


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


def compose(windows: Iterable[SlicedWindow]) -> SlicedWindow:
    """One sliced window that has every edge of all the given ones.

    >>> compose([SlicedWindow((12, 3)), SlicedWindow((6, 3))]).slices
    (6, 3, 3, 3, 3, 6, 3, 3, 3, 3, 6, 3)
    """
    parts = list(windows)
    period = lcm(*(w.period for w in parts))
    edges = sorted({e for w in parts for e in w.stretched(period // w.period).edges})
    return SlicedWindow(tuple(b - a for a, b in pairwise([0, *edges])))


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
    return np.unique(np.concatenate(found))


def multiples(step: int, offset: int, after: int, upto: int) -> Int64s:
    """All `k * step + offset` in `(after, upto]`."""
    first, last = (after - offset) // step + 1, (upto - offset) // step
    return np.arange(first, last + 1) * step + offset if last >= first else np.zeros(0, np.int64)


def next_edge(window: SlideWindow, after: int, technique: str = PAIRED) -> int:
    """The first edge beyond `after`.

    >>> next_edge(SlideWindow(18, 15), 12), next_edge(SlideWindow(18, 15), 15)
    (15, 27)
    """
    after, phase = after - window.phase, window.phase
    if technique == PANED:
        g = gcd(window.range, window.slide)
        return (after // g + 1) * g + phase
    s, second = window.slide, window.range % window.slide
    return min((after // s + 1) * s, ((after + second) // s + 1) * s - second) + phase
