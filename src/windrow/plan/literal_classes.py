"""Numbers that stand for each other wherever no more is asked of them than their type and their digits.

DuckDB types a number by how it is written: by its digits, those behind the point, and the least integer type that has
it. So one number of a class is asked about, whatever `k % 12 = 3` compares with and computes.

    k % 12 = 3        asked as    k % 99 = 9          v * 2.5 > n      asked as    v * 9.9 > n

0 and 1 are classes of their own: something may be left out for them. Where a value makes a type (`round(d, 2)`), or
makes that something raises, a text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

NumberClass = tuple[int, ...]
_ENDS = (0, 1, 127, 128, 255, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1)
"""The greatest numbers of their types, and what the least are without a sign."""
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
    return len(whole), 0, sum(int(whole) > end for end in _ENDS)


def members(literal: str) -> Iterator[str]:
    """Numbers of the class of a literal, the greatest first."""
    whole, _, fraction = literal.partition(".")
    if fraction:
        for digits in range(10 ** len(fraction) - 1, 0, -1):
            yield f"{'0' if whole == '0' else '9' * len(whole)}.{digits:0{len(fraction)}d}"
        return
    most = min(10 ** len(whole) - 1, *(end for end in _ENDS if end >= int(whole)), 10 ** len(whole))
    least = max(10 ** (len(whole) - 1), *(end + 1 for end in _ENDS if end < int(whole)))
    yield from map(str, range(most, least - 1, -1))


_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[A-Za-z_]\w*|(?<![\w.])\d+(?:\.\d+)?(?![\w.])|[\s()+\-*/%<>=!,|]"
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
    words = (t for t in tokens if t[0].isalpha() or t[0] == "_")
    if not all(w.upper() in _WORDS or re.fullmatch(r"c\d+", w) for w in words):
        return sql
    return "".join(next(members(t)) if t[0].isdigit() and number_class(t) else t for t in tokens)


__all__ = ["NumberClass", "by_class", "members", "number_class"]
