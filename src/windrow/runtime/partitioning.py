"""Where each operator runs: stages, and how rows are spread over partitions within them.

A stage is a chain of operators that a task runs on one partition without a shuffle. Some operators work on any spread
of rows (selection); some need equal keys in one partition (join, grouping, anything that cancels equal rows); some need
all rows in one place (a count window over a whole stream). Walking the dataflow from its sources, a step stays in its
input's stage when the rows already lie right, and otherwise opens the next stage behind an exchange.

    stage 0   stateless steps, on the source's own partitions
    stage 1+  everything else, on `partitions` partitions, behind an exchange

How the inputs of joins lie says `join_partitioning.py`; a join whose output may lie apart spreads the rows of heavy
keys by more than their key (`heavy_keys.py`).

A table is everywhere: each task computes for itself what comes from tables alone, so it never crosses an exchange;
where its rows are to count once, each partition takes its part. Law: rows that an operator must see together carry
equal values in the columns they are spread by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.analytic import AnalyticOperator
from windrow.operators.asof import AsofOperator
from windrow.operators.bag import BagOperator
from windrow.operators.changes import Appearing, Changes, Entering, Leaving, Retract, Starting
from windrow.operators.delta_star import DeltaStar
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.history import HistoryOperator, LifetimesOperator
from windrow.operators.join import JoinOperator
from windrow.operators.linear import (
    Bounds,
    CallOperator,
    ProjectOperator,
    SelectOperator,
    UnionOperator,
    UnnestOperator,
)
from windrow.operators.materialize import Materialize
from windrow.operators.protocol import Operator, Stateless
from windrow.operators.quantise import QuantiseOperator
from windrow.operators.query_aggregate import QueryAggregate
from windrow.operators.recall_join import RecallJoin
from windrow.operators.route import RouteOperator, RouteSets
from windrow.operators.sample import Moments, Restore, Sample, Snapshots
from windrow.operators.session import SessionAggregate, SessionWindow
from windrow.operators.summary_aggregate import PeriodicSummary
from windrow.operators.top_n import TopNOperator
from windrow.operators.window import RowsWindow
from windrow.plan.nodes import TableScan
from windrow.plan.patterns import monotonic
from windrow.plan.steps import Dataflow, Step
from windrow.runtime.grid import GridPlacement
from windrow.runtime.join_partitioning import asof_inputs, join_inputs, joined, recall_inputs
from windrow.runtime.placement import (
    ANY,
    EVERYWHERE,
    ONE,
    Exchange,
    HeavySplit,
    How,
    Partitioning,
    Placement,
    by_columns,
)


def _by_row(operator: object) -> bool:
    """Whether an operator looks at each row by itself, even before its time: it may run where rows are read."""
    return isinstance(operator, Stateless) and not isinstance(operator, LifetimesOperator)


def place(flow: Dataflow) -> Placement:
    """Assign every step of a dataflow to a stage."""
    stages: list[int] = []
    partitionings: list[Partitioning] = []
    reads: dict[tuple[int, int], Exchange] = {}
    shares: dict[tuple[int, int], Partitioning] = {}
    moved: dict[int, tuple[Partitioning, ...]] = {}
    forever = monotonic(flow.steps[-1].node)
    readers = {source: i for i, step in reversed(list(enumerate(flow.steps))) for source in step.inputs}
    for index, step in enumerate(flow.steps):
        inputs = [partitionings[i] for i in step.inputs]
        from_tables = all(s is EVERYWHERE for s in inputs) and (inputs or isinstance(step.node, TableScan))
        if from_tables or step.operator is None:
            stages.append(0)
            partitionings.append(EVERYWHERE if from_tables else ANY)
            continue
        wanted = _wanted(step, flow, inputs, forever)
        if isinstance(step.operator, JoinOperator):
            wanted = _splittable(flow, index, inputs, wanted, forever)
        if wanted == [ANY] and stages[step.inputs[0]] == 0 and not _by_row(step.operator):
            wanted = [_ahead(flow, index, readers, partitionings)]  # it must cross anyway: to where it is needed next
        pairs = zip(inputs, wanted, strict=True)
        moves = [want.how is not How.ANY and have != want and have is not EVERYWHERE for have, want in pairs]
        stage = max(stages[i] + (1 if move else 0) for i, move in zip(step.inputs, moves, strict=True))
        if not _by_row(step.operator) or EVERYWHERE in inputs:
            stage = max(stage, 1)
        for port, source in enumerate(step.inputs):
            if inputs[port] is EVERYWHERE:
                if wanted[port] is not EVERYWHERE:
                    shares[index, port] = wanted[port]
            elif moves[port] or stages[source] < stage:
                # from stage 0 nothing lies right yet: even a fitting spread must cross
                keep = not moves[port] and stages[source] > 0
                reads[index, port] = Exchange(source, stage, wanted[port] if moves[port] else inputs[port], keep)
        stages.append(stage)
        lie = tuple(have if want.how is How.ANY else want for have, want in zip(inputs, wanted, strict=True))
        partitionings.append(_made(step, lie))
        if any(s.split for s in lie) and not _by_row(step.operator):
            moved[index] = lie
    return Placement(
        tuple(stages), reads, shares, tuple(partitionings), _everywhere(flow, stages, partitionings), moved
    )


def _ahead(
    flow: Dataflow, index: int, readers: Mapping[int, int], partitionings: Sequence[Partitioning]
) -> Partitioning:
    """How the next operator that cares will want the output of a step, in the step's own columns; ANY if none does."""
    names = {c: c for c in flow.steps[index].schema}  # column there -> column here
    source, at = index, readers.get(index)
    while at is not None:
        operator = flow.steps[at].operator
        keys = _keys(operator)
        match operator:
            case _ if keys is not None:
                wanted = Partitioning(How.COLUMNS, keys) if keys else ONE
            case DeltaStar() | BagOperator() | Changes() | Sample():
                wanted = Partitioning(How.COLUMNS, tuple(flow.steps[source].schema))
            case JoinOperator() | AggregateDeltas():
                ports = flow.steps[at].inputs
                seen = [partitionings[i] if i < len(partitionings) else ANY for i in ports]
                wanted = join_inputs(operator, seen)[ports.index(source)]
            case ProjectOperator():
                names = {n: names[f.copies] for n, f in operator.outputs if f.copies in names}
                wanted = ANY
            case _:
                wanted = ANY
        if wanted.how is How.COLUMNS:
            here = [names.get(c) for c in wanted.columns]
            return Partitioning(How.COLUMNS, tuple(c for c in here if c)) if here and all(here) else ANY
        if wanted.how is How.GRID:  # its rows lie in several places at once
            return ANY
        if wanted.how is not How.ANY or isinstance(operator, JoinOperator | AggregateDeltas):
            return wanted
        source, at = at, readers.get(at)
    return ANY


def _everywhere(
    flow: Dataflow, stages: Sequence[int], partitionings: Sequence[Partitioning]
) -> dict[int, frozenset[int]]:
    """For each step that comes from tables alone, the stages in which something reads it."""
    needed: dict[int, set[int]] = {i: set() for i, s in enumerate(partitionings) if s is EVERYWHERE}
    for index in reversed(range(len(flow.steps))):
        readers = needed.get(index, {stages[index]})
        for source in flow.steps[index].inputs:
            if source in needed:
                needed[source] |= readers
    return {i: frozenset(n) for i, n in needed.items()}


def _wanted(step: Step, flow: Dataflow, inputs: Sequence[Partitioning], forever: Set[object]) -> list[Partitioning]:
    """The spread each input must have."""
    operator = step.operator
    if (keys := _keys(operator)) is not None:
        return [by_columns(keys, inputs[0])]
    match operator:
        case JoinOperator() | AggregateDeltas():
            return join_inputs(operator, inputs)
        case RecallJoin():
            return recall_inputs(operator, inputs)
        case AsofOperator():
            return asof_inputs(operator, inputs)
        case DeltaStar():
            own = _cancelling(step, flow)
            return [by_columns(tuple(step.schema) if own is None else own, inputs[0])]
        case BagOperator():
            columns = tuple(step.schema)
            if all(s == inputs[0] and s.how in (How.COLUMNS, How.ONE) for s in inputs):
                return [by_columns(columns, s) for s in inputs]
            return [Partitioning(How.COLUMNS, columns) if columns else ONE] * len(inputs)
        case UnionOperator():
            return _union(inputs)
        case Retract() | QuantiseOperator() | HistoryOperator() | LifetimesOperator() | Starting():
            return [ANY]
        case Materialize() | Appearing():
            return [by_columns(tuple(step.schema), inputs[0])]
        case Changes() | Sample() | Restore() | Moments():
            source = flow.steps[step.inputs[0]]
            ends, own = source.node not in forever or source.signed, _cancelling(step, flow)
            ends &= own is not None or not (isinstance(operator, Changes) and operator.timestamped)
            return [by_columns(tuple(source.schema) if own is None else own, inputs[0]) if ends else ANY]
    # an operator that nothing is known of must see everything
    return [ANY if _by_row(operator) else ONE] * len(inputs)


def _cancelling(step: Step, flow: Dataflow) -> tuple[str, ...] | None:
    """The columns that all queries show of a change log in which they part: what differs in others only cancels there.

    None if every query shows all, so that what cancels has cancelled in the log."""
    at = next(i for i, other in enumerate(flow.steps) if other is step)
    for i, reader in enumerate(flow.steps):
        match reader.operator:
            case Materialize() if at in reader.inputs:
                at = i  # it keeps what the log says
            case RouteOperator(log=True, own=own) if at in reader.inputs:
                return None if own is None or len(own) == len(step.schema) else own
    return None


def _keys(operator: Operator | None) -> tuple[str, ...] | None:
    """The columns by which an operator divides its rows; None if it does not."""
    match operator:
        case ContinuousAggregate() | QueryAggregate() | GridAggregate() | PeriodicSummary() | SessionWindow():
            return tuple(operator.keys)
        case RowsWindow():
            return operator.together
        case TopNOperator() | AnalyticOperator() | Snapshots():
            return tuple(operator.partition)
    return None


def _splittable(
    flow: Dataflow, index: int, inputs: Sequence[Partitioning], wanted: list[Partitioning], forever: Set[object]
) -> list[Partitioning]:
    """Let rows of heavy keys lie apart, where whoever reads the join's output need not find them by the key alone."""
    moving = [i for i, w in enumerate(wanted) if w.how is How.COLUMNS]
    if len(moving) < 2 or any(inputs[i] == wanted[i] for i in moving):
        return wanted
    join = flow.steps[index].operator
    assert isinstance(join, JoinOperator)
    kept, movable = _read_by(flow, index, forever)
    here = next((i for i in moving if set(wanted[i].columns) <= kept), None)
    if here is None:  # whoever reads it must move it anyway
        here, own = moving[0], [tuple(join.parts[i].columns) for i in moving]
    else:
        own = [tuple(c for c in join.parts[i].columns if c in kept and c not in wanted[i].columns) for i in moving]
        if not movable:
            return wanted
    if not any(own):
        return wanted
    having = tuple((k,) if columns else () for k, columns in enumerate(own))
    made = list(wanted)
    for k, i in enumerate(moving):
        grid = GridPlacement(tuple(columns if k == at else () for at, columns in enumerate(own)), having)
        made[i] = Partitioning(How.COLUMNS, wanted[i].columns, split=HeavySplit(index, wanted[here].columns, grid))
    return made


def _read_by(flow: Dataflow, index: int, forever: Set[object]) -> tuple[set[str], bool]:
    """The join's columns by which its reader wants equal rows together, and whether all readers' state can move."""
    names = {c: {c} for c in flow.steps[index].schema}  # column there -> columns here
    source = index
    while True:
        readers = [i for i, step in enumerate(flow.steps) if source in step.inputs]
        if not readers:
            return set(), True
        operator = flow.steps[readers[0]].operator if len(readers) == 1 else None
        match operator:
            case SelectOperator() | CallOperator() | Bounds() | UnnestOperator() | Entering() | Leaving() | Starting():
                pass
            case ProjectOperator():
                names = {n: names[f.copies] for n, f in operator.outputs if f.copies in names}
            case ContinuousAggregate() | QueryAggregate() | GridAggregate() | PeriodicSummary():
                return {c for k in operator.keys for c in names.get(k, ())}, False
            case RowsWindow():
                return {c for k in operator.together for c in names.get(k, ())}, False
            case Retract():
                return set(flow.steps[index].schema), False
            case DeltaStar() | Changes() | Sample() | Restore() | Materialize():
                step = flow.steps[source]
                own = _cancelling(flow.steps[readers[0]], flow)
                timestamped = isinstance(operator, Changes) and operator.timestamped and own is None
                ends = not timestamped and (step.node not in forever or step.signed)
                if isinstance(operator, DeltaStar | Materialize) or ends:
                    together = step.schema if own is None else own
                    return {c for k in together for c in names.get(k, ())}, _moves(flow, readers[0])
            case Snapshots():
                return set(), True
            case _:  # it may need all rows of a key, whatever else they hold
                return set(flow.steps[index].schema), False
        source = readers[0]


def _moves(flow: Dataflow, index: int) -> bool:
    """Whether this step, and all that follow it, can hand rows of their state over."""
    rest = [flow.steps[i].operator for i in range(index, len(flow.steps))]
    return all((_by_row(o) or isinstance(o, Changes | Materialize)) and not isinstance(o, Retract) for o in rest)


def _union(inputs: Sequence[Partitioning]) -> list[Partitioning]:
    """Streams stay where they are; of a table each partition takes the part that lies as they do."""
    moving = [s for s in inputs if s is not EVERYWHERE]
    alike = all(s == moving[0] for s in moving) and moving[0].how is How.COLUMNS
    return [moving[0] if alike else ONE if s is EVERYWHERE else ANY for s in inputs]


def _made(step: Step, lie: Sequence[Partitioning]) -> Partitioning:
    """The spread of the output, given how the inputs now lie."""
    match step.operator:
        case ProjectOperator():
            copies = {f.copies: name for name, f in reversed(step.operator.outputs) if f.copies}
            return _renamed(lie[0], copies)
        case RouteOperator(log=False, keep=keep, own=own):
            return _renamed(lie[0], {c: c for c in keep if own is None or c in own})
        case RouteOperator() | RouteSets():
            return _renamed(lie[0], {c: c for c in step.operator.keep})
        case SessionAggregate():
            return _renamed(lie[0], {of: name for name, of in step.operator.columns.items()})
        case JoinOperator():
            return joined(step.operator, [s for s in lie if s is not EVERYWHERE])
        case AggregateDeltas():
            return joined(step.operator, [s for s in lie if s is not EVERYWHERE], step.operator.keys)
        case UnionOperator():
            alike = all(s == lie[0] for s in lie) and lie[0].how is not How.TOGETHER
            return lie[0] if alike else ANY
        case RecallJoin():
            return next(s for s, fixed in zip(lie, step.operator.static, strict=True) if not fixed)
    return lie[0]


def follow_columns(flow: Dataflow, columns: Sequence[str]) -> list[Partitioning]:
    """How the output of each step of a dataflow without exchanges lies, when its rows come by the hash of `columns`."""
    found: list[Partitioning] = []
    for step in flow.steps:
        inputs = [found[i] for i in step.inputs]
        by_columns = Partitioning(How.COLUMNS, tuple(columns))
        found.append(by_columns if step.operator is None else _made(step, inputs))
    return found


def _renamed(partitioning: Partitioning, copies: dict[str, str]) -> Partitioning:
    if partitioning.how not in (How.COLUMNS, How.TOGETHER):
        return partitioning
    if not all(c in copies for c in partitioning.columns):
        return ANY
    columns, grid, split = tuple(copies[c] for c in partitioning.columns), partitioning.grid, partitioning.split
    if grid is not None:
        grid = grid.renamed(copies)
    if split is not None:
        split = HeavySplit(split.step, tuple(copies[c] for c in split.key), split.grid.renamed(copies))
    return Partitioning(partitioning.how, columns, grid, split)
