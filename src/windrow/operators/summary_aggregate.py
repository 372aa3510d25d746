"""Aggregation by summaries of basic windows: FREQUENT, over windows of time and of rows.

    [RANGE 6 SLIDE 2]    |1 2|3 4|5 6|7 8     a slice per period, in the window for three evaluations
    [ROWS 6 SLIDE 2]     |..|..|..|..         a slice per two rows, in the window until three more have closed

Rows are counted exactly in the slice that is open, whatever batch they come in; a slice that closes leaves its summary
(`aggregates/basic_windows`). State: the counts of open slices, one summary per slice and group in the window, the
groups. Cost: O(1) per row, and the summaries in the window per evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.basic_windows import SummaryQueue
from windrow.operators.aggregates.counts import SLOT, SliceCounts, added, counted
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.stretches import Pieces, pieces
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, INF, Elements, concat, one
from windrow.operators.protocol import Operator, State
from windrow.operators.session import in_time_order
from windrow.operators.state.run import Run, ints

SUB_WINDOW = "_sub_window"
"""The column in which rows carry the number of their slice."""
_MOST_PARTS = 8
"""Parts that the counts of open slices may lie in."""
_MOST_DEAD = 1024


class _OpenCounts:
    """A part of the counts of open slices, with its runs."""

    def __init__(self, counts: SliceCounts) -> None:
        self.counts = counts
        self.runs = {"rows": Run(counts.rows), **{f"of {c}": Run(t) for c, t in counts.values.items()}}


class SummaryAggregate:
    """Groups, open slices and the queue: what windows of time and of rows have in common."""

    def __init__(
        self, keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType]
    ) -> None:
        self.keys, self.aggregations = tuple(keys), tuple(aggregations)
        self.schema = {**{k: types[k] for k in keys}, **{a.output: a.type for a in aggregations}}
        self.queue = SummaryQueue(aggregations, types)
        self._groups = Groups([types[k] for k in keys])
        self._open: list[_OpenCounts] = []
        self._start = BEGINNING
        self._saved: Run | None = None

    def start(self, ts: int) -> None:
        """Nothing is shown before `ts`; rows from before it count."""
        self._start = ts

    @property
    def nbytes(self) -> int:
        """Bytes of the queue and the open slices."""
        return sum(r.nbytes for r in self.queue.runs) + sum(o.counts.nbytes for o in self._open)

    def _count(self, rows: Elements, begin: Int64s, end: Int64s) -> None:
        """Count rows in their slices."""
        if not len(rows):
            return
        slots = None
        if self.keys:
            slots = self._groups.lookup([rows.columns[k] for k in self.keys], len(rows))
        columns = {c: rows.columns[c] for c in self.queue.columns}
        self._open.append(_OpenCounts(counted(begin, end, slots, columns, self._groups.capacity)))
        if len(self._open) > _MOST_PARTS:
            self._open = [_OpenCounts(added([o.counts for o in self._open]))]
        self._saved = None

    def _close(self, upto: int) -> None:
        """Summarise the slices that begin by `upto`."""
        parts = [o.counts.parted(upto) for o in self._open]
        closed = [c for c, _ in parts if len(c)]
        if closed:
            self._open = [
                o if not len(c) else _OpenCounts(rest)
                for o, (c, rest) in zip(self._open, parts, strict=True)
                if len(rest)
            ]
            self.queue.add(closed)

    def _forget(self, upto: int) -> None:
        """Drop slices that no later window holds, and groups without any."""
        self.queue.forget(upto)
        if len(self._groups) > 2 * len(self.queue) + _MOST_DEAD:
            used = np.zeros(self._groups.capacity, np.bool_)
            used[self.queue.slots] = True
            for part in self._open:
                used[ints(part.counts.rows, SLOT)] = True
            self._groups.release(self._groups.slots[~used[self._groups.slots]])
            self._saved = None

    def _key_columns(self, slots: Int64s) -> dict[str, pa.Array]:
        return dict(zip(self.keys, self._groups.keys(slots), strict=True)) if self.keys else {}

    # -- state -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The queue, the open counts, the groups and the clock."""
        if self._saved is None:
            slots = self._groups.slots
            keys = {f"key|{k}": c for k, c in self._key_columns(slots).items()}
            self._saved = Run(pa.table({SLOT: pa.array(slots), **keys}))
        named = list(self._open[0].runs) if self._open else []
        found = {f"open {n}": tuple(o.runs[n] for o in self._open) for n in named}
        clock = Run(pa.table({n: [v] for n, v in self._clock().items()}))
        return {**found, "queue": tuple(self.queue.runs), "groups": (self._saved,), "clock": (clock,)}

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state."""
        self.queue.runs = list(state["queue"])
        groups = state["groups"][0].table
        self._saved = state["groups"][0]
        if self.keys:
            self._groups.restore(ints(groups, SLOT), [one(groups.column(f"key|{k}")) for k in self.keys])
        self._open = []
        for i in range(len(state.get("open rows", ()))):
            runs = {n.removeprefix("open "): r[i] for n, r in state.items() if n.startswith("open ")}
            values = {c: runs[f"of {c}"].table for c in self.queue.columns}
            part = _OpenCounts(SliceCounts(runs["rows"].table, values))
            part.runs = runs
            self._open.append(part)
        self._set_clock(state["clock"][0].table.to_pylist()[0])

    def _clock(self) -> dict[str, int]:
        raise NotImplementedError

    def _set_clock(self, clock: Mapping[str, int]) -> None:
        raise NotImplementedError


class PeriodicSummary(SummaryAggregate):
    """Summaries at every `k * period + offset`: rows whose lifetimes begin and end there; none is negative.

    A row may come before its lifetime begins: it is counted at once.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        period: int,
        offset: int = 0,
    ) -> None:
        super().__init__(keys, aggregations, types)
        self.period, self.offset = period, offset
        self._previous = BEGINNING

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """One element per group with rows and evaluation; without keys always one."""
        rows = concat(inputs)
        if self._start == BEGINNING and len(rows):
            self._start = int(rows.ts.min())
        self._count(rows, rows.ts, rows.exp)
        self._close(frontier)
        due = self._due(frontier)
        self._previous = frontier
        if due is None:
            return Elements.empty(self.schema)
        instants = due.numbers * self.period + self.offset
        number, slots, columns = self.queue.answers(instants, bool(self.keys))
        ts, keys = instants[number], self._key_columns(slots)
        self._forget(frontier)
        return Elements(ts, ts + self.period * due.lengths[number], np.ones(len(ts), np.int8), keys | columns)

    def _due(self, frontier: int) -> Pieces | None:
        """The evaluations up to the frontier, long stretches of equal answers as one; None: there are none."""
        if self._start == BEGINNING:
            return None
        after = max(self._previous + 1, self._start) - self.offset
        first, last = -(-after // self.period), (frontier - self.offset) // self.period
        breaks = -((self.offset - self.queue.breaks()) // self.period)
        return pieces(first, last + 1 - first, breaks) if first <= last else None

    def _clock(self) -> dict[str, int]:
        return {"start": self._start, "previous": self._previous}

    def _set_clock(self, clock: Mapping[str, int]) -> None:
        self._start, self._previous = clock["start"], clock["previous"]


class RowsSummary(SummaryAggregate):
    """Summaries over `[ROWS size SLIDE slide]`: they change when a slice of `slide` rows is complete.

    `steps`: selections and projections between the window and the aggregate. They let the slice's number through; rows
    that they leave out count for the window all the same.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        size: int,
        slide: int,
        steps: Sequence[Operator] = (),
    ) -> None:
        super().__init__(keys, aggregations, types)
        self.size, self.slide, self.steps = size, slide, tuple(steps)
        self._seen = 0  # rows
        self._shown = 0  # the slice with which the answer that stands began
        self._begun = False

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """The answers of the advance, and the end of the one that stood before."""
        rows = in_time_order(concat(inputs))
        if self._start == BEGINNING and len(rows):
            self._start = int(rows.ts[0])
        number, times = self._sliced(rows, frontier)
        if BEGINNING < self._start <= frontier and not self._begun:
            number, times = np.append(self._shown, number), np.append(self._start, times)
        if not len(number):
            return Elements.empty(self.schema)
        self._close(int(number[-1]))
        out = self._stretches(number, times)
        self._begun, self._shown = True, int(number[-1])
        self._forget(self._shown)
        return out

    def _sliced(self, rows: Elements, frontier: int) -> tuple[Int64s, Int64s]:
        """Count rows in their slices; the slices that are complete, and when: of one instant the last alone."""
        if not len(rows):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        before, self._seen = self._seen, self._seen + len(rows)
        slices = (before + np.arange(len(rows))) // self.slide + 1
        left = rows.with_columns({**rows.columns, SUB_WINDOW: pa.array(slices)})
        for step in self.steps:
            left = step.advance([left], frontier)
        mine = left.columns[SUB_WINDOW].to_numpy()
        self._count(left, mine, mine + self.size // self.slide)
        number = np.arange(before // self.slide + 1, self._seen // self.slide + 1)
        times = np.maximum(rows.ts[number * self.slide - before - 1], self._start)
        last = np.append(times[1:] != times[:-1], np.ones(min(len(times), 1), np.bool_))
        return number[last], times[last]

    def _stretches(self, number: Int64s, times: Int64s) -> Elements:
        """What stood ends when the first of these begins; each stands until the next."""
        if self._begun:
            number, times = np.append(self._shown, number), np.append(times[0], times)
        at, slots, columns = self.queue.answers(number, bool(self.keys))
        old = (at == 0) & self._begun
        until = np.append(times[1:], INF)
        ts, exp = times[at], np.where(old, INF, until[at])
        columns = self._key_columns(slots) | columns
        out = Elements(ts, exp, np.where(old, -1, 1).astype(np.int8), columns)
        return out.filter(ts < exp)

    def _clock(self) -> dict[str, int]:
        return {"start": self._start, "seen": self._seen, "shown": self._shown, "begun": int(self._begun)}

    def _set_clock(self, clock: Mapping[str, int]) -> None:
        self._start, self._seen, self._shown = clock["start"], clock["seen"], clock["shown"]
        self._begun = bool(clock["begun"])
