"""What the answers of queries with deadlines take, of the work of a shared join.

Results are added to synopses whoever is answered; what a deadline can put off is reading windows, adding up what tasks
read, and finishing. A sweep does the first two things in one loop, so its time is divided as its steps are
(`JoinSynopsis.read_share`), and then by windows among those who asked. Cost: a few numbers per sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.sharing.member import Spent


@dataclass
class JoinSpending:
    """Seconds by cost group; `groups`: those of queries with deadlines, by name, and how deep each reads."""

    groups: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    stopwatch: Callable[[], float] = time.perf_counter
    spent: dict[str, Spent] = field(default_factory=dict)

    def reading(self, names: Sequence[str], query: Int64s, ts: Int64s, seconds: float) -> None:
        """Windows were read: at `ts[r]` that of `names[query[r]]`."""
        if not self.groups or not len(query):
            return
        for group, (mine, depth) in self._windows(names, query).items():
            share = seconds * len(mine) / len(query)
            self._add(group, Spent(depth * len(distinct_values(ts[mine])), len(mine), share))

    def finishing(self, names: Sequence[str], query: Int64s, seconds: float) -> None:
        """What was read was answered: a row for every window and group."""
        if self.groups and len(query):
            for group, (mine, _) in self._windows(names, query).items():
                self._add(group, Spent(0, 0, seconds * len(mine) / len(query)))

    def _windows(self, names: Sequence[str], query: Int64s) -> dict[str, tuple[Int64s, int]]:
        """By cost group: the places in `query` of its members, and how deep they read."""
        of: dict[str, list[int]] = {}
        depth: dict[str, int] = {}
        for number in distinct_values(query).tolist():
            group, reads = self.groups.get(names[number], ("", 0))
            if group:
                of.setdefault(group, []).append(number)
                depth[group] = max(reads, depth.get(group, 0))
        return {g: (np.flatnonzero(np.isin(query, numbers)), depth[g]) for g, numbers in of.items()}

    def _add(self, group: str, spent: Spent) -> None:
        self.spent[group] = self.spent.get(group, Spent()) + spent
