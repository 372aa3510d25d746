"""What looks for partners in the state of a join, and what it meets there.

A pair is a needle and a remembered element that live together: from the later start to the earlier end, with the
product of their signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.elements import Elements, Int64s, gathered


@dataclass(frozen=True, slots=True)
class Needles:
    """What looks for partners: the hash of its key, when it lives, its sign, the range of codes it wants."""

    hashes: Int64s
    ts: Int64s
    end: Int64s
    sign: NDArray[np.int8]
    low: Int64s | None = None
    high: Int64s | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Needles and the remembered elements they meet: from when to when, and the product of the signs.

    `right[begin:stop]` are rows of `elements` for each of `sources`, which lie end to end.
    """

    left: Int64s
    right: Int64s
    ts: Int64s
    end: Int64s
    sign: NDArray[np.int8]
    sources: Sequence[tuple[Elements, int, int]]

    def __len__(self) -> int:
        return len(self.left)

    def column(self, name: str) -> pa.Array:
        """A column of the remembered elements."""
        return gathered([(there.columns[name], self.right[begin:stop]) for there, begin, stop in self.sources])

    def where(self, keep: NDArray[np.bool_]) -> Pairs:
        """The pairs where `keep` holds; self when all do."""
        at = np.flatnonzero(keep)
        if len(at) == len(self):
            return self
        stops = np.searchsorted(at, [stop for _, _, stop in self.sources]).tolist()
        sources = [(e, b, s) for (e, _, _), b, s in zip(self.sources, [0, *stops], stops, strict=False) if s > b]
        return Pairs(self.left[at], self.right[at], self.ts[at], self.end[at], self.sign[at], sources)

    def times(self, which: str) -> Int64s:
        """Their starts (`ts`) or their ends (`exp`)."""
        return np.concatenate([getattr(there, which)[self.right[begin:stop]] for there, begin, stop in self.sources])
