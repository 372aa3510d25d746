"""The predicate index: the spaces of a set of conditions, and a row's cell in each.

Conditions that test the same attributes are in one space (`cells`); spaces whose grids are small are merged where that
saves a pass over the rows. A condition that joins goes into a young space, with those of its attributes that are not
much older: spaces of the same attributes grow by a factor, so there are few of them, and a condition is put into a new
space a few times in its life. One that leaves stays in its space until half of them have left. Many conditions in
columns come and leave as one, and have spaces apart from single ones, which other processes may ask for by themselves.

Cost per row: a binary search per attribute, then a lookup per space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.sharing.boxes import Axis, Conditions, axis_over
from windrow.sharing.cells import MOST_CELLS, CellSpace
from windrow.sharing.condition_columns import ConditionColumns
from windrow.sharing.conditions import Condition
from windrow.sharing.spans import Cut

MOST_SETS = 32
"""With more sets of attributes than this, merging is not searched for."""
MOST_MERGED = 4096
"""Nor are spaces of more conditions."""
MERGED_CELLS = 1 << 16
"""Cell spaces are merged into a grid of no more cells than this."""
GROWTH = 8
"""A space takes in those of its attributes that are at most so many times as large."""


@dataclass(frozen=True)
class Costs:
    """What a space costs, in nanoseconds: per row, per cell and slice."""

    row: float = 25.0
    cell: float = 5.0


class PredicateIndex:
    """The spaces of a set of conditions; `home`: in which space one is, and which predicate (of many, the first)."""

    def __init__(
        self, conditions: Iterable[Conditions] = (), rows_per_slice: float = 256.0, costs: Costs | None = None
    ):
        wanted = list(dict.fromkeys(conditions))
        self.spaces = [_space(members) for members in _split(wanted, rows_per_slice, costs or Costs())]
        self.home = {c: (k, i) for k, p in enumerate(self.spaces) for c, i in p.number.items()}
        self._left: dict[Conditions, tuple[int, int]] = {}  # conditions that have left, but not their spaces
        self._empty: Counter[CellSpace] = Counter()  # how many predicates of a space these are
        self._axes()

    def copy(self) -> PredicateIndex:
        """An index that may change by itself; spaces are the same."""
        made = PredicateIndex.__new__(PredicateIndex)
        made.spaces, made.axes, made._folds = list(self.spaces), self.axes, self._folds
        made.home, made._left, made._empty = self.home.copy(), self._left.copy(), self._empty.copy()
        return made

    def _axes(self) -> None:
        found: dict[str, list[Axis]] = {}
        for space in self.spaces:
            for axis in space.axes:
                found.setdefault(axis.attribute.sql, []).append(axis)
        self.axes = {sql: axis_over(axes) for sql, axes in found.items()}
        self._folds = [tuple(self.axes[a.attribute.sql].fold(a) for a in p.axes) for p in self.spaces]

    def changed(self, new: Sequence[Conditions], gone: Iterable[Conditions]) -> list[CellSpace]:
        """Have these conditions, too, and those no longer; the spaces that are new.

        Predicates in all other spaces stay what they were.
        """
        for condition in gone:
            self._left[condition] = self.home.pop(condition)
            self._empty[self.spaces[self._left[condition][0]]] += len(condition)
        sets: dict[_Set, list[Conditions]] = {}
        for condition in new:
            if condition in self._left:
                self.home[condition] = self._left.pop(condition)
                self._empty[self.spaces[self.home[condition][0]]] -= len(condition)
            else:
                sets.setdefault(_set(condition), []).append(condition)
        old = {k for k, space in enumerate(self.spaces) if 0 < space.predicates <= 2 * self._empty[space]}
        for k in old:
            kept = [c for c in self.spaces[k].conditions if c in self.home]
            if kept:
                sets.setdefault(_set_of(self.spaces[k]), []).extend(kept)
        made = [CellSpace(self._with_young(tested, members, old)) for tested, members in sets.items()]
        if old or made:
            self._replace(old, made)
        return made

    def _with_young(self, tested: _Set, members: list[Conditions], old: set[int]) -> list[Conditions]:
        """Conditions together with those of spaces that are to be merged with them, which are `old` then."""
        for k, space in enumerate(self.spaces):
            young = space.predicates <= GROWTH * sum(map(len, members))
            if k not in old and young and tested == _set_of(space):
                old.add(k)
                members = [*(c for c in space.conditions if c in self.home), *members]
        return members

    def _replace(self, old: set[int], made: list[CellSpace]) -> None:
        """Have new spaces where old ones were: nothing is done for conditions elsewhere."""
        for k in old:
            del self._empty[self.spaces[k]]
            for condition in self.spaces[k].conditions:
                self._left.pop(condition, None)
        free = sorted(old, reverse=True)
        for space in made:
            k = free.pop() if free else len(self.spaces)
            self.spaces[k : k + 1] = [space]
            self._number(k)
        for k in free:  # the last of those that stay, or nothing, takes the place
            last = self.spaces.pop()
            if k < len(self.spaces):
                self.spaces[k] = last
                self._number(k)
        self._axes()

    def _number(self, k: int) -> None:
        """Note that the conditions of a space are in it, by its number."""
        for condition, i in self.spaces[k].number.items():
            (self._left if condition in self._left else self.home)[condition] = (k, i)

    def places(self, columns: Mapping[str, pa.Array]) -> dict[str, Int64s]:
        """Every row's place on every axis; `columns` are the attributes by their SQL."""
        return {sql: axis.places(columns[sql]) for sql, axis in self.axes.items()}

    def cells(self, k: int, places: Mapping[str, Int64s], rows: int) -> Int64s:
        """Every row's cell in space k; -1 for none."""
        space = self.spaces[k]
        mine = [
            places[a.attribute.sql] if fold is None else fold[places[a.attribute.sql]]
            for a, fold in zip(space.axes, self._folds[k], strict=True)
        ]
        return space.cell(mine, rows)


_Set = tuple[frozenset[str], bool]
"""Which conditions may be in one space: the attributes they test, and whether they are columns."""


def _set(condition: Conditions) -> _Set:
    return condition.tested, isinstance(condition, ConditionColumns)


def _set_of(space: CellSpace) -> _Set:
    return frozenset(space.attributes), isinstance(space.conditions[0], ConditionColumns)


def _space(members: Sequence[Conditions]) -> CellSpace:
    """The space of conditions; of columns, the same for as long as these are: they are many, and come and go rarely."""
    first = members[0]
    if not isinstance(first, ConditionColumns):
        return CellSpace(members)
    known = first.spaces.get("all")
    if known is None or len(known.conditions) != len(members) or any(
        a is not b for a, b in zip(known.conditions, members, strict=True)
    ):  # fmt: skip
        known = first.spaces["all"] = CellSpace(members)
    assert isinstance(known, CellSpace)
    return known


def _split(conditions: Sequence[Conditions], rows_per_slice: float, price: Costs) -> list[Sequence[Conditions]]:
    """The conditions of every space: one space per set of attributes, merged by cost."""
    columns: dict[_Set, list[Conditions]] = {}
    sets: dict[frozenset[str], list[Condition]] = {}
    for condition in conditions:
        if isinstance(condition, ConditionColumns):
            columns.setdefault(_set(condition), []).append(condition)
        else:
            sets.setdefault(condition.tested, []).append(condition)
    return [*columns.values(), *_merged_sets(sets, rows_per_slice, price)]


def _merged_sets(
    sets: Mapping[frozenset[str], list[Condition]], rows_per_slice: float, price: Costs
) -> list[Sequence[Conditions]]:
    """Single conditions by the attributes they test, merged where that costs less."""
    if not 1 < len(sets) <= MOST_SETS:
        return list(sets.values())
    large = [members for members in sets.values() if len(members) > MOST_MERGED]
    groups = [_Group(t, _cuts(members), members) for t, members in sets.items() if len(members) <= MOST_MERGED]

    def cost(group: _Group) -> float:
        return price.row * rows_per_slice + price.cell * group.cells if group.cells <= MERGED_CELLS else float("inf")

    return [*large, *(g.members for g in _merged(groups, cost))]


@dataclass(frozen=True)
class _Group:
    """Conditions that might make one space: what they test, and where."""

    tested: frozenset[str]
    cuts: Mapping[str, frozenset[Cut]]
    members: list[Condition]

    @property
    def cells(self) -> int:
        """The size of the grid, were nothing nested."""
        return prod(len(c) + 2 for c in self.cuts.values())

    def __or__(self, other: _Group) -> _Group:
        none: frozenset[Cut] = frozenset()
        tested = self.tested | other.tested
        cuts = {a: self.cuts.get(a, none) | other.cuts.get(a, none) for a in tested}
        return _Group(tested, cuts, self.members + other.members)


def _cuts(conditions: Sequence[Condition]) -> dict[str, frozenset[Cut]]:
    found: dict[str, set[Cut]] = {}
    for box in (box for c in conditions for box in c.boxes):
        for attribute, values in box:
            cuts = found.setdefault(attribute.sql, set())
            cuts.update(cut for span in values.spans for cut in span if cut is not None)
    return {sql: frozenset(cuts) for sql, cuts in found.items()}


def _merged(groups: list[_Group], cost: Callable[[_Group], float]) -> list[_Group]:
    """Merge the two groups that save most, again and again; those whose grid would be too large stay as they are."""
    alive = dict(enumerate(groups))
    prices = {k: cost(g) for k, g in alive.items()}
    never = float("inf")

    def saving(a: int, b: int) -> float:
        if never in (prices[a], prices[b]) or alive[a].cells * alive[b].cells > MERGED_CELLS * MOST_CELLS:
            return -never
        return prices[a] + prices[b] - cost(alive[a] | alive[b])

    saved = {(a, b): saving(a, b) for a, b in combinations(alive, 2)}
    new = len(groups)
    while saved:
        (a, b), gain = max(saved.items(), key=lambda kv: kv[1])
        if gain <= 0:
            break
        alive[new] = alive.pop(a) | alive.pop(b)
        prices[new] = cost(alive[new])
        saved = {pair: g for pair, g in saved.items() if a not in pair and b not in pair}
        saved |= {(k, new): saving(k, new) for k in alive if k != new}
        new += 1
    return list(alive.values())
