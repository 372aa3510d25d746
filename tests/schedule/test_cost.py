"""Costs of schedules: the thesis's example to the digit, and hybrid periods against all others."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import product
from math import gcd, lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.schedule.arrival import FINISH, candidates, period_on_arrival
from windrow.schedule.technique import Forming
from windrow_bench.schedule_model.cost import cost_per_update
from windrow_bench.schedule_model.hybrid import hybrid_periods
from windrow_bench.schedule_model.tasks import PeriodicQuery, SubGroup, sub_groups
from windrow_bench.schedule_model.technique import AGGRESSIVE, CONSERVATIVE, HYBRID
from windrow_bench.schedule_simulation import joint_cost, shortened


def test_the_sub_groups_of_the_example(example: list[PeriodicQuery]) -> None:
    """8.4.4: three sub-groups that cost 9, 14 and 29 comparisons."""
    assert [(p.period, p.cost) for p in sub_groups(example)] == [(2, 9), (3, 14), (5, 29)]


@pytest.mark.parametrize(
    ("periods", "cost"),
    [
        ((2, 3, 5), Fraction(358, 30)),  # conservative: 11.93, not the printed 11.63
        ((2, 2, 5), Fraction(114, 10)),
        ((2, 2, 2), Fraction(145, 10)),
        ((2, 3, 3), Fraction(38, 3)),
        ((2, 3, 2), Fraction(101, 6)),
        ((2, 2, 4), Fraction(43, 4)),
    ],
)
def test_the_costs_of_the_example(example: list[PeriodicQuery], periods: tuple[int, ...], cost: Fraction) -> None:
    """8.4.4: the five schedules of the thesis as recomputed, and the best of all."""
    assert cost_per_update(sub_groups(example), periods) == pytest.approx(float(cost), abs=1e-12)


def test_two_sub_groups_apart_and_together(example: list[PeriodicQuery]) -> None:
    """8.4.4: the first two cost 7.67 at their own periods and 7 together."""
    two = sub_groups(example)[:2]
    assert cost_per_update(two) == pytest.approx(46 / 6)
    assert cost_per_update(two, (2, 2)) == 7


def test_hybrid_chooses_as_the_thesis_and_better(example: list[PeriodicQuery]) -> None:
    """Periods of other sub-groups: 2, 2, 5. Any periods: 2, 2, 4."""
    parts = sub_groups(example)
    assert hybrid_periods(parts, borrowed=True) == [2, 2, 5]
    assert hybrid_periods(parts) == [2, 2, 4]


def test_tasks_of_the_example(example: list[PeriodicQuery]) -> None:
    """Aggressive is one task every 2, conservative three, hybrid two of which one has two sub-groups."""
    assert [t.period for t in AGGRESSIVE.tasks(example)] == [2]
    assert [t.period for t in CONSERVATIVE.tasks(example)] == [2, 3, 5]
    assert [(t.period, len(t.parts), shortened(t)) for t in HYBRID.tasks(example)] == [(2, 2, 1), (4, 1, 1)]


parts_lists = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 20), st.integers(0, 4)), min_size=1, max_size=4
).map(lambda rows: [SubGroup("g", n, (f"q{i}",), {"s": a, "t": b}, float(f)) for i, (n, a, b, f) in enumerate(rows)])


def by_definition(parts: list[SubGroup], periods: tuple[int, ...]) -> Fraction:
    """Walk a hyperperiod update by update."""
    length = lcm(*periods)
    total = Fraction(0)
    for now in range(length):
        due = [p for p, n in zip(parts, periods, strict=True) if now % n == 0]
        total += Fraction(joint_cost(due)) if due else 0
    return total / length


@settings(deadline=None, max_examples=60)
@given(parts_lists)
def test_cost_is_the_mean_over_a_hyperperiod(parts: list[SubGroup]) -> None:
    """The cost per update equals a walk by the definition of a joint run."""
    periods = tuple(p.period for p in parts)
    assert cost_per_update(parts) == pytest.approx(float(by_definition(parts, periods)))


@settings(deadline=None, max_examples=40)
@given(parts_lists)
def test_hybrid_is_the_best_of_all_integer_periods(parts: list[SubGroup]) -> None:
    """No choice of periods up to the asked ones costs less."""
    best = min(cost_per_update(parts, c) for c in product(*(range(1, p.period + 1) for p in parts)))
    found = hybrid_periods(parts)
    assert all(a <= p.period for a, p in zip(found, parts, strict=True))
    assert cost_per_update(parts, found) == pytest.approx(best)


def test_periods_of_different_groups_do_not_meet() -> None:
    """Sub-groups of two groups cost their sum, whatever their periods."""
    one, two = SubGroup("g", 2, ("a",), {"s": 4}, 0), SubGroup("h", 2, ("b",), {"s": 4}, 0)
    assert cost_per_update([one, two]) == 4
    assert hybrid_periods([one, SubGroup("h", 3, ("b",), {"s": 9}, 0)]) == [2, 3]


def test_exploding_multiples_do_not_hang() -> None:
    """60 coprime periods near a million: planned within seconds, no dearer than apart."""
    primes = [p for p in range(1_000_003, 1_001_500) if all(p % d for d in range(2, 1002))][:60]
    parts = [SubGroup("g", p, (str(p),), {"s": 10 + p % 90}, 1.0) for p in primes]
    begin = time.monotonic()
    found = hybrid_periods(parts)
    assert time.monotonic() - begin < 10
    assert all(a <= p.period for a, p in zip(found, parts, strict=True))
    assert cost_per_update(parts, found) <= cost_per_update(parts)


def test_candidates_of_long_periods_meet_others() -> None:
    """A period of a thousand tries multiples and divisors of the others'."""
    parts = [SubGroup("g", n, (), {}, 0) for n in (1000, 300, 1700)]
    assert candidates(1000, {p.period for p in parts}) == [1000, 900, 850]


@given(
    st.integers(1, 30),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 50)), min_size=1, max_size=4),
    st.sampled_from([None, 0.0, 3.0]),
)
def test_a_query_that_comes_gets_the_cheapest_period(
    period: int, depth: int, others: list[tuple[int, float]], finish: float | None
) -> None:
    """While the others stay as they are no period up to its own costs less, by the model of whole workloads."""
    got = period_on_arrival(Forming.HYBRID, period, depth, others, finish)
    both = [
        SubGroup("g", p, (str(i),), {"s": d}, FINISH * d if finish is None else finish)
        for i, (p, d) in enumerate([(period, depth), *others])
    ]
    own = [p for p, _ in others]
    costs = {tried: cost_per_update(both, [tried, *own]) for tried in range(1, period + 1)}
    step = gcd(period, *own)
    assert costs[got] <= min(c for tried, c in costs.items() if tried % step == 0) + 1e-9


def test_a_period_must_be_positive() -> None:
    """A query that never rests is refused."""
    with pytest.raises(ValueError, match="period of 0"):
        PeriodicQuery("q", "g", 0)


def test_a_twin_with_a_longer_period_takes_the_others_answers() -> None:
    """CS8: it joins the sub-group of its twin at no cost, and is on its own when the twin leaves."""
    often, seldom = PeriodicQuery("a", "g", 2, {"s": 5}, 1.0, "same"), PeriodicQuery("b", "g", 7, {"s": 5}, 1.0, "same")
    (both,) = sub_groups([seldom, often])
    assert (both.period, both.cost, sorted(both.queries)) == (2, 6, ["a", "b"])
    (left,) = sub_groups([seldom])
    assert (left.period, left.cost) == (7, 6)


def test_twins_of_other_groups_are_none() -> None:
    """CS8 asks for the same query: another group is another query."""
    one, two = PeriodicQuery("a", "g", 2, {"s": 5}, 0, "same"), PeriodicQuery("b", "h", 7, {"s": 5}, 0, "same")
    assert [(p.period, p.cost) for p in sub_groups([one, two])] == [(2, 5), (7, 5)]
