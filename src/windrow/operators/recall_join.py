"""The join of inputs that announce ends with tables that do not reach back: a row that goes takes along whom it met.

A row meets such a table once, as it is at the row's own time. Its end comes later, as a negative element, when the
table may be another, so the end cannot look for the partners again: they are remembered.

    input      + a at 3 ─────────► − a at 7       the table has x for a from 1 to 4, y from 5 on
    answer     + (a, x) at 3 ────► − (a, x) at 7

Every row is dated by the instant at which it came, its end too: of equal rows the oldest ends first (`births.py`).
Several inputs are joined with each other first, dates included, and the results of that meet the tables; such a result
is as old as its oldest row.

State: the tables, what the join of the inputs remembers, the rows of inputs that announce ends, and for each row that
meets tables (`MET` false) and each of its results (`MET` true) one element. Cost: that of the joins; an end costs the
results that it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.births import BORN, Births, Remembered
from windrow.operators.changes import cancel
from windrow.operators.elements import Elements, concat
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import LEAST
from windrow.operators.protocol import State, Unclocked

MET = "~met"
MEMORY, STREAMS = "memory", "streams/"


class RecallJoin(Unclocked):
    """Rows of the inputs that are not `static`, joined by `streams` if there are several, meet tables in `tables`.

    `births`: of each of those inputs; `shown`: the columns of the answer.
    """

    def __init__(
        self,
        static: Sequence[bool],
        births: Sequence[Births],
        streams: JoinOperator | None,
        tables: JoinOperator,
        shown: Mapping[str, pa.DataType],
    ) -> None:
        self.static, self.births, self.streams, self.tables = tuple(static), tuple(births), streams, tables
        self.shown = dict(shown)
        self._rows = {n: t for n, t in tables.parts[0].columns.items() if n != LEAST}
        self._memory = Remembered(self._rows, {**self.shown, **self._rows, MET: pa.bool_()})

    @property
    def nbytes(self) -> int:
        """Bytes in memory, indexes included."""
        rows = self._memory.nbytes + sum(b.nbytes for b in self.births)
        return rows + self.tables.nbytes + (0 if self.streams is None else self.streams.nbytes)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        moving = [e for e, fixed in zip(inputs, self.static, strict=True) if not fixed]
        fixed = [e for e, fixed in zip(inputs, self.static, strict=True) if fixed]
        dated = [b.dated(e, frontier) for b, e in zip(self.births, moving, strict=True)]
        rows = self._aged(dated[0] if self.streams is None else cancel(self.streams.advance(dated, frontier)))
        come, gone = rows.filter(rows.sign > 0), rows.filter(rows.sign < 0)
        met = self._marked(self.tables.advance([come, *fixed], frontier), True)
        self._memory.insert([self._marked(come, False), met], frontier)
        return concat([self._answer(met), *self._recalled(gone, frontier)])

    def _aged(self, rows: Elements) -> Elements:
        """Rows with the date of the oldest that each was made of."""
        born = [rows.columns[b.name].to_numpy() for b in self.births]
        return rows.with_columns({**rows.columns, LEAST: pa.array(np.minimum.reduce(born))})

    def _marked(self, rows: Elements, met: bool) -> Elements:
        """Rows, or results, as they are remembered: a row without partners."""
        kept = {n: rows.columns[n] if n in rows.columns else pa.nulls(len(rows), t) for n, t in self.shown.items()}
        kept |= {n: rows.columns[n] for n in self._rows}
        marks = {MET: pa.repeat(pa.scalar(met), len(rows)), BORN: rows.columns[LEAST]}
        return rows.with_columns({**kept, **marks})

    def _answer(self, met: Elements) -> Elements:
        return met.with_columns({n: met.columns[n] for n in self.shown})

    def _recalled(self, gone: Elements, frontier: int) -> list[Elements]:
        """The ends of the results of rows that go, which are forgotten."""
        if not len(gone):
            return []
        known, ended = self._memory.take(gone, MET, frontier)
        found = [self._answer(ended.filter(np.asarray(ended.columns[MET])))]
        if not known.all():  # rows from before there was a memory meet tables as they are
            nothing = [Elements.empty(p.columns) for p in self.tables.parts[1:]]
            found.append(self._answer(self.tables.advance([gone.filter(~known), *nothing], frontier)))
        return found

    # state

    def port(self, slot: str) -> int:
        """The input whose rows a slot of the state holds; of the memory, the first of those that it holds."""
        moving, fixed = ([i for i, f in enumerate(self.static) if f is want] for want in (False, True))
        if slot == MEMORY:
            return moving[0]
        if slot.startswith(BORN):
            return moving[int(slot.removeprefix(BORN))]
        if slot.startswith(STREAMS):
            return moving[int(slot.removeprefix(STREAMS).partition(":")[0])]
        return fixed[int(slot.partition(":")[0]) - 1]

    def state(self) -> State:
        streams = {} if self.streams is None else {f"{STREAMS}{s}": r for s, r in self.streams.state().items()}
        births = {b.name: b.runs() for b in self.births if b.ends}
        return {**self.tables.state(), **streams, **births, MEMORY: self._memory.runs()}

    def restore(self, state: State, frontier: int) -> None:
        left = dict(state)
        self._memory.restore(left.pop(MEMORY, ()), frontier)
        for births in self.births:
            births.restore(left.pop(births.name, ()), frontier)
        streams = {s[len(STREAMS) :]: left.pop(s) for s in state if s.startswith(STREAMS)}
        if self.streams is not None:
            self.streams.restore(streams, frontier)
        self.tables.restore(left, frontier)
