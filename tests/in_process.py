"""The driver's side of a tick, and rows as operators take them, for tests that need no more than that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from windrow.engine.replay import Replay
from windrow.operators.elements import one
from windrow.runtime.job import Feed, Job
from windrow.runtime.kept_answers import rows_of
from windrow.runtime.program import Functions
from windrow.runtime.tick import Ticker
from windrow.runtime.tick_result import TickResult
from windrow.store.store import StateStore
from windrow_bench.in_process import InProcessJob

__all__ = ["InProcessJob", "JobTicker", "sliced"]


class JobTicker(Ticker):
    """A ticker with the job that its ticks run on."""

    def __init__(self, job: Job, store: StateStore, functions: Functions, partitions: int, sharing: str = "auto"):
        super().__init__(store, functions, partitions, sharing)
        self.job = job

    def tick(self, feeds: Sequence[Feed], until: int | None = None) -> TickResult:
        """Run one tick, answers of queries that share taken apart."""
        done = self.run(self.job, feeds, until)
        self.take_apart(done)
        done.answers = {name: rows_of(found) for name, found in done.answers.items()}
        return done


def sliced(replay: Replay, stream: str, begin: dict[str, int], frontier: int) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """The new rows of a stream up to a frontier, as operators take them."""
    data, low = replay.data[stream], begin[stream]
    high = begin[stream] = int(np.searchsorted(data.ts, frontier, "right"))
    part = data.rows.slice(low, high - low).combine_chunks()
    return data.ts[low:high], {n: one(part.column(n)) for n in part.column_names}
