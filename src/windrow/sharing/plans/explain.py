"""What EXPLAIN says of a continuous query that is one dataflow with others.

shared      true; false with `why` where it runs by itself
queries     how many are one dataflow
operators   [{"operator", "detail", "shared"}], the first to read rows first: run once for all queries (`all`), or
            with rows told apart by query (`by query`), by reader (`by reader`: queries that select alike and came
            together, or so long ago that it makes no difference) or by the set of those that want them (`by cell`);
            at a `route` rows part
with        names of the others; of instances of a template, of some
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from windrow.operators.aggregates.call import LINEAR
from windrow.operators.terms import QUERY
from windrow.plan.nodes import Aggregate, Emit, Node, QueryPlan, Route, walk
from windrow.plan.words import words
from windrow.sharing.plans.registry import SharedPlans
from windrow.sharing.plans.shared_plan import OfferedColumns, SharedPlan

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
    return _described_plan(shared, others + _some_of_blocks(shared, None))


def sharing_of_many(plans: SharedPlans, block: OfferedColumns, place: int) -> dict[str, Any]:
    """With whom one of many instances shares; of others that are many, some are named."""
    if block.key not in plans.columns:
        return {"shared": False, "why": "no row has come yet", "text": ["sharing: none, no row has come yet"]}
    shared = plans.plans[plans.columns[block.key]]
    others = [m.form.plan.name for m in shared.members.values()]
    return _described_plan(shared, others + _some_of_blocks(shared, (block.key, place)))


def _described_plan(shared: SharedPlan, others: list[str]) -> dict[str, Any]:
    operators = list(_operators(shared))
    found = {"shared": True, "queries": len(shared), "operators": operators, "with": others}
    return found | {"text": _lines(others, operators, len(shared) - 1)}


def _some_of_blocks(shared: SharedPlan, but: tuple[str, int] | None) -> list[str]:
    """The names of some queries of each block, without one of them."""
    found = []
    for block in shared.blocks.values():
        some = [int(i) for i in np.flatnonzero(block.alive)[: SHOWN + 1] if (block.key, int(i)) != but]
        found += [block.names[i] for i in some[:SHOWN]]
    return found


def _operators(shared: SharedPlan) -> Iterator[dict[str, str]]:
    plan = shared.planned()
    cells = {x for a in walk(plan.root) if _by_cell(a) for x in (a, a.inputs[0])}
    told = "by query"
    if shared.readers is not None:
        told = (
            "by reader" if len(shared.readers) > 1 or any(b.reader is None for b in shared.blocks.values()) else "all"
        )
    above: list[Node] = (
        [plan.root] if shared.readers is not None and plan.parting is None else []
    )  # rows are told apart by query
    while above and not isinstance(above[-1], Route):
        above += above[-1].inputs
    for node in dict.fromkeys(walk(plan.root)):
        if isinstance(node, Emit) and plan.parting is not None:
            yield _described(node, "all" if QUERY not in node.schema else told)
            yield {"operator": "route", "detail": str(plan.parting.router), "shared": "by query"}
        elif node in cells and told != "all":
            yield _described(node, "by cell")
        elif node in above:
            yield _described(node, "by query")
        else:
            yield _described(node, told if isinstance(node, Route) or QUERY in node.schema else "all")


def _by_cell(node: Node) -> bool:
    """Whether an aggregate adds up what it keeps by the sets of queries that want rows (`operators/cell_aggregate`)."""
    if not isinstance(node, Aggregate) or not isinstance(node.input, Route):
        return False
    return all(c.kind in LINEAR and not c.distinct for c in node.calls)


def _described(node: Node, shared: str) -> dict[str, str]:
    kind, detail = words(node)
    return {"operator": kind, "detail": detail, "shared": shared}


def _lines(others: list[str], operators: list[dict[str, str]], count: int) -> list[str]:
    more = f" and {count - SHOWN} more" if count > SHOWN else ""
    names = ", ".join(others[:SHOWN]) + more if others else "nobody so far"
    lines = [f"sharing: one dataflow with {names}"]
    for each in operators:
        lines.append(f"  {each['shared']:<9} {each['operator']} {each['detail']}".rstrip())
    return lines
