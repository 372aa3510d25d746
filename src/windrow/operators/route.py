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
import pyarrow.compute as pc

from windrow.operators.aggregates.vectors import raw
from windrow.operators.changes import cancel
from windrow.operators.elements import INF, Elements, Int64s
from windrow.operators.protocol import Stateless
from windrow.operators.terms import QUERIES, QUERY, QUERY_TYPE, Router


def by_number(queries: Int64s) -> Int64s:
    """The order by query; rows of one stay as they are."""
    small = queries.astype(np.uint16) if len(queries) and queries.max() < 1 << 16 else queries
    return np.argsort(small, kind="stable")  # 16 bits are sorted by counting


def _tested(router: Router, rows: Elements) -> dict[str, pa.Array]:
    """The columns that a router tests."""
    found = {c: rows.columns[c] for c in router.reads if c not in router.ages}
    return found | {age: pa.array(rows.ts - raw(rows.columns[c])) for age, c in router.ages.items()}


def _lived(made: Elements, of: Elements, at: Int64s, router: Router, kind: Int64s) -> Elements:
    """Elements for as long as the classes of queries see them; `at`: which ones of `of` they are."""
    lives = router.lives
    assert lives is not None
    ts, exp = np.maximum(made.ts, lives.start[kind]), made.exp
    for column, sizes in lives.sizes.items():
        since, size = raw(of.columns[column])[at], sizes[kind]
        exp = np.minimum(exp, np.where(size > INF - np.maximum(since, 0), INF, since + size))
    made = made.with_lifetimes(ts, exp)
    there = ts < exp
    return made if there.all() else made.filter(there)


class AdmitOperator(Stateless):
    """Keep the elements that some query wants."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        return rows.filter(self.router.wanted(_tested(self.router, rows), len(rows))) if len(rows) else rows


class StampOperator(Stateless):
    """Say in a column since when an element is there, or a number that is the same for all that come now."""

    def __init__(self, column: str, value: int | None = None) -> None:
        self.column, self.value = column, value

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        said = rows.ts if self.value is None else np.full(len(rows), self.value)
        return rows.with_columns({**rows.columns, self.column: pa.array(said)})


class RouteSets(Stateless):
    """Each element once for all queries that see it equally long, with the set of these in the column `QUERIES`.

    `whole`: once for all, for as long as any sees it; whoever reads it ends it for each.
    """

    def __init__(self, router: Router, keep: Sequence[str], whole: bool = False) -> None:
        self.router, self.keep, self.whole = router, tuple(keep), whole

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if (rows.sign < 0).any():
            rows = cancel(rows)
        at, sets, kind = self.router.sets(_tested(self.router, rows), len(rows), self.whole)
        made = rows.with_columns({c: rows.columns[c] for c in self.keep}).take(at)
        made = made.with_columns({**made.columns, QUERIES: sets})
        return made if kind is None else _lived(made, rows, at, self.router, kind)


class RouteOperator(Stateless):
    """Each element once for every query that wants it, whose number is in the column `QUERY`.

    What began before a query's clock began appears when that begins, if it is still there then; what a query does not
    show is null. `log`: the input is a consolidated change log, and so is each query's part of the output, though rows
    may differ in columns that it drops. `own`: what every query shows, for as long as they share.
    """

    def __init__(
        self, router: Router, keep: Sequence[str], *, log: bool = False, own: tuple[str, ...] | None = None
    ) -> None:
        self.router, self.keep, self.log, self.own = router, tuple(keep), log, own

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if not self.log and (rows.sign < 0).any():
            rows = cancel(rows)  # once, and not for every query
        kept = {c: rows.columns[c] for c in self.keep}
        if not len(rows):
            return rows.with_columns({**kept, QUERY: pa.array([], QUERY_TYPE)})
        at, query = self.router.pairs(_tested(self.router, rows), len(rows))
        if self.log:  # whoever takes answers apart finds them in order
            order = by_number(query)
            at, query = at[order], query[order]
        made = rows.with_columns(kept).take(at)
        whole, columns = kept.keys() >= rows.columns.keys() - {QUERY}, dict(made.columns)
        for name, column in made.columns.items():
            shows = self.router.lists(name)
            if shows is not None:
                columns[name] = pc.if_else(pa.array(shows[query]), column, pa.scalar(None, column.type))
                whole = False
        made = made.with_columns({**columns, QUERY: pa.array(query.astype(np.int32))})
        if self.log:
            return made if whole else cancel(made)
        return made if self.router.lives is None else _lived(made, rows, at, self.router, self.router.classes(query))
