"""Where the steps of a dataflow run, and how rows lie there: stages, partitionings and the exchanges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from windrow.runtime.grid import GridPlacement


class How(Enum):
    """A way rows lie over partitions."""

    ANY = "any"
    ONE = "one"  # all in partition 0
    COLUMNS = "columns"  # by the hash of some columns
    GRID = "grid"  # on the cells of a grid
    TOGETHER = "together"  # rows that agree on some columns lie together, wherever that is
    EVERYWHERE = "everywhere"  # the same rows in each partition


@dataclass(frozen=True)
class HeavySplit:
    """Rows whose `key` is heavy in the join `step` lie on a grid of their own."""

    step: int
    key: tuple[str, ...]
    grid: GridPlacement


@dataclass(frozen=True)
class Partitioning:
    """How a step's output lies: `columns` for How.COLUMNS and How.TOGETHER, `grid` for How.GRID and what was joined
    there."""

    how: How
    columns: tuple[str, ...] = ()
    grid: GridPlacement | None = None
    split: HeavySplit | None = None


ANY, ONE, EVERYWHERE = Partitioning(How.ANY), Partitioning(How.ONE), Partitioning(How.EVERYWHERE)


def by_columns(columns: Sequence[str], have: Partitioning) -> Partitioning:
    """Equal values of `columns` together; what lies so already stays."""
    apart = have.how in (How.COLUMNS, How.TOGETHER)
    if have.how is How.ONE or (apart and set(have.columns) <= set(columns)):
        return have
    return Partitioning(How.COLUMNS, tuple(columns)) if columns else ONE


@dataclass(frozen=True)
class Exchange:
    """Rows of step `source` sent to `stage`, spread anew; `keep`: to the same partition they are in."""

    source: int
    stage: int
    partitioning: Partitioning
    keep: bool = False


@dataclass(frozen=True)
class Placement:
    """Where steps run and what they read.

    `stages`: the stage of each step, or for what comes from tables alone (`tables`) the stages whose tasks each compute
    it. `reads`: for each (step, port) the exchange it reads through, if any. `shares`: for each (step, port) that reads
    what every partition has, how to take part of it, so that each row counts once. `partitionings`: how each output
    lies. `moves`: for each step whose state follows heavy keys, how the rows of its inputs lie.
    """

    stages: tuple[int, ...]
    reads: dict[tuple[int, int], Exchange]
    shares: dict[tuple[int, int], Partitioning]
    partitionings: tuple[Partitioning, ...]
    tables: dict[int, frozenset[int]]
    moves: dict[int, tuple[Partitioning, ...]] = field(default_factory=dict)

    def runs(self, step: int, stage: int, partition: int) -> bool:
        """Whether a step is computed in this stage of this partition; what lies in one place has one."""
        if step in self.tables:
            return stage in self.tables[step]
        return self.stages[step] == stage and (partition == 0 or self.partitionings[step] != ONE)

    def copies(self, step: int, port: int, partitions: int) -> int:
        """In how many partitions each row of an input is."""
        exchange = self.reads.get((step, port))
        if exchange is None or exchange.partitioning.grid is None:
            return 1 if exchange is not None or step not in self.tables else partitions
        return exchange.partitioning.grid.copies(partitions)

    def lies(self, step: int, port: int, source: int) -> Partitioning:
        """How the rows of an input, which are those of step `source`, lie where a step reads them."""
        if step in self.tables:
            return EVERYWHERE
        exchange = self.reads.get((step, port))
        if exchange is not None:
            return exchange.partitioning
        return self.shares.get((step, port), self.partitionings[source])

    @property
    def last_stage(self) -> int:
        return max(self.stages)
