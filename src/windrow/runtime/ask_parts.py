"""One-time queries whose plans split by run (`split`): a part of the answer from every run, and their merge.

    runs, youngest first ──┬─ in this process, run by run                      a part: rows, or exact partials
                           ├─ in tasks, if there is much to read (`PartTask`)
                           └─ partials of a running query, rows at the ends (`sharing.reused_partials`)
    parts ── merged ── what stands above the aggregate ── answer

`snapshot` does it once. `latest` does it again for the newest state until no newer one has come, and keeps the parts of
runs that stayed. Law: which way a part was made changes no answer. Cost: what the runs' zones admit once; a look at a
newer state costs the runs that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from windrow.operators import history
from windrow.operators.aggregates.mergeable import MergeableAggregate, Partial
from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.operators.state.run import Run
from windrow.plan.lower import lower_part
from windrow.plan.nodes import QueryPlan, Scan, TableScan, walk
from windrow.plan.steps import Dataflow
from windrow.runtime import state_reader
from windrow.runtime.history_reader import (
    HistoryFigures,
    ScanWish,
    rows_of,
    size_of,
    span_of,
    table_rows,
    to_read,
    youngest_first,
)
from windrow.runtime.split import SplitPlan, alive, evaluate, first_end, table_of
from windrow.runtime.state_reader import StateReader
from windrow.sharing.reused_partials import ReusedPartials, partial_of
from windrow.store.runs import RunPlace, RunRef

if TYPE_CHECKING:
    from windrow.runtime.ask import Question

TOGETHER = 1 << 16
"""Rows of several runs that are computed at once: the operators cost about as much for one row as for thousands."""

ROUNDS = 8
"""How often `latest` looks for a newer state at most: each look takes in what the one before missed."""

LARGE = 512 << 20
"""Bytes to read from which on aggregates are computed by the tasks of a job."""

PIECE = 16 << 20
"""Bytes to read of the runs that a task computes one after the other."""

Functions = Mapping[str, Callable[..., object]]
Uids = frozenset[str]


@dataclass
class RunPart:
    """What some runs give: their partial, or their rows; and the first instant at which one of them ends."""

    rows: Elements | None
    partial: Partial | None
    first_end: int


class PartEvaluator:
    """Computes the parts of runs, in the driver or in a task; `table`: the rows of a table that is joined."""

    def __init__(
        self, plan: QueryPlan, how: SplitPlan, wish: ScanWish, functions: Functions,
        table: Callable[[TableScan], Elements], check: Callable[[], None],
    ) -> None:  # fmt: skip
        self._plan, self._how, self._wish, self._functions = plan, how, wish, functions
        self._table, self._check = table, check
        self.aggregate: MergeableAggregate | None = how.aggregation()
        self._lower = lower_part(plan, how.lower, functions)
        self._again = all(s.operator is None or len(s.inputs) == 1 for s in self._lower.steps)

    def parts(
        self, runs: Iterable[tuple[Run, int]], frontier: int, figures: HistoryFigures
    ) -> Iterator[tuple[Uids, RunPart]]:
        """The parts of runs, each with its kind: those that have few rows, and change together, are computed
        together."""
        group: list[tuple[Run, Elements]] = []
        count, kind = 0, STAYING

        def made() -> tuple[Uids, RunPart]:
            # rows that are kept need not be read again when some of them have ended: if they are few, or end next
            part = self.part([r for _, r in group], frontier, kind == ENDING or count < TOGETHER)
            return frozenset(r.uid for r, _ in group), part

        for run, its_kind in runs:
            self._check()
            rows = rows_of(run, self._wish, frontier, figures)
            if group and (its_kind != kind or len(rows) >= TOGETHER):
                yield made()
                group, count = [], 0
            kind = its_kind
            group.append((run, rows))
            count += len(rows)
            if count >= TOGETHER:
                yield made()
                group, count = [], 0
        if group:
            yield made()

    def part(self, rows: Sequence[Elements], frontier: int, keep: bool) -> RunPart:
        """What rows of the stream give; `keep`: the rows themselves, too."""
        together = concat([self._wish.empty, *rows])
        if not len(together):
            return self.of(Elements.empty(self._how.lower.schema), keep)
        flow: Dataflow = self._lower if self._again else lower_part(self._plan, self._how.lower, self._functions)

        def source(node: Scan | TableScan) -> Elements:
            return together if isinstance(node, Scan) else self._table(node)

        return self.of(alive(evaluate(flow, source, frontier, self._check), frontier), keep)

    def of(self, rows: Elements, keep: bool) -> RunPart:
        """What rows give that the lower plan made."""
        end = first_end(rows)
        if self.aggregate is None:
            return RunPart(rows, None, end)
        return RunPart(rows if keep else None, self.aggregate.part(rows.columns, len(rows)), end)


@dataclass(frozen=True)
class PartTask:
    """What a task does with a piece, which is some runs, or references to them, with their kinds."""

    plan: QueryPlan
    how: SplitPlan
    wish: ScanWish
    functions: Functions
    tables: Mapping[str, pa.Table]
    frontier: int
    store: RunPlace | None

    def __call__(self, piece: Sequence[tuple[Run | RunRef, int]]) -> tuple[list[tuple[Uids, RunPart]], HistoryFigures]:
        figures = HistoryFigures()
        made = PartEvaluator(self.plan, self.how, self.wish, self.functions, self._table, lambda: None)
        return list(made.parts(((self._read(r), kind) for r, kind in piece), self.frontier, figures)), figures

    def _read(self, run: Run | RunRef) -> Run:
        if isinstance(run, Run):
            return run
        assert self.store is not None
        return self.store.read(run, cached=False)

    def _table(self, node: TableScan) -> Elements:
        return table_rows(node, self.tables[node.table])


class Parts:
    """A plan that splits, answered from states; `read`: where the last answer came from, in words."""

    def __init__(self, question: Question, how: SplitPlan, figures: HistoryFigures) -> None:
        self.question, self.how, self.figures = question, how, figures
        self.wish = question.wishes[how.scan]
        self.read = "history"
        self._tables: dict[str, tuple[pa.Table, Elements]] = {}
        self._state: StateReader | None = None
        check, functions = question.limits.check, question.functions
        self._made = PartEvaluator(question.plan, how, self.wish, functions, self._table, check)
        self._ends: dict[str, int] = {}  # of runs that were read: when the last of their rows leaves the window

    def snapshot(self) -> tuple[int, pa.Table]:
        """The answer as of the start."""
        with self.question.present.state() as state:
            found = self._take_in(state, {}, again=False)
            return state.frontier, self._merged(found, state.frontier)

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

    def runs(self, state: StateReader) -> list[Run]:
        """The runs of a state, in the order of their times."""
        return youngest_first(state_reader.kept_runs(state, self.wish.stream))[::-1]

    def table(self, wanted: Sequence[Run], state: StateReader) -> pa.Table:
        """What some runs give to a plan without aggregates."""
        self.question.limits.check()
        self._state = state
        rows = [rows_of(run, self.wish, state.frontier, self.figures) for run in wanted]
        part = self._made.part(rows, state.frontier, keep=True)
        assert part.rows is not None
        return table_of(part.rows.columns, self.question.plan)

    def plan_of(self, state: StateReader) -> str:
        """How the question would be answered from a state, in words."""
        runs = youngest_first(state_reader.kept_runs(state, self.wish.stream))
        covered = self._reused(state, runs)
        if covered is not None:
            family, found = covered
            return f"partials of {family.query} over ({found.low}, {found.high}], rows of history at the ends"
        there = [(r, n) for r in runs if (n := to_read(r, self.wish, state.frontier))]
        size = sum(n for _, n in there)
        where = "in tasks of a job" if self._in_tasks(size) else "in this process"
        return f"history, {len(there)} of {len(runs)} runs, about {size:,} bytes, {where}"

    # parts

    def _take_in(self, state: StateReader, known: Mapping[Uids, RunPart], again: bool = True) -> dict[Uids, RunPart]:
        """The parts of all runs of a state; what is known, and has lost nothing, is not read again.

        `again`: a newer state may follow, so runs are computed together that change together.
        """
        self._state = state
        runs = youngest_first(state_reader.kept_runs(state, self.wish.stream))
        covered = self._reused(state, runs)
        if covered is not None:
            return {frozenset(): self._from_partials(state, runs, *covered)}
        found = self._still(known, {r.uid for r in runs}, state.frontier)
        there = {uid for uids in found for uid in uids}
        kinds = _kinds(runs) if again else dict.fromkeys((r.uid for r in runs), STAYING)
        left = [(r, kinds[r.uid]) for r in runs if r.uid not in there]
        self._ends |= {r.uid: span_of(r)[1] + self.wish.size for r, _ in left}
        found |= self._computed(left, state)
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
                found[uids] = self._made.of(alive(part.rows, frontier), keep=True)
        return found

    def _computed(self, runs: Sequence[tuple[Run, int]], state: StateReader) -> Iterable[tuple[Uids, RunPart]]:
        """The parts of runs: here, or in tasks if there is much to read."""
        self.read = "history"
        sizes = [to_read(r, self.wish, state.frontier) for r, _ in runs] if self._may_be_large(runs) else []
        if not self._in_tasks(sum(sizes)):
            return self._made.parts(runs, state.frontier, self.figures)
        refs = state.references(state_reader.kept_name(self.wish.stream))
        pieces = _pieces([(refs.get(r.uid, r), kind) for r, kind in runs], sizes)
        self.read = f"history, {len(pieces)} pieces in tasks"
        question = self.question
        for node in walk(self.how.lower):
            if isinstance(node, TableScan):
                self._table(node)
        tables = {name: table for name, (table, _) in self._tables.items()}
        task = PartTask(question.plan, self.how, self.wish, question.functions, tables, state.frontier, state.run_place)
        parts: list[tuple[Uids, RunPart]] = []
        for made, figures in question.present.map(task, pieces, question.limits.check):
            parts += made
            self.figures.add(figures)
        return parts

    def _may_be_large(self, runs: Sequence[tuple[Run, int]]) -> bool:
        columns = 1 + len(self.wish.names)
        return self._in_tasks(sum(size_of(r) * columns // r.table.num_columns for r, _ in runs))

    def _in_tasks(self, size: int) -> bool:
        return self._made.aggregate is not None and size > LARGE

    # running queries

    def _reused(self, state: StateReader, runs: Sequence[Run]) -> tuple[ReusedFamily, ReusedPartials] | None:
        """The running query whose partials have most of the window, if that leaves less to look at: partials, and the
        runs that the window's ends lie in, instead of all runs of the window."""
        asked = self.question.planned.asked
        if asked is None or state.frontier == BEGINNING:
            return None
        found = self.question.present.reused_partials(asked, state)
        if found is None:
            return None
        family, reused = found
        mine = tuple(r for slot, held in state.slots(family) if slot == reused.slot for r in held)
        oldest, last = state.frontier - self.wish.size, state.frontier
        ends = _rows_within(runs, oldest, reused.low) + _rows_within(runs, reused.high, last)
        if sum(r.table.num_rows for r in mine) + ends > _rows_within(runs, oldest, last):
            return None
        return ReusedFamily(reused.entry.member.name, mine), reused

    def _from_partials(
        self, state: StateReader, runs: Sequence[Run], family: ReusedFamily, found: ReusedPartials
    ) -> RunPart:
        """Partials between two edges, and the rows before and behind them."""
        aggregate, asked, frontier = self._made.aggregate, self.question.planned.asked, state.frontier
        assert aggregate is not None and asked is not None
        ends = [(found.low, found.low - (frontier - self.wish.size)), (frontier, frontier - found.high)]
        wishes = [(upto, replace(self.wish, size=size)) for upto, size in ends if size]
        rows: list[Elements] = []
        for run in runs:
            self.question.limits.check()
            rows += [rows_of(run, wish, upto, self.figures) for upto, wish in wishes]
        self.figures.bytes += sum(r.nbytes for r in family.runs)
        self.read = f"partials of {family.query}"
        part = self._made.part(rows, frontier, keep=False)
        assert part.partial is not None
        return RunPart(
            None, aggregate.merged([part.partial, partial_of(found, asked, aggregate, family.runs)]), frontier + 1
        )

    # tables, and the merge

    def _table(self, node: TableScan) -> Elements:
        known = self._tables.get(node.table)
        if known is None:
            assert self._state is not None
            table = self.question.table_of(node, self._state)
            known = self._tables[node.table] = (table, table_rows(node, table))
        return known[1]

    def _tables_changed(self) -> bool:
        """Whether a table has other rows than those that were read; then nothing that was computed counts."""
        for name, (table, _) in self._tables.items():
            if name.lower() in self.question.catalog.tables and self.question.present.table(name.lower()) is not table:
                self._tables = {}
                return True
        return False

    def _merged(self, found: Mapping[Uids, RunPart], frontier: int) -> pa.Table:
        question, aggregate = self.question, self._made.aggregate
        if aggregate is None:
            empty = Elements.empty(self.how.lower.schema)
            rows = concat([empty, *(p.rows for p in found.values() if p.rows is not None)])
            return table_of(rows.columns, question.plan)
        partials = [p.partial for p in found.values() if p.partial is not None and p.first_end != INF]
        columns = aggregate.answer(aggregate.merged(partials or [aggregate.empty()]))
        count = len(next(iter(columns.values())))
        merged = Elements.positive(np.full(count, frontier), INF, columns)
        flow = lower_part(question.plan, self.how.upper, question.functions)
        return table_of(evaluate(flow, lambda _: merged, frontier, question.limits.check).columns, question.plan)


@dataclass(frozen=True)
class ReusedFamily:
    """A running query and the runs that have its partials."""

    query: str
    runs: tuple[Run, ...]


YOUNG, STAYING, ENDING = range(3)


def _kinds(runs: Sequence[Run]) -> dict[str, int]:
    """Which runs, youngest first, may soon be merged, which stay, and whose rows end next: what is computed together
    should also change together."""
    found, full = {}, 0
    for i, run in enumerate(runs):
        found[run.uid] = ENDING if i >= len(runs) - 2 else STAYING if full else YOUNG
        full += run.table.num_rows >= history.MOST // 2
    return found


def _rows_within(runs: Sequence[Run], after: int, upto: int) -> int:
    """The rows of runs that have some of a stretch of time."""
    spans = ((r, *span_of(r)) for r in runs if upto > after)
    return sum(r.table.num_rows for r, first, last in spans if last > after and first <= upto)


def _pieces(runs: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Runs in pieces of about the same number of bytes to read; those that nothing is read of are left out."""
    found: list[list[Any]] = []
    held = PIECE
    for run, size in zip(runs, sizes, strict=True):
        if size:
            if held >= PIECE:
                found, held = [*found, []], 0
            found[-1].append(run)
            held += size
    return found
