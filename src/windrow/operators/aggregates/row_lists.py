"""Rows in the order of time, and those of each group and cell as a list with running sums.

    rows        0 1 2 3 4 5 6 7 8 9      by time; those before `first` are gone, `end` is the next
    entries     a b a c b a ...          rows of one group and one cell (`length_kernels.py`)

Cost: what comes is linked once and let go once; when half of the rows are gone the others move up.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from windrow.operators.aggregates.sweep import in_order
from windrow.operators.aggregates.vectors import Int64s, grown

_FEW = 4096


class RowLists:
    """Rows and their entries; `lanes` and `sums` as `length_kernels.py` has them."""

    def __init__(self, width: int) -> None:
        none = np.zeros(0, np.int64)
        self.first = self.end = 0
        self.times, self.groups, self.after = none, none, none
        self.head = none  # by group
        self.following, self.cell, self.oldest, self.fresh, self.newest = (none for _ in range(5))
        self.place, self.count = none, none
        self.lanes, self.sums = np.zeros((0, width), np.int64), np.zeros((0, width), np.int64)
        self.left, self._used, self._most = none, 0, _FEW
        self._free, self._spare = none, 0

    @property
    def live(self) -> Int64s:
        """The times of all rows that are there."""
        return self.times[self.first : self.end]

    def put(self, times: Int64s, groups: Int64s, cells: Int64s, matrix: Int64s, span: Int64s, capacity: int) -> None:
        """Add rows in the order of time, none of them before those there are; there are so many slots of groups."""
        new = self._reserve(len(times), capacity)
        self.times[new : self.end], self.groups[new : self.end] = times, groups
        order = in_order(groups, times)
        sorted_ = groups[order]
        begins = np.flatnonzero(np.diff(sorted_, prepend=-1))
        self._spare, self._used = _link_rows(
            sorted_[begins], np.append(begins, len(order)), order, cells, new, matrix, self.after, self.lanes,
            self.head, self.following, self.cell, self.oldest, self.fresh, self.newest, self.place, self.count,
            self.sums, self._free, self._spare, span, self._used,
        )  # fmt: skip
        more = self._used - len(self.left)
        if more > 0:
            self.left = np.concatenate((self.left, np.full(max(more, len(self.left)), -1, np.int64)))

    def _reserve(self, rows: int, capacity: int) -> int:
        """Have room for so many rows, and an entry of each; the first of them."""
        if 2 * self.first > self.end:
            self._move_up()
        if capacity > len(self.head):
            self.head = grown(self.head, max(capacity, 2 * len(self.head)), -1)
        new, self.end = self.end, self.end + rows
        if self.end > len(self.times):
            size = max(self.end, 2 * len(self.times))
            self.times, self.groups, self.after = (grown(a, size) for a in (self.times, self.groups, self.after))
            self.lanes = grown(self.lanes, size)
        if self._spare < rows:
            old = len(self.cell)
            size = max(old + rows - self._spare, 2 * old)
            self.following, self.cell, self.oldest = (grown(a, size) for a in (self.following, self.cell, self.oldest))
            self.fresh, self.newest, self.place = (grown(a, size) for a in (self.fresh, self.newest, self.place))
            self.count, self.sums, self._free = (grown(a, size) for a in (self.count, self.sums, self._free))
            self._free[self._spare : self._spare + size - old] = np.arange(old, size)
            self._spare += size - old
        return new

    def _move_up(self) -> None:
        """Let the first row that is there be row 0."""
        by, rows = self.first, slice(self.first, self.end)
        for mine in (self.times, self.groups, self.lanes):
            mine[: self.end - by] = mine[rows].copy()
        self.after[: self.end - by] = np.maximum(self.after[rows] - by, -1)
        for rows_of in (self.oldest, self.fresh, self.newest, self.left):
            np.maximum(rows_of - by, -1, out=rows_of)
        self.first, self.end = 0, self.end - by

    def drop(self, groups: Int64s, until: int, slots: Int64s, span: Int64s) -> Int64s:
        """Let go of rows that came up to `until`, all of whose groups are given; the groups that have none left.

        `slots`: of all groups that are there."""
        self.first += int(np.searchsorted(self.live, until, side="right"))
        dead, self._spare = _drop_rows(
            groups, self.first, self.after, self.head, self.following, self.oldest, self.count, self._free, self._spare
        )
        if self._used > self._most:
            self.pack(slots, span)
        return dead

    def entries(self, slots: Int64s) -> Int64s:
        """The entries of groups."""
        found: Int64s = _live_entries(slots, self.head, self.following)
        return found

    def pack(self, slots: Int64s, span: Int64s) -> None:
        """Forget the places of entries that are gone, and which rows have left: that is found again."""
        entries = self.entries(slots)
        sizes = (span[:, 1] - span[:, 0])[self.cell[entries]]
        self.place[entries] = np.cumsum(sizes) - sizes
        self._used = int(sizes.sum())
        self.left = np.full(self._used, -1, np.int64)
        self._most = max(_FEW, 2 * self._used)

    def relaid(self, lanes: Sequence[Int64s]) -> None:
        """Have other lanes of the same sums."""
        self.lanes, self.sums = lanes


@njit(cache=True)
def _link_rows(
    groups, begins, rows, cells, first, matrix, after, lanes, head, following, cell, oldest, fresh, newest, place,
    count, sums, free, spare, span, used,
):  # fmt: skip  # pragma: no cover - compiled
    """Put new rows behind those of their entries; (free entries left, places of `left` that are used).

    Those of group i are `rows[begins[i]:begins[i + 1]]`, by time; new row r is row `first + r` of all.
    """
    width = matrix.shape[1]
    where = np.full(len(span), -1, np.int64)
    for i in range(len(groups)):
        if begins[i] == begins[i + 1]:
            continue
        g = groups[i]
        x = head[g]
        while x >= 0:
            where[cell[x]] = x
            x = following[x]
        for at in range(begins[i], begins[i + 1]):
            new = rows[at]
            row, c = first + new, cells[new]
            x = where[c]
            if x < 0:
                spare -= 1
                x = free[spare]
                where[c], cell[x], following[x], head[g] = x, c, head[g], x
                oldest[x], fresh[x], place[x], count[x] = row, row, used, 0
                used += span[c, 1] - span[c, 0]
                for k in range(width):
                    sums[x, k] = 0
            else:
                after[newest[x]] = row
                if newest[x] < first:
                    fresh[x] = row
            newest[x], after[row], count[x] = row, -1, count[x] + 1
            for k in range(width):
                lanes[row, k] = sums[x, k]
                sums[x, k] += matrix[new, k]
        x = head[g]
        while x >= 0:
            where[cell[x]] = -1
            x = following[x]
    return spare, used


@njit(cache=True)
def _drop_rows(groups, until, after, head, following, oldest, count, free, spare):  # pragma: no cover - compiled
    """Let go of rows before row `until` (with none left, of their entries); (groups that are empty, free entries)."""
    dead, died = np.empty(len(groups), np.int64), 0
    for i in range(len(groups)):
        g = groups[i]
        last, x = -1, head[g]
        while x >= 0:
            follows = following[x]
            while oldest[x] >= 0 and oldest[x] < until:
                oldest[x], count[x] = after[oldest[x]], count[x] - 1
            if oldest[x] < 0:
                if last < 0:
                    head[g] = follows
                else:
                    following[last] = follows
                free[spare] = x
                spare += 1
            else:
                last = x
            x = follows
        if head[g] < 0:
            dead[died] = g
            died += 1
    return dead[:died], spare


@njit(cache=True)
def _live_entries(groups, head, following):  # pragma: no cover - compiled
    """All entries of groups."""
    count = 0
    for i in range(len(groups)):
        x = head[groups[i]]
        while x >= 0:
            count += 1
            x = following[x]
    found = np.empty(count, np.int64)
    count = 0
    for i in range(len(groups)):
        x = head[groups[i]]
        while x >= 0:
            found[count] = x
            count += 1
            x = following[x]
    return found
