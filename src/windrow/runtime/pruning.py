"""Which blocks of a run may have rows that a predicate wants: its zones, asked by the predicate's spans.

A condition (`sharing.conditions`) is a union of boxes "the columns' codes lie in these spans". A block is skipped when
no code between its least and its greatest can pass; a whole run is skipped when a test wants single values and the
run's filter has none of them. What a test cannot say is possible. Law: a block with a row for which the predicate is
true is never skipped. Row groups of files that nobody has read yet are asked the same way (`row_boxes`, `may_hold`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.aggregates.order import encode, has_fixed_codes
from windrow.operators.state.zones import Code, Zones
from windrow.plan.expr import Expr
from windrow.scalar_engine import quote
from windrow.sharing.conditions import Box, Condition, condition
from windrow.sharing.spans import Span, ValueSet, united

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
Bools = NDArray[np.bool_]
Spans = tuple[tuple[Code | None, Code | None], ...]


def conditions_of(predicates: Iterable[Expr]) -> tuple[Condition, ...]:
    """What the index understands of predicates."""
    return tuple(condition([p]) for p in predicates)


def blocks(conditions: Iterable[Condition], zones: Zones, names: Mapping[str, str]) -> Bools:
    """For every block whether all conditions may hold; `names`: the run's column of each column in the conditions."""
    columns = {quote(name): column for name, column in names.items()}
    found = np.ones(zones.blocks, np.bool_)
    for wanted in conditions:
        some = np.zeros(zones.blocks, np.bool_)
        for box in wanted.boxes:
            some |= _possible(box, zones, columns)
        found &= some
    return found


RowBox = tuple[tuple[str, ValueSet], ...]
"""Columns of a stream with the values they must have."""

MOST_BOXES = 256
"""More are not worth asking about."""


def row_boxes(conditions: Iterable[Condition], columns: Iterable[str]) -> tuple[RowBox, ...] | None:
    """Boxes over plain columns that hold every row for which some condition does; None: any row.

    An attribute that is more than a column may have any value. Attributes are columns by their own names; boxes over
    one and the same column are one.
    """
    plain = {quote(c.lower()): c for c in columns}
    single: dict[str, list[ValueSet]] = {}
    found: dict[RowBox, None] = {}
    for box in (box for wanted in conditions for box in wanted.boxes):
        tested = tuple((plain[sql], v) for a, v in box if (sql := a.sql.lower()) in plain)
        if not tested or len(found) >= MOST_BOXES:
            return None
        if len(tested) == 1:
            single.setdefault(tested[0][0], []).append(tested[0][1])
        else:
            found[tested] = None
    whole = ((c, ValueSet(united(s for v in of for s in v.spans), any(v.null for v in of))) for c, of in single.items())
    return (*((test,) for test in whole), *found)


def may_hold(boxes: Iterable[RowBox], zones: Zones) -> Bools:
    """Of each block whether a row may lie in one of the boxes."""
    found = np.zeros(zones.blocks, np.bool_)
    for box in boxes:
        if found.all():
            break
        found |= _meets(box, zones)
    return found


def tests_of(conditions: Iterable[Condition], types: Mapping[str, pa.DataType]) -> tuple[tuple[str, Spans], ...]:
    """The tests of columns of numbers or times that must hold for every condition, which `holds` makes row by row."""
    columns = {quote(name): name for name, type_ in types.items() if has_fixed_codes(type_)}
    found: list[tuple[str, Spans]] = []
    for wanted in conditions:
        for attribute, values in wanted.boxes[0] if len(wanted.boxes) == 1 else ():
            if attribute.sql in columns and not values.null:
                found.append((columns[attribute.sql], tuple(values.spans)))
    return tuple(found)


def is_tested(wanted: Condition, types: Mapping[str, pa.DataType]) -> bool:
    """Whether the tests of a condition are all that it asks for."""
    columns = {quote(name) for name, type_ in types.items() if has_fixed_codes(type_)}
    return len(wanted.boxes) == 1 and all(a.sql in columns and not v.null for a, v in wanted.boxes[0])


def holds(column: pa.Array, spans: Spans) -> Bools:
    """Where a column's code lies in one of the spans; NULL does not."""
    (codes,), _ = encode([column])
    found = np.zeros(len(codes), np.bool_)
    for low, high in spans:
        inside = np.ones(len(codes), np.bool_)
        if low is not None:
            inside &= codes >= int(low)
        if high is not None:
            inside &= codes < int(high)
        found |= inside
    return found & np.asarray(column.is_valid()) if column.null_count else found


def _possible(box: Box, zones: Zones, columns: Mapping[str, str]) -> Bools:
    return _meets([(columns[a.sql], v) for a, v in box if a.sql in columns], zones)


def _meets(tests: Iterable[tuple[str, ValueSet]], zones: Zones) -> Bools:
    """Of each block whether a row may have such values in all of the columns."""
    found = np.ones(zones.blocks, np.bool_)
    for column, values in tests:
        if column in zones.spans:
            may = _within(column, values.spans, zones)
            found &= (may | (zones.spans[column].nulls > 0)) if values.null else may
    return found


def _within(column: str, spans: Iterable[Span], zones: Zones) -> Bools:
    """Of each block whether a value may lie in one of the spans, which are in order and apart."""
    held = zones.spans[column]
    there = [s for s in spans if (point := _point(*s)) is None or zones.may_have(column, point)]
    if not there:
        return np.zeros(zones.blocks, np.bool_)
    if held.codes is not None and not any(isinstance(cut, bytes) for span in there for cut in span):
        lows = np.array([_LEAST if low is None else low for low, _ in there], np.int64)
        lasts = np.array([_MOST if high is None else high - 1 for _, high in there], np.int64)  # type: ignore[operator]
        least, greatest = held.codes
        at = np.searchsorted(lasts, least)
        return (at < len(there)) & (lows[np.minimum(at, len(there) - 1)] <= greatest)
    ends = [high for _, high in there[:-1]]  # all but the last have one
    found = np.zeros(zones.blocks, np.bool_)
    for b, (lowest, highest) in enumerate(zip(held.low, held.high, strict=True)):
        if lowest is not None and highest is not None:
            low, high = there[bisect.bisect_right(ends, lowest)]  # type: ignore[type-var]
            found[b] = (low is None or highest >= low) and (high is None or lowest < high)  # type: ignore[operator]
    return found


def _point(low: Code | None, high: Code | None) -> Code | None:
    """The only code in a span, if there is but one."""
    if isinstance(low, bytes) and isinstance(high, bytes):
        return low if high == low + b"\0" else None
    if isinstance(low, int) and isinstance(high, int):
        return low if high == low + 1 else None
    return None
