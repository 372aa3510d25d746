"""Where each operator runs: stages, and how rows are spread over partitions within them.

A stage is a chain of operators that a task runs on one partition without a shuffle. Some operators work on any spread
of rows (selection); some need equal keys in one partition (join, grouping, anything that cancels equal rows); some need
all rows in one place (a count window over a whole stream). Walking the dataflow from its sources, a step stays in its
input's stage when the rows already lie right, and otherwise opens the next stage behind an exchange.

    stage 0   stateless steps, on the source's own partitions
    stage 1+  everything else, on `partitions` partitions, behind an exchange

A table is everywhere: each task computes for itself what comes from tables alone, so it never crosses an exchange;
where its rows are to count once, each partition takes its part. Law: rows that an operator must see together carry
equal values in the columns they are spread by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.bag import Bag
from windrow.operators.changes import Changes, Entering, Leaving, Retract, Starting
from windrow.operators.delta_star import DeltaStar
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.join import Join
from windrow.operators.linear import Call, Pad, Project, Select, Union
from windrow.operators.quantise import Quantise
from windrow.operators.sample import Restore, Sample, Snapshots
from windrow.operators.standing import Kept, Standing
from windrow.operators.window import RangeWindow, RowsWindow
from windrow.plan.lower import Dataflow, Step
from windrow.plan.nodes import TableScan
from windrow.plan.patterns import Pattern, annotate


class How(Enum):
    """A way rows lie over partitions."""

    ANY = "any"
    ONE = "one"  # all in partition 0
    COLUMNS = "columns"  # by the hash of some columns
    EVERYWHERE = "everywhere"  # the same rows in each partition


@dataclass(frozen=True)
class Spread:
    """How a step's output lies; `columns` for How.COLUMNS."""

    how: How
    columns: tuple[str, ...] = ()


ANY, ONE, EVERYWHERE = Spread(How.ANY), Spread(How.ONE), Spread(How.EVERYWHERE)


@dataclass(frozen=True)
class Exchange:
    """Rows of step `source` sent to `stage`, spread anew; `keep`: to the same partition they are in."""

    source: int
    stage: int
    spread: Spread
    keep: bool = False


@dataclass(frozen=True)
class Placement:
    """Where steps run and what they read.

    `stages`: the stage of each step, or for what comes from tables alone (`tables`) the stages whose tasks each compute
    it. `reads`: for each (step, port) the exchange it reads through, if any. `shares`: for each (step, port) that reads
    what every partition has, how to take part of it, so that each row counts once. `spreads`: how each output lies.
    """

    stages: tuple[int, ...]
    reads: dict[tuple[int, int], Exchange]
    shares: dict[tuple[int, int], Spread]
    spreads: tuple[Spread, ...]
    tables: dict[int, frozenset[int]]

    def runs(self, step: int, stage: int, partition: int) -> bool:
        """Whether a step is computed in this stage of this partition; what lies in one place has one."""
        if step in self.tables:
            return stage in self.tables[step]
        return self.stages[step] == stage and (partition == 0 or self.spreads[step] != ONE)

    @property
    def last_stage(self) -> int:
        return max(self.stages)


STATELESS = (Select, Project, Call, Pad, Union, RangeWindow, Entering, Leaving)


def place(flow: Dataflow) -> Placement:
    """Assign every step of a dataflow to a stage."""
    stages: list[int] = []
    spreads: list[Spread] = []
    reads: dict[tuple[int, int], Exchange] = {}
    shares: dict[tuple[int, int], Spread] = {}
    root = flow.steps[-1].node
    monotonic: set[object] = {node for node, p in annotate(root).items() if p is Pattern.MONOTONIC}
    readers = {source: i for i, step in reversed(list(enumerate(flow.steps))) for source in step.inputs}
    for index, step in enumerate(flow.steps):
        inputs = [spreads[i] for i in step.inputs]
        if all(s is EVERYWHERE for s in inputs) and (inputs or isinstance(step.node, TableScan)):
            stages.append(0)
            spreads.append(EVERYWHERE)
            continue
        if step.operator is None:
            stages.append(0)
            spreads.append(ANY)
            continue
        wanted = _wanted(step, flow, inputs, monotonic)
        if wanted == [ANY] and stages[step.inputs[0]] == 0 and not isinstance(step.operator, STATELESS):
            wanted = [_ahead(flow, index, readers, spreads)]  # it must cross anyway: to where it is needed next
        moves = [not _fits(have, want) for have, want in zip(inputs, wanted, strict=True)]
        stage = max(stages[i] + (1 if move else 0) for i, move in zip(step.inputs, moves, strict=True))
        if not isinstance(step.operator, STATELESS) or EVERYWHERE in inputs:
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
        spreads.append(_made(step, inputs, wanted))
    return Placement(tuple(stages), reads, shares, tuple(spreads), _everywhere(flow, stages, spreads))


def _ahead(flow: Dataflow, index: int, readers: Mapping[int, int], spreads: Sequence[Spread]) -> Spread:
    """How the next operator that cares will want the output of a step, in the step's own columns; ANY if none does."""
    names = {c: c for c in flow.steps[index].schema}  # column there -> column here
    source, at = index, readers.get(index)
    while at is not None:
        operator = flow.steps[at].operator
        match operator:
            case ContinuousAggregate() | GridAggregate():
                wanted = Spread(How.COLUMNS, operator.keys) if operator.keys else ONE
            case RowsWindow():
                wanted = Spread(How.COLUMNS, operator.partition) if operator.partition else ONE
            case DeltaStar() | Bag() | Changes() | Sample():
                wanted = Spread(How.COLUMNS, tuple(flow.steps[source].schema))
            case Join():
                ports = flow.steps[at].inputs
                seen = [spreads[i] if i < len(spreads) else ANY for i in ports]
                wanted = _join(operator, seen)[ports.index(source)]
            case Project():
                names = {n: names[f.copies] for n, f in operator.outputs if f.copies in names}
                wanted = ANY
            case _:
                wanted = ANY
        if wanted.how is How.COLUMNS:
            here = [names.get(c) for c in wanted.columns]
            return Spread(How.COLUMNS, tuple(c for c in here if c)) if here and all(here) else ANY
        if wanted.how is not How.ANY or isinstance(operator, Join):
            return wanted
        source, at = at, readers.get(at)
    return ANY


def _everywhere(flow: Dataflow, stages: Sequence[int], spreads: Sequence[Spread]) -> dict[int, frozenset[int]]:
    """For each step that comes from tables alone, the stages in which something reads it."""
    needed: dict[int, set[int]] = {i: set() for i, s in enumerate(spreads) if s is EVERYWHERE}
    for index in reversed(range(len(flow.steps))):
        readers = needed.get(index, {stages[index]})
        for source in flow.steps[index].inputs:
            if source in needed:
                needed[source] |= readers
    return {i: frozenset(n) for i, n in needed.items()}


def _fits(have: Spread, want: Spread) -> bool:
    return want.how is How.ANY or have == want or have is EVERYWHERE


def _wanted(step: Step, flow: Dataflow, inputs: Sequence[Spread], monotonic: set[object]) -> list[Spread]:
    """The spread each input must have."""
    operator = step.operator
    match operator:
        case Join():
            return _join(operator, inputs)
        case ContinuousAggregate() | GridAggregate():
            return [_by(operator.keys, inputs[0])]
        case RowsWindow():
            return [_by(operator.partition, inputs[0])]
        case DeltaStar():
            return [_by(tuple(step.schema), inputs[0])]
        case Bag():
            columns = tuple(step.schema)
            if all(s == inputs[0] and s.how in (How.COLUMNS, How.ONE) for s in inputs):
                return [_by(columns, s) for s in inputs]
            return [Spread(How.COLUMNS, columns) if columns else ONE] * len(inputs)
        case Union():
            return _union(inputs)
        case Snapshots():
            return [ONE]
        case Retract() | Quantise() | Kept() | Starting():
            return [ANY]
        case Standing():
            return [_by(tuple(step.schema), inputs[0])]
        case Changes() | Sample() | Restore():
            source = flow.steps[step.inputs[0]]
            ends = source.node not in monotonic or source.signed
            ends &= not (isinstance(operator, Changes) and operator.dated)
            return [_by(tuple(source.schema), inputs[0]) if ends else ANY]
    # an operator that nothing is known of must see everything
    return [ANY if isinstance(operator, STATELESS) else ONE] * len(inputs)


def _by(columns: Sequence[str], have: Spread) -> Spread:
    """Equal values of `columns` together; what lies so already stays."""
    if have.how is How.ONE or (have.how is How.COLUMNS and set(have.columns) <= set(columns)):
        return have
    return Spread(How.COLUMNS, tuple(columns)) if columns else ONE


def _join(join: Join, inputs: Sequence[Spread]) -> list[Spread]:
    """Spread the moving inputs by the columns of classes that all of them have; tables stay everywhere."""
    moving = [i for i, s in enumerate(inputs) if s is not EVERYWHERE]
    if len(moving) == 1:
        return [ANY if i in moving else EVERYWHERE for i in range(len(inputs))]
    shared: list[list[str]] = []
    for columns, _ in join.classes:
        own = [[c for c in columns if c in join.parts[i].columns] for i in moving]
        if all(own):
            shared.append([c[0] for c in own])
    spreads = [ONE] * len(moving)
    if shared:
        spreads = [Spread(How.COLUMNS, tuple(c[k] for c in shared)) for k in range(len(moving))]
    wanted = [EVERYWHERE] * len(inputs)
    for i, spread in zip(moving, spreads, strict=True):
        wanted[i] = spread
    return wanted


def _union(inputs: Sequence[Spread]) -> list[Spread]:
    """Streams stay where they are; of a table each partition takes the part that lies as they do."""
    moving = [s for s in inputs if s is not EVERYWHERE]
    alike = all(s == moving[0] for s in moving) and moving[0].how is How.COLUMNS
    return [moving[0] if alike else ONE if s is EVERYWHERE else ANY for s in inputs]


def _made(step: Step, inputs: Sequence[Spread], wanted: Sequence[Spread]) -> Spread:
    """The spread of the output, given how the inputs now lie."""
    lie = [have if want.how is How.ANY else want for have, want in zip(inputs, wanted, strict=True)]
    match step.operator:
        case Project():
            copies = {f.copies: name for name, f in reversed(step.operator.outputs) if f.copies}
            return _renamed(lie[0], copies)
        case Join():
            moving = [s for s in lie if s is not EVERYWHERE]
            return moving[0]
        case Union():
            return lie[0] if all(s == lie[0] for s in lie) else ANY
    return lie[0]


def _renamed(spread: Spread, copies: dict[str, str]) -> Spread:
    if spread.how is not How.COLUMNS:
        return spread
    if all(c in copies for c in spread.columns):
        return Spread(How.COLUMNS, tuple(copies[c] for c in spread.columns))
    return ANY
