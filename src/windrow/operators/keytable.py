"""A table from rows to slots: exact, growing, with rows that can be forgotten.

Each distinct row gets a small integer, its slot, for as long as someone remembers it; per-slot facts (counts, ends)
live in NumPy arrays of the caller, indexed by slot. Lookup is an open-addressing hash table over 64-bit row hashes,
compiled; rows with equal hashes but different values are told apart by comparing the rows (the later one is moved to
another hash).

Cost: O(1) per row looked up; forgetting is a rebuild, made when half of the slots are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from windrow.operators.elements import Int64s
from windrow.operators.keys import hash_rows, is_bijective, same_rows

_REHASH = np.int64(0x5851F42D4C957F2D)


class KeyTable:
    """Rows of the given columns, each with a slot."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self.types = dict(types)
        self._hashes = np.zeros(0, np.int64)  # by slot
        self._size = 0
        self._table = np.zeros(64, np.int64)  # slot + 1, or 0 when free
        self._chunks: dict[str, list[pa.Array]] = {n: [] for n in types}

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        keys = sum(c.nbytes for chunks in self._chunks.values() for c in chunks)
        return self._hashes.nbytes + self._table.nbytes + keys

    def slots(self, columns: Mapping[str, pa.Array], length: int) -> Int64s:
        """The slot of each row; rows not seen before get the next slots, in order of appearance."""
        keys = [columns[n] for n in self.types]
        hashes = hash_rows(keys, length)
        exact = is_bijective(list(self.types.values())) and not keys[0].null_count
        return self._assign(keys, hashes, exact)

    def _assign(self, keys: Sequence[pa.Array], hashes: Int64s, exact: bool) -> Int64s:
        self._reserve(len(hashes))
        before = self._size
        slots, fresh, self._size = _lookup(self._table, self._hashes, self._size, hashes)
        if self._size > before:
            picks = pa.array(fresh[: self._size - before])
            for name, key in zip(self.types, keys, strict=True):
                self._chunks[name].append(key.take(picks))
        if exact or not self.types:
            return slots
        mine = self.rows(slots)
        wrong = np.flatnonzero(~same_rows(keys, list(mine.values()), len(slots)))
        if len(wrong):  # two rows, one hash: give the later one another
            picks = pa.array(wrong)
            again = self._assign([k.take(picks) for k in keys], hashes[wrong] * _REHASH + 1, exact)
            slots[wrong] = again
        return slots

    def rows(self, slots: Int64s) -> dict[str, pa.Array]:
        """The rows in the given slots."""
        picks = pa.array(slots)
        return {n: self._column(n).take(picks) for n in self.types}

    def _column(self, name: str) -> pa.Array:
        chunks = self._chunks[name]
        if len(chunks) != 1:
            joined = pa.concat_arrays(chunks) if chunks else pa.array([], self.types[name])
            self._chunks[name] = [joined]
            return joined
        return chunks[0]

    def _reserve(self, more: int) -> None:
        need = self._size + more
        if need > len(self._hashes):
            grown = np.zeros(max(need, 2 * len(self._hashes)), np.int64)
            grown[: self._size] = self._hashes[: self._size]
            self._hashes = grown
        if 2 * need > len(self._table):
            self._table = np.zeros(1 << int(2 * need).bit_length(), np.int64)
            _fill(self._table, self._hashes, self._size)

    def compact(self, keep: NDArray[np.bool_]) -> Int64s:
        """Forget the slots where `keep` is false; returns the old slots in the order of their new numbers."""
        kept = np.flatnonzero(keep[: self._size])
        picks = pa.array(kept)
        self._chunks = {n: [self._column(n).take(picks)] for n in self.types}
        self._hashes, self._size = self._hashes[kept].copy(), len(kept)
        self._table = np.zeros(max(64, 1 << int(2 * self._size).bit_length()), np.int64)
        _fill(self._table, self._hashes, self._size)
        return kept

    def arrays(self) -> dict[str, pa.Array]:
        """All rows by slot, and their hashes under `_hash`."""
        return {"_hash": pa.array(self._hashes[: self._size]), **{n: self._column(n) for n in self.types}}

    def restore(self, hashes: Int64s, columns: Mapping[str, pa.Array]) -> None:
        """Go on from what `arrays` returned."""
        self._hashes, self._size = np.array(hashes), len(hashes)
        self._chunks = {n: [columns[n]] for n in self.types}
        self._table = np.zeros(max(64, 1 << int(2 * self._size).bit_length()), np.int64)
        _fill(self._table, self._hashes, self._size)


@njit(cache=True)
def _lookup(table, known, size, hashes):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    mask = len(table) - 1
    slots = np.empty(len(hashes), np.int64)
    fresh = np.empty(len(hashes), np.int64)
    begin = size
    for i in range(len(hashes)):
        h = hashes[i]
        at = (h ^ (h >> 32)) & mask
        while True:
            slot = table[at] - 1
            if slot < 0:
                table[at] = size + 1
                known[size] = h
                fresh[size - begin] = i
                slots[i] = size
                size += 1
                break
            if known[slot] == h:
                slots[i] = slot
                break
            at = (at + 1) & mask
    return slots, fresh, size


@njit(cache=True)
def _fill(table, known, size):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    mask = len(table) - 1
    for slot in range(size):
        h = known[slot]
        at = (h ^ (h >> 32)) & mask
        while table[at]:
            at = (at + 1) & mask
        table[at] = slot + 1
