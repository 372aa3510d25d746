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
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.errors import BindingError, RuntimeFailure
from windrow.operators import history
from windrow.operators.aggregates.mergeable import MergeableAggregate, Partial
from windrow.operators.elements import BEGINNING, INF, Elements, concat, one
from windrow.operators.state.run import Run
from windrow.optimize.rule import rewrite, with_root
from windrow.plan.dataflow import answer
from windrow.plan.lower import lower, lower_part
from windrow.plan.nodes import Scan, TableScan, Window, WindowKind, walk
from windrow.plan.steps import Dataflow
from windrow.runtime import view
from windrow.runtime.history_reader import HistoryFigures, ScanWish, rows_of, span_of, youngest_first
from windrow.runtime.question_plans import QuestionPlan, QuestionPlans
from windrow.runtime.split import SplitPlan, alive, evaluate, first_end, split, table_of
from windrow.runtime.view import StateReader

AS_OF, ISOLATION = "windrow.as_of", "windrow.isolation"
LEVELS = ("snapshot", "latest")
TOGETHER = 1 << 16
"""Rows of several runs that are computed at once: the operators cost about as much for one row as for thousands."""

ROUNDS = 8
"""How often `latest` looks for a newer state at most: each look takes in what the one before missed."""

Functions = Mapping[str, Callable[..., object]]


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
class AskLimits:
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


def ask(question: Question, isolation: str = "snapshot", figures: HistoryFigures | None = None) -> pa.Table:
    """The answer of a SELECT, with `windrow.as_of` and `windrow.isolation` in its schema's metadata."""
    _check_level(isolation)
    return question.answer(isolation, figures or HistoryFigures())


def ask_batches(question: Question, isolation: str = "snapshot") -> pa.RecordBatchReader:
    """The same answer, batch by batch: what need not be merged or sorted is computed as it is read, run by run."""
    _check_level(isolation)
    if isolation == "snapshot" and question.flows():
        return question.batches()
    return question.answer(isolation, HistoryFigures()).to_reader(max_chunksize=TOGETHER)


def _check_level(isolation: str) -> None:
    if isolation not in LEVELS:
        raise BindingError(f"there is no isolation level {isolation!r}", hint=f"levels are {' and '.join(LEVELS)}")


class Question:
    """A planned one-time query, and the state that answers it."""

    def __init__(
        self, plans: QuestionPlans, planned: QuestionPlan, present: Present, functions: Functions, limits: AskLimits
    ) -> None:
        self.catalog, self.relations = plans.catalog, plans.relations
        self.present, self.functions, self.limits = present, functions, limits
        self.planned, self.query, self.wishes = planned, planned.query, planned.wishes
        self.plan = self.query.plan
        self._check_reach()

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

    def answer(self, isolation: str, figures: HistoryFigures) -> pa.Table:
        """The answer, sorted and cut as asked."""
        found = self.planned.running
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

    def flows(self) -> bool:
        """Whether the answer is that of each run after the other."""
        how = None if self.planned.running is not None else split(self.plan)
        whole = self.query.order or self.query.limit is not None or self.query.offset
        return how is not None and how.scan in self.wishes and how.aggregation() is None and not whole

    def batches(self) -> pa.RecordBatchReader:
        """The answer of a plan that flows, as of now: the state is kept until the last batch, or the reader's end."""
        how = split(self.plan)
        assert how is not None
        parts, held = Parts(self, how, HistoryFigures()), ExitStack()
        state = held.enter_context(self.present.state())
        told = {AS_OF: str(state.frontier), ISOLATION: "snapshot"}
        schema = self.query.finished(parts.table(wanted=[], state=state)).schema.with_metadata(told)

        def made() -> Iterator[pa.RecordBatch]:
            with held:
                for run in parts.runs(state):
                    table = self.query.finished(parts.table([run], state)).cast(schema)
                    yield from table.to_batches(max_chunksize=TOGETHER)

        return pa.RecordBatchReader.from_batches(schema, made())

    def _only_tables(self) -> bool:
        """Whether what is joined with the stream changes with declared tables alone."""
        return all(t.lower() in self.catalog.tables for t in self.plan.tables)

    def _whole(self, state: StateReader, figures: HistoryFigures) -> pa.Table:
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

    def _read(self, run: Run, wish: ScanWish, frontier: int, figures: HistoryFigures) -> Elements:
        self.limits.check()
        return rows_of(run, wish, frontier, figures)

    def table_of(self, node: TableScan, state: StateReader) -> pa.Table:
        """A table, a relation, or what only this question has."""
        name = node.table.lower()
        if name in self.planned.extras:
            return self.planned.extras[name].read(self.plan)
        return self.present.relation(state, name) if name in self.relations else self.present.table(name)

    def table_rows(self, node: TableScan, table: pa.Table) -> Elements:
        """The rows of a table: they have always been there."""
        columns = {internal: one(table.column(column)) for internal, column, _ in node.columns}
        return Elements.positive(np.full(table.num_rows, BEGINNING), INF, columns)


@dataclass
class RunPart:
    """What some runs give: their partial, or their rows; and the first instant at which one of them ends."""

    rows: Elements | None
    partial: Partial | None
    first_end: int


Uids = frozenset[str]


class Parts:
    """A plan that splits, answered by runs: those that have few rows for it are computed together."""

    def __init__(self, question: Question, how: SplitPlan, figures: HistoryFigures) -> None:
        self.question, self.how, self.figures = question, how, figures
        self.wish = question.wishes[how.scan]
        self.aggregate: MergeableAggregate | None = how.aggregation()
        self._tables: dict[str, tuple[pa.Table, Elements]] = {}
        self._lower = lower_part(question.plan, how.lower, question.functions)
        self._ends: dict[str, int] = {}  # of runs that were read: when the last of their rows leaves the window
        self._again = all(s.operator is None or len(s.inputs) == 1 for s in self._lower.steps)

    def snapshot(self) -> tuple[int, pa.Table]:
        """The answer as of the start."""
        with self.question.present.state() as state:
            found = self._take_in(state, {}, again=False)
            return state.frontier, self._merged(found, state.frontier)

    def runs(self, state: StateReader) -> list[Run]:
        """The runs of a state, in the order of their times."""
        return youngest_first(view.kept_runs(state, self.wish.stream))[::-1]

    def table(self, wanted: Sequence[Run], state: StateReader) -> pa.Table:
        """What some runs give to a plan without aggregates."""
        self.question.limits.check()
        rows = [rows_of(run, self.wish, state.frontier, self.figures) for run in wanted]
        part = self._part(rows, state, keep=True)
        assert part.rows is not None
        return table_of(part.rows.columns, self.question.plan)

    def latest(self) -> tuple[int, pa.Table]:
        """The answer as of the end: what came while it was read is taken in, what left is left out."""
        found: dict[Uids, RunPart] = {}
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

    def _take_in(self, state: StateReader, known: Mapping[Uids, RunPart], again: bool = True) -> dict[Uids, RunPart]:
        """The parts of all runs of a state; what is known, and has lost nothing, is not read again.

        `again`: a newer state may follow, so runs are computed together that change together.
        """
        runs = youngest_first(view.kept_runs(state, self.wish.stream))
        found = self._still(known, {r.uid for r in runs}, state.frontier)
        covered = {uid for uids in found for uid in uids}
        kinds = _kinds(runs) if again else dict.fromkeys((r.uid for r in runs), STAYING)
        group: list[tuple[Run, Elements]] = []

        def compute() -> None:
            if group:
                # rows that are kept need not be read again when some of them have ended: if they are few, or end next
                keep = kinds[group[0][0].uid] == ENDING or sum(len(r) for _, r in group) < TOGETHER
                found[frozenset(r.uid for r, _ in group)] = self._part([r for _, r in group], state, keep)
                group.clear()

        for run in (r for r in runs if r.uid not in covered):
            self.question.limits.check()
            rows = rows_of(run, self.wish, state.frontier, self.figures)
            self._ends[run.uid] = span_of(run)[1] + self.wish.size
            if group and (kinds[run.uid] != kinds[group[0][0].uid] or len(rows) >= TOGETHER):
                compute()
            group.append((run, rows))
            if sum(len(r) for _, r in group) >= TOGETHER:
                compute()
        compute()
        return found

    def _still(self, known: Mapping[Uids, RunPart], there: set[str], frontier: int) -> dict[Uids, RunPart]:
        """The parts whose runs are still there, or have ended and so give nothing, without the rows that have ended.

        A run that is gone and has not ended was merged: its rows are in another one.
        """
        found: dict[Uids, RunPart] = {}
        for uids, part in known.items():
            if any(self._ends[uid] > frontier for uid in uids - there):
                continue
            if part.first_end > frontier:
                found[uids] = part
            elif part.rows is not None:
                found[uids] = self._of(alive(part.rows, frontier), keep=True)
        return found

    def _part(self, rows: Sequence[Elements], state: StateReader, keep: bool) -> RunPart:
        together = concat([self.wish.empty, *rows])
        if not len(together):
            return self._of(Elements.empty(self.how.lower.schema), keep)
        flow: Dataflow = self._lower if self._again else self._fresh()

        def source(node: Scan | TableScan) -> Elements:
            return together if isinstance(node, Scan) else self._table(node, state)

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

    def _merged(self, found: Mapping[Uids, RunPart], frontier: int) -> pa.Table:
        question = self.question
        empty = Elements.empty(self.how.lower.schema)
        if self.aggregate is None:
            rows = concat([empty, *(p.rows for p in found.values() if p.rows is not None)])
            return table_of(rows.columns, question.plan)
        partials = [p.partial for p in found.values() if p.partial is not None and p.first_end != INF]
        columns = self.aggregate.answer(self.aggregate.merged(partials or [self.aggregate.part(empty.columns, 0)]))
        count = len(next(iter(columns.values())))
        merged = Elements.positive(np.full(count, frontier), INF, columns)
        flow = lower_part(question.plan, self.how.upper, question.functions)
        return table_of(evaluate(flow, lambda _: merged, frontier, question.limits.check).columns, question.plan)


YOUNG, STAYING, ENDING = range(3)


def _kinds(runs: Sequence[Run]) -> dict[str, int]:
    """Which runs, youngest first, may soon be merged, which stay, and whose rows end next: what is computed together
    should also change together."""
    found, full = {}, 0
    for i, run in enumerate(runs):
        found[run.uid] = ENDING if i >= len(runs) - 2 else STAYING if full else YOUNG
        full += run.table.num_rows >= history.MOST // 2
    return found
