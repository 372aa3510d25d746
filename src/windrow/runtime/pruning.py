"""Which blocks of a run may have rows that a predicate wants: its zones, asked by the predicate's spans.

A condition (`sharing.conditions`) is a tree of tests "the column's code lies in these spans". A block is skipped when
no code between its least and its greatest can pass; a whole run is skipped when a test wants single values and the
run's filter has none of them. What a test cannot say is possible. Law: a block with a row for which the predicate is
true is never skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.state.zones import Code, Zones
from windrow.plan.expr import Expr, quote
from windrow.sharing.conditions import And, Condition, Constant, IsNull, Or, Within

Bools = NDArray[np.bool_]


def conditions_of(predicates: Iterable[Expr], types: Mapping[str, pa.DataType]) -> tuple[Condition, ...]:
    """What the index understands of predicates over columns of the given types."""
    from windrow.cql.predicates import condition

    return tuple(condition(p, dict(types)) for p in predicates)


def blocks(conditions: Iterable[Condition], zones: Zones, names: Mapping[str, str]) -> Bools:
    """For every block whether all conditions may hold; `names`: the run's column of each column in the conditions."""
    columns = {quote(name): column for name, column in names.items()}
    found = np.ones(zones.blocks, np.bool_)
    for condition in conditions:
        found &= _possible(condition, zones, columns)
    return found


def _possible(condition: Condition, zones: Zones, columns: Mapping[str, str]) -> Bools:
    everything = np.ones(zones.blocks, np.bool_)
    match condition:
        case And(terms):
            return np.logical_and.reduce([_possible(t, zones, columns) for t in terms]) if terms else everything
        case Or(terms):
            return np.logical_or.reduce([_possible(t, zones, columns) for t in terms]) if terms else ~everything
        case Constant(value):
            return everything if value else ~everything
        case IsNull(attribute) if columns.get(attribute.sql) in zones.spans:
            return zones.spans[columns[attribute.sql]].nulls > 0
        case Within(attribute, spans) if columns.get(attribute.sql) in zones.spans:
            return _within(columns[attribute.sql], spans, zones)
    return everything


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
