"""Which rows concern whoever reads a stream: the rest leaves no trace in any answer.

Law: a row outside the conditions of a plan changes nothing but time. Of very many conditions nobody looks at all; then
every row may be somebody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import QueryPlan, routed_scans, scanned
from windrow.runtime.member_blocks import MOST_CONDITIONS
from windrow.sharing.conditions import EVERYTHING, Condition, condition
from windrow.sharing.plans.routed_columns import renamed
from windrow.sharing.plans.router import IndexRouter


def wanted_rows(plan: QueryPlan) -> dict[str, tuple[Condition, ...]]:
    """By stream: where its rows concern a plan, a condition for each scan."""
    found: dict[str, tuple[Condition, ...]] = {}
    routed = {scan: router for scan, router in routed_scans(plan.root) if isinstance(router, IndexRouter)}
    for scan, predicates in scanned(plan.root):
        if scan in routed:  # of several queries
            shown = {internal: column.lower() for internal, column, _ in scan.columns}
            mine = tuple(renamed(c, shown) for c in all_or_everything(routed[scan].some(MOST_CONDITIONS)))
        else:
            names = {internal: Expr((Ref(column.lower()),), type_) for internal, column, type_ in scan.columns}
            mine = (condition([p.substitute(names) for p in predicates]),)
        found[scan.stream.lower()] = (*found.get(scan.stream.lower(), ()), *mine)
    return found


def all_or_everything(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Some conditions, if they are not too many to be looked at."""
    found = tuple(islice(conditions, MOST_CONDITIONS))
    return found if len(found) < MOST_CONDITIONS else (EVERYTHING,)


def of_stream(found: Condition, stream: str) -> Condition:
    """A condition over a family's rows, of which only tests of one column of the stream stay, named as the stream's."""
    prefix = f"{stream}."
    boxes = []
    for box in found.boxes:
        named = [(a, v) for a, v in box if len(a.reads) == 1 and a.reads[0].lower().startswith(prefix)]
        columns = [(replace(a, sql=a.sql.lower().replace(prefix, "", 1)), v) for a, v in named]
        boxes.append(tuple(columns))
    return Condition(tuple(boxes))
