"""What a plan costs per unit of time, so that two plans for one query can be compared.

The unit of time is a second for timestamp streams and a tick for tick streams; `unit` is its length in ticks. The cost
is the number of row touches per unit (thesis 3.5.3, 5.3.1), in three terms for each operator:

    processing      one per arriving row, positive or negative, plus the results it makes
    maintenance     putting rows into state and taking them out again, by state structure
    negatives       counted like rows wherever they are sent: that is why patterns matter

Cardinalities assume independent predicates, uniform values and containment of value sets: a join on `a = b` of inputs
with v and w distinct values keeps one pair in max(v, w). Only ratios of costs mean anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from windrow.plan import nodes as n
from windrow.plan.expr import Expr, Ref
from windrow.plan.patterns import Lifetimes, Pattern, lifetimes
from windrow.plan.strategies import Strategy

SCANS_PER_WINDOW = 20
"""Operators that expire lazily scan a flat list twenty times per window length (thesis 3.6.1)."""


@dataclass(frozen=True)
class Statistics:
    """What is known or assumed of the data. Names are lower case; a column is `stream.column` or `table.column`."""

    rates: Mapping[str, float] = field(default_factory=dict)  # rows per unit of time, by stream
    distinct: Mapping[str, float] = field(default_factory=dict)  # values a column takes, by `stream.column`
    rows: Mapping[str, float] = field(default_factory=dict)  # rows, by table
    rate: float = 100.0  # of a stream not named above
    values: float = 1000.0  # of a column not named above
    table_rows: float = 1000.0  # of a table not named above
    selectivity: float = 1 / 3  # of a predicate that is not an equality
    horizon: float = 3600.0  # units of time for which an unbounded stream counts as stored


@dataclass(frozen=True, slots=True)
class Estimate:
    """One operator: rows in and out and negatives out per unit, rows of its relation and of its state, its cost."""

    rate_in: float
    rate_out: float
    negative: float
    size: float
    state: float
    cost: float


@dataclass(frozen=True, slots=True)
class _Edge:
    """An edge in the steady state: rows and negatives per unit, rows alive, distinct values by column, its period."""

    rate: float
    size: float
    values: Mapping[str, float]
    negative: float = 0.0
    period: float = 0.0

    @property
    def flow(self) -> float:
        return self.rate + self.negative

    def domain(self, column: str) -> float:
        """How many values the column can have."""
        return max(1.0, self.values.get(column, self.size))

    def distinct(self, column: str) -> float:
        """How many values of the column are alive."""
        return max(1.0, min(self.domain(column), self.size))

    def scaled(self, share: float) -> _Edge:
        return _Edge(self.rate * share, self.size * share, self.values, self.negative * share, self.period)


def unit_of(plan: n.QueryPlan) -> int:
    """Ticks per unit of time: a second of microseconds, or one tick."""
    return 1_000_000 if pa.types.is_timestamp(plan.time_type) else 1


def estimate(
    root: n.Node, statistics: Statistics | None = None, strategy: str = "upa", unit: int = 1
) -> dict[n.Node, Estimate]:
    """The estimate of every node below `root` and of `root` itself."""
    model = _Model(root, statistics or Statistics(), Strategy(strategy), unit)
    for node in n.walk(root):
        model.visit(node)
    return model.estimates


def total_cost(root: n.Node, statistics: Statistics | None = None, strategy: str = "upa", unit: int = 1) -> float:
    """The cost of a whole plan per unit of time."""
    estimates = estimate(root, statistics, strategy, unit)
    return sum(estimates[node].cost for node in n.walk(root))


class _Model:
    """One pass over a plan, inputs first."""

    def __init__(self, root: n.Node, statistics: Statistics, strategy: Strategy, unit: int) -> None:
        self.statistics, self.strategy, self.unit, self.known = statistics, strategy, unit, lifetimes(root, strategy)
        self.edges: dict[n.Node, _Edge] = {}
        self.estimates: dict[n.Node, Estimate] = {}

    def visit(self, node: n.Node) -> None:
        if node in self.edges:
            return
        inputs = [self.edges[i] for i in node.inputs]
        edge, state, cost = self._operator(node, inputs)
        self.edges[node] = edge
        arriving = sum(e.flow for e in inputs)
        self.estimates[node] = Estimate(arriving, edge.rate, edge.negative, edge.size, state, cost)

    def _operator(self, node: n.Node, inputs: Sequence[_Edge]) -> tuple[_Edge, float, float]:
        """The output edge, the rows of state and the cost of one operator."""
        match node:
            case n.Scan():
                return self._scan(node), 0.0, 0.0
            case n.TableScan():
                edge = self._table(node)
                return edge, edge.size, 0.0
            case n.Window():
                return self._window(node, inputs[0])
            case n.Filter(predicate=predicate):
                share = selectivity(predicate, inputs[0].values, self.statistics)
                return inputs[0].scaled(share), 0.0, inputs[0].flow
            case n.Admit() | n.Route() | n.Stamp() | n.OverNothing():
                return inputs[0], 0.0, inputs[0].flow
            case n.Project(outputs=outputs):
                copies = all(e.column is not None for _, e in outputs)
                return _projected(inputs[0], outputs), 0.0, 0.0 if copies else inputs[0].flow
            case n.Call():
                return inputs[0], 0.0, 10 * inputs[0].flow
            case n.Unnest():  # as if lists had one element
                return inputs[0], 0.0, inputs[0].flow
            case n.Quantise(period=period):
                edge = inputs[0]
                step = period / self.unit
                return _Edge(edge.rate, edge.size, edge.values, edge.negative, step), edge.flow * step, edge.flow
            case n.Session(gap=gap):
                edge, waits = inputs[0], 2 * gap / self.unit
                return _Edge(edge.rate, edge.rate / self.unit, edge.values), edge.rate * waits, 3 * edge.flow
            case n.WindowBounds(period=period, bounds=bounds):
                edge, step = inputs[0], period / self.unit
                values = {**edge.values, **dict.fromkeys((name for name, _ in bounds), 1.0)}
                return _Edge(edge.size / step, edge.size, values, 0.0, step), edge.size, edge.flow + edge.size / step
            case n.Union():
                return _merged(inputs), 0.0, sum(e.flow for e in inputs)
            case n.Join():
                return self._join(node, inputs)
            case n.StarJoin(shedding=shedding):
                exact = n.Join(node.parts, node.equalities, node.residual)
                edge, state, cost = self._join(exact, inputs)
                held = shedding.keep[0] if shedding.shared else sum(shedding.keep)
                share = min(1.0, held / max(1.0, sum(i.size for i in inputs if i.rate)))
                return edge.scaled(share), min(state, held + sum(i.size for i in inputs if not i.rate)), cost
            case n.AsofJoin():
                left, right = inputs
                edge = replace(left, values={**right.values, **left.values})
                return edge, right.size, 2 * (left.flow + right.flow)
            case n.Semi() | n.LeftJoin():
                return self._match(node, inputs[0], inputs[1])
            case n.Distinct():
                return self._distinct(node, inputs[0])
            case n.Aggregate():
                return self._aggregate(node, inputs[0])
            case n.Analytic(partition=partition):
                edge = inputs[0]
                touched = edge.size / max(1.0, math.prod(edge.distinct(c) for c in partition))  # rows of a partition
                return replace(edge, negative=edge.flow), 2 * edge.size, edge.flow * (3 + 2 * touched)
            case n.Holistic(keys=keys):
                edge = inputs[0]
                groups = min(edge.size, math.prod(edge.distinct(c) for c in keys))
                changes = edge.flow
                kept = _Edge(changes, groups, edge.values, changes, edge.period)
                return kept, edge.size + groups, edge.flow * (3 + 2 * edge.size / max(groups, 1.0))
            case n.TopN(partition=partition, limit=limit, offset=offset):
                edge = inputs[0]
                groups = math.prod(edge.distinct(c) for c in partition)
                size = min(edge.size, groups * limit)
                share = size / max(edge.size, 1.0)
                waits = min(edge.size, groups * (limit + offset) * 8)
                changes = edge.flow * min(1.0, 2 * share)
                return _Edge(changes, size, edge.values, changes, edge.period), waits, 3 * edge.flow + 2 * changes
            case n.Difference() | n.Intersection():
                return self._bag(node, inputs)
            case n.Append() | n.Emit():
                return self._emit(node, inputs[0])
        raise NotImplementedError(f"no cost rule for {type(node).__name__}")

    def _scan(self, node: n.Scan) -> _Edge:
        known = self.statistics
        rate = known.rates.get(node.stream.lower(), known.rate)
        return _Edge(rate, rate * known.horizon, self._values(node.stream, node.columns))

    def _table(self, node: n.TableScan) -> _Edge:
        rows = self.statistics.rows.get(node.table.lower(), self.statistics.table_rows)
        return _Edge(0.0, rows, self._values(node.table, node.columns))

    def _values(self, source: str, columns: Sequence[tuple[str, str, object]]) -> dict[str, float]:
        known = self.statistics
        return {name: known.distinct.get(f"{source}.{c}".lower(), known.values) for name, c, _ in columns}

    def _window(self, node: n.Window, edge: _Edge) -> tuple[_Edge, float, float]:
        spec = node.spec
        size, negative = edge.size, 0.0
        if spec.kind is n.WindowKind.ROWS:
            groups = math.prod(edge.distinct(c) for c in spec.partition)
            size, negative = min(edge.size, (spec.size or 1) * groups), edge.rate
        elif spec.kind is not n.WindowKind.UNBOUNDED:
            length = 1 if spec.kind is n.WindowKind.NOW else spec.size or 1
            size = min(edge.size, edge.rate * length / self.unit)
            negative = edge.rate if self.strategy.announces else 0.0
        stored = size if negative else 0.0
        return _Edge(edge.rate, size, edge.values, negative), stored, edge.flow + 2 * negative

    def _join(self, node: n.Join, inputs: Sequence[_Edge]) -> tuple[_Edge, float, float]:
        share = _equality_share(node.equalities, inputs)
        for predicate in node.residual:
            share *= self.statistics.selectivity if predicate.columns else 1.0
        size = math.prod(max(e.size, 1.0) for e in inputs) * share
        values = _joined_values(node.equalities, inputs)
        fanout = [size / max(e.size, 1.0) for e in inputs]  # results per row of each input
        rate = sum(e.rate * f for e, f in zip(inputs, fanout, strict=True))
        negative = sum(e.negative * f for e, f in zip(inputs, fanout, strict=True))
        edge = _Edge(rate, size, values, negative, max(e.period for e in inputs))
        lives = [self.known[p] for p in node.parts]
        probes = sum(e.flow for e in inputs) * (len(inputs) - 1) + rate + negative
        kept = [(e, life) for e, life in zip(inputs, lives, strict=True) if not life.static]
        return edge, sum(e.size for e, _ in kept), probes + sum(self._keep(e, life) for e, life in kept)

    def _match(self, node: n.Semi | n.LeftJoin, left: _Edge, right: _Edge) -> tuple[_Edge, float, float]:
        keys = [(left.domain(e.left), right.domain(e.right)) for e in node.equalities]
        spread = math.prod(max(v, w) for v, w in keys)  # values over which right rows are spread
        alone = math.exp(-right.size / spread)  # chance that no right row has a key
        absent = min(0.95, max(0.05, alone))  # that a left row finds no match, though keys are not uniform
        churn = right.rate * alone * left.size / spread  # left rows whose fate a right arrival changes
        static = self.known[node.right].static
        if isinstance(node, n.LeftJoin):
            pairs = left.size * right.size / spread
            edge = _Edge(
                left.rate * (1 + pairs / max(left.size, 1)) + churn, left.size + pairs, {**right.values, **left.values}
            )
        else:
            share = absent if node.anti else 1 - absent
            edge = _Edge(left.rate * share + churn, left.size * share, left.values)
        churn = 0.0 if static else churn
        leaving = edge.rate if self.strategy.announces else churn + left.negative * edge.size / max(left.size, 1)
        edge = _Edge(edge.rate, edge.size, edge.values, leaving, max(left.period, right.period))
        cost = left.flow + right.flow + edge.flow + self._keep(right, self.known[node.right], eager=True)
        if not static:
            cost += self._keep(left, self.known[node.left], eager=True)
        return edge, right.size + (0.0 if static else left.size), cost

    def _distinct(self, node: n.Distinct, edge: _Edge) -> tuple[_Edge, float, float]:
        size = min(edge.size, math.prod(edge.distinct(c) for c in node.schema))
        share = size / max(edge.size, 1.0)
        life = self.known[node.input]
        out = _Edge(edge.rate * share, size, edge.values, edge.negative * share, edge.period)
        if life.pattern in (Pattern.MONOTONIC, Pattern.STRICT):
            return out, size, edge.flow + out.flow
        if self.strategy.scans:
            return (
                out,
                edge.size + size,
                edge.flow + self._keep(edge, life, eager=True) + self._keep(out, life, eager=True),
            )
        return out, 2 * size, edge.flow + 2 * self._keep(out, Lifetimes(Pattern.WEAK))

    def _aggregate(self, node: n.Aggregate, edge: _Edge) -> tuple[_Edge, float, float]:
        groups = min(max(edge.size, 1.0), math.prod(edge.distinct(k) for k in node.keys))
        life = self.known[node.input]
        ends = edge.rate if life.pattern in (Pattern.WEAKEST, Pattern.WEAK) else edge.negative
        changes = edge.rate + ends
        if edge.period:  # a group changes at most once per evaluation
            changes = min(changes, groups / edge.period)
        values = {k: v for k, v in edge.values.items() if k in node.keys}
        out = _Edge(changes, groups, values, changes, edge.period)
        pending = edge.size if life.pattern in (Pattern.WEAKEST, Pattern.WEAK) else 0.0
        if node.summarised and node.grid is not None and life.length:
            pending = min(pending, groups * node.summarised * life.length / node.grid[0])
        kept = self._keep(edge, life, eager=True) if pending else 0.0
        return out, groups + pending, (edge.rate + ends) * max(1, len(node.calls)) + kept + out.flow

    def _bag(self, node: n.Difference | n.Intersection, inputs: Sequence[_Edge]) -> tuple[_Edge, float, float]:
        left, right = inputs
        changes = left.flow + right.flow
        rate = (left.rate + right.rate) / 2
        edge = _Edge(rate, left.size / 2, left.values, rate, max(left.period, right.period))
        kept = sum(self._keep(e, self.known[i], eager=True) for e, i in zip(inputs, node.inputs, strict=True))
        return edge, left.size + right.size, changes + kept + edge.flow

    def _emit(self, node: n.Append | n.Emit, edge: _Edge) -> tuple[_Edge, float, float]:
        life = self.known[node.input]
        kept = self._keep(edge, life)
        state = 0.0 if life.pattern is Pattern.MONOTONIC else edge.size
        if isinstance(node, n.Emit) and node.op is n.StreamOp.RELATION:
            return edge, state, edge.flow + kept
        rate, every = edge.rate, edge.period
        if isinstance(node, n.Emit) and node.op in (n.StreamOp.RSTREAM, n.StreamOp.RSTREAM_RESTORE):
            rate = edge.size / every if every else edge.size * edge.flow
            state = edge.size
        out = _Edge(rate, rate * self.statistics.horizon, edge.values)
        return out, state, edge.flow + kept + rate

    def _keep(self, edge: _Edge, life: Lifetimes, *, eager: bool = False) -> float:
        """Rows touched per unit to keep an edge's rows: into state, and out of it again."""
        if life.static or life.pattern is Pattern.MONOTONIC:
            return edge.rate
        if self.strategy.announces:
            return edge.rate + edge.negative
        if self.strategy.scans:  # every expiration scans the list
            return edge.flow + (edge.flow * edge.size if eager else SCANS_PER_WINDOW * edge.flow)
        return {Pattern.WEAKEST: 2.0, Pattern.WEAK: 3.0}.get(life.pattern, 2.0) * edge.rate + edge.negative


def selectivity(predicate: Expr, values: Mapping[str, float], statistics: Statistics) -> float:
    """The share of rows that satisfy a predicate: 1 in v for `column = something`, else the assumed one."""
    text = "".join("" if isinstance(p, Ref) else p for p in predicate.parts)
    if text.strip(" (").startswith("= ") and len(predicate.columns) == 1:
        (name,) = predicate.columns
        return 1 / max(1.0, values.get(name, statistics.values))
    return statistics.selectivity if predicate.columns else 1.0


def _projected(edge: _Edge, outputs: Sequence[tuple[str, Expr]]) -> _Edge:
    values = {}
    for name, e in outputs:
        values[name] = math.prod(edge.values.get(c, edge.size) for c in e.columns)
    return _Edge(edge.rate, edge.size, values, edge.negative, edge.period)


def _merged(inputs: Sequence[_Edge]) -> _Edge:
    values = {name: max(e.values.get(name, e.size) for e in inputs) for name in inputs[0].values}
    return _Edge(
        sum(e.rate for e in inputs),
        sum(e.size for e in inputs),
        values,
        sum(e.negative for e in inputs),
        max(e.period for e in inputs),
    )


def _owner(inputs: Sequence[_Edge], column: str) -> _Edge:
    return next((e for e in inputs if column in e.values), inputs[0])


def _equality_share(equalities: Sequence[n.Equality], inputs: Sequence[_Edge]) -> float:
    share = 1.0
    for e in equalities:
        share /= max(_owner(inputs, e.left).domain(e.left), _owner(inputs, e.right).domain(e.right))
    return share


def _joined_values(equalities: Sequence[n.Equality], inputs: Sequence[_Edge]) -> dict[str, float]:
    values = {name: v for e in inputs for name, v in e.values.items()}
    for e in equalities:
        if e.left in values and e.right in values:
            values[e.left] = values[e.right] = min(values[e.left], values[e.right])
    return values
