"""Search keys: which types have an order, and the ranges that probes ask for.

Keys are ordered as DuckDB orders them: numbers, then NaN, then NULL; texts by their bytes; several columns one after
the other. A range has a low and a high end, both included; an end may leave out the last columns of the key, and then
holds for all their values. One value is a range whose ends are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from windrow.errors import BindingError

Mask = NDArray[np.bool_]


def check_key(keys: Sequence[str], schema: pa.Schema) -> None:
    """Refuse key columns that are not there, come twice, or have no order."""
    for i, name in enumerate(keys):
        if name not in schema.names:
            raise BindingError(
                f'"{name}" is no column of the archive', hint=f"its columns are {', '.join(schema.names)}"
            )
        if name in keys[:i]:
            raise BindingError(f'"{name}" occurs twice in the key')
        if not _ordered(schema.field(name).type):
            raise BindingError(
                f'"{name}" cannot be a key: {schema.field(name).type} has no order',
                hint="choose columns of numbers, texts, dates or times",
            )


def _ordered(type_: pa.DataType) -> bool:
    tests = ("integer", "floating", "decimal", "boolean", "date", "time", "timestamp", "duration", "string", "binary")
    named = [getattr(pa.types, f"is_{test}") for test in (*tests, "large_string", "large_binary", "fixed_size_binary")]
    return any(test(type_) for test in named)


@dataclass(frozen=True)
class KeyRange:
    """Keys from `low` to `high`, both included; None: without an end on that side."""

    low: tuple[pa.Scalar, ...] | None = None
    high: tuple[pa.Scalar, ...] | None = None

    @classmethod
    def of(cls, keys: Sequence[str], schema: pa.Schema, low: Any, high: Any) -> KeyRange:
        """The range between two ends as a user gives them: values, tuples, or `OPEN`."""
        begin = _end(keys, schema, low)
        return cls(begin, begin if high is low else _end(keys, schema, high))

    def meets(self, lows: Sequence[pa.Array], highs: Sequence[pa.Array], length: int) -> Mask:
        """Which of many stretches of keys, given by their first and last, have keys of this range in them."""
        mask = np.ones(length, np.bool_)
        if self.low is not None:
            mask &= _at_least(highs, self.low, length)
        if self.high is not None:
            mask &= _at_most(lows, self.high, length)
        return mask

    def holds(self, columns: Sequence[pa.Array], length: int) -> Mask:
        """Which rows have a key of this range."""
        if self.low is None or self.low is not self.high:
            return self.meets(columns, columns, length)
        mask = np.ones(length, np.bool_)
        for column, value in zip(columns, self.low, strict=False):
            mask &= compare(column, value)[1]
        return mask


class _Open:
    """No end on this side; None is a key."""

    def __repr__(self) -> str:
        return "OPEN"


OPEN = _Open()
EVERYTHING = KeyRange()


def _end(keys: Sequence[str], schema: pa.Schema, value: Any) -> tuple[pa.Scalar, ...] | None:
    if value is OPEN:
        return None
    if isinstance(value, Mapping):
        raise BindingError("a key is a value or a tuple of values", detail=f"{value!r} is neither")
    values = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(values) <= len(keys):
        raise BindingError(
            f"the key has {len(keys)} columns, and {len(values)} values are given",
            hint=f"give values for {', '.join(keys)}, or for the first of them",
        )
    return tuple(_scalar(k, schema.field(k).type, v) for k, v in zip(keys, values, strict=False))


def _scalar(key: str, type_: pa.DataType, value: Any) -> pa.Scalar:
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BindingError(
            f'{value!r} is no value of the key "{key}"', detail=f"its type is {type_}: {error}"
        ) from None


def _at_least(columns: Sequence[pa.Array], end: Sequence[pa.Scalar], length: int) -> Mask:
    """Where the key is at or after an end: greater in the first column that differs, or equal in all of the end's."""
    mask, equal = np.zeros(length, np.bool_), np.ones(length, np.bool_)
    for column, value in zip(columns, end, strict=False):
        greater, same = compare(column, value)
        mask |= equal & greater
        equal &= same
    return mask | equal


def _at_most(columns: Sequence[pa.Array], end: Sequence[pa.Scalar], length: int) -> Mask:
    mask, equal = np.zeros(length, np.bool_), np.ones(length, np.bool_)
    for column, value in zip(columns, end, strict=False):
        greater, same = compare(column, value)
        mask |= equal & ~greater & ~same
        equal &= same
    return mask | equal


def compare(column: pa.Array, value: pa.Scalar) -> tuple[Mask, Mask]:
    """(greater than the value, equal to it) for every element, NaN after the numbers and NULL last.

    >>> greater, same = compare(pa.array([1.0, float("nan"), None]), pa.scalar(1.0))
    >>> greater.tolist(), same.tolist()
    ([False, True, True], [True, False, False])
    """
    if pa.types.is_integer(column.type) and not column.null_count and value.is_valid:
        found, sought = column.to_numpy(), value.as_py()  # as Arrow compares them, without a call for each
        return found > sought, found == sought
    null = _mask(column.is_null()) if column.null_count else np.zeros(len(column), np.bool_)
    if not value.is_valid:
        return np.zeros(len(column), np.bool_), null
    if not pa.types.is_floating(column.type):
        return _mask(pc.greater(column, value)) | null, _mask(pc.equal(column, value))
    odd = _mask(pc.is_nan(column))
    if np.isnan(value.as_py()):
        return null, odd
    return _mask(pc.greater(column, value)) | odd | null, _mask(pc.equal(column, value))


def _mask(found: pa.BooleanArray) -> Mask:
    return np.asarray(pc.fill_null(found, False) if found.null_count else found)
