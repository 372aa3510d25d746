"""Values of several arrays, each written once to where it goes.

Cost: a read and a write for each value of a fixed width without nulls; Arrow's own copies for others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.elements import Int64s, Places, counted, fixed_values, fixed_width, gathered


def scattered(parts: Places, to: Int64s) -> pa.Array:
    """The values at the given places of several arrays; `to`: where each goes, a permutation.

    >>> parts = [(pa.array([1, 2, 3]), np.array([2, 0])), (pa.array([7, 8]), slice(1, 2))]
    >>> scattered(parts, np.array([2, 0, 1])).to_pylist()
    [1, 8, 3]
    """
    width = fixed_width(parts)
    if width is None:
        return gathered(parts).take(pa.array(inverse(to)))
    out, begin = np.empty(len(to), width), 0
    for array, at in parts:
        values, end = fixed_values(array, width), begin + counted(at)
        if isinstance(at, slice):
            _put(values[at], to[begin:end], out)
        else:
            _put_at(values, at, to[begin:end], out)
        begin = end
    return pa.Array.from_buffers(parts[0][0].type, len(out), [None, pa.py_buffer(out)])


@njit(cache=True)
def _put(values, to, out):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    for i in range(len(to)):
        out[to[i]] = values[i]


@njit(cache=True)
def _put_at(values, at, to, out):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    for i in range(len(to)):
        out[to[i]] = values[at[i]]


def inverse(permutation: Int64s) -> Int64s:
    """The permutation that undoes another.

    >>> inverse(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    undone = np.empty_like(permutation)
    undone[permutation] = np.arange(len(permutation))
    return undone
