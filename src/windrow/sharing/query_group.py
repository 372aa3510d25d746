"""Answers of many queries at once: query groups of alike queries, and batches of their elements.

Queries with the same aggregates and the same list above them are a query_group. Their windows, readers and clocks are
arrays, so what is due, where it is read and what it comes to are a few array operations however many they are; the
elements of all members stand one after the other in one batch.

    names     q1    q2    q3    q4
    which     0     1                    queries that have rows
    counts    1     2
    rows      |t=30 |t=20 t=25 |

Cost per advance: a comparison per different slide, then the members that are due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.vectors import Bools, Int64s, distinct_values
from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.sharing.windows import SlideWindow

if TYPE_CHECKING:
    from windrow.plan.nodes import QueryPlan


class HeldInstants(NamedTuple):
    """When a query that may be held back is answered: at `times` multiples of `step` from number `first` on.

    `run`: the joint run. `step`: its period, or where a join is read between two multiples, what divides it.
    """

    first: int
    times: int
    run: int
    step: int


@dataclass(frozen=True)
class Batch:
    """Elements of queries with the same columns: `counts[i]` of query `names[which[i]]`, one query after the other.

    `periods`: given where rows may live for several periods, the period of each query that `counts` is about.
    """

    names: Sequence[str]
    counts: Int64s
    rows: Elements
    which: Int64s | None = None  # None: all of them
    periods: Int64s | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def numbers(self) -> Int64s:
        """The places in `names` of the queries that `counts` is about."""
        return np.arange(len(self.names)) if self.which is None else self.which

    @property
    def answered(self) -> list[str]:
        """The names of the queries that `counts` is about."""
        return [self.names[i] for i in self.numbers.tolist()]

    @property
    def one(self) -> str:
        """A name under which is found what all of them have in common."""
        block: str | None = getattr(self.names, "block", None)
        return self.names[int(self.numbers[0])] if block is None else block

    @property
    def owner(self) -> Int64s:
        """The place in `names` of every row's query."""
        return np.repeat(self.numbers, self.counts)

    def parts(self) -> Iterator[tuple[str, Elements]]:
        """Each query that has rows, and its rows."""
        return ((self.names[number], rows) for number, rows in self.numbered())

    def numbered(self) -> Iterator[tuple[int, Elements]]:
        """The same by the places of queries in `names`."""
        ends, rows = np.cumsum(self.counts), self.rows
        for number, high, count in zip(self.numbers.tolist(), ends.tolist(), self.counts.tolist(), strict=True):
            if count:
                low = high - count
                columns = {c: a.slice(low, count) for c, a in rows.columns.items()}
                yield number, Elements(rows.ts[low:high], rows.exp[low:high], rows.sign[low:high], columns)


def parts(batches: Iterable[Batch]) -> dict[str, Elements]:
    """The rows of every query that has any.

    >>> one = Elements.positive(np.array([5, 6, 7]), 9, {"n": pa.array([1, 2, 3])})
    >>> {n: e.ts.tolist() for n, e in parts([Batch(["a", "b"], np.array([1, 2]), one)]).items()}
    {'a': [5], 'b': [6, 7]}
    """
    return dict(part for batch in batches for part in batch.parts())


def instants(slide: Int64s, offset: Int64s, start: Int64s, fresh: Bools, done: int, upto: int) -> tuple[Int64s, Int64s]:
    """The instants `k * slide + offset` of queries up to `upto` that are not done: (first k, how many).

    `fresh`: those that have not been looked at since they joined; the others are done up to `done`.
    """
    begin = np.where(fresh, start, np.maximum(start, done + 1))
    first = -((offset - begin) // slide)
    return first, np.maximum((upto - offset) // slide - first + 1, 0)


class QueryGroup:
    """Members that are answered together, as arrays. Places of members change when others leave."""

    def __init__(self, calls: Sequence[Aggregation] = ()) -> None:
        """`calls`: what all of them aggregate, where it is the same."""
        self.calls = calls
        self._place: dict[str, int] = {}
        self._list: list[str] = []
        self._names: tuple[str, ...] | None = None
        self._by_slide: tuple[Int64s, Int64s, Int64s] | None = None
        self.slide, self.offset, self.lag, self.start, self.reader = (np.zeros(0, np.int64) for _ in range(5))
        self._fresh: set[str] = set()  # have not been looked at since they joined

    def __len__(self) -> int:
        return len(self._list)

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, by place."""
        if self._names is None:
            self._names = tuple(self._list)
        return self._names

    def add(self, name: str, window: SlideWindow, reader: int) -> None:
        """Have a member whose clock has not started."""
        place = self._place[name] = len(self._list)
        self._list.append(name)
        self._fresh.add(name)
        self._names = self._by_slide = None
        if place >= len(self.slide):
            self.slide, self.offset, self.lag, self.start, self.reader = (
                np.concatenate((a, np.zeros(place + 16, np.int64)))
                for a in (self.slide, self.offset, self.lag, self.start, self.reader)
            )
        self.slide[place], self.offset[place], self.lag[place] = window.slide, window.offset, window.lag
        self.start[place], self.reader[place] = INF, reader

    def remove(self, name: str) -> None:
        """Have it no longer."""
        place = self._place.pop(name)
        self._fresh.discard(name)
        self._names = self._by_slide = None
        last, end = self._list.pop(), len(self._list)
        if last != name:
            self._list[place], self._place[last] = last, place
            for array in (self.slide, self.offset, self.lag, self.start, self.reader):
                array[place] = array[end]

    def places(self, names: Iterable[str]) -> Int64s:
        """The places of those of some queries that are members."""
        return np.fromiter((self._place[n] for n in names if n in self._place), np.int64)

    def begin(self, name: str, ts: int) -> None:
        """A member's clock starts."""
        self.start[self._place[name]] = ts

    def begin_all(self, ts: int) -> None:
        """All clocks start that have not."""
        mine = self.start[: len(self)]
        mine[mine == INF] = ts

    def done(self, name: str) -> None:
        """A member has been answered up to the last frontier."""
        self._fresh.discard(name)

    def all_done(self) -> None:
        """So have all."""
        self._fresh.clear()

    def due(self, done: int, upto: int) -> tuple[Int64s, Int64s, Int64s]:
        """The instants up to `upto` that are not done: (member, first, how many), as numbers of its slides."""
        if (upto == done and not self._fresh) or (self.start[: len(self)] > upto).all():
            return (np.zeros(0, np.int64),) * 3
        fresh = np.array(sorted(self._place[n] for n in self._fresh), np.int64)
        which = self._candidates(done, upto, fresh)
        which = which[self.start[which] <= upto]
        new = np.isin(which, fresh) if len(fresh) else np.zeros(len(which), np.bool_)
        first, counts = instants(self.slide[which], self.offset[which], self.start[which], new, done, upto)
        some = counts > 0
        return which[some], first[some], counts[some]

    def held(
        self, at: Mapping[str, HeldInstants], which: Int64s, first: Int64s, counts: Int64s
    ) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """What is due with some members answered at given instants instead: (those that wait, then as `due`)."""
        mine = {self._place[n]: instants for n, instants in at.items() if n in self._place}
        places = np.array(sorted(mine), np.int64)
        others = ~np.isin(which, places)
        given = np.array([mine[p] for p in places.tolist()], np.int64).reshape(-1, 4)
        now = given[:, 1] > 0
        which = np.concatenate((which[others], places[now]))
        order = np.argsort(which, kind="stable")
        first, counts = (
            np.concatenate((array[others], given[now, k]))[order] for k, array in enumerate((first, counts))
        )
        return places[~now], which[order], first, counts

    def instants_around(self, at: int) -> tuple[int, int]:
        """The last instant of all members up to one, and their first after it, whenever their clocks start."""
        slide, offset = self._clocks()[0].T
        last = (max(at, BEGINNING // 2) - offset) // slide * slide + offset
        return int(last.max()), int((last + slide).min())

    def _clocks(self) -> tuple[Int64s, Int64s, Int64s]:
        """(slides with offsets, first member of each, members)."""
        if self._by_slide is None:
            pairs = np.stack((self.slide[: len(self)], self.offset[: len(self)]), axis=1)
            clocks, of = np.unique(pairs, axis=0, return_inverse=True)
            order = np.argsort(of.reshape(-1), kind="stable")
            self._by_slide = clocks, np.searchsorted(of.reshape(-1)[order], np.arange(len(clocks) + 1)), order
        return self._by_slide

    def _candidates(self, done: int, upto: int, fresh: Int64s) -> Int64s:
        """The members that may be due, in the order of their places."""
        clocks, first, members = self._clocks()
        slide, offset = clocks.T
        after = max(done, BEGINNING // 2)  # an offset must not carry it beyond the first instant there is
        now = np.flatnonzero((upto - offset) // slide > (after - offset) // slide)
        if len(now) == len(clocks):
            return np.arange(len(self))
        return distinct_values(np.concatenate([fresh, *(members[first[s] : first[s + 1]] for s in now.tolist())]))


def gathered(batches: Iterable[Batch]) -> list[Batch]:
    """The batches with those of the same queries made one, each query's rows in the order in which they came."""
    alike: dict[tuple[object, ...], list[Batch]] = {}
    for batch in batches:
        alike.setdefault((tuple(batch.names), *batch.rows.columns), []).append(batch)
    return [_gathered(found) for found in alike.values()]


def _gathered(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    names = batches[0].names
    rows = concat([b.rows for b in batches])
    owner = np.concatenate([b.owner for b in batches])
    if len(names) > 1:
        rows = rows.take(np.argsort(owner, kind="stable"))
    return Batch(names, np.bincount(owner, minlength=len(names)), rows)


def tables(batches: Iterable[Batch], shown: Mapping[str, Shown]) -> Iterator[tuple[str, pa.Table]]:
    """Batches as the tables that users see, batch by batch."""
    for batch in batches:
        if not len(batch):
            continue
        ts = pa.array(batch.rows.ts).cast(shown[batch.names[int(batch.numbers[0])]].time_type)
        ends, counts = np.cumsum(batch.counts).tolist(), batch.counts.tolist()
        for number, end, count in zip(batch.numbers.tolist(), ends, counts, strict=True):
            if count:
                name = batch.names[number]
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
