"""Covers of predicates by others: which synopses answer a query with a predicate of its own (thesis 8.3.3).

A predicate is a disjunction of terms `attribute op constant`, here the span of an attribute's values in which each
holds. A set of synopses *covers* a query if their terms, put together, are exactly the query's; it is a subcover
(supercover) if they are some of them (more than them). A cover is *disjoint* if no row can satisfy two of its terms.

    Q1  protocol = TCP                     Q1 and Q2 are a disjoint cover of Q3: SUM(Q3) = SUM(Q1) + SUM(Q2)
    Q2  protocol = UDP                     Q3 is a supercover of Q1, and Q2 covers what is too much:
    Q3  protocol = TCP OR protocol = UDP                                       SUM(Q1) = SUM(Q3) - SUM(Q2)
    Q4  protocol = TCP                     Q4 and Q5 cover Q6, but not disjointly:
    Q5  user = U                                                               MAX(Q6) = max(MAX(Q4), MAX(Q5))
    Q6  protocol = TCP OR user = U         a SUM would count a TCP packet of U twice

Functions that count duplicates (SUM, COUNT, counters) need a disjoint cover, MIN and MAX any cover; what can be
subtracted (SUM, COUNT) may also come from a disjoint supercover if what is too much has a disjoint cover.

Finding covers is a search; it stops after `MOST_STEPS` and then finds none, which costs a synopsis and no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

MOST_STEPS = 1024

Bound = int | bytes | None


@dataclass(frozen=True)
class Term:
    """An attribute whose value lies in `[low, high)`; None is without bound."""

    attribute: str
    low: Bound
    high: Bound

    def meets(self, other: Term) -> bool:
        """Whether a row may satisfy both: certain not to only if they test one attribute for other values."""
        if self.attribute != other.attribute:
            return True
        return _below(self.low, other.high) and _below(other.low, self.high)


def _below(low: Bound, high: Bound) -> bool:
    return low is None or high is None or low < high  # type: ignore[operator]


Terms = frozenset[Term]


def disjoint(terms: Iterable[Term]) -> bool:
    """Whether no row can satisfy two of the terms, equal ones included."""
    return not any(a.meets(b) for a, b in combinations(terms, 2))


class Combination(Enum):
    """How answers of synopses make up a query's."""

    SAME = "as it is"
    BEST = "the best of them"
    ADD = "added"
    SUBTRACT = "added, and what is too much subtracted"


@dataclass(frozen=True)
class Relevant:
    """Synopses, by name, that answer a query: those that are put together, and those that are taken away."""

    together: tuple[str, ...]
    without: tuple[str, ...]
    how: Combination

    def __len__(self) -> int:
        return len(self.together) + len(self.without)


def relevant(whole: Terms, known: Mapping[str, Terms], duplicates: bool, subtracts: bool) -> Relevant | None:
    """The fewest synopses that answer a query; None if none do.

    `duplicates`: the function counts a row that is in two of them twice. `subtracts`: it can be subtracted.
    """
    for name, terms in known.items():
        if terms == whole:
            return Relevant((name,), (), Combination.SAME)
    found = min(_covers(whole, known, duplicates), key=len, default=None)
    if found is not None:
        return Relevant(found, (), Combination.ADD if duplicates else Combination.BEST)
    return _by_subtraction(whole, known) if subtracts else None


def _covers(
    whole: Terms, known: Mapping[str, Terms], duplicates: bool, beyond: bool = False
) -> Iterator[tuple[str, ...]]:
    """Sets of synopses that cover the whole; `beyond`: they may have more terms, if all are disjoint."""
    apart = duplicates or beyond
    useful = {n: t for n, t in known.items() if t & whole and (beyond or t <= whole) and (not apart or disjoint(t))}
    having = {term: [n for n, t in useful.items() if term in t] for term in whole}
    stack: list[tuple[str, ...]] = [()]
    for _ in range(MOST_STEPS):
        if not stack:
            return
        chosen = stack.pop()
        taken: Terms = frozenset().union(*(useful[n] for n in chosen))
        left = whole - taken
        if not left:
            yield chosen
            continue
        first = min(left, key=lambda t: (len(having[t]), t.attribute, str(t.low)))
        for name in having[first]:
            if not apart or not any(a.meets(b) for a in useful[name] for b in taken):
                stack.append((*chosen, name))


def _by_subtraction(whole: Terms, known: Mapping[str, Terms]) -> Relevant | None:
    best: Relevant | None = None
    for chosen in _covers(whole, known, duplicates=True, beyond=True):
        extra = frozenset().union(*(known[n] for n in chosen)) - whole
        if not extra:
            continue
        rest = {n: t for n, t in known.items() if n not in chosen}
        without = min(_covers(extra, rest, duplicates=True), key=len, default=None)
        if without is not None and (best is None or len(chosen) + len(without) < len(best)):
            best = Relevant(chosen, without, Combination.SUBTRACT)
    return best
