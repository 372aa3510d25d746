"""What orders of a window join are measured by: the papers' tables as inputs of the cost model, the cheapest of all n!
global orders, and the cost of the naive join, which no rule of the optimizer reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

from windrow.optimize.order_joins import Order, respects
from windrow.plan.join_cost import JoinModel, WindowStatistics


def on_one_attribute(rows: Iterable[tuple[float, float, float]], buckets: int = 1) -> tuple[WindowStatistics, ...]:
    """Inputs joined on one common attribute, as the papers' tables give them: (rate, window, distinct values).

    >>> [i.size() for i in on_one_attribute([(10, 100, 500), (1, 100, 50)])]
    [1000.0, 100.0]
    """
    return tuple(WindowStatistics(rate, window, {"a": v}, buckets) for rate, window, v in rows)


def exhaustive_order(model: JoinModel, cost: Callable[[Order], float] | None = None) -> Order:
    """The cheapest global order that respects the join graph."""
    price = cost or model.global_cost
    everyone = range(len(model.inputs))
    return min((o for o in permutations(everyone) if respects(model, o)), key=price)


def naive_cost(model: JoinModel, order: Sequence[int]) -> float:
    """Cost of the naive join: every input follows the same order, wherever its new tuples stand in it."""
    return sum(model.path_cost(i, order) for i in range(len(model.inputs)))
