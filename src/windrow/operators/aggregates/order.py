"""Values as integers in the order of the scalar engine.

`encode` maps the values of several arrays of one type to int64 codes: equal values get equal codes, smaller
ones smaller codes. Numbers and times have codes that mean the same for ever (`fixed codes`); wide decimals,
text and everything else are numbered by rank among the values at hand, so their codes live for one advance.

Order: NaN is the greatest number, -0.0 equals 0.0, text compares by its UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.operators.aggregates.vectors import (
    Bools,
    Int64s,
    decimals,
    filled,
    fixed,
    one_pattern,
    raw,
    validity,
    words,
)
from windrow.operators.keys import comparable

_LOW63 = np.int64(0x7FFFFFFFFFFFFFFF)
_TOP = np.int64(-0x8000000000000000)


@dataclass(frozen=True)
class CodeOrder:
    """The decoder of a set of codes: by type, or by rank in `ranked`."""

    type: pa.DataType
    ranked: pa.Array | None = None

    def decode(self, codes: Int64s, valid: Bools | None = None) -> pa.Array:
        """The values with these codes; null where not `valid`."""
        if self.ranked is not None:
            picks = pa.array(codes, mask=None if valid is None else ~valid)
            return self.ranked.take(picks)
        if pa.types.is_floating(self.type):
            bits = codes ^ ((codes >> 63) & _LOW63)
            return fixed(bits.view(np.float64), valid, self.type)
        if pa.types.is_uint64(self.type):
            return fixed((codes ^ _TOP).view(np.uint64), valid, self.type)
        if pa.types.is_decimal(self.type):
            return decimals(codes, codes >> 63, valid, self.type)
        if pa.types.is_null(self.type):
            return pa.nulls(len(codes))
        return fixed(codes, valid, self.type)


def has_fixed_codes(type_: pa.DataType) -> bool:
    """Whether codes of this type mean the same in every advance."""
    if pa.types.is_decimal(type_):
        return type_.precision <= 18
    return (pa.types.is_primitive(type_) and type_.bit_width <= 64) or pa.types.is_null(type_)


def encode(arrays: Sequence[pa.Array]) -> tuple[list[Int64s], CodeOrder]:
    """Codes of each array (arbitrary at nulls) under one order.

    >>> (codes,), order = encode([pa.array(["b", "a", "b"])])
    >>> codes.tolist(), order.decode(codes).to_pylist()
    ([1, 0, 1], ['b', 'a', 'b'])
    """
    type_ = arrays[0].type
    if has_fixed_codes(type_):
        return [_fixed_codes(a) for a in arrays], CodeOrder(type_)
    return _rank_codes(arrays)


def _fixed_codes(array: pa.Array) -> Int64s:
    type_ = array.type
    if pa.types.is_floating(type_):
        bits = one_pattern(filled(array)).astype(np.float64, copy=False).view(np.int64)  # NaN's bits sort last
        return bits ^ ((bits >> 63) & _LOW63)
    if pa.types.is_uint64(type_):
        return raw(array).view(np.int64) ^ _TOP
    if pa.types.is_decimal(type_):
        return words(array)[0].view(np.int64)
    return raw(array).astype(np.int64, copy=False)


def _rank_codes(arrays: Sequence[pa.Array]) -> tuple[list[Int64s], CodeOrder]:
    together = pa.concat_arrays(arrays)
    encoded = comparable(together).dictionary_encode()
    by_rank = pc.array_sort_indices(_binary(encoded.dictionary)).to_numpy()
    rank = np.empty(max(len(by_rank), 1), np.int64)
    rank[by_rank] = np.arange(len(by_rank))
    picks = _indices(encoded)
    codes = rank[picks] if len(by_rank) else np.zeros(len(together), np.int64)
    bounds = np.cumsum([0, *(len(a) for a in arrays)])
    parts = [codes[a:b] for a, b in pairwise(bounds)]
    if encoded.dictionary.type == together.type:
        return parts, CodeOrder(together.type, encoded.dictionary.take(pa.array(by_rank)))
    # sort keys are numbered: the first value with each stands for it
    some = np.flatnonzero(np.asarray(encoded.is_valid()))[::-1]
    first = np.zeros(len(by_rank), np.int64)
    first[picks[some]] = some
    return parts, CodeOrder(together.type, together.take(pa.array(first[by_rank])))


def _binary(dictionary: pa.Array) -> pa.Array:
    if pa.types.is_string(dictionary.type) or pa.types.is_large_string(dictionary.type):
        return dictionary.cast(pa.large_binary())
    return dictionary


def _indices(encoded: pa.DictionaryArray) -> Int64s:
    valid = validity(encoded.indices)
    picks = raw(encoded.indices).astype(np.int64)
    return picks if valid is None else np.where(valid, picks, 0)
