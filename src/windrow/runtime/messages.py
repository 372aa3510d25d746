"""What the tasks of a tick tell each other and the driver: one type for each kind of message.

    stage 0 ── ExchangedRows, StreamMark, HistoryStart, SharedRows | FamilyPartials, PartialCounts, JoinRows ──► stage 1
    stage 1 ── ExchangedRows, Clocks, JoinSums ──► stage 2 ...
    any stage ── Answer, WrittenAnswer, SharedAnswer, LateRows, SetAside, StreamFailed, Shed, QueryFailed, TaskReport
                                                                                                           ──► driver

An envelope says which partition a message is for and which task sent it. Messages for the driver pass through later
stages untouched. In process they are handed over as they are; between processes they travel as `wire` encodes them. A
shuffle delivers in any order; `sender` numbers the sending tasks, so receivers put the parts of an edge in the order of
arrival at the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from windrow.errors import WindrowError
from windrow.operators.elements import Elements, Int64s
from windrow.runtime.admission import Admission
from windrow.runtime.heavy_keys import KeyCounts
from windrow.runtime.join_choices import JoinMeasurement
from windrow.sharing.family import Counters
from windrow.sharing.member import Spent
from windrow.sharing.query_group import Batch
from windrow.store.runs import RunRef

RunsBySlot = Mapping[str, tuple[RunRef, ...]]


@dataclass(frozen=True, slots=True)
class ExchangedRows:
    """Elements for an operator of a later stage, through one exchange of a query.

    `were`: of elements that may have been reduced, how many they were before, told with one part of them.
    """

    stage: int
    exchange: int
    query: str
    elements: Elements
    were: int | None = None


@dataclass(frozen=True, slots=True)
class StreamMark:
    """What a task saw of a stream: least and greatest time of its rows, how many there were, and how many were set
    aside as late or as too far ahead."""

    stream: str
    low: int | None
    high: int | None
    rows: int
    late: int


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """The least time of the history given to a new query, or to the new queries of a family."""

    owner: str
    ts: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """The frontier of the tick and where clocks start: what stage 1 found, for the stages behind it."""

    frontier: int
    starts: Mapping[str, int]
    marks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows for a family whose only partition is here: they need not be reduced before they travel."""

    family: str
    ts: Int64s
    columns: Mapping[str, pa.Array]
    members: frozenset[str] | None  # history, for these alone


@dataclass(frozen=True, slots=True)
class FamilyPartials:
    """Partial aggregates of a family's rows, for one slot of its state."""

    family: str
    slot: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class PartialCounts:
    """How many rows were reduced to how many partials."""

    family: str
    rows: int
    lifted: int
    partials: int


@dataclass(frozen=True, slots=True)
class JoinRows:
    """Rows of one side of a shared join, with their times in `_ts`, and the epoch in which they came."""

    family: str
    side: int
    epoch: int
    table: pa.Table


@dataclass(frozen=True, slots=True)
class JoinSums:
    """Sums of the windows of a shared join that are due, by the number of their grouping."""

    family: str
    grouping: int
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Answer:
    """Elements of a query's last operator."""

    query: str
    elements: Elements


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """Where a task has written what it answers for a query (`kept_answers`)."""

    query: str
    refs: tuple[RunRef, ...]


@dataclass(frozen=True, slots=True)
class SharedAnswer:
    """Answers of many queries of one family."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows of a stream that came too late, or from too far ahead."""

    stream: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class SetAside:
    """Rows of a stream that cannot be read as declared, for its quarantine."""

    stream: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """Why a stream cannot be read; nothing of the tick counts."""

    stream: str
    error: WindrowError


@dataclass(frozen=True, slots=True)
class Shed:
    """What a task let in of a stream behind a tick budget."""

    admission: Admission


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """Why a query cannot go on; `member`: of a shared plan, this one only."""

    query: str
    error: WindrowError
    member: int | None = None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task did: the clocks it found, the runs it wrote, and figures."""

    stage: int
    partition: int
    generation: str
    clocks: Clocks
    runs: Mapping[str, RunsBySlot]  # by query or family
    counters: Mapping[str, int]
    firsts: Mapping[str, int] = field(default_factory=dict)  # the least new time of each stream
    shared: Mapping[str, Counters] = field(default_factory=dict)
    measured: Mapping[tuple[str, int], JoinMeasurement] = field(default_factory=dict)
    counted: Mapping[tuple[str, int], KeyCounts] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, Spent] = field(default_factory=dict)  # what queries with deadlines took, by `cost_group`


ForTasks = (
    ExchangedRows
    | StreamMark
    | HistoryStart
    | Clocks
    | SharedRows
    | FamilyPartials
    | PartialCounts
    | JoinRows
    | JoinSums
)
ForDriver = Answer | WrittenAnswer | SharedAnswer | LateRows | SetAside | StreamFailed | Shed | QueryFailed | TaskReport
Message = ForTasks | ForDriver


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message, the partition it is for, and the number of the task that sent it."""

    to: int
    sender: int
    message: Message
