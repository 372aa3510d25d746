"""One statement, recognised by its first words: what follows CREATE, DROP, EXPLAIN, SHOW and DESCRIBE."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from windrow.catalog import SinkDef
from windrow.cql.alter import parse_alter
from windrow.cql.archive_syntax import split_archive
from windrow.cql.ddl import parse_declaration, parse_options
from windrow.cql.dialect import parse_query
from windrow.cql.keep_syntax import split_keep
from windrow.cql.source import Cursor
from windrow.cql.sql_functions import parse_function
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
    SelectStatement,
    ShowStatement,
    Statement,
    StatementPlace,
)
from windrow.cql.template_syntax import parse_queries, parse_template

if TYPE_CHECKING:
    from sqlglot import exp

KINDS = ("stream", "table", "view", "query", "archive", "template", "queries", "sink", "function")
SHOWN = ("streams", "tables", "queries", "sinks", "views", "functions", "templates", "archives")
FORMATS = ("text", "json", "dot", "svg")
_STARTS = (
    "CREATE STREAM, CREATE TABLE, CREATE VIEW, CREATE QUERY, CREATE ARCHIVE, CREATE TEMPLATE, CREATE SINK, "
    "CREATE FUNCTION, ALTER, DROP, EXPLAIN, SHOW, DESCRIBE or SELECT"
)
_CHANGES = {
    "INSERT": "rows come from where a stream or table is declared to come FROM, or by engine.push; answers go where "
    "CREATE SINK says",
    **dict.fromkeys(("UPDATE", "DELETE", "MERGE"), "a table is what its source holds, or what engine.table writes"),
}
_SOURCE = "write CREATE STREAM s (a BIGINT, ts TIMESTAMP) TIMESTAMP BY ts FROM kafka (...)"
_FIRST = ("SELECT", "CREATE", "ALTER", "DROP", "EXPLAIN", "SHOW", "DESCRIBE", "WITH")


def parse_statement(cursor: Cursor, position: int, text: str | None = None) -> Statement:
    """The statement at a cursor; `text`: all of it as written, with the comments around it."""
    start = cursor.offset
    end = int(cursor.tokens[cursor.end - 1].end) + 1
    source = cursor.source
    place = (source.span(start), text or source.text[start:end], source)
    if cursor.word in ("SELECT", "WITH", "(", "FROM"):
        return SelectStatement(*place, f"q{position}", _query(cursor), source.span(start))
    if cursor.accept("CREATE"):
        return _create(cursor, place)
    if cursor.accept("DROP"):
        return _drop(cursor, place)
    if cursor.accept("EXPLAIN"):
        return _explain(cursor, place)
    if cursor.accept("ALTER"):
        name_span = source.span(int(cursor.tokens[min(cursor.index + 1, cursor.end - 1)].start))
        syntax = parse_alter(cursor)
        _end(cursor)
        return AlterStatement(*place, syntax, name_span)
    if cursor.accept("SHOW"):
        return _show(cursor, place)
    if cursor.accept("DESCRIBE") or cursor.accept("DESC"):
        return _describe(cursor, place)
    near = difflib.get_close_matches(cursor.word, _FIRST, n=1, cutoff=0.75)
    hint = _CHANGES.get(cursor.word) or (f"did you mean {near[0]}?" if near else f"start with {_STARTS}")
    raise cursor.unexpected("a statement", hint=hint)


def _kind(cursor: Cursor) -> str:
    """What is created or dropped, in lower case; the cursor is at its last word."""
    words = [str(t.text).upper() for t in cursor.tokens[cursor.index : cursor.index + 2]]
    if words == ["MATERIALIZED", "VIEW"]:
        cursor.take()
        return "query"
    return cursor.word.lower()


def _query(cursor: Cursor) -> exp.Query:
    if cursor.current is None:
        raise cursor.unexpected("a SELECT")
    return parse_query(cursor.source, list(cursor.tokens[cursor.index : cursor.end]))


def _create(cursor: Cursor, place: StatementPlace) -> Statement:
    replaces = cursor.accept("OR", "REPLACE")
    kind = _kind(cursor)
    if replaces and kind not in ("query", "view", "function"):
        raise cursor.unexpected(
            "QUERY, VIEW or FUNCTION", hint="write CREATE OR REPLACE QUERY name AS SELECT ..., or DROP it first"
        )
    if kind not in KINDS:
        raise cursor.unexpected(
            "STREAM, TABLE, VIEW, QUERY, ARCHIVE, TEMPLATE, QUERIES, SINK or FUNCTION",
            hint=_SOURCE if kind == "source" else f"start with {_STARTS}",
        )
    cursor.take()
    if kind in ("template", "queries"):
        name_span, end = cursor.source.span(cursor.offset), int(cursor.tokens[cursor.end - 1].end) + 1
        if kind == "template":
            template = parse_template(cursor, end)
            return CreateTemplateStatement(*place, template.name, name_span, template)
        queries = parse_queries(cursor, end)
        return CreateQueriesStatement(*place, queries.name, name_span, queries)
    if_missing = kind in ("stream", "table", "view", "query", "function") and cursor.accept("IF", "NOT", "EXISTS")
    if kind in ("stream", "table"):
        return Declaration(*place, parse_declaration(cursor, kind), if_missing)
    if kind == "function":
        name_span = cursor.source.span(cursor.offset)
        return CreateFunctionStatement(*place, parse_function(cursor), name_span, if_missing, replaces)
    if kind == "sink":
        return _create_sink(cursor, place)
    name_span = cursor.source.span(cursor.offset)
    name = cursor.name(f"the name of the {kind}", hint=f"write CREATE {kind.upper()} name AS SELECT ...")
    cursor.expect("AS", hint=f"write CREATE {kind.upper()} {name} AS SELECT ...")
    if kind == "archive":
        select, syntax = split_archive(cursor)
        return CreateArchiveStatement(*place, name, parse_query(cursor.source, select), name_span, syntax)
    if kind == "view":
        return CreateViewStatement(*place, name, _query(cursor), name_span, if_missing, replaces)
    keep = split_keep(cursor)
    return SelectStatement(*place, name, _query(cursor), name_span, keep, if_missing, replaces)


def _create_sink(cursor: Cursor, place: StatementPlace) -> Statement:
    form = "write CREATE SINK name FOR query TO postgres (dsn => '...')"
    name_span = cursor.source.span(cursor.offset)
    name = cursor.name("the name of the sink", hint=form)
    cursor.expect("FOR", hint=form)
    query_span = cursor.source.span(cursor.offset)
    query = cursor.name("the name of a query", hint=form)
    cursor.expect("TO", hint=form)
    kind = cursor.name("the kind of sink", hint=form).lower()
    options = parse_options(cursor) if cursor.word == "(" else {}
    _end(cursor)
    return CreateSinkStatement(*place, SinkDef(name, query, kind, options), name_span, query_span)


def _drop(cursor: Cursor, place: StatementPlace) -> Statement:
    kind = _kind(cursor)
    if kind not in KINDS:
        raise cursor.unexpected(
            "STREAM, TABLE, VIEW, QUERY, ARCHIVE, TEMPLATE, QUERIES, SINK or FUNCTION", hint="write DROP QUERY name"
        )
    cursor.take()
    if_exists = cursor.accept("IF", "EXISTS")
    name_span = cursor.source.span(cursor.offset)
    name = cursor.name(f"the name of the {kind}")
    where = None
    if kind == "queries" and cursor.accept("WHERE"):
        if cursor.current is None:
            raise cursor.unexpected("a condition", hint=f"write DROP QUERIES {name} WHERE sym = 42")
        where = cursor.source.text[cursor.offset : int(cursor.tokens[cursor.end - 1].end) + 1]
        return DropStatement(*place, kind, name, if_exists, name_span, where)
    cascade = cursor.accept("CASCADE")
    _end(cursor)
    return DropStatement(*place, kind, name, if_exists, name_span, cascade=cascade)


def _explain(cursor: Cursor, place: StatementPlace) -> Statement:
    format_ = "text"
    if cursor.word == "(" and str(cursor.tokens[cursor.index + 1].text).upper() == "FORMAT":
        cursor.expect("(", "FORMAT")
        format_ = cursor.word.lower()
        if format_ not in FORMATS:
            raise cursor.unexpected("TEXT, JSON, DOT or SVG", hint="write EXPLAIN (FORMAT JSON) SELECT ...")
        cursor.take()
        cursor.expect(")")
    name_span = cursor.source.span(cursor.offset)
    if cursor.word in ("SELECT", "WITH", "(", "FROM"):
        return ExplainStatement(*place, format_, _query(cursor), None, name_span)
    if cursor.accept("CREATE"):
        made = _create(cursor, place)
        if not isinstance(made, SelectStatement):
            raise cursor.unexpected("CREATE QUERY", hint="write EXPLAIN CREATE OR REPLACE QUERY name AS SELECT ...")
        return ExplainStatement(*place, format_, made.tree, made.name, made.name_span, made.replaces)
    name = cursor.name("a SELECT or the name of a query")
    _end(cursor)
    return ExplainStatement(*place, format_, None, name, name_span)


def _show(cursor: Cursor, place: StatementPlace) -> ShowStatement:
    kind = cursor.word.lower()
    if kind not in SHOWN:
        raise cursor.unexpected(", ".join(k.upper() for k in SHOWN), hint="write SHOW QUERIES LIKE 'hot%'")
    cursor.take()
    like = None
    if cursor.accept("LIKE"):
        if cursor.kind != "STRING":
            raise cursor.unexpected("a pattern", hint=f"write SHOW {kind.upper()} LIKE 'a%'")
        like = str(cursor.take().text)
    _end(cursor)
    return ShowStatement(*place, kind, like)


def _describe(cursor: Cursor, place: StatementPlace) -> DescribeStatement:
    name_span = cursor.source.span(cursor.offset)
    name = cursor.name("the name of what is described", hint="write DESCRIBE name")
    _end(cursor)
    return DescribeStatement(*place, name, name_span)


def _end(cursor: Cursor) -> None:
    if cursor.current is not None:
        raise cursor.unexpected("the end of the statement")
