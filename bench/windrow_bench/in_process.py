"""The tasks of a tick without a JVM: what Spark does between them, in this process, with everything it may do to them.

Messages travel encoded and arrive in any order, tasks run twice, and workers forget what they held: none of it may
change an answer. Tasks that do all stages by files (`file_exchange`) take turns at any of their waits, some begin late
or never, and some attempts end in the middle.
"""

from __future__ import annotations

import pickle
import random
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
from pyspark import cloudpickle

from windrow.operators.state.run import Run
from windrow.runtime.feed import Reader, feed
from windrow.runtime.file_exchange import Attempt
from windrow.runtime.job import Elsewhere, Feed, Given, LocalJob, Made, reader
from windrow.runtime.messages import Envelope
from windrow.runtime.program import Program
from windrow.runtime.stage import Stage
from windrow.runtime.task_state import TaskMemory
from windrow.runtime.wire import Spool, pack, unpack
from windrow.sources.protocol import Available
from windrow.store.manifest import SlotKey


def _reader(parts: Sequence[pa.Table | pa.RecordBatch]) -> Reader:
    """Gives what is asked for and no more, as files do."""
    return lambda columns, report: [part if columns is None else part.select(list(columns)) for part in parts]


_Share = dict[tuple[str, str | None], list[pa.Table | pa.RecordBatch]]
"""What a task reads, by stream and whom it is for."""


def _fed(program: Program, share: _Share, sender: int) -> list[Envelope]:
    return [e for (s, only), parts in share.items() for e in feed(program, s, _reader(parts), sender, only)]


class InProcessJob:
    """Runs tasks one after the other; `chaos` shuffles messages, repeats tasks and clears workers' memory.

    `small`: a seed, by which some ticks are done in one place, the first ones more likely than those behind a large
    one.
    """

    kind, in_process = "in process", False

    def __init__(
        self, pieces: int = 2, chaos: int | None = None, partitions: int = 2, small: int | None = None
    ) -> None:
        self.pieces, self.parallelism = pieces, partitions
        self.random = None if chaos is None else random.Random(chaos)
        self._small = None if small is None else random.Random(small)
        self._here = LocalJob()
        self.kept = chaos is not None and chaos % 3 == 0  # all answers go by reference
        self.memory = TaskMemory()
        self.spool: Spool | None = None
        if chaos is not None and chaos % 2:  # long bodies go by files
            self.spool = Spool(tempfile.mkdtemp(prefix="windrow-tasks-"))
            weakref.finalize(self, shutil.rmtree, self.spool.folder, ignore_errors=True)
        self.in_one_set = chaos is not None and chaos % 4 == 3  # and so does everything between tasks
        self._workers = [TaskMemory() for _ in range(partitions + 1)]

    def run(
        self, feeds: Sequence[Feed], program: Program, stages: int, elsewhere: Elsewhere = nullcontext
    ) -> list[Envelope]:
        if program.in_one:
            return self._here.run(feeds, program, stages)
        with elsewhere():
            found = self._run(feeds, program, stages)
        if self.spool is not None:
            self.spool.clear()
        return found

    def _run(self, feeds: Sequence[Feed], program: Program, stages: int) -> list[Envelope]:
        if self.kept:
            program = replace(program, answer_bound=0)
        program = cloudpickle.loads(cloudpickle.dumps(program))
        shares = self._tasks(feeds, program)
        if self.in_one_set:
            while (found := self._set(program, stages, shares)) is None:
                pass
            return found
        sent: list[Envelope] = []
        for sender, mine in enumerate(shares):
            sent += unpack(pack(_fed(program, mine, sender), sender, self.spool), self.spool)
        for number in range(1, stages + 1):
            inboxes: list[list[Envelope]] = [[] for _ in range(program.partitions)]
            for envelope in sent:
                inboxes[envelope.to].append(envelope)
            sent = []
            for partition, inbox in enumerate(inboxes):
                sent += self._task(program, number, partition, number == stages, inbox)
        return sent

    def _set(self, program: Program, stages: int, shares: Sequence[_Share]) -> list[Envelope] | None:
        """An attempt of a set of tasks, which take turns; None if one of them died."""
        assert self.spool is not None
        assert self.random is not None
        folder = tempfile.mkdtemp(dir=self.spool.folder)
        tasks = self.random.randint(1, len(self._workers))
        patience = self.random.randint(1, 4)  # every look is a turn, and in a turn somebody may die
        attempt = Attempt(folder, len(shares), program.partitions, stages, tasks, patience)
        if self.random.random() < 0.2:
            self.random.choice(self._workers).attempts.clear()
        running = {
            n: attempt.run(program, memory, lambda share: _fed(program, shares[share], share))
            for n, memory in enumerate(self.random.sample(self._workers, tasks))
        }
        dies = self.random.randint(1, 40 * tasks)
        sent: list[Envelope] = []
        while running:
            dies -= 1
            number = self.random.choice([*running])
            if not dies:
                shutil.rmtree(folder)
                return None
            found: list[Envelope] = []
            for envelope in running[number]:
                if envelope is None:
                    break
                found.append(envelope)
            else:
                del running[number]
            sent += unpack(pack(found, number, Spool(folder)), Spool(folder))
        shutil.rmtree(folder)
        return sent

    def _tasks(self, feeds: Sequence[Feed], program: Program) -> list[_Share]:
        """Two pieces for each task, the first piece of every stream first."""
        cut = []
        for given in feeds:
            for part in reader(given.rows, program.deployment.streams[given.stream])(None, None):
                step = max(1, -(-part.num_rows // self.pieces))
                cut += [(at // step, given, part.slice(at, step)) for at in range(0, part.num_rows, step)]
        cut.sort(key=lambda piece: piece[0])
        tasks = []
        for at in range(0, len(cut), 2):
            mine: _Share = {}
            for _, given, piece in cut[at : at + 2]:
                mine.setdefault((given.stream, given.only), []).append(piece)
            tasks.append(mine)
        return tasks

    def _task(self, program: Program, number: int, partition: int, last: bool, inbox: list[Envelope]) -> list[Envelope]:
        if self.random is not None:
            self.random.shuffle(inbox)
            if self.random.random() < 0.3:
                self.memory.attempts.clear()
            if self.random.random() < 0.3:  # an attempt whose report is lost
                Stage(program, number, partition, last, self.memory).run(list(inbox))
        done = Stage(program, number, partition, last, self.memory).run(inbox)
        return list(unpack(pack(done, partition, self.spool), self.spool))

    def in_one(self, feeds: Sequence[Feed], program: Program) -> bool:
        return self._small is not None and self._small.random() < (0.8 if program.partitions == 1 else 0.3)

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
            shipped, given = cloudpickle.loads(cloudpickle.dumps((work, value)))
            found.append(pickle.loads(pickle.dumps(shipped(given))))
        return found

    def state(self) -> Iterator[tuple[SlotKey, tuple[Run, ...]]]:
        return self.memory.slots()

    def close(self) -> None:
        """Nothing is open."""
