"""Axes and boxes: predicates by their places among all cuts.

An axis is an attribute with the sorted cuts of all predicates that test it; a place is where a value lies among them.
A predicate is boxes, each with one interval of places per attribute. Conditions come one by one or as columns
(`condition_columns`); of either, cuts are sorted once and found by binary search.

Cost: the cuts, sorted; Python looks at single conditions, not at those in columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.vectors import Int64s, distinct_values, filled, raw, validity
from windrow.sharing.condition_columns import NONE, ConditionColumns, Ends
from windrow.sharing.conditions import Attribute, Condition
from windrow.sharing.kernels import locate

CLOSE = 8
"""Codes for each cut, up to which the places of all of them are listed."""
NARROW = 2.0
"""An attribute is a key when boxes have no more places on it than this, on average."""


@dataclass(frozen=True, eq=False)
class Axis:
    """An attribute and its cuts. Places: 0 below the first cut, ..., n above the last, n + 1 for NULL."""

    attribute: Attribute
    cuts: np.ndarray  # int64, or bytes as objects

    @property
    def size(self) -> int:
        return len(self.cuts) + 2

    def places(self, column: pa.Array) -> Int64s:
        """The place of every row."""
        valid = validity(column)
        if self.attribute.is_text:
            found = self._places_of_text(column)
        elif pa.types.is_boolean(column.type):
            found = np.searchsorted(self.cuts, (0, 1), "right")[filled(column)]
        else:
            codes = encode([column])[0][0]
            if self._listed is None:
                found = locate(codes, self.cuts)
            else:
                below = self.cuts[0] - 1
                found = self._listed[np.clip(codes, below, self.cuts[-1]) - below]
        return found if valid is None else np.where(valid, found, len(self.cuts) + 1)

    @cached_property
    def _listed(self) -> Int64s | None:
        """The place of every code from below the first cut to the last, where cuts are close: names of things."""
        cuts = self.cuts
        if len(cuts) < CLOSE or not 0 <= int(cuts[-1]) - int(cuts[0]) <= CLOSE * len(cuts):
            return None
        return np.searchsorted(cuts, np.arange(cuts[0] - 1, cuts[-1] + 1), "right")

    def _places_of_text(self, column: pa.Array) -> Int64s:
        """Distinct values are sorted among the cuts, by their bytes; a cut stands before the values equal to it."""
        encoded = column.dictionary_encode()
        words = encoded.dictionary.cast(pa.large_binary())
        together = pa.concat_arrays([pa.array(self.cuts, pa.large_binary()), words])
        order = pc.array_sort_indices(together).to_numpy()
        place = np.empty(len(order), np.int64)
        place[order] = np.cumsum(order < len(self.cuts))
        table = place[len(self.cuts) :] if len(words) else np.zeros(1, np.int64)
        picks, inside = raw(encoded.indices), validity(encoded.indices)
        return table[picks if inside is None else np.where(inside, picks, 0)]

    def fold(self, coarse: Axis) -> Int64s | None:
        """The place on an axis with fewer cuts of the same attribute, for every place on this one; None: the same."""
        if len(coarse.cuts) == len(self.cuts):
            return None
        inner = np.searchsorted(coarse.cuts, self.cuts, "right")
        return np.concatenate(([0], inner, [len(coarse.cuts) + 1]))


def axis_over(axes: Sequence[Axis]) -> Axis:
    """An axis with the cuts of several of one attribute."""
    if len(axes) == 1:
        return axes[0]
    return Axis(axes[0].attribute, distinct_values(np.concatenate([a.cuts for a in axes])))


Conditions = Condition | ConditionColumns
"""What a space is made of: one condition, or many as columns."""

_BOUNDED, _NULL = 0, 1


class AxisTests:
    """The intervals that boxes have on one attribute, in the order in which they came: single ones and columns."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self._single: tuple[list[int], list[Any], list[Any], list[int]] = ([], [], [], [])
        self._columns: list[tuple[Int64s, Ends]] = []

    def add(self, box: int, interval: tuple[Any, Any] | None) -> None:
        """An interval of a box; None: the null test."""
        low, high = interval or (None, None)
        nothing = None if self.attribute.is_text else NONE
        for column, value in zip(
            self._single, (box, nothing if low is None else low, nothing if high is None else high,
                           _NULL if interval is None else _BOUNDED), strict=True,
        ):  # fmt: skip
            column.append(value)

    def add_columns(self, boxes: Int64s, ends: Ends) -> None:
        """An interval of each of some boxes."""
        self._columns.append((boxes, ends))

    def placed(self, count: int) -> tuple[Axis, Int64s, Int64s]:
        """The axis with all cuts, and where each of `count` boxes begins and ends on it: without a test, everywhere."""
        text = self.attribute.is_text
        boxes, null = np.array(self._single[0], np.int64), np.array(self._single[3], np.int64)
        ends = [_array(self._single[k], text) for k in (1, 2)]
        boxes = np.concatenate([boxes, *(b for b, _ in self._columns)])
        null = np.concatenate([null, *(np.full(len(b), int(e.null)) for b, e in self._columns)])
        low = np.concatenate([ends[0], *(e.low for _, e in self._columns)])
        high = np.concatenate([ends[1], *(e.high for _, e in self._columns)])
        axis, (begin, end) = (_text_axis if text else _number_axis)(self.attribute, low, high)
        last = axis.size - 1
        found = np.zeros(count, np.int64), np.full(count, axis.size, np.int64)
        found[0][boxes] = np.where(null == _NULL, last, begin)
        found[1][boxes] = np.where(null == _NULL, axis.size, np.where(end == 0, last, end))
        return axis, *found


def _array(values: list[Any], text: bool) -> np.ndarray:
    made = np.empty(len(values), object if text else np.int64)
    made[:] = values
    return made


def _number_axis(attribute: Attribute, low: Int64s, high: Int64s) -> tuple[Axis, tuple[Int64s, Int64s]]:
    """The axis of ends, and the place behind the cut of each; 0 for those without bound."""
    cuts = distinct_values(np.concatenate((low, high)))
    cuts = cuts[cuts != NONE]
    begin, end = (np.where(e == NONE, 0, locate(e, cuts)) for e in (low, high))
    return Axis(attribute, cuts), (begin, end)


def _text_axis(attribute: Attribute, low: np.ndarray, high: np.ndarray) -> tuple[Axis, tuple[Int64s, Int64s]]:
    """The same for bytes, which are sorted by Arrow."""
    words = pa.concat_arrays([pa.array(e.tolist(), pa.large_binary()) for e in (low, high)])
    known = words.drop_null().unique()
    known = known.take(pc.array_sort_indices(known))
    places = pc.fill_null(pc.add(pc.index_in(words, known), 1), 0).to_numpy().astype(np.int64)
    cuts = np.empty(len(known), object)
    cuts[:] = known.to_pylist()
    return Axis(attribute, cuts), (places[: len(low)], places[len(low) :])


@dataclass(frozen=True)
class PredicateBoxes:
    """Boxes of predicates, by places: box b of predicate `of[b]` is `[low[a, b], high[a, b])` on attribute a."""

    of: Int64s
    low: Int64s  # [attributes, boxes]
    high: Int64s

    def __len__(self) -> int:
        return len(self.of)

    @staticmethod
    def of_conditions(conditions: Sequence[Conditions]) -> tuple[list[Axis], PredicateBoxes]:
        """The attributes that conditions test, and all boxes, each with one interval per attribute."""
        tests: dict[str, AxisTests] = {}
        of: list[Int64s] = []
        first = boxes = 0
        for condition in conditions:
            of_each = _of_columns if isinstance(condition, ConditionColumns) else _of_one
            mine = of_each(condition, first, boxes, tests)  # type: ignore[arg-type]
            of.append(mine)
            first, boxes = first + len(condition), boxes + len(mine)
        whose = np.concatenate([np.zeros(0, np.int64), *of])
        placed = [t.placed(len(whose)) for t in tests.values()]
        low, high = (np.array([p[k] for p in placed], np.int64).reshape(len(placed), len(whose)) for k in (1, 2))
        made = PredicateBoxes(whose, low, high)
        if (np.diff(whose) < 0).any():  # those of one predicate stand side by side: a cell has it once
            made = made.take(np.argsort(whose, kind="stable"))
        return [p[0] for p in placed], made

    def narrow(self, a: int, size: int) -> bool:
        """Whether attribute a, with so many places, is a key."""
        return bool(len(self) and (self.high[a] - self.low[a]).mean() <= min(NARROW, max(1.0, size / 4)))

    def places(self, a: int) -> tuple[Int64s, Int64s]:
        """The places that boxes have on attribute a: (box, place)."""
        counts = self.high[a] - self.low[a]
        which = np.repeat(np.arange(len(self)), counts)
        return which, self.low[a][which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)

    def take(self, which: Int64s) -> PredicateBoxes:
        return PredicateBoxes(self.of[which], self.low[:, which], self.high[:, which])


def _test_of(tests: dict[str, AxisTests], attribute: Attribute) -> AxisTests:
    found = tests.get(attribute.sql)
    if found is None:
        found = tests[attribute.sql] = AxisTests(attribute)
    return found


def _of_one(condition: Condition, number: int, boxes: int, tests: dict[str, AxisTests]) -> Int64s:
    """The boxes of one condition, with a number for each: its own."""
    made = 0
    for box in condition.boxes:
        for intervals in product(*((*v.spans, None) if v.null else v.spans for _, v in box)):
            for (attribute, _), interval in zip(box, intervals, strict=True):
                _test_of(tests, attribute).add(boxes + made, interval)
            made += 1
    return np.full(made, number)


def _of_columns(conditions: ConditionColumns, first: int, boxes: int, tests: dict[str, AxisTests]) -> Int64s:
    """The boxes of many, form by form."""
    of = []
    for box in conditions.boxes:
        mine = np.flatnonzero(box.some)
        for attribute, ends in box.ends.items():
            some = Ends(ends.low[mine], ends.high[mine], ends.null)
            _test_of(tests, attribute).add_columns(boxes + np.arange(len(mine)), some)
        of.append(first + mine)
        boxes += len(mine)
    return np.concatenate([np.zeros(0, np.int64), *of])


__all__ = ["Axis", "Conditions", "PredicateBoxes", "axis_over"]
