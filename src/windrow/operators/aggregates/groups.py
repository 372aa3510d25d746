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
    """The directory of live groups."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._table = KeyTable({str(i): t for i, t in enumerate(types)})

    def restore(self, slots: Int64s, keys: Sequence[pa.Array]) -> None:
        """Hold exactly these groups."""
        self._table.restore_at(slots, dict(zip(self._table.types, keys, strict=True)))

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
        return list(self._table.rows(slots).values())

    def lookup(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        """The slot of every row; rows of unknown groups found them."""
        if length == 0:
            return np.zeros(0, np.int64)
        return self._table.slots(dict(zip(self._table.types, map(canonical, columns), strict=True)), length)

    def release(self, slots: Int64s) -> None:
        """Forget groups; their slots will be given to others."""
        self._table.release(slots)
