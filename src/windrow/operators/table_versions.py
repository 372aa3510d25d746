"""A table that changes, as an aggregation join sees it: rows with the epochs in which they were there.

A table that does not reach back touches only rows that come after it: a result holds a table row that was there when
its oldest stream row came and still when its newest did. Every change of a table begins an epoch; stream rows carry the
epoch they came in, table rows `[since, until)`, and the two meet when `since <= epoch < until`. So results of the past
end with the table as it was then, though it has changed since.

Cost: a change costs the table's rows; rows of epochs that no stream row is left of are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat_arrays, one
from windrow.operators.keys import factorize
from windrow.operators.state.run import Run, ints

EPOCH, SINCE, UNTIL = "~epoch", "~since", "~until"


class TableVersions:
    """The rows of one table, past and present."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self.columns: dict[str, pa.Array] = {c: pa.array([], t) for c, t in types.items()}
        self.since = np.zeros(0, np.int64)
        self.until = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.since)

    def change(self, new: Elements, epoch: int) -> None:
        """Rows come and go, some of them both; of equal rows the oldest goes."""
        gone, come = new.filter(new.sign < 0), new.filter(new.sign > 0)
        self.columns = {c: concat_arrays([a, come.columns[c]]) for c, a in self.columns.items()}
        self.since = np.concatenate((self.since, np.full(len(come), epoch)))
        self.until = np.concatenate((self.until, np.full(len(come), INF)))
        if len(gone):
            self._end(gone, epoch)

    def _end(self, gone: Elements, epoch: int) -> None:
        there = np.flatnonzero(self.until == INF)
        rows = [concat_arrays([a.take(pa.array(there)), gone.columns[c]]) for c, a in self.columns.items()]
        codes, first = factorize(rows, len(there) + len(gone))
        ends = np.bincount(codes[len(there) :], minlength=len(first))
        own = codes[: len(there)]
        order = np.argsort(own, kind="stable")  # rows stand in the order they came in
        starts = np.searchsorted(own[order], np.arange(len(first)))
        rank = np.arange(len(order)) - starts[own[order]]
        self.until[there[order[rank < ends[own[order]]]]] = epoch

    def forget(self, oldest: int) -> None:
        """Forget rows that ended before any stream row that is left came."""
        keep = self.until > oldest
        if not keep.all():
            picks = pa.array(np.flatnonzero(keep))
            self.columns = {c: a.take(picks) for c, a in self.columns.items()}
            self.since, self.until = self.since[keep], self.until[keep]

    def elements(self) -> Elements:
        """All rows, with their epochs as columns, for ever."""
        dates = {SINCE: pa.array(self.since), UNTIL: pa.array(self.until)}
        return Elements.positive(np.full(len(self), BEGINNING), INF, {**self.columns, **dates})

    def run(self) -> Run:
        """The rows as a run."""
        dates = {SINCE: pa.array(self.since), UNTIL: pa.array(self.until)}
        return Run(pa.table({**{f"row|{c}": a for c, a in self.columns.items()}, **dates}))

    def restore(self, run: Run) -> None:
        """Go on from what `run` gave."""
        self.columns = {c: one(run.table.column(f"row|{c}")) for c in self.columns}
        self.since, self.until = _own(ints(run.table, SINCE)), _own(ints(run.table, UNTIL))


def _own(array: Int64s) -> Int64s:
    return np.array(array, np.int64)
