"""The paper's costs of sharing aggregates: by formula, and counted on data.

A partial aggregation puts one row into one partial; a final aggregation puts one partial into one answer. Per period
of the composed window, of E slices and |T| rows:

                            partial      final
    unshared slices         n |T|        sum of (S / s) (slices of W[r, s] in a window)       table 3
    shared slices           |T|          sum of (S / s) (common slices in a window)           table 3
    unshared fragments      0            alpha |T|                                            table 5
    shared fragments        |T|          k beta                                               table 5

Table 3 writes E (r / s) for the last factor of the second line times S / s: the mean number of windows a slice is in,
exact where the slide divides the range and a mean elsewhere; `count_slices` counts. The first line is written there
with its bound for paired windows, 2 r / s. alpha and beta are the mean numbers of queries of a row and of a fragment;
k counts fragments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.sharing.conditions import Condition
from windrow.sharing.index import PredicateIndex
from windrow.sharing.windows import PAIRED, SlicedWindow, SlideWindow, edges_between, multiples, sliced


def compose(windows: Iterable[SlicedWindow]) -> SlicedWindow:
    """One sliced window that has every edge of all the given ones.

    >>> compose([SlicedWindow((12, 3)), SlicedWindow((6, 3))]).slices
    (6, 3, 3, 3, 3, 6, 3, 3, 3, 3, 6, 3)
    """
    parts = list(windows)
    period = lcm(*(w.period for w in parts))
    edges = sorted({e for w in parts for e in SlicedWindow(w.slices * (period // w.period)).edges})
    return SlicedWindow(tuple(b - a for a, b in pairwise([0, *edges])))


@dataclass(frozen=True)
class Cost:
    """Numbers of aggregations."""

    partial: int
    final: int

    @property
    def total(self) -> int:
        return self.partial + self.final


def unshared_slices(windows: Sequence[SlideWindow], rows: int, period: int, technique: str = PAIRED) -> Cost:
    """Table 3, first line: every query cuts for itself."""
    final = sum(
        (Fraction(period, w.slide) * Fraction(len(sliced(w, technique)) * w.range, w.slide) for w in windows),
        Fraction(0),
    )
    return Cost(len(windows) * rows, int(final))


def shared_slices(windows: Sequence[SlideWindow], rows: int, technique: str = PAIRED) -> Cost:
    """Table 3, second line, over one period of the composed window."""
    common = compose(sliced(w, technique) for w in windows)
    final = sum((Fraction(len(common) * w.range, w.slide) for w in windows), Fraction(0))
    return Cost(rows, int(final))


@dataclass(frozen=True)
class Fragments:
    """Table 4's parameters, counted on data: rows |T|, fragments k, and the sums behind alpha and beta."""

    rows: int
    fragments: int
    row_queries: int  # the sum over rows of how many queries each satisfies
    fragment_queries: int  # the same over fragments

    @property
    def alpha(self) -> float:
        return self.row_queries / self.rows if self.rows else 0.0

    @property
    def beta(self) -> float:
        return self.fragment_queries / self.fragments if self.fragments else 0.0

    @property
    def unshared(self) -> Cost:
        """Table 5, first line."""
        return Cost(0, self.row_queries)

    @property
    def shared(self) -> Cost:
        """Table 5, second line: rows that satisfy no query are in the fragment that is ignored."""
        return Cost(self.rows, self.fragment_queries)


def count_fragments(
    conditions: Sequence[Condition], attributes: Mapping[str, pa.Array], rows: int, first: Int64s | None = None
) -> Fragments:
    """Count the fragments of rows: sets of rows that satisfy the same queries (and lie in the same slice, if cut at
    `first`).

    `conditions`: one per query, in any number of copies.
    """
    index = PredicateIndex(conditions)
    places = index.places(attributes)
    slice_ = np.zeros(rows, np.int64) if first is None else np.repeat(np.arange(len(first) - 1), np.diff(first))
    code = slice_
    times = Counter(conditions)
    weight = np.array([times[c] for p in index.spaces for c in p.conditions if isinstance(c, Condition)], np.int64)
    signatures: Bools = np.zeros((int(slice_.max()) + 1 if rows else 0, 0), np.bool_)
    for k, space in enumerate(index.spaces):
        cells, cell = np.unique(index.cells(k, places, rows), return_inverse=True)
        membership = np.stack([space.inside(i, cells) for i in range(len(space.conditions))], axis=1)
        kinds, kind_of = np.unique(membership, axis=0, return_inverse=True)
        code, signatures = _refined(code, signatures, kind_of.reshape(-1)[cell.reshape(-1)], kinds)
    counts = np.bincount(code, minlength=len(signatures))
    satisfied = signatures.astype(np.int64) @ weight if signatures.shape[1] else np.zeros(len(signatures), np.int64)
    some = satisfied > 0
    return Fragments(
        int(counts[some].sum()), int(some.sum()), int((satisfied * counts).sum()), int(satisfied[some].sum())
    )


def _refined(code: Int64s, signatures: Bools, kind: Int64s, kinds: Bools) -> tuple[Int64s, Bools]:
    """Split every code by kind; the signatures of the codes that occur."""
    pairs, refined = np.unique(code * len(kinds) + kind, return_inverse=True)
    return refined, np.concatenate((signatures[pairs // len(kinds)], kinds[pairs % len(kinds)]), axis=1)


def count_slices(
    windows: Sequence[SlideWindow], begin: int, end: int, shared: bool = True, technique: str = PAIRED
) -> int:
    """Final aggregations over windows that end in `(begin, end]`: the slices in each, all counted as filled."""
    total = 0
    common = edges_between(windows, begin - max(w.range for w in windows), end, technique) if shared else None
    for w in windows:
        instants = multiples(w.slide, w.phase, begin, end)
        edges = common if common is not None else edges_between([w], begin - w.range, end, technique)
        total += int(
            (np.searchsorted(edges, instants, "right") - np.searchsorted(edges, instants - w.range, "right")).sum()
        )
    return total
