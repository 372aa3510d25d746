"""Aggregates by summaries as operators: over periods, or over slices of a window of rows.

What lies between the window and the aggregate runs apart from the rest of the plan: rows go into the counts of their
slice when they come, so nobody keeps them until the slice is seen, nor, in a window of rows, until they leave it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.linear import Formula, ProjectOperator, SelectOperator
from windrow.operators.protocol import Operator
from windrow.operators.quantise import QuantiseOperator
from windrow.operators.summary_aggregate import SUB_WINDOW, PeriodicSummary, RowsSummary
from windrow.plan import nodes as n
from windrow.plan.lowering import PlanLowering, formula


def summary_aggregate(to: PlanLowering, node: n.Aggregate, calls: Sequence[Aggregation]) -> int:
    """The aggregate over summaries; windows send no negative elements to it, whatever the strategy."""
    with to.unannounced():
        if node.grid is not None:
            return _periodic(to, node, calls)
        return _rows(to, node, calls)


def _chain(node: n.Node) -> tuple[list[n.Filter | n.Project], n.Node]:
    """The selections and projections on top of a node, lowest first, and what they stand on."""
    found: list[n.Filter | n.Project] = []
    while isinstance(node, n.Filter | n.Project):
        found.insert(0, node)
        node = node.input
    return found, node


def _periodic(to: PlanLowering, node: n.Aggregate, calls: Sequence[Aggregation]) -> int:
    assert node.grid is not None
    operator = PeriodicSummary(node.keys, calls, node.input.schema, *node.grid)
    chain, below = _chain(node.input)
    if not isinstance(below, n.Quantise):
        return to.unary(operator, node)
    step = to.unary(QuantiseOperator(below.period, below.offset, below.before, waits=False), below)
    for x in chain:
        step = to.flow.add(_step(x), [step], x, x.schema)
    return to.flow.add(operator, [step], node, node.schema)


def _rows(to: PlanLowering, node: n.Aggregate, calls: Sequence[Aggregation]) -> int:
    chain, below = _chain(node.input)
    assert isinstance(below, n.Window) and below.spec.size is not None and below.spec.slide is not None
    steps = [_step(x, with_slice=True) for x in chain]
    operator = RowsSummary(node.keys, calls, node.input.schema, below.spec.size, below.spec.slide, steps)
    return to.flow.add(operator, [to.lower(below.input)], node, node.schema)


def _step(node: n.Filter | n.Project, with_slice: bool = False) -> Operator:
    if isinstance(node, n.Filter):
        return SelectOperator([formula(node.predicate)])
    number = [(SUB_WINDOW, Formula("", pa.int64(), (SUB_WINDOW,), SUB_WINDOW))] if with_slice else []
    return ProjectOperator([*((name, formula(e)) for name, e in node.outputs), *number])
