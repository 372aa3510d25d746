"""The in-process runtime: rows are pushed in, answers come out at once.

For tests, notebooks and small embedded uses. Rows pushed in are ordered and checked for lateness as on Spark; all
queries advance to the frontier that the slowest stream allows.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import Catalog, StreamDef, TableDef
from windrow.errors import SourceError
from windrow.operators.aggregate_join import AggregateJoin
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, one
from windrow.operators.join import Join
from windrow.operators.standing import Standing
from windrow.operators.star_join import StarJoin
from windrow.plan.dataflow import Circuit, answer
from windrow.plan.nodes import QueryPlan
from windrow.replay import infer_stream
from windrow.runtime.admission import Columns, admit, unweighed
from windrow.runtime.budget import Budgets, seconds_of
from windrow.runtime.outlet import Outlet, Recent, View
from windrow.sharing.group import Group
from windrow.sharing.registry import Registry
from windrow.sources.intake import split_late, times
from windrow.sources.tabular import to_table

Fed = tuple[Int64s, Columns]
"""New rows of a stream: their times and columns."""


class _Inlet:
    """One stream: rows that wait for the frontier, and the kept history."""

    def __init__(self, definition: StreamDef) -> None:
        self.definition = definition
        self.greatest = BEGINNING
        self.least = INF
        self.waiting = self._none()
        self.kept = self._none()
        self.late: list[pa.Table] = []
        self.rows = 0

    def _none(self) -> pa.Table:
        return pa.schema([(n, t) for n, t in self.definition.columns.items()]).empty_table()

    @property
    def frontier(self) -> int:
        return BEGINNING if self.greatest == BEGINNING else self.greatest - self.definition.slack - 1

    def push(self, table: pa.Table, passed: int) -> None:
        ts = times(self.definition, table)
        late, self.greatest = split_late(ts, self.definition.slack, self.greatest)
        late |= ts <= passed
        self.rows += len(ts)
        self.least = min(self.least, int(ts.min(initial=INF)))
        if late.any():
            self.late.append(table.filter(pa.array(late)))
            table = table.filter(pa.array(~late))
        self.waiting = pa.concat_tables([self.waiting, table])

    def take(self, frontier: int) -> tuple[Int64s, Mapping[str, pa.Array]]:
        ts = times(self.definition, self.waiting)
        due = ts <= frontier
        order = np.flatnonzero(due)[np.argsort(ts[due], kind="stable")]
        rows = self.waiting.take(pa.array(order))
        self.waiting = self.waiting.filter(pa.array(~due))
        if self.definition.retain is not None:
            kept = pa.concat_tables([self.kept, rows])
            self.kept = kept.filter(pa.array(times(self.definition, kept) > frontier - self.definition.retain))
        return ts[order], {n: one(rows.column(n)) for n in rows.column_names}

    def history(self) -> tuple[Int64s, Mapping[str, pa.Array]]:
        return times(self.definition, self.kept), {n: one(self.kept.column(n)) for n in self.kept.column_names}


class LocalRuntime:
    """Queries over pushed rows, in this process."""

    def __init__(
        self,
        functions: Mapping[str, Callable[..., object]],
        strategy: str = "upa",
        sharing: str = "auto",
        tick_budget: str | float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.budgets, self._clock = Budgets(seconds_of(tick_budget)), clock
        self.functions, self.strategy = functions, strategy
        self.frontier = BEGINNING
        self.running = False
        self._inlets: dict[str, _Inlet] = {}
        self._tables: dict[str, pa.Table] = {}
        self._circuits: dict[str, Circuit] = {}
        self._group = Group(functions, self._tables, sharing if strategy == "upa" else "off", rate=self._rate)
        self._leaving: set[str] = set()  # shared queries that are dropped, unless the change is undone
        self.outlets: dict[str, Outlet] = {}
        self._ticks = 0
        self._lock = threading.RLock()

    @property
    def sharing(self) -> Registry:
        """Who shares with whom."""
        return self._group

    @contextlib.contextmanager
    def changing(self, adding: bool = False) -> Iterator[None]:
        """Make changes between two ticks: all of them or none."""
        with self._lock:
            held = [dict(d) for d in (self._inlets, self._tables, self._circuits, self.outlets)]
            budgets = self.budgets
            self.budgets = budgets.copy()
            try:
                yield
            except BaseException:
                self._inlets, self._tables, self._circuits, self.outlets = held
                self.budgets = budgets
                for name in [n for n in self._group.served if n.lower() not in self.outlets]:
                    self._group.remove(name)
                self._group.tables = self._tables
                self._leaving.clear()
                raise
            self._leave()

    def keep(self, catalog: Catalog, functions: Mapping[str, Callable[..., object]]) -> None:
        """The user functions that the changes may call; nothing is kept on disk."""
        self.functions = self._group.functions = functions

    def describe(self, name: str, source: Any) -> StreamDef:
        """A definition of a stream from an example table."""
        return infer_stream(name, to_table(source, f'stream "{name}"'))

    def columns(self, source: Any) -> dict[str, pa.DataType]:
        """The columns of a table's data."""
        rows = to_table(source, "the table")
        return dict(zip(rows.column_names, rows.schema.types, strict=True))

    def attach(self, name: str, source: Any) -> bool:
        """Rows are pushed: there is nothing to attach."""
        return False

    def tables(self) -> Mapping[str, pa.Table]:
        """What each table holds."""
        return self._tables

    def add_stream(self, stream: StreamDef, source: Any = None) -> None:
        if stream.options:
            raise SourceError(
                f'stream "{stream.name}" has a source, which the local runtime does not read',
                hint='push rows with engine.push(name, rows), or use runtime="spark"',
            )
        self._inlets[stream.name.lower()] = _Inlet(stream)

    def drop_stream(self, name: str) -> None:
        self._inlets.pop(name.lower(), None)

    def add_table(self, table: TableDef, source: Any = None) -> None:
        given = source if source is not None else table.options.get("path")
        if given is None:
            raise SourceError(f'table "{table.name}" has no data', hint=f"engine.table('{table.name}', rows)")
        self._tables[table.name.lower()] = to_table(given, f'table "{table.name}"', schema=dict(table.columns))

    def drop_table(self, name: str) -> None:
        self._tables.pop(name.lower(), None)

    def refresh(self, name: str) -> None:
        """Tables are given by hand: there is nothing to read again."""

    def add_query(self, plan: QueryPlan) -> None:
        with self._lock:
            plan = self.budgets.add(plan)
            key = plan.name.lower()
            if key not in self.budgets.behind and self._share(plan):
                return
            circuit = Circuit(plan, self.functions, self._tables, self.strategy, standing=True)
            self._circuits[plan.name.lower()] = circuit
            empty = answer(plan, Elements.empty(circuit.flow.steps[-1].schema))
            self.outlets[key] = Outlet(Recent(self.budgets.mark(key, empty)))
            if self.frontier != BEGINNING:  # the clock starts now, with what the streams have kept
                circuit.start(self.frontier)
                history = {s: self._inlets[s].history() for s in (n.lower() for n in plan.streams)}
                if key in self.budgets.behind:
                    history = {s: (ts, unweighed(len(ts), rows)) for s, (ts, rows) in history.items()}
                self._emit(key, circuit.advance(history.__getitem__, self.frontier))

    def _share(self, plan: QueryPlan) -> bool:
        """Serve a query together with others, if it can be."""
        if plan.name in self._leaving:  # dropped and made anew in one change
            self._leave()
        begun = self.frontier != BEGINNING
        kept = {s.lower(): self._inlets[s.lower()].history() for s in plan.streams} if begun else None
        if not self._group.add(plan, self.frontier, kept.__getitem__ if kept is not None else None):
            return False
        self.outlets[plan.name.lower()] = Outlet(Recent(self._group.empty(plan.name)))
        if begun:
            for name, table in self._group.shown(self._group.first(plan.name)):
                self._deliver(name, table)
        return True

    def drop_query(self, name: str) -> None:
        with self._lock:
            self._leaving.update(n for n in self._group.served if n.lower() == name.lower())
            self._circuits.pop(name.lower(), None)
            self.budgets.drop(name)
            self.outlets.pop(name.lower())

    def _leave(self) -> None:
        """Serve dropped queries no longer."""
        for name in self._leaving & self._group.served.keys():
            self._group.remove(name)
        self._leaving.clear()

    def start(self) -> None:
        """Rows that were pushed before are processed now."""
        with self._lock:
            self.running = True
            self._tick(self._reached())

    def stop(self) -> None:
        """No more ticks."""
        self.running = False

    def push(self, stream: str, rows: Any) -> None:
        """Hand in rows of a stream, in order of arrival."""
        with self._lock:
            inlet = self._inlets[stream.lower()]
            columns = dict(inlet.definition.columns)
            inlet.push(to_table(rows, f'stream "{stream}"', schema=columns), self.frontier)
            if self.running:
                self._tick(self._reached())

    def advance(self, until: int) -> None:
        """Move time to `until`: no row at or before it will come."""
        with self._lock:
            self._tick(until)

    def _reached(self) -> int:
        return min((i.frontier for i in self._inlets.values()), default=BEGINNING)

    def _rate(self, stream: str) -> float | None:
        """Rows of a stream per tick of its clock so far."""
        inlet = self._inlets[stream]
        return inlet.rows / (inlet.greatest - inlet.least) if inlet.greatest > inlet.least else None

    def _tick(self, frontier: int) -> None:
        if frontier <= self.frontier:
            return
        begin = self._clock()
        new = {name: inlet.take(frontier) for name, inlet in self._inlets.items()}
        passed = self._admitted(new)
        self._leave()

        def starts(plan: QueryPlan) -> int | None:
            firsts = [int(new[s.lower()][0][0]) for s in plan.streams if len(new[s.lower()][0])]
            return min(firsts, default=None)

        for name, table in self._group.shown(self._group.advance(new.__getitem__, frontier, starts)):
            self._deliver(name, table)
        for name, circuit in self._circuits.items():
            if not circuit.started:
                start = starts(circuit.plan)
                if start is None:
                    continue
                circuit.start(start)
            feed = passed.get(self.budgets.behind.get(name), new)
            self._emit(name, circuit.advance(feed.__getitem__, frontier))
        self.frontier = frontier
        self._ticks += 1
        ended = self._clock()
        self.budgets.observe(self._ticks, ended - begin, frontier, ended=ended)
        if self._group.failures:  # everyone else has gone on
            raise self._group.failures.pop(next(iter(self._group.failures)))

    def _admitted(self, new: Mapping[str, Fed]) -> dict[str | None, dict[str, Fed]]:
        """By gate: the rows that pass it."""
        quotas, reports = self.budgets.quotas(), []
        passed: dict[str | None, dict[str, Fed]] = {}
        for key, gate in self.budgets.gates.items():
            passed[key] = {}
            for stream in self.budgets.streams(key):
                ts, columns, report = admit(key, gate.budget, stream, *new[stream], quotas.get(key, {}).get(stream))
                passed[key][stream] = (ts, columns)
                reports.append(report)
        self.budgets.account(reports)
        return passed

    def quality(self, query: str) -> dict[str, Any] | None:
        """What was shed before a query and in its joins; None when it never sheds."""
        key, circuit = query.lower(), self._circuits.get(query.lower())
        steps = circuit.flow.steps if circuit is not None else []
        memory = [s.operator.quality.as_dict() for s in steps if isinstance(s.operator, StarJoin)]
        parts = {"time": self.budgets.quality(key), "memory": memory[0] if memory else None}
        return {what: figures for what, figures in parts.items() if figures is not None} or None

    def _emit(self, name: str, elements: Elements) -> None:
        self._put(self._circuits[name].plan, elements)

    def _put(self, plan: QueryPlan, elements: Elements) -> None:
        if not len(elements):
            return
        self._deliver(plan.name, self.budgets.mark(plan.name, answer(plan, elements)))

    def _deliver(self, name: str, table: pa.Table) -> None:
        outlet = self.outlets[name.lower()]
        outlet.recent.add(table)
        for sink in outlet.sinks:
            sink.write(name, self._ticks, table)

    @contextlib.contextmanager
    def view(self) -> Iterator[View]:
        with self._lock:
            kept = {n: i.kept for n, i in self._inlets.items()}
            relations = {n: self._relation(c) for n, c in self._circuits.items() if c.plan.has_op}
            reach = {n: i.definition.retain or 0 for n, i in self._inlets.items()}
        yield View(self.frontier, kept.__getitem__, relations.__getitem__, reach.__getitem__)

    def _relation(self, circuit: Circuit) -> pa.Table:
        last = circuit.flow.steps[-1]
        assert isinstance(last.operator, Standing)
        rows = last.operator.relation() or Elements.empty(last.schema)
        return answer(circuit.plan, rows).drop_columns(["_ts", "_op"])

    def joins(self, query: str) -> list[dict[str, Any]]:
        """What the joins of a running query do, and why."""
        with self._lock:
            circuit = self._circuits.get(query)
            operators = [s.operator for s in circuit.flow.steps] if circuit is not None else []
            return [o.describe() for o in operators if isinstance(o, Join | AggregateJoin)]

    def late(self, stream: str) -> pa.Table:
        """The late rows of a stream."""
        inlet = self._inlets[stream.lower()]
        return pa.concat_tables([inlet.waiting.slice(0, 0), *inlet.late])

    def status(self) -> dict[str, Any]:
        with self._lock:
            return {
                "runtime": "local",
                "running": self.running,
                "ticks": self._ticks,
                "frontier": None if self.frontier == BEGINNING else self.frontier,
                "streams": {
                    i.definition.name: {"rows": i.rows, "late": sum(t.num_rows for t in i.late)}
                    for i in self._inlets.values()
                },
                "shedding": self.budgets.status(),
                "queries": {
                    c.plan.name: {"answers": self.outlets[n].recent.rows, "state_bytes": c.state_bytes()}
                    | {"quality": self.quality(n)}
                    for n, c in self._circuits.items()
                }
                | {
                    n: {"answers": self.outlets[n.lower()].recent.rows, "shared_with": len(s.family) - 1}
                    for n, s in self._group.served.items()
                },
            }
