"""Groups: key rows to slots, small integers that stay the same while the group lives.

Lookup is exact: 64-bit hashes are compared first, rows second, and rows that share a hash stand side by side.
Cost: a lookup in O(log groups) per distinct key of a batch, O(1) per row where the key is one integer and the keys lie
close together; the directory is rebuilt when groups come or go, the table of integers is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s, raw
from windrow.operators.elements import concat_arrays
from windrow.operators.keys import canonical, factorize, hash_rows, same_rows


class Direct:
    """A table from integers close together to slots of all groups: one look per row, kept as groups come and go."""

    def __init__(self, type_: pa.DataType) -> None:
        self._fits = pa.types.is_integer(type_) and type_.bit_width >= 32 and not pa.types.is_uint64(type_)
        self._low = self._count = 0
        self._table: Int64s = np.zeros(0, np.int64)

    def find(self, column: pa.Array) -> Int64s | None:
        """The slots of keys; None if one of them is unknown or null, or if the keys lie too far apart for a table."""
        if not len(self._table) or column.null_count:
            return None
        keys = raw(column).astype(np.int64, copy=False)
        if int(keys.min()) < self._low or int(keys.max()) - self._low >= len(self._table):
            return None
        slots = self._table[keys - self._low]
        return slots if slots.min() >= 0 else None

    def put(self, column: pa.Array, slots: Int64s) -> None:
        """Take in groups; a null is found another way."""
        if not self._fits:
            return
        if column.null_count:
            column, slots = column.drop_null(), slots[np.asarray(column.is_valid())]
        if not len(slots):
            return
        keys = raw(column).astype(np.int64, copy=False)
        self._count += len(slots)
        low, high = int(keys.min()), int(keys.max())
        if low < self._low or high - self._low >= len(self._table):
            self._widen(low, high)
        if self._fits:
            self._table[keys - self._low] = slots

    def _widen(self, low: int, high: int) -> None:
        """Make room from `low` to `high`, and for as much again above, because keys often grow; give up when those that
        live lie too far apart."""
        live = np.flatnonzero(self._table >= 0)
        if len(live):
            low, high = min(low, self._low + int(live[0])), max(high, self._low + int(live[-1]))
        size, most = high - low + 1, 16 * self._count + 1024
        if size > most:
            self._fits, self._table = False, np.zeros(0, np.int64)
            return
        table = np.full(min(2 * size, most), -1, np.int64)
        table[live + (self._low - low)] = self._table[live]
        self._low, self._table = low, table

    def drop(self, column: pa.Array) -> None:
        """Forget groups."""
        if len(self._table):
            keys = raw(column.drop_null()).astype(np.int64, copy=False)
            self._count -= len(keys)
            self._table[keys - self._low] = -1


class Groups:
    """The directory of live groups."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self.restore(np.zeros(0, np.int64), [pa.array([], t) for t in types])

    def restore(self, slots: Int64s, keys: Sequence[pa.Array]) -> None:
        """Hold exactly these groups."""
        self.capacity = int(slots.max()) + 1 if len(slots) else 0
        live = np.zeros(self.capacity, np.bool_)
        live[slots] = True
        self._free = np.flatnonzero(~live)[::-1]
        self._place = np.full(self.capacity, -1, np.int64)  # slot -> row of the key columns
        self._place[slots] = np.arange(len(slots))
        self._keys = list(keys)
        hashes = hash_rows(self._keys, len(slots))
        by = np.argsort(hashes, kind="stable")
        self._hashes, self._slots = hashes[by], slots[by]
        self._direct = Direct(self._types[0]) if len(self._types) == 1 else None
        if self._direct is not None:
            self._direct.put(self._keys[0], slots)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def slots(self) -> Int64s:
        """Slots of the live groups."""
        return self._slots

    def keys(self, slots: Int64s) -> list[pa.Array]:
        """The key columns of groups."""
        rows = pa.array(self._place[slots])
        return [k.take(rows) for k in self._keys]

    def lookup(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        """The slot of every row; rows of unknown groups found them."""
        if length == 0:
            return np.zeros(0, np.int64)
        if self._direct is not None and (found := self._direct.find(columns[0])) is not None:
            return found
        codes, first = factorize(columns, length)
        firsts = pa.array(first)
        distinct = [canonical(c.take(firsts)) for c in columns]
        hashes = hash_rows(distinct, len(first))
        slots = self._find(hashes, distinct)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = self._add(hashes[new], [c.take(pa.array(new)) for c in distinct])
        return slots[codes]

    def _find(self, hashes: Int64s, columns: Sequence[pa.Array]) -> Int64s:
        found = np.full(len(hashes), -1, np.int64)
        at = np.searchsorted(self._hashes, hashes)
        asked = np.arange(len(hashes))
        while True:
            inside = at < len(self._hashes)
            asked, at = asked[inside], at[inside]
            near = self._hashes[at] == hashes[asked]
            asked, at = asked[near], at[near]
            if len(asked) == 0:
                return found
            everything = len(asked) == len(hashes)
            mine = list(columns) if everything else [c.take(pa.array(asked)) for c in columns]
            same = same_rows(mine, self.keys(self._slots[at]), len(asked))
            found[asked[same]] = self._slots[at[same]]
            asked, at = asked[~same], at[~same] + 1

    def _add(self, hashes: Int64s, columns: Sequence[pa.Array]) -> Int64s:
        n = len(hashes)
        reused = self._free[len(self._free) - min(n, len(self._free)) :]
        self._free = self._free[: len(self._free) - len(reused)]
        fresh = np.arange(self.capacity, self.capacity + n - len(reused))
        slots = np.concatenate((reused, fresh))
        self.capacity += len(fresh)
        if self._keys and len(self._keys[0]) > 2 * len(self._slots) + 1024:
            self._repack()
        rows = len(self._keys[0]) if self._keys else 0
        self._place = np.concatenate((self._place, np.empty(len(fresh), np.int64)))
        self._place[slots] = np.arange(rows, rows + n)
        self._keys = [concat_arrays([old, new]) for old, new in zip(self._keys, columns, strict=True)]
        if self._direct is not None:
            self._direct.put(columns[0], slots)
        by = np.argsort(hashes, kind="stable")
        at = np.searchsorted(self._hashes, hashes[by])
        self._hashes = np.insert(self._hashes, at, hashes[by])
        self._slots = np.insert(self._slots, at, slots[by])
        return slots

    def _repack(self) -> None:
        """Drop the key rows of dead groups."""
        self._keys = self.keys(self._slots)
        self._place[self._slots] = np.arange(len(self._slots))

    def release(self, slots: Int64s) -> None:
        """Forget groups; their slots will be given to others."""
        if len(slots) == 0:
            return
        if self._direct is not None:
            self._direct.drop(self.keys(slots)[0])
        dead = np.zeros(self.capacity, np.bool_)
        dead[slots] = True
        keep = ~dead[self._slots]
        self._hashes, self._slots = self._hashes[keep], self._slots[keep]
        self._free = np.concatenate((self._free, slots))
