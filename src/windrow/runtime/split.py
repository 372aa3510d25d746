"""Plans that split by run: what each run gives is computed once, and merged whenever the answer is wanted.

    Emit                                     upper: selections and projections, over the merged answer, once
      Project, Filter (HAVING) ...
        Aggregate                            a partial per run (`aggregates/mergeable`); or none: rows are put together
          Project, Filter, tables joined     lower: linear in the stream's rows, so run by run
            Window [RANGE]
              Filter, Scan

Law: the answer over the union of runs is the merge of their parts, in any order, and a part can be left out or
replaced before merging. A plan with two streams, DISTINCT, or aggregates that need all values of a group does not
split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.mergeable import MergeableAggregate, merges
from windrow.operators.elements import INF, Elements, Int64s, concat
from windrow.operators.join import JoinOperator
from windrow.operators.row_limit import MOST_ROWS
from windrow.optimize.rule import rewrite
from windrow.plan import nodes as n
from windrow.plan.expr import Expr
from windrow.plan.patterns import lifetimes
from windrow.plan.steps import Dataflow, in_parts

LINEAR = (n.Filter, n.Project, n.Call)


@dataclass(frozen=True)
class SplitPlan:
    """A plan that splits: `lower` run by run, then the aggregate if there is one, then `upper` over `merged`."""

    scan: n.Scan
    lower: n.Node
    aggregate: n.Aggregate | None
    upper: n.Node
    merged: n.Scan  # the leaf of `upper`: what comes from below it

    def aggregation(self) -> MergeableAggregate | None:
        """The aggregate, to be computed in parts."""
        if self.aggregate is None:
            return None
        return MergeableAggregate(self.aggregate.keys, self.aggregate.calls, self.aggregate.input.schema)


def split(plan: n.QueryPlan) -> SplitPlan | None:
    """How a plan splits by run; None when it does not."""
    if plan.root.op is not n.StreamOp.RELATION or plan.root.period is not None:
        return None
    above, node = [], plan.root.input
    while isinstance(node, LINEAR):
        above.append(node)
        node = node.input
    aggregate = node if isinstance(node, n.Aggregate) else None
    if aggregate is None:
        above, node = [], plan.root.input
    elif not merges(aggregate.calls):
        return None
    lower = node if aggregate is None else aggregate.input
    scans = [scan for scan in n.walk(lower) if isinstance(scan, n.Scan)]
    if len(scans) != 1 or not _linear(lower):
        return None
    merged = _leaf(node)
    upper: n.Node = merged
    for unary in reversed(above):
        upper = replace(unary, input=upper)
    return SplitPlan(scans[0], lower, aggregate, upper, merged)


def without(how: SplitPlan, decided: Set[Expr]) -> SplitPlan:
    """The same without filters that whoever reads the rows has decided already."""

    def read(node: n.Node) -> n.Node:
        return node.input if isinstance(node, n.Filter) and node.predicate in decided and _bare(node.input) else node

    return replace(how, lower=rewrite(how.lower, read)) if decided else how


def _bare(node: n.Node) -> bool:
    """Whether there are but windows and filters above a scan."""
    while isinstance(node, n.Filter | n.Window):
        node = node.input
    return isinstance(node, n.Scan)


def _linear(node: n.Node) -> bool:
    """Whether the rows of a node are the sum of what each row of its one stream gives."""
    match node:
        case n.Scan():
            return True
        case n.Window(spec=spec):
            return spec.kind in (n.WindowKind.RANGE, n.WindowKind.NOW) and _linear(node.input)
        case n.Filter() | n.Project() | n.Call():
            return _linear(node.input)
        case n.Join(internal=internal):
            return not any(internal) and all(_static(p) or _linear(p) for p in node.parts)
        case n.Semi(anti=False):
            return _linear(node.inputs[0]) and _static(node.inputs[1])
    return False  # NOT EXISTS and LEFT JOIN take rows back: parts would not be sums of rows


def _static(node: n.Node) -> bool:
    return lifetimes(node)[node].static


def _leaf(node: n.Node) -> n.Scan:
    """A source of rows with the columns of a node."""
    return n.Scan("~merged", "~merged", tuple((name, name, type_) for name, type_ in node.schema.items()), "")


def evaluate(
    flow: Dataflow,
    source: Callable[[n.Scan | n.TableScan], Elements],
    frontier: int,
    check: Callable[[], None],
    most_rows: int = MOST_ROWS,
) -> Elements:
    """What the last step of a new dataflow gives when all rows of its sources come at once.

    `check` may stop it, also within a join; a join that has more than `most_rows` results is refused.
    """
    outputs: list[Elements] = []
    for step in flow.steps:
        step.start(frontier)
    for index, step in enumerate(flow.steps):
        check()
        if step.operator is None:
            assert isinstance(step.node, n.Scan | n.TableScan)
            outputs.append(source(step.node))
            continue
        inputs = [outputs[i] for i in step.inputs]
        if not isinstance(step.operator, JoinOperator):
            outputs.append(step.operator.advance(inputs, frontier))
            continue
        step.operator.watch = check
        parts = in_parts(flow, index, inputs, frontier)
        if parts is not None:
            return _gathered(parts, flow.steps[-1].schema, most_rows)
        outputs.append(_gathered(step.operator.parts_of(inputs, frontier), step.schema, most_rows))
    return outputs[-1]


def _gathered(parts: Iterable[Elements], schema: Mapping[str, pa.DataType], most_rows: int) -> Elements:
    """All results of a join, refused as soon as they are too many."""
    found, count = [Elements.empty(schema)], 0
    for part in parts:
        count += len(part)
        if count > most_rows:
            raise RuntimeFailure(
                f"the question joins more than {most_rows:,} rows",
                detail="they would be in memory all at once",
                hint="ask for a shorter window or a key, register it as a query, or raise max_rows",
            )
        found.append(part)
    return concat(found)


def alive(rows: Elements, frontier: int) -> Elements:
    """The rows of elements without negatives that are there at an instant."""
    return rows.filter((rows.ts <= frontier) & (rows.exp > frontier))


def first_end(rows: Elements) -> int:
    """The first instant at which one of the rows ends."""
    ends: Int64s = rows.exp
    return int(ends.min()) if len(ends) else INF


def table_of(columns: Mapping[str, pa.Array], plan: n.QueryPlan) -> pa.Table:
    """The columns of the answer as its user sees them."""
    arrays = [columns[internal] for _, internal in plan.output]
    return pa.Table.from_arrays(arrays, names=[shown for shown, _ in plan.output])
