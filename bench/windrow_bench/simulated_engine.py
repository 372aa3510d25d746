"""An engine in which a seed decides everything: its disk, its clock, its tasks, and when answers are handed over.

No thread runs: the simulation takes turns (`Runtime.turn`) and hands answers over (`Delivery.step`) itself. Names are
drawn from the seed. Streams are read from tapes that outlive the process, or pushed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.engine.engine import Engine
from windrow.runtime.job import Elsewhere, Feed, LocalJob
from windrow.runtime.messages import Envelope
from windrow.runtime.program import Program
from windrow.runtime.runtime import Runtime
from windrow.runtime.settings import Settings
from windrow.runtime.streams import PushedTable
from windrow.runtime.tables import TableSource
from windrow.sources.protocol import Available, Offset, Source
from windrow.store import background, disk
from windrow.store.runs import cache
from windrow.store.store import Store
from windrow_bench.in_process import InProcessJob
from windrow_bench.simulated_disk import ROOT, SimulatedDisk

_runs = itertools.count()
HOME, OUT = f"{ROOT}/home", f"{ROOT}/out"


@dataclass
class Tape:
    """Rows of a stream that can be read again, as far as they have come."""

    schema: pa.Schema
    rows: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.schema.empty_table()

    def poll(self, offset: Offset | None) -> Available | None:
        """The rows behind an offset."""
        begin = int(offset["row"]) if offset else 0
        new = self.rows.slice(begin)
        return Available({"row": self.rows.num_rows}, (PushedTable(new),)) if new.num_rows else None

    def committed(self, offset: Offset) -> None:
        """It keeps everything."""

    def drained(self, offset: Offset | None) -> bool:
        """Whether all rows are before an offset."""
        return self.poll(offset) is None

    def close(self) -> None:
        """Nothing is open."""


class _Tapes:
    """Tapes as a runtime takes DataFrames."""

    def knows(self, data: object) -> bool:
        return isinstance(data, Tape)

    def columns(self, frame: Any) -> dict[str, pa.DataType]:
        return dict(zip(frame.schema.names, frame.schema.types, strict=True))

    def source(self, frame: Any, stream: StreamDef, checkpoint: str) -> Source:
        made: Tape = frame
        return made

    def table(self, frame: Any) -> TableSource:
        raise NotImplementedError


class _ForgetfulJob(LocalJob):
    """Tasks of this process that run twice now and then, the report of the first attempt lost."""

    def __init__(self, chance: random.Random | None) -> None:
        super().__init__()
        self._chance = chance

    def run(
        self, feeds: Sequence[Feed], program: Program, stages: int, elsewhere: Elsewhere = contextlib.nullcontext
    ) -> list[Envelope]:
        if self._chance is not None and self._chance.random() < 0.2:
            super().run(feeds, program, stages)
        return super().run(feeds, program, stages)


class SimulatedEngine(Engine):
    """An engine on a simulated disk."""

    def __init__(self, on: SimulatedDisk, chaos: random.Random | None, in_process: bool, partitions: int) -> None:
        self._on, self._chaos, self._in_process = on, chaos, in_process
        super().__init__("local", HOME, partitions=partitions)

    def _opened(self, runtime: str, home: str | os.PathLike[str] | None, spark: Any, settings: Settings) -> Runtime:
        on, functions = self._on, self._functions(self.catalog)
        store = Store.open(HOME, clock=lambda: on.clock[0])
        seed = None if self._chaos is None else 2 * self._chaos.getrandbits(31)  # messages stay in memory
        job = _ForgetfulJob(self._chaos) if self._in_process else InProcessJob(chaos=seed, small=seed)
        made = Runtime(
            job, store, functions, settings, frames=_Tapes(), clock=lambda: on.clock[0], stopwatch=lambda: on.clock[0]
        )
        made.ticker.quiet = 0
        return made


@contextlib.contextmanager
def simulated(on: SimulatedDisk, seed: int) -> Iterator[None]:
    """Everything that happens here follows from the disk's faults and the seed."""
    chance, run = random.Random(seed), next(_runs)

    def drawn() -> uuid.UUID:  # no two runs of a process share a name: what it remembers goes by them
        return uuid.UUID(int=chance.getrandbits(80) << 48 | run)

    with disk.using(on), background.held(), mock.patch.object(uuid, "uuid4", drawn):
        cache.clear()
        try:
            yield
        finally:
            cache.clear()
