"""A table from rows to slots: exact, growing, with rows that can be forgotten.

Each distinct row gets a small integer, its slot, for as long as someone remembers it; per-slot facts (counts, ends)
live in NumPy arrays of the caller, indexed by slot. Lookup is an open-addressing hash table over 64-bit row hashes,
compiled; rows with equal hashes but different values are told apart by comparing the rows (the later one is moved to
another hash). The table grows with the rows it knows, not with those that are looked up: few keys stay in the cache
however long a batch is. Integers that lie near each other, as numbers of things do, have an array besides, in which
their slots are found without hashing once they are known.

Cost: O(1) per row looked up; forgetting is a rebuild, made when half of the slots are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from windrow.operators.elements import Int64s
from windrow.operators.keys import hash_rows, is_bijective, mix_one, same_rows, unmixed

_REHASH = np.int64(0x5851F42D4C957F2D)
_NEAR, _MANY = 1 << 16, 1 << 12
"""So many integers, from the least one of a call with many rows on, have their slots in an array."""


class KeyTable:
    """Rows of the given columns, each with a slot."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self.types = dict(types)
        self._size = 0
        self._table = np.zeros(64, np.int32)  # slot + 1, or 0 when free
        self._hashes = np.zeros(32, np.int64)  # by slot; room for half as many as in the table
        self._near, self._least = np.zeros(0, np.int32), 0  # slot + 1, or 0 when not known, of integers from the least
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
        values = unmixed(keys)
        if values is not None:  # hashed as they are looked up
            if len(self._near) == 0 and length >= _MANY:
                self._near, self._least = np.zeros(_NEAR, np.int32), int(values.min())
            return self._assign(keys, values, exact=True, mixed=False)
        exact = is_bijective(list(self.types.values())) and not keys[0].null_count
        return self._assign(keys, hash_rows(keys, length), exact)

    def _assign(self, keys: Sequence[pa.Array], hashes: Int64s, exact: bool, mixed: bool = True) -> Int64s:
        slots, done = np.empty(len(hashes), np.int64), 0
        while done < len(hashes):
            before = self._size
            near = (self._near, self._least) if not mixed else (self._near[:0], 0)
            done, fresh, self._size = _lookup(self._table, self._hashes, before, hashes, mixed, *near, done, slots)
            if self._size > before:
                picks = pa.array(fresh)
                for name, key in zip(self.types, keys, strict=True):
                    self._chunks[name].append(key.take(picks))
            if done < len(hashes):
                self._grow()
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

    def _grow(self) -> None:
        """Make room for twice as many rows, or more where they are few."""
        self._table = np.zeros((8 if self._size < 1024 else 2) * len(self._table), np.int32)
        self._hashes = np.concatenate((self._hashes, np.zeros(len(self._table) // 2 - len(self._hashes), np.int64)))
        _fill(self._table, self._hashes, self._size)

    def _rebuild(self, hashes: Int64s) -> None:
        """A table of rows with these hashes, by slot."""
        self._size, self._near = len(hashes), self._near[:0]
        self._table = np.zeros(max(64, 1 << int(2 * self._size).bit_length()), np.int32)
        self._hashes = np.zeros(len(self._table) // 2, np.int64)
        self._hashes[: self._size] = hashes
        _fill(self._table, self._hashes, self._size)

    def compact(self, keep: NDArray[np.bool_]) -> Int64s:
        """Forget the slots where `keep` is false; returns the old slots in the order of their new numbers."""
        kept = np.flatnonzero(keep[: self._size])
        picks = pa.array(kept)
        self._chunks = {n: [self._column(n).take(picks)] for n in self.types}
        self._rebuild(self._hashes[kept])
        return kept

    def arrays(self) -> dict[str, pa.Array]:
        """All rows by slot, and their hashes under `_hash`."""
        return {"_hash": pa.array(self._hashes[: self._size]), **{n: self._column(n) for n in self.types}}

    def restore(self, hashes: Int64s, columns: Mapping[str, pa.Array]) -> None:
        """Go on from what `arrays` returned."""
        self._chunks = {n: [columns[n]] for n in self.types}
        self._rebuild(hashes)


@njit(cache=True)
def _lookup(  # type: ignore[no-untyped-def]
    table, known, size, hashes, mixed, near, least, begin, slots
):  # pragma: no cover - compiled
    """Write the slots of the rows from `begin` on: up to which row there was room, the new rows, how many are known."""
    mask, before, reach = len(table) - 1, size, np.uint64(len(near))
    fresh = np.empty(min(len(known) - size, len(hashes) - begin), np.int64)
    for i in range(begin, len(hashes)):
        away = np.uint64(hashes[i]) - np.uint64(least)
        if away < reach and near[away]:
            slots[i] = near[away] - 1
            continue
        h = hashes[i] if mixed else mix_one(hashes[i])
        at = (h ^ (h >> 32)) & mask
        while table[at] and known[table[at] - 1] != h:
            at = (at + 1) & mask
        if not table[at]:
            if size == len(known):
                return i, fresh[: size - before], size
            known[size] = h
            fresh[size - before] = i
            size += 1
            table[at] = size
        slots[i] = table[at] - 1
        if away < reach:
            near[away] = table[at]
    return len(hashes), fresh[: size - before], size


@njit(cache=True)
def _fill(table, known, size):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    mask = len(table) - 1
    for slot in range(size):
        h = known[slot]
        at = (h ^ (h >> 32)) & mask
        while table[at]:
            at = (at + 1) & mask
        table[at] = slot + 1
