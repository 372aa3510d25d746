"""How many distinct values a window holds, from a sample of 64-bit hashes.

The k smallest distinct hashes of a set estimate its size: if the k-th smallest stands at share f of the range of
hashes, the set has about (k - 1) / f members (Bar-Yossef et al., 2002); the relative error is about 1 / sqrt(k - 2).
The samples of two sets merge into the sample of their union. A window is a queue of samples, each with the end of its
last row, so what expires is forgotten.

The joins hash their keys anyway, so an update is one vectorised selection. (The datasketches package takes one value
per call.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windrow.operators.aggregates.vectors import distinct_values

K = 256
_PARTS = 32


def smallest(hashes: NDArray[np.int64], k: int = K) -> NDArray[np.uint64]:
    """The k smallest distinct hashes, ascending.

    >>> smallest(np.array([5, 3, 5, 9]), 2).tolist()
    [3, 5]
    """
    codes = hashes.view(np.uint64)
    if len(codes) > 64 * k:  # most of a large batch is far above the k-th smallest: look below a cut first
        found = distinct_values(codes[codes < np.uint64(2**64 // 8)])
        if len(found) >= k:
            return found[:k]
    return distinct_values(codes)[:k]


def estimate(sample: NDArray[np.uint64], k: int = K) -> float:
    """The size of the set that a sample stands for.

    >>> estimate(np.arange(3, dtype=np.uint64))
    3.0
    """
    if len(sample) < k:
        return float(len(sample))
    return (k - 1) / max(float(sample[k - 1]) / 2.0**64, 2.0**-64)


def union(samples: Sequence[NDArray[np.uint64]], k: int = K) -> NDArray[np.uint64]:
    """The sample of the union of sets, from their samples.

    >>> union([np.array([3, 5], np.uint64), np.array([4, 5], np.uint64)], 2).tolist()
    [3, 4]
    """
    return distinct_values(np.concatenate(samples))[:k] if samples else np.zeros(0, np.uint64)


class DistinctSketch:
    """The distinct values of a sliding window."""

    def __init__(self, k: int = K) -> None:
        self._k = k
        self._parts: deque[tuple[int, NDArray[np.uint64]]] = deque()

    def add(self, hashes: NDArray[np.int64], last: int) -> None:
        """Rows with these hashes came; the last of them ends at `last`."""
        if not len(hashes):
            return
        self._parts.append((last, smallest(hashes, self._k)))
        if len(self._parts) > _PARTS:  # neighbours expire at about the same time
            parts = list(self._parts)
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            self._parts = deque((max(e for e, _ in p), union([s for _, s in p], self._k)) for p in pairs)

    def expire(self, frontier: int) -> None:
        """Forget samples all of whose rows have ended; the newest stays until there is another."""
        while len(self._parts) > 1 and self._parts[0][0] <= frontier:
            self._parts.popleft()

    def stale(self, frontier: int) -> bool:
        """Whether even the newest sample has ended."""
        return not self._parts or self._parts[-1][0] <= frontier

    def sample(self) -> NDArray[np.uint64]:
        """The sample of the window now."""
        return union([s for _, s in self._parts], self._k)

    def estimate(self) -> float:
        """Distinct values now."""
        return estimate(self.sample(), self._k)
