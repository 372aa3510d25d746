"""What a task does: one stage of one tick, for one partition, for all queries.

A task is a pure function of its messages, the program of the tick and the runs it names, so a retried or speculative
task does no harm: it writes run files of its own and reports them, and only the manifest makes one attempt's files
real. A query whose expressions raise fails alone: the task says so and goes on with the others.
"""

from __future__ import annotations

import uuid
from collections import ChainMap
from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np

from windrow.errors import StateError, as_failure
from windrow.operators.aggregates.reduced import alike, is_reduced
from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.operators.sample import Sample, Snapshots
from windrow.plan.nodes import TableScan
from windrow.plan.steps import in_parts
from windrow.runtime.exchange import CAME, WERE, fewer, route, share
from windrow.runtime.heavy_keys import KeyCounts, counted_keys, fresh
from windrow.runtime.join_choices import JoinMeasurement, follow, report, sampled, scaled
from windrow.runtime.kept_answers import TaskAnswers
from windrow.runtime.messages import (
    Clocks,
    Envelope,
    ExchangedRows,
    FamilyPartials,
    HistoryStart,
    JoinRows,
    JoinSums,
    Message,
    PartialCounts,
    QueryFailed,
    SharedRows,
    StreamMark,
    TaskReport,
)
from windrow.runtime.program import Program, frontier
from windrow.runtime.rebalance import move
from windrow.runtime.shared_aggregation import FamilyState, recalled
from windrow.runtime.shared_joins import JoinAnswers, JoinState, recalled_answers, recalled_join
from windrow.runtime.table_versions import cuts, in_force, table_changes
from windrow.runtime.task_state import QueryState, TaskMemory, TaskState, restored, table_versions, written

PHASES = ("receive", "recall", "advance", "write")


class Stage:
    """One attempt of one task."""

    def __init__(self, program: Program, stage: int, partition: int, last: bool, memory: TaskMemory) -> None:
        self.program, self.stage, self.partition, self.last, self.memory = program, stage, partition, last, memory
        deployed = program.deployment
        self.queries = {n: q for n, q in deployed.queries.items() if stage <= q.layout.last_stage}
        self.out: list[Envelope] = []
        self.answers = TaskAnswers(program)
        self.marks = dict(program.marks)
        self.firsts: dict[str, int] = {}  # by stream: the least new time; by "query?": of its history
        self.clocks: Clocks | None = None
        self.frontier = program.previous
        self.starts: ChainMap[str, int] = ChainMap({}, program.starts)  # type: ignore[arg-type]  # new ones first
        self.inbox: dict[tuple[str, int], list[tuple[int, Elements]]] = {}
        self.counters: dict[str, int] = {}
        self.families = deployed.families if stage == 1 else {}
        self.for_families: list[FamilyPartials | PartialCounts | SharedRows] = []
        pairing, answering = stage == 1, stage == 2 and program.partitions > 1
        self.joins = deployed.joins if pairing or answering else {}
        self.for_joins: list[JoinRows | JoinSums] = []
        self.measured: dict[tuple[str, int], JoinMeasurement] = {}
        self.counted: dict[tuple[str, int], KeyCounts] = {}

    def run(self, envelopes: Iterable[Envelope]) -> list[Envelope]:
        """Take in all messages, advance every query, write what changed, and report."""
        now = self.program.stopwatch
        times = [now()]
        for mark in self.program.seen if self.stage == 1 else ():
            self._receive(Envelope(self.partition, 0, mark))
        for envelope in envelopes:
            self._receive(envelope)
        times.append(now())
        self._clock()
        self.answers.frontier = self.frontier
        queries, families, known = self._recall()
        for name, state in queries.items():
            self._move(name, state)
        times.append(now())
        for name in self.queries:
            if name in self.starts and not self._advance(name, queries[name]):
                del queries[name]
        for found in self.answers.messages(self.queries):
            self._send(self.partition, found)
        for message in self.for_families:
            families[message.family].receive(message)
        for family in families.values():
            family.advance(self.frontier, self.starts, self.out)
        joins = self._advance_joins(known)
        times.append(now())
        generation = self._keep({**queries, **families, **joins})
        times.append(now())
        phases = {name: b - a for name, (a, b) in zip(PHASES, pairwise(times), strict=True)}
        clocks = Clocks(self.frontier, dict(self.starts.maps[0]), self.marks)
        shared = {**families, **joins}
        counted = {n: f.reported() for n, f in shared.items()}
        self._send(self.partition, TaskReport(
            self.stage, self.partition, generation, clocks, self.refs, self.counters, self.firsts, counted,
            self.measured, self.counted, phases, {g: s for f in shared.values() for g, s in f.spent.items()},
        ))  # fmt: skip
        if not self.last:
            self._send(self.partition, clocks)
        return self.out

    def _advance_joins(self, known: Mapping[str, TaskState]) -> dict[str, JoinState | JoinAnswers]:
        """Take the shared joins to the frontier: pairs in stage 1, answers in stage 2."""
        found: dict[str, JoinState | JoinAnswers] = {}
        for name, join in self.joins.items():
            was = known.get(name)
            if self.stage == 1:
                state = was if isinstance(was, JoinState) else None
                found[name] = recalled_join(self.program, join, self.partition, state)
            else:
                above = was if isinstance(was, JoinAnswers) else None
                found[name] = recalled_answers(self.program, join, self.partition, above)
        for message in self.for_joins:
            mine = found[message.family]
            match mine, message:
                case JoinState(), JoinRows():
                    mine.receive(message)
                case JoinAnswers(), JoinSums():
                    mine.receive(message)
        for mine in found.values():
            mine.advance(self.frontier, self.starts, self.out)
        return found

    def _keep(self, states: dict[str, TaskState]) -> str:
        """Write the state where it is to last, and remember it; returns the name of this attempt."""
        durable = self.program.store.durable
        self.refs = written(self.program, self.stage, self.partition, states) if durable else table_versions(states)
        generation = uuid.uuid4().hex
        self.memory.put(self._key, generation, states)
        return generation

    @property
    def _key(self) -> tuple[str, int, int]:
        return (self.program.store.uri, self.stage, self.partition)

    def _send(self, to: int, message: Message) -> None:
        self.out.append(Envelope(to, self.partition, message))

    def _receive(self, envelope: Envelope) -> None:
        match envelope.message:
            case ExchangedRows(stage, exchange, query, elements, were) if stage == self.stage:
                self.inbox.setdefault((query, exchange), []).append((envelope.sender, elements))
                for what, n in ((CAME, len(elements)), (WERE, were)) if were is not None else ():
                    self.counters[what + query] = self.counters.get(what + query, 0) + n
            case StreamMark(stream, low, high, rows, late):
                if low is not None and high is not None:
                    self.marks[stream] = max(self.marks.get(stream, BEGINNING), high)
                    self.firsts[stream] = min(self.firsts.get(stream, INF), low)
                for what, n in (("rows", rows), ("late", late)):
                    self.counters[f"{what}.{stream}"] = self.counters.get(f"{what}.{stream}", 0) + n
            case HistoryStart(owner, ts):
                self.firsts[f"{owner}?"] = min(self.firsts.get(f"{owner}?", INF), ts)
            case FamilyPartials() | PartialCounts() | SharedRows() as message:
                self.for_families.append(message)
            case JoinRows() | JoinSums() as message:
                self.for_joins.append(message)
            case Clocks() as clocks:
                self.clocks = clocks
            case message:  # for a later stage, or for the driver
                self.out.append(Envelope(self.partition, envelope.sender, message))

    def _clock(self) -> None:
        """The frontier of this tick and the clock of each query: the same in every task.

        A clock that has not been reached starts at the earliest row known so far; all rows up to the frontier are.
        """
        program = self.program
        if self.clocks is not None:
            self.frontier, self.marks = self.clocks.frontier, dict(self.clocks.marks)
            self.starts.maps[0].update(self.clocks.starts)
            return
        deployed = program.deployment
        self.frontier = (
            program.until
            if program.until is not None
            else frontier(deployed.streams, self.marks, program.idle, program.previous)
        )
        for name, query in deployed.queries.items():
            if name not in self.starts:
                firsts = [self.firsts[s] for s in (*query.streams, f"{name}?") if s in self.firsts]
                firsts += [program.firsts[name]] if name in program.firsts else []
                self.starts |= {name: min(firsts)} if firsts else {}
        for clock in (*program.fresh, *program.firsts):
            if clock not in self.starts:
                self._start_shared(clock)

    def _start_shared(self, clock: str) -> None:
        """Start a clock of queries that share, at the earliest row of their streams."""
        deployed, name = self.program.deployment, clock.rpartition("@")[0]
        if name in deployed.families:
            streams: tuple[str, ...] = (deployed.families[name].source.stream, f"{name}?")
        else:
            streams = deployed.joins[name].source.streams if name in deployed.joins else ()
        firsts = [self.firsts[s] for s in streams if s in self.firsts]
        firsts += [self.program.firsts[clock]] if streams and clock in self.program.firsts else []
        if firsts:
            self.starts[clock] = min(firsts)

    def _recall(self) -> tuple[dict[str, QueryState], dict[str, FamilyState], dict[str, TaskState]]:
        """The operators as of the last accepted tick."""
        generation = self.program.generations.get((self.stage, self.partition), "none")
        known, others = self.memory.pop(self._key, generation)
        found = {}
        for name, query in self.queries.items():
            state = known.get(name)
            if not (isinstance(state, QueryState) and state.query.uid == query.uid):
                state = restored(self.program, name, query, self.stage, self.partition, others.get(name))
            elif state.query is not query:
                state.follow(query)
            found[name] = state
        families = {}
        for name, program in self.families.items():
            family = known.get(name)
            known_family = family if isinstance(family, FamilyState) else None
            families[name] = recalled(self.program, program, self.partition, known_family)
        return found, families, known

    def _move(self, name: str, held: QueryState) -> None:
        """Let the rows of keys that are heavy from this tick on lie where new ones will."""
        for step, since in self.program.heavy.get(name, {}).items():
            keys = fresh(since, self.program.tick)
            if len(keys):
                move(self.program, name, held, (self.stage, self.partition), step, keys)

    def _advance(self, name: str, held: QueryState) -> bool:
        """Take one query to the frontier; whether it can go on."""
        try:
            self._run_steps(name, held)
        except (StateError, MemoryError):
            raise
        except Exception as error:  # one query must not stop the others
            self.answers.drop(name)
            home = self.program.store.uri if held.found & held.refs.keys() else None
            self._send(0, QueryFailed(name, as_failure(error, held.query.plan.name, home)))
            return False
        return True

    def _run_steps(self, name: str, held: QueryState) -> None:
        start = self.starts[name]
        if self.frontier < start or (held.started and self.frontier <= self.program.previous):
            self._hold(name, held)
            return
        if not held.started:
            held.started = True
            for i in held.layout.running(self.stage, self.partition):
                held.flow.steps[i].start(start)
        low = max(self.program.previous, start - 1)
        for high in (*cuts([self.program.tables[t] for t in held.query.tables], low, self.frontier), self.frontier):
            self._run_to(name, held, low, high)
            low = high

    def _run_to(self, name: str, held: QueryState, low: int, high: int) -> None:
        """Take one query from an instant to another, between which no table changes but at the very first."""
        steps, placement = held.flow.steps, held.layout.placement
        values: dict[int, Elements] = {}
        arrived: dict[int, Elements] = {}
        chosen = self.program.choices.get(name, {})
        alone = placement.stages[-1] == self.stage
        for i in held.layout.running(self.stage, self.partition):
            step = steps[i]
            if step.operator is not None:
                if i in chosen:
                    follow(step.operator, chosen[i])
                inputs = [self._input(name, held, i, port, values, arrived, high) for port in range(len(step.inputs))]
                parts = in_parts(held.flow, i, inputs, high) if alone else None
                for part in parts or ():
                    self._answer(name, part)
                if parts is None:
                    values[i] = step.operator.advance(inputs, high)
                for number, error in (
                    step.operator.refused.items() if isinstance(step.operator, Snapshots | Sample) else ()
                ):
                    self._send(0, QueryFailed(name, error, number))
                told = report(step.operator, sampled(self.program.tick))
                shares = [s for p in range(len(step.inputs)) if (s := self._owned(name, held, i, p)) is not None]
                if told is not None and len(shares) == len(step.inputs):
                    self.measured[name, i] = told if all(s == 1.0 for s in shares) else scaled(told, shares)
                if parts is not None:
                    break
            elif isinstance(step.node, TableScan):
                table = step.node.table.lower()
                span = (self.program.tables[table], held.tables.get(table), low, high)
                values[i] = table_changes(self.program.store, step.node, *span)
        held.tables = {t: in_force(self.program.tables[t], high).refs for t in held.query.tables}
        self._leave(name, held, values)

    def _owned(self, name: str, held: QueryState, step: int, port: int) -> float | None:
        """The share of an input's rows that are no copies of a heavy key's; None: no row has come to tell it."""
        number = held.layout.reads.get((step, port), -1)
        split = held.layout.exchanges[number].partitioning.split if number >= 0 else None
        copied = split is not None and self.program.heavy.get(name, {}).get(split.step)
        return held.owned.get(number) if copied else 1.0

    def _input(
        self,
        name: str,
        held: QueryState,
        step: int,
        port: int,
        values: dict[int, Elements],
        arrived: dict[int, Elements],
        high: int,
    ) -> Elements:
        """What one input of a step brings: through an exchange, from a table, or from a step of this task."""
        placement, source = held.layout.placement, held.flow.steps[step].inputs[port]
        number = held.layout.reads.get((step, port))
        if number is not None:
            if number not in arrived:
                arrived[number] = self._take(name, number, held, high)
            return arrived[number]
        found = values.get(source)
        if found is None:  # it lies in one place, which is not here
            return Elements.empty(held.flow.steps[source].schema)
        part = placement.shares.get((step, port))
        return found if part is None else share(found, part, self.program.partitions, self.partition)

    def _take(self, name: str, number: int, held: QueryState, high: int) -> Elements:
        """What an exchange delivers up to an instant; the rest waits."""
        rows = self._arrived(name, number, held)
        due = rows.ts <= high
        if due.all():
            held.waiting.pop(number, None)
            return rows
        count = int(np.count_nonzero(due))
        if due[:count].all():  # they came in order: nothing need be copied
            self._let_wait(number, held, rows.slice(count))
            return rows.slice(0, count)
        self._let_wait(number, held, rows.filter(~due))
        return rows.filter(due)

    def _let_wait(self, number: int, held: QueryState, rows: Elements) -> None:
        """Keep rows for later: of rows that may come reduced all partitions keep them so, for whoever moves them."""
        reduction = held.layout.reductions.get(number)
        held.waiting[number] = rows if reduction is None or self.program.direct else reduction.reduced(rows)

    def _arrived(self, name: str, number: int, held: QueryState) -> Elements:
        """What waited, then what is new, in the order of arrival."""
        exchange = held.layout.exchanges[number]
        schema = held.flow.steps[exchange.source].schema
        new = self.inbox.pop((name, number), [])
        parts = [elements for _, elements in sorted(new, key=lambda part: part[0])]
        if exchange.partitioning.split is not None and parts and self.program.partitions > 1:
            self._count(name, number, held, parts)
        if number in held.waiting:
            parts.insert(0, held.waiting[number])
        reduction = held.layout.reductions.get(number)
        if reduction is not None:
            parts = list(alike(parts, reduction))
        return concat(parts) if parts else Elements.empty(schema)

    def _count(self, name: str, number: int, held: QueryState, parts: list[Elements]) -> None:
        """Count the keys that reach a join through an exchange."""
        partitioning = held.layout.exchanges[number].partitioning
        assert partitioning.split is not None
        key = (name, partitioning.split.step)
        heavy = {h for h, _ in self.program.heavy.get(name, {}).get(key[1], ())}
        before = self.counted.get(key, (0, {}))
        held.owned[number], self.counted[key] = counted_keys(
            parts, partitioning, self.program.partitions, heavy, before
        )

    def _hold(self, name: str, held: QueryState) -> None:
        """Nothing is due: keep what came."""
        for number, exchange in enumerate(held.layout.exchanges):
            if exchange.stage == self.stage and (name, number) in self.inbox:
                self._let_wait(number, held, self._arrived(name, number, held))

    def _answer(self, name: str, rows: Elements) -> None:
        if len(rows):
            self.answers.add(name, self.queries[name], rows)
            self.counters[f"answers.{name}"] = self.counters.get(f"answers.{name}", 0) + len(rows)

    def _leave(self, name: str, held: QueryState, values: dict[int, Elements]) -> None:
        placement = held.layout.placement
        for number, exchange in enumerate(held.layout.exchanges):
            if placement.stages[exchange.source] != self.stage or exchange.source not in values:
                continue
            elements, were = values[exchange.source], None
            if exchange.keep:
                parts = iter([(self.partition, elements)] if len(elements) else [])
            else:
                heavy = self.program.heavy_keys(name, exchange.partitioning)
                reducible = number in held.layout.reductions and not is_reduced(elements.columns)
                if reducible and not self.program.direct:
                    elements, were = fewer(elements, held.layout.reductions[number]), len(elements)
                parts = route(elements, exchange.partitioning, self.program.partitions, self.partition, heavy)
            for to, part in parts:
                self._send(to, ExchangedRows(exchange.stage, number, name, part, were))
                were = 0 if were else were
        final = len(held.flow.steps) - 1
        if placement.stages[final] == self.stage and final in values and len(values[final]):
            self._answer(name, values[final])
