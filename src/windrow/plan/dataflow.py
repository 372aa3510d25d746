"""A dataflow driven by hand, frontier by frontier, where a tick is more than is needed; and the answer as users see it.

Whoever drives it hands in rows and says how far time is known; every operator advances once, in order; what the last
one returns is the answer's part for the interval. Queries of an engine and of a replay run in stages
(`runtime/stage.py`); this runs what lies above a shared aggregate (`sharing/finish.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, concat, one
from windrow.plan.lower import Tuning, lower
from windrow.plan.nodes import QueryPlan, Scan, TableScan
from windrow.plan.steps import Dataflow, in_parts

Feed = Callable[[str], tuple[np.ndarray, Mapping[str, pa.Array]]]


class Circuit:
    """One query's operators and their state."""

    def __init__(
        self,
        plan: QueryPlan,
        functions: Mapping[str, Callable[..., object]],
        tables: Mapping[str, pa.Table],
        strategy: str = "upa",
        materialized: bool = False,
        tuning: Tuning | None = None,
    ) -> None:
        self.plan = plan
        self.flow: Dataflow = lower(plan, functions, strategy, materialized, tuning or Tuning())
        self.tables = tables
        self.started = False
        self.frontier = BEGINNING

    def start(self, ts: int) -> None:
        """Start the clock at `ts`; tables are there from then on."""
        self.started = True
        for step in self.flow.steps:
            step.start(ts)

    def advance(self, feed: Feed, frontier: int) -> Elements:
        """Run every operator up to `frontier`; `feed` gives each stream's new rows as (ts, columns)."""
        outputs: list[Elements] = []
        for index, step in enumerate(self.flow.steps):
            if step.operator is not None:
                inputs = [outputs[i] for i in step.inputs]
                parts = in_parts(self.flow, index, inputs, frontier)
                if parts is not None:
                    outputs.append(concat([Elements.empty(self.flow.steps[-1].schema), *parts]))
                    break
                outputs.append(step.operator.advance(inputs, frontier))
            elif isinstance(step.node, Scan):
                outputs.append(_scan(step.node, feed))
            elif isinstance(step.node, TableScan):
                outputs.append(self._table(step.node))
        self.frontier = frontier
        return outputs[-1]

    def _table(self, node: TableScan) -> Elements:
        """A table's rows enter once; they have always been there, so that history given to a new query meets them."""
        if self.frontier != BEGINNING:
            return Elements.empty(node.schema)
        table = self.tables[node.table.lower()]
        columns = {internal: one(table.column(name)) for internal, name, _ in node.columns}
        return Elements.positive(np.full(table.num_rows, BEGINNING), INF, columns)

    def answer(self, elements: Elements) -> pa.Table:
        """The elements of the last step as the rows a user sees."""
        return answer(self.plan, elements)


def _scan(node: Scan, feed: Feed) -> Elements:
    ts, columns = feed(node.stream.lower())
    return Elements.positive(ts, INF, {internal: columns[name] for internal, name, _ in node.columns})


def no_answer(plan: QueryPlan, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The answer of a query without rows, its elements having columns of these types."""
    op = [("_op", pa.int8())] if plan.has_op else []
    shown = [(name, types[internal]) for name, internal in plan.output]
    return pa.Table.from_batches([], pa.schema([("_ts", plan.time_type), *op, *shown]))


def answer(plan: QueryPlan, elements: Elements) -> pa.Table:
    """`_ts`, `_op` for a change log, then the SELECT list; sorted by time."""
    if (elements.ts[1:] < elements.ts[:-1]).any():
        elements = elements.take(np.argsort(elements.ts, kind="stable"))
    ts = pa.array(elements.ts)
    arrays: list[pa.Array] = [ts.view(plan.time_type)]
    names = ["_ts"]
    if plan.has_op:
        arrays.append(pa.array(elements.sign))
        names.append("_op")
    for shown, internal in plan.output:
        arrays.append(elements.columns[internal])
        names.append(shown)
    return pa.Table.from_arrays(arrays, names=names)
