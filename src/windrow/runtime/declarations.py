"""What is declared in an engine, and changes to it: all those of a script between two ticks, or none.

A `Change` says what comes and what goes. Everything that can fail by itself (opening sources, reading tables) is done
before anything is touched; then the steps are made under an undo log, and the manifest that holds the new catalog makes
the change durable. Whatever fails before that leaves everything as it was.

    tick    plan ─┬──────────── job ────────────┬─ collect ─ manifest ─ sinks       held: plan, and from collect on
    others        └ queries come, manifests too ┘                             drop, declare: between two ticks

A query that comes while a job runs is no part of that tick: it belongs to the next epoch, it is durable by a manifest
that holds the state before the tick, on which the tick's own manifest then builds, and its clock starts behind the
tick's rows. So nobody waits for a job to create a query.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from windrow.catalog import Catalog, StreamDef
from windrow.errors import WindrowError
from windrow.plan.nodes import QueryPlan
from windrow.runtime.change import Change
from windrow.runtime.declared import DeclaredQueries
from windrow.runtime.streams import Stream
from windrow.runtime.tables import LiveTable, Reading, fixed, open_table, told
from windrow.sources.bounded import check_options
from windrow.sources.numbered_rows import whole
from windrow.sources.table_changes import TableChange
from windrow.store.failpoints import reach


class Declarations(DeclaredQueries):
    """Streams, tables and queries of one engine, changed all at once."""

    # changes

    def apply(self, change: Change, check: Callable[[], None]) -> None:
        """Make a change between two ticks: all of it, durably, or none; `check` refuses it while nothing is touched."""
        with ExitStack() as opened:
            for stream in change.streams.values():
                check_options(stream)
            streams = {k: self._opened(s, change.data.get(k), opened) for k, s in change.streams.items()}
            tables = {k: self._table(t, change, opened) for k, t in change.tables.items()}
            streams |= {k: self._changes(t, change, opened) for k, t in change.tables.items() if t.changes is not None}
            coming = self._planned(change, tables)
            with self.busy:
                if not change.only_queries_come or self.budgets.default_us is not None:
                    self._ended.wait_for(lambda: not self._job_runs)
                check()
                with self.ticker.change():
                    over = self._make(change, streams, tables)
                    self._make_groups(coming)
                    self._save(change.catalog)
                opened.pop_all()
            for close in over:
                close()

    def _make(
        self, change: Change, streams: Mapping[str, Stream], tables: Mapping[str, LiveTable]
    ) -> list[Callable[[], None]]:
        """Make every step; returns what to let go of once the change is in force."""
        over: list[Callable[[], None]] = []
        self.ticker.functions = change.functions
        for key in change.dropped["query"]:
            over.append(self._drop_query(key))
        for key in change.dropped["queries"]:
            over.append(self._drop_group(key))
        for key in change.dropped["archive"]:
            self._drop_archive(key)
        for key in change.dropped["stream"]:
            over.append(self._drop_stream(key))
        over += [self.tables[key].close for key in {*change.dropped["table"], *tables} & self.tables.keys()]
        for key in change.dropped["table"]:
            over += self._drop_table(key)
        for key, stream in streams.items():
            before = self.streams.get(key)
            over += [] if before is None else [before.source.close]
            self.streams[key] = stream
            if key not in tables:
                self._add_stream(stream)
        for key, table in tables.items():
            self.tables[key] = table
            self.ticker.set_table(key, table.reading.table)
        for (kind, key), item in change.altered.items():
            if kind == "stream":
                assert isinstance(item, StreamDef)
                over += self._alter_stream(key, item)
            elif kind == "query":
                assert isinstance(item, QueryPlan)
                over += self._alter_keep(key, item)
        for plan in change.queries.values():
            self._add_query(plan)
        for archive in change.archives.values():
            self._add_archive(archive)
        return over

    def _save(self, catalog: Catalog) -> None:
        """Put the catalog in force, durably where there is a home."""
        self.undo.note(self._be_in_force, self._catalog)
        self._be_in_force(catalog)
        declared = {k: s.uid for k, s in self.streams.items()}
        if self._saved is None:
            self.ticker.commit_catalog(0, declared)
            return
        kept = self._saved.write(catalog, self.ticker.sharing.saved())
        reach("before change")
        self.ticker.commit_catalog(kept.version, declared, kept.changes)
        reach("after change")
        self._saved.kept = kept

    def _be_in_force(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def restore(self, catalog: Catalog) -> Catalog:
        """The catalog that the home was left with, and its queries, ready to go on."""
        if self._saved is None:
            return catalog
        manifest, sharing = self.ticker.manifest, self.ticker.sharing
        restored, shared = self._saved.load(manifest, catalog, sharing.sharing)
        if shared is not None:
            self.ticker.take_up(shared)
        with ExitStack() as opened:
            for stream in restored.streams.values():
                key = stream.name.lower()
                self.streams[key] = self._opened(stream, None, opened, manifest.declared.get(key))
                self._upgrade_offset(self.streams[key])
                self._add_stream(self.streams[key])
            for table in restored.tables.values():
                key = table.name.lower()
                runs = self.ticker.table_runs(self.ticker.tables[key][-1])
                if table.changes is not None:
                    self.streams[key] = self._opened(table.change_stream, None, opened, manifest.declared.get(key))
                    self.tables[key] = told(table, runs)
                else:
                    last = whole(runs)
                    self.tables[key] = open_table(table, last=last) if table.options else fixed(table, last)
                self.ticker.set_table(key, self.tables[key].reading.table)
            for plan in restored.queries.values():
                self._add_query(plan)
            for archive in restored.archives.values():
                self._add_archive(archive)
            self._catalog = restored
            for queries in restored.groups.values():
                self._make_groups([self._coming(queries, restored, self._readings())])
            opened.pop_all()
        sharing.settled()
        self.ticker.plans.taken_up()
        if sharing.readmitted:  # before any tick: the next restart must find them where they are now
            self._save(restored)
        self.ticker.repartition()
        return restored

    def refresh_table(self, key: str) -> None:
        """Read a table again now."""
        before = self.tables[key].reading
        self.tables[key].refresh()
        with self.busy:
            self._ended.wait_for(lambda: not self._job_runs)
            self.accept(key, before)

    def accept(self, key: str, before: Reading) -> bool:
        """Let queries see what a table was read to hold; when they refuse it, the reading before stays in force."""
        table = self.tables[key]
        try:
            return self.set_table(key, table.reading.table)
        except WindrowError as error:
            table.refuse(before, error)
            raise

    def set_table(self, key: str, table: pa.Table) -> bool:
        """Let queries see another version of a table from the next tick on; instances follow its rows."""
        with self.ticker.change():
            changed = self.ticker.set_table(key, table)
            if changed:
                self._follow_table(key, self.tables[key].reading)
        return changed

    def change_table(self, key: str, change: TableChange) -> None:
        """Let queries see what changes make of a table from the next tick on; instances follow its rows."""
        live = self.tables[key]
        with self.ticker.change():
            self.ticker.change_table(key, change.run)
            self._follow_table(key, replace(live.reading, parts=(*live.keyed().parts, change.run)))
            live.change(change)

    def _follow_table(self, key: str, reading: Reading) -> None:
        """Let instances be those that the rows of a table ask for."""
        for group in [g for g in self.groups.live.values() if (g.definition.table or "").lower() == key]:
            self._make_groups([self._coming(group.definition, self._catalog, {**self._readings(), key: reading})])

    def _readings(self) -> dict[str, Reading]:
        return {key: table.reading for key, table in self.tables.items()}

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
                self.ticker.starts[self.ticker.clock(key)] = start
        self.fresh, self._newcomers = self._newcomers, []
