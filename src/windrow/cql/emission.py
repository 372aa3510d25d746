"""A bound block, and how its answer leaves: as a relation, or as a stream by one of the stream operators.

Without an operator a periodic block is an RSTREAM and any other a relation; a block over sessions is seen at their
ends; one whose windows are all INTERNAL is appended to and never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql.bounds import is_bound, with_bounds
from windrow.cql.scope import span_of
from windrow.cql.shapes import RESTORE, BlockShape
from windrow.cql.source import ScriptText
from windrow.errors import BindingError, Span, UnsupportedError
from windrow.plan.expr import column
from windrow.plan.nodes import (
    Aggregate,
    Append,
    Emit,
    Join,
    Node,
    Project,
    Scan,
    Semi,
    Session,
    StreamOp,
    TableScan,
    Union,
    Window,
)

if TYPE_CHECKING:
    from windrow.cql.select import Binder


@dataclass(frozen=True)
class Output:
    """A column of an answer: the name shown and the internal one; `also` as in `ScopeColumn`."""

    name: str
    column: str
    type: pa.DataType
    also: str | None = None


@dataclass(frozen=True)
class Block:
    """A bound block before it becomes a stream: a relation, its columns, and how it leaves."""

    node: Node
    outputs: tuple[Output, ...]
    shape: BlockShape
    op: StreamOp | None = None
    written: tuple[exp.Expr, ScriptText] | None = None  # where it stands
    ends: str | None = None  # of sessions: the column with the instant at which rows are seen

    @property
    def span(self) -> Span | None:
        """Where it was written."""
        return None if self.written is None else span_of(*self.written)


def emit(block: Block) -> Emit:
    """How a block's answer leaves."""
    op, period = block.op, block.shape.period
    if block.shape.session:
        _check_ends(block)
        return Emit(block.node, StreamOp.RSTREAM, each=True)
    if op in RESTORE and period is None:
        raise BindingError(
            f"{op.name} needs a periodic query",
            hint="write a SLIDE in the window: [RANGE 1 MINUTE SLIDE 10 SECONDS]",
            span=block.span,
        )
    if op is None:
        op = StreamOp.RELATION if period is None else StreamOp.RSTREAM
    node = block.node
    if block.shape.append:
        node = Append(node)
    return Emit(node, op, period, block.shape.offset, at_most=block.shape.at_most)


def as_stream(block: Block) -> Emit | None:
    """A block as a stream; None when its answer is a relation."""
    if block.op is not None or block.shape.period is not None or block.shape.session:
        return emit(block)
    return Emit(Append(block.node), StreamOp.ISTREAM) if block.shape.append else None


def settled(block: Block, binder: Binder, rename: bool = True) -> Block:
    """The block with the bounds that it shows computed, under names of their own."""
    shown = [o for o in block.outputs if is_bound(o.column)]
    if not shown:
        return block
    node = with_bounds(block.node, {o.column for o in shown}, binder.grid(block.shape))
    if not rename:
        return replace(block, node=node)
    names = {o.column: binder.context.fresh(o.name, o.type) for o in shown}
    outputs = tuple(replace(o, column=names.get(o.column, o.column)) for o in block.outputs)
    back = {new: old for old, new in names.items()}
    columns = {o.column: column(back.get(o.column, o.column), o.type) for o in outputs}
    return replace(block, node=Project(node, tuple(columns.items())), outputs=outputs)


def _check_ends(block: Block) -> None:
    """Refuse a query over sessions whose rows may be there when none ends."""
    if not only_at_ends(block.node):
        raise UnsupportedError(
            "rows without a session in a query over SESSION",
            detail="the query is evaluated at the ends of sessions",
            hint="put SESSION on the left of an outer join, and into every branch of a set operation",
            span=block.span,
        )


def only_at_ends(node: Node) -> bool:
    """Whether rows are there only at instants at which a session ends."""
    match node:
        case Session():
            return True
        case Join(parts=parts):
            return any(map(only_at_ends, parts))
        case Semi(left=left, right=right, anti=anti):
            return only_at_ends(left) or (not anti and only_at_ends(right))
        case Aggregate(keys=keys):
            return bool(keys) and only_at_ends(node.input)
        case Union(parts=parts):
            return all(map(only_at_ends, parts))
        case Window() | Scan() | TableScan() | Append() | Emit():
            return False
    return bool(node.inputs) and only_at_ends(node.inputs[0])
