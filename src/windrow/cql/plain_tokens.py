"""The tokens of plain text, by one regular expression: words, numbers, texts without quotes in them, common signs.

Law: what is found is what sqlglot's tokenizer finds, in a third of its time. Where anything else stands (comments,
quoted names, escapes, other signs and letters, words of which two make one keyword) nothing is found, and the tokenizer
is asked. Lines and columns are not counted: a place is an offset.
"""

from __future__ import annotations

import re

from sqlglot.tokens import Token, TokenType

from windrow.cql.dialect import CQL

_PAIRS = ("GROUP", "ORDER", "PARTITION")  # that are followed by BY
_TOKEN = re.compile(
    r"\s*(?:"
    rf"(?P<pair>(?:{'|'.join(_PAIRS)})\s+BY(?![\w']))"
    r"|(?P<word>[A-Z_]\w*(?![\w']))"
    r"|(?P<number>\d{1,99}(?:\.\d{1,99})?(?:E[+-]?\d\d?)?(?![\w.]))"
    r"|'(?P<text>[^'\\]*)'(?!')"
    r"|(?P<sign>[<>=!*/+%-]+|[(),;\[\]]|\.(?!\d)))",
    re.ASCII | re.IGNORECASE,
)
_SINGLE, _KEYWORDS = CQL.Tokenizer.SINGLE_TOKENS, CQL.Tokenizer.KEYWORDS
_SIGNS = {sign: _SINGLE[sign] for sign in "<>=*/+%-(),.;[]"} | {s: _KEYWORDS[s] for s in ("<=", ">=", "<>", "!=")}
_WORDS = {word: kind for word, kind in _KEYWORDS.items() if word.isidentifier()}
_BEGINNINGS = frozenset(re.split(r"\W", w)[0] for w in _KEYWORDS if w[0].isalpha() and not w.isidentifier())


def plain_tokens(text: str, begin: int, end: int) -> list[Token] | None:
    """The tokens between two places of a text, with their offsets in all of it; None if it is not plain.

    >>> [t.text for t in plain_tokens("select a from s where b >= 2.5", 7, 30)]
    ['a', 'from', 's', 'where', 'b', '>=', '2.5']
    """
    found: list[Token] = []
    at = begin
    for match in _TOKEN.finditer(text, begin, end):
        if match.start() != at:
            return None
        kind, at = match.lastgroup, match.end()
        assert kind is not None
        start, end_of = match.span(kind)
        shown = text[start:end_of]
        if kind == "word":
            word = shown.upper()
            if word in _BEGINNINGS:
                return None
            type_ = _WORDS.get(word, TokenType.VAR)
        elif kind == "sign":
            if shown not in _SIGNS:
                return None
            type_ = _SIGNS[shown]
        elif kind == "number":
            type_ = TokenType.NUMBER
        elif kind == "text":
            type_, start = TokenType.STRING, start - 1
        else:
            shown = " ".join(shown.upper().split())
            type_ = _KEYWORDS[shown]
        found.append(Token(type_, shown, 1, 1, start, at - 1))
    return None if text[at:end].strip() else found
