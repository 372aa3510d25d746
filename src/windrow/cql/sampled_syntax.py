"""SAMPLE BY and LATEST ON, as QuestDB writes them: a mark in GROUP BY (`sampled`), and QUALIFY.

    SELECT * FROM t LATEST ON ts PARTITION BY k
    ->  SELECT * FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1

Tokens are replaced where they are, so every one keeps its place.
"""

from __future__ import annotations

from sqlglot.tokens import Token, TokenType

from windrow.cql.source import ScriptText
from windrow.errors import BindingError, UnsupportedError

MARK = "sample by"
"""The name of a call in GROUP BY that no text can write: its argument is the length of time."""
_UNITS = {
    "U": "MICROSECOND", "T": "MILLISECOND", "s": "SECOND", "m": "MINUTE", "h": "HOUR", "d": "DAY", "w": "WEEK",
    "M": "MONTH", "y": "YEAR",
}  # fmt: skip
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


def with_samples(tokens: list[Token], source: ScriptText) -> list[Token]:
    """The tokens with SAMPLE BY as a mark in GROUP BY, and LATEST ON as QUALIFY."""
    words = [t.text.upper() for t in tokens]
    found: list[Token] = []
    i = 0
    while i < len(tokens):
        if words[i : i + 2] == ["SAMPLE", "BY"] and _is_number(tokens, i + 2):
            made, i = _sample(tokens, words, i, source)
        elif words[i : i + 2] == ["LATEST", "ON"] and "PARTITION BY" in words[i + 3 : i + 6]:
            made, i = _latest(tokens, words, i)
        else:
            made, i = [tokens[i]], i + 1
        found += made
    return found


def _is_number(tokens: list[Token], i: int) -> bool:
    return i < len(tokens) and tokens[i].token_type == TokenType.NUMBER


def _sample(tokens: list[Token], words: list[str], i: int, source: ScriptText) -> tuple[list[Token], int]:
    """GROUP BY "sample by"('1 HOUR')."""
    place, number, unit = tokens[i], tokens[i + 2], tokens[i + 3].text if i + 3 < len(tokens) else ""
    if unit not in _UNITS or not number.text.isdigit() or int(number.text) == 0:
        raise BindingError(
            f"SAMPLE BY {number.text}{unit} is not a length of time",
            hint="write SAMPLE BY 30s, 5m, 1h, 1d, 1w, 1M or 1y",
            span=source.span(number.start),
        )
    end = i + 4
    if words[end : end + 3] == ["ALIGN", "TO", "CALENDAR"]:
        end += 3
    refused = {  # detail, hint
        "FILL": (
            "groups are those of the rows, and a time without rows has none",
            "join the times that must be there: FROM generate_series(...) g(t) LEFT JOIN s ON time_bucket(...) = g.t",
        ),
        "ALIGN": (
            "the first row of a window changes, and all groups would with it",
            "write ALIGN TO CALENDAR, or nothing: groups begin at the multiples of the length",
        ),
        "TIME": (
            "time is cut in UTC",
            "group by the local time: GROUP BY time_bucket(INTERVAL 1 DAY, timezone('Asia/Tokyo', ts))",
        ),
        "WITH": (
            "groups begin at the multiples of the length",
            "group by the time moved: GROUP BY time_bucket(INTERVAL 1 HOUR, ts, INTERVAL 30 MINUTE)",
        ),
        "FROM": ("groups are those of the rows", "say in WHERE which rows are meant"),
    }
    if end < len(tokens) and words[end] in refused:
        detail, hint = refused[words[end]]
        raise UnsupportedError(
            f"{words[end]} in SAMPLE BY", detail=detail, hint=hint, span=source.span(tokens[end].start)
        )
    text = f"{number.text} {_UNITS[unit]}"
    return [
        _made(place, TokenType.GROUP_BY, "GROUP BY"),
        _made(place, TokenType.IDENTIFIER, MARK),
        _made(place, TokenType.L_PAREN, "("),
        _made(number, TokenType.STRING, text),
        _made(place, TokenType.R_PAREN, ")"),
    ], end


def _latest(tokens: list[Token], words: list[str], i: int) -> tuple[list[Token], int]:
    """QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1."""
    place, by = tokens[i], words.index("PARTITION BY", i)
    time, end = tokens[i + 2 : by], by + 1
    while end < len(tokens) and tokens[end].token_type in (*_NAMES, TokenType.COMMA, TokenType.DOT):
        end += 1
    return [
        _made(place, TokenType.QUALIFY, "QUALIFY"),
        _made(place, TokenType.VAR, "row_number"),
        _made(place, TokenType.L_PAREN, "("),
        _made(place, TokenType.R_PAREN, ")"),
        _made(place, TokenType.OVER, "OVER"),
        _made(place, TokenType.L_PAREN, "("),
        *tokens[by:end],
        _made(place, TokenType.ORDER_BY, "ORDER BY"),
        *time,
        _made(place, TokenType.DESC, "DESC"),
        _made(place, TokenType.R_PAREN, ")"),
        _made(place, TokenType.EQ, "="),
        _made(place, TokenType.NUMBER, "1"),
    ], end


def _made(place: Token, type_: TokenType, text: str) -> Token:
    return Token(type_, text, place.line, place.col, place.start, place.end)
