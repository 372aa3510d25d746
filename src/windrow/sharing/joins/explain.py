"""What EXPLAIN says about a shared join: the pairs, the synopsis, with whom, and by which rules.

shared      true
technique, queries, join
synopsis    {"kind", "difference", "intervals", "windows"}
rules       {rule: names of the others}
with        {"join", "synopsis"}: names of the others
saves       {"joins", "instead_of", "rows", "pairs", "answers"}
"""

from __future__ import annotations

from typing import Any

from windrow.plan.cost import unit_of
from windrow.plan.nodes import QueryPlan
from windrow.plan.words import duration
from windrow.sharing.joins.members import JoinMember
from windrow.sharing.joins.readers import ResultGrouping
from windrow.sharing.joins.registry import JoinFamily, JoinRegistry
from windrow.sharing.joins.synopsis import cheapest
from windrow.sharing.rules import AggregateSpec, cs4, cs5, cs8, ss3, synopsis_of
from windrow.sharing.synopses import SynopsisKind

SHOWN = 5
"""Names listed before the rest is only counted."""


def sharing_of_join(joins: JoinRegistry, plan: QueryPlan, technique: str) -> dict[str, Any]:
    """How a query shares its join."""
    mine = joins.served[plan.name]
    family = joins.families[mine.query.source]
    others = [e.member for e in family.joined.values() if e.member.name != plan.name]
    same = [m for m in others if _reader_group(m) == _reader_group(mine.member)]
    kind = _kind(family, [mine.member, *same])
    found = {
        "shared": True,
        "technique": technique,
        "queries": len(family),
        "join": mine.query.source.name,
        "synopsis": _synopsis(mine.member, same, kind),
        "rules": _rules(mine.member, others, kind),
        "with": {"join": [m.name for m in others], "synopsis": [m.name for m in same]},
        "saves": _saved(family),
    }
    return found | {"text": _lines(found, mine.member, unit_of(plan))}


def spec_of(member: JoinMember) -> AggregateSpec:
    """A member as the rules see it."""
    keys = (member.keys, member.counted)
    return AggregateSpec(
        member.name, "", member.filters, member.ranges, member.slide, member.calls, keys, shown=member.above
    )


def _reader_group(member: JoinMember) -> object:
    return (member.filters, ResultGrouping(member.keys, member.counted))


def _kind(family: JoinFamily, together: list[JoinMember]) -> SynopsisKind:
    """The synopsis that is cheapest for queries that read one, by what the join has done so far.

    A sweep decides by what it finds (`synopsis.cheapest`); with groups it is a BIJ of each.
    """
    if together[0].keys or together[0].counted:
        return SynopsisKind.BASIC_INTERVAL_JOIN
    intervals = synopsis_of([spec_of(m) for m in together], SynopsisKind.BASIC_INTERVAL_JOIN).intervals
    done, queries = family.counters, len(family)
    results, instants = (done.partials, done.answers / queries) if done.answers else (intervals, 1.0)
    sums_only = not any(m.codes for m in together)
    return cheapest(results, instants, instants * len(together), intervals, sums_only)


def _synopsis(member: JoinMember, same: list[JoinMember], kind: SynopsisKind) -> dict[str, Any]:
    spec = synopsis_of([spec_of(m) for m in (member, *same)], kind)
    return {
        "kind": spec.kind.value,
        "difference": member.ranges[1] - member.ranges[0],
        "differences": len(spec.differences),
        "interval": spec.interval,
        "intervals": spec.intervals,
        "windows": len({m.ranges for m in (member, *same)}),
    }


def _rules(member: JoinMember, others: list[JoinMember], kind: SynopsisKind) -> dict[str, list[str]]:
    """By which rule each other shares with a member."""
    found: dict[str, list[str]] = {}
    mine = spec_of(member)
    for other in others:
        theirs = spec_of(other)
        together = [mine, theirs]
        if (mine.predicate, mine.keys) != (theirs.predicate, theirs.keys):
            continue
        held = synopsis_of(together, kind)
        if all(ss3(held, q) for q in together):
            found.setdefault("SS3", []).append(other.name)
        if cs5(held, together):
            found.setdefault("CS5", []).append(other.name)
        if cs4(held, together):
            found.setdefault("CS4", []).append(other.name)
        if cs8(mine, theirs) or cs8(theirs, mine):
            found.setdefault("CS8", []).append(other.name)
    return found


def _saved(family: JoinFamily) -> dict[str, Any]:
    done = family.counters
    return {
        "joins": 1, "instead_of": len(family), "rows": done.rows, "pairs": done.partials, "answers": done.answers,
    }  # fmt: skip


def _lines(found: dict[str, Any], member: JoinMember, unit: int) -> list[str]:
    synopsis, saves, others = found["synopsis"], found["saves"], found["with"]
    first, second = (duration(r, unit) for r in member.ranges)
    kept = f"{synopsis['kind']}, up to {synopsis['intervals']:,} intervals of {duration(synopsis['interval'], unit)}"
    kept += f", {synopsis['windows']} windows"
    if synopsis["differences"] > 1 or synopsis["difference"]:
        kept += f", {synopsis['differences']} differences of their lengths"
    lines = [
        f"windows: {first} and {second}, every {duration(member.slide, unit)}",
        f"synopsis: {kept}",
        f"shares its join with {listed(others['join'])}",
        f"shares its synopsis with {listed(others['synopsis'])}",
        *(f"rule {rule}: {listed(names)}" for rule, names in found["rules"].items()),
        f"saves: {saves['instead_of']} joins become 1"
        + (f"; so far {saves['rows']:,} rows, {saves['pairs']:,} pairs" if saves["rows"] else ""),
    ]
    head = f"sharing: {found['technique']}, one join for {found['queries']} queries over {found['join']}"
    return [head, *(f"  {line}" for line in lines)]


def listed(names: list[str]) -> str:
    """Some names, and how many more there are."""
    if not names:
        return "nobody"
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
