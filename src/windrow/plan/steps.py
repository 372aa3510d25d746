"""The steps of a dataflow: operators in the order in which they run, each with the steps whose output it reads.

A join whose answer is not aggregated may give it in parts: the linear steps behind it follow part by part, so that no
more than a part of a large result is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.analytic import AnalyticOperator
from windrow.operators.bag import BagOperator
from windrow.operators.changes import Appearing, Changes, Clocked, Entering, Leaving, Retract, Starting
from windrow.operators.delta_star import DeltaStar
from windrow.operators.elements import Elements, concat
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.holistic import HolisticOperator
from windrow.operators.join import PART_ROWS, JoinOperator
from windrow.operators.linear import CallOperator, ProjectOperator, SelectOperator, UnionOperator, UnnestOperator
from windrow.operators.over_nothing import OverNothingOperator
from windrow.operators.protocol import Operator
from windrow.operators.quantise import round_up
from windrow.operators.query_aggregate import QueryAggregate
from windrow.operators.sample import Moments, Restore, Sample, Snapshots
from windrow.operators.summary_aggregate import PeriodicSummary, RowsSummary
from windrow.operators.top_n import TopNOperator
from windrow.operators.window import RowsWindow
from windrow.plan import nodes as n


@dataclass(frozen=True)
class Step:
    """One operator of a dataflow, and the steps it reads. A source has no operator: its elements come from outside.

    `signed`: its output may hold negative elements. `static`: it comes from tables that do not reach back, so its rows
    only meet rows that come after them.
    """

    operator: Operator | None
    inputs: tuple[int, ...]
    node: n.Node
    schema: Mapping[str, pa.DataType]
    signed: bool = False
    static: bool = False
    grid: tuple[int, int] | None = None

    def start(self, ts: int) -> None:
        """Start the operator's clock; in a periodic block it starts at the first evaluation."""
        if self.operator is not None:
            at = ts if self.grid is None else int(round_up(np.array([ts]), *self.grid)[0])
            self.operator.start(at)


SIGNED: tuple[type, ...] = (
    RowsWindow, Retract, BagOperator, ContinuousAggregate, TopNOperator, AnalyticOperator, HolisticOperator, Changes,
    RowsSummary, QueryAggregate, OverNothingOperator,
)  # fmt: skip
"""Operators that make negative elements of their own; all others pass on those they get, or take none."""


UNSIGNED: tuple[type, ...] = (
    DeltaStar, GridAggregate, PeriodicSummary, Entering, Leaving, Starting, Appearing, Snapshots, Sample, Restore,
    Moments,
)  # fmt: skip
"""Operators that never send a negative element, whatever they get."""


@dataclass
class Dataflow:
    """Operators in an order in which each reads only earlier ones; the last is the query's answer."""

    steps: list[Step] = field(default_factory=list)

    def add(
        self, operator: Operator | None, inputs: Sequence[int], node: n.Node, schema: Mapping[str, pa.DataType]
    ) -> int:
        signed = isinstance(operator, SIGNED) or any(self.steps[i].signed for i in inputs)
        if isinstance(operator, UnionOperator):
            signed |= any(operator.negated)
        signed |= isinstance(node, n.TableScan) and node.retroactive
        signed &= not isinstance(operator, UNSIGNED)
        if isinstance(operator, AggregateDeltas):
            signed = False
        elif isinstance(operator, DeltaStar):
            signed = operator.log
        static = not inputs and isinstance(node, n.TableScan) and not node.retroactive
        if inputs:  # what is computed from such tables alone changes with them, and reaches back as little
            static = all(self.steps[i].static for i in inputs)
        grid = None
        if isinstance(node, n.Aggregate) or isinstance(operator, Clocked):
            grid = grid_of(node.input if isinstance(node, n.Emit | n.Append) else node)
        self.steps.append(Step(operator, tuple(inputs), node, dict(schema), signed, static, grid))
        return len(self.steps) - 1


LINEAR: tuple[type, ...] = (SelectOperator, ProjectOperator, CallOperator, UnnestOperator, Starting)
"""Operators that look at each row by itself: what they do to parts of a batch, they do to the batch."""


def in_parts(flow: Dataflow, index: int, inputs: Sequence[Elements], frontier: int) -> Iterator[Elements] | None:
    """The answer of a flow whose step `index` is a join with nothing but linear steps behind it, in parts; else None.

    A part has about `PART_ROWS` rows, so what lies between the join and the answer stays small however large that is.
    """
    join = flow.steps[index].operator
    if not isinstance(join, JoinOperator):
        return None
    rest = flow.steps[index + 1 :]
    chained = all(step.inputs == (index + k,) for k, step in enumerate(rest))
    if not rest or not chained or not all(isinstance(s.operator, LINEAR) for s in rest):
        return None
    return _parts(join.parts_of(inputs, frontier), rest, frontier)


def _parts(found: Iterator[Elements], rest: Sequence[Step], frontier: int) -> Iterator[Elements]:
    def behind(parts: list[Elements]) -> Elements:
        rows = concat(parts)
        for step in rest:
            assert step.operator is not None
            rows = step.operator.advance([rows], frontier)
        return rows

    waiting: list[Elements] = []
    size = 0
    for part in found:
        if waiting and size + len(part) > PART_ROWS:
            yield behind(waiting)
            waiting, size = [], 0
        waiting.append(part)
        size += len(part)
    if waiting:
        yield behind(waiting)


def grid_of(node: n.Node) -> tuple[int, int] | None:
    """The period and offset of the block that a node is in, if it has one."""
    if isinstance(node, n.Quantise):
        return node.period, node.offset
    if isinstance(node, n.Window | n.Emit | n.Append):
        return None
    return next((p for i in node.inputs if (p := grid_of(i)) is not None), None)
