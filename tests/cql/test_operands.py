"""Operands of one word, which the parser takes without looking for operators behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.duckdb import DuckDBParser

from windrow.cql.dialect import CQL, DIALECT, tokenize


class _Whole(CQL.Parser):
    """The parser that looks for operators behind every operand."""

    _parse_bitwise = DuckDBParser._parse_bitwise


_OPERANDS = st.sampled_from(
    ("a", "t.b", "5", "2.5", "'x'", "f(a, 3)", "(a)", "-a", "a::BIGINT", "DATE '2024-01-01'", "l[1]", "INTERVAL 5 DAY")
)
_OPERATORS = st.sampled_from((
    *"+-*/%<>=&|", ">=", "<>", "<<", ">>", "> >", "< <", "||", "//", "**", "->", "??", ",", "AND", "OR",
    "IN (1, a) AND", "BETWEEN 1 AND", "IS", "LIKE", "NOT LIKE", "COLLATE", "AT TIME ZONE", "AS c,", "IS NULL OR",
))  # fmt: skip


def _parsed(parser, text):
    try:
        return parser(error_level=ErrorLevel.IMMEDIATE, dialect=DIALECT).parse(tokenize(text), text)
    except ParseError:
        return None


@given(st.lists(st.tuples(_OPERANDS, _OPERATORS), max_size=6), _OPERANDS)
def test_what_is_taken_at_once_is_what_is_parsed(pairs, last):
    """A select list and a condition have the same tree, or no tree, whether operands of one word are taken at once."""
    shown = f"{' '.join(f'{operand} {operator}' for operand, operator in pairs)} {last}"
    for text in (f"SELECT {shown} FROM s", f"SELECT a FROM s WHERE {shown} GROUP BY a HAVING {shown}"):
        assert _parsed(CQL.Parser, text) == _parsed(_Whole, text)


@pytest.mark.parametrize("text", ["a > > 2", "a < < 2", "a >> 2", "a > 2"])
def test_two_signs_are_one_operator(text):
    """A shift is no comparison, however it is written."""
    assert _parsed(CQL.Parser, f"SELECT {text}") == _parsed(_Whole, f"SELECT {text}")
