"""From a plan to running operators.

Lowering chooses, for each node, the operator and state structure that fit the update patterns of its inputs and the
strategy:

    upa        lifetimes travel with elements; state by pattern (FIFO, calendar, keyed)
    negative   windows spell every end as a negative element; all state is keyed
    direct     lifetimes travel with elements; state is searched whole to expire

EXISTS, NOT EXISTS and LEFT JOIN need no operators of their own. With signed lifetimes, a semi-join is a join with the
distinct keys of the right side, an anti-join is the left side minus that, and a left join is the inner join plus the
anti-join padded with nulls. When the correlation is more than equalities, the distinct correlated values of the left
side are first joined to the right, and the left side meets those that found a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregate_join import AggregateDeltas, AggregateJoin, PlanPlanner
from windrow.operators.aggregates import Aggregation
from windrow.operators.analytic import AnalyticOperator
from windrow.operators.bag import BagOperator
from windrow.operators.changes import Appearing, Changes, Entering, Leaving, Retract, Starting
from windrow.operators.delta_star import DeltaStar
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.history import HistoryOperator, LifetimesOperator, default_key
from windrow.operators.holistic import HolisticOperator
from windrow.operators.join import JoinOperator, Planner
from windrow.operators.join_steps import Part
from windrow.operators.linear import (
    Bounds,
    CallOperator,
    Formula,
    Pad,
    ProjectOperator,
    SelectOperator,
    UnionOperator,
    UnnestOperator,
)
from windrow.operators.materialize import Materialize
from windrow.operators.protocol import Operator
from windrow.operators.quantise import QuantiseOperator
from windrow.operators.route import AdmitOperator, RouteOperator
from windrow.operators.sample import Instants, Moments, Restore, Sample, Snapshots
from windrow.operators.session import SESSION, SessionAggregate, SessionWindow
from windrow.operators.star_join import FactTable, Policy, StarJoinOperator, StarStream
from windrow.operators.state.pending import Calendar, Fifo, Pending, ScannedList
from windrow.operators.terms import QUERY, QUERY_TYPE
from windrow.operators.top_n import TopNOperator
from windrow.operators.totals import Totals
from windrow.operators.window import RangeWindow, RowsWindow
from windrow.plan import nodes as n
from windrow.plan.aggregation_joins import AggregationJoin, aggregation_join
from windrow.plan.analytic_text import over_instant
from windrow.plan.bands import bands
from windrow.plan.expr import Expr, column
from windrow.plan.internal import numbered, only_selects
from windrow.plan.patterns import Pattern, annotate
from windrow.plan.steps import Dataflow, grid_of
from windrow.plan.timestamped import dates
from windrow.scalar_engine import quote

STRATEGIES = ("upa", "negative", "direct")

Functions = Mapping[str, Callable[..., object]]


CHAIN = n.Filter | n.Project | n.Call | n.WindowBounds
"""Nodes that look at each row of an evaluation by itself."""


@dataclass(frozen=True)
class Tuning:
    """How joins choose while they run; by default they keep the order they are written in, and aggregate late.

    `aggregation`: "late", "auto" (`plans` chooses), or the bits of a plan, one per input.
    `apart`: an aggregation join is two steps, so that its changes and its groups may lie in different places.
    """

    orders: Planner | None = None
    aggregation: str = "late"
    plans: PlanPlanner | None = None
    apart: bool = False


def lower(
    plan: n.QueryPlan,
    functions: Functions,
    strategy: str = "upa",
    materialized: bool = False,
    tuning: Tuning | None = None,
) -> Dataflow:
    """Build the dataflow of a query; `materialized`: a relation's present rows are kept, for snapshots."""
    builder = _Lowering(plan, functions, strategy, tuning or Tuning())
    last = builder.lower(plan.root)
    if materialized and plan.has_op:
        schema = builder.flow.steps[last].schema
        last = builder.flow.add(Materialize(list(schema)), [last], plan.root, schema)
    if plan.parting is not None:
        builder.part(last, plan.parting, plan.root)
    return builder.flow


def lower_part(plan: n.QueryPlan, node: n.Node, functions: Functions) -> Dataflow:
    """The dataflow of a node of a plan: its elements, lifetimes and all."""
    builder = _Lowering(plan, functions, "upa", Tuning())
    builder.lower(node)
    return builder.flow


def lower_archived(plan: n.QueryPlan, functions: Functions, tuning: Tuning) -> Dataflow:
    """The dataflow behind an archive: its rows with their lifetimes, when time has reached them."""
    builder = _Lowering(plan, functions, "upa", tuning)
    builder._append(builder.lower(plan.root.input), LifetimesOperator(), plan.root)
    return builder.flow


def lower_kept(plan: n.QueryPlan, retain: int) -> Dataflow:
    """The dataflow that keeps a stream's rows for `retain` ticks; the plan is a bare scan."""
    flow = Dataflow()
    (scan,) = [node for node in n.walk(plan.root) if isinstance(node, n.Scan)]
    source = flow.add(None, (), scan, scan.schema)
    window = flow.add(RangeWindow(retain), [source], scan, scan.schema)
    time = next(name for name, column, _ in scan.columns if column == scan.time)
    flow.add(HistoryOperator(default_key(scan.schema.items(), time), time), [window], scan, scan.schema)
    return flow


class _Lowering:
    def __init__(self, plan: n.QueryPlan, functions: Functions, strategy: str, tuning: Tuning) -> None:
        self.flow = Dataflow()
        self.tuning = tuning
        self.functions = functions
        self.strategy = strategy
        self.pattern = annotate(plan.root, strategy)
        self.grid = _grid_aggregate(plan.root)
        self.grid_chain = _chain(plan.root) if self.grid is not None else frozenset()
        self._made: dict[int, int] = {}

    def lower(self, node: n.Node) -> int:
        """The step that computes `node`."""
        if id(node) not in self._made:
            self._made[id(node)] = self._lower(node)
        return self._made[id(node)]

    def _lower(self, node: n.Node) -> int:
        match node:
            case n.Scan() | n.TableScan():
                return self.flow.add(None, (), node, node.schema)
            case n.Window():
                return self._window(node)
            case n.Quantise():
                return self._unary(QuantiseOperator(node.period, node.offset, node.before), node)
            case n.WindowBounds():
                return self._window_bounds(node)
            case n.Session():
                step = self._unary(_session(node), node)
                return self._append(step, Retract(Fifo), node) if self.strategy == "negative" else step
            case n.Filter():
                return self._filter(node)
            case n.Admit():
                return self._unary(AdmitOperator(node.router), node)
            case n.Route():
                return self._unary(RouteOperator(node.router, node.keep), node)
            case n.Project():
                return self._unary(ProjectOperator([(name, formula(e)) for name, e in node.outputs]), node)
            case n.Call():
                call = CallOperator(
                    node.output, node.function, self.functions[node.function], node.arguments, node.type
                )
                return self._unary(call, node)
            case n.Unnest():
                return self._unary(UnnestOperator(node.lists), node)
            case n.Join():
                return self._join(node)
            case n.StarJoin():
                return self._star_join(node)
            case n.Semi():
                return self._semi(node, node.anti)
            case n.LeftJoin():
                return self._left_join(node)
            case n.TopN():
                return self._top_n(node)
            case n.Analytic():
                calls = [(c.output, over_instant(c)) for c in node.calls]
                return self._unary(AnalyticOperator(node.input.schema, node.partition, calls), node)
            case n.Holistic():
                texts = [(c.output, formula(c.call)) for c in node.calls]
                return self._unary(HolisticOperator(node.input.schema, node.keys, texts), node)
            case n.Distinct():
                return self._distinct(self.lower(node.input), node)
            case n.Union():
                return self.flow.add(UnionOperator(), [self.lower(p) for p in node.parts], node, node.schema)
            case n.Difference() | n.Intersection():
                rule = "difference" if isinstance(node, n.Difference) else "intersection"
                sides = [self.lower(node.left), self.lower(node.right)]
                return self.flow.add(BagOperator(rule, node.schema, self._pending()), sides, node, node.schema)
            case n.Aggregate():
                return self._aggregate(node)
            case n.Append():
                return self._appended(node)
            case n.Emit():
                return self._emit(node)
        raise NotImplementedError(type(node).__name__)

    def part(self, log: int, parting: n.Parting, root: n.Node) -> None:
        """Tell the answers of several queries apart."""
        types = self.flow.steps[log].schema
        schema = {**{c: types[c] for c in parting.keep}, QUERY: QUERY_TYPE}
        step = self.flow.add(RouteOperator(parting.router, parting.keep, log=True), [log], root, schema)
        match parting.op:
            case n.StreamOp.ISTREAM:
                self._append(step, Entering(), root)
            case n.StreamOp.DSTREAM:
                self._append(step, Leaving(), root)

    def _unary(self, operator: Operator, node: n.Unary) -> int:
        return self.flow.add(operator, [self.lower(node.input)], node, node.schema)

    def _append(self, step: int, operator: Operator, node: n.Node) -> int:
        return self.flow.add(operator, [step], node, self.flow.steps[step].schema)

    # state by pattern

    def _signed(self, step: int) -> bool:
        return self.flow.steps[step].signed

    def _pending(self, node: n.Node | None = None) -> Callable[[], Pending]:
        if self.strategy == "direct":
            return ScannedList
        return Fifo if node is not None and self.pattern[node] is Pattern.WEAKEST else Calendar

    # operators

    def _window(self, node: n.Window) -> int:
        spec = node.spec
        match spec.kind:
            case n.WindowKind.UNBOUNDED:
                return self.lower(node.input)
            case n.WindowKind.ROWS:
                assert spec.size is not None
                return self._unary(
                    RowsWindow(spec.size, spec.slide or 1, spec.partition, node.derived, node.number), node
                )
        size = 1 if spec.kind is n.WindowKind.NOW else spec.size
        assert size is not None
        step = self._unary(RangeWindow(size), node)
        return self._append(step, Retract(Fifo), node) if self.strategy == "negative" else step

    def _window_bounds(self, node: n.WindowBounds) -> int:
        step = self.lower(node.input)
        if node not in self.grid_chain:  # an aggregate on the grid has one element per evaluation already
            step = self._append(step, Instants(node.period, node.offset), node.input)
        return self.flow.add(Bounds(node.bounds, node.type), [step], node, node.schema)

    def _top_n(self, node: n.TopN) -> int:
        below = self.lower(node.input)
        strict = self._signed(below)
        operator = TopNOperator(
            node.input.schema,
            node.partition,
            node.order,
            node.ties,
            node.limit,
            node.offset,
            node.kind,
            node.output,
            endless=not strict and self.pattern[node.input] is Pattern.MONOTONIC,
            strict=strict,
        )
        return self.flow.add(operator, [below], node, node.schema)

    def _filter(self, node: n.Filter) -> int:
        predicates, below = [formula(node.predicate)], node.input
        while isinstance(below, n.Filter):
            predicates.insert(0, formula(below.predicate))
            below = below.input
        return self.flow.add(SelectOperator(predicates), [self.lower(below)], node, node.schema)

    def _join(self, node: n.Join) -> int:
        equalities = [(e.left, e.right, e.null_safe) for e in node.equalities]
        if self.strategy == "negative" and any(node.internal):
            # an internal window's ends must not undo results, so they stay lifetimes up to the join
            self.strategy = "upa"
            parts = [self.lower(p) for p in node.parts]
            joined = self._join_steps(parts, equalities, node.residual, node, node.internal)
            self.strategy = "negative"
            return self._append(joined, Retract(Calendar), node)
        return self._join_steps([self.lower(p) for p in node.parts], equalities, node.residual, node, node.internal)

    def _join_steps(
        self,
        steps: Sequence[int],
        equalities: Sequence[tuple[str, str, bool]],
        residual: Sequence[Expr],
        node: n.Node,
        internal: Sequence[bool] = (),
        rename: Mapping[str, str] | None = None,
    ) -> int:
        flags = internal or (False,) * len(steps)
        read = [self.flow.steps[s] for s in steps]
        parts = [Part(dict(r.schema), r.signed, i, r.static) for r, i in zip(read, flags, strict=True)]
        types = {c: t for p in parts for c, t in p.columns.items()}
        join = JoinOperator(
            parts,
            equalities,
            [formula(e, rename) for e in residual],
            eager=self.strategy == "direct",
            bands=bands(residual, types, rename),
            planner=self.tuning.orders,
        )
        return self.flow.add(join, steps, node, types)

    def _counted(self, step: int, node: n.Node) -> int:
        """Distinct keys by counting: one element while a key is there, where delta-star would hand over from copy to
        copy and make every live row on the left meet each of them."""
        schema = self.flow.steps[step].schema
        return self.flow.add(BagOperator("distinct", schema, self._pending()), [step], node, schema)

    def _star_join(self, node: n.StarJoin) -> int:
        # rows wait in memory for their end, so windows must not spell it as a negative element
        strategy, self.strategy = self.strategy, "upa"
        steps = [self.lower(p) for p in node.parts]
        self.strategy = strategy
        count = len(node.keys)
        names = [next((s.stream for s in n.walk(p) if isinstance(s, n.Scan)), "") for p in node.parts[:count]]
        schemas = [dict(self.flow.steps[s].schema) for s in steps]
        streams = [StarStream(*part) for part in zip(names, schemas, node.keys, node.importance, strict=False)]
        facts = None
        if node.facts:
            table = next(t.table for t in n.walk(node.parts[-1]) if isinstance(t, n.TableScan))
            facts = FactTable(table, schemas[-1], node.facts, node.valid)
        shedding = node.shedding
        policy = Policy(
            shedding.heuristic, shedding.keep, shedding.shared, shedding.alpha, shedding.beta, shedding.seed
        )
        join = StarJoinOperator(streams, facts, policy, [formula(e) for e in node.residual])
        joined = self.flow.add(join, steps, node, node.schema)
        return self._append(joined, Retract(Calendar), node) if strategy == "negative" else joined

    def _distinct(self, step: int, node: n.Node) -> int:
        schema = self.flow.steps[step].schema
        if self._signed(step) or self.strategy != "upa":
            return self.flow.add(BagOperator("distinct", schema, self._pending()), [step], node, schema)
        return self.flow.add(DeltaStar(schema), [step], node, schema)

    def _project(self, step: int, columns: Mapping[str, str], node: n.Node) -> int:
        """Keep and rename columns: output name -> input column."""
        schema = self.flow.steps[step].schema
        outputs = [(out, Formula("", schema[c], (c,), c)) for out, c in columns.items()]
        return self.flow.add(ProjectOperator(outputs), [step], node, {o: schema[c] for o, c in columns.items()})

    def _semi(self, node: n.Semi | n.LeftJoin, anti: bool) -> int:
        left = self.lower(node.left)
        keys, equalities = self._matched(node)
        both = self._join_steps([left, keys], equalities, (), node)
        kept = self._project(both, {c: c for c in node.left.schema}, node)
        if not anti:
            return kept
        return self.flow.add(UnionOperator((False, True)), [left, kept], node, node.left.schema)

    def _matched(self, node: n.Semi | n.LeftJoin) -> tuple[int, list[tuple[str, str, bool]]]:
        """The distinct keys that have a partner on the right, and how the left side meets them."""
        right = self.lower(node.right)
        if node.residual:
            return self._matched_by_value(node, right)
        if not node.equalities:  # no correlation: one row for as long as the right side has any
            one = ProjectOperator([("exists'", Formula("1", pa.int32(), ()))])
            return self._counted(self.flow.add(one, [right], node, {"exists'": pa.int32()}), node), []
        keys = self._project(right, {f"{e.right}'": e.right for e in node.equalities}, node)
        return self._counted(keys, node), [(e.left, f"{e.right}'", e.null_safe) for e in node.equalities]

    def _matched_by_value(self, node: n.Semi | n.LeftJoin, right: int) -> tuple[int, list[tuple[str, str, bool]]]:
        used = {c for e in node.residual for c in e.columns} | {e.left for e in node.equalities}
        rename = {c: f"{c}'" for c in node.left.schema if c in used}
        correlated = self._project(self.lower(node.left), {new: c for c, new in rename.items()}, node)
        if not rename:  # the residual speaks of the right side alone
            one = ProjectOperator([("exists'", Formula("1", pa.int32(), ()))])
            correlated = self.flow.add(one, [self.lower(node.left)], node, {"exists'": pa.int32()})
        values = self._distinct(correlated, node)
        equalities = [(rename[e.left], e.right, e.null_safe) for e in node.equalities]
        pairs = self._join_steps([values, right], equalities, node.residual, node, rename=rename)
        columns = self.flow.steps[values].schema
        found = self._counted(self._project(pairs, {c: c for c in columns}, node), node)
        return found, [(c, new, True) for c, new in rename.items()]

    def _left_join(self, node: n.LeftJoin) -> int:
        inner = self._join(n.Join((node.left, node.right), node.equalities, node.residual))
        unmatched = self._semi(node, anti=True)
        padded = self.flow.add(Pad(node.right.schema), [unmatched], node, node.schema)
        return self.flow.add(UnionOperator(), [inner, padded], node, node.schema)

    def _aggregate(self, node: n.Aggregate) -> int:
        operator: Operator
        calls = [Aggregation(c.kind, c.column, c.output, c.type, c.distinct, c.parameters) for c in node.calls]
        early = self.tuning.aggregation != "late" and self.strategy == "upa" and (grid_of(node) or (0, 0))[1] == 0
        shape = aggregation_join(node) if early else None
        if shape is not None:
            joined = self._aggregate_join(node, calls, shape)
            if joined is not None:
                return joined
        sessions = _session_aggregate(node, calls, self.functions) if self.strategy == "upa" else None
        if sessions is not None:
            operator, source = sessions
            return self.flow.add(operator, [self.lower(source)], node, node.schema)
        strict = self._signed(self.lower(node.input))
        expiration = "scan" if self.strategy == "direct" else "calendar"
        if self.grid is not None and node is self.grid[0]:
            period, offset = self.grid[1], self.grid[2].offset
            operator = GridAggregate(
                node.keys, calls, node.input.schema, period, offset=offset, strict=strict, expiration=expiration
            )
        else:
            operator = ContinuousAggregate(node.keys, calls, node.input.schema, strict=strict, expiration=expiration)
        return self._unary(operator, node)

    def _aggregate_join(self, node: n.Aggregate, calls: Sequence[Aggregation], shape: AggregationJoin) -> int | None:
        """Aggregate from aggregation sets, unless the shape has another number of inputs than the plan asked for."""
        forced = None if self.tuning.aggregation == "auto" else self.tuning.aggregation
        if forced is not None and len(forced) != len(shape.join.parts):
            return None
        steps, parts = [], []
        for part, outputs in zip(shape.join.parts, shape.outputs, strict=True):
            step = self.lower(part)
            if any(e.column != name for name, e in outputs) or len(outputs) != len(part.schema):
                project = ProjectOperator([(name, formula(e)) for name, e in outputs])
                step = self.flow.add(project, [step], part, {name: e.type for name, e in outputs})
            steps.append(step)
            made = self.flow.steps[step]
            parts.append(Part(dict(made.schema), made.signed, static=made.static))
        period = self.grid[1] if self.grid is not None and node is self.grid[0] else None
        kind = AggregateDeltas if self.tuning.apart else AggregateJoin
        operator = kind(
            parts,
            [(e.left, e.right, e.null_safe) for e in shape.join.equalities],
            [formula(e) for e in shape.residual],
            node.keys,
            calls,
            period=period,
            plan=forced,
            planner=self.tuning.plans,
        )
        met = self.flow.add(operator, steps, node, operator.schema if self.tuning.apart else node.schema)
        if not self.tuning.apart:
            return met
        types = {c: t for p in parts for c, t in p.columns.items()}
        return self.flow.add(Totals(node.keys, calls, types, period), [met], node, node.schema)

    def _emit(self, node: n.Emit) -> int:
        if node.op is n.StreamOp.RSTREAM and node.period is not None:
            if self.grid is not None and self.grid[2] is node:
                return self.lower(node.input)
            return self._unary(Sample(node.period, node.offset), node)
        if node.each:
            below = self.lower(node.input)
            return self._append(below, Moments() if self._signed(below) else Starting(), node)
        if node.op is n.StreamOp.ISTREAM:
            return self._entering(node)
        log = self._log(node)
        match node.op:
            case n.StreamOp.RELATION:
                return log
            case n.StreamOp.DSTREAM:
                return self._append(log, Leaving(), node)
            case n.StreamOp.RSTREAM:
                return self._append(log, Snapshots(), node)
        assert node.period is not None
        return self._append(log, Restore(node.period, node.op is n.StreamOp.RSTREAM_RESTORE), node)

    def _appended(self, node: n.Append) -> int:
        """Every result once, when it comes into being; over anything but selections and joins, what enters."""
        if not only_selects(node.input):
            return self._entering(node)
        strategy, self.strategy = self.strategy, "direct" if self.strategy == "direct" else "upa"  # ends stay lifetimes
        below = numbered(node.input)
        self.pattern = {**self.pattern, **annotate(below, self.strategy)}
        step = self.lower(below)
        self.strategy = strategy
        if not self._signed(step):
            return self.flow.add(Starting(), [step], node, node.schema)
        born = self.flow.add(Appearing(), [step], node, below.schema)
        kept = [(name, formula(column(name, type_))) for name, type_ in node.schema.items()]
        return self.flow.add(ProjectOperator(kept), [born], node, node.schema)

    def _entering(self, node: n.Append | n.Emit) -> int:
        if isinstance(node.input, n.Append):  # what is kept for ever enters once
            return self.lower(node.input)
        if self._timestamped(node.input):
            return self._unary(Starting(), node)
        return self._append(self._log(node), Entering(), node)

    def _log(self, node: n.Append | n.Emit) -> int:
        """The input's consolidated change log; delta-star spells its own."""
        below = node.input
        if isinstance(below, n.Distinct) and self.strategy == "upa" and not self._signed(self.lower(below.input)):
            return self.flow.add(DeltaStar(below.schema, log=True), [self.lower(below.input)], below, below.schema)
        return self._unary(Changes(self._pending(below), self._timestamped(below)), node)

    def _timestamped(self, node: n.Node) -> bool:
        return dates(node) is not None and not self._signed(self.lower(node))


def _session(node: n.Session) -> SessionWindow:
    keys = {k: node.input.schema[k] for k in node.keys}
    return SessionWindow(keys, node.gap, node.start, node.end, node.type)


def _session_aggregate(
    node: n.Aggregate, calls: Sequence[Aggregation], functions: Functions
) -> tuple[Operator, n.Node] | None:
    """The aggregate of whole sessions as one operator, and what it reads; None if it groups by anything else."""
    shown = {k: k for k in node.keys}  # what a key is, in terms of what is below
    chain: list[n.Node] = []
    below = node.input
    while isinstance(below, n.Filter | n.Project | n.Call):
        chain.insert(0, below)
        if isinstance(below, n.Project):
            copies = {name: e.column for name, e in below.outputs if e.column is not None}
            shown = {k: copies.get(c, "") for k, c in shown.items()}
        below = below.input
    if not isinstance(below, n.Session) or any(isinstance(x, n.Call) for x in chain):
        return None
    whole = {*below.keys, below.end}
    if not whole <= set(shown.values()) or not set(shown.values()) <= whole | {below.start}:
        return None
    bounds = {below.start, below.end}
    read = [e.columns for x in chain if isinstance(x, n.Project) for _, e in x.outputs if e.column is None]
    read += [x.predicate.columns for x in chain if isinstance(x, n.Filter)]
    early = all(bounds.isdisjoint(columns) for columns in read) and bounds.isdisjoint(c.column for c in node.calls)
    steps = [_row_step(x, bounds if early else set()) for x in chain if not _only_copies(x)]
    return SessionAggregate(_session(below), steps, shown, calls, node.input.schema, early), below.input


def _only_copies(node: n.Node) -> bool:
    return isinstance(node, n.Project) and all(e.column == name for name, e in node.outputs)


def _row_step(node: n.Node, without: Collection[str]) -> Operator:
    """A selection or projection that lets the session's number through, and leaves out some columns."""
    if isinstance(node, n.Filter):
        return SelectOperator([formula(node.predicate)])
    assert isinstance(node, n.Project)
    number = (SESSION, Formula("", pa.int64(), (SESSION,), SESSION))
    return ProjectOperator([*((name, formula(e)) for name, e in node.outputs if e.column not in without), number])


def _grid_aggregate(root: n.Node) -> tuple[n.Aggregate, int, n.Emit] | None:
    """The aggregate whose periodic answers are emitted as they are: nothing but selections and projections on top.

    Its operator then evaluates all instants at once, and RSTREAM has nothing left to do.
    """
    if not (isinstance(root, n.Emit) and root.op is n.StreamOp.RSTREAM and root.period is not None):
        return None
    node = root.input
    while isinstance(node, CHAIN):
        node = node.input
    return (node, root.period, root) if isinstance(node, n.Aggregate) else None


def _chain(root: n.Node) -> frozenset[n.Node]:
    """The nodes between the root and what is no row in, row out."""
    node, found = root.inputs[0], []
    while isinstance(node, CHAIN):
        found.append(node)
        node = node.input
    return frozenset(found)


def formula(e: Expr, rename: Mapping[str, str] | None = None) -> Formula:
    """An expression for the operators; `rename` maps columns to other names."""
    names = rename or {}
    sql = e.sql(lambda c: quote(names.get(c, c)))
    reads = tuple(sorted(names.get(c, c) for c in e.columns))
    copies = names.get(e.column, e.column) if e.column is not None else None
    return Formula(sql, e.type, reads, copies)


__all__ = ["STRATEGIES", "Tuning", "formula", "lower"]
