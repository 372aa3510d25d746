"""A query over a join of two streams, as a member of those that share it."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import EXTREMES, LINEAR
from windrow.operators.aggregates.order import has_fixed_codes
from windrow.operators.linear import Formula
from windrow.sharing.windows import SlideWindow

Pair = tuple[int, int]
Sided = tuple[int, Formula]
"""A formula over the rows of one side."""


@dataclass(frozen=True)
class JoinSource:
    """The rows that are shared: two streams joined by equality of formulas over each."""

    streams: tuple[str, str]
    keys: tuple[tuple[Formula, Formula], ...]

    def reads(self, side: int) -> frozenset[str]:
        """The columns of a side's stream that the join itself reads."""
        return frozenset(c for key in self.keys for c in key[side].reads)

    @property
    def name(self) -> str:
        """For EXPLAIN."""
        return " join ".join(self.streams)


@dataclass(frozen=True)
class JoinMember:
    """A query: the lengths of its windows, its period, and what it computes.

    `filters`: per side, in the order in which the plan has them. `keys` and `arguments` are formulas over one side;
    calls name their column by `name_of` its argument.
    """

    name: str
    ranges: Pair
    slide: int
    filters: tuple[tuple[Formula, ...], tuple[Formula, ...]]
    keys: tuple[Sided, ...]
    arguments: tuple[Sided, ...]
    calls: tuple[Aggregation, ...]
    above: Hashable = ()

    def reads(self, side: int) -> frozenset[str]:
        """The columns of a side's stream that it reads, beside the keys of the join."""
        formulas = [*self.filters[side], *(f for s, f in (*self.keys, *self.arguments) if s == side)]
        return frozenset(c for f in formulas for c in f.reads)

    @cached_property
    def window(self) -> SlideWindow:
        """The shorter window."""
        return SlideWindow(min(self.ranges), self.slide)

    @property
    def shifts(self) -> Pair:
        """By how much later than the other side's a row of each side counts."""
        least = min(self.ranges)
        return self.ranges[0] - least, self.ranges[1] - least

    @property
    def synopsis(self) -> Hashable:
        """Queries over one join with the same read one synopsis."""
        return (self.filters, self.shifts, self.keys, self.counted)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name_of(k) for k in self.keys)

    @cached_property
    def counted(self) -> tuple[Sided, ...]:
        """Arguments whose values must be counted one by one; none when sums and best codes say everything."""
        types = {name_of(a): a[1].type for a in self.arguments}
        plain = all(c.column is None or _plain(c, types[c.column]) for c in self.calls)
        return () if plain else self.arguments

    @cached_property
    def lanes(self) -> frozenset[tuple[int, str]]:
        """The arguments that are summed, by side and SQL."""
        return frozenset(a for a, kind in self._called if kind not in EXTREMES)

    @cached_property
    def codes(self) -> frozenset[tuple[int, str, bool]]:
        """The arguments of which the best is wanted, and whether that is the least."""
        return frozenset((*a, kind == "min") for a, kind in self._called if kind in EXTREMES)

    @property
    def _called(self) -> list[tuple[tuple[int, str], str]]:
        arguments = {name_of(a): (a[0], a[1].sql) for a in self.arguments}
        return [(arguments[c.column], c.kind) for c in self.calls if c.column is not None and not self.counted]


def name_of(sided: Sided) -> str:
    """The name of a formula of one side.

    >>> name_of((1, Formula('"y" + 1', pa.int64(), ("y",))))
    '1:"y" + 1'
    """
    return f"{sided[0]}:{sided[1].sql}"


@lru_cache(maxsize=4096)
def join_cost_group(source: JoinSource, member: JoinMember) -> str:
    """The name of the queries over one join whose answers cost alike and are read and finished together."""
    alike = repr((source, member.synopsis, member.calls, member.above))
    return f"+{hashlib.blake2b(alike.encode(), digest_size=8).hexdigest()}"


def _plain(call: Aggregation, type_: pa.DataType) -> bool:
    if call.kind in EXTREMES:
        return has_fixed_codes(type_)
    return call.kind in LINEAR and not call.collapses
