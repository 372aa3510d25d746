"""Which queries over two streams can share their join, and how a plan splits into what is shared and what stays above.

    emit ── (filter, project, distinct) ── aggregate ── project ── join ┬─ quantise, window, filter, project ── scan
    └────────── above, unchanged ────────┘                              └─ ...

Both windows are of time, the join has an equality, and every expression reads one side. Expressions above the join are
computed for rows that may have no partner, so they must be such that cannot raise. What is not recognised runs by
itself, and the reason says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.linear import Formula
from windrow.plan import nodes as n
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.totality import total
from windrow.sharing.above import AboveAggregate, said_above
from windrow.sharing.joins.members import JoinMember, JoinSource, Sided, name_of
from windrow.sharing.recognise import NotShared


@dataclass(frozen=True)
class RecognisedJoin(AboveAggregate):
    """A query that can share its join."""

    plan: n.QueryPlan
    source: JoinSource
    member: JoinMember
    shown: tuple[tuple[str, str], ...]  # the aggregate's columns: (name in the plan, name in the member)

    @property
    def chained(self) -> bool:
        return not isinstance(self.member.above, str)

    @property
    def aggregate(self) -> n.Aggregate:
        return _aggregate(self.plan)

    @property
    def slide(self) -> int:
        return self.member.slide


@dataclass
class _Side:
    """One input of the join, read from the top down: columns as expressions over the stream's."""

    stream: str = ""
    columns: dict[str, Expr] = field(default_factory=dict)
    types: dict[str, pa.DataType] = field(default_factory=dict)
    filters: list[Expr] = field(default_factory=list)
    range: int | None = None
    period: int | None = None

    def read(self, node: n.Node) -> None:
        match node:
            case n.Project():
                self.read(node.input)
                self.columns = {name: e.substitute(self.columns) for name, e in node.outputs}
            case n.Filter():
                self.read(node.input)
                self.filters.append(node.predicate.substitute(self.columns))
            case n.Quantise():
                if node.offset or node.before:
                    raise NotShared("its windows are TUMBLE or HOP")
                self.period = node.period
                self.read(node.input)
            case n.Window():
                spec = node.spec
                if spec.kind is not n.WindowKind.RANGE or spec.size is None or spec.internal or node.derived:
                    raise NotShared("its windows are no RANGE with a SLIDE")
                self.range = spec.size
                self.read(node.input)
            case n.Scan():
                self.stream = node.stream.lower()
                for internal, name, type_ in node.columns:
                    self.columns[internal] = column(name.lower(), type_)
                    self.types[name.lower()] = type_
            case _:
                raise NotShared(f"it joins a {type(node).__name__.lower()}")


def recognise_join(plan: n.QueryPlan) -> RecognisedJoin:
    """The query as a member of a shared join; raises `NotShared` with the reason if it cannot be one."""
    if plan.budget is not None and plan.budget.us is not None:
        raise NotShared("rows may be shed before it (SHED WHEN)")
    aggregate = _aggregate(plan)
    projected: dict[str, Expr] = {}
    node: n.Node = aggregate.input
    if isinstance(node, n.Project):
        projected, node = dict(node.outputs), node.input
    if isinstance(node, n.Filter):
        raise NotShared("a predicate above its join may raise")
    if not isinstance(node, n.Join) or len(node.parts) != 2 or any(node.internal):
        raise NotShared("it joins more than two inputs" if isinstance(node, n.Join) else "it is no join of two streams")
    for e in node.residual:
        one_sided = any(e.columns <= part.schema.keys() for part in node.parts)
        raise NotShared("a predicate above its join may raise" if one_sided else "it compares columns of both streams")
    whole = 1 if plan.root.period == 1 else None  # every instant is a multiple of 1: nothing to quantise
    sides = [_Side(period=whole), _Side(period=whole)]
    for side, part in zip(sides, node.parts, strict=True):
        side.read(part)
        if side.range is None or side.period != plan.root.period:
            raise NotShared("its windows are no RANGE with a SLIDE")
    keys = _keys(node, sides)
    if _later(sides, keys):
        sides.reverse()
        keys = [(b, a) for a, b in keys]
    return _recognised(plan, aggregate, projected or {c: column(c, t) for c, t in node.schema.items()}, sides, keys)


def _aggregate(plan: n.QueryPlan) -> n.Aggregate:
    if plan.root.op in (n.StreamOp.ISTREAM_RESTORE, n.StreamOp.RSTREAM_RESTORE):
        raise NotShared("it restores what comes and goes between evaluations")
    node: n.Node = plan.root.input
    while isinstance(node, n.Filter | n.Project | n.Call | n.Distinct):
        node = node.input
    if plan.root.period is None or not isinstance(node, n.Aggregate):
        raise NotShared("it is not periodic" if plan.root.period is None else "it is no aggregate of a join")
    return node


def _keys(join: n.Join, sides: list[_Side]) -> list[tuple[Expr, Expr]]:
    found = []
    for e in join.equalities:
        if e.null_safe:
            raise NotShared("its join takes NULL for equal")
        left = sides[0].columns.get(e.left, sides[0].columns.get(e.right))
        right = sides[1].columns.get(e.right, sides[1].columns.get(e.left))
        if left is None or right is None:
            raise NotShared("it joins on columns of one stream")
        if left.type != right.type:
            raise NotShared("its keys are of two types")
        found.append((left, right))
    if not found:
        raise NotShared("its join has no equality")
    return sorted(found, key=lambda k: (k[0].sql(), k[1].sql()))


def _later(sides: list[_Side], keys: list[tuple[Expr, Expr]]) -> bool:
    """Whether the second input comes first in the family's order: by stream, then by keys."""
    first, second = ((s.stream, [k[i].sql() for k in keys]) for i, s in enumerate(sides))
    return second < first


def _recognised(
    plan: n.QueryPlan,
    aggregate: n.Aggregate,
    projected: dict[str, Expr],
    sides: list[_Side],
    keys: list[tuple[Expr, Expr]],
) -> RecognisedJoin:
    def sided(name: str) -> Sided:
        """A column of the aggregate's input, as a formula over one side."""
        expr = projected[name]
        for i, side in enumerate(sides):
            if expr.columns and expr.columns <= side.columns.keys():
                own = expr.substitute(side.columns)
                if own.functions or not total(own, side.types):
                    raise NotShared("an expression above its join may raise")
                return i, _formula(own)
        raise NotShared("an expression reads columns of both streams")

    grouped = [(name, sided(name)) for name in aggregate.keys]
    shown = [(name, name_of(s)) for name, s in grouped]
    arguments: list[Sided] = []
    calls: list[Aggregation] = []
    for c in aggregate.calls:
        argument = None if c.column is None else sided(c.column)
        if argument is not None and argument not in arguments:
            arguments.append(argument)
        of = None if argument is None else name_of(argument)
        mark = "DISTINCT " if c.distinct else ""
        name = f"{c.kind}({mark}{of or '*'}{''.join(f', {p}' for p in c.parameters)})"
        call = Aggregation(c.kind, of, name, c.type, c.distinct, c.parameters)
        if call not in calls:
            calls.append(call)
        shown.append((c.output, name))
    if any(f.functions for side in sides for f in side.filters):
        raise NotShared("it calls a user's function below its join")
    above = said_above(plan, aggregate, shown)
    filters = tuple(tuple(_formula(f) for f in side.filters) for side in sides)
    assert sides[0].range is not None and sides[1].range is not None and plan.root.period is not None
    member = JoinMember(
        plan.name, (sides[0].range, sides[1].range), plan.root.period, (filters[0], filters[1]),
        tuple(dict.fromkeys(s for _, s in grouped)), tuple(arguments), tuple(calls), above,
    )  # fmt: skip
    source = JoinSource((sides[0].stream, sides[1].stream), tuple((_formula(a), _formula(b)) for a, b in keys))
    return RecognisedJoin(plan, source, member, tuple(shown))


def _formula(e: Expr) -> Formula:
    plain = Expr(tuple(Ref(p.name) if isinstance(p, Ref) else p for p in e.parts), e.type)
    return Formula(plain.sql(), e.type, tuple(sorted(e.columns)), e.column)
