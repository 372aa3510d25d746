"""Which queries want a row, by the predicate index.

A row has one cell in each space of the index (`sharing/index.py`), and a cell has the queries whose conditions hold in
it. Cells are few next to rows, so a cell's queries are found once and remembered.

Cost: per row a binary search per attribute and a lookup per space; then one step per pair (row, query).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING, INF
from windrow.operators.query_sets import packed as packed_set
from windrow.operators.terms import QUERIES_TYPE, QUERY, QUERY_TYPE, Lives
from windrow.scalar_engine import quote
from windrow.sharing.cells import CellSpace
from windrow.sharing.conditions import Attribute, Condition, both, packed, read, within
from windrow.sharing.index import PredicateIndex
from windrow.sharing.kernels import members_of_cells

ALL_CELLS = 1 << 12
"""The queries of all cells of a space are found at once if it has no more than these."""

_AGE = "age'"
_QUERY = Attribute(quote(QUERY), QUERY_TYPE, (QUERY,))


def of_query(number: int, condition: Condition) -> Condition:
    """The condition for rows that are the query's already."""
    return both(within(_QUERY, (number, number + 1)), condition)


def renamed(condition: Condition, names: Mapping[str, str]) -> Condition:
    """A condition that holds at least where this one does, and tests plain columns by other names only."""
    boxes = []
    for box in condition.boxes:
        plain = [(a.reads[0], a, v) for a, v in box if len(a.reads) == 1 and a.sql == quote(a.reads[0])]
        mine = sorted(((names[c], a, v) for c, a, v in plain if c in names), key=lambda m: m[0])
        boxes.append(tuple((Attribute(quote(name), a.type, (name,)), v) for name, a, v in mine))
    return Condition(tuple(boxes))


class IndexRouter:
    """The queries by their numbers, each with its condition.

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
    ) -> None:
        self.conditions = dict(conditions)
        self.late, self.windows, self.aged = dict(starts or {}), dict(windows or {}), aged
        self.shown = None if shown is None else {q: tuple(columns) for q, columns in shown.items()}
        self._prepare()

    def _prepare(self) -> None:
        self.ages: dict[str, str] = {f"{_AGE}{c}": c for c in self.windows} if self.aged else {}
        conditions = {q: self._with_ages(q, c) for q, c in self.conditions.items()}
        found: dict[str, Attribute] = {}
        for condition in conditions.values():
            found |= condition.attributes
        self._copied = {sql: a.reads[0] for sql, a in found.items() if len(a.reads) == 1 and sql == quote(a.reads[0])}
        self._computed = [a for sql, a in found.items() if sql not in self._copied]
        self.reads = tuple(dict.fromkeys(c for a in found.values() for c in a.reads))
        self.ages = {age: c for age, c in self.ages.items() if age in self.reads}
        self._index = PredicateIndex(c for c in conditions.values() if c.boxes)
        self._tables = [_Cells(k, p, self._index, conditions) for k, p in enumerate(self._index.spaces)]
        self._classify()
        columns = {c for mine in (self.shown or {}).values() for c in mine}
        self._lists = {c: by for c in columns if (by := self._shows(c)) is not None}

    def _with_ages(self, query: int, condition: Condition) -> Condition:
        for age, column in self.ages.items():
            size = self.windows[column][query]
            if size != INF:
                young = within(Attribute(quote(age), pa.int64(), (age,)), (None, size))
                condition = both(condition, young)
        return condition

    def _classify(self) -> None:
        """Queries that begin and see rows alike are a class."""
        self.lives: Lives | None = None
        if not self.late and not self.windows:
            return
        kinds: dict[tuple[int, ...], int] = {}
        self._class = np.zeros(max(self.conditions, default=0) + 1, np.int64)
        for query in self.conditions:
            kind = (self.late.get(query, BEGINNING), *(sizes[query] for sizes in self.windows.values()))
            self._class[query] = kinds.setdefault(kind, len(kinds))
        by = np.array(list(kinds), np.int64).reshape(len(kinds), 1 + len(self.windows))
        self.lives = Lives(by[:, 0], {c: by[:, 1 + i] for i, c in enumerate(self.windows)})

    def classes(self, queries: Int64s) -> Int64s:
        """The classes of queries, if they have `lives`."""
        found: Int64s = self._class[queries]
        return found

    def _shows(self, column: str) -> Bools | None:
        assert self.shown is not None
        found = np.zeros(max(self.conditions, default=0) + 1, np.bool_)
        found[[q for q in self.conditions if column in self.shown[q]]] = True
        return None if found[list(self.conditions)].all() else found

    def lists(self, column: str) -> Bools | None:
        """By query: whether it shows a column; None: all do."""
        return self._lists.get(column)

    @property
    def queries(self) -> Collection[int]:
        """The numbers of all queries."""
        return self.conditions.keys()

    def __getstate__(self) -> tuple[Any, ...]:
        rest = (self.late, self.windows, self.aged, self.shown)
        return (list(self.conditions), packed(list(self.conditions.values())), *rest)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        numbers, conditions, self.late, self.windows, self.aged, self.shown = state
        self.conditions = dict(zip(numbers, read(conditions), strict=True))
        self._prepare()

    def __str__(self) -> str:
        axes = [a for a in self._index.axes if _AGE not in a]
        lengths = [f"{len(set(sizes.values()))} windows" for sizes in self.windows.values()]
        lists = [f"{len(set(self.shown.values()))} select lists"] if self._lists and self.shown else []
        return f"{len(self.conditions)} queries by {', '.join([*axes, *lengths, *lists]) or 'nothing'}"

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

    def sets(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[Int64s, pa.DictionaryArray, Int64s | None]:
        """(row, set of queries of one class) for all rows that somebody wants, and the class."""
        if self.lives is not None:
            parts = [router.sets({c: columns[c] for c in router.reads}, rows)[:2] for router in self._by_class]
            kind = np.repeat(np.arange(len(parts)), [len(row) for row, _ in parts])
            return *_joined(parts), kind
        found = [t.sets(cells) for t, cells in zip(self._tables, self._cells(columns, rows), strict=True)]
        return *_joined(found), None

    @cached_property
    def _by_class(self) -> list[IndexRouter]:
        assert self.lives is not None
        mine: list[dict[int, Condition]] = [{} for _ in self.lives.start]
        for query, condition in self.conditions.items():
            mine[self._class[query]][query] = self._with_ages(query, condition)
        return [IndexRouter(conditions) for conditions in mine]

    def bounds(self, column: str) -> dict[int, tuple[float, float]]:
        """By query: between which values a number must lie that it wants."""
        found = {q: _bounds(c, quote(column)) for q, c in self.conditions.items()}
        return {q: b for q, b in found.items() if b != (-inf, inf)}

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


class _Cells:
    """The queries of the cells of one space."""

    def __init__(
        self, number: int, space: CellSpace, index: PredicateIndex, conditions: Mapping[int, Condition]
    ) -> None:
        self.space = space
        of = {c: i for c, (k, i) in index.home.items() if k == number}
        mine = [(of[c], q) for q, c in conditions.items() if c in of]
        mine.sort()
        predicates = np.array([p for p, _ in mine], np.int64)
        self._queries = np.array([q for _, q in mine], np.int64)
        self._first = np.searchsorted(predicates, np.arange(len(space.conditions) + 1))
        self._all = self._members(np.arange(space.cells)) if space.cells <= ALL_CELLS else None

    def _members(self, cells: Int64s) -> tuple[Int64s, Int64s]:
        """The queries of cells: (first of each cell, queries)."""
        at, predicates = self.space.members(cells)
        found: tuple[Int64s, Int64s] = members_of_cells(at, predicates, self._first, self._queries)
        return found

    def _found(self, cells: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """(rows that are in a cell, the place of each one's cell, first query of each cell, queries)."""
        inside = np.flatnonzero(cells >= 0)
        mine = cells if len(inside) == len(cells) else cells[inside]
        if self._all is not None:
            return inside, mine, *self._all
        distinct, place = np.unique(mine, return_inverse=True)
        return inside, place.reshape(-1), *self._members(distinct)

    def pairs(self, cells: Int64s) -> tuple[Int64s, Int64s]:
        """(row, query) by the cells of rows."""
        rows, place, first, queries = self._found(cells)
        counts = np.diff(first)[place]
        row = np.repeat(np.arange(len(rows)), counts)
        within_ = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows[row], queries[first[place][row] + within_]

    def sets(self, cells: Int64s) -> tuple[Int64s, pa.DictionaryArray]:
        """(row, set of queries) by the cells of rows, in the order of rows."""
        rows, place, first, queries = self._found(cells)
        some = np.diff(first)[place] > 0
        if not some.all():
            rows, place = rows[some], place[some]
        used = np.zeros(len(first) - 1, np.bool_)
        used[place] = True
        code = np.cumsum(used) - 1
        spans = [(int(first[c]), int(first[c + 1])) for c in np.flatnonzero(used)]
        sets = pa.array([packed_set(np.sort(queries[low:high])) for low, high in spans], pa.binary())
        return rows, pa.DictionaryArray.from_arrays(pa.array(code[place].astype(np.int32)), sets)

    def wanted(self, cells: Int64s) -> Bools:
        """Whether any query is in a row's cell."""
        rows, place, first, _ = self._found(cells)
        some = np.zeros(len(cells), np.bool_)
        some[rows[np.diff(first)[place] > 0]] = True
        return some


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
