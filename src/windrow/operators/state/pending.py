"""Pending ends: elements waiting for the instant at which they expire.

`add` takes elements with a known end; `due(frontier)` removes and returns those with `exp <= frontier`. What differs is the
order in which ends come, the update pattern of the edge:

    Fifo       weakest   ends come in arrival order: drop a prefix               cost: what is due
    Calendar   weak      runs partitioned by expiration; open the days that came  cost: what is due
    Scan       any       one list, searched from end to end at every call         cost: everything that waits

Scan is what the thesis calls the direct approach; the other two are the update-pattern-aware ones (thesis 3.5.2).
Invariant: an element is handed out exactly once, by the first call whose frontier reaches its end.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np

from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.operators.state.run import Run, elements_of, run_of

DAYS = 64
"""Partitions of a calendar year: more make due() finer, fewer make add() cheaper."""

NEW_RUNS, NEW_ROWS = 16, 1 << 13
"""So many runs, or rows, wait before a calendar deals them to its days."""


class Pending(Protocol):
    """Elements waiting for their end."""

    def add(self, elements: Elements) -> None:
        """Take elements with finite ends."""

    def due(self, frontier: int) -> Elements | None:
        """Remove and return the elements that end at or before `frontier`; None when there are none."""

    def runs(self) -> tuple[Run, ...]:
        """All that waits, as runs."""

    def restore(self, runs: tuple[Run, ...]) -> None:
        """Go on from runs."""

    def parts(self) -> list[Elements]:
        """All that waits, as batches."""


class _Waiting:
    """Elements in the order of their ends, spent up to `head`; and, once asked for, the run that holds the rest."""

    __slots__ = ("_run", "_run_head", "elements", "head")

    def __init__(self, elements: Elements, run: Run | None = None) -> None:
        self.elements, self.head = elements, 0
        self._run, self._run_head = run, 0

    def __len__(self) -> int:
        return len(self.elements) - self.head

    def take_due(self, frontier: int) -> Elements | None:
        """Move the head past what is due, and return that; nothing is copied."""
        begin = self.head
        if not len(self) or self.elements.exp[begin] > frontier:
            return None
        self.head = int(np.searchsorted(self.elements.exp, frontier, "right"))
        return _slice(self.elements, begin, self.head)

    def rest(self) -> Elements:
        """What still waits."""
        return _slice(self.elements, self.head, len(self.elements)) if self.head else self.elements

    def run(self) -> Run:
        """What still waits as a run: the same one until more is due."""
        if self._run is None or self._run_head != self.head:
            self._run, self._run_head = run_of(self.rest()), self.head
        return self._run


def _by_end(elements: Elements) -> Elements:
    """The elements in the order of their ends."""
    if (elements.exp[1:] >= elements.exp[:-1]).all():
        return elements
    return elements.take(np.argsort(elements.exp, kind="stable"))


class Scan:
    """One list, searched whole."""

    def __init__(self) -> None:
        self._all: Elements | None = None
        self._run: Run | None = None

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._all, self._run = concat([*self.parts(), elements]), None

    def due(self, frontier: int) -> Elements | None:
        if self._all is None:
            return None
        mask = self._all.exp <= frontier  # the whole list, at every call
        if not mask.any():
            return None
        due, rest = self._all.take(np.flatnonzero(mask)), self._all.take(np.flatnonzero(~mask))
        self._all, self._run = (rest if len(rest) else None), None
        return due

    def parts(self) -> list[Elements]:
        return [] if self._all is None else [self._all]

    def runs(self) -> tuple[Run, ...]:
        if self._all is None:
            return ()
        self._run = self._run or run_of(self._all)
        return (self._run,)

    def restore(self, runs: tuple[Run, ...]) -> None:
        self._all = concat([elements_of(r) for r in runs]) if runs else None
        self._run = runs[0] if len(runs) == 1 else None


class Fifo:
    """Batches in the order of their ends."""

    def __init__(self) -> None:
        self._queue: deque[_Waiting] = deque()

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._queue.append(_Waiting(_by_end(elements)))

    def due(self, frontier: int) -> Elements | None:
        due: list[Elements] = []
        while self._queue:
            part = self._queue[0].take_due(frontier)
            if part is not None:
                due.append(part)
            if len(self._queue[0]):  # the first that waits for longer; so does all behind it
                break
            self._queue.popleft()
        return concat(due) if due else None

    def parts(self) -> list[Elements]:
        return [b.rest() for b in self._queue]

    def runs(self) -> tuple[Run, ...]:
        return tuple(b.run() for b in self._queue)

    def restore(self, runs: tuple[Run, ...]) -> None:
        self._queue = deque(_Waiting(elements_of(r), r) for r in runs)


class Calendar:
    """Elements partitioned by the day on which they end.

    New elements wait in a few runs until there are enough to deal to their days; a day is sorted when it comes. So an element is copied a few times
    in its life, and what is due is a few prefixes of runs.

    The length of a day is set by the first deal (its span of ends over DAYS) and grows when a later deal would need more
    than four years of days.
    """

    def __init__(self) -> None:
        self.restore(())

    def add(self, elements: Elements) -> None:
        if not len(elements):
            return
        self._new.append(_Waiting(_by_end(elements)))
        if len(self._new) > NEW_RUNS or sum(map(len, self._new)) > NEW_ROWS:
            self._deal()

    def _deal(self) -> None:
        """Send what is new to its days, if it is much."""
        rows = _merged(self._new)
        if len(rows) <= NEW_ROWS:
            self._new = [_Waiting(rows)]
            return
        self._new = []
        begin = int(np.searchsorted(rows.exp, self._tomorrow))
        if begin:
            self._today.append(_Waiting(_slice(rows, 0, begin)))
            if len(self._today) > NEW_RUNS:
                self._today = [_Waiting(_merged(self._today))]
        if begin < len(rows):
            self._put(_slice(rows, begin, len(rows)))

    def _put(self, rows: Elements) -> None:
        """Cut elements in the order of their ends into days."""
        self._stretch(int(rows.exp[-1]) - int(rows.exp[0]))
        days = rows.exp // self._length
        edges = (np.flatnonzero(np.diff(days)) + 1).tolist()
        for begin, end in zip([0, *edges], [*edges, len(days)], strict=True):
            day = int(days[begin])
            self._days.setdefault(day, []).append(_slice(rows, begin, end))
            self._runs.pop(day, None)

    def _stretch(self, span: int) -> None:
        if self._length and span <= 4 * DAYS * self._length:
            return
        parts = [p for day in sorted(self._days) for p in self._days[day]]
        self._length, self._days, self._runs = max(1, span // DAYS, 2 * self._length), {}, {}
        if parts:
            self._put(_by_end(concat(parts)))

    def due(self, frontier: int) -> Elements | None:
        if self._days and frontier >= self._tomorrow:
            self._open(frontier // self._length)
        due = [part for w in (*self._today, *self._new) if (part := w.take_due(frontier)) is not None]
        if not due:
            return None
        self._today = [w for w in self._today if len(w)]
        self._new = [w for w in self._new if len(w)]
        return concat(due)

    def _open(self, today: int) -> None:
        """Sort the days that have come."""
        self._tomorrow = min((today + 1) * self._length, INF)
        for day in sorted(d for d in self._days if d <= today):
            self._today.append(_Waiting(_by_end(concat(self._days.pop(day)))))
            self._runs.pop(day, None)

    def parts(self) -> list[Elements]:
        later = [p for day in sorted(self._days) for p in self._days[day]]
        return [w.rest() for w in (*self._today, *self._new)] + later

    def runs(self) -> tuple[Run, ...]:
        """What is near, and one run per day; the parts of a day are merged when they are written."""
        for day, parts in self._days.items():
            if day not in self._runs:
                whole = concat(parts)
                self._days[day], self._runs[day] = [whole], run_of(whole)
        near = (w.run() for w in (*self._today, *self._new))
        return (*near, *(self._runs[day] for day in sorted(self._days)))

    def restore(self, runs: tuple[Run, ...]) -> None:
        self._new: list[_Waiting] = []
        self._today: list[_Waiting] = []
        self._tomorrow = BEGINNING  # every day holds ends from here on only
        self._length = 0
        self._days: dict[int, list[Elements]] = {}
        self._runs: dict[int, Run] = {}  # of days that have not changed since they were asked for
        for run in runs:
            self.add(elements_of(run))


def _merged(waiting: list[_Waiting]) -> Elements:
    return _by_end(concat([w.rest() for w in waiting]))


def _slice(elements: Elements, begin: int, end: int) -> Elements:
    return Elements(
        elements.ts[begin:end],
        elements.exp[begin:end],
        elements.sign[begin:end],
        {n: a.slice(begin, end - begin) for n, a in elements.columns.items()},
    )
