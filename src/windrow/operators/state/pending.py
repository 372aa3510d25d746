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
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.radix import stable_order
from windrow.operators.state.run import Run, elements_of, run_of

DAYS = 64
"""Partitions of a calendar year: more make due() finer, fewer make add() cheaper."""

NEW_BATCHES, NEW_ROWS = 16, 1 << 13
"""So many batches, or rows, wait before a calendar sorts them into its days."""

FEW, TODAY = 32, 4 * DAYS
"""Parts of a day with fewer rows on average are joined when it comes; so are today's parts when they are more."""


class Pending(Protocol):
    """Elements waiting for their end."""

    def add(self, elements: Elements) -> None:
        """Take elements with finite ends."""

    def due(self, frontier: int) -> Elements | None:
        """Remove and return the elements that end at or before `frontier`; None when there are none."""

    def runs(self) -> tuple[Run, ...]:
        """All that waits, as runs."""

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        """Go on from runs; what ends by `frontier` has been handed out."""

    def parts(self) -> list[Elements]:
        """All that waits, as batches."""


class _WaitingRows:
    """Rows, spent up to `head` in the order of their ends; and, once asked for, the run that holds the rest.

    Rows are record batches with `_ts`, `_exp` and `_sign` before their columns: cut and joined in one call, however
    many columns there are. They are put in order only as they are taken.
    """

    __slots__ = ("_ends", "_order", "_run", "_run_head", "head", "rows")

    def __init__(self, rows: pa.RecordBatch, run: Run | None = None) -> None:
        self.rows, self.head = rows, 0
        self._ends, self._order = _ends(rows), None
        if (self._ends[1:] < self._ends[:-1]).any():
            self._order = stable_order(self._ends)
            self._ends = self._ends[self._order]
        self._run, self._run_head = run, 0

    def __len__(self) -> int:
        return len(self._ends) - self.head

    def take_due(self, frontier: int) -> pa.RecordBatch | None:
        """Move the head past what is due, and return that."""
        begin = self.head
        if begin == len(self._ends) or self._ends[begin] > frontier:
            return None
        self.head = int(np.searchsorted(self._ends, frontier, "right"))
        return self.between(begin, self.head)

    def between(self, begin: int, end: int) -> pa.RecordBatch:
        """Rows `[begin, end)` in the order of their ends."""
        if self._order is None:
            return self.rows.slice(begin, end - begin)
        return self.rows.take(pa.array(self._order[begin:end]))

    def count_until(self, end: int) -> int:
        """How many rows end before `end`."""
        return int(np.searchsorted(self._ends, end))

    def rest(self) -> pa.RecordBatch:
        """What still waits, in no order."""
        return self.between(self.head, len(self._ends)) if self.head else self.rows

    def run(self) -> Run:
        """What still waits as a run: the same one until more is due."""
        if self._run is None or self._run_head != self.head:
            self._run, self._run_head = _run(self.rest()), self.head
        return self._run


def _pack(elements: Elements) -> pa.RecordBatch:
    named = {"_ts": elements.ts, "_exp": elements.exp, "_sign": elements.sign}
    arrays = [*(pa.array(a) for a in named.values()), *elements.columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[*named, *elements.columns])


def _unpack(parts: list[pa.RecordBatch]) -> Elements | None:
    if not parts:
        return None
    rows = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
    ts, exp, sign, *columns = rows.columns
    return Elements(
        ts.to_numpy(), exp.to_numpy(), sign.to_numpy(), dict(zip(rows.schema.names[3:], columns, strict=True))
    )


def _ends(rows: pa.RecordBatch) -> Int64s:
    ends: Int64s = rows.column(1).to_numpy()
    return ends


def _run(rows: pa.RecordBatch) -> Run:
    return Run(pa.Table.from_batches([rows]))


def _rows(run: Run) -> pa.RecordBatch:
    return _pack(elements_of(run))


class ScannedList:
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

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        self._all = concat([elements_of(r) for r in runs]) if runs else None
        self._run = runs[0] if len(runs) == 1 else None


class Fifo:
    """Batches in the order of their ends."""

    def __init__(self) -> None:
        self._queue: deque[_WaitingRows] = deque()

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._queue.append(_WaitingRows(_pack(elements)))

    def due(self, frontier: int) -> Elements | None:
        due = []
        while self._queue:
            part = self._queue[0].take_due(frontier)
            if part is not None:
                due.append(part)
            if len(self._queue[0]):  # the first that waits for longer; so does all behind it
                break
            self._queue.popleft()
        return _unpack(due)

    def parts(self) -> list[Elements]:
        return [e for b in self._queue if (e := _unpack([b.rest()])) is not None]

    def runs(self) -> tuple[Run, ...]:
        return tuple(b.run() for b in self._queue)

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        self._queue = deque(_WaitingRows(_rows(r), r) for r in runs)


class _EndRun:
    """Rows sorted together, in the order of their ends: what a calendar is written as, whole and once.

    Days that have come take rows out of it; its run keeps them until half of it has ended.
    """

    __slots__ = ("_run", "rows")

    def __init__(self, rows: pa.RecordBatch, run: Run | None = None) -> None:
        self.rows, self._run = rows, run

    def waits(self, frontier: int) -> bool:
        """Whether some row still does."""
        return int(_ends(self.rows)[-1]) > frontier

    def rest(self, frontier: int) -> _EndRun:
        """The run itself while most of it waits, else what of it does."""
        ends = _ends(self.rows)
        if ends[len(ends) // 2] > frontier:
            return self
        return _EndRun(self.rows.slice(int(np.searchsorted(ends, frontier, "right"))))

    def run(self) -> Run:
        """The rows as a run: always the same one."""
        if self._run is None:
            self._run = _run(self.rows)
        return self._run


class Calendar:
    """Rows partitioned by the day on which they end.

    New rows wait in a few batches until there are enough to sort, in the order of their ends, into their days. So a row
    is copied twice in its life, and what is due is the heads of the parts of a day. State is written by sorting, not by
    day: every sorting touches most days, and rewriting them would cost everything that waits.

    The length of a day is set by the first sorting (its span of ends over DAYS) and grows when a later one would need
    more than four years of days.
    """

    def __init__(self) -> None:
        self._new: list[_WaitingRows] = []
        self._today: list[_WaitingRows] = []
        self._tomorrow = BEGINNING  # every day holds ends from here on only
        self._length = 0
        self._days: dict[int, list[pa.RecordBatch]] = {}
        self._end_runs: list[_EndRun] = []  # together, what is in the days and today
        self._frontier = BEGINNING

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._new.append(_WaitingRows(_pack(elements)))
            self._sort_new()

    def _sort_new(self) -> None:
        """Send what is new to its days, if it is much."""
        if len(self._new) <= NEW_BATCHES and sum(len(b) for b in self._new) <= NEW_ROWS:
            return
        new = _merged(self._new)
        if len(new) <= NEW_ROWS:
            self._new = [new]
            return
        self._new = []
        rows = new.between(new.head, new.head + len(new))
        self._end_runs.append(_EndRun(rows))
        self._into_days(rows)

    def _into_days(self, rows: pa.RecordBatch) -> None:
        """Rows in the order of their ends, to today and to the days after."""
        cut = int(np.searchsorted(_ends(rows), self._tomorrow))
        if cut:
            self._today.append(_WaitingRows(rows.slice(0, cut)))
            if len(self._today) > TODAY:
                self._today = [_merged(self._today)]
        if cut < rows.num_rows:
            self._put(rows.slice(cut))

    def _put(self, rows: pa.RecordBatch) -> None:
        """Cut rows in the order of their ends into days."""
        ends = _ends(rows)
        self._stretch(int(ends[-1]) - int(ends[0]))
        days = ends // self._length
        edges = (np.flatnonzero(np.diff(days)) + 1).tolist()
        for begin, end in zip([0, *edges], [*edges, len(days)], strict=True):
            self._days.setdefault(int(days[begin]), []).append(rows.slice(begin, end - begin))

    def _stretch(self, span: int) -> None:
        if self._length and span <= 4 * DAYS * self._length:
            return
        parts = [p for day in sorted(self._days) for p in self._days[day]]
        self._length, self._days = max(1, span // DAYS, 2 * self._length), {}
        if parts:
            rows = _WaitingRows(pa.concat_batches(parts))
            self._put(rows.between(0, len(rows)))

    def due(self, frontier: int) -> Elements | None:
        self._frontier = frontier
        over = self._open(frontier // self._length) if self._days and frontier >= self._tomorrow else []
        due = [part for w in (*self._today, *self._new) if (part := w.take_due(frontier)) is not None]
        if due:
            self._today = [w for w in self._today if len(w)]
            self._new = [w for w in self._new if len(w)]
        return _unpack(over + due)

    def _open(self, today: int) -> list[pa.RecordBatch]:
        """Bring the day that has come; returned is what waited for the days before it, all of which is due."""
        self._tomorrow = min((today + 1) * self._length, INF)
        over = [p for day in sorted(d for d in self._days if d < today) for p in self._days.pop(day)]
        parts = self._days.pop(today, [])
        if len(parts) > 1 and sum(p.num_rows for p in parts) < FEW * len(parts):
            parts = [pa.concat_batches(parts)]
        self._today += [_WaitingRows(p) for p in parts]  # each is in order, as it was sorted
        self._end_runs = [d for d in self._end_runs if d.waits(self._frontier)]
        return over

    def parts(self) -> list[Elements]:
        near = [w.rest() for w in (*self._today, *self._new)]
        later = [p for day in sorted(self._days) for p in self._days[day]]
        return [e for p in (*near, *later) if (e := _unpack([p])) is not None]

    def runs(self) -> tuple[Run, ...]:
        """One run per sorting, less those that are over; the smaller ones are merged when they are many."""
        end_runs = [d.rest(self._frontier) for d in self._end_runs if d.waits(self._frontier)]
        if len(end_runs) > DAYS:
            end_runs.sort(key=lambda d: d.rows.num_rows)
            merged = _WaitingRows(pa.concat_batches([d.rows for d in end_runs[: DAYS // 2]]))
            begin = merged.count_until(self._frontier + 1)
            end_runs[: DAYS // 2] = [_EndRun(merged.between(begin, len(merged)))]
        self._end_runs = end_runs
        return (*(d.run() for d in end_runs), *(w.run() for w in self._new))

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        self._new, self._today, self._days, self._end_runs = [], [], {}, []
        self._tomorrow, self._length, self._frontier = BEGINNING, 0, frontier
        batches = []
        for run in runs:
            waiting = _WaitingRows(_rows(run), run)
            waiting.head = waiting.count_until(frontier + 1) if frontier < INF else len(waiting)
            if len(waiting):
                batches.append((waiting, run))
        if len(batches) <= NEW_BATCHES and sum(len(b) for b, _ in batches) <= NEW_ROWS:
            self._new = [b for b, _ in batches]
            return
        for waiting, run in batches:
            rows = waiting.between(waiting.head, waiting.head + len(waiting))
            self._end_runs.append(_EndRun(rows, run))
            self._put(rows)


def _merged(waiting: list[_WaitingRows]) -> _WaitingRows:
    if len(waiting) == 1:
        return waiting[0]
    return _WaitingRows(pa.concat_batches([w.rest() for w in waiting]))
