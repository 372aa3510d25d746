"""What EXPLAIN says of a continuous query that is one dataflow with others.

shared      true; false with `why` where it runs by itself
queries     how many are one dataflow
operators   [{"operator", "detail", "shared"}], the first to read rows first: run once for all queries (`all`), or
            with rows told apart by query (`by query`) or by the set of queries that want them (`by cell`); at a
            `route` rows part
with        names of the others
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windrow.operators.aggregates.call import LINEAR
from windrow.operators.terms import QUERY
from windrow.plan.nodes import Aggregate, Emit, Node, QueryPlan, Route, walk
from windrow.plan.words import words
from windrow.sharing.plans.registry import SharedPlan, SharedPlans

SHOWN = 5
"""Names listed before the rest is only counted."""


def sharing_of_continuous(plans: SharedPlans, plan: QueryPlan) -> dict[str, Any] | None:
    """With whom a continuous query shares, or why it does not; None if nothing is known of it."""
    key = plan.name.lower()
    if key not in plans.place:
        why = plans.reasons.get(key)
        return None if why is None else {"shared": False, "why": why, "text": [f"sharing: none, {why}"]}
    name, number = plans.place[key]
    shared = plans.plans[name]
    others = [m.form.plan.name for q, m in shared.members.items() if q != number]
    operators = list(_operators(shared))
    found = {"shared": True, "queries": len(shared.members), "operators": operators, "with": others}
    return found | {"text": _lines(others, operators)}


def _operators(shared: SharedPlan) -> Iterator[dict[str, str]]:
    plan = shared.planned()
    cells = {x for a in walk(plan.root) if _by_cell(a) for x in (a, a.inputs[0])}
    for node in dict.fromkeys(walk(plan.root)):
        if isinstance(node, Emit) and plan.parting is not None:
            yield _described(node, "all")
            yield {"operator": "route", "detail": str(plan.parting.router), "shared": "by query"}
        elif node in cells:
            yield _described(node, "by cell")
        else:
            yield _described(node, "by query" if isinstance(node, Route) or QUERY in node.schema else "all")


def _by_cell(node: Node) -> bool:
    """Whether an aggregate adds up what it keeps by the sets of queries that want rows (`operators/cell_aggregate`)."""
    if not isinstance(node, Aggregate) or not isinstance(node.input, Route):
        return False
    return all(c.kind in LINEAR and not c.distinct for c in node.calls)


def _described(node: Node, shared: str) -> dict[str, str]:
    kind, detail = words(node)
    return {"operator": kind, "detail": detail, "shared": shared}


def _lines(others: list[str], operators: list[dict[str, str]]) -> list[str]:
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    names = ", ".join(others[:SHOWN]) + more if others else "nobody so far"
    lines = [f"sharing: one dataflow with {names}"]
    for each in operators:
        lines.append(f"  {each['shared']:<8}  {each['operator']} {each['detail']}".rstrip())
    return lines
