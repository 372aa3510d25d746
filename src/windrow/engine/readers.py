"""Who reads a stream or table whose columns change must mean after it what it meant before.

A query is kept as text and planned again at every start. So a column may come or go where every reader has, planned
with the new columns, the plan that runs: `SELECT *` has not, nor has a name that two inputs now have. Only readers
whose text may tell are planned: those with a `*`, a NATURAL join, or the name of the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from windrow.catalog import Catalog, Declared, StreamDef, TableDef
from windrow.errors import BindingError, WindrowError
from windrow.plan.nodes import QueryPlan

Planner = Callable[[QueryPlan, Catalog], QueryPlan]


def check_readers(item: Declared, before: Catalog, after: Catalog, best: Planner) -> None:
    """Refuse other columns of a stream or table that a reader would tell; `best`: the plan that would run."""
    if not isinstance(item, StreamDef | TableDef):
        return
    old = (before.streams if isinstance(item, StreamDef) else before.tables)[item.name.lower()]
    changed = [c for c in {**old.columns, **item.columns} if (c in old.columns) != (c in item.columns)]
    if not changed:
        return
    names = "|".join(map(re.escape, changed))
    tells = re.compile(rf"\*|\bNATURAL\b|\bCOLUMNS\b|(?<!\w)(?:{names})(?!\w)", re.IGNORECASE)
    for kind, name in before.dependents("stream", item.name):
        if kind != "queries" and tells.search(_text(kind, name, before)) and not _same(kind, name, before, after, best):
            raise BindingError(
                f'{kind} "{name}" would mean something else',
                detail=f"it is planned again from its text at every start, and reads {', '.join(changed)} by name or *",
                hint=f"let it name the columns that it wants of {item.name}, each with its stream or table before it"
                if changed[0] in item.columns
                else f"CREATE OR REPLACE it without {', '.join(changed)}, or drop it, first",
            )
    if any((g.table or "").lower() == item.name.lower() for g in before.groups.values()) and changed[0] in old.columns:
        raise BindingError(
            f'queries from a template are made of the rows of "{item.name}"', hint="columns may be added to it"
        )


def _text(kind: str, name: str, catalog: Catalog) -> str:
    found = catalog.kinds()[kind][name.lower()]
    text: str = found.body if kind == "template" else _plan_of(found).text  # type: ignore[union-attr]
    return text


def _plan_of(found: Declared) -> QueryPlan:
    return found if isinstance(found, QueryPlan) else found.plan  # type: ignore[union-attr]


def _same(kind: str, name: str, before: Catalog, after: Catalog, best: Planner) -> bool:
    """Whether a reader has the same plan over both."""
    try:
        old, new = (best(_planned(kind, name, catalog), catalog) for catalog in (before, after))
    except WindrowError:
        return False
    return old.same_answer(new)


def _planned(kind: str, name: str, catalog: Catalog) -> QueryPlan:
    from windrow import cql
    from windrow.cql.templates import sample

    if kind == "template":
        return sample(catalog.templates[name.lower()], catalog)
    plan = _plan_of(catalog.kinds()[kind][name.lower()])
    if kind == "query":
        return cql.compile_select(plan.text, catalog, name)
    (statement,) = cql.parse(plan.text)
    others = {k: v for k, v in getattr(catalog, f"{kind}s").items() if k != name.lower()}
    bound = cql.bind(statement, replace(catalog, **{f"{kind}s": others}))
    assert isinstance(bound, cql.Create)
    return _plan_of(bound.definition)
