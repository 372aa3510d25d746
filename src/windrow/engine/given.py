"""What callers give an engine: statements as parts of a change, and options of a stream that mean its clauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.catalog import Catalog, SqlFunctionDef, StreamDef, ViewDef
from windrow.errors import BindingError, WindrowError
from windrow.plan.nodes import QueryPlan
from windrow.runtime.change import Change


def note(change: Change, bound: Any) -> None:
    """Put a statement into a change."""
    from windrow import cql

    match bound:
        case cql.Create(QueryPlan() as plan, True):
            old = change.catalog.queries[plan.name.lower()]
            if not old.same_answer(plan):
                change.drop("query", plan.name)
                change.add(plan)
            elif old.keep != plan.keep:
                change.alter(plan)
        case cql.Create(item) if not isinstance(item, ViewDef | SqlFunctionDef):  # these are in the catalog only
            change.add(item)
        case cql.Alter(item):
            change.alter(item)
        case cql.Drop(kind, name, _, first):
            for one in (*first, (kind, name)):
                change.drop(*one)


def replacement(plan: QueryPlan, catalog: Catalog) -> str:
    """What CREATE OR REPLACE would do to the query that is there."""
    old = catalog.queries[plan.name.lower()]
    if old.same_answer(plan):
        return f"replaces {old.name}: the plan is the same, its state and its answers are kept\n"
    readers = catalog.readers(old.name)
    refused = f"; refused while {', '.join(readers)} read it" if readers else ""
    return f"replaces {old.name}: the plan is another, it begins with what its streams keep{refused}\n"


def with_options(stream: StreamDef, timestamp: str | None, slack: Any, options: Mapping[str, Any]) -> StreamDef:
    """The definition with a caller's options, which mean what the clauses of CREATE STREAM mean."""
    if timestamp is not None:
        named = {c.lower(): c for c in stream.columns}
        if timestamp.lower() not in named:
            raise BindingError(
                f'stream "{stream.name}" has no column "{timestamp}"',
                hint=f"its columns are {', '.join(stream.columns)}",
            )
        stream = replace(stream, time=named[timestamp.lower()])
    unknown = set(options) - {"retain", "idle_after", "ahead"}
    if unknown:
        raise WindrowError(
            f"unknown option {sorted(unknown)[0]!r}", hint="use timestamp, slack, retain, idle_after, ahead"
        )
    clauses = {"WITHIN": slack, "RETAIN": options.get("retain"), "IDLE AFTER": options.get("idle_after")}
    clauses["AHEAD"] = options.get("ahead")
    said = " ".join(f"{clause} {value}" for clause, value in clauses.items() if value is not None)
    clock = "BIGINT" if pa.types.is_integer(stream.time_type) else "TIMESTAMP"
    from windrow import cql

    (statement,) = cql.parse(f"CREATE STREAM given (t {clock}) TIMESTAMP BY t {said}")
    bound = cql.bind(statement, Catalog())
    assert isinstance(bound, cql.Create)
    given = bound.definition
    clauses_given = {n: getattr(given, n) for n in ("slack", "within", "retain", "idle_after", "ahead")}
    return replace(stream, **clauses_given)


def same_stream(a: StreamDef, b: StreamDef) -> bool:
    """Whether two definitions differ in nothing but their spelling."""
    return replace(a, name="", columns=dict(a.columns)) == replace(
        b, name="", columns=dict(b.columns), options=a.options
    )
