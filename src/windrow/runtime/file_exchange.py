"""The tasks of a tick on one machine: all stages in one set of tasks, which meet in a folder.

    task ── takes shares of the rows, reads ──┐  files by stage  ┌── its partitions: stage 1 ── ... ──► driver
    task ── takes shares of the rows, reads ──┘  and partition   └── its partitions: stage 1 ── ... ──► driver

Where stages are sets of tasks, nobody works while one ends and the next begins. Here a task goes from stage to stage
by itself. It takes what nobody has, a share of the rows or a partition, by making a file that must be new; what it
sends to partitions of its own it keeps, and what is for others it writes; then it waits until all shares, or all
partitions, are through. Partitions whose operators it remembers it takes first, so state stays where it is.

Law: in one attempt every share is read once and every partition is taken by one task. No task must be there for others
to go on: whoever is done takes what is left, so one task alone does everything, and one that comes late finds nothing
to do. What is left of partitions it takes a tenth of a second later: who remembers them may only just begin. A task
that dies takes its attempt with it: the driver removes the folder, and who waits there gives up.

Cost: a file for each pair of tasks and stage that has messages (long bodies have their own, `wire.Spool`), an empty one
for everything that is taken or through; a look at one of those while waiting, at most every millisecond.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.runtime.messages import Envelope
from windrow.runtime.program import Program
from windrow.runtime.stage import Stage
from windrow.runtime.task_state import TaskMemory
from windrow.runtime.wire import Spool, decode, encode, unfiled

FIRST_LOOK, LAST_LOOK = 0.0001, 0.001
"""Seconds between two looks of a task that waits: at first, and at most."""

PATIENCE = 100
"""Looks at partitions that nobody has come for."""

ReadShare = Callable[[int], Iterable[Envelope]]
"""Reads a share of the rows: what stage 0 sends."""


@dataclass(frozen=True)
class Attempt:
    """A folder, and what is to be done there."""

    folder: str
    shares: int
    partitions: int
    stages: int
    tasks: int
    patience: int = PATIENCE

    def run(self, program: Program, memory: TaskMemory, read: ReadShare) -> Iterator[Envelope | None]:
        """One task: what it sends to the driver, and None where it can do nothing until others are further."""
        here = _Task(self)
        most = -(-self.partitions // self.tasks)
        here.take(_remembered(program, memory), most)
        for share in range(self.shares):
            if here.claim(0, share):
                sent = read(share)
                here.take(range(self.partitions), most)  # not before: who remembers them may have just begun
                here.send(1, sent)
                here.through(0, share)
        yield from here.all_through(0, self.shares)
        for stage in range(1, self.stages + 1):
            last = stage == self.stages
            for partition in here.partitions(stage):
                if partition is None:
                    yield None
                    continue
                sent = Stage(program, stage, partition, last, memory).run(here.inbox(stage, partition))
                if last:
                    yield from sent
                else:
                    here.send(stage + 1, sent)
                    here.through(stage, partition)
            if not last:
                yield from here.all_through(stage, self.partitions)
        memory.keep(program.store.uri, here.taken)


def _remembered(program: Program, memory: TaskMemory) -> list[int]:
    """The partitions whose operators are here: first those that are as the last accepted tick left them."""
    found = {p: memory.generation((program.store.uri, 1, p)) for p in range(program.partitions)}
    here = [p for p, generation in found.items() if generation is not None]
    return sorted(here, key=lambda p: found[p] != program.generations.get((1, p)))


class _Task:
    """What one task has taken, and its messages."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt, self._spool = attempt, Spool(attempt.folder)
        self.taken: list[int] = []
        self._kept: dict[tuple[int, int], list[Envelope]] = {}  # to its own partitions, by stage and partition
        self._sent = 0

    def _path(self, name: str) -> str:
        return os.path.join(self._attempt.folder, name)

    def claim(self, stage: int, number: int) -> bool:
        """Take a share (of stage 0) or a partition (from stage 1 on) unless somebody has."""
        try:
            self._made(_taken(stage, number)).close()
        except FileExistsError:
            return False
        return True

    def take(self, partitions: Sequence[int], most: int) -> None:
        """Take some of these partitions, until it has so many."""
        for p in partitions:
            if len(self.taken) >= most:
                return
            if p not in self.taken and self.claim(1, p):
                self.taken.append(p)

    def partitions(self, stage: int) -> Iterator[int | None]:
        """Its partitions; in the first stage those too that nobody comes for, after some looks (None)."""
        yield from list(self.taken)
        looks = 0
        for p in range(self._attempt.partitions) if stage == 1 else ():
            while looks < self._attempt.patience and not self._exists(_taken(1, p)):
                looks += 1
                yield None
            if p not in self.taken and self.claim(1, p):
                self.taken.append(p)
                yield p

    def send(self, stage: int, envelopes: Iterable[Envelope]) -> None:
        """Messages for a stage: its own stay here, as they are."""
        packed: dict[int, list[tuple[int, str, str, bytes]]] = {}
        for envelope in envelopes:
            if envelope.to in self.taken:
                self._kept.setdefault((stage, envelope.to), []).append(envelope)
            else:
                body = encode(envelope.message, self._spool)
                packed.setdefault(envelope.to, []).append((envelope.sender, *body))
        for to, found in packed.items():
            with self._made(f"{_inbox(stage, to)}{os.getpid()}-{id(self):x}-{self._sent}") as file:
                pickle.dump(found, file, -1)
            self._sent += 1

    def inbox(self, stage: int, partition: int) -> Iterator[Envelope]:
        """What was sent to a partition. It can be asked for once."""
        yield from self._kept.pop((stage, partition), ())
        mine = _inbox(stage, partition)
        for name in [n for n in self._listed() if n.startswith(mine)]:
            with open(self._path(name), "rb") as file:
                found = pickle.load(file)
            for sender, kind, address, body in found:
                kind, body = unfiled(kind, pa.py_buffer(body), self._spool)
                yield Envelope(partition, sender, decode(kind, address, body))

    def through(self, stage: int, number: int) -> None:
        """Say that a share or a partition has sent all that it sends in a stage."""
        self._made(_through(stage, number)).close()

    def all_through(self, stage: int, numbers: int) -> Iterator[None]:
        """Wait until all shares, or all partitions, have."""
        for number in range(numbers):
            while not self._exists(_through(stage, number)):
                yield None

    def _exists(self, name: str) -> bool:
        if os.path.exists(self._path(name)):
            return True
        if not os.path.exists(self._attempt.folder):
            raise _given_up()
        return False

    def _made(self, name: str) -> BinaryIO:
        try:
            return open(self._path(name), "xb")
        except FileNotFoundError:
            raise _given_up() from None

    def _listed(self) -> list[str]:
        try:
            return os.listdir(self._attempt.folder)
        except FileNotFoundError:
            raise _given_up() from None


def _inbox(stage: int, partition: int) -> str:
    return f"to-{stage}-{partition}-"


def _taken(stage: int, number: int) -> str:
    return f"taken-{stage}-{number}"


def _through(stage: int, number: int) -> str:
    return f"through-{stage}-{number}"


def _given_up() -> RuntimeFailure:
    return RuntimeFailure("the tick that this task was a part of was given up")


def waiting(found: Iterator[Envelope | None]) -> Iterator[Envelope]:
    """What a task sends; while it can do nothing it sleeps. It ends with the process that started it."""
    parent, pause = os.getppid(), FIRST_LOOK
    for envelope in found:
        if envelope is not None:
            yield envelope
            pause = FIRST_LOOK
            continue
        if os.getppid() != parent:
            raise _given_up()
        time.sleep(pause)
        pause = min(2 * pause, LAST_LOOK)
