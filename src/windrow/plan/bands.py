"""Which predicates are bands: a bound on the difference of two columns, so that a sorted index finds the candidates.

Recognised are comparisons and BETWEEN whose sides are a column, plus or minus a number or a fixed interval of time, and
`ABS(x - y) < c`:

    a.x BETWEEN b.x - 3 AND b.x + 4      a.x < b.x      a.ts >= b.ts - INTERVAL '5 seconds'      ABS(a.x - b.x) <= 2

The predicate itself stays where it was; a band only narrows the search, so what is not recognised costs time, never an
answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa

from windrow.operators.state.bands import Band, has_codes
from windrow.plan.expr import Expr, Ref

_REF = r"@(\d+)"
_NUMBER = r"(?:\d+(?:\.\d+)?)"
_UNITS = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000}
_INTERVAL = rf"(?:INTERVAL\s+'?{_NUMBER}'?\s*'?(?:{'|'.join(_UNITS)})S?'?)"
_SIDE = rf"\(?{_REF}(?:\s*([+-])\s*({_NUMBER}|{_INTERVAL}))?\)?"
_COMPARE = re.compile(rf"\(?\s*{_SIDE}\s*(<=|>=|<|>)\s*{_SIDE}\s*\)?", re.I)
_BETWEEN = re.compile(rf"\(?\s*{_SIDE}\s+BETWEEN\s+{_SIDE}\s+AND\s+{_SIDE}\s*\)?", re.I)
_LIMIT = re.compile(rf"\(?\s*\(?{_REF}\s*-\s*{_REF}\)?\s*(<=|>=|<|>)\s*(-?{_NUMBER})\s*\)?")
_ABS = re.compile(rf"\(?\s*ABS\(\s*{_REF}\s*-\s*{_REF}\s*\)\s*(?:<=|<)\s*({_NUMBER})\s*\)?", re.I)
_INF = float("inf")


def bands(
    predicates: Iterable[Expr], types: Mapping[str, pa.DataType], rename: Mapping[str, str] | None = None
) -> list[Band]:
    """The bands among conjuncts, between columns of the given types; `rename` maps columns to other names.

    >>> e = Expr(("(", Ref("a.x"), " BETWEEN ", Ref("b.x"), " - 3 AND ", Ref("b.x"), " + 4)"), pa.bool_())
    >>> bands([e], {"a.x": pa.int64(), "b.x": pa.int64()})
    [Band(left='a.x', right='b.x', low=-3.0, high=4.0)]
    """
    names = rename or {}
    # a difference with NaN is NaN, which is greater than any bound: only a comparison of two sides bounds doubles
    exact = {c for c, t in types.items() if not pa.types.is_floating(t)}
    found = [b for p in predicates for b in _bands(p, {names.get(c, c) for c in p.columns} <= exact)]
    found = [Band(names.get(b.left, b.left), names.get(b.right, b.right), b.low, b.high) for b in found]
    return [b for b in found if b.left != b.right and _comparable(types.get(b.left), types.get(b.right))]


def _comparable(left: pa.DataType | None, right: pa.DataType | None) -> bool:
    if left is None or right is None or not (has_codes(left) and has_codes(right)):
        return False
    if pa.types.is_timestamp(left) or pa.types.is_timestamp(right):
        return bool(left == right)
    return True


def _bands(predicate: Expr, exact: bool) -> list[Band]:
    columns = list(dict.fromkeys(p.name for p in predicate.parts if isinstance(p, Ref)))
    if predicate.functions or any("@" in p for p in predicate.parts if isinstance(p, str)):
        return []
    text = predicate.sql(lambda c: f"@{columns.index(c)}")
    if m := _COMPARE.fullmatch(text):
        left, shift_left = columns[int(m[1])], _shift(m[2], m[3])
        right, shift_right = columns[int(m[5])], _shift(m[6], m[7])
        return _compared(left, right, m[4], shift_right - shift_left)
    if m := _BETWEEN.fullmatch(text):
        own, shift = columns[int(m[1])], _shift(m[2], m[3])
        low, high = columns[int(m[4])], columns[int(m[7])]
        below = _compared(own, low, ">=", _shift(m[5], m[6]) - shift)
        above = _compared(own, high, "<=", _shift(m[8], m[9]) - shift)
        if low == high:
            return [Band(own, low, below[0].low, above[0].high)]
        return below + above
    if exact and (m := _LIMIT.fullmatch(text)):
        return _compared(columns[int(m[1])], columns[int(m[2])], m[3], float(m[4]))
    if exact and (m := _ABS.fullmatch(text)):
        return [Band(columns[int(m[1])], columns[int(m[2])], -float(m[3]), float(m[3]))]
    return []


def _compared(left: str, right: str, operator: str, shift: float) -> list[Band]:
    return [Band(left, right, -_INF, shift) if operator in ("<", "<=") else Band(left, right, shift, _INF)]


def _shift(sign: str | None, amount: str | None) -> float:
    """What a side adds to its column, in microseconds for intervals."""
    if amount is None:
        return 0.0
    number = re.search(_NUMBER, amount)
    assert number is not None
    value = float(number[0])
    unit = next((u for u in _UNITS if re.search(rf"{u}s?'?$", amount, re.I)), None)
    return (-value if sign == "-" else value) * (_UNITS[unit] if unit else 1)
