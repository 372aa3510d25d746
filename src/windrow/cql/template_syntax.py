"""CREATE TEMPLATE and CREATE QUERIES as written."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.cql.ddl import ColumnSyntax, parse_columns
from windrow.cql.source import Cursor


@dataclass(frozen=True)
class TemplateSyntax:
    """CREATE TEMPLATE as written; `body`: where its SELECT begins in the statement."""

    name: str
    name_offset: int
    columns: tuple[ColumnSyntax, ...]
    body: str
    body_offset: int


@dataclass(frozen=True)
class QueriesSyntax:
    """CREATE QUERIES as written: rows as text, or a table."""

    name: str
    template: str
    rows: str | None
    table: str | None
    offset: int  # of the template's name, the rows or the table


def parse_template(cursor: Cursor, end: int) -> TemplateSyntax:
    """Parse what follows CREATE TEMPLATE; the statement ends at `end`."""
    offset = cursor.offset
    name = cursor.name("the name of the template", hint="write CREATE TEMPLATE alert (sym BIGINT) AS SELECT ...")
    columns = parse_columns(cursor, "template", name)
    cursor.expect("AS", hint=f"write CREATE TEMPLATE {name} (...) AS SELECT ...")
    if cursor.word not in ("SELECT", "WITH", "(", "FROM"):
        raise cursor.unexpected("a SELECT")
    return TemplateSyntax(name, offset, columns, cursor.source.text[cursor.offset : end], cursor.offset)


def parse_queries(cursor: Cursor, end: int) -> QueriesSyntax:
    """Parse what follows CREATE QUERIES."""
    form = "write CREATE QUERIES q FROM TEMPLATE alert VALUES (1, 2.5), or ... USING TABLE rules"
    name = cursor.name("the name of the queries", hint=form)
    cursor.expect("FROM", "TEMPLATE", hint=form)
    template = cursor.name("the name of the template", hint=form)
    if cursor.accept("USING", "TABLE"):
        offset = cursor.offset
        table = cursor.name("the name of a table", hint=form)
        if cursor.current is not None:
            raise cursor.unexpected("the end of the statement")
        return QueriesSyntax(name, template, None, table, offset)
    cursor.expect("VALUES", hint=form)
    return QueriesSyntax(name, template, cursor.source.text[cursor.offset : end], None, cursor.offset)
