"""Summaries of basic windows: windows too large to keep, one summary for each of their slices (thesis 2.3.4, 6.2).

    rows ── counts of open slices (exact) ── a slice closes ── its summary joins the queue ── answers from the queue

The state is the queue and the open counts; what an answer needs besides (counters, merged sketches) follows from the
queue. Law: summaries depend on the rows of their slices alone, so answers do on rows and slices, not on batches, tasks
or restarts.

Cost: O(1) per row, a summary per slice and group; per answer the summaries that its window holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.call import FREQUENT, SUMMARISED, Aggregation
from windrow.operators.aggregates.counts import BEGIN, COUNT, END, SLOT, VALUE, SliceCounts, added, owners
from windrow.operators.aggregates.frequent import FrequentSummary
from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.aggregates.window_contents import WindowContents, window_contents
from windrow.operators.elements import one
from windrow.operators.state.run import Run, ints

_MOST_RUNS = 16
"""Runs that a queue has at most before they are put together."""


class BasicSummary(Protocol):
    """How slices are summarised, and what windows of summaries answer."""

    @property
    def column(self) -> str:
        """The column whose values are summarised."""

    def columns(self, first: Int64s, value: pa.Array, count: Int64s) -> dict[str, pa.Array]:
        """The summaries of slices as columns."""

    def answers(self, calls: Sequence[Aggregation], slices: pa.Table, held: WindowContents) -> dict[str, pa.Array]:
        """The answers at every version, by the output of calls."""


def _summary(call: Aggregation, type_: pa.DataType) -> BasicSummary:
    """The summary that a call reads; equal calls read the same."""
    column = str(call.column)
    if call.kind in FREQUENT:
        return FrequentSummary(column, type_, int(call.parameters[0]))
    from windrow.operators.aggregates import sketches  # a library that only they need

    match call.kind:
        case "approx_count_distinct":
            return sketches.ThetaSummary(column, type_)
        case "approx_quantile":
            return sketches.DigestSummary(column)
    return sketches.ItemsSummary(column, type_)


class SummaryQueue:
    """The summaries of closed slices, and the answers of aggregate calls over windows of them."""

    def __init__(self, calls: Sequence[Aggregation], types: Mapping[str, pa.DataType]) -> None:
        self.calls = tuple(calls)
        self.columns = tuple(dict.fromkeys(c.column for c in calls if c.column is not None))
        self._calls: dict[BasicSummary, list[Aggregation]] = {}
        for call in calls:
            if call.kind in SUMMARISED:
                self._calls.setdefault(_summary(call, types[str(call.column)]), []).append(call)
        self._types = types
        self.runs: list[Run] = []

    def __len__(self) -> int:
        return sum(r.table.num_rows for r in self.runs)

    def add(self, parts: Sequence[SliceCounts]) -> None:
        """Summarise closed slices; the parts have all of their rows."""
        counts = added(parts)
        if not len(counts):
            return
        table = counts.rows
        for summary in self._calls:
            values = counts.values[summary.column]
            first = owners(counts.rows, values)
            for name, column in summary.columns(first, one(values.column(VALUE)), ints(values, COUNT)).items():
                table = table.append_column(name, column)
        self.runs.append(Run(table))

    def forget(self, upto: int) -> None:
        """Drop slices that no window holds after `upto`."""
        kept = []
        for run in self.runs:
            alive = ints(run.table, END) > upto
            if alive.any():
                kept.append(run if alive.all() else Run(run.table.filter(pa.array(alive)).combine_chunks()))
        if len(kept) > _MOST_RUNS:
            kept = [Run(pa.concat_tables([r.table for r in kept]).combine_chunks())]
        self.runs = kept

    @property
    def slots(self) -> Int64s:
        """Slots of groups that have summaries."""
        return distinct_values(np.concatenate([np.zeros(0, np.int64), *(ints(r.table, SLOT) for r in self.runs)]))

    def breaks(self) -> Int64s:
        """Where the content of windows changes: slices come and go."""
        return np.concatenate([np.zeros(0, np.int64), *(ints(r.table, n) for r in self.runs for n in (BEGIN, END))])

    def answers(self, instants: Int64s, keyed: bool) -> tuple[Int64s, Int64s, dict[str, pa.Array]]:
        """The number of the instant, the slot and the values of every row of the answers at instants in order."""
        slices, held = window_contents(self._table(), instants, keyed)
        found = {c.output: pa.array(held.rows) for c in self.calls if c.kind not in SUMMARISED}
        for summary, calls in self._calls.items():
            found |= summary.answers(calls, slices, held)
        order = np.argsort(held.point_instant, kind="stable")
        shown = pa.array(held.point_version[order])
        answers = {c.output: found[c.output].take(shown) for c in self.calls}
        return held.point_instant[order], held.slots[held.point_group[order]], answers

    def _table(self) -> pa.Table:
        if self.runs:
            return pa.concat_tables([r.table for r in self.runs]).combine_chunks()
        none = pa.array([], pa.int64())
        table = pa.table({BEGIN: none, END: none, SLOT: none, COUNT: none})
        for summary in self._calls:
            empty = summary.columns(np.zeros(1, np.int64), pa.array([], self._types[summary.column]), none.to_numpy())
            for name, column in empty.items():
                table = table.append_column(name, column)
        return table
