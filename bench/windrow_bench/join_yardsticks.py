"""What orders of a window join are measured by: the papers' tables and methods in the cost model, the cheapest of all
n! global orders, the best of the general lazy join, and the cost of the naive join.

How a window is met (`method`): `nested` scans all of it, `hash` one of its buckets; without a common column both scan
it. Windows are longer by the interval when expiration is lazy; evaluation every `interval` units takes all new tuples
of the interval at once. What runs is eager and finds matches by key (`windrow.plan.join_cost`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from windrow.optimize.order_joins import Order, best_path, respects
from windrow.plan.join_cost import JoinModel, WindowStatistics


@dataclass(frozen=True)
class PaperModel(JoinModel):
    """The papers' costs: nested loops, or a hash table of so many buckets; `interval` 0 is eager.

    >>> table5 = on_one_attribute([(10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5)])
    >>> PaperModel(table5).global_cost((0, 1, 2, 3))
    16000.0
    """

    method: str = "nested"
    buckets: int = 1
    interval: float = 0.0

    def __post_init__(self) -> None:
        if self.method not in ("nested", "hash"):
            raise ValueError(f"no join method is called {self.method}")

    def held(self, i: int) -> float:
        """Tuples in the window, those included that wait for the next expiration."""
        return self.inputs[i].size + self.inputs[i].rate * self.interval

    def sizes(self, i: int) -> dict[int, float]:
        """All new tuples of an interval come at once."""
        return super().sizes(i) | ({i: self.interval * self.inputs[i].rate} if self.interval else {})

    def scanned(self, bound: Sequence[int], j: int, sizes: Mapping[int, float]) -> float:
        """All of a window, or one bucket."""
        hashed = self.method == "hash" and self.linked(bound, j)
        return sizes[j] / self.buckets if hashed else sizes[j]

    def path_cost(self, i: int, order: Sequence[int]) -> float:
        """Per unit of time, whatever the interval."""
        whole = super().path_cost(i, order)
        return whole / self.inputs[i].rate / self.interval if self.interval else whole


def on_one_attribute(rows: Iterable[tuple[float, float, float]]) -> tuple[WindowStatistics, ...]:
    """Inputs joined on one common attribute, as the papers' tables give them: (rate, window, distinct values).

    >>> [i.size for i in on_one_attribute([(10, 100, 500), (1, 100, 50)])]
    [1000, 100]
    """
    return tuple(WindowStatistics(rate, window, {"a": v}) for rate, window, v in rows)


def exhaustive_order(model: JoinModel, cost: Callable[[Order], float] | None = None) -> Order:
    """The cheapest global order that respects the join graph."""
    price = cost or model.global_cost
    everyone = range(len(model.inputs))
    return min((o for o in permutations(everyone) if respects(model, o)), key=price)


def best_lazy_orders(model: PaperModel) -> tuple[Order, ...]:
    """The cheapest order of each input where its new tuples need not come first (general lazy join)."""
    everyone = range(len(model.inputs))
    return tuple(best_path(model, i, everyone if model.interval else [i]) for i in everyone)


def naive_cost(model: JoinModel, order: Sequence[int]) -> float:
    """Cost of the naive join: every input follows the same order, wherever its new tuples stand in it."""
    return sum(model.path_cost(i, order) for i in range(len(model.inputs)))
