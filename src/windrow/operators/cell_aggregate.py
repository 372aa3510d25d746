"""Continuous aggregation for many queries at once, by cell.

Queries that select different rows and group them alike see the same row many times. Here a row comes once, with the
set of queries that want it (`route.py`); rows with the same set are a cell, and partials are kept per group and cell:

    rows ──► (group, cell) partials ──► per group touched: sums over cells, for the queries in them ──► stretches

What a row does to the queries of its cell is a few additions in a compiled loop (`aggregates/cell_kernels.py`), not a
row for each. A query's answer leaves only where it changes and where the bounds that its HAVING sets may hold; whoever
reads it tests HAVING exactly.

Law: the output is that of `ContinuousAggregate` over a row for each query, less stretches that HAVING drops. State: the
live rows' ends once, a partial per live (group, cell), the sets. Cost per advance: a sort of the events, an addition
for each event and query, and what the touched groups hold. Lanes are summed, so it is for COUNT, SUM, AVG and moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.cell_kernels import live_partials, sweep_cells
from windrow.operators.aggregates.pending import RowEnds
from windrow.operators.aggregates.reduced import kept_columns
from windrow.operators.aggregates.sums import SumLanes
from windrow.operators.aggregates.sweep import in_order
from windrow.operators.aggregates.vectors import Int64s, grown, raw
from windrow.operators.elements import BEGINNING, INF, Elements
from windrow.operators.protocol import State
from windrow.operators.query_aggregate import CELL, QueryAggregate
from windrow.operators.state.run import Run, ints
from windrow.operators.terms import QUERIES, Router

_CARRY = 1 << 28
"""Events behind which the limbs of partials are carried: each adds less than 2**32."""


class CellAggregate(QueryAggregate):
    """GROUP BY for many queries, with a partial for each group and set of queries."""

    def __init__(
        self, keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType], router: Router
    ) -> None:
        super().__init__(keys, aggregations, types, router)
        self._head = np.zeros(0, np.int64)
        self._after, self._cell, self._waiting, self._free = (np.zeros(0, np.int64) for _ in range(4))
        self._store = np.zeros((0, 1), np.int64)
        self._spare = self._events = 0

    # -- one advance -------------------------------------------------------------------------------------------------

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """The stretches of constant answer that begin, and the ends of those sent before."""
        elements = self._on_time(inputs, frontier)
        due = self._pending.take(frontier)
        if not len(elements) and not due:
            return self._output(np.zeros((0, 5), np.int64), np.zeros((0, self._store.shape[1]), np.int64))
        self._saved = {}
        slots = self._groups.lookup([elements.columns[k] for k in self.keys], len(elements))
        cells = self._sets.cells(elements.columns[QUERIES])
        self._reserve(len(elements))
        later = (elements.exp > frontier) & (elements.exp != INF)
        self._keep(elements, slots, cells, later)
        stretches, lanes, dead = self._sweep(elements, slots, cells, later, due, frontier)
        output = self._output(stretches, lanes)
        self._groups.release(dead)
        self._sets.tidy(lambda: self._cell[live_partials(self._groups.slots, self._head, self._after)[:, 1]])
        return output

    def _keep(self, elements: Elements, slots: Int64s, cells: Int64s, later: np.ndarray) -> None:
        """Let rows that end later wait."""
        at = np.flatnonzero(later)
        if len(at):
            columns = kept_columns(elements.columns, self._sums, ()) | {CELL: pa.array(cells)}
            rows = RowEnds(elements.exp, slots.astype(np.int32), elements.sign, columns)
            self._pending.put(rows if len(at) == len(elements) else rows.take(at))

    def _sweep(
        self, elements: Elements, slots: Int64s, cells: Int64s, later: np.ndarray, due: list[RowEnds], frontier: int
    ) -> tuple[Int64s, Int64s, Int64s]:
        n, ended = len(elements), np.flatnonzero(elements.exp <= frontier)
        matrix = self._matrix([elements, *due])
        group = np.concatenate([slots, slots[ended], *(d.slot.astype(np.int64) for d in due)])
        time = np.concatenate([elements.ts, elements.exp[ended], *(d.exp for d in due)])
        time = np.maximum(time, self._start)
        sign = elements.sign.astype(np.int64)
        order = in_order(group, time)
        group = group[order]
        first = np.flatnonzero(np.diff(group, prepend=-1))
        ends = np.full(len(matrix) - n, -1, np.int64)
        waits = np.concatenate((later.astype(np.int64), np.zeros(len(ended), np.int64), ends))
        deltas = np.concatenate([sign, -sign[ended], *(-d.sign.astype(np.int64) for d in due)])
        rows = np.concatenate((np.arange(n), ended, np.arange(n, len(matrix))))
        cell = np.concatenate([cells, cells[ended], *(raw(d.columns[CELL]) for d in due)])
        stretches, lanes, dead, self._spare = sweep_cells(
            group[first], np.append(first, len(group)), time[order], cell[order], rows[order], deltas[order],
            waits[order], matrix, self._head, self._after, self._cell, self._waiting, self._store, self._free,
            self._spare, *self._sets.members, len(self._sets.numbers), self._shown(), *self._bounds(),
        )  # fmt: skip
        self._carry(2 * int(np.abs(matrix[:, 0]).sum()))
        return stretches, lanes, dead

    def _kept_lanes(self, now: Sequence[Int64s] | None = None) -> Sequence[Int64s]:
        if now is not None:
            (self._store,) = now
        return (self._store,)

    def _carry(self, events: int) -> None:
        """Carry the limbs of all partials before one can overflow; `events`: of rows, those of reduced ones too."""
        self._events += events
        if self._events < _CARRY:
            return
        self._events, at = 0, 1
        for sums in self._sums.values():
            end = at + sums.layout.width
            self._store[:, at:end] = sums.canonical(np.ascontiguousarray(self._store[:, at:end]))
            at = end

    def _reserve(self, rows: int) -> None:
        """Have room for the groups there are, and for a partial of each new row."""
        more = self._groups.capacity - len(self._head)
        if more > 0:
            self._head = np.concatenate((self._head, np.full(max(more, len(self._head)), -1, np.int64)))
        if self._spare >= rows:
            return
        old = len(self._cell)
        size = max(old + rows - self._spare, 2 * old)
        self._after, self._cell, self._waiting = (grown(a, size) for a in (self._after, self._cell, self._waiting))
        self._store = grown(self._store, size)
        free = np.empty(size, np.int64)
        free[: self._spare] = self._free[: self._spare]
        free[self._spare : self._spare + size - old] = np.arange(old, size)
        self._free, self._spare = free, self._spare + size - old

    # -- state -------------------------------------------------------------------------------------------------------

    def _kept(self) -> dict[str, Run]:
        """The partials."""
        pairs = live_partials(self._groups.slots, self._head, self._after)
        partials = {"_group": pa.array(pairs[:, 0]), "_cell": pa.array(self._cell[pairs[:, 1]])}
        partials["_waiting"] = pa.array(self._waiting[pairs[:, 1]])
        partials["_rows"] = pa.array(self._store[pairs[:, 1], 0])
        for column, (layout, at) in self._places().items():
            for k, name in enumerate(layout.names()):
                partials[f"{name}|{column}"] = pa.array(self._store[pairs[:, 1], at + k])
        return {"cells": Run(pa.table(partials))}

    def restore(self, state: State, frontier: int = BEGINNING) -> None:
        """Go on from a state."""
        super().restore(state, frontier)
        cells = state["cells"][0].table
        named = [n.split("|", 1) for n in cells.column_names if "|" in n]
        for column, sums in self._sums.items():
            sums.layout = SumLanes.of_names([name for name, of in named if of == column])
            sums.store = np.zeros((0, sums.layout.width), np.int64)
        self._layouts, self._known = [s.layout for s in self._sums.values()], None
        self._restore_partials(cells)

    def _restore_partials(self, cells: pa.Table) -> None:
        lanes = [f"{n}|{c}" for c, (layout, _) in self._places().items() for n in layout.names()]
        self._store = np.stack([ints(cells, name) for name in ("_rows", *lanes)], axis=1).astype(np.int64)
        self._cell, self._waiting = ints(cells, "_cell").copy(), ints(cells, "_waiting").copy()
        group = ints(cells, "_group")
        self._head = np.full(self._groups.capacity, -1, np.int64)
        self._after = np.full(len(group), -1, np.int64)
        for p in np.flatnonzero(np.diff(group, prepend=-1)).tolist():
            self._head[group[p]] = p
        same = np.flatnonzero(group[1:] == group[:-1])
        self._after[same] = same + 1
        self._free, self._spare = np.empty(len(group), np.int64), 0
