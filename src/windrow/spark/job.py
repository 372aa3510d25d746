"""The job of a tick on Spark: one job whatever the number of queries; stages as many as the deepest query needs.

    descriptors ─ mapInArrow (tasks read) ┐
    DataFrame   ─ mapInArrow              ┼─ union ─ repartitionById ─ mapInArrow (stage 1) ─ ... ─► driver
    tables      ─ mapInArrow              ┘

`map` runs any function over small values, for what is done beside ticks.

What runs is shipped once for as long as it stays the same, as a broadcast variable; the rest of a program goes with the
tasks. Pieces of sources travel as descriptors, and the tasks read them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import pickle
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.operators.state.run import Run
from windrow.runtime.feed import Reader, feed, wanted
from windrow.runtime.job import Feed
from windrow.runtime.messages import Envelope
from windrow.runtime.program import Deployment, Program
from windrow.runtime.stage import Stage
from windrow.runtime.task_state import TaskMemory
from windrow.runtime.wire import SCHEMA, decode_table, encode_table, pack, unpack
from windrow.sources.protocol import Available, Piece, Report
from windrow.spark.unwrap import lost, unwrap, workers_lost
from windrow.store.manifest import SlotKey

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

LOG = logging.getLogger("windrow.engine")

ATTEMPTS = 4
"""How often the job of a tick is run when workers go away."""

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

GIVEN = pa.schema([("given", pa.binary())])
"""Rows that the driver has, as they go through the JVM."""

_Given = tuple[str, str | None, Any]
"""A stream, whom its rows are for (None: everybody), and a piece or rows."""

_awake: set[str] = set()
"""Applications that have run a job."""


@dataclass(frozen=True)
class _Shipped:
    """A program on its way: all but its deployment, and where that is."""

    program: bytes
    uid: str
    deployment: Broadcast[bytes]

    def load(self) -> Program:
        """The program, in a task."""
        program: Program = pickle.loads(self.program)
        return replace(program, deployment=_deployed(self.uid, self.deployment))


class SparkJob:
    """Runs the tasks of a tick on Spark."""

    kind, in_process = "spark", False

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

        self.spark = spark
        self.parallelism = spark.sparkContext.defaultParallelism
        types = {pa.int32(): IntegerType(), pa.string(): StringType(), pa.binary(): BinaryType()}
        self._schema, self._given = StructType(), StructType()
        for made, schema in ((self._schema, SCHEMA), (self._given, GIVEN)):
            for column in schema:
                made.add(column.name, types[column.type])
        self._deployed: tuple[Deployment, str, Broadcast[bytes]] | None = None

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

    def run(self, feeds: Sequence[Feed], program: Program, stages: int) -> list[Envelope]:
        uid, deployment = self._ship(program.deployment)
        bare = replace(program, deployment=Deployment())
        envelopes = self._envelopes(
            feeds, _Shipped(pickle.dumps(replace(bare, runs={}, generations={})), uid, deployment)
        )
        shipped = _Shipped(pickle.dumps(bare), uid, deployment)
        for stage in range(1, stages + 1):
            dealt = envelopes.repartitionById(program.partitions, envelopes["to"])
            envelopes = dealt.mapInArrow(_stage_task(shipped, stage, stage == stages), self._schema)
        return list(unpack(_collected(envelopes).to_batches()))

    def map(self, work: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        """What a function gives for each value, computed by tasks; values and results are small."""
        from pyspark import cloudpickle

        packed = [cloudpickle.dumps((work, value)) for value in values]  # type: ignore[no-untyped-call]
        if not packed:
            return []
        numbers = self.spark.range(0, len(packed), 1, min(len(packed), 4 * self.parallelism))
        try:
            done = numbers.mapInArrow(_work_task(packed), self._given).toArrow()
        except Exception as error:
            raise unwrap(error) from error
        found: dict[int, Any] = dict(pickle.loads(row.as_buffer()) for row in done.column("given"))
        return [found[i] for i in range(len(packed))]

    def _ship(self, deployment: Deployment) -> tuple[str, Broadcast[bytes]]:
        """Send what runs to the workers, when it is another than before; user functions go by value."""
        if self._deployed is None or self._deployed[0] is not deployment:
            from pyspark import cloudpickle

            before = self._deployed
            packed: bytes = cloudpickle.dumps(deployment)  # type: ignore[no-untyped-call]
            self._deployed = (deployment, uuid.uuid4().hex, self.spark.sparkContext.broadcast(packed))
            if before is not None:
                before[2].destroy()
        return self._deployed[1:]

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
                found.append(each.rows.mapInArrow(_frame_task(shipped, each.stream), self._schema))
        if rows:
            packed = [_packed(mine) for mine in _dealt(rows, self.parallelism)]
            table = pa.Table.from_arrays([pa.array(packed, pa.binary())], schema=GIVEN)
            found.append(self.spark.createDataFrame(table, self._given).mapInArrow(_given_task(shipped), self._schema))
        # Without rows there must still be something to shuffle: Spark would skip the stages of an empty relation.
        if pieces or not found:
            shares = [_packed(mine) for mine in _dealt(pieces, self.parallelism)] or [_packed([])]
            numbers = self.spark.range(0, len(shares), 1, len(shares))
            found.append(numbers.mapInArrow(_pieces_task(shipped, shares), self._schema))
        return functools.reduce(lambda a, b: a.union(b), found)

    def tasks(self, rows: Mapping[str, Available]) -> Mapping[str, int]:
        found = {}
        for stream, available in rows.items():
            given = available.given
            many = len(given) if isinstance(given, tuple) else given.rdd.getNumPartitions()
            found[stream] = max(1, min(many, self.parallelism) if isinstance(given, tuple) else many)
        return found

    def state(self) -> Iterator[tuple[SlotKey, tuple[Run, ...]]]:
        return iter(())

    def close(self) -> None:
        if self._deployed is not None:
            with contextlib.suppress(Exception):  # Spark may be gone
                self._deployed[2].destroy()
            self._deployed = None


def _collected(envelopes: DataFrame) -> pa.Table:
    """Run a job; again if Python workers or executors went away: nothing has happened until a manifest names it."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return envelopes.toArrow()
        except Exception as error:
            if not lost(error):
                raise unwrap(error) from error
            LOG.warning("workers of Spark went away while a tick was computed, time %d of %d", attempt, ATTEMPTS)
            if attempt == ATTEMPTS:
                raise workers_lost(error, attempt) from error
            time.sleep(0.25 * 2**attempt)
    raise AssertionError


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


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _frame_task(shipped: _Shipped, stream: str) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = _here()
        rows = list(batches)  # with all their columns: a frame cannot be read twice
        yield from pack(feed(shipped.load(), stream, lambda *_: rows, here), here)

    return run


def _given_task(shipped: _Shipped) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _fed(shipped, [given.as_buffer() for batch in batches for given in batch["given"]])

    return run


def _pieces_task(shipped: _Shipped, shares: Sequence[bytes]) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _fed(shipped, [shares[i] for batch in batches for i in batch["id"].to_pylist()])

    return run


def _work_task(packed: Sequence[bytes]) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                work, value = pickle.loads(packed[number])
                made = pickle.dumps((number, work(value)))
                yield pa.RecordBatch.from_arrays([pa.array([made], pa.binary())], schema=GIVEN)

    return run


def _fed(shipped: _Shipped, shares: Sequence[bytes | pa.Buffer]) -> Iterator[pa.RecordBatch]:
    """What a task sends that reads what it was given."""
    here, program = _here(), shipped.load()
    given: dict[tuple[str, str | None], list[bytes | Piece]] = {}
    for share in shares:
        for stream, only, piece in pickle.loads(share):
            given.setdefault((stream, only), []).append(piece)
    sent: list[Envelope] = []
    for (stream, only), pieces in given.items():
        plain = [p for p in pieces if not isinstance(p, bytes)]
        found, skipped = wanted(program, stream, plain) if len(plain) == len(pieces) else (pieces, None)
        sent += feed(program, stream, _reader(program, stream, found), here, only, skipped=skipped)
    yield from pack(sent, here)


def _reader(program: Program, stream: str, pieces: Sequence[bytes | Piece]) -> Reader:
    def read(columns: Sequence[str] | None, report: Report | None) -> Iterator[pa.Table | pa.RecordBatch]:
        for piece in pieces:
            if isinstance(piece, bytes):
                yield decode_table(piece)
            else:
                yield from piece.read(program.deployment.streams[stream], columns, report)

    return read


_memory = TaskMemory()
"""The operators of this worker's last attempts."""


def _stage_task(shipped: _Shipped, stage: int, last: bool) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = _here()
        done = Stage(shipped.load(), stage, here, last, _memory).run(unpack(batches))
        yield from pack(done, here)
        _freeze()

    return run


_deployments: OrderedDict[str, Deployment] = OrderedDict()


def _deployed(uid: str, packed: Broadcast[bytes]) -> Deployment:
    """What runs, unpacked once by each worker process."""
    if uid not in _deployments:
        _deployments[uid] = pickle.loads(packed.value)
        while len(_deployments) > 4:
            _deployments.popitem(last=False)
    return _deployments[uid]


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
