"""FROM clauses: sources with their windows and aliases, and how VALID tables are tied to the times of streams.

A table row that is active on `[a, b)` matches a stream row with `a <= time < b`, for every stream that a condition
links it to directly; linked to none, for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.testing.blocks import NOW, FromItem, OracleBlock, OracleContext, quote
from windrow.testing.lifetimes import read_window
from windrow.testing.script import duration
from windrow.testing.summaries import SLICE
from windrow.testing.tokens import Token, Tokens, closing, is_at, render, split, tokenize, top_level
from windrow.testing.window_functions import read_call

_JOIN_WORDS = frozenset(
    ("JOIN", "LEFT", "RIGHT", "INNER", "OUTER", "CROSS", "FULL", "NATURAL", "POSITIONAL", "ASOF", "SEMI", "ANTI")
)
_MADE = ("UNNEST", "LATERAL", "GENERATE_SERIES", "RANGE")
"""What makes rows without a stream, or of the row before: DuckDB's business."""
_NOT_ALIASES = _JOIN_WORDS | {
    "WITHIN",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ON",
    "USING",
}


def read_from(
    tokens: Tokens, context: OracleContext, scope: frozenset[str]
) -> tuple[list[FromItem | int | str], list[Tokens]]:
    """A FROM clause as sources, text between them, and numbers that stand for its ON conditions."""
    parts: list[FromItem | int | str] = []
    conditions: list[Tokens] = []
    near: list[Token] = []
    i = 0
    expected = True
    while i < len(tokens):
        if expected:
            source, i = _source(tokens, i, context, scope)
            parts.append(source)
            expected = False
        elif tokens[i].upper == "ON":
            ends = (k for k in top_level(tokens, i + 1) if tokens[k].upper in _JOIN_WORDS or tokens[k].text == ",")
            end = next((k for k in ends if not is_at(tokens, k + 1, "(")), len(tokens))  # LEFT(s, 2) is a function
            parts += ["ON", len(conditions)]
            conditions.append([*tokens[i + 1 : end], *near])
            near, i = [], end
        elif tokens[i].upper == "WITHIN":
            near, i = _near(tokens, i + 1, [p for p in parts if isinstance(p, FromItem)])
        else:
            end = closing(tokens, i) if is_at(tokens, i, "(") else i  # the names of USING
            expected = tokens[i].upper in ("JOIN", ",")
            parts.append(render(tokens[i : end + 1]))
            i = end + 1
    return parts, conditions


def _near(tokens: Tokens, i: int, sources: Sequence[FromItem]) -> tuple[list[Token], int]:
    """WITHIN d, or WITHIN (d, e), between the last source and the stream before it: a condition on their times."""
    pair = is_at(tokens, i, "(")
    first = i + pair
    before, i = duration(tokens, first)
    ticks = i == first + 1 and tokens[first].kind == "number"
    after = before
    if pair:
        after, i = duration(tokens, i + 1)
    left, right = (f"{quote(s.alias)}.{quote(s.time or '')}" for s in sources[-2:])
    low, high = (str(n) if ticks else f"INTERVAL {n} MICROSECONDS" for n in (before, after))
    return list(tokenize(f"AND {right} BETWEEN {left} - {low} AND {left} + {high}")), i + pair


def _source(tokens: Tokens, i: int, context: OracleContext, scope: frozenset[str]) -> tuple[FromItem, int]:
    """One source at `i`: a name or a subquery, then a window and an alias in either order."""
    if is_at(tokens, i, "(", "VALUES"):
        end = closing(tokens, i)
        width = len(split(tokens[i + 3 : closing(tokens, i + 2)], ","))
        source = FromItem("valueslist", [f"col{k}" for k in range(width)], sql=render(tokens[i : end + 1]))
        i = end + 1
    elif is_at(tokens, i, "("):
        end = closing(tokens, i)
        source = context.subquery(tokens[i + 1 : end], scope, _windowed(tokens, end + 1))
        i = end + 1
    elif tokens[i].upper in _MADE and any(is_at(tokens, k, "(") for k in (i + 1, i + 2)):
        end = closing(tokens, next(k for k in range(i, len(tokens)) if tokens[k].text == "("))
        end += 2 * is_at(tokens, end + 1, "WITH", "ORDINALITY")
        source, i = FromItem(tokens[i].text.lower(), [], sql=render(tokens[i : end + 1])), end + 1
    elif (call := read_call(tokens, i)) is not None:
        name, window, i = call
        source = context.source(name.name or "")
        source.alias = name.text if name.kind == "name" else name.text[1:-1]
        source.window, source.windowed = window, True
    else:
        source = context.source(tokens[i].name or "")
        source.alias = tokens[i].text if tokens[i].kind == "name" else tokens[i].text[1:-1]
        i += 1
    while i < len(tokens):
        if tokens[i].text == "[":
            end = closing(tokens, i)
            source.window, source.windowed = read_window(tokens[i + 1 : end]), True
            if not source.stream:
                raise ValueError(f"a window on what is no stream: {render(tokens)}")
            i = end + 1
        elif tokens[i].upper == "AS":
            i += 1
        elif tokens[i].name is not None and tokens[i].upper not in _NOT_ALIASES:
            source.alias = tokens[i].text if tokens[i].kind == "name" else tokens[i].text[1:-1]
            i += 1
            if is_at(tokens, i, "("):
                end = closing(tokens, i)
                source.renamed = render(tokens[i : end + 1])
                source.columns = [c[0].text for c in split(tokens[i + 1 : end], ",")]
                i = end + 1
        else:
            break
    return source, i


def _windowed(tokens: Tokens, i: int) -> bool:
    """Whether a window follows, before or after the alias."""
    i += is_at(tokens, i, "AS")
    if i < len(tokens) and tokens[i].name is not None and tokens[i].upper not in _NOT_ALIASES:
        i += 1
    return is_at(tokens, i, "[")


def source_sql(
    source: FromItem, context: OracleContext, block: OracleBlock, lifetimes: bool, numbered: bool = False
) -> str:
    """A source as SQL; `numbered`: with the order of arrival of its rows as `__seq`."""
    name = f"{quote(source.alias)}{source.renamed}"
    if not source.stream:
        return f"{source.sql} AS {name}"
    instants = OracleBlock("") if lifetimes else block  # a mixed block's instants are those of its results
    context.window_on(source, instants)
    columns = ", ".join(quote(c) for c in source.columns) + source.bounds + (", rowid AS __seq" if numbered else "")
    columns += f", {SLICE}" * source.sliced
    if lifetimes:
        ends = f"__from AS __from_{source.table}, __to AS __to_{source.table}"
        return f"(SELECT {columns}, {ends} FROM {source.table}) AS {name}"
    return f"(SELECT {columns} FROM {source.table} WHERE __from <= {NOW} AND {NOW} < __to) AS {name}"


def validity(sources: Sequence[FromItem], where: Tokens, conditions: Sequence[Tokens]) -> dict[int, list[str]]:
    """Conditions that tie VALID tables to the times of the streams they are linked to.

    By the number of the ON condition they belong to; -1 is WHERE.
    """
    found: dict[int, list[str]] = {}
    streams = [s for s in sources if s.stream and s.time]
    for table in (s for s in sources if s.valid):
        links: dict[str, int] = {}
        for place, condition in [(-1, where), *enumerate(conditions)]:
            for conjunct in conjuncts(condition):
                named = _aliases(conjunct, sources)
                if table.alias in named:
                    links |= {s.alias: place for s in streams if s.alias in named}
        for stream in streams:
            if stream.alias in links or not links:
                place = links.get(stream.alias, -1)
                a, b = (f"{quote(table.alias)}.{quote(c)}" for c in table.valid or ())
                time = f"{quote(stream.alias)}.{quote(stream.time or '')}"
                found.setdefault(place, []).append(f"({a} IS NULL OR {a} <= {time}) AND ({b} IS NULL OR {time} < {b})")
    return found


def conjuncts(tokens: Tokens) -> list[Tokens]:
    """Parts of a condition between its top-level ANDs (not BETWEEN's, not inside CASE)."""
    cuts, between, case = [], False, 0
    for i in top_level(tokens):
        word = tokens[i].upper
        case += (word == "CASE") - (word == "END")
        if word == "BETWEEN":
            between = True
        elif word == "AND" and not case:
            if not between:
                cuts.append(i)
            between = False
    return [tokens[a + 1 : b] for a, b in zip([-1, *cuts], [*cuts, len(tokens)], strict=True)]


def _aliases(tokens: Tokens, sources: Sequence[FromItem]) -> set[str]:
    """Aliases of the sources whose columns a condition names; a subquery's condition links nothing."""
    if any(t.upper == "SELECT" for t in tokens):
        return set()
    found = set()
    for i, token in enumerate(tokens):
        if token.name is None or is_at(tokens, i + 1, "(") or (i and tokens[i - 1].text == "."):
            continue
        if is_at(tokens, i + 1, "."):
            found |= {s.alias for s in sources if s.alias.lower() == token.name}
        else:
            found |= {s.alias for s in sources if token.name in (c.lower() for c in s.columns)}
    return found
