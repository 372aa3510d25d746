"""Which place in a shared plan a query has, had when its home was left, has come to or given up.

A place is the plan's name and a number in it; neither is used twice in a home.
"""

from __future__ import annotations

from typing import NamedTuple

from windrow.operators.aggregates.vectors import Int64s
from windrow.sharing.plans.shared_plan import SharedPlan


class MemberChange(NamedTuple):
    """A query that has come to a plan, or left it; `reader`: that it has now, and since when."""

    plan: str
    key: str
    number: int
    start: int | None
    come: bool
    reader: tuple[int, int | None] | None = None


def plan_member(plan: SharedPlan, number: int) -> MemberChange:
    """A query of a plan, as one that comes to it."""
    query, reader = plan.members[number], plan.reader(number)
    told = None if reader is None else (reader.number, reader.start)
    return MemberChange(plan.name, query.key, number, query.start, True, told)


class LeftPlace(NamedTuple):
    """The place that a query had when its home was left."""

    plan: str
    number: int
    start: int | None
    reader: tuple[int, int | None] | None = None


class LeftPlaces(NamedTuple):
    """The places that many queries had in a plan when their home was left; `block`: by what name."""

    plan: str
    block: str
    places: Int64s
    start: int | None
