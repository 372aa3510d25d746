"""A tick takes all queries from one frontier to the next.

The ticker is the registered queries with the newest manifest (`registered.py`), and what takes them on: `program` says
what the tasks of the next tick are to do, `collect` sorts what they send back and prepares the manifest that would make
it real, and `commit` puts that manifest in place. What comes back from a job is small: answers, late rows, and
references to the runs that tasks wrote. A change of the catalog is a manifest of its own, between two ticks, with the
same state less what was dropped.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog.names import Names
from windrow.errors import RuntimeFailure
from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.runtime.deadline_program import evaluated
from windrow.runtime.elastic_partitions import ElasticQueries
from windrow.runtime.evaluation_costs import longest_by_stage
from windrow.runtime.exchange import CAME, WERE
from windrow.runtime.family_programs import SharedQuery
from windrow.runtime.job import Feed, Job
from windrow.runtime.kept_answers import AnyAnswer
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
    WrittenAnswer,
)
from windrow.runtime.plan_members import PLANS
from windrow.runtime.program import Program, QueryProgram
from windrow.runtime.table_versions import TABLES, instants, needed, table_slots
from windrow.runtime.tick_result import TickResult
from windrow.sharing.plans.answers import parted
from windrow.sharing.query_group import Batch, Shown, gathered, tables
from windrow.sources.protocol import Available
from windrow.store.failpoints import reach
from windrow.store.manifest import Offset, SlotKey
from windrow.store.runs import RunRef


class Ticker(ElasticQueries):
    """Plans ticks and makes them real; the driver's side of every runtime."""

    @property
    def stages(self) -> int:
        """How many stages the deepest query needs."""
        apart = [q.layout.last_stage for q in self.deployed().queries.values()]
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
            deployment=self.deployed(),
            tick=self.manifest.tick + 1,
            partitions=self.partitions,
            marks=self.manifest.marks,
            idle=idle or {},
            previous=self.frontier,
            until=until,
            starts=self._starts(),
            firsts=self.manifest.firsts,
            tables=dict(self.tables),
            ahead=ahead or {},
            fresh=frozenset(self._clockless),
            runs=self._runs() if durable else {},
            generations=self._generations,
            quotas=self.quotas,
            choices=self.choices.chosen(),
            heavy=self.heavy.since(self.manifest.tick + 1),
            seen=tuple(seen),
            deadlines=None if self.deadlines is None else self.deadlines.program(self.frontier, until),
            answer_bound=self.held.bound,
            direct=self.direct,
            most_rows=self.most_rows,
            stopwatch=self.stopwatch,
        )

    def _starts(self) -> Mapping[str, int]:
        """Where clocks start: those that run, and those that were told."""
        clocks = Names.of(self.manifest.clocks)
        if self._all_run is self._deployment is not None:
            return clocks
        return clocks.update({q: s for q, s in self.starts.items() if q not in clocks})

    def run(self, job: Job, feeds: Sequence[Feed], until: int | None = None) -> TickResult:
        """Run one job over new rows, nobody else being around; `until` sets the frontier from outside."""
        program, stages = self.placed(lambda: self.program(until), job, feeds), self.stages
        return self.collect(program, job.run(feeds, program, stages), stages)

    def commit(
        self,
        tick: TickResult,
        offsets: Mapping[str, Offset] | None = None,
        outputs: Mapping[str, AnyAnswer] | None = None,
        budget: Mapping[str, Any] | None = None,
        archives: tuple[Mapping[SlotKey, tuple[RunRef, ...]], Mapping[str, Any]] = ({}, {}),
        sinks: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Make a tick real: the next manifest. `outputs` are kept with it until all sinks of their query have them.

        `archives`: the files of archives, and their last updates and layouts. `sinks`: by query, what each has.
        """
        assert self._next is not None
        begin = self.stopwatch()
        reached = {query: min(each.values()) for query, each in (sinks or {}).items() if each}
        kept = {k: refs for k, refs in self.manifest.outputs.items() if k[1] > reached.get(k[0], k[1])}
        for query, found in (outputs or {}).items():
            by_value = isinstance(found, pa.Table)
            kept[query, tick.number] = (self.held.written(query, tick.number, found) if by_value else found).refs
        self.held.hold(tick.number, tick.answers)
        prepared, generations = self._next
        reach("before manifest")
        known = self.streams.keys() | self.tables.keys()
        read = {s: o for s, o in {**self.manifest.offsets, **(offsets or {})}.items() if s in known}
        runs = {**prepared["runs"], **archives[0], **self.held.slots()}
        prepared = {**prepared, "runs": runs, "archives": archives[1]}
        prepared |= {"outputs": kept, "sinks": sinks or {}, "offsets": read, "budget": budget or {}}
        self.put(replace(self.manifest, **prepared))
        self._generations, self._next = generations, None
        self.tables.update(needed(self.tables, tick.frontier))
        clocks, firsts = self.manifest.clocks, self.manifest.firsts
        self._clockless.keep(lambda q: q not in clocks and q not in firsts)
        self.starts.keep(lambda q: q not in clocks)
        self.sharing.used()
        lapsed = self.manifest.lapsed
        for name in tick.over:
            self.drop_blocks(name)
        for name in tick.failed:
            self.drop_query(name)
        if lapsed:  # their clock goes on for the others: they begin anew after a restart
            self.manifest = replace(self.manifest, lapsed=lapsed)
        tick.seconds["commit"] = self.stopwatch() - begin

    def commit_catalog(
        self, version: int, declared: Mapping[str, str], changes: tuple[Mapping[str, Any], ...] = ()
    ) -> None:
        """Put a catalog in force (a version, and changes to it), without what was dropped, the tables as they are."""
        anew, slots = {TABLES}, table_slots(self.tables)
        if any(not change.come for change in self.plans.changes):  # who has come is in the manifest of a tick
            anew.add(PLANS)
            slots |= self.plan_members.slots(self.plans, self.manifest.tick + 1)
        runs = {k: refs for k, refs in self.manifest.runs.items() if k[0] not in anew} | slots
        self.put(replace(
            self.manifest, version=self.manifest.version + 1, catalog=version, changes=changes, runs=runs,
            declared=declared, tables=instants(self.tables),
        ))  # fmt: skip

    def unread(self, stream: str, available: Available, ahead: Mapping[str, int]) -> StreamMark | None:
        """What a stream that nobody reads has brought, if its source knows without reading and none of it is late."""
        low, high = available.bounds or (BEGINNING, BEGINNING)
        if available.rows is None or stream not in self.deployed().unread:
            return None
        if low <= self.frontier or high > ahead.get(stream, high):
            return None
        return StreamMark(stream, low, high, available.rows, 0)

    def _runs(self) -> dict[tuple[str, int, int], RunsBySlot]:
        grouped: dict[tuple[str, int, int], dict[str, tuple[RunRef, ...]]] = {}
        families = set(self.sharing.names.values())
        for (stage, partition, query, slot), refs in self.manifest.runs.items():
            known = query in self.queries or query in families or query in self.plans.plans
            if known and stage.isdecimal():  # tables and archives are not of any task
                grouped.setdefault((query, int(stage), partition), {})[slot] = refs
        return dict(grouped)

    def collect(self, program: Program, envelopes: Iterable[Envelope], stages: int) -> TickResult:
        """Sort what came back, and prepare the manifest that would make it real."""
        tick = TickResult(program.tick, program.previous)
        answers: dict[str, list[tuple[int, Elements | WrittenAnswer]]] = {}
        shared: list[tuple[int, Batch]] = []
        late: dict[str, list[pa.Table]] = {}
        aside: dict[str, list[pa.Table]] = {}
        reports: list[TaskReport] = []
        for envelope in envelopes:
            match envelope.message:
                case Answer(query, elements):
                    answers.setdefault(query, []).append((envelope.sender, elements))
                case WrittenAnswer(query) as written:
                    answers.setdefault(query, []).append((envelope.sender, written))
                case SharedAnswer(batch):
                    shared.append((envelope.sender, batch))
                case QueryFailed(query, error, member):
                    for key, why in self.plans.failing(query, error, member).items():
                        tick.failed.setdefault(key, why)
                    tick.over |= {query} if query in self.plans.plans and member is None else set()
                case LateRows(stream, table):
                    late.setdefault(stream, []).append(table)
                case SetAside(stream, table):
                    aside.setdefault(stream, []).append(table)
                case Shed(admission):
                    tick.admitted.append(admission)
                case TaskReport() as report:
                    reports.append(report)
        tick.frontier = max([tick.frontier, *(r.clocks.frontier for r in reports[:1])])
        for name, found in answers.items():
            self._take_answer(tick, name, [part for _, part in sorted(found, key=lambda p: p[0])])
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

    def _take_answer(self, tick: TickResult, name: str, parts: Sequence[Elements | WrittenAnswer]) -> None:
        """Add an answer, from its parts in the order of tasks."""
        running = self.queries.get(name)
        if name in self.plans.plans:
            self._part(tick, name, concat([part for part in parts if isinstance(part, Elements)]))
        elif running is None or name in tick.failed:
            return
        elif isinstance(running, QueryProgram) and running.archived:
            tick.archived[name] = concat([part for part in parts if isinstance(part, Elements)])
        else:
            tick.answers[running.plan.name] = self.held.whole(running.plan, tick.number, tick.frontier, parts)

    def _part(self, tick: TickResult, name: str, rows: Elements) -> None:
        """Add the answers of queries that are one plan."""
        plan = self.plans.plans[name]
        rows, found = plan.parted(rows)
        tick.instances += found
        for mine, table in parted(rows, plan.shown):
            if mine.name.lower() not in tick.failed:
                tick.answers[mine.name] = table
                tick.counters[f"answers.{mine.name.lower()}"] = table.num_rows

    def take_apart(self, tick: TickResult) -> None:
        """Add the answers of queries that share to the others; those of instances of one template are one."""
        others = self.groups.put_together(tick.answers, tick.shared, self.how_shown, tick.instances)
        for name in tick.answers.keys() & {g.name for g in self.groups.live.values()}:
            tick.counters[f"answers.{name.lower()}"] = tick.answers[name].num_rows
        for name, table in self.shown(others).items():
            if name.lower() not in tick.failed:
                tick.answers[name] = table
                tick.counters[f"answers.{name.lower()}"] = table.num_rows
        tick.shared, tick.instances = [], []

    def how_shown(self, key: str) -> Shown:
        """How the answer of a query is shown."""
        return Shown.of(self.queries[key].plan)

    def shown(self, batches: Sequence[Batch]) -> dict[str, pa.Table]:
        """Answers of queries that share as their users see them, each in the order of its times."""
        known = {n: q.shown for b in batches for n in b.answered
                 if isinstance(q := self.queries.get(n.lower()), SharedQuery)}  # fmt: skip
        parts: dict[str, list[pa.Table]] = {}
        ours = [b for b in batches if all(n in known for n in b.answered)]
        of_one_task = {id(b) for b in ours}
        mixed: set[str] = set()  # by name: rows of several tasks, one's behind the other's
        for batch in gathered(ours):
            for name, table in tables([batch], known):
                parts.setdefault(name, []).append(table)
                if id(batch) not in of_one_task or len(parts[name]) > 1:
                    mixed.add(name)
        return {name: _in_order(found, name in mixed and self.partitions > 1) for name, found in parts.items()}

    def _take_deadlines(self, program: Program, tick: TickResult, reports: Sequence[TaskReport]) -> None:
        """Take in which queries with deadlines were evaluated, and how long that took."""
        if self.deadlines is None or not reports:
            return
        clocks = reports[0].clocks
        if program.deadlines is None:
            self.deadlines.free(tick.frontier)
            return
        found = evaluated(program.deadlines, tick.frontier, ChainMap({**clocks.starts}, dict(program.starts)))
        longest = longest_by_stage((r.stage, r.spent) for r in reports)
        self.deadlines.ran(found, longest, tick.frontier, program.deadlines.previous)
        seconds = [(r.stage, sum(s.seconds for s in r.spent.values())) for r in reports]
        tick.spent = sum(max(s for at, s in seconds if at == stage) for stage in {at for at, _ in seconds})

    def _prepare(self, tick: TickResult, reports: Sequence[TaskReport]) -> None:
        runs: dict[SlotKey, tuple[RunRef, ...]] = {}
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
            self.sharing.count(report.shared)
            for counter, n in report.counters.items():
                # every partition of stage 1 counts the same rows
                if where == (1, 0) or counter.startswith(("answers.", WERE, CAME)):
                    tick.counters[counter] = tick.counters.get(counter, 0) + n
        self.reduced.count(tick.counters)
        tick.kernels = sum(longest.values())
        clocks = reports[0].clocks
        self._count_rows(tick, clocks.marks, reports[0].firsts)
        tables = needed(self.tables, tick.frontier)
        runs |= table_slots(tables) | self.plan_members.slots(self.plans, tick.number, tick.over)
        self.choices.take((r.partition, r.measured) for r in reports)
        self.heavy.take(tick.number, (r.counted for r in reports))
        prepared = {
            "version": self.manifest.version + 1,
            "tick": tick.number,
            "frontier": None if tick.frontier == BEGINNING else tick.frontier,
            **self._clocks(tick, clocks.starts),
            "marks": {s: m for s, m in {**self.manifest.marks, **clocks.marks}.items() if s in self.streams},
            "runs": runs,
            "tables": instants(tables),
            "deadlines": {} if self.deadlines is None else self.deadlines.saved(),
            "plans": self.plans.saved(tick.over),
            **self.chosen(),
        }
        self._next = (prepared, generations)

    def _clocks(self, tick: TickResult, started: Mapping[str, int]) -> dict[str, Any]:
        """Clocks that run go on; of the others, those that were told when to start have, and those whose time has come.

        While nothing is declared and every clock runs, nothing is looked at.
        """
        known = self.manifest.clocks
        if self._all_run is self._deployment is not None and not started and not tick.failed:
            return {}
        given = {**self.starts, **started}
        coming = {q: s for q, s in given.items() if self.runs_on(q) and q not in known and q not in tick.failed}
        reached = {q: s for q, s in coming.items() if s <= tick.frontier or q in self.starts}
        gone = [q for q in (tick.failed if self._swept else known) if q in tick.failed or not self.runs_on(q)]
        failed = {q for q in tick.failed if isinstance(self.queries.get(q), SharedQuery) or self._is_instance(q)}
        failed |= tick.failed.keys() & self.plans.place.keys()
        self._swept = True
        on_clock = self.sharing.on_clock
        alone = len(self.queries) - len(self.sharing.places) - len(self.plans.place)
        clocks = alone + len(on_clock) + len(self.plans.plans)
        all_run = not coming and not gone and len(known) == clocks
        self._all_run = self._deployment if all_run else None
        return {
            "clocks": Names.of(known).without(*(q for q in gone if q in known)).update(reached),
            "lapsed": tuple(sorted({*self.manifest.lapsed, *failed})),
            "firsts": {q: s for q, s in coming.items() if q not in reached},
        }

    def _is_instance(self, key: str) -> bool:
        """Whether a query that shares is a member of a family in columns."""
        found = None if key in self.queries else self.groups.find(key)
        return found is not None and not self.plans.has_block(found[1])

    def _count_rows(self, tick: TickResult, marks: Mapping[str, int], firsts: Mapping[str, int]) -> None:
        """Remember how many rows have come over how much time."""
        for stream in self.streams:
            rows = tick.counters.get(f"rows.{stream}", 0)
            if rows and stream in marks:
                seen, begin = self._seen.get(stream, (0, firsts.get(stream, marks[stream])))
                self._seen[stream] = (seen + rows, begin)


def _in_order(parts: Sequence[pa.Table], mixed: bool) -> pa.Table:
    """Parts of one answer as one table in time order; each is in time order already unless it is `mixed`."""
    table = parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()
    if not mixed:
        return table
    ts = table.column("_ts").cast(pa.int64()).to_numpy()
    return table.take(pa.array(np.argsort(ts, kind="stable")))
