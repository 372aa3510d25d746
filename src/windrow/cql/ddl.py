"""CREATE STREAM and CREATE TABLE: from tokens to definitions.

    CREATE STREAM bid (auction BIGINT, price DOUBLE, ts TIMESTAMP)
        TIMESTAMP BY ts WITHIN 5 SECONDS IDLE AFTER 10 SECONDS RETAIN 10 MINUTES ON ERROR QUARANTINE
        FROM kafka (topic => 'bids')
    CREATE TABLE person (id BIGINT, name VARCHAR, since TIMESTAMP, till TIMESTAMP) RETROACTIVE VALID FROM since TO till
    CREATE TABLE person (id BIGINT, name VARCHAR) KEY (id) CHANGES BY op BEFORE before AFTER after FROM kafka (...)

Clauses come in any order, each at most once. The types are those of `type_names`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa

from windrow.catalog import StreamDef, TableDef
from windrow.cql import types
from windrow.cql.changes_syntax import WrittenChanges, check_changes, parse_changes, parse_key
from windrow.cql.dialect import parse_type
from windrow.cql.scope import did_you_mean
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.type_names import NAMES, UnknownType, type_name
from windrow.cql.windows import Amount, Clock, parse_amount
from windrow.errors import BindingError, CQLSyntaxError, UnsupportedError

_CONSTRAINTS = frozenset(
    (
        "NOT",
        "NULL",
        "KEY",
        "PRIMARY",
        "PRIMARY KEY",
        "UNIQUE",
        "DEFAULT",
        "CHECK",
        "REFERENCES",
        "GENERATED",
        "CONSTRAINT",
    )
)

_DEPTHS = {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1, ">>": -2}


@dataclass(frozen=True)
class ColumnSyntax:
    """A column as written: `type_text` is uninterpreted."""

    name: str
    type_text: str
    offset: int
    type_offset: int


@dataclass
class DeclarationSyntax:
    """A stream or table as written."""

    kind: str
    name: str
    offset: int
    columns: tuple[ColumnSyntax, ...] = ()
    time: tuple[str, int] | None = None
    proctime: bool = False
    within: Amount | None = None
    idle_after: Amount | None = None
    ahead: Amount | None = None
    retain: Amount | None = None
    quarantine: bool | None = None
    retroactive: bool = False
    valid: tuple[tuple[str, int], tuple[str, int]] | None = None
    key: tuple[tuple[str, int], ...] = ()
    changes: WrittenChanges | None = None
    options: dict[str, str] = field(default_factory=dict)


def parse_declaration(cursor: Cursor, kind: str) -> DeclarationSyntax:
    """Parse what follows CREATE STREAM or CREATE TABLE."""
    offset = cursor.offset
    name = cursor.name(f"the name of the {kind}")
    declaration = DeclarationSyntax(kind, name, offset)
    declaration.columns = parse_columns(cursor, kind, name)
    seen: set[str] = set()
    while cursor.current is not None:
        start = cursor.offset
        clause = parse_clause(cursor, declaration)
        if clause in seen:
            raise CQLSyntaxError(f"{clause} stands twice", hint="write it once", span=cursor.source.span(start))
        seen.add(clause)
    return declaration


def parse_columns(cursor: Cursor, kind: str, name: str) -> tuple[ColumnSyntax, ...]:
    """Parse `(a BIGINT, ts TIMESTAMP)`."""
    declared = f"CREATE {kind.upper()} {name} (a BIGINT, ts TIMESTAMP)"
    computed = f"what a SELECT computes is a query or a view: CREATE QUERY {name} AS SELECT ..."
    cursor.expect("(", hint=computed if cursor.word == "AS" else f"write {declared}")
    columns = []
    while True:
        offset = cursor.offset
        column = cursor.name("a column name")
        if column.upper() == "WATERMARK" and cursor.word == "FOR":
            raise UnsupportedError(
                "WATERMARK among the columns",
                detail="how late rows may be is said behind them",
                hint=f"write CREATE STREAM {name} (...) TIMESTAMP BY ts WITHIN 5 SECONDS",
                span=cursor.source.span(offset),
            )
        columns.append(_column(cursor, column, offset))
        if not cursor.accept(","):
            break
    cursor.expect(")", hint="separate columns with commas")
    return tuple(columns)


def _column(cursor: Cursor, name: str, offset: int) -> ColumnSyntax:
    text, start = type_text(cursor, name)
    return ColumnSyntax(name, text, offset, start)


def type_text(cursor: Cursor, column: str) -> tuple[str, int]:
    """The text of a type up to the comma or parenthesis that ends the column."""
    start, end, depth = cursor.offset, cursor.offset, 0
    while cursor.current is not None and (depth or cursor.word not in (",", ")")):
        if not depth and cursor.word in _CONSTRAINTS:
            raise UnsupportedError(
                f"{cursor.word} on a column",
                detail="constraints would not be checked",
                hint="remove it",
                span=cursor.source.span(cursor.offset),
            )
        depth += _DEPTHS.get(cursor.word, 0)
        end = int(cursor.take().end) + 1
    if end == start:
        raise cursor.unexpected(f'the type of column "{column}"', hint=f"write {column} BIGINT")
    return cursor.source.text[start:end], start


def parse_clause(cursor: Cursor, declaration: DeclarationSyntax) -> str:
    """Parse one clause and return its name."""
    stream = declaration.kind == "stream"
    if stream and cursor.word in ("TIMESTAMP", "TIME", "ORDER BY"):
        declaration.time = _time_column(cursor)
        if cursor.accept("AS"):
            for word in ("PROCTIME", "(", ")"):
                cursor.expect(word, hint=f"write TIMESTAMP BY {declaration.time[0]} AS PROCTIME()")
            declaration.proctime = True
        return "TIMESTAMP BY"
    if stream and cursor.accept("WITHIN"):
        declaration.within = parse_amount(cursor, "WITHIN")
        return "WITHIN"
    if stream and cursor.accept("IDLE", "AFTER"):
        declaration.idle_after = parse_amount(cursor, "IDLE AFTER")
        return "IDLE AFTER"
    if stream and cursor.accept("AHEAD"):
        declaration.ahead = parse_amount(cursor, "AHEAD")
        return "AHEAD"
    if stream and cursor.accept("RETAIN"):
        declaration.retain = parse_amount(cursor, "RETAIN")
        return "RETAIN"
    if cursor.accept("ON"):
        cursor.expect("ERROR", hint="write ON ERROR QUARANTINE")
        declaration.quarantine = cursor.accept("QUARANTINE")
        if not declaration.quarantine:
            cursor.expect("STOP", hint="write ON ERROR STOP or ON ERROR QUARANTINE")
        return "ON ERROR"
    if not stream and cursor.accept("RETROACTIVE"):
        declaration.retroactive = True
        return "RETROACTIVE"
    if not stream and cursor.accept("VALID"):
        cursor.expect("FROM", hint="write VALID FROM since TO till")
        begin = (cursor.name("a column"), cursor.tokens[cursor.index - 1].start)
        cursor.expect("TO", hint="write VALID FROM since TO till")
        declaration.valid = (begin, (cursor.name("a column"), cursor.tokens[cursor.index - 1].start))
        return "VALID"
    if not stream and cursor.accept("KEY"):
        declaration.key = parse_key(cursor)
        return "KEY"
    if not stream and cursor.accept("CHANGES"):
        declaration.changes = parse_changes(cursor)
        return "CHANGES BY"
    if cursor.accept("FROM"):
        declaration.options["source"] = cursor.name("the kind of source").lower()
        declaration.options.update(parse_options(cursor) if cursor.word == "(" else {})
        return "FROM"
    if cursor.accept("WITH"):
        declaration.options.update(parse_options(cursor))
        return "WITH"
    if stream:
        raise cursor.unexpected("TIMESTAMP BY, WITHIN, IDLE AFTER, AHEAD, RETAIN, ON ERROR, FROM or WITH")
    raise cursor.unexpected("RETROACTIVE, VALID FROM, KEY, CHANGES BY, ON ERROR, FROM or WITH")


def _time_column(cursor: Cursor) -> tuple[str, int]:
    if not cursor.accept("ORDER BY"):
        cursor.take()
        cursor.accept("BY")
    wrapped = cursor.accept("(")
    offset = cursor.offset
    name = cursor.name("the time column", hint="write TIMESTAMP BY ts")
    if cursor.word == "(":
        raise CQLSyntaxError(
            "TIMESTAMP BY an expression",
            detail="the time of a row is one of its columns",
            hint="declare that column TIMESTAMP, and say how times are written: "
            "FROM csv (path => '...', timestampFormat => 'epoch_ms')",
            span=cursor.source.span(offset),
        )
    if wrapped:
        cursor.expect(")")
    return name, offset


def parse_options(cursor: Cursor) -> dict[str, str]:
    cursor.expect("(", hint="write (option => 'value')")
    options: dict[str, str] = {}
    while not cursor.accept(")"):
        if cursor.kind == "STRING":
            key = str(cursor.take().text)
        else:
            key = cursor.name("an option's name")
        while cursor.accept("."):
            key += "." + cursor.name("an option's name")
        if cursor.accept("="):
            cursor.accept(">")
        else:
            cursor.expect("=>", hint=f"write {key} => 'value'")
        sign = "-" if cursor.accept("-") else ""
        options[key] = sign + str(cursor.take().text)
        if not cursor.accept(","):
            cursor.expect(")")
            break
    return options


def bind_stream(declaration: DeclarationSyntax, source: ScriptText) -> StreamDef:
    """The definition of a stream."""
    columns = bind_columns(declaration.columns, source)
    time, offset = _bind_time(declaration, columns, source)
    try:
        types.check_time(time, columns[time])
    except BindingError as error:
        raise error.at(source.span(offset)) from None
    clock = Clock.MICROSECONDS if pa.types.is_timestamp(columns[time]) else Clock.TICKS
    within = _length(declaration.within, clock, source, "WITHIN", least=0)
    if declaration.ahead is not None and clock is Clock.TICKS:
        raise UnsupportedError(
            "AHEAD on a clock of ticks",
            detail="how far ahead a row is, is judged by the clock on the wall, which has no ticks",
            hint="give the stream a TIMESTAMP, or leave AHEAD out",
            span=source.span(offset),
        )
    return StreamDef(
        declaration.name,
        columns,
        time,
        slack=within or 0,
        within=within is not None,
        ahead=_length(declaration.ahead, Clock.MICROSECONDS, source, "AHEAD", least=1),
        idle_after=_length(declaration.idle_after, Clock.MICROSECONDS, source, "IDLE AFTER", least=1),
        retain=_length(declaration.retain, clock, source, "RETAIN", least=0),
        quarantine=bool(declaration.quarantine),
        proctime=declaration.proctime,
        options=dict(declaration.options),
    )


def bind_clauses(stream: StreamDef, clauses: DeclarationSyntax, source: ScriptText) -> StreamDef:
    """A stream with other clauses: those that are said."""
    clock = Clock.MICROSECONDS if pa.types.is_timestamp(stream.time_type) else Clock.TICKS
    within = _length(clauses.within, clock, source, "WITHIN", least=0)
    idle = _length(clauses.idle_after, Clock.MICROSECONDS, source, "IDLE AFTER", least=1)
    ahead = _length(clauses.ahead, Clock.MICROSECONDS, source, "AHEAD", least=1)
    if ahead is not None and clock is Clock.TICKS:
        raise UnsupportedError("AHEAD on a clock of ticks", hint="give the stream a TIMESTAMP, or leave AHEAD out")
    found = stream if within is None else replace(stream, slack=within, within=True)
    found = found if idle is None else replace(found, idle_after=idle)
    found = found if ahead is None else replace(found, ahead=ahead)
    return found if clauses.quarantine is None else replace(found, quarantine=clauses.quarantine)


def bind_table(declaration: DeclarationSyntax, source: ScriptText) -> TableDef:
    """The definition of a table."""
    columns = bind_columns(declaration.columns, source)
    valid = None
    if declaration.valid is not None:
        begin, end = (_find(c, columns, source) for c in declaration.valid)
        if types.instant_type(columns[begin]) != types.instant_type(columns[end]):
            raise BindingError(
                f'VALID FROM "{begin}" TO "{end}" has two types',
                hint="declare both columns with the type of the streams' time",
                span=source.span(declaration.valid[0][1]),
            )
        for name, (_, offset) in zip((begin, end), declaration.valid, strict=True):
            try:
                types.check_time(name, columns[name])
            except BindingError as error:
                raise error.at(source.span(offset)) from None
        valid = (begin, end)
    written, options = declaration.changes, dict(declaration.options)
    keys = tuple(_find(k, columns, source) for k in declaration.key)
    said = {"KEY": bool(keys), "ON ERROR": declaration.quarantine is not None}
    check_changes(written, said, keys, columns, options, source, declaration.offset)
    return TableDef(
        declaration.name, columns, declaration.retroactive, valid, options, keys,
        None if written is None else written.columns, bool(declaration.quarantine), recall=True,
    )  # fmt: skip


def bind_columns(written: Iterable[ColumnSyntax], source: ScriptText, what: str = "column") -> dict[str, pa.DataType]:
    """Columns by their names, with their types."""
    columns: dict[str, pa.DataType] = {}
    for column in written:
        if column.name.lower() in (c.lower() for c in columns):
            raise BindingError(
                f'{what} "{column.name}" stands twice', hint="give it another name", span=source.span(column.offset)
            )
        try:
            columns[column.name] = _type(column.type_text)
        except types.NotKept as refusal:
            raise UnsupportedError(
                f'{what} "{column.name}" of type {column.type_text}',
                detail=refusal.short,
                hint=f"declare it {refusal.instead}, and CAST it where it is used",
                span=source.span(column.type_offset),
            ) from None
        except UnknownType as unknown:
            near = unknown.hint or did_you_mean(column.type_text, NAMES)
            raise BindingError(
                f'unknown type "{column.type_text}"',
                hint=near or f"write a SQL type: {column.name} BIGINT",
                span=source.span(column.type_offset),
            ) from None
    return columns


@lru_cache(maxsize=1024)
def _type(text: str) -> pa.DataType:
    tree = parse_type(text)
    if tree is None:
        raise UnknownType(text)
    try:
        return types.arrow_type(type_name(tree))
    except types.NotKept:
        raise
    except types.DuckDBRefusal:  # DECIMAL(99), for one
        raise UnknownType(text) from None


def _bind_time(declaration: DeclarationSyntax, columns: dict[str, pa.DataType], source: ScriptText) -> tuple[str, int]:
    """The time column: the one declared, else `ts`, else the only timestamp."""
    if declaration.time is not None:
        return _find(declaration.time, columns, source), declaration.time[1]
    offsets = {c.name: c.offset for c in declaration.columns}
    stamps = [n for n, t in columns.items() if pa.types.is_timestamp(t)]
    for name in [n for n in columns if n.lower() == "ts"] or (stamps if len(stamps) == 1 else []):
        return name, offsets[name]
    raise BindingError(
        f'stream "{declaration.name}" has no time column',
        detail="several columns are timestamps" if stamps else "no column is a timestamp or named ts",
        hint=f"write TIMESTAMP BY {stamps[0] if stamps else 'ts'} after the columns",
        span=source.span(declaration.offset),
    )


def _find(name: tuple[str, int], columns: dict[str, pa.DataType], source: ScriptText) -> str:
    for column in columns:
        if column.lower() == name[0].lower():
            return column
    raise BindingError(
        f'unknown column "{name[0]}"',
        hint=did_you_mean(name[0], columns) or f"columns are {', '.join(columns)}",
        span=source.span(name[1]),
    )


def _length(amount: Amount | None, clock: Clock, source: ScriptText, what: str, least: int) -> int | None:
    if amount is None:
        return None
    value = amount.on(clock, source, what)
    if value < least:
        raise BindingError(
            f"{what} {amount.text} is too short", hint=f"write {what} 5 SECONDS", span=source.span(amount.offset)
        )
    return value
