"""A script's declarations, read from its text: streams with their time column and slack, tables, and the queries.

Invariant: every query keeps its tokens as written; meaning is given to them in `oracle`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windrow.testing.tokens import Token, Tokens, closing, is_at, render, split, tokenize

_UNITS = {
    1: ("us", "microsecond", "usec"),
    1_000: ("ms", "millisecond", "msec"),
    1_000_000: ("s", "sec", "second"),
    60_000_000: ("m", "min", "minute"),
    3_600_000_000: ("h", "hr", "hour"),
    86_400_000_000: ("d", "day"),
}
MICROSECONDS = {word: us for us, words in _UNITS.items() for word in (*words, *(w + "s" for w in words))}


@dataclass(frozen=True)
class OracleDeclaration:
    """A CREATE STREAM or CREATE TABLE: columns with their SQL types, and the clauses that change an answer."""

    name: str
    columns: dict[str, str]
    time: str | None = None
    slack: int | None = None  # None: WITHIN is not said
    valid: tuple[str, str] | None = None


@dataclass
class Script:
    """What a script declares, by lower-case name; queries in order."""

    streams: dict[str, OracleDeclaration] = field(default_factory=dict)
    tables: dict[str, OracleDeclaration] = field(default_factory=dict)
    queries: dict[str, list[Token]] = field(default_factory=dict)


def duration(tokens: Tokens, start: int) -> tuple[int, int]:
    """A length of time (`5`, `5 SECONDS`, `'5 sec'`) at `start`, in ticks or microseconds, and the index after it.

    >>> duration(tokenize("RANGE '12 min' SLIDE 5"), 1)
    (720000000, 2)
    """
    if tokens[start].kind == "string":
        length, end = duration(tokenize(tokens[start].text[1:-1]), 0)
        unit = tokens[start + 1].text.lower() if start + 1 < len(tokens) else ""
        if unit in MICROSECONDS:  # '10' MINUTE
            return length * MICROSECONDS[unit], start + 2
        return length, start + 1
    number, end = float(tokens[start].text), start + 1
    unit = tokens[end].text.lower() if end < len(tokens) else ""
    if unit in MICROSECONDS:
        return round(number * MICROSECONDS[unit]), end + 1
    return round(number), end


def read_script(text: str) -> Script:
    """Read the statements of a script; a bare SELECT is named by its position among the queries."""
    script = Script()
    position = 0
    for statement in split(tokenize(text), ";"):
        if not statement:
            continue
        body = statement
        if is_at(body, 0, "CREATE", "STREAM"):
            stream = _declaration(body[2:])
            script.streams[stream.name.lower()] = stream
        elif is_at(body, 0, "CREATE", "TABLE"):
            table = _declaration(body[2:])
            script.tables[table.name.lower()] = table
        elif is_at(body, 0, "DROP"):
            for kind in (script.streams, script.tables, script.queries):
                kind.pop(_unquoted(body[-1]), None)
        elif is_at(body, 0, "EXPLAIN"):
            continue
        elif is_at(body, 0, "CREATE", "QUERY"):
            position += 1
            script.queries[_unquoted(body[2])] = body[4:]
        else:
            position += 1
            script.queries[f"q{position}"] = body
    return script


def _unquoted(token: Token) -> str:
    return token.text[1:-1] if token.kind == "quoted" else token.text


def _declaration(tokens: Tokens) -> OracleDeclaration:
    name = _unquoted(tokens[0])
    end = closing(tokens, 1)
    columns = {_unquoted(c[0]): render(c[1:]) for c in split(tokens[2:end], ",")}
    time, slack, valid = None, None, None
    i = end + 1
    while i < len(tokens):
        if is_at(tokens, i, "WITHIN"):
            slack, i = duration(tokens, i + 1)
        elif is_at(tokens, i, "VALID", "FROM"):
            valid, i = (_unquoted(tokens[i + 2]), _unquoted(tokens[i + 4])), i + 5
        elif tokens[i].upper in ("TIMESTAMP", "TIME", "ORDER"):
            i += 1 + is_at(tokens, i + 1, "BY")
            i += is_at(tokens, i, "(")
            time = _unquoted(tokens[i])
            i += 1 + is_at(tokens, i + 1, ")")
        else:
            i += 1  # IDLE AFTER, RETAIN, RETROACTIVE and sources change no answer of a replay
    return OracleDeclaration(name, columns, time, slack, valid)
