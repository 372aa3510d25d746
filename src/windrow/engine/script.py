"""A script against a catalog: what is declared after its statements, whatever runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.catalog import ArchiveDef, Catalog, SqlFunctionDef, StreamDef, TableDef, ViewDef
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.optimize import Optimizer
from windrow.plan.nodes import QueryPlan
from windrow.sources.tabular import described


def bind_script(
    script: str,
    catalog: Catalog,
    streams: Mapping[str, tuple[str, Any]] | None = None,
    tables: Mapping[str, tuple[str, Any]] | None = None,
) -> Catalog:
    """The catalog after every statement of a script; data given but not declared is declared from its schema.

    DDL is bound first to last; undeclared data joins the catalog before the first query that could read it.
    """
    from windrow import cql

    statements = cql.parse(script)
    declared = {s.syntax.name.lower() for s in statements if isinstance(s, cql.Declaration)}
    for key, (name, data) in (streams or {}).items():
        if key not in declared and key not in catalog.streams:
            stream = infer_stream(name, described(data, f'stream "{name}"'))
            columns = dict(stream.columns)
            if pa.types.is_date(columns[stream.time]):  # its answers have times as those of any stream
                columns[stream.time] = pa.timestamp("us")
            catalog = catalog.add(replace(stream, columns=columns, added=tuple(columns)))  # the columns of any file
    for key, (name, data) in (tables or {}).items():
        if key not in declared and key not in catalog.tables:
            table = described(data, f'table "{name}"')
            columns = dict(zip(table.column_names, table.schema.types, strict=True))
            catalog = catalog.add(TableDef(name, columns, added=tuple(columns)))
    for statement in statements:
        try:
            bound = cql.bind(statement, catalog)
            if isinstance(bound, cql.Create) and isinstance(bound.definition, TableDef):
                # it does not change while the script runs
                bound = replace(bound, definition=replace(bound.definition, recall=False))
            catalog = applied(bound, catalog)
        except WindrowError as error:
            raise error.at(statement.span) from None
    if catalog.archives:
        raise UnsupportedError(
            "CREATE ARCHIVE in a replay", hint="an archive belongs to an engine with a home: windrow.Engine(home=...)"
        )
    if catalog.sinks:
        raise UnsupportedError("CREATE SINK in a replay", hint="a replay returns its answers; sinks are an engine's")
    return catalog


def optimised(bound: Any, catalog: Catalog, optimizer: Optimizer) -> Any:
    """A bound statement with the best plan."""
    from windrow import cql

    match bound:
        case cql.Explain(plan):
            return replace(bound, plan=optimizer.best(plan, catalog))
        case cql.Create(QueryPlan() as plan):
            return replace(bound, definition=optimizer.best(plan, catalog))
        case cql.Create(ArchiveDef() as definition):
            return replace(bound, definition=replace(definition, plan=optimizer.archived(definition.plan, catalog)))
    return bound


def applied(bound: Any, catalog: Catalog) -> Catalog:
    """The catalog after a bound statement; EXPLAIN changes nothing."""
    from windrow import cql

    match bound:
        case cql.Create(QueryPlan() | ViewDef() | SqlFunctionDef() as item, True):
            return catalog.replaced(item)
        case cql.Create(item):
            return catalog.add(item)
        case cql.Alter(item):
            return catalog.altered(item)
        case cql.Drop(kind, name, if_exists, first):
            for one in first:
                catalog = catalog.drop(*one)
            return catalog.drop(kind, name, if_exists)
    return catalog


def infer_stream(name: str, table: pa.Table) -> StreamDef:
    """Declare a stream from its data: the time is column `ts`, else the only timestamp column."""
    columns = dict(zip(table.column_names, table.schema.types, strict=True))
    named = [c for c in columns if c.lower() == "ts"]
    stamped = named or [c for c, t in columns.items() if pa.types.is_timestamp(t)]
    if len(stamped) > 1:
        raise BindingError(
            f'several columns of stream "{name}" may be its time: {", ".join(stamped)}',
            hint=f"declare which: CREATE STREAM {name} (...) TIMESTAMP BY {stamped[0]}; or call that column ts",
        )
    if not stamped:
        hint = f"declare it: CREATE STREAM {name} (...) TIMESTAMP BY <column>"
        (first, *others) = columns or [""]
        separator = next((c for c in ";\t|" if c in first), None)
        if separator is not None and not others:
            hint += f" FROM csv (path => '...', sep => '{separator}'): the header looks as if it were separated so"
        raise BindingError(
            f'stream "{name}" has no time column', detail=f"its columns are {', '.join(columns)}", hint=hint
        )
    return StreamDef(name, columns, stamped[0])
