"""Conditions as a router tests them: of the query whose row it is, of many queries at once, of columns by other names.

A row that is one query's already carries the number of the query, which is tested like any other column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING
from windrow.operators.terms import QUERY, QUERY_TYPE
from windrow.scalar_engine import quote
from windrow.sharing.condition_columns import ConditionColumns, both_within
from windrow.sharing.conditions import Attribute, Condition, both, within

OF_QUERY = Attribute(quote(QUERY), QUERY_TYPE, (QUERY,))


def of_query(number: int, condition: Condition) -> Condition:
    """The condition for rows that are the query's already."""
    return both(within(OF_QUERY, (number, number + 1)), condition)


def of_queries(numbers: Int64s, conditions: ConditionColumns) -> ConditionColumns:
    """The same of many queries."""
    return both_within(conditions, OF_QUERY, numbers, numbers + 1)


def renamed(condition: Condition, names: Mapping[str, str]) -> Condition:
    """A condition that holds at least where this one does, and tests plain columns by other names only."""
    boxes = []
    for box in condition.boxes:
        plain = [(a.reads[0], a, v) for a, v in box if len(a.reads) == 1 and a.sql == quote(a.reads[0])]
        mine = sorted(((names[c], a, v) for c, a, v in plain if c in names), key=lambda m: m[0])
        boxes.append(tuple((Attribute(quote(name), a.type, (name,)), v) for name, a, v in mine))
    return Condition(tuple(boxes))


@dataclass(frozen=True, eq=False)
class RoutedColumns:
    """Many queries that differ in their conditions only: their numbers, in order, and which of them are there.

    `start`, `sizes` and `shown`: as an `IndexRouter` has them for each query, the same for all of these.
    """

    numbers: Int64s
    conditions: ConditionColumns
    alive: Bools
    start: int = BEGINNING
    sizes: Mapping[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    @property
    def there(self) -> Int64s:
        """The numbers of those that are there."""
        return self.numbers[self.alive]


def same_block(a: RoutedColumns, b: RoutedColumns) -> bool:
    """Whether two blocks are of the same queries, which want the same."""
    alike = a.conditions is b.conditions and (a.start, a.shown, a.sizes) == (b.start, b.shown, b.sizes)
    return alike and np.array_equal(a.numbers, b.numbers) and np.array_equal(a.alive, b.alive)
