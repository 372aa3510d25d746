"""A whole query: how its relation leaves as a stream, and how its answer is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.operators.terms import Router
from windrow.plan.expr import Expr
from windrow.plan.nodes.node import Unary
from windrow.plan.nodes.walks import walk
from windrow.plan.nodes.windows import Scan, TableScan
from windrow.plan.strategies import Strategy

if TYPE_CHECKING:
    from windrow.plan.parametric import MadeOf


@dataclass(frozen=True)
class TickBudget:
    """SHED WHEN TICK OVER: when ticks take longer than `us`, rows are shed before they are processed.

    `us` None: the engine's budget, if it has one. `importance`: for each stream that has one, an expression over the
    stream's own columns; rows of the others are shed uniformly.
    """

    us: int | None
    importance: tuple[tuple[str, Expr], ...] = ()


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

    Its change log is consolidated before, and `op` says what of it the queries show. `own`: the columns that all of
    them show, if some show fewer than others: what differs in the rest cancels behind the log only."""

    router: Router
    keep: tuple[str, ...]
    op: StreamOp
    own: tuple[str, ...] | None = None


@dataclass(frozen=True)
class QueryPlan:
    """A registered query: its tree (rooted at an Emit) and how its answer is shown.

    `output`: (shown name, internal column) in SELECT order. `has_op`: the answer is a change log.
    `time_type`: the type of `_ts`. `keep`: how long its answers last on disk, in units of its clock.
    `made`: the shape it was made of, with its constants, if others differ from it in constants only.
    `parting`: it is the plan of several queries, told apart at the end.
    `over`: the views and queries that its text reads, those that these read included; `calls`: functions in SQL.
    `by_key`: its results are kept by key, not by calendar: windows announce every end by a negative element.
    `rules`: the names of the rules of the optimizer that changed it, in order.
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
    over: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    by_key: bool = False
    rules: tuple[str, ...] = field(default=(), compare=False)

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

    def run_by(self, strategy: str) -> Strategy:
        """The strategy that runs it, given the one that was asked for."""
        asked = Strategy(strategy)
        return Strategy.NEGATIVE if self.by_key and asked.by_pattern else asked

    def same_answer(self, other: QueryPlan) -> bool:
        """Whether two plans are one but for their texts and for how long their answers last."""
        ours, theirs = ((p.root, p.output, p.time_type, p.budget) for p in (self, other))
        return ours == theirs

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams read, once each."""
        return tuple(dict.fromkeys(n.stream for n in walk(self.root) if isinstance(n, Scan)))

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables read, once each."""
        return tuple(dict.fromkeys(n.table for n in walk(self.root) if isinstance(n, TableScan)))
