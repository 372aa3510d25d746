"""What lowering a node needs to know: the steps so far, the update patterns, the strategy and how joins are tuned.

`lower.py` says which operator each node becomes; nodes whose operators take more than a line are lowered by functions
of their own (`lower_joins.py`, `lower_aggregates.py`), which get the `PlanLowering` that they add steps to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from windrow.operators.bag import BagOperator
from windrow.operators.changes import Retract
from windrow.operators.delta_star import DeltaStar
from windrow.operators.linear import Formula, ProjectOperator
from windrow.operators.protocol import Operator
from windrow.operators.row_limit import MOST_ROWS, RowLimit
from windrow.operators.state.pending import DAYS, Calendar, Fifo, Pending, ScannedList
from windrow.plan import nodes as n
from windrow.plan.cost import unit_of
from windrow.plan.expr import Expr
from windrow.plan.patterns import Pattern, annotate
from windrow.plan.recalled import recalls, unbroken
from windrow.plan.steps import Dataflow
from windrow.plan.strategies import Strategy
from windrow.plan.totality import total
from windrow.scalar_engine import quote

Functions = Mapping[str, Callable[..., object]]

CHAIN = n.Filter | n.Project | n.Call | n.WindowBounds
"""Nodes that look at each row of an evaluation by itself."""


@dataclass(frozen=True)
class Tuning:
    """How joins run; by default they keep the order they are written in, and aggregate late.

    `measures`: they tell what they see, so that somebody may choose for them. `aggregation`: "late", "auto" (early, and
    as is chosen), or the bits of a plan, one per input.
    `most_rows`: an answer at one time may have. `expire_us`: how often joins let go of rows that have ended, in
    microseconds of time or millionths of a tick; at every advance without it. `days`: of a year of calendars.
    """

    measures: bool = False
    aggregation: str = "late"
    most_rows: int = MOST_ROWS
    expire_us: int | None = None
    days: int = DAYS


class PlanLowering:
    """A dataflow under construction: nodes go in, steps come out."""

    def __init__(self, plan: n.QueryPlan, functions: Functions, strategy: Strategy, tuning: Tuning) -> None:
        self.flow = Dataflow()
        self.tuning = tuning
        self.functions = functions
        self.strategy = strategy
        self.pattern = annotate(plan.root, strategy)
        self.limit = RowLimit(plan.name, tuning.most_rows)
        self.expires_every = (tuning.expire_us or 0) * unit_of(plan) // 1_000_000  # in ticks of the clock
        self.grid = _grid_aggregate(plan.root)
        self.grid_chain = _chain(plan.root) if self.grid is not None else frozenset()
        self._made: dict[int, int] = {}
        self.recalls, self.unbroken = recalls(plan.root), unbroken(plan.root)
        self.periodic = True  # inputs are seen at the multiples of their period

    def lower(self, node: n.Node) -> int:
        """The step that computes `node`."""
        raise NotImplementedError

    def unary(self, operator: Operator, node: n.Unary) -> int:
        """A step over the input of a node."""
        return self.flow.add(operator, [self.lower(node.input)], node, node.schema)

    def append(self, step: int, operator: Operator, node: n.Node) -> int:
        """A step over another, with the same columns."""
        return self.flow.add(operator, [step], node, self.flow.steps[step].schema)

    @contextmanager
    def at_own_times(self) -> Iterator[None]:
        """Lower nodes without looking at their inputs periodically, into steps that nobody else reads."""
        kept = self._made, self.periodic
        self._made, self.periodic = {}, False
        try:
            yield
        finally:
            self._made, self.periodic = kept

    @contextmanager
    def unannounced(self) -> Iterator[None]:
        """Lower nodes without letting windows spell ends; where they would, into steps that nobody else reads."""
        kept = self.strategy, self._made
        if self.strategy.announces:
            self.strategy, self._made = Strategy.UPA, {}
        try:
            yield
        finally:
            self.strategy, self._made = kept

    def announced(self, step: int, node: n.Node, pending: Callable[[], Pending] = Calendar) -> int:
        """A step whose ends are spelled if the strategy says so."""
        return self.append(step, Retract(pending), node) if self.strategy.announces else step

    def signed(self, step: int) -> bool:
        """Whether the elements of a step may be negative."""
        return self.flow.steps[step].signed

    def pending(self, node: n.Node | None = None) -> Callable[[], Pending]:
        """The state that fits the update pattern of a node, and the strategy."""
        if self.strategy.scans:
            return ScannedList
        if node is not None and self.pattern[node] is Pattern.WEAKEST:
            return Fifo
        return Calendar if self.tuning.days == DAYS else partial(Calendar, self.tuning.days)

    def distinct(self, step: int, node: n.Node) -> int:
        """One copy of every row of a step."""
        schema = self.flow.steps[step].schema
        if self.signed(step) or not self.strategy.by_pattern:
            return self.flow.add(BagOperator("distinct", schema, self.pending()), [step], node, schema)
        return self.flow.add(DeltaStar(schema), [step], node, schema)

    def project(self, step: int, columns: Mapping[str, str], node: n.Node) -> int:
        """Keep and rename columns: output name -> input column."""
        schema = self.flow.steps[step].schema
        outputs = [(out, Formula("", schema[c], (c,), c)) for out, c in columns.items()]
        return self.flow.add(ProjectOperator(outputs), [step], node, {o: schema[c] for o, c in columns.items()})


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


def formula(
    e: Expr, rename: Mapping[str, str] | None = None, types: Mapping[str, pa.DataType] | None = None
) -> Formula:
    """An expression for the operators; `rename`: other names of columns, `types`: theirs, to know if it can raise."""
    names = rename or {}
    sql = e.sql(lambda c: quote(names.get(c, c)))
    reads = tuple(sorted(names.get(c, c) for c in e.columns))
    copies = names.get(e.column, e.column) if e.column is not None else None
    return Formula(sql, e.type, reads, copies, types is not None and total(e, types))
