"""The job of a tick: what a runtime must be able to do for the driver, and the job that runs in this process.

    feeds ── stage 0 ── messages by partition ── stage 1 ── ... ── stage n ──► messages for the driver

A job runs the tasks of every stage for every partition and returns what they send to the driver. It may run a task
twice, move it elsewhere or deliver its messages in any order: answers do not depend on it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.operators.elements import Int64s
from windrow.operators.state.run import Run
from windrow.runtime.feed import Reader, feed, wanted
from windrow.runtime.idle_memory import give_back
from windrow.runtime.messages import Envelope, StreamFailed, StreamMark
from windrow.runtime.program import Program
from windrow.runtime.stage import Stage
from windrow.runtime.streams import PushedFile, PushedTable
from windrow.runtime.task_state import TaskMemory
from windrow.sources.protocol import Available, FrameRows, Piece, Report
from windrow.store.manifest import SlotKey

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Feed:
    """New rows of a stream; `only`: they are history, for one new query or family.

    `rows`: a table, pieces of a source that tasks read, or what only one kind of job understands.
    """

    stream: str
    rows: pa.Table | tuple[Piece, ...] | FrameRows
    only: str | None = None
    ts: Int64s | None = None  # the times of the rows, where they are known


Elsewhere = Callable[[], AbstractContextManager[None]]
"""What a job enters while its tasks run in other processes: what is declared may change meanwhile."""


class Job(Protocol):
    """Runs the tasks of a tick."""

    kind: str
    """The name of the runtime."""

    in_process: bool
    """Whether a tick is done when `run` returns to its caller, without any other process."""

    parallelism: int
    """How many partitions a new home gets when nobody says."""

    def run(
        self, feeds: Sequence[Feed], program: Program, stages: int, elsewhere: Elsewhere = nullcontext
    ) -> Iterable[Envelope]:
        """What the tasks send to the driver."""

    def in_one(self, feeds: Sequence[Feed], program: Program) -> bool:
        """Whether a tick is so small that it is not spread over tasks; asked before each, and `Program.in_one` then."""

    def tasks(self, rows: Mapping[str, Available]) -> Mapping[str, int]:
        """In how many tasks each stream would be read."""

    def map(
        self, work: Callable[[Given], Made], values: Sequence[Given],
        check: Callable[[], None] | None = None, at_once: int | None = None,
    ) -> list[Made]:  # fmt: skip
        """What a function gives for each value, computed by tasks beside ticks; values and results are small.

        `check` is called meanwhile, and raises what ends the work; `at_once`: the most tasks at a time.
        """

    def state(self) -> Iterator[tuple[SlotKey, tuple[Run, ...]]]:
        """The state that tasks hold and no store does."""

    def close(self) -> None:
        """Let go of what the job holds."""


class LocalJob:
    """Runs tasks one after the other in this process, which remembers their operators."""

    kind, in_process, parallelism = "local", True, 1

    def __init__(self) -> None:
        self.memory = TaskMemory()

    def run(
        self, feeds: Sequence[Feed], program: Program, stages: int, elsewhere: Elsewhere = nullcontext
    ) -> list[Envelope]:
        readers = [self._reader(program, given, room) for given, room in zip(feeds, _room(feeds), strict=True)]
        sent: list[Envelope] = []
        for sender, (given, found) in enumerate(zip(feeds, readers, strict=True)):
            if found is not None:
                sent += feed(program, given.stream, found[0], sender, given.only, given.ts, *found[1:])
        del readers
        found_all = all_stages(program, sent, stages, self.memory)
        del sent
        give_back()
        return found_all

    def _reader(
        self, program: Program, given: Feed, ahead: bool
    ) -> tuple[Reader, StreamMark | None, Reader | None] | None:
        """How the rows of a feed are read, begun already if there is room; what is left out of them, and how those are
        read that concern nobody but time."""
        stream = program.deployment.streams.get(given.stream)
        if stream is None or not isinstance(given.rows, tuple):
            return None if stream is None else (reader(given.rows, stream), None, None)
        found = wanted(program, given.stream, given.rows)
        passing = reader(found.passing, stream) if found.passing else None
        if not ahead or stream.quarantine:  # what is malformed is reported in the order of the rows
            return reader(found.read, stream), found.skipped, passing
        return read_ahead(found.read, stream, program.deployment.reads[given.stream]), found.skipped, passing

    def in_one(self, feeds: Sequence[Feed], program: Program) -> bool:
        return False

    def tasks(self, rows: Mapping[str, Available]) -> Mapping[str, int]:
        return dict.fromkeys(rows, 1)

    def map(
        self, work: Callable[[Given], Made], values: Sequence[Given],
        check: Callable[[], None] | None = None, at_once: int | None = None,
    ) -> list[Made]:  # fmt: skip
        found = []
        for value in values:
            if check is not None:
                check()
            found.append(work(value))
        return found

    def state(self) -> Iterator[tuple[SlotKey, tuple[Run, ...]]]:
        return self.memory.slots()

    def close(self) -> None:
        """What tasks remember stays: it is all there is of an engine without a home, which may start again."""


def all_stages(program: Program, sent: list[Envelope], stages: int, memory: TaskMemory) -> list[Envelope]:
    """The tasks of every stage behind the first, of all partitions, one after the other in this process."""
    if any(isinstance(e.message, StreamFailed) for e in sent):
        return sent  # before any state changes
    for stage in range(1, stages + 1):
        inboxes: list[list[Envelope]] = [[] for _ in range(program.partitions)]
        for envelope in sent:
            inboxes[envelope.to].append(envelope)
        last = stage == stages
        sent = []
        for partition, inbox in enumerate(inboxes):
            sent += Stage(program, stage, partition, last, memory).run(inbox)
    return sent


READ_AHEAD = 32 << 20
"""Bytes of files that threads read while the rows of others are computed with."""


def _room(feeds: Sequence[Feed]) -> Iterator[bool]:
    """Which feeds are read ahead: all that fit, where there are several; what the program has pushed is there."""
    if len(feeds) == 1:
        yield False
        return
    left = READ_AHEAD
    for each in feeds:
        pieces = each.rows if isinstance(each.rows, tuple) else ()
        left -= sum(p.weight for p in pieces)
        yield left > 0 and bool(pieces) and not any(isinstance(p, PushedTable | PushedFile) for p in pieces)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix="windrow-reading")


def read_ahead(pieces: Sequence[Piece], stream: StreamDef, columns: Sequence[str] | None) -> Reader:
    """Reads these columns of pieces in other threads, from now on."""
    begun = [_threads().submit(lambda p: list(p.read(stream, columns)), piece) for piece in pieces]

    def read(asked: Sequence[str] | None, report: Report | None) -> Iterable[pa.Table | pa.RecordBatch]:
        if asked != columns:
            return reader(pieces, stream)(asked, report)
        return (batch for each in begun for batch in each.result())

    return read


def reader(rows: pa.Table | Sequence[Piece], stream: StreamDef) -> Reader:
    """Reads the rows of a feed here."""
    if isinstance(rows, pa.Table):
        return lambda columns, report: [rows]
    return lambda columns, report: (batch for piece in rows for batch in piece.read(stream, columns, report))
