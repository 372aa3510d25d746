"""Bands: `low <= left - right <= high` between columns of two inputs, as ranges of integer codes.

A code is an int64 that keeps the order of the values: times are their microseconds, numbers the bits of the nearest
double, turned so that greater numbers have greater codes and NaN the greatest. Rounding keeps order but may make
neighbours equal, so a range of codes holds every partner and now and then one too many; whoever probes by it still
checks the predicate itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import filled, one_pattern
from windrow.operators.elements import Int64s

_LOW63 = np.int64(0x7FFFFFFFFFFFFFFF)
LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Band:
    """`low <= left - right <= high`; an open side is infinite. Times are measured in microseconds."""

    left: str
    right: str
    low: float = float("-inf")
    high: float = float("inf")

    def seen_from(self, column: str) -> tuple[str, float, float]:
        """(other column, low, high): `column` lies between the other plus low and the other plus high.

        >>> Band("a.x", "b.x", -3, 4).seen_from("b.x")
        ('a.x', -4, 3)
        """
        if column == self.left:
            return self.right, self.low, self.high
        return self.left, -self.high, -self.low


def has_codes(type_: pa.DataType) -> bool:
    """Whether values of this type can bound a band."""
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    return number or pa.types.is_timestamp(type_)


def numbers_of(column: pa.Array) -> np.ndarray:
    """The values as doubles, or as int64 microseconds; zero at nulls."""
    if pa.types.is_timestamp(column.type):
        micro = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return filled(micro)
    return one_pattern(filled(column.cast(pa.float64(), safe=False)))


def codes_of(column: pa.Array) -> Int64s:
    """The code of every value."""
    values = numbers_of(column)
    return values if values.dtype == np.int64 else _codes(values)


def _codes(values: np.ndarray) -> Int64s:
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & _LOW63)


def range_of(column: pa.Array, low: float, high: float) -> tuple[Int64s, Int64s]:
    """The codes between which partners of each value lie; an empty range at nulls."""
    values = numbers_of(column)
    if values.dtype == np.int64:
        # one more on each side: finer times were cut to microseconds
        least = np.full(len(values), LEAST) if low == float("-inf") else values + np.int64(np.floor(low) - 1)
        most = np.full(len(values), GREATEST) if high == float("inf") else values + np.int64(np.ceil(high) + 1)
    else:
        # a sum of doubles is off by half a unit in the last place, and so was each value
        with np.errstate(invalid="ignore", over="ignore"):
            below, above = values + low, values + high
            least = _codes(np.where(np.isfinite(below), below - _slack(values, low), below))
            most = _codes(np.where(np.isfinite(above), above + _slack(values, high), above))
        # NaN is greater than every number and equal to itself: let the predicate say which bounds it meets
        odd = ~np.isfinite(values)
        least, most = np.where(odd, LEAST, least), np.where(odd, GREATEST, most)
        if high == float("inf"):
            most = np.full(len(values), GREATEST)
        if low == float("-inf"):
            least = np.full(len(values), LEAST)
    if column.null_count:
        nulls = np.asarray(column.is_null())
        least, most = np.where(nulls, 1, least), np.where(nulls, 0, most)
    return least, most


def _slack(values: np.ndarray, shift: float) -> np.ndarray:
    return (np.abs(values) + abs(shift)) * 2.0**-50 + 2.0**-1000
