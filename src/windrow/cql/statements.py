"""A script as statements: split at semicolons that are tokens.

Parsing is syntax only and looks at no catalog. A bare SELECT is named q1, q2, ... by its position among the
queries of the script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from windrow.cql import prepared
from windrow.cql.dialect import tokenize
from windrow.cql.plain_tokens import plain_tokens
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.statement_forms import CreateQueriesStatement, RepeatedSelect, SelectStatement, Statement
from windrow.cql.statement_syntax import parse_statement
from windrow.cql.template_syntax import QueriesSyntax
from windrow.cql.templates import VALUES
from windrow.errors import CQLSyntaxError

DIGITS = 400
_LITERALS = (TokenType.NUMBER, TokenType.STRING)


def whole(statement: RepeatedSelect) -> SelectStatement:
    """The statement, parsed."""
    found = parsed(statement.source, statement.offset, statement.offset + len(statement.text), 1)
    assert isinstance(found, SelectStatement)
    return found


def parse(script: str) -> tuple[Statement, ...]:
    """Parse a script into statements."""
    source = ScriptText(script)
    _check_characters(source)
    statements: list[Statement] = []
    queries = 0
    places = prepared.statements(script)
    if places is None:
        for cursor, text in _split(source):
            queries += _is_query(cursor)
            statements.append(parse_statement(cursor, queries, text))
        return tuple(statements)
    for begin, end in places:
        text = source.text[begin:end].strip()
        cut = prepared.cut(text)
        found = _known(source, begin, text, cut) or parsed(source, begin, end, queries + 1, cut)
        queries += isinstance(found, SelectStatement | RepeatedSelect)
        if found is not None:
            statements.append(found)
    return tuple(statements)


def _known(source: ScriptText, begin: int, text: str, cut: prepared.Cut | None) -> RepeatedSelect | None:
    """A statement that differs in literals only from one that has been parsed."""
    found = None if cut is None else prepared.repeated(text, cut)
    if found is None:
        return None
    begin = source.text.index(text, begin)
    return RepeatedSelect(source.span(begin), text, source, found.cut.name, begin, found)


def parsed(
    source: ScriptText, begin: int, end: int, position: int, cut: prepared.Cut | None = None
) -> Statement | None:
    """The statement between two places; None if nothing is there. `cut`: its text, without what is around it, cut."""
    if (rows := VALUES.match(source.text[begin:end])) is not None:  # however many rows there are
        return _instances(source, begin, rows)
    tokens = _tokens(source, begin, end)
    if not tokens:
        return None
    found = parse_statement(Cursor(source, tokens), position)
    if isinstance(found, SelectStatement):
        if cut is None or source.text[begin:end].strip() != found.text:
            cut = prepared.cut(found.text)
        if cut is not None:
            literals = {(t.start, t.end) for t in tokens if t.token_type in _LITERALS}
            prepared.remember(cut, int(tokens[0].start), literals, found.tree)
    return found


def _instances(source: ScriptText, begin: int, rows: re.Match[str]) -> CreateQueriesStatement:
    start = begin + len(rows[0]) - len(rows[0].lstrip())
    name, offset = rows["name"], begin + rows.start("rows")
    syntax = QueriesSyntax(name, rows["template"], rows["rows"], None, offset)
    place = (source.span(start), rows[0].strip(), source)
    return CreateQueriesStatement(*place, name, source.span(begin + rows.start("name")), syntax)


def _tokens(source: ScriptText, begin: int = 0, end: int | None = None) -> list[Token]:
    """The tokens between two places of a text, with their offsets in all of it."""
    end = len(source.text) if end is None else end
    if (plain := plain_tokens(source.text, begin, end)) is not None:
        return plain
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


def _split(source: ScriptText) -> Iterator[tuple[Cursor, str]]:
    """A cursor and the text, comments included, of each statement that has any token."""
    tokens = _tokens(source)
    start = begin = 0
    for i, token in enumerate([*tokens, None]):
        if token is None or token.token_type is TokenType.SEMICOLON:
            end = len(source.text) if token is None else int(token.start)
            if i > start:
                yield Cursor(source, tokens[start:i]), _as_written(source.text[begin:end], first=begin == 0)
            start, begin = i + 1, end + 1


def _as_written(text: str, first: bool) -> str:
    """The text of a statement; a comment behind the semicolon before it belongs to the one before."""
    behind = None if first else re.match(r"[ \t]*--[^\n]*\n", text)
    return text[behind.end() if behind else 0 :].strip()


def _check_numbers(tokens: Sequence[Token], source: ScriptText) -> None:
    """Refuse 0xff, which would be read as 0 under the name xff, and numbers longer than any type has digits."""
    for token in tokens:
        if len(token.text) > DIGITS and token.token_type is TokenType.NUMBER:
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
    made = words[3:] if words[1:3] == ["OR", "REPLACE"] else words[1:2]
    return words[0] in ("SELECT", "WITH", "(", "FROM") or (
        words[0] == "CREATE" and made in (["QUERY"], ["MATERIALIZED"])
    )
