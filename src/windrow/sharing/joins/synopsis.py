"""Synopses over joins, by the time at which results expire: RJ, IJ and BIJ (figure 8.3).

Every interval holds the aggregates of the results whose older row (as its window counts it) lies there. When time moves
on, new results are added to *any* interval, not only to the youngest, and the oldest are dropped:

                    a result changes        a window reads
    running join    every interval after    1
    interval join   log b                   log b
    basic           1                       b, all windows of one instant together

Which is cheapest depends on how many results come between two instants, and how many windows are read at each.
State: the intervals with rows younger than the longest window. A longer window lets them stay longer, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING
from windrow.sharing.joins.kernels import (
    Asked,
    JoinIntervals,
    PairedRows,
    basic_interval_join,
    grouped_join,
    interval_join,
    running_join,
)
from windrow.sharing.synopses import SynopsisKind


@dataclass(frozen=True)
class Requests:
    """Windows to be read: request r, of `query[r]`, holds at `ts[r]` what came after `low[r]`, and until `until[r]`.

    In the order of instants, shorter windows first.
    """

    query: Int64s
    ts: Int64s
    low: Int64s
    until: Int64s

    @classmethod
    def of(cls, query: Int64s, ts: Int64s, low: Int64s, until: Int64s) -> Requests:
        order = np.lexsort((-low, ts))
        return cls(query[order], ts[order], low[order], until[order])

    def __getitem__(self, part: slice) -> Requests:
        return Requests(self.query[part], self.ts[part], self.low[part], self.until[part])

    def __len__(self) -> int:
        return len(self.query)

    @property
    def instants(self) -> tuple[Int64s, Int64s]:
        """The different instants, and where the requests of each begin (and the last ones end)."""
        times, first = np.unique(self.ts, return_index=True)
        return times, np.append(first, len(self.ts)).astype(np.int64)


@dataclass(frozen=True)
class Results:
    """New results of a join, in the order of their birth: pairs of rows, and the group of each."""

    found: NDArray[np.int32]  # [results, 2] a row of each side
    sides: tuple[PairedRows, PairedRows]
    segment: Int64s | None = None


@dataclass(frozen=True)
class Read:
    """What requests read: `request[i]` of group `segment[i]`."""

    request: Int64s
    segment: Int64s
    sums: JoinIntervals


def cheapest(results: float, instants: float, requests: float, intervals: float, sums_only: bool) -> SynopsisKind:
    """The join synopsis that touches the fewest intervals.

    >>> cheapest(1000, 10, 640, 100, True).value, cheapest(10, 1000, 1000, 5000, False).value
    ('basic interval join', 'interval join')
    """
    kinds = [SynopsisKind.BASIC_INTERVAL_JOIN, SynopsisKind.INTERVAL_JOIN]
    kinds += [SynopsisKind.RUNNING_JOIN] if sums_only else []
    return min(kinds, key=lambda kind: sum(touched(kind, results, instants, requests, intervals)))


def touched(
    kind: SynopsisKind, results: float, instants: float, requests: float, intervals: float
) -> tuple[float, float]:
    """How many intervals a sweep touches: to add results, and to read windows."""
    steps = log2(intervals + 2)
    match kind:
        case SynopsisKind.INTERVAL_JOIN:
            return (intervals + results) * steps, requests * steps
        case SynopsisKind.RUNNING_JOIN:
            return intervals + results * intervals / 2, requests
    return results, instants * intervals


_KERNELS = {
    SynopsisKind.BASIC_INTERVAL_JOIN: basic_interval_join,
    SynopsisKind.INTERVAL_JOIN: interval_join,
    SynopsisKind.RUNNING_JOIN: running_join,
}


class JoinSynopsis:
    """The intervals of one reader group that have rows, by group and edge."""

    def __init__(self) -> None:
        self.edge, self.segment = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.intervals = blank(0, 1, 0)
        self.kind = SynopsisKind.BASIC_INTERVAL_JOIN  # as last chosen
        self.read_share = 0.0  # of the steps of the last sweep, those that windows took

    def __len__(self) -> int:
        return len(self.edge)

    def sweep(self, axis: Int64s, results: Results, requests: Requests, kind: SynopsisKind | None = None) -> Read:
        """Add results while time passes, and read what is due on the way; `axis`: the edges of all intervals.

        Without groups every request is answered, with groups those that have rows.
        """
        instants, first = requests.instants
        asked = Asked(instants, first, np.searchsorted(axis, requests.low, "right"))
        if results.segment is not None:
            return self._by_group(axis, results, asked)
        size, lanes, codes = len(axis), self.intervals.lanes.shape[1], self.intervals.codes.shape[1]
        work = (len(results.found), len(instants), len(requests), size)
        self.kind = kind or cheapest(*work, sums_only=not codes)
        adding, reading = touched(self.kind, *work)
        self.read_share = reading / max(adding + reading, 1.0)
        to, at = blank(size, lanes, codes), np.searchsorted(axis, self.edge)
        for mine, known in zip(to, self.intervals, strict=True):
            mine[at] = known
        answer = _KERNELS[self.kind](results.found, *results.sides, asked, to)
        kept = np.flatnonzero(to.lanes[:, 0] > 0)
        self.edge, self.segment, self.intervals = axis[kept], np.zeros(len(kept), np.int64), taken(to, kept)
        return Read(np.arange(len(requests)), np.zeros(len(requests), np.int64), JoinIntervals(*answer))

    def cut(self, at: int) -> None:
        """End the open intervals at `at`: all that was added so far came before it."""
        self.edge = np.minimum(self.edge, at)

    def forget(self, oldest: int) -> None:
        """Drop the intervals that ended at or before `oldest`."""
        keep = self.edge > oldest
        if not keep.all():
            self.edge, self.segment, self.intervals = self.edge[keep], self.segment[keep], taken(self.intervals, keep)

    def _by_group(self, axis: Int64s, results: Results, asked: Asked) -> Read:
        assert results.segment is not None
        a, b = results.sides
        i, j = results.found[:, 0], results.found[:, 1]
        wanted = a.wanted[i] & b.wanted[j]
        if not wanted.all():
            i, j = i[wanted], j[wanted]
        segment = np.concatenate((self.segment, results.segment[wanted]))
        groups, code = np.unique(segment, return_inverse=True)
        order = np.argsort(code.reshape(-1), kind="stable")  # what is known first, then by birth
        bounds = np.searchsorted(code.reshape(-1)[order], np.arange(len(groups) + 1))
        place = np.concatenate((np.searchsorted(axis, self.edge), np.minimum(a.place[i], b.place[j])))[order]
        birth = np.concatenate((np.full(len(self), BEGINNING), np.maximum(a.ts[i], b.ts[j])))[order]
        new = (
            np.concatenate((np.ones((len(i), 1), np.int64), a.lanes[i], b.lanes[j]), axis=1),
            np.concatenate((a.codes[i], b.codes[j]), axis=1),
            np.concatenate((a.some[i], b.some[j]), axis=1),
        )
        together = [np.concatenate((x, y))[order] for x, y in zip(self.intervals, new, strict=True)]
        reading = len(asked.instants) * len(together[0])
        self.read_share = reading / max(len(place) + reading, 1)
        (*answer, request, at), (*left, kept, of) = grouped_join(bounds, place, birth, *together, *asked)
        self.edge, self.segment, self.intervals = axis[kept], groups[of], JoinIntervals(*left)
        return Read(request, groups[at], JoinIntervals(*answer))


def blank(rows: int, lanes: int, codes: int) -> JoinIntervals:
    """Intervals with nothing in them."""
    return JoinIntervals(
        np.zeros((rows, lanes), np.int64), np.zeros((rows, codes), np.int64), np.zeros((rows, codes), np.bool_)
    )


def taken(intervals: JoinIntervals, at: Int64s | Bools) -> JoinIntervals:
    """Some of the intervals."""
    return JoinIntervals(intervals.lanes[at], intervals.codes[at], intervals.some[at])
