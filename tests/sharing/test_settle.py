"""Synopses that nobody looks at any more have no entries, and take none of their neighbours'."""

from __future__ import annotations

import numpy as np

from windrow.sharing.kernels import best_of_members, best_of_runs


def ints(*values: int) -> np.ndarray:
    """An array of numbers."""
    return np.array(values, np.int64)


BEGIN, CELL, BEST, EDGES = ints(0, 2, 5, 5), ints(0, 4, 4, 3, 0), ints(2, 6, 9, 7, 0), ints(0, 2, 2)
ENTRY_AT, ENTRY_EDGE = ints(0, 0, 1, 3, 3), ints(2, 0, 4)  # synopses 0 and 3 have none
RUNS = [(1, 2, 0), (4, 5, 0), (7, 8, 0), (3, 6, 1), (0, 1, 2), (4, 5, 2), (7, 8, 2), (3, 6, 3)]  # low, high, whose


def test_a_synopsis_without_entries_by_runs_and_by_members() -> None:
    """The greatest codes are those of the other synopses' cells alone; nothing is read or written beyond."""
    some, want = np.ones(5, np.bool_), [9, 6, 9]
    low, high, owner = (ints(*(run[i] for run in RUNS)) for i in range(3))
    out, filled = ints(0, 0, 0), np.zeros(3, np.bool_)
    best_of_runs(
        BEGIN, CELL, BEST, some, EDGES, np.zeros(9, np.int64), ints(0, 9), low, high, owner, ints(0, 8), np.arange(8),
        ENTRY_AT, ENTRY_EDGE, out, filled,
    )  # fmt: skip
    assert out.tolist() == want and filled.all()
    members = [[s for low, high, s in RUNS if low <= cell < high] for cell in range(9)]
    at = ints(*np.cumsum([0, *map(len, members)]))
    out, filled = ints(0, 0, 0), np.zeros(3, np.bool_)
    flat = ints(*(s for found in members for s in found))
    best_of_members(BEGIN, CELL, at, flat, BEST, some, EDGES, ENTRY_AT, ENTRY_EDGE, out, filled)
    assert out.tolist() == want and filled.all()
