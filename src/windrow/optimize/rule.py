"""What a rule is, and how trees are rebuilt.

A rule is a plain function from plan to plan that keeps every answer. Its laws:

* Q(t) is the same bag at every instant, nulls, NaN and duplicates included.
* A rule may make an error go away (by evaluating an expression on fewer rows) but never make one appear.
* It is idempotent, and the rules together reach a fixed point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TypeVar

from windrow.catalog import Catalog
from windrow.plan.cost import Statistics, total_cost
from windrow.plan.expr import Expr, column
from windrow.plan.nodes import Emit, Filter, Node, Project, QueryPlan
from windrow.plan.strategies import Strategy

N = TypeVar("N", bound=Node)


@dataclass(frozen=True)
class RuleContext:
    """What rules may look at besides the plan: declarations, statistics and the strategy that will run it."""

    catalog: Catalog | None = None
    statistics: Statistics = field(default_factory=Statistics)
    strategy: Strategy = Strategy.UPA
    unit: int = 1

    def cheaper(self, new: Node, old: Node) -> bool:
        """Whether `new` is estimated to cost clearly less; near ties keep what is there."""
        return self._cost(new) < 0.99 * self._cost(old)

    def _cost(self, node: Node) -> float:
        # both plans end in the same relation: count keeping it, as a query's end does
        return total_cost(Emit(node), self.statistics, self.strategy, self.unit)


Rule = Callable[[QueryPlan, RuleContext], QueryPlan]


def rewrite(node: N, step: Callable[[Node], Node]) -> N:
    """Apply `step` to every node, inputs first. The root keeps its class when `step` keeps it."""
    before = node.inputs
    inputs = [rewrite(i, step) for i in before]
    fresh = node if all(map(is_, inputs, before)) else node.with_inputs(*inputs)
    return step(fresh)  # type: ignore[return-value]


def with_root(plan: QueryPlan, root: Node) -> QueryPlan:
    """The plan over another tree, which must still be an Emit and have the output columns."""
    if root is plan.root:
        return plan
    assert isinstance(root, Emit)
    assert {c for _, c in plan.output} <= root.schema.keys()
    return plan if root == plan.root else replace(plan, root=root, made=None)


def filtered(node: Node, predicates: Sequence[Expr]) -> Node:
    """The node under filters, the first predicate innermost."""
    for p in predicates:
        node = Filter(node, p)
    return node


def keep(node: Node, names: Sequence[str]) -> Node:
    """The node with exactly these columns, in this order."""
    types = node.schema
    if tuple(types) == tuple(names):
        return node
    return Project(node, tuple((n, column(n, types[n])) for n in names))
