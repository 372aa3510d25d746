"""What a tick brought."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from windrow.errors import WindrowError
from windrow.operators.elements import Elements
from windrow.runtime.admission import Admission
from windrow.runtime.kept_answers import AnyAnswer
from windrow.sharing.plans.answers import InstanceRows
from windrow.sharing.query_group import Batch


@dataclass
class TickResult:
    """What a tick brought."""

    number: int
    frontier: int
    answers: dict[str, AnyAnswer] = field(default_factory=dict)
    shared: list[Batch] = field(default_factory=list)  # answers of queries that share, not yet taken apart
    instances: list[InstanceRows] = field(default_factory=list)  # of shared plans, not yet put together
    archived: dict[str, Elements] = field(default_factory=dict)  # rows for archives, with their lifetimes
    late: dict[str, pa.Table] = field(default_factory=dict)
    aside: dict[str, pa.Table] = field(default_factory=dict)  # rows for quarantines
    counters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ended: float = 0.0  # by the wall
    failed: dict[str, WindrowError] = field(default_factory=dict)  # queries that cannot go on
    over: set[str] = field(default_factory=set)  # shared plans that cannot
    spent: float = 0.0  # seconds of queries with deadlines, in the task where they took longest
    kernels: float = 0.0  # seconds in tasks behind stage 0: of each stage, the longest task
    admitted: list[Admission] = field(default_factory=list)  # what tasks kept of streams that may be shed
