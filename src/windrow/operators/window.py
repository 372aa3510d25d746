"""Windows: how long each row of a stream lives.

A time window needs no state: a row's end is known when it arrives. A count window's is not: row i is pushed out by row
i + n, so its element is open (`exp = INF`) until that row comes, and then a negative element ends it.

    [RANGE 5]        row at 3:   [3, 8)
    CUMULATE of 5    row at 3:   [3, 5)
    [ROWS 2]         rows at 1, 4, 6:   [1, 6)  [4, INF)  [6, INF)
    [ROWS 2 SLIDE 2] rows 1..4 at 1, 4, 6, 7:   rows 1, 2: [4, 7)   rows 3, 4: [7, INF)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import StateError
from windrow.operators import scalar
from windrow.operators.elements import INF, Elements, Int64s, concat
from windrow.operators.keys import factorize
from windrow.operators.protocol import State, Stateless, Unclocked
from windrow.operators.state.run import elements_of, ints, run_of

_SEQ = "_seq"


class RangeWindow(Stateless):
    """`[RANGE size]`: every row lives `size` ticks; for ever, if that is `INF`."""

    def __init__(self, size: int) -> None:
        self.size = size

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if self.size == INF:
            return rows.with_lifetimes(rows.ts, np.full(len(rows), INF))
        fits = rows.ts < INF - self.size
        return rows.with_lifetimes(rows.ts, np.where(fits, rows.ts + self.size, INF))


class CumulatingWindow(Stateless):
    """CUMULATE: every row lives until the next `k * size + shift` after it."""

    def __init__(self, size: int, shift: int) -> None:
        self.size, self.shift = size, shift

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        fits = rows.ts < INF - self.size
        ends = rows.ts + (self.size - (rows.ts - self.shift) % self.size)
        return rows.with_lifetimes(rows.ts, np.where(fits, ends, INF))


class RowsWindow(Unclocked):
    """`[PARTITION BY columns ROWS size SLIDE slide]`: the newest rows (of each partition), moving every `slide` rows.

    Row number i (from 1, per partition) is visible from the arrival of row `up(i)` to that of row `up(i + size)`, where
    `up` rounds to a multiple of `slide`. State: the rows that have not ended, with their numbers, and the newest row.
    `number` names a column that tells the number of each row; `together`: of those that are alike in some columns of
    the partition, in the order in which they came. Cost per advance: new rows plus the rows still in the window of the
    touched stream.
    """

    def __init__(
        self,
        size: int,
        slide: int = 1,
        partition: Sequence[str] = (),
        derived: bool = False,
        number: str | None = None,
        together: Sequence[int] | None = None,
    ) -> None:
        self.size, self.slide, self.partition, self.derived = size, slide, tuple(partition), derived
        self.number = number
        self.arrivals = together is not None
        self.together = self.partition if together is None else tuple(self.partition[i] for i in together)
        self._open: tuple[Elements, Int64s] | None = None  # rows not ended yet, and their numbers; ts is the arrival

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if not len(rows):
            return self._numbered(rows, np.zeros(0, np.int64))
        rows = in_value_order(rows) if self.derived else rows.take(np.argsort(rows.ts, kind="stable"))
        if self.arrivals:
            assert self.number is not None
            last = -1 if self._open is None else int(self._open[0].columns[self.number].to_numpy().max())
            rows = rows.with_columns({**rows.columns, self.number: pa.array(last + 1 + np.arange(len(rows)))})
        held, old = self._open or (rows.take(np.zeros(0, np.int64)), np.zeros(0, np.int64))
        both = concat([held, rows])
        codes, first = factorize([both.columns[c] for c in self.partition], len(both))
        is_new = np.arange(len(both)) >= len(held)
        seen = np.zeros(len(first), np.int64)  # rows of each partition so far
        np.maximum.at(seen, codes[: len(held)], old)
        order = np.argsort(codes[is_new], kind="stable")  # new rows by partition, then arrival
        counts = np.bincount(codes[is_new], minlength=len(first))
        begins = np.cumsum(counts) - counts
        rank = np.empty(len(rows), np.int64)
        rank[order] = np.arange(len(rows)) - np.repeat(begins, counts)
        number = np.concatenate([old, seen[codes[is_new]] + rank + 1])
        appears, ends = self._up(number), self._up(number + self.size)

        def arrival(r: Int64s) -> Int64s:
            """When row r of the same partition arrives, if it is new; INF if it is still to come."""
            step = r - seen[codes] - 1
            known = (step >= 0) & (step < counts[codes])
            return np.where(known, rows.ts[order[np.where(known, begins[codes] + step, 0)]], INF)

        begin_ts, end_ts = arrival(appears), arrival(ends)
        was_shown = appears <= seen[codes]
        told = both if self.arrivals else self._numbered(both, number)
        gone = told.with_lifetimes(end_ts, np.full(len(both), INF)).filter(was_shown & (end_ts < INF)).negated()
        shown = told.with_lifetimes(begin_ts, end_ts).filter(~was_shown & (begin_ts < end_ts))
        # the newest row of a partition stays for its number, even when no window shows it
        newest = number == (seen + counts)[codes]
        unended = (appears < ends) & (end_ts == INF)
        keep = unended | newest
        self._open = (both.filter(keep), number[keep])
        return concat([shown, gone])

    def _numbered(self, rows: Elements, number: Int64s) -> Elements:
        return rows if self.number is None else rows.with_columns({**rows.columns, self.number: pa.array(number)})

    def _up(self, number: Int64s) -> Int64s:
        return -(-number // self.slide) * self.slide

    def state(self) -> State:
        if self._open is None:
            return {"open": ()}
        return {"open": (run_of(self._open[0], **{_SEQ: self._open[1]}),)}

    def restore(self, state: State, frontier: int) -> None:
        self._open = None
        for run in state["open"]:
            self._open = (elements_of(run, _SEQ), ints(run.table, _SEQ))
            if self.arrivals and self.number not in self._open[0].columns:
                raise StateError(
                    "this home was written by an older version of windrow, which did not keep the order of arrival of "
                    "rows of a count window that ASOF JOIN looks at across its partitions",
                    detail="nothing has been changed",
                    hint="drop the queries with the version that wrote the home, and create them again with this one",
                )


def in_value_order(rows: Elements) -> Elements:
    """Rows by time, and within an instant by their values, column by column, nulls last."""
    columns = [pa.array(rows.ts), *rows.columns.values()]
    if any(pa.types.is_nested(c.type) or pa.types.is_interval(c.type) for c in columns):
        return rows.take(scalar.ordered(columns, len(rows)))
    table = pa.table(columns, names=[str(i) for i in range(len(columns))])
    order = pc.sort_indices(table, sort_keys=[(n, "ascending", "at_end") for n in table.column_names])
    return rows.take(order.to_numpy())
