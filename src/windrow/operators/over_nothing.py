"""The answer over nothing, for each of many queries.

An aggregate without GROUP BY has one row even where no row is: COUNT is 0 there, and the others null. Where a column
says whose a row is, it groups by that, and a query without rows has no group. Here it gets its row, from when its clock
starts until its group comes, and whenever that is gone:

    the group of q            [ 2 )[ 5 )        [ 1 )
    over nothing      [ 0 )             [  0   )     [ 0 ...

Law: at every instant from its clock on a query has one row, of its group or over nothing. So what is added is the row
over nothing once, and with the opposite sign whenever the group comes or goes: no groups are kept, only who has begun.
Aggregates send stretches that are over by now, or open. Cost: a sort of what happens to groups, by query and time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.call import Aggregation
from windrow.operators.aggregates.vectors import Int64s, raw
from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.operators.protocol import State
from windrow.operators.radix import stable_order
from windrow.operators.state.run import Run, ints
from windrow.operators.terms import QUERY, QUERY_TYPE, ClockStarts


class OverNothingOperator:
    """The groups of queries, and the row over nothing of those that have none."""

    def __init__(self, calls: Sequence[Aggregation], types: Mapping[str, pa.DataType], clocks: ClockStarts) -> None:
        self._calls, self._types, self.clocks = tuple(calls), dict(types), clocks
        self._begun = np.zeros(0, np.int64)
        self._start = BEGINNING
        self._saved: Run | None = None

    def start(self, ts: int) -> None:
        """The clock of those starts at `ts` who have no later one."""
        self._start = ts

    def follow(self, other: OverNothingOperator) -> None:
        """Go on for the queries of another, which has not begun."""
        self.clocks, self._saved = other.clocks, None
        self._begun = np.intersect1d(self._begun, self.clocks.numbers)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """What happens to groups, and the opposite to the rows over nothing."""
        (groups,) = inputs
        ts, query, sign = _changes(groups)
        added = [self._rows(ts, query, -sign)] if len(ts) else []
        starts = np.maximum(self.clocks.starts, self._start)
        begin = np.flatnonzero(starts <= frontier)
        if len(self._begun) < len(begin):
            begin = begin[~np.isin(self.clocks.numbers[begin], self._begun)]
            if len(begin):
                numbers = self.clocks.numbers[begin]
                added.append(self._rows(starts[begin], numbers, np.ones(len(begin), np.int64)))
                self._begun, self._saved = np.union1d(self._begun, numbers), None
        return concat([groups, *added]) if added else groups

    def _rows(self, ts: Int64s, query: Int64s, sign: Int64s) -> Elements:
        """Rows over nothing, from an instant on or from then on no more."""
        columns = {}
        for call in self._calls:
            made = pa.nulls(len(ts), call.type)
            columns[call.output] = pa.array(np.zeros(len(ts), np.int64)).cast(call.type) if _counts(call) else made
        columns[QUERY] = pa.array(query.astype(np.int32), QUERY_TYPE)
        ordered = {name: columns[name] for name in self._types}
        return Elements(ts, np.full(len(ts), INF), sign.astype(np.int8), ordered)

    def state(self) -> State:
        """Who has begun."""
        if self._saved is None:
            self._saved = Run(pa.table({QUERY: pa.array(self._begun)}))
        return {"begun": (self._saved,)}

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state."""
        begun = [ints(run.table, QUERY) for run in state["begun"]]
        self._begun, self._saved = np.unique(np.concatenate([np.zeros(0, np.int64), *begun])), None


def _counts(call: Aggregation) -> bool:
    """Whether the answer over nothing is 0."""
    return call.kind == "count"


def _changes(groups: Elements) -> tuple[Int64s, Int64s, Int64s]:
    """(instant, query, by how much) wherever a query has a group more or less than before.

    >>> rows = {QUERY: pa.array([7, 7], QUERY_TYPE)}
    >>> log = Elements(np.array([1, 4]), np.array([4, INF]), np.array([1, 1], np.int8), rows)
    >>> [a.tolist() for a in _changes(log)]
    [[1], [7], [1]]
    """
    ends = np.flatnonzero(groups.exp != INF)
    number = raw(groups.columns[QUERY]).astype(np.int64)
    ts, query = np.concatenate((groups.ts, groups.exp[ends])), np.concatenate((number, number[ends]))
    sign = groups.sign.astype(np.int64)
    sign = np.concatenate((sign, -sign[ends]))
    if not len(ts):
        return ts, query, sign
    order = stable_order(ts)
    order = order[stable_order(query[order])]
    ts, query = ts[order], query[order]
    first = np.flatnonzero((np.diff(ts, prepend=ts[0] - 1) != 0) | (np.diff(query, prepend=-1) != 0))
    net = np.add.reduceat(sign[order], first)
    some = net != 0
    return ts[first][some], query[first][some], net[some]
