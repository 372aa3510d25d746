"""A table from rows to slots: exact, growing, with rows that can be forgotten.

Each distinct row gets a small integer, its slot, for as long as someone remembers it; per-slot facts (counts, ends)
live in NumPy arrays of the caller, indexed by slot. Lookup is an open-addressing hash table over 64-bit row hashes,
compiled; rows with equal hashes but different values are told apart by comparing the rows (the later one is moved to
another hash). The table grows with the rows it knows, not with those that are looked up: few keys stay in the cache
however long a batch is. Integers that lie near each other, as numbers of things do, have an array besides, in which
their slots are found without hashing once they are known. Of short texts that repeat within a batch, each is looked up
once.

Rows are forgotten one by one (`release`: others get their slots, the rest keep theirs) or by renumbering those that
stay (`compact`). Cost: O(1) per row looked up or released; compacting is a rebuild, made when half of the slots are
free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from windrow.operators.elements import Int64s, gathered
from windrow.operators.keys import hash_rows, is_bijective, mix_one, same_rows, unmixed
from windrow.operators.repeats import repeats

_REHASH = np.int64(0x5851F42D4C957F2D)
_NEAR, _FAR, _MANY = 1 << 16, 1 << 19, 1 << 12
"""So many integers at least, and at most, from the least one of a call with many rows on, are in an array."""


class KeyTable:
    """Rows of the given columns, each with a slot."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self.types = dict(types)
        self._clear({n: pa.nulls(0, t) for n, t in types.items()}, np.zeros(0, np.int64))

    def _clear(self, rows: Mapping[str, pa.Array], hashes: Int64s) -> None:
        """Hold exactly these rows, by slot; their hashes are all different."""
        self._size = self._used = len(hashes)  # slots that were given; places of the table that are taken
        self._table = np.zeros(max(64, 1 << int(2 * self._size).bit_length()), np.int32)  # slot + 1, 0: free, -1: was
        self._hashes = np.zeros(len(self._table) // 2, np.int64)  # by slot; room for half as many as in the table
        self._hashes[: self._size] = hashes
        self._near, self._least = np.zeros(0, np.int32), 0  # slot + 1, or 0 when not known, of integers from the least
        self._chunks: dict[str, list[pa.Array]] = {n: [rows[n]] for n in self.types}
        self._place: Int64s | None = None  # the row of each slot, where some were released; else its number
        self._dead, self._kept = np.zeros(0, np.bool_), 0  # by slot, where some were released; how many rows are kept
        self._free, self._spare = np.zeros(0, np.int64), 0
        self._moved = False  # rows that share their hash with others
        if self._size:
            _fill(self._table, self._hashes, self._size, self._dead)

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        keys = sum(c.nbytes for chunks in self._chunks.values() for c in chunks)
        return self._hashes.nbytes + self._table.nbytes + keys

    @property
    def known(self) -> int:
        """How many rows there are."""
        return self._size - self._spare

    @property
    def live(self) -> Int64s:
        """The slots that have rows."""
        return np.arange(self._size) if self._place is None else np.flatnonzero(~self._dead[: self._size])

    def slots(self, columns: Mapping[str, pa.Array], length: int) -> Int64s:
        """The slot of each row; rows not seen before get the next slots, in order of appearance, or released ones."""
        keys = [columns[n] for n in self.types]
        values = unmixed(keys)
        if values is not None:  # hashed as they are looked up
            if length >= _MANY:
                self._look_near(values)
            return self._assign(keys, values, exact=True, mixed=False)
        repeated = repeats(keys[0]) if len(keys) == 1 else None
        if repeated is not None:
            text, first = repeated
            keys, length = [keys[0].take(pa.array(first))], len(first)
        exact = is_bijective(list(self.types.values())) and not keys[0].null_count
        found = self._assign(keys, hash_rows(keys, length), exact)
        return found if repeated is None else found[text]

    def _look_near(self, values: Int64s) -> None:
        """Have the slots of integers like these in an array, unless they seem to be there, or lie too far apart."""
        if all(0 <= int(v) - self._least < len(self._near) for v in (values[0], values[-1])):
            return
        low, high = int(values.min()), int(values.max())
        if high - low < _FAR:
            self._least, self._near = low, np.zeros(max(_NEAR, 2 * (high - low)), np.int32)

    def _assign(self, keys: Sequence[pa.Array], hashes: Int64s, exact: bool, mixed: bool = True) -> Int64s:
        slots, done = np.empty(len(hashes), np.int64), 0
        near = (self._near, self._least) if not mixed else (self._near[:0], 0)
        while done < len(hashes):
            done, fresh, given, self._size, self._used, self._spare = _lookup(
                self._table, self._hashes, self._size, self._used, self._free, self._spare, hashes, mixed, *near, done,
                slots,
            )  # fmt: skip
            if len(fresh):
                self._append(keys, fresh, given)
            if done < len(hashes):
                self._grow()
        if exact or not self.types:
            return slots
        mine = self.rows(slots)
        wrong = np.flatnonzero(~same_rows(keys, list(mine.values()), len(slots)))
        if len(wrong):  # two rows, one hash: give the later one another
            self._moved = True
            picks = pa.array(wrong)
            again = self._assign([k.take(picks) for k in keys], hashes[wrong] * _REHASH + 1, exact)
            slots[wrong] = again
        return slots

    def _append(self, keys: Sequence[pa.Array], fresh: Int64s, given: Int64s) -> None:
        """Keep the rows of new slots."""
        if self._place is not None:
            more = len(self._hashes) - len(self._place)
            self._place = np.concatenate((self._place, np.zeros(more, np.int64))) if more else self._place
            self._dead = np.concatenate((self._dead, np.zeros(more, np.bool_))) if more else self._dead
            rows = self._kept
            if rows > 2 * self.known + 1024:
                live = np.setdiff1d(self.live, given)  # those that are given back are not kept yet
                self._chunks = {n: [a] for n, a in self.rows(live).items()}
                self._place[live], rows = np.arange(len(live)), len(live)
            self._place[given] = np.arange(rows, rows + len(given))
            self._dead[given] = False
            self._kept = rows + len(given)
        picks = pa.array(fresh)
        for name, key in zip(self.types, keys, strict=True):
            self._chunks[name].append(key.take(picks))

    def rows(self, slots: Int64s) -> dict[str, pa.Array]:
        """The rows in the given slots."""
        places = slots if self._place is None else self._place[slots]
        return {n: gathered([(self.column(n), places)]) for n in self.types}

    def column(self, name: str) -> pa.Array:
        chunks = self._chunks[name]
        if len(chunks) != 1:
            self._chunks[name] = chunks = [pa.concat_arrays(chunks)]
        return chunks[0]

    def _grow(self) -> None:
        """Make room for twice as many rows, or more where they are few; or for those that came where others were."""
        if self._size == len(self._hashes) or 2 * self.known > self._used:
            length = (8 if self._size < 1024 else 2) * len(self._table)
            self._hashes = np.concatenate((self._hashes, np.zeros(length // 2 - len(self._hashes), np.int64)))
        self._table = np.zeros(2 * len(self._hashes), np.int32)
        _fill(self._table, self._hashes, self._size, self._dead)
        self._used = self.known

    def release(self, slots: Int64s) -> None:
        """Forget the rows of some slots, which will be given to others."""
        if not len(slots):
            return
        if self._place is None:
            self._place, self._kept = np.arange(len(self._hashes)), self._size
            self._dead = np.zeros(len(self._hashes), np.bool_)
        if len(self._near):
            gone = unmixed([c.drop_null() for c in self.rows(slots).values()])
            at = np.zeros(0, np.int64) if gone is None else gone - self._least
            self._near[at[(at >= 0) & (at < len(self._near))]] = 0
        self._dead[slots] = True
        self._free = np.concatenate((self._free[: self._spare], slots))
        self._spare = len(self._free)
        if self._moved:  # whom a row gave way to may be gone: all are looked up again
            live = self.live
            self.restore_at(live, self.rows(live))
        else:
            _drop(self._table, self._hashes, slots)

    def compact(self, keep: NDArray[np.bool_]) -> Int64s:
        """Forget the slots where `keep` is false; returns the old slots in the order of their new numbers."""
        kept = np.flatnonzero(keep[: self._size])
        moved = self._moved
        self._clear(self.rows(kept), self._hashes[kept])
        self._moved = moved
        return kept

    def arrays(self) -> dict[str, pa.Array]:
        """All rows by slot, and their hashes under `_hash`."""
        return {"_hash": pa.array(self._hashes[: self._size]), **{n: self.column(n) for n in self.types}}

    def restore(self, hashes: Int64s, columns: Mapping[str, pa.Array]) -> None:
        """Go on from what `arrays` returned."""
        self._clear(columns, hashes)
        self._moved = True  # nobody knows

    def restore_at(self, slots: Int64s, columns: Mapping[str, pa.Array]) -> None:
        """Hold exactly these rows, all different, in these slots."""
        self._clear({n: pa.array([], t) for n, t in self.types.items()}, np.zeros(0, np.int64))
        given = self.slots(columns, len(slots))
        hashes, moved = self._hashes[given], self._moved
        size = int(slots.max()) + 1 if len(slots) else 0
        self._clear(columns, np.zeros(size, np.int64))
        self._hashes[slots], self._moved = hashes, moved
        self._place, self._kept = np.zeros(len(self._hashes), np.int64), len(slots)
        self._place[slots] = np.arange(len(slots))
        self._dead = np.zeros(len(self._hashes), np.bool_)
        self._dead[:size] = True
        self._dead[slots] = False
        self._free = np.flatnonzero(self._dead)[::-1].copy()
        self._spare, self._used = len(self._free), len(slots)
        self._table[:] = 0
        _fill(self._table, self._hashes, self._size, self._dead)


@njit(cache=True)
def _lookup(  # type: ignore[no-untyped-def]
    table, known, size, used, free, spare, hashes, mixed, near, least, begin, slots
):  # pragma: no cover - compiled
    """Write the slots of the rows from `begin` on: up to which row there was room, the new rows and their slots, how
    many slots and places of the table are taken, and how many slots are spare."""
    mask, room, reach, n = len(table) - 1, len(known), np.uint64(len(near)), 0
    most = min(room - used, len(hashes) - begin)
    fresh, given = np.empty(most, np.int64), np.empty(most, np.int64)
    for i in range(begin, len(hashes)):
        away = np.uint64(hashes[i]) - np.uint64(least)
        if away < reach and near[away]:
            slots[i] = near[away] - 1
            continue
        h = hashes[i] if mixed else mix_one(hashes[i])
        at = (h ^ (h >> 32)) & mask
        while table[at] and (table[at] < 0 or known[table[at] - 1] != h):
            at = (at + 1) & mask
        if not table[at]:
            if used == room or (not spare and size == room):
                return i, fresh[:n], given[:n], size, used, spare
            if spare:
                spare -= 1
                slot = free[spare]
            else:
                slot = size
                size += 1
            known[slot], fresh[n], given[n] = h, i, slot
            n, used = n + 1, used + 1
            table[at] = slot + 1
        slots[i] = table[at] - 1
        if away < reach:
            near[away] = table[at]
    return len(hashes), fresh[:n], given[:n], size, used, spare


@njit(cache=True)
def _fill(table, known, size, dead):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    mask = len(table) - 1
    for slot in range(size):
        if slot < len(dead) and dead[slot]:
            continue
        h = known[slot]
        at = (h ^ (h >> 32)) & mask
        while table[at]:
            at = (at + 1) & mask
        table[at] = slot + 1


@njit(cache=True)
def _drop(table, known, slots):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Mark the places of slots as left, so that what lies behind them is still found."""
    mask = len(table) - 1
    for slot in slots:
        h = known[slot]
        at = (h ^ (h >> 32)) & mask
        while table[at] != slot + 1:
            at = (at + 1) & mask
        table[at] = -1
