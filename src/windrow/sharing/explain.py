"""What EXPLAIN says about sharing: the slices, cells and partials a query reads, with whom, and what that saves.

`sharing_of` gives it as plain JSON, with the lines of the text form under `text`:

    shared      whether the query shares; if not, `why` and nothing else
    technique, slicing, queries, rows
    slices      {"own": ticks of each, "common": about how many in a window, "windows": how many different ones}
    cells       {"keys": attributes that are nested, "ranges": those within a key, "predicates": how many are in the
                space, "cells", "inside", "runs"; "boxed": true where cells are tested against boxes}
    bits        [{"predicate", "why"}]: what the index does not analyse
    reads       entries of a synopsis, partials per group, or partials per value
    synopsis    {"kind", "interval", "intervals"}: in the thesis's words
    rules       {rule: names of the others}
    with        {"rows", "cells", "predicate"}: names of the others, of many the first; `others`: how many they are
    saves       {"passes", "instead_of", "least_rate", "rate", "rows", "partials", "read", "answers"}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, repeat
from typing import Any

from windrow.plan.cost import unit_of
from windrow.plan.nodes import QueryPlan
from windrow.plan.words import duration
from windrow.sharing.boxes import Conditions
from windrow.sharing.conditions import bits
from windrow.sharing.explain_rules import synopsis_and_rules
from windrow.sharing.index import PredicateIndex
from windrow.sharing.joins.explain import sharing_of_join
from windrow.sharing.member_columns import MemberColumns
from windrow.sharing.recognise import recognise
from windrow.sharing.registry import Registry, Served
from windrow.sharing.windows import SlideWindow, least_rate, slice_rate, sliced

SHOWN = 5
"""Names listed before the rest is only counted."""

NAMED = 100
"""Names in the JSON form before the rest is only counted."""


def sharing_of(registry: Registry, plan: QueryPlan) -> dict[str, Any]:
    """How a query shares, or why it does not."""
    if plan.name in registry.joins.served:
        return sharing_of_join(registry.joins, plan, registry.sharing)
    if plan.name not in registry.served:
        why = registry.reasons.get(plan.name, "sharing is off" if registry.sharing == "off" else "it is not registered")
        return {"shared": False, "why": why, "text": [f"sharing: none, {why}"]}
    served = registry.served[plan.name]
    index = _index(served)
    k, i = index.home[served.query.member.condition]
    reads = "entries of a synopsis"
    if served.family.joined[plan.name].synopsis is None:
        reads = "partials per group" if served.query.member.kind.keys else "partials per value"
    return _told(registry, served, plan, index, (k, i), reads, _others(served, index))


def sharing_of_instance(registry: Registry, plan: QueryPlan, members: MemberColumns, place: int) -> dict[str, Any]:
    """How one of many queries in columns shares."""
    query = recognise(plan)
    served = Served(query, registry.families[registry.key(query)])
    index = _index(served)
    k, first = index.home[members.conditions]
    return _told(registry, served, plan, index, (k, first + place), "entries of a synopsis", _beside(served, index, k))


def _told(
    registry: Registry, served: Served, plan: QueryPlan, index: PredicateIndex, home: tuple[int, int], reads: str,
    others: dict[str, Named],
) -> dict[str, Any]:  # fmt: skip
    members = [e.member for e in served.family.joined.values() if e.member.name != plan.name]
    synopsis, rules = synopsis_and_rules(served.query.member, members)
    found = {
        "shared": True,
        "technique": registry.sharing,
        "slicing": registry.slicing,
        "queries": len(served.family),
        "rows": " join ".join((served.query.source.stream, *served.query.source.tables)),
        "slices": _slices(registry, served),
        "cells": _cells(index, *home),
        "bits": _bits(served),
        "reads": reads,
        "synopsis": synopsis,
        "rules": rules,
        "with": {what: named for what, (named, _) in others.items()},
        "others": {what: count for what, (_, count) in others.items()},
        "saves": _saved(registry, served, index, unit_of(plan)),
    }
    return found | {"text": _lines(found, served.query.member.window, unit_of(plan))}


def _windows(served: Served) -> list[SlideWindow]:
    family = served.family
    many = (w for m in family.columns.values() for w in repeat(m.window, len(m)))
    return [*(e.member.window for e in family.joined.values()), *many]


def _slices(registry: Registry, served: Served) -> dict[str, Any]:
    window, windows = served.query.member.window, _windows(served)
    return {
        "own": list(sliced(window, registry.slicing).slices),
        "common": round(slice_rate(windows, registry.slicing) * window.range, 1),
        "windows": len(set(windows)),
    }


def _index(served: Served) -> PredicateIndex:
    family = served.family
    conditions: list[Conditions] = [e.member.condition for e in family.joined.values()]
    conditions += [m.conditions for m in family.columns.values()]
    if all(c in family.index.home for c in conditions):
        return family.index
    return PredicateIndex(conditions)


def _cells(index: PredicateIndex, k: int, i: int) -> dict[str, Any]:
    space = index.spaces[k]
    inside = runs = None
    if not space.boxed:
        runs, low, high = space.runs.at(i)
        inside = int((high - low).sum())
    keys, ranges = space.attributes[: space.keys], space.attributes[space.keys :]
    return {
        "keys": list(keys), "ranges": list(ranges), "predicates": space.predicates, "cells": space.cells,
        "inside": inside, "runs": runs, "boxed": space.boxed,
    }  # fmt: skip


def _bits(served: Served) -> list[dict[str, str]]:
    member = served.query.member
    found = [{"predicate": _bare(sql), "why": why} for sql, why in bits(member.condition).items()]
    return found + [
        {"predicate": c, "why": "a user's function"} for c in sorted({u.column for u in member.kind.user_calls})
    ]


def _bare(sql: str) -> str:
    """An operand without the parentheses around all of it."""
    return sql[1:-1] if sql.startswith("(") else sql


Named = tuple[list[str], int]
"""Some names of others, at most `NAMED`, and how many there are."""


def _others(served: Served, index: PredicateIndex) -> dict[str, Named]:
    """With whom a query shares rows, cells and its predicate."""
    mine, family = served.query.member, served.family
    entries = [e for e in family.joined.values() if e.member.name != mine.name]
    home = index.home[mine.condition][0]
    found = {
        "rows": [e.member.name for e in entries],
        "cells": [e.member.name for e in entries if index.home[e.member.condition][0] == home],
        "predicate": [e.member.name for e in entries if e.member.condition == mine.condition],
    }
    counts = {what: (names[:NAMED], len(names)) for what, names in found.items()}
    some = [n for m in family.columns.values() for n in m.names[:NAMED]]
    names, many = counts["rows"]
    return counts | {"rows": ([*names, *some][:NAMED], many + len(family) - len(family.joined))}


def _beside(served: Served, index: PredicateIndex, k: int) -> dict[str, Named]:
    """The same for one of many in columns, which have predicates of their own."""
    family = served.family
    beside = [m for m in family.columns.values() if index.home[m.conditions][0] == k]
    mine = served.query.member.name

    def named(members: Iterable[MemberColumns], count: int) -> Named:
        some = [n for m in members for n in m.names[: NAMED + 1] if n != mine]
        return some[:NAMED], count - 1

    rows, _ = named(family.columns.values(), 0)
    rows = [*rows, *islice(family.joined, NAMED)][:NAMED]
    return {"rows": (rows, len(family) - 1), "cells": named(beside, sum(map(len, beside))), "predicate": ([], 0)}


def _saved(registry: Registry, served: Served, index: PredicateIndex, unit: int) -> dict[str, Any] | None:
    n = len(served.family)
    if n < 2:
        return None
    done = served.family.counters
    rate = registry.rate(served.query.source.stream) if registry.rate is not None else None
    return {
        "passes": len(index.spaces), "instead_of": n,
        "least_rate": max(0.0, least_rate(_windows(served), registry.slicing)) * unit,
        "rate": None if rate is None else rate * unit,
        "rows": done.rows, "partials": done.partials, "read": done.reads, "answers": done.answers,
    }  # fmt: skip


def _lines(found: dict[str, Any], window: SlideWindow, unit: int) -> list[str]:
    slices, cells, others, kept = found["slices"], found["cells"], found["with"], found["synopsis"]
    own = ", ".join(duration(s, unit) for s in slices["own"][:SHOWN]) + (", ..." if len(slices["own"]) > SHOWN else "")
    shown = f"[RANGE {duration(window.range, unit)} SLIDE {duration(window.slide, unit)}]"
    if window.lag:
        shown = f"HOP({duration(window.slide, unit)}, {duration(window.range, unit)})"
    how = (
        f"tested against the boxes of {_count(cells['predicates'], 'predicate', 'predicates')}"
        if cells["boxed"]
        else f"{cells['inside']:,} of {cells['cells']:,}, {_count(cells['runs'], 'run', 'runs')}"
    )
    nested = ", ".join(map(_bare, cells["ranges"])) or "nothing"
    if cells["keys"]:
        nested = ", ".join(map(_bare, cells["keys"])) + (f", and within it over {nested}" if cells["ranges"] else "")
    lines = [
        f"slices: {shown} is cut into ({own}); about {slices['common']:,.0f} common slices of "
        f"{_count(slices['windows'], 'window', 'windows')} in a window",
        f"cells: {how}, over {nested}",
        *(f"bit: {b['predicate']} ({b['why']})" for b in found["bits"]),
        f"reads: {found['reads']}",
        f"synopsis: {kept['kind']}, up to {kept['intervals']:,} intervals of {duration(kept['interval'], unit)}",
        f"shares rows with {_names(others['rows'], found['others']['rows'])}",
        f"shares cells with {_names(others['cells'], found['others']['cells'])}",
        f"shares its predicate with {_names(others['predicate'], found['others']['predicate'])}",
        *(f"rule {rule}: {_names(names, len(names))}" for rule, names in found["rules"].items()),
        _saving(found["saves"], "s" if unit > 1 else "tick"),
    ]
    head = (
        f"sharing: {found['technique']}, {found['slicing']} slices, "
        f"{_count(found['queries'], 'query', 'queries')} over {found['rows']}"
    )
    return [head, *(f"  {line}" for line in lines)]


def _saving(saves: dict[str, Any] | None, per: str) -> str:
    if saves is None:
        return "saves: nothing, it is alone"
    line = f"saves: {saves['instead_of']} passes over the rows become {saves['passes']}; "
    line += f"worth it above {saves['least_rate']:,.3g} rows/{per} (inequality 1)"
    if saves["rate"] is not None:
        line += f", measured {saves['rate']:,.3g}"
    if saves["rows"]:
        line += f"; so far {saves['rows']:,} rows, {saves['partials']:,} partials, "
        line += f"{saves['read']:,} read for {saves['answers']:,} answers"
    return line


def _names(names: Sequence[str], count: int) -> str:
    if not names:
        return "nobody"
    rest = count - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


__all__ = ["sharing_of", "sharing_of_instance"]
