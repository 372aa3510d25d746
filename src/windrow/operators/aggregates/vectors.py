"""Between Arrow arrays and NumPy vectors, without copies where the layout allows.

Nulls travel beside the values as a boolean vector `valid`, or None when all values are there. What lies under a null is
arbitrary: garbage that may be NaN, infinite or out of range. Law: it is never computed on. Whoever computes takes
`filled`, which has zeros there, or passes `valid` to a kernel that skips them; `raw` is for moving values about.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]

DAY_US = 86_400_000_000


def validity(array: pa.Array) -> Bools | None:
    """Where there is a value; None when everywhere."""
    if array.null_count == 0:
        return None
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    packed = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(packed, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


def raw(array: pa.Array) -> np.ndarray:
    """The values of a fixed-width array as its buffer holds them; what stands at nulls is arbitrary.

    >>> raw(pa.array([1, 2, 3])[1:]).tolist()
    [2, 3]
    """
    type_, n = array.type, len(array)
    if pa.types.is_null(type_):
        return np.zeros(n, np.int64)
    if pa.types.is_boolean(type_):
        packed = np.frombuffer(array.buffers()[1], np.uint8)
        return np.unpackbits(packed, count=array.offset + n, bitorder="little")[array.offset :].astype(np.int64)
    if n == 0:
        return np.zeros(0, _dtype(type_))
    return np.frombuffer(array.buffers()[1], _dtype(type_))[array.offset : array.offset + n]


def filled(array: pa.Array) -> np.ndarray:
    """The values of a fixed-width array, zero at nulls.

    >>> filled(pa.array([1.5, None])).tolist()
    [1.5, 0.0]
    """
    values, valid = raw(array), validity(array)
    return values if valid is None else np.where(valid, values, values.dtype.type(0))


def opens(*keys: np.ndarray) -> Bools:
    """Where another key begins: at the first row, and at each that differs from the one before it in some key.

    >>> opens(np.array([1, 1, 2, 2]), np.array([0, 0, 0, 5])).tolist()
    [True, False, True, True]
    """
    found = np.zeros(len(keys[0]), np.bool_)
    found[:1] = True
    for key in keys:
        found[1:] |= key[1:] != key[:-1]
    return found


def distinct_values(values: np.ndarray) -> np.ndarray:
    """The different values, in order: by sorting, which is many times faster than hashing integers.

    >>> distinct_values(np.array([5, 3, 5])).tolist()
    [3, 5]
    """
    ordered = np.sort(values, axis=None)
    return ordered[opens(ordered)]


def grown(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """The rows of an array, with room for `size` of them."""
    more = np.full((size, *array.shape[1:]), fill, array.dtype)
    more[: len(array)] = array
    return more


_NAN = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}
_INFINITY = {2: 0x7C00, 4: 0x7F800000, 8: 0x7FF0000000000000}


def one_pattern(values: np.ndarray) -> np.ndarray:
    """Floats with one bit pattern per value: one NaN, no negative zero; the same array when they have it.

    Done on the bits: arithmetic on a signalling NaN raises the flag that NumPy turns into a warning.

    >>> one_pattern(np.array([-0.0, 1.5])).tolist()
    [0.0, 1.5]
    """
    size = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"i{size}")
    magnitude = bits & bits.dtype.type((1 << (8 * size - 1)) - 1)
    nan, zero = magnitude > bits.dtype.type(_INFINITY[size]), magnitude == 0
    if nan.any():
        bits = np.where(nan, bits.dtype.type(_NAN[size]), bits)
    elif not zero.any():
        return values
    return np.where(zero, bits.dtype.type(0), bits).view(values.dtype)


def _dtype(type_: pa.DataType) -> np.dtype:
    if pa.types.is_floating(type_):
        return np.dtype(f"f{type_.bit_width // 8}")
    kind = "u" if pa.types.is_unsigned_integer(type_) else "i"
    return np.dtype(f"{kind}{type_.bit_width // 8}")


def words(array: pa.Array) -> tuple[NDArray[np.uint64], Int64s]:
    """Low and high 64 bits of 128-bit decimals (narrower decimals are widened)."""
    if array.type.bit_width != 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    buffer = array.buffers()[1]
    both = (
        np.frombuffer(buffer, np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
        if len(array)
        else np.zeros(0, np.int64)
    )
    return both[0::2].view(np.uint64), both[1::2]


def fixed(values: np.ndarray, valid: Bools | None, type_: pa.DataType) -> pa.Array:
    """An array of a fixed-width type over the bits of `values`.

    >>> fixed(np.array([7, 8]), np.array([True, False]), pa.int32()).to_pylist()
    [7, None]
    """
    if pa.types.is_boolean(type_):
        data = pa.py_buffer(np.packbits(values.astype(np.bool_), bitorder="little"))
    else:
        data = pa.py_buffer(np.ascontiguousarray(values.astype(_dtype(type_), copy=False)))
    return pa.Array.from_buffers(type_, len(values), [bitmap(valid), data])


def decimals(low: np.ndarray, high: np.ndarray, valid: Bools | None, type_: pa.DataType) -> pa.Array:
    """128-bit decimals from their words."""
    both = np.empty((len(low), 2), np.int64)
    both[:, 0] = low.view(np.int64)
    both[:, 1] = high
    wide = pa.decimal128(type_.precision, type_.scale)
    array = pa.Array.from_buffers(wide, len(low), [bitmap(valid), pa.py_buffer(both)])
    return array if wide == type_ else array.cast(type_)


def bitmap(valid: Bools | None) -> pa.Buffer | None:
    """Arrow's validity bitmap."""
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
