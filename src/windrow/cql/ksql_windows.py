"""Windows as ksql writes them, behind the stream, as windows in GROUP BY.

    FROM s WINDOW TUMBLING (SIZE 10 MINUTES) GROUP BY k                   GROUP BY k, TUMBLE(_ts, '10 minutes')
    FROM s WINDOW HOPPING (SIZE 9 SECONDS, ADVANCE BY 3 SECONDS) ...      GROUP BY k, HOP(_ts, '3 seconds', '9 seconds')
    FROM s WINDOW SESSION (60 SECONDS) ...                                GROUP BY k, SESSION(_ts, '60 seconds')

GRACE PERIOD g, last between the parentheses, is an argument by that name, last of the call.
`WINDOWSTART` and `WINDOWEND` are `window_start` and `window_end`. Tokens are moved, so every one keeps its place.
"""

from __future__ import annotations

from sqlglot.tokens import Token, TokenType

_KINDS = {"TUMBLING": "TUMBLE", "HOPPING": "HOP", "SESSION": "SESSION"}
_ENDS = ("HAVING", "QUALIFY", "ORDER BY", "LIMIT", "UNION", "EXCEPT", "INTERSECT", ";")
GRACE = "GRACE PERIOD"
_BOUNDS = {"WINDOWSTART": "window_start", "WINDOWEND": "window_end"}


def with_group_windows(tokens: list[Token]) -> list[Token]:
    """The tokens with every such window in the GROUP BY behind it; others are left as they are."""
    words = [t.text.upper() for t in tokens]
    at = next(
        (i for i, w in enumerate(words) if w == "WINDOW" and words[i + 1 : i + 2] and words[i + 1] in _KINDS), None
    )
    if at is None or words[at + 2 : at + 3] != ["("]:
        return tokens
    end = next((i for i in range(at + 2, len(words)) if words[i] == ")"), None)
    group = next((i for i in range(at, len(words)) if words[i] == "GROUP BY"), None)
    said = _lengths(tokens[at + 3 : end]) if end is not None else None
    if end is None or group is None or said is None:
        return tokens
    close = next((i for i in range(group, len(words)) if words[i] in _ENDS), len(tokens))
    place = tokens[at]
    lengths, grace = said
    if words[at + 1] == "HOPPING":
        lengths = lengths[::-1]
    call = [_made(place, TokenType.COMMA, ","), _made(place, TokenType.VAR, _KINDS[words[at + 1]])]
    call += [_made(place, TokenType.L_PAREN, "("), _made(place, TokenType.VAR, "_ts")]
    for length in lengths:
        call += [_made(place, TokenType.COMMA, ","), _text(length)]
    if grace is not None:
        call += [_made(place, TokenType.COMMA, ","), _made(grace[0], TokenType.VAR, GRACE)]
        call += [_made(place, TokenType.L_PAREN, "("), _text(grace), _made(place, TokenType.R_PAREN, ")")]
    call.append(_made(place, TokenType.R_PAREN, ")"))
    moved = [*tokens[:at], *tokens[end + 1 : close], *call, *tokens[close:]]
    return [_made(t, TokenType.VAR, _BOUNDS[t.text.upper()]) if t.text.upper() in _BOUNDS else t for t in moved]


def _lengths(tokens: list[Token]) -> tuple[list[list[Token]], list[Token] | None] | None:
    """The lengths between the parentheses and the grace period, without their names; None if else is said there."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    found = []
    for part in parts:
        words = [t.text.upper() for t in part]
        skip = 1 if words[:1] == ["SIZE"] else 2 if words[:2] in (["ADVANCE", "BY"], GRACE.split()) else 0
        if len(part) - skip != 2 or part[skip].token_type != TokenType.NUMBER:
            return None
        found.append(part[skip:])
    late = [[t.text.upper() for t in part[:2]] == GRACE.split() for part in parts]
    if not any(late):
        return found, None
    return (found[:-1], found[-1]) if late.index(True) == len(found) - 1 > 0 else None


def _text(length: list[Token]) -> Token:
    return _made(length[0], TokenType.STRING, " ".join(t.text for t in length))


def _made(place: Token, type_: TokenType, text: str) -> Token:
    return Token(type_, text, place.line, place.col, place.start, place.end)
