"""Pending ends: rows that are alive now and have a known end.

Two disciplines, the same answers. `EndCalendar` keeps runs sorted by expiration and takes what is due from their
heads; a run that is not due is not looked at. `EndScan` keeps one buffer and looks at all of it at every advance
(the direct approach). A row is kept as its group's slot, its end, its sign and the aggregates' argument columns.

Invariant: rows with `exp <= frontier` of the last `take` are spent, whether or not they are still in a run;
so a run keeps its identity until it is spent or more spent than not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.reduced import is_reduced
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, concat_arrays, one
from windrow.operators.state.run import Run, ints

_MANY = 64
"""So many runs at most, before the smaller half of them is merged."""


@dataclass(frozen=True, slots=True)
class RowEnds:
    """Rows and when they end."""

    exp: Int64s
    slot: np.ndarray
    sign: np.ndarray
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.exp)

    def slice(self, start: int, stop: int) -> RowEnds:
        """Rows `[start, stop)`, without copying."""
        columns = {n: a.slice(start, stop - start) for n, a in self.columns.items()}
        return RowEnds(self.exp[start:stop], self.slot[start:stop], self.sign[start:stop], columns)

    def take(self, index: Int64s) -> RowEnds:
        """The rows at `index`."""
        picks = pa.array(index)
        return RowEnds(
            self.exp[index], self.slot[index], self.sign[index], {n: a.take(picks) for n, a in self.columns.items()}
        )

    def by_end(self) -> RowEnds:
        """Sorted by end."""
        if len(self) < 2 or (self.exp[1:] >= self.exp[:-1]).all():
            return self
        return self.take(np.argsort(self.exp, kind="stable"))

    def run(self) -> Run:
        """The rows as a run."""
        named = {"_exp": pa.array(self.exp), "_slot": pa.array(self.slot), "_sign": pa.array(self.sign)}
        return Run(pa.table(named | self.columns))

    @staticmethod
    def of(run: Run) -> RowEnds:
        """The rows of a run."""
        table = run.table
        columns = {n: one(table.column(n)) for n in table.column_names[3:]}
        return RowEnds(ints(table, "_exp"), ints(table, "_slot"), ints(table, "_sign"), columns)


def joined(parts: list[RowEnds]) -> RowEnds:
    """All rows of `parts`, at least one; columns that a part lacks are zero there."""
    if len(parts) == 1:
        return parts[0]
    names = {n: a.type for p in parts for n, a in p.columns.items()}
    return RowEnds(
        np.concatenate([p.exp for p in parts]),
        np.concatenate([p.slot for p in parts]),
        np.concatenate([p.sign for p in parts]),
        {
            n: concat_arrays([p.columns[n] if n in p.columns else _zeros(len(p), t) for p in parts])
            for n, t in names.items()
        },
    )


def _zeros(n: int, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int64()), n).cast(type_)


class _Sorted:
    """A run of the calendar: rows by end, spent up to `head`."""

    __slots__ = ("head", "rows", "run")

    def __init__(self, rows: RowEnds, run: Run | None = None, head: int = 0) -> None:
        self.rows, self.run, self.head = rows, run, head

    @property
    def left(self) -> int:
        return len(self.rows) - self.head

    def rest(self) -> RowEnds:
        return self.rows.slice(self.head, len(self.rows)) if self.head else self.rows


class EndCalendar:
    """Runs sorted by end. Cost: what is due, and a look at the head of each run."""

    def __init__(self) -> None:
        self._runs: list[_Sorted] = []

    def put(self, rows: RowEnds) -> None:
        if len(rows) == 0:
            return
        self._runs.append(_Sorted(rows.by_end()))
        if len(self._runs) > _MANY:
            # the larger half keeps its identity, and a row is merged a logarithmic number of times
            by_size = sorted(self._runs, key=lambda r: r.left)
            small, self._runs = by_size[: _MANY // 2], by_size[_MANY // 2 :]
            self._runs.append(_Sorted(joined([r.rest() for r in small]).by_end()))

    def take(self, frontier: int) -> list[RowEnds]:
        due, kept = [], []
        for run in self._runs:
            if run.rows.exp[run.head] <= frontier:
                stop = int(np.searchsorted(run.rows.exp, frontier, side="right"))
                due.append(run.rows.slice(run.head, stop))
                run.head = stop
                if stop == len(run.rows):
                    continue
                if 2 * stop > len(run.rows):
                    run = _Sorted(run.rows.take(np.arange(stop, len(run.rows))))
            kept.append(run)
        self._runs = kept
        return due

    def slots(self) -> list[np.ndarray]:
        return [r.rows.slot[r.head :] for r in self._runs]

    def runs(self) -> tuple[Run, ...]:
        for run in self._runs:
            run.run = run.run or run.rows.run()
        return tuple(r.run for r in self._runs if r.run is not None)

    def restore(self, runs: tuple[Run, ...], frontier: int) -> None:
        self._runs = []
        for run in runs:
            rows = RowEnds.of(run)
            head = int(np.searchsorted(rows.exp, frontier, side="right"))
            if head < len(rows):
                self._runs.append(_Sorted(rows, run, head))


class EndScan:
    """One buffer. Cost: all of it at every advance."""

    def __init__(self) -> None:
        self._rows: RowEnds | None = None
        self._run: Run | None = None

    def put(self, rows: RowEnds) -> None:
        if len(rows):
            self._rows = rows if self._rows is None else joined([self._rows, rows])
            self._run = None

    def take(self, frontier: int) -> list[RowEnds]:
        if self._rows is None:
            return []
        due = self._rows.exp <= frontier
        if not due.any():
            return []
        taken, rest = self._rows.take(np.flatnonzero(due)), self._rows.take(np.flatnonzero(~due))
        self._rows, self._run = (rest if len(rest) else None), None
        return [taken]

    def slots(self) -> list[np.ndarray]:
        return [] if self._rows is None else [self._rows.slot]

    def runs(self) -> tuple[Run, ...]:
        if self._rows is None:
            return ()
        self._run = self._run or self._rows.run()
        return (self._run,)

    def restore(self, runs: tuple[Run, ...], frontier: int = BEGINNING) -> None:
        self._run = runs[0] if len(runs) == 1 else None
        self._rows = joined([RowEnds.of(r) for r in runs]) if runs else None


class PendingEnds:
    """Rows by the discipline called `expiration`, "calendar" or "scan"; reduced rows, whose columns differ, apart."""

    def __init__(self, expiration: str) -> None:
        if expiration not in ("calendar", "scan"):
            raise ValueError(f"no expiration is called {expiration}")
        kind = EndCalendar if expiration == "calendar" else EndScan
        self._rows: tuple[EndCalendar | EndScan, ...] = (kind(), kind())

    def put(self, rows: RowEnds) -> None:
        """Let rows wait."""
        self._rows[is_reduced(rows.columns)].put(rows)

    def take(self, frontier: int) -> list[RowEnds]:
        """The rows that end by `frontier`, which wait no longer."""
        return [due for rows in self._rows for due in rows.take(frontier)]

    def slots(self) -> list[np.ndarray]:
        """The groups of all rows that wait."""
        return [slots for rows in self._rows for slots in rows.slots()]

    def runs(self) -> tuple[Run, ...]:
        """The rows as runs."""
        return tuple(run for rows in self._rows for run in rows.runs())

    def restore(self, runs: tuple[Run, ...], frontier: int) -> None:
        """Go on from runs, of which what ends by `frontier` is spent."""
        for kind, rows in enumerate(self._rows):
            rows.restore(tuple(run for run in runs if is_reduced(run.table.column_names) == kind), frontier)
