"""Who needs a declaration: what must go before it, or with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from windrow.catalog.names import Names

if TYPE_CHECKING:
    from windrow.catalog import Catalog
    from windrow.plan.nodes import QueryPlan


def dependents(catalog: Catalog, kind: str, name: str) -> list[tuple[str, str]]:
    """The kinds and names of what reads a declaration, calls it, or is made of it; texts that may read it count."""
    key, found = name.lower(), list[tuple[str, str]]()
    if kind == "sink":
        return found
    if kind == "template":
        return [("queries", n) for n in catalog.users(key)]
    if kind != "queries":
        needs = _called if kind == "function" else _read
        found += [("query", q.name) for q in Names.of(catalog.queries).having(key, needs)]
        plans = [("view", v.name, v.plan) for v in catalog.views.values()]
        plans += [("archive", a.name, a.plan) for a in catalog.archives.values()]
        found += [(k, n) for k, n, plan in plans if key in needs(plan)]
        call = r"\s*\(" if kind == "function" else r"\b"
        word = re.compile(rf"\b{re.escape(name)}{call}", re.IGNORECASE)
        found += [("template", t.name) for t in catalog.templates.values() if word.search(t.body)]
    if kind == "function":
        return found + [("function", f.name) for f in catalog.macros.values() if key in f.calls]
    found += [("queries", g.name) for g in catalog.groups.values() if (g.table or "").lower() == key]
    return found + [("sink", n) for n in catalog.sinks_of(key)]


def _called(plan: QueryPlan) -> set[str]:
    return {n.lower() for n in plan.calls}


def _read(plan: QueryPlan) -> set[str]:
    return {n.lower() for n in (*plan.streams, *plan.tables, *plan.over)}


def cascade(catalog: Catalog, kind: str, name: str) -> list[tuple[str, str]]:
    """All that must go with a declaration, in the order in which it can go."""
    order: dict[tuple[str, str], None] = {}

    def visit(kind: str, name: str) -> None:
        for one in dependents(catalog, kind, name):
            if one not in order:
                visit(*one)
                order.setdefault(one)

    visit(kind, name)
    return list(order)
