"""ALTER ... ADD COLUMN and DROP COLUMN: the columns of a stream or table after it.

A column that is added is null in rows and files that do not have it: those that came before, and those that still come
from writers who do not know it. One that is dropped is not read any more. What would give rows that are there, or still
to come, another meaning is refused: columns by position, rows that RETAIN keeps, times and keys.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.catalog import StreamDef, TableDef
from windrow.cql.ddl import ColumnSyntax, bind_columns, type_text
from windrow.cql.scope import did_you_mean
from windrow.cql.source import Cursor, ScriptText
from windrow.errors import BindingError, UnsupportedError

Columned = StreamDef | TableDef


def parse_column(cursor: Cursor, adds: bool) -> ColumnSyntax:
    """Parse what follows ADD or DROP: a column, with its type if it is added."""
    cursor.accept("COLUMN")
    offset = cursor.offset
    name = cursor.name("a column name", hint="write ADD COLUMN a BIGINT, or DROP COLUMN a")
    text, start = type_text(cursor, name) if adds else ("", offset)
    return ColumnSyntax(name, text, offset, start)


def with_column(item: Columned, column: ColumnSyntax, source: ScriptText) -> Columned:
    """A stream or table with one more column."""
    _check_rows(item, "added to", column, source)
    if (known := _known(item, column.name)) is not None:
        raise BindingError(
            f'column "{known}" already exists',
            hint="a column keeps its type; add one of another name",
            span=source.span(column.offset),
        )
    columns = {**item.columns, **bind_columns([column], source)}
    return replace(item, columns=columns, added=(*item.added, column.name))


def without_column(item: Columned, column: ColumnSyntax, source: ScriptText) -> Columned:
    """A stream or table with one column less."""
    _check_rows(item, "taken from", column, source)
    name = _known(item, column.name)
    if name is None:
        raise BindingError(
            f'unknown column "{column.name}"',
            hint=did_you_mean(column.name, item.columns) or f"columns are {', '.join(item.columns)}",
            span=source.span(column.offset),
        )
    if (role := _roles(item).get(name)) is not None:
        raise UnsupportedError(
            f'column "{name}" cannot be dropped',
            detail=f"it is {role}",
            hint=f"declare another {_kind(item)} without it",
            span=source.span(column.offset),
        )
    columns = {n: t for n, t in item.columns.items() if n != name}
    return replace(item, columns=columns, added=tuple(n for n in item.added if n != name))


def _kind(item: Columned) -> str:
    return "stream" if isinstance(item, StreamDef) else "table"


def _known(item: Columned, name: str) -> str | None:
    return next((c for c in item.columns if c.lower() == name.lower()), None)


def _roles(item: Columned) -> dict[str, str]:
    """What columns are besides columns."""
    if isinstance(item, StreamDef):
        return {item.time: "the time of the stream"}
    return {**dict.fromkeys(item.keys, "part of the KEY"), **dict.fromkeys(item.valid or (), "part of VALID FROM")}


def _check_rows(item: Columned, verb: str, column: ColumnSyntax, source: ScriptText) -> None:
    """Refuse where rows that are kept, or are to come, would be read as something else."""
    kind, options = _kind(item), {k.lower(): v.lower() for k, v in item.options.items()}
    by_place = options.get("header", "true") in ("false", "0", "no") if options.get("source") == "csv" else False
    by_place |= options.get("source") == "kafka" and options.get("format") in ("csv", "avro")
    why = None
    if isinstance(item, StreamDef) and item.retain is not None:
        why = "RETAIN keeps rows as they came, for queries to come"
    elif by_place:
        why = "its rows are read by position or by a schema that is written in its options"
    elif isinstance(item, TableDef) and item.changes is not None and item.changes.after is not None:
        why = "the rows before and after a change are structs, whose fields are those declared"
    elif options.get("source") == "rate":
        why = "a rate has the columns that it has"
    if why is not None:
        raise UnsupportedError(
            f"a column cannot be {verb} this {kind}",
            detail=why,
            hint=f"declare another {kind} with the columns that are wanted, and CREATE OR REPLACE the queries that "
            "read it",
            span=source.span(column.offset),
        )
