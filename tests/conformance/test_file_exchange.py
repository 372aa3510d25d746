"""Tasks that meet in a folder do all that is to be done once, whoever is there, and keep what they remember."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pytest

from windrow.errors import RuntimeFailure
from windrow.runtime import file_exchange, wire
from windrow.runtime.file_exchange import Attempt, waiting
from windrow.runtime.messages import Envelope, LateRows
from windrow.runtime.task_state import TaskMemory

HOME = "home"


def said(stream, at):
    """A message that says what it is."""
    return LateRows(stream, pa.table({"at": at}))


class Talking:
    """A stage that sends on what it is sent, to all partitions, and remembers in which worker it ran."""

    def __init__(self, program, stage, partition, last, memory):
        self.program, self.stage, self.partition, self.last, self.memory = program, stage, partition, last, memory

    def run(self, envelopes):
        found = sorted(e.message.stream for e in envelopes)
        self.memory.put((HOME, self.stage, self.partition), f"{self.program.tick}", {})
        name = f"{self.stage}.{self.partition}({' '.join(found)})"
        targets = [0] if self.last else range(self.program.partitions)
        return [Envelope(to, self.partition, said(name, [self.stage, self.partition])) for to in targets]


@pytest.fixture(autouse=True)
def talking(monkeypatch):
    """Stages that talk, and no long bodies."""
    monkeypatch.setattr(file_exchange, "Stage", Talking)


class Tick:
    """A tick of so many tasks over two shares and some partitions."""

    def __init__(self, place, number=1, partitions=2, tasks=2, accepted=None):
        self.folder, self.tasks, self.read = str(place / f"tick{number}"), {}, []
        os.mkdir(self.folder)
        store = SimpleNamespace(uri=HOME)
        self.program = SimpleNamespace(tick=number, partitions=partitions, store=store, generations=accepted or {})
        self.attempt = Attempt(self.folder, 2, partitions, 2, tasks)

    def task(self, memory):
        """A task in some worker."""

        def share(number):
            self.read.append(number)
            return [Envelope(p, number, said(f"share{number}", [p])) for p in range(self.program.partitions)]

        return self.attempt.run(self.program, memory, share)


def step(task, sent):
    """Let a task go on until it waits or is done; whether it is done."""
    for envelope in task:
        if envelope is None:
            return False
        sent.append(envelope.message.stream)
    return True


def play(tasks, sent):
    """Let tasks take turns until all are done."""
    left = list(tasks)
    while left:
        left = [task for task in left if not step(task, sent)]


def want(partitions):
    """What a tick sends to the driver, whoever does what."""
    first = [f"1.{p}(share0 share1)" for p in range(partitions)]
    return sorted(f"2.{p}({' '.join(sorted(first))})" for p in range(partitions))


@pytest.mark.parametrize("long", [1, 1 << 20])
@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("order", ["0", "01", "0011", "10", "0101012"])
def test_all_is_done_once_in_any_order(tmp_path, monkeypatch, partitions, order, long):
    """One task that runs alone does everything; those that come late find nothing to do."""
    monkeypatch.setattr(wire, "LONG", long)
    tick, sent = Tick(tmp_path, partitions=partitions, tasks=len(set(order))), []
    tasks = {name: tick.task(TaskMemory()) for name in order}
    for name in order:
        step(tasks[name], sent)
    play(tasks.values(), sent)
    assert tick.read == [0, 1]
    assert sorted(sent) == want(partitions)


def test_a_task_alone_writes_no_messages(tmp_path):
    """What it sends to itself is not encoded."""
    tick, sent = Tick(tmp_path, partitions=1, tasks=1), []
    assert step(tick.task(TaskMemory()), sent)
    assert sent == want(1)
    assert not [name for name in os.listdir(tick.folder) if name.startswith("to-")]


@pytest.mark.parametrize("order", ["01", "10"])
def test_partitions_stay_where_their_operators_are(tmp_path, order):
    """A worker takes what it remembers, whether it comes first or last, and forgets what another has."""
    workers, sent = [TaskMemory(), TaskMemory()], []
    for p, memory in enumerate(workers):
        memory.put((HOME, 1, p), "accepted", {})
        memory.put((HOME, 1, 1 - p), "old", {})
        memory.put(("another", 1, 1 - p), "accepted", {})
    tick = Tick(tmp_path, accepted={(1, 0): "accepted", (1, 1): "accepted"})
    tasks = [tick.task(memory) for memory in workers]
    play([tasks[int(n)] for n in order], sent)
    assert sorted(sent) == want(2)
    for p, memory in enumerate(workers):
        assert set(memory.attempts) == {(HOME, 1, p), (HOME, 2, p), ("another", 1, 1 - p)}


@pytest.mark.parametrize("order", ["01", "10"])
def test_a_new_engine_finds_workers_where_they_were(tmp_path, order):
    """It does not know which attempts are here; what workers have of its home is nearly what they are to restore."""
    workers, sent = [TaskMemory(), TaskMemory()], []
    for p, memory in enumerate(workers):
        memory.put((HOME, 1, p), "of an engine before", {})
    tick = Tick(tmp_path)
    tasks = [tick.task(memory) for memory in workers]
    play([tasks[int(n)] for n in order], sent)
    assert [{p for _, _, p in memory.attempts} for memory in workers] == [{0}, {1}]


def test_a_task_gives_up_when_its_attempt_is_over(tmp_path):
    """It does not wait for one that died: the driver has removed the folder."""
    tick, sent = Tick(tmp_path), []
    dead, left = tick.task(TaskMemory()), tick.task(TaskMemory())
    assert not step(dead, sent)  # it has read both shares and sent its own partition's messages
    assert not step(left, sent)
    dead.close()
    shutil.rmtree(tick.folder)
    with pytest.raises(RuntimeFailure, match="given up"):
        step(left, sent)
    late = tick.task(TaskMemory())
    with pytest.raises(RuntimeFailure, match="given up"):
        step(late, sent)


def test_waiting_sleeps_where_a_task_can_do_nothing(monkeypatch):
    """Longer each time, up to a millisecond; and a worker whose parent has ended does not wait for ever."""
    slept = []
    monkeypatch.setattr(file_exchange.time, "sleep", slept.append)
    some = Envelope(0, 0, said("s", [1]))
    assert list(waiting(iter([*[None] * 9, some, None]))) == [some]
    assert slept[:2] == [file_exchange.FIRST_LOOK, 2 * file_exchange.FIRST_LOOK]
    assert slept[8] == file_exchange.LAST_LOOK and slept[9] == file_exchange.FIRST_LOOK
    parents = iter([1, 1, 2])
    monkeypatch.setattr(file_exchange.os, "getppid", lambda: next(parents))
    with pytest.raises(RuntimeFailure, match="given up"):
        list(waiting(iter([None, None])))
