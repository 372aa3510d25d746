"""From a plan to running operators.

Lowering chooses, for each node, the operator and state structure that fit the update patterns of its inputs and the
strategy (`strategies.py`). The steps so far are in `lowering.py`; joins and aggregates have modules of their own.
"""

from __future__ import annotations

from windrow.operators.analytic import AnalyticOperator
from windrow.operators.bag import BagOperator
from windrow.operators.changes import Appearing, Changes, Entering, Leaving, Starting
from windrow.operators.delta_star import DeltaStar
from windrow.operators.history import HistoryOperator, LifetimesOperator, default_key
from windrow.operators.holistic import HolisticOperator
from windrow.operators.linear import (
    Bounds,
    CallOperator,
    ProjectOperator,
    SelectOperator,
    UnionOperator,
    UnnestOperator,
)
from windrow.operators.materialize import Materialize
from windrow.operators.over_nothing import OverNothingOperator
from windrow.operators.quantise import QuantiseOperator
from windrow.operators.route import AdmitOperator, RouteOperator, StampOperator
from windrow.operators.sample import Instants, Moments, RepeatPeriods, Restore, Sample, Snapshots
from windrow.operators.state.pending import Fifo
from windrow.operators.terms import QUERY, QUERY_TYPE
from windrow.operators.top_n import TopNOperator
from windrow.operators.window import CumulatingWindow, RangeWindow, RowsWindow
from windrow.plan import nodes as n
from windrow.plan.analytic_text import over_instant
from windrow.plan.expr import column
from windrow.plan.internal import numbered, only_selects
from windrow.plan.lower_aggregates import aggregate, session_window, wanted_answers
from windrow.plan.lower_joins import asof_join, counted, join, left_join, semi, star_join
from windrow.plan.lowering import Functions, PlanLowering, Tuning, formula
from windrow.plan.patterns import annotate
from windrow.plan.steps import Dataflow
from windrow.plan.strategies import Strategy
from windrow.plan.timestamped import dates


def lower(
    plan: n.QueryPlan,
    functions: Functions,
    strategy: str = "upa",
    materialized: bool = False,
    tuning: Tuning | None = None,
) -> Dataflow:
    """Build the dataflow of a query; `materialized`: a relation's present rows are kept, for snapshots."""
    builder = _Nodes(plan, functions, plan.run_by(strategy), tuning or Tuning())
    last = builder.lower(plan.root)
    if materialized and plan.has_op:
        schema = builder.flow.steps[last].schema
        last = builder.flow.add(Materialize(list(schema)), [last], plan.root, schema)
    if plan.parting is not None:
        builder.part(last, plan.parting, plan.root)
    return builder.flow


def lower_part(plan: n.QueryPlan, node: n.Node, functions: Functions) -> Dataflow:
    """The dataflow of a node of a plan: its elements, lifetimes and all."""
    builder = _Nodes(plan, functions, Strategy.UPA, Tuning())
    builder.lower(node)
    return builder.flow


def lower_archived(plan: n.QueryPlan, functions: Functions, tuning: Tuning) -> Dataflow:
    """The dataflow behind an archive: its rows with their lifetimes, when time has reached them."""
    builder = _Nodes(plan, functions, Strategy.UPA, tuning)
    builder.append(builder.lower(plan.root.input), LifetimesOperator(), plan.root)
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


class _Nodes(PlanLowering):
    """Every kind of node, and what it becomes."""

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
                if not self.periodic:
                    return self.lower(node.input)
                return self.unary(QuantiseOperator(node.period, node.offset, node.before), node)
            case n.WindowBounds():
                return self._window_bounds(node)
            case n.Session():
                return self.announced(self.unary(session_window(node), node), node, Fifo)
            case n.Filter():
                return self._filter(node)
            case n.Admit():
                return self.unary(AdmitOperator(node.router), node)
            case n.Route():
                step = self.unary(RouteOperator(node.router, node.keep, own=node.own), node)
                wanted_answers(self, node)
                return step
            case n.Stamp():
                return self.unary(StampOperator(node.column, node.value), node)
            case n.Project():
                return self.unary(ProjectOperator([(name, formula(e)) for name, e in node.outputs]), node)
            case n.Call():
                call = CallOperator(
                    node.output, node.function, self.functions[node.function], node.arguments, node.type
                )
                return self.unary(call, node)
            case n.Unnest():
                return self.unary(UnnestOperator(node.lists), node)
            case n.Join():
                return join(self, node)
            case n.StarJoin():
                return star_join(self, node)
            case n.Semi():
                return semi(self, node, node.anti)
            case n.LeftJoin():
                return left_join(self, node)
            case n.AsofJoin():
                return asof_join(self, node)
            case n.TopN():
                return self._top_n(node)
            case n.Analytic():
                calls = [(c.output, over_instant(c)) for c in node.calls]
                return self.unary(AnalyticOperator(node.input.schema, node.partition, calls), node)
            case n.Holistic():
                texts = [(c.output, formula(c.call)) for c in node.calls]
                return self.unary(HolisticOperator(node.input.schema, node.keys, texts), node)
            case n.Distinct():
                made = counted if id(node) in self.unbroken else PlanLowering.distinct
                return made(self, self.lower(node.input), node)
            case n.Union():
                return self.flow.add(UnionOperator(), [self.lower(p) for p in node.parts], node, node.schema)
            case n.Difference() | n.Intersection():
                rule = "difference" if isinstance(node, n.Difference) else "intersection"
                sides = [self.lower(node.left), self.lower(node.right)]
                return self.flow.add(BagOperator(rule, node.schema, self.pending()), sides, node, node.schema)
            case n.Aggregate():
                return aggregate(self, node)
            case n.OverNothing(input=below):
                assert isinstance(below, n.Aggregate)
                return self.unary(OverNothingOperator(below.calls, node.schema, node.clocks), node)
            case n.Append():
                return self._appended(node)
            case n.Emit():
                return self._emit(node)
        raise NotImplementedError(type(node).__name__)

    def part(self, log: int, parting: n.Parting, root: n.Node) -> None:
        """Tell the answers of several queries apart."""
        types = self.flow.steps[log].schema
        schema = {**{c: types[c] for c in parting.keep}, QUERY: QUERY_TYPE}
        step = self.flow.add(
            RouteOperator(parting.router, parting.keep, log=True, own=parting.own), [log], root, schema
        )
        match parting.op:
            case n.StreamOp.ISTREAM:
                self.append(step, Entering(), root)
            case n.StreamOp.DSTREAM:
                self.append(step, Leaving(), root)
            case n.StreamOp.RSTREAM:
                self.append(step, self._snapshots(step), root)

    def _snapshots(self, log: int) -> Snapshots:
        """The whole answer at every change, of each query if a column says whose rows are."""
        return Snapshots(self.limit, tuple(c for c in self.flow.steps[log].schema if c == QUERY))

    # state by pattern

    # operators

    def _window(self, node: n.Window) -> int:
        spec = node.spec
        match spec.kind:
            case n.WindowKind.UNBOUNDED:
                return self.lower(node.input)
            case n.WindowKind.ROWS:
                assert spec.size is not None
                window = RowsWindow(
                    spec.size, spec.slide or 1, spec.partition, node.derived, node.number, node.together
                )
                return self.unary(window, node)
        size = 1 if spec.kind is n.WindowKind.NOW else spec.size
        assert size is not None
        cumulates = spec.kind is n.WindowKind.CUMULATE
        step = self.unary(CumulatingWindow(size, spec.shift) if cumulates else RangeWindow(size), node)
        return self.announced(step, node, Fifo)

    def _window_bounds(self, node: n.WindowBounds) -> int:
        step = self.lower(node.input)
        if node in self.grid_chain:
            step = self.append(step, RepeatPeriods(node.period, self.limit), node.input)
        else:
            step = self.append(step, Instants(node.period, node.offset, self.limit), node.input)
        return self.flow.add(Bounds(node.bounds, node.type), [step], node, node.schema)

    def _top_n(self, node: n.TopN) -> int:
        below = self.lower(node.input)
        strict = self.signed(below)
        operator = TopNOperator(
            node.input.schema,
            node.partition,
            node.order,
            node.ties,
            node.limit,
            node.offset,
            node.kind,
            node.output,
            strict=strict,
        )
        return self.flow.add(operator, [below], node, node.schema)

    def _filter(self, node: n.Filter) -> int:
        predicates, below = [formula(node.predicate, types=node.schema)], node.input
        while isinstance(below, n.Filter):
            predicates.insert(0, formula(below.predicate, types=node.schema))
            below = below.input
        return self.flow.add(SelectOperator(predicates), [self.lower(below)], node, node.schema)

    def _emit(self, node: n.Emit) -> int:
        if node.op is n.StreamOp.RSTREAM and node.period is not None:
            if self.grid is not None and self.grid[2] is node:
                return self.unary(RepeatPeriods(node.period, self.limit), node)
            return self.unary(Sample(node.period, node.offset, self.limit, _of_queries(node)), node)
        if node.each:
            below = self.lower(node.input)
            return self.append(below, Moments(self.limit) if self.signed(below) else Starting(), node)
        if node.op is n.StreamOp.ISTREAM:
            return self._entering(node)
        log = self._log(node, -1 if node.op is n.StreamOp.DSTREAM else 0)
        match node.op:
            case n.StreamOp.RELATION:
                return log
            case n.StreamOp.DSTREAM:
                return self.append(log, Leaving(), node)
            case n.StreamOp.RSTREAM:
                return self.append(log, self._snapshots(log), node)
        assert node.period is not None
        return self.append(log, Restore(node.period, node.op is n.StreamOp.RSTREAM_RESTORE, self.limit), node)

    def _appended(self, node: n.Append) -> int:
        """Every result once, when it comes into being; over anything but selections and joins, what enters."""
        if not only_selects(node.input):
            return self._entering(node)
        below = numbered(node.input)
        with self.unannounced():  # ends stay lifetimes
            self.pattern = {**self.pattern, **annotate(below, self.strategy)}
            step = self.lower(below)
        if not self.signed(step):
            return self.flow.add(Starting(), [step], node, node.schema)
        born = self.flow.add(Appearing(), [step], node, below.schema)
        kept = [(name, formula(column(name, type_))) for name, type_ in node.schema.items()]
        return self.flow.add(ProjectOperator(kept), [born], node, node.schema)

    def _entering(self, node: n.Append | n.Emit) -> int:
        if isinstance(node.input, n.Append):  # what is kept for ever enters once
            return self.lower(node.input)
        if self._timestamped(node.input):
            return self.unary(Starting(), node)
        return self.append(self._log(node, 1), Entering(), node)

    def _log(self, node: n.Append | n.Emit, only: int = 0) -> int:
        """The input's consolidated change log, or what of it has one sign; delta-star spells its own."""
        below = node.input
        if isinstance(below, n.Distinct) and self.strategy.by_pattern and not self.signed(self.lower(below.input)):
            return self.flow.add(DeltaStar(below.schema, log=True), [self.lower(below.input)], below, below.schema)
        timestamped = self._timestamped(below)
        return self.unary(Changes(self.pending(below), timestamped, only, _between_evaluations(node)), node)

    def _timestamped(self, node: n.Node) -> bool:
        return dates(node) is not None and not self.signed(self.lower(node))


def _of_queries(node: n.Node) -> tuple[str, ...]:
    """The column that says whose rows are, if there is one."""
    return tuple(c for c in node.schema if c == QUERY)


def _between_evaluations(node: n.Append | n.Emit) -> QuantiseOperator | None:
    """What moves to the next evaluation the changes of tables below that reach back: they come at any instant."""
    if not isinstance(node, n.Emit) or node.period is None or node.op not in (n.StreamOp.ISTREAM, n.StreamOp.DSTREAM):
        return None
    reaching = any(isinstance(below, n.TableScan) and below.retroactive for below in n.walk(node))
    return QuantiseOperator(node.period, node.offset) if reaching else None


__all__ = ["Tuning", "lower"]
