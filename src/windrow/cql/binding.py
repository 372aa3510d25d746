"""Statements against a catalog: what each asks for, checked.

`bind` reads the catalog and never changes it, so a statement that fails leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windrow.catalog import Catalog, QueriesDef, TableDef, TemplateDef, ViewDef
from windrow.catalog.dependents import cascade
from windrow.catalog.names import Names
from windrow.cql import prepared
from windrow.cql.alter import bind_alter
from windrow.cql.archive_syntax import bind_archive
from windrow.cql.bound import Alter, Bound, Create, Describe, Drop, Explain, Show, Unchanged
from windrow.cql.ddl import bind_stream, bind_table
from windrow.cql.keep_syntax import bind_keep
from windrow.cql.scope import did_you_mean
from windrow.cql.select import bind_select
from windrow.cql.source import ScriptText
from windrow.cql.sql_functions import bind_function
from windrow.cql.statement_forms import (
    AlterStatement,
    CreateArchiveStatement,
    CreateFunctionStatement,
    CreateQueriesStatement,
    CreateSinkStatement,
    CreateTemplateStatement,
    CreateViewStatement,
    Declaration,
    DescribeStatement,
    DropStatement,
    ExplainStatement,
    RepeatedSelect,
    SelectStatement,
    ShowStatement,
    Statement,
)
from windrow.cql.statements import parse, parsed, whole
from windrow.cql.templates import bind_queries, bind_template
from windrow.cql.types import kept_type
from windrow.errors import BindingError, Span, UnsupportedError, WindrowError
from windrow.operators.aggregates.vectors import Bools
from windrow.operators.conjunction import holds
from windrow.operators.elements import one
from windrow.plan.nodes import Emit, Filter, Project, QueryPlan, TableScan, walk
from windrow.scalar_engine import quote


def bind(statement: Statement, catalog: Catalog) -> Bound:
    """Check a statement against the catalog."""
    match statement:
        case Declaration():
            return _declaration(statement, catalog)
        case SelectStatement() | RepeatedSelect():
            return _select(statement, catalog)
        case CreateViewStatement():
            return _view(statement, catalog)
        case CreateFunctionStatement():
            return _function(statement, catalog)
        case CreateArchiveStatement():
            return _archive(statement, catalog)
        case CreateSinkStatement():
            return _sink(statement, catalog)
        case CreateTemplateStatement() | CreateQueriesStatement():
            return _template(statement, catalog)
        case DropStatement(where=str(where)):
            return _drop_some(statement, where, catalog)
        case DropStatement():
            return _drop(statement, catalog)
        case ExplainStatement():
            return _explain(statement, catalog)
        case AlterStatement():
            return _alter(statement, catalog)
        case ShowStatement(kind=kind, like=like):
            return Show(kind, like)
        case DescribeStatement():
            return _describe(statement, catalog)
    raise TypeError(f"not a statement: {statement!r}")


def _declaration(statement: Declaration, catalog: Catalog) -> Create | Unchanged:
    syntax = statement.syntax
    if statement.if_missing and syntax.name.lower() in catalog.kinds()[syntax.kind]:
        return Unchanged(syntax.kind, syntax.name)
    span = statement.source.span(syntax.offset)
    try:
        bind_syntax = bind_stream if syntax.kind == "stream" else bind_table
        definition = bind_syntax(syntax, statement.source)
        catalog.add(definition)
        return Create(definition)
    except WindrowError as error:
        raise error.at(span) from None


def _sink(statement: CreateSinkStatement, catalog: Catalog) -> Create:
    definition = statement.definition
    known: dict[str, QueryPlan | QueriesDef] = {**catalog.queries, **catalog.groups}
    found = known.get(definition.query.lower())
    if found is None:
        raise _unknown("query", definition.query, [q.name for q in known.values()], statement.query_span)
    definition = replace(definition, query=found.name)
    try:
        catalog.add(definition)
    except WindrowError as error:
        raise error.at(statement.name_span) from None
    return Create(definition)


def _archive(statement: CreateArchiveStatement, catalog: Catalog) -> Create:
    place = (statement.source, statement.name, statement.text, statement.span)
    definition = bind_archive(bind_select(statement.tree, catalog, *place), statement.syntax, statement.source)
    try:
        catalog.add(definition)
    except WindrowError as error:
        raise error.at(statement.name_span) from None
    return Create(definition)


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


def _select(statement: SelectStatement | RepeatedSelect, catalog: Catalog) -> Create | Unchanged:
    if isinstance(statement, SelectStatement) and statement.name.lower() in catalog.queries:
        if statement.if_missing:
            return Unchanged("query", statement.name)
        if statement.replaces:
            others = Names.of(catalog.queries).without(statement.name.lower())
            return Create(_planned(statement, replace(catalog, queries=others), statement.name), True)
    plan = _planned(statement, catalog, statement.name)
    try:
        catalog.check_name(plan)
    except WindrowError as error:
        raise error.at(statement.name_span) from None
    return Create(plan)


def _view(statement: CreateViewStatement, catalog: Catalog) -> Create | Unchanged:
    key, others = statement.name.lower(), catalog
    if key in catalog.views and statement.if_missing:
        return Unchanged("view", statement.name)
    replaces = statement.replaces and key in catalog.views
    if replaces:
        others = replace(catalog, views=Names.of(catalog.views).without(key))
    place = (statement.source, statement.name, statement.text, statement.span)
    definition = ViewDef(statement.name, bind_select(statement.tree, others, *place, one_time=True))
    try:
        others.add(definition)
        catalog.replaced(definition)
    except WindrowError as error:
        raise error.at(statement.name_span) from None
    return Create(definition, replaces)


def _function(statement: CreateFunctionStatement, catalog: Catalog) -> Create | Unchanged:
    syntax = statement.syntax
    key, others = syntax.name.lower(), catalog
    if key in catalog.macros and statement.if_missing:
        return Unchanged("function", syntax.name)
    replaces = statement.replaces and key in catalog.macros
    if replaces:
        others = replace(catalog, macros=Names.of(catalog.macros).without(key))
    try:
        definition = bind_function(syntax, statement.text, others)
        with_it = others.add(definition)
        catalog.replaced(definition) if replaces else None
        typed = {p: a for p, t in definition.parameters.items() if t is not None and (a := kept_type(t)) is not None}
        if typed and len(typed) == len(definition.parameters):  # a call by which it can be checked
            called = ", ".join(quote(p) for p in typed)
            scope = replace(Catalog(functions=catalog.functions, macros=with_it.macros)).add(TableDef("given", typed))
            compile_select(f"SELECT {quote(syntax.name)}({called}) FROM given", scope, "q", one_time=True)
    except WindrowError as error:
        error.span = None
        raise error.at(statement.name_span) from None
    return Create(definition, replaces)


def _template(statement: CreateTemplateStatement | CreateQueriesStatement, catalog: Catalog) -> Create:
    definition: TemplateDef | QueriesDef
    try:
        if isinstance(statement, CreateTemplateStatement):
            definition = bind_template(statement.syntax, statement.text, statement.source, catalog)
        else:
            definition = bind_queries(statement.syntax, catalog, statement.source)
        catalog.add(definition)
        return Create(definition)
    except WindrowError as error:
        raise error.at(statement.name_span) from None


def _drop_some(statement: DropStatement, where: str, catalog: Catalog) -> Drop | Create:
    """Queries of a template without those for whose values a condition holds."""
    dropped = _drop(replace(statement, where=None), catalog)
    queries = catalog.groups.get(dropped.name.lower())
    if queries is None:
        return dropped
    if queries.table is not None:
        raise BindingError(
            f'queries "{queries.name}" come and go with the rows of table "{queries.table}"',
            hint="take the rows out of the table",
            span=statement.name_span,
        )
    try:
        gone = matching(queries, catalog.templates[queries.template.lower()], where, catalog)
    except WindrowError as error:
        raise error.at(statement.name_span) from None
    return Create(replace(queries, instances=queries.instances.without(gone)))


def matching(queries: QueriesDef, template: TemplateDef, where: str, catalog: Catalog) -> Bools:
    """For which instances a condition on their values holds."""
    given = TableDef(queries.name, template.parameters)
    scope = Catalog(functions=catalog.functions, macros=catalog.macros).add(given)
    plan = compile_select(f"SELECT * FROM {quote(queries.name)} WHERE {where}", scope, "q", one_time=True)
    filters = [n for n in walk(plan.root) if isinstance(n, Filter)]
    scans = [n for n in walk(plan.root) if isinstance(n, TableScan)]
    if len(scans) != 1 or any(not isinstance(n, Filter | TableScan | Project | Emit) for n in walk(plan.root)):
        raise UnsupportedError("subqueries and user functions in DROP QUERIES ... WHERE", hint="compare the parameters")
    rows = queries.instances.rows
    shown = {c.lower(): one(rows.column(c)) for c in rows.column_names}
    given_columns = {internal: shown[own.lower()] for internal, own, _ in scans[0].columns}
    return holds(given_columns, rows.num_rows, [f.predicate.sql() for f in filters])


def _drop(statement: DropStatement, catalog: Catalog) -> Drop:
    known = catalog.kinds()[statement.kind]
    item = known.get(statement.name.lower())
    if item is None:
        if statement.if_exists:
            return Drop(statement.kind, statement.name, True)
        raise _unknown(statement.kind, statement.name, [d.name for d in known.values()], statement.name_span)
    if statement.cascade:
        return Drop(statement.kind, item.name, statement.if_exists, tuple(cascade(catalog, statement.kind, item.name)))
    if (refusal := catalog.refusal(statement.kind, item.name)) is not None:
        raise refusal.at(statement.name_span)
    return Drop(statement.kind, item.name, statement.if_exists)


def _explain(statement: ExplainStatement, catalog: Catalog) -> Explain:
    if statement.tree is not None:
        key, others = (statement.name or "").lower(), catalog
        if statement.replaces and key in catalog.queries:
            others = replace(catalog, queries=Names.of(catalog.queries).without(key))
        place = (statement.source, statement.name or "explain", statement.text, statement.span)
        return Explain(bind_select(statement.tree, others, *place), statement.format, others is not catalog)
    name = statement.name or ""
    if name.lower() not in catalog.queries:
        raise _unknown("query", name, [q.name for q in catalog.queries.values()], statement.name_span)
    return Explain(catalog.queries[name.lower()], statement.format)


def _alter(statement: AlterStatement, catalog: Catalog) -> Alter:
    syntax = statement.syntax
    known = catalog.kinds()[syntax.kind]
    if syntax.name.lower() not in known:
        raise _unknown(syntax.kind, syntax.name, [d.name for d in known.values()], statement.name_span)
    try:
        return Alter(bind_alter(syntax, catalog, statement.source))
    except WindrowError as error:
        raise error.at(statement.name_span) from None


def _describe(statement: DescribeStatement, catalog: Catalog) -> Describe:
    functions = {**catalog.functions, **catalog.macros}
    kinds: dict[str, Mapping[str, Any]] = {**catalog.kinds(), "function": functions}
    for kind, known in kinds.items():
        if (found := known.get(statement.name.lower())) is not None:
            return Describe(kind, found.name)
    names = [d.name for known in kinds.values() for d in known.values()]
    raise BindingError(
        f'nothing is called "{statement.name}"', hint=did_you_mean(statement.name, names), span=statement.name_span
    )


def _unknown(kind: str, name: str, choices: list[str], span: Span) -> BindingError:
    hint = did_you_mean(name, choices) or (f"known are {', '.join(choices)}" if choices else f"there is no {kind}")
    return BindingError(f'unknown {kind} "{name}"', hint=hint, span=span)


def compile_instance(text: str, catalog: Catalog, name: str) -> QueryPlan:
    """Bind the text of an instance of a template, which is hardly ever parsed."""
    cut = prepared.cut(text)
    found = None if cut is None else prepared.repeated(text, cut)
    if found is None:
        return compile_select(text, catalog, name)
    return prepared.bound(found, name, catalog, lambda written: compile_whole(written, catalog, name))


def compile_whole(text: str, catalog: Catalog, name: str) -> QueryPlan:
    """Parse and bind one CREATE QUERY, whatever has been parsed before."""
    source = ScriptText(text)
    found = parsed(source, 0, len(text), 1)
    assert isinstance(found, SelectStatement)
    return _bound(found, catalog, name)


def compile_select(text: str, catalog: Catalog, name: str, one_time: bool = False) -> QueryPlan:
    """Parse and bind one SELECT; a one-time query may read tables alone."""
    statements = parse(text)
    statement = statements[0] if len(statements) == 1 else None
    if not isinstance(statement, SelectStatement | RepeatedSelect):
        raise BindingError("expected one SELECT", span=statements[0].span if statements else None)
    return _planned(statement, catalog, name, one_time)
