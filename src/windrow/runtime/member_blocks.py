"""The members of a family as they travel to tasks: in blocks that stay as they are.

    driver    blocks  [a .. b]  [c .. d]  [e]        a change makes the blocks anew that it touches, and no other
    ship      each block once, by its uid            a deployment names blocks; tasks that have one do not get it again
    tasks     those of new blocks join, those of blocks that are gone, and are in no other, leave

Members of one kind differ in names, constants and places, so a block holds one query of every kind with its plan, and
of the others columns of values. Invariant: a member is in one block. Cost: a change costs the blocks it touches, at
most `BLOCK` members each; small blocks are put together when there are many, so a member is packed a few times.
"""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import pyarrow as pa

from windrow.operators.linear import Formula
from windrow.plan.nodes import WindowBounds
from windrow.sharing.conditions import Condition
from windrow.sharing.joins.members import join_cost_group
from windrow.sharing.joins.recognise import RecognisedJoin
from windrow.sharing.member import Member, UserCall, cost_group, read_depth
from windrow.sharing.recognise import Recognised
from windrow.sharing.spans import ValueSet

BLOCK = 4096
"""The most members in a block."""

SMALL_BLOCKS = 32
"""Blocks of fewer members are put together when they are more than these."""

MOST_CONDITIONS = 257
"""Conditions of a block that are looked at one by one."""

_PROCESS = uuid.uuid4().hex
_numbers = itertools.count()


def unique() -> str:
    """A name that is given once."""
    return f"{_PROCESS}.{next(_numbers)}"


class FamilyPlace:
    """A query's place in its family: `uid` tells it from others that had its name."""

    __slots__ = ("epoch", "query", "synopsis", "uid")

    def __init__(self, query: Recognised, epoch: int, synopsis: int | None, uid: str = "") -> None:
        self.uid, self.epoch, self.synopsis, self.query = uid or unique(), epoch, synopsis, query


def has_deadline(query: Recognised | RecognisedJoin) -> bool:
    """Whether a query that shares can be answered late: its period is a deadline, and each answer is by itself."""
    return query.plan.emit.at_most and query.chained


def cost_of(query: Recognised | RecognisedJoin) -> tuple[str, int]:
    """The group whose answers cost alike, and how deep a query reads."""
    if isinstance(query, RecognisedJoin):
        return join_cost_group(query.source, query.member), query.member.window.range
    return cost_group(query.member), read_depth(query.member)


@dataclass(frozen=True, eq=False)
class MemberBlock:
    """Members by name, and what all of them read, test, and may be late with."""

    uid: str
    members: Mapping[str, FamilyPlace]
    columns: Mapping[str, pa.DataType]
    conditions: tuple[Condition, ...]  # different ones, at most `MOST_CONDITIONS`
    late: tuple[str, ...]  # those with deadlines

    @staticmethod
    def of(members: Mapping[str, FamilyPlace]) -> MemberBlock:
        """A block of members."""
        queries = [m.query for m in members.values()]
        read = {id(q.columns): q.columns for q in queries}
        found: dict[Condition, None] = {}
        for query in queries:
            if len(found) == MOST_CONDITIONS:
                break
            found[query.member.condition] = None
        late = tuple(n for n, m in members.items() if has_deadline(m.query))
        columns = {c: t for each in read.values() for c, t in each.items()}
        return MemberBlock(unique(), members, columns, tuple(found), late)

    def __len__(self) -> int:
        return len(self.members)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self.uid, _packed(self.members), self.columns, self.conditions, self.late)


class MemberBlocks:
    """The members of a family on the driver; `blocks` are the same objects as long as nobody in them changes."""

    def __init__(self) -> None:
        self._members: dict[str, FamilyPlace] = {}
        self._where: dict[str, str] = {}  # the block of each
        self._blocks: dict[str, MemberBlock] = {}
        self._new: dict[str, None] = {}
        self.looked_at = 0  # members that were put into blocks so far

    def __len__(self) -> int:
        return len(self._members)

    def add(self, name: str, member: FamilyPlace) -> None:
        """Have a member."""
        self._members[name] = member
        self._new[name] = None

    def remove(self, name: str) -> None:
        """Have it no longer."""
        del self._members[name]
        self._new.pop(name, None)
        uid = self._where.pop(name, None)
        if uid is not None:
            left = self._blocks.pop(uid).members
            self._new |= {n: None for n in left if n in self._members}
            for each in left:
                self._where.pop(each, None)

    def blocks(self) -> tuple[MemberBlock, ...]:
        """All members, in blocks."""
        small = [b for b in self._blocks.values() if len(b) < BLOCK]
        if len(small) > SMALL_BLOCKS:
            for block in small:
                del self._blocks[block.uid]
                self._new = {**dict.fromkeys(block.members), **self._new}
        names = list(self._new)
        for first in range(0, len(names), BLOCK):
            block = MemberBlock.of({n: self._members[n] for n in names[first : first + BLOCK]})
            self._blocks[block.uid] = block
            self._where |= dict.fromkeys(block.members, block.uid)
        self.looked_at += len(names)
        self._new = {}
        return tuple(self._blocks.values())


# -- packing -----------------------------------------------------------------------------------------------------------


class PackedSteps(Sequence[Formula | UserCall]):
    """The steps of one member of a block, unpacked when somebody looks at them: only where an expression raises."""

    __slots__ = ("_at", "_block")

    def __init__(self, block: _StepsOfBlock, at: int) -> None:
        self._block, self._at = block, at

    @overload
    def __getitem__(self, i: int) -> Formula | UserCall: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Formula | UserCall]: ...
    def __getitem__(self, i: int | slice) -> Formula | UserCall | Sequence[Formula | UserCall]:
        return self._block.steps[self._at][i]

    def __len__(self) -> int:
        return len(self._block.steps[self._at])

    def __iter__(self) -> Iterator[Formula | UserCall]:
        return iter(self._block.steps[self._at])


class _StepsOfBlock:
    def __init__(self, packed: bytes) -> None:
        self._packed, self._steps = packed, list[tuple[Formula | UserCall, ...]]()

    @property
    def steps(self) -> list[tuple[Formula | UserCall, ...]]:
        if not self._steps:
            self._steps = pickle.loads(self._packed)
        return self._steps


def _packed(members: Mapping[str, FamilyPlace]) -> bytes:
    """One query of every kind, and the others by what is their own."""
    kinds: dict[object, int] = {}
    first: list[Recognised] = []
    rows, steps = [], []
    for name, place in members.items():
        query = place.query
        member, kind = query.member, _like(query)
        number = kinds.setdefault(kind, len(kinds))
        if number == len(first):
            first.append(replace(query, member=replace(member, steps=())))
        values = tuple([tuple([(v.spans, v.null) for _, v in box]) for box in member.condition.boxes])
        rows.append((name, place.uid, place.epoch, place.synopsis, number, member.window, values))
        steps.append(tuple(member.steps))
    return pickle.dumps((first, rows, pickle.dumps(steps, -1)), -1)


def _like(query: Recognised) -> object:
    """Queries with the same have the same list above their aggregates, and test the same attributes."""
    tested = tuple([tuple([a for a, _ in box]) for box in query.member.condition.boxes])
    plain = query.chained and not any(isinstance(x, WindowBounds) for x in _chain(query))
    own = "" if plain else query.plan.name
    return (query.member.kind, tested, tuple(query.columns), query.shown, has_deadline(query), own)


_chains: dict[int, tuple[object, tuple[Any, ...]]] = {}


def _chain(query: Recognised) -> tuple[Any, ...]:
    """What stands above the aggregate, found once for a kind."""
    kind = query.member.kind
    known = _chains.get(id(kind))
    if known is None or known[0] is not kind:
        if len(_chains) > BLOCK:
            _chains.clear()
        known = _chains[id(kind)] = (kind, query.chain or ())
    return known[1]


def _unpacked(
    uid: str,
    packed: bytes,
    columns: Mapping[str, pa.DataType],
    conditions: tuple[Condition, ...],
    late: tuple[str, ...],
) -> MemberBlock:
    first, rows, steps = pickle.loads(packed)
    of_block = _StepsOfBlock(steps)
    made = [_maker(query) for query in first]
    members = {
        name: FamilyPlace(made[kind](name, window, values, PackedSteps(of_block, i)), epoch, synopsis, mine)
        for i, (name, mine, epoch, synopsis, kind, window, values) in enumerate(rows)
    }
    return MemberBlock(uid, members, columns, conditions, late)


def _maker(query: Recognised) -> Callable[..., Recognised]:
    """Makes queries like this one: of other names, windows and constants."""
    kind = query.member.kind
    tested = tuple([tuple([a for a, _ in box]) for box in query.member.condition.boxes])

    def made(name: str, window: Any, values: Any, steps: Any) -> Recognised:
        boxes = tuple([
            tuple([(a, ValueSet(spans, null)) for a, (spans, null) in zip(mine, box, strict=True)])
            for mine, box in zip(tested, values, strict=True)
        ])  # fmt: skip
        member = Member(name, window, Condition(boxes), kind, steps)
        return Recognised(query.plan, query.source, member, query.columns, query.shown)

    return made
