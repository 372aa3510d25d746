"""Drive a circuit by hand, so that filling a window, advancing it and weighing its state can be told apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from windrow.catalog import Catalog
from windrow.engine.script import bind_script
from windrow.operators.elements import Elements, Int64s
from windrow.operators.protocol import State
from windrow.operators.state.run import Run
from windrow.optimize import optimize
from windrow.plan.dataflow import Circuit
from windrow.plan.lowering import Tuning
from windrow.plan.nodes import QueryPlan

Streams = Mapping[str, pa.Table]
"""Tables in time order by stream name (lower case); the time is an integer column `ts`."""


def planned(text: str, streams: Streams, off: Collection[str] = ()) -> QueryPlan:
    """The bound and optimised plan of one query."""
    catalog = bind_script(text, Catalog(), {name: (name, table) for name, table in streams.items()})
    (plan,) = catalog.queries.values()
    return optimize(plan, off=frozenset(off))


def advance(circuit: Circuit, streams: Streams, begin: int, end: int) -> Elements:
    """Feed the rows of `[begin, end)` and bring the frontier to its last instant."""

    def feed(name: str) -> tuple[Int64s, dict[str, pa.Array]]:
        table = streams[name]
        times = table.column("ts").chunk(0).to_numpy()
        low, high = (int(i) for i in np.searchsorted(times, (begin, end)))
        columns = {c: table.column(c).chunk(0).slice(low, high - low) for c in table.column_names}
        return times[low:high], columns

    return circuit.advance(feed, end - 1)


def states(circuit: Circuit) -> list[State]:
    """The state of every step; nothing for sources."""
    return [step.operator.state() if step.operator else {} for step in circuit.flow.steps]


def runs_of(found: Collection[State]) -> list[Run]:
    """All runs of some states."""
    return [run for state in found for runs in state.values() for run in runs]


def resumed(plan: QueryPlan, strategy: str, found: Collection[State], frontier: int, tuning: Tuning) -> Circuit:
    """A circuit that goes on from the states of another."""
    circuit = Circuit(plan, {}, {}, strategy, tuning=tuning)
    circuit.start(0)
    circuit.frontier = frontier
    for step, state in zip(circuit.flow.steps, found, strict=True):
        if step.operator is not None:
            step.operator.restore(state, frontier)
    return circuit
