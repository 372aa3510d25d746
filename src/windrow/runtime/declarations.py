"""What is declared in an engine, and changes to it: all those of a script between two ticks, or none.

A `Change` says what comes and what goes. Everything that can fail by itself (opening sources, reading tables) is done
before anything is touched; then each step is made together with the step that takes it back, and the manifest that
holds the new catalog makes the change durable. Whatever fails before that leaves everything as it was.

    tick    plan ─┬──────────── job ────────────┬─ collect ─ manifest ─ sinks       held: plan, and from collect on
    others        └ queries come, manifests too ┘                             drop, declare: between two ticks

A query that comes while a job runs is no part of that tick: it belongs to the next epoch, it is durable by a manifest
that holds the state before the tick, on which the tick's own manifest then builds, and its clock starts behind the
tick's rows. So nobody waits for a job to create a query.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.catalog import (
    ArchiveDef,
    Catalog,
    Instance,
    QueriesDef,
    StreamDef,
    TableDef,
)
from windrow.errors import SourceError, WindrowError
from windrow.operators.elements import BEGINNING, Elements
from windrow.plan.dataflow import answer
from windrow.plan.nodes import QueryPlan
from windrow.runtime import view
from windrow.runtime.archives import Archives, hidden_name
from windrow.runtime.budget import Budgets
from windrow.runtime.change import Change, Frames, InstanceChange, InstancePlanner
from windrow.runtime.instances import TemplateGroup, without_collector
from windrow.runtime.membership import SharedQuery
from windrow.runtime.outbox import Outbox
from windrow.runtime.outlet import Outlet, Recent
from windrow.runtime.saved_catalog import SavedCatalog
from windrow.runtime.streams import PushSource, Stream, folder_of
from windrow.runtime.tables import LiveTable, fixed, open_table
from windrow.runtime.tick import Ticker
from windrow.sinks.answer_log import AnswerLog
from windrow.sources.checkpoint import upgraded
from windrow.sources.protocol import Source, open_source
from windrow.sources.tabular import to_table
from windrow.store.failpoints import reach
from windrow.store.place import Place
from windrow.store.store import Store

CLEANING = "cleanSource"
"""What an engine's owner may allow: sources that delete or move files they have taken."""


class Declarations:
    """Streams, tables and queries of one engine; `busy` is held by whoever changes them or runs a tick, but for its
    job."""

    def __init__(
        self,
        ticker: Ticker,
        strategy: str,
        budget_us: int | None,
        frames: Frames | None,
        allow: Collection[str] = (),
    ) -> None:
        self.ticker, self.strategy, self.frames = ticker, strategy, frames
        unknown = set(allow) - {CLEANING}
        if unknown:
            raise WindrowError(f'allow has "{min(unknown)}"', hint=f'what can be allowed is "{CLEANING}"')
        self._may_write = CLEANING in allow
        self.budgets = Budgets(budget_us)
        self.budgets.load(ticker.manifest.budget)
        self.outlets: dict[str, Outlet] = {}
        self.outbox = Outbox(ticker, self.outlets)
        self.failures: dict[str, WindrowError] = {}  # queries that cannot go on; the others do
        self.streams: dict[str, Stream] = {}
        self.tables: dict[str, LiveTable] = {}
        self.fresh: list[str] = []  # queries that have not had their history yet
        store = ticker.store
        self.place = store.place
        self.archives = Archives(store)
        self._saved = (
            SavedCatalog(store, strategy, "none" if budget_us is None else "set") if isinstance(store, Store) else None
        )
        self._scratch: Place | None = None  # where answers are kept when there is no home
        self._newcomers: list[str] = []  # queries that came while a job ran
        self.busy = threading.RLock()
        self._ended = threading.Condition(self.busy)
        self._job_runs = False
        self.groups = ticker.groups
        self.planner: InstancePlanner | None = None
        self._catalog = Catalog()  # in force

    # changes

    def apply(self, change: Change, check: Callable[[], None]) -> None:
        """Make a change between two ticks: all of it, durably, or none; `check` refuses it while nothing is touched."""
        with ExitStack() as undo:
            streams = {k: self._opened(s, change.data.get(k), undo) for k, s in change.streams.items()}
            tables = {k: self._read(t, change.data.get(k)) for k, t in change.tables.items()}
            coming = self._planned(change, tables)
            with self.busy:
                if not change.only_queries_come or self.budgets.default_us is not None:
                    self._ended.wait_for(lambda: not self._job_runs)
                check()
                over = self._make(change, streams, tables, undo)
                over += self._make_groups(coming, undo)
                self._save(change.catalog)
                undo.pop_all()
            for close in over:
                close()

    def _make(
        self, change: Change, streams: Mapping[str, Stream], tables: Mapping[str, LiveTable], undo: ExitStack
    ) -> list[Callable[[], None]]:
        """Make every step; returns what to let go of once the change is in force."""
        over: list[Callable[[], None]] = []
        ticker = self.ticker
        undo.callback(setattr, ticker, "manifest", ticker.manifest)
        undo.callback(setattr, ticker, "functions", ticker.functions)
        ticker.functions = change.functions
        for key in change.dropped["query"]:
            over.append(self._drop_query(key, undo))
        for key in change.dropped["queries"]:
            over.append(self._drop_group(key, undo))
        for key in change.dropped["archive"]:
            self._drop_archive(key, undo)
        for key in change.dropped["stream"]:
            over.append(self._drop_stream(key, undo))
        for key in change.dropped["table"]:
            _swapped(self.tables, key, None, undo)
            _swapped(ticker.tables, key, None, undo)
        for key, stream in streams.items():
            _swapped(self.streams, key, stream, undo)
            self._add_stream(stream, undo)
        for key, table in tables.items():
            _swapped(self.tables, key, table, undo)
            undo.callback(_put, ticker.tables, key, ticker.tables.get(key))
            ticker.set_table(key, table.reading.table)
        for plan in change.queries.values():
            self._add_query(plan, undo)
        for archive in change.archives.values():
            self._add_archive(archive, undo)
        return over

    def _save(self, catalog: Catalog) -> None:
        """Put the catalog in force, durably where there is a home."""
        self._catalog = catalog
        declared = {k: s.uid for k, s in self.streams.items()}
        if self._saved is None:
            self.ticker.commit_catalog(0, declared)
            return
        kept = self._saved.write(catalog, self.ticker.sharing.saved())
        reach("before change")
        self.ticker.commit_catalog(kept.version, declared, kept.changes)
        reach("after change")
        self._saved.kept = kept

    def restore(self, catalog: Catalog, without: frozenset[str]) -> Catalog:
        """The catalog that the home was left with, and its queries, ready to go on; `without`: rules switched off."""
        if self._saved is None:
            return catalog
        manifest, sharing = self.ticker.manifest, self.ticker.sharing
        restored, shared = self._saved.load(manifest, catalog, without, sharing.sharing)
        if shared is not None:
            sharing.take_up(shared)
        with ExitStack() as undo:
            for stream in restored.streams.values():
                key = stream.name.lower()
                self.streams[key] = self._opened(stream, None, undo, manifest.declared.get(key))
                self._upgrade_offset(self.streams[key])
                self._add_stream(self.streams[key], undo)
            for table in restored.tables.values():
                key = table.name.lower()
                last = self.ticker.store.runs.read(self.ticker.tables[key]).table
                self.tables[key] = open_table(table, last=last) if table.options else fixed(table, last)
                self.ticker.set_table(key, self.tables[key].reading.table)
            for plan in restored.queries.values():
                self._add_query(plan, undo)
            for archive in restored.archives.values():
                self._add_archive(archive, undo)
            self._catalog = restored
            for queries in restored.groups.values():
                self._make_groups([self._coming(queries, restored, self.tables)], undo)
            undo.pop_all()
        sharing.settled()
        if sharing.readmitted:  # before any tick: the next restart must find them where they are now
            self._save(restored)
        return restored

    # streams

    def _opened(self, stream: StreamDef, data: Any, undo: ExitStack, uid: str | None = None) -> Stream:
        """A stream with its source."""
        made = Stream(stream, PushSource())
        if uid is not None:
            made.uid = uid
        made.source = self._source(made, data)
        undo.callback(made.source.close)
        return made

    def _source(self, stream: Stream, data: Any) -> Source:
        definition = stream.definition
        if data is not None and self.frames is not None and self.frames.knows(data):
            assert self.place is not None
            stream.data = data
            folder = folder_of(definition, stream.uid, "checkpoints")
            return self.frames.source(data, definition, self.place.below(folder).uri)
        spool = self.place.below(folder_of(definition, stream.uid)) if self.place is not None else None
        if definition.options.get("source"):
            place = spool if spool is not None else Place.temporary()
            return open_source(definition, place, may_write=self._may_write)
        return PushSource(spool)

    def reopen(self, stream: Stream) -> None:
        """Open the source of a stream anew, so that it is tried from the place where it was left."""
        if not isinstance(stream.source, PushSource):
            made = self._source(stream, stream.data)
            stream.source.close()
            stream.source = made

    def _upgrade_offset(self, stream: Stream) -> None:
        """Go on where a home of an older format has read a source to, in batches of Spark's."""
        offset = self.ticker.manifest.offsets.get(stream.key) or {}
        if "batch" in offset and not isinstance(stream.source, PushSource) and self.place is not None:
            checkpoint = self.place.below(folder_of(stream.definition, stream.uid, "checkpoints"))
            found = upgraded(stream.source, checkpoint, int(offset["batch"]), stream.definition.name)
            manifest = self.ticker.manifest
            self.ticker.manifest = replace(manifest, offsets={**manifest.offsets, stream.key: found})

    def check_sources(self) -> None:
        """Refuse to start while a stream that was read from a DataFrame has none."""
        for stream in self.streams.values():
            offset = self.ticker.manifest.offsets.get(stream.key) or {}
            if isinstance(stream.source, PushSource) and "batch" in offset:
                name = stream.definition.name
                raise SourceError(f'stream "{name}" has no source', hint=f"attach one: engine.stream('{name}', df)")

    def attach(self, name: str, data: Any) -> bool:
        """Give a declared stream whose rows come from the program a DataFrame; False when it has another source."""
        with self.busy:
            stream = self.streams[name.lower()]
            if not isinstance(stream.source, PushSource) or self.frames is None or not self.frames.knows(data):
                return False
            stream.source = self._source(stream, data)
            return True

    def _add_stream(self, stream: Stream, undo: ExitStack) -> None:
        ticker, definition = self.ticker, stream.definition
        undo.callback(_put, ticker.streams, stream.key, ticker.streams.get(stream.key))
        ticker.add_stream(definition)
        if definition.retain is not None:
            undo.callback(ticker.queries.pop, view.kept_name(stream.key), None)
            ticker.add_query(view.kept_plan(definition), self.strategy, retain=definition.retain)

    def _drop_stream(self, key: str, undo: ExitStack) -> Callable[[], None]:
        gone = self.streams[key]
        _swapped(self.streams, key, None, undo)
        kept = view.kept_name(key)
        if kept in self.ticker.queries:
            self._forget_query(kept, undo)
        undo.callback(_put, self.ticker.streams, key, self.ticker.streams[key])
        self.ticker.drop_stream(key)
        return gone.source.close

    # tables

    def _read(self, table: TableDef, data: Any) -> LiveTable:
        """A table with what it holds."""
        if data is None and not table.options:  # empty until the program says what it holds
            return fixed(table, pa.schema(list(table.columns.items())).empty_table())
        if data is None:
            return open_table(table)
        if self.frames is not None and self.frames.knows(data):
            return open_table(table, self.frames.table(data))
        return fixed(table, to_table(data, f'table "{table.name}"', schema=dict(table.columns)))

    def refresh_table(self, key: str) -> None:
        """Read a table again now."""
        reading = self.tables[key].refresh()
        with self.busy:
            self._ended.wait_for(lambda: not self._job_runs)
            self.set_table(key, reading.table)

    def set_table(self, key: str, table: pa.Table) -> bool:
        """Let queries see another version of a table from the next tick on; instances follow its rows."""
        if not self.ticker.set_table(key, table):
            return False
        with ExitStack() as undo:
            for group in [g for g in self.groups.live.values() if (g.definition.table or "").lower() == key]:
                self._make_groups([self._coming(group.definition, self._catalog, self.tables)], undo)
            undo.pop_all()
        return True

    def columns(self, data: Any) -> dict[str, pa.DataType]:
        """The columns of a DataFrame or of rows as Arrow types."""
        if self.frames is not None and self.frames.knows(data):
            return self.frames.columns(data)
        rows = to_table(data, "the table")
        return dict(zip(rows.column_names, rows.schema.types, strict=True))

    # queries

    def _add_query(self, plan: QueryPlan, undo: ExitStack) -> None:
        """Run a query from the next tick on, with an outlet for its answers."""
        key = plan.name.lower()
        plan = self._run_query(plan, undo)
        empty = answer(plan, Elements.empty(self.ticker.queries[key].schema))
        self._open_outlet(plan, plan.name, self.budgets.mark(key, empty), undo)

    def _run_query(self, plan: QueryPlan, undo: ExitStack) -> QueryPlan:
        """Run a query from the next tick on; a new one begins with what its streams have kept."""
        key, manifest = plan.name.lower(), self.ticker.manifest
        undo.callback(self.budgets.drop, key)
        plan = self.budgets.add(plan)
        known = key in manifest.clocks or key in manifest.firsts
        start = None if known else self._start(plan)
        undo.callback(self._take_back, key)
        self.ticker.add_query(plan, self.strategy, start, materialized=True, known=known)
        if key in self.failures:
            _swapped(self.failures, key, None, undo)
        if not known:
            coming = self._newcomers if self._job_runs else self.fresh
            coming.append(key)
            undo.callback(coming.remove, key)
        return plan

    def _open_outlet(self, plan: QueryPlan, name: str, empty: pa.Table, undo: ExitStack) -> None:
        key = name.lower()
        log = self._log(plan, key, empty.schema)
        _swapped(self.outlets, key, Outlet(name, Recent(empty, self.ticker.manifest.tick), log), undo)

    def _log(self, plan: QueryPlan, key: str, schema: pa.Schema) -> AnswerLog | None:
        """Where the answers of a query last, if it says KEEP; without a home, as long as the process."""
        if plan.keep is None:
            return None
        if self.place is None and self._scratch is None:
            self._scratch = Place.temporary()
        place = self.place or self._scratch
        assert place is not None
        return AnswerLog(place, key, schema, plan.keep, relation=plan.has_op)

    def _add_archive(self, definition: ArchiveDef, undo: ExitStack) -> None:
        """Run the query behind an archive; its rows are kept with their lifetimes."""
        key, manifest = hidden_name(definition.name), self.ticker.manifest
        plan = replace(definition.plan, name=key)
        known = key in manifest.clocks or key in manifest.firsts
        undo.callback(self._take_back, key)
        self.ticker.add_query(plan, "upa", None if known else self._start(plan), archived=True, known=known)
        _swapped(self.archives.live, definition.name.lower(), self.archives.made(definition, manifest), undo)
        _swapped(self.failures, key, None, undo)
        if not known:
            coming = self._newcomers if self._job_runs else self.fresh
            coming.append(key)
            undo.callback(coming.remove, key)

    def _drop_archive(self, key: str, undo: ExitStack) -> None:
        hidden = hidden_name(key)
        _swapped(self.archives.live, key, None, undo)
        _swapped(self.failures, hidden, None, undo)
        for coming in (self.fresh, self._newcomers):
            if hidden in coming:
                coming.remove(hidden)
                undo.callback(coming.append, hidden)
        self._forget_query(hidden, undo)
        marks = {name: mark for name, mark in self.ticker.manifest.archives.items() if name != key}
        self.ticker.manifest = replace(self.ticker.manifest, archives=marks)

    def _take_back(self, key: str) -> None:
        """Undo the coming of a query."""
        query = self.ticker.queries.pop(key, None)
        if isinstance(query, SharedQuery):
            self.ticker.sharing.remove(query.plan.name)
        self.ticker.forget(key)

    def _drop_query(self, key: str, undo: ExitStack) -> Callable[[], None]:
        outlet = self.outlets[key]
        _swapped(self.outlets, key, None, undo)
        self._end_query(key, undo)
        self.ticker.forget_outputs(key)
        return outlet.drop

    def _end_query(self, key: str, undo: ExitStack) -> None:
        """Run a query no longer."""
        _swapped(self.failures, key, None, undo)
        undo.callback(self.budgets.reinstate, self.budgets.dropped(key))
        for coming in (self.fresh, self._newcomers):
            if key in coming:
                coming.remove(key)
                undo.callback(coming.append, key)
        self._forget_query(key, undo)

    # queries from templates

    def _planned(self, change: Change, tables: Mapping[str, LiveTable]) -> list[InstanceChange]:
        """What comes and goes with a change: instances that it names, and those that rows of its tables ask for."""
        found = [self._coming(q, change.catalog, {**self.tables, **tables}) for q in change.groups.values()]
        named = {*change.groups, *change.dropped["queries"]}
        for key, group in self.groups.live.items():
            if key not in named and (group.definition.table or "").lower() in tables:
                found.append(self._coming(group.definition, change.catalog, {**self.tables, **tables}))
        return found

    def _coming(self, queries: QueriesDef, catalog: Catalog, tables: Mapping[str, LiveTable]) -> InstanceChange:
        """How to get from the instances that run to those that are wanted."""
        assert self.planner is not None
        template = catalog.templates[queries.template.lower()]
        live = self.groups.live.get(queries.name.lower())
        there: Mapping[str, Instance] = {} if live is None else live.instances
        if queries.table is None:
            come, gone = queries.instances.since(there)
        else:
            wanted = self.planner.wanted(queries, template, tables[queries.table.lower()].reading.table)
            come = {n: i for n, i in wanted.items() if n not in there}
            gone = {n: i for n, i in there.items() if n not in wanted}
        like = self.planner.like(template, catalog) if live is None else live.like
        return InstanceChange(queries, template, like, come, gone, self.planner.plans(template, come.values(), catalog))

    def _make_groups(self, coming: Iterable[InstanceChange], undo: ExitStack) -> list[Callable[[], None]]:
        for change in coming:
            key = change.queries.name.lower()
            group = self.groups.live.get(key)
            if group is None:
                group = TemplateGroup(change.queries, change.template, change.like)
                _swapped(self.groups.live, key, group, undo)
                self._open_outlet(change.like, group.name, group.empty, undo)
            undo.callback(self.groups.changed)
            undo.callback(group.put, list(change.gone.values()), list(change.come))
            undo.callback(setattr, group, "definition", group.definition)
            for name in change.gone:
                self._end_query(name.lower(), undo)
            group.definition = change.queries
            group.put(change.come.values(), change.gone)
            if change.gone:
                self.groups.changed()
            else:
                self.groups.added(group, change.come.values())
            with without_collector():
                for plan in change.plans.values():
                    self._run_query(plan, undo)
        return []

    def _drop_group(self, key: str, undo: ExitStack) -> Callable[[], None]:
        group, outlet = self.groups.live[key], self.outlets[key]
        _swapped(self.outlets, key, None, undo)
        undo.callback(self.groups.changed)
        _swapped(self.groups.live, key, None, undo)
        for name in group.instances:
            self._end_query(name.lower(), undo)
        self.groups.changed()
        self.ticker.forget_outputs(key)
        return outlet.drop

    def _forget_query(self, key: str, undo: ExitStack) -> None:
        ticker = self.ticker
        query = ticker.queries.get(key)
        if isinstance(query, SharedQuery):
            undo.callback(ticker.sharing.reinstate, ticker.sharing.token(query.plan.name))
        undo.callback(ticker.plans.reinstate, ticker.plans.token(key))
        undo.callback(_put, ticker.queries, key, query)
        undo.callback(_put, ticker.starts, key, ticker.starts.get(key))
        undo.callback(ticker.choices.reinstate, ticker.choices.of(key))
        undo.callback(ticker.heavy.reinstate, ticker.heavy.of(key))
        ticker.drop_query(key)

    def _start(self, plan: QueryPlan) -> int | None:
        """Where a new query's clock starts: at the frontier or the last row it has missed; None: at its first row."""
        marks, frontier = self.ticker.manifest.marks, self.ticker.frontier
        streams = [s.lower() for s in plan.streams]
        missed = [marks[s] for s in streams if s in marks and self.streams[s].definition.retain is None]
        return max([*missed, *([frontier] if frontier != BEGINNING else [])], default=None)

    # ticks

    @contextlib.contextmanager
    def job_runs(self) -> Iterator[None]:
        """While the job of a tick runs elsewhere, `busy` is free and queries may come."""
        self.ticker.sharing.used()  # who comes now has not seen the rows of this tick
        self._job_runs = True
        self.busy.release()
        try:
            yield
        finally:
            self.busy.acquire()
            self._job_runs = False
            self._ended.notify_all()

    def let_in(self) -> None:
        """After a tick: those who came while its job ran begin behind its rows, and have their history to come."""
        for key in self._newcomers:
            start = self._start(self.ticker.queries[key].plan)
            if start is not None:
                self.ticker.starts[key] = start
        self.fresh, self._newcomers = self._newcomers, []


def _put(names: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        names.pop(key, None)
    else:
        names[key] = value


def _swapped(names: dict[str, Any], key: str, value: Any, undo: ExitStack) -> None:
    """Put a value under a name (None: take it away), and remember to put the old one back."""
    undo.callback(_put, names, key, names.get(key))
    _put(names, key, value)
