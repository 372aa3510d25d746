"""What a multi-way window join costs per unit of time, by order (TR CS-2003-01 section 4 and appendix A, thesis 5.3.1).

A new tuple of one window meets the others one after the other; the cost is the number of tuples looked at. With
phi(S) the expected size of the join of the windows in S, an order O for new tuples of input i costs

    sum over k >= 2 of  phi(O_1 .. O_k-1) * scanned(O_k)

where input i counts with its new tuples only. Under containment of value sets phi depends on the set alone: for each
class of equal columns, the product of all distinct counts but the least one divides the product of the sizes. So the
best order of each input can be found over subsets, exactly (`optimize/order_joins.py`).

How a window is met (`method`): `nested` scans all of it, `hash` one of its buckets, `keyed` finds the matches by binary
search and touches nothing else; without a common column every method scans the window. Windows are longer by the
interval when expiration is lazy; evaluation every `interval` units takes all new tuples of the interval at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

METHODS = ("nested", "hash", "keyed")


@dataclass(frozen=True)
class WindowStatistics:
    """A window: arrivals per unit of time, its length in units, distinct values of each class of columns, buckets.

    `rows` is the number of tuples where it is not rate times length (count-based windows, tables).
    """

    rate: float
    window: float
    values: Mapping[str, float] = field(default_factory=dict)
    buckets: int = 1
    rows: float | None = None

    def size(self, interval: float = 0.0) -> float:
        """Tuples in the window, those included that wait for the next expiration."""
        if self.rows is not None:
            return self.rows + self.rate * interval
        return self.rate * (self.window + interval)


@dataclass(frozen=True)
class JoinModel:
    """The costs of one join. `interval` 0 is eager; `residual`: the share of pairs that other predicates keep.

    >>> table5 = [(10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5)]
    >>> model = JoinModel(tuple(WindowStatistics(rate, window, {"a": v}) for rate, window, v in table5))
    >>> model.global_cost((0, 1, 2, 3))
    16000.0
    """

    inputs: tuple[WindowStatistics, ...]
    method: str = "nested"
    interval: float = 0.0
    residual: Mapping[frozenset[int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"no join method is called {self.method}")

    # sizes

    @cached_property
    def _shares(self) -> dict[frozenset[int], float]:
        return {}

    def phi(self, of: Iterable[int], sizes: Mapping[int, float] | None = None) -> float:
        """The expected number of results of the join of these inputs; `sizes` replaces what they hold."""
        members = frozenset(of)
        result = self._shares.get(members)
        if result is None:
            result = self._shares[members] = self._share(members)
        for i in members:
            result *= self.inputs[i].size(self.interval) if sizes is None else sizes[i]
        return result

    def _share(self, members: frozenset[int]) -> float:
        """The share of combinations that join."""
        result = 1.0
        for name in {c for i in members for c in self.inputs[i].values}:
            counts = sorted(max(1.0, self.inputs[i].values[name]) for i in members if name in self.inputs[i].values)
            for v in counts[1:]:
                result /= v
        for pair, share in self.residual.items():
            if pair <= members:
                result *= share
        return result

    @cached_property
    def _links(self) -> tuple[frozenset[int], ...]:
        everyone = range(len(self.inputs))
        return tuple(
            frozenset(i for i in everyone if i != j and self.inputs[i].values.keys() & self.inputs[j].values.keys())
            for j in everyone
        )

    def linked(self, bound: Iterable[int], j: int) -> bool:
        """Whether a column of j equals a column of the inputs already bound."""
        return not self._links[j].isdisjoint(bound)

    def scanned(self, bound: Sequence[int], j: int, sizes: Mapping[int, float]) -> float:
        """Tuples of j that one tuple of the inputs bound so far looks at."""
        held = sizes[j]
        if not self.linked(bound, j):
            return held
        if self.method == "hash":
            return held / self.inputs[j].buckets
        if self.method == "keyed":
            matches = self.phi([*bound, j], sizes) / max(self.phi(bound, sizes), 1e-300)
            return 1.0 + matches
        return held

    # costs

    def path_cost(self, i: int, order: Sequence[int]) -> float:
        """Cost per unit of time of the new tuples of input i; `order` names all inputs, i wherever it is to stand."""
        new = self.interval * self.inputs[i].rate if self.interval else 1.0
        sizes = {j: self.inputs[j].size(self.interval) for j in range(len(self.inputs))} | {i: new}
        total = 0.0
        for k in range(1, len(order)):
            bound = order[:k]
            total += self.phi(bound, sizes) * self.scanned(bound, order[k], sizes)
        return total / self.interval if self.interval else total * self.inputs[i].rate

    def global_cost(self, order: Sequence[int]) -> float:
        """Cost of one global order: new tuples go first, the rest follows the order (eager and lazy multi-way join)."""
        return sum(self.path_cost(i, (i, *(j for j in order if j != i))) for i in range(len(self.inputs)))

    def general_cost(self, orders: Sequence[Sequence[int]]) -> float:
        """Cost of the general join: input i follows `orders[i]`."""
        return sum(self.path_cost(i, order) for i, order in enumerate(orders))
