"""Which blocks of a run may have rows that a predicate wants: its zones, asked by the predicate's spans.

A condition (`sharing.conditions`) is a union of boxes "the columns' codes lie in these spans". A block is skipped when
no code between its least and its greatest can pass; a whole run is skipped when a test wants single values and the
run's filter has none of them. What a test cannot say is possible. Law: a block with a row for which the predicate is
true is never skipped.
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


def tests_of(conditions: Iterable[Condition], types: Mapping[str, pa.DataType]) -> tuple[tuple[str, Spans], ...]:
    """The tests of columns of numbers or times that must hold for every condition, which `holds` makes row by row."""
    columns = {quote(name): name for name, type_ in types.items() if has_fixed_codes(type_)}
    found: list[tuple[str, Spans]] = []
    for wanted in conditions:
        for attribute, values in wanted.boxes[0] if len(wanted.boxes) == 1 else ():
            if attribute.sql in columns and not values.null:
                found.append((columns[attribute.sql], tuple(values.spans)))
    return tuple(found)


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
