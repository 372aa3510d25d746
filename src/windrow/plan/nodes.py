"""The algebra: small frozen nodes, checked when built, so an invalid tree cannot exist.

A node's `schema` maps internal column names to Arrow types. Internal names are unique within a query
(`alias.column` for scanned columns). Adding an operator touches four places: a node here, its pattern
rule (`plan/patterns.py`), its lowering, and the operator itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.operators.terms import QUERY, QUERY_TYPE, Router, SortKey
from windrow.plan.expr import Expr

if TYPE_CHECKING:
    from windrow.plan.parametric import MadeOf

Schema = Mapping[str, pa.DataType]


class WindowKind(Enum):
    """How a window chooses the rows it holds."""

    RANGE = "range"  # rows with t - size < ts <= t
    ROWS = "rows"  # the newest `size` rows (of each partition)
    UNBOUNDED = "unbounded"  # all rows so far
    NOW = "now"  # rows of this instant
    SESSION = "session"  # rows of one session, when it ends


@dataclass(frozen=True)
class WindowSpec:
    """A window: `size` and `slide` in ticks of the clock (RANGE) or in rows (ROWS)."""

    kind: WindowKind
    size: int | None = None
    slide: int | None = None
    partition: tuple[str, ...] = ()  # internal column names
    internal: bool = False
    text: str = ""  # as the user wrote it, for EXPLAIN


@dataclass(frozen=True)
class Node:
    """A node of the plan; subclasses say what it means."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose output this one reads."""
        raise NotImplementedError

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """Internal column names and types of the output."""
        raise NotImplementedError

    def with_inputs(self, *inputs: Node) -> Node:
        """The same node over other inputs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Leaf(Node):
    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def with_inputs(self, *inputs: Node) -> Node:
        assert not inputs
        return self


@dataclass(frozen=True)
class Unary(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.input.schema

    def with_inputs(self, *inputs: Node) -> Node:
        (only,) = inputs
        return replace(self, input=only)


@dataclass(frozen=True)
class Scan(Leaf):
    """Rows of a stream as they arrive: append-only. Columns are named `alias.column`."""

    stream: str
    alias: str
    columns: tuple[tuple[str, str, pa.DataType], ...]  # (internal name, stream column, type)
    time: str  # the stream's time column (stream column name)

    @cached_property
    def _schema(self) -> dict[str, pa.DataType]:
        return {internal: type_ for internal, _, type_ in self.columns}

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self._schema


@dataclass(frozen=True)
class TableScan(Leaf):
    """Rows of a table. `valid` names the internal columns of its active interval `[from, to)`, if declared.

    The binder turns `valid` into predicates on the stream rows the table is linked to, so the operators
    see a plain input whose rows are always alive. A retroactive table's updates are signed elements.
    """

    table: str
    alias: str
    columns: tuple[tuple[str, str, pa.DataType], ...]
    retroactive: bool = False
    valid: tuple[str, str] | None = None

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {internal: type_ for internal, _, type_ in self.columns}


@dataclass(frozen=True)
class Window(Unary):
    """A window over an append-only input. `derived`: the input is a query's output stream, whose rows of
    one instant have no arrival order and are ordered by their values instead."""

    spec: WindowSpec = field(default_factory=lambda: WindowSpec(WindowKind.UNBOUNDED))
    derived: bool = False
    number: str | None = None  # a column in which a ROWS window tells the number of every row

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.input.schema if self.number is None else {**self.input.schema, self.number: pa.int64()}


@dataclass(frozen=True)
class Quantise(Unary):
    """Move both ends of every lifetime up to the next `k * period + offset`: what a periodic query sees.

    `before`: what is seen at an instant is what was there just before it, for TUMBLE and HOP hold `[end - size, end)`.
    """

    period: int = 1
    offset: int = 0
    before: bool = False


@dataclass(frozen=True)
class WindowBounds(Unary):
    """Each row once at every evaluation at which it is there, with instants of the window: `(name, back)` is the
    evaluation's time minus `back`."""

    period: int = 1
    offset: int = 0
    bounds: tuple[tuple[str, int], ...] = ()
    type: pa.DataType = field(default_factory=pa.int64)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, **{name: self.type for name, _ in self.bounds}}


@dataclass(frozen=True)
class Session(Unary):
    """Rows of a stream by session: those of one of `keys` that follow each other by less than `gap`.

    A row lives for one instant, the end of its session, whose bounds are the columns `start` and `end`.
    """

    keys: tuple[str, ...] = ()
    gap: int = 1
    start: str = ""
    end: str = ""
    type: pa.DataType = field(default_factory=pa.int64)
    text: str = ""  # as the user wrote it, for EXPLAIN

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, self.start: self.type, self.end: self.type}


@dataclass(frozen=True)
class Filter(Unary):
    """Keep rows for which `predicate` is true."""

    predicate: Expr = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Admit(Unary):
    """Keep rows that one of several queries wants."""

    router: Router = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Route(Unary):
    """Each row once for every query that wants it: the columns `keep`, and whose row it is (`operators/route.py`)."""

    router: Router = None  # type: ignore[assignment]
    keep: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        types = self.input.schema
        return {**{c: types[c] for c in self.keep}, QUERY: QUERY_TYPE}


@dataclass(frozen=True)
class Project(Unary):
    """Compute the output columns, each an expression over the input's."""

    outputs: tuple[tuple[str, Expr], ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {name: e.type for name, e in self.outputs}


@dataclass(frozen=True)
class Call(Unary):
    """Add one column: a user's vectorised function applied to columns of the input."""

    output: str = ""
    function: str = ""
    arguments: tuple[str, ...] = ()
    type: pa.DataType = field(default_factory=pa.null)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, self.output: self.type}


@dataclass(frozen=True)
class Unnest(Unary):
    """One row for each place of some lists, side by side; a list that has ended is null there.

    `lists`: (output, column of lists, type of the elements).
    """

    lists: tuple[tuple[str, str, pa.DataType], ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, **{output: type_ for output, _, type_ in self.lists}}


@dataclass(frozen=True)
class Equality:
    """`left = right` between columns of two inputs; `null_safe` also matches null with null."""

    left: str
    right: str
    null_safe: bool = False


@dataclass(frozen=True)
class Join(Node):
    """The n-way join: equalities between columns of different inputs, then residual predicates.

    `internal[i]`: input i's window bounds matching but not the result's lifetime. An input pair with no
    path of equalities between them is a product filtered by `residual`.
    """

    parts: tuple[Node, ...]
    equalities: tuple[Equality, ...] = ()
    residual: tuple[Expr, ...] = ()
    internal: tuple[bool, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {n: t for p in self.parts for n, t in p.schema.items()}

    def with_inputs(self, *inputs: Node) -> Node:
        return replace(self, parts=inputs)


@dataclass(frozen=True)
class Shedding:
    """How a join sheds rows when memory is short. `keep`: rows for each stream, or in all when `shared`."""

    heuristic: str  # a name of shedding.memory.HEURISTICS
    keep: tuple[int, ...]
    shared: bool = False
    alpha: float = 10.0
    beta: float = 1.0
    seed: int = 0
    text: str = ""  # as the user wrote it, for EXPLAIN


@dataclass(frozen=True)
class StarJoin(Node):
    """A join in bounded memory: streams meet through the rows of a fact table, or through equal keys.

    `parts`: the streams, then the fact table if there is one. `keys[i]`: the key columns of stream i; `facts[i]`: the
    table's columns that equal them (empty without a table, where the streams' keys equal each other). `importance[i]`:
    the column of stream i's importance, None for 1 each. No rule may move a filter through it: which rows are shed
    depends on the rows that come.
    """

    parts: tuple[Node, ...]
    keys: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[str, ...], ...]
    importance: tuple[str | None, ...]
    shedding: Shedding
    valid: tuple[str, str] | None = None
    residual: tuple[Expr, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {n: t for p in self.parts for n, t in p.schema.items()}

    def with_inputs(self, *inputs: Node) -> Node:
        return replace(self, parts=inputs)

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """What the exact join would equate."""
        if self.facts:
            return tuple(
                Equality(*p) for k, f in zip(self.keys, self.facts, strict=True) for p in zip(k, f, strict=True)
            )
        first = self.keys[0]
        return tuple(Equality(*p) for k in self.keys[1:] for p in zip(first, k, strict=True))


@dataclass(frozen=True)
class TickBudget:
    """SHED WHEN TICK OVER: when ticks take longer than `us`, rows are shed before they are processed.

    `us` None: the engine's budget, if it has one. `importance`: for each stream that has one, an expression over the
    stream's own columns; rows of the others are shed uniformly.
    """

    us: int | None
    importance: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True)
class Binary(Node):
    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.left.schema

    def with_inputs(self, *inputs: Node) -> Node:
        left, right = inputs
        return replace(self, left=left, right=right)


@dataclass(frozen=True)
class Semi(Binary):
    """EXISTS (or NOT EXISTS when `anti`): left rows that have (no) matching right row."""

    equalities: tuple[Equality, ...] = ()
    residual: tuple[Expr, ...] = ()
    anti: bool = False


@dataclass(frozen=True)
class LeftJoin(Binary):
    """Inner join results, and left rows without a match padded with nulls."""

    equalities: tuple[Equality, ...] = ()
    residual: tuple[Expr, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.left.schema, **self.right.schema}


@dataclass(frozen=True)
class TopN(Unary):
    """Rows whose rank within their partition is in `(offset, offset + limit]`; `output`: the rank as a column.

    `kind` is row_number, rank or dense_rank. Rows that tie in `order` are ordered by the values of `ties`.
    """

    partition: tuple[str, ...] = ()
    order: tuple[SortKey, ...] = ()
    ties: tuple[str, ...] = ()
    limit: int = 1
    offset: int = 0
    kind: str = "row_number"
    output: str | None = None

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.input.schema if self.output is None else {**self.input.schema, self.output: pa.int64()}


@dataclass(frozen=True)
class AnalyticCall:
    """One function OVER a partition, into `output`: `call` is its text, `frame` that of its frame or empty.

    `function` is its name. Rows that tie in `order` are ordered by the values of `ties`, if the function can tell.
    """

    output: str
    function: str
    call: Expr
    order: tuple[SortKey, ...] = ()
    ties: tuple[str, ...] = ()
    frame: str = ""

    @property
    def type(self) -> pa.DataType:
        return self.call.type

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        return self.call.columns | {k.column for k in self.order} | set(self.ties)


@dataclass(frozen=True)
class Analytic(Unary):
    """Every row with the values of functions over the rows that agree with it on `partition`."""

    partition: tuple[str, ...] = ()
    calls: tuple[AnalyticCall, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, **{c.output: c.type for c in self.calls}}


@dataclass(frozen=True)
class Distinct(Unary):
    """One copy of every distinct row."""


@dataclass(frozen=True)
class Union(Node):
    """The merge of inputs with equal schemas (same internal names)."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.parts[0].schema

    def with_inputs(self, *inputs: Node) -> Node:
        return replace(self, parts=inputs)


@dataclass(frozen=True)
class Difference(Binary):
    """EXCEPT ALL: bag difference of inputs with equal schemas."""


@dataclass(frozen=True)
class Intersection(Binary):
    """INTERSECT ALL: bag intersection of inputs with equal schemas."""


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate: `kind(column)` into `output`. `column` None is COUNT(*)."""

    kind: str  # count sum avg min max variance stddev var_pop stddev_pop median quantile top_k
    column: str | None
    output: str
    type: pa.DataType
    distinct: bool = False
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Aggregate(Unary):
    """GROUP BY `keys` (none: one row, even over nothing); keys and aggregate arguments are plain columns."""

    keys: tuple[str, ...] = ()
    calls: tuple[AggregateCall, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        types = self.input.schema
        return {**{k: types[k] for k in self.keys}, **{c.output: c.type for c in self.calls}}


@dataclass(frozen=True)
class HolisticCall:
    """One aggregate that needs all values of a group, into `output`: `call` is its text."""

    output: str
    call: Expr

    @property
    def type(self) -> pa.DataType:
        return self.call.type


@dataclass(frozen=True)
class Holistic(Unary):
    """GROUP BY `keys` with aggregates that are computed anew from a group's rows; nothing where there are no rows."""

    keys: tuple[str, ...] = ()
    calls: tuple[HolisticCall, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        types = self.input.schema
        return {**{k: types[k] for k in self.keys}, **{c.output: c.type for c in self.calls}}


@dataclass(frozen=True)
class Append(Unary):
    """INTERNAL: rows that appear in the input's relation, kept for ever."""


class StreamOp(Enum):
    """How a relation leaves as a stream."""

    RELATION = "relation"
    ISTREAM = "istream"
    DSTREAM = "dstream"
    RSTREAM = "rstream"
    ISTREAM_RESTORE = "istream_restore"
    RSTREAM_RESTORE = "rstream_restore"


@dataclass(frozen=True)
class Emit(Unary):
    """Turn a relation into a stream (append-only elements `[t, INF)`), or leave it a relation.

    `period`: evaluate at every `k * period + offset` only. For RESTORE the input is continuous; for the others it has
    been quantised below. `each`: send every row at the instant at which it begins, whatever was there before, because
    rows live for that instant only (sessions). `at_most`: the period is a deadline for a live engine."""

    op: StreamOp = StreamOp.RELATION
    period: int | None = None
    offset: int = 0
    each: bool = False
    at_most: bool = False


@dataclass(frozen=True)
class Parting:
    """Where the relation of several queries at once becomes the answers of each: see `Route`.

    Its change log is consolidated before, and `op` says what of it the queries show."""

    router: Router
    keep: tuple[str, ...]
    op: StreamOp


@dataclass(frozen=True)
class QueryPlan:
    """A registered query: its tree (rooted at an Emit) and how its answer is shown.

    `output`: (shown name, internal column) in SELECT order. `has_op`: the answer is a change log.
    `time_type`: the type of `_ts`. `keep`: how long its answers last on disk, in units of its clock.
    `made`: the shape it was made of, with its constants, if others differ from it in constants only.
    `parting`: it is the plan of several queries, told apart at the end.
    """

    name: str
    root: Emit
    output: tuple[tuple[str, str], ...]
    time_type: pa.DataType
    text: str = ""
    budget: TickBudget | None = None
    keep: int | None = None
    made: MadeOf | None = field(default=None, compare=False, repr=False)
    parting: Parting | None = None

    def __getattr__(self, name: str) -> Any:
        """The tree of a plan that was made of a shape, when somebody looks at it."""
        made = self.__dict__.get("made")
        if name != "root" or made is None:
            raise AttributeError(name)
        found = self.__dict__["root"] = made.shape.root(made.constants)
        return found

    def __getstate__(self) -> dict[str, object]:
        """All but what can be found again: the tree, if it can be made of the shape, or else the shape."""
        left_out = ("root" if self.made is not None else "made", "streams", "tables")
        return {k: v for k, v in self.__dict__.items() if k not in left_out}

    @property
    def emit(self) -> Emit:
        """The root, for what no constant changes (operator, period); its inputs may be those of the plan's shape."""
        return self.root if "root" in self.__dict__ or self.made is None else self.made.shape.plan.root

    @property
    def has_op(self) -> bool:
        return self.emit.op is StreamOp.RELATION

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams read, once each."""
        return tuple(dict.fromkeys(n.stream for n in walk(self.root) if isinstance(n, Scan)))

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables read, once each."""
        return tuple(dict.fromkeys(n.table for n in walk(self.root) if isinstance(n, TableScan)))


def routed_scans(node: Node, router: Router | None = None) -> Iterator[tuple[Scan, Router]]:
    """Every scan whose rows meet nothing before several queries choose among them, and how these choose."""
    match node:
        case Admit(router=mine) | Route(router=mine):
            yield from routed_scans(node.input, mine)
        case Scan() if router is not None:
            yield node, router
        case Project() | Filter():
            yield from routed_scans(node.input, router)
        case Window(spec=spec) if spec.kind is not WindowKind.ROWS:
            yield from routed_scans(node.input, router)
        case _:
            for child in node.inputs:
                yield from routed_scans(child)


def scanned(node: Node) -> Iterator[tuple[Scan, tuple[Expr, ...]]]:
    """Every scan below a node, with the predicates that its rows must satisfy before anything else sees them."""
    predicates: list[Expr] = []
    while isinstance(node, Filter):
        predicates.append(node.predicate)
        node = node.input
    if isinstance(node, Scan):
        yield node, tuple(predicates)
    for child in node.inputs:
        yield from scanned(child)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, inputs first."""
    for child in node.inputs:
        yield from walk(child)
    yield node
