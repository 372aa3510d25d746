"""A tick takes all queries from one frontier to the next.

The ticker holds the newest manifest and the registered queries. `run` starts one job over the new rows and prepares the
manifest that would make its result real; `commit` puts that manifest in place. What comes back from a job is small:
answers, late rows, and references to the runs that tasks wrote. A change of the catalog is a manifest of its own,
between two ticks, with the same state less what was dropped.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import RuntimeFailure, WindrowError
from windrow.operators.aggregate_join import Meeting
from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.operators.join import Join
from windrow.operators.state.run import Run
from windrow.plan.dataflow import answer
from windrow.plan.nodes import QueryPlan
from windrow.runtime.admission import Quotas, Report
from windrow.runtime.exchange import decode, decode_table, unpack
from windrow.runtime.heavy_keys import HeavyKeys
from windrow.runtime.join_choices import Choices
from windrow.runtime.membership import SharedProgram, Sharing
from windrow.runtime.program import Functions, Program, QueryProgram, Slots, Standing
from windrow.runtime.shared_aggregation import decoded, whole
from windrow.spark.job import Feed, Job
from windrow.store.failpoints import reach
from windrow.store.manifest import Manifest, SlotKey
from windrow.store.runs import RunRef
from windrow.store.store import Store

TABLES = "tables"
"""The stage under which a manifest names the present version of each table."""


@dataclass
class Tick:
    """What a tick brought."""

    number: int
    frontier: int
    answers: dict[str, pa.Table] = field(default_factory=dict)
    late: dict[str, pa.Table] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ended: float = 0.0  # by the wall
    failed: dict[str, WindrowError] = field(default_factory=dict)  # queries that cannot go on
    kernels: float = 0.0  # seconds in tasks behind stage 0: of each stage, the longest task
    admitted: list[Report] = field(default_factory=list)  # what tasks kept of streams that may be shed


class Ticker:
    """Runs ticks against a store; the driver's side of the Spark runtime."""

    def __init__(self, job: Job, store: Store, functions: Functions, partitions: int, sharing: str = "auto") -> None:
        self.job, self.store, self.functions = job, store, functions
        self.streams: dict[str, StreamDef] = {}
        self.queries: dict[str, QueryProgram | SharedProgram] = {}
        self.quotas: Quotas = {}  # of the next tick
        self.sharing = Sharing(functions, sharing, rate=self.rate)
        self._seen: dict[str, tuple[int, int]] = {}  # rows of a stream so far, and its mark before them
        self.starts: dict[str, int] = {}  # given from outside; the manifest's clocks go before
        self.manifest = store.latest() or Manifest(version=-1, tick=0, extra={"partitions": partitions})
        store.runs = store.runs.trusting(self.manifest.tick + 1)
        # state lies by partition: a home keeps the number it began with
        self.partitions: int = self.manifest.extra.get("partitions", partitions)
        self.tables = {s: refs[0] for (stage, _, _, s), refs in self.manifest.runs.items() if stage == TABLES}
        self.choices = Choices()
        self.heavy = HeavyKeys(self.partitions)
        self._generations: dict[tuple[int, int], str] = {}
        self._shipped: tuple[Standing, str] | None = None
        self._next: tuple[Manifest, dict[tuple[int, int], str]] | None = None

    @property
    def frontier(self) -> int:
        return BEGINNING if self.manifest.frontier is None else self.manifest.frontier

    # what is registered

    def add_query(
        self,
        plan: QueryPlan,
        strategy: str,
        start: int | None = None,
        *,
        retain: int | None = None,
        standing: bool = False,
        known: bool = False,
    ) -> None:
        """Run a query from the next tick on, with others if it can share; its tables must be known.

        `known`: it goes on after a restart.
        """
        shared = self.sharing.add(plan, known) if retain is None else None
        if shared is not None:
            self.add_shared(shared, start)
        else:
            self.add_alone(plan, strategy, start, retain=retain, standing=standing)

    def add_alone(
        self,
        plan: QueryPlan,
        strategy: str,
        start: int | None = None,
        *,
        retain: int | None = None,
        standing: bool = False,
    ) -> None:
        """Run a query by itself."""
        made = QueryProgram(uuid.uuid4().hex, plan, strategy, self.functions, retain, standing)
        assert made.layout.flow.steps  # what cannot be lowered fails here, not in a tick
        self.queries[plan.name.lower()] = made
        self._choose(plan.name.lower(), made)
        if start is not None:
            self.starts[plan.name.lower()] = start

    def add_shared(self, query: SharedProgram, start: int | None = None) -> None:
        """Run a query that has been seated."""
        key = query.plan.name.lower()
        self.queries[key] = query
        if start is not None:
            self.starts[key] = start

    def rate(self, stream: str) -> float | None:
        """Rows of a stream per tick of its clock, as far as this process has seen any."""
        rows, begin = self._seen.get(stream, (0, 0))
        span = self.manifest.marks.get(stream, begin) - begin
        return rows / span if rows and span > 0 else None

    def _choose(self, name: str, query: QueryProgram) -> None:
        """Begin to choose for the joins of a query; after a restart, from what was chosen before."""
        kept = self.manifest.extra.get("choices", {}).get(name, {})
        placement = query.layout.placement
        for i, step in enumerate(query.layout.flow.steps):
            if isinstance(step.operator, Join | Meeting):
                copies = [placement.copies(i, port, self.partitions) for port in range(len(step.inputs))]
                self.choices.register(name, i, step.operator, copies, kept.get(str(i)))
        self.heavy.restore(self.manifest.extra.get("heavy", []), [name])

    def drop_query(self, name: str) -> None:
        """Stop a query and forget its state."""
        key = name.lower()
        dropped = self.queries.pop(key, None)  # one that failed is gone already
        if isinstance(dropped, SharedProgram):
            self.sharing.remove(dropped.plan.name)
        self.starts.pop(key, None)
        runs = {k: refs for k, refs in self.manifest.runs.items() if k[2] != key}
        clocks = {q: s for q, s in self.manifest.clocks.items() if q != key}
        firsts = {q: s for q, s in self.manifest.extra.get("firsts", {}).items() if q != key}
        self.choices.forget(key)
        self.heavy.forget(key)
        extra = {**self.manifest.extra, "firsts": firsts, **self._chosen()}
        self.manifest = replace(self.manifest, runs=runs, clocks=clocks, extra=extra)

    def _chosen(self) -> dict[str, Any]:
        """The choices in force, for the manifest."""
        chosen = {q: {str(step): value for step, value in made.items()} for q, made in self.choices.chosen().items()}
        return {"choices": chosen, "heavy": self.heavy.plain()}

    def drop_stream(self, name: str) -> None:
        """Forget a stream and where it was."""
        self.streams.pop(name)
        self.manifest = replace(
            self.manifest,
            marks={s: m for s, m in self.manifest.marks.items() if s != name},
            batches={s: b for s, b in self.manifest.batches.items() if s != name},
        )

    def set_table(self, name: str, table: pa.Table) -> bool:
        """Let queries see this version of a table from the next tick on; the same content is the same version."""
        known = self.tables.get(name)
        if known is not None and self.store.read_run(known).table.equals(table):
            return False
        (self.tables[name],) = self.store.runs.write((TABLES, name), self.manifest.tick + 1, [Run(table)])
        return True

    # ticks

    def run(self, feeds: Sequence[Feed], until: int | None = None, idle: frozenset[str] = frozenset()) -> Tick:
        """Run one job over new rows; `until` sets the frontier from outside."""
        begin = time.perf_counter()
        program = self._program(until, idle)
        apart = [q for q in self.queries.values() if isinstance(q, QueryProgram)]
        stages = max((q.layout.placement.last_stage for q in apart), default=1)
        planned = time.perf_counter()
        envelopes = self.job.run(feeds, program, stages)
        ran = time.perf_counter()
        tick = Tick(program.tick, program.previous)
        self._collect(tick, envelopes, stages)
        tick.seconds |= {"plan": planned - begin, "job": ran - planned, "collect": time.perf_counter() - ran}
        return tick

    def commit(
        self,
        tick: Tick,
        batches: Mapping[str, int] | None = None,
        outputs: Mapping[str, pa.Table] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a tick real: the next manifest. `outputs` are kept with it until the commit after, for sinks."""
        assert self._next is not None
        begin = time.perf_counter()
        kept = {
            (query, tick.number): self.store.runs.write(("answers", query), tick.number, [Run(table)])
            for query, table in (outputs or {}).items()
        }
        manifest, generations = self._next
        reach("before manifest")
        manifest = replace(manifest, extra={**manifest.extra, **(extra or {})})
        self._put(replace(manifest, batches={**self.manifest.batches, **(batches or {})}, outputs=kept))
        self._generations, self._next = generations, None
        self.sharing.used()
        for name in tick.failed:
            self.drop_query(name)
        tick.seconds["commit"] = time.perf_counter() - begin

    def commit_catalog(
        self, version: int, extra: Mapping[str, Any], changes: tuple[Mapping[str, Any], ...] = ()
    ) -> None:
        """Put a catalog in force (a version, and changes to it), without what was dropped, the tables as they are."""
        runs = {k: refs for k, refs in self.manifest.runs.items() if k[0] != TABLES} | self._table_slots()
        self._put(replace(
            self.manifest, version=self.manifest.version + 1, catalog=version, changes=changes,
            runs=runs,
            extra={**self.manifest.extra, **extra},
        ))  # fmt: skip

    def _put(self, manifest: Manifest) -> None:
        self.store.commit(manifest)
        self.manifest = manifest

    def _table_slots(self) -> dict[SlotKey, tuple[RunRef, ...]]:
        return {(TABLES, 0, "", name): (ref,) for name, ref in self.tables.items()}

    def _program(self, until: int | None, idle: frozenset[str]) -> Program:
        return Program(
            store=self.store.runs,
            standing=self._ship(),
            tick=self.manifest.tick + 1,
            partitions=self.partitions,
            marks=dict(self.manifest.marks),
            idle=idle,
            previous=self.frontier,
            until=until,
            starts={**self.starts, **self.manifest.clocks},
            firsts=self.manifest.extra.get("firsts", {}),
            tables=dict(self.tables),
            fresh=self._fresh(),
            runs=self._runs(),
            generations=self._generations,
            quotas=self.quotas,
            choices=self.choices.chosen(),
            heavy=self.heavy.since(self.manifest.tick + 1),
        )

    def _fresh(self) -> frozenset[str]:
        known = self.manifest.clocks.keys() | self.manifest.extra.get("firsts", {}).keys()
        return frozenset(k for k, q in self.queries.items() if isinstance(q, SharedProgram) and k not in known)

    def _ship(self) -> str:
        """The file of the standing part; written when it has changed."""
        apart = {k: q for k, q in self.queries.items() if isinstance(q, QueryProgram)}
        standing = Standing(dict(self.streams), apart, self.sharing.rosters(), dict(self.functions))
        if self._shipped is None or self._shipped[0] != standing:
            before, name = self._shipped, f"programs/{uuid.uuid4().hex}.pickle"
            standing.save(self.store.place, name)
            self._shipped = (standing, name)
            if before is not None:
                self.store.place.delete(before[1])
        return self._shipped[1]

    def _runs(self) -> dict[tuple[str, int, int], Slots]:
        grouped: dict[tuple[str, int, int], dict[str, tuple[RunRef, ...]]] = {}
        owners = self.queries.keys() | set(self.sharing.names.values())
        for (stage, partition, query, slot), refs in self.manifest.runs.items():
            if query in owners and stage != TABLES:
                grouped.setdefault((query, int(stage), partition), {})[slot] = refs
        return dict(grouped)

    def _collect(self, tick: Tick, envelopes: pa.Table, stages: int) -> None:
        """Sort what came back, and prepare the manifest that would make it real."""
        answers: dict[str, list[tuple[int, Elements]]] = {}
        shared: dict[str, list[tuple[int, pa.Table]]] = {}
        shown = {k: q.shown for k, q in self.queries.items() if isinstance(q, SharedProgram)}
        late: dict[str, list[pa.Table]] = {}
        reports = []
        for _, sender, kind, name, body in unpack(envelopes.to_batches()):
            match kind:
                case "answer":
                    schema = self.queries[name].schema
                    answers.setdefault(name, []).append((sender, decode(body, list(schema))))
                case "answers":
                    for query, part in decoded(body, shown):
                        shared.setdefault(query, []).append((sender, part))
                case "failed":
                    tick.failed.setdefault(name, pickle.loads(body))
                case "late":
                    late.setdefault(name, []).append(decode_table(body))
                case "shed":
                    tick.admitted.append(Report.decode(bytes(body)))
                case "state":
                    reports.append(pickle.loads(body))
        for name, parts in answers.items():
            joined = concat([part for _, part in sorted(parts, key=lambda p: p[0])])
            tick.answers[self.queries[name].plan.name] = answer(self.queries[name].plan, joined)
        for name, tables in shared.items():
            if name not in tick.failed:
                plan = self.queries[name].plan
                tick.answers[plan.name] = whole([t for _, t in sorted(tables, key=lambda p: p[0])])
        tick.late = {s: pa.concat_tables(t) for s, t in late.items()}
        if len(reports) != stages * self.partitions:
            raise RuntimeFailure(
                f"tick {tick.number}: {len(reports)} of {stages * self.partitions} tasks reported",
                detail="Spark left out or repeated a partition",
                hint="this is a fault in windrow or a setting that changes the number of shuffle partitions",
            )
        self._prepare(tick, reports)

    def _prepare(self, tick: Tick, reports: list[dict[str, Any]]) -> None:
        runs: dict[SlotKey, tuple[RunRef, ...]] = self._table_slots()
        generations: dict[tuple[int, int], str] = {}
        longest: dict[int, float] = {}
        for report in reports:
            spent = sum(report["seconds"].values())
            longest[report["stage"]] = max(longest.get(report["stage"], 0.0), spent)
            where = (report["stage"], report["partition"])
            generations[where] = report["generation"]
            for query, slots in report["refs"].items():
                for slot, refs in slots.items():
                    runs[str(where[0]), where[1], query, slot] = tuple(refs)
            for phase, seconds in report["seconds"].items():
                key = f"task.{phase}"
                tick.seconds[key] = max(tick.seconds.get(key, 0.0), seconds)
            for family, counted in report["shared"].items():
                self.sharing.count(family, counted)
            for counter, n in report["counters"].items():
                # every partition of stage 1 counts the same rows
                if where == (1, 0) or counter.startswith("answers."):
                    tick.counters[counter] = tick.counters.get(counter, 0) + n
        for name, table in tick.answers.items():
            query = self.queries[name.lower()]
            if isinstance(query, SharedProgram):
                tick.counters[query.counter] = table.num_rows
        tick.kernels = sum(longest.values())
        first = reports[0]
        self._count_rows(tick, first["marks"])
        tick.frontier = max(tick.frontier, first["frontier"])
        running = self.queries.keys() - tick.failed.keys()
        starts = {q: s for q, s in {**self.manifest.clocks, **first["starts"]}.items() if q in running}
        fixed = self.starts.keys() | self.manifest.clocks.keys()
        reached = {q: s for q, s in starts.items() if s <= tick.frontier or q in fixed}
        firsts = {q: s for q, s in starts.items() if q not in reached}
        self.choices.take((r["partition"], r["measured"]) for r in reports)
        self.heavy.take(tick.number, (r["counted"] for r in reports))
        manifest = replace(
            self.manifest,
            version=self.manifest.version + 1,
            tick=tick.number,
            frontier=None if tick.frontier == BEGINNING else tick.frontier,
            clocks=reached,
            extra={**self.manifest.extra, "firsts": firsts, **self._chosen()},
            marks={s: m for s, m in {**self.manifest.marks, **first["marks"]}.items() if s in self.streams},
            runs=runs,
            outputs={},
        )
        self._next = (manifest, generations)

    def _count_rows(self, tick: Tick, marks: Mapping[str, int]) -> None:
        """Remember how many rows have come over how much time; a stream's first batch only says where it begins."""
        for stream in self.streams:
            rows = tick.counters.get(f"rows.{stream}", 0)
            if stream in self._seen:
                seen, begin = self._seen[stream]
                self._seen[stream] = (seen + rows, begin)
            elif rows and stream in marks:
                self._seen[stream] = (0, marks[stream])
