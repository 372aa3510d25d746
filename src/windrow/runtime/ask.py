"""One-time queries: the same language and operators, at one instant, while ticks go on.

Streams are seen through their kept rows, relation-valued queries, archives and kept answers as tables. The answer is
Q(t), and `windrow.as_of` in its schema's metadata says which t:

    snapshot   the frontier when reading began: one manifest, whose runs are never changed (window-serializable)
    latest     the frontier when reading ended (latest-window-serializable)

A plan that splits by run (`split`) is computed run by run, youngest first, reading only what its predicates and its
window need (`history_reader`), here or in tasks; `latest` keeps the parts, takes in runs that came meanwhile, and
leaves out what left (`ask_parts`). No tick waits and nothing is aborted. Other plans are answered from the snapshot,
and `windrow.isolation` says so. What runs already is not computed again: the relation of a query is there, and so are
the partials of aggregates. `windrow.from` says what was read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.errors import BindingError, RuntimeFailure
from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.operators.row_limit import MOST_ROWS
from windrow.operators.state.run import Run
from windrow.optimize.rule import rewrite, with_root
from windrow.plan.dataflow import answer
from windrow.plan.explain import explain
from windrow.plan.lower import lower
from windrow.plan.nodes import Scan, TableScan, Window, walk
from windrow.plan.words import duration
from windrow.runtime import state_reader
from windrow.runtime.answer_metadata import FROM, ISOLATION, answer_metadata, with_answer_metadata
from windrow.runtime.ask_parts import TOGETHER, Functions, Parts
from windrow.runtime.history_reader import HistoryFigures, ScanWish, rows_of, table_rows, youngest_first
from windrow.runtime.job import Given, Made
from windrow.runtime.question_plans import QuestionPlan, QuestionPlans
from windrow.runtime.split import evaluate, table_of
from windrow.runtime.state_reader import StateReader
from windrow.sharing.recognise import Recognised
from windrow.sharing.reused_partials import ReusedPartials

LEVELS = ("snapshot", "latest")
PATIENCE = 0.1
"""Seconds that a question waits for ticks of this process before it has worked as long as it has waited."""


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

    def reused_partials(self, asked: Recognised, state: StateReader) -> tuple[str, ReusedPartials] | None:
        """The family, and its member, whose partials in a state have most of a question's window."""

    def map(self, work: Callable[[Given], Made], values: Sequence[Given], check: Callable[[], None]) -> list[Made]:
        """What a function gives for each value, computed by tasks beside ticks; given up when `check` raises."""


@dataclass
class AskLimits:
    """When to stop: after a number of seconds, or when someone sets an event; and when to let a tick go first.

    `tick_runs`: whether a tick computes in this process, and `let_tick_pass`: waits for its end. Ticks come first, as
    movements of windows do in the thesis (7.2): the interpreter is theirs. But a question that has waited for as long
    as it has worked, and `PATIENCE`, goes on beside them. `most_rows`: that a join in it may have.
    """

    seconds: float | None = None
    cancel: threading.Event | None = None
    tick_runs: Callable[[], bool] = lambda: False
    let_tick_pass: Callable[[float], object] = lambda seconds: None
    clock: Callable[[], float] = time.monotonic
    waited: float = 0.0
    most_rows: int = MOST_ROWS

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def check(self) -> None:
        """Raise if it is time; else let a tick pass that runs."""
        self._stop_in_time()
        if self.tick_runs():
            now = self.clock()
            left = PATIENCE + (now - self.begun) - 2 * self.waited
            left = left if self.seconds is None else min(left, self.seconds / 2 - self.waited)
            if left > 0:
                self.let_tick_pass(left)
                self.waited += self.clock() - now

    def _stop_in_time(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise RuntimeFailure("the question was cancelled")
        if self.seconds is not None and self.clock() - self.begun > self.seconds:
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
        self._extras: dict[str, pa.Table] = {}  # read once for an answer, so that all of it is of one moment
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
            size = node.spec.longest
            if size is None or size > kept:
                unit = 1 if pa.types.is_integer(stream.time_type) else 1_000_000
                raise BindingError(
                    f'stream "{stream.name}" does not keep enough history for {node.spec.text or "this window"}',
                    detail=f"it keeps {duration(kept, unit)}" if kept else "it keeps no rows for questions",
                    hint="declare it with RETAIN and the longest time that is asked about, or ask a registered query",
                )

    def answer(self, isolation: str, figures: HistoryFigures) -> pa.Table:
        """The answer, sorted and cut as asked."""
        self.limits.check()
        self._extras = {}
        found, how = self.planned.running, self.planned.how
        if how is not None:
            parts = Parts(self, how, figures)
            isolation = isolation if self._only_tables() else "snapshot"
            as_of, table = parts.latest() if isolation == "latest" else parts.snapshot()
            read = parts.read
        else:
            isolation, read = "snapshot", self._read_whole()
            with self.present.state() as state:
                table = self.present.relation(state, found) if found is not None else self._whole(state, figures)
                as_of = self._as_of(state)
        return with_answer_metadata(self.query.finished(table), as_of, {ISOLATION: isolation, FROM: read})

    def _as_of(self, state: StateReader) -> int:
        """The frontier; where all that was read says an instant of its own (archives, AS OF), the first of those."""
        if self.wishes or not self._extras or {t.lower() for t in self.plan.tables} != self._extras.keys():
            return state.frontier
        return min(int(answer_metadata(table.schema).get("as_of", state.frontier)) for table in self._extras.values())

    def explain(self, form: str = "text") -> str:
        """The plan, and what the answer would be read from now."""
        how, read = self.planned.how, self._read_whole()
        if how is not None:
            with self.present.state() as state:
                read = Parts(self, how, HistoryFigures()).plan_of(state)
        shown = explain(self.plan, form)
        return f"{shown.rstrip()}\nonce, from {read}\n" if form == "text" else shown

    def _read_whole(self) -> str:
        if self.planned.running is not None:
            return f"the relation of {self.planned.running}"
        return "history" if self.wishes else "tables"

    def flows(self) -> bool:
        """Whether the answer is that of each run after the other."""
        how, whole = self.planned.how, self.query.order or self.query.limit is not None or self.query.offset
        return how is not None and how.aggregate is None and not whole

    def batches(self) -> pa.RecordBatchReader:
        """The answer of a plan that flows, as of now: the state is kept until the last batch, or the reader's end."""
        self.limits.check()
        how = self.planned.how
        assert how is not None
        parts, held = Parts(self, how, HistoryFigures()), ExitStack()
        state = held.enter_context(self.present.state())
        empty = self.query.finished(parts.table(wanted=[], state=state))
        schema = with_answer_metadata(empty, state.frontier, {ISOLATION: "snapshot", FROM: "history"}).schema

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
                return table_rows(node, self.table_of(node, state))
            wish = self.wishes[node]
            runs = youngest_first(state_reader.kept_runs(state, wish.stream))[::-1]
            rows = concat([wish.empty, *(self._read(run, wish, frontier, figures) for run in runs)])
            return rows.take(np.argsort(rows.ts, kind="stable"))

        elements = evaluate(flow, source, frontier, self.limits.check, self.limits.most_rows)
        return answer(self.plan, elements).drop_columns(["_ts", "_op"])

    def _read(self, run: Run, wish: ScanWish, frontier: int, figures: HistoryFigures) -> Elements:
        self.limits.check()
        return rows_of(run, wish, frontier, figures)

    def table_of(self, node: TableScan, state: StateReader) -> pa.Table:
        """A table, a relation, or what only this question has."""
        name = node.table.lower()
        if name in self.planned.extras:
            if name not in self._extras:
                self._extras[name] = self.planned.extras[name].read(self.plan, state, self.limits.check)
            return self._extras[name]
        return self.present.relation(state, name) if name in self.relations else self.present.table(name)
