"""Edges of many windows at once, each belonging to an owner.

An edge is `k * step + offset`. Windows are listed as (step, offset, owner): two for a paired window unless its slide
divides its range, one for a paned window. All owners' edges over an interval come from one vectorised pass; where
edges are much denser than rows (a slide of a microsecond over hours of data), only the first edge at or after each
row is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

import numpy as np

from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.sharing.windows import PAIRED, PANED, SlideWindow


class Edges:
    """Windows of owners `0..owners - 1`."""

    def __init__(self, windows: Iterable[tuple[int, SlideWindow]], owners: int, technique: str = PAIRED) -> None:
        listed = sorted({(o, *cut) for o, w in windows for cut in window_cuts(w, technique)})
        self.owners = owners
        table = np.array(listed, np.int64).reshape(-1, 3)
        self._owner, self._step, self._offset = table[:, 0], table[:, 1], table[:, 2]

    def count(self, after: int, upto: int) -> int:
        """About how many edges lie in `(after, upto]`, and the next ones: those that fall together count again."""
        return int(((upto - self._offset) // self._step - (after - self._offset) // self._step + 1).sum())

    def own(self, ts: Int64s, upto: int) -> tuple[Int64s, Int64s]:
        """(first of each owner, edges): what cuts rows at the sorted times `ts`, and the next edge beyond `upto`."""
        after = int(ts[0]) - 1
        first = (after - self._offset) // self._step + 1
        counts = (upto - self._offset) // self._step + 2 - first
        if counts.sum() > 8 * (len(ts) + 1) * max(len(self._step), 1):
            owner, edge = self._by_row(ts)
        else:
            which = np.repeat(np.arange(len(counts)), counts)
            k = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
            owner, edge = self._owner[which], k * self._step[which] + self._offset[which]
        if self.owners == 1:
            edge = distinct_values(edge)
            return np.array([0, len(edge)]), edge
        order = np.lexsort((edge, owner))
        owner, edge = owner[order], edge[order]
        opens = np.ones(len(edge), np.bool_)
        opens[1:] = (owner[1:] != owner[:-1]) | (edge[1:] != edge[:-1])
        owner, edge = owner[opens], edge[opens]
        return np.searchsorted(owner, np.arange(self.owners + 1)), edge

    def _by_row(self, ts: Int64s) -> tuple[Int64s, Int64s]:
        times = distinct_values(ts)
        found = [-(-(times - o) // s) * s + o for s, o in zip(self._step, self._offset, strict=True)]
        return np.repeat(self._owner, len(times)), np.concatenate(found)


def window_cuts(window: SlideWindow, technique: str) -> list[tuple[int, int]]:
    """Where a window cuts its stream: at every `k * step + offset`, for each (step, offset)."""
    phase = window.phase
    if technique == PANED:
        return [(gcd(window.range, window.slide), phase)]
    second = window.range % window.slide
    return [(window.slide, phase), (window.slide, phase - second)] if second else [(window.slide, phase)]
