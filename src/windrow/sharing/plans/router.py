"""Which queries want a row, by the predicate index.

A row has one cell in each space of the index (`sharing/index.py`), and a cell has the queries whose conditions hold in
it. Cells are few next to rows, so a cell's queries are found once and remembered.

Cost: per row a binary search per attribute and a lookup per space; then one step per pair (row, query).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING, INF
from windrow.operators.terms import QUERIES_TYPE, QUERY, QUERY_TYPE, Lives
from windrow.scalar_engine import quote
from windrow.sharing.boxes import Conditions
from windrow.sharing.cell_members import CellMembers
from windrow.sharing.condition_columns import NONE, ConditionColumns, both_within
from windrow.sharing.conditions import Attribute, Condition, both, packed, read, within
from windrow.sharing.index import PredicateIndex

Floats = npt.NDArray[np.float64]

_AGE = "age'"
_QUERY = Attribute(quote(QUERY), QUERY_TYPE, (QUERY,))


def of_query(number: int, condition: Condition) -> Condition:
    """The condition for rows that are the query's already."""
    return both(within(_QUERY, (number, number + 1)), condition)


def of_queries(numbers: Int64s, conditions: ConditionColumns) -> ConditionColumns:
    """The same of many queries."""
    return both_within(conditions, _QUERY, numbers, numbers + 1)


def renamed(condition: Condition, names: Mapping[str, str]) -> Condition:
    """A condition that holds at least where this one does, and tests plain columns by other names only."""
    boxes = []
    for box in condition.boxes:
        plain = [(a.reads[0], a, v) for a, v in box if len(a.reads) == 1 and a.sql == quote(a.reads[0])]
        mine = sorted(((names[c], a, v) for c, a, v in plain if c in names), key=lambda m: m[0])
        boxes.append(tuple((Attribute(quote(name), a.type, (name,)), v) for name, a, v in mine))
    return Condition(tuple(boxes))


@dataclass(frozen=True, eq=False)
class RoutedColumns:
    """Many queries that differ in their conditions only: their numbers, in order, and which of them are there.

    `start`, `sizes` and `shown`: as an `IndexRouter` has them for each query, the same for all of these.
    """

    numbers: Int64s
    conditions: ConditionColumns
    alive: Bools
    start: int = BEGINNING
    sizes: Mapping[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    @property
    def there(self) -> Int64s:
        """The numbers of those that are there."""
        return self.numbers[self.alive]


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
        self.shown = None if shown is None else {q: tuple(columns) for q, columns in shown.items()}
        self._prepare()

    def _prepare(self) -> None:
        self.ages: dict[str, str] = {f"{_AGE}{c}": c for c in self.windows} if self.aged else {}
        conditions = {q: self._with_ages(q, c) for q, c in self.conditions.items()}
        blocks = [replace(b, conditions=self._with_ages_of_many(b)) for b in self.blocks]
        found: dict[str, Attribute] = {}
        every: list[Conditions] = [*conditions.values(), *(b.conditions for b in blocks)]
        for each in every:
            found |= each.attributes
        self._copied = {sql: a.reads[0] for sql, a in found.items() if len(a.reads) == 1 and sql == quote(a.reads[0])}
        self._computed = [a for sql, a in found.items() if sql not in self._copied]
        self.reads = tuple(dict.fromkeys(c for a in found.values() for c in a.reads))
        self.ages = {age: c for age, c in self.ages.items() if age in self.reads}
        self._index = PredicateIndex(c for c in every if c.boxes)
        self._tables = [self._cell_members(k, conditions, blocks) for k in range(len(self._index.spaces))]
        self._most = max([*self.conditions, *(int(b.numbers[-1]) for b in blocks)], default=0)
        self._bounded: dict[str, tuple[Floats, Floats]] = {}
        self._classify()
        lists = () if self.shown is None else (*self.shown.values(), *(b.shown for b in blocks))
        self._lists = {c: self._shows(c) for c in {c for mine in lists for c in mine}}
        self._nobody = np.zeros(self._most + 1, np.bool_)

    def _cell_members(
        self, number: int, conditions: Mapping[int, Condition], blocks: Sequence[RoutedColumns]
    ) -> CellMembers:
        """The queries of the cells of one space."""
        of = {c: i for c, (k, i) in self._index.home.items() if k == number}
        mine = [(of[c], q) for q, c in conditions.items() if c in of]
        many = [(of[b.conditions] + np.flatnonzero(b.alive), b.there) for b in blocks if b.conditions in of]
        predicates = np.concatenate([np.array([p for p, _ in mine], np.int64), *(p for p, _ in many)])
        queries = np.concatenate([np.array([q for _, q in mine], np.int64), *(q for _, q in many)])
        return CellMembers(self._index.spaces[number], predicates, queries)

    def _with_ages(self, query: int, condition: Condition) -> Condition:
        for age, column in self.ages.items():
            size = self.windows[column][query]
            if size != INF:
                young = within(Attribute(quote(age), pa.int64(), (age,)), (None, size))
                condition = both(condition, young)
        return condition

    def _with_ages_of_many(self, block: RoutedColumns) -> ConditionColumns:
        conditions = block.conditions
        for age, column in self.ages.items():
            size = block.sizes[column]
            if size != INF:
                young = Attribute(quote(age), pa.int64(), (age,))
                conditions = both_within(conditions, young, None, np.full(len(conditions), size))
        return conditions

    def _classify(self) -> None:
        """Queries that begin and see rows alike are a class."""
        self.lives: Lives | None = None
        if not self.late and not self.windows and all(b.start == BEGINNING for b in self.blocks):
            return
        kinds: dict[tuple[int, ...], int] = {}
        self._class = np.zeros(self._most + 1, np.int64)
        for query in self.conditions:
            kind = (self.late.get(query, BEGINNING), *(sizes[query] for sizes in self.windows.values()))
            self._class[query] = kinds.setdefault(kind, len(kinds))
        for block in self.blocks:
            self._class[block.numbers] = kinds.setdefault(self._kind(block), len(kinds))
        by = np.array(list(kinds), np.int64).reshape(len(kinds), 1 + len(self.windows))
        self.lives = Lives(by[:, 0], {c: by[:, 1 + i] for i, c in enumerate(self.windows)})

    def _kind(self, block: RoutedColumns) -> tuple[int, ...]:
        return (block.start, *(block.sizes[column] for column in self.windows))

    def classes(self, queries: Int64s) -> Int64s:
        """The classes of queries, if they have `lives`."""
        found: Int64s = self._class[queries]
        return found

    def _shows(self, column: str) -> Bools | None:
        assert self.shown is not None
        found = np.zeros(self._most + 1, np.bool_)
        found[[q for q in self.conditions if column in self.shown[q]]] = True
        for block in self.blocks:
            found[block.numbers] = column in block.shown
        everybody = found[list(self.conditions)].all() and all(column in b.shown for b in self.blocks)
        return None if everybody else found

    def lists(self, column: str) -> Bools | None:
        """By query: whether it shows a column; None: all do."""
        return None if self.shown is None else self._lists.get(column, self._nobody)

    @cached_property
    def queries(self) -> Int64s:
        """The numbers of all queries, in order."""
        own = np.array(list(self.conditions), np.int64)
        return np.sort(np.concatenate([own, *(b.there for b in self.blocks)]))

    def some(self, most: int) -> Iterator[Condition]:
        """The conditions of at most so many queries."""
        many = (b.conditions.condition(int(i)) for b in self.blocks for i in np.flatnonzero(b.alive)[:most])
        return islice(chain(self.conditions.values(), many), most)

    def __getstate__(self) -> tuple[Any, ...]:
        rest = (self.late, self.windows, self.aged, self.shown, self.blocks)
        return (list(self.conditions), packed(list(self.conditions.values())), *rest)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        numbers, conditions, self.late, self.windows, self.aged, self.shown, self.blocks = state
        self.conditions = dict(zip(numbers, read(conditions), strict=True))
        self._prepare()

    def __str__(self) -> str:
        axes = [a for a in self._index.axes if _AGE not in a]
        lengths = [
            f"{len({*sizes.values(), *(b.sizes[column] for b in self.blocks)})} windows"
            for column, sizes in self.windows.items()
        ]
        shown = {*(self.shown or {}).values(), *(b.shown for b in self.blocks)}
        lists = [f"{len(shown)} select lists"] if len(shown) > 1 else []
        return f"{len(self.queries)} queries by {', '.join([*axes, *lengths, *lists]) or 'nothing'}"

    def _cells(self, columns: Mapping[str, pa.Array], rows: int) -> list[Int64s]:
        """Every row's cell in every space."""
        values = {sql: columns[c] for sql, c in self._copied.items()}
        if self._computed:
            read_ = {c: columns[c] for a in self._computed for c in a.reads}
            found = scalar.evaluate(read_, rows, [(a.sql, a.type) for a in self._computed])
            values |= zip((a.sql for a in self._computed), found, strict=True)
        places = self._index.places(values)
        return [self._index.cells(k, places, rows) for k in range(len(self._index.spaces))]

    def pairs(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[Int64s, Int64s]:
        """(row, query) for all that want it, in the order of rows."""
        found = [t.pairs(cells) for t, cells in zip(self._tables, self._cells(columns, rows), strict=True)]
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
            parts = [router.sets({c: columns[c] for c in router.reads}, rows)[:2] for router in self._by_class]
            kind = np.repeat(np.arange(len(parts)), [len(row) for row, _ in parts])
            return *_joined(parts), kind
        found = [t.sets(cells) for t, cells in zip(self._tables, self._cells(columns, rows), strict=True)]
        return *_joined(found), None

    @cached_property
    def _by_class(self) -> list[IndexRouter]:
        assert self.lives is not None
        mine: list[dict[int, Condition]] = [{} for _ in self.lives.start]
        many: list[list[RoutedColumns]] = [[] for _ in mine]
        for query, condition in self.conditions.items():
            mine[self._class[query]][query] = self._with_ages(query, condition)
        for block in self.blocks:
            aged = self._with_ages_of_many(block)
            many[self._class[block.numbers[0]]].append(RoutedColumns(block.numbers, aged, block.alive))
        return [IndexRouter(conditions, blocks=blocks) for conditions, blocks in zip(mine, many, strict=True)]

    def bounds(self, column: str, told: Int64s) -> tuple[Floats, Floats] | None:
        """By the numbers by which rows are told apart: between which values a number must lie that somebody wants."""
        if column not in self._bounded:
            least, most = np.full(self._most + 1, inf), np.full(self._most + 1, -inf)
            for query, condition in self.conditions.items():
                low, high = _bounds(condition, quote(column))
                mine = _bounds(condition, _QUERY.sql)[0]
                at = query if mine == -inf else int(mine)
                least[at], most[at] = min(least[at], low), max(most[at], high)
            for block in self.blocks:
                lows, highs = _bounds_of_many(block.conditions, quote(column))
                of = _bounds_of_many(block.conditions, _QUERY.sql)[0]
                places = np.where(of == -inf, block.numbers, of).astype(np.int64)
                np.minimum.at(least, places, lows)
                np.maximum.at(most, places, highs)
            self._bounded[column] = least, most
        least, most = (ends[told] for ends in self._bounded[column])
        return None if (least == -inf).all() and (most == inf).all() else (least, most)

    def wanted(self, columns: Mapping[str, pa.Array], rows: int) -> Bools:
        """Whether any query wants a row."""
        some = np.zeros(rows, np.bool_)
        for table, cells in zip(self._tables, self._cells(columns, rows), strict=True):
            some |= table.wanted(cells)
        return some


def _joined(parts: list[tuple[Int64s, pa.DictionaryArray]]) -> tuple[Int64s, pa.DictionaryArray]:
    if len(parts) == 1:
        return parts[0]
    at = np.concatenate([np.zeros(0, np.int64), *(row for row, _ in parts)])
    return at, pa.concat_arrays([pa.array([], QUERIES_TYPE), *(sets for _, sets in parts)])


def _bounds(condition: Condition, sql: str) -> tuple[float, float]:
    """The least and the greatest value of a number in any box of a condition."""
    low, high = inf, -inf
    for box in condition.boxes:
        least, most = -inf, inf
        for attribute, values in box:
            if attribute.sql == sql and not values.null and values.spans:
                least = _value(values.spans[0][0], attribute.type, -inf)
                most = _value(values.spans[-1][1], attribute.type, inf)
        low, high = min(low, least), max(high, most)
    return low, high


def _bounds_of_many(conditions: ConditionColumns, sql: str) -> tuple[Floats, Floats]:
    """The same of many conditions."""
    low, high = np.full(len(conditions), inf), np.full(len(conditions), -inf)
    for box in conditions.boxes:
        least, most = np.full(len(conditions), -inf), np.full(len(conditions), inf)
        for attribute, ends in box.ends.items():
            if attribute.sql == sql and not ends.null:
                least = _values(ends.low, attribute.type, -inf)
                most = _values(ends.high, attribute.type, inf)
        low = np.where(box.some, np.minimum(low, least), low)
        high = np.where(box.some, np.maximum(high, most), high)
    return low, high


def _values(cuts: np.ndarray, type_: pa.DataType, otherwise: float) -> Floats:
    """The numbers that cuts stand for."""
    found: Floats = np.full(len(cuts), otherwise)
    if cuts.dtype == object:
        return found
    some = cuts != NONE
    if pa.types.is_float64(type_):
        bits = np.where(cuts < 0, cuts ^ np.int64(0x7FFFFFFFFFFFFFFF), cuts).view(np.float64)
        some &= ~np.isnan(bits)
        return np.where(some, bits, otherwise)
    if pa.types.is_decimal(type_):
        return np.where(some, cuts / 10.0**type_.scale, otherwise)
    return np.where(some, cuts.astype(np.float64), otherwise) if pa.types.is_signed_integer(type_) else found


def _value(cut: object, type_: pa.DataType, otherwise: float) -> float:
    """The number that a cut stands for (`sharing/spans.py`)."""
    if not isinstance(cut, int):
        return otherwise
    if pa.types.is_float64(type_):
        bits = cut ^ 0x7FFFFFFFFFFFFFFF if cut < 0 else cut
        value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
        return value if value == value else otherwise
    if pa.types.is_decimal(type_):
        return cut / 10.0**type_.scale
    return float(cut) if pa.types.is_signed_integer(type_) else otherwise
