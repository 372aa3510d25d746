"""The period of a query that comes while others run: theirs stay as they are.

A scheduler that plans a workload at once may shorten any period. In a running engine slices are cut and answers are
numbered by periods, so only the query that comes has a choice: aggressively, the least period of its group; by cost,
the period up to its own at which all of them together cost least. Those that run at the same instant read what they
share once, as deep as the deepest of them:

    instant     0    1    2    3    4    5         periods 2 (depth 9), 3 (depth 14)
    depth      14    -    9   14    9    -         46 in 6 instants: 7.67

Law: a period p <= n / 2 is never needed, since 2p <= n runs at a subset of the same instants. So the candidates of a
period n are the integers in (n/2, n].

Never long: periods are counted in their greatest common divisor, and those that are too many of them are left alone;
cost looks at most `HORIZON` instants ahead (the least common multiple of 1..50 is 3e20), at `CANDIDATES` periods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import gcd, lcm

import numpy as np

from windrow.schedule.technique import Forming

CANDIDATES = 32

FINISH = 0.25
"""What finishing an answer costs while nothing is known: this share of reading it."""

HORIZON = 10_080
"""Instants that are looked at when the periods' least common multiple is longer: itself a multiple of 1 to 10."""


def period_on_arrival(
    forming: Forming, period: int, depth: float, others: Sequence[tuple[int, float]], finish: float | None = None
) -> int:
    """The period at which a query is to run, with (period, depth) of the others; `finish` in units of depth.

    >>> period_on_arrival(Forming.HYBRID, 5, 29, [(2, 9), (2, 14)], 0), period_on_arrival(Forming.HYBRID, 7, 9, [])
    (4, 7)
    >>> period_on_arrival(Forming.GROUP, 5, 29, [(2, 9), (3, 14)])
    2
    """
    if not others or forming is Forming.SUB_GROUP:
        return period
    if forming is Forming.GROUP:
        return min([p for p, _ in others if p <= period], default=period)
    unit = gcd(period, *(p for p, _ in others))
    if max(period, *(p for p, _ in others)) // unit > HORIZON // 4:
        return period
    known = [(p // unit, d) for p, d in others]
    ending = FINISH * depth if finish is None else finish

    def cost(tried: int) -> tuple[float, int]:
        return _reading([(tried, depth), *known]) + ending / tried, -tried  # what the others' end costs is the same

    return unit * min(candidates(period // unit, {p for p, _ in known}), key=cost)


def _reading(queries: Sequence[tuple[int, float]]) -> float:
    """What reading costs per instant, with (period, depth) of all."""
    length, _ = horizon(p for p, _ in queries)
    deepest = np.zeros(length)
    for period, depth in queries:
        seen = deepest[::period]
        np.maximum(seen, depth, out=seen)
    return float(deepest.sum()) / length


def horizon(periods: Iterable[int]) -> tuple[int, bool]:
    """How many instants to look at, and whether that is a whole hyperperiod.

    >>> horizon([2, 3, 5]), horizon(range(1, 51))
    ((30, True), (10080, False))
    """
    length = 1
    for period in periods:
        length = lcm(length, period)
        if length > HORIZON:
            return HORIZON, False
    return length, True


def candidates(period: int, others: Collection[int]) -> list[int]:
    """Periods to try in place of one, the longest first; `others` that there are, if not all can be tried.

    >>> candidates(5, [])
    [5, 4, 3]
    """
    every = range(period, period // 2, -1)
    if len(every) <= CANDIDATES:
        return list(every)
    common = {period // m * m for m in others if m < period}  # the greatest multiple of m up to the period
    common |= {m // k for m in others if m > period for k in (-(-m // period),) if m % k == 0}  # the greatest divisor
    return [period, *sorted((m for m in common if period // 2 < m < period), reverse=True)][:CANDIDATES]
