"""Looking into the state: the rows that streams have kept and the relations that queries stand at.

Everything comes from runs that are never changed, so ticks go on meanwhile: those that a manifest names, or, without a
home, those that the tasks of the last tick hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.operators.elements import BEGINNING, INF, Elements
from windrow.operators.history import EXP, SEQ
from windrow.operators.materialize import Materialize, relation_of
from windrow.operators.quality import Quality
from windrow.operators.star_join import StarJoinOperator, quality_of
from windrow.operators.state.run import Run, ints
from windrow.plan.dataflow import answer
from windrow.plan.nodes import Emit, QueryPlan, Scan, StarJoin, StreamOp, walk
from windrow.runtime.program import QueryProgram
from windrow.runtime.task_state import WAITING
from windrow.store.manifest import Manifest, SlotKey
from windrow.store.runs import RunPlace, RunRef


class StateReader(Protocol):
    """The state of one moment."""

    @property
    def tick(self) -> int:
        """The number of the tick after which it is."""

    @property
    def frontier(self) -> int:
        """How far answers are complete."""

    @property
    def clocks(self) -> Mapping[str, int]:
        """The clocks that have begun, and when."""

    @property
    def lapsed(self) -> Collection[str]:
        """Queries that shared and have failed: what was theirs is gone."""

    @property
    def run_place(self) -> RunPlace | None:
        """Where tasks read the runs that `references` names."""

    def slots(self, query: str) -> Iterator[tuple[str, tuple[Run, ...]]]:
        """The state of a query in all its tasks."""

    def references(self, query: str) -> Mapping[str, RunRef]:
        """By uid, those of its runs that other processes can read."""


@dataclass(frozen=True)
class StoredState:
    """The state that a manifest names, read as it is asked for."""

    store: RunPlace
    manifest: Manifest

    @property
    def tick(self) -> int:
        return self.manifest.tick

    @property
    def frontier(self) -> int:
        return BEGINNING if self.manifest.frontier is None else self.manifest.frontier

    @property
    def clocks(self) -> Mapping[str, int]:
        return self.manifest.clocks

    @property
    def lapsed(self) -> Collection[str]:
        return self.manifest.lapsed

    @property
    def run_place(self) -> RunPlace:
        return self.store

    def slots(self, query: str) -> Iterator[tuple[str, tuple[Run, ...]]]:
        for (_, _, owner, slot), refs in self.manifest.runs.items():
            if owner == query:
                yield slot, tuple(self.store.read(r) for r in refs)

    def references(self, query: str) -> Mapping[str, RunRef]:
        return {r.uid: r for (_, _, owner, _), refs in self.manifest.runs.items() if owner == query for r in refs}


@dataclass(frozen=True)
class InMemoryState:
    """The state that tasks hold."""

    tick: int
    frontier: int
    held: Mapping[SlotKey, tuple[Run, ...]]
    clocks: Mapping[str, int]
    lapsed: Collection[str]
    run_place: None = None

    def slots(self, query: str) -> Iterator[tuple[str, tuple[Run, ...]]]:
        for (_, _, owner, slot), runs in self.held.items():
            if owner == query:
                yield slot, runs

    def references(self, query: str) -> Mapping[str, RunRef]:
        return {}


@dataclass(frozen=True)
class StateSnapshot:
    """One consistent moment: after which tick, the frontier, each stream's kept rows, and each relation's rows."""

    tick: int
    frontier: int
    history: Callable[[str], pa.Table]
    snapshot: Callable[[str], pa.Table]
    reach: Callable[[str], int]  # how far back a stream's kept rows go, in ticks of its clock


def kept_name(stream: str) -> str:
    """The name of the query that keeps a stream's history: one no user can give."""
    return f"~{stream.lower()}"


def kept_plan(stream: StreamDef) -> QueryPlan:
    """The bare scan behind a stream's history."""
    key = stream.name.lower()
    columns = tuple((f"{key}.{c}", c, t) for c, t in stream.columns.items())
    scan = Scan(stream.name, key, columns, stream.time)
    output = tuple((c, internal) for internal, c, _ in columns)
    return QueryPlan(kept_name(key), Emit(scan, StreamOp.RELATION), output, stream.time_type)


def kept_runs(state: StateReader, stream: str) -> list[Run]:
    """The runs of a stream's history."""
    return [r for slot, runs in state.slots(kept_name(stream)) if not slot.startswith(WAITING) for r in runs]


def kept_rows(state: StateReader, stream: StreamDef, *, waiting: bool = False) -> pa.Table:
    """The rows a stream has kept, in the order of their time; with those that wait for the frontier, if asked."""
    key = stream.name.lower()
    tables = [_shown({}, key, stream)]
    for run in kept_runs(state, key):
        alive = ints(run.table, EXP) > state.frontier
        tables.append(_shown(run.table if alive.all() else run.table.filter(pa.array(alive)), key, stream))
    if waiting:
        for slot, runs in state.slots(kept_name(key)):
            if slot.startswith(WAITING):
                tables += [_shown(run.table, key, stream) for run in runs]
    rows = pa.concat_tables(tables).sort_by([(stream.time, "ascending"), (SEQ, "ascending")])
    return rows.drop_columns([SEQ])


def _shown(table: Mapping[str, pa.Array] | pa.Table, key: str, stream: StreamDef) -> pa.Table:
    """The stream's columns of a run, and the order in which rows came: those that wait came last, in their order."""
    schema = pa.schema([*stream.columns.items(), (SEQ, pa.int64())])
    if not isinstance(table, pa.Table):
        return schema.empty_table()
    numbers = table.column(SEQ) if SEQ in table.column_names else pa.array(INF // 2 + np.arange(table.num_rows))
    return pa.table({**{n: table.column(f"{key}.{n}") for n in stream.columns}, SEQ: numbers}).cast(schema)


def sheds(query: QueryProgram) -> bool:
    """Whether a join of the query gives rows up when memory is short, as its plan says: most are not lowered by
    themselves."""
    return any(isinstance(node, StarJoin) for node in walk(query.plan.root))


def star_quality(state: StateReader, query: QueryProgram) -> Quality | None:
    """What the joins of a query that shed when memory is short have kept, all partitions together; None: it has
    none."""
    slots = {f"{i}/figures" for i, s in enumerate(query.layout.flow.steps) if isinstance(s.operator, StarJoinOperator)}
    if not slots:
        return None
    return quality_of([r for slot, runs in state.slots(query.plan.name.lower()) if slot in slots for r in runs])


def relation(state: StateReader, query: QueryProgram) -> pa.Table:
    """The rows of a relation-valued query at the frontier."""
    return answer(query.plan, materialized(state, query)).drop_columns(["_ts", "_op"])


def materialized(state: StateReader, query: QueryProgram) -> Elements:
    """The elements that a relation-valued query keeps for snapshots."""
    steps = query.layout.flow.steps
    (at,) = [i for i, s in enumerate(steps) if isinstance(s.operator, Materialize)]
    runs = [r for slot, found in state.slots(query.plan.name.lower()) if slot == f"{at}/rows" for r in found]
    return relation_of(runs) or Elements.empty(steps[at].schema)
