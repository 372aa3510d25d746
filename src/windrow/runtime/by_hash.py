"""The partition of a hash, and the rows of each partition.

A hash belongs to the partition that it is congruent to. Cost: of a power of two partitions a mask, a sixteenth of a
division; of few partitions a pass over bytes for each, a tenth of a sort.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.elements import Int64s, gathered, one

Partitions = NDArray[np.integer]
"""A partition for each row."""

FEW = 8
"""Partitions up to which each looks for its own rows."""


def by_hash(hashes: Int64s, partitions: int) -> Partitions:
    """The partition of each hash.

    >>> by_hash(np.array([5, 8, -1]), 4).tolist()
    [1, 0, 3]
    """
    of = hashes.view(np.uint64)
    of = of & np.uint64(partitions - 1) if partitions & (partitions - 1) == 0 else of % np.uint64(partitions)
    return of.astype(np.min_scalar_type(partitions - 1))


def rows_of_each(to: Partitions, partitions: int) -> Iterator[tuple[int, Int64s]]:
    """The partitions that have rows, and which these are, in their order.

    >>> [(p, rows.tolist()) for p, rows in rows_of_each(np.array([2, 0, 2]), 3)]
    [(0, [1]), (2, [0, 2])]
    """
    if partitions <= FEW:
        for p in range(partitions):
            rows = np.flatnonzero(to == p)
            if len(rows):
                yield p, rows
        return
    order = np.argsort(to, kind="stable")
    bounds = np.searchsorted(to[order], np.arange(partitions + 1))
    for p in range(partitions):
        if bounds[p] < bounds[p + 1]:
            yield p, order[bounds[p] : bounds[p + 1]]


def rows_at(table: pa.Table, rows: Int64s) -> pa.Table:
    """These rows of a table."""
    return pa.table([gathered([(one(c), rows)]) for c in table.itercolumns()], schema=table.schema)
