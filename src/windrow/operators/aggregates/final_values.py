"""Final values of COUNT, SUM, AVG, VARIANCE and STDDEV from the lanes of a column (`sums`), each rounded once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import limbs
from windrow.operators.aggregates.answers import PointValues, scalars, wides
from windrow.operators.aggregates.call import Aggregation
from windrow.operators.aggregates.sums import SumLanes
from windrow.operators.aggregates.vectors import Bools, Int64s

_MASK = np.int64(0xFFFFFFFF)


class Lowering:
    """Final values of the functions over one column's lanes, at points; they begin at column `at` of `lanes`."""

    def __init__(self, lanes: Int64s, layout: SumLanes, type_: pa.DataType, rows: Int64s, at: int = 0) -> None:
        self._lanes, self._layout, self._type, self._at = lanes, layout, type_, at
        self.count = rows - lanes[:, at] if layout.nulls else rows

    def answer(self, call: Aggregation) -> PointValues:
        """The answer of one call."""
        if call.kind == "count":
            return scalars(self.count, None, call.type)
        if call.kind == "sum":
            return self._sum(call.type)
        if call.kind == "avg":
            return self._mean(call.type)
        return self._deviation(call)

    @property
    def _some(self) -> Bools | None:
        some = self.count > 0
        return None if some.all() else some

    def _special(self, values: np.ndarray, infinite: bool = True) -> np.ndarray:
        """Put NaN and infinities where the rows have them (VARIANCE: NaN for all of them)."""
        if not self._layout.specials:
            return values
        nan, up, down = (self._lanes[:, self._at + self._layout.nulls + k] > 0 for k in range(3))
        if not infinite:
            return np.where(nan | up | down, np.nan, values)
        values = np.where(up, np.inf, np.where(down, -np.inf, values))
        return np.where(nan | (up & down), np.nan, values)

    @property
    def _bias(self) -> int:
        return 32 * self._layout.sums[0] - (1074 if pa.types.is_floating(self._type) else 0)

    def _bounds(self) -> tuple[int, int]:
        return self._at + self._layout.sums_at, self._at + self._layout.squares_at

    def _sum(self, type_: pa.DataType) -> PointValues:
        if pa.types.is_decimal(type_):
            return wides(*self._words(), self._some, type_)
        values = limbs.round_sums(self._lanes, *self._bounds(), self._bias)
        if pa.types.is_decimal(self._type):
            values = values / 10.0**self._type.scale
        return scalars(self._special(values), self._some, type_)

    def _words(self) -> tuple[Int64s, Int64s | None, Bools | None]:
        """Low and high words of the sums, and which do not fit in 38 digits; limbs of integers begin with limb 0."""
        at, end = self._bounds()
        if end == at:
            return np.zeros(len(self.count), np.int64), None, None
        if end - at == 1:
            return np.ascontiguousarray(self._lanes[:, at]), None, None
        digits, carried = [], np.zeros(len(self.count), np.int64)
        for k in range(at, end):
            total = self._lanes[:, k] + carried
            digits.append(total & _MASK)
            carried = total >> 32
        few = len(digits) < 4  # then the greatest sum is below 2**127
        while len(digits) < 4:
            digits.append(carried & _MASK)
            carried = carried >> 32
        low, high = digits[0] | (digits[1] << 32), digits[2] | (digits[3] << 32)
        return low, high, None if few else _too_wide(low, high, carried)

    def _mean(self, type_: pa.DataType) -> PointValues:
        if pa.types.is_temporal(type_):
            return scalars(limbs.whole_means(self._lanes, *self._bounds(), self.count), self._some, type_)
        scale = 10 ** (self._type.scale if pa.types.is_decimal(self._type) else 0)
        if len(self.count) and int(self.count.max()) * scale < 2**31:
            values = limbs.round_means(self._lanes, *self._bounds(), self._bias, self.count * scale)
        else:
            values = limbs.round_means(self._lanes, *self._bounds(), self._bias, self.count) / float(scale)
        return scalars(self._special(values), self._some, type_)

    def _deviation(self, call: Aggregation) -> PointValues:
        layout, n = self._layout, self.count
        pop = call.kind in ("var_pop", "stddev_pop")
        divisors = n * (n if pop else n - 1.0)
        sums = (*self._bounds(), layout.sums[0])
        squares = (self._at + layout.squares_at, self._at + layout.width, layout.squares[0])
        unit = -2148 if pa.types.is_floating(self._type) else 0
        values = limbs.deviations(self._lanes, *sums, *squares, unit, n, divisors)
        if pa.types.is_decimal(self._type):
            values = values / 10.0 ** (2 * self._type.scale)
        values = np.where(n == 1, 0.0, self._special(values, infinite=False))
        if call.kind.startswith("stddev"):
            values = np.sqrt(values)
        valid = n > (0 if pop else 1)
        return scalars(values, None if valid.all() else valid, call.type)


def _too_wide(low: Int64s, high: Int64s, carried: Int64s) -> Bools | None:
    """Which numbers of two words and a carry have more than 38 digits; None when none has."""
    limit, unsigned = 10**38, low.view(np.uint64)
    (top, bottom), (least, most) = (divmod(n % 2**128, 2**64) for n in (limit, -limit))
    above = (high > np.int64(top)) | ((high == np.int64(top)) & (unsigned >= np.uint64(bottom)))
    least -= 2**64  # as a signed word
    below = (high < np.int64(least)) | ((high == np.int64(least)) & (unsigned <= np.uint64(most)))
    found = above | below | (carried != high >> 63)
    return found if found.any() else None
