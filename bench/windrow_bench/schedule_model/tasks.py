"""Queries as periodic tasks: what reading them costs, alone and together, and how they are put into tasks.

A query reads synopses, each to some depth, and then finishes its answer. Queries of one group may run together (rules
CS1 to CS7): a joint run reads every synopsis once, as deep as the deepest of them needs, and finishes each answer:

    cost(run) = sum over synopses of the greatest depth + sum over queries of their finish

This is CS2 when all read one basic interval synopsis (shorter windows are met on the way), CS1 when the depth of a
window is a synopsis of its own, CS3 when an average reads the sums and the counts, CS6 and CS7 when a query reads
the synopses of its candidates.

A sub-group has the queries of a group with equal periods. By CS8 a query that equals another but for a longer period
takes that one's answers: it has the other's period and costs nothing, until the other leaves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PeriodicQuery:
    """A query that wants to run at least every `period` updates; `group`: those it may run together with.

    `twin`: what it computes, the same for queries that differ in their periods only.
    """

    name: str
    group: Hashable
    period: int
    reads: Mapping[Hashable, float] = field(default_factory=dict, hash=False)
    finish: float = 0.0
    twin: Hashable = None

    def __post_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"{self.name} has a period of {self.period} updates")


@dataclass(frozen=True)
class SubGroup:
    """Queries of one group with equal periods: they always run together."""

    group: Hashable
    period: int
    queries: tuple[str, ...]
    reads: Mapping[Hashable, float] = field(hash=False)
    finish: float

    @property
    def cost(self) -> float:
        """What one run of it alone costs."""
        return sum(self.reads.values()) + self.finish


@dataclass(frozen=True)
class Task:
    """Sub-groups that run together every `period` updates, which none of them finds too long."""

    group: Hashable
    period: int
    parts: tuple[SubGroup, ...]

    def __post_init__(self) -> None:
        if any(self.period > part.period for part in self.parts):
            raise ValueError(f"a task every {self.period} updates is too rare for its queries")

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(q for part in self.parts for q in part.queries)


def sub_groups(queries: Iterable[PeriodicQuery]) -> list[SubGroup]:
    """The sub-groups of all groups, in the order of groups' first queries and then by period.

    >>> one, two = (PeriodicQuery(n, "g", p, {"s": d}) for n, p, d in (("a", 2, 9), ("b", 2, 4)))
    >>> [(s.period, s.queries, s.cost) for s in sub_groups([one, two])]
    [(2, ('a', 'b'), 9.0)]
    """
    given = list(queries)
    leaders = _leaders(given)
    members: dict[Hashable, dict[int, list[PeriodicQuery]]] = {}
    for query in given:
        period = leaders[query.name].period
        members.setdefault(query.group, {}).setdefault(period, []).append(query)
    found = []
    for group, periods in members.items():
        for period in sorted(periods):
            mine = periods[period]
            own = [q for q in mine if leaders[q.name] is q]
            found.append(SubGroup(group, period, tuple(q.name for q in mine), deepest(own), _finishing(own)))
    return found


def _leaders(queries: Sequence[PeriodicQuery]) -> dict[str, PeriodicQuery]:
    """Whose answers each query takes (CS8): its own, or those of its most frequent twin."""
    first: dict[Hashable, PeriodicQuery] = {}
    for query in queries:
        if query.twin is not None:
            key = (query.group, query.twin)
            if key not in first or query.period < first[key].period:
                first[key] = query
    return {q.name: q if q.twin is None else first[q.group, q.twin] for q in queries}


def deepest(readers: Iterable[PeriodicQuery | SubGroup]) -> dict[Hashable, float]:
    """How deep each synopsis is read when all of them run together."""
    found: dict[Hashable, float] = {}
    for reader in readers:
        for synopsis, depth in reader.reads.items():
            found[synopsis] = max(float(depth), found.get(synopsis, 0.0))
    return found


def _finishing(readers: Iterable[PeriodicQuery | SubGroup]) -> float:
    return sum((r.finish for r in readers), 0.0)
