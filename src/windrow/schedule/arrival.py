"""The period of a query that comes while others run: theirs stay as they are.

A scheduler that plans a workload at once may shorten any period. In a running engine slices are cut and answers are
numbered by periods, so only the query that comes has a choice: aggressively, the least period of its group; by cost,
the period up to its own at which all of them together cost least.

Never long: periods are counted in their greatest common divisor, and those that are too many of them are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from windrow.schedule.cost import HORIZON, cost_per_update
from windrow.schedule.hybrid import candidates
from windrow.schedule.tasks import PeriodicQuery, sub_groups
from windrow.schedule.technique import Forming

FINISH = 0.25
"""What finishing an answer costs while nothing is known: this share of reading it."""


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
    new, *rest = (
        PeriodicQuery(str(i), "", p // unit, {"": d}, FINISH * d if finish is None else finish)
        for i, (p, d) in enumerate([(period, depth), *others])
    )
    (mine,), known = sub_groups([new]), sub_groups(rest)
    own = [part.period for part in known]

    def cost(tried: int) -> tuple[float, int]:
        return cost_per_update([mine, *known], [tried, *own]), -tried

    return unit * min(candidates(mine, known), key=cost)
