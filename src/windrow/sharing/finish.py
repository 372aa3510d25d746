"""From shared aggregates to answers: what stands above the aggregate of each query.

Mostly that is HAVING and the select list: rows in, rows out. Queries whose lists are the same formulas are finished in
one call of the scalar engine, however many they are; the others (DISTINCT, ISTREAM, DSTREAM) have a small circuit each
over the aggregate's rows.

Law: linear operators pass lifetimes on untouched. So while the rows of many queries go through a chain together, `exp`
holds the number of the query, and is put right afterwards. Rows that live for several periods (`stretches`) go by
themselves, and are repeated when all that may leave them out has been asked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace

import numpy as np

from windrow.errors import RuntimeFailure
from windrow.operators.elements import Elements, Int64s, concat
from windrow.operators.linear import Bounds, CallOperator, ProjectOperator, SelectOperator, bounded
from windrow.operators.protocol import Operator, Stateless
from windrow.operators.row_limit import MOST_ROWS, RowLimit
from windrow.operators.sample import repeated
from windrow.operators.state.run import Run
from windrow.operators.window import RangeWindow
from windrow.plan import nodes as n
from windrow.plan.dataflow import Circuit
from windrow.plan.lowering import Tuning, formula
from windrow.sharing.joins.recognise import RecognisedJoin
from windrow.sharing.query_group import Batch, Shown
from windrow.sharing.recognise import Recognised
from windrow.sharing.registry import Functions

FINISH = "finish "
"""How the slots begin in which a task keeps the state of circuits."""


class Finish:
    """The part of one query above its aggregate."""

    def __init__(self, query: Recognised | RecognisedJoin, functions: Functions, most_rows: int = MOST_ROWS) -> None:
        self.query, self.functions, self.most_rows = query, functions, most_rows
        self.uid = ""  # tells it from others that had its name
        self.renamed = dict(query.shown)
        self.schema = dict(query.plan.root.schema)
        chain = query.chain
        self.circuit: Circuit | None = None
        if chain is None:
            self.circuit = Circuit(query.above, functions, {}, tuning=Tuning(most_rows=most_rows))
            self._window = _given(self.circuit)
        self.operators = [_operator(x, functions) for x in chain or ()]
        self.shown = Shown.of(query.plan)
        self.alike = not any(isinstance(o, Bounds) for o in self.operators) and self.circuit is None  # for its kind

    def start(self, ts: int) -> None:
        """The query's clock starts."""
        if self.circuit is not None and not self.circuit.started:
            self.circuit.start(ts)

    def advance(self, rows: Elements, frontier: int, others: Sequence[Finish] = ()) -> Elements:
        """The rows of a chain, for one query or several; `others`: all of them, by the numbers that `exp` holds."""
        rows = rows.with_columns({internal: rows.columns[name] for internal, name in self.renamed.items()})
        for at, operator in enumerate(self.operators):
            if others and isinstance(operator, Bounds):
                alike = [o for other in others if isinstance(o := other.operators[at], Bounds)]
                rows = bounded(rows, alike, rows.exp)
            else:
                rows = operator.advance([rows], frontier)
        return rows

    def stretched(self, name: str, rows: Elements, period: int, frontier: int) -> Elements:
        """The rows of a chain, for a query whose rows live for several periods; its answers live for one."""
        limit = RowLimit(name, self.most_rows)
        if any(isinstance(o, Bounds) for o in self.operators):  # which tell one instant from another
            rows = repeated(rows, period, limit)
        return repeated(self.advance(rows, frontier), period, limit)

    def changed(self, rows: Elements | None, frontier: int) -> Elements:
        """The answer's part of a query with a circuit, in time order."""
        assert self.circuit is not None
        if not self.circuit.started:
            return Elements.empty(self.schema)
        if rows is None:
            schema = self.query.aggregate.schema
            rows = Elements.empty({name: schema[internal] for internal, name in self.renamed.items()})
        renamed = {internal: rows.columns[name] for internal, name in self.renamed.items()}
        self._window.exp = rows.exp
        found = self.circuit.advance(lambda _: (rows.ts, renamed), frontier)
        return found.take(np.argsort(found.ts, kind="stable")) if (np.diff(found.ts) < 0).any() else found


def finish(
    finishes: Mapping[str, Finish],
    due: Sequence[Batch],
    frontier: int,
    failures: MutableMapping[str, RuntimeFailure],
    circuits: Iterable[str] | None = None,
) -> list[Batch]:
    """The answers' parts of all queries that have any; `due`: the aggregates' elements; `circuits`: who has one.

    A query whose expressions raise gets its error in `failures` and no answer.
    """
    answers: list[Batch] = []
    if circuits is None:
        circuits = [name for name, mine in finishes.items() if mine.circuit is not None]
    changing: dict[str, Elements | None] = dict.fromkeys(circuits)
    for batch in due:
        if batch.one in changing:
            changing |= batch.parts()
            continue
        if batch.periods is not None:
            answers += _apart(finishes, batch, frontier, failures)
            continue
        try:
            answers.append(_together(finishes, batch, frontier))
        except RuntimeFailure:
            answers += _apart(finishes, batch, frontier, failures)
    for name, rows in changing.items():
        try:
            found = finishes[name].changed(rows, frontier)
            answers.append(Batch((name,), np.array([len(found)]), found))
        except RuntimeFailure as error:
            failures[name] = error.kept()
    return [batch for batch in answers if len(batch)]


def _together(finishes: Mapping[str, Finish], batch: Batch, frontier: int) -> Batch:
    """A batch through its chain, which all its queries have."""
    mine = finishes[batch.one]
    if all(_copies(o) for o in mine.operators):
        return replace(batch, rows=mine.advance(batch.rows, frontier))
    rows = batch.rows
    which = np.repeat(np.arange(len(batch.counts)), batch.counts)
    begins = np.cumsum(batch.counts) - batch.counts
    slide = (rows.exp - rows.ts)[np.minimum(begins, len(rows) - 1)]  # of every query that has rows
    differ = any(isinstance(o, Bounds) for o in mine.operators)  # whose lengths differ from query to query
    everyone = [finishes.get(n, mine) for n in batch.answered] if differ else ()
    found = mine.advance(Elements(rows.ts, which, rows.sign, rows.columns), frontier, everyone)
    counts = np.bincount(found.exp, minlength=len(batch.counts))
    return replace(batch, counts=counts, rows=found.with_lifetimes(found.ts, found.ts + slide[found.exp]))


def _apart(
    finishes: Mapping[str, Finish], batch: Batch, frontier: int, failures: MutableMapping[str, RuntimeFailure]
) -> list[Batch]:
    """The queries of a batch one by one; those that do not raise are one batch again."""
    numbers, answers = list[int](), list[Elements]()
    periods = {} if batch.periods is None else dict(zip(batch.numbers.tolist(), batch.periods.tolist(), strict=True))
    for number, rows in batch.numbered():
        name = batch.names[number]
        try:
            mine = finishes.get(name) or finishes[batch.one]
            found = mine.stretched(name, rows, periods[number], frontier) if periods else mine.advance(rows, frontier)
        except RuntimeFailure as error:
            failures[name] = error.kept()
            continue
        numbers.append(number)
        answers.append(found)
    counts = np.array([len(found) for found in answers], np.int64)
    return [Batch(batch.names, counts, concat(answers), np.array(numbers, np.int64))] if answers else []


class _GivenLifetimes(Stateless):
    """The window of what stands for the aggregate: its rows have their lifetimes already."""

    exp: Int64s = np.zeros(0, np.int64)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        return inputs[0].with_lifetimes(inputs[0].ts, self.exp)


def _given(circuit: Circuit) -> _GivenLifetimes:
    """Let a circuit take the lifetimes of its rows from outside."""
    steps, window = circuit.flow.steps, _GivenLifetimes()
    (at,) = (i for i, s in enumerate(steps) if isinstance(s.operator, RangeWindow))
    steps[at] = replace(steps[at], operator=window)
    return window


def _operator(node: n.Node, functions: Functions) -> Operator:
    match node:
        case n.Filter():
            return SelectOperator([formula(node.predicate)])
        case n.Project():
            return ProjectOperator([(name, formula(e)) for name, e in node.outputs])
        case n.WindowBounds():
            return Bounds(node.bounds, node.type)
        case n.Call():
            return CallOperator(node.output, node.function, functions[node.function], node.arguments, node.type)
    raise NotImplementedError(type(node).__name__)


def _copies(operator: Operator) -> bool:
    return isinstance(operator, ProjectOperator) and all(f.copies is not None for _, f in operator.outputs)


def finish_slots(finishes: Iterable[Finish]) -> Iterator[tuple[str, tuple[Run, ...]]]:
    """Named lists of runs: what DISTINCT, ISTREAM and DSTREAM need to go on."""
    for mine in finishes:
        if mine.circuit is None or not mine.circuit.started:
            continue
        for i, step in enumerate(mine.circuit.flow.steps):
            for slot, runs in step.operator.state().items() if step.operator is not None else ():
                yield FINISH + json.dumps([mine.query.plan.name, i, slot]), runs


def restore_finishes(
    finishes: Mapping[str, Finish], state: Mapping[str, tuple[Run, ...]], fresh: Collection[str], frontier: int
) -> None:
    """Take back what `finish_slots` named; queries that are `fresh` start anew, whatever one of their name left."""
    grouped: dict[tuple[str, int], dict[str, tuple[Run, ...]]] = {}
    for slot, runs in state.items():
        if slot.startswith(FINISH):
            name, step, inner = json.loads(slot[len(FINISH) :])
            if name not in fresh:
                grouped.setdefault((name, step), {})[inner] = runs
    for (name, step), inner_state in grouped.items():
        circuit = finishes[name].circuit if name in finishes else None
        if circuit is not None:
            operator = circuit.flow.steps[step].operator
            assert operator is not None
            operator.restore(inner_state, frontier)
