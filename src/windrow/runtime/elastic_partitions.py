"""Over how many partitions the state of what runs lies: as many as were asked for, or one while ticks are small.

A small tick on Spark is done in one place, where several partitions are only more of everything: rows are reduced for
each, and each has its operators, its runs and its file. So a home begins with one partition, and its state is spread
before the first tick that is a job; behind many small ticks, what is small is gathered again. Which queries share, and
how, does not depend on it: as over all partitions.

Law: what a tick answers does not depend on the number, and the manifest says over how many its runs lie.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from windrow.runtime.heavy_keys import HeavyKeys
from windrow.runtime.job import Feed, Job
from windrow.runtime.moved_state import NotMovedError
from windrow.runtime.program import Program
from windrow.runtime.registered_instances import RegisteredInstances
from windrow.runtime.repartition import repartitioned

LOG = logging.getLogger("windrow.engine")
FEW_BYTES = 4 << 20
"""Of state, up to which it is gathered."""


class ElasticQueries(RegisteredInstances):
    """What a ticker runs, over one partition or over all."""

    quiet = 64
    """After so many small ticks in a row state is gathered: a large one would have to spread it again."""

    _small = 0  # ticks in a row that were

    def repartition(self, partitions: int | None = None) -> None:
        """Let all state lie over so many partitions, or those that were asked for, durably; what runs is known."""
        over = self.partitions if partitions is None else partitions
        if self.manifest.partitions == over:
            return
        gathered = self.sharing.not_by_group() if over > 1 else set[str]()
        moved = repartitioned(self.manifest, self.store.runs, self.deployed(), over, gathered)
        moved = replace(moved, spread=self.spread)
        if any(stage.isdecimal() for stage, *_ in self.manifest.runs):
            self.put(moved)
        else:  # nothing lies anywhere: the next manifest says where it will
            self.manifest = replace(moved, version=self.manifest.version)
        self.partitions = over  # not before: where that fails, everything goes on over those that there are
        self.sharing.gather(gathered)
        self.heavy, self._deployment, self._generations = HeavyKeys(over, undo=self.undo), None, {}

    def placed(self, plan: Callable[[], Program], job: Job, feeds: Sequence[Feed]) -> Program:
        """The program of a tick over some feeds, and whether it is done in one place; if not, over all partitions."""
        program = plan()
        in_one = job.in_one(feeds, program)
        self._small = self._small + 1 if in_one else 0
        over = self._partitions_for(program)
        if over != self.partitions and self._moved_to(over):
            program = plan()
        return replace(program, in_one=True, direct=self.partitions == 1) if in_one else program

    def _moved_to(self, partitions: int) -> bool:
        """Let state lie over so many partitions; where some does not say how it would, all stays where it is."""
        try:
            self.lie_over(partitions)
        except NotMovedError as error:
            LOG.warning("state stays over %d partitions: %s", self.partitions, error)
            self.spread = self.partitions
            return False
        return True

    def _partitions_for(self, program: Program) -> int:
        """How many partitions are best for a tick."""
        if not self.gathers or not self._small:
            return self.spread
        gather = self._small > self.quiet and program.state_bytes <= FEW_BYTES
        return 1 if gather else self.partitions

    def lie_over(self, partitions: int) -> None:
        """Let state lie over so many partitions."""
        self.repartition(partitions)
        for name, query in self.deployed().queries.items():
            self._choose(name, query)
