"""The engine: streams and queries that come and go, in front of a runtime.

    engine = windrow.Engine(runtime="spark", home="state/")
    engine.execute("CREATE STREAM ...; CREATE QUERY hot AS SELECT ...")
    engine.start()
    engine["hot"].results()

A script takes effect as a whole or not at all: everything is parsed, bound and planned before the first change is made.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any

import pyarrow as pa

from windrow.catalog import Catalog, SinkDef, TableDef
from windrow.engine.archive import Archive, archive_table
from windrow.engine.attach import attach, attach_declared, declared_sinks, detach_declared, made_sink
from windrow.engine.functions import registered
from windrow.engine.given import note, replacement, same_stream, with_options
from windrow.engine.instances import TemplatePlanner
from windrow.engine.query import Queries, Query, sharing_with
from windrow.engine.readers import check_readers
from windrow.engine.script import applied, infer_stream, optimised
from windrow.errors import BindingError, WindrowError
from windrow.operators.row_limit import MOST_ROWS
from windrow.optimize import Optimizer
from windrow.plan.strategies import Strategy
from windrow.runtime.ask import AskLimits, Question, ask, ask_batches
from windrow.runtime.budget import microseconds_of
from windrow.runtime.change import Change
from windrow.runtime.collector import swept, without_collector
from windrow.runtime.delivery import Delivery
from windrow.runtime.past_answers import group_answers, last_answers, past_answers
from windrow.runtime.question_plans import Extra, QuestionPlans, Travels
from windrow.runtime.runtime import Runtime, open_local
from windrow.runtime.settings import Settings
from windrow.sinks import outbox_bytes

__all__ = ["Engine", "Queries", "Query"]


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
        allow: Iterable[str] = (),
        max_rows: int = MOST_ROWS,
        expire_every: str | float | None = None,
    ) -> None:
        """Open an engine; with a `home` it goes on where the last one stopped.

        `partitions`: over how many state is spread; what a home has over another number is moved.
        `schedule`: how queries with SLIDE AT MOST are put in order when ticks are longer than `tick_budget`.
        `ahead`: how far ahead of its stream and of the wall a row may be, for streams that do not say AHEAD.
        `allow`: options of sources that change what they read, which are refused otherwise: cleanSource.
        `max_rows`: that a query may answer with in one tick, on each partition, and that a one-time query may join;
        one that would have more stops.
        `expire_every`: how often joins let go of rows that have ended (seconds, or ticks); every tick without it.
        """
        if partitions is not None and partitions < 1:
            raise WindrowError(f"partitions is {partitions}", hint="give a number from 1 on, or none")
        self.optimizer, self._max_rows = Optimizer(frozenset(without), Strategy(strategy)), max_rows
        self._declaring = threading.RLock()  # a change is bound against the catalog that it is made to
        self.catalog = Catalog(functions=registered())
        self._plans: QuestionPlans | None = None
        settings = Settings(
            self.optimizer,
            partitions,
            sharing,
            microseconds_of(tick_budget, "tick_budget"),
            schedule,
            microseconds_of(ahead, "ahead"),
            frozenset(allow),
            max_rows,
            microseconds_of(expire_every, "expire_every"),
        )
        self.runtime = self._opened(runtime, home, spark, settings)
        self.runtime.declared.planner = TemplatePlanner(self.optimizer)
        try:
            self.catalog = self.runtime.restore(self.catalog)
            for definition in self.catalog.sinks.values():
                attach_declared(self, definition)
        except BaseException:
            self.runtime.stop()
            raise

    def _opened(self, runtime: str, home: str | os.PathLike[str] | None, spark: Any, settings: Settings) -> Runtime:
        """The runtime of that name over a home; without one its state goes with it."""
        functions = self._functions(self.catalog)
        if runtime == "local":
            return open_local(home, functions, settings)
        if runtime == "spark":
            from windrow.spark.live import open_runtime

            return open_runtime(home, spark, functions, settings)
        raise WindrowError(f"unknown runtime {runtime!r}", hint="use one of spark, local")

    @staticmethod
    def _functions(catalog: Catalog) -> dict[str, Callable[..., object]]:
        return {n: f.fn for n, f in catalog.functions.items()}

    def execute(self, script: str) -> list[str | pa.Table]:
        """Run CQL statements; returns what each EXPLAIN (text), SHOW and DESCRIBE (a table) shows.

        Nothing happens if any statement is wrong.
        """
        with self._declaring:
            return self._execute(script)

    def _execute(self, script: str) -> list[str | pa.Table]:
        with without_collector():  # trees are full of cycles, and go with their script
            change, shown = self._read(script)
        if change.catalog is not self.catalog:
            self._apply(change)
        return shown

    def _read(self, script: str) -> tuple[Change, list[str | pa.Table]]:
        """What a script changes, and what it shows."""
        from windrow import cql
        from windrow.engine.listing import describe, show
        from windrow.plan.explain import explain

        change, shown = self._change(), list[str | pa.Table]()
        for statement in swept(cql.parse(script)):
            bound = optimised(cql.bind(statement, change.catalog), change.catalog, self.optimizer)
            match bound:
                case cql.Explain(plan, form, replaces):
                    text = explain(plan, form, strategy=self.optimizer.strategy, sharing=sharing_with(self, plan))
                    more = replacement(plan, change.catalog) if replaces and form == "text" else ""
                    shown.append(text.rstrip("\n") + "\n" + more if more else text)
                case cql.Show(kind, like):
                    shown.append(show(change.catalog, kind, like))
                case cql.Describe(kind, name):
                    shown.append(describe(change.catalog, kind, name))
            try:
                after = applied(bound, change.catalog)
            except WindrowError as error:
                raise error.at(statement.span) from None
            if isinstance(bound, cql.Alter):
                check_readers(bound.definition, change.catalog, after, self.optimizer.best)
            if after is not change.catalog:  # EXPLAIN, or DROP IF EXISTS of nothing
                note(change, bound)
            change.catalog = after
            cql.let_go(statement)
        return change, shown

    def _change(self) -> Change:
        functions = registered()
        catalog = self.catalog if functions == self.catalog.functions else replace(self.catalog, functions=functions)
        return Change(catalog, self._functions(catalog))

    def _apply(self, change: Change) -> None:
        made = declared_sinks(self, change)
        altered = {key: item for (_, key), item in change.altered.items() if isinstance(item, SinkDef)}
        made |= declared_sinks(self, replace(change, sinks=altered))
        gone = [self.catalog.sinks[key] for key in change.dropped["sink"]]

        def then() -> None:
            self.catalog = change.catalog
            for definition in gone:
                detach_declared(self, definition)
            for key, sink in made.items():
                if key in altered:
                    self.runtime.declared.outbox.put_off(altered[key].query.lower(), altered[key].name)
                attach_declared(self, {**change.sinks, **altered}[key], sink)

        self.runtime.apply(change, then if made or gone else None)
        self.catalog = change.catalog

    def stream(self, name: str, data: Any, timestamp: str | None = None, slack: Any = None, **options: Any) -> None:
        """Declare a stream from a streaming DataFrame, or from an example of the rows that will be pushed.

        After a restart, give the DataFrame of a stream that was declared so again: it goes on from where it was.
        """
        columns = self.runtime.declared.columns(data)
        example = pa.schema(list(columns.items())).empty_table()
        definition = with_options(infer_stream(name, example), timestamp, slack, options)
        with self._declaring:
            known = self.catalog.streams.get(name.lower())
            if known is not None and same_stream(known, definition) and self.runtime.declared.attach(name, data):
                return
            change = self._change()
            change.catalog = change.catalog.add(definition)
            change.add(definition)
            change.data[name.lower()] = data
            self._apply(change)

    def table(self, name: str, data: Any, *, retroactive: bool = False, valid: tuple[str, str] | None = None) -> None:
        """Declare a table from data, or replace what a declared table holds, from the next tick on."""
        with self._declaring:
            change = self._change()
            definition = self.catalog.tables.get(name.lower())
            if definition is not None and definition.changes is not None:
                hint = f'engine.push("{name}", changes)' if not definition.options else "its source tells of them"
                raise BindingError(f'table "{name}" is told by its changes', hint=hint)
            if definition is None:
                definition = TableDef(name, self.runtime.declared.columns(data), retroactive, valid, recall=True)
                change.catalog = change.catalog.add(definition)
            change.add(definition)
            change.data[name.lower()] = data
            self._apply(change)

    def refresh(self, table: str) -> None:
        """Read a table again now."""
        if table.lower() not in self.catalog.tables:
            raise BindingError(f'table "{table}" does not exist')
        self.runtime.declared.refresh_table(table.lower())

    def push(self, stream: str, rows: Any) -> int:
        """Hand in rows of a stream, or changes of a table, that has no source of its own: how many.

        In process their answers are there when this returns; on Spark the next tick takes them.
        """
        self._known_stream(stream, or_changes=True)
        return self.runtime.push(stream, rows)

    def advance(self, until: int) -> None:
        """Move time to `until`: no row at or before it will come."""
        self.runtime.advance(until)

    def start(self) -> None:
        """Begin reading streams."""
        self.runtime.start()

    def stop(self) -> None:
        """Stop; with a `home`, a later engine goes on from here."""
        self.runtime.stop()

    def status(self, queries: Collection[str] | None = None) -> dict[str, Any]:
        """Rates, tick times, frontier and lag, late rows, state and counters of all queries, or of those named."""
        return self.runtime.status(None if queries is None else [q.lower() for q in queries])

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
        key, bound = self._known(query), outbox_bytes(options.pop("outbox", None))
        attach(self, key, kind, made_sink(kind, options, self[key].plan, self.runtime.store.identity), name, bound)

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
        return ask(self.question(text, parameters, timeout, cancel), isolation)

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
        return ask_batches(self.question(text, parameters, timeout, cancel), isolation)

    def question(
        self,
        text: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> Question:
        """A one-time query over the present catalog."""
        plans, runtime = self.question_plans(), self.runtime
        limits = AskLimits(timeout, cancel, runtime.tick_runs, runtime.let_tick_pass, most_rows=self._max_rows)
        planned = plans.plan(text, parameters)
        return Question(plans, planned, self.runtime, self._functions(plans.catalog), limits)

    def question_plans(self) -> QuestionPlans:
        """The plans of one-time queries over the present catalog."""
        catalog = self.catalog
        if self._plans is None or self._plans.catalog is not catalog:
            self._plans = QuestionPlans(catalog, self._extras, self.optimizer)
        return self._plans

    def _repr_html_(self) -> str:
        """For notebooks."""
        from windrow.engine.display import status_html

        return status_html(self.status())

    def _extras(self, travels: Travels, names: Collection[str]) -> dict[str, Extra]:
        """The tables that a one-time query may have besides those that are declared: archives, and answers of the past
        and of periodic queries."""
        declared, catalog = self.runtime.declared, self.catalog
        archives = {k: archive_table(declared.archives, k, a) for k, a in catalog.archives.items()}
        last = last_answers(names, catalog, self.runtime.last_answer)
        groups = group_answers(names, declared.groups.live, self.runtime.answer_of_group)
        past = past_answers(travels, catalog, declared.outlets, self.runtime.answered)
        return {**archives, **last, **groups, **past}

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
        """Wait until every stream has handed over all that its source has now, and receivers have the answers.

        Raises `windrow.errors.DrainTimeout`, a TimeoutError, that names who was not done, if that takes longer.
        """
        self.runtime.drain(seconds)

    def late(self, stream: str) -> pa.Table:
        """Rows of a stream that came too late, or from too far ahead."""
        self._known_stream(stream)
        return self.runtime.late(stream)

    def quarantine(self, stream: str) -> pa.Table:
        """What of a stream ON ERROR QUARANTINE, or of a table's changes, could not be read: tick, file, position,
        reason, text."""
        self._known_stream(stream, or_changes=True)
        return self.runtime.quarantined(stream)

    def _known_stream(self, name: str, or_changes: bool = False) -> None:
        table = self.catalog.tables.get(name.lower())
        if or_changes and table is not None and table.changes is not None:
            return
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
