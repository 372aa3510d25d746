"""What the local runtime drives: the families of all queries that share, and what stands above each aggregate.

A `Group` takes the place of the circuits of the queries it serves. The rows of a source are made once per advance
however many families read them, joins included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, one
from windrow.operators.join import Join, Part
from windrow.plan.dataflow import Feed, answer
from windrow.plan.nodes import QueryPlan
from windrow.sharing.cohort import Batch, tables
from windrow.sharing.finish import Finish, finish
from windrow.sharing.recognise import Recognised, Source
from windrow.sharing.registry import TECHNIQUES, Functions, Rate, Registry, Served, check
from windrow.sharing.windows import PAIRED


class Rows:
    """The rows of a source: a stream's, joined with its tables or not; columns that some query reads."""

    def __init__(self, source: Source, tables: Mapping[str, pa.Table]) -> None:
        self.source, self._tables = source, tables
        self.columns: dict[str, pa.DataType] = {}
        self._join: Join | None = None
        self._shape: tuple[str, ...] = ()

    def read(self, columns: Mapping[str, pa.DataType]) -> None:
        """Have these columns from now on."""
        self.columns |= columns

    def take(self, feed: Feed) -> tuple[Int64s, dict[str, pa.Array]]:
        """New rows in time order."""
        ts, given = feed(self.source.stream)
        named = {f"{self.source.stream}.{c.lower()}": a for c, a in given.items()}
        own = {c: named[c] for c in self.columns if c in named}
        if not self.source.tables:
            return ts, own
        return self._joined(ts, own)

    def _joined(self, ts: Int64s, own: dict[str, pa.Array]) -> tuple[Int64s, dict[str, pa.Array]]:
        if self._join is None or self._shape != tuple(sorted(self.columns)):
            self._open()
        assert self._join is not None
        none = [Elements.empty(p.columns) for p in self._join.parts[1:]]
        found = self._join.advance([Elements.positive(ts, INF, own), *none], int(ts[-1]) if len(ts) else 0)
        if (np.diff(found.ts) < 0).any():
            found = found.take(np.argsort(found.ts, kind="stable"))
        return found.ts, found.columns

    def _open(self) -> None:
        """Index the tables; again when a query that joins needs more of their columns."""
        parts = [Part({c: t for c, t in self.columns.items() if _owner(c) == self.source.stream})]
        held = []
        for label in self.source.tables:
            mine = {c: t for c, t in self.columns.items() if _owner(c) == label}
            parts.append(Part(mine, static=True))
            table = self._tables[label.partition("#")[0]]
            names = {name.lower(): name for name in table.column_names}
            arrays = {c: one(table.column(names[c.partition(".")[2]])).cast(t) for c, t in mine.items()}
            held.append(Elements.positive(np.full(table.num_rows, BEGINNING + 1), INF, arrays))
        self._join = Join(parts, sorted(self.source.equalities))
        self._shape = tuple(sorted(self.columns))
        self._join.advance([Elements.empty(parts[0].columns), *held], BEGINNING + 1)


def _owner(column: str) -> str:
    return column.partition(".")[0]


class Group(Registry):
    """Queries that share. One whose expressions raise is served no longer; `failures` holds its error."""

    def __init__(
        self,
        functions: Functions,
        tables: Mapping[str, pa.Table],
        sharing: str = "auto",
        slicing: str = PAIRED,
        rate: Rate | None = None,
    ) -> None:
        super().__init__(functions, sharing, slicing, rate)
        self.tables = tables
        self.failures: dict[str, RuntimeFailure] = {}
        self.finishes: dict[str, Finish] = {}
        self._rows: dict[Source, Rows] = {}
        self.frontier = BEGINNING

    def add(self, plan: QueryPlan, start: int = BEGINNING, history: Feed | None = None) -> bool:
        """Serve a query from now on, if it can share; `history` gives it rows from before `start`."""
        query = self.recognised(plan)
        if query is not None:
            self.serve(query, start, history)
        return query is not None

    def serve(self, query: Recognised, start: int = BEGINNING, history: Feed | None = None) -> None:
        """Serve a query that has been recognised."""
        plan, family = query.plan, self.family_of(query)
        rows = self._rows.setdefault(query.source, Rows(query.source, self.tables))
        rows.read(query.columns)
        family.join(query.member, start)
        self.served[plan.name] = Served(query, family)
        self.finishes[plan.name] = Finish(query, self.functions)
        if history is not None:
            once = Rows(query.source, self.tables)
            once.read(query.columns)
            family.remember(plan.name, *once.take(history))

    def remove(self, name: str) -> None:
        """Serve a query no longer."""
        super().remove(name)
        self.finishes.pop(name)

    def advance(
        self, feed: Feed, frontier: int, starts: Callable[[QueryPlan], int | None] | None = None
    ) -> list[Batch]:
        """The answers' parts up to `frontier`, of the queries that have any."""
        taken: dict[Source, tuple[Int64s, dict[str, pa.Array]]] = {}
        due: list[Batch] = []
        if starts is not None:
            self._start(starts, frontier)
        for key, family in self.families.items():
            source = self._source(key)
            if source not in taken:
                taken[source] = self._rows[source].take(feed)
            family.take(*taken[source], frontier)
            due += family.finish(frontier)
            self._fail(family.failed)
            family.failed.clear()
        self.frontier = frontier
        failed: dict[str, RuntimeFailure] = {}
        answers = finish(self.finishes, due, frontier, failed)
        for name in failed:
            self.served[name].family.leave(name)
        self._fail(failed)
        return answers

    def _fail(self, failed: Mapping[str, RuntimeFailure]) -> None:
        self.failures |= failed
        for name in failed:
            self.served.pop(name, None)
            self.finishes.pop(name, None)

    def _start(self, starts: Callable[[QueryPlan], int | None], frontier: int) -> None:
        """Start the clocks of queries that have not begun; those over the same rows start together."""
        found: dict[Source, int | None] = {}
        for name in [n for f in self.families.values() for n in f.unstarted]:
            served = self.served[name]
            source = served.query.source
            if source not in found:
                found[source] = starts(served.query.plan)
            at = found[source]
            if at is not None and at <= frontier:
                served.family.begin(name, at)
                self.finishes[name].start(at)

    @staticmethod
    def _source(key: object) -> Source:
        if isinstance(key, Source):
            return key
        assert isinstance(key, tuple)
        found: Source = key[0]
        return found

    def first(self, name: str) -> list[Batch]:
        """What a query that has just joined answers at once, at the frontier it joined at."""
        family, mine = self.served[name].family, self.finishes[name]
        at = family.joined[name].start
        mine.start(at)
        return finish({name: mine}, family.at_once(name), at, self.failures)

    def shown(self, batches: Iterable[Batch]) -> Iterator[tuple[str, pa.Table]]:
        """Batches as the rows that users see: a query may have several."""
        return tables(batches, {n: f.shown for n, f in self.finishes.items()})

    def empty(self, name: str) -> pa.Table:
        """No rows, with the query's columns."""
        mine = self.finishes[name]
        return answer(mine.query.plan, Elements.empty(mine.schema))


def share(
    plans: Iterable[QueryPlan],
    functions: Functions,
    tables: Mapping[str, pa.Table],
    sharing: str = "auto",
    slicing: str = PAIRED,
    rate: Callable[[str], float] | None = None,
) -> tuple[Group, Sequence[QueryPlan]]:
    """A group that serves the plans it can, and the plans left; `rate`: a stream's rows per tick, for `auto`."""
    group = Group(functions, tables, sharing, slicing)
    given = list(plans)
    queries = [q for p in given if (q := group.recognised(p)) is not None]
    if sharing == "auto" and rate is not None:
        queries = group.chosen(queries, rate)
    for query in queries:
        group.serve(query)
    return group, [p for p in given if p.name not in group.served]


__all__ = ["TECHNIQUES", "Group", "Rows", "check", "share"]
