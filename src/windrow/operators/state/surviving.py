"""Which elements remain when positive and negative ones cancel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.operators.elements import Elements, Int64s
from windrow.operators.keys import hash_rows, same_rows


def surviving(elements: Elements, frontier: int) -> Int64s:
    """Indices that remain when positives and negatives of one `(row, exp)` that began by `frontier` cancel, in order.

    >>> from windrow.operators.elements import INF
    >>> signs = np.array([1, 1, -1], np.int8)
    >>> e = Elements(np.array([1, 2, 3]), np.array([INF] * 3), signs, {"a": pa.array([7, 8, 7])})
    >>> surviving(e, 5).tolist()
    [1]
    """
    if (elements.sign > 0).all():
        return np.arange(len(elements))
    columns = list(elements.columns.values())
    rows = hash_rows(columns, len(elements))
    settled = elements.ts <= frontier
    order = np.lexsort((elements.sign, elements.exp, rows, ~settled))
    same = (np.diff(rows[order]) == 0) & (np.diff(elements.exp[order]) == 0) & settled[order][1:]
    if same.any():
        pairs = np.flatnonzero(same)
        left, right = pa.array(order[pairs]), pa.array(order[pairs + 1])
        equal = same_rows([c.take(left) for c in columns], [c.take(right) for c in columns], len(pairs))
        same[pairs] = equal
    group = np.concatenate([[0], np.cumsum(~same)])
    signs = elements.sign[order].astype(np.int64)
    net = np.bincount(group, signs).astype(np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    rank = np.arange(len(order)) - starts[group]
    size = np.bincount(group)
    # negatives sort first: a negative net keeps the head of its group, a positive net the tail
    keep = np.where(net[group] < 0, rank < -net[group], rank >= (size - net)[group])
    keep |= ~settled[order]
    return np.sort(order[keep])
