"""Tokens as sqlglot wants them, where CQL has words that sqlglot does not know or reads as others.

Law: a text without these words keeps its tokens as they are; positions are those of the text.
"""

from __future__ import annotations

import re

from sqlglot.tokens import Token, TokenType

from windrow.cql.ksql_windows import with_group_windows
from windrow.cql.window_functions import FUNCTIONS

OWN_WORDS = re.compile("TOP|SESSION|WINDOW|EMIT|ASOF|SAMPLE|LATEST", re.IGNORECASE)
"""Without one of these words, the tokens of a query are as sqlglot wants them."""


def with_own_words(tokens: list[Token]) -> list[Token]:
    """The tokens with `window` a name wherever it does not begin a WINDOW clause (`WINDOW w AS (...)`).

    Spark calls a window of time so: `window(ts, '10 minutes')`, `window.start`.
    """
    found = with_group_windows(_without_emit(_with_match_conditions(tokens)))
    for i, token in enumerate(found):
        numbered = found[i + 1 : i + 2] and found[i + 1].token_type == TokenType.NUMBER
        if token.text.upper() == "TOP" and numbered and i and found[i - 1].text.upper() in ("SELECT", "DISTINCT"):
            found[i] = _retyped(token, TokenType.TOP)
        if token.text.upper() == "SESSION" and found[i + 1 : i + 2] and found[i + 1].token_type == TokenType.L_PAREN:
            found[i] = _retyped(token, TokenType.VAR)  # elsewhere it begins a setting
        if token.token_type != TokenType.WINDOW:
            continue
        after = found[i + 2].token_type if i + 2 < len(found) else None
        if after != TokenType.ALIAS or found[i + 1].token_type in (TokenType.L_PAREN, TokenType.COMMA):
            found[i] = _retyped(token, TokenType.VAR)
    return found


def _without_emit(tokens: list[Token]) -> list[Token]:
    """The tokens without what says when to answer: EMIT CHANGES is what every query does, and a window of the SQL
    standard answers when it closes."""
    words = [t.text.upper() for t in tokens]
    if words[-2:] == ["EMIT", "CHANGES"]:
        return tokens[:-2]
    windowed = any(w in FUNCTIONS or w in ("TUMBLING", "HOPPING") for w in words)
    for ending in (["EMIT", "ON", "WINDOW", "CLOSE"], ["EMIT", "FINAL"]):
        if windowed and words[-len(ending) :] == ending:
            return tokens[: -len(ending)]
    return tokens


def _with_match_conditions(tokens: list[Token]) -> list[Token]:
    """The tokens with ASOF JOIN as others write it: LEFT before ASOF, MATCH_CONDITION with or without parentheses."""
    found = list(tokens)
    words = [t.text.upper() for t in found]
    if "ASOF" not in words:
        return found
    for i in range(len(words) - 1):
        if words[i] == "LEFT" and words[i + 1] == "ASOF":
            found[i], found[i + 1] = found[i + 1], found[i]
    for i in reversed([i for i, word in enumerate(words) if word == "MATCH_CONDITION"]):
        found[i] = _retyped(found[i], TokenType.MATCH_CONDITION)
        if i + 1 < len(words) and words[i + 1] != "(":
            end = next((k for k in range(i, len(words)) if words[k] == "ON"), len(words))
            closing = _retyped(found[end - 1], TokenType.R_PAREN)
            found[i + 1 : end] = [_retyped(found[i], TokenType.L_PAREN), *found[i + 1 : end], closing]
    return found


def _retyped(token: Token, type_: TokenType) -> Token:
    return Token(type_, token.text, token.line, token.col, token.start, token.end)
