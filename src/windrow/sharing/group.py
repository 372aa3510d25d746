"""What a runtime drives: the families of all queries that share, and what stands above each aggregate.

A `Group` takes the place of the circuits of the queries it serves. Queries are put into families by their rows
(stream and joined tables) and by the technique:

    slices      same rows, predicate and keys; windows differ        (paper, section 3)
    fragments   same rows and window; predicates differ              (section 4)
    shards      same rows; windows and predicates differ             (section 5)
    auto        shards, except for queries that are cheaper alone    (`counters.worth_sharing`)
    off         nothing is shared

The rows of a source are made once per advance however many families read them, joins included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure, WindrowError
from windrow.local.circuit import Circuit, Feed, answer, one_chunk
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.join import Join, Part
from windrow.operators.linear import Call, Project, Select
from windrow.operators.protocol import Operator
from windrow.plan import nodes as n
from windrow.plan.lower import formula
from windrow.plan.nodes import QueryPlan
from windrow.sharing.counters import worth_sharing
from windrow.sharing.family import Family
from windrow.sharing.recognise import NotShared, Recognised, Source, recognise
from windrow.sharing.windows import PAIRED, PANED

TECHNIQUES = ("auto", "off", "slices", "fragments", "shards")
Functions = Mapping[str, Callable[..., object]]


def check(sharing: str, slicing: str = PAIRED) -> None:
    """Refuse a name that is no technique."""
    for what, given, allowed in (("sharing", sharing, TECHNIQUES), ("slicing", slicing, (PAIRED, PANED))):
        if given not in allowed:
            raise WindrowError(f"unknown {what} {given!r}", hint=f"use one of {', '.join(allowed)}")


@dataclass
class Served:
    """A query of a group: its family, and how its answers are finished."""

    query: Recognised
    family: Family
    finish: Finish
    rows: Rows


class Finish:
    """From the shared aggregate's elements to the query's answer."""

    def __init__(self, query: Recognised, functions: Functions) -> None:
        self.query = query
        self._renamed = dict(query.shown)
        self.schema = dict(query.plan.root.schema)
        chain = query.chain
        self._operators: list[Operator] | None = None if chain is None else [_operator(x, functions) for x in chain]
        self._circuit: Circuit | None = None
        if chain is None:
            self._circuit = Circuit(query.above, functions, {})

    def start(self, ts: int) -> None:
        """The query's clock starts."""
        if self._circuit is not None and not self._circuit.started:
            self._circuit.start(ts)

    def advance(self, elements: Elements | None, frontier: int) -> Elements:
        """The answer's part for the interval."""
        if elements is None:
            if self._circuit is None or not self._circuit.started:
                return Elements.empty(self.schema)
            elements = Elements.empty(self._types())
        renamed = {internal: elements.columns[name] for internal, name in self._renamed.items()}
        if self._operators is not None:
            rows = elements.with_columns(renamed)
            for operator in self._operators:
                rows = operator.advance([rows], frontier)
            return rows
        assert self._circuit is not None
        return self._circuit.advance(lambda _: (elements.ts, renamed), frontier)

    def _types(self) -> dict[str, pa.DataType]:
        schema = self.query.aggregate.schema
        return {name: schema[internal] for internal, name in self._renamed.items()}


def _operator(node: n.Node, functions: Functions) -> Operator:
    match node:
        case n.Filter():
            return Select([formula(node.predicate)])
        case n.Project():
            return Project([(name, formula(e)) for name, e in node.outputs])
        case n.Call():
            return Call(node.output, node.function, functions[node.function], node.arguments, node.type)
    raise NotImplementedError(type(node).__name__)


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
            arrays = {c: one_chunk(table, names[c.partition(".")[2]]).cast(t) for c, t in mine.items()}
            held.append(Elements.positive(np.full(table.num_rows, BEGINNING + 1), INF, arrays))
        self._join = Join(parts, sorted(self.source.equalities))
        self._shape = tuple(sorted(self.columns))
        self._join.advance([Elements.empty(parts[0].columns), *held], BEGINNING + 1)


def _owner(column: str) -> str:
    return column.partition(".")[0]


@dataclass
class Group:
    """Queries that share. One whose expressions raise is served no longer; `failures` holds its error."""

    functions: Functions
    tables: Mapping[str, pa.Table]
    sharing: str = "auto"
    slicing: str = PAIRED
    families: dict[object, Family] = field(default_factory=dict)
    served: dict[str, Served] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # queries that run by themselves, and why
    failures: dict[str, RuntimeFailure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self.sharing, self.slicing)
        self._rows: dict[Source, Rows] = {}
        self.frontier = BEGINNING

    def add(self, plan: QueryPlan, start: int = BEGINNING, history: Feed | None = None) -> bool:
        """Serve a query from now on, if it can share; `history` gives it rows from before `start`."""
        query = self.recognised(plan)
        if query is not None:
            self.serve(query, start, history)
        return query is not None

    def recognised(self, plan: QueryPlan) -> Recognised | None:
        """The query as it would be served; None, and a reason, if it runs by itself."""
        if self.sharing == "off":
            return None
        try:
            return recognise(plan)
        except NotShared as why:
            self.reasons[plan.name] = str(why)
            return None

    def serve(self, query: Recognised, start: int = BEGINNING, history: Feed | None = None) -> None:
        """Serve a query that has been recognised."""
        plan = query.plan
        family = self.families.setdefault(self._key(query), Family(self.functions, self.slicing))
        rows = self._rows.setdefault(query.source, Rows(query.source, self.tables))
        rows.read(query.columns)
        family.functions = self.functions
        family.join(query.member, start)
        self.served[plan.name] = Served(query, family, Finish(query, self.functions), rows)
        if history is not None:
            once = Rows(query.source, self.tables)
            once.read(query.columns)
            family.remember(plan.name, *once.take(history))

    def _key(self, query: Recognised) -> object:
        m = query.member
        match self.sharing:
            case "slices":
                return (query.source, m.condition, m.keys)
            case "fragments":
                return (query.source, m.window)
        return query.source

    def remove(self, name: str) -> None:
        """Serve a query no longer."""
        served = self.served.pop(name)
        served.family.leave(name)
        if not len(served.family):
            self.families = {k: f for k, f in self.families.items() if f is not served.family}

    def advance(
        self, feed: Feed, frontier: int, starts: Callable[[QueryPlan], int | None] | None = None
    ) -> dict[str, Elements]:
        """The answers' parts up to `frontier`, of the queries that have any."""
        taken: dict[Source, tuple[Int64s, dict[str, pa.Array]]] = {}
        due: dict[str, Elements] = {}
        if starts is not None:
            self._start(starts, frontier)
        for key, family in self.families.items():
            source = self._source(key)
            if source not in taken:
                taken[source] = self._rows[source].take(feed)
            due |= family.advance(*taken[source], frontier)
            for name, error in family.failed.items():
                self.failures[name] = error
                self.served.pop(name, None)
            family.failed.clear()
        answers = {}
        for name, served in self.served.items():
            if name in due or served.finish._circuit is not None:
                found = served.finish.advance(due.get(name), frontier)
                if len(found):
                    answers[name] = found
        self.frontier = frontier
        return answers

    def _start(self, starts: Callable[[QueryPlan], int | None], frontier: int) -> None:
        """Start the clocks of queries that have not begun; those over the same rows start together."""
        found: dict[Source, int | None] = {}
        for name, served in self.served.items():
            entry = served.family.joined[name]
            if entry.start == BEGINNING:
                source = served.query.source
                if source not in found:
                    found[source] = starts(served.query.plan)
                at = found[source]
                if at is not None and at <= frontier:
                    entry.start = at
                    served.finish.start(at)

    @staticmethod
    def _source(key: object) -> Source:
        if isinstance(key, Source):
            return key
        assert isinstance(key, tuple)
        found: Source = key[0]
        return found

    def first(self, name: str) -> Elements:
        """What a query that has just joined answers at once, at the frontier it joined at."""
        served = self.served[name]
        entry = served.family.joined[name]
        served.finish.start(entry.start)
        at, entry.start = entry.start, entry.start + 1  # this instant is answered here
        found = served.family.due(at - 1, at, frozenset((name,)), at)
        return served.finish.advance(found.get(name), at)

    def answer(self, name: str, *parts: Elements) -> pa.Table:
        """Elements as the rows a user sees; several parts cost little more than one."""
        served = self.served[name]
        return answer(served.query.plan, concat(parts) if parts else Elements.empty(served.finish.schema))

    def empty(self, name: str) -> pa.Table:
        """No rows, with the query's columns."""
        return self.answer(name)


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
        queries = _worthwhile(group, queries, rate)
    for query in queries:
        group.serve(query)
    return group, [p for p in given if p.name not in group.served]


def _worthwhile(group: Group, queries: Sequence[Recognised], rate: Callable[[str], float]) -> list[Recognised]:
    """The queries that cost less together than apart (inequality 1)."""
    families: dict[Source, list[Recognised]] = {}
    for query in queries:
        families.setdefault(query.source, []).append(query)
    chosen: list[Recognised] = []
    for source, members in families.items():
        if worth_sharing([q.member.window for q in members], rate(source.stream), group.slicing):
            chosen += members
        else:
            why = "it is alone" if len(members) == 1 else "rows are so few that sharing costs more"
            group.reasons |= {q.plan.name: why for q in members}
    return chosen
