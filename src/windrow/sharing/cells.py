"""Cells: a row's place among the predicates that test the same attributes.

Every tested attribute has an axis: the sorted cuts of all predicates on it. A row's place on an axis is one binary
search, whatever the number of predicates. A space holds predicates over one set of attributes, each as boxes of places.

Attributes on which boxes are narrow (equalities, IN lists, null tests, booleans, prefixes) are the space's keys: a row
first finds its key, and a row whose key no predicate has is in no cell. The other attributes make a grid, for every
key one of its own with the cuts of its own predicates only; a row in a cell that no predicate has is in none, too:

    sym = 3 AND price > 5                key 3   price   | <= 5 | 5..9 | > 9 |      cells 0 1 2    the first: [1, 3)
    sym = 3 AND price > 9                key 4   price   | <= 2 | 2..7 | > 7 |      cells 3 4 5    the third: [4, 5)
    sym = 4 AND price BETWEEN 3 AND 7

So there are about as many cells as predicates, however many values an attribute has. A predicate is a few runs of
cells, because the attribute with most places varies fastest. Where grids or runs would be too many (ranges on several
attributes of one key), a space keeps the boxes, and cells that occur are tested against the boxes of their key.

Cost per row: log(cuts) per attribute, and log(cuts of the key) per range. Cost of building: sorting the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np

from windrow.operators.aggregates.vectors import Bools, Int64s, distinct_values
from windrow.operators.radix import stable_order
from windrow.sharing.boxes import Conditions, PredicateBoxes
from windrow.sharing.conditions import Condition, packed, read
from windrow.sharing.kernels import locate, look_up, matches, nest

MOST_CELLS = 1 << 20
"""A space of more cells than this, and than a few per box, keeps its boxes instead."""
RUNS_PER_BOX = 32
"""So does one whose predicates would be more runs than this, on average."""
MOST_ADDITIONS = 1 << 16
"""Places are added up in a table of this size at most; beyond, they are searched among the cuts of their key."""
DENSE = 1 << 22
"""Keys are found in a table of this size at most; beyond, by binary search."""


class _Directory:
    """From the places of key attributes to the numbers of keys: one level per attribute."""

    def __init__(self) -> None:
        self._levels: list[tuple[int, Int64s, Int64s | None]] = []  # (size of the axis, codes in order, table)
        self.count = 1

    def add(self, known: Int64s, size: int, place: Int64s) -> Int64s:
        """Tell keys apart by one more attribute; the numbers of those that are given."""
        codes, number = np.unique(known * size + place, return_inverse=True)
        table = None
        if self.count * size <= DENSE:
            table = np.full(self.count * size, -1, np.int64)
            table[codes] = np.arange(len(codes))
        self._levels.append((size, codes, table))
        self.count = len(codes)
        return number.reshape(-1).astype(np.int64)

    def find(self, places: Sequence[Int64s], rows: int) -> Int64s:
        """The key of every row; -1 for none."""
        found: Int64s | None = None
        for (size, codes, table), place in zip(self._levels, places, strict=True):
            code = place if found is None else found * size + place
            if table is not None:
                known = table[code]  # a row that is lost already reads anything
            else:
                at = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
                known = np.where(codes[at] == code, at, -1)
            found = known if found is None else np.where(found < 0, -1, known)
        return np.zeros(rows, np.int64) if found is None else found


class CellSpace:
    """Predicates over one set of attributes, and the cells that tell them apart.

    `axes`: first the keys, of which there are `keys`, then the ranges that make each key's grid. `boxed`: there are no
    runs, cells are tested against boxes.
    """

    def __init__(self, conditions: Sequence[Conditions]) -> None:
        self.conditions = tuple(conditions)
        self.firsts = tuple(accumulate((len(c) for c in self.conditions), initial=0))[:-1]  # predicates of each
        self.predicates = sum(map(len, self.conditions))
        axes, boxes = PredicateBoxes.of_conditions(conditions)
        wide = [not boxes.narrow(a, axis.size) for a, axis in enumerate(axes)]
        order = sorted(range(len(axes)), key=lambda a: (wide[a], axes[a].size))  # most places vary fastest
        self.axes, self.keys = tuple(axes[a] for a in order), len(axes) - sum(wide)
        self._directory = _Directory()
        self._nest(PredicateBoxes(boxes.of, boxes.low[order], boxes.high[order]))

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(a.attribute.sql for a in self.axes)

    @cached_property
    def number(self) -> dict[Conditions, int]:
        """The number of each condition, and of the first of many."""
        return dict(zip(self.conditions, self.firsts, strict=True))

    @cached_property
    def packed(self) -> bytes:
        """The space for another process, or for a store; of many conditions as columns there is none."""
        return packed([c for c in self.conditions if isinstance(c, Condition)])

    # -- building ----------------------------------------------------------------------------------------------------

    def _nest(self, boxes: PredicateBoxes) -> None:
        """Number the keys; every box is in as many as it has places on the key attributes."""
        key = np.zeros(len(boxes), np.int64)
        for a in range(self.keys):
            which, place = boxes.places(a)
            boxes, key = boxes.take(which), self._directory.add(key[which], self.axes[a].size, place)
        order = stable_order(key)
        boxes = boxes.take(order)
        self._grids(PredicateBoxes(boxes.of, boxes.low[self.keys :], boxes.high[self.keys :]), key[order])

    def _grids(self, boxes: PredicateBoxes, key: Int64s) -> None:
        """Cut every key's grid where its own boxes end, and count the cells."""
        keys, ranges = self._directory.count, len(self.axes) - self.keys
        at, marks, sizes = np.zeros((ranges, keys + 1), np.int64), [], np.ones((ranges, keys), np.int64)
        for r in range(ranges):
            width = self.axes[self.keys + r].size + 1  # the end of an axis is a place, too
            low, high = key * width + boxes.low[r], key * width + boxes.high[r]
            inner = distinct_values(np.concatenate((low[boxes.low[r] > 0], high[boxes.high[r] < width - 1])))
            at[r] = np.searchsorted(inner, np.arange(keys + 1) * width)
            sizes[r] = np.diff(at[r]) + 1
            boxes.low[r] = locate(low, inner) - at[r][key]
            last = boxes.high[r] == width - 1
            boxes.high[r] = np.where(last, sizes[r][key], locate(high, inner) - at[r][key])
            marks.append(inner % width)
        begins = np.cumsum([0, *(len(m) for m in marks)])
        self._at, self._marks = at + begins[:-1, None], np.concatenate([*marks, np.zeros(0, np.int64)])
        if np.prod(sizes, axis=0, dtype=np.float64).sum() >= 2.0**62:
            raise OverflowError("a space has too many cells to number them")
        self.base = np.concatenate(([0], np.cumsum(np.prod(sizes, axis=0, dtype=np.int64))))
        self.cells = int(self.base[-1])
        self._sizes, self._boxes, self._key = sizes, boxes, key
        self._first = np.searchsorted(key, np.arange(keys + 1))  # box of each key
        runs = np.prod((boxes.high - boxes.low)[:-1], axis=0, dtype=np.float64).sum()
        few = self.cells <= max(MOST_CELLS, 8 * len(boxes)) and runs <= RUNS_PER_BOX * len(boxes) + 4096
        self.boxed = not few

    # -- rows and predicates -----------------------------------------------------------------------------------------

    def cell(self, places: Sequence[Int64s], rows: int) -> Int64s:
        """The cell of every row from its places on the space's own axes; -1 for none that a predicate has."""
        key = self._directory.find(places[: self.keys], rows)
        if self.keys == len(self.axes):
            return key  # a cell each
        found = np.empty(rows, np.int64)
        ranges = np.stack(places[self.keys :])
        if self._table is not None:
            look_up(key, ranges, *self._table, self.base, found)
        else:
            nest(key, ranges, self._at, self._marks, self.base, found)
        return found if self._wanted is None else np.where(self._wanted[found], found, -1)

    @cached_property
    def _wanted(self) -> Bools | None:
        """Which cells some predicate has; None if all are wanted, or if only boxes could tell."""
        if self.boxed:
            return None
        wanted = self.runs.covered(self.cells)
        return None if wanted.all() else wanted

    @cached_property
    def _table(self) -> tuple[Int64s, Int64s, Int64s] | None:
        """What every place adds to the cell, per key, if that is little: (additions, first of a range, places)."""
        keys, places = self._directory.count, [a.size for a in self.axes[self.keys :]]
        if keys * sum(places) > MOST_ADDITIONS:
            return None
        stride = np.ones(keys, np.int64)
        found: list[Int64s] = []
        for r in range(len(places) - 1, -1, -1):
            steps = np.zeros(keys * places[r], np.int64)
            of = np.repeat(np.arange(keys), np.diff(self._at[r]))
            marks = self._marks[self._at[r][0] : self._at[r][-1]]
            np.add.at(steps, of * places[r] + marks, 1)
            found.insert(0, (np.cumsum(steps.reshape(keys, -1), axis=1) * stride[:, None]).reshape(-1))
            stride = stride * self._sizes[r]
        begins = np.cumsum([0, *(len(f) for f in found)])[:-1]
        return np.concatenate(found), begins, np.array(places, np.int64)

    @cached_property
    def runs(self) -> CellRuns:
        """The predicates as runs of cells."""
        of, key, low, high = self._boxes.of, self._key, self._boxes.low, self._boxes.high
        cell = np.zeros(len(of), np.int64)
        for r in range(len(low) - 1):
            which, place = PredicateBoxes(of, low, high).places(r)
            of, key, low, high = of[which], key[which], low[:, which], high[:, which]
            cell = cell[which] * self._sizes[r][key] + place
        if len(low):
            begin = self.base[key] + cell * self._sizes[-1][key]
            return CellRuns.of(of, key, begin + low[-1], begin + high[-1], self.predicates)
        return CellRuns.of(of, key, self.base[key], self.base[key] + 1, self.predicates)

    def members(self, cells: Int64s) -> tuple[Int64s, Int64s]:
        """The predicates of cells, by their boxes: (first of each cell, predicates)."""
        key = np.searchsorted(self.base, cells, "right") - 1
        boxes = self._boxes
        found: tuple[Int64s, Int64s] = matches(
            cells, key, self.base, self._sizes, self._first, boxes.of, boxes.low, boxes.high
        )
        return found

    def concerned(self, cells: Int64s) -> Int64s:
        """The predicates that have one of some cells, which are in order."""
        if self.boxed:
            return distinct_values(self.members(cells)[1])
        runs = self.runs
        some = np.searchsorted(cells, runs.low) < np.searchsorted(cells, runs.high)
        return distinct_values(np.repeat(np.arange(self.predicates), np.diff(runs.first))[some])

    @property
    def tests(self) -> int:
        """How many boxes all cells are tested against, to find the members of all."""
        return int((np.diff(self.base) * np.diff(self._first)).sum())

    def inside(self, predicate: int, cells: Int64s) -> Bools:
        """Which of some cells a predicate has."""
        if not self.boxed:
            _, low, high = self.runs.at(predicate)
            begun = np.searchsorted(low, cells, "right") - 1
            return (begun >= 0) & (cells < high[np.maximum(begun, 0)]) if len(low) else np.zeros(len(cells), np.bool_)
        key = np.searchsorted(self.base, cells, "right") - 1
        code, place = cells - self.base[key], list[Int64s]()
        for size in self._sizes[::-1]:
            place.insert(0, code % size[key])
            code = code // size[key]
        found = np.zeros(len(cells), np.bool_)
        for b in np.flatnonzero(self._boxes.of == predicate).tolist():
            mine = key == self._key[b]
            for p, low, high in zip(place, self._boxes.low[:, b], self._boxes.high[:, b], strict=True):
                mine &= (p >= low) & (p < high)
            found |= mine
        return found


@lru_cache(maxsize=64)
def unpacked(data: bytes) -> CellSpace:
    """The space of another process; equal ones are one object."""
    return CellSpace(read(data))


@dataclass(frozen=True)
class CellRuns:
    """Predicates as runs of cells `[low, high)`, in order and apart: those of p are `first[p]:first[p + 1]`."""

    first: Int64s
    low: Int64s
    high: Int64s

    @staticmethod
    def of(predicate: Int64s, key: Int64s, low: Int64s, high: Int64s, count: int) -> CellRuns:
        """The runs of `count` predicates, those of one key that overlap or touch made one.

        >>> one = np.array([0, 0, 0])
        >>> found = CellRuns.of(np.array([1, 0, 1]), one, np.array([4, 2, 1]), np.array([6, 3, 4]), 2)
        >>> found.first.tolist(), found.low.tolist(), found.high.tolist()
        ([0, 1, 2], [2, 1], [3, 6])
        """
        order = np.lexsort((low, predicate))
        p, k, begin, end = predicate[order], key[order], low[order], high[order]
        if not len(p):
            return CellRuns(np.zeros(count + 1, np.int64), p, p)
        width = int(end.max()) + 2
        reach = np.maximum.accumulate(p * width + end)  # how far the runs of p go so far
        opens = np.ones(len(p), np.bool_)
        opens[1:] = (p[1:] * width + begin[1:] > reach[:-1]) | (k[1:] != k[:-1])
        at = np.flatnonzero(opens)
        last = np.append(at[1:], len(p)) - 1
        return CellRuns(np.searchsorted(p[at], np.arange(count + 1)), begin[at], reach[last] - p[at] * width)

    def at(self, predicate: int) -> tuple[int, Int64s, Int64s]:
        """How many runs a predicate has, and where they begin and end."""
        mine = slice(self.first[predicate], self.first[predicate + 1])
        return int(mine.stop - mine.start), self.low[mine], self.high[mine]

    def take(self, predicates: Int64s) -> CellRuns:
        """The runs of some predicates, in their order."""
        counts = np.diff(self.first)[predicates]
        first = np.concatenate(([0], np.cumsum(counts)))
        which = np.repeat(self.first[:-1][predicates] - first[:-1], counts) + np.arange(first[-1])
        return CellRuns(first, self.low[which], self.high[which])

    def covered(self, cells: int) -> Bools:
        """Which of so many cells are in some run.

        >>> CellRuns(np.array([0, 1, 2]), np.array([1, 2]), np.array([3, 4])).covered(5).tolist()
        [False, True, True, True, False]
        """
        steps = np.bincount(self.low, minlength=cells + 1) - np.bincount(self.high, minlength=cells + 1)
        return np.cumsum(steps)[:-1] > 0
