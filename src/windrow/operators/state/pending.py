"""Pending ends: elements waiting for the instant at which they expire.

`add` takes elements with a known end; `due(frontier)` removes and returns those with `exp <= frontier`. What differs is
the order in which ends come, the update pattern of the edge:

    Fifo         weakest   ends come in arrival order: drop a prefix               cost: what is due
    Calendar     weak      runs partitioned by expiration; open the days that came  cost: what is due
    ScannedList  any       one list, searched from end to end at every call         cost: everything that waits

ScannedList is the direct approach of the thesis; the other two are the update-pattern-aware ones (thesis 3.5.2).
Invariant: an element is handed out exactly once, by the first call whose frontier reaches its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat, gathered
from windrow.operators.radix import stable_order
from windrow.operators.state.run import Run, elements_of, run_of

DAYS = 16
"""Partitions of a calendar year: more make due() finer, fewer make add() cheaper."""

RUNS = 64
"""Sortings that are written as a run each; when they are more, the smaller half is merged."""

NEW_BATCHES, NEW_ROWS = 16, 1 << 13
"""So many batches, or rows, wait before a calendar sorts them into its days."""

FEW, TODAY = 32, 256
"""Parts of a day with fewer rows on average are joined when it comes; so are today's parts when they are more."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Elements that have ended: when, their signs, and which rows of which batches they are, end to end."""

    exp: Int64s
    sign: NDArray[np.int8]
    sources: Sequence[tuple[Mapping[str, pa.Array], Int64s | slice]]

    def __len__(self) -> int:
        return len(self.exp)

    def places(self, name: str) -> list[tuple[pa.Array, Int64s | slice]]:
        """A column, where it lies."""
        return [(columns[name], at) for columns, at in self.sources]

    def column(self, name: str) -> pa.Array:
        """A column, copied."""
        return gathered(self.places(name))

    def values(self, name: str, index: Int64s) -> pa.Array:
        """A column of some of them, which ascend."""
        found, begin, first = [], 0, 0
        for array, at in self.places(name):
            stop = begin + (at.stop - at.start if isinstance(at, slice) else len(at))
            last = int(np.searchsorted(index, stop))
            mine = index[first:last] - begin
            found.append((array, mine + at.start if isinstance(at, slice) else at[mine]))
            begin, first = stop, last
        return gathered(found)


class Pending(Protocol):
    """Elements waiting for their end."""

    def add(self, elements: Elements) -> None:
        """Take elements with finite ends."""

    def due(self, frontier: int) -> Ended | None:
        """Remove and return the elements that end at or before `frontier`; None when there are none."""

    def runs(self) -> tuple[Run, ...]:
        """All that waits, as runs."""

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        """Go on from runs; what ends by `frontier` has been handed out."""

    def parts(self) -> list[Elements]:
        """All that waits, as batches."""


class _WaitingRows:
    """Rows `[head, stop)` of a batch in the order of their ends; and, once asked for, the run that holds them.

    Only their ends are put in order, and cut: a row itself is copied when it is due.
    """

    __slots__ = ("_run", "_run_head", "ends", "head", "order", "positive", "rows", "stop")

    def __init__(self, rows: Elements, run: Run | None = None) -> None:
        self.rows, self.ends = rows, rows.exp
        self.order: Int64s | None = None
        if (self.ends[1:] < self.ends[:-1]).any():
            self.order = stable_order(self.ends)
            self.ends = self.ends[self.order]
        self.positive = bool((rows.sign > 0).all())
        self.head, self.stop = 0, len(self.ends)
        self._run, self._run_head = run, 0

    def __len__(self) -> int:
        return self.stop - self.head

    def part(self, begin: int, stop: int) -> _WaitingRows:
        """Rows `[begin, stop)` of the same batch."""
        made = _WaitingRows.__new__(_WaitingRows)
        made.rows, made.ends, made.order, made.positive = self.rows, self.ends, self.order, self.positive
        made.head, made.stop, made._run, made._run_head = begin, stop, None, begin
        return made

    def take_due(self, frontier: int) -> _WaitingRows | None:
        """Move the head past what is due, and return that."""
        begin = self.head
        if begin == self.stop or self.ends[begin] > frontier:
            return None
        self.head = self.place(frontier, "right")
        return self.part(begin, self.head)

    def place(self, end: int, side: Literal["left", "right"] = "left") -> int:
        """The first row that ends at `end` or later, or (right) later."""
        return self.head + int(np.searchsorted(self.ends[self.head : self.stop], end, side))

    def where(self) -> Int64s | slice:
        """The rows of the batch, in the order of their ends."""
        return slice(self.head, self.stop) if self.order is None else self.order[self.head : self.stop]

    def rest(self) -> Elements:
        """The rows, in no order."""
        if len(self) == len(self.rows):
            return self.rows
        at = self.where()
        return self.rows.slice(at.start, at.stop) if isinstance(at, slice) else self.rows.take(at)

    def waits(self, frontier: int) -> bool:
        """Whether some row does beyond an instant."""
        return bool(self.ends[self.stop - 1] > frontier)

    def run(self) -> Run:
        """The rows as a run: the same one until more is due."""
        if self._run is None or self._run_head != self.head:
            self._run, self._run_head = run_of(self.rest()), self.head
        return self._run


def _taken(parts: Sequence[_WaitingRows]) -> Ended | None:
    """The rows of some parts, none of them copied."""
    if not parts:
        return None
    first: dict[int, _WaitingRows] = {}  # of each batch, as it is cut into days, one part
    apart = []
    for part in parts:
        before = first.setdefault(id(part.rows), part)
        if before is not part and before.stop == part.head:
            before.stop = part.stop
        elif before is not part:
            apart.append(part)
    taken = [*first.values(), *apart]
    ends = np.concatenate([p.ends[p.head : p.stop] for p in taken])
    sources = [(p.rows.columns, p.where()) for p in taken]
    if all(p.positive for p in taken):
        return Ended(ends, np.ones(len(ends), np.int8), sources)
    return Ended(ends, np.concatenate([p.rows.sign[p.where()] for p in taken]), sources)


def _together(parts: Sequence[_WaitingRows]) -> _WaitingRows:
    """Parts as one."""
    return parts[0] if len(parts) == 1 else _WaitingRows(concat([p.rest() for p in parts]))


class ScannedList:
    """One list, searched whole."""

    def __init__(self) -> None:
        self._all: Elements | None = None
        self._run: Run | None = None

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._all, self._run = concat([*self.parts(), elements]), None

    def due(self, frontier: int) -> Ended | None:
        if self._all is None:
            return None
        mask = self._all.exp <= frontier  # the whole list, at every call
        if not mask.any():
            return None
        due, rest = self._all.take(np.flatnonzero(mask)), self._all.take(np.flatnonzero(~mask))
        self._all, self._run = (rest if len(rest) else None), None
        return Ended(due.exp, due.sign, [(due.columns, slice(0, len(due)))])

    def parts(self) -> list[Elements]:
        return [] if self._all is None else [self._all]

    def runs(self) -> tuple[Run, ...]:
        if self._all is None:
            return ()
        self._run = self._run or run_of(self._all)
        return (self._run,)

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        self._all = concat([elements_of(r) for r in runs]) if runs else None
        self._run = runs[0] if len(runs) == 1 else None


class Fifo:
    """Batches in the order of their ends."""

    def __init__(self) -> None:
        self._queue: deque[_WaitingRows] = deque()

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._queue.append(_WaitingRows(elements))

    def due(self, frontier: int) -> Ended | None:
        due = []
        while self._queue:
            part = self._queue[0].take_due(frontier)
            if part is not None:
                due.append(part)
            if len(self._queue[0]):  # the first that waits for longer; so does all behind it
                break
            self._queue.popleft()
        return _taken(due)

    def parts(self) -> list[Elements]:
        return [b.rest() for b in self._queue if len(b)]

    def runs(self) -> tuple[Run, ...]:
        return tuple(b.run() for b in self._queue)

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        self._queue = deque(_WaitingRows(elements_of(r), r) for r in runs)


class Calendar:
    """Rows partitioned by the day on which they end.

    New rows wait in a few batches until there are enough to sort. Then their ends are put in order and cut into days,
    and the rows stay where they are until they are due, so a row is copied once in its life; what is due is the heads
    of the parts of a day. State is written by sorting, not by day: every sorting touches most days, and rewriting them
    would cost everything that waits.

    The length of a day is set by the first sorting (its span of ends over `days`) and grows when a later one would need
    more than four years of days.
    """

    def __init__(self, days: int = DAYS) -> None:
        self.days = days
        self._new: list[_WaitingRows] = []
        self._today: list[_WaitingRows] = []
        self._tomorrow = BEGINNING  # every day holds ends from here on only
        self._length = 0
        self._days: dict[int, list[_WaitingRows]] = {}
        self._sorted: list[_WaitingRows] = []  # together, what is in the days and today
        self._frontier = BEGINNING

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._new.append(_WaitingRows(elements))
            self._sort_new()

    def _sort_new(self) -> None:
        """Send what is new to its days, if it is much."""
        if len(self._new) <= NEW_BATCHES and sum(len(b) for b in self._new) <= NEW_ROWS:
            return
        new = _together(self._new)
        self._new = [new] if len(new) <= NEW_ROWS else []
        if not self._new:
            self._sorted.append(new.part(new.head, new.stop))
            self._into_days(new)

    def _into_days(self, rows: _WaitingRows) -> None:
        """Cut rows to today and to the days after."""
        cut = rows.place(self._tomorrow)
        if cut > rows.head:
            self._today.append(rows.part(rows.head, cut))
            if len(self._today) > TODAY:
                self._today = [_together(self._today)]
        if cut < rows.stop:
            self._put(rows.part(cut, rows.stop))

    def _put(self, rows: _WaitingRows) -> None:
        """Cut rows into days."""
        ends = rows.ends[rows.head : rows.stop]
        self._stretch(int(ends[-1]) - int(ends[0]))
        days = ends // self._length
        edges = (rows.head + 1 + np.flatnonzero(np.diff(days))).tolist()
        for begin, stop in pairwise([rows.head, *edges, rows.stop]):
            self._days.setdefault(int(days[begin - rows.head]), []).append(rows.part(begin, stop))

    def _stretch(self, span: int) -> None:
        if self._length and span <= 4 * self.days * self._length:
            return
        parts = [p for day in sorted(self._days) for p in self._days[day]]
        self._length, self._days = max(1, span // self.days, 2 * self._length), {}
        if parts:
            self._put(_together(parts))

    def due(self, frontier: int) -> Ended | None:
        self._frontier = frontier
        due = [part for w in (*self._today, *self._new) if (part := w.take_due(frontier)) is not None]
        if self._days and frontier >= self._tomorrow:
            due += self._open(frontier // self._length)
        if due:
            self._today = [w for w in self._today if len(w)]
            self._new = [w for w in self._new if len(w)]
        return _taken(due)

    def _open(self, today: int) -> list[_WaitingRows]:
        """Bring the day that has come; returned is what is due of it, and all that waited for the days before it."""
        self._tomorrow = min((today + 1) * self._length, INF)
        over = [p for day in sorted(d for d in self._days if d < today) for p in self._days.pop(day)]
        parts = self._days.pop(today, [])
        if len(parts) > 1 and sum(map(len, parts)) < FEW * len(parts):
            parts = [_together(parts)]
        self._today += parts
        self._sorted = [w for w in self._sorted if w.waits(self._frontier)]
        return over + [part for w in parts if (part := w.take_due(self._frontier)) is not None]

    def parts(self) -> list[Elements]:
        later = (p for day in sorted(self._days) for p in self._days[day])
        return [p.rest() for p in (*self._today, *self._new, *later) if len(p)]

    def runs(self) -> tuple[Run, ...]:
        """One run per sorting, less those that are over; the smaller ones are merged when they are many."""
        waiting = [self._rest(w) for w in self._sorted if w.waits(self._frontier)]
        if len(waiting) > RUNS:
            waiting.sort(key=len)
            merged = _together(waiting[: RUNS // 2])
            waiting[: RUNS // 2] = [merged.part(merged.place(self._frontier, "right"), merged.stop)]
        self._sorted = waiting
        return tuple(w.run() for w in (*waiting, *self._new))

    def _rest(self, rows: _WaitingRows) -> _WaitingRows:
        """The rows while most of them wait, else those that do: so a run lasts until half of it has ended."""
        if rows.ends[(rows.head + rows.stop) // 2] > self._frontier:
            return rows
        return rows.part(rows.place(self._frontier, "right"), rows.stop)

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        Calendar.__init__(self, self.days)
        self._frontier = frontier
        whole = [_WaitingRows(elements_of(run), run) for run in runs]
        waiting = [w.part(w.place(frontier, "right") if frontier < INF else w.stop, w.stop) for w in whole]
        few = len(waiting) <= NEW_BATCHES and sum(map(len, waiting)) <= NEW_ROWS
        for rows, part in zip(whole, waiting, strict=True):
            if len(part) and few:
                rows.head = part.head
                self._new.append(rows)
            elif len(part):
                self._sorted.append(rows)
                self._put(part)
