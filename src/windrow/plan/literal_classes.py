"""Numbers that stand for each other wherever no more is asked of them than their type and their digits.

DuckDB types a number by how it is written: by its digits, those behind the point, and the least integer type that has
it. So one number of a class is asked about, whatever `k % 12 = 3` compares with and computes.

    k % 12 = 3        asked as    k % 99 = 9          v * 2.5 > n      asked as    v * 9.9 > n

0 and 1 are alone: something may be left out for them. Where a value makes a type (`round(d, 2)`), or
makes that something raises, a text stays as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

NumberClass = tuple[int, ...]
_ENDS = (0, 1, 127, 128, 255, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1)
"""The greatest numbers of their types, and what the least are without a sign."""
_ALONE = frozenset(end for end in _ENDS if end - 1 in _ENDS)
_PLAIN = re.compile(r"\d+(\.\d+)?", re.ASCII)


def number_class(literal: str) -> NumberClass | None:
    """The class of a number that is written; None if it is the only one.

    >>> number_class("12") == number_class("99"), number_class("12") == number_class("200"), number_class("1")
    (True, False, None)
    """
    if not _PLAIN.fullmatch(literal) or len(literal) > 16 or re.match(r"0\d", literal):
        return None
    whole, _, fraction = literal.partition(".")
    if not int(whole + fraction) or float(literal) == 1:
        return None
    if fraction:
        return len(whole), len(fraction), int(whole == "0")
    number = int(whole)
    if number in _ALONE:
        return None
    return len(whole), 0, bisect_left(_ENDS, number)


def greatest(literal: str) -> str:
    """The greatest number of the class of a literal.

    >>> greatest("12"), greatest("2.50"), greatest("0.5"), greatest("100")
    ('99', '9.99', '0.9', '127')
    """
    whole, _, fraction = literal.partition(".")
    if fraction:
        return f"{'0' if whole == '0' else '9' * len(whole)}.{'9' * len(fraction)}"
    return str(min(10 ** len(whole) - 1, *(end for end in _ENDS if end >= int(whole)), 10**16))


def others(literal: str) -> Iterator[str]:
    """Some other numbers of the class of a literal, the nearest first.

    >>> [*others("12")][:4], next(others("2.50"))
    (['13', '11', '14', '10'], '2.51')
    """
    whole, _, fraction = literal.partition(".")
    for distance in range(1, _NEAR):
        for near in (int(whole + fraction) + distance, int(whole + fraction) - distance):
            digits = f"{max(near, 0):0{len(literal) - bool(fraction)}d}"
            found = f"{digits[: -len(fraction)]}.{digits[-len(fraction) :]}" if fraction else digits
            if number_class(found) == number_class(literal) is not None:
                yield found


_NEAR = 64
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[A-Za-z_]\w*|(?<![\w.])\d+(?:\.\d+)?(?![\w.])|[\s()+\-*/%<>=!,|]+"
)
_TEXT = re.compile(r"\(?'(?:[^']|'')*'\)?|\(?CAST\('(?:[^']|'')*' AS VARCHAR\)\)?")
"""A text is nothing but itself; beside something else it may be cast."""
_WORDS = frozenset((
    *("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "DISTINCT", "FROM", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("TRUE", "FALSE", "CAST", "AS", "BIGINT", "INTEGER", "DOUBLE", "VARCHAR", "ABS", "COALESCE", "GREATEST", "LEAST"),
    *("LENGTH", "UPPER", "LOWER", "LIKE", "ILIKE"),
))  # fmt: skip


def by_class(sql: str) -> str:
    """An expression of the same type, that raises when this one may, for all that differ in numbers of a class.

    >>> by_class('("c0" % 12) = 3'), by_class('round("c0", 2)')
    ('("c0" % 99) = 9', 'round("c0", 2)')
    """
    if _TEXT.fullmatch(sql):
        return "''"
    tokens = _TOKEN.findall(sql)
    if sum(map(len, tokens)) < len(sql):
        return sql
    shown = [*map(_shown, tokens)]
    return sql if None in shown else "".join(shown)  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _shown(token: str) -> str | None:
    """What stands for all tokens of its class; None for a word that may make a type of a value."""
    if token[0].isdigit():
        return greatest(token) if number_class(token) else token
    is_word = token[0].isalpha() or token[0] == "_"
    return None if is_word and token.upper() not in _WORDS and not re.fullmatch(r"c\d+", token) else token


__all__ = ["NumberClass", "by_class", "greatest", "number_class", "others"]
