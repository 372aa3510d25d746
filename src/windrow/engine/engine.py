"""The engine: streams and queries that come and go, in front of a runtime.

    engine = windrow.Engine(runtime="spark", home="state/")
    engine.execute("CREATE STREAM ...; CREATE QUERY hot AS SELECT ...")
    engine.start()
    engine["hot"].results()

A script takes effect as a whole or not at all: everything is parsed, bound and planned before the first change is made.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.catalog import Catalog, StreamDef, TableDef
from windrow.engine.archive import Archive, archive_table
from windrow.engine.functions import registered
from windrow.engine.instances import TemplatePlanner
from windrow.engine.script import applied, infer_stream
from windrow.errors import BindingError, WindrowError
from windrow.plan.nodes import QueryPlan
from windrow.runtime.budget import microseconds_of
from windrow.runtime.declarations import Change
from windrow.runtime.delivery import Delivery
from windrow.runtime.instances import TemplateGroup
from windrow.runtime.past import instant_of, kept_log, past_answers
from windrow.runtime.question_plans import Extra, QuestionPlans, Travels
from windrow.runtime.runtime import Runtime
from windrow.sinks import RelationSink, outbox_bytes
from windrow.store.store import MemoryStore, StateStore, Store

__all__ = ["Engine", "Queries", "Query"]

QUALITY = "windrow.quality"


class Engine:
    """Continuous queries over live streams."""

    def __init__(
        self,
        runtime: str = "spark",
        home: str | os.PathLike[str] | None = None,
        spark: Any = None,
        *,
        partitions: int | None = None,
        strategy: str = "upa",
        without: Iterable[str] = (),
        sharing: str = "auto",
        tick_budget: str | float | None = None,
        schedule: str = "late-pending",
        ahead: str | float | None = None,
    ) -> None:
        """Open an engine; with a `home` it goes on where the last one stopped.

        `schedule`: how queries with SLIDE AT MOST are put in order when ticks are longer than `tick_budget`.
        `ahead`: how far ahead of its stream and of the wall a row may be, for streams that do not say AHEAD.
        """
        self._without, self._strategy = frozenset(without), strategy
        self._declaring = threading.RLock()  # a change is bound against the catalog that it is made to
        self.catalog = Catalog(functions=registered())
        self._plans: QuestionPlans | None = None
        settings: dict[str, Any] = {
            "strategy": strategy,
            "partitions": partitions,
            "sharing": sharing,
            "budget_us": microseconds_of(tick_budget, "tick_budget"),
            "schedule": schedule,
            "ahead_us": microseconds_of(ahead, "ahead"),
        }
        self.runtime = _opened(runtime, home, spark, self._functions(self.catalog), settings)
        self.runtime.declared.planner = TemplatePlanner(self._without, strategy)
        try:
            self.catalog = self.runtime.restore(self.catalog, self._without)
        except BaseException:
            self.runtime.stop()
            raise

    @staticmethod
    def _functions(catalog: Catalog) -> dict[str, Callable[..., object]]:
        return {n: f.fn for n, f in catalog.functions.items()}

    def execute(self, script: str) -> list[str]:
        """Run CQL statements; returns what each EXPLAIN shows. Nothing happens if any statement is wrong."""
        with self._declaring:
            return self._execute(script)

    def _execute(self, script: str) -> list[str]:
        from windrow import cql
        from windrow.optimize import optimize
        from windrow.plan.explain import explain

        change, shown = self._change(), []
        for statement in cql.parse(script):
            bound = cql.bind(statement, change.catalog)
            match bound:
                case cql.CreateQuery(plan):
                    bound = cql.CreateQuery(optimize(plan, change.catalog, off=self._without, strategy=self._strategy))
                case cql.CreateArchive(definition):
                    best = optimize(definition.plan, change.catalog, off=self._without, strategy="upa")
                    bound = cql.CreateArchive(replace(definition, plan=best))
                case cql.Explain(plan, form):
                    best = optimize(plan, change.catalog, off=self._without, strategy=self._strategy)
                    shown.append(explain(best, form, strategy=self._strategy, sharing=self._sharing(best)))
            after = applied(bound, change.catalog)
            if after is not change.catalog:  # EXPLAIN, or DROP IF EXISTS of nothing
                _note(change, bound)
            change.catalog = after
        if change.catalog is not self.catalog:
            self._apply(change)
        return shown

    def _change(self) -> Change:
        functions = registered()
        catalog = self.catalog if functions == self.catalog.functions else replace(self.catalog, functions=functions)
        return Change(catalog, self._functions(catalog))

    def _apply(self, change: Change) -> None:
        self.runtime.apply(change)
        self.catalog = change.catalog

    def _sharing(self, plan: QueryPlan) -> dict[str, Any] | None:
        """What EXPLAIN says of a periodic query's sharing: as it is, or as it would be if it were registered."""
        if plan.root.period is None:
            return None
        from windrow.sharing.explain import sharing_of

        registry = self.runtime.sharing
        known = plan.name in registry.served or plan.name.lower() in self.runtime.ticker.queries
        return sharing_of(registry if known else registry.with_plan(plan), plan)

    def stream(self, name: str, data: Any, timestamp: str | None = None, slack: Any = None, **options: Any) -> None:
        """Declare a stream from a streaming DataFrame, or from an example of the rows that will be pushed.

        After a restart, give the DataFrame of a stream that was declared so again: it goes on from where it was.
        """
        columns = self.runtime.declared.columns(data)
        example = pa.schema(list(columns.items())).empty_table()
        definition = _with(infer_stream(name, example), timestamp, slack, options)
        with self._declaring:
            known = self.catalog.streams.get(name.lower())
            if known is not None and _same(known, definition) and self.runtime.declared.attach(name, data):
                return
            change = self._change()
            change.catalog = change.catalog.add(definition)
            change.add("stream", definition)
            change.data[name.lower()] = data
            self._apply(change)

    def table(self, name: str, data: Any, *, retroactive: bool = False, valid: tuple[str, str] | None = None) -> None:
        """Declare a table from data, or replace what a declared table holds, from the next tick on."""
        with self._declaring:
            change = self._change()
            definition = self.catalog.tables.get(name.lower())
            if definition is None:
                definition = TableDef(name, self.runtime.declared.columns(data), retroactive, valid)
                change.catalog = change.catalog.add(definition)
            change.add("table", definition)
            change.data[name.lower()] = data
            self._apply(change)

    def refresh(self, table: str) -> None:
        """Read a table again now."""
        if table.lower() not in self.catalog.tables:
            raise BindingError(f'table "{table}" does not exist')
        self.runtime.declared.refresh_table(table.lower())

    def push(self, stream: str, rows: Any) -> None:
        """Hand in rows of a stream that has no source of its own.

        In process their answers are there when this returns; on Spark the next tick takes them.
        """
        self._known_stream(stream)
        self.runtime.push(stream, rows)

    def advance(self, until: int) -> None:
        """Move time to `until`: no row at or before it will come."""
        self.runtime.advance(until)

    def start(self) -> None:
        """Begin reading streams."""
        self.runtime.start()

    def stop(self) -> None:
        """Stop; with a `home`, a later engine goes on from here."""
        self.runtime.stop()

    def status(self) -> dict[str, Any]:
        """Rates, tick times, frontier and lag, late rows, state and per-query counters."""
        return self.runtime.status()

    def ticks(self, after: int = -1) -> list[dict[str, Any]]:
        """The newest ticks (at most 1000) beyond a number: when they ended, milliseconds by phase, rows and answers."""
        return self.runtime.figures.timeline(after)

    def on_tick(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call `callback` with the number of each tick when it is done; calling what is returned ends that."""
        listeners = self.runtime.listeners
        name = getattr(callback, "__qualname__", type(callback).__name__)
        delivery = Delivery(f"listener {name}", retried=False)
        listeners[delivery] = callback
        return lambda: delivery.end("it has left") if listeners.pop(delivery, None) is not None else None

    def sink(self, query: str, kind: str, *, name: str | None = None, **options: Any) -> None:
        """Write a query's answers to `kind` (parquet, json, postgres, terminal, memory) as well.

        `callback` takes a function: `sink("hot", "callback", fn=f)` calls `f(query, tick, table)`. `name` tells
        sinks of one query apart, over restarts too; without one it is the kind. `outbox`: bytes that may wait for it.
        """
        from windrow.sinks import Sink, parse_sink
        from windrow.sinks.memory import CallbackSink

        key, bound = self._known(query), outbox_bytes(options.pop("outbox", None))
        made: Sink
        if kind == "callback":
            made = CallbackSink(options["fn"])
        else:  # a home's ticks are its own, whoever else writes to the same server
            made = parse_sink({"sink": kind, **options}, owner=self.runtime.store.identity)
        plan = self[key].plan
        if isinstance(made, RelationSink) and not plan.has_op:
            raise BindingError(
                f'the answer of query "{plan.name}" is a stream, which has no rows to replace',
                hint="use mode append, or leave the stream operator or SLIDE out",
            )
        if isinstance(made, RelationSink):
            made.check(plan.name, [shown for shown, _ in plan.output])
        with self.runtime.between_ticks():
            attached = self.runtime.declared.outbox.attach(key, kind, made, name, bound)
            if isinstance(made, RelationSink):  # it begins with the relation as it is
                attached.fill(*self[key].as_of_tick())

    def detach(self, query: str, sink: str) -> None:
        """Write to a sink no longer: by its name, as status has it. What waits for it is let go."""
        key = self._known(query)
        with self.runtime.between_ticks():
            self.runtime.declared.outbox.detach(key, sink)

    def ask(
        self,
        text: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        isolation: str = "snapshot",
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> pa.Table:
        """Answer a one-time SELECT over the streams' kept windows, tables, and the relations of queries.

        `isolation`: "snapshot" answers as of the start, "latest" as of the end. The schema's metadata say for which
        frontier the answer is exact (`windrow.as_of`) and at which level (`windrow.isolation`). `parameters` are the
        values of `$name`, `$1` or `?`. After `timeout` seconds, or when `cancel` is set, it is given up.
        """
        from windrow.runtime.ask import AskLimits, ask

        plans = self.question_plans()
        functions, limits = self._functions(plans.catalog), AskLimits(timeout, cancel)
        return ask(
            text, plans, self.runtime, functions, isolation=isolation, parameters=parameters, limits=limits
        )  # fmt: skip

    def ask_batches(
        self,
        text: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        isolation: str = "snapshot",
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> pa.RecordBatchReader:
        """The same as `ask`, batch by batch, for answers that are large.

        A selection from a stream's history is computed as it is read, and takes the memory of one run; any other
        question is computed first. Close the reader, or read it to its end: it keeps the state that it reads.
        """
        from windrow.runtime.ask import AskLimits, ask_batches

        self.runtime.check()
        plans = self.question_plans()
        functions, limits = self._functions(plans.catalog), AskLimits(timeout, cancel)
        return ask_batches(
            text, plans, self.runtime, functions, isolation=isolation, parameters=parameters, limits=limits
        )  # fmt: skip

    def question_plans(self) -> QuestionPlans:
        """The plans of one-time queries over the present catalog."""
        catalog = self.catalog
        if self._plans is None or self._plans.catalog is not catalog:
            self._plans = QuestionPlans(catalog, self._extras)
        return self._plans

    def _repr_html_(self) -> str:
        """For notebooks."""
        from windrow.engine.display import status_html

        return status_html(self.status())

    def _extras(self, travels: Travels) -> dict[str, Extra]:
        """The tables that a one-time query may have besides those that are declared: the past, and archives."""
        declared = self.runtime.declared
        archives = {k: archive_table(declared.archives, k, a) for k, a in self.catalog.archives.items()}
        return {**archives, **past_answers(travels, self.catalog, declared.outlets)}

    def archive(self, name: str) -> Archive:
        """A declared archive."""
        if name.lower() not in self.catalog.archives:
            known = ", ".join(a.name for a in self.catalog.archives.values()) or "none yet"
            raise BindingError(f'archive "{name}" does not exist', hint=f"archives are {known}")
        return Archive(self.runtime.declared.archives, name.lower())

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the engine stops; what made it fail is raised."""
        self.runtime.wait(seconds)

    def drain(self, seconds: float = 60.0) -> None:
        """Wait until every stream has handed over all that its source has now."""
        self.runtime.drain(seconds)

    def late(self, stream: str) -> pa.Table:
        """Rows of a stream that came too late, or from too far ahead."""
        self._known_stream(stream)
        return self.runtime.late(stream)

    def quarantine(self, stream: str) -> pa.Table:
        """What of a stream ON ERROR QUARANTINE could not be read: tick, file, position, reason, text."""
        self._known_stream(stream)
        return self.runtime.quarantined(stream)

    def _known_stream(self, name: str) -> None:
        if name.lower() not in self.catalog.streams:
            raise BindingError(
                f'stream "{name}" does not exist', hint=f"streams are {', '.join(self.catalog.streams) or 'none yet'}"
            )

    def _known(self, name: str) -> str:
        if name not in self:
            some = [*islice(self.catalog.queries, 20), *islice(self.catalog.groups, 20)]
            raise BindingError(f'query "{name}" does not exist', hint=f"queries are {', '.join(some) or 'none yet'}")
        return name.lower()

    def __getitem__(self, name: str) -> Query:
        key = self._known(name)
        return Queries(self, key) if key in self.catalog.groups else Query(self, key)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.catalog.queries or name.lower() in self.catalog.groups

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Query:
    """A registered query."""

    def __init__(self, engine: Engine, key: str) -> None:
        self._engine, self._key = engine, key

    @property
    def key(self) -> str:
        """Its name, in the letters that names are compared in."""
        return self._key

    @property
    def plan(self) -> QueryPlan:
        return self._engine.catalog.queries[self._key]

    def results(self, since: int | datetime | None = None, until: int | datetime | None = None) -> pa.Table:
        """The newest rows of the answer (the last 100,000; attach a sink, or KEEP the query, for all of them).

        With `since` or `until`, the kept answers with since <= _ts < until; the query says KEEP.
        """
        outlet = self._engine.runtime.declared.outlets[self._key]
        if since is None and until is None:
            return self._with_quality(outlet.recent.table())
        log = kept_log(self.plan, outlet)
        bounds = [None if at is None else instant_of(at, self.plan.time_type) for at in (since, until)]
        return self._with_quality(log.results(*bounds))

    def _with_quality(self, table: pa.Table) -> pa.Table:
        quality = self.quality()
        if quality is None:
            return table
        return table.replace_schema_metadata({**(table.schema.metadata or {}), QUALITY: json.dumps(quality)})

    def quality(self) -> dict[str, Any] | None:
        """What was shed: `time` by the tick budget, `memory` by joins with SHED BY; None when nothing can be.

        The same figures are in the metadata of `results()` and `snapshot()`, as JSON under `windrow.quality`.
        """
        return self._engine.runtime.quality(self._key)

    def snapshot(self) -> pa.Table:
        """The rows of the relation now; for a stream-valued query, the rows of its newest instant."""
        return self.as_of_tick()[1]

    def as_of_tick(self) -> tuple[int, pa.Table]:
        """`snapshot()`, and the number of the tick after which it holds: with `changes(tick)` nothing is missed."""
        runtime = self._engine.runtime
        if self.plan.has_op:
            with runtime.view() as view:
                table = view.snapshot(self._key)
                told = {"windrow.as_of": str(view.frontier), "windrow.isolation": "snapshot"}
                table = table.replace_schema_metadata({**(table.schema.metadata or {}), **told})
                return view.tick, self._with_quality(table)
        tick, rows = runtime.declared.outlets[self._key].recent.up_to()
        rows = self._with_quality(rows)
        if rows.num_rows:
            ts = rows.column("_ts")
            rows = rows.filter(pc.equal(ts, ts[rows.num_rows - 1]))
        return tick, rows

    def changes(self, after: int) -> list[tuple[int, pa.Table]] | None:
        """What was answered after a tick, by tick; None if some of that is gone, or if there was no such tick yet."""
        runtime = self._engine.runtime
        if after > runtime.ticker.manifest.tick:
            return None
        return runtime.declared.outlets[self._key].recent.after(after)

    def explain(self, format: str = "text") -> str:
        """The plan as it runs: with the orders and plans that its joins have chosen, what they rest on, and what was
        shed so far (text and json)."""
        from windrow.plan.explain import explain

        joins, sharing = self._engine.runtime.joins(self._key), self._engine._sharing(self.plan)
        shown = explain(self.plan, format, strategy=self._engine._strategy, joins=joins, sharing=sharing)
        quality = self.quality()
        if quality is not None and format.lower() == "text":
            shown += "".join(f"\nshed for {what}: {_figures(found)}" for what, found in quality.items())
        elif quality is not None and format.lower() == "json":
            shown = json.dumps({**json.loads(shown), "quality": quality}, indent=2)
        return shown

    def to_pandas(self) -> Any:
        """The present answer as a pandas frame."""
        return self.snapshot().to_pandas()

    def to_polars(self) -> Any:
        """The present answer as a polars frame."""
        import polars

        return polars.from_arrow(self.snapshot())

    def to_duckdb(self, connection: Any = None) -> Any:
        """The present answer as a DuckDB relation, of `connection` if one is given."""
        import duckdb

        return (connection or duckdb.connect()).from_arrow(self.snapshot())

    def dataframe(self, spark: Any, follow: str | None = None) -> Any:
        """The present answer as a DataFrame of a Spark session.

        With `follow`, a streaming DataFrame of the rows that `results()` gets from now on: a sink writes them as
        Parquet under that path, a file a tick, and Spark reads the files exactly once.
        """
        if follow is None:
            return spark.createDataFrame(self.snapshot())
        from windrow.sinks.directory import DirectorySink

        name, shown = self.plan.name, self._engine.runtime.declared.outlets[self._key].recent.schema
        self._engine.sink(name, "parquet", path=follow)
        folder = DirectorySink(follow).folder(name)
        return spark.readStream.schema(spark.createDataFrame(shown.empty_table()).schema).parquet(folder)

    def _repr_html_(self) -> str:
        """For notebooks: the present answer over the plan."""
        from windrow.engine.display import table_html

        return table_html(self.snapshot(), self.plan.name) + self.explain("svg")

    def live(self, every: float = 0.5) -> Any:
        """Show the answer in a notebook as it changes, at most once in `every` seconds; `.stop()` ends it."""
        from windrow.engine.display import LiveView, table_html

        return LiveView(lambda: table_html(self.snapshot(), self.plan.name), self.subscribe, every)

    def subscribe(self, callback: Callable[[pa.Table], None]) -> Callable[[], None]:
        """Call `callback` with each new part of the answer; calling what is returned ends that."""
        return self._engine.runtime.declared.outlets[self._key].recent.subscribe(self.plan.name, callback)


class Queries(Query):
    """Queries from a template: one answer, the values of the parameters before the SELECT list."""

    @property
    def plan(self) -> QueryPlan:
        """The plan of some instance, under the name of all."""
        return self._group.plan

    @property
    def _group(self) -> TemplateGroup:
        return self._engine.runtime.declared.groups.live[self._key]

    def __len__(self) -> int:
        return len(self._group.instances)

    def instances(self) -> pa.Table:
        """The values of the parameters of all instances, a row for each."""
        return self._group.definition.rows(self._group.instances.values())

    def quality(self) -> dict[str, Any] | None:
        """Instances shed nothing by themselves."""
        return None

    def as_of_tick(self) -> tuple[int, pa.Table]:
        """`snapshot()`, and the number of the tick after which it holds."""
        if not self.plan.has_op:
            return super().as_of_tick()
        runtime, group = self._engine.runtime, self._group
        with runtime.view() as view:
            parts = []
            for name in group.instances:
                if name.lower() in runtime.ticker.queries:
                    rows = view.snapshot(name.lower())
                    parts.append(group.with_values(rows, name))
            told = {"windrow.as_of": str(view.frontier), "windrow.isolation": "snapshot"}
            empty = group.empty.drop_columns(["_ts", "_op"])
            return view.tick, pa.concat_tables([empty, *parts]).replace_schema_metadata(told)

    def explain(self, format: str = "text") -> str:
        """The plan of one instance, and with whom it shares."""
        from windrow.plan.explain import explain

        group = self._group
        first = next(iter(group.instances), None)
        running = None if first is None else self._engine.runtime.ticker.queries.get(first.lower())
        plan = self.plan if running is None else running.plan
        sharing = self._engine._sharing(plan) if running is not None else None
        shown = explain(plan, format, strategy=self._engine._strategy, sharing=sharing)
        if format.lower() != "text":
            return shown
        return f"{len(group.instances)} queries from template {group.template.name}, one of them:\n{shown}"


def _opened(
    runtime: str,
    home: str | os.PathLike[str] | None,
    spark: Any,
    functions: Mapping[str, Any],
    settings: dict[str, Any],
) -> Runtime:
    """The runtime of that name over a home; without one its state goes with it."""
    if runtime == "local":
        from windrow.runtime.job import LocalJob

        store: StateStore = MemoryStore() if home is None else Store.open(home)
        return _made(lambda: Runtime(LocalJob(), store, functions, **settings), store)
    if runtime == "spark":
        from windrow.spark.live import open_runtime

        return open_runtime(home, spark, functions, settings)
    raise WindrowError(f"unknown runtime {runtime!r}", hint="use one of spark, local")


def _made(make: Callable[[], Runtime], store: StateStore) -> Runtime:
    try:
        made = make()
        store.sweep(orphans=True)
        return made
    except BaseException:
        store.close()
        raise


def _note(change: Change, bound: Any) -> None:
    """Put a statement into a change."""
    from windrow import cql

    match bound:
        case cql.CreateStream(definition):
            change.add("stream", definition)
        case cql.CreateTable(definition):
            change.add("table", definition)
        case cql.CreateTemplate(definition):
            change.add("template", definition)
        case cql.CreateQueries(definition):
            change.add("queries", definition)
        case cql.CreateQuery(plan):
            change.add("query", plan)
        case cql.CreateArchive(definition):
            change.add("archive", definition)
        case cql.Drop(kind, name, _):
            change.drop(kind, name)


def _with(stream: StreamDef, timestamp: str | None, slack: Any, options: Mapping[str, Any]) -> StreamDef:
    """The definition with a caller's options, which mean what the clauses of CREATE STREAM mean."""
    if timestamp is not None:
        named = {c.lower(): c for c in stream.columns}
        if timestamp.lower() not in named:
            raise BindingError(
                f'stream "{stream.name}" has no column "{timestamp}"',
                hint=f"its columns are {', '.join(stream.columns)}",
            )
        stream = replace(stream, time=named[timestamp.lower()])
    unknown = set(options) - {"retain", "idle_after", "ahead"}
    if unknown:
        raise WindrowError(
            f"unknown option {sorted(unknown)[0]!r}", hint="use timestamp, slack, retain, idle_after, ahead"
        )
    clauses = {"WITHIN": slack, "RETAIN": options.get("retain"), "IDLE AFTER": options.get("idle_after")}
    clauses["AHEAD"] = options.get("ahead")
    said = " ".join(f"{clause} {value}" for clause, value in clauses.items() if value is not None)
    clock = "BIGINT" if pa.types.is_integer(stream.time_type) else "TIMESTAMP"
    from windrow import cql

    (statement,) = cql.parse(f"CREATE STREAM given (t {clock}) TIMESTAMP BY t {said}")
    bound = cql.bind(statement, Catalog())
    assert isinstance(bound, cql.CreateStream)
    given = bound.definition
    clauses_given = {n: getattr(given, n) for n in ("slack", "within", "retain", "idle_after", "ahead")}
    return replace(stream, **clauses_given)


def _figures(quality: Mapping[str, Any]) -> str:
    """One line on what was shed.

    >>> _figures({"rows_seen": 9, "rows_shed": 3, "importance_kept": 0.75, "estimated_recall": 0.5, "exact": False})
    '3 of 9 rows, importance kept 75.0 %, estimated recall 50.0 %, approximate'
    """
    kept, recall = (100 * quality[n] for n in ("importance_kept", "estimated_recall"))
    rows = f"{quality['rows_shed']:,} of {quality['rows_seen']:,} rows"
    state = "exact" if quality["exact"] else "approximate"
    return f"{rows}, importance kept {kept:.1f} %, estimated recall {recall:.1f} %, {state}"


def _same(a: StreamDef, b: StreamDef) -> bool:
    """Whether two definitions differ in nothing but their spelling."""
    return replace(a, name="", columns=dict(a.columns)) == replace(
        b, name="", columns=dict(b.columns), options=a.options
    )
