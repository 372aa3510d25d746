"""Lanes: everything that is a sum, as integers that are added on arrival and subtracted on departure.

A column has lanes only for what its rows need: how many are null, how many are NaN, +inf or -inf, and
the 32-bit limbs (`limbs`) that its values, and for VARIANCE their squares, have touched so far. A missing lane is zero.

Invariant: after an advance the limbs in state are balanced digits in [-2**31, 2**31), the only such digits of that
number; so equal sums are equal lanes, whatever the order of the rows. Cost: one add per lane and event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import limbs
from windrow.operators.aggregates.kernels import sweep_lanes
from windrow.operators.aggregates.sweep import MultiplicityChanges, Sweep
from windrow.operators.aggregates.vectors import Bools, Int64s, filled, one_pattern, raw, validity, words

_MASK = np.int64(0xFFFFFFFF)
_LOW63, _INFINITY = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(0x7FF0000000000000)
_NONE = (0, 0)
_NO_NULLS = np.ones(1, np.bool_)
_NO_CELLS, _NO_SIGNS = np.zeros(1, np.int64), np.ones(1, np.int8)
_SPECIALS = ("nan", "up", "down")


@dataclass(frozen=True)
class SumLanes:
    """Which lanes there are, in order: nulls, specials, limbs `[sums)`, limbs `[squares)`."""

    nulls: bool = False
    specials: bool = False
    sums: tuple[int, int] = _NONE
    squares: tuple[int, int] = _NONE

    @property
    def sums_at(self) -> int:
        return self.nulls + 3 * self.specials

    @property
    def squares_at(self) -> int:
        return self.sums_at + self.sums[1] - self.sums[0]

    @property
    def width(self) -> int:
        return self.squares_at + self.squares[1] - self.squares[0]

    def union(self, other: SumLanes) -> SumLanes:
        """The least layout with the lanes of both."""
        return SumLanes(
            self.nulls or other.nulls,
            self.specials or other.specials,
            _hull(self.sums, other.sums),
            _hull(self.squares, other.squares),
        )

    def names(self) -> list[str]:
        """A name for every lane, for tables of state."""
        names = ["null"] * self.nulls + list(_SPECIALS) * self.specials
        names += [f"s{k}" for k in range(*self.sums)]
        return names + [f"q{k}" for k in range(*self.squares)]

    @staticmethod
    def of_names(names: list[str]) -> SumLanes:
        """The layout that has these names."""
        return SumLanes("null" in names, "nan" in names, _named("s", names), _named("q", names))


def _named(letter: str, names: list[str]) -> tuple[int, int]:
    found = [int(n[1:]) for n in names if n[0] == letter and n[1:].isdigit()]
    return (min(found), max(found) + 1) if found else _NONE


def _hull(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    if a[0] == a[1]:
        return b
    return a if b[0] == b[1] else (min(a[0], b[0]), max(a[1], b[1]))


@dataclass(frozen=True)
class Cells:
    """Rows to be summed together: row i counts `sign[i]` times in cell `of_row[i]`; `in_state`: which is a slot."""

    of_row: Int64s
    sign: np.ndarray
    count: int
    in_state: bool = False

    def __len__(self) -> int:
        return self.count


class Sums:
    """The lanes of one column: per slot in state, per point after `advance`."""

    def __init__(self, type_: pa.DataType, sums: bool, squares: bool) -> None:
        self.type, self.functions = type_, (sums, squares)
        self._sums, self._squares = sums, squares
        self.layout = SumLanes()
        self.store = np.zeros((0, 0), np.int64)  # [slots, lanes]
        self.points = np.zeros((0, 0), np.int64)  # [points, lanes]
        self._advances = 0

    @property
    def is_float(self) -> bool:
        return pa.types.is_floating(self.type)

    def lift(self, column: pa.Array, cells: Cells | None = None) -> Int64s:
        """The lanes of every row, or summed per cell; widens the layout, and the state, to what the rows need."""
        if self._sums and (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))
        valid = validity(column)
        if self.is_float:
            return self._lift_floats(_bits(column), valid, cells)
        return self._lift_integers(column, valid, cells)

    def _widen(self, needed: SumLanes, rows: int, valid: Bools | None, cells: Cells | None) -> Int64s:
        self.widen(replace(needed, nulls=valid is not None))
        count = rows if cells is None else len(cells)
        to_state = cells is not None and cells.in_state
        matrix = self.store if to_state else np.zeros((count, self.layout.width), np.int64)
        if valid is not None:
            _put(matrix, 0, (~valid)[:, None], cells)
        return matrix

    def _lift_floats(self, bits: Int64s, valid: Bools | None, cells: Cells | None) -> Int64s:
        if not (self._sums or self._squares):
            return self._widen(SumLanes(), len(bits), valid, cells)
        mask, some_null = (_NO_NULLS, False) if valid is None else (valid, True)
        low, high, *specials = limbs.float_span(bits, mask, some_null)
        needed = SumLanes(specials=any(specials))
        if high >= 0:
            low, high = max(low - 1, 0), max(high - 1, 0)
            needed = replace(needed, sums=(low >> 5, (high >> 5) + 3))
            if self._squares:
                needed = replace(needed, squares=(low >> 4, (high >> 4) + 5))
        matrix = self._widen(needed, len(bits), valid, cells)
        layout = self.layout
        if any(specials):
            kinds = np.stack(((bits & _LOW63) > _INFINITY, bits == _INFINITY, bits == ~_LOW63 | _INFINITY), axis=1)
            _put(matrix, int(layout.nulls), kinds if valid is None else kinds & valid[:, None], cells)
        if high >= 0:
            where = (_NO_CELLS, _NO_SIGNS, False) if cells is None else (cells.of_row, cells.sign, True)
            limbs.float_limbs(bits, mask, some_null, *where, layout.sums[0], matrix, layout.sums_at)
            if self._squares:
                limbs.float_square_limbs(bits, mask, some_null, *where, layout.squares[0], matrix, layout.squares_at)
        return matrix

    def _lift_integers(self, column: pa.Array, valid: Bools | None, cells: Cells | None) -> Int64s:
        n = len(column)
        if n == 0 or not (self._sums or self._squares):
            return self._widen(SumLanes(), n, valid, cells)
        digits = integer_digits(column, valid)
        needed = SumLanes(sums=(0, digits.shape[1]))
        squares = _squares(digits, digits.shape[1]) if self._squares else None
        if squares is not None:
            needed = replace(needed, squares=(0, squares.shape[1]))
        matrix = self._widen(needed, n, valid, cells)
        _put(matrix, self.layout.sums_at, digits, cells)
        if squares is not None:
            _put(matrix, self.layout.squares_at, squares, cells)
        return matrix

    def advance(self, sweep: Sweep, feed: MultiplicityChanges, column: pa.Array) -> None:
        """Add the events of `feed`, whose rows are `column`'s."""
        self._trim_sometimes()
        self.sweep(sweep, feed, self.lift(column))

    def add(self, column: pa.Array, slots: Int64s) -> None:
        """Add each row to the state of its slot; limbs are carried later."""
        self._trim_sometimes()
        self.lift(column, Cells(slots, np.ones(len(slots), np.int8), len(self.store), in_state=True))

    def sweep(self, sweep: Sweep, feed: MultiplicityChanges, matrix: Int64s) -> None:
        """Add the events of `feed`, whose rows have these lanes."""
        self.points = sweep_lanes(
            matrix, feed.rows, feed.deltas, feed.ends, sweep.firsts, self.store.take(sweep.slots, axis=0)
        )
        self.store[sweep.slots] = self.canonical(self.points[sweep.last])

    def widen(self, layout: SumLanes) -> None:
        """Have at least the lanes of `layout`."""
        needed = layout.union(self.layout)
        if needed != self.layout:
            self.store = relaid(self.store, self.layout, needed)
            self.layout = needed

    def canonical(self, lanes: Int64s) -> Int64s:
        """The same lanes with limbs carried to balanced digits."""
        layout = self.layout
        limbs.carry(lanes, layout.sums_at, layout.squares_at)
        limbs.carry(lanes, layout.squares_at, layout.width)
        return lanes

    def carry(self, slots: Int64s) -> None:
        """Bring the limbs of slots to balanced digits."""
        layout = self.layout
        limbs.carry_at(self.store, slots, layout.sums_at, layout.squares_at)
        limbs.carry_at(self.store, slots, layout.squares_at, layout.width)

    def _trim_sometimes(self) -> None:
        self._advances += 1
        if self.layout.width > 6 and self._advances % 16 == 0:
            self.trim()

    def trim(self) -> None:
        """Forget lanes that are zero in every group."""
        used = np.asarray(self.store.any(axis=0))
        layout = self.layout
        kept = SumLanes(
            layout.nulls and bool(used[0]),
            layout.specials and bool(used[layout.nulls : layout.nulls + 3].any()),
            _used(used, layout.sums, layout.sums_at, self.is_float),
            _used(used, layout.squares, layout.squares_at, self.is_float),
        )
        if kept != layout:
            self.store, self.layout = relaid(self.store, layout, kept), kept

    def grow(self, slots: int) -> None:
        """Make room for `slots` groups."""
        if slots > len(self.store):
            more = np.zeros((slots - len(self.store), self.layout.width), np.int64)
            self.store = np.concatenate((self.store, more))

    def clear(self, slots: Int64s) -> None:
        """Forget groups."""
        limbs.clear_at(self.store, slots)


def _bits(column: pa.Array) -> Int64s:
    """The bits of the values as doubles; anything at nulls."""
    if pa.types.is_float64(column.type):
        return raw(column).view(np.int64)
    return one_pattern(filled(column)).astype(np.float64).view(np.int64)


def _put(matrix: Int64s, column: int, values: np.ndarray, cells: Cells | None) -> None:
    """Values into `matrix[:, column:]`: row by row, or added per cell."""
    if cells is None:
        matrix[:, column : column + values.shape[1]] = values
    else:
        limbs.add_rows(values, cells.of_row, cells.sign, matrix, column)


def _used(used: Bools, span: tuple[int, int], at: int, float_: bool) -> tuple[int, int]:
    """The lanes in use; the limbs of integers begin with limb 0, whatever is in it."""
    found = np.flatnonzero(used[at : at + span[1] - span[0]])
    return (span[0] + int(found[0]) if float_ else 0, span[0] + int(found[-1]) + 1) if len(found) else _NONE


def relaid(lanes: Int64s, old: SumLanes, new: SumLanes) -> Int64s:
    """Lanes moved to another layout; lanes that `new` lacks must be zero."""
    out = np.zeros((len(lanes), new.width), np.int64)
    places = {name: k for k, name in enumerate(new.names())}
    for k, name in enumerate(old.names()):
        if name in places:
            out[:, places[name]] = lanes[:, k]
    return out


def integer_digits(column: pa.Array, valid: Bools | None) -> Int64s:
    """Integers (or unscaled decimals) as one lane if all are below 2**31, else as 32-bit digits, the top one signed."""
    if pa.types.is_decimal(column.type):
        low, high = words(column)
        if valid is not None:
            low, high = np.where(valid, low, np.uint64(0)), np.where(valid, high, 0)
        if not np.array_equal(low.view(np.int64) >> 63, high):
            bottom = low.view(np.int64)
            return np.stack((bottom & _MASK, (bottom >> 32) & _MASK, high & _MASK, high >> 32), axis=1)
        values = low.view(np.int64)
    else:
        values = filled(column)
        if values.dtype == np.uint64 and len(values) and values.max() >= 2**63:
            return np.stack(
                ((values & np.uint64(_MASK)).astype(np.int64), (values >> np.uint64(32)).astype(np.int64)), axis=1
            )
        values = values.astype(np.int64, copy=False)
    if len(values) == 0 or (values.min() >= -(2**31) and values.max() < 2**31):
        return values.reshape(-1, 1)
    return np.stack((values & _MASK, values >> 32), axis=1)


def _squares(digits: Int64s, width: int) -> Int64s:
    magnitude = digits
    if width == 1:
        if len(digits) == 0 or np.abs(digits).max() < 2**16:
            return digits * digits
        magnitude = np.abs(digits)
    else:
        negative = digits[:, -1] < 0
        inverted = np.where(negative[:, None], ~digits & _MASK, digits & _MASK)
        inverted[:, 0] += negative
        for k in range(width - 1):
            inverted[:, k + 1] += inverted[:, k] >> 32
        magnitude = inverted & _MASK
    out = np.zeros((len(digits), 2 * width + 1), np.int64)
    limbs.square_limbs(magnitude, out, 0)
    return out
