"""What a multi-way window join costs per unit of time, by order (TR CS-2003-01 section 4 and appendix A, thesis 5.3.1).

A new tuple of one window meets the others one after the other; the cost is the number of tuples looked at. With
phi(S) the expected size of the join of the windows in S, an order O for new tuples of input i costs

    sum over k >= 2 of  phi(O_1 .. O_k-1) * scanned(O_k)

where input i counts with its new tuples only. Under containment of value sets phi depends on the set alone: for each
class of equal columns, the product of all distinct counts but the least one divides the product of the sizes. So the
best order of each input can be found over subsets, exactly (`optimize/order_joins.py`).

A window is met by key: matches are found by binary search, and nothing else is touched; without a common column all of
it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class WindowStatistics:
    """A window: arrivals per unit of time, its length in units, distinct values of each class of columns.

    `rows` is the number of tuples where it is not rate times length (count-based windows, tables).
    """

    rate: float
    window: float
    values: Mapping[str, float] = field(default_factory=dict)
    rows: float | None = None

    @property
    def size(self) -> float:
        """Tuples in the window."""
        return self.rate * self.window if self.rows is None else self.rows


@dataclass(frozen=True)
class JoinModel:
    """The costs of one join; `residual`: the share of pairs that other predicates keep.

    >>> table5 = [(10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5)]
    >>> model = JoinModel(tuple(WindowStatistics(rate, window, {"a": v}) for rate, window, v in table5))
    >>> model.phi((0, 1)), model.global_cost((0, 1, 2, 3))
    (200.0, 313.0)
    """

    inputs: tuple[WindowStatistics, ...]
    residual: Mapping[frozenset[int], float] = field(default_factory=dict)

    # sizes

    def held(self, i: int) -> float:
        """Tuples of an input that others meet."""
        return self.inputs[i].size

    def sizes(self, i: int) -> dict[int, float]:
        """What each input counts for where new tuples of input i are completed, by one."""
        return {j: self.held(j) for j in range(len(self.inputs))} | {i: 1.0}

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
            result *= self.held(i) if sizes is None else sizes[i]
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
        if not self.linked(bound, j):
            return sizes[j]
        return 1.0 + self.phi([*bound, j], sizes) / max(self.phi(bound, sizes), 1e-300)

    # costs

    def path_cost(self, i: int, order: Sequence[int]) -> float:
        """Cost per unit of time of the new tuples of input i; `order` names all inputs, i wherever it is to stand."""
        sizes = self.sizes(i)
        total = 0.0
        for k in range(1, len(order)):
            bound = order[:k]
            total += self.phi(bound, sizes) * self.scanned(bound, order[k], sizes)
        return total * self.inputs[i].rate

    def global_cost(self, order: Sequence[int]) -> float:
        """Cost of one global order: new tuples go first, the rest follows the order (eager and lazy multi-way join)."""
        return sum(self.path_cost(i, (i, *(j for j in order if j != i))) for i in range(len(self.inputs)))

    def general_cost(self, orders: Sequence[Sequence[int]]) -> float:
        """Cost of the general join: input i follows `orders[i]`."""
        return sum(self.path_cost(i, order) for i, order in enumerate(orders))
