"""What a tick tells its tasks, in two parts: what changes with every tick, and what changes only with the catalog.

The standing part (streams, plans, user functions) is pickled by value into a file under home when it changes, and read
once by each worker process; a tick ships only its name. The rest (marks, clocks, versions of tables, references of
runs) is small and goes with the tasks.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.operators.elements import BEGINNING, Int64s
from windrow.plan.lower import Dataflow, Tuning, lower, lower_kept
from windrow.plan.nodes import QueryPlan
from windrow.runtime.admission import Quotas, gate_of
from windrow.runtime.heavy_keys import Since, hashes
from windrow.runtime.join_choices import Chosen, watch_orders, watch_plan
from windrow.runtime.membership import Roster
from windrow.runtime.partitioning import Exchange, Placement, Spread, place
from windrow.store.place import Place
from windrow.store.runs import RunRef, RunStore

MEASURING = Tuning(watch_orders, "auto", watch_plan, apart=True)
"""Joins measure; the driver, who sees all partitions, chooses (`choices.py`)."""

Functions = Mapping[str, Callable[..., object]]
Slots = Mapping[str, tuple[RunRef, ...]]


@dataclass(frozen=True)
class QueryProgram:
    """A query as a task sees it; `uid` tells it from others that had its name.

    `retain`: not a query of the user's but the history of a stream, kept so long. `standing`: a relation's present rows
    are kept.
    """

    uid: str
    plan: QueryPlan
    strategy: str
    functions: Functions
    retain: int | None = None
    standing: bool = False

    def flow(self) -> Dataflow:
        """The operators, new."""
        if self.retain is not None:
            return lower_kept(self.plan, self.retain)
        return lower(self.plan, self.functions, self.strategy, self.standing, MEASURING)

    @cached_property
    def layout(self) -> Layout:
        """The dataflow, to be looked at and to run its stateless steps, and where its steps run."""
        flow = self.flow()
        return Layout(flow, place(flow))

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """The columns of the answer's elements."""
        return dict(self.layout.flow.steps[-1].schema)

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams read."""
        return frozenset(s.lower() for s in self.plan.streams)

    @cached_property
    def gate(self) -> str | None:
        """The gate its rows must pass, if it may be shed."""
        return gate_of(self.plan)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables read."""
        return tuple(t.lower() for t in self.plan.tables)

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k not in ("layout", "streams", "tables", "gate")}


@dataclass(frozen=True)
class Layout:
    """A dataflow, its placement, and its exchanges in an order that every task agrees on."""

    flow: Dataflow
    placement: Placement

    @cached_property
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(dict.fromkeys(self.placement.reads.values()))


@dataclass(frozen=True)
class Standing:
    """The part that changes with the catalog only."""

    streams: Mapping[str, StreamDef] = field(default_factory=dict)
    queries: Mapping[str, QueryProgram] = field(default_factory=dict)
    families: Mapping[str, Roster] = field(default_factory=dict)  # queries that share
    functions: Functions = field(default_factory=dict)

    def save(self, target: Place, name: str) -> None:
        """Write by value, with user functions that live in no module."""
        from pyspark import cloudpickle

        target.write(name, cloudpickle.dumps(self), sync=False)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Program:
    """A tick: everything that tasks need to know."""

    store: RunStore
    standing: str  # the file of the standing part
    tick: int
    partitions: int
    marks: Mapping[str, int]  # greatest time per stream before this tick
    idle: frozenset[str]  # streams that do not hold the frontier back
    previous: int  # the last frontier
    until: int | None  # a frontier given from outside (replay)
    starts: Mapping[str, int]  # where clocks start
    firsts: Mapping[str, int]  # where clocks would start that have not been reached: the earliest row so far
    tables: Mapping[str, RunRef]  # the present version of each table
    fresh: frozenset[str] = frozenset()  # queries that share and have not had a tick
    runs: Mapping[tuple[str, int, int], Slots] = field(default_factory=dict)  # by (query, stage, partition)
    generations: Mapping[tuple[int, int], str] = field(
        default_factory=dict
    )  # (stage, partition) -> the accepted attempt
    quotas: Quotas = field(default_factory=dict)  # what a task may keep of a stream, where there is too much
    choices: Chosen = field(default_factory=dict)  # what joins are to follow
    heavy: Mapping[str, Mapping[int, Since]] = field(default_factory=dict)  # heavy keys, by query and step

    @property
    def home(self) -> str:
        return self.store.place.uri

    def heavy_keys(self, query: str, spread: Spread) -> Int64s | None:
        """Hashes of the keys that lie apart where rows are spread so."""
        if spread.split is None:
            return None
        since = self.heavy.get(query, {}).get(spread.split.step, ())
        return hashes(since) if since else None

    @property
    def parts(self) -> Standing:
        """The standing part."""
        return _standing(self.store.place, self.standing)


def frontier(streams: Mapping[str, StreamDef], marks: Mapping[str, int], idle: frozenset[str], previous: int) -> int:
    """How far all streams are complete: each up to its greatest time less its slack, and time never goes back."""
    awake = [s for s in streams if s not in idle]
    if any(marks.get(s, BEGINNING) == BEGINNING for s in awake):
        return previous
    bounds = [marks[s] - streams[s].slack - 1 for s in awake]
    return max(previous, min(bounds)) if bounds else previous


_known: OrderedDict[tuple[str, str], Standing] = OrderedDict()


def _standing(home: Place, name: str) -> Standing:
    key = (home.uri, name)
    if key not in _known:
        found = pickle.loads(memoryview(home.read(name)))
        assert isinstance(found, Standing)
        _known[key] = found
        while len(_known) > 4:
            _known.popitem(last=False)
    return _known[key]
