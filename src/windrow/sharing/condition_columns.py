"""Conditions of one form, which differ in constants, as columns.

`sym = $s AND price > $lim` for a hundred thousand values of `s` and `lim` is one box over `sym` and `price`, and for
each attribute two columns, where the span of each condition begins and ends:

    sym    [3, 4)  [3, 4)  [7, 8)  ...          low   3  3  7         high   4  4  8
    price  [6, inf)  [9, inf)  [2, inf)         low   6  9  2         high   NONE NONE NONE

A disjunction has a box for each of its parts, a negation is pushed down to the tests, as for single conditions
(`conditions`). No code of a value is the least integer's (a span that begins there has no beginning), so that integer
stands for an end without bound.

Law: `columns.condition(i)` holds where the condition with the constants of row i in its place does. What this form
cannot say (casts that are not certain to be exact, several tests of one text) is `Doubtful`: it is done query by query.
Cost: a few array operations per test, however many conditions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.plan.expr import Always, And, Atom, Bit, Comparison, Constant, IsNull, Not, OneOf, Or, Predicate
from windrow.sharing.conditions import MOST_BOXES, Attribute, Box, Condition, attribute_of, values_of
from windrow.sharing.spans import ALL, Cut, Doubtful, ValueSet

NONE = np.iinfo(np.int64).min
"""An end without bound."""
_MOST = np.iinfo(np.int64).max
_EXACT = 2**53
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, eq=False)
class Ends:
    """Where the spans of conditions on one attribute begin and end: integers, or bytes as objects with None.

    `null`: it is the null test, and there are no spans.
    """

    low: np.ndarray
    high: np.ndarray
    null: bool = False

    def span(self, i: int) -> tuple[Cut | None, Cut | None]:
        """The span of one condition."""
        low, high = self.low[i], self.high[i]
        if self.low.dtype == object:
            return low, high
        return None if low == NONE else int(low), None if high == NONE else int(high)


@dataclass(frozen=True, eq=False)
class ColumnBox:
    """A box of every condition: attributes with the ends of their spans, and which conditions have it at all."""

    ends: Mapping[Attribute, Ends]
    some: Bools


@dataclass(frozen=True, eq=False)
class ConditionColumns:
    """`size` conditions of one form."""

    size: int
    boxes: tuple[ColumnBox, ...]

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "boxes": self.boxes}

    @cached_property
    def spaces(self) -> dict[str, Any]:
        """What an index has made of them, for the next one; no part of their value."""
        return {}

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes tested, by their SQL."""
        return {a.sql: a for box in self.boxes for a in box.ends}

    @cached_property
    def tested(self) -> frozenset[str]:
        """The SQL of the attributes tested."""
        return frozenset(self.attributes)

    def condition(self, i: int) -> Condition:
        """One of the conditions."""
        found: list[Box] = []
        for box in self.boxes:
            if box.some[i]:
                values = ((a, ValueSet((), True) if e.null else ValueSet((e.span(i),))) for a, e in box.ends.items())
                found.append(tuple(sorted(values, key=lambda pair: pair[0].sql)))
        return Condition(tuple(found))


def both_within(
    conditions: ConditionColumns, attribute: Attribute, low: Int64s | None, high: Int64s | None
) -> ConditionColumns:
    """Conditions that also hold only where a number, which none of them tests, lies in `[low, high)` of its row."""
    none = np.full(len(conditions), NONE)
    ends = Ends(none if low is None else low, none if high is None else high)
    boxes = tuple(ColumnBox({**box.ends, attribute: ends}, box.some) for box in conditions.boxes)
    return ConditionColumns(conditions.size, boxes)


def conditions_of(
    predicates: Sequence[Predicate], columns: Mapping[Any, pa.Array], count: int
) -> tuple[ConditionColumns, int]:
    """Where all predicates hold, for `count` rows of constants; `columns`: by the constant that stands for each.

    Raises `Doubtful` where this form does not do. The second is in how many places a column was found.
    """
    made = _Columns(columns, count)
    boxes = made.holds(And(tuple(predicates)), True)
    found = [ColumnBox(ends, some) for ends, some in boxes if some.any()]
    return ConditionColumns(count, tuple(found)), made.used


_Made = tuple[dict[Attribute, Ends], Bools]


class _Columns:
    def __init__(self, columns: Mapping[Any, pa.Array], count: int) -> None:
        self._columns, self._count = columns, count
        self._all = np.ones(count, np.bool_)
        self.used = 0  # columns, once for each place

    def holds(self, predicate: Predicate, wanted: bool) -> list[_Made]:
        """The boxes of where a predicate is true; where it is false, if that is `wanted`."""
        match predicate:
            case Always(value):
                return [({}, self._all)] if value is wanted else []
            case Not((part,)):
                return self.holds(part, not wanted)
            case And(parts) | Or(parts):
                return self._joined([self.holds(p, wanted) for p in parts], isinstance(predicate, And) is wanted)
            case OneOf(expr, left, constants):
                equal = [Comparison(expr, left, "=", c) for c in constants]
                return self._joined([self.holds(p, wanted) for p in equal], not wanted)
            case Bit(expr, why):
                return [self._plain(attribute_of(expr, why), ValueSet(((1, None) if wanted else (None, 1),)))]
            case Comparison(left=left, operator=operator, constant=constant):
                found = self._column(constant)
                if found is not None:
                    return self._compared(attribute_of(left), operator, found, wanted)
                return self._atom(predicate, wanted)
            case Atom():
                return self._atom(predicate, wanted)
        raise NotImplementedError(type(predicate).__name__)

    def _joined(self, parts: list[list[_Made]], together: bool) -> list[_Made]:
        """Where all parts hold, or one of them."""
        found: list[_Made] = [({}, self._all)] if together else []
        for part in parts:
            found = [_met(a, b) for a in found for b in part] if together else found + part
            if len(found) > MOST_BOXES:
                raise Doubtful("too many alternatives")
        return found

    def _atom(self, atom: Atom, wanted: bool) -> list[_Made]:
        """A test without a column of constants."""
        values = values_of(atom)
        values = values if wanted else ALL if isinstance(atom, IsNull) else values.complement()
        attribute = attribute_of(atom.left)
        found = [self._plain(attribute, ValueSet((span,))) for span in values.spans]
        return [*found, self._plain(attribute, ValueSet((), True))] if values.null else found

    def _plain(self, attribute: Attribute, values: ValueSet) -> _Made:
        """The same span, or the null test, for all."""
        dtype, nothing = (object, None) if attribute.is_text else (np.int64, NONE)
        low, high = values.spans[0] if values.spans else (None, None)
        ends = [np.full(self._count, nothing if e is None else e, dtype) for e in (low, high)]
        return {attribute: Ends(ends[0], ends[1], values.null)}, self._all

    def _column(self, constant: Constant) -> pa.Array | None:
        """The values that a constant stands for."""
        found = self._columns.get(constant.value)
        self.used += found is not None
        return found

    def _compared(self, attribute: Attribute, operator: str, values: pa.Array, wanted: bool) -> list[_Made]:
        """Where an attribute compares so with the value of its row."""
        if operator == "=" and not wanted:
            return [made for o in "<>" for made in self._compared(attribute, o, values, True)]
        operator = operator if wanted else _NEGATED[operator]
        if attribute.is_text:
            return [_text_span(attribute, operator, values)]
        below, through, last = _cuts(attribute.type, values)
        nothing = np.full(self._count, NONE)
        low, high = {
            "<": (nothing, below), "<=": (nothing, through), ">": (through, nothing), ">=": (below, nothing),
            "=": (below, through),
        }[operator]  # fmt: skip
        some = self._all
        if operator == "<":
            some = below != NONE  # nothing is less than the least
        elif operator == ">":
            some = ~last
        return [({attribute: Ends(low, high)}, some)]


def _met(a: _Made, b: _Made) -> _Made:
    """Where two boxes meet."""
    ends, some = dict(a[0]), a[1] & b[1]
    for attribute, mine in b[0].items():
        if attribute not in ends:
            ends[attribute] = mine
            continue
        other = ends[attribute]
        if mine.null or other.null:
            some = some & (mine.null and other.null)
            continue
        if attribute.is_text:
            raise Doubtful("several tests of one text")
        low = np.maximum(mine.low, other.low)  # NONE is the least
        bounded = np.minimum(mine.high, other.high)
        high = np.where((mine.high == NONE) | (other.high == NONE), np.maximum(mine.high, other.high), bounded)
        some = some & ((high == NONE) | (low < high))
        ends[attribute] = Ends(low, high)
    return ends, some


def _text_span(attribute: Attribute, operator: str, values: pa.Array) -> _Made:
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise Doubtful("text against a value that is no text")
    texts = values.cast(pa.binary() if pa.types.is_string(values.type) else pa.large_binary()).to_pylist()
    cuts: dict[str, Callable[[bytes], tuple[bytes | None, bytes | None]]] = {
        "<": lambda t: (None, t), "<=": lambda t: (None, t + b"\0"), ">": lambda t: (t + b"\0", None),
        ">=": lambda t: (t, None), "=": lambda t: (t, t + b"\0"),
    }  # fmt: skip
    both = np.empty((2, len(texts)), object)
    if texts:
        both[0, :], both[1, :] = zip(*map(cuts[operator], texts), strict=True)
    some = np.array([operator != "<" or t != b"" for t in texts], np.bool_)
    return {attribute: Ends(both[0], both[1])}, some


def _cuts(attribute: pa.DataType, values: pa.Array) -> tuple[Int64s, Int64s, Bools]:
    """(below, through, last): as `spans.cuts` has them, with NONE for what is beyond the codes there are.

    `last`: the greatest code there is, behind which nothing comes.
    """
    whole, float_ = pa.types.is_integer(values.type), pa.types.is_float64(values.type)
    if pa.types.is_float64(attribute) and (whole or float_):
        numbers = values.to_numpy().astype(np.float64)
        if not np.isfinite(numbers).all() or (whole and (np.abs(numbers) >= _EXACT).any()):
            raise Doubtful("numbers that a double does not hold")
        codes = encode([pa.array(numbers)])[0][0]
        return codes, codes + 1, np.zeros(len(codes), np.bool_)
    if not pa.types.is_integer(attribute) or pa.types.is_uint64(attribute) or pa.types.is_uint64(values.type):
        raise Doubtful(f"values of type {values.type} against {attribute}")
    if whole:
        codes = values.to_numpy().astype(np.int64)
        last = codes == _MOST
        return codes, np.where(last, NONE, codes + (~last).astype(np.int64)), last
    if float_:
        numbers = values.to_numpy()
        if not np.isfinite(numbers).all() or (np.abs(numbers) >= _EXACT).any():
            raise Doubtful("an integer against a very large float")
        return np.ceil(numbers).astype(np.int64), np.floor(numbers).astype(np.int64) + 1, np.zeros(len(numbers), bool)
    raise Doubtful(f"values of type {values.type} against {attribute}")


__all__ = ["NONE", "ColumnBox", "ConditionColumns", "Ends", "both_within", "conditions_of"]
