"""Which queries want a row, by the predicate index.

A row has one cell in each space of the index (`sharing/index.py`), and a cell has the queries whose conditions hold in
it. Cells are few next to rows, so a cell's queries are found once and remembered.

A router that others join or leave is another one, which shares with it whatever they do not change (`changed`).

Cost: per row a binary search per attribute and a lookup per space; then one step per pair (row, query). A change costs
what it changes, and copies of tables by query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from math import inf
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING, INF
from windrow.operators.terms import QUERIES_TYPE, Lives
from windrow.scalar_engine import quote
from windrow.sharing.boxes import Conditions
from windrow.sharing.cell_members import CellMembers
from windrow.sharing.cells import CellSpace
from windrow.sharing.condition_columns import ConditionColumns, both_within
from windrow.sharing.conditions import EVERYTHING, Attribute, Condition, both, packed, read, within
from windrow.sharing.index import PredicateIndex
from windrow.sharing.plans.routed_columns import RoutedColumns, same_block
from windrow.sharing.plans.shown_columns import ShownColumns
from windrow.sharing.plans.wanted_ranges import Floats, WantedRanges

T = TypeVar("T")

AGE = "age'"


class IndexRouter:
    """The queries by their numbers, each with its condition; many at once in `blocks`.

    `starts`: the clocks of those that began late. `windows`: by column that says when a row came into a window, the
    length that this window has for each query; `aged`: rows may be older than some of these, so they are tested, too.
    `shown`: by query, the columns that it shows; None: all show all.
    """

    def __init__(
        self,
        conditions: Mapping[int, Condition],
        starts: Mapping[int, int] | None = None,
        windows: Mapping[str, Mapping[int, int]] | None = None,
        aged: bool = False,
        shown: Mapping[int, Collection[str]] | None = None,
        blocks: Sequence[RoutedColumns] = (),
    ) -> None:
        self.conditions, self.blocks = dict(conditions), tuple(blocks)
        self.late, self.windows, self.aged = dict(starts or {}), dict(windows or {}), aged
        self._prepare(None if shown is None else {q: tuple(columns) for q, columns in shown.items()})

    def _prepare(self, shown: Mapping[int, tuple[str, ...]] | None) -> None:
        self._may_age: dict[str, str] = {f"{AGE}{c}": c for c in self.windows} if self.aged else {}
        self._tests = {q: self._with_ages(q, c) for q, c in self.conditions.items()}
        self._columns = [self._with_ages_of_many(b) for b in self.blocks]
        users: dict[Condition, list[int]] = {}
        for query, condition in self._tests.items():
            users.setdefault(condition, []).append(query)
        self._users = {condition: tuple(queries) for condition, queries in users.items()}
        every: list[Conditions] = [*self._users, *self._columns]
        self._index = PredicateIndex(c for c in every if c.boxes)
        self._tables = {space: self._cell_members(space) for space in self._index.spaces}
        self._most = max([*self.conditions, *(int(b.numbers[-1]) for b in self.blocks)], default=0)
        self._ends: dict[str, WantedRanges] = {}  # by column, where queries want its values
        self._parts: dict[tuple[int, ...], IndexRouter] | None = None  # by kind, for those who ask for sets
        self._asked_for_sets = False
        self._kinds: dict[tuple[int, ...], int] = {}
        self._many: Counter[tuple[int, ...]] = Counter()  # queries and blocks of each kind
        self._class = np.zeros(self._most + 1, np.int64)
        for query in self.conditions:
            self._classify(query)
        for block in self.blocks:
            self._class[block.numbers] = self._class_of(self._kind(block))
        self.shown = None if shown is None else ShownColumns(shown, self.blocks, self._most + 1)
        self._look()

    def _look(self) -> None:
        """Note what follows from the index and from who there is."""
        found = {sql: axis.attribute for sql, axis in self._index.axes.items()}
        self._copied = {sql: a.reads[0] for sql, a in found.items() if len(a.reads) == 1 and sql == quote(a.reads[0])}
        self._computed = [a for sql, a in found.items() if sql not in self._copied]
        self.reads = tuple(dict.fromkeys(c for a in found.values() for c in a.reads))
        self.ages = {age: c for age, c in self._may_age.items() if age in self.reads}
        self._bounded: dict[str, tuple[Floats, Floats]] = {}
        self.lives: Lives | None = None
        if self.late or self.windows or any(b.start != BEGINNING for b in self.blocks):
            by = np.array(list(self._kinds), np.int64).reshape(len(self._kinds), 1 + len(self.windows))
            self.lives = Lives(by[:, 0], {c: by[:, 1 + i] for i, c in enumerate(self.windows)})

    def _cell_members(self, space: CellSpace) -> CellMembers:
        """The queries of the cells of one space."""
        of = space.number
        mine = [(of[c], q) for c in space.conditions if isinstance(c, Condition) for q in self._users.get(c, ())]
        many = [
            (of[c] + np.flatnonzero(b.alive), b.there)
            for b, c in zip(self.blocks, self._columns, strict=True)
            if c in of
        ]
        predicates = np.concatenate([np.array([p for p, _ in mine], np.int64), *(p for p, _ in many)])
        queries = np.concatenate([np.array([q for _, q in mine], np.int64), *(q for _, q in many)])
        return CellMembers(space, predicates, queries)

    def _with_ages(self, query: int, condition: Condition) -> Condition:
        for age, column in self._may_age.items():
            size = self.windows[column][query]
            if size != INF:
                young = within(Attribute(quote(age), pa.int64(), (age,)), (None, size))
                condition = both(condition, young)
        return condition

    def _with_ages_of_many(self, block: RoutedColumns) -> ConditionColumns:
        conditions = block.conditions
        for age, column in self._may_age.items():
            size = block.sizes[column]
            if size != INF:
                young = Attribute(quote(age), pa.int64(), (age,))
                conditions = both_within(conditions, young, None, np.full(len(conditions), size))
        return conditions

    # who begins and sees rows alike is of one kind

    def _classify(self, query: int) -> None:
        self._class[query] = self._class_of(self._kind_of(query))

    def _class_of(self, kind: tuple[int, ...]) -> int:
        self._many[kind] += 1
        return self._kinds.setdefault(kind, len(self._kinds))

    def _kind_of(self, query: int) -> tuple[int, ...]:
        return (self.late.get(query, BEGINNING), *(sizes[query] for sizes in self.windows.values()))

    def _kind(self, block: RoutedColumns) -> tuple[int, ...]:
        return (block.start, *(block.sizes[column] for column in self.windows))

    def classes(self, queries: Int64s) -> Int64s:
        """The classes of queries, if they have `lives`."""
        found: Int64s = self._class[queries]
        return found

    def lists(self, column: str) -> Bools | None:
        """By query: whether it shows a column; None: all do."""
        return None if self.shown is None else self.shown.by(column)

    # others come and go

    def like(self, windows: Collection[str], aged: bool, shows: bool, blocks: Sequence[RoutedColumns]) -> bool:
        """Whether it may be `changed` to a router of these windows, with these blocks."""
        same = [*self.windows] == [*windows] and self.aged == aged and (self.shown is not None) == shows
        return same and len(blocks) == len(self.blocks) and all(map(same_block, blocks, self.blocks))

    def changed(
        self,
        conditions: Mapping[int, Condition],
        gone: Collection[int] = (),
        starts: Mapping[int, int] | None = None,
        windows: Mapping[str, Mapping[int, int]] | None = None,
        shown: Mapping[int, tuple[str, ...]] | None = None,
    ) -> IndexRouter:
        """The router with some queries as they are here, new or not, and without those that are gone.

        Costs what changes, beside copies of tables. This router stays what it is.
        """
        found = IndexRouter.__new__(IndexRouter)
        found.__dict__.update({k: v for k, v in self.__dict__.items() if k != "queries"})
        gone = [q for q in gone if q in self.conditions]
        before = [q for q in conditions if q in self.conditions]
        found.conditions = _without(self.conditions, gone, conditions)
        found.late = _without(self.late, [*gone, *before], starts or {})
        found.windows = {c: _without(sizes, gone, (windows or {})[c]) for c, sizes in self.windows.items()}
        new = {q: found._with_ages(q, c) for q, c in conditions.items()}
        old = {q: self._tests[q] for q in [*gone, *before]}
        found._tests = _without(self._tests, gone, new)
        found._most = max([self._most, *new])
        found._put_into_cells(old, new)
        found._put_into_kinds(self, old, new)
        found.shown = None if self.shown is None else self.shown.changed(shown or {}, gone, found._most + 1)
        found._ends = {}
        for column, ends in self._ends.items():
            mine = found._ends[column] = ends.copy(found._most + 1)
            for query in gone:
                mine.drop(query)
            for query, condition in conditions.items():
                mine.put(query, condition, quote(column))
        found._look()
        return found

    def _put_into_cells(self, old: Mapping[int, Condition], new: Mapping[int, Condition]) -> None:
        """Have other conditions for some queries, in the index and in the lists of its cells."""
        self._users = users = dict(self._users)
        for query, condition in old.items():
            users[condition] = tuple(q for q in users[condition] if q != query)
        for query, condition in new.items():
            users[condition] = (*users.get(condition, ()), query)
        touched = dict.fromkeys(c for c in (*old.values(), *new.values()) if c.boxes)
        index = self._index.copy()
        was = {c: (index.spaces[k], i) for c in touched if (at := index.home.get(c)) is not None for k, i in [at]}
        index.changed([c for c in touched if users[c] and c not in was], [c for c in was if not users[c]])
        for condition in [c for c in {*old.values(), *new.values()} if not users[c]]:
            del users[condition]
        self._index, before = index, self._tables
        self._tables = {s: before[s] if s in before else self._cell_members(s) for s in index.spaces}
        moves: dict[CellSpace, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
        for which, queries in enumerate((new, old)):
            for query, condition in queries.items():
                if condition not in was and condition in index.home:
                    k, i = index.home[condition]
                    was[condition] = (index.spaces[k], i)
                if condition in was and was[condition][0] in self._tables and was[condition][0] in before:
                    space, i = was[condition]
                    moves.setdefault(space, ([], []))[which].append((i, query))
        for space, (come, left) in moves.items():
            self._tables[space] = self._tables[space].changed(come, left)

    def _put_into_kinds(self, before: IndexRouter, old: Mapping[int, Condition], new: Mapping[int, Condition]) -> None:
        self._kinds, self._many, parts = dict(before._kinds), before._many.copy(), before._parts
        if parts is None and before._asked_for_sets and before.lives is None:  # those who come may begin late
            parts = {(BEGINNING,): before._all_alike()}
        left, come = {q: before._kind_of(q) for q in old}, {q: self._kind_of(q) for q in new}
        for kind in left.values():
            self._many[kind] -= 1
        self._class = np.append(before._class, np.zeros(self._most + 1 - len(before._class), np.int64))
        for query in new:
            self._classify(query)
        if any(not self._many[kind] for kind in left.values()):
            there = [kind for kind in self._kinds if self._many[kind]]
            number = {kind: i for i, kind in enumerate(there)}
            self._class = np.array([number.get(kind, 0) for kind in self._kinds], np.int64)[self._class]
            self._kinds, self._many = number, Counter({kind: self._many[kind] for kind in there})
        if parts is None:
            return
        self._parts = {}
        for kind in self._kinds:
            mine = {q: new[q] for q, k in come.items() if k == kind}
            part = parts.get(kind) or IndexRouter({})
            gone = [q for q, k in left.items() if k == kind and q not in mine]
            self._parts[kind] = part.changed(mine, gone) if mine or gone else part

    @cached_property
    def queries(self) -> Int64s:
        """The numbers of all queries, in order."""
        own = np.array(list(self.conditions), np.int64)
        return np.sort(np.concatenate([own, *(b.there for b in self.blocks)]))

    @property
    def wants_all(self) -> bool:
        """Whether some query wants every row."""
        return EVERYTHING in self._users

    def some(self, most: int) -> Iterator[Condition]:
        """The conditions of at most so many queries."""
        many = (b.conditions.condition(int(i)) for b in self.blocks for i in np.flatnonzero(b.alive)[:most])
        return islice(chain(self.conditions.values(), many), most)

    def __getstate__(self) -> tuple[Any, ...]:
        rest = (self.late, self.windows, self.aged, self.shown and self.shown.by_query, self.blocks)
        return (list(self.conditions), packed(list(self.conditions.values())), *rest)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        numbers, conditions, self.late, self.windows, self.aged, shown, self.blocks = state
        self.conditions = dict(zip(numbers, read(conditions), strict=True))
        self._prepare(shown)

    def __str__(self) -> str:
        axes = [a for a in self._index.axes if AGE not in a]
        lengths = [
            f"{len({*sizes.values(), *(b.sizes[column] for b in self.blocks)})} windows"
            for column, sizes in self.windows.items()
        ]
        shown = 0 if self.shown is None else len(self.shown.lists)
        lists = [f"{shown} select lists"] if shown > 1 else []
        return f"{len(self.queries)} queries by {', '.join([*axes, *lengths, *lists]) or 'nothing'}"

    @property
    def spaces(self) -> tuple[CellSpace, ...]:
        """The spaces of its index."""
        return tuple(self._index.spaces)

    def _cells(self, columns: Mapping[str, pa.Array], rows: int) -> list[Int64s]:
        """Every row's cell in every space."""
        values = {sql: columns[c] for sql, c in self._copied.items()}
        if self._computed:
            read_ = {c: columns[c] for a in self._computed for c in a.reads}
            found = scalar.evaluate(read_, rows, [(a.sql, a.type) for a in self._computed])
            values |= zip((a.sql for a in self._computed), found, strict=True)
        places = self._index.places(values)
        return [self._index.cells(k, places, rows) for k in range(len(self._index.spaces))]

    def _found(self, columns: Mapping[str, pa.Array], rows: int) -> Iterator[tuple[CellMembers, Int64s]]:
        """The lists of every space, and every row's cell in it."""
        cells = self._cells(columns, rows)
        return ((self._tables[space], mine) for space, mine in zip(self._index.spaces, cells, strict=True))

    def pairs(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[Int64s, Int64s]:
        """(row, query) for all that want it, in the order of rows."""
        found = [t.pairs(cells) for t, cells in self._found(columns, rows)]
        if len(found) == 1:
            return found[0]
        none = np.zeros(0, np.int64)
        row, query = (np.concatenate([none, *(f[i] for f in found)]) for i in (0, 1))
        order = np.argsort(row, kind="stable")
        return row[order], query[order]

    def sets(
        self, columns: Mapping[str, pa.Array], rows: int, whole: bool = False
    ) -> tuple[Int64s, pa.DictionaryArray, Int64s | None]:
        """(row, set of queries of one class) for all rows that somebody wants, and the class; `whole`: of all."""
        if self.lives is not None and not whole:
            if self._parts is None:
                self._parts = self._by_kind()
            routers = [self._parts[kind] for kind in self._kinds]
            parts = [router.sets({c: columns[c] for c in router.reads}, rows)[:2] for router in routers]
            kinds = np.repeat(np.arange(len(parts)), [len(row) for row, _ in parts])
            return *_joined(parts), kinds
        self._asked_for_sets |= not whole
        found = [t.sets(cells) for t, cells in self._found(columns, rows)]
        return *_joined(found), None

    def _all_alike(self) -> IndexRouter:
        """The router of those who all see rows for as long as they live, as one that is of one kind."""
        found = IndexRouter.__new__(IndexRouter)
        found.__dict__.update(self.__dict__)
        found.shown, found._parts, found._asked_for_sets = None, None, False
        return found

    def _by_kind(self) -> dict[tuple[int, ...], IndexRouter]:
        mine: dict[tuple[int, ...], dict[int, Condition]] = {kind: {} for kind in self._kinds}
        many: dict[tuple[int, ...], list[RoutedColumns]] = {kind: [] for kind in self._kinds}
        for query, condition in self._tests.items():
            mine[self._kind_of(query)][query] = condition
        for block, aged in zip(self.blocks, self._columns, strict=True):
            many[self._kind(block)].append(RoutedColumns(block.numbers, aged, block.alive))
        return {kind: IndexRouter(mine[kind], blocks=many[kind]) for kind in self._kinds}

    def bounds(self, column: str, told: Int64s) -> tuple[Floats, Floats] | None:
        """By the numbers by which rows are told apart: between which values a number must lie that somebody wants."""
        if column not in self._bounded:
            if column not in self._ends:
                self._ends[column] = WantedRanges.of(column, self._most + 1, self.conditions, self.blocks)
            self._bounded[column] = self._ends[column].together()
        least, most = (ends[told] for ends in self._bounded[column])
        return None if (least == -inf).all() and (most == inf).all() else (least, most)

    def wanted(self, columns: Mapping[str, pa.Array], rows: int) -> Bools:
        """Whether any query wants a row."""
        some = np.zeros(rows, np.bool_)
        for table, cells in self._found(columns, rows):
            some |= table.wanted(cells)
        return some


def _without(known: Mapping[int, T], gone: Iterable[int], new: Mapping[int, T]) -> dict[int, T]:
    """Some queries' things without those of some, and with those of others."""
    found = {**known, **new}
    for query in gone:
        if query not in new:
            found.pop(query, None)
    return found


def _joined(parts: list[tuple[Int64s, pa.DictionaryArray]]) -> tuple[Int64s, pa.DictionaryArray]:
    if len(parts) == 1:
        return parts[0]
    at = np.concatenate([np.zeros(0, np.int64), *(row for row, _ in parts)])
    return at, pa.concat_arrays([pa.array([], QUERIES_TYPE), *(sets for _, sets in parts)])
