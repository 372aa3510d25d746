"""How elements are distributed over partitions: by the hash of their keys, on a grid, all to one, or anywhere.

Law: elements that an operator must see together go to the same partition, and their order is kept. Cost: a hash and a
stable sort of the rows that move; nothing with one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from windrow.operators.aggregates.vectors import Bools
from windrow.operators.elements import Elements, Int64s
from windrow.operators.keys import hash_rows
from windrow.runtime.placement import How, Partitioning


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
    order = np.argsort(to, kind="stable")
    bounds = np.searchsorted(to[order], np.arange(partitions + 1))
    for p in range(partitions):
        if bounds[p] < bounds[p + 1]:
            picked = order[bounds[p] : bounds[p + 1]]
            yield p, elements.take(picked if row is None else row[picked])


def share(elements: Elements, partitioning: Partitioning, partitions: int, here: int) -> Elements:
    """The part of rows that every partition has, which `here` is to count: each row in one partition only."""
    if partitioning.how is not How.COLUMNS:
        return elements if here == 0 else elements.take(np.zeros(0, np.int64))
    return elements.filter(_by_hash(_hashes(elements, partitioning.columns), partitions) == here)


def partition_of(elements: Elements, partitioning: Partitioning, partitions: int) -> Int64s:
    """The partitions of each element, as a matrix [elements, copies], while no key lies apart."""
    if partitioning.grid is not None:
        return partitioning.grid.cells(elements, partitions)
    return _by_hash(_hashes(elements, _key(partitioning)), partitions)[:, None]


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
) -> tuple[Int64s | None, Int64s]:
    """Pairs (element, partition), in the order of the elements; no elements are named when each has one partition."""
    if partitioning.how is How.ANY:
        return None, (np.arange(len(elements)) + here) % partitions
    if partitioning.how is How.GRID:
        assert partitioning.grid is not None
        cells = partitioning.grid.cells(elements, partitions)
        return np.repeat(np.arange(len(elements)), cells.shape[1]), cells.ravel()
    hashes = _hashes(elements, partitioning.columns)
    to = _by_hash(hashes, partitions)
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


def _by_hash(hashes: Int64s, partitions: int) -> Int64s:
    return (hashes.view(np.uint64) % np.uint64(partitions)).astype(np.int64)
