"""Between which values of a number queries want rows.

By query: by which number its rows are told apart, and the range that a column lies in wherever the query wants a row.
Law: a row outside all ranges of those who are told apart by its number is wanted by none of them.

Cost: per query its conditions; asking for all of them, a step per query.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.scalar_engine import quote
from windrow.sharing.condition_columns import NONE, ConditionColumns
from windrow.sharing.conditions import Condition
from windrow.sharing.plans.routed_columns import OF_QUERY, RoutedColumns

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WantedRanges:
    """By query: by which number its rows are told apart, and between which values a number lies that it wants."""

    told: Int64s
    low: Floats
    high: Floats

    @staticmethod
    def of(
        column: str, size: int, conditions: Mapping[int, Condition], blocks: Iterable[RoutedColumns]
    ) -> WantedRanges:
        """Those of a column, for queries one by one and in blocks."""
        found = WantedRanges.nobody(size)
        for query, condition in conditions.items():
            found.put(query, condition, quote(column))
        for block in blocks:
            told = _bounds_of_many(block.conditions, OF_QUERY.sql)[0]
            found.told[block.numbers] = np.where(told == -inf, block.numbers, told).astype(np.int64)
            found.low[block.numbers], found.high[block.numbers] = _bounds_of_many(block.conditions, quote(column))
        return found

    @staticmethod
    def nobody(size: int) -> WantedRanges:
        return WantedRanges(np.arange(size), np.full(size, inf), np.full(size, -inf))

    def copy(self, size: int) -> WantedRanges:
        more = WantedRanges.nobody(size)
        n = len(self.told)
        more.told[:n], more.low[:n], more.high[:n] = self.told, self.low, self.high
        return more

    def put(self, query: int, condition: Condition, sql: str) -> None:
        told = _bounds(condition, OF_QUERY.sql)[0]
        self.told[query] = query if told == -inf else int(told)
        self.low[query], self.high[query] = _bounds(condition, sql)

    def drop(self, query: int) -> None:
        self.told[query], self.low[query], self.high[query] = query, inf, -inf

    def together(self) -> tuple[Floats, Floats]:
        """The least and the greatest value that somebody wants, by the numbers by which rows are told apart."""
        least, most = np.full(len(self.told), inf), np.full(len(self.told), -inf)
        np.minimum.at(least, self.told, self.low)
        np.maximum.at(most, self.told, self.high)
        return least, most


def _bounds(condition: Condition, sql: str) -> tuple[float, float]:
    """The least and the greatest value of a number in any box of a condition."""
    low, high = inf, -inf
    for box in condition.boxes:
        least, most = -inf, inf
        for attribute, values in box:
            if attribute.sql == sql and not values.null and values.spans:
                least = _value(values.spans[0][0], attribute.type, -inf)
                most = _value(values.spans[-1][1], attribute.type, inf)
        low, high = min(low, least), max(high, most)
    return low, high


def _bounds_of_many(conditions: ConditionColumns, sql: str) -> tuple[Floats, Floats]:
    """The same of many conditions."""
    low, high = np.full(len(conditions), inf), np.full(len(conditions), -inf)
    for box in conditions.boxes:
        least, most = np.full(len(conditions), -inf), np.full(len(conditions), inf)
        for attribute, ends in box.ends.items():
            if attribute.sql == sql and not ends.null:
                least = _values(ends.low, attribute.type, -inf)
                most = _values(ends.high, attribute.type, inf)
        low = np.where(box.some, np.minimum(low, least), low)
        high = np.where(box.some, np.maximum(high, most), high)
    return low, high


def _values(cuts: np.ndarray, type_: pa.DataType, otherwise: float) -> Floats:
    """The numbers that cuts stand for."""
    found: Floats = np.full(len(cuts), otherwise)
    if cuts.dtype == object:
        return found
    some = cuts != NONE
    if pa.types.is_float64(type_):
        bits = np.where(cuts < 0, cuts ^ np.int64(0x7FFFFFFFFFFFFFFF), cuts).view(np.float64)
        some &= ~np.isnan(bits)
        return np.where(some, bits, otherwise)
    if pa.types.is_decimal(type_):
        return np.where(some, cuts / 10.0**type_.scale, otherwise)
    return np.where(some, cuts.astype(np.float64), otherwise) if pa.types.is_signed_integer(type_) else found


def _value(cut: object, type_: pa.DataType, otherwise: float) -> float:
    """The number that a cut stands for (`sharing/spans.py`)."""
    if not isinstance(cut, int):
        return otherwise
    if pa.types.is_float64(type_):
        bits = cut ^ 0x7FFFFFFFFFFFFFFF if cut < 0 else cut
        value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
        return value if value == value else otherwise
    if pa.types.is_decimal(type_):
        return cut / 10.0**type_.scale
    return float(cut) if pa.types.is_signed_integer(type_) else otherwise
