"""Answers by reference: what is too long to be handed around lies in files of the home.

    task ── rows ──► runs/answers/<query>/<tick>-<uid>.arrow        driver ◄── references ── task

A task writes what it answers as soon as that is long, in the form that users see, in the order of times. The driver
names the files in the manifest of the tick, which makes them real, and hands references on: `results()`, subscribers
and sinks read the rows when they want them, mapped where they lie. Files stay in manifests while somebody holds a
reference (or a sink has not taken them), and are swept afterwards; so the driver's memory does not grow with answers.

Invariant: read in the order of its references and put in the order of times, an answer is what it would be by value.
Cost: one sequential write where the rows were made, instead of their way to the driver and a write there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import distinct_values
from windrow.operators.elements import BEGINNING, Elements, Int64s, concat
from windrow.operators.state.run import Run
from windrow.plan.dataflow import answer
from windrow.plan.nodes import QueryPlan
from windrow.runtime.answer_metadata import with_answer_metadata
from windrow.runtime.messages import Answer, WrittenAnswer
from windrow.runtime.program import Program, QueryProgram
from windrow.sinks import PartSink
from windrow.store.manifest import SlotKey
from windrow.store.runs import RunPlace, RunRef, RunStore
from windrow.store.store import StateStore

BOUND = 4 << 20
"""Bytes from which on an answer goes by reference."""

FILE = 64 << 20
"""Bytes of an answer that a task holds before it writes them to a file."""

SAMPLE = 64
"""Times of each file that are looked at to cut an answer into parts."""

STAGE = "answers"
"""Under which manifests name answers that somebody holds, and the folder of all of them."""


@dataclass(frozen=True, eq=False)
class KeptAnswer:
    """The answer of a query at a tick, in files; they are there while this is."""

    runs: RunPlace
    refs: tuple[RunRef, ...]

    @cached_property
    def num_rows(self) -> int:
        return sum(ref.rows for ref in self.refs)

    @cached_property
    def nbytes(self) -> int:
        return sum(ref.bytes for ref in self.refs)

    def table(self) -> pa.Table:
        """The rows, sorted by time."""
        return read(self.runs, self.refs)


AnyAnswer: TypeAlias = "pa.Table | KeptAnswer"
"""An answer, by value or by reference."""


def rows_of(found: AnyAnswer) -> pa.Table:
    """The rows of an answer."""
    return found.table() if isinstance(found, KeptAnswer) else found


def read(runs: RunPlace, refs: Iterable[RunRef], low: int | None = None, high: int | None = None) -> pa.Table:
    """Rows that were written in several parts, each sorted by time, as one table that is; one part is not copied.

    `low`, `high`: only those of instants from `low` on and before `high`.
    """
    parts = [_between(runs.read(ref, cached=False).table, low, high) for ref in refs]
    table = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
    ts = _times(table)
    if (ts[1:] < ts[:-1]).any():
        table = table.take(pa.array(np.argsort(ts, kind="stable")))
    return table


def _between(table: pa.Table, low: int | None, high: int | None) -> pa.Table:
    ts = _times(table)
    begin = 0 if low is None else int(np.searchsorted(ts, low))
    end = len(ts) if high is None else int(np.searchsorted(ts, high))
    return table.slice(begin, end - begin)


def _times(table: pa.Table) -> Int64s:
    found: Int64s = table.column("_ts").cast(pa.int64()).to_numpy()
    return found


class TaskAnswers:
    """What a task answers: short answers as they are, long ones in files."""

    def __init__(self, program: Program) -> None:
        self._program, self.frontier = program, BEGINNING
        self._parts: dict[str, list[Elements]] = {}
        self._bytes: dict[str, int] = {}
        self._refs: dict[str, list[RunRef]] = {}

    def add(self, name: str, query: QueryProgram, rows: Elements) -> None:
        """Take rows that a query answers."""
        self._parts.setdefault(name, []).append(rows)
        if not self._program.store.durable:  # there are no files
            return
        self._bytes[name] = self._bytes.get(name, 0) + rows.nbytes()
        if self._bytes[name] >= max(FILE, self._program.answer_bound) and self._may_be_kept(query):
            self._write(name, query)

    def drop(self, name: str) -> None:
        """Forget what a query that failed has answered."""
        for held in (self._parts, self._bytes, self._refs):
            held.pop(name, None)

    def messages(self, queries: Mapping[str, QueryProgram]) -> Iterator[Answer | WrittenAnswer]:
        """What the driver is told."""
        for name, parts in self._parts.items():
            query = queries[name]
            long = self._bytes.get(name, 0) >= self._program.answer_bound and self._may_be_kept(query)
            if parts and (long or name in self._refs):
                self._write(name, query)
            if name in self._refs:
                yield WrittenAnswer(name, tuple(self._refs[name]))
            else:
                yield from (Answer(name, part) for part in parts)

    def _may_be_kept(self, query: QueryProgram) -> bool:
        """Whether the answer is one that users see as it is."""
        return self._program.store.durable and not (query.archived or query.parted or query.retain is not None)

    def _write(self, name: str, query: QueryProgram) -> None:
        runs = [Run(with_answer_metadata(answer(query.plan, part), self.frontier)) for part in self._parts[name]]
        self._refs.setdefault(name, []).extend(self._program.store.write((STAGE, name), self._program.tick, runs))
        self._parts[name], self._bytes[name] = [], 0


class KeptAnswers:
    """The driver's side: answers by reference that somebody in this process holds, and what else is to be one."""

    def __init__(self, store: StateStore) -> None:
        self._store, self.bound = store, BOUND
        self._held: weakref.WeakValueDictionary[tuple[str, int], KeptAnswer] = weakref.WeakValueDictionary()

    def hold(self, tick: int, answers: Mapping[str, AnyAnswer]) -> None:
        """Keep the files of a tick's answers until nobody holds them."""
        for query, found in answers.items():
            if isinstance(found, KeptAnswer):
                self._held[query.lower(), tick] = found

    def slots(self) -> dict[SlotKey, tuple[RunRef, ...]]:
        """Where a manifest names them."""
        held = list(self._held.items()) if self._held else []
        return {(STAGE, tick, "", query): kept.refs for (query, tick), kept in held}

    def written(self, query: str, tick: int, table: pa.Table) -> KeptAnswer:
        """Write an answer here."""
        return KeptAnswer(self._store.runs, self._store.runs.write((STAGE, query), tick, [Run(table)]))

    def whole(self, plan: QueryPlan, tick: int, frontier: int, parts: Sequence[Elements | WrittenAnswer]) -> AnyAnswer:
        """The answer of a query from what tasks sent, in their order: by reference if one has written its part."""
        rows = [part for part in parts if isinstance(part, Elements)]
        if len(rows) == len(parts):
            return answer(plan, concat(rows))
        refs: list[RunRef] = []
        for part in parts:
            if isinstance(part, WrittenAnswer):
                refs += part.refs
            else:
                refs += self.written(plan.name.lower(), tick, with_answer_metadata(answer(plan, part), frontier)).refs
        return KeptAnswer(self._store.runs, tuple(refs))

    def shorten(self, tick: int, answers: dict[str, AnyAnswer]) -> None:
        """Put answers that came by value and are long into files, too."""
        if self._store.runs.durable:
            for query, found in answers.items():
                if isinstance(found, pa.Table) and self._is_long(found):
                    answers[query] = self.written(query.lower(), tick, found)

    def _is_long(self, table: pa.Table) -> bool:
        # the buffers of all that it is a part of are counted in a fiftieth of the time
        return table.get_total_buffer_size() >= self.bound and table.nbytes >= self.bound


MapTasks = Callable[[Callable[[int], object], Sequence[int]], list[object]]
"""Runs a function over numbers, in tasks."""


@dataclass(frozen=True)
class PartWriter:
    """Writes a part of an answer to a sink, in a task: the rows between two cuts, from all files."""

    sink: PartSink
    query: str
    tick: int
    kept: KeptAnswer
    cuts: tuple[int, ...]  # the first instants of all parts but the first

    def __call__(self, number: int) -> object:
        low = self.cuts[number - 1] if number else None
        high = self.cuts[number] if number < len(self.cuts) else None
        return self.sink.write_part(self.query, self.tick, number, read(self.kept.runs, self.kept.refs, low, high))


def write_by_tasks(sink: PartSink, query: str, tick: int, kept: KeptAnswer, tasks: MapTasks) -> None:
    """Write an answer to a sink by as many tasks as wrote it, and let all of it be seen. Parts follow in time."""
    writer = PartWriter(sink, query, tick, kept, _cuts(kept))
    sink.publish(query, tick, tasks(writer, range(len(writer.cuts) + 1)))


def _cuts(kept: KeptAnswer) -> tuple[int, ...]:
    """Instants that cut an answer into about as many parts of about the same length as it has files.

    Files that are not of this machine are read whole: by one task, once.
    """
    files = len({ref.path for ref in kept.refs})
    if files < 2 or not (isinstance(kept.runs, RunStore) and kept.runs.place.local):
        return ()
    every = max(1, kept.num_rows // (files * SAMPLE))
    times = np.sort(np.concatenate([_times(kept.runs.read(ref, cached=False).table)[::every] for ref in kept.refs]))
    cuts = distinct_values(times[len(times) * np.arange(1, files) // files])
    return tuple(cuts[cuts > times[0]].tolist())
