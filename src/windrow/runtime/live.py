"""The Spark runtime: streams meet in the driver, and every meeting is a tick.

    stream A ─ foreachBatch ┐ hand over, wait
    stream B ─ foreachBatch ┼────────────────►  loop:  gather ─ tick (one job) ─ manifest ─ sinks ─ let go
    stream C ─ foreachBatch ┘

Each stream is a StreamingQuery of its own with a checkpoint of its own, so streams come and go. Changes (queries,
streams, tables) are made between two ticks, all those of a script at once, and are durable when the call returns; new
queries do not wait for a tick's job (`declared`).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import StateError, WindrowError
from windrow.operators.elements import BEGINNING
from windrow.runtime import view
from windrow.runtime.budget import seconds_of
from windrow.runtime.declared import Declared
from windrow.runtime.membership import SharedProgram
from windrow.runtime.outlet import View
from windrow.runtime.program import QueryProgram, frontier
from windrow.runtime.status import Figures
from windrow.runtime.tick import Tick, Ticker
from windrow.sinks.directory import DirectorySink
from windrow.spark.job import Feed, SparkJob
from windrow.spark.session import session
from windrow.spark.streaming import Batch, Reader, gather
from windrow.spark.unwrap import unwrap
from windrow.store.failpoints import reach
from windrow.store.place import Place
from windrow.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("windrow.engine")

LINGER = 0.05
"""Seconds a tick waits for the other streams once one has rows."""

PATIENCE = 0.5
"""Seconds it waits at most for streams that are about to hand over theirs."""

NAP = 0.2
"""Seconds the loop sleeps when nothing comes; bounds how late a change or an idle stream is noticed."""


class SparkRuntime(Declared):
    """Queries over Spark streams; state under `home`."""

    def __init__(
        self,
        functions: Mapping[str, Callable[..., object]],
        *,
        home: str | None = None,
        spark: SparkSession | None = None,
        strategy: str = "upa",
        partitions: int | None = None,
        sharing: str = "auto",
        tick_budget: str | float | None = None,
    ) -> None:
        budget_us = seconds_of(tick_budget)
        self._temporary = tempfile.mkdtemp(prefix="windrow-home-") if home is None else None
        store = Store.open(home or self._temporary or "")
        try:
            spark = session(spark)
            store.sweep(orphans=True)
            count = partitions or spark.sparkContext.defaultParallelism
            how = sharing if strategy == "upa" else "off"
            job = SparkJob(spark)
            job.wake()
            ticker = Ticker(job, store, functions, count, how)
            super().__init__(spark, store, ticker, strategy, budget_us)
        except BaseException:
            store.close()
            raise
        self._inbox: queue.Queue[Batch] = queue.Queue()
        self._loop: threading.Thread | None = None
        self._stopping = threading.Event()
        self._error: WindrowError | None = None
        self.figures = Figures()

    # running

    def start(self) -> None:
        """Start every stream and the loop that joins them."""
        if self._loop is not None:
            return
        self._stopping.clear()
        with self._busy:
            self._redeliver()
            try:
                for reader in self.readers.values():
                    self._read(reader)
            except BaseException:
                for reader in self.readers.values():
                    reader.stop()
                raise
            self._loop = threading.Thread(target=self._run, name="windrow-ticks", daemon=True)
            self._loop.start()

    def _start_readers(self) -> None:
        for reader in self.readers.values() if self._loop is not None else ():
            if reader.query is None:
                self._read(reader)

    def _read(self, reader: Reader) -> None:
        def taken(stream: str) -> int:
            return self.ticker.manifest.batches.get(stream, -1)

        reader.start(self.home, self._inbox, taken, self._stopping)

    def _run(self) -> None:
        while not self._stopping.is_set():
            batches = gather(self._inbox, list(self.readers.values()), NAP, LINGER, PATIENCE)
            try:
                with self._busy:
                    batches = [b for b in batches if self._is_read(b)]
                    self._refresh_tables()
                    histories = self._histories()
                    if batches or histories or self._idle_moves():
                        self._tick(batches, histories)
                    self._watch()
            except Exception as error:
                self._fail(unwrap(error), batches)
                return
            for batch in batches:
                batch.done.set()

    def _is_read(self, batch: Batch) -> bool:
        """Whether a batch's stream is still declared; if not, nobody wants it."""
        if self.readers.get(batch.stream) is batch.reader:
            return True
        batch.done.set()
        return False

    def _idle(self) -> frozenset[str]:
        return frozenset(name for name, reader in self.readers.items() if reader.idle())

    def _idle_moves(self) -> bool:
        idle, ticker = self._idle(), self.ticker
        return bool(idle) and frontier(ticker.streams, ticker.manifest.marks, idle, ticker.frontier) > ticker.frontier

    def _tick(self, batches: list[Batch], histories: list[Feed]) -> None:
        begin = time.perf_counter()
        for batch in batches:
            batch.reader.seen = time.time()
        feeds = [Feed(b.stream, b.frame) for b in batches] + histories
        self.ticker.quotas = self.budgets.quotas(_tasks(batches) if self.budgets.shedding else None)
        tick = self.ticker.run(feeds, idle=self._idle())
        self.budgets.account(tick.admitted)
        tick.counters |= self.budgets.counters()
        tick.answers = {q: self.budgets.mark(q, t) for q, t in tick.answers.items()}
        outputs = {q.lower(): t for q, t in tick.answers.items() if self.outlets[q.lower()].sinks}
        outputs |= {view.kept_name(s): rows for s, rows in tick.late.items()}
        extra = {"budget": self.budgets.dump()} if self.budgets.behind else {}
        self.ticker.commit(tick, {b.stream: b.number for b in batches}, outputs, extra)
        self._let_in()
        reach("after manifest")
        lap = time.perf_counter()
        self._deliver(tick)
        reach("after sinks")
        tick.seconds["sinks"] = time.perf_counter() - lap
        lap = time.perf_counter()
        self.store.sweep()
        tick.seconds["sweep"] = time.perf_counter() - lap
        tick.seconds["total"] = time.perf_counter() - begin
        tick.ended = time.time()
        self.budgets.observe(tick.number, tick.seconds["total"], tick.frontier, tick.kernels, tick.ended)
        self.figures.add(tick)
        LOG.debug("tick %d: frontier %d, %.0f ms", tick.number, tick.frontier, 1000 * tick.seconds["total"])

    def _histories(self) -> list[Feed]:
        """What the streams of new queries have kept."""
        found = []
        owners: dict[str, frozenset[str]] = {}
        for query in (self.ticker.queries[q] for q in self._fresh if q in self.ticker.queries):
            # those who share have one history
            owners[query.family if isinstance(query, SharedProgram) else query.plan.name.lower()] = query.streams
        for owner, streams in owners.items():
            for stream in sorted(streams):
                rows = view.kept_rows(self.store, self.ticker.manifest, self.readers[stream].definition, waiting=True)
                if rows.num_rows:
                    found.append(Feed(stream, rows, owner))
        return found

    def _deliver(self, tick: Tick) -> None:
        for name, table in tick.answers.items():
            outlet = self.outlets[name.lower()]
            for sink in outlet.sinks:
                sink.write(name, tick.number, table)
            outlet.recent.add(table)
            LOG.debug("query %s, tick %d: %d rows", name, tick.number, table.num_rows)
        for name, error in tick.failed.items():
            LOG.error("query %s, tick %d: %s", name, tick.number, error)
            self.failures[name] = error
        for stream, rows in tick.late.items():
            LOG.warning("stream %s, tick %d: %d late rows", stream, tick.number, rows.num_rows)
            self._late_sink.write(stream, tick.number, rows)
        for stream, reader in self.readers.items():
            reader.rows += tick.counters.get(f"rows.{stream}", 0)
            reader.late += tick.counters.get(f"late.{stream}", 0)

    @property
    def _late_sink(self) -> DirectorySink:
        return DirectorySink(f"{self.home}/late", "parquet")

    def _redeliver(self) -> None:
        """After a crash between manifest and sinks: hand the last answers over again."""
        for (query, number), refs in self.ticker.manifest.outputs.items():
            for table in (self.store.read_run(ref).table for ref in refs):
                if query.startswith("~"):
                    self._late_sink.write(query[1:], number, table)
                elif query in self.outlets:
                    for sink in self.outlets[query].sinks:
                        sink.write(self.ticker.queries[query].plan.name, number, table)

    def _refresh_tables(self) -> None:
        for name, table in self._tables.items():
            known = table.reading.version_us
            if table.current().version_us != known and self.ticker.set_table(name, table.reading.table):
                LOG.info(
                    "table %s: %d rows from tick %d on",
                    name,
                    table.reading.table.num_rows,
                    self.ticker.manifest.tick + 1,
                )

    def _watch(self) -> None:
        """A stream that failed stops the engine, with its own message; while it stops, streams end as they like."""
        for reader in self.readers.values():
            error = reader.failure()
            if error is not None and not self._stopping.is_set():
                failure = unwrap(error)
                failure.primary = f'stream "{reader.definition.name}": {failure.primary}'
                raise failure

    def _fail(self, error: WindrowError, batches: list[Batch]) -> None:
        LOG.error("tick %d: %s", self.ticker.manifest.tick + 1, error)
        self._error = error
        self._stopping.set()
        for batch in batches:
            batch.error = RuntimeError(error.primary)
            batch.done.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the engine to stop or fail; a failure is raised."""
        loop = self._loop
        if loop is not None:
            loop.join(seconds)
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def drain(self, seconds: float = 60.0) -> None:
        """Wait until every stream has handed over all it has now."""
        deadline = time.time() + seconds
        for reader in list(self.readers.values()):
            if reader.query is not None:
                done = threading.Thread(target=_available(reader), daemon=True)
                done.start()
                while done.is_alive() and time.time() < deadline and self._error is None:
                    done.join(0.05)
        self._check()

    def stop(self) -> None:
        """End after the tick that runs; everything so far is kept."""
        self._stopping.set()
        if self._loop is not None:
            self._loop.join(60)
            self._loop = None
        for reader in self.readers.values():
            reader.stop()
        for outlet in self.outlets.values():
            outlet.close()
        self.store.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    # looking in

    @contextlib.contextmanager
    def view(self) -> Iterator[View]:
        """The state after the newest tick, while ticks go on."""
        self._check()
        with self.store.snapshot() as manifest:
            queries = {k: q for k, q in self.ticker.queries.items() if isinstance(q, QueryProgram)}
            readers = dict(self.readers)
            if manifest is None:
                raise StateError("no tick has been committed yet", hint="declare something, or start the engine")
            yield View(
                BEGINNING if manifest.frontier is None else manifest.frontier,
                lambda stream: view.kept_rows(self.store, manifest, readers[stream].definition),
                lambda query: view.relation(self.store, manifest, queries[query]),
                lambda stream: readers[stream].definition.retain or 0,
            )

    def joins(self, query: str) -> list[dict[str, Any]]:
        """What the joins of a running query do, and why."""
        with self._busy:
            return self.ticker.choices.describe(query) + self.ticker.heavy.describe(query)

    def late(self, stream: str) -> pa.Table:
        """The late rows of a stream."""
        from pyarrow import parquet

        columns = dict(self.readers[stream.lower()].definition.columns)
        tables = [pa.schema(list(columns.items())).empty_table()]
        place = Place.of(f"{self.home}/late")
        folder = self._late_sink.name(stream.lower(), 0).rpartition("/")[0]
        for name in sorted(place.names(folder)):
            if name.endswith(".parquet"):
                tables.append(parquet.read_table(pa.BufferReader(place.read(name))).select(list(columns)))
        return pa.concat_tables([t.cast(tables[0].schema) for t in tables])

    def status(self) -> dict[str, Any]:
        """Figures about the run, as plain JSON."""
        running = self._loop is not None and not self._stopping.is_set()
        return {
            "runtime": "spark",
            "home": self.home,
            "running": running,
            "error": None if self._error is None else str(self._error),
            "failed": {name: str(error) for name, error in self.failures.items()},
            **self.figures.status(self.ticker, self.readers, self._tables, self.outlets, self.budgets),
        }

    def quality(self, query: str) -> dict[str, Any] | None:
        """What was shed before a query and in its joins; None when it never sheds."""
        return self.figures.quality(self.ticker, self.budgets, query.lower())


def _tasks(batches: Sequence[Batch]) -> dict[str, int]:
    """How many tasks will read each stream: quotas are for a task."""
    return {b.stream: b.frame.rdd.getNumPartitions() for b in batches}


def _available(reader: Reader) -> Callable[[], None]:
    def wait() -> None:
        with contextlib.suppress(Exception):  # a failed stream is the loop's to report
            if reader.query is not None:
                reader.query.processAllAvailable()

    return wait
