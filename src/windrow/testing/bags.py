"""Bags of rows, and the streams that consecutive answers of a query make.

`changes` walks the answers in order of time; each operator is one sentence about what it sees there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def grouping_key(value: Any) -> Hashable:
    """Equal for values that SQL groups together: nulls, NaNs, both zeros, a month and 30 days."""
    if isinstance(value, pa.MonthDayNano):
        return "interval", (value.months * 30 + value.days) * 86_400_000_000_000 + value.nanoseconds
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None
    if isinstance(value, list | tuple):
        return tuple(grouping_key(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, grouping_key(v)) for k, v in value.items())
    return value


def sort_key(value: Any) -> tuple[Any, ...]:
    """Sorts values ascending, NaN after all numbers, null last."""
    if value is None:
        return (2,)
    if isinstance(value, float) and math.isnan(value):
        return (1,)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return (0, tuple(sort_key(v) for v in value))
    return (0, value)


class Bag:
    """A bag of rows: how many of each, and a row to show for each."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.count: Counter[Hashable] = Counter()
        self.shown: dict[Hashable, Row] = {}
        for row in rows:
            key = grouping_key(row)
            self.count[key] += 1
            self.shown.setdefault(key, row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bag) and self.count == other.count

    __hash__ = None  # type: ignore[assignment]

    def __sub__(self, other: Bag) -> Bag:
        """The rows of self that are not in other, copies counted."""
        return self._with(self.count - other.count)

    def __add__(self, other: Bag) -> Bag:
        both = self._with(self.count + other.count)
        both.shown |= {k: v for k, v in other.shown.items() if k not in self.shown}
        return both

    def _with(self, count: Counter[Hashable]) -> Bag:
        bag = Bag()
        bag.count, bag.shown = count, dict(self.shown)
        return bag

    def rows(self) -> list[Row]:
        """All rows, copies repeated, in an order that depends on their values alone."""
        found = [self.shown[k] for k, n in self.count.items() for _ in range(n)]
        return sorted(found, key=lambda row: tuple(sort_key(v) for v in row))


Answers = Sequence[tuple[int, Bag]]
Output = list[tuple[int, Row]]


def changes(answers: Answers) -> list[tuple[int, Bag, Bag, Bag]]:
    """(t, Q(t), what appears, what disappears) at each instant of the answers; before the first, nothing."""
    before, found = Bag(), []
    for t, now in answers:
        found.append((t, now, now - before, before - now))
        before = now
    return found


def istream(answers: Answers) -> Output:
    return [(t, row) for t, _, new, _ in changes(answers) for row in new.rows()]


def dstream(answers: Answers) -> Output:
    return [(t, row) for t, _, _, gone in changes(answers) for row in gone.rows()]


def rstream_at_changes(answers: Answers) -> Output:
    return [(t, row) for t, now, new, gone in changes(answers) if new.count or gone.count for row in now.rows()]


def rstream(answers: Answers) -> Output:
    return [(t, row) for t, now in answers for row in now.rows()]


def restore(answers: Answers, evaluations: set[int], op: str) -> Output:
    """Periodic, with what lived and died since the previous evaluation reported too."""
    previous, gone_since, found = Bag(), Bag(), []
    for t, now, _, gone in changes(answers):
        gone_since = gone_since + gone
        if t in evaluations:
            short = gone_since - previous
            current = now if op == "RSTREAM_RESTORE" else now - previous
            found += [(t, row) for row in (current + short).rows()]
            previous, gone_since = now, Bag()
    return found
