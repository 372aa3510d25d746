"""What can be said of an answer from which rows were shed: a join under a memory limit reports its `Quality`.

Which share of the rows, of their importance and of their time in memory it kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quality:
    """What a star join saw, shed and kept. `life_*` are sums of the lifetimes of rows: what came, and what was cut
    off."""

    rows_seen: int = 0
    rows_filtered: int = 0  # matched no active fact: nothing is lost with them
    rows_shed: int = 0
    results: int = 0
    importance_seen: float = 0.0
    importance_shed: float = 0.0
    life_seen: float = 0.0
    life_shed: float = 0.0

    @property
    def exact(self) -> bool:
        """Nothing was shed, so nothing is missing."""
        return self.rows_shed == 0

    @property
    def importance_kept(self) -> float:
        """Importance of the rows that could stay to their end, over that of all rows that could match."""
        return 1.0 - self.importance_shed / self.importance_seen if self.importance_seen else 1.0

    @property
    def recall(self) -> float:
        """The estimated share of results found: the share of rows' lifetimes spent in memory. Low for heuristics that
        keep the rows that match most."""
        if self.exact or not 0 < self.life_seen < math.inf:
            return 1.0
        return 1.0 - self.life_shed / self.life_seen

    def as_dict(self) -> dict[str, Any]:
        """All figures, for status and logs."""
        return {
            "rows_seen": self.rows_seen,
            "rows_filtered": self.rows_filtered,
            "rows_shed": self.rows_shed,
            "results": self.results,
            "importance_kept": round(self.importance_kept, 6),
            "estimated_recall": round(self.recall, 6),
            "exact": self.exact,
        }
