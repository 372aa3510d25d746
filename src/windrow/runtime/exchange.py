"""How elements are distributed over partitions: by the hash of their keys, on a grid, all to one, or anywhere.

Law: elements that an operator must see together go to the same partition, and their order is kept. Cost: a hash of the
rows that move, a pass over bytes for each partition (`by_hash`) and a copy; nothing with one partition.

Elements that only an aggregate reads are reduced before they travel (`aggregates/reduced`), by lifetime or by instant,
if that at least halves what travels. How many would be left is told by a sample: a sixteenth of what they are reduced
to, of which all elements are counted. Where it does not pay, the next batches are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.reduced import Reduction, is_reduced
from windrow.operators.aggregates.vectors import Bools, distinct_values
from windrow.operators.elements import Elements, Int64s
from windrow.operators.keys import hash_rows
from windrow.runtime.by_hash import Partitions, by_hash, rows_of_each
from windrow.runtime.placement import How, Partitioning

FEW = 512
"""Elements that are sent as they are."""

RESTS = 7
"""Batches of a task that are not looked at, behind one that was not worth reducing."""

WERE, CAME = "reduced.", "travelled."
"""Counters of tasks: rows before they were reduced, and those that came."""

SAMPLED = 1 << 14
"""Elements of which all are looked at."""


def route(
    elements: Elements, partitioning: Partitioning, partitions: int, here: int, heavy: Int64s | None = None
) -> Iterator[tuple[int, Elements]]:
    """The elements for each partition that gets any; their order is kept. `heavy`: hashes of keys that lie apart."""
    if not len(elements):
        return
    if partitioning.how is How.ONE or partitions == 1:
        yield 0, elements
        return
    row, to = _targets(elements, partitioning, partitions, here, heavy)
    for p, picked in rows_of_each(to, partitions):
        yield p, elements.take(picked if row is None else row[picked])


def fewer(elements: Elements, reduction: Reduction) -> Elements:
    """The elements, reduced where that pays."""
    if is_reduced(elements.columns) or not len(elements):
        return elements
    if reduction.rests:
        reduction.rests -= 1
        return elements
    by = worth_reducing(elements, reduction)
    if by is None:
        reduction.rests = RESTS if len(elements) >= FEW else 0
        return elements
    return reduction.reduced(elements if by is By.LIFETIME else reduction.changes(elements))


class By(Enum):
    """What reduced rows are one of, for each group."""

    LIFETIME = "lifetime"
    INSTANT = "instant"


def worth_reducing(elements: Elements, reduction: Reduction) -> By | None:
    """How reducing the elements leaves at most half of their bytes; None if it does not."""
    count = len(elements)
    if count < FEW:
        return None
    keys = [elements.columns[k] for k in reduction.keys]
    of_key, ts, exp = hash_rows(keys, count), elements.ts, elements.exp
    left = {By.LIFETIME: _distinct(of_key, ts, exp)}
    if reduction.divides and (exp - ts != exp[0] - ts[0]).any():
        left[By.INSTANT] = _distinct(of_key, ts) + _distinct(of_key, exp)
    by = min(left, key=left.__getitem__)
    width = reduction.width + sum(k.nbytes for k in keys) / count
    return by if 2 * left[by] * width * count <= elements.nbytes() else None


def _distinct(of_key: Int64s, *times: Int64s) -> float:
    """The share of distinct keys and times among all, by a sample."""
    hashes = hash_rows([pa.array(of_key), *map(pa.array, times)], len(of_key))
    sample = hashes if len(hashes) <= SAMPLED else hashes[hashes & 15 == 0]
    if len(sample) < FEW:  # few in all, or a heavy one
        sample = hashes[:SAMPLED]
    return len(distinct_values(sample)) / len(sample)


class ReducedRows:
    """How many rows were sent to the groups of each query, and how many they were before they were reduced."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()

    def count(self, counters: Mapping[str, int]) -> None:
        """Take in the counters of a tick."""
        self._sums.update({c: n for c, n in counters.items() if c.startswith((WERE, CAME))})

    def describe(self, query: str) -> dict[str, int] | None:
        """For EXPLAIN; None for a query of which no row may be reduced."""
        if CAME + query not in self._sums:
            return None
        return {"rows": self._sums[WERE + query], "sent": self._sums[CAME + query]}


def share(elements: Elements, partitioning: Partitioning, partitions: int, here: int) -> Elements:
    """The part of rows that every partition has, which `here` is to count: each row in one partition only."""
    if partitioning.how is not How.COLUMNS:
        return elements if here == 0 else elements.take(np.zeros(0, np.int64))
    return elements.filter(by_hash(_hashes(elements, partitioning.columns), partitions) == here)


def partition_of(elements: Elements, partitioning: Partitioning, partitions: int) -> Int64s:
    """The partitions of each element, as a matrix [elements, copies], while no key lies apart."""
    if partitioning.grid is not None:
        return partitioning.grid.cells(elements, partitions)
    return by_hash(_hashes(elements, _key(partitioning)), partitions).astype(np.int64)[:, None]


def is_heavy(elements: Elements, partitioning: Partitioning, heavy: Int64s) -> Bools:
    """Which elements have one of the `heavy` keys."""
    return np.isin(_hashes(elements, _key(partitioning)), heavy)


def belonging(
    elements: Elements, partitioning: Partitioning, partitions: int, here: int, heavy: Int64s
) -> tuple[Bools, Bools]:
    """Which elements have one of the `heavy` keys, and which of these lie `here`."""
    assert partitioning.split is not None
    heavies = is_heavy(elements, partitioning, heavy)
    lies = np.zeros(len(elements), np.bool_)
    at = np.flatnonzero(heavies)
    if len(at):
        lies[at] = (partitioning.split.grid.cells(elements.take(at), partitions) == here).any(axis=1)
    return heavies, lies


def _targets(
    elements: Elements, partitioning: Partitioning, partitions: int, here: int, heavy: Int64s | None
) -> tuple[Int64s | None, Partitions]:
    """Pairs (element, partition), in the order of the elements; no elements are named when each has one partition."""
    if partitioning.how is How.ANY:
        return None, (np.arange(len(elements)) + here) % partitions
    if partitioning.how is How.GRID:
        assert partitioning.grid is not None
        cells = partitioning.grid.cells(elements, partitions)
        return np.repeat(np.arange(len(elements)), cells.shape[1]), cells.ravel()
    hashes = _hashes(elements, partitioning.columns)
    to = by_hash(hashes, partitions)
    if partitioning.split is None or heavy is None or not len(heavy):
        return None, to
    heavies = np.isin(hashes, heavy)
    if not heavies.any():
        return None, to
    light, split = np.flatnonzero(~heavies), np.flatnonzero(heavies)
    cells = partitioning.split.grid.cells(elements.take(split), partitions)
    row = np.concatenate((light, np.repeat(split, cells.shape[1])))
    order = np.argsort(row, kind="stable")
    return row[order], np.concatenate((to[light], cells.ravel()))[order]


def _key(partitioning: Partitioning) -> Sequence[str]:
    """The columns whose hash says where elements lie, unless their key is heavy."""
    if partitioning.how is How.TOGETHER and partitioning.split is not None:
        return partitioning.split.key
    return partitioning.columns


def _hashes(elements: Elements, columns: Sequence[str]) -> Int64s:
    return hash_rows([elements.columns[c] for c in columns], len(elements))
