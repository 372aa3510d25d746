"""The cost of a schedule per update, with joint runs counted once.

Sub-groups of one group that are due at the same update run together. Over a hyperperiod (the least common multiple of
the periods) every update is visited once per synopsis:

    update      0    1    2    3    4    5         periods 2 (depth 9), 3 (depth 14)
    depth      14    -    9   14    9    -         46 in 6 updates: 7.67

Least common multiples explode: that of 1..50 is 3e20. Beyond `HORIZON` updates (`windrow.schedule.arrival`) the cost is
the mean of the first `HORIZON`, in which what is left out weighs less than one joint run in as many updates. Cost:
HORIZON / period each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from windrow.schedule.arrival import horizon
from windrow_bench.schedule_model.tasks import SubGroup

Floats = NDArray[np.float64]


def cost_per_update(parts: Sequence[SubGroup], periods: Sequence[int] | None = None) -> float:
    """What running every sub-group at its own period (or at the given one) costs per update.

    >>> one, two = SubGroup("g", 2, ("a",), {"s": 9}, 0), SubGroup("g", 3, ("b",), {"s": 14}, 0)
    >>> round(cost_per_update([one, two]), 2), cost_per_update([one, two], [2, 2])
    (7.67, 7.0)
    """
    chosen = [p.period for p in parts] if periods is None else list(periods)
    total = 0.0
    for group in dict.fromkeys(p.group for p in parts):
        mine = [(p, at) for p, at in zip(parts, chosen, strict=True) if p.group == group]
        length, _ = horizon(at for _, at in mine)
        depths: dict[Hashable, Floats] = {}
        for part, at in mine:
            total += part.finish / at
            for synopsis, depth in part.reads.items():
                seen = depths.setdefault(synopsis, np.zeros(length))[::at]
                np.maximum(seen, depth, out=seen)
        total += sum(float(d.sum()) for d in depths.values()) / length
    return total
