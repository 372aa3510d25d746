"""What windows hold of their basic windows at instants: versions, which change when a slice comes or goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.basic_kernels import contents
from windrow.operators.aggregates.counts import BEGIN, COUNT, END, SLOT
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.state.run import ints


@dataclass(frozen=True)
class WindowContents:
    """Slices by group, and how the content of each group's window changes over some instants.

    Slice s is there at the instants number `come[s]..go[s] - 1`. Version v of group g, one of
    `versions[g]..versions[g + 1] - 1`, is shown from instant number `at[v]` to the next version's.
    """

    slots: Int64s  # [groups]
    firsts: Int64s  # [groups + 1] into slices
    come: Int64s  # [slices]
    go: Int64s
    going: Int64s  # slices by `go`, group by group
    versions: Int64s  # [groups + 1] into versions
    at: Int64s  # [versions]
    rows: Int64s  # [versions]
    point_instant: Int64s  # [points]
    point_group: Int64s
    point_version: Int64s

    @property
    def groups(self) -> int:
        return len(self.slots)

    @property
    def group_of(self) -> Int64s:
        """The group of each slice."""
        return np.repeat(np.arange(self.groups), np.diff(self.firsts))

    def slices_of(self, version: int, group: int) -> Int64s:
        """The slices that a version holds, oldest first."""
        mine = slice(self.firsts[group], self.firsts[group + 1])
        there = (self.come[mine] <= self.at[version]) & (self.go[mine] > self.at[version])
        return self.firsts[group] + np.flatnonzero(there)


def window_contents(slices: pa.Table, instants: Int64s, keyed: bool) -> tuple[pa.Table, WindowContents]:
    """The slices seen at some instants (in order), group by group, and what windows hold; without keys one group."""
    begin, end, slot = (ints(slices, n) for n in (BEGIN, END, SLOT))
    come, go = np.searchsorted(instants, begin), np.searchsorted(instants, end)
    order = np.lexsort((end, begin, slot))
    order = order[(come < go)[order]]
    if len(order) < len(slices) or (np.diff(order) != 1).any():
        slices = slices.take(pa.array(order)).combine_chunks()
    come, go, slot = come[order], go[order], slot[order]
    slots, firsts = np.unique(slot, return_index=True)
    if not keyed:
        slots, firsts = np.zeros(1, np.int64), np.zeros(1, np.int64)
    firsts = np.append(firsts, len(slot)).astype(np.int64)
    going = np.lexsort((go, slot))
    versions, at, rows, instant, group, version = contents(
        firsts, come, going, go, ints(slices, COUNT), len(instants), not keyed
    )
    return slices, WindowContents(slots, firsts, come, go, going, versions, at, rows, instant, group, version)
