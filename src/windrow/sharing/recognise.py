"""Which queries can share, and how a plan splits into what is shared and what stays above.

A plan can share when its root is periodic and one chain leads from it to an aggregate over one stream's `[RANGE r
SLIDE s]` window, filtered, projected, and joined by equality with tables or not:

    emit ── (filter, project, distinct) ── aggregate ── project / filter / call / quantise / window ── scan
    └────────── above, unchanged ────────┘ └────────────────────────── the member ─────────────────────┘

Tables of the join are read as they stand, so predicates on them test attributes of the joined row. Names are the
family's own, `stream.column` and `table.column`, so that queries with other aliases meet. `None` never means a wrong
answer: a query that is not recognised runs by itself, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import SUMMARISED
from windrow.operators.linear import Formula
from windrow.plan import nodes as n
from windrow.plan.expr import Expr, Predicate, column
from windrow.plan.parametric import Constants, Form, PlanShape, same
from windrow.scalar_engine import quote
from windrow.sharing.above import AboveAggregate, said_above
from windrow.sharing.conditions import Attribute, condition, where_all
from windrow.sharing.member import Kind, Member, UserCall
from windrow.sharing.windows import SlideWindow


class NotShared(Exception):
    """Why a query runs by itself."""


@dataclass(frozen=True)
class FamilySource:
    """The rows of a family: a stream, and the tables it is joined with by equality."""

    stream: str
    tables: tuple[str, ...] = ()
    equalities: frozenset[tuple[str, str, bool]] = frozenset()


@dataclass(frozen=True)
class Recognised(AboveAggregate):
    """A query that can share."""

    plan: n.QueryPlan
    source: FamilySource
    member: Member
    columns: Mapping[str, pa.DataType]  # of the family's rows that the member reads
    shown: tuple[tuple[str, str], ...]  # the aggregate's columns: (name in the plan, name in the member)

    @property
    def aggregate(self) -> n.Aggregate:
        return _aggregate(self.plan)

    @property
    def chained(self) -> bool:
        return not isinstance(self.member.kind.above, str)

    @property
    def slide(self) -> int:
        return self.member.window.slide


def recognise(plan: n.QueryPlan) -> Recognised:
    """The query as a member of a family; raises `NotShared` with the reason if it cannot be one."""
    if plan.made is None or plan.budget is not None:
        return recognised_rows(plan)[0]
    alike: Alike | None = plan.made.shape.notes.get(Alike)
    if alike is None:
        alike = plan.made.shape.notes[Alike] = Alike(plan.made.shape)
    return alike.recognised(plan, plan.made.constants)


class Alike:
    """Queries that differ in constants only: the members they are differ in steps and conditions only.

    That holds for those whose conditions test the same attributes, and if no constant stands above the aggregate.
    """

    def __init__(self, shape: PlanShape) -> None:
        self._parts: Form[tuple[list[Predicate], tuple[Formula | UserCall, ...]]] | None = None
        self._known: dict[tuple[Attribute, ...], Recognised | None] = {}
        try:
            found, rows = recognised_rows(shape.plan)
        except NotShared:
            return
        kind = found.member.kind
        predicates = [s.predicate for s in rows.steps if isinstance(s, Expr)]
        above = (kind.above, found.shown, kind.keys, kind.calls, found.source)
        if found.chained and Form(above, shape.marks).constant and None not in predicates:
            self._parts = Form(([p for p in predicates if p is not None], tuple(found.member.steps)), shape.marks)

    def recognised(self, plan: n.QueryPlan, constants: Constants) -> Recognised:
        predicates, steps = ([], ()) if self._parts is None else self._parts.made(constants)
        whole = None if self._parts is None else where_all(predicates)
        if whole is None:
            return recognised_rows(plan)[0]
        tested = tuple([a for box in whole.boxes for a, _ in box])
        first = self._known.get(tested)
        if first is not None:
            member = Member(plan.name, first.member.window, whole, first.member.kind, steps)
            return Recognised(plan, first.source, member, first.columns, first.shown)
        found, _ = recognised_rows(plan)
        if tested not in self._known:
            equal = same(found.member.steps, steps) and found.member.condition == whole and found.chained
            self._known[tested] = found if equal else None
        return found


def _aggregate(plan: n.QueryPlan) -> n.Aggregate:
    """The aggregate that is shared."""
    node: n.Node = plan.root.input
    while isinstance(node, n.Filter | n.Project | n.Call | n.WindowBounds | n.Distinct):
        node = node.input
    if not isinstance(node, n.Aggregate):
        raise NotShared(f"it is no aggregate of one window ({type(node).__name__.lower()})")
    return node


def recognised_rows(plan: n.QueryPlan) -> tuple[Recognised, FamilyRows]:
    """The query as a member of a family, and the rows under its aggregate."""
    if plan.emit.period is None:
        raise NotShared("it is not periodic")
    if plan.budget is not None and plan.budget.us is not None:
        raise NotShared("rows may be shed before it (SHED WHEN)")
    if plan.root.op in (n.StreamOp.ISTREAM_RESTORE, n.StreamOp.RSTREAM_RESTORE):
        raise NotShared("it restores what comes and goes between evaluations")
    node = _aggregate(plan)
    if any(c.kind == "sum" and _may_overflow(node.input.schema[str(c.column)]) for c in node.calls):
        raise NotShared("its SUM may overflow, which must stop nobody else")
    if any(c.kind in SUMMARISED for c in node.calls) and plan.root.at_most:
        raise NotShared("its basic windows are its periods, which must not move (SLIDE AT MOST)")
    rows = FamilyRows(
        period=1 if plan.root.period == 1 else None
    )  # every instant is a multiple of 1: nothing to quantise
    rows.read(node.input)
    if rows.window is None or rows.period != plan.root.period:
        raise NotShared("its window is no RANGE with a SLIDE")
    return _member(plan, node, rows), rows


def _may_overflow(type_: pa.DataType) -> bool:
    """Whether fewer than 10**10 values may add up to more than 38 digits."""
    return pa.types.is_decimal(type_) and type_.precision > 28


@dataclass
class FamilyRows:
    """The input of an aggregate, read from the top down: columns as expressions over the family's rows."""

    columns: dict[str, Expr] = field(default_factory=dict)
    types: dict[str, pa.DataType] = field(default_factory=dict)  # of the family's columns
    steps: list[Expr | UserCall] = field(default_factory=list)
    stream: str = ""
    tables: list[str] = field(default_factory=list)
    equalities: set[tuple[str, str, bool]] = field(default_factory=set)
    window: SlideWindow | None = None
    period: int | None = None
    offset: int = 0
    lag: int = 0

    def read(self, node: n.Node) -> None:
        """Take in a node and what is below it."""
        match node:
            case n.Project():
                self.read(node.input)
                self.columns = {name: e.substitute(self.columns) for name, e in node.outputs}
            case n.Filter():
                self.read(node.input)
                self.steps.append(node.predicate.substitute(self.columns))
            case n.Call():
                self.read(node.input)
                self._call(node)
            case n.Quantise():
                self.period, self.offset, self.lag = node.period, node.offset, int(node.before)
                self.read(node.input)
            case n.Window():
                self._window(node)
            case n.Join():
                self._join(node)
            case n.Scan():
                self.stream = node.stream.lower()
                for internal, name, type_ in node.columns:
                    self._column(internal, f"{self.stream}.{name.lower()}", type_)
            case _:
                raise NotShared(f"its rows come from a {type(node).__name__.lower()}")

    def _column(self, internal: str, name: str, type_: pa.DataType) -> None:
        self.columns[internal] = column(name, type_)
        self.types[name] = type_

    def _window(self, node: n.Window) -> None:
        spec = node.spec
        if spec.kind is not n.WindowKind.RANGE or spec.size is None or spec.internal or node.derived:
            raise NotShared("its window is no RANGE with a SLIDE")
        self.read(node.input)
        if self.period is not None:
            self.window = SlideWindow(spec.size, self.period, self.offset, self.lag)

    def _call(self, node: n.Call) -> None:
        arguments = tuple(_formula(self.columns[a]) for a in node.arguments)
        if any(c not in self.types for a in node.arguments for c in self.columns[a].columns):
            raise NotShared("a user function is applied to another's result")
        name = f"{node.function}({', '.join(a.sql for a in arguments)})"
        call = UserCall(name, node.function, arguments, node.type)
        if call not in self.steps:
            self.steps.append(call)
        self.columns[node.output] = column(name, node.type)

    def _join(self, node: n.Join) -> None:
        if any(node.internal):
            raise NotShared("it joins INTERNAL windows")
        streams = [p for p in node.parts if any(isinstance(x, n.Scan) for x in n.walk(p))]
        if len(streams) != 1:
            raise NotShared("it joins streams")
        self.read(streams[0])
        found, below = dict(self.columns), list(self.steps)
        tested: list[Expr | UserCall] = []
        for part in node.parts:
            if part is not streams[0]:
                self.columns, self.steps = {}, []
                self._table(part)
                found |= self.columns
                tested += self.steps
        self.columns, self.steps = found, below + tested
        for e in node.equalities:
            left, right = self.columns[e.left].column, self.columns[e.right].column
            if left is None or right is None or left not in self.types or right not in self.types:
                raise NotShared("it joins on expressions")
            self.equalities.add((*sorted((left, right)), e.null_safe))  # type: ignore[arg-type]
        self.steps += [e.substitute(self.columns) for e in node.residual]

    def _table(self, node: n.Node) -> None:
        match node:
            case n.Project():
                self._table(node.input)
                self.columns = {name: e.substitute(self.columns) for name, e in node.outputs}
            case n.Filter():
                self._table(node.input)
                self.steps.append(node.predicate.substitute(self.columns))
            case n.TableScan() if not node.retroactive:
                name = node.table.lower()
                seen = sum(1 for t in self.tables if t.partition("#")[0] == name)
                label = f"{name}#{seen + 1}" if seen else name
                self.tables.append(label)
                for internal, own, type_ in node.columns:
                    self._column(internal, f"{label}.{own.lower()}", type_)
            case _:
                raise NotShared(f"it joins a {type(node).__name__.lower()}")


def _formula(e: Expr) -> Formula:
    return Formula(e.sql(), e.type, tuple(sorted(e.columns)), e.column)


def _member(plan: n.QueryPlan, aggregate: n.Aggregate, rows: FamilyRows) -> Recognised:
    whole = condition([s for s in rows.steps if isinstance(s, Expr)])
    formulas = {a.sql: tested_formula(a) for a in whole.attributes.values()}
    shown: list[tuple[str, str]] = []
    keys = []
    for key in aggregate.keys:
        f = _formula(rows.columns[key])
        formulas[f.sql] = f
        keys.append(f.sql)
        shown.append((key, f.sql))
    calls: list[Aggregation] = []
    for c in aggregate.calls:
        argument = None
        if c.column is not None:
            f = _formula(rows.columns[c.column])
            formulas[f.sql] = f
            argument = f.sql
        name = (
            f"{c.kind}{'(DISTINCT ' if c.distinct else '('}{argument or '*'}{''.join(f', {p}' for p in c.parameters)})"
        )
        call = Aggregation(c.kind, argument, name, c.type, c.distinct, c.parameters)
        if call not in calls:
            calls.append(call)
        shown.append((c.output, name))
    steps = tuple(s if isinstance(s, UserCall) else _formula(s) for s in rows.steps)
    assert rows.window is not None
    above = said_above(plan, aggregate, shown)
    calling = tuple(s for s in steps if isinstance(s, UserCall))
    kind = Kind.of(tuple(dict.fromkeys(keys)), tuple(calls), formulas, calling, above)
    member = Member(plan.name, rows.window, whole, kind, steps)
    source = FamilySource(rows.stream, tuple(sorted(rows.tables)), frozenset(rows.equalities))
    read = {c for f in (*formulas.values(), *(s for s in steps if isinstance(s, Formula))) for c in f.reads}
    read |= {c for s in steps if isinstance(s, UserCall) for f in s.arguments for c in f.reads}
    read |= {c for left, right, _ in rows.equalities for c in (left, right)}
    columns = {c: rows.types[c] for c in sorted(read) if c in rows.types}
    return Recognised(plan, source, member, columns, tuple(shown))


def tested_formula(a: Attribute) -> Formula:
    """What is computed of a row to test an attribute."""
    plain = len(a.reads) == 1 and a.sql == quote(a.reads[0])
    return Formula(a.sql, a.type, a.reads, a.reads[0] if plain else None)


__all__ = ["FamilySource", "NotShared", "Recognised", "recognise"]
