"""What a tick tells its tasks, in two parts: what changes with every tick, and what changes only with the catalog.

The deployment (streams, plans, user functions) is the same object from tick to tick until it changes, so that a job
which runs elsewhere ships it once. The rest (marks, clocks, versions of tables, references of runs) is small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.operators.aggregate import GroupedAggregate
from windrow.operators.aggregates.reduced import Reduction
from windrow.operators.elements import BEGINNING, Int64s
from windrow.operators.protocol import Operator
from windrow.operators.query_aggregate import QueryAggregate
from windrow.operators.row_limit import MOST_ROWS
from windrow.plan.lower import Tuning, lower, lower_archived, lower_kept
from windrow.plan.nodes import QueryPlan, Scan
from windrow.plan.steps import Dataflow
from windrow.plan.weights import gate_of
from windrow.runtime.admission import Quotas
from windrow.runtime.deadline_program import DeadlineProgram
from windrow.runtime.family_programs import FamilyProgram, JoinProgram
from windrow.runtime.heavy_keys import Since, hashes
from windrow.runtime.join_choices import Chosen
from windrow.runtime.messages import RunsBySlot, StreamMark
from windrow.runtime.partitioning import place
from windrow.runtime.placement import Exchange, Partitioning, Placement
from windrow.runtime.pruning import RowBox, row_boxes
from windrow.runtime.table_versions import Versions
from windrow.runtime.wanted_rows import wanted_rows
from windrow.sharing.conditions import EVERYTHING, Condition
from windrow.store.runs import RunPlace

MEASURING = Tuning(measures=True, aggregation="auto")
"""Joins measure; the driver, who sees all partitions, chooses (`join_choices`)."""

Functions = Mapping[str, Callable[..., object]]


_DERIVED = ("layout", "streams", "tables", "gate", "reads", "wants")


@dataclass(frozen=True)
class QueryProgram:
    """A query as a task sees it; `uid` tells it from others that had its name.

    `retain`: not a query of the user's but the history of a stream, kept so long. `materialized`: a relation's present
    rows are kept. `archived`: its answers are rows with their lifetimes, for an archive. `parted`: they are the answers
    of several queries. `most_rows`: that an answer may have at one time. `expire_us`: how often joins let go of
    rows that have ended, microseconds or millionths of a tick.
    """

    uid: str
    plan: QueryPlan
    strategy: str
    functions: Functions
    retain: int | None = None
    materialized: bool = False
    archived: bool = False
    parted: bool = False
    most_rows: int = MOST_ROWS
    expire_us: int | None = None

    def flow(self) -> Dataflow:
        """The operators, new."""
        if self.retain is not None:
            return lower_kept(self.plan, self.retain)
        tuning = replace(MEASURING, most_rows=self.most_rows, expire_us=self.expire_us)
        if self.archived:
            return lower_archived(self.plan, self.functions, tuning)
        return lower(self.plan, self.functions, self.strategy, self.materialized, tuning)

    @cached_property
    def layout(self) -> ProgramLayout:
        """The dataflow, to be looked at and to run its stateless steps, and where its steps run."""
        flow = self.flow()
        return ProgramLayout(flow, place(flow))

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """The columns of the answer's elements."""
        return dict(self.plan.root.schema)

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams read."""
        return frozenset(s.lower() for s in self.plan.streams)

    @cached_property
    def reads(self) -> frozenset[tuple[str, str]]:
        """(stream, column) of every column that the scans read."""
        scans = [s.node for s in self.layout.flow.steps if s.operator is None and isinstance(s.node, Scan)]
        return frozenset((scan.stream.lower(), column) for scan in scans for _, column, _ in scan.columns)

    @cached_property
    def wants(self) -> dict[str, tuple[Condition, ...]]:
        """By stream: where its rows concern this query."""
        return wanted_rows(self.plan)

    @cached_property
    def gate(self) -> str | None:
        """The gate its rows must pass, if it may be shed."""
        return gate_of(self.plan)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables read."""
        return tuple(t.lower() for t in self.plan.tables)

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k not in _DERIVED}


@dataclass(frozen=True)
class ProgramLayout:
    """A dataflow, its placement, and its exchanges in an order that every task agrees on."""

    flow: Dataflow
    placement: Placement

    @cached_property
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(dict.fromkeys(self.placement.reads.values()))

    @cached_property
    def reductions(self) -> dict[int, Reduction]:
        """By number of the exchange: how rows that only an aggregate reads may be reduced before they travel."""
        readers: dict[int, list[Operator | None]] = {}
        for (step, _), number in self.reads.items():
            readers.setdefault(number, []).append(self.flow.steps[step].operator)
        return {
            number: only.reduction
            for number, (only, *others) in readers.items()
            if isinstance(only, GroupedAggregate | QueryAggregate) and not others and not self.exchanges[number].keep
        }

    @cached_property
    def reads(self) -> dict[tuple[int, int], int]:
        """For each (step, port) that reads through an exchange, its number."""
        number = {exchange: i for i, exchange in enumerate(self.exchanges)}
        return {port: number[exchange] for port, exchange in self.placement.reads.items()}

    @cached_property
    def _running(self) -> dict[tuple[int, int], tuple[int, ...]]:
        return {}

    def running(self, stage: int, partition: int) -> tuple[int, ...]:
        """The steps that are computed in a stage of a partition."""
        known = self._running.get((stage, partition))
        if known is None:
            steps = range(len(self.flow.steps))
            known = tuple(i for i in steps if self.placement.runs(i, stage, partition))
            self._running[stage, partition] = known
        return known

    @cached_property
    def last_stage(self) -> int:
        return self.placement.last_stage


@dataclass(frozen=True)
class Deployment:
    """What runs: the part of a program that changes with the catalog only."""

    streams: Mapping[str, StreamDef] = field(default_factory=dict)
    queries: Mapping[str, QueryProgram] = field(default_factory=dict)
    families: Mapping[str, FamilyProgram] = field(default_factory=dict)  # queries that share
    joins: Mapping[str, JoinProgram] = field(default_factory=dict)  # queries that share a join of streams
    functions: Functions = field(default_factory=dict)

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...] | None]:
        """By stream: the columns that somebody reads, its time among them; None: all."""
        wanted = {pair for pairs in self._readers for pair in pairs}
        # what a gate keeps depends on whole rows
        gated = {s for q in self.queries.values() if q.gate is not None for s in q.streams}
        found: dict[str, tuple[str, ...] | None] = {}
        for name, stream in self.streams.items():
            read = tuple(c for c in stream.columns if c == stream.time or (name, c.lower()) in wanted)
            found[name] = None if name in gated or len(read) == len(stream.columns) else read
        return found

    @cached_property
    def shown(self) -> dict[str, pa.Schema]:
        """By stream: the columns that somebody reads, with their types."""
        return {
            name: pa.schema([(c, stream.columns[c]) for c in self.reads[name] or stream.columns])
            for name, stream in self.streams.items()
        }

    @cached_property
    def wants(self) -> dict[str, tuple[RowBox, ...]]:
        """By stream: boxes of values outside which a row concerns nobody; streams of which every row may are left out.

        Gates see all rows, and a history keeps them all.
        """
        found: dict[str, list[Condition]] = {}
        for query in self.queries.values():
            whole = query.gate is not None or query.retain is not None
            for stream in query.streams:
                found.setdefault(stream, []).extend((EVERYTHING,) if whole else query.wants.get(stream, (EVERYTHING,)))
        for family in self.families.values():
            found.setdefault(family.source.stream, []).extend(family.wants)
        for join in self.joins.values():
            for stream in join.source.streams:
                found.setdefault(stream, []).extend(join.wants.get(stream, (EVERYTHING,)))
        boxes = {s: row_boxes(found.get(s, ()), stream.columns) for s, stream in self.streams.items()}
        return {s: of for s, of in boxes.items() if of is not None}

    @cached_property
    def unread(self) -> frozenset[str]:
        """Streams that hold time, and that nobody reads."""
        read = {s for q in self.queries.values() for s in q.streams}
        read |= {f.source.stream for f in self.families.values()}
        read |= {s for j in self.joins.values() for s in j.source.streams}
        return frozenset(self.streams.keys() - read)

    @property
    def _readers(self) -> Iterator[Iterable[tuple[str, str]]]:
        """(stream, column) in lower case, of everybody who reads rows as they come."""
        for query in self.queries.values():
            yield ((stream, column.lower()) for stream, column in query.reads)
        for family in self.families.values():
            yield (tuple(c.lower().split(".", 1)) for c in family.columns)  # type: ignore[misc]
        for join in self.joins.values():
            for side, stream in enumerate(join.source.streams):
                yield ((stream, c.lower()) for c in join.reads(side))


@dataclass(frozen=True)
class Program:
    """A tick: everything that tasks need to know."""

    store: RunPlace
    deployment: Deployment
    tick: int
    partitions: int
    marks: Mapping[str, int]  # greatest time per stream before this tick
    idle: Mapping[str, int | None]  # how far time has come on streams that are silent; None: they do not say
    previous: int  # the last frontier
    until: int | None  # a frontier given from outside (replay)
    starts: Mapping[str, int]  # where clocks start
    firsts: Mapping[str, int]  # where clocks would start that have not been reached: the earliest row so far
    tables: Mapping[str, Versions]  # of each table, those that rows of this tick may meet
    ahead: Mapping[str, int] = field(default_factory=dict)  # by stream: rows beyond this instant are set aside
    fresh: frozenset[str] = frozenset()  # clocks of queries that share and have not had a tick
    runs: Mapping[tuple[str, int, int], RunsBySlot] = field(default_factory=dict)  # by (query, stage, partition)
    generations: Mapping[tuple[int, int], str] = field(
        default_factory=dict
    )  # (stage, partition) -> the accepted attempt
    quotas: Quotas = field(default_factory=dict)  # what a task may keep of a stream, where there is too much
    choices: Chosen = field(default_factory=dict)  # what joins are to follow
    heavy: Mapping[str, Mapping[int, Since]] = field(default_factory=dict)  # heavy keys, by query and step
    seen: tuple[StreamMark, ...] = ()  # of streams that nobody reads, known without reading
    deadlines: DeadlineProgram | None = None  # queries whose periods are deadlines, in a live engine
    answer_bound: int = 1 << 62  # bytes of a query's answer from which on a task keeps it in files
    in_one: bool = False  # small, so that the job does it in one place
    direct: bool = False  # all tasks run in one process, one partition: rows need not be reduced before they travel
    most_rows: int = MOST_ROWS  # that an answer may have at one time
    stopwatch: Callable[[], float] = time.perf_counter  # by which tasks say how long they took

    @property
    def state_bytes(self) -> int:
        """Of all runs of tasks."""
        return sum(ref.bytes for slots in self.runs.values() for refs in slots.values() for ref in refs)

    def heavy_keys(self, query: str, partitioning: Partitioning) -> Int64s | None:
        """Hashes of the keys that lie apart where rows are partitioned so."""
        if partitioning.split is None:
            return None
        since = self.heavy.get(query, {}).get(partitioning.split.step, ())
        return hashes(since) if since else None


def frontier(
    streams: Mapping[str, StreamDef], marks: Mapping[str, int], idle: Mapping[str, int | None], previous: int
) -> int:
    """How far all streams are complete: each up to its greatest time less its slack, and time never goes back.

    A silent stream is complete as far as the clock on the wall says (`idle`), or does not hold the others back.
    """
    bounds = []
    for name, stream in streams.items():
        silent = idle.get(name)
        if name in idle and silent is None:
            continue
        mark = max(marks.get(name, BEGINNING), BEGINNING if silent is None else silent)
        if mark == BEGINNING:
            return previous
        bounds.append(mark - stream.slack - 1)
    return max(previous, min(bounds)) if bounds else previous


def holding(streams: Mapping[str, StreamDef], marks: Mapping[str, int], idle: Mapping[str, int | None]) -> list[str]:
    """The streams that hold time back while others are further: those without a row, else the one that is least far."""
    if not any(name in marks for name in streams):
        return []
    waiting = [s.name for name, s in streams.items() if name not in marks and name not in idle]
    if waiting:
        return waiting
    reached = {
        s.name: max(marks[name], idle.get(name) or BEGINNING) - s.slack
        for name, s in streams.items()
        if name in marks and not (name in idle and idle[name] is None)
    }
    least = min(reached.values(), default=0)
    return [name for name, at in reached.items() if at == least] if any(at > least for at in reached.values()) else []
