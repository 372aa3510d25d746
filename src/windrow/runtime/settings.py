"""What an engine is told when it is opened, and holds to until it is closed."""

from __future__ import annotations

from dataclasses import dataclass, field

from windrow.operators.row_limit import MOST_ROWS
from windrow.optimize import Optimizer


@dataclass(frozen=True)
class Settings:
    """How queries are planned and run.

    `partitions`: None, as the home has it, or as many as the job runs at once. `budget_us`: of processing time, a tick.
    `ahead_us`: how far ahead of time a row may be. `allow`: options of sources that change what they read.
    `most_rows`: that a query may answer with in a tick, in one partition. `expire_us`: how often joins forget.
    """

    optimizer: Optimizer = field(default_factory=Optimizer)
    partitions: int | None = None
    sharing: str = "auto"
    budget_us: int | None = None
    schedule: str = "late-pending"
    ahead_us: int | None = None
    allow: frozenset[str] = frozenset()
    most_rows: int = MOST_ROWS
    expire_us: int | None = None
