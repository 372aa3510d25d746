"""A script's declarations, read from its text: streams with their time column and slack, tables, and the queries.

Invariant: every query keeps its tokens as written, but for the names of views and of other queries, which are those in
parentheses; meaning is given to them in `oracle`.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_AFTER = frozenset(
    ("JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "FULL", "NATURAL", "WHERE", "GROUP", "HAVING", "ON", "USING", "UNION",
     "EXCEPT", "INTERSECT", "ORDER", "LIMIT")
)  # fmt: skip
"""Words that follow a source and are no alias."""


@dataclass(frozen=True)
class OracleDeclaration:
    """A CREATE STREAM or CREATE TABLE: columns with their SQL types, and the clauses that change an answer."""

    name: str
    columns: dict[str, str]
    time: str | None = None
    slack: int | None = None  # None: WITHIN is not said
    valid: tuple[str, str] | None = None
    key: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # expressions: the operation, and the rows before and after where they are apart
    idle: int | None = None  # IDLE AFTER, in microseconds
    ahead: int | None = None  # AHEAD, in microseconds
    retroactive: bool = False


@dataclass
class Script:
    """What a script declares, by lower-case name; queries in order."""

    streams: dict[str, OracleDeclaration] = field(default_factory=dict)
    tables: dict[str, OracleDeclaration] = field(default_factory=dict)
    queries: dict[str, list[Token]] = field(default_factory=dict)
    views: dict[str, list[Token]] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)  # as macros of DuckDB


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
        elif is_at(body, 0, "CREATE", "FUNCTION"):
            script.functions.append(_macro(body[2:]))
        elif is_at(body, 0, "CREATE", "VIEW"):
            script.views[_unquoted(body[2]).lower()] = in_place(body[4:], script)
        elif is_at(body, 0, "CREATE", "QUERY"):
            position += 1
            script.queries[_unquoted(body[2])] = in_place(body[4:], script)
        else:
            position += 1
            script.queries[f"q{position}"] = in_place(body, script)
    return script


def _macro(tokens: Tokens) -> str:
    """A function in SQL as a macro, in which parameters with a type are cast to it.

    >>> _macro(tokenize("f(a INT, b) AS a + b"))
    'CREATE MACRO f(a, b) AS (CAST( a AS INT) + b)'
    """
    end = closing(tokens, 1)
    parameters = [p for p in split(tokens[2:end], ",") if p]
    types = {_unquoted(p[0]).lower(): render(p[1:]) for p in parameters if len(p) > 1}
    begin = next(i for i in range(end, len(tokens)) if is_at(tokens, i, "AS")) + 1
    body = [f"CAST( {t} AS {types[t.name]})" if t.name in types and t.name else str(t) for t in tokens[begin:]]
    return f"CREATE MACRO {tokens[0]}({', '.join(str(p[0]) for p in parameters)}) AS ({' '.join(body)})"


def in_place(tokens: list[Token], script: Script) -> list[Token]:
    """Tokens with the views and queries that FROM names written out, in parentheses, under their names.

    >>> known = Script(views={"v": tokenize("SELECT a FROM s")})
    >>> render(in_place(tokenize("SELECT v.a FROM v [ROWS 2], t WHERE v > 1"), known))
    'SELECT v . a FROM ( SELECT a FROM s ) v [ ROWS 2 ] , t WHERE v > 1'
    """
    known = {**{n.lower(): t for n, t in script.queries.items()}, **script.views}
    found: list[Token] = []
    for i, token in enumerate(tokens):
        written = known.get(token.name or "") if i in set(sources(tokens)) else None
        if written is None:
            found.append(token)
            continue
        found += [Token("punctuation", "("), *written, Token("punctuation", ")")]
        after = closing(tokens, i + 1) + 1 if is_at(tokens, i + 1, "[") else i + 1
        if after >= len(tokens) or tokens[after].name is None or tokens[after].upper in _AFTER:
            found.append(token)
    return found


def sources(tokens: Tokens) -> Iterator[int]:
    """Where FROM clauses name a source."""
    inside = [False]  # for each open bracket: are we in a FROM clause?
    for i, token in enumerate(tokens):
        before = tokens[i - 1].upper if i else ""
        if token.text in ("(", "["):
            inside.append(False)
        elif token.text in (")", "]"):
            inside.pop()
        elif is_compared(tokens, i):
            continue
        elif token.upper in ("FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "SELECT"):
            inside[-1] = token.upper == "FROM"
        elif (before in ("FROM", "JOIN") and not is_compared(tokens, i - 1)) or (before == "," and inside[-1]):
            yield i


def is_compared(tokens: Tokens, i: int) -> bool:
    """Whether the FROM at `i` is that of IS [NOT] DISTINCT FROM."""
    return i > 1 and is_at(tokens, i - 1, "DISTINCT", "FROM") and tokens[i - 2].upper in ("IS", "NOT")


def with_names(tokens: Tokens) -> list[Token]:
    """A query with the queries of its WITH written out where FROM names them.

    >>> render(with_names(tokenize("WITH a(x) AS (SELECT y FROM s), b AS (SELECT x FROM a) SELECT x FROM b")))
    'SELECT x FROM ( SELECT x FROM ( SELECT * FROM ( SELECT y FROM s ) a ( x ) ) a ) b'
    """
    known, i = Script(), 0
    while is_at(tokens, i, "WITH") or (known.views and is_at(tokens, i, ",")):
        name, i = tokens[i + 1], i + 2
        named = closing(tokens, i) + 1 if is_at(tokens, i, "(") else i
        begin = next(k for k in range(named, len(tokens)) if tokens[k].text == "(")
        end = closing(tokens, begin)
        body = in_place(list(tokens[begin + 1 : end]), known)
        if named > i or is_at(body, 0, "VALUES"):
            opened, closed = Token("punctuation", "("), Token("punctuation", ")")
            body = [*tokenize("SELECT * FROM"), opened, *body, closed, name, *tokens[i:named]]
        known.views[_unquoted(name).lower()] = body
        i = end + 1
    return in_place(list(tokens[i:]), known)


def _unquoted(token: Token) -> str:
    return token.text[1:-1] if token.kind == "quoted" else token.text


def _declaration(tokens: Tokens) -> OracleDeclaration:
    name = _unquoted(tokens[0])
    end = closing(tokens, 1)
    columns = {_unquoted(c[0]): render(c[1:]) for c in split(tokens[2:end], ",")}
    time, slack, valid = None, None, None
    key: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    idle, ahead, retroactive = None, None, False
    i = end + 1
    while i < len(tokens):
        if is_at(tokens, i, "WITHIN"):
            slack, i = duration(tokens, i + 1)
        elif is_at(tokens, i, "IDLE", "AFTER"):
            idle, i = duration(tokens, i + 2)
        elif is_at(tokens, i, "AHEAD"):
            ahead, i = duration(tokens, i + 1)
        elif is_at(tokens, i, "RETROACTIVE"):
            retroactive, i = True, i + 1
        elif is_at(tokens, i, "VALID", "FROM"):
            valid, i = (_unquoted(tokens[i + 2]), _unquoted(tokens[i + 4])), i + 5
        elif is_at(tokens, i, "KEY"):
            last = closing(tokens, i + 1)
            key, i = tuple(_unquoted(k[0]) for k in split(tokens[i + 2 : last], ",")), last + 1
        elif is_at(tokens, i, "CHANGES", "BY"):
            changes, i = _paths(tokens, i + 2)
        elif tokens[i].upper in ("TIMESTAMP", "TIME", "ORDER"):
            i += 1 + is_at(tokens, i + 1, "BY")
            i += is_at(tokens, i, "(")
            time = _unquoted(tokens[i])
            i += 1 + is_at(tokens, i + 1, ")")
        else:
            i += 1  # RETAIN and sources change no answer
    return OracleDeclaration(name, columns, time, slack, valid, key, changes, idle, ahead, retroactive)


def _paths(tokens: Tokens, i: int) -> tuple[tuple[str, ...], int]:
    """What CHANGES BY names: the paths, and the index after them.

    >>> _paths(tokenize("p.op BEFORE p.b AFTER p.a FROM x"), 0)
    (('p . op', 'p . b', 'p . a'), 11)
    """
    found: list[str] = []
    while True:
        begin, i = i, i + 1
        while is_at(tokens, i, "."):
            i += 2
        found.append(render(tokens[begin:i]))
        if not (is_at(tokens, i, "BEFORE") or is_at(tokens, i, "AFTER")):
            return tuple(found), i
        i += 1
