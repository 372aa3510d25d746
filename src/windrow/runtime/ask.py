"""One-time queries: the same language and operators, at one instant, while ticks go on.

Streams are seen through their kept rows, relation-valued queries, archives and kept answers as tables. The answer is
Q(t), and `windrow.as_of` in its schema's metadata says which t:

    snapshot   the frontier when reading began: one manifest, whose runs are never changed (window-serializable)
    latest     the frontier when reading ended (latest-window-serializable): see `latest`

A plan that splits by run (`split`) is computed run by run, youngest first, reading only what its predicates and its
window need (`history_reader`); `latest` keeps the parts, takes in runs that came meanwhile, and leaves out what left.
No tick waits and nothing is aborted. Other plans are answered from the snapshot, and `windrow.isolation` says so. A
query that runs already is not computed again: its relation is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.catalog import Catalog, TableDef
from windrow.errors import BindingError, RuntimeFailure, UnsupportedError
from windrow.operators.aggregates.mergeable import MergeableAggregate, Partial
from windrow.operators.elements import BEGINNING, INF, Elements, concat, one
from windrow.operators.state.run import Run
from windrow.optimize import optimize
from windrow.optimize.rule import rewrite, with_root
from windrow.plan.dataflow import answer
from windrow.plan.lower import Dataflow, lower, lower_part
from windrow.plan.nodes import QueryPlan, Scan, StreamOp, TableScan, Window, WindowKind, walk
from windrow.runtime import view
from windrow.runtime.history_reader import Figures, ScanWish, rows_of, wishes, youngest_first
from windrow.runtime.split import Split, alive, evaluate, first_end, split, table_of
from windrow.runtime.view import StateReader

AS_OF, ISOLATION = "windrow.as_of", "windrow.isolation"
LEVELS = ("snapshot", "latest")
ROUNDS = 8
"""How often `latest` looks for a newer state at most: each look takes in what the one before missed."""

Functions = Mapping[str, Callable[..., object]]
Travels = Mapping[str, tuple[str, int | datetime]]
"""By the name of a table: which query's kept answers it shows, and of which instant."""

Parameters = Mapping[str, object] | Sequence[object]


class Present(Protocol):
    """What one-time queries need of a runtime."""

    def state(self) -> AbstractContextManager[StateReader]:
        """The state after the newest tick, its runs kept while the block reads them."""

    def reach(self, stream: str) -> int:
        """How far back a stream's kept rows go, in ticks of its clock."""

    def relation(self, state: StateReader, query: str) -> pa.Table:
        """The rows of a relation-valued query in a state."""

    def table(self, name: str) -> pa.Table:
        """What a table holds."""


@dataclass
class Limits:
    """When to stop: a number of seconds, or an event that someone sets."""

    seconds: float | None = None
    cancel: threading.Event | None = None
    begun: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise if it is time."""
        if self.cancel is not None and self.cancel.is_set():
            raise RuntimeFailure("the question was cancelled")
        if self.seconds is not None and time.monotonic() - self.begun > self.seconds:
            raise RuntimeFailure(
                f"the question took longer than {self.seconds:g} s",
                detail="nothing is lost: it has only read",
                hint="ask for a shorter window or a key, or allow more time with timeout=",
            )


@dataclass(frozen=True)
class Extra:
    """A table that only this question has: kept answers of an instant, or an archive."""

    columns: Mapping[str, pa.DataType]
    read: Callable[[QueryPlan], pa.Table]


def ask(
    text: str,
    catalog: Catalog,
    present: Present,
    functions: Functions,
    *,
    isolation: str = "snapshot",
    parameters: Parameters | None = None,
    limits: Limits | None = None,
    extras: Callable[[Travels], Mapping[str, Extra]] | None = None,
    figures: Figures | None = None,
) -> pa.Table:
    """The answer of a SELECT, with `windrow.as_of` and `windrow.isolation` in its schema's metadata."""
    if isolation not in LEVELS:
        raise BindingError(f"there is no isolation level {isolation!r}", hint=f"levels are {' and '.join(LEVELS)}")
    question = Question(text, catalog, present, functions, parameters, limits or Limits(), extras)
    return question.answer(isolation, figures or Figures())


class Question:
    """A compiled one-time query."""

    def __init__(
        self,
        text: str,
        catalog: Catalog,
        present: Present,
        functions: Functions,
        parameters: Parameters | None,
        limits: Limits,
        extras: Callable[[Travels], Mapping[str, Extra]] | None,
    ) -> None:
        from windrow.cql.one_time import OneTimeSelect

        self.catalog, self.present, self.functions, self.limits = catalog, present, functions, limits
        parsed = OneTimeSelect.parse(text, parameters)
        self.relations = {k: q for k, q in catalog.queries.items() if q.has_op}
        shown = {k: TableDef(q.name, {s: q.root.schema[c] for s, c in q.output}) for k, q in self.relations.items()}
        self.extras = extras(parsed.travels) if extras is not None else {}
        more = {k: TableDef(k, e.columns) for k, e in self.extras.items()}
        seen = Catalog(
            catalog.streams, MappingProxyType({**catalog.tables, **shown, **more}), functions=catalog.functions
        )
        bound = parsed.bind(seen)
        self.query = replace(bound, plan=optimize(bound.plan, seen))
        self.plan = self.query.plan
        if self.plan.root.op is not StreamOp.RELATION:
            raise UnsupportedError(
                "a one-time query has no stream operator and no SLIDE", hint="it is answered once, as of now"
            )
        self._check_reach()
        self.wishes = wishes(self.plan.root)

    def _check_reach(self) -> None:
        for node in walk(self.plan.root):
            if not isinstance(node, Window):
                continue
            scan = next((n for n in walk(node.input) if isinstance(n, Scan)), None)
            if scan is None:
                continue
            stream = self.catalog.streams[scan.stream.lower()]
            kept = self.present.reach(scan.stream.lower())
            size = {WindowKind.RANGE: node.spec.size, WindowKind.NOW: 1}.get(node.spec.kind)
            if size is None or size > kept:
                raise BindingError(
                    f'stream "{stream.name}" does not keep enough history for {node.spec.text or "this window"}',
                    detail=f"it keeps {kept} {'ticks' if pa.types.is_integer(stream.time_type) else 'microseconds'}",
                    hint="declare it with RETAIN, or ask a registered query",
                )

    def answer(self, isolation: str, figures: Figures) -> pa.Table:
        """The answer, sorted and cut as asked."""
        found = self._running()
        how = None if found is not None else split(self.plan)
        if found is None and how is not None and how.scan in self.wishes:
            parts = Parts(self, how, figures)
            isolation = isolation if self._only_tables() else "snapshot"
            as_of, table = parts.latest() if isolation == "latest" else parts.snapshot()
        else:
            isolation = "snapshot"
            with self.present.state() as state:
                as_of = state.frontier
                table = self.present.relation(state, found) if found is not None else self._whole(state, figures)
        table = self.query.finished(table)
        told = {AS_OF: str(as_of), ISOLATION: isolation}
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **told})

    def _only_tables(self) -> bool:
        """Whether what is joined with the stream changes with declared tables alone."""
        return all(t.lower() in self.catalog.tables for t in self.plan.tables)

    def _running(self) -> str | None:
        """The registered query that computes just this."""
        for key, query in self.relations.items():
            if query.root == self.plan.root and query.output == self.plan.output:
                return key
        return None

    def _whole(self, state: StateReader, figures: Figures) -> pa.Table:
        """All rows at once, through the operators of the whole plan."""
        frontier = state.frontier
        if frontier == BEGINNING and self.wishes:
            return table_of({i: pa.array([], t) for i, t in self.plan.root.schema.items()}, self.plan)
        # tables that do not reach back meet only rows that come after them: here all are there, and meet each other
        plan = self.plan
        if sum(isinstance(n, TableScan) for n in walk(plan.root)) > 1:
            root = rewrite(plan.root, lambda n: replace(n, retroactive=True) if isinstance(n, TableScan) else n)
            plan = with_root(plan, root)
        flow = lower(plan, self.functions)

        def source(node: Scan | TableScan) -> Elements:
            if isinstance(node, TableScan):
                return self.table_rows(node, self.table_of(node, state))
            wish = self.wishes[node]
            runs = youngest_first(view.kept_runs(state, wish.stream))[::-1]
            rows = concat([wish.empty, *(self._read(run, wish, frontier, figures) for run in runs)])
            return rows.take(np.argsort(rows.ts, kind="stable"))

        elements = evaluate(flow, source, frontier, self.limits.check)
        return answer(self.plan, elements).drop_columns(["_ts", "_op"])

    def _read(self, run: Run, wish: ScanWish, frontier: int, figures: Figures) -> Elements:
        self.limits.check()
        return rows_of(run, wish, frontier, figures)

    def table_of(self, node: TableScan, state: StateReader) -> pa.Table:
        """A table, a relation, or what only this question has."""
        name = node.table.lower()
        if name in self.extras:
            return self.extras[name].read(self.plan)
        return self.present.relation(state, name) if name in self.relations else self.present.table(name)

    def table_rows(self, node: TableScan, table: pa.Table) -> Elements:
        """The rows of a table: they have always been there."""
        columns = {internal: one(table.column(column)) for internal, column, _ in node.columns}
        return Elements.positive(np.full(table.num_rows, BEGINNING), INF, columns)


@dataclass
class RunPart:
    """What a run gives: its partial, or its rows; and the first instant at which one of them ends."""

    rows: Elements | None
    partial: Partial | None
    first_end: int


class Parts:
    """A plan that splits, answered by runs."""

    def __init__(self, question: Question, how: Split, figures: Figures) -> None:
        self.question, self.how, self.figures = question, how, figures
        self.wish = question.wishes[how.scan]
        self.aggregate: MergeableAggregate | None = how.aggregation()
        self._tables: dict[str, tuple[pa.Table, Elements]] = {}
        self._lower = lower_part(question.plan, how.lower, question.functions)
        self._again = all(s.operator is None or len(s.inputs) == 1 for s in self._lower.steps)

    def snapshot(self) -> tuple[int, pa.Table]:
        """The answer as of the start."""
        with self.question.present.state() as state:
            found = self._take_in(state, {})
            return state.frontier, self._merged(found, state.frontier)

    def latest(self) -> tuple[int, pa.Table]:
        """The answer as of the end: what came while it was read is taken in, what left is left out."""
        found: dict[str, RunPart] = {}
        last: int | None = None
        for _ in range(ROUNDS):
            with self.question.present.state() as state:
                if state.frontier == last:
                    break
                if self._tables_changed():
                    found = {}
                found, last = self._take_in(state, found), state.frontier
                table = self._merged(found, last)
        assert last is not None
        return last, table

    def batches(self) -> Iterator[tuple[int, Elements]]:
        """The rows of each run, as they are read; for answers too large to be put together."""
        with self.question.present.state() as state:
            for run in self._runs(state):
                yield state.frontier, self._part(run, state, keep=True).rows or self.wish.empty

    def _runs(self, state: StateReader) -> list[Run]:
        return youngest_first(view.kept_runs(state, self.wish.stream))

    def _take_in(self, state: StateReader, known: Mapping[str, RunPart]) -> dict[str, RunPart]:
        """The part of every run of a state; one that is known, and has lost nothing, is not read again."""
        found: dict[str, RunPart] = {}
        runs = self._runs(state)
        for i, run in enumerate(runs):
            part = known.get(run.uid)
            if part is not None and part.rows is not None and part.first_end <= state.frontier:
                part = self._of(alive(part.rows, state.frontier), keep=True)  # some have ended: leave them out
            elif part is not None and part.first_end <= state.frontier:
                part = None
            # the rows of the oldest runs are the next to end: kept as such, they need not be read again
            found[run.uid] = part or self._part(run, state, keep=i >= len(runs) - 2)
        return found

    def _part(self, run: Run, state: StateReader, keep: bool) -> RunPart:
        self.question.limits.check()
        rows = rows_of(run, self.wish, state.frontier, self.figures)
        if not len(rows):
            return self._of(Elements.empty(self.how.lower.schema), keep)
        flow: Dataflow = self._lower if self._again else self._fresh()

        def source(node: Scan | TableScan) -> Elements:
            if isinstance(node, Scan):
                return rows
            return self._table(node, state)

        made = evaluate(flow, source, state.frontier, self.question.limits.check)
        return self._of(alive(made, state.frontier), keep)

    def _table(self, node: TableScan, state: StateReader) -> Elements:
        known = self._tables.get(node.table)
        if known is None:
            table = self.question.table_of(node, state)
            known = self._tables[node.table] = (table, self.question.table_rows(node, table))
        return known[1]

    def _tables_changed(self) -> bool:
        """Whether a table has other rows than those that were read; then nothing that was computed counts."""
        for name, (table, _) in self._tables.items():
            if name.lower() in self.question.catalog.tables and self.question.present.table(name.lower()) is not table:
                self._tables = {}
                return True
        return False

    def _fresh(self) -> Dataflow:
        return lower_part(self.question.plan, self.how.lower, self.question.functions)

    def _of(self, rows: Elements, keep: bool) -> RunPart:
        end = first_end(rows)
        if self.aggregate is None:
            return RunPart(rows, None, end)
        return RunPart(rows if keep else None, self.aggregate.part(rows.columns, len(rows)), end)

    def _merged(self, found: Mapping[str, RunPart], frontier: int) -> pa.Table:
        question = self.question
        if self.aggregate is None:
            rows = concat(
                [Elements.empty(self.how.lower.schema), *(p.rows for p in found.values() if p.rows is not None)]
            )
            return table_of(rows.columns, question.plan)
        partials = [p.partial for p in found.values() if p.partial is not None and p.first_end != INF]
        if not partials:
            empty = Elements.empty(self.how.lower.schema)
            partials = [self.aggregate.part(empty.columns, 0)]
        columns = self.aggregate.answer(self.aggregate.merged(partials))
        count = len(next(iter(columns.values())))
        merged = Elements.positive(np.full(count, frontier), INF, columns)
        flow = lower_part(question.plan, self.how.upper, question.functions)
        return table_of(evaluate(flow, lambda _: merged, frontier, question.limits.check).columns, question.plan)
