"""Reader groups: queries over a join that read one synopsis, and what they ask of it in an advance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windrow.operators.aggregates.stretches import WIDE, breaks_of, pieces
from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.elements import BEGINNING
from windrow.operators.state.ranges import expand
from windrow.sharing.joins.layout import LaneLayout
from windrow.sharing.joins.members import JoinMember, Pair, Sided
from windrow.sharing.joins.side import Predicate, SideRows
from windrow.sharing.joins.synopsis import JoinSynopsis, Requests
from windrow.sharing.query_group import HeldInstants, instants
from windrow.sharing.windows import SlideWindow, multiples

SPARSE = 8
"""Edges are made per row, not per period, when there would be so many times as many as rows."""


@dataclass
class JoinReader:
    """A member since when: the epoch of the first rows that it sees, and its clock."""

    member: JoinMember
    epoch: int
    start: int = BEGINNING
    fresh: bool = True  # not looked at since it joined


@dataclass(frozen=True)
class ResultGrouping:
    """By what results are told apart: group keys, and arguments whose values are counted."""

    keys: tuple[Sided, ...]
    counted: tuple[Sided, ...] = ()

    def of_side(self, side: int) -> tuple[Sided, ...]:
        """What rows of one side are told apart by."""
        return tuple(s for s in (*self.keys, *self.counted) if s[0] == side)

    def __bool__(self) -> bool:
        return bool(self.keys or self.counted)


@dataclass
class ReaderGroup:
    """Queries that read one synopsis: the same predicates, difference of window lengths, grouping, and epoch.

    A query that joins later has a reader group of its own until its windows hold no row from before it. From the
    beginning the older group cuts its intervals for it, and keeps them as long as it needs (`coming`): then it moves.
    """

    predicates: tuple[Predicate, Predicate]
    shifts: Pair
    grouping: ResultGrouping
    epoch: int
    members: list[JoinReader] = field(default_factory=list)
    coming: list[JoinReader] = field(default_factory=list)
    synopsis: JoinSynopsis = field(default_factory=JoinSynopsis)
    layout: LaneLayout = field(default_factory=LaneLayout)  # of its intervals
    grid: int = 0  # at whose multiples windows may be read, besides those of their periods; 0: none
    _of: tuple[JoinReader, ...] = ()  # whose `_windows` are known
    _windows: list[SlideWindow] = field(default_factory=list)

    def lay_out(self, sides: Sequence[SideRows]) -> None:
        """Give intervals the lanes and codes that queries need, and rows have, by now."""
        layout = LaneLayout.of((s.member for s in (*self.members, *self.coming)), sides)
        if layout != self.layout:
            self.synopsis.intervals = layout.moved(self.synopsis.intervals, self.layout)
            self.layout = layout

    @property
    def windows(self) -> list[SlideWindow]:
        """The different windows, by their shorter side."""
        readers = (*self.members, *self.coming)
        if len(readers) != len(self._of) or any(a is not b for a, b in zip(readers, self._of, strict=True)):
            self._of, self._windows = readers, sorted({s.member.window for s in readers})
        return self._windows

    @property
    def longest(self) -> int:
        return self.windows[-1].range if self.windows else 0

    @property
    def _cuts(self) -> set[tuple[int, int]]:
        """(period, offset) of all edges of windows: many windows have the same."""
        cuts = {(w.slide, -w.range % w.slide) for w in self.windows}
        return cuts | {(self.grid, 0)} if self.grid else cuts

    def requests(
        self,
        last: int,
        frontier: int,
        numbers: Mapping[str, int],
        times: Sequence[Int64s],
        held: Mapping[str, HeldInstants],
    ) -> Requests:
        """All windows of all queries that are due by `frontier` and were not by `last`; `times`: of both sides' rows.

        Where the rows here leave long stretches of equal answers, the first of them is read for all. `held`: at which
        instants after `last` those are read that may be held back.
        """
        begun = [s for s in self.members if s.start != BEGINNING]
        table = [(s.member.window.range, s.member.window.slide, s.start, s.fresh) for s in begun]
        range_, slide, start, fresh = np.array(table, np.int64).reshape(-1, 4).T
        first, counts = instants(slide, np.zeros(len(begun), np.int64), start, fresh > 0, last, frontier)
        step = slide.copy()
        for i, reader in enumerate(begun if held else ()):
            if (at := held.get(reader.member.name)) is not None:
                first[i], counts[i], step[i] = at.first, at.times, at.step
        query = np.array([numbers[s.member.name] for s in begun], np.int64)
        length: Int64s | int = 1
        if len(counts) and counts.max() >= WIDE:
            cut = [
                pieces(k, count, np.concatenate([breaks_of(t, r, s.member.slide, 0) for t, r in _sides(times, s)]))
                for s, k, count in zip(begun, first.tolist(), counts.tolist(), strict=True)
            ]
            number, length = (np.concatenate([getattr(p, name) for p in cut]) for name in ("numbers", "lengths"))
            which = np.repeat(np.arange(len(begun)), [int(p.count.sum()) for p in cut])
        else:
            which, number = np.repeat(np.arange(len(begun)), counts), expand(first, counts)
        ts = number * step[which]
        return Requests.of(query[which], ts, ts - range_[which], ts + length * slide[which])

    def axis(self, since: int, frontier: int, times: Sequence[Int64s]) -> Int64s:
        """The edges of intervals: where windows that are read from now on begin, and where intervals ended so far.

        `since`: before any that is read now. `times`: of the rows of both sides.
        """
        edges = [self.synopsis.edge]
        rows, cuts = sum(map(len, times)) + 1, self._cuts
        if sum((frontier - since) // period + 2 for period, _ in cuts) <= SPARSE * rows * len(cuts):
            edges += [multiples(period, offset, since - 1, frontier + period) for period, offset in cuts]
        else:
            shifted = np.concatenate([t + s for t, s in zip(times, self.shifts, strict=True)])
            values = distinct_values(np.append(shifted, (since, frontier)))
            edges.append(np.min([-(-(values - at) // period) * period + at for period, at in cuts], axis=0))
        return distinct_values(np.concatenate(edges))


def _sides(times: Sequence[Int64s], reader: JoinReader) -> Iterable[tuple[Int64s, int]]:
    """The times of each side's rows, and how long they stay in the reader's window."""
    return zip(times, reader.member.ranges, strict=True)
