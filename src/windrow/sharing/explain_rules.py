"""By which synopsis a query over one stream is answered, and by which rules it shares with whom, for EXPLAIN.

The rules are those of `rules.py`, asked of a query and each of the others over its rows. What the family does follows
from its cells and entries and not from them; they say in the thesis's words why it may.

Cost: a few tests for each of the first `MOST_OTHERS` others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow.sharing.conditions import Condition
from windrow.sharing.covers import Term, Terms
from windrow.sharing.member import Member
from windrow.sharing.rules import (
    AggregateSpec,
    SynopsisSpec,
    cs1,
    cs2,
    cs3,
    cs6,
    cs7,
    cs8,
    ss1,
    ss2,
    ss4,
    synopsis_of,
    worth_covering,
)
from windrow.sharing.synopses import SynopsisKind, kind_of

MOST_OTHERS = 256
"""Others of which rules are asked."""
MOST_COVERING = 32
"""Others whose predicates may be put together to a query's."""


def synopsis_and_rules(mine: Member, others: Sequence[Member]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The synopsis that answers a query as it runs with the others, and {rule: names of those it shares with}."""
    spec, rest = _spec(mine), [_spec(m) for m in others[:MOST_OTHERS]]
    same = [q for q in rest if (q.predicate, q.keys) == (spec.predicate, spec.keys)]
    held = _held([spec, *(q for q in same if q.data & spec.data)])
    found: dict[str, list[str]] = {}
    for other in same:
        for rule in _pairwise(spec, other, held.kind):
            found.setdefault(rule, []).append(other.name)
    found |= _averages(spec, same) | _covered(spec, [q for q in rest if q.predicate != spec.predicate])
    synopsis = {"kind": held.kind.value, "interval": held.interval, "intervals": held.intervals}
    return synopsis, dict(sorted(found.items(), key=lambda rule: (rule[0][2:], rule[0])))


def terms_of(condition: Condition) -> Terms | None:
    """A condition as a disjunction of terms; None if it is none.

    >>> terms_of(Condition(((),))) is None
    True
    """
    if any(len(box) != 1 for box in condition.boxes):
        return None
    return frozenset(
        Term(attribute.sql, low, high)
        for ((attribute, values),) in condition.boxes
        for low, high in values.spans
    )  # fmt: skip


def _spec(member: Member) -> AggregateSpec:
    window, kind = member.window, member.kind
    keys = (kind.keys, window.offset, window.lag)
    return AggregateSpec(
        member.name, "", member.condition, (window.range,), window.slide, kind.calls, keys, terms_of(member.condition),
        kind.above,
    )  # fmt: skip


def _held(queries: Sequence[AggregateSpec]) -> SynopsisSpec:
    """The synopsis of queries that run together, of the kind that is cheapest for the first."""
    probe = synopsis_of(queries, SynopsisKind.RUNNING)
    return synopsis_of(queries, kind_of(queries[0].calls, probe.intervals, len(queries)))


def _pairwise(mine: AggregateSpec, other: AggregateSpec, kind: SynopsisKind) -> list[str]:
    """The rules by which two queries over the same rows share."""
    both, found = [mine, other], list[str]()
    held = synopsis_of(both, kind)
    one_data = mine.data <= other.data or other.data <= mine.data
    if one_data and all(ss1(held, q) for q in both):
        found += ["SS1", *(["CS1"] if cs1(held, both) else []), *(["CS2"] if cs2(held, both) else [])]
    if cs8(mine, other) or cs8(other, mine):
        found.append("CS8")
    return found


def _averages(mine: AggregateSpec, same: Sequence[AggregateSpec]) -> dict[str, list[str]]:
    """SS2 and CS3: averages, and the sums and counts that they are made of."""
    alike = [q for q in same if all(c.kind in ("sum", "count", "avg") for c in q.calls) and q.data & mine.data]
    group = [mine, *alike]
    averages = [q for q in group if {c.kind for c in q.calls} == {"avg"}]
    if not averages or not alike:
        return {}
    held = synopsis_of(group, SynopsisKind.RUNNING)
    found = {"SS2": [q.name for q in alike]} if all(ss2(held, held, q) for q in averages) else {}
    equal = [q for q in alike if q.windows == mine.windows]
    return found | ({"CS3": [q.name for q in equal]} if cs3(held, held, [mine, *equal]) else {})


def _covered(mine: AggregateSpec, others: Sequence[AggregateSpec]) -> dict[str, list[str]]:
    """SS4, CS6 and CS7: others whose predicates, put together, are the query's, where reading them all pays."""
    aligned = [q for q in others if q.terms is not None and q.data >= mine.data and q.keys == mine.keys]
    aligned = aligned[:MOST_COVERING]
    if mine.terms is None or not aligned:
        return {}
    whole = synopsis_of([mine, *aligned], SynopsisKind.RUNNING)
    kind = kind_of(mine.calls, whole.intervals, 1 + len(aligned))
    synopses = {
        q.name: SynopsisSpec(kind, q.rows, q.predicate, whole.interval, whole.intervals, q.data, 0, q.keys, q.terms)
        for q in aligned
    }
    relevant = ss4(mine, synopses)
    if relevant is None or not worth_covering(mine, relevant, whole.interval):
        return {}
    names = sorted((*relevant.together, *relevant.without))
    found = {"SS4": names}
    if cs6(mine, relevant, synopses, [q for q in aligned if q.name in names]):
        found["CS6"] = names
    return found | ({"CS7": names} if cs7(relevant, synopses) else {})
