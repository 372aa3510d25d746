"""Which blocks of a run may have rows that a predicate wants: its zones, asked by the predicate's spans.

A condition (`sharing.conditions`) is a union of boxes "the columns' codes lie in these spans". A block is skipped when
no code between its least and its greatest can pass; a whole run is skipped when a test wants single values and the
run's filter has none of them. What a test cannot say is possible. Law: a block with a row for which the predicate is
true is never skipped. Row groups of files that nobody has read yet are asked the same way (`row_boxes`, `may_hold`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.aggregates.order import encode, has_fixed_codes
from windrow.operators.state.zones import Code, Zones
from windrow.plan.expr import Expr
from windrow.scalar_engine import quote
from windrow.sharing.conditions import Box, Condition, condition
from windrow.sharing.spans import ValueSet

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
"""Columns of a stream, in lower case, with the values they must have."""

MOST_BOXES = 256
"""More are not worth asking about."""


def row_boxes(conditions: Iterable[Condition]) -> tuple[RowBox, ...] | None:
    """Boxes over columns of numbers and times that hold every row for which some condition does; None: any row.

    An attribute that is more than such a column may have any value. Attributes are columns by their own names.
    """
    found: dict[RowBox, None] = {}
    for box in (box for wanted in conditions for box in wanted.boxes):
        tests = {a.reads[0].lower(): (a, v) for a, v in box if len(a.reads) == 1 and has_fixed_codes(a.type)}
        columns = tuple(sorted((c, v) for c, (a, v) in tests.items() if a.sql.lower() == quote(c)))
        if not columns or len(found) >= MOST_BOXES:
            return None
        found[columns] = None
    return tuple(found)


def may_hold(boxes: Iterable[RowBox], ends: Mapping[str, tuple[pa.Array, bool]]) -> bool:
    """Whether a row may lie in one of the boxes; `ends`: of columns, least and greatest value, and whether nulls."""
    codes = {}
    for column, (values, nulls) in ends.items():
        (found,), _ = encode([values])
        codes[column.lower()] = (int(found[0]), int(found[1]), nulls)
    return any(all(c not in codes or _meets(v, *codes[c]) for c, v in box) for box in boxes)


def _meets(values: ValueSet, least: int, greatest: int, nulls: bool) -> bool:
    inside = ((low is None or greatest >= low) and (high is None or least < high) for low, high in values.spans)  # type: ignore[operator]
    return (values.null and nulls) or any(inside)


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
    found = np.ones(zones.blocks, np.bool_)
    for attribute, values in box:
        column = columns.get(attribute.sql)
        if column is not None and column in zones.spans:
            may = _within(column, values.spans, zones)
            found &= (may | (zones.spans[column].nulls > 0)) if values.null else may
    return found


def _within(column: str, spans: Iterable[tuple[Code | None, Code | None]], zones: Zones) -> Bools:
    held = zones.spans[column]
    found = np.zeros(zones.blocks, np.bool_)
    for low, high in spans:
        point = _point(low, high)
        if point is not None and not zones.may_have(column, point):
            continue
        if held.codes is not None and not isinstance(low, bytes) and not isinstance(high, bytes):
            lows, highs = held.codes
            found |= (highs >= (_LEAST if low is None else low)) & (lows <= (_MOST if high is None else high - 1))
            continue
        for b, (least, greatest) in enumerate(zip(held.low, held.high, strict=True)):
            if least is not None and greatest is not None:
                found[b] |= (low is None or greatest >= low) and (high is None or least < high)  # type: ignore[operator]
    return found


def _point(low: Code | None, high: Code | None) -> Code | None:
    """The only code in a span, if there is but one."""
    if isinstance(low, bytes) and isinstance(high, bytes):
        return low if high == low + b"\0" else None
    if isinstance(low, int) and isinstance(high, int):
        return low if high == low + 1 else None
    return None
