"""What evaluations of queries with deadlines cost, as measured.

A joint run of a group reads its synopsis as deep as the longest window needs and finishes every answer:

    seconds = read * depth + finish * answers

`read` and `finish` are fitted to what runs took, recent ones more, neither negative. While all runs look alike the two
cannot be told apart; then reading has what there is, which is on the safe side for one query and never for many.
Cost: a few numbers per group and tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windrow.sharing.member import Spent

FORGET = 0.9
"""The weight of what was known before a tick."""
ALIKE = 1e-6
"""Below this, relative to its size, a determinant is nought."""


@dataclass(frozen=True)
class RunCost:
    """Seconds per unit of depth and per answer."""

    read: float = 0.0
    finish: float = 0.0


@dataclass
class _Fit:
    """Weighted sums of squares and products, of (depth, answers) and seconds."""

    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 2)))
    seconds: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))

    def add(self, spent: Spent) -> None:
        x = np.array([spent.depth, spent.answers], np.float64)
        self.squares = FORGET * self.squares + np.outer(x, x)
        self.seconds = FORGET * self.seconds + x * spent.seconds

    def cost(self) -> RunCost:
        """The least squares, with neither part negative."""
        (dd, da), (_, aa) = self.squares.tolist()
        sd, sa = self.seconds.tolist()
        alone = RunCost(read=sd / dd) if dd else RunCost(finish=sa / aa if aa else 0.0)
        whole = dd * aa - da * da
        if not dd or whole <= ALIKE * dd * aa:
            return alone
        read, finish = (sd * aa - sa * da) / whole, (sa * dd - sd * da) / whole
        if read < 0:
            return RunCost(finish=sa / aa)
        return alone if finish < 0 else RunCost(read, finish)


def longest_by_stage(spent: Iterable[tuple[int, Mapping[str, Spent]]]) -> dict[str, Spent]:
    """What each group took, given (stage, by group) of every task: in each stage the task in which it took longest.

    >>> longest_by_stage([(1, {"g": Spent(9, 2, 0.5)}), (1, {"g": Spent(9, 2, 0.25)}), (2, {"g": Spent(0, 0, 1.0)})])
    {'g': Spent(depth=9, answers=2, seconds=1.5)}
    """
    longest: dict[tuple[int, str], Spent] = {}
    for stage, mine in spent:
        for group, each in mine.items():
            if (stage, group) not in longest or each.seconds > longest[stage, group].seconds:
                longest[stage, group] = each
    found: dict[str, Spent] = {}
    for (_, group), each in sorted(longest.items()):
        found[group] = found.get(group, Spent()) + each
    return found


@dataclass
class EvaluationCosts:
    """The costs of all groups."""

    groups: dict[str, RunCost] = field(default_factory=dict)
    _fits: dict[str, _Fit] = field(default_factory=dict)

    def observe(self, spent: Mapping[str, Spent]) -> None:
        """Take in what each group spent in a tick."""
        for group, each in spent.items():
            fit = self._fits.setdefault(group, _Fit())
            fit.add(each)
            self.groups[group] = fit.cost()
