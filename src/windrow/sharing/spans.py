"""Sets of values of an attribute, as spans of codes.

An attribute's values have codes in a total order: int64 codes for numbers, times and booleans (`aggregates.order`),
UTF-8 bytes for text. The order has a successor for every code (`code + 1`, `bytes + b"\\0"`), so every comparison with
a constant is membership in half-open spans, and a breakpoint is a single cut:

    x < 7   [-inf, 7)      x <= 7   [-inf, 8)      x = 7   [7, 8)      s LIKE 'ab%'   ['ab', 'ac')

NULL lies in no span; whether it belongs to a set is said apart. A comparison whose casts are not certain to be exact is
`Doubtful`: a wrong span would be a wrong answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, floor
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.order import has_fixed_codes
from windrow.plan.expr import Constant

Cut = int | bytes
Span = tuple[Cut | None, Cut | None]
"""`[low, high)`; None is without bound."""

_LOW, _HIGH = -(2**63), 2**63 - 1


class Doubtful(Exception):
    """Not certain to mean what the scalar engine means."""


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of values: the spans (in order, disjoint, none empty), and whether NULL is among them.

    >>> low, high = ValueSet(((None, 3),)), ValueSet(((2, None),))
    >>> (low & high).spans, (low | high).spans, low.complement().spans
    (((2, 3),), ((None, None),), ((3, None),))
    """

    spans: tuple[Span, ...]
    null: bool = False

    def __bool__(self) -> bool:
        return bool(self.spans) or self.null

    def __and__(self, other: ValueSet) -> ValueSet:
        if len(self.spans) == len(other.spans) == 1:
            both = _meet(self.spans[0], other.spans[0])
            return ValueSet(() if both is None else (both,), self.null and other.null)
        found = (_meet(a, b) for a in self.spans for b in other.spans)
        return ValueSet(tuple(s for s in found if s is not None), self.null and other.null)

    def __or__(self, other: ValueSet) -> ValueSet:
        return ValueSet(united((*self.spans, *other.spans)), self.null or other.null)

    def complement(self) -> ValueSet:
        """The values outside, without NULL: where a test that holds inside is false."""
        found: list[Span] = []
        at: Cut | None = None
        for low, high in self.spans:
            if low is not None:
                found.append((at, low))
            if high is None:
                return ValueSet(tuple(s for s in found if s[0] != s[1] or s[0] is None))
            at = high
        found.append((at, None))
        return ValueSet(tuple(s for s in found if s[0] != s[1] or s[0] is None))


ALL = ValueSet(((None, None),))
"""Every value but NULL."""
NULL = ValueSet((), True)


def _meet(a: Span, b: Span) -> Span | None:
    low = a[0] if b[0] is None else b[0] if a[0] is None else max(a[0], b[0])
    high = a[1] if b[1] is None else b[1] if a[1] is None else min(a[1], b[1])
    return None if low is not None and high is not None and not low < high else (low, high)  # type: ignore[operator]


def united(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans in order, those that overlap made one; spans that only touch stay apart, as points do."""
    found: list[Span] = []
    for low, high in sorted(spans, key=lambda s: (s[0] is not None, s[0])):
        if found:
            before, end = found[-1]
            if end is None or low is None or low < end:  # type: ignore[operator]
                if end is not None and (high is None or high > end):  # type: ignore[operator]
                    found[-1] = (before, high)
                continue
        found.append((low, high))
    return tuple(found)


# -- from constants ----------------------------------------------------------------------------------------------------


def compared(operator: str, type_: pa.DataType, constant: Constant) -> ValueSet:
    """The values of an attribute of some type for which `value operator constant` is true."""
    below, through = cuts(type_, constant)
    span: Span = {
        "<": (None, below), "<=": (None, through), ">": (through, None), ">=": (below, None), "=": (below, through),
    }[operator]  # fmt: skip
    least, most = (0, 1) if pa.types.is_boolean(type_) else (_LOW, _HIGH)
    return ValueSet(_bounded(span, least, most))


def prefixed(prefix: str) -> ValueSet:
    """Texts that begin with `prefix`, which has at least one character."""
    data = prefix.encode()
    return ValueSet(((data, data[:-1] + bytes((data[-1] + 1,))),))  # no byte of UTF-8 is 0xFF


def _bounded(span: Span, least: int, most: int) -> tuple[Span, ...]:
    """The span within the codes there are; nothing if it is empty."""
    low, high = span
    if isinstance(low, int):
        if low > most:
            return ()
        low = None if low <= least else low
    if isinstance(high, int):
        if high <= least:
            return ()
        high = None if high > most else high
    if low is not None and high is not None and not low < high:  # type: ignore[operator]
        return ()
    return ((low, high),)


def cuts(attribute: pa.DataType, constant: Constant) -> tuple[Cut, Cut]:
    """(below, through): `x < constant` is `code < below`, `x <= constant` is `code < through`."""
    value = constant.value
    if pa.types.is_string(attribute) or pa.types.is_large_string(attribute):
        if not isinstance(value, str):
            raise Doubtful("text against a value that is no text")
        data = value.encode()
        return data, data + b"\0"
    if not has_fixed_codes(attribute):
        raise Doubtful(f"values of type {attribute} have no fixed codes")
    if pa.types.is_boolean(attribute):
        if not isinstance(value, bool):
            raise Doubtful("a boolean against a value that is none")
        return int(value), int(value) + 1
    if pa.types.is_temporal(attribute):
        if constant.type != attribute:
            raise Doubtful(f"{attribute} against {constant.type}")
        return value, value + 1
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Doubtful("a number against a value that is none")
    return _number_cuts(attribute, value, constant.type)


def _number_cuts(attribute: pa.DataType, value: Any, type_: pa.DataType) -> tuple[int, int]:
    if pa.types.is_integer(attribute):
        return _whole_cuts(value, _LOW if pa.types.is_uint64(attribute) else 0)
    if pa.types.is_float64(attribute):
        code = _float_code(_double(value))
        return code, code + 1
    if pa.types.is_decimal(attribute) and isinstance(value, int | Decimal):
        scaled = Decimal(value).scaleb(attribute.scale)
        if abs(Decimal(value).adjusted()) > 18 or len(Decimal(value).as_tuple().digits) > 18:
            raise Doubtful("a decimal of many digits")
        return ceil(scaled), floor(scaled) + 1
    raise Doubtful(f"{attribute} against a constant of type {type_}")


def _float_code(value: float) -> int:
    """The code of a float (`aggregates.order`): its bits, in the order of values; one zero, NaN the greatest."""
    bits: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0] if value == value else 0x7FF8 << 48
    return bits ^ 0x7FFFFFFFFFFFFFFF if bits < 0 else bits


def _whole_cuts(value: int | float | Decimal, shift: int) -> tuple[int, int]:
    if isinstance(value, float):
        # the column is cast to DOUBLE; below 2**53 that is exact, and beyond it cannot cross the constant
        if not np.isfinite(value) or abs(value) >= 2**53:
            raise Doubtful("an integer against a very large float")
    elif isinstance(value, Decimal) and (-int(value.as_tuple().exponent) > 10 or value.adjusted() > 18):
        raise Doubtful("an integer against a long decimal")
    return ceil(value) + shift, floor(value) + 1 + shift


def _double(value: float | Decimal) -> float:
    """The constant as the scalar engine casts it to DOUBLE, where that is the nearest double."""
    if isinstance(value, float):
        return value
    digits = Decimal(value).as_tuple()
    if len(digits.digits) > 15 or not -22 <= int(digits.exponent) <= 22:
        raise Doubtful("a float against a long decimal")
    return float(value)
