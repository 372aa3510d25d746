"""What is declared in a Spark runtime, and changes to it: all those of a script between two ticks, or none.

Declarations touch a few dictionaries and the ticker; new streams are started and the catalog is written at the end of a
change, so whatever fails before leaves everything as it was, and a change is durable when the call returns.

    tick    plan ─┬──────────── job ────────────┬─ collect ─ manifest ─ sinks       held: plan, and from collect on
    others        └ queries come, manifests too ┘                             drop, declare: between two ticks

A query that comes while a job runs is no part of that tick: its seat is in the next epoch, it is durable by a manifest
that holds the state before the tick, on which the tick's own manifest then builds, and its clock starts behind the
tick's rows. So nobody waits for a job to create a query.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.catalog import Catalog, StreamDef, TableDef
from windrow.errors import WindrowError
from windrow.operators.elements import BEGINNING, Elements
from windrow.plan.dataflow import answer
from windrow.plan.nodes import QueryPlan
from windrow.runtime import view
from windrow.runtime.budget import Budgets
from windrow.runtime.outlet import Outlet, Recent
from windrow.runtime.program import Program
from windrow.runtime.saved_catalog import Keeper
from windrow.runtime.tables import LiveTable, fixed, open_table
from windrow.runtime.tick import Ticker
from windrow.sharing.registry import Registry
from windrow.sources.tabular import to_table
from windrow.spark.job import Feed, Job
from windrow.spark.sources import columns_of, conform, open_stream
from windrow.spark.streaming import Reader
from windrow.store.failpoints import reach
from windrow.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Declared:
    """Streams, tables and queries of one home; `_busy` is held by whoever changes them or runs a tick, but for its
    job."""

    def __init__(
        self, spark: SparkSession, store: Store, ticker: Ticker, strategy: str, budget_us: int | None = None
    ) -> None:
        self.spark, self.store, self.ticker, self.strategy = spark, store, ticker, strategy
        self.budgets = Budgets(budget_us)
        self.budgets.load(ticker.manifest.extra.get("budget", {}))
        self.home = store.place.uri
        self.outlets: dict[str, Outlet] = {}
        self.failures: dict[str, WindrowError] = {}  # queries that cannot go on; the others do
        self.readers: dict[str, Reader] = {}
        self._tables: dict[str, LiveTable] = {}
        self._fresh: list[str] = []  # queries that have not had their history yet
        self._keeper = Keeper(store, strategy, "none" if budget_us is None else "set")
        self._catalog: Catalog | None = None  # to be written by the change under way
        self._newcomers: list[str] = []  # queries that came while a job ran
        self._busy = threading.RLock()
        self._ended = threading.Condition(self._busy)
        self._job_runs = False
        ticker.job = _Apart(ticker.job, self)

    def _check(self) -> None:
        """Refuse changes to an engine that has failed."""
        raise NotImplementedError

    def _start_readers(self) -> None:
        """Start the streams that are new, if the engine runs."""
        raise NotImplementedError

    @contextlib.contextmanager
    def changing(self, adding: bool = False) -> Iterator[None]:
        """Make changes between two ticks: all of them, durably, or none.

        `adding`: nothing but new queries without budgets, which need not wait for the job of a tick.
        """
        with self._busy:
            if not adding or self.budgets.default_us is not None:
                self._ended.wait_for(lambda: not self._job_runs)
            self._check()
            undo = self._undo()
            readers, outlets = dict(self.readers), dict(self.outlets)
            try:
                yield
                self._settle()
            except BaseException:
                for reader in self.readers.values():
                    if reader not in readers.values():
                        reader.stop()
                undo()
                raise
            for key, reader in readers.items():
                if self.readers.get(key) is not reader:
                    reader.stop()
            for key, outlet in outlets.items():
                if self.outlets.get(key) is not outlet:
                    outlet.close()

    def _undo(self) -> Callable[[], None]:
        """What puts everything that a change may touch back as it is now."""
        ticker = self.ticker
        held: list[tuple[object, str, Any]] = [
            (owner, name, value.copy())
            for owner, names in (
                (self, ("readers", "outlets", "failures", "_tables", "_fresh", "_newcomers")),
                (ticker, ("streams", "queries", "starts", "tables", "choices", "heavy")),
                (self.budgets, ("gates", "behind", "plans", "spans")),
            )
            for name in names
            for value in (getattr(owner, name),)
        ]
        held += [(ticker, "manifest", ticker.manifest), (ticker, "functions", ticker.functions)]
        seated = ticker.sharing.undo()

        def undo() -> None:
            for owner, name, value in held:
                setattr(owner, name, value)
            seated()
            self._catalog = None

        return undo

    def _settle(self) -> None:
        """Start new streams, then make the change durable."""
        self._start_readers()
        if self._catalog is not None:
            kept = self._keeper.write(self._catalog, self.ticker.sharing.saved())
            checkpoints = {k: r.checkpoint for k, r in self.readers.items()}
            reach("before change")
            self.ticker.commit_catalog(kept.version, {"checkpoints": checkpoints}, kept.changes)
            reach("after change")
            self._keeper.kept, self._catalog = kept, None

    def keep(self, catalog: Catalog, functions: Mapping[str, Callable[..., object]]) -> None:
        """The catalog that the changes lead to."""
        self._catalog = catalog
        self.ticker.functions = self.ticker.sharing.functions = functions

    @property
    def sharing(self) -> Registry:
        """Who shares with whom."""
        return self.ticker.sharing

    @property
    def identity(self) -> str:
        """The home's own name, whoever else has queries of the same names."""
        return self.store.identity

    def restore(self, catalog: Catalog, without: frozenset[str] = frozenset()) -> Catalog:
        """The catalog that this home was left with, and its queries, ready to go on; `without`: rules switched off."""
        manifest = self.ticker.manifest
        restored, shared = self._keeper.load(manifest, catalog, without, self.ticker.sharing.sharing)
        if shared is not None:
            self.ticker.sharing.take_up(shared)
        checkpoints = manifest.extra.get("checkpoints", {})
        for stream in restored.streams.values():
            self._add_reader(stream, None, checkpoints.get(stream.name.lower()))
        for table in restored.tables.values():
            key = table.name.lower()
            last = self.store.read_run(self.ticker.tables[key]).table
            self._tables[key] = open_table(table, last=last) if table.options else fixed(table, last)
            self.ticker.set_table(key, self._tables[key].reading.table)
        for plan in restored.queries.values():
            self.add_query(plan)
        self.ticker.sharing.settled()
        if self.ticker.sharing.reseated:  # before any tick: the next restart must find them where they sit now
            self._catalog = restored
            self._settle()
        return restored

    def describe(self, name: str, frame: DataFrame) -> StreamDef:
        """A definition of a stream from a DataFrame's columns."""
        from windrow.replay import infer_stream

        return infer_stream(name, pa.schema(list(columns_of(frame).items())).empty_table())

    def columns(self, frame: Any) -> dict[str, pa.DataType]:
        """The columns of a DataFrame or of rows as Arrow types."""
        if hasattr(frame, "sparkSession"):
            return columns_of(frame)
        rows = to_table(frame, "the table")
        return dict(zip(rows.column_names, rows.schema.types, strict=True))

    def add_stream(self, stream: StreamDef, source: DataFrame | None = None) -> None:
        """Read a stream, from `source` or as its declaration says."""
        self._add_reader(stream, source)

    def attach(self, name: str, source: DataFrame) -> bool:
        """Give a declared stream that has no source one; False when it has one."""
        reader = self.readers[name.lower()]
        if reader.frame is not None:
            return False
        reader.frame = conform(source, reader.definition)
        return True

    def _add_reader(self, stream: StreamDef, source: DataFrame | None, checkpoint: str | None = None) -> None:
        key, frame = stream.name.lower(), None
        if source is not None:
            frame = conform(source, stream)
        elif stream.options:
            frame = open_stream(self.spark, stream, spool=f"{self.home}/spool/{key}")
        reader = Reader(stream, frame)
        if checkpoint is not None:
            reader.checkpoint = checkpoint
        self.readers[key] = reader
        self.ticker.streams[key] = stream
        if stream.retain is not None:
            self.ticker.add_query(view.kept_plan(stream), self.strategy, retain=stream.retain)

    def drop_stream(self, name: str) -> None:
        """Stop reading a stream."""
        key = name.lower()
        del self.readers[key]
        if view.kept_name(key) in self.ticker.queries:
            self.ticker.drop_query(view.kept_name(key))
        self.ticker.drop_stream(key)

    def add_table(self, table: TableDef, source: Any = None) -> None:
        """Know a table, or what it holds from now on."""
        key = table.name.lower()
        if source is None:
            found = open_table(table)
        elif hasattr(source, "sparkSession"):
            found = open_table(table, source)
        else:
            found = fixed(table, to_table(source, f'table "{table.name}"', schema=dict(table.columns)))
        self._tables[key] = found
        self.ticker.set_table(key, found.reading.table)

    def drop_table(self, name: str) -> None:
        """Forget a table."""
        del self._tables[name.lower()]
        self.ticker.tables = {k: r for k, r in self.ticker.tables.items() if k != name.lower()}

    def refresh(self, name: str) -> None:
        """Read a table again now."""
        reading = self._tables[name.lower()].refresh()
        with self._busy:
            self._ended.wait_for(lambda: not self._job_runs)
            self.ticker.set_table(name.lower(), reading.table)

    def tables(self) -> dict[str, pa.Table]:
        """What each table holds now."""
        return {k: t.reading.table for k, t in self._tables.items()}

    def add_query(self, plan: QueryPlan) -> None:
        """Run a query from the next tick on; a new one begins with what its streams have kept."""
        key, manifest = plan.name.lower(), self.ticker.manifest
        plan = self.budgets.add(plan)
        known = key in manifest.clocks or key in manifest.extra.get("firsts", {})
        start = None if known else self._start(plan)
        self.ticker.add_query(plan, self.strategy, start, standing=True, known=known)
        self.failures.pop(key, None)
        empty = answer(plan, Elements.empty(self.ticker.queries[key].schema))
        self.outlets[key] = Outlet(Recent(self.budgets.mark(key, empty)))
        if not known:
            (self._newcomers if self._job_runs else self._fresh).append(key)

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Run the job of a tick, whose program is made, with `_busy` free."""
        self.ticker.sharing.used()  # who comes now has not seen the rows of this tick
        self._job_runs = True
        self._busy.release()
        try:
            yield
        finally:
            self._busy.acquire()
            self._job_runs = False
            self._ended.notify_all()

    def _let_in(self) -> None:
        """After a tick: those who came while its job ran begin behind its rows, and have their history to come."""
        for key in self._newcomers:
            start = self._start(self.ticker.queries[key].plan)
            if start is not None:
                self.ticker.starts[key] = start
        self._fresh, self._newcomers = self._newcomers, []

    def _start(self, plan: QueryPlan) -> int | None:
        """Where a new query's clock starts: at the frontier or the last row it has missed; None: at its first row."""
        marks, frontier = self.ticker.manifest.marks, self.ticker.frontier
        streams = [s.lower() for s in plan.streams]
        missed = [marks[s] for s in streams if s in marks and self.readers[s].definition.retain is None]
        return max([*missed, *([frontier] if frontier != BEGINNING else [])], default=None)

    def drop_query(self, name: str) -> None:
        """Stop a query."""
        self.ticker.drop_query(name)
        self.failures.pop(name.lower(), None)
        self.budgets.drop(name)
        del self.outlets[name.lower()]


class _Apart:
    """The job of a runtime's ticks, while which queries may come."""

    def __init__(self, job: Job, runtime: Declared) -> None:
        self.job, self.runtime = job, runtime

    def run(self, feeds: Sequence[Feed], program: Program, stages: int) -> pa.Table:
        """Run one job."""
        with self.runtime._apart():
            return self.job.run(feeds, program, stages)
