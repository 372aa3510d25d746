"""From shared aggregates to answers: what stands above the aggregate of each query.

Mostly that is HAVING and the select list: rows in, rows out. Queries whose lists are the same formulas are finished in
one call of the scalar engine, however many they are; the others (DISTINCT, ISTREAM, DSTREAM) have a small circuit each
over the aggregate's rows.

Law: linear operators pass lifetimes on untouched. So while the rows of many queries go through a chain together, `exp`
holds the number of the query, and is put right afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.local.circuit import Circuit
from windrow.operators.elements import Elements, concat
from windrow.operators.linear import Call, Project, Select
from windrow.operators.protocol import Operator
from windrow.plan import nodes as n
from windrow.plan.lower import formula
from windrow.sharing.recognise import Recognised
from windrow.sharing.registry import Functions

_Chain = tuple[object, ...]


class Finish:
    """The part of one query above its aggregate."""

    def __init__(self, query: Recognised, functions: Functions) -> None:
        self.query = query
        self.uid = ""  # tells it from others that had its name
        self.renamed = dict(query.shown)
        self.schema = dict(query.plan.root.schema)
        self.slide = query.member.window.slide
        chain = query.chain
        self.circuit = Circuit(query.above, functions, {}) if chain is None else None
        self.operators = [_operator(x, functions) for x in chain or ()]
        self.signature: _Chain | None = None
        if any(not _copies(o) for o in self.operators):
            self.signature = (query.shown, *(_said(x) for x in chain or ()))

    def start(self, ts: int) -> None:
        """The query's clock starts."""
        if self.circuit is not None and not self.circuit.started:
            self.circuit.start(ts)

    def advance(self, elements: Elements | None, frontier: int) -> Elements:
        """The answer's part for the interval."""
        if elements is None:
            if self.circuit is None or not self.circuit.started:
                return Elements.empty(self.schema)
            elements = Elements.empty(self._types())
        renamed = {internal: elements.columns[name] for internal, name in self.renamed.items()}
        if self.circuit is not None:
            return self.circuit.advance(lambda _: (elements.ts, renamed), frontier)
        rows = elements.with_columns(renamed)
        for operator in self.operators:
            rows = operator.advance([rows], frontier)
        return rows

    def _types(self) -> dict[str, pa.DataType]:
        schema = self.query.aggregate.schema
        return {name: schema[internal] for internal, name in self.renamed.items()}


def finish(
    finishes: Mapping[str, Finish],
    due: Mapping[str, Elements],
    frontier: int,
    failures: MutableMapping[str, RuntimeFailure],
) -> dict[str, Elements]:
    """The answers' parts of all queries that have any; `due`: the aggregates' elements by query.

    A query whose expressions raise gets its error in `failures` and no answer.
    """
    answers: dict[str, Elements] = {}
    alike: dict[_Chain, list[str]] = {}
    alone = [name for name, mine in finishes.items() if mine.circuit is not None]
    for name, elements in due.items():
        mine = finishes[name]
        if mine.signature is not None and len(elements):
            alike.setdefault(mine.signature, []).append(name)
        elif mine.circuit is None and len(elements):
            answers[name] = mine.advance(elements, frontier)  # columns are renamed: nothing can raise
    for names in alike.values():
        try:
            answers |= _together([finishes[n] for n in names], names, [due[n] for n in names], frontier)
        except RuntimeFailure:
            alone += names
    for name in alone:
        try:
            answers[name] = finishes[name].advance(due.get(name), frontier)
        except RuntimeFailure as error:
            failures[name] = error
    return {name: found for name, found in answers.items() if len(found)}


def _together(
    finishes: Sequence[Finish], names: Sequence[str], parts: Sequence[Elements], frontier: int
) -> dict[str, Elements]:
    if len(names) == 1:
        return {names[0]: finishes[0].advance(parts[0], frontier)}
    rows = concat(parts)
    owner = np.repeat(np.arange(len(names), dtype=np.int64), [len(p) for p in parts])
    found = finishes[0].advance(Elements(rows.ts, owner, rows.sign, rows.columns), frontier)
    bounds = np.searchsorted(found.exp, np.arange(len(names) + 1)).tolist()
    slides = np.array([f.slide for f in finishes], np.int64)
    exp = found.ts + slides[found.exp]
    answers = {}
    for i, name in enumerate(names):
        low, high = bounds[i], bounds[i + 1]
        columns = {c: a.slice(low, high - low) for c, a in found.columns.items()}
        answers[name] = Elements(found.ts[low:high], exp[low:high], found.sign[low:high], columns)
    return answers


def _operator(node: n.Node, functions: Functions) -> Operator:
    match node:
        case n.Filter():
            return Select([formula(node.predicate)])
        case n.Project():
            return Project([(name, formula(e)) for name, e in node.outputs])
        case n.Call():
            return Call(node.output, node.function, functions[node.function], node.arguments, node.type)
    raise NotImplementedError(type(node).__name__)


def _copies(operator: Operator) -> bool:
    return isinstance(operator, Project) and all(f.copies is not None for _, f in operator.outputs)


def _said(node: n.Node) -> object:
    """What a node of a chain does, in words that equal nodes share."""
    match node:
        case n.Filter():
            return node.predicate.sql()
        case n.Project():
            return tuple((name, e.sql()) for name, e in node.outputs)
        case n.Call():
            return (node.output, node.function, node.arguments)
    raise NotImplementedError(type(node).__name__)
