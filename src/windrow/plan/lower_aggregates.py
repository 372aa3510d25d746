"""Aggregates as operators: over the join below, over whole sessions, at the evaluations of a grid, or continuously.

The first that fits is taken, in this order: each does less work per row than the next, and gives the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import SUMMARISED
from windrow.operators.cell_aggregate import CellAggregate
from windrow.operators.elements import INF
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.length_aggregate import LengthAggregate
from windrow.operators.linear import Formula, ProjectOperator, SelectOperator
from windrow.operators.open_sessions import SESSION
from windrow.operators.protocol import Operator
from windrow.operators.query_aggregate import QueryAggregate
from windrow.operators.route import RouteSets
from windrow.operators.session import SessionAggregate, SessionWindow
from windrow.operators.terms import QUERIES, QUERIES_TYPE, QUERY
from windrow.plan import nodes as n
from windrow.plan.aggregation_joins import aggregation_join
from windrow.plan.lower_joins import aggregate_join, seen_behind
from windrow.plan.lower_summaries import summary_aggregate
from windrow.plan.lowering import PlanLowering, formula
from windrow.plan.steps import grid_of


def aggregate(to: PlanLowering, node: n.Aggregate) -> int:
    """The aggregate as the first operator that fits."""
    operator: Operator
    calls = node.calls
    if any(c.kind in SUMMARISED for c in calls):
        return summary_aggregate(to, node, calls)
    early = to.tuning.aggregation != "late" and to.strategy.by_pattern and (grid_of(node) or (0, 0))[1] == 0
    shape = aggregation_join(node) if early else None
    if shape is not None and seen_behind(shape.join) is None:
        joined = aggregate_join(to, node, calls, shape)
        if joined is not None:
            return joined
    sessions = _session_aggregate(node, calls) if to.strategy.by_pattern else None
    if sessions is not None:
        operator, source = sessions
        return to.flow.add(operator, [to.lower(source)], node, node.schema)
    if isinstance(node.input, n.Route) and to.strategy.by_pattern and all(c.adds_up for c in calls):
        return _cell_aggregate(to, node, node.input, calls)
    strict = to.signed(to.lower(node.input))
    expiration = "scan" if to.strategy.scans else "calendar"
    if to.grid is not None and node is to.grid[0]:
        period, offset = to.grid[1], to.grid[2].offset
        operator = GridAggregate(
            node.keys, calls, node.input.schema, period, offset=offset, strict=strict, expiration=expiration
        )
    else:
        operator = ContinuousAggregate(node.keys, calls, node.input.schema, strict=strict, expiration=expiration)
    return to.unary(operator, node)


def _cell_aggregate(to: PlanLowering, node: n.Aggregate, route: n.Route, calls: Sequence[Aggregation]) -> int:
    """The aggregates of many queries: rows come once, with the set of those who want them."""
    since = _since(route)
    keep = route.keep if since is None else (*route.keep, since)
    types = {c: route.input.schema[c] for c in keep} | {QUERIES: QUERIES_TYPE}
    rows = to.flow.add(RouteSets(route.router, keep, since is not None), [to.lower(route.input)], route, types)
    keys = [k for k in node.keys if k != QUERY]
    operator: Operator = CellAggregate(keys, calls, types, route.router)
    if since is not None:
        operator = LengthAggregate(keys, calls, types, route.router, since)
    return to.flow.add(operator, [rows], node, node.schema)


def _since(route: n.Route) -> str | None:
    """The column that says when a row came, if rows end for every query so long after; None if they end otherwise."""
    lives, below = route.router.lives, route.input
    if lives is None or len(lives.sizes) != 1 or max(next(iter(lives.sizes.values()))) == INF:
        return None
    while isinstance(below, n.Project | n.Filter | n.Admit | n.Stamp | n.Window):
        below = below.input
    return next(iter(lives.sizes)) if isinstance(below, n.Scan) else None


def wanted_answers(to: PlanLowering, route: n.Route) -> None:
    """Tell the aggregate of many queries below a route which answers they want."""
    below: n.Node = route.input
    while isinstance(below, n.Project) and all(e.column in (None, name) for name, e in below.outputs):
        below = below.input
    operator = to.flow.steps[to.lower(below)].operator
    if isinstance(operator, QueryAggregate):
        operator.having = route.router


def session_window(node: n.Session) -> SessionWindow:
    """The operator of a session window."""
    keys = {k: node.input.schema[k] for k in node.keys}
    return SessionWindow(keys, node.gap, node.start, node.end, node.type)


def _session_aggregate(node: n.Aggregate, calls: Sequence[Aggregation]) -> tuple[Operator, n.Node] | None:
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
    return SessionAggregate(session_window(below), steps, shown, calls, node.input.schema, early), below.input


def _only_copies(node: n.Node) -> bool:
    return isinstance(node, n.Project) and all(e.column == name for name, e in node.outputs)


def _row_step(node: n.Node, without: Collection[str]) -> Operator:
    """A selection or projection that lets the session's number through, and leaves out some columns."""
    if isinstance(node, n.Filter):
        return SelectOperator([formula(node.predicate)])
    assert isinstance(node, n.Project)
    number = (SESSION, Formula("", pa.int64(), (SESSION,), SESSION))
    return ProjectOperator([*((name, formula(e)) for name, e in node.outputs if e.column not in without), number])
