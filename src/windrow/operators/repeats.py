"""Short texts that repeat within a batch, found in one pass that hashes nothing and compares no bytes.

Most columns that rows are grouped by have few values, and short ones. A text of up to 16 bytes is its length, its first
eight bytes and its last eight: two words that are loaded without a loop over bytes, whose end no processor foresees.
Cost: a few nanoseconds per row; where texts hardly repeat, or are longer, until that is seen.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.elements import Int64s

LEAST_ROWS = 256
REPEATED, MOST = 16, 4096
"""How often texts are repeated at least, and how many different ones are told apart."""

_OFFSETS = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}


def repeats(column: pa.Array) -> tuple[Int64s, Int64s] | None:
    """(the text of each row, the first row of each text), texts numbered as they appear; None where that is no gain.

    >>> codes, first = repeats(pa.array(["b", "a"] * 200)); codes[:3].tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    >>> repeats(pa.array([str(i) for i in range(400)]))
    """
    n = len(column)
    if n < LEAST_ROWS or column.type not in _OFFSETS or column.null_count:
        return None
    _, offsets, data = column.buffers()
    if data is None or data.address % 8:
        return None
    bounds = np.frombuffer(offsets, _OFFSETS[column.type])[column.offset : column.offset + n + 1]
    codes, first = np.empty(n, np.int64), np.empty(min(MOST, n // REPEATED), np.int64)
    text = np.frombuffer(data, np.uint8)
    count = _repeats(bounds, np.frombuffer(data, np.uint64, data.size // 8), text, codes, first)
    return None if count < 0 else (codes, first[:count])


@njit(cache=True, inline="always")
def _eight(words, text, begin):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The eight bytes from a place on, as a number; behind the last byte there are zeros."""
    at, bits = begin >> 3, np.uint64((begin & 7) << 3)
    if at + 1 < len(words):  # a shift by all 64 bits at once means nothing
        return (words[at] >> bits) | ((words[at + 1] << np.uint64(1)) << (np.uint64(63) - bits))
    found = np.uint64(0)
    for i in range(begin, min(begin + 8, len(text))):
        found |= np.uint64(text[i]) << np.uint64(8 * (i - begin))
    return found


@njit(cache=True)
def _repeats(bounds, words, text, codes, first):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write codes and first rows: how many texts there are; -1 where there are more than fit, or a longer one."""
    count, places = 0, 64
    while places < 4 * len(first):
        places *= 2
    table, mask = np.zeros(places, np.int32), np.uint64(places - 1)  # code + 1, or 0
    heads, tails = np.empty(len(first), np.uint64), np.empty(len(first), np.uint64)
    sizes, every = np.empty(len(first), np.int64), np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(len(codes)):
        begin = np.int64(bounds[i])
        size = np.int64(bounds[i + 1]) - begin
        head, tail = _eight(words, text, begin), np.uint64(0)
        if size > 16:
            return -1
        if size > 8:
            tail = _eight(words, text, begin + size - 8)
        else:
            head &= ~((every << np.uint64(4 * size)) << np.uint64(4 * size))
        mixed = (head ^ (tail * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(size)) * np.uint64(0xBF58476D1CE4E5B9)
        at = (mixed >> np.uint64(32)) & mask
        while table[at] and not (
            heads[table[at] - 1] == head and tails[table[at] - 1] == tail and sizes[table[at] - 1] == size
        ):
            at = (at + np.uint64(1)) & mask
        if not table[at]:
            if count == len(first):
                return -1
            heads[count], tails[count], sizes[count], first[count] = head, tail, size, i
            count += 1
            table[at] = count
        codes[i] = table[at] - 1
    return count
