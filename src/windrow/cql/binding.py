"""Statements against a catalog: what each asks for, checked.

`bind` reads the catalog and never changes it, so a statement that fails leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from windrow.catalog import ArchiveDef, Catalog, StreamDef, TableDef
from windrow.cql import prepared
from windrow.cql.archive_syntax import bind_archive
from windrow.cql.ddl import bind_stream, bind_table
from windrow.cql.keep_syntax import bind_keep
from windrow.cql.scope import did_you_mean
from windrow.cql.select import bind_select
from windrow.cql.source import ScriptText
from windrow.cql.statements import (
    CreateArchiveStatement,
    Declaration,
    DropStatement,
    ExplainStatement,
    RepeatedSelect,
    SelectStatement,
    Statement,
    parse,
    whole,
)
from windrow.errors import BindingError, Span, WindrowError
from windrow.plan.nodes import QueryPlan


@dataclass(frozen=True)
class CreateStream:
    """Declare a stream."""

    definition: StreamDef


@dataclass(frozen=True)
class CreateTable:
    """Declare a table."""

    definition: TableDef


@dataclass(frozen=True)
class CreateQuery:
    """Register a query."""

    plan: QueryPlan


@dataclass(frozen=True)
class CreateArchive:
    """Keep the rows of a query on disk, by key."""

    definition: ArchiveDef


@dataclass(frozen=True)
class Drop:
    """Remove a declaration; `kind` is stream, table, query or archive. `name` is as the catalog has it."""

    kind: str
    name: str
    if_exists: bool


@dataclass(frozen=True)
class Explain:
    """Show a plan; `format` is text, json, dot or svg."""

    plan: QueryPlan
    format: str


Bound = CreateStream | CreateTable | CreateQuery | CreateArchive | Drop | Explain


def bind(statement: Statement, catalog: Catalog) -> Bound:
    """Check a statement against the catalog."""
    match statement:
        case Declaration():
            return _declaration(statement, catalog)
        case SelectStatement() | RepeatedSelect():
            return _select(statement, catalog)
        case CreateArchiveStatement():
            return _archive(statement, catalog)
        case DropStatement():
            return _drop(statement, catalog)
        case ExplainStatement():
            return _explain(statement, catalog)
    raise TypeError(f"not a statement: {statement!r}")


def _declaration(statement: Declaration, catalog: Catalog) -> CreateStream | CreateTable:
    syntax = statement.syntax
    span = statement.source.span(syntax.offset)
    try:
        if syntax.kind == "stream":
            stream = bind_stream(syntax, statement.source)
            catalog.add(stream)
            return CreateStream(stream)
        table = bind_table(syntax, statement.source)
        catalog.add(table)
        return CreateTable(table)
    except WindrowError as error:
        raise error.at(span) from None


def _archive(statement: CreateArchiveStatement, catalog: Catalog) -> CreateArchive:
    place = (statement.source, statement.name, statement.text, statement.span)
    definition = bind_archive(bind_select(statement.tree, catalog, *place), statement.syntax, statement.source)
    try:
        catalog.add(definition)
    except WindrowError as error:
        raise error.at(statement.name_span) from None
    return CreateArchive(definition)


def _bound(statement: SelectStatement, catalog: Catalog, name: str, one_time: bool = False) -> QueryPlan:
    plan = bind_select(statement.tree, catalog, statement.source, name, statement.text, statement.span, one_time)
    keep = bind_keep(statement.keep, plan.time_type, statement.source)
    return plan if keep is None else replace(plan, keep=keep)


def _repeated(statement: RepeatedSelect, catalog: Catalog, name: str, one_time: bool = False) -> QueryPlan:
    """The plan of a text that differs in literals only from another."""

    def bind(text: str) -> QueryPlan:
        written = (
            statement if text == statement.text else replace(statement, source=ScriptText(text), text=text, offset=0)
        )
        return _bound(whole(written), catalog, name, one_time)

    return prepared.bound(statement.repeated, name, catalog, bind)


def _planned(
    statement: SelectStatement | RepeatedSelect, catalog: Catalog, name: str, one_time: bool = False
) -> QueryPlan:
    if isinstance(statement, RepeatedSelect):
        return _repeated(statement, catalog, name, one_time)
    return _bound(statement, catalog, name, one_time)


def _select(statement: SelectStatement | RepeatedSelect, catalog: Catalog) -> CreateQuery:
    plan = _planned(statement, catalog, statement.name)
    try:
        catalog.add(plan)
    except WindrowError as error:
        raise error.at(statement.name_span) from None
    return CreateQuery(plan)


def _drop(statement: DropStatement, catalog: Catalog) -> Drop:
    known = catalog.kinds()[statement.kind]
    item = known.get(statement.name.lower())
    if item is None:
        if statement.if_exists:
            return Drop(statement.kind, statement.name, True)
        raise _unknown(statement.kind, statement.name, [d.name for d in known.values()], statement.name_span)
    readers = catalog.readers(item.name) if statement.kind in ("stream", "table") else []
    if readers:
        raise BindingError(
            f'{statement.kind} "{item.name}" is read by {", ".join(readers)}',
            hint=f"DROP {'ARCHIVE' if readers[0].lower() in catalog.archives else 'QUERY'} {readers[0]} first",
            span=statement.name_span,
        )
    return Drop(statement.kind, item.name, statement.if_exists)


def _explain(statement: ExplainStatement, catalog: Catalog) -> Explain:
    if statement.tree is not None:
        plan = bind_select(statement.tree, catalog, statement.source, "explain", statement.text, statement.span)
        return Explain(plan, statement.format)
    name = statement.name or ""
    if name.lower() not in catalog.queries:
        raise _unknown("query", name, [q.name for q in catalog.queries.values()], statement.name_span)
    return Explain(catalog.queries[name.lower()], statement.format)


def _unknown(kind: str, name: str, choices: list[str], span: Span) -> BindingError:
    hint = did_you_mean(name, choices) or (f"known are {', '.join(choices)}" if choices else f"there is no {kind}")
    return BindingError(f'unknown {kind} "{name}"', hint=hint, span=span)


def compile_select(text: str, catalog: Catalog, name: str, one_time: bool = False) -> QueryPlan:
    """Parse and bind one SELECT; a one-time query may read tables alone."""
    statements = parse(text)
    statement = statements[0] if len(statements) == 1 else None
    if not isinstance(statement, SelectStatement | RepeatedSelect):
        raise BindingError("expected one SELECT", span=statements[0].span if statements else None)
    return _planned(statement, catalog, name, one_time)
