"""What a script would do, without doing it: for an editor that marks errors and shows plans while one types."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from windrow import cql
from windrow.catalog import ArchiveDef, kind_of
from windrow.engine import Engine
from windrow.engine.functions import registered
from windrow.engine.query import sharing_with
from windrow.engine.script import applied
from windrow.errors import UnsupportedError
from windrow.plan.explain import explain
from windrow.plan.nodes import QueryPlan


def check(engine: Engine, script: str, declarations: bool) -> list[dict[str, Any]]:
    """A line per statement, with the plan of each query; the first error is raised where it is.

    Sources are the administrator's business even in thought: without `declarations` only queries are looked at.
    """
    catalog = replace(engine.catalog, functions=registered())
    found: list[dict[str, Any]] = []
    for statement in cql.parse(script):
        if isinstance(statement, cql.Declaration | cql.CreateSinkStatement | cql.AlterStatement) and not declarations:
            raise UnsupportedError("only an administrator declares streams, tables and sinks").at(statement.span)
        bound = cql.bind(statement, catalog)
        match bound:
            case cql.Create(QueryPlan() as plan) | cql.Explain(plan):
                best = engine.optimizer.best(plan, catalog)
                found.append({"statement": "query", "name": plan.name, "plan": _plan(engine, best)})
                if isinstance(bound, cql.Create):
                    bound = replace(bound, definition=best)
            case cql.Create(ArchiveDef() as archive):
                best = engine.optimizer.archived(archive.plan, catalog)
                found.append({"statement": "archive", "name": archive.name, "plan": _plan(engine, best)})
            case cql.Alter(altered):
                found.append({"statement": f"alter {kind_of(altered)}", "name": altered.name})
            case cql.Create(definition):
                found.append({"statement": kind_of(definition), "name": definition.name})
            case cql.Drop(kind, name):
                found.append({"statement": f"drop {kind}", "name": name})
            case cql.Show(kind, _):
                found.append({"statement": "show", "name": kind})
            case cql.Describe(_, name):
                found.append({"statement": "describe", "name": name})
        catalog = applied(bound, catalog)
    return found


def _plan(engine: Engine, plan: QueryPlan) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(
        explain(plan, "json", engine.optimizer.strategy, sharing=sharing_with(engine, plan))
    )
    return shown
