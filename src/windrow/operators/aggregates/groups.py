"""Groups: key rows to slots, small integers that stay the same while the group lives.

Lookup is exact: 64-bit hashes are compared first, rows second, and rows that share a hash stand side by side.
Cost: a lookup in O(log groups) per distinct key of a batch; the directory is rebuilt when groups come or go.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s, raw
from windrow.operators.elements import concat_arrays
from windrow.operators.keys import canonical, factorize, hash_rows, same_rows


class Direct:
    """A table from small integers to slots: the fast way in while no group comes or goes."""

    def __init__(self, keys: np.ndarray, slots: Int64s) -> None:
        self._low, self._high = keys.min(), keys.max()
        self._table = np.full(int(self._high) - int(self._low) + 1, -1, np.int64)
        self._table[keys - self._low] = slots

    def find(self, keys: np.ndarray) -> Int64s | None:
        """The slots of keys; None if one of them is unknown."""
        if keys.min() < self._low or keys.max() > self._high:
            return None
        slots = self._table[keys - self._low]
        return slots if slots.min() >= 0 else None


def direct_of(type_: pa.DataType, keys: pa.Array, slots: Int64s) -> Direct | None:
    """The table of some groups, if their keys are integers close together."""
    if not pa.types.is_integer(type_) or keys.null_count or type_.bit_width < 32:
        return None
    values = raw(keys)
    return Direct(values, slots) if int(values.max()) - int(values.min()) <= 16 * len(values) + 1024 else None


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
        self._direct: Direct | None = None

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
        if self._direct is not None and columns[0].null_count == 0:
            slots = self._direct.find(raw(columns[0]))
            if slots is not None:
                return slots
        codes, first = factorize(columns, length)
        firsts = pa.array(first)
        distinct = [canonical(c.take(firsts)) for c in columns]
        hashes = hash_rows(distinct, len(first))
        slots = self._find(hashes, distinct)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = self._add(hashes[new], [c.take(pa.array(new)) for c in distinct])
        if self._direct is None and len(columns) == 1:
            self._direct = direct_of(columns[0].type, distinct[0], slots)
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
        self._direct = None
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
        self._direct = None
        dead = np.zeros(self.capacity, np.bool_)
        dead[slots] = True
        keep = ~dead[self._slots]
        self._hashes, self._slots = self._hashes[keep], self._slots[keep]
        self._free = np.concatenate((self._free, slots))
