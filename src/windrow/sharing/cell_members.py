"""Who wants the rows of a cell.

A cell of a space has predicates (`cells.py`), and a predicate has members: queries, or whatever a number stands for.
Cells are few next to rows, so the members of a cell are found once for all of its rows.

Cost: a lookup per row, and a step for each member of each cell that occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.query_sets import packed
from windrow.sharing.cells import CellSpace
from windrow.sharing.kernels import members_of_cells

ALL_CELLS = 1 << 12
"""The members of all cells of a space are found at once if it has no more than these."""


class CellMembers:
    """The members of the cells of one space: member `members[i]` of predicate `predicates[i]`."""

    def __init__(self, space: CellSpace, predicates: Int64s, members: Int64s) -> None:
        self.space = space
        order = np.lexsort((members, predicates))
        self._members = members[order]
        self._first = np.searchsorted(predicates[order], np.arange(space.predicates + 1))

    @cached_property
    def _all(self) -> tuple[Int64s, Int64s] | None:
        return self._of(np.arange(self.space.cells)) if self.space.cells <= ALL_CELLS else None

    def changed(self, come: Sequence[tuple[int, int]], gone: Sequence[tuple[int, int]]) -> CellMembers:
        """The same with some more (predicate, member), and without some."""
        members, counts = self._members, np.diff(self._first)
        known: tuple[Int64s, Int64s] | None = self.__dict__.get("_all")
        predicate = np.repeat(np.arange(len(counts)), counts)
        if gone:
            out = np.array([self._at(p, m) for p, m in gone], np.int64)
            members, predicate = np.delete(members, out), np.delete(predicate, out)
        if come:
            more = np.array(come, np.int64)
            members, predicate = np.append(members, more[:, 1]), np.append(predicate, more[:, 0])
        made = CellMembers(self.space, predicate, members)
        if known is not None and not come:  # of all cells, too
            made.__dict__["_all"] = _without(*known, [m for _, m in gone])
        return made

    def _at(self, predicate: int, member: int) -> int:
        low, high = self._first[predicate : predicate + 2]
        return int(low + np.searchsorted(self._members[low:high], member))

    def _of(self, cells: Int64s) -> tuple[Int64s, Int64s]:
        """The members of cells: (first of each cell, members)."""
        at, predicates = self.space.members(cells)
        found: tuple[Int64s, Int64s] = members_of_cells(at, predicates, self._first, self._members)
        return found

    def found(self, cells: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """(rows that are in a cell, the place of each one's cell, first member of each cell, members)."""
        inside = np.flatnonzero(cells >= 0)
        mine = cells if len(inside) == len(cells) else cells[inside]
        if self._all is not None:
            return inside, mine, *self._all
        distinct, place = np.unique(mine, return_inverse=True)
        return inside, place.reshape(-1), *self._of(distinct)

    def pairs(self, cells: Int64s) -> tuple[Int64s, Int64s]:
        """(row, member) by the cells of rows."""
        rows, place, first, members = self.found(cells)
        counts = np.diff(first)[place]
        row = np.repeat(np.arange(len(rows)), counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows[row], members[first[place][row] + within]

    def sets(self, cells: Int64s) -> tuple[Int64s, pa.DictionaryArray]:
        """(row, set of members) by the cells of rows, in the order of rows."""
        rows, place, first, members = self.found(cells)
        some = np.diff(first)[place] > 0
        if not some.all():
            rows, place = rows[some], place[some]
        used = np.zeros(len(first) - 1, np.bool_)
        used[place] = True
        code = np.cumsum(used) - 1
        spans = [(int(first[c]), int(first[c + 1])) for c in np.flatnonzero(used)]
        sets = pa.array([packed(np.sort(members[low:high])) for low, high in spans], pa.binary())
        return rows, pa.DictionaryArray.from_arrays(pa.array(code[place].astype(np.int32)), sets)

    def wanted(self, cells: Int64s) -> Bools:
        """Whether a row's cell has a member."""
        rows, place, first, _ = self.found(cells)
        some = np.zeros(len(cells), np.bool_)
        some[rows[np.diff(first)[place] > 0]] = True
        return some


def _without(first: Int64s, members: Int64s, gone: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Lists of members, one behind the other, without some."""
    stays = np.ones(len(members), np.bool_)
    for each in gone:
        stays &= members != each
    return first - np.searchsorted(np.flatnonzero(~stays), first), members[stays]
