"""Rows that are there, remembered with the instant at which each came: of equal rows the oldest goes first.

An input that announces ends says which row goes, not which of several equal ones. Law: rows that are equal, end
included, go in the order in which they came.

State: one element for each row that is there. Cost: O(1) for a row that comes or goes, in batches; equal rows of one
instant that go one by one cost a pass over all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.elements import BEGINNING, Elements, Int64s, concat
from windrow.operators.keys import factorize, hash_rows, same_rows
from windrow.operators.state.keyed import KeyedRuns
from windrow.operators.state.pairs import Needles
from windrow.operators.state.run import Run

BORN = "~born"
PART_ROWS = 1 << 20


class Remembered:
    """Elements by all columns of rows, each with its date in `BORN`; `types`: all its other columns."""

    def __init__(self, rows: Mapping[str, pa.DataType], types: Mapping[str, pa.DataType]) -> None:
        self._rows, self._types = list(rows), {**types, BORN: pa.int64()}
        self._kept = KeyedRuns(self._rows, static=True)
        self._last = BEGINNING

    @property
    def nbytes(self) -> int:
        """Bytes in memory, indexes included."""
        return self._kept.nbytes

    def insert(self, parts: Sequence[Elements], frontier: int) -> None:
        """Remember elements; what has ended by the last frontier is forgotten."""
        self._kept.expire(self._last)
        for rows in parts:  # that they are there is all that counts: when they came is in a column
            self._kept.insert(rows.with_lifetimes(np.full(len(rows), BEGINNING), rows.exp), self._last)
        self._last = frontier

    def take(self, gone: Elements, met: str | None, frontier: int) -> tuple[NDArray[np.bool_], Elements]:
        """Which of the rows that go are known, and what is remembered of those, as ends of them; it is forgotten.

        `met`: the column that is true of results, which go with their row.
        """
        order = np.argsort(gone.ts, kind="stable")
        rows = gone.take(order)
        left, kept = self._candidates(rows)
        equal, _ = factorize([pa.array(rows.exp), *(rows.columns[c] for c in self._rows)], len(rows))
        flags = np.zeros(len(kept), np.bool_) if met is None else np.asarray(kept.columns[met])
        owner, mine = oldest(equal, left, kept.columns[BORN].to_numpy(), flags, kept.columns)
        ends = np.full(len(mine), -1, np.int8)
        ended = Elements(rows.ts[owner], rows.exp[owner], ends, kept.take(mine).columns)
        self._kept.insert(ended, self._last)
        known = np.zeros(len(gone), np.bool_)
        known[order[owner]] = True
        self._owner = order[owner]
        return known, ended

    def dates(self, gone: Elements, frontier: int) -> Int64s:
        """When rows that go have come; those that are not known come and go at once."""
        _, ended = self.take(gone, None, frontier)
        born = gone.ts.copy()
        born[self._owner] = ended.columns[BORN].to_numpy()
        return born

    def _candidates(self, gone: Elements) -> tuple[Int64s, Elements]:
        """What is remembered of rows that are equal to those that go: whose it is, and the elements."""
        wanted = [gone.columns[c] for c in self._rows]
        needles = Needles(hash_rows(wanted, len(gone)), gone.ts, gone.exp, np.ones(len(gone), np.int8))
        left, kept = [np.zeros(0, np.int64)], [Elements.empty(self._types)]
        for pairs in self._kept.probe(needles, PART_ROWS):
            columns = {n: pairs.column(n) for n in self._types}
            there = Elements(pairs.times("ts"), pairs.times("exp"), pairs.sign, columns)
            asked = [c.take(pa.array(pairs.left)) for c in wanted]
            same = same_rows(asked, [columns[c] for c in self._rows], len(there))
            same &= (there.exp == gone.exp[pairs.left]) & (columns[BORN].to_numpy() <= gone.ts[pairs.left])
            left.append(pairs.left[same])
            kept.append(there.filter(same))
        return np.concatenate(left), concat(kept)

    def runs(self) -> tuple[Run, ...]:
        """The state."""
        return self._kept.runs()

    def restore(self, runs: tuple[Run, ...], frontier: int) -> None:
        """Go on from a state."""
        self._last = frontier
        self._kept.restore(runs)


class Births:
    """Dates the rows of one input in a column `name`; `ends`: whether it announces ends."""

    def __init__(self, name: str, types: Mapping[str, pa.DataType], ends: bool) -> None:
        self.name, self.columns, self.ends = name, tuple(types), ends
        self._there = Remembered(types, types)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._there.nbytes

    def dated(self, rows: Elements, frontier: int) -> Elements:
        """The rows with their dates; the ends have those of the rows that they end."""
        born = rows.ts.copy()
        if self.ends:
            here = rows.with_columns({**rows.columns, BORN: pa.array(rows.ts)})
            gone = np.flatnonzero(rows.sign < 0)
            self._there.insert([here.filter(rows.sign > 0)], frontier)
            if len(gone):
                born[gone] = self._there.dates(rows.take(gone), frontier)
        return rows.with_columns({**rows.columns, self.name: pa.array(born)})

    def runs(self) -> tuple[Run, ...]:
        """The state."""
        return self._there.runs()

    def restore(self, runs: tuple[Run, ...], frontier: int) -> None:
        """Go on from a state."""
        self._there.restore(runs, frontier)


def rank(codes: Int64s) -> Int64s:
    """How many equal ones stand before each.

    >>> rank(np.array([5, 7, 5, 5, 7])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(codes)])
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(begins, np.diff([*begins, len(codes)]))
    return found


def oldest(
    equal: Int64s, left: Int64s, born: Int64s, met: NDArray[np.bool_], columns: Mapping[str, pa.Array]
) -> tuple[Int64s, Int64s]:
    """For each row that goes, in order, the oldest equal one that is not taken yet, with its share of the results.

    `equal`: codes of the rows that go; `left`: which of them asks for each of the elements, which are results where
    `met`. Returns pairs of who asks and an element that it takes.
    """
    order = np.lexsort((hash_rows(list(columns.values()), len(left)), born, left))
    rows, results = order[~met[order]], order[met[order]]
    asked = left[rows]
    count = np.bincount(asked, minlength=len(equal))
    begin = np.cumsum(count) - count  # of the rows of each who asks
    turn = rank(equal)  # how many equal ones go before
    asks = np.flatnonzero(turn < count)
    taken = rows[begin[asks] + turn[asks]]
    since = np.full(len(equal), BEGINNING)
    since[asks] = born[taken]
    # equal rows of one instant have met the same: each takes one of as many shares of the results
    older = np.bincount(asked, born[rows] < since[asked], minlength=len(equal)).astype(np.int64)
    shares = np.bincount(asked, born[rows] == since[asked], minlength=len(equal)).astype(np.int64)
    results = results[born[results] == since[left[results]]]
    who = left[results]
    mine = rank(who) % np.maximum(shares[who], 1) == (turn - older)[who]
    return np.concatenate([asks, who[mine]]), np.concatenate([taken, results[mine]])
