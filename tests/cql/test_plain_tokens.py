"""Tokens of plain text: those that the tokenizer finds, or none."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot.errors import TokenError

from windrow.cql.dialect import CQL, tokenize
from windrow.cql.plain_tokens import plain_tokens

KEYWORDS = sorted(CQL.Tokenizer.KEYWORDS)
WORDS = st.sampled_from(["a", "t1", "_x", "IS", "island", "interval", "E", "x", "B", "US", "char", "by", "user", "e5"])
SPACES = st.sampled_from(["", "", " ", " ", "  ", "\n", "\t ", "\r\n", "\x0c"])
SIGNS = st.text(alphabet="<>=!*/+%-(),.;[]{}:|&~?@#$\\_\"'`", max_size=3)
NUMBERS = st.sampled_from(
    ["0", "7", "12.50", "1e5", "2E-3", "1.5e+10", "1.", ".5", "0x1f", "1_000", "5L", "1e", "9" * 120]
)
TEXTS = st.sampled_from(
    ["'a'", "'a b;--'", "''", "'it''s'", "'x", "E'a'", "'a'b", "'a' 'b'", "'a\nb'", r"'\'", "'\\n'"]
)
PARTS = st.one_of(st.sampled_from(KEYWORDS), WORDS, WORDS, SIGNS, NUMBERS, TEXTS, st.text(max_size=2))


def shown(tokens):
    return [(t.token_type, t.text, t.start, t.end, t.comments) for t in tokens]


@settings(max_examples=1000)
@given(st.lists(st.tuples(PARTS, SPACES, st.booleans()), max_size=12))
@example([("group", "  ", False), ("by", "", False), (",", "", False)])
@example([("user", "", False), ("-", "", False), ("defined", " ", False)])
@example([("char", " ", False), ("v", "", False), (",", " ", False)])
def test_tokens_of_plain_text_are_those_of_the_tokenizer(parts):
    """Whatever is written: the kinds, texts and offsets are the same, or nothing is found."""
    text = "".join((part.lower() if low else part) + space for part, space, low in parts)
    found = plain_tokens(text, 0, len(text))
    if found is not None:
        try:
            wanted = shown(tokenize(text))
        except TokenError as error:
            pytest.fail(f"{text!r}: {error}")
        assert shown(found) == wanted, text


def test_every_keyword_is_one_token_before_anything():
    """Keywords in both cases, before a sign, a space, the end and another word."""
    for word in (w for w in KEYWORDS if w[0].isalpha()):
        for text in (
            word,
            word.lower(),
            f"a {word}, b",
            f"({word.title()})",
            f"{word} x {word}",
            f"{word}s",
            f"{word}.a",
        ):
            found = plain_tokens(text, 0, len(text))
            assert found is None or shown(found) == shown(tokenize(text)), text


def test_a_query_is_plain_text():
    """What queries are mostly made of is found, with the offsets of the script around it."""
    text = (
        "CREATE QUERY q AS\n SELECT ISTREAM(a, count(*) AS n)\n FROM s [RANGE 5 MINUTES] GROUP  BY a HAVING sum(v)>1.5"
    )
    wanted = shown(tokenize(text))
    assert shown(plain_tokens(text, 0, len(text))) == wanted
    assert shown(plain_tokens(f"x; {text}; y", 3, 3 + len(text))) == [
        (k, t, b + 3, e + 3, c) for k, t, b, e, c in wanted
    ]
    for other in ("a -- b", "a /* b */", '"a"', "a::INT", "é", "a || b", "1..2", "$a", "user-defined", "E'a'"):
        assert plain_tokens(other, 0, len(other)) is None, other
