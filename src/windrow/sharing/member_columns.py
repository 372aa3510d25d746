"""Members of a family that differ in constants only, as columns: the instances of a template that share.

    one query        its kind, window and what stands above its aggregate are those of all
    conditions       a column for each end of each test (`condition_columns`)
    synopses         the synopsis of each; numbers: which instance of its queries each is

Nothing here is made for every member in Python. A member has a name when somebody looks at it (`InstanceNames`).
Members leave one by one; what was theirs stays in the columns until all have left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

import numpy as np
import pyarrow as pa

from windrow.catalog.instances import name_of
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING, INF
from windrow.plan.nodes import QueryPlan
from windrow.sharing.condition_columns import ConditionColumns
from windrow.sharing.member import Kind
from windrow.sharing.query_group import instants
from windrow.sharing.recognise import Recognised
from windrow.sharing.windows import SlideWindow


class InstanceNames(Sequence[str]):
    """The names of instances by place, each made when it is asked for; `block`: whose members they are."""

    def __init__(self, block: str, group: str, rows: pa.Table) -> None:
        self.block, self.group, self.rows = block, group, rows

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self._name(k) for k in range(*i.indices(len(self)))]
        return self._name(i)

    def __iter__(self) -> Iterator[str]:
        return map(self._name, range(len(self)))

    def _name(self, i: int) -> str:
        return name_of(self.group, [column[i] for column in self.rows.columns])

    @cached_property
    def place(self) -> dict[str, int]:
        """The place of every name, in lower case."""
        return {name.lower(): i for i, name in enumerate(self)}

    def __reduce__(self) -> tuple[object, ...]:
        return InstanceNames, (self.block, self.group, self.rows)


@dataclass(frozen=True, eq=False)
class MemberColumns:
    """Members with columns of their own: `numbers`, of the instances; `synopses`; `conditions`."""

    uid: str
    query: Recognised  # one of them
    conditions: ConditionColumns
    names: InstanceNames
    numbers: Int64s
    epoch: int = 0
    synopses: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.conditions)

    @property
    def kind(self) -> Kind:
        """What all have in common."""
        return self.query.member.kind

    @property
    def plan(self) -> QueryPlan:
        """The plan of one of them."""
        return self.query.plan

    @property
    def window(self) -> SlideWindow:
        """The window of each."""
        return self.query.member.window


class ColumnGroup:
    """Members in columns as those who are answered: one clock, and a reader of a synopsis each."""

    def __init__(self, members: MemberColumns) -> None:
        self.names, self.calls = members.names, members.kind.calls
        self.reader: Int64s = np.zeros(len(members), np.int64)  # of the synopsis of each, once it has been opened
        size, window = len(members), members.window
        self.slide, self.offset, self.lag = (np.full(size, n) for n in (window.slide, window.offset, window.lag))
        self.alive: Bools = np.ones(size, np.bool_)
        self._start, self._fresh = INF, True

    def __len__(self) -> int:
        return int(np.count_nonzero(self.alive))

    def leave(self, places: Int64s) -> Int64s:
        """Have these no longer; those of them that were there."""
        gone = places[self.alive[places]]
        self.alive[gone] = False
        return gone

    def begin_all(self, ts: int) -> None:
        """The clock starts, if it has not."""
        self._start = ts if self._start == INF else self._start

    def all_done(self) -> None:
        """All have been answered up to the last frontier."""
        self._fresh = False

    def instants_around(self, at: int) -> tuple[int, int]:
        """The last instant up to one, and the first after it, whenever the clock starts."""
        if not len(self.slide):
            return BEGINNING, INF
        slide, offset = int(self.slide[0]), int(self.offset[0])
        last = (max(at, BEGINNING // 2) - offset) // slide * slide + offset
        return last, last + slide

    def due(self, done: int, upto: int) -> tuple[Int64s, Int64s, Int64s]:
        """The instants up to `upto` that are not done: (member, first, how many), as numbers of the slide."""
        if self._start > upto or not len(self.slide):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        start, fresh = np.array([self._start]), np.array([self._fresh])
        first, counts = instants(self.slide[:1], self.offset[:1], start, fresh, done, upto)
        which = np.flatnonzero(self.alive) if counts[0] else np.zeros(0, np.int64)
        return which, np.full(len(which), first[0]), np.full(len(which), counts[0])


__all__ = ["ColumnGroup", "InstanceNames", "MemberColumns"]
