"""What is declared in an engine, and the steps by which it changes, each made with the step that takes it back.

A query comes with what its streams have kept and an outlet for its answers; an archive and the instances of a template
are queries, too. `undo` takes back whatever was made so far, so that a change that fails half way leaves nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import ArchiveDef, Catalog, QueriesDef, StreamDef
from windrow.catalog.instances import InstanceTable, positions
from windrow.errors import UnsupportedError, WindrowError
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING
from windrow.plan.dataflow import no_answer
from windrow.plan.nodes import QueryPlan
from windrow.runtime import view
from windrow.runtime.archives import Archives, hidden_name
from windrow.runtime.budget import Budgets
from windrow.runtime.change import Change, ComingInstances, Frames, InstanceChange, InstancePlanner
from windrow.runtime.collector import without_collector
from windrow.runtime.column_places import LeftColumns
from windrow.runtime.declared_sources import DeclaredSources
from windrow.runtime.family_programs import SharedQuery
from windrow.runtime.instances import FEW, TemplateGroup
from windrow.runtime.kept_answers import MapTasks
from windrow.runtime.outbox import Outbox
from windrow.runtime.outlet import Outlet, Recent
from windrow.runtime.plan_members import LeftInstances
from windrow.runtime.saved_catalog import SavedCatalog
from windrow.runtime.settings import Settings
from windrow.runtime.streams import PushSource, Stream
from windrow.runtime.tables import LiveTable
from windrow.runtime.tick import Ticker
from windrow.sharing.member_columns import InstanceNames
from windrow.sinks.answer_log import AnswerLog
from windrow.store.place import Place
from windrow.store.store import Store


class DeclaredQueries(DeclaredSources):
    """Streams, tables, queries, archives and templates as they run."""

    def __init__(
        self,
        ticker: Ticker,
        settings: Settings,
        frames: Frames | None,
        tasks: MapTasks | None = None,
    ) -> None:
        super().__init__(ticker, frames, settings.allow)
        self.strategy = settings.optimizer.strategy
        self.budgets = Budgets(settings.budget_us)
        self.budgets.load(ticker.manifest.budget)
        self.outlets: dict[str, Outlet] = {}
        self.outbox = Outbox(ticker, self.outlets, tasks)
        self.failures: dict[str, WindrowError] = {}  # queries that cannot go on; the others do
        self.fresh: list[str] = []  # queries that have not had their history yet
        store = ticker.store
        self.archives = Archives(store)
        self._saved = SavedCatalog(store, settings) if isinstance(store, Store) else None
        self._scratch: Place | None = None  # where answers are kept when there is no home
        self._newcomers: list[str] = []  # queries that came while a job ran
        self._ended = threading.Condition(self.busy)
        self._job_runs = False
        self.groups = ticker.groups
        self.planner: InstancePlanner | None = None
        self._catalog = Catalog()  # in force

    def _add_stream(self, stream: Stream, undo: ExitStack) -> None:
        ticker, definition = self.ticker, stream.definition
        undo.callback(put_back, ticker.streams, stream.key, ticker.streams.get(stream.key))
        ticker.add_stream(definition)
        if definition.retain is not None:
            undo.callback(ticker.queries.pop, view.kept_name(stream.key), None)
            ticker.add_query(view.kept_plan(definition), self.strategy, retain=definition.retain)

    def _alter_stream(self, key: str, definition: StreamDef, undo: ExitStack) -> list[Callable[[], None]]:
        """Let a stream have other clauses, columns or options; with the last two its source is opened anew, where it
        was left."""
        stream, ticker = self.streams[key], self.ticker
        before, source = stream.definition, stream.source
        other_columns = list(before.columns) != list(definition.columns)
        if other_columns and stream.data is not None:
            raise UnsupportedError(
                f'the columns of the stream "{before.name}" cannot be changed',
                detail="they are those of the DataFrame that it was given",
                hint="declare another stream with a DataFrame that has them",
            )
        undo.callback(setattr, stream, "definition", before)
        undo.callback(put_back, ticker.streams, key, before)
        stream.definition = definition
        ticker.add_stream(definition)
        if before.options == definition.options and (not other_columns or isinstance(source, PushSource)):
            return []
        made = self._source(stream, stream.data)
        undo.callback(made.close)
        undo.callback(setattr, stream, "source", source)
        stream.source = made
        return [source.close]

    def _alter_keep(self, key: str, plan: QueryPlan, undo: ExitStack) -> list[Callable[[], None]]:
        """Let the answers of a query last longer, shorter, or no longer."""
        outlet = self.outlets[key]
        before = outlet.log
        undo.callback(setattr, outlet, "log", before)
        empty = no_answer(plan, self.ticker.queries[key].schema)
        outlet.log = self._log(plan, key, self.budgets.mark(key, empty).schema)
        if before is None:
            return []
        return [before.close if outlet.log is not None else before.drop]

    def _drop_stream(self, key: str, undo: ExitStack) -> Callable[[], None]:
        gone = self.streams[key]
        swapped(self.streams, key, None, undo)
        kept = view.kept_name(key)
        if kept in self.ticker.queries:
            self._forget_query(kept, undo)
        undo.callback(put_back, self.ticker.streams, key, self.ticker.streams[key])
        self.ticker.drop_stream(key)
        return gone.source.close

    def _drop_table(self, key: str, undo: ExitStack) -> list[Callable[[], None]]:
        swapped(self.tables, key, None, undo)
        swapped(self.ticker.tables, key, None, undo)
        told = self.streams.get(key)
        if told is None:
            return []
        swapped(self.streams, key, None, undo)
        self.ticker.forget_source(key)
        return [told.source.close]

    def _add_query(self, plan: QueryPlan, undo: ExitStack) -> None:
        """Run a query from the next tick on, with an outlet for its answers."""
        key = plan.name.lower()
        plan = self._run_query(plan, undo)
        empty = no_answer(plan, self.ticker.queries[key].schema)
        self._open_outlet(plan, plan.name, self.budgets.mark(key, empty), undo)

    def _run_query(self, plan: QueryPlan, undo: ExitStack) -> QueryPlan:
        """Run a query from the next tick on; a new one begins with what its streams have kept."""
        key = plan.name.lower()
        undo.callback(self.budgets.drop, key)
        plan = self.budgets.add(plan)
        known = self.ticker.has_begun(plan.name)
        start = None if known else self._start(plan)
        undo.callback(self._take_back, key)
        self.ticker.add_query(plan, self.strategy, start, materialized=True, known=known)
        if key in self.failures:
            swapped(self.failures, key, None, undo)
        if not known:
            self._let_come(key, undo)
        return plan

    def _let_come(self, key: str, undo: ExitStack) -> None:
        """Let a query that is new have its history."""
        coming = self._newcomers if self._job_runs else self.fresh
        coming.append(key)
        undo.callback(coming.remove, key)

    def _open_outlet(self, plan: QueryPlan, name: str, empty: pa.Table, undo: ExitStack) -> None:
        key = name.lower()
        log = self._log(plan, key, empty.schema)
        recent = Recent(empty, self.ticker.manifest.tick, since=self.ticker.frontier)
        swapped(self.outlets, key, Outlet(name, recent, log), undo)

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
        known = self.ticker.has_begun(key)
        undo.callback(self._take_back, key)
        self.ticker.add_query(plan, "upa", None if known else self._start(plan), archived=True, known=known)
        swapped(self.archives.live, definition.name.lower(), self.archives.made(definition, manifest, known), undo)
        swapped(self.failures, key, None, undo)
        if not known:
            self._let_come(key, undo)

    def _drop_archive(self, key: str, undo: ExitStack) -> None:
        hidden = hidden_name(key)
        swapped(self.archives.live, key, None, undo)
        self._stop(hidden, undo)
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
        swapped(self.outlets, key, None, undo)
        self._end_query(key, undo)
        self.ticker.forget_outputs(key)
        return outlet.drop

    def _end_query(self, key: str, undo: ExitStack) -> None:
        """Run a query no longer."""
        undo.callback(self.budgets.reinstate, self.budgets.dropped(key))
        self._stop(key, undo)

    def _stop(self, key: str, undo: ExitStack) -> None:
        """Run what answers under a name no longer."""
        swapped(self.failures, key, None, undo)
        for coming in (self.fresh, self._newcomers):
            if key in coming:
                coming.remove(key)
                undo.callback(coming.append, key)
        self._forget_query(key, undo)

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
        there = InstanceTable.empty(template.parameters) if live is None else live.instances
        wanted = queries.instances
        if queries.table is not None:
            wanted = self.planner.wanted(queries, template, tables[queries.table.lower()].reading.table)
        come, gone = wanted.since(there)
        like = self.planner.like(template, catalog) if live is None else live.like
        few = FEW if self._takes_columns(like) else None
        parts = []
        for left in self.ticker.left_columns(queries.name) if few is not None else ():
            begun = self._begun(left)
            at = positions(begun.rows, come)
            begun, at = begun.take(np.flatnonzero(at >= 0)), at[at >= 0]
            planned = self.planner.planned(queries, template, begun.rows, catalog, 1)
            if len(at) and not planned.plans:  # as it was when they came
                parts.append(ComingInstances(begun.rows, planned, begun))
                come = come.filter(pa.array(~np.isin(np.arange(come.num_rows), at)))
        alone = self._ran_alone(queries, come)
        for some, least in ((alone, None), (~alone, few)):
            rows = come.filter(pa.array(some))
            if rows.num_rows:
                parts.append(ComingInstances(rows, self.planner.planned(queries, template, rows, catalog, least)))
        return InstanceChange(queries, template, like, gone, tuple(parts))

    def _ran_alone(self, queries: QueriesDef, rows: pa.Table) -> Bools:
        """Which instances were members by themselves when the home was left: they go on so, with their state."""
        left = self.ticker.left_instances(queries.name)
        if not left:
            return np.zeros(rows.num_rows, np.bool_)
        return np.array([name.lower() in left for name in InstanceNames("", queries.name, rows)], np.bool_)

    def _takes_columns(self, like: QueryPlan) -> bool:
        """Whether instances may run as members in columns: nothing is done for each of them but answering."""
        streams = [self.streams.get(s.lower()) for s in like.streams]
        kept = any(s is not None and s.definition.retain is not None for s in streams)
        able = self.ticker.sharing.takes_columns and self.budgets.default_us is None and not kept
        return able and (like.root.period is not None or self.strategy == "upa")

    def _begun(self, left: LeftColumns | LeftInstances) -> LeftColumns | LeftInstances:
        """Those of a block who had a tick, and have not failed, when the home was left."""
        if not self.ticker.has_clock(left.clock):
            return left.take(np.zeros(0, np.int64))
        lapsed = [q for q in self.ticker.manifest.lapsed if q.startswith(f"{left.queries.lower()}(")]
        if not lapsed:
            return left
        place = InstanceNames("", left.queries, left.rows).place
        gone = [place[q] for q in lapsed if q in place]
        return left.take(np.setdiff1d(np.arange(left.rows.num_rows), gone))

    def _make_groups(self, coming: Iterable[InstanceChange], undo: ExitStack) -> list[Callable[[], None]]:
        for change in coming:
            key = change.queries.name.lower()
            group = self.groups.live.get(key)
            if group is None:
                group = TemplateGroup(change.queries, change.template, change.like)
                swapped(self.groups.live, key, group, undo)
                self._open_outlet(change.like, group.name, group.empty, undo)
            undo.callback(self.groups.changed)
            undo.callback(group.put_back, group.copy())
            group.definition = change.queries
            if change.gone.num_rows:
                self._end_instances(group, group.go(change.gone), undo)
                self.groups.changed()
            for part in change.come:
                self._run_instances(group, part, undo)
        return []

    def _run_instances(self, group: TemplateGroup, come: ComingInstances, undo: ExitStack) -> None:
        """Run instances from the next tick on."""
        ticker, planned, numbers = self.ticker, come.planned, group.come(come.rows)
        start = self._start(group.like) if come.left is None else None
        for columns in planned.columns:
            block = ticker.add_columns(group, columns, come.rows, numbers, start, come.left, materialized=True)
            undo.callback(ticker.drop_columns, group, block, np.arange(len(columns.places)))
        group.place = group.place.update({name: int(numbers[place]) for name, place in planned.places.items()})
        self.groups.added(group, planned.plans)
        with without_collector():
            for plan in planned.plans.values():
                self._run_query(plan, undo)

    def _end_instances(self, group: TemplateGroup, numbers: Int64s, undo: ExitStack) -> None:
        """Run the instances with some numbers no longer."""
        for block, members in list(group.blocks.items()):
            places = np.flatnonzero(np.isin(members.numbers, numbers))
            if len(places):
                self._end_columns(group, block, places, undo)
        gone = set(numbers.tolist()) if group.place else set()
        names = [name for name, number in group.place.items() if number in gone]
        for name in names:
            self._end_query(name.lower(), undo)
        group.place = group.place.without(*names)

    def _end_columns(self, group: TemplateGroup, block: str, places: Int64s, undo: ExitStack) -> None:
        manifest = self.ticker.manifest
        if self.failures or manifest.lapsed:
            names = group.blocks[block].names
            keys = {names[i].lower() for i in places.tolist()}
            for key in keys & self.failures.keys():
                swapped(self.failures, key, None, undo)
            self.ticker.manifest = replace(manifest, lapsed=tuple(q for q in manifest.lapsed if q not in keys))
        clock = self.ticker.clock_of_block(block)
        undo.callback(self.ticker.await_clock, clock)
        undo.callback(put_back, self.ticker.starts, clock, self.ticker.starts.get(clock))
        undo.callback(self.ticker.drop_columns(group, block, places))

    def _drop_group(self, key: str, undo: ExitStack) -> Callable[[], None]:
        group, outlet = self.groups.live[key], self.outlets[key]
        swapped(self.outlets, key, None, undo)
        undo.callback(self.groups.changed)
        swapped(self.groups.live, key, None, undo)
        undo.callback(group.put_back, group.copy())
        for block, members in list(group.blocks.items()):
            self._end_columns(group, block, np.arange(len(members)), undo)
        for name in group.place:
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
        undo.callback(put_back, ticker.queries, key, query)
        clock = ticker.clock(key)
        undo.callback(ticker.await_clock, clock)
        undo.callback(put_back, ticker.starts, clock, ticker.starts.get(clock))
        undo.callback(ticker.choices.reinstate, ticker.choices.of(key))
        undo.callback(ticker.heavy.reinstate, ticker.heavy.of(key))
        ticker.drop_query(key)

    def _start(self, plan: QueryPlan) -> int | None:
        """Where a new query's clock starts: at the frontier or the last row it has missed; None: at its first row.

        Time may have come far while its streams have never had a row: then there is nothing to begin with yet, whether
        the query is new or has waited since before a restart.
        """
        marks, frontier = self.ticker.manifest.marks, self.ticker.frontier
        streams = [s.lower() for s in plan.streams]
        if not marks.keys() & set(streams):
            return None
        missed = [marks[s] for s in streams if s in marks and self.streams[s].definition.retain is None]
        return max([*missed, *([frontier] if frontier != BEGINNING else [])], default=None)


def put_back(names: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        names.pop(key, None)
    else:
        names[key] = value


def swapped(names: dict[str, Any], key: str, value: Any, undo: ExitStack) -> None:
    """Put a value under a name (None: take it away), and remember to put the old one back."""
    undo.callback(put_back, names, key, names.get(key))
    put_back(names, key, value)
