"""Rows as keys: exact dense codes within a batch, and 64-bit hashes across batches.

`factorize` numbers the distinct rows of a batch, exactly. `hash_rows` maps rows to 64-bit codes that are equal for
equal rows in every process; for one integer-like column the map is a bijection, otherwise two different rows may share
a hash and whoever matches by hash compares the rows themselves (`same_rows`).

Equality is SQL's for grouping: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, a month equals 30 days. Of nested
values and intervals, which Arrow neither numbers nor compares, the scalar engine's sort keys are numbered and compared;
they last for one call. Hashes are computed here, because they are stored and decide where state lies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from windrow.operators.aggregates.vectors import DAY_US, filled, fixed, one_pattern, validity
from windrow.operators.scalar import evaluate
from windrow.operators.types import has_interval
from windrow.scalar_engine import literal, quote

_NULL = np.uint64(0x9AE16A3B2F90404F)
_SEED = np.uint64(0x8445D61A4E774912)


def canonical(array: pa.Array) -> pa.Array:
    """The array with one bit pattern per value: one NaN, no negative zero.

    >>> canonical(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    if not pa.types.is_floating(array.type):
        return array
    values = filled(array)
    clean = one_pattern(values)
    return array if clean is values and not array.null_count else fixed(clean, validity(array), array.type)


def comparable(array: pa.Array) -> pa.Array:
    """The same values, equal and ordered as SQL has them, of a type that Arrow compares: numbers, or sort keys.

    >>> comparable(pa.array([[0.0, None], [-0.0, None]])).unique().type
    DataType(binary)
    """
    if not (pa.types.is_nested(array.type) or pa.types.is_interval(array.type)):
        return canonical(array)
    normal = _normal('"c"', array.type)
    sql = f"CASE WHEN \"c\" IS NOT NULL THEN create_sort_key({normal}, 'ASC NULLS LAST') END"
    return evaluate({"c": array}, len(array), [(sql, pa.binary())])[0]


def _comparable_pair(a: pa.Array, b: pa.Array) -> tuple[pa.Array, pa.Array]:
    if a.type != b.type or not (pa.types.is_nested(a.type) or pa.types.is_interval(a.type)):
        return comparable(a), comparable(b)
    both = comparable(pa.concat_arrays([a, b]))  # one call of the scalar engine
    return both.slice(0, len(a)), both.slice(len(a))


def _normal(sql: str, type_: pa.DataType) -> str:
    """The expression with every interval in it in its normal form: sort keys know neither days nor months."""
    t = pa.types
    if t.is_interval(type_):
        return f"normalized_interval({sql})"
    if not has_interval(type_):
        return sql
    if t.is_struct(type_):
        parts = [f"{quote(f.name)} := {_normal(f'struct_extract({sql}, {literal(f.name)})', f.type)}" for f in type_]
        return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({', '.join(parts)}) END"
    if t.is_map(type_):
        entry = pa.struct([("key", type_.key_type), ("value", type_.item_type)])
        return _normal(f"map_entries({sql})", pa.list_(entry))
    each = f"v{sql.count('lambda')}"
    return f"list_transform({sql}, lambda {each}: {_normal(each, type_.value_type)})"


def factorize(columns: Sequence[pa.Array], length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct rows: `(codes, first)`; `first[c]` is the first row with code c.

    >>> codes, first = factorize([pa.array(["x", "y", "x"])], 3)
    >>> codes.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    if not columns:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    codes, count = _column_codes(columns[0])
    for column in columns[1:]:
        more, n = _column_codes(column)
        codes, count = dense(codes * n + more, count * n)
    first = np.full(count, length, np.int64)
    # reversed, so that the first occurrence is the one that stays
    first[codes[::-1]] = np.arange(length - 1, -1, -1)
    return codes, first


def _column_codes(column: pa.Array) -> tuple[NDArray[np.int64], int]:
    encoded = pc.dictionary_encode(comparable(column), null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def dense(codes: NDArray[np.int64], bound: int) -> tuple[NDArray[np.int64], int]:
    """Renumber codes below `bound` without gaps."""
    if bound <= 4 * len(codes) + 1024:
        seen = np.zeros(bound, np.bool_)
        seen[codes] = True
        rank = np.cumsum(seen) - 1
        return rank[codes], int(rank[-1]) + 1 if bound else 0
    unique, inverse = np.unique(codes, return_inverse=True)
    return inverse.astype(np.int64), len(unique)


def hash_rows(columns: Sequence[pa.Array], length: int) -> NDArray[np.int64]:
    """A 64-bit code per row, equal for equal rows in every process."""
    if not columns:
        return np.zeros(length, np.int64)
    if (values := unmixed(columns)) is not None:  # what most joins look for, often a row at a time
        return mix(values.view(np.uint64)).view(np.int64)
    result = _hash_column(columns[0])
    for column in columns[1:]:
        result = mix((result ^ (result >> np.uint64(29))) * _SEED + _hash_column(column))
    return result.view(np.int64)


def unmixed(columns: Sequence[pa.Array]) -> NDArray[np.int64] | None:
    """The values of one column of integers or times without nulls, whose hashes are `mix_one` of each; else nothing."""
    values = signed_values(columns)
    return None if values is None else values.astype(np.int64, copy=False)


def signed_values(columns: Sequence[pa.Array]) -> np.ndarray | None:
    """The same as they lie: integers of their width."""
    if len(columns) != 1 or columns[0].null_count or not len(columns[0]) or not has_signed_values(columns[0].type):
        return None
    return _signed(columns[0])


def has_signed_values(type_: pa.DataType) -> bool:
    """Whether it is of integers or of times."""
    return (pa.types.is_integer(type_) or pa.types.is_temporal(type_)) and not pa.types.is_interval(type_)


@njit(cache=True)
def mix_one(value):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """`mix` of one value, as a signed word."""
    x = np.uint64(value)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(x ^ (x >> np.uint64(31)))


@njit(cache=True)
def mix(x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """A bijection of 64-bit codes that spreads every bit over all."""
    out = np.empty(len(x), np.uint64)
    for i in range(len(x)):
        out[i] = np.uint64(mix_one(x[i]))
    return out


def _hash_column(column: pa.Array) -> NDArray[np.uint64]:
    hashed = _hash_nested(column) if pa.types.is_nested(column.type) else _hash_values(canonical(column))
    if column.null_count:
        hashed = np.where(np.asarray(column.is_null()), _NULL, hashed)
    return hashed


def _hash_nested(column: pa.Array) -> NDArray[np.uint64]:
    """From the hashes of what values are made of, in their order."""
    n, type_ = len(column), column.type
    if pa.types.is_struct(type_):
        return mix(hash_rows([column.field(i) for i in range(type_.num_fields)], n).view(np.uint64) + _SEED)
    if pa.types.is_fixed_size_list(type_):
        bounds = np.arange(n + 1, dtype=np.int64) * type_.list_size
        parts = [column.values.slice(column.offset * type_.list_size, n * type_.list_size)]
    else:
        bounds = column.offsets.to_numpy().astype(np.int64)
        whole = [column.keys, column.items] if pa.types.is_map(type_) else [column.values]
        parts = [p.slice(bounds[0], bounds[-1] - bounds[0]) for p in whole]
        bounds = bounds - bounds[0]
    return _hash_lists(bounds, hash_rows(parts, len(parts[0])).view(np.uint64))


@njit(cache=True)
def _hash_lists(bounds, items):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    out = np.empty(len(bounds) - 1, np.uint64)
    for i in range(len(out)):
        h = np.uint64(0xCBF29CE484222325) ^ np.uint64(bounds[i + 1] - bounds[i])
        for j in range(bounds[i], bounds[i + 1]):
            h = (h ^ items[j]) * np.uint64(0x8445D61A4E774912)
            h = h ^ (h >> np.uint64(29))
        out[i] = h
    return out


def _hash_intervals(column: pa.Array) -> NDArray[np.uint64]:
    """By the length in microseconds, a month being 30 days; what overflows is cut, for all equal ones alike."""
    fields = np.dtype([("months", "i4"), ("days", "i4"), ("nanos", "i8")])
    parts = np.frombuffer(column.buffers()[1], fields)[column.offset : column.offset + len(column)]
    days = parts["months"].astype(np.int64) * 30 + parts["days"]
    return mix((days * DAY_US + parts["nanos"] // 1000).view(np.uint64))


def _hash_values(column: pa.Array) -> NDArray[np.uint64]:
    type_ = column.type
    if not len(column):  # the buffers of nothing may hold anything
        return np.zeros(0, np.uint64)
    if pa.types.is_null(type_):
        return np.full(len(column), _NULL)
    if pa.types.is_interval(type_):
        return _hash_intervals(column)
    if pa.types.is_boolean(type_):
        return mix(np.asarray(column.fill_null(False)).astype(np.uint64))
    if pa.types.is_decimal(type_):
        column, type_ = column.cast(pa.string()), pa.string()
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        column = column.cast(pa.large_binary()) if pa.types.is_binary(type_) else column.cast(pa.large_string())
        type_ = column.type
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return _hash_text(column)
    return mix(_signed(column).astype(np.int64).view(np.uint64))


def _signed(column: pa.Array) -> np.ndarray:
    """The bits of fixed-width values as signed integers of their width."""
    signed = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[column.type.bit_width]
    return np.frombuffer(column.buffers()[1], signed)[column.offset : column.offset + len(column)]


def _hash_text(column: pa.Array) -> NDArray[np.uint64]:
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return _hash_bytes(bounds, text)


@njit(cache=True)
def _hash_bytes(bounds, text):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    out = np.empty(len(bounds) - 1, np.uint64)
    for i in range(len(bounds) - 1):
        h = np.uint64(0xCBF29CE484222325) ^ np.uint64(bounds[i + 1] - bounds[i])
        for j in range(bounds[i], bounds[i + 1]):
            h = (h ^ np.uint64(text[j])) * np.uint64(0x100000001B3)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = h ^ (h >> np.uint64(31))
    return out


def is_bijective(columns: Sequence[pa.Array | pa.DataType]) -> bool:
    """Whether different non-null rows always have different hashes: one column of at most 64 bits."""
    if len(columns) != 1:
        return False
    type_ = columns[0].type if isinstance(columns[0], pa.Array) else columns[0]
    return (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or (pa.types.is_temporal(type_) and not pa.types.is_interval(type_))
        or pa.types.is_boolean(type_)
    )


def same_rows(
    left: Sequence[pa.Array], right: Sequence[pa.Array], length: int, null_safe: bool = True
) -> NDArray[np.bool_]:
    """Where the rows are equal, pairwise; NULLs are equal to each other only when `null_safe`."""
    same = np.ones(length, np.bool_)
    for a, b in zip(left, right, strict=True):
        if (null_safe or not a.null_count) and a.equals(b):  # so most are; NaN is not
            continue
        a, b = _comparable_pair(a, b)
        if pa.types.is_null(a.type):  # bare NULLs, for which Arrow has no comparison
            equal = np.zeros(length, np.bool_)
        else:
            equal = np.asarray(pc.fill_null(pc.equal(a, b), False))
        if pa.types.is_floating(a.type):
            equal |= np.asarray(pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False))
        if null_safe and a.null_count and b.null_count:
            equal |= np.asarray(pc.and_(a.is_null(), b.is_null()))
        same &= equal
    return same
