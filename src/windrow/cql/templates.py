"""Templates: one text for many queries, which differ in the values of its parameters.

    CREATE TEMPLATE alert (sym BIGINT, lim DOUBLE) AS SELECT ... WHERE sym = $sym AND price > $lim
    CREATE QUERIES q FROM TEMPLATE alert VALUES (1, 2.5), (2, 7)
    CREATE QUERIES q FROM TEMPLATE alert USING TABLE rules
    DROP QUERIES q [WHERE sym = 1]

A value has the declared type, and stands in the text as a literal: as it is where a literal is compared, is a
pattern of LIKE or belongs to the syntax (windows, LIMIT), and elsewhere under a CAST to its type, so that answers of
all instances have the same types. An instance is called after its values, `q(1, 2.5)`. Its text is never parsed: it is
that of another instance with other literals (`prepared`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from windrow.catalog import Catalog, Instance, QueriesDef, TemplateDef
from windrow.catalog.instances import instance_name, name_of
from windrow.catalog.literals import literal
from windrow.cql import types
from windrow.cql.ddl import bind_columns
from windrow.cql.scope import did_you_mean
from windrow.cql.source import ScriptText
from windrow.cql.template_places import places_in
from windrow.cql.template_syntax import QueriesSyntax, TemplateSyntax
from windrow.errors import BindingError, WindrowError
from windrow.plan.nodes import QueryPlan

_MARK = 30011
_SAMPLES = ("'a'", "'1'", "'2000-01-01 00:00:00'", "'1 minute'")

VALUES = re.compile(
    r"\s*CREATE\s+QUERIES\s+(?P<name>[A-Za-z_]\w*)\s+FROM\s+TEMPLATE\s+(?P<template>[A-Za-z_]\w*)\s+VALUES(?P<rows>[\s(].*)",
    re.IGNORECASE | re.DOTALL,
)
_ROWS = re.compile(
    r"(?>[\s(),]+|[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|'(?:[^']|'')*'"
    r"|(?:NULL|TRUE|FALSE|DATE|TIMESTAMP|TIMESTAMPTZ|TIME|INTERVAL)\b)++",
    re.IGNORECASE,
)
"""What is read is never read again another way: a text costs what it is long."""


class InstanceWriter:
    """Writes the texts of the instances of a template."""

    def __init__(self, body: str, parameters: Iterable[str], casts: Sequence[str], typed: bool) -> None:
        number = {name.lower(): i for i, name in enumerate(parameters)}
        self._pieces: list[str] = []
        self._numbers: list[int] = []
        at, left = 0, ""
        for place in places_in(body):
            cast = None if place.plain or not typed else casts[number[place.name]]
            apart = " " * body[: place.begin].endswith("-")  # two signs would open a comment
            self._pieces.append(left + body[at : place.begin] + apart + ("" if cast is None else "CAST("))
            self._numbers.append(number[place.name])
            at, left = place.end, "" if cast is None else f" AS {cast})"
        self._last = left + body[at:]

    def text(self, literals: Sequence[str]) -> str:
        """A CREATE QUERY with these literals in the place of the parameters."""
        filled = "".join([piece + literals[n] for piece, n in zip(self._pieces, self._numbers, strict=True)])
        return f"CREATE QUERY q AS {filled}{self._last}"


def marks(template: TemplateDef, shown: bool = False) -> dict[str, tuple[str, int]]:
    """For parameters that are only compared: a literal to stand for their values, and in how many places it does.

    It is one that the template itself does not write, and as short as the values of small types. `shown`: also for
    those that are columns of the answer.
    """
    found: dict[str, tuple[str, int]] = {}
    for number, (name, type_) in enumerate(template.parameters.items()):
        places = [p for p in places_in(template.body) if p.name == name.lower()]
        digits = str(_MARK + number)
        if not all(p.compared or (shown and p.shown) for p in places) or digits in template.body:
            continue
        if pa.types.is_string(type_):
            found[name] = (f"'@windrow {digits}@'", len(places))
        elif pa.types.is_float64(type_):
            found[name] = (f"{digits}.5", len(places))
        elif pa.types.is_integer(type_) and not pa.types.is_uint64(type_):
            found[name] = (digits, len(places))
    return found


@lru_cache(maxsize=256)
def _writer(body: str, parameters: tuple[tuple[str, pa.DataType], ...], typed: bool) -> InstanceWriter:
    return InstanceWriter(body, [n for n, _ in parameters], [types.sql_name(t) for _, t in parameters], typed)


def writer(template: TemplateDef) -> InstanceWriter:
    """What writes the instances of a template."""
    return _writer(template.body, tuple(template.parameters.items()), template.typed)


def bind_template(syntax: TemplateSyntax, text: str, source: ScriptText, catalog: Catalog) -> TemplateDef:
    """The definition of a template: its parameters are declared and used, and some values make a query of it."""
    parameters = bind_columns(syntax.columns, source, "parameter")
    known = {p.lower() for p in parameters}
    try:
        places = places_in(syntax.body)
    except WindrowError as error:
        raise error.at(source.span(syntax.body_offset)) from None
    for place in places:
        if place.name not in known:
            raise BindingError(
                f'unknown parameter "${place.name}"',
                hint=did_you_mean(place.name, parameters) or f"parameters are {', '.join(parameters)}",
                span=source.span(syntax.body_offset + place.begin),
            )
    for column in syntax.columns:
        if column.name.lower() not in {p.name for p in places}:
            raise BindingError(
                f'parameter "${column.name}" does not stand in the SELECT',
                hint="use it, or leave it out",
                span=source.span(column.offset),
            )
    first: WindrowError | None = None
    for typed in (True, False):
        found = TemplateDef(syntax.name, parameters, syntax.body, text, typed)
        try:
            plan = sample(found, catalog)
        except WindrowError as error:
            first = first or error
            continue
        if plan.budget is not None:
            raise BindingError("SHED in a template", hint="leave it out", span=source.span(syntax.body_offset))
        return found
    assert first is not None
    raise BindingError(first.primary, detail=first.detail, hint=first.hint, span=source.span(syntax.body_offset))


def sample(template: TemplateDef, catalog: Catalog) -> QueryPlan:
    """The plan of some instance; if there is none, the error of the first that was tried."""
    from windrow.cql.binding import compile_select

    first: WindrowError | None = None
    for text in _SAMPLES:
        literals = [_sample(t, text) for t in template.parameters.values()]
        try:
            return compile_select(writer(template).text(literals), catalog, template.name)
        except WindrowError as error:
            first = first or error
    assert first is not None
    raise first


def _sample(type_: pa.DataType, text: str) -> str:
    """A literal of a type, to try a template with."""
    if pa.types.is_boolean(type_):
        return "TRUE"
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "0.5"
    if pa.types.is_integer(type_):
        return "1"
    return "'2000-01-01 00:00:00'" if pa.types.is_temporal(type_) else text


def bind_queries(syntax: QueriesSyntax, catalog: Catalog, source: ScriptText) -> QueriesDef:
    """The definition of queries from a template, or the one there is with more instances."""
    template = catalog.templates.get(syntax.template.lower())
    if template is None:
        known = [t.name for t in catalog.templates.values()]
        hint = did_you_mean(syntax.template, known) or (f"known are {', '.join(known)}" if known else "there is none")
        raise BindingError(f'unknown template "{syntax.template}"', hint=hint)
    there = catalog.groups.get(syntax.name.lower())
    if there is not None and (there.template.lower() != template.name.lower() or there.table or syntax.table):
        raise BindingError(f'queries "{there.name}" already exist', hint=f"DROP QUERIES {there.name} first")
    if syntax.table is not None:
        return _from_table(syntax, template, catalog, source)
    assert syntax.rows is not None
    try:
        rows = values(syntax.rows, template)
    except WindrowError as error:
        raise error.at(source.span(syntax.offset)) from None
    found = there or QueriesDef.of(template, syntax.name)
    return with_rows(found, rows)


def _from_table(syntax: QueriesSyntax, template: TemplateDef, catalog: Catalog, source: ScriptText) -> QueriesDef:
    table = catalog.tables.get((syntax.table or "").lower())
    if table is None:
        raise BindingError(
            f'unknown table "{syntax.table}"',
            hint=did_you_mean(syntax.table or "", [t.name for t in catalog.tables.values()]),
            span=source.span(syntax.offset),
        )
    columns = {c.lower(): t for c, t in table.columns.items()}
    for name, type_ in template.parameters.items():
        if name.lower() not in columns:
            raise BindingError(
                f'table "{table.name}" has no column "{name}"',
                detail=f"it gives the parameters of {template.name} their values, by their names",
                hint=f"its columns are {', '.join(table.columns)}",
                span=source.span(syntax.offset),
            )
        if not types.comparable(columns[name.lower()], type_):
            raise BindingError(
                f'column "{name}" of table "{table.name}" is no {types.sql_name(type_)}',
                span=source.span(syntax.offset),
            )
    return QueriesDef.of(template, syntax.name, table.name)


def values(text: str, template: TemplateDef) -> pa.Table:
    """The rows of VALUES, each value of its parameter's type."""
    if not _ROWS.fullmatch(text):
        raise BindingError("VALUES of a template are literals", hint="write VALUES (1, 2.5), ('a', NULL)")
    wanted = ", ".join(f"{n} {types.sql_name(t)}" for n, t in template.parameters.items())
    count, columns = len(template.parameters), [f"value_{i}" for i in range(len(template.parameters))]
    typed = zip(columns, template.parameters.values(), strict=True)
    items = ", ".join(f"CAST({c} AS {types.sql_name(t)}) AS typed_{c}" for c, t in typed)
    try:  # the text is long: it is read once
        found = types.selected(f"SELECT {items}, * FROM (VALUES {text}) AS given({', '.join(columns)})")
        if found.num_columns != 2 * count:
            raise types.DuckDBRefusal(f"{found.num_columns - count} values for {count} parameters")
    except types.DuckDBRefusal as refusal:
        raise BindingError("VALUES do not fit the template", detail=refusal.short, hint=f"it takes {wanted}") from None
    return found.select(range(count)).rename_columns(list(template.parameters))


def rows_of(table: pa.Table, template: TemplateDef) -> pa.Table:
    """The values that the rows of a table give to parameters."""
    column = {c.lower(): c for c in table.column_names}
    try:
        return pa.table({n: table.column(column[n.lower()]).cast(t) for n, t in template.parameters.items()})
    except pa.ArrowInvalid as error:
        raise BindingError(
            f'the rows of a table do not fit the parameters of template "{template.name}"', detail=str(error)
        ) from None


def with_rows(queries: QueriesDef, rows: pa.Table) -> QueriesDef:
    """Queries with more instances; one that is there already is an error."""
    twice = queries.instances.repeated(rows)
    if twice is not None:
        name = name_of(queries.name, [c[twice] for c in rows.columns])
        raise BindingError(f"{name} stands twice", detail="no two instances of a template have the same values")
    return replace(queries, instances=queries.instances.added(rows))


def instances(name: str, rows: pa.Table) -> Iterator[Instance]:
    """An instance for every row of values, for those that are planned one by one."""
    columns = [c.to_pylist() for c in rows.columns]
    for row in zip(*columns, strict=True):
        literals = tuple(map(literal, row))
        yield Instance(instance_name(name, literals), literals)
