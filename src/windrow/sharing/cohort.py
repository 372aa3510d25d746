"""Answers of many queries at once: cohorts of alike queries, and batches of their elements.

Queries with the same aggregates and the same list above them are a cohort. Their windows, accounts and clocks are
arrays, so what is due, where it is read and what it comes to are a few array operations however many they are; the
elements of all members stand one after the other in one batch.

    names     q1    q2         q3
    counts    1     2          0
    rows      |t=30 |t=20 t=25 |

Cost per advance: the members once (a comparison each), then the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import Elements, concat
from windrow.sharing.windows import Window

if TYPE_CHECKING:
    from windrow.plan.nodes import QueryPlan


@dataclass(frozen=True)
class Batch:
    """Elements of several queries with the same columns: `counts[i]` of `names[i]`, one query after the other."""

    names: Sequence[str]
    counts: Int64s
    rows: Elements

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def owner(self) -> Int64s:
        """The number of every row's query."""
        return np.repeat(np.arange(len(self.names)), self.counts)

    def parts(self) -> Iterator[tuple[str, Elements]]:
        """Each query that has rows, and its rows."""
        ends = np.cumsum(self.counts)
        rows = self.rows
        for i in np.flatnonzero(self.counts).tolist():
            low, high = int(ends[i] - self.counts[i]), int(ends[i])
            columns = {c: a.slice(low, high - low) for c, a in rows.columns.items()}
            yield self.names[i], Elements(rows.ts[low:high], rows.exp[low:high], rows.sign[low:high], columns)


def parts(batches: Iterable[Batch]) -> dict[str, Elements]:
    """The rows of every query that has any.

    >>> one = Elements.positive(np.array([5, 6, 7]), 9, {"n": pa.array([1, 2, 3])})
    >>> {n: e.ts.tolist() for n, e in parts([Batch(["a", "b"], np.array([1, 2]), one)]).items()}
    {'a': [5], 'b': [6, 7]}
    """
    return dict(part for batch in batches for part in batch.parts())


class Cohort:
    """Members that are answered together, as arrays.

    `fresh`: those that have not been looked at since they joined; the others are done up to the last frontier.
    """

    def __init__(self, names: Sequence[str], windows: Sequence[Window], starts: Sequence[int]) -> None:
        self.names = tuple(names)
        table = np.array([(w.range, w.slide, w.offset, w.lag) for w in windows], np.int64).reshape(-1, 4)
        self.range, self.slide, self.offset, self.lag = table.T
        self.start = np.array(starts, np.int64)
        self.fresh: Bools = np.zeros(len(self.names), np.bool_)
        self.account: Int64s = np.full(len(self.names), -1, np.int64)

    def due(self, done: int, upto: int) -> tuple[Int64s, Int64s]:
        """The instants of every member up to `upto` that are not done: (first, how many), as numbers of its slides."""
        begin = np.where(self.fresh, self.start, np.maximum(self.start, done + 1))
        first = -((self.offset - begin) // self.slide)
        return first, np.maximum((upto - self.offset) // self.slide - first + 1, 0)


def gathered(batches: Iterable[Batch]) -> list[Batch]:
    """The batches with those of one cohort made one, each query's rows in the order in which they came."""
    alike: dict[tuple[object, ...], list[Batch]] = {}
    for batch in batches:
        alike.setdefault((*batch.names, None, *batch.rows.columns), []).append(batch)
    return [_gathered(found) for found in alike.values()]


def _gathered(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    rows = concat([b.rows for b in batches])
    if len(batches[0].names) > 1:
        owner = np.concatenate([b.owner for b in batches])
        rows = rows.take(np.argsort(owner, kind="stable"))
    return Batch(batches[0].names, np.sum([b.counts for b in batches], axis=0), rows)


def tables(batches: Iterable[Batch], shown: Mapping[str, Shown]) -> Iterator[tuple[str, pa.Table]]:
    """Batches as the tables that users see, batch by batch."""
    for batch in batches:
        if not len(batch):
            continue
        ts = pa.array(batch.rows.ts).cast(shown[batch.names[0]].time_type)
        ends, counts = np.cumsum(batch.counts).tolist(), batch.counts.tolist()
        for name, end, count in zip(batch.names, ends, counts, strict=True):
            if count:
                yield name, shown[name].table(ts, batch.rows.columns, end - count, count)


@dataclass(frozen=True)
class Shown:
    """A query's answer as its user sees it: the type of its times, and the columns by their internal names."""

    time_type: pa.DataType
    names: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def of(cls, plan: QueryPlan) -> Shown:
        """How a plan's answer is shown; a query that shares has a stream for its answer."""
        return cls(plan.time_type, ("_ts", *(name for name, _ in plan.output)), tuple(c for _, c in plan.output))

    def table(self, ts: pa.Array, columns: Mapping[str, pa.Array], low: int, count: int) -> pa.Table:
        """Rows `[low, low + count)` of a batch."""
        arrays = [ts.slice(low, count), *(columns[c].slice(low, count) for c in self.columns)]
        return pa.Table.from_arrays(arrays, names=self.names)
