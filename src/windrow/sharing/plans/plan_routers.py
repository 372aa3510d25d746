"""The routers of a plan, and the queries that they are made of.

Law: a router that is changed answers as one that is made of all who are there now.
Cost: a change costs what it changes; making a router costs all that there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING
from windrow.operators.terms import START, ClockStarts
from windrow.sharing.condition_columns import ConditionColumns
from windrow.sharing.conditions import Condition
from windrow.sharing.plans.canonical import Canonical
from windrow.sharing.plans.form_columns import FormColumns
from windrow.sharing.plans.routed_columns import RoutedColumns
from windrow.sharing.plans.router import IndexRouter


@dataclass(frozen=True, eq=False)
class ManyMembers:
    """Queries of one form by their numbers, in order, and which of them are there; `start`: if they began late.

    `clock`: where theirs starts, if that is known. `reader`: of all of them, in a plan that has readers; None: each is
    one."""

    numbers: Int64s
    forms: FormColumns
    alive: Bools
    start: int = BEGINNING
    reader: int | None = None
    clock: int = BEGINNING

    @property
    def shown(self) -> tuple[str, ...]:
        """What each of them shows."""
        return tuple(name for name, _ in self.forms.form.shown)

    def routed(self, conditions: ConditionColumns, windows: Sequence[str] = (), late: bool = False) -> RoutedColumns:
        """The same as a router has them; `windows`: the columns of those whose lengths differ."""
        sizes = {column: self.forms.form.sizes[int(column[len(START) :])] for column in windows}
        return RoutedColumns(
            self.numbers, conditions, self.alive, self.start if late else BEGINNING, sizes, self.shown
        )  # fmt: skip


@dataclass
class Routers:
    """The routers of a plan as they were last made, by where they stand; and who has changed since.

    A change costs what it changes: of all others each router knows what it knew. Whoever is among `queries` or
    `readers` has come, has gone, or is to be looked at again.
    """

    known: dict[Hashable, IndexRouter] = field(default_factory=dict)
    queries: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)
    _sizes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _counts: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def sizes(self, members: Mapping[int, Canonical]) -> Collection[tuple[int, ...]]:
        """The different lengths of windows."""
        for query in tuple(self.queries) if self._sizes else members:
            if (old := self._sizes.pop(query, None)) is not None:
                self._counts[old] -= 1
            if query in members:
                self._sizes[query] = new = members[query].sizes
                self._counts[new] += 1
        self._counts += Counter()  # without those that nobody has
        return self._counts.keys()

    def router(
        self,
        place: Hashable,
        those: Mapping[int, Canonical],
        readers: bool,
        condition: Callable[[int, Canonical], Condition],
        blocks: Sequence[RoutedColumns],
        starts: Mapping[int, int] | None = None,
        windows: Mapping[str, int] | None = None,
        aged: bool = False,
        lists: bool = False,
    ) -> IndexRouter:
        """The router at a place: of queries or `readers`, by the condition of each; `windows`: by column, which it is
        of the form's. `lists`: what each shows."""
        changed = self.readers if readers else self.queries
        known, windows = self.known.get(place), windows or {}
        if known is not None and not known.like(windows, aged, lists, blocks):
            known = None
        some = those if known is None else {q: those[q] for q in changed if q in those}
        conditions = {q: condition(q, form) for q, form in some.items()}
        begin = {q: start for q, start in (starts or {}).items() if q in some}
        sizes = {column: {q: form.sizes[w] for q, form in some.items()} for column, w in windows.items()}
        shown = {q: form.names for q, form in some.items()} if lists else None
        if known is None:
            found = IndexRouter(conditions, begin, sizes, aged, shown, blocks)
        else:
            gone = [q for q in changed if q not in those]
            found = known.changed(conditions, gone, begin, sizes, shown)
        self.known[place] = found
        return found

    def made(self) -> None:
        """A plan has been made of all of them."""
        self.queries.clear()
        self.readers.clear()


def clock_starts(single: Mapping[int, int], many: Sequence[ManyMembers]) -> ClockStarts:
    """Where the clocks of queries start, of single ones and of those in columns that are there."""
    of = np.array(sorted(single.items()), np.int64).reshape(-1, 2)
    numbers = np.concatenate([of[:, 0], *(m.numbers[m.alive] for m in many)])
    starts = np.concatenate([of[:, 1], *(np.full(int(m.alive.sum()), m.clock) for m in many)])
    order = np.argsort(numbers)
    return ClockStarts(numbers[order], starts[order])
