"""What a task does: one stage of one tick, for one partition, for all queries.

A task is a pure function of its envelopes, the program of the tick and the runs it names, so a retried or speculative
task does no harm: it writes run files of its own and reports them, and only the manifest makes one attempt's files
real.

Between ticks a worker process keeps the operators it ran last. They are used again only if the program says that
exactly that attempt was accepted (`generations`); otherwise the state is read back from its runs.
"""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.changes import cancel
from windrow.operators.elements import BEGINNING, INF, Elements, concat, one
from windrow.plan.lower import in_parts
from windrow.plan.nodes import TableScan
from windrow.runtime.exchange import Envelope, decode, encode, pack, route, share, unpack
from windrow.runtime.heavy_keys import Counts, frequent, fresh
from windrow.runtime.join_choices import Report, follow, report, sampled, scaled
from windrow.runtime.partitioning import Exchange
from windrow.runtime.program import Program, frontier
from windrow.runtime.rebalance import move
from windrow.runtime.shared_aggregation import HeldFamily, recalled
from windrow.runtime.task_state import Held, restored, written
from windrow.store.runs import RunRef

_held: dict[tuple[str, int, int], tuple[str, dict[str, Held | HeldFamily]]] = {}
"""(home, stage, partition) -> (generation, queries): the operators of this worker's last attempt."""


class Stage:
    """One attempt of one task."""

    def __init__(self, program: Program, stage: int, partition: int, last: bool) -> None:
        self.program, self.stage, self.partition, self.last = program, stage, partition, last
        self.queries = {n: q for n, q in program.parts.queries.items() if stage <= q.layout.placement.last_stage}
        self.out: list[Envelope] = []
        self.marks = dict(program.marks)
        self.firsts: dict[str, int] = {}  # by stream: the least new time; by "query?": of its history
        self.control: dict[str, Any] | None = None
        self.frontier = program.previous
        self.starts: dict[str, int] = dict(program.starts)
        self.inbox: dict[tuple[str, int], list[tuple[int, bytes | pa.Buffer]]] = {}
        self.counters: dict[str, int] = {}
        self.families = program.parts.families if stage == 1 else {}
        self.partials: list[tuple[str, bytes | pa.Buffer]] = []  # for families
        self.measured: dict[tuple[str, int], Report] = {}
        self.counted: dict[tuple[str, int], Counts] = {}
        self.owned: dict[tuple[str, Exchange], float] = {}  # the share of rows that are no copies of a heavy key's

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take in all envelopes, advance every query, write what changed, and report."""
        times = [time.perf_counter()]

        def lap() -> None:
            times.append(time.perf_counter())

        for envelope in unpack(batches):
            self._receive(envelope)
        lap()
        self._clock()
        held, families = self._recall()
        for name, query in held.items():
            self._move(name, query)
        lap()
        for name in self.queries:
            if name in self.starts:
                self._advance(name, held[name])
        for address, body in self.partials:
            name, _, slot = address.partition(":")
            families[name].receive(slot, body)
        for family in families.values():
            family.advance(self.frontier, self.starts, self.out)
        lap()
        every: dict[str, Held | HeldFamily] = {**held, **families}
        refs = written(self.program, self.stage, self.partition, every)
        generation = uuid.uuid4().hex
        _held[self._key] = (generation, every)
        lap()
        report = {
            "stage": self.stage, "partition": self.partition, "generation": generation,
            "frontier": self.frontier, "marks": self.marks, "starts": self.starts,
            "refs": refs, "counters": self.counters, "shared": {n: f.counted for n, f in families.items()},
            "measured": self.measured, "counted": self.counted,
            "seconds": dict(zip(("receive", "recall", "advance", "write"), np.diff(times).tolist(), strict=True)),
        }  # fmt: skip
        self._send(self.partition, "state", "", pickle.dumps(report))
        if not self.last:
            control = {"frontier": self.frontier, "starts": self.starts, "marks": self.marks}
            self._send(self.partition, "control", "", json.dumps(control).encode())
        yield from pack(self.out, self.partition)

    @property
    def _key(self) -> tuple[str, int, int]:
        return (self.program.home, self.stage, self.partition)

    def _send(self, to: int, kind: str, name: str, body: bytes) -> None:
        self.out.append((to, self.partition, kind, name, body))

    def _receive(self, envelope: Envelope) -> None:
        _, sender, kind, name, body = envelope
        match kind:
            case "rows" if int(name.partition(":")[0]) == self.stage:
                _, number, query = name.split(":", 2)
                self.inbox.setdefault((query, int(number)), []).append((sender, body))
            case "mark":
                low, high, count, late = json.loads(bytes(body))
                if low is not None:
                    self.marks[name] = max(self.marks.get(name, BEGINNING), high)
                    self.firsts[name] = min(self.firsts.get(name, INF), low)
                for what, n in (("rows", count), ("late", late)):
                    self.counters[f"{what}.{name}"] = self.counters.get(f"{what}.{name}", 0) + n
            case "first":
                self.firsts[f"{name}?"] = min(self.firsts.get(f"{name}?", INF), json.loads(bytes(body)))
            case "part":
                self.partials.append((name, body))
            case "control":
                self.control = json.loads(bytes(body))
            case _:
                self.out.append((self.partition, sender, kind, name, bytes(body)))

    def _clock(self) -> None:
        """The frontier of this tick and the clock of each query: the same in every task.

        A clock that has not been reached starts at the earliest row known so far; all rows up to the frontier are.
        """
        program = self.program
        if self.control is not None:
            self.frontier, self.starts, self.marks = (self.control[k] for k in ("frontier", "starts", "marks"))
            return
        streams = program.parts.streams
        self.frontier = (
            program.until
            if program.until is not None
            else frontier(streams, self.marks, program.idle, program.previous)
        )
        for name, query in program.parts.queries.items():
            if name not in self.starts:
                firsts = [self.firsts[s] for s in (*query.streams, f"{name}?") if s in self.firsts]
                firsts += [program.firsts[name]] if name in program.firsts else []
                self.starts |= {name: min(firsts)} if firsts else {}
        for roster in program.parts.families.values():
            firsts = [self.firsts[s] for s in (roster.source.stream, f"{roster.name}?") if s in self.firsts]
            for name in (n.lower() for n in roster.seats):
                if name not in self.starts and (firsts or name in program.firsts):
                    self.starts[name] = min([*firsts, program.firsts.get(name, INF)])

    def _recall(self) -> tuple[dict[str, Held], dict[str, HeldFamily]]:
        """The operators as of the last accepted tick."""
        generation, known = _held.pop(self._key, ("", {}))
        if generation != self.program.generations.get((self.stage, self.partition), "none"):
            known = {}
        found = {}
        for name, query in self.queries.items():
            held = known.get(name)
            same = isinstance(held, Held) and held.query.uid == query.uid
            found[name] = (
                held
                if isinstance(held, Held) and same
                else restored(self.program, name, query, self.stage, self.partition)
            )
        families = {}
        for name, roster in self.families.items():
            held = known.get(name)
            family = held if isinstance(held, HeldFamily) else None
            families[name] = recalled(self.program, roster, self.partition, family)
        return found, families

    def _move(self, name: str, held: Held) -> None:
        """Let the rows of keys that are heavy from this tick on lie where new ones will."""
        for step, since in self.program.heavy.get(name, {}).items():
            keys = fresh(since, self.program.tick)
            if len(keys):
                move(self.program, name, held, (self.stage, self.partition), step, keys)

    def _advance(self, name: str, held: Held) -> None:
        start = self.starts[name]
        if self.frontier < start or (held.started and self.frontier <= self.program.previous):
            self._hold(name, held)
            return
        steps, placement = held.flow.steps, held.layout.placement
        if not held.started:
            held.started = True
            for i, step in enumerate(steps):
                if placement.runs(i, self.stage, self.partition):
                    step.start(start)
        values: dict[int, Elements] = {}
        arrived: dict[Exchange, Elements] = {}
        chosen = self.program.choices.get(name, {})
        for i, step in enumerate(steps):
            if not placement.runs(i, self.stage, self.partition):
                continue
            if step.operator is not None:
                if i in chosen:
                    follow(step.operator, chosen[i])
                inputs = [self._input(name, held, i, port, values, arrived) for port in range(len(step.inputs))]
                alone = placement.stages[-1] == self.stage
                parts = in_parts(held.flow, i, inputs, self.frontier) if alone else None
                for part in parts or ():
                    self._answer(name, part)
                if parts is None:
                    values[i] = step.operator.advance(inputs, self.frontier)
                told = report(step.operator, sampled(self.program.tick))
                if told is not None:
                    shares = [self.owned.get((name, e), 1.0) if (e := placement.reads.get((i, port))) else 1.0
                              for port in range(len(step.inputs))]  # fmt: skip
                    self.measured[name, i] = told if all(s == 1.0 for s in shares) else scaled(told, shares)
                if parts is not None:
                    break
            elif isinstance(step.node, TableScan):
                values[i] = self._table(step.node, held)
        held.tables = {t: self.program.tables[t] for t in held.query.tables}
        self._leave(name, held, values)

    def _input(
        self,
        name: str,
        held: Held,
        step: int,
        port: int,
        values: dict[int, Elements],
        arrived: dict[Exchange, Elements],
    ) -> Elements:
        """What one input of a step brings: through an exchange, from a table, or from a step of this task."""
        placement, source = held.layout.placement, held.flow.steps[step].inputs[port]
        exchange = placement.reads.get((step, port))
        if exchange is not None:
            if exchange not in arrived:
                arrived[exchange] = self._take(name, exchange, held)
            return arrived[exchange]
        found = values.get(source)
        if found is None:  # it lies in one place, which is not here
            return Elements.empty(held.flow.steps[source].schema)
        part = placement.shares.get((step, port))
        return found if part is None else share(found, part, self.program.partitions, self.partition)

    def _table(self, node: TableScan, held: Held) -> Elements:
        """A table's rows at first; later, what another version changes, from the next instant on."""
        name = node.table.lower()
        now, seen = self.program.tables[name], held.tables.get(name)
        if seen is None:
            return self._rows(node, now, BEGINNING)  # always there: history given to a new query meets them
        if seen.uid == now.uid:
            return Elements.empty(node.schema)
        at = self.program.previous + 1
        return cancel(concat([self._rows(node, seen, at).negated(), self._rows(node, now, at)]))

    def _rows(self, node: TableScan, version: RunRef, at: int) -> Elements:
        table = self.program.store.read(version).table
        columns = {internal: one(table.column(c)) for internal, c, _ in node.columns}
        return Elements.positive(np.full(table.num_rows, at), INF, columns)

    def _take(self, name: str, exchange: Exchange, held: Held) -> Elements:
        """What an exchange delivers up to the frontier; the rest waits."""
        rows = self._arrived(name, exchange, held)
        due = rows.ts <= self.frontier
        if due.all():
            held.waiting.pop(exchange, None)
            return rows
        held.waiting[exchange] = rows.filter(~due)
        return rows.filter(due)

    def _arrived(self, name: str, exchange: Exchange, held: Held) -> Elements:
        """What waited, then what is new, in the order of arrival."""
        schema = held.flow.steps[exchange.source].schema
        new = self.inbox.pop((name, held.layout.exchanges.index(exchange)), [])
        parts = [decode(body, list(schema)) for _, body in sorted(new, key=lambda part: part[0])]
        if exchange.spread.split is not None and parts and self.program.partitions > 1:
            self._count(name, exchange, parts)
        if exchange in held.waiting:
            parts.insert(0, held.waiting[exchange])
        return concat(parts) if parts else Elements.empty(schema)

    def _count(self, name: str, exchange: Exchange, parts: list[Elements]) -> None:
        """Count the keys that reach a join through an exchange."""
        assert exchange.spread.split is not None
        key = (name, exchange.spread.split.step)
        rows, counts = self.counted.get(key, (0, {}))
        copied = exchange.spread.split.grid.copies(self.program.partitions)
        heavy = {h for h, _ in self.program.heavy.get(name, {}).get(key[1], ())}
        arrived = own = 0.0
        for part in parts:
            more, found = frequent(part, exchange.spread, self.program.partitions)
            for value, count in found.items():
                counts[value] = counts.get(value, 0.0) + count / (copied if value in heavy else 1)
            arrived, own = arrived + more, own + more
            own -= (1 - 1 / copied) * sum(count for value, count in found.items() if value in heavy)
        self.owned[name, exchange] = own / max(arrived, 1.0)
        self.counted[key] = (rows + round(own), counts)

    def _hold(self, name: str, held: Held) -> None:
        """Nothing is due: keep what came."""
        for number, exchange in enumerate(held.layout.exchanges):
            if exchange.stage == self.stage and (name, number) in self.inbox:
                held.waiting[exchange] = self._arrived(name, exchange, held)

    def _answer(self, name: str, rows: Elements) -> None:
        if len(rows):
            self._send(self.partition, "answer", name, encode(rows))
            self.counters[f"answers.{name}"] = self.counters.get(f"answers.{name}", 0) + len(rows)

    def _leave(self, name: str, held: Held, values: dict[int, Elements]) -> None:
        placement = held.layout.placement
        for number, exchange in enumerate(held.layout.exchanges):
            if placement.stages[exchange.source] != self.stage or exchange.source not in values:
                continue
            elements, address = values[exchange.source], f"{exchange.stage}:{number}:{name}"
            if exchange.keep:
                parts = iter([(self.partition, elements)] if len(elements) else [])
            else:
                heavy = self.program.heavy_keys(name, exchange.spread)
                parts = route(elements, exchange.spread, self.program.partitions, self.partition, heavy)
            for to, part in parts:
                self._send(to, "rows", address, encode(part))
        final = len(held.flow.steps) - 1
        if placement.stages[final] == self.stage and final in values and len(values[final]):
            self._answer(name, values[final])
