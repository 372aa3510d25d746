"""A tick takes all queries from one frontier to the next.

The ticker holds the newest manifest and the registered queries. `program` says what the tasks of the next tick are to
do, `collect` sorts what they send back and prepares the manifest that would make it real, and `commit` puts that
manifest in place. What comes back from a job is small: answers, late rows, and references to the runs that tasks wrote.
A change of the catalog is a manifest of its own, between two ticks, with the same state less what was dropped.
"""

from __future__ import annotations

import time
import uuid
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.catalog.names import Names
from windrow.errors import RuntimeFailure, WindrowError
from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.operators.join import JoinOperator
from windrow.operators.state.run import Run
from windrow.plan.dataflow import answer
from windrow.plan.nodes import QueryPlan
from windrow.runtime.admission import Admission, Quotas
from windrow.runtime.deadlines import DeadlineRecord, Deadlines, evaluated
from windrow.runtime.heavy_keys import HeavyKeys
from windrow.runtime.instances import TemplateGroups
from windrow.runtime.job import Feed, Job
from windrow.runtime.join_choices import JoinChoices
from windrow.runtime.membership import SharedQuery, Sharing, has_deadline
from windrow.runtime.messages import (
    Answer,
    Envelope,
    LateRows,
    QueryFailed,
    RunsBySlot,
    SetAside,
    SharedAnswer,
    Shed,
    StreamMark,
    TaskReport,
)
from windrow.runtime.program import Deployment, Functions, Program, QueryProgram
from windrow.sharing.member import cost_group, read_depth
from windrow.sharing.plans.answers import ShownAnswer, parted
from windrow.sharing.plans.registry import SharedPlans
from windrow.sharing.query_group import Batch, Shown, gathered, tables
from windrow.sharing.recognise import Recognised
from windrow.sources.protocol import Available
from windrow.store.failpoints import reach
from windrow.store.manifest import Manifest, Offset, SlotKey
from windrow.store.runs import RunRef, RunStore
from windrow.store.store import StateStore

TABLES = "tables"
"""The stage under which a manifest names the present version of each table."""


@dataclass
class Tick:
    """What a tick brought."""

    number: int
    frontier: int
    answers: dict[str, pa.Table] = field(default_factory=dict)
    shared: list[Batch] = field(default_factory=list)  # answers of queries that share, not yet taken apart
    archived: dict[str, Elements] = field(default_factory=dict)  # rows for archives, with their lifetimes
    late: dict[str, pa.Table] = field(default_factory=dict)
    aside: dict[str, pa.Table] = field(default_factory=dict)  # rows for quarantines
    counters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ended: float = 0.0  # by the wall
    failed: dict[str, WindrowError] = field(default_factory=dict)  # queries that cannot go on
    spent: float = 0.0  # seconds of queries with deadlines, in the task where they took longest
    kernels: float = 0.0  # seconds in tasks behind stage 0: of each stage, the longest task
    admitted: list[Admission] = field(default_factory=list)  # what tasks kept of streams that may be shed


class Ticker:
    """Plans ticks and makes them real; the driver's side of every runtime."""

    def __init__(
        self,
        store: StateStore,
        functions: Functions,
        partitions: int,
        sharing: str = "auto",
        *,
        in_process: bool = False,
    ) -> None:
        self.store, self._functions = store, functions
        self.streams: dict[str, StreamDef] = {}
        self.queries: dict[str, QueryProgram | SharedQuery] = {}
        self.quotas: Quotas = {}  # of the next tick
        self.manifest = store.latest() or Manifest(version=-1, tick=0, partitions=partitions)
        # state lies by partition: a home keeps the number it began with
        self.partitions = self.manifest.partitions
        self.direct = in_process and self.partitions == 1
        self.sharing = Sharing(functions, sharing, rate=self.rate, partitions=self.partitions)
        self.sharing.joins.kept = lambda stream: self.streams[stream].retain is not None
        self.plans = SharedPlans(sharing in ("auto", "shards"), self.manifest.plans)
        self._plan_programs: dict[str, QueryProgram] = {}
        self._seen: dict[str, tuple[int, int]] = {}  # rows of a stream so far, and its first time
        self.starts: dict[str, int] = {}  # given from outside; the manifest's clocks go before
        if isinstance(store.runs, RunStore):
            store.runs = store.runs.trusting(self.manifest.tick + 1)
        self.tables = {s: refs[0] for (stage, _, _, s), refs in self.manifest.runs.items() if stage == TABLES}
        self.choices = JoinChoices()
        self.heavy = HeavyKeys(self.partitions)
        self._generations: dict[tuple[int, int], str] = {}
        self._deployment: Deployment | None = None
        self._next: tuple[dict[str, Any], dict[tuple[int, int], str]] | None = None  # of the manifest to come
        self.groups = TemplateGroups()  # queries from templates
        self._clockless: set[str] = set()  # queries that share and have not had a tick
        self.deadlines: Deadlines | None = None  # of a live engine
        self.sharing.period = self._period

    @property
    def frontier(self) -> int:
        return BEGINNING if self.manifest.frontier is None else self.manifest.frontier

    @property
    def functions(self) -> Functions:
        """The user functions that queries may call."""
        return self._functions

    @functions.setter
    def functions(self, functions: Functions) -> None:
        self._functions = self.sharing.functions = functions
        self._deployment = None

    # what is registered

    def add_stream(self, stream: StreamDef) -> None:
        """Read a stream from the next tick on."""
        self.streams[stream.name.lower()] = stream
        self._deployment = None

    def add_query(
        self,
        plan: QueryPlan,
        strategy: str,
        start: int | None = None,
        *,
        retain: int | None = None,
        materialized: bool = False,
        archived: bool = False,
        known: bool = False,
    ) -> None:
        """Run a query from the next tick on, with others if it can share; its tables must be known.

        `known`: it goes on after a restart.
        """
        shared = self.sharing.add(plan, known) if retain is None and not archived else None
        if shared is not None:
            self.add_shared(shared, start)
            self._share_first(plan.name)
        else:
            self.add_alone(
                plan, strategy, start, retain=retain, materialized=materialized, archived=archived, known=known
            )

    def _share_first(self, name: str) -> None:
        """When a second query comes over a join, let the first share, too, unless it has begun."""
        joined = self.sharing.joins.served.get(name)
        first = None if joined is None else self.sharing.joins.alone.get(joined.query.source)
        if first is None:
            return
        key = first.plan.name.lower()
        if key not in self.manifest.clocks and key not in self.manifest.firsts and key in self.queries:
            self.sharing.joins.forget(first.plan.name)
            self.choices.forget(key)
            self.add_shared(self.sharing.admit(first), self.starts.get(key))

    def add_alone(
        self,
        plan: QueryPlan,
        strategy: str,
        start: int | None = None,
        *,
        retain: int | None = None,
        materialized: bool = False,
        archived: bool = False,
        known: bool = False,
    ) -> None:
        """Run a query by itself, or with others in one plan if it can."""
        made = QueryProgram(uuid.uuid4().hex, plan, strategy, self.functions, retain, materialized, archived)
        assert made.layout.flow.steps  # what cannot be lowered fails here, not in a tick
        self.queries[plan.name.lower()] = made
        self._deployment = None
        self._choose(plan.name.lower(), made)
        if start is not None:
            self.starts[plan.name.lower()] = start
        if retain is None and not archived and strategy == "upa":
            retained = any(self.streams[s].retain is not None for s in made.streams)
            self.plans.offer(plan, materialized=materialized, start=start, retained=retained, known=known)

    def settle(self) -> None:
        """Let queries that have come since the last tick be one plan with others like them."""
        known = self.plans.plans.keys() - self._plan_programs.keys()
        for key in self.plans.settle(self.starts):
            self.choices.forget(key)
            self.heavy.forget(key)
            self._deployment = None
            name, _ = self.plans.place[key]
            start = self.starts.get(key)
            if start is not None and not self.plans.plans[name].open:
                self.starts[name] = start
        for name in (self.plans.plans.keys() - self._plan_programs.keys()) | known:
            self._choose(name, self.shared_program(name))

    def owner(self, key: str) -> str:
        """Under which name the state of a query is kept: its own, its family's, or that of the plan it shares."""
        query = self.queries.get(key)
        if isinstance(query, SharedQuery):
            return query.family
        return self.plans.place[key][0] if key in self.plans.place else key

    def shared_program(self, name: str) -> QueryProgram:
        """A shared plan as tasks see it; the same object until its queries change."""
        shared, known = self.plans.plans[name], self._plan_programs.get(name)
        plan = shared.planned(self.frontier)
        if known is None or known.plan is not plan:
            one = next(iter(shared.members.values()))
            materialized = one.materialized and one.form.plan.has_op
            known = QueryProgram(shared.uid, plan, "upa", self.functions, None, materialized)
            self._plan_programs[name] = known
        return known

    def add_shared(self, query: SharedQuery, start: int | None = None) -> None:
        """Run a query that has joined its family."""
        key = query.plan.name.lower()
        self.queries[key] = query
        self._deployment = None
        served = self.sharing.served.get(query.plan.name)
        if self.deadlines is not None and served is not None and has_deadline(query.plan):
            assert query.plan.root.period is not None
            member, (_, done) = served.query.member, self.manifest.deadlines.get(key, (0, None))
            record = DeadlineRecord(
                member.window.slide, query.plan.root.period, cost_group(member), read_depth(member), done
            )
            self.deadlines.add(key, record)
        if key not in self.manifest.clocks and key not in self.manifest.firsts:
            self._clockless.add(key)
        if start is not None:
            self.starts[key] = start

    def _period(self, query: Recognised) -> int:
        """The period at which a query that shares is to run: one with a deadline may be evaluated more often."""
        member, kept = query.member, self.manifest.deadlines.get(query.plan.name.lower())
        if self.deadlines is None or not has_deadline(query.plan):
            return member.window.slide
        return kept[0] if kept else self.deadlines.period(cost_group(member), member.window.slide, read_depth(member))

    def rate(self, stream: str) -> float | None:
        """Rows of a stream per tick of its clock, as far as this process has seen any."""
        rows, begin = self._seen.get(stream, (0, 0))
        span = self.manifest.marks.get(stream, begin) - begin
        return rows / span if rows and span > 0 else None

    def _choose(self, name: str, query: QueryProgram) -> None:
        """Begin to choose for the joins of a query; after a restart, from what was chosen before."""
        kept = self.manifest.choices.get(name, {})
        placement = query.layout.placement
        for i, step in enumerate(query.layout.flow.steps):
            if isinstance(step.operator, JoinOperator | AggregateDeltas):
                copies = [placement.copies(i, port, self.partitions) for port in range(len(step.inputs))]
                self.choices.register(name, i, step.operator, copies, kept.get(str(i)))
        if self.manifest.heavy:
            self.heavy.restore(self.manifest.heavy, [name])

    def drop_query(self, name: str) -> None:
        """Stop a query and forget its state."""
        key = name.lower()
        dropped = self.queries.pop(key, None)  # one that failed is gone already
        self._deployment = None
        if dropped is not None:
            self.sharing.joins.forget(dropped.plan.name)
        if isinstance(dropped, SharedQuery):
            self.sharing.remove(dropped.plan.name)
        self.forget(key)

    def forget(self, key: str) -> None:
        """Forget the clocks, choices and state of a query, and of a shared plan that nobody else is in."""
        over = self.plans.remove(key)
        if over is not None:
            self._plan_programs.pop(over, None)
            self.forget(over)
        self.starts.pop(key, None)
        self._clockless.discard(key)
        if self.deadlines is not None:
            self.deadlines.drop(key)
        self.choices.forget(key)
        self.heavy.forget(key)
        manifest = self.manifest
        self.manifest = replace(
            manifest,
            runs={k: refs for k, refs in manifest.runs.items() if k[2] != key},
            clocks=Names.of(manifest.clocks).without(key) if key in manifest.clocks else manifest.clocks,
            firsts={q: s for q, s in manifest.firsts.items() if q != key},
            deadlines={q: kept for q, kept in manifest.deadlines.items() if q != key},
            plans=self.plans.saved(),
            **self._chosen(),
        )

    def forget_sink(self, query: str, name: str) -> None:
        """Keep nothing for a sink any more, durably."""
        sinks = dict(self.manifest.sinks)
        sinks[query] = {n: r for n, r in sinks.get(query, {}).items() if n != name}
        self._put(replace(self.manifest, version=self.manifest.version + 1, sinks=sinks))

    def forget_outputs(self, query: str) -> None:
        """Keep no answers of a query for its sinks."""
        outputs = {k: refs for k, refs in self.manifest.outputs.items() if k[0] != query}
        sinks = {q: each for q, each in self.manifest.sinks.items() if q != query}
        self.manifest = replace(self.manifest, outputs=outputs, sinks=sinks)

    def _chosen(self) -> dict[str, Any]:
        """The choices in force, for the manifest."""
        chosen = {q: {str(step): value for step, value in made.items()} for q, made in self.choices.chosen().items()}
        return {"choices": chosen, "heavy": tuple(self.heavy.plain())}

    def drop_stream(self, name: str) -> None:
        """Forget a stream and where it was."""
        self.streams.pop(name)
        self._deployment = None
        manifest = self.manifest
        self.manifest = replace(
            manifest,
            marks={s: m for s, m in manifest.marks.items() if s != name},
            offsets={s: o for s, o in manifest.offsets.items() if s != name},
            declared={s: d for s, d in manifest.declared.items() if s != name},
        )

    def set_table(self, name: str, table: pa.Table) -> bool:
        """Let queries see this version of a table from the next tick on; the same content is the same version."""
        known = self.tables.get(name)
        if known is not None and self.store.runs.read(known).table.equals(table):
            return False
        (self.tables[name],) = self.store.runs.write((TABLES, name), self.manifest.tick + 1, [Run(table)])
        return True

    # ticks

    @property
    def stages(self) -> int:
        """How many stages the deepest query needs."""
        apart = [q.layout.last_stage for q in self._deployed().queries.values()]
        joins = 2 if self.sharing.joins.families and self.partitions > 1 else 1
        return max([joins, *apart])

    def program(
        self,
        until: int | None = None,
        idle: Mapping[str, int | None] | None = None,
        ahead: Mapping[str, int] | None = None,
        seen: Sequence[StreamMark] = (),
    ) -> Program:
        """What the tasks of the next tick are to do; `until` sets the frontier from outside."""
        self.settle()
        durable = self.store.runs.durable
        return Program(
            store=self.store.runs,
            deployment=self._deployed(),
            tick=self.manifest.tick + 1,
            partitions=self.partitions,
            marks=self.manifest.marks,
            idle=idle or {},
            previous=self.frontier,
            until=until,
            starts=Names.of(self.manifest.clocks).update(
                {q: s for q, s in self.starts.items() if q not in self.manifest.clocks}
            ),
            firsts=self.manifest.firsts,
            tables=self.tables,
            ahead=ahead or {},
            fresh=frozenset(self._clockless),
            runs=self._runs() if durable else {},
            generations=self._generations,
            quotas=self.quotas,
            choices=self.choices.chosen(),
            heavy=self.heavy.since(self.manifest.tick + 1),
            seen=tuple(seen),
            deadlines=None if self.deadlines is None else self.deadlines.program(self.frontier, until),
            direct=self.direct,
        )

    def run(self, job: Job, feeds: Sequence[Feed], until: int | None = None) -> Tick:
        """Run one job over new rows, nobody else being around; `until` sets the frontier from outside."""
        program, stages = self.program(until), self.stages
        return self.collect(program, job.run(feeds, program, stages), stages)

    def commit(
        self,
        tick: Tick,
        offsets: Mapping[str, Offset] | None = None,
        outputs: Mapping[str, pa.Table] | None = None,
        budget: Mapping[str, Any] | None = None,
        archives: tuple[Mapping[SlotKey, tuple[RunRef, ...]], Mapping[str, Any]] = ({}, {}),
        sinks: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Make a tick real: the next manifest. `outputs` are kept with it until all sinks of their query have them.

        `archives`: the files of archives, and their last updates and layouts. `sinks`: by query, what each has.
        """
        assert self._next is not None
        begin = time.perf_counter()
        reached = {query: min(each.values()) for query, each in (sinks or {}).items() if each}
        kept = {k: refs for k, refs in self.manifest.outputs.items() if k[1] > reached.get(k[0], k[1])}
        kept |= {
            (query, tick.number): self.store.runs.write(("answers", query), tick.number, [Run(table)])
            for query, table in (outputs or {}).items()
        }
        prepared, generations = self._next
        reach("before manifest")
        read = {s: o for s, o in {**self.manifest.offsets, **(offsets or {})}.items() if s in self.streams}
        prepared = {**prepared, "runs": {**prepared["runs"], **archives[0]}, "archives": archives[1]}
        prepared |= {"outputs": kept, "sinks": sinks or {}, "offsets": read, "budget": budget or {}}
        self._put(replace(self.manifest, **prepared))
        self._generations, self._next = generations, None
        clocks, firsts = self.manifest.clocks, self.manifest.firsts
        self._clockless = {q for q in self._clockless if q not in clocks and q not in firsts}
        self.sharing.used()
        for name in tick.failed:
            self.drop_query(name)
        tick.seconds["commit"] = time.perf_counter() - begin

    def commit_catalog(
        self, version: int, declared: Mapping[str, str], changes: tuple[Mapping[str, Any], ...] = ()
    ) -> None:
        """Put a catalog in force (a version, and changes to it), without what was dropped, the tables as they are."""
        runs = {k: refs for k, refs in self.manifest.runs.items() if k[0] != TABLES} | self._table_slots()
        self._put(replace(
            self.manifest, version=self.manifest.version + 1, catalog=version, changes=changes, runs=runs,
            declared=declared,
        ))  # fmt: skip

    def _put(self, manifest: Manifest) -> None:
        self.store.commit(manifest)
        self.manifest = manifest

    def _table_slots(self) -> dict[SlotKey, tuple[RunRef, ...]]:
        return {(TABLES, 0, "", name): (ref,) for name, ref in self.tables.items()}

    def unread(self, stream: str, available: Available, ahead: Mapping[str, int]) -> StreamMark | None:
        """What a stream that nobody reads has brought, if its source knows without reading and none of it is late."""
        low, high = available.bounds or (BEGINNING, BEGINNING)
        if available.rows is None or stream not in self._deployed().unread:
            return None
        if low <= self.frontier or high > ahead.get(stream, high):
            return None
        return StreamMark(stream, low, high, available.rows, 0)

    def _deployed(self) -> Deployment:
        """What runs; the same object while nothing changes."""
        if self._deployment is None:
            apart = {k: q for k, q in self.queries.items() if isinstance(q, QueryProgram) and k not in self.plans.place}
            apart |= {name: self.shared_program(name) for name in self.plans.plans}
            shared, joins = self.sharing.programs(), self.sharing.join_programs()
            self._deployment = Deployment(dict(self.streams), apart, shared, joins, dict(self.functions))
        return self._deployment

    def _runs(self) -> dict[tuple[str, int, int], RunsBySlot]:
        grouped: dict[tuple[str, int, int], dict[str, tuple[RunRef, ...]]] = {}
        owners = self.queries.keys() | set(self.sharing.names.values()) | self.plans.plans.keys()
        for (stage, partition, query, slot), refs in self.manifest.runs.items():
            if query in owners and stage.isdecimal():  # tables and archives are not of any task
                grouped.setdefault((query, int(stage), partition), {})[slot] = refs
        return dict(grouped)

    def collect(self, program: Program, envelopes: Iterable[Envelope], stages: int) -> Tick:
        """Sort what came back, and prepare the manifest that would make it real."""
        tick = Tick(program.tick, program.previous)
        answers: dict[str, list[tuple[int, Elements]]] = {}
        shared: list[tuple[int, Batch]] = []
        late: dict[str, list[pa.Table]] = {}
        aside: dict[str, list[pa.Table]] = {}
        reports: list[TaskReport] = []
        for envelope in envelopes:
            match envelope.message:
                case Answer(query, elements):
                    answers.setdefault(query, []).append((envelope.sender, elements))
                case SharedAnswer(batch):
                    shared.append((envelope.sender, batch))
                case QueryFailed(query, error):
                    tick.failed.setdefault(query, error)
                case LateRows(stream, table):
                    late.setdefault(stream, []).append(table)
                case SetAside(stream, table):
                    aside.setdefault(stream, []).append(table)
                case Shed(admission):
                    tick.admitted.append(admission)
                case TaskReport() as report:
                    reports.append(report)
        for name in tick.failed.keys() & self.plans.plans.keys():
            error = tick.failed.pop(name)
            tick.failed |= {m.key: error for m in self.plans.plans[name].members.values()}
        for name, parts in answers.items():
            if name in self.plans.plans:
                self._part(tick, name, concat([part for _, part in sorted(parts, key=lambda p: p[0])]))
            if name in self.queries and name not in tick.failed:
                joined = concat([part for _, part in sorted(parts, key=lambda p: p[0])])
                running = self.queries[name]
                if isinstance(running, QueryProgram) and running.archived:
                    tick.archived[name] = joined
                    continue
                tick.answers[self.queries[name].plan.name] = answer(self.queries[name].plan, joined)
        tick.shared = [batch for _, batch in sorted(shared, key=lambda s: s[0])]
        tick.late = {s: pa.concat_tables(t) for s, t in late.items()}
        tick.aside = {s: pa.concat_tables(t) for s, t in aside.items()}
        if len(reports) != stages * self.partitions:
            raise RuntimeFailure(
                f"tick {tick.number}: {len(reports)} of {stages * self.partitions} tasks reported",
                detail="a partition was left out or repeated",
                hint="this is a fault in windrow or a setting that changes the number of shuffle partitions",
            )
        self._take_deadlines(program, tick, reports)
        self._prepare(tick, reports)
        return tick

    def _part(self, tick: Tick, name: str, rows: Elements) -> None:
        """Add the answers of queries that are one plan."""
        shown = self._shown_answers(name)
        for mine, table in parted(rows, shown):
            tick.answers[mine.name] = table
            tick.counters[f"answers.{mine.name.lower()}"] = table.num_rows

    def _shown_answers(self, name: str) -> dict[int, ShownAnswer]:
        return {number: ShownAnswer.of(m.form) for number, m in self.plans.plans[name].members.items()}

    def take_apart(self, tick: Tick) -> None:
        """Add the answers of queries that share to the others; those of instances of one template are one."""
        others = self.groups.put_together(tick.answers, tick.shared, self.how_shown)
        for name in tick.answers.keys() & {g.name for g in self.groups.live.values()}:
            tick.counters[f"answers.{name.lower()}"] = tick.answers[name].num_rows
        for name, table in self.shown(others).items():
            if name.lower() not in tick.failed:
                tick.answers[name] = table
                tick.counters[f"answers.{name.lower()}"] = table.num_rows
        tick.shared = []

    @property
    def how_shown(self) -> Mapping[str, Shown]:
        """How the answers of queries are shown, by the keys of the queries."""
        return _ShownBy(self.queries)

    def shown(self, batches: Sequence[Batch]) -> dict[str, pa.Table]:
        """Answers of queries that share as their users see them, each in the order of its times."""
        known = {n: q.shown for b in batches for n in b.answered
                 if isinstance(q := self.queries.get(n.lower()), SharedQuery)}  # fmt: skip
        parts: dict[str, list[pa.Table]] = {}
        ours = [b for b in batches if all(n in known for n in b.answered)]
        for name, table in tables(gathered(ours), known):
            parts.setdefault(name, []).append(table)
        return {name: _in_order(found, self.partitions) for name, found in parts.items()}

    def _take_deadlines(self, program: Program, tick: Tick, reports: Sequence[TaskReport]) -> None:
        """Take in which queries with deadlines were evaluated, and how long that took."""
        if self.deadlines is None or not reports:
            return
        clocks = reports[0].clocks
        frontier = max(tick.frontier, clocks.frontier)
        if program.deadlines is None:
            self.deadlines.free(frontier)
            return
        found = evaluated(program.deadlines, frontier, ChainMap({**clocks.starts}, dict(program.starts)))
        self.deadlines.ran(found, [r.spent for r in reports], frontier, program.deadlines.previous)
        tick.spent = max(sum(s.seconds for s in r.spent.values()) for r in reports)

    def _prepare(self, tick: Tick, reports: Sequence[TaskReport]) -> None:
        runs: dict[SlotKey, tuple[RunRef, ...]] = self._table_slots()
        generations: dict[tuple[int, int], str] = {}
        longest: dict[int, float] = {}
        for report in reports:
            longest[report.stage] = max(longest.get(report.stage, 0.0), sum(report.seconds.values()))
            where = (report.stage, report.partition)
            generations[where] = report.generation
            for query, slots in report.runs.items():
                for slot, refs in slots.items():
                    runs[str(where[0]), where[1], query, slot] = tuple(refs)
            for phase, seconds in report.seconds.items():
                key = f"task.{phase}"
                tick.seconds[key] = max(tick.seconds.get(key, 0.0), seconds)
            for family, counted in report.shared.items():
                self.sharing.count(family, counted)
            for counter, n in report.counters.items():
                # every partition of stage 1 counts the same rows
                if where == (1, 0) or counter.startswith("answers."):
                    tick.counters[counter] = tick.counters.get(counter, 0) + n
        tick.kernels = sum(longest.values())
        clocks = reports[0].clocks
        self._count_rows(tick, clocks.marks, reports[0].firsts)
        tick.frontier = max(tick.frontier, clocks.frontier)
        # clocks that run go on; of the others, those that were told when to start have, and those whose time has come
        running = (self.queries.keys() | self.plans.plans.keys()) - tick.failed.keys()
        known = self.manifest.clocks
        given = {**self.starts, **clocks.starts}
        coming = {q: s for q, s in given.items() if q in running and q not in known}
        for key, (name, _) in self.plans.place.items():
            start = coming.get(name, known.get(name))
            if start is not None and key in running and key not in known:
                coming.setdefault(key, start)
        reached = {q: s for q, s in coming.items() if s <= tick.frontier or q in self.starts}
        gone = [q for q in known if q not in running]
        self.choices.take((r.partition, r.measured) for r in reports)
        self.heavy.take(tick.number, (r.counted for r in reports))
        prepared = {
            "version": self.manifest.version + 1,
            "tick": tick.number,
            "frontier": None if tick.frontier == BEGINNING else tick.frontier,
            "clocks": Names.of(known).without(*gone).update(reached),
            "firsts": {q: s for q, s in coming.items() if q not in reached},
            "marks": {s: m for s, m in {**self.manifest.marks, **clocks.marks}.items() if s in self.streams},
            "runs": runs,
            "deadlines": {} if self.deadlines is None else self.deadlines.saved(),
            "plans": self.plans.saved(),
            **self._chosen(),
        }
        self._next = (prepared, generations)

    def _count_rows(self, tick: Tick, marks: Mapping[str, int], firsts: Mapping[str, int]) -> None:
        """Remember how many rows have come over how much time."""
        for stream in self.streams:
            rows = tick.counters.get(f"rows.{stream}", 0)
            if rows and stream in marks:
                seen, begin = self._seen.get(stream, (0, firsts.get(stream, marks[stream])))
                self._seen[stream] = (seen + rows, begin)


class _ShownBy(Mapping[str, Shown]):
    """How the answers of queries that share are shown, found as it is asked for."""

    def __init__(self, queries: Mapping[str, QueryProgram | SharedQuery]) -> None:
        self._queries = queries

    def __getitem__(self, key: str) -> Shown:
        return Shown.of(self._queries[key].plan)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


def _in_order(parts: Sequence[pa.Table], partitions: int) -> pa.Table:
    """Parts of one answer, each in time order, as one table in time order."""
    table = parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()
    if partitions == 1:
        return table
    ts = table.column("_ts").cast(pa.int64()).to_numpy()
    return table.take(pa.array(np.argsort(ts, kind="stable")))
