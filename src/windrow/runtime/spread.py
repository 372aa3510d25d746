"""Over how many partitions the state of what runs lies: as many as were asked for, or one while ticks are small.

A small tick on Spark is done in one place, where several partitions are only more of everything: rows are reduced for
each, and each has its operators, its runs and its file. So a home begins with one partition, and its state is spread
before the first tick that is a job. Which queries share, and how, does not depend on it: as over all partitions.

Law: what a tick answers does not depend on the number, and the manifest says over how many its runs lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from windrow.runtime.heavy_keys import HeavyKeys
from windrow.runtime.job import Feed, Job
from windrow.runtime.program import Program
from windrow.runtime.registered_instances import RegisteredInstances
from windrow.runtime.repartition import repartitioned


class SpreadQueries(RegisteredInstances):
    """What a ticker runs, over one partition or over all."""

    def repartition(self, partitions: int | None = None) -> None:
        """Let all state lie over so many partitions, or those that were asked for, durably; what runs is known."""
        over = self.partitions if partitions is None else partitions
        if self.manifest.partitions == over:
            return
        gathered = self.sharing.not_by_group() if over > 1 else set[str]()
        moved = repartitioned(self.manifest, self.store.runs, self.deployed(), over, gathered)
        self.put(replace(moved, spread=self.spread))
        self.partitions = over  # not before: where that fails, everything goes on over those that there are
        self.sharing.gather(gathered)
        self.heavy, self._deployment, self._generations = HeavyKeys(over), None, {}

    def placed(self, plan: Callable[[], Program], job: Job, feeds: Sequence[Feed]) -> Program:
        """The program of a tick over some feeds, and whether it is done in one place; if not, over all partitions."""
        program = plan()
        in_one = job.in_one(feeds, program)
        if in_one:
            return replace(program, in_one=True, direct=self.partitions == 1)
        if self.partitions < self.spread:
            self.spread_out()
            program = plan()
        return program

    def spread_out(self) -> None:
        """Let state that lies in one partition lie over all."""
        self.repartition(self.spread)
        for name, query in self.deployed().queries.items():
            self._choose(name, query)
