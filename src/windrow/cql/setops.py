"""UNION, EXCEPT and INTERSECT over blocks.

Both sides are projected to the same internal names and common types. The ALL forms are nodes of the
algebra; the others are built from them: UNION is DISTINCT of UNION ALL, EXCEPT and INTERSECT are
null-safe (anti-)semi-joins of the distinct left side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.emission import Block, Output, emit, settled
from windrow.cql.pipeline import extend
from windrow.cql.scope import span_of
from windrow.cql.shapes import BlockShape, merges_streams, shape_of
from windrow.errors import BindingError, Span, UnsupportedError
from windrow.plan.expr import Expr, column
from windrow.plan.nodes import (
    Append,
    Difference,
    Distinct,
    Equality,
    Intersection,
    Node,
    Project,
    Semi,
    StreamOp,
    Union,
    Window,
)

if TYPE_CHECKING:
    from windrow.cql.select import Binder


def combine(tree: exp.SetOperation, shape: BlockShape, binder: Binder) -> Block:
    """Bind a set operation; its branches share one shape, unless they are streams of their own."""
    if tree.args.get("side") or tree.args.get("kind") or tree.args.get("on"):
        raise UnsupportedError(
            "CORRESPONDING or a side in a set operation",
            hint="write UNION ALL BY NAME, or list the columns in order",
            span=_span(tree, binder),
        )
    merge = isinstance(tree, exp.Union) and not tree.args.get("distinct")
    if (shape.append or shape.mixed) and not merge:
        raise binder.not_internal(tree.key.upper(), _span(tree, binder))
    apart = merges_streams(tree, binder)
    shapes = [shape_of(b, binder) if apart else shape for b in (tree.this, tree.expression)]
    left, right = _branch(tree.this, shapes[0], binder), _branch(tree.expression, shapes[1], binder)
    if tree.args.get("by_name"):
        left, right = _by_name(left, right, binder)
    if left.op is not None or right.op is not None:
        left, right = _streams(tree, left, right, merge, binder)
    _check_width(tree, left, right, binder)
    if left.ends is None or right.ends is None:
        return _apply(tree, left, right, merge, binder)
    # rows of sessions are compared with those that are seen at the same instant
    whole = _apply(tree, _with_ends(left, binder), _with_ends(right, binder), merge, binder)
    return replace(whole, outputs=whole.outputs[:-1], ends=whole.outputs[-1].column)


def _by_name(left: Block, right: Block, binder: Binder) -> tuple[Block, Block]:
    """Both sides with the columns of either, by their names: a null where one does not have it."""
    names = {o.name.lower(): o for o in (*right.outputs, *left.outputs)}
    order = list(dict.fromkeys(o.name.lower() for o in (*left.outputs, *right.outputs)))
    return _aligned(left, order, names, binder), _aligned(right, order, names, binder)


def _aligned(block: Block, order: list[str], names: dict[str, Output], binder: Binder) -> Block:
    own = {o.name.lower(): o for o in block.outputs}
    missing = {n: names[n] for n in order if n not in own}
    added = {}
    for name, output in missing.items():
        column_ = binder.context.fresh(output.name, output.type)
        added[column_] = Expr((f"CAST(NULL AS {types.sql_name(output.type)})",), output.type)
        own[name] = replace(output, column=column_, also=None)
    node = extend(block.node, added) if added else block.node
    return replace(block, node=node, outputs=tuple(own[n] for n in order))


def _with_ends(block: Block, binder: Binder) -> Block:
    assert block.ends is not None
    shown = replace(block.outputs[0], name="ends", column=block.ends, type=binder.context.types[block.ends], also=None)
    return replace(block, outputs=(*block.outputs, shown))


def _branch(tree: exp.Expr, shape: BlockShape, binder: Binder) -> Block:
    """Bind a branch; where only some branches are INTERNAL throughout, those are kept for ever by themselves."""
    if not shape.mixed:
        return settled(binder.block(tree, shape), binder)
    block = binder.block(tree, shape_of(tree, binder).within(shape))
    node = Append(block.node) if block.shape.append and block.op is None else block.node
    return replace(block, node=node, shape=replace(shape, mixed=False))


def _streams(tree: exp.SetOperation, left: Block, right: Block, merge: bool, binder: Binder) -> tuple[Block, Block]:
    """Branches with stream operators: only UNION ALL merges streams; each leaves by its own operator."""
    if not merge or left.op is None or right.op is None:
        raise UnsupportedError(
            "stream operators in the branches of a set operation",
            hint="write SELECT ISTREAM(*) FROM (SELECT ... EXCEPT ALL SELECT ...)",
            span=left.span if left.op is not None else right.span,
        )
    return _as_window(left), _as_window(right)


def _as_window(block: Block) -> Block:
    """A block's stream as the append-only relation whose ISTREAM it is."""
    if isinstance(block.node, Union) and block.op is StreamOp.ISTREAM and block.shape == BlockShape():
        return block
    stream = emit(block)
    return replace(block, node=Window(stream, derived=True), op=StreamOp.ISTREAM, shape=BlockShape())


def _check_width(tree: exp.SetOperation, left: Block, right: Block, binder: Binder) -> None:
    if len(left.outputs) != len(right.outputs):
        raise BindingError(
            f"{tree.key.upper()} of {len(left.outputs)} and {len(right.outputs)} columns",
            hint="select the same number of columns on both sides",
            span=_span(tree.expression, binder),
        )


def _apply(tree: exp.SetOperation, left: Block, right: Block, merge: bool, binder: Binder) -> Block:
    pairs = []
    for a, b in zip(left.outputs, right.outputs, strict=True):
        try:
            pairs.append(types.common_type(a.type, b.type))
        except types.DuckDBRefusal:
            raise BindingError(
                "type mismatch",
                detail=f'column "{a.name}" meets {types.sql_name(a.type)} with {types.sql_name(b.type)}',
                hint="CAST one side to the type that is meant",
                span=_span(tree.expression, binder),
            ) from None
    names = [binder.context.fresh(o.name, t) for o, t in zip(left.outputs, pairs, strict=True)]
    for name, *sides in zip(names, left.outputs, right.outputs, strict=True):
        binder.context.merged(name, *(s.column for s in sides))
    one = _project(left, names, pairs)
    outputs = tuple(replace(o, column=n, type=t) for o, n, t in zip(left.outputs, names, pairs, strict=True))
    distinct = tree.args.get("distinct")
    node: Node
    if isinstance(tree, exp.Union):
        node = Union((one, _project(right, names, pairs)))
        node = node if merge else Distinct(node)
    elif not distinct:
        kind = Difference if isinstance(tree, exp.Except) else Intersection
        node = kind(one, _project(right, names, pairs))
    else:
        others = [binder.context.fresh(o.name, t) for o, t in zip(right.outputs, pairs, strict=True)]
        equalities = tuple(Equality(a, b, null_safe=True) for a, b in zip(names, others, strict=True))
        node = Semi(Distinct(one), _project(right, others, pairs), equalities, anti=isinstance(tree, exp.Except))
    return replace(left, node=node, outputs=outputs)


def _project(block: Block, names: list[str], kinds: list[pa.DataType]) -> Node:
    outputs = []
    for output, name, type_ in zip(block.outputs, names, kinds, strict=True):
        value = column(output.column, output.type)
        if output.type != type_:
            value = Expr(("CAST(", *value.parts, f" AS {types.sql_name(type_)})"), type_)
        outputs.append((name, value))
    return Project(block.node, tuple(outputs))


def _span(tree: exp.Expr, binder: Binder) -> Span | None:
    return span_of(tree, binder.context.source)
