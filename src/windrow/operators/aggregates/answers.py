"""Answers: the values of one aggregate at the points of a sweep, comparable before they are built.

`keys` are integer vectors that are equal at two points of a group exactly when the values are; building the
Arrow array is put off until it is known which points will be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.order import CodeOrder
from windrow.operators.aggregates.vectors import DAY_US, Bools, Int64s, bitmap, decimals, fixed, opens, raw, words

Places = Int64s | slice
"""Which points: by index, or all of them."""


@dataclass(frozen=True)
class PointValues:
    """Values at points; null where not `valid`."""

    keys: Sequence[np.ndarray]
    valid: Bools | None
    build: Callable[[Places], pa.Array]

    def differs(self) -> Bools:
        """Where a point's value is not that of the point before it (arbitrary at index 0)."""
        changed = opens(*self.keys)
        if self.valid is not None:
            changed[1:] &= self.valid[1:]
            changed[1:] |= self.valid[1:] != self.valid[:-1]
        return changed


def pick(valid: Bools | None, index: Places) -> Bools | None:
    """`valid` at `index`."""
    return None if valid is None else valid[index]


def scalars(values: np.ndarray, valid: Bools | None, type_: pa.DataType) -> PointValues:
    """Fixed-width values: int64 or canonical float64."""
    key = values.view(np.int64)
    return PointValues((key,), valid, lambda index: fixed(values[index], pick(valid, index), type_))


def wides(low: Int64s, high: Int64s | None, over: Bools | None, valid: Bools | None, type_: pa.DataType) -> PointValues:
    """128-bit decimals by their words; `high` None when the low word says all; showing one that is `over` raises."""

    def build(index: Places) -> pa.Array:
        if over is not None and over[index].any():
            raise RuntimeFailure(
                "a SUM overflows",
                detail=f"it does not fit in {type_.precision} digits",
                hint="sum doubles: SUM(CAST(x AS DOUBLE))",
            )
        bottom = low[index]
        return decimals(bottom, bottom >> 63 if high is None else high[index], pick(valid, index), type_)

    return PointValues(tuple(k for k in (low, high, over) if k is not None), valid, build)


def coded(codes: Int64s, valid: Bools | None, order: CodeOrder, type_: pa.DataType) -> PointValues:
    """Values by their order codes."""

    def build(index: Places) -> pa.Array:
        array = order.decode(codes[index], pick(valid, index))
        return array if array.type == type_ else array.cast(type_)

    return PointValues((codes,), valid, build)


def lists(members: Int64s, version: Int64s, codes: Int64s, order: CodeOrder, type_: pa.DataType) -> PointValues:
    """Lists of members (-1: no more), null where empty."""
    valid = members[:, 0] >= 0

    def build(index: Places) -> pa.Array:
        shown = members[index]
        there = shown >= 0
        values = order.decode(codes[shown[there]])
        if values.type != type_.value_type:
            values = values.cast(type_.value_type)
        offsets = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int32)
        buffers = [bitmap(valid[index]), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(type_, len(shown), buffers, children=[values])

    return PointValues((version,), valid, build)


def exact_fraction(q: object) -> Fraction:
    """The fraction as written: 0.1 is one tenth."""
    return Fraction(str(q))


def interpolated(
    lower: Int64s, upper: Int64s, between: np.ndarray, valid: Bools, order: CodeOrder, type_: pa.DataType
) -> PointValues:
    """quantile_cont between two order statistics, with the scalar engine's arithmetic for each type.

    Doubles: `lo (1 - d) + hi d`. Times: the same, rounded half away from zero. Floats, as doubles: `lo + (hi - lo) d`.
    Decimals: the same, towards zero.
    """
    low, high = order.decode(lower), order.decode(upper)
    exact = between == 0.0
    if pa.types.is_decimal(low.type):
        return _interpolated_decimals(low, high, between, exact, valid, type_)
    if pa.types.is_temporal(type_):
        a, b = _as_type(low, type_), _as_type(high, type_)
        mixed = a * (1.0 - between) + b * between
        rounded = np.where(mixed < 0, np.ceil(mixed - 0.5), np.floor(mixed + 0.5))
        return scalars(np.where(exact, a, _to_int64(rounded)), valid, type_)
    x, y = raw(low).astype(np.float64), raw(high).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities
        single = pa.types.is_float32(type_)
        mixed = x + (y - x) * between if single else x * (1.0 - between) + y * between
        mixed = np.where(exact, x, mixed)
        if single:
            mixed = mixed.astype(np.float32).astype(np.float64)
    mixed = np.where(np.isnan(mixed), np.nan, mixed + 0.0)
    return scalars(mixed, valid, type_)


def _to_int64(values: np.ndarray) -> Int64s:
    with np.errstate(invalid="ignore"):
        return values.astype(np.int64)


def _as_type(array: pa.Array, type_: pa.DataType) -> Int64s:
    """Times in the unit of `type_`; a date is its midnight."""
    values = raw(array).astype(np.int64)
    if pa.types.is_date32(array.type) and pa.types.is_timestamp(type_):
        return values * DAY_US
    return raw(array.cast(type_)).astype(np.int64) if array.type != type_ else values


def _interpolated_decimals(
    low: pa.Array, high: pa.Array, between: np.ndarray, exact: Bools, valid: Bools, type_: pa.DataType
) -> PointValues:
    a_low, a_high = words(low)
    b_low, b_high = words(high)
    a = a_low.view(np.int64)
    if low.type.precision <= 18:
        b = b_low.view(np.int64)
        mixed = _to_int64(np.trunc(a + (b - a).astype(np.float64) * between))
        return wides(np.where(exact, a, mixed), None, None, valid, type_)
    gap_low = b_low - a_low
    gap_high = b_high - a_high - (b_low < a_low)
    step = np.where(exact, 0.0, np.trunc((gap_high * 2.0**64 + gap_low) * between))
    step_high = np.floor(step / 2.0**64)
    step_low = (step - step_high * 2.0**64).astype(np.uint64)
    total = a_low + step_low
    high = a_high + step_high.astype(np.int64) + (total < a_low)
    return wides(total.view(np.int64), high, None, valid, type_)
