"""Groups: key rows to slots, small integers that stay the same while the group lives.

A `KeyTable` whose rows are released one by one; of equal keys (-0.0 and 0.0, all NaNs) one stands for all. Cost: O(1)
per row looked up or released.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.keys import canonical
from windrow.operators.keytable import KeyTable


class Groups:
    """The directory of live groups; without keys there is one."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._keyless = not types
        self._table = KeyTable({str(i): t for i, t in enumerate(types or [pa.int8()])})

    def restore(self, slots: Int64s, keys: Sequence[pa.Array]) -> None:
        """Hold exactly these groups."""
        self._table.restore_at(slots, self._named(keys, len(slots)))

    def _named(self, keys: Sequence[pa.Array], length: int) -> dict[str, pa.Array]:
        if self._keyless:
            keys = [pa.array(np.zeros(length, np.int8))]
        return dict(zip(self._table.types, keys, strict=True))

    def __len__(self) -> int:
        return self._table.known

    @property
    def capacity(self) -> int:
        """How many slots there are, those of groups that are gone included."""
        return len(self._table)

    @property
    def slots(self) -> Int64s:
        """Slots of the live groups."""
        return self._table.live

    def keys(self, slots: Int64s) -> list[pa.Array]:
        """The key columns of groups."""
        return [] if self._keyless else list(self._table.rows(slots).values())

    def lookup(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        """The slot of every row; rows of unknown groups found them."""
        if length == 0:
            return np.zeros(0, np.int64)
        return self._table.slots(self._named([canonical(c) for c in columns], length), length)

    def release(self, slots: Int64s) -> None:
        """Forget groups; their slots will be given to others."""
        self._table.release(slots)
