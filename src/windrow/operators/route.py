"""Rows with the queries they concern.

Queries that differ in conditions only are one dataflow in which a column says whose row it is. A route is where they
part: it hands each row on once for every query whose condition holds for it. All conditions are answered at once by a
`Router` (`sharing/plans/router.py`), so the cost is that of rows and of pairs (row, query), not of queries.

Law: the rows with query q in the output are those that a selection by q's condition would have kept, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.changes import cancel
from windrow.operators.elements import Elements, Int64s
from windrow.operators.protocol import Stateless
from windrow.operators.terms import QUERIES, QUERY, QUERY_TYPE, Router


def by_number(queries: Int64s) -> Int64s:
    """The order by query; rows of one stay as they are."""
    small = queries.astype(np.uint16) if len(queries) and queries.max() < 1 << 16 else queries
    return np.argsort(small, kind="stable")  # 16 bits are sorted by counting


class AdmitOperator(Stateless):
    """Keep the elements that some query wants."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if not len(rows):
            return rows
        return rows.filter(self.router.wanted({c: rows.columns[c] for c in self.router.reads}, len(rows)))


class RouteSets(Stateless):
    """Each element once, with the set of all queries that want it in the column `QUERIES`.

    A query whose clock begins late has what began before it from then on: such elements come apart.
    """

    def __init__(self, router: Router, keep: Sequence[str]) -> None:
        self.router, self.keep = router, tuple(keep)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if (rows.sign < 0).any():
            rows = cancel(rows)
        at, sets, starts = self.router.sets({c: rows.columns[c] for c in self.router.reads}, len(rows))
        made = rows.with_columns({c: rows.columns[c] for c in self.keep}).take(at)
        made = made.with_columns({**made.columns, QUERIES: sets})
        if starts is None or (made.ts >= starts).all():
            return made
        made = made.with_lifetimes(np.maximum(made.ts, starts), made.exp)
        return made.filter(made.ts < made.exp)


class RouteOperator(Stateless):
    """Each element once for every query that wants it, whose number is in the column `QUERY`.

    What began before a query's clock began appears when that begins, if it is still there then. `log`: the input is a
    consolidated change log, and so is each query's part of the output, though rows may differ in columns that it drops.
    """

    def __init__(self, router: Router, keep: Sequence[str], *, log: bool = False) -> None:
        self.router, self.keep, self.log = router, tuple(keep), log

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if not self.log and (rows.sign < 0).any():
            rows = cancel(rows)  # once, and not for every query
        kept = {c: rows.columns[c] for c in self.keep}
        if not len(rows):
            return rows.with_columns({**kept, QUERY: pa.array([], QUERY_TYPE)})
        at, query = self.router.pairs({c: rows.columns[c] for c in self.router.reads}, len(rows))
        if self.log:  # whoever takes answers apart finds them in order
            order = by_number(query)
            at, query = at[order], query[order]
        made = rows.with_columns(kept).take(at)
        made = made.with_columns({**made.columns, QUERY: pa.array(query.astype(np.int32))})
        if self.log:
            return made if len(kept) == len(rows.columns) else cancel(made)
        starts = self.router.starts(query)
        if starts is None or (made.ts >= starts).all():
            return made
        made = made.with_lifetimes(np.maximum(made.ts, starts), made.exp)
        return made.filter(made.ts < made.exp)
