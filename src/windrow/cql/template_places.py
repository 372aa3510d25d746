"""Where the parameters of a template stand in its text, and what is done with a literal there.

A literal stands as it is where it is compared, is a pattern of LIKE or belongs to the syntax (windows, LIMIT), and
elsewhere under a CAST to the type of its parameter. So it is decided by the words around it, from the tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlglot.errors import TokenError
from sqlglot.tokens import Token

from windrow.cql.dialect import tokenize
from windrow.errors import CQLSyntaxError

COMPARISONS = frozenset(("=", "==", "<", ">", "<=", ">=", "<>", "!="))
BEFORE = frozenset(("WHERE", "AND", "OR", "NOT", "(", "HAVING", "ON", "BETWEEN"))
_CLAUSES = ("GROUP BY", "HAVING", "ORDER BY", "LIMIT", "KEEP", "SHED", "UNION", "EXCEPT", "INTERSECT")
AFTER = frozenset(("", "AND", "OR", ")", ",", *_CLAUSES))
_SYNTAX = frozenset(("LIMIT", "OFFSET", "FETCH", "FIRST", "KEEP", "INTERVAL", "RANGE", "ROWS", "SLIDE", "TOP", "MOST"))
_WINDOWS = frozenset(("TUMBLE", "HOP", "SESSION", "WINDOW"))
_OPERATORS = ("ISTREAM", "DSTREAM", "RSTREAM")


class ParameterPlace(NamedTuple):
    begin: int
    end: int
    name: str  # in lower case
    plain: bool  # as it is: compared, a pattern, or part of the syntax
    compared: bool
    shown: bool  # in a select list, under a name


@lru_cache(maxsize=256)
def places_in(body: str) -> tuple[ParameterPlace, ...]:
    """Where parameters stand in the text of a template."""
    try:
        tokens = tokenize(body)
    except TokenError:
        raise CQLSyntaxError("unterminated string, name or comment in the template") from None
    words = [word_of(t) for t in tokens]
    found, open_ = [], [""]
    for i, token in enumerate(tokens):
        if words[i] in ("(", "["):
            open_.append("[" if words[i] == "[" else words[i - 1] if i else "")
        elif words[i] in (")", "]") and len(open_) > 1:
            open_.pop()
        kind = token.token_type.name
        if kind == "PLACEHOLDER":
            raise CQLSyntaxError("? in a template", hint="name its parameters: $lim")
        if kind == "PARAMETER" and i + 1 < len(tokens) and tokens[i + 1].start == token.end + 1:
            syntax = "[" in open_ or open_[-1] in _WINDOWS or (words[i - 1] if i else "") in _SYNTAX
            compared = not syntax and _is_compared(words, i, open_[-1])
            name = str(tokens[i + 1].text).lower()
            shown = _is_shown(words, i, open_[-1])
            plain = syntax or compared or _is_pattern(words, i)
            found.append(ParameterPlace(int(token.start), int(tokens[i + 1].end) + 1, name, plain, compared, shown))
    return tuple(found)


def word_of(token: Token) -> str:
    """The word that a token is, in capitals; none if it is quoted."""
    return "" if token.token_type.name in ("STRING", "IDENTIFIER") else str(token.text).upper()


def _is_compared(words: Sequence[str], at: int, inside: str) -> bool:
    """Whether a literal at this place is compared."""
    before = words[at - 1] if at else ""
    after = words[at + 2] if at + 2 < len(words) else ""
    if after in COMPARISONS:
        return before in BEFORE
    if after not in AFTER:
        return False
    upper = before == "AND" and "BETWEEN" in words[max(0, at - 4) : at - 1]
    listed = inside == "IN" and before in ("(", ",")
    return before in COMPARISONS or before == "BETWEEN" or upper or listed


def _is_pattern(words: Sequence[str], at: int) -> bool:
    """Whether a literal at this place is all of what LIKE compares with."""
    return at > 0 and words[at - 1] == "LIKE" and (words[at + 2] if at + 2 < len(words) else "") in AFTER


def _is_shown(words: Sequence[str], at: int, inside: str) -> bool:
    """Whether a literal at this place is a column of the answer."""
    before = words[at - 1] if at else ""
    listed = before == "," or (before == "(" and inside in _OPERATORS)
    return words[at + 2 : at + 3] == ["AS"] and (before == "SELECT" or (listed and inside in ("", *_OPERATORS)))
