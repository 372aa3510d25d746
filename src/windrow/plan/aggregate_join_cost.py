"""What each plan of an aggregation join costs per tick, and which to follow.

For m inputs there are 2**m plans: aggregate early on some inputs, late on the rest. With E_i the changes of input i per
tick and N_j the entries of input j (groups of its entry columns if it aggregates early, else its rows), a change of i
meets

    M_i = product over the other inputs of N_j, times the share of combinations that join

entries. The cost of a plan is the sum over inputs of `EVENT` for taking a change in (`LOOKUP` more if it aggregates
early, for finding its entry) and `MEETING` for every entry met. In a periodic query an early aggregation sums up all
changes of an entry between two evaluations first, so E_i is at most the entries over the period: the answer then comes
from the aggregation sets alone.

MIN and MAX below the join (`operators/early_extremes.py`) change fewer entries than there are rows, for the price of
keeping groups: `early_extremes_pay` weighs the two.

Constants are microseconds measured on one core; only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from windrow.operators.aggregate_join_figures import PlanChoice, SideFigures
from windrow.plan.join_cost import JoinModel, WindowStatistics

EVENT = 1.5
LOOKUP = 0.1
MEETING = 0.35
GAIN = 0.85
"""A running operator changes its plan when the new one costs less than this share of the old."""

KEPT, CHANGED, PASSED = 0.15, 1.2, 0.23
"""A row that leaves its group's best value as it is, one that changes it, and an event of a row that passes by."""

TRUST = 100.0
"""What was seen may be so many times more or less than expected."""


def plans(inputs: int) -> list[str]:
    """All plans, late aggregation first.

    >>> plans(2)
    ['00', '01', '10', '11']
    """
    return ["".join(bits) for bits in product("01", repeat=inputs)]


def _model(plan: str, sides: Sequence[SideFigures]) -> JoinModel:
    sizes = [s.entries if bit == "1" else s.rows for s, bit in zip(sides, plan, strict=True)]
    # values of a class are as many as before, but no more than there are entries
    inputs = [
        WindowStatistics(s.rate, 1.0, {c: min(v, n) for c, v in s.values.items()}, rows=n)
        for s, n in zip(sides, sizes, strict=True)
    ]
    return JoinModel(tuple(inputs))


def _matches(plan: str, sides: Sequence[SideFigures]) -> list[float]:
    """The entries that a change of each input meets, if keys are independent and uniform."""
    model, everything = _model(plan, sides), range(len(sides))
    sizes = [i.size for i in model.inputs]
    return [model.phi(everything, {j: 1.0 if j == i else sizes[j] for j in everything}) for i in everything]


def plan_cost(
    plan: str, sides: Sequence[SideFigures], period: int | None = None, seen: Sequence[float] | None = None
) -> float:
    """The cost of one plan per tick; `seen`: how many times more than expected each input's changes really meet."""
    total = 0.0
    for side, bit, met, more in zip(sides, plan, _matches(plan, sides), seen or (1.0,) * len(sides), strict=True):
        arriving = 2 * side.rate  # every row comes and goes
        changes = arriving
        if bit == "1" and period is not None:
            changes = min(arriving, 2 * side.entries / period)
        total += arriving * (EVENT + (LOOKUP if bit == "1" else 0.0)) + changes * MEETING * met * more
    return total


def early_extremes_pay(changing: float) -> bool:
    """Whether MIN and MAX are better kept below the join, when this share of rows changes a best value.

    A change is two events for the join, as a row is that passes; each meets at least one entry.

    >>> early_extremes_pay(0.1), early_extremes_pay(0.9)
    (True, False)
    """
    event = PASSED + MEETING
    return KEPT + changing * (CHANGED + 2 * event) < 2 * event


def choose_plan(sides: Sequence[SideFigures], current: str, period: int | None = None) -> PlanChoice:
    """The plan to follow: the one in use unless another is clearly cheaper.

    What changes really met under the plan in use corrects what is expected of all plans: residual predicates, skew and
    correlation are in it.
    """
    expected = _matches(current, sides)
    seen = [
        1.0 if s.met is None else min(max((s.met + 1e-3) / (e + 1e-3), 1 / TRUST), TRUST)
        for s, e in zip(sides, expected, strict=True)
    ]
    costs = {plan: plan_cost(plan, sides, period, seen) for plan in plans(len(sides))}
    best = min(costs, key=lambda p: (costs[p], p))
    return PlanChoice(best if costs[best] < GAIN * costs[current] else current, costs)
