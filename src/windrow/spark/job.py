"""The job of a tick on Spark: one job whatever the number of queries; stages as many as the deepest query needs.

    descriptors ─ mapInArrow (tasks read) ┐
    DataFrame   ─ mapInArrow              ┼─ union ─ repartitionById ─ mapInArrow (stage 1) ─ ... ─► driver
    tables      ─ mapInArrow              ┘

`map` runs any function over small values, for what is done beside ticks.

A tick of few bytes over a small state is no job: the driver itself reads, and runs all stages of all partitions one
after the other, as an engine in process does. Planning and starting a job takes longer than all the work of such a
tick. The state lies in the home whoever wrote it, so ticks move to tasks and back. Where queries call functions of the
program, which may take any time, one task does it in the driver's place.

What runs is shipped once for as long as it stays the same, as a broadcast variable; the rest of a program goes with the
tasks. Pieces of sources travel as descriptors, and the tasks read them.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.operators.state.run import Run
from windrow.runtime.feed import Reader, feed, wanted
from windrow.runtime.job import Elsewhere, Feed, LocalJob, all_stages
from windrow.runtime.messages import Envelope
from windrow.runtime.program import Deployment, Program
from windrow.runtime.stage import Stage
from windrow.runtime.task_state import TaskMemory
from windrow.runtime.wire import SCHEMA, Spool, decode_table, encode_table, pack, unpack
from windrow.sources.protocol import Available, Piece, Report
from windrow.spark.collecting import GIVEN, collected, mapped
from windrow.spark.shipping import ShippedDeployment, Shipping
from windrow.store.manifest import SlotKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Batches = Iterator[pa.RecordBatch]

FEW_BYTES = 4 << 20
"""Of new rows, up to which a tick is done in one place."""

MANY_BYTES = 16 << 20
"""Of new rows, from which on ticks are not: in between they stay as they are, since state has to move."""

SMALL_STATE = 32 << 20
"""Bytes of state, up to which a tick may be done in one place."""

_Given = tuple[str, str | None, Any]
"""A stream, whom its rows are for (None: everybody), and a piece or rows."""

_awake: set[str] = set()
"""Applications that have run a job."""


@dataclass(frozen=True)
class _Shipped:
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
        self._shipping = Shipping(spark.sparkContext)
        self._in_one, self._counted = True, False
        self._here = LocalJob()
        self._spool: Spool | None = None
        if (spark.sparkContext.master or "").startswith("local["):
            self._spool = Spool(tempfile.mkdtemp(prefix="windrow-exchange-"))
            weakref.finalize(self, shutil.rmtree, self._spool.folder, ignore_errors=True)

    def wake(self) -> None:
        """Run a job of a tick's shape beside whatever comes first, once: ticks then find Spark awake."""
        application = self.spark.sparkContext.applicationId
        if application not in _awake:
            _awake.add(application)
            threading.Thread(target=self._wake, name="windrow-wake", daemon=True).start()

    def _wake(self) -> None:
        one = SCHEMA.empty_table()
        with contextlib.suppress(Exception):  # whatever is wrong, the first tick says it
            made = self.spark.createDataFrame(one, self._schema).mapInArrow(_nothing, self._schema)
            made.repartitionById(2, made["to"]).mapInArrow(_nothing, self._schema).toArrow()

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
        shipped = _Shipped(pickle.dumps(bare), deployment, self._spool)
        if program.in_one:
            return self._received(self._one_task(feeds, shipped, stages))
        envelopes = self._envelopes(
            feeds, replace(shipped, program=pickle.dumps(replace(bare, runs={}, generations={})))
        )
        for stage in range(1, stages + 1):
            dealt = envelopes.repartitionById(program.partitions, envelopes["to"])
            envelopes = dealt.mapInArrow(partial(_stage_task, shipped, stage, stage == stages), self._schema)
        return self._received(envelopes)

    def _received(self, envelopes: DataFrame) -> list[Envelope]:
        """Run a job; what its tasks send to the driver."""
        try:
            return list(unpack(collected(envelopes).to_batches(), self._spool))
        finally:
            if self._spool is not None:
                self._spool.clear()

    def in_one(self, feeds: Sequence[Feed], program: Program) -> bool:
        counted, self._counted = self._counted, False
        if counted or not self.small_in_one or any(not isinstance(f.rows, pa.Table | tuple) for f in feeds):
            return False  # a frame has tasks of its own
        weight = sum(_weight(part) for f in feeds for part in _parts(f))
        self._in_one = program.state_bytes <= SMALL_STATE and weight <= (MANY_BYTES if self._in_one else FEW_BYTES)
        return self._in_one

    def _one_task(self, feeds: Sequence[Feed], shipped: _Shipped, stages: int) -> DataFrame:
        given = _packed([(f.stream, f.only, part) for f in feeds for part in _parts(f)])
        return self.spark.range(0, 1, 1, 1).mapInArrow(partial(_whole_task, shipped, given, stages), self._schema)

    def map(
        self, work: Callable[[Any], Any], values: Sequence[Any],
        check: Callable[[], None] | None = None, at_once: int | None = None,
    ) -> list[Any]:  # fmt: skip
        return mapped(self.spark, self._given, work, values, at_once or 4 * self.parallelism, check)

    def _envelopes(self, feeds: Sequence[Feed], shipped: _Shipped) -> DataFrame:
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
                found.append(each.rows.mapInArrow(partial(_frame_task, shipped, each.stream), self._schema))
        if rows:
            packed = [_packed(mine) for mine in _dealt(rows, self.parallelism)]
            table = pa.Table.from_arrays([pa.array(packed, pa.binary())], schema=GIVEN)
            given = self.spark.createDataFrame(table, self._given)
            found.append(given.mapInArrow(partial(_given_task, shipped), self._schema))
        # Without rows there must still be something to shuffle: Spark would skip the stages of an empty relation.
        if pieces or not found:
            shares = [_packed(mine) for mine in _dealt(pieces, self.parallelism)] or [_packed([])]
            numbers = self.spark.range(0, len(shares), 1, len(shares))
            found.append(numbers.mapInArrow(partial(_pieces_task, shipped, shares), self._schema))
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
    return (given.rows,) if isinstance(given.rows, pa.Table) else given.rows


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


def _nothing(batches: Batches) -> Batches:
    yield from batches


# Tasks are functions of this module: Spark sends their names. A function within another would be sent with a copy of
# all that it names, and what a worker remembers would be a new, empty memory in every task.


def _frame_task(shipped: _Shipped, stream: str, batches: Batches) -> Batches:
    here = _here()
    rows = list(batches)  # with all their columns: a frame cannot be read twice
    yield from pack(feed(shipped.load(), stream, lambda *_: rows, here), here, shipped.spool)


def _given_task(shipped: _Shipped, batches: Batches) -> Batches:
    return _fed(shipped, [given.as_buffer() for batch in batches for given in batch["given"]])


def _pieces_task(shipped: _Shipped, shares: Sequence[bytes], batches: Batches) -> Batches:
    return _fed(shipped, [shares[i] for batch in batches for i in batch["id"].to_pylist()])


def _whole_task(shipped: _Shipped, share: bytes, stages: int, batches: Batches) -> Batches:
    here, program = _here(), shipped.load()
    sent = [e for _ in batches for e in _sent(program, [share], here)]
    yield from pack(all_stages(program, sent, stages, memory), here, shipped.spool)
    _freeze()


def _fed(shipped: _Shipped, shares: Sequence[bytes | pa.Buffer]) -> Batches:
    """What a task sends that reads what it was given."""
    here = _here()
    yield from pack(_sent(shipped.load(), shares, here), here, shipped.spool)


def _sent(program: Program, shares: Sequence[bytes | pa.Buffer], here: int) -> list[Envelope]:
    given: dict[tuple[str, str | None], list[bytes | Piece]] = {}
    for share in shares:
        for stream, only, piece in pickle.loads(share):
            given.setdefault((stream, only), []).append(piece)
    sent: list[Envelope] = []
    for (stream, only), pieces in given.items():
        plain = [p for p in pieces if not isinstance(p, bytes)]
        found, skipped = wanted(program, stream, plain) if len(plain) == len(pieces) else (pieces, None)
        sent += feed(program, stream, _reader(program, stream, found), here, only, skipped=skipped)
    return sent


def _reader(program: Program, stream: str, pieces: Sequence[bytes | Piece]) -> Reader:
    def read(columns: Sequence[str] | None, report: Report | None) -> Iterator[pa.Table | pa.RecordBatch]:
        for piece in pieces:
            if isinstance(piece, bytes):
                yield decode_table(piece)
            else:
                yield from piece.read(program.deployment.streams[stream], columns, report)

    return read


memory = TaskMemory()
"""The operators of this worker's last attempts."""


def _stage_task(shipped: _Shipped, stage: int, last: bool, batches: Batches) -> Batches:
    here = _here()
    done = Stage(shipped.load(), stage, here, last, memory).run(unpack(batches, shipped.spool))
    yield from pack(done, here, shipped.spool)
    _freeze()


_tasks = 0


def _loaded() -> None:
    """Much is new in this process."""
    global _tasks
    _tasks = 0


def _freeze() -> None:
    """Take what the first tasks have loaded out of the garbage collector's sight.

    PySpark collects garbage after every task; over all that Arrow, DuckDB and numba bring that takes 80 ms.
    """
    global _tasks
    _tasks += 1
    if _tasks in (1, 4):
        gc.collect()
        gc.freeze()


def _here() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
