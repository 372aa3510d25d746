"""A query of a family, in the family's own names."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.linear import Formula
from windrow.sharing.conditions import Condition
from windrow.sharing.feeds import ShardsKey
from windrow.sharing.lanes import takes
from windrow.sharing.windows import SlideWindow


@dataclass(frozen=True)
class UserCall:
    """A user's function as a column: its name, the function, and its arguments as formulas."""

    column: str
    function: str
    arguments: tuple[Formula, ...]
    type: pa.DataType


@dataclass(frozen=True, eq=False)
class Kind:
    """What queries that differ in windows and constants have in common; equal ones are one object (`Kind.of`).

    `keys` and the columns of `calls` are SQL over the family's rows, found in `formulas`, with the attributes of
    conditions. `above`: what stands above the aggregate.
    """

    keys: tuple[str, ...]
    calls: tuple[Aggregation, ...]
    formulas: Mapping[str, Formula]
    user_calls: tuple[UserCall, ...]
    above: Hashable

    @staticmethod
    def of(
        keys: tuple[str, ...], calls: tuple[Aggregation, ...], formulas: Mapping[str, Formula],
        user_calls: tuple[UserCall, ...] = (), above: Hashable = (),
    ) -> Kind:  # fmt: skip
        """The kind with these parts."""
        return _kind(keys, calls, tuple(formulas.items()), user_calls, above)

    def __reduce__(self) -> tuple[object, ...]:
        return _kind, (self.keys, self.calls, tuple(self.formulas.items()), self.user_calls, self.above)

    @cached_property
    def shards(self) -> ShardsKey | None:
        """Which shards such a query reads; None when entries of a synopsis answer it."""
        types = {name: f.type for name, f in self.formulas.items()}
        if takes(self.calls, types):
            return (self.keys, ()) if self.keys else None
        return self.keys, tuple(dict.fromkeys(c.column for c in self.calls if c.column is not None))

    @cached_property
    def answered(self) -> object:
        """Queries with the same are answered together; of those that read shards, whether they have keys."""
        return _answered(self.calls, self.above) if self.shards is None else bool(self.keys)


@lru_cache(maxsize=4096)
def _answered(calls: tuple[Aggregation, ...], above: Hashable) -> object:
    return object()


@lru_cache(maxsize=4096)
def _kind(
    keys: tuple[str, ...], calls: tuple[Aggregation, ...], formulas: tuple[tuple[str, Formula], ...],
    user_calls: tuple[UserCall, ...], above: Hashable,
) -> Kind:  # fmt: skip
    return Kind(keys, calls, dict(formulas), user_calls, above)


@dataclass(frozen=True)
class Member:
    """A query of a family: its kind, and what is its own.

    `steps`: predicates and user calls in the order in which the plan has them; only when one of them raises is that
    order followed.
    """

    name: str
    window: SlideWindow
    condition: Condition
    kind: Kind
    steps: Sequence[Formula | UserCall] = ()


@dataclass
class FamilyMember:
    """A member and since when: its clock, its epoch, and its synopsis (read by `reader`) unless it reads shards."""

    member: Member
    start: int
    epoch: int
    synopsis: int | None = None
    uid: str = ""  # tells it from others that had its name
    reader: int = -1


@dataclass(frozen=True)
class Spent:
    """What joint runs took: how deep they read, in units of the clock, how many answers they gave, and seconds."""

    depth: int = 0
    answers: int = 0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.depth + other.depth, self.answers + other.answers, self.seconds + other.seconds)


def cost_group(member: Member) -> str:
    """The name of the queries whose answers cost alike, and which may be answered in one pass over values.

    Queries that read keyed sums are answered by themselves, and each has a cost of its own.
    """
    key = member.kind.shards
    if key is not None and not key[1]:
        return member.name.lower()
    return _cost_group(member.kind, member.condition)


def read_depth(member: Member) -> int:
    """How much of its synopsis a query reads, in units of the clock; running sums are not read deep."""
    return 0 if member.kind.shards is None else member.window.range


@lru_cache(maxsize=4096)
def _cost_group(kind: Kind, condition: Condition) -> str:
    alike = repr((kind.shards, kind.calls, None if kind.shards is None else condition))
    return f"|{hashlib.blake2b(alike.encode(), digest_size=8).hexdigest()}"


@dataclass
class Counters:
    """What was done so far: rows seen, rows put into cells, partials formed, partials or entries read, answers."""

    rows: int = 0
    lifted: int = 0
    partials: int = 0
    reads: int = 0
    answers: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))
