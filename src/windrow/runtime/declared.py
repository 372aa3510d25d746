"""What is declared in an engine, and the steps by which it changes.

A query comes with what its streams have kept and an outlet for its answers; an archive and the instances of a template
are queries, too. A step replaces what it changes: what was there before is whole, for the undo log to put back
(`undo_log.py`) when a later step fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from windrow.catalog import ArchiveDef, Catalog, QueriesDef, StreamDef
from windrow.catalog.instances import InstanceTable, positions
from windrow.errors import UnsupportedError, WindrowError
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING
from windrow.plan.dataflow import no_answer
from windrow.plan.nodes import QueryPlan
from windrow.plan.strategies import Strategy
from windrow.runtime import state_reader
from windrow.runtime.archives import Archives, hidden_name
from windrow.runtime.budget import Budgets
from windrow.runtime.change import Change, ComingInstances, Frames, InstanceChange, InstancePlanner
from windrow.runtime.collector import without_collector
from windrow.runtime.column_places import LeftColumns
from windrow.runtime.declared_sources import DeclaredSources
from windrow.runtime.instances import FEW, TemplateGroup
from windrow.runtime.kept_answers import MapTasks
from windrow.runtime.outbox import Outbox
from windrow.runtime.outlet import Outlet, Recent
from windrow.runtime.plan_members import LeftInstances
from windrow.runtime.saved_catalog import SavedCatalog
from windrow.runtime.settings import Settings
from windrow.runtime.streams import PushSource, Stream
from windrow.runtime.tables import LiveTable, Reading
from windrow.runtime.tick import Ticker
from windrow.runtime.undo_log import LoggedDict
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
        self.outlets: LoggedDict[str, Outlet] = LoggedDict(self.undo)
        self.outbox = Outbox(ticker, self.outlets, tasks)
        self.failures: LoggedDict[str, WindrowError] = LoggedDict(self.undo)  # queries that cannot go on; the others do
        self.fresh: list[str] = []  # queries that have not had their history yet
        store = ticker.store
        self.archives = Archives(store, LoggedDict(self.undo))
        self._saved = SavedCatalog(store, settings) if isinstance(store, Store) else None
        self._scratch: Place | None = None  # where answers are kept when there is no home
        self._newcomers: list[str] = []  # queries that came while a job ran
        self._ended = threading.Condition(self.busy)
        self._job_runs = False
        self.groups = ticker.groups
        self.planner: InstancePlanner | None = None
        self._catalog = Catalog()  # in force

    def _add_stream(self, stream: Stream) -> None:
        ticker, definition = self.ticker, stream.definition
        ticker.add_stream(definition)
        if definition.retain is not None:
            ticker.add_query(state_reader.kept_plan(definition), self.strategy, retain=definition.retain)

    def _alter_stream(self, key: str, definition: StreamDef) -> list[Callable[[], None]]:
        """Let a stream have other clauses, columns or options; with the last two its source is opened anew, where it
        was left."""
        stream = self.streams[key]
        before, source = stream.definition, stream.source
        other_columns = list(before.columns) != list(definition.columns)
        if other_columns and stream.data is not None:
            raise UnsupportedError(
                f'the columns of the stream "{before.name}" cannot be changed',
                detail="they are those of the DataFrame that it was given",
                hint="declare another stream with a DataFrame that has them",
            )
        altered = self.streams[key] = replace(stream, definition=definition)
        self.ticker.add_stream(definition)
        if before.options == definition.options and (not other_columns or isinstance(source, PushSource)):
            return []
        altered.source = self._source(altered, stream.data)
        self.undo.note(altered.source.close)
        return [source.close]

    def _alter_keep(self, key: str, plan: QueryPlan) -> list[Callable[[], None]]:
        """Let the answers of a query last longer, shorter, or no longer."""
        outlet = self.outlets[key]
        before = outlet.log
        empty = no_answer(plan, self.ticker.queries[key].schema)
        log = self._log(plan, key, self.budgets.mark(key, empty).schema)
        self.outlets[key] = replace(outlet, log=log)
        if before is None:
            return []
        return [before.close if log is not None else before.drop]

    def _drop_stream(self, key: str) -> Callable[[], None]:
        gone = self.streams.pop(key)
        kept = state_reader.kept_name(key)
        if kept in self.ticker.queries:
            self.ticker.drop_query(kept)
        self.ticker.drop_stream(key)
        return gone.source.close

    def _drop_table(self, key: str) -> list[Callable[[], None]]:
        del self.tables[key], self.ticker.tables[key]
        told = self.streams.pop(key, None)
        if told is None:
            return []
        self.ticker.forget_source(key)
        return [told.source.close]

    def _add_query(self, plan: QueryPlan) -> None:
        """Run a query from the next tick on, with an outlet for its answers."""
        key = plan.name.lower()
        plan = self._run_query(plan)
        empty = no_answer(plan, self.ticker.queries[key].schema)
        self._open_outlet(plan, plan.name, self.budgets.mark(key, empty))

    def _run_query(self, plan: QueryPlan) -> QueryPlan:
        """Run a query from the next tick on; a new one begins with what its streams have kept."""
        key = plan.name.lower()
        self.undo.note(self.budgets.drop, key)
        plan = self.budgets.add(plan)
        known = self.ticker.has_begun(plan.name)
        start = None if known else self._start(plan)
        self.ticker.add_query(plan, self.strategy, start, materialized=True, known=known)
        self.failures.pop(key, None)
        if not known:
            self._let_come(key)
        return plan

    def _let_come(self, key: str) -> None:
        """Let a query that is new have its history."""
        coming = self._newcomers if self._job_runs else self.fresh
        coming.append(key)
        self.undo.note(coming.remove, key)

    def _open_outlet(self, plan: QueryPlan, name: str, empty: pa.Table) -> None:
        key = name.lower()
        log = self._log(plan, key, empty.schema)
        recent = Recent(empty, self.ticker.manifest.tick, since=self.ticker.frontier)
        self.outlets[key] = Outlet(name, recent, log)

    def _log(self, plan: QueryPlan, key: str, schema: pa.Schema) -> AnswerLog | None:
        """Where the answers of a query last, if it says KEEP; without a home, as long as the process."""
        if plan.keep is None:
            return None
        if self.place is None and self._scratch is None:
            self._scratch = Place.temporary()
        place = self.place or self._scratch
        assert place is not None
        return AnswerLog(place, key, schema, plan.keep, relation=plan.has_op)

    def _add_archive(self, definition: ArchiveDef) -> None:
        """Run the query behind an archive; its rows are kept with their lifetimes."""
        key, manifest = hidden_name(definition.name), self.ticker.manifest
        plan = replace(definition.plan, name=key)
        known = self.ticker.has_begun(key)
        self.ticker.add_query(plan, Strategy.UPA, None if known else self._start(plan), archived=True, known=known)
        self.archives.live[definition.name.lower()] = self.archives.made(definition, manifest, known)
        self.failures.pop(key, None)
        if not known:
            self._let_come(key)

    def _drop_archive(self, key: str) -> None:
        del self.archives.live[key]
        self._stop(hidden_name(key))
        marks = {name: mark for name, mark in self.ticker.manifest.archives.items() if name != key}
        self.ticker.manifest = replace(self.ticker.manifest, archives=marks)

    def _drop_query(self, key: str) -> Callable[[], None]:
        outlet = self.outlets.pop(key)
        self._end_query(key)
        self.ticker.forget_outputs(key)
        return outlet.drop

    def _end_query(self, key: str) -> None:
        """Run a query no longer."""
        self.undo.note(self.budgets.reinstate, self.budgets.dropped(key))
        self._stop(key)

    def _stop(self, key: str) -> None:
        """Run what answers under a name no longer."""
        self.failures.pop(key, None)
        for coming in (self.fresh, self._newcomers):
            if key in coming:
                coming.remove(key)
                self.undo.note(coming.append, key)
        self.ticker.drop_query(key)

    def _planned(self, change: Change, tables: Mapping[str, LiveTable]) -> list[InstanceChange]:
        """What comes and goes with a change: instances that it names, and those that rows of its tables ask for."""
        read = {key: table.reading for key, table in {**self.tables, **tables}.items()}
        found = [self._coming(q, change.catalog, read) for q in change.groups.values()]
        named = {*change.groups, *change.dropped["queries"]}
        for key, group in self.groups.live.items():
            if key not in named and (group.definition.table or "").lower() in tables:
                found.append(self._coming(group.definition, change.catalog, read))
        return found

    def _coming(self, queries: QueriesDef, catalog: Catalog, read: Mapping[str, Reading]) -> InstanceChange:
        """How to get from the instances that run to those that are wanted, with what tables hold."""
        assert self.planner is not None
        template = catalog.templates[queries.template.lower()]
        live = self.groups.live.get(queries.name.lower())
        there = InstanceTable.empty(template.parameters) if live is None else live.instances
        come, gone = self.planner.wanted(queries, template, lambda key: read[key].table).since(there)
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
        return self.ticker.sharing.takes_columns and self.budgets.default_us is None and not kept

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

    def _make_groups(self, coming: Iterable[InstanceChange]) -> None:
        for change in coming:
            key = change.queries.name.lower()
            if key not in self.groups.live:
                like, none = self.budgets.instance(change.like)
                made = self.groups.live[key] = TemplateGroup(change.queries, change.template, like, none)
                self._open_outlet(like, made.name, made.empty)
            group = self.groups.changing(key)
            group.definition = change.queries
            if change.gone.num_rows:
                self._end_instances(group, group.go(change.gone))
            for part in change.come:
                self._run_instances(group, part)

    def _run_instances(self, group: TemplateGroup, come: ComingInstances) -> None:
        """Run instances from the next tick on."""
        start = self._start(group.like) if come.left is None else None
        self.ticker.add_instances(group, come, start, materialized=True)
        with without_collector():
            for plan in come.planned.plans.values():
                self._run_query(plan)

    def _end_instances(self, group: TemplateGroup, numbers: Int64s) -> None:
        """Run the instances with some numbers no longer."""
        for block, members in list(group.blocks.items()):
            places = np.flatnonzero(np.isin(members.numbers, numbers))
            if len(places):
                self._end_columns(group, block, places)
        gone = set(numbers.tolist()) if group.place else set()
        names = [name for name, number in group.place.items() if number in gone]
        for name in names:
            self._end_query(name.lower())
        self.groups.ended(names)
        group.place = group.place.without(*names)

    def _end_columns(self, group: TemplateGroup, block: str, places: Int64s) -> None:
        manifest = self.ticker.manifest
        if self.failures or manifest.lapsed:
            names = group.blocks[block].names
            keys = {names[i].lower() for i in places.tolist()}
            for key in keys & self.failures.keys():
                del self.failures[key]
            self.ticker.manifest = replace(manifest, lapsed=tuple(q for q in manifest.lapsed if q not in keys))
        self.ticker.drop_columns(group, block, places)

    def _drop_group(self, key: str) -> Callable[[], None]:
        group, outlet = self.groups.changing(key), self.outlets.pop(key)
        for block, members in list(group.blocks.items()):
            self._end_columns(group, block, np.arange(len(members)))
        for name in group.place:
            self._end_query(name.lower())
        self.groups.ended(group.place)
        del self.groups.live[key]
        self.ticker.forget_outputs(key)
        return outlet.drop

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
