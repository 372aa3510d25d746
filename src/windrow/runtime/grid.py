"""Partitions as the cells of a grid, for joins whose inputs have no key in common (Afrati and Ullman's Shares, 2010).

Each class of equal columns is an axis, cut into as many pieces as its size says. A row has a place on the axes whose
columns it carries, and is copied along the others:

    A.k = B.k and B.j = C.j, sizes (2, 2)          j: 0     1
                                              k: 0 | A B C  A B C      A lies in one row of cells, C in one column,
                                                 1 | A B C  A B C      B in one cell

So every combination of rows that can join meets in exactly one cell, in one shuffle, whatever the order in which the
join visits its inputs. An input without any equality has an axis of its own, by the hash of its row: a join by a band
or by any predicate is spread too (Okcan and Riedewald's 1-Bucket, 2011), and so are the rows of one heavy key.

Sizes minimise the rows that a cell gets if all inputs are equally fast. Cost: a row is copied to as many cells as the
product of the sizes of the axes it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from windrow.operators.elements import Elements, Int64s
from windrow.operators.keys import hash_rows
from windrow.runtime.by_hash import by_hash


@dataclass(frozen=True)
class GridPlacement:
    """How one input lies on a grid: its columns on each axis, () where it is copied; `inputs`: the axes of each input.

    >>> GridPlacement((("a.k",), ()), ((0,), (0, 1), (1,))).sizes(4)
    (2, 2)
    """

    axes: tuple[tuple[str, ...], ...]
    inputs: tuple[tuple[int, ...], ...]

    def sizes(self, partitions: int) -> tuple[int, ...]:
        """Pieces of each axis; their product is at most the number of partitions."""
        return _sizes(partitions, len(self.axes), self.inputs)

    def copies(self, partitions: int) -> int:
        """In how many partitions each row is."""
        sizes = zip(self.axes, self.sizes(partitions), strict=True)
        return int(np.prod([size for columns, size in sizes if not columns]))

    def renamed(self, names: Mapping[str, str]) -> GridPlacement:
        """The same place for columns that have other names."""
        return GridPlacement(tuple(tuple(names[c] for c in axis) for axis in self.axes), self.inputs)

    def first_copies(self, partitions: int, here: int) -> bool:
        """Whether what is copied along some axes counts `here`, and in no other partition."""
        sizes = self.sizes(partitions)
        if here >= int(np.prod(sizes)):
            return False
        at = np.unravel_index(here, sizes) if sizes else ()
        return all(i == 0 for i, columns in zip(at, self.axes, strict=True) if not columns)

    def cells(self, elements: Elements, partitions: int) -> Int64s:
        """The partitions of each element, as a matrix [elements, copies]."""
        sizes = self.sizes(partitions)
        cells = np.zeros((len(elements), 1), np.int64)
        for columns, size in zip(self.axes, sizes, strict=True):
            if columns:
                hashes = hash_rows([elements.columns[c] for c in columns], len(elements))
                at = by_hash(hashes, size).astype(np.int64)[:, None]
            else:
                at = np.broadcast_to(np.arange(size), (len(elements), size))
            cells = (cells[:, :, None] * size + at[:, None, :]).reshape(len(elements), cells.shape[1] * at.shape[1])
        return cells


@lru_cache(maxsize=256)
def _sizes(partitions: int, axes: int, inputs: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    best = min(_shapes(partitions, axes), key=lambda sizes: (_load(sizes, inputs), sizes))
    return tuple(best)


def _shapes(room: int, axes: int) -> list[tuple[int, ...]]:
    if axes == 0:
        return [()]
    return [(size, *rest) for size in range(1, room + 1) for rest in _shapes(room // size, axes - 1)]


def _load(sizes: Sequence[int], inputs: Sequence[Sequence[int]]) -> float:
    """The rows of one cell, if each input has one row."""
    return sum(1.0 / float(np.prod([sizes[a] for a in axes])) for axes in inputs)
