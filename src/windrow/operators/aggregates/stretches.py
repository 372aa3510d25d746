"""Long stretches of equal answers, in closed form.

The answer of a window changes only where rows come into it or leave it. Where many evaluations lie between two such
instants (a gap in time), the first of them answers for all: its row lives for so many periods.

    instants     k k k k k k k k k k k k k k k k k k k k
    breaks           b   b b                         b
    pieces       [  dense   ][ one answer, 11 periods ][ dense ]

Cost: the breaks, and the instants that lie near one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.state.ranges import expand

WIDE = 1 << 16
"""Instants without a break that are worth a piece of their own."""


@dataclass(frozen=True)
class Pieces:
    """Instants in order: piece i has `count[i]` answers from number `first[i]` on, each for `length[i]` periods."""

    first: Int64s
    count: Int64s
    length: Int64s

    @property
    def numbers(self) -> Int64s:
        """The instants that are answered."""
        return expand(self.first, self.count)

    @property
    def lengths(self) -> Int64s:
        """For how many periods each of them is."""
        return np.repeat(self.length, self.count)


def pieces(first: int, count: int, breaks: Int64s) -> Pieces:
    """The instants `first .. first + count - 1`; the answer at one that is not in `breaks` is that before it.

    >>> found = pieces(0, 200_000, np.array([3, 150_000, 150_001]))
    >>> found.first.tolist(), found.count.tolist(), found.length.tolist()
    ([0, 3, 150000], [3, 1, 50000], [1, 149997, 1])
    """
    end = first + count
    inside = distinct_values(np.concatenate(([first, end], breaks[(breaks > first) & (breaks < end)])))
    wide = np.flatnonzero(np.diff(inside) >= WIDE)
    begins, ends = inside[wide], inside[wide + 1]
    dense, until = np.append(first, ends), np.append(begins, end)  # what lies between wide stretches
    starts = np.concatenate((dense, begins))
    order = np.lexsort((np.concatenate((np.zeros(len(dense)), np.ones(len(begins)))), starts))
    counts = np.concatenate((until - dense, np.ones(len(begins), np.int64)))[order]
    lengths = np.concatenate((np.ones(len(dense), np.int64), ends - begins))[order]
    some = counts > 0
    return Pieces(starts[order][some], counts[some], lengths[some])


def breaks_of(edges: Int64s, range_: int, slide: int, phase: int) -> Int64s:
    """The numbers of the instants at which rows with these edges come into windows, or leave them."""
    return np.concatenate([-((phase - times) // slide) for times in (edges, edges + range_)])
