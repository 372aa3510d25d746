"""What the Python workers of Spark run: the tasks of a tick, and what a worker keeps from one to the next.

A task takes envelopes and sends envelopes. They reach it as the elements of an RDD, or as Arrow batches where they are
rows of a DataFrame. Tasks are functions of this module: Spark sends their names. A function within another would be
sent with a copy of all that it names, and what a worker remembers would be a new, empty memory in every task.
"""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from windrow.runtime.feed import Reader, feed, wanted
from windrow.runtime.file_exchange import Attempt, waiting
from windrow.runtime.idle_memory import give_back
from windrow.runtime.job import all_stages
from windrow.runtime.messages import Envelope
from windrow.runtime.program import Program
from windrow.runtime.stage import Stage
from windrow.runtime.task_state import TaskMemory
from windrow.runtime.wire import Row, Spool, decode_table, pack, rows, unpack
from windrow.sources.protocol import Piece, Report
from windrow.spark.shipping import ShippedDeployment

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Shipped:
    """A program on its way: all but its deployment, and where that is."""

    program: bytes
    deployment: ShippedDeployment
    spool: Spool | None = None  # where all tasks run on this machine

    def load(self) -> Program:
        """The program, in a task."""
        program: Program = pickle.loads(self.program)
        deployment, new = self.deployment.load()
        if new:
            _loaded()
        return replace(program, deployment=deployment)


memory = TaskMemory()
"""The operators of this worker's last attempts."""


# -- tasks of RDDs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllStages:
    """All stages of a tick in one set of tasks of this machine."""

    attempt: Attempt
    shipped: Shipped

    def leave(self, shares: Sequence[bytes]) -> None:
        """Put it where tasks find it, and each share of the rows by itself."""
        named = {str(number): packed for number, packed in enumerate(shares)}
        for name, packed in {**named, _WORK: pickle.dumps(self, -1)}.items():
            with open(self._path(name), "wb") as file:
                file.write(packed)

    def run(self) -> Iterator[Row]:
        """What a task sends to the driver."""
        program = self.shipped.load()

        def read(share: int) -> list[Envelope]:
            with open(self._path(str(share)), "rb") as file:
                return _sent(program, [file.read()], share)

        return rows(waiting(self.attempt.run(program, memory, read)), _here(), Spool(self.attempt.folder))

    def _path(self, name: str) -> str:
        return os.path.join(self.attempt.folder, name)


_WORK = "work"


def run_all(folder: str, _: Iterable[int]) -> Iterator[Row]:
    """A task of a set that does all stages: what it is to do lies in a folder."""
    with open(os.path.join(folder, _WORK), "rb") as file:
        work: AllStages = pickle.load(file)
    yield from work.run()
    del work
    _clean_up()


def run_whole(shipped: Shipped, stages: int, shares: Iterable[bytes]) -> Iterator[Row]:
    """A tick in one task."""
    program = shipped.load()
    sent = _sent(program, list(shares), _here())
    yield from rows(all_stages(program, sent, stages, memory), _here(), shipped.spool)
    del program, sent
    _clean_up()


def pass_on(elements: Iterable[Any]) -> Iterator[Any]:
    """Nothing, in the shape of a stage."""
    yield from elements


# -- tasks of DataFrames -----------------------------------------------------------------------------------------------


def frame_task(shipped: Shipped, stream: str, batches: Batches) -> Batches:
    here = _here()
    rows = list(batches)  # with all their columns: a frame cannot be read twice
    yield from pack(feed(shipped.load(), stream, lambda *_: rows, here), here, shipped.spool)


def given_task(shipped: Shipped, batches: Batches) -> Batches:
    return _fed(shipped, [given.as_buffer() for batch in batches for given in batch["given"]])


def pieces_task(shipped: Shipped, shares: Sequence[bytes], batches: Batches) -> Batches:
    return _fed(shipped, [shares[i] for batch in batches for i in batch["id"].to_pylist()])


def _fed(shipped: Shipped, shares: Sequence[bytes | pa.Buffer]) -> Batches:
    """What a task sends that reads what it was given."""
    here = _here()
    yield from pack(_sent(shipped.load(), shares, here), here, shipped.spool)
    give_back()


def _sent(program: Program, shares: Sequence[bytes | pa.Buffer], here: int) -> list[Envelope]:
    given: dict[tuple[str, str | None], list[bytes | Piece]] = {}
    for share in shares:
        for stream, only, piece in pickle.loads(share):
            given.setdefault((stream, only), []).append(piece)
    sent: list[Envelope] = []
    for (stream, only), pieces in given.items():
        plain = [p for p in pieces if not isinstance(p, bytes)]
        if len(plain) < len(pieces):
            sent += feed(program, stream, _reader(program, stream, pieces), here, only)
            continue
        found = wanted(program, stream, plain)
        passing = _reader(program, stream, found.passing) if found.passing else None
        read = _reader(program, stream, found.read)
        sent += feed(program, stream, read, here, only, skipped=found.skipped, passing=passing)
    return sent


def _reader(program: Program, stream: str, pieces: Sequence[bytes | Piece]) -> Reader:
    def read(columns: Sequence[str] | None, report: Report | None) -> Iterator[pa.Table | pa.RecordBatch]:
        for piece in pieces:
            if isinstance(piece, bytes):
                yield decode_table(piece)
            else:
                yield from piece.read(program.deployment.streams[stream], columns, report)

    return read


def stage_task(shipped: Shipped, stage: int, last: bool, batches: Batches) -> Batches:
    here = _here()
    done = Stage(shipped.load(), stage, here, last, memory).run(unpack(batches, shipped.spool))
    yield from pack(done, here, shipped.spool)
    del done
    _clean_up()


_tasks = 0


def _loaded() -> None:
    """Much is new in this process."""
    global _tasks
    _tasks = 0


def _clean_up() -> None:
    """Behind a task: give back what it used, and take what the first ones have loaded out of the collector's sight.

    PySpark collects garbage after every task; over all that Arrow, DuckDB and numba bring that takes 80 ms.
    """
    global _tasks
    give_back()
    _tasks += 1
    if _tasks in (1, 4):
        gc.collect()
        gc.freeze()


def _here() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
