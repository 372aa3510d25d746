"""Pairs of rows of two streams that match through a fact relation.

Row `x` of one stream and row `y` of the other match through fact `f` when their codes are the fact's codes and `f` is
active, `begin <= ts < end`, at the times of both (paper, condition 6). The newer row finds the older one in memory, so
pairs are listed by their older row: `x` meets the rows `y` with `ts(x) < ts(y) < ts(x) + lifetime`, in order of time.
Rows of one instant meet without memory.

Cost: the facts of each row's code, a binary search for each that is active, and the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MatchSide:
    """One stream: times in ascending order, importance, and the code of each row's key (-1: matches no fact)."""

    ts: Ints
    imp: Floats
    code: Ints

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(frozen=True)
class Facts:
    """The relation: the codes on both sides and the active interval `[begin, end)` of each fact."""

    codes: tuple[Ints, Ints]
    begin: Ints
    end: Ints

    def flipped(self) -> Facts:
        """The same facts seen from the other stream."""
        return Facts((self.codes[1], self.codes[0]), self.begin, self.end)


@dataclass(frozen=True)
class Pairs:
    """Pairs by their older row: those of row `x` are `ptr[x]:ptr[x + 1]`, in order of the newer row's time."""

    ptr: Ints
    newer: NDArray[np.int32]
    fact: NDArray[np.int32]

    @property
    def older(self) -> NDArray[np.int32]:
        """The older row of each pair."""
        return np.repeat(np.arange(len(self.ptr) - 1, dtype=np.int32), np.diff(self.ptr))


def later_pairs(older: MatchSide, newer: MatchSide, facts: Facts, lifetime: int) -> Pairs:
    """All pairs whose newer row comes after the older one and before that expires."""
    return _pairs(older, newer, facts, lifetime, together=False)


def instant_pairs(one: MatchSide, other: MatchSide, facts: Facts) -> Pairs:
    """All pairs of rows of the same instant."""
    return _pairs(one, other, facts, 1, together=True)


def has_active_fact(side: MatchSide, facts: Facts) -> NDArray[np.bool_]:
    """Where a row matches an active fact at its own time: what pre-filtering keeps (section 2.2)."""
    ptr, order = _grouped(facts.codes[0])
    return _active(side.ts, side.code, ptr, facts.begin[order], facts.end[order])


def _pairs(older: MatchSide, newer: MatchSide, facts: Facts, lifetime: int, together: bool) -> Pairs:
    fact_ptr, fact_order = _grouped(facts.codes[0])
    row_ptr, row_order = _grouped(newer.code)
    found = _match(
        older.ts, older.code, newer.ts[row_order], row_ptr, row_order, fact_ptr, fact_order,
        facts.codes[1], facts.begin, facts.end, lifetime, together,
    )  # fmt: skip
    return Pairs(*found)


def _grouped(codes: Ints) -> tuple[Ints, Ints]:
    """`order[ptr[c]:ptr[c + 1]]` are the positions with code c, ascending; codes below 0 are left out."""
    order = np.argsort(codes, kind="stable")
    order = order[np.searchsorted(codes[order], 0) :]
    top = int(codes[order[-1]]) + 1 if len(order) else 0
    return np.searchsorted(codes[order], np.arange(top + 1)).astype(np.int64), order


@njit(cache=True)
def _active(ts, code, fact_ptr, begin, end):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    out = np.zeros(len(ts), np.bool_)
    for i in range(len(ts)):
        c = code[i]
        if 0 <= c < len(fact_ptr) - 1:
            for k in range(fact_ptr[c], fact_ptr[c + 1]):
                if begin[k] <= ts[i] < end[k]:
                    out[i] = True
                    break
    return out


@njit(cache=True)
def _first_at_least(times, low, high, bound):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    while low < high:
        middle = (low + high) // 2
        if times[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _match(ts, code, times, row_ptr, row_order, fact_ptr, fact_order, other, begin, end, lifetime, together):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    n = len(ts)
    ptr = np.zeros(n + 1, np.int64)
    newer = np.empty(0, np.int32)
    fact = np.empty(0, np.int32)
    for fill in range(2):
        total = 0
        for i in range(n):
            first = total
            c = code[i]
            if 0 <= c < len(fact_ptr) - 1:
                for k in range(fact_ptr[c], fact_ptr[c + 1]):
                    f = fact_order[k]
                    o = other[f]
                    if begin[f] > ts[i] or end[f] <= ts[i] or o < 0 or o >= len(row_ptr) - 1:
                        continue
                    if together:
                        low = _first_at_least(times, row_ptr[o], row_ptr[o + 1], ts[i])
                        high = _first_at_least(times, low, row_ptr[o + 1], ts[i] + 1)
                    else:
                        low = _first_at_least(times, row_ptr[o], row_ptr[o + 1], ts[i] + 1)
                        high = _first_at_least(times, low, row_ptr[o + 1], min(ts[i] + lifetime, end[f]))
                    if fill:
                        for p in range(low, high):
                            newer[total + p - low] = row_order[p]
                            fact[total + p - low] = f
                    total += high - low
            ptr[i + 1] = total
            if fill and total - first > 1:
                by_row = np.argsort(newer[first:total], kind="mergesort")  # rows are in order of time
                newer[first:total] = newer[first:total][by_row]
                fact[first:total] = fact[first:total][by_row]
        if fill == 0:
            newer = np.empty(total, np.int32)
            fact = np.empty(total, np.int32)
    return ptr, newer, fact
