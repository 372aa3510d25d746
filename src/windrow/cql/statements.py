"""A script as statements: split at semicolons that are tokens, recognised by their first words.

Parsing is syntax only and looks at no catalog. A bare SELECT is named q1, q2, ... by its position among the
queries of the script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot.errors import TokenError
from sqlglot.tokens import Token

from windrow.catalog import SinkDef
from windrow.cql import prepared
from windrow.cql.archive_syntax import ArchiveSyntax, split_archive
from windrow.cql.ddl import DeclarationSyntax, parse_declaration, parse_options
from windrow.cql.dialect import parse_query, tokenize
from windrow.cql.keep_syntax import split_keep
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.templates import VALUES, QueriesSyntax, TemplateSyntax, parse_queries, parse_template
from windrow.cql.windows import Amount
from windrow.errors import CQLSyntaxError, Span
from windrow.scalar_engine import quote

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokens import Token

KINDS = ("stream", "table", "query", "archive", "template", "queries", "sink")
FORMATS = ("text", "json", "dot", "svg")
_STARTS = (
    "CREATE STREAM, CREATE TABLE, CREATE QUERY, CREATE ARCHIVE, CREATE TEMPLATE, CREATE SINK, DROP, EXPLAIN or SELECT"
)

DIGITS = 400


@dataclass(frozen=True)
class Statement:
    """One statement: its place, its text, and the script it stands in."""

    span: Span
    text: str
    source: ScriptText


@dataclass(frozen=True)
class Declaration(Statement):
    """CREATE STREAM or CREATE TABLE; `if_missing`: nothing happens if it is there."""

    syntax: DeclarationSyntax
    if_missing: bool = False


@dataclass(frozen=True)
class SelectStatement(Statement):
    """CREATE QUERY name AS SELECT [KEEP ...], or a bare SELECT with the name its position gives.

    `if_missing`: nothing happens if it is there; `replaces`: one that is there is dropped first.
    """

    name: str
    tree: exp.Query
    name_span: Span
    keep: Amount | None = None
    if_missing: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class RepeatedSelect(Statement):
    """CREATE QUERY that differs in literals only from one that has been parsed."""

    name: str
    offset: int
    repeated: prepared.Repeated

    @property
    def name_span(self) -> Span:
        return self.source.span(self.offset + self.repeated.cut.name_offset)


def whole(statement: RepeatedSelect) -> SelectStatement:
    """The statement, parsed."""
    found = parsed(statement.source, statement.offset, statement.offset + len(statement.text), 1)
    assert isinstance(found, SelectStatement)
    return found


@dataclass(frozen=True)
class CreateArchiveStatement(Statement):
    """CREATE ARCHIVE name AS SELECT ... KEY ... EVERY ..."""

    name: str
    tree: exp.Query
    name_span: Span
    syntax: ArchiveSyntax


@dataclass(frozen=True)
class CreateTemplateStatement(Statement):
    """CREATE TEMPLATE name (parameters) AS SELECT ..."""

    name: str
    name_span: Span
    syntax: TemplateSyntax


@dataclass(frozen=True)
class CreateQueriesStatement(Statement):
    """CREATE QUERIES name FROM TEMPLATE name VALUES ... | USING TABLE name."""

    name: str
    name_span: Span
    syntax: QueriesSyntax


@dataclass(frozen=True)
class CreateSinkStatement(Statement):
    """CREATE SINK name FOR query TO kind (options)."""

    definition: SinkDef
    name_span: Span
    query_span: Span


@dataclass(frozen=True)
class DropStatement(Statement):
    """DROP kind [IF EXISTS] name; of queries from a template, those WHERE a condition holds."""

    kind: str
    name: str
    if_exists: bool
    name_span: Span
    where: str | None = None


@dataclass(frozen=True)
class ExplainStatement(Statement):
    """EXPLAIN of a SELECT (`tree`) or of a registered query (`name`)."""

    format: str
    tree: exp.Query | None
    name: str | None
    name_span: Span


def parse(script: str) -> tuple[Statement, ...]:
    """Parse a script into statements."""
    source = ScriptText(script)
    _check_characters(source)
    statements: list[Statement] = []
    queries = 0
    places = prepared.statements(script)
    if places is None:
        for cursor in _split(source):
            queries += _is_query(cursor)
            statements += _in_turn(_statement(cursor, queries))
        return tuple(statements)
    for begin, end in places:
        found = _known(source, begin, end) or parsed(source, begin, end, queries + 1)
        queries += isinstance(found, SelectStatement | RepeatedSelect)
        if found is not None:
            statements += _in_turn(found)
    return tuple(statements)


def _in_turn(statement: Statement) -> Iterator[Statement]:
    """The statement, after the one that drops what it replaces."""
    if isinstance(statement, SelectStatement) and statement.replaces:
        place = (statement.span, statement.text, statement.source)
        yield DropStatement(*place, "query", statement.name, True, statement.name_span)
    yield statement


def _known(source: ScriptText, begin: int, end: int) -> RepeatedSelect | None:
    """A statement that differs in literals only from one that has been parsed."""
    text = source.text[begin:end].strip()
    cut = prepared.cut(text)
    found = None if cut is None else prepared.repeated(text, cut)
    if found is None:
        return None
    begin = source.text.index(text, begin)
    return RepeatedSelect(source.span(begin), text, source, found.cut.name, begin, found)


def parsed(source: ScriptText, begin: int, end: int, position: int) -> Statement | None:
    """The statement between two places; None if nothing is there."""
    if (rows := VALUES.match(source.text[begin:end])) is not None:  # however many rows there are
        return _instances(source, begin, rows)
    tokens = _tokens(source, begin, end)
    if not tokens:
        return None
    found = _statement(Cursor(source, tokens), position)
    if isinstance(found, SelectStatement) and (cut := prepared.cut(found.text)) is not None:
        places = [(int(t.start), int(t.end), t.token_type.name) for t in tokens]
        prepared.remember(cut, int(tokens[0].start), places, found.tree)
    return found


def _instances(source: ScriptText, begin: int, rows: re.Match[str]) -> CreateQueriesStatement:
    start = begin + len(rows[0]) - len(rows[0].lstrip())
    name, offset = rows["name"], begin + rows.start("rows")
    syntax = QueriesSyntax(name, rows["template"], rows["rows"], None, offset)
    place = (source.span(start), rows[0].strip(), source)
    return CreateQueriesStatement(*place, name, source.span(begin + rows.start("name")), syntax)


def _tokens(source: ScriptText, begin: int = 0, end: int | None = None) -> list[Token]:
    """The tokens between two places of a text, with their offsets in all of it."""
    try:
        tokens = tokenize(source.text[begin:end])
    except TokenError as error:
        raise _token_error(error, source) from None
    found = (
        [Token(t.token_type, t.text, t.line, t.col, t.start + begin, t.end + begin) for t in tokens]
        if begin
        else tokens
    )
    _check_numbers(found, source)
    return found


def _check_characters(source: ScriptText) -> None:
    """Refuse what no text holds: the character zero, at which DuckDB stops to read, and halves of characters."""
    found = re.search("[\\x00\\ud800-\\udfff]", source.text)
    if found is not None:
        raise CQLSyntaxError(
            f"the character {ord(found.group()):#06x} in a script",
            hint="a script is text; write chr(0) for that character in a value",
            span=source.span(found.start()),
        )


def _split(source: ScriptText) -> Iterator[Cursor]:
    """One cursor per statement that has any token."""
    tokens = _tokens(source)
    start = 0
    for i, token in enumerate([*tokens, None]):
        if token is None or token.token_type.name == "SEMICOLON":
            if i > start:
                yield Cursor(source, tokens[start:i])
            start = i + 1


def _check_numbers(tokens: Sequence[Token], source: ScriptText) -> None:
    """Refuse 0xff, which would be read as 0 under the name xff, and numbers longer than any type has digits."""
    for token in tokens:
        if token.token_type.name == "NUMBER" and len(token.text) > DIGITS:
            raise CQLSyntaxError(
                f"a number of {len(token.text):,} characters",
                hint=f"write at most {DIGITS}",
                span=source.span(token.start),
            )
    for number, word in pairwise(tokens):
        if number.text == "0" and word.start == number.end + 1 and word.text[:1].lower() in ("x", "b", "o"):
            raise CQLSyntaxError(
                f"{number.text}{word.text} is not a number", hint="write it in decimal", span=source.span(number.start)
            )


def _token_error(error: TokenError, source: ScriptText) -> CQLSyntaxError:
    """Place an unterminated string or comment at its opening quote."""
    text = f"{error} {error.__cause__ or ''}"
    delimiter = re.search(r"Missing (\S+) from", text)
    opener = delimiter.group(1) if delimiter else "'"
    opener = {"*/": "/*"}.get(opener, opener)
    offset = _open_quote(source.text, opener)
    return CQLSyntaxError(
        "unterminated comment" if opener == "/*" else "unterminated string or name",
        hint=f"close it with {delimiter.group(1) if delimiter else opener}",
        span=source.span(offset),
    )


def _open_quote(text: str, opener: str) -> int:
    """Where the quote that never closes opens: the first whose rest does not tokenize, from the end backwards."""
    starts = [m.start() for m in re.finditer(re.escape(opener), text)]
    for start in starts:
        try:
            tokenize(text[:start])
        except TokenError:
            continue
        try:
            tokenize(text[start:])
        except TokenError:
            end = text.find(opener, start + len(opener))
            if end < 0 or not _tokenizes(text[: end + len(opener)]):
                return start
    return starts[-1] if starts else 0


def _tokenizes(text: str) -> bool:
    try:
        tokenize(text)
    except TokenError:
        return False
    return True


def _is_query(cursor: Cursor) -> bool:
    words = [str(t.text).upper() for t in cursor.tokens[:4]]
    created = words[:2] == ["CREATE", "QUERY"] or words == ["CREATE", "OR", "REPLACE", "QUERY"]
    return words[0] in ("SELECT", "WITH", "(", "FROM") or created


def _statement(cursor: Cursor, position: int) -> Statement:
    start = cursor.offset
    end = int(cursor.tokens[cursor.end - 1].end) + 1
    source = cursor.source
    place = (source.span(start), source.text[start:end], source)
    if cursor.word in ("SELECT", "WITH", "(", "FROM"):
        return SelectStatement(*place, f"q{position}", _query(cursor), source.span(start))
    if cursor.accept("CREATE"):
        return _create(cursor, place)
    if cursor.accept("DROP"):
        return _drop(cursor, place)
    if cursor.accept("EXPLAIN"):
        return _explain(cursor, place)
    raise cursor.unexpected("a statement", hint=f"start with {_STARTS}")


def _query(cursor: Cursor) -> exp.Query:
    if cursor.current is None:
        raise cursor.unexpected("a SELECT")
    return parse_query(cursor.source, list(cursor.tokens[cursor.index : cursor.end]))


def _create(cursor: Cursor, place: tuple[Span, str, ScriptText]) -> Statement:
    replaces = cursor.accept("OR", "REPLACE")
    kind = cursor.word.lower()
    if replaces and kind != "query":
        raise cursor.unexpected("QUERY", hint="write CREATE OR REPLACE QUERY name AS SELECT ..., or DROP it first")
    if kind not in KINDS:
        raise cursor.unexpected(
            "STREAM, TABLE, QUERY, ARCHIVE, TEMPLATE, QUERIES or SINK",
            hint=f"start with {_STARTS}",
        )
    cursor.take()
    if kind in ("template", "queries"):
        name_span, end = cursor.source.span(cursor.offset), int(cursor.tokens[cursor.end - 1].end) + 1
        if kind == "template":
            template = parse_template(cursor, end)
            return CreateTemplateStatement(*place, template.name, name_span, template)
        queries = parse_queries(cursor, end)
        return CreateQueriesStatement(*place, queries.name, name_span, queries)
    if_missing = kind in ("stream", "table", "query") and cursor.accept("IF", "NOT", "EXISTS")
    if kind in ("stream", "table"):
        return Declaration(*place, parse_declaration(cursor, kind), if_missing)
    if kind == "sink":
        return _create_sink(cursor, place)
    name_span = cursor.source.span(cursor.offset)
    name = cursor.name(f"the name of the {kind}", hint=f"write CREATE {kind.upper()} name AS SELECT ...")
    cursor.expect("AS", hint=f"write CREATE {kind.upper()} {name} AS SELECT ...")
    if kind == "archive":
        select, syntax = split_archive(cursor)
        return CreateArchiveStatement(*place, name, parse_query(cursor.source, select), name_span, syntax)
    if replaces or if_missing:  # what is kept of it declares it, whatever there was
        rest = cursor.source.text[cursor.offset : int(cursor.tokens[cursor.end - 1].end) + 1]
        place = (place[0], f"CREATE QUERY {quote(name)} AS {rest}", place[2])
    keep = split_keep(cursor)
    return SelectStatement(*place, name, _query(cursor), name_span, keep, if_missing, replaces)


def _create_sink(cursor: Cursor, place: tuple[Span, str, ScriptText]) -> Statement:
    form = "write CREATE SINK name FOR query TO postgres (dsn => '...')"
    name_span = cursor.source.span(cursor.offset)
    name = cursor.name("the name of the sink", hint=form)
    cursor.expect("FOR", hint=form)
    query_span = cursor.source.span(cursor.offset)
    query = cursor.name("the name of a query", hint=form)
    cursor.expect("TO", hint=form)
    kind = cursor.name("the kind of sink", hint=form).lower()
    options = parse_options(cursor) if cursor.word == "(" else {}
    if cursor.current is not None:
        raise cursor.unexpected("the end of the statement")
    return CreateSinkStatement(*place, SinkDef(name, query, kind, options), name_span, query_span)


def _drop(cursor: Cursor, place: tuple[Span, str, ScriptText]) -> Statement:
    kind = cursor.word.lower()
    if kind not in KINDS:
        raise cursor.unexpected(
            "STREAM, TABLE, QUERY, ARCHIVE, TEMPLATE, QUERIES or SINK", hint="write DROP QUERY name"
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
    elif cursor.current is not None:
        raise cursor.unexpected("the end of the statement")
    return DropStatement(*place, kind, name, if_exists, name_span, where)


def _explain(cursor: Cursor, place: tuple[Span, str, ScriptText]) -> Statement:
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
    name = cursor.name("a SELECT or the name of a query")
    if cursor.current is not None:
        raise cursor.unexpected("the end of the statement")
    return ExplainStatement(*place, format_, None, name, name_span)
