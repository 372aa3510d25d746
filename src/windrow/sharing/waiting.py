"""Rows that wait until somebody needs their partials.

    rows   3  7  12  |  18        what queries test, group by and aggregate is computed when rows come, so what raises
    due              15      30   does so at once; partials of 3, 7 and 12 are formed at 15, in one pass, and 18 waits

Partials add up however rows are cut into batches, so answers do not depend on when they are formed. Who joins or leaves
finds those of all rows that came before, and so does who looks at the state. Cost: the fixed cost of a pass is paid
once for every instant at which somebody is due, and not for every batch of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import concat_arrays

MOST_ROWS, MOST_BATCHES = 1 << 16, 1 << 8
"""How many wait at most: a pass over so many rows, or for so many batches, costs next to nothing beyond its rows."""


class WaitingRows:
    """Rows in the order of arrival, each batch in time order."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, Mapping[str, pa.Array]]] = []
        self.count = 0

    @property
    def full(self) -> bool:
        """Whether they should wait no longer, whoever is due."""
        return self.count >= MOST_ROWS or len(self._parts) >= MOST_BATCHES

    def add(self, ts: Int64s, values: Mapping[str, pa.Array]) -> None:
        """Let rows wait, of which no more columns are read than of those before."""
        self._parts.append((ts, values))
        self.count += len(ts)

    def take(self, upto: int) -> tuple[Int64s, Mapping[str, pa.Array]]:
        """Those up to an instant in time order, those of one time in the order of arrival; they wait no longer.

        >>> waiting = WaitingRows()
        >>> waiting.add(np.array([3, 7, 8]), {"v": pa.array([1, 2, 3])})
        >>> waiting.add(np.array([5]), {"v": pa.array([9])})
        >>> ts, values = waiting.take(7)
        >>> ts.tolist(), values["v"].to_pylist(), waiting.count
        ([3, 5, 7], [1, 9, 2], 1)
        """
        ts, values = self._in_order()
        due = int(np.searchsorted(ts, upto, "right"))
        self._parts, self.count = [], 0
        if due == len(ts):
            return ts, values
        self.add(ts[due:], {c: v.slice(due) for c, v in values.items()})
        return ts[:due], {c: v.slice(0, due) for c, v in values.items()}

    def _in_order(self) -> tuple[Int64s, Mapping[str, pa.Array]]:
        parts = self._parts
        if len(parts) == 1:
            return parts[0]
        ts = np.concatenate([at for at, _ in parts])
        values = {c: concat_arrays([mine[c] for _, mine in parts]) for c in parts[-1][1]}
        if all(a[-1] <= b[0] for (a, _), (b, _) in pairwise(parts)):
            return ts, values
        order = np.argsort(ts, kind="stable")
        picks = pa.array(order)
        return ts[order], {c: v.take(picks) for c, v in values.items()}


__all__ = ["WaitingRows"]
