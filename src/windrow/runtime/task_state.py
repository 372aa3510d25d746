"""The state of a query in one stage of one partition: operators in memory, runs on disk, and the way between them.

A slot is a named list of runs: `<step>/<slot>` for an operator's, `waiting/<exchange>` for rows beyond the frontier,
`table/<name>` for the version of a table that the operators have seen. A run that did not change keeps its file. Some
operators rebuild small runs whenever they are asked; a rebuilt run with the content of the one before it is taken for
that one.

Between ticks a process keeps the operators it ran last (`TaskMemory`). They are used again only if the program says
that exactly that attempt was accepted; otherwise the state is read back from its runs. A partition that comes back
from another process has most of its runs in common with what was left here, and a join does not index those again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s, distinct_values, raw
from windrow.operators.changes import Changes
from windrow.operators.elements import Elements, concat
from windrow.operators.join import JoinOperator
from windrow.operators.materialize import Materialize
from windrow.operators.over_nothing import OverNothingOperator
from windrow.operators.query_aggregate import QueryAggregate
from windrow.operators.route import AdmitOperator, RouteOperator, RouteSets, StampOperator
from windrow.operators.sample import Sample, Snapshots
from windrow.operators.state.run import Run, elements_of, run_of
from windrow.operators.terms import QUERY
from windrow.plan.steps import Dataflow
from windrow.runtime.idle_memory import touched
from windrow.runtime.join_choices import follow
from windrow.runtime.program import Program, ProgramLayout, QueryProgram
from windrow.runtime.shared_aggregation import FamilyState
from windrow.runtime.shared_joins import JoinAnswers, JoinState
from windrow.runtime.table_versions import Chain
from windrow.store.manifest import SlotKey
from windrow.store.runs import RunRef, cache
from windrow.store.sealed import STATE, as_written

WAITING, TABLE = "waiting", "table"

RECENT = 8
"""A process keeps the operators of the homes that its last so many attempts were for: workers outlive engines."""


@dataclass
class QueryState:
    """A query's part in one task: its operators, waiting rows, and the runs that hold them on disk."""

    query: QueryProgram
    flow: Dataflow
    started: bool = False
    tables: dict[str, Chain] = field(default_factory=dict)  # the version of each table that the operators have seen
    waiting: dict[int, Elements] = field(default_factory=dict)  # by exchange: rows beyond the frontier
    owned: dict[int, float] = field(default_factory=dict)  # by exchange: the share of no copies in what came last
    saved: dict[str, tuple[Run, ...]] = field(default_factory=dict)
    refs: dict[str, RunRef] = field(default_factory=dict)  # by uid, of the saved runs
    found: frozenset[str] = frozenset()  # the runs that were read back from a home, by uid

    @property
    def layout(self) -> ProgramLayout:
        return self.query.layout

    def follow(self, query: QueryProgram) -> None:
        """Go on with the same operators for a plan that is shared by other queries than before."""
        self.query = query
        before = self._queries
        for mine, new in zip(self.flow.steps, query.layout.flow.steps, strict=True):
            match mine.operator, new.operator:
                case (AdmitOperator() | RouteOperator() | RouteSets()) as old, now:
                    assert isinstance(now, AdmitOperator | RouteOperator | RouteSets)
                    old.router = now.router
                case StampOperator() as old, StampOperator() as now:
                    old.value = now.value
                case QueryAggregate() as old, QueryAggregate() as now:
                    old.follow(now)
                case OverNothingOperator() as old, OverNothingOperator() as now:
                    old.follow(now)
        if not np.isin(before, self._queries).all():
            self.forget_gone()

    @property
    def _queries(self) -> Int64s:
        """The queries that share the plan, by number."""
        routers = (s.operator.router for s in self.flow.steps if isinstance(s.operator, RouteOperator | RouteSets))
        return distinct_values(np.concatenate([np.zeros(0, np.int64), *(r.queries for r in routers)]))

    def forget_gone(self) -> None:
        """Forget the answers of queries that have left the plan: nobody will take them back."""
        there = self._queries
        for step in self.flow.steps:
            if QUERY not in step.schema:
                continue
            match step.operator:
                case Changes() | Materialize():
                    step.operator.replace_rows(0, lambda rows: np.isin(raw(rows.columns[QUERY]), there), ())
                case Snapshots() | Sample():
                    step.operator.forget(lambda rows: np.isin(raw(rows.columns[QUERY]), there))

    def adopt(self, runs: Mapping[str, Run]) -> None:
        """Let long runs lie where the store has them, by uid."""
        for step in self.flow.steps:
            if isinstance(step.operator, JoinOperator):
                step.operator.adopt(runs)
        self.saved = {slot: tuple(runs.get(r.uid, r) for r in saved) for slot, saved in self.saved.items()}

    @property
    def kept(self) -> bool:
        """Whether there is something to name in a manifest."""
        return self.started or bool(self.waiting)

    @property
    def table_refs(self) -> Mapping[str, Chain]:
        """The versions of tables that the operators have seen."""
        return self.tables

    def slots(self, stage: int, partition: int) -> Iterator[tuple[str, tuple[Run, ...]]]:
        """Named lists of runs: all that the query needs to go on."""
        for i, step in enumerate(self.flow.steps):
            if step.operator is not None and self.started and self.layout.placement.runs(i, stage, partition):
                for slot, runs in step.operator.state().items():
                    yield f"{i}/{slot}", runs
        for number, rows in self.waiting.items():
            yield f"{WAITING}/{number}", (run_of(rows),)


TaskState = QueryState | FamilyState | JoinState | JoinAnswers
"""What a task keeps of a query, of a family, or of a shared join."""


def restored(
    program: Program, name: str, query: QueryProgram, stage: int, partition: int, other: TaskState | None = None
) -> QueryState:
    """The state as the last manifest names it; new when it names none.

    `other`: what another attempt left here; joins go on with the runs that it has in common with the manifest.
    """
    held = QueryState(query, query.flow())
    with as_written(STATE, f"of {query.plan.name} in {program.store.uri}"):
        _read_back(held, program, name, stage, partition, other)
    return held


def _read_back(
    held: QueryState, program: Program, name: str, stage: int, partition: int, other: TaskState | None
) -> None:
    query, slots = held.query, program.runs.get((name, stage, partition), {})
    # only waiting rows: the clock has not started here
    held.started = any(not slot.startswith(WAITING) for slot in slots)
    grouped: dict[str, dict[str, tuple[Run, ...]]] = {}
    for slot, refs in slots.items():
        owner, _, inner = slot.partition("/")
        if owner == TABLE:
            held.tables[inner] = refs
            continue
        runs = tuple(program.store.read(r) for r in refs)
        grouped.setdefault(owner, {})[inner] = held.saved[slot] = runs
        held.refs |= {r.uid: r for r in refs}
    held.found = frozenset(held.refs if program.store.durable else ())
    chosen = program.choices.get(name, {})
    for i, step in enumerate(held.flow.steps):
        if step.operator is not None and str(i) in grouped:
            if i in chosen:
                follow(step.operator, chosen[i])
            if isinstance(step.operator, JoinOperator) and _is_of(other, query):
                old = other.flow.steps[i].operator
                assert isinstance(old, JoinOperator)
                step.operator.inherit(old)
            step.operator.restore(grouped[str(i)], program.previous)
    if query.parted and held.started:
        held.forget_gone()
    for inner, runs in grouped.get(WAITING, {}).items():
        held.waiting[int(inner)] = concat([elements_of(r) for r in runs])


def _is_of(state: TaskState | None, query: QueryProgram) -> TypeGuard[QueryState]:
    return isinstance(state, QueryState) and state.query.uid == query.uid


@dataclass
class TaskMemory:
    """The operators of a process's last attempts, by home, stage and partition, each with its generation."""

    attempts: dict[tuple[str, int, int], tuple[str, dict[str, TaskState]]] = field(default_factory=dict)
    _homes: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT))

    def pop(self, key: tuple[str, int, int], generation: str) -> tuple[dict[str, TaskState], dict[str, TaskState]]:
        """What the attempt of this generation left, and what another one did: one of them is empty."""
        found, states = self.attempts.pop(key, ("", {}))
        return (states, {}) if found == generation else ({}, states)

    def put(self, key: tuple[str, int, int], generation: str, states: dict[str, TaskState]) -> None:
        """Remember an attempt, and forget homes that nobody has come back to."""
        self.attempts[key] = (generation, states)
        self._homes.append(key[0])
        for old in [k for k in self.attempts if k[0] not in self._homes]:
            del self.attempts[old]

    def generation(self, key: tuple[str, int, int]) -> str | None:
        """The attempt whose operators are here."""
        return self.attempts[key][0] if key in self.attempts else None

    def keep(self, home: str, partitions: Collection[int]) -> None:
        """Forget the other partitions of a home: their operators are elsewhere by now."""
        for old in [k for k in self.attempts if k[0] == home and k[2] not in partitions]:
            del self.attempts[old]

    def slots(self) -> Iterator[tuple[SlotKey, tuple[Run, ...]]]:
        """All state, as a manifest would name it."""
        for (_, stage, partition), (_, states) in self.attempts.items():
            for name, state in states.items():
                for slot, runs in state.slots(stage, partition):
                    yield (str(stage), partition, name, slot), runs


def written(
    program: Program, stage: int, partition: int, queries: Mapping[str, TaskState]
) -> dict[str, dict[str, tuple[RunRef, ...]]]:
    """Write the runs that are new into one file, and name all that the state consists of."""
    fresh: list[Run] = []
    slots: dict[str, dict[str, tuple[Run, ...]]] = {}
    for name, held in queries.items():
        slots[name] = {s: _unchanged(held.saved.get(s, ()), runs) for s, runs in held.slots(stage, partition)}
        fresh += [r for runs in slots[name].values() for r in runs if r.uid not in held.refs]
    found = {r.uid: r for r in program.store.write((stage, partition), program.tick, fresh)}
    touched(sum(run.nbytes for run in fresh))
    refs: dict[str, dict[str, tuple[RunRef, ...]]] = {}
    for name, held in queries.items():
        known = held.refs | found
        held.saved = slots[name]
        before, held.refs = held.refs, {r.uid: known[r.uid] for runs in slots[name].values() for r in runs}
        cache.drop(before.keys() - held.refs.keys())
        mapped = {uid: run for uid in found.keys() & held.refs.keys() if (run := program.store.mapped(found[uid]))}
        if mapped and isinstance(held, QueryState):
            held.adopt(mapped)
        if held.kept:
            refs[name] = {s: tuple(known[r.uid] for r in runs) for s, runs in slots[name].items()}
            refs[name] |= {f"{TABLE}/{t}": seen for t, seen in held.table_refs.items()}
    return refs


def table_versions(queries: Mapping[str, TaskState]) -> dict[str, dict[str, tuple[RunRef, ...]]]:
    """What state that stays with its task needs of the store: the versions of tables that it has seen."""
    return {
        name: {f"{TABLE}/{t}": seen for t, seen in held.table_refs.items()}
        for name, held in queries.items()
        if held.table_refs
    }


def _unchanged(old: tuple[Run, ...], new: tuple[Run, ...]) -> tuple[Run, ...]:
    """The new runs, each replaced by the old one in its place when they hold the same."""
    if old == new or len(old) != len(new):
        return new
    return tuple(o if o is n or _same(o.table, n.table) else n for o, n in zip(old, new, strict=True))


def _same(a: pa.Table, b: pa.Table) -> bool:
    return a.num_rows == b.num_rows and bool(a.equals(b))
