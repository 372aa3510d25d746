"""Families and shared joins as tasks see them: their rows, and who has joined.

All who joined between the same two ticks are of one epoch, read the same rows, and have one clock.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.plan.nodes import QueryPlan
from windrow.runtime.member_blocks import MOST_CONDITIONS, FamilyPlace, MemberBlock, cost_of, has_deadline, unique
from windrow.runtime.wanted_rows import all_or_everything, of_stream, wanted_rows
from windrow.sharing.conditions import EVERYTHING, Condition
from windrow.sharing.joins.combine import AlikeMembers, alike_members
from windrow.sharing.joins.members import JoinSource
from windrow.sharing.joins.readers import ResultGrouping
from windrow.sharing.joins.recognise import RecognisedJoin
from windrow.sharing.member_columns import MemberColumns
from windrow.sharing.query_group import Shown
from windrow.sharing.recognise import FamilySource

_unpacked: OrderedDict[str, Any] = OrderedDict()
"""Queries by the uid of their membership: a new deployment unpacks only who is new."""


def clock_name(family: str, epoch: int) -> str:
    """The clock of all who joined a family between the same two ticks: they read the same rows."""
    return f"{family}@{epoch}"


@dataclass(frozen=True)
class SharedQuery:
    """A query that is served by a family."""

    uid: str
    plan: QueryPlan
    family: str
    epoch: int
    retain: None = None

    @property
    def clock(self) -> str:
        """The name of its clock."""
        return clock_name(self.family, self.epoch)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """The columns of the answer's elements."""
        return dict(self.plan.root.schema)

    @cached_property
    def shown(self) -> Shown:
        """How the answer is shown."""
        return Shown.of(self.plan)

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams read."""
        return frozenset(s.lower() for s in self.plan.streams)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables read."""
        return tuple(t.lower() for t in self.plan.tables)


class JoinMembership:
    """A query's place in its family: `uid` tells it from others that had its name.

    It is packed once for all deployments that ship it, and unpacked by a process when it is first looked at.
    """

    def __init__(self, query: RecognisedJoin, epoch: int) -> None:
        self.uid, self.epoch = unique(), epoch
        self._query: RecognisedJoin | None = query
        self._packed: bytes | None = None

    @property
    def query(self) -> RecognisedJoin:
        """The query as it was recognised."""
        if self._query is None:
            found = _unpacked.get(self.uid)
            if found is None:
                assert self._packed is not None
                found = _unpacked[self.uid] = pickle.loads(self._packed)
                while len(_unpacked) > 1 << 14:
                    _unpacked.popitem(last=False)
            self._query = found
        return self._query

    def __getstate__(self) -> tuple[str, int, bytes]:
        if self._packed is None:
            self._packed = pickle.dumps(self.query)
        return (self.uid, self.epoch, self._packed)

    def __setstate__(self, state: tuple[str, int, bytes]) -> None:
        self.uid, self.epoch, self._packed = state
        self._query = None


@dataclass(frozen=True)
class FamilyProgram:
    """A family as tasks see it: its rows, and who has joined, by name; `gathered`: it lies in one place, at home."""

    name: str
    source: FamilySource
    slicing: str
    epoch: int
    blocks: tuple[MemberBlock, ...]
    gathered: bool = False
    instances: tuple[MemberColumns, ...] = ()  # members in columns
    left: Mapping[str, Int64s] = field(default_factory=dict)  # by block, who of them has gone

    def member(self, name: str) -> FamilyPlace | None:
        """A member by its name."""
        return next((b.members[name] for b in self.blocks if name in b.members), None)

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """What somebody reads of the family's rows."""
        read = {c: t for m in self.instances for c, t in m.query.columns.items()}
        return {c: t for b in self.blocks for c, t in b.columns.items()} | read

    @property
    def wants(self) -> tuple[Condition, ...]:
        """Which rows of its stream concern somebody."""
        few = all(len(m) < MOST_CONDITIONS for m in self.instances)
        columns = (m.conditions.condition(i) for m in self.instances for i in range(len(m))) if few else [EVERYTHING]
        found = dict.fromkeys((*(c for block in self.blocks for c in block.conditions), *columns))
        return tuple(of_stream(c, self.source.stream) for c in all_or_everything(found))

    def clock(self, epoch: int) -> str:
        """The name of an epoch's clock."""
        return clock_name(self.name, epoch)

    def fresh(self, clocks: Collection[str]) -> Iterator[str]:
        """The members on some clocks."""
        return (n for b in self.blocks for n, m in b.members.items() if self.clock(m.epoch) in clocks)

    def home(self, partitions: int) -> int:
        """The partition that has what is not divided by keys."""
        return int(self.name[1:]) % partitions


@dataclass(frozen=True)
class JoinProgram:
    """A shared join as tasks see it: its streams and keys, and who has joined, by name.

    `gathered`: its sums are answered in one place, at home.
    """

    name: str
    source: JoinSource
    epoch: int
    members: Mapping[str, JoinMembership]
    gathered: bool = False

    def clock(self, name: str) -> str:
        """The name of a member's clock."""
        return clock_name(self.name, self.members[name].epoch)

    def home(self, partitions: int) -> int:
        """The partition that has what is not divided by keys."""
        return int(self.name[1:]) % partitions

    def query(self, name: str) -> RecognisedJoin:
        """A member by its name."""
        return self.members[name].query

    @cached_property
    def groupings(self) -> tuple[ResultGrouping, ...]:
        """How results are told apart, in an order that every task agrees on."""
        members = [m.query.member for m in self.members.values()]
        return tuple(dict.fromkeys(ResultGrouping(m.keys, m.counted) for m in members))

    @cached_property
    def alike(self) -> AlikeMembers:
        """Members that are answered together, by their numbers."""
        return alike_members([m.query.member for m in self.members.values()])

    @cached_property
    def late(self) -> dict[str, tuple[str, int]]:
        """Members that may be held back: by name, their cost group, and how deep they read."""
        queries = {n: m.query for n, m in self.members.items()}
        return {n: cost_of(q) for n, q in queries.items() if has_deadline(q)}

    @property
    def wants(self) -> dict[str, tuple[Condition, ...]]:
        """By stream: which rows concern somebody."""
        if len(self.members) >= MOST_CONDITIONS:
            return {}
        found: dict[str, tuple[Condition, ...]] = {}
        for member in self.members.values():
            for stream, conditions in wanted_rows(member.query.plan).items():
                found[stream] = (*found.get(stream, ()), *conditions)
        return found

    def reads(self, side: int) -> frozenset[str]:
        """The columns of one side that somebody reads."""
        return self._reads[side]

    @cached_property
    def _reads(self) -> tuple[frozenset[str], ...]:
        members = [m.query.member for m in self.members.values()]
        return tuple(self.source.reads(side).union(*(m.reads(side) for m in members)) for side in (0, 1))

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k not in ("alike", "groupings", "late", "_reads")}
