"""Aggregates that stand over a join, with nothing but selections and projections between.

Such an aggregate can be computed from aggregation sets (`operators/aggregate_join.py`). Selections become residual
predicates of the join; what the projections compute moves down to the input it reads. An expression over several inputs
cannot move, so `SUM(a.x * b.y)` stays an aggregate over the join.
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow.plan.expr import Expr, column
from windrow.plan.nodes import Aggregate, Filter, Join, Project


@dataclass(frozen=True)
class AggregationJoin:
    """The join, all its residual predicates, and the columns each input must give: (name, expression over its own)."""

    join: Join
    residual: tuple[Expr, ...]
    outputs: tuple[tuple[tuple[str, Expr], ...], ...]


def aggregation_join(node: Aggregate) -> AggregationJoin | None:
    """The shape of an aggregate over a join, or None."""
    needed = {c: column(c, node.input.schema[c]) for c in _arguments(node)}
    predicates: list[Expr] = []
    below = node.input
    while isinstance(below, Filter | Project):
        if isinstance(below, Project):
            defined = dict(below.outputs)
            needed = {name: e.substitute(defined) for name, e in needed.items()}
            predicates = [p.substitute(defined) for p in predicates]
        else:
            predicates.append(below.predicate)
        below = below.input
    if not isinstance(below, Join) or any(below.internal) or len(below.parts) < 2:
        return None
    residual = (*below.residual, *predicates)
    if any(e.functions for e in (*residual, *needed.values())):
        return None
    outputs = _placed(below, residual, needed)
    return None if outputs is None else AggregationJoin(below, residual, outputs)


def _arguments(node: Aggregate) -> list[str]:
    return list(dict.fromkeys([*node.keys, *(c.column for c in node.calls if c.column is not None)]))


def _placed(
    join: Join, residual: tuple[Expr, ...], needed: dict[str, Expr]
) -> tuple[tuple[tuple[str, Expr], ...], ...] | None:
    """For each input, what it must give."""
    schemas = [p.schema for p in join.parts]
    owner = {c: i for i, schema in enumerate(schemas) for c in schema}
    read = {c for e in join.equalities for c in (e.left, e.right)} | {c for e in residual for c in e.columns}
    outputs: list[dict[str, Expr]] = [{c: column(c, t) for c, t in s.items() if c in read} for s in schemas]
    for name, e in needed.items():
        homes = {owner[c] for c in e.columns}
        if len(homes) > 1 or (name in owner and e.column != name):
            return None
        outputs[min(homes, default=0)][name] = e
    return tuple(tuple(o.items()) for o in outputs)
