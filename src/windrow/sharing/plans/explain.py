"""What EXPLAIN says of a continuous query that is one dataflow with others.

shared      true; false with `why` where it runs by itself
queries     how many are one dataflow
operators   [{"operator", "detail", "shared"}], the first to read rows first: run once for all queries (`all`), or
            with rows told apart by query (`by query`), by reader (`by reader`: queries that select alike and came
            together, or so long ago that it makes no difference) or by the set of those that want them (`by cell`);
            at a `route` rows part, by its `index`: [{"keys", "ranges", "predicates", "cells", "boxed"}], a space for
            predicates that test the same, and `bits`: [{"predicate", "why"}], what is not analysed
with        names of the others; of instances of a template, of some
begins      false where it waits for the next tick, and has no operators yet
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from windrow.operators.aggregates.call import LINEAR
from windrow.operators.terms import CAME, QUERY
from windrow.plan.nodes import Aggregate, Emit, Node, QueryPlan, Route, walk
from windrow.plan.words import words
from windrow.sharing.cells import CellSpace
from windrow.sharing.plans.registry import SharedPlans
from windrow.sharing.plans.router import AGE, IndexRouter
from windrow.sharing.plans.shared_plan import OfferedColumns, SharedPlan, count

SHOWN = 5
"""Names listed before the rest is only counted."""


def sharing_of_continuous(plans: SharedPlans, plan: QueryPlan) -> dict[str, Any] | None:
    """With whom a continuous query shares, or why it does not; None if nothing is known of it."""
    key = plan.name.lower()
    if key not in plans.place:
        found = _described_coming(plans, key)
        if found is not None:
            return found
        why = plans.reasons.get(key)
        return None if why is None else {"shared": False, "why": why, "text": [f"sharing: none, {why}"]}
    name, number = plans.place[key]
    shared = plans.plans[name]
    others = [m.form.plan.name for q, m in shared.members.items() if q != number]
    return _described_plan(shared, others + _some_of_blocks(shared.blocks.values(), None))


def sharing_of_many(plans: SharedPlans, block: OfferedColumns, place: int) -> dict[str, Any]:
    """With whom one of many instances shares; of others that are many, some are named."""
    if block.key not in plans.columns:
        none = {"shared": False, "why": "no row has come yet", "text": ["sharing: none, no row has come yet"]}
        return _described_coming(plans, block.key, place) or none
    shared = plans.plans[plans.columns[block.key]]
    others = [m.form.plan.name for m in shared.members.values()]
    return _described_plan(shared, others + _some_of_blocks(shared.blocks.values(), (block.key, place)))


def _described_coming(plans: SharedPlans, key: str, place: int | None = None) -> dict[str, Any] | None:
    """What a query that waits for the next tick will share; `place`: of one among many."""
    coming = plans.coming(key)
    if coming is None:
        return None
    if isinstance(coming, str):
        return {"shared": False, "why": coming, "text": [f"sharing: none, {coming}"]}
    plan, waiting = coming
    others, number = list[str](), count(waiting)
    if plan is not None:
        others += [m.form.plan.name for m in plan.members.values()] + _some_of_blocks(plan.blocks.values(), None)
        number += len(plan)
    others += [w.form.plan.name for w in waiting if not isinstance(w, OfferedColumns)]
    many = [w for w in waiting if isinstance(w, OfferedColumns)]
    if place is not None:  # its own block is beside it
        mine = plans.block(key)
        many, number = [mine, *many], number + len(mine) - len(mine.left) - 1
    others += _some_of_blocks(many, None if place is None else (key, place))
    found = {"shared": True, "begins": False, "queries": number + 1, "operators": [], "with": others}
    return found | {"text": [f"sharing: from the next row on, one dataflow with {_named(others, number)}"]}


def _described_plan(shared: SharedPlan, others: list[str]) -> dict[str, Any]:
    operators = list(_operators(shared))
    found = {"shared": True, "queries": len(shared), "operators": operators, "with": others}
    return found | {"text": _lines(others, operators, len(shared) - 1)}


def _some_of_blocks(blocks: Iterable[OfferedColumns], but: tuple[str, int] | None) -> list[str]:
    """The names of some queries of each block, without one of them."""
    found = []
    for block in blocks:
        some = [int(i) for i in np.flatnonzero(block.alive)[: SHOWN + 1] if (block.key, int(i)) != but]
        found += [block.names[i] for i in some[:SHOWN]]
    return found


def _operators(shared: SharedPlan) -> Iterator[dict[str, Any]]:
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
            router = plan.parting.router
            yield {"operator": "route", "detail": str(router), "shared": "by query"} | _index_of(router)
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


def _described(node: Node, shared: str) -> dict[str, Any]:
    kind, detail = words(node)
    index = _index_of(node.router) if isinstance(node, Route) else {}
    return {"operator": kind, "detail": detail, "shared": shared} | index


def _index_of(router: object) -> dict[str, Any]:
    """How a route finds the queries of a row."""
    spaces = [s for s in router.spaces if s.axes] if isinstance(router, IndexRouter) else []
    bits = {a.attribute.sql: a.attribute.why for s in spaces for a in s.axes if a.attribute.why}
    return {"index": [_space(s) for s in spaces], "bits": [{"predicate": p, "why": why} for p, why in bits.items()]}


def _space(space: CellSpace) -> dict[str, Any]:
    keys, ranges = space.attributes[: space.keys], space.attributes[space.keys :]
    return {
        "keys": _attributes(keys), "ranges": _attributes(ranges), "predicates": space.predicates,
        "cells": space.cells, "boxed": space.boxed,
    }  # fmt: skip


def _attributes(tested: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(_attribute, tested)))


def _attribute(sql: str) -> str:
    """What is tested, in words where it is no expression of the user's."""
    name = sql.strip('"')
    if name == QUERY:
        return "whose row it is"
    if AGE in name:
        return "its age"
    if name.startswith(CAME):
        return "which queries there were when it came"
    return sql


def _named(others: list[str], number: int) -> str:
    more = f" and {number - SHOWN:,} more" if number > SHOWN else ""
    return ", ".join(others[:SHOWN]) + more if others else "nobody so far"


def _lines(others: list[str], operators: list[dict[str, Any]], number: int) -> list[str]:
    lines = [f"sharing: one dataflow with {_named(others, number)}"]
    for each in operators:
        lines.append(f"  {each['shared']:<9} {each['operator']} {each['detail']}".rstrip())
        below = [_index_line(space) for space in each.get("index", ())]
        below += [f"bit: {bit['predicate']} ({bit['why']})" for bit in each.get("bits", ())]
        lines += [f"            {line}" for line in below[:SHOWN]]
        lines += [f"            and {len(below) - SHOWN} more"] if len(below) > SHOWN else []
    return lines


def _index_line(space: dict[str, Any]) -> str:
    """A space of the index: what is looked up first, what is ordered within, and how a cell has its queries."""
    keys, ranges = ", ".join(space["keys"]), ", ".join(space["ranges"])
    by = f"looked up by {keys}" if keys else f"ordered by {ranges}"
    if keys and ranges:
        by += f", ordered within by {ranges}"
    how = "tested one by one in each cell that occurs" if space["boxed"] else f"in {_count(space['cells'], 'cell')}"
    return f"index: {_count(space['predicates'], 'condition')}, {by}, {how}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
