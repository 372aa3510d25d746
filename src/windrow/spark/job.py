"""The job of a tick on Spark: one job whatever the number of queries; stages as many as the deepest query needs.

    shares ─ tasks read ┐
                        ┼─ exchange by partition ─ stage 1 ─ ... ─► driver
    frames ─ tasks read ┘

Where all tasks run on this machine, one set of them does all stages: what they send each other goes by files, and the
JVM starts them and sees what is for the driver (`runtime/file_exchange.py`). Elsewhere, and where rows come as a
DataFrame, stages are `mapInArrow` between `repartitionById`: bodies of any length, in pieces; on this machine long ones
go by files there too.

`map` runs any function over small values, for what is done beside ticks.

A tick of few bytes over a small state is no job: the driver itself reads, and runs all stages of all partitions one
after the other, as an engine in process does. Planning and starting a job takes longer than all the work of such a
tick. The state lies in the home whoever wrote it, so ticks move to tasks and back. Where queries call functions of the
program, which may take any time, one task does it in the driver's place.

What runs is shipped once for as long as it stays the same (`shipping.py`); the rest of a program goes with the
tasks. Pieces of sources travel as descriptors, and the tasks read them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.operators.state.run import Run
from windrow.runtime.file_exchange import Attempt
from windrow.runtime.job import Elsewhere, Feed, Given, LocalJob, Made
from windrow.runtime.messages import Envelope
from windrow.runtime.program import Deployment, Program
from windrow.runtime.wire import SCHEMA, Spool, encode_table, put_together, unpack
from windrow.sources.protocol import Available
from windrow.spark.collecting import GIVEN, collected, mapped
from windrow.spark.shipping import Shipping
from windrow.spark.tasks import (
    AllStages,
    Shipped,
    frame_task,
    given_task,
    pass_on,
    pieces_task,
    run_all,
    run_whole,
    stage_task,
)
from windrow.store.manifest import SlotKey

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession


FEW_BYTES = 4 << 20
"""Of new rows, up to which a tick is done in one place."""

MANY_BYTES = 16 << 20
"""Of new rows, from which on ticks are not: in between they stay as they are, since state has to move."""

SMALL_STATE = 32 << 20
"""Bytes of state, up to which a tick may be done in one place."""

_Given = tuple[str, str | None, Any]
"""A stream, whom its rows are for (None: everybody), and a piece or rows."""

_ONE_MACHINE = re.compile(r"local(\[[^,]+\])?")
"""Masters whose tasks are all on this machine, and run once: elsewhere Spark tries again, task by task."""

_awake: set[str] = set()
"""Applications that have run a job."""


class SparkJob:
    """Runs the tasks of a tick on Spark."""

    kind, in_process = "spark", False

    small_in_one = True
    """Whether small ticks are done in one place; the answers are the same."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

        self.spark = spark
        self.parallelism = spark.sparkContext.defaultParallelism
        types = {pa.int32(): IntegerType(), pa.string(): StringType(), pa.binary(): BinaryType()}
        self._schema, self._given = StructType(), StructType()
        for made, schema in ((self._schema, SCHEMA), (self._given, GIVEN)):
            for column in schema:
                made.add(column.name, types[column.type])
        self._in_one, self._counted = True, False
        self._here = LocalJob()
        self._folder: str | None = None
        self._spool: Spool | None = None
        shipped = None
        if _ONE_MACHINE.fullmatch(spark.sparkContext.master or ""):
            self._folder = tempfile.mkdtemp(prefix="windrow-exchange-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            spooled, shipped = (os.path.join(self._folder, name) for name in ("spool", "shipped"))
            for each in (spooled, shipped):
                os.mkdir(each)
            self._spool = Spool(spooled)
        self._tasks: dict[int, RDD[int]] = {}  # of sets that do all stages, by their number
        self._shipping = Shipping(spark.sparkContext, shipped)

    def wake(self) -> None:
        """Run a job of a tick's shape beside whatever comes first, once: ticks then find Spark awake."""
        application = self.spark.sparkContext.applicationId
        if application not in _awake:
            _awake.add(application)
            threading.Thread(target=self._wake, name="windrow-wake", daemon=True).start()

    def _wake(self) -> None:
        with contextlib.suppress(Exception):  # whatever is wrong, the first tick says it
            if self._folder is not None:
                self._set_of(self.parallelism).mapPartitions(pass_on).collect()
                return
            made = self.spark.createDataFrame(SCHEMA.empty_table(), self._schema)
            made.repartitionById(2, made["to"]).mapInArrow(pass_on, self._schema).toArrow()

    def run(
        self, feeds: Sequence[Feed], program: Program, stages: int, elsewhere: Elsewhere = contextlib.nullcontext
    ) -> list[Envelope]:
        if program.in_one and not program.deployment.functions:
            return self._here.run(feeds, program, stages)
        with elsewhere():
            return self._on_spark(feeds, program, stages)

    def _on_spark(self, feeds: Sequence[Feed], program: Program, stages: int) -> list[Envelope]:
        deployment = self._shipping.ship(program.deployment)
        bare = replace(program, deployment=Deployment())
        shipped = Shipped(pickle.dumps(bare), deployment, self._spool)
        try:
            if program.in_one:
                return self._in_one_task(feeds, shipped, stages)
            if self._folder is not None and all(isinstance(f.rows, pa.Table | tuple) for f in feeds):
                return self._in_one_set(feeds, shipped, program.partitions, stages, self._folder)
            reading = replace(shipped, program=pickle.dumps(replace(bare, runs={}, generations={})))
            return self._by_frames(feeds, reading, shipped, program.partitions, stages)
        finally:
            if self._spool is not None:
                self._spool.clear()

    def _in_one_task(self, feeds: Sequence[Feed], shipped: Shipped, stages: int) -> list[Envelope]:
        given = _packed([(f.stream, f.only, part) for f in feeds for part in _parts(f)])
        whole = self.spark.sparkContext.parallelize([given], 1).mapPartitions(partial(run_whole, shipped, stages))
        return list(put_together(collected(whole.collect), self._spool))

    def _in_one_set(
        self, feeds: Sequence[Feed], shipped: Shipped, partitions: int, stages: int, folder: str
    ) -> list[Envelope]:
        """All stages in one set of tasks (`file_exchange`)."""
        rows = [(f.stream, f.only, p) for f in feeds for p in _parts(f) if isinstance(p, pa.Table)]
        pieces = [(f.stream, f.only, p) for f in feeds for p in _parts(f) if not isinstance(p, pa.Table)]
        cut = [(stream, only, part) for stream, only, table in rows for part in _cut(table, self.parallelism)]
        shares = [_packed(mine) for given in (cut, pieces) for mine in _dealt(given, self.parallelism)]
        tasks = min(self.parallelism, max(len(shares), partitions))

        def run() -> list[Envelope]:
            with tempfile.TemporaryDirectory(dir=folder, prefix="tick-", ignore_cleanup_errors=True) as made:
                AllStages(Attempt(made, len(shares), partitions, stages, tasks), shipped).leave(shares)
                sent = self._set_of(tasks).mapPartitions(partial(run_all, made))
                return list(put_together(sent.collect(), Spool(made)))

        return collected(run)

    def _set_of(self, tasks: int) -> RDD[int]:
        """So many tasks."""
        if tasks not in self._tasks:
            self._tasks[tasks] = self.spark.sparkContext.parallelize(range(tasks), tasks)
        return self._tasks[tasks]

    def _by_frames(
        self, feeds: Sequence[Feed], reading: Shipped, shipped: Shipped, partitions: int, stages: int
    ) -> list[Envelope]:
        envelopes = self._envelopes(feeds, reading)
        for stage in range(1, stages + 1):
            if partitions > 1 or stage == 1:  # else all that there is lies where it belongs
                envelopes = envelopes.repartitionById(partitions, envelopes["to"])
            envelopes = envelopes.mapInArrow(partial(stage_task, shipped, stage, stage == stages), self._schema)
        return list(unpack(collected(envelopes.toArrow).to_batches(), self._spool))

    def in_one(self, feeds: Sequence[Feed], program: Program) -> bool:
        counted, self._counted = self._counted, False
        if counted or not self.small_in_one or any(not isinstance(f.rows, pa.Table | tuple) for f in feeds):
            return False  # a frame has tasks of its own
        weight = sum(_weight(part) for f in feeds for part in _parts(f))
        self._in_one = program.state_bytes <= SMALL_STATE and weight <= (MANY_BYTES if self._in_one else FEW_BYTES)
        return self._in_one

    def map(
        self, work: Callable[[Given], Made], values: Sequence[Given],
        check: Callable[[], None] | None = None, at_once: int | None = None,
    ) -> list[Made]:  # fmt: skip
        return mapped(self.spark.sparkContext, work, values, at_once or 4 * self.parallelism, check)

    def _envelopes(self, feeds: Sequence[Feed], shipped: Shipped) -> DataFrame:
        """What the tasks of stage 0 send: one task for each share of the pieces, and for each share of the driver's own
        rows."""
        pieces: list[_Given] = []
        rows: list[_Given] = []
        found: list[DataFrame] = []
        for each in feeds:
            if isinstance(each.rows, pa.Table):
                rows += [(each.stream, each.only, part) for part in _cut(each.rows, self.parallelism)]
            elif isinstance(each.rows, tuple):
                pieces += [(each.stream, each.only, piece) for piece in each.rows]
            else:
                found.append(each.rows.mapInArrow(partial(frame_task, shipped, each.stream), self._schema))
        if rows:
            packed = [_packed(mine) for mine in _dealt(rows, self.parallelism)]
            table = pa.Table.from_arrays([pa.array(packed, pa.binary())], schema=GIVEN)
            given = self.spark.createDataFrame(table, self._given)
            found.append(given.mapInArrow(partial(given_task, shipped), self._schema))
        # Without rows there must still be something to shuffle: Spark would skip the stages of an empty relation.
        if pieces or not found:
            shares = [_packed(mine) for mine in _dealt(pieces, self.parallelism)] or [_packed([])]
            numbers = self.spark.range(0, len(shares), 1, len(shares))
            found.append(numbers.mapInArrow(partial(pieces_task, shipped, shares), self._schema))
        return reduce(lambda a, b: a.union(b), found)

    def tasks(self, rows: Mapping[str, Available]) -> Mapping[str, int]:
        self._counted = True  # who asks divides something between them
        found = {}
        for stream, available in rows.items():
            given = available.given
            many = len(given) if isinstance(given, tuple) else given.rdd.getNumPartitions()
            found[stream] = max(1, min(many, self.parallelism) if isinstance(given, tuple) else many)
        return found

    def state(self) -> Iterator[tuple[SlotKey, tuple[Run, ...]]]:
        return iter(())

    def close(self) -> None:
        self._shipping.close()
        self._here = LocalJob()


def _parts(given: Feed) -> Sequence[Any]:
    """The table or the pieces of a feed."""
    return given.rows if isinstance(given.rows, tuple) else (given.rows,)


def _cut(table: pa.Table, pieces: int) -> Iterator[pa.Table]:
    step = max(1, -(-table.num_rows // pieces))
    return (table.slice(at, step) for at in range(0, table.num_rows, step))


def _dealt(given: Sequence[_Given], tasks: int) -> list[list[_Given]]:
    """What is given, each stream's pieces in order over tasks of about the same weight."""
    shares: list[list[_Given]] = [[] for _ in range(tasks)]
    streams: dict[tuple[str, str | None], list[_Given]] = {}
    for each in given:
        streams.setdefault(each[:2], []).append(each)
    for pieces in streams.values():
        weights = [_weight(p[2]) for p in pieces]
        total, before = max(1, sum(weights)), 0
        for piece, weight in zip(pieces, weights, strict=True):
            # by the middle of the piece: the order of arrival is the order of the tasks
            shares[min(tasks - 1, (2 * before + weight) * tasks // (2 * total))].append(piece)
            before += weight
    return [share for share in shares if share]


def _weight(given: Any) -> int:
    return max(1, int(given.nbytes if isinstance(given, pa.Table) else given.weight))


def _packed(mine: Sequence[_Given]) -> bytes:
    plain = [(s, only, encode_table(g) if isinstance(g, pa.Table) else g) for s, only, g in mine]
    from pyspark import cloudpickle

    packed: bytes = cloudpickle.dumps(plain)  # type: ignore[no-untyped-call]
    return packed
