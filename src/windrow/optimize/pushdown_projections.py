"""Projection push-down: carry only the columns that something above reads.

A column can go wherever rows are treated one by one. It must stay where whole rows are compared: DISTINCT, EXCEPT,
INTERSECT, the stream operators (whose consolidation compares whole rows), and `[ROWS n]` over a derived stream (whose
order within an instant is the order of the values).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from windrow.optimize.rule import RuleContext, keep, with_root
from windrow.plan.nodes import (
    Aggregate,
    Analytic,
    AsofJoin,
    Call,
    Emit,
    Equality,
    Filter,
    Holistic,
    Join,
    LeftJoin,
    Node,
    Project,
    Quantise,
    QueryPlan,
    Scan,
    Semi,
    Session,
    StarJoin,
    StreamOp,
    TableScan,
    TopN,
    Union,
    Unnest,
    Window,
    WindowBounds,
    WindowKind,
)

Names = frozenset[str]


def pushdown_projections(plan: QueryPlan, context: RuleContext) -> QueryPlan:
    """Drop columns, computed outputs, aggregates and user calls that nobody reads.

    >>> from windrow.plan.words import sketch
    >>> s = Scan("s", "s", (("s.a", "a", pa.int64()), ("s.b", "b", pa.int64())), "ts")
    >>> sketch(prune(s, frozenset({"s.b"})))
    'scan[s (b)]'
    """
    return with_root(plan, prune(plan.root, frozenset(c for _, c in plan.output)))


def prune(node: Node, needed: Names) -> Node:
    """The node with at least the `needed` of its columns, and as few others as it can."""
    match node:
        case Scan(columns=columns):
            kept = pick(node.schema, needed)
            return _same(node, replace(node, columns=tuple(c for c in columns if c[0] in kept)))
        case TableScan(columns=columns):
            kept = pick(node.schema, needed | frozenset(node.valid or ()))
            return _same(node, replace(node, columns=tuple(c for c in columns if c[0] in kept)))
        case Filter(predicate=predicate):
            return _over(node, prune(node.input, needed | predicate.columns))
        case Quantise():
            return _over(node, prune(node.input, needed))
        case TopN(partition=partition, order=order, ties=ties):
            read = frozenset((*partition, *(k.column for k in order), *ties))
            kept_rank = node if node.output in needed else replace(node, output=None)
            return _over(kept_rank, prune(node.input, (needed & all_of(node.input)) | read))
        case Holistic(keys=keys, calls=calls):
            held = tuple(c for c in calls if c.output in needed) or calls[:1]
            inner = frozenset(keys).union(*(c.call.columns for c in held))
            return _over(replace(node, calls=held), prune(node.input, inner))
        case Analytic(partition=partition, calls=calls):
            wanted = tuple(c for c in calls if c.output in needed)
            if not wanted:
                return prune(node.input, needed)
            read = frozenset(partition).union(*(c.columns for c in wanted))
            below = prune(node.input, (needed & all_of(node.input)) | read)
            return _over(replace(node, calls=wanted), below)
        case Session(keys=keys):
            return _over(node, prune(node.input, needed | frozenset(keys)))
        case WindowBounds(bounds=bounds):
            shown = tuple(b for b in bounds if b[0] in needed)
            if not shown:
                return prune(node.input, needed)
            below = prune(node.input, needed - frozenset(name for name, _ in shown))
            return _same(node, replace(node, input=below, bounds=shown))
        case Project(outputs=outputs):
            kept = pick(node.schema, needed)
            outputs = tuple((n, e) for n, e in outputs if n in kept)
            read = frozenset(c for _, e in outputs for c in e.columns)
            return _same(node, Project(prune(node.input, read), outputs))
        case Call(output=output, arguments=arguments):
            if output not in needed:
                return prune(node.input, needed)
            return _over(node, prune(node.input, (needed - {output}) | frozenset(arguments)))
        case Unnest(lists=lists):  # all of them count: the longest says how many rows there are
            made = frozenset(output for output, _, _ in lists)
            return _over(node, prune(node.input, (needed - made) | frozenset(column for _, column, _ in lists)))
        case Window(spec=spec, derived=derived):
            whole = derived and spec.kind is WindowKind.ROWS
            return _over(node, prune(node.input, all_of(node.input) if whole else needed | frozenset(spec.partition)))
        case Aggregate():
            return _prune_aggregate(node, needed)
        case Join() | Semi() | LeftJoin():
            return _prune_join(node, needed)
        case AsofJoin(times=times, derived=derived):
            read = needed | _columns(node.equalities) | frozenset(times)
            # right rows that tie may be ordered by all their columns
            right = prune(node.right, all_of(node.right)) if derived else _narrow(node.right, read)
            return _over(node, _narrow(node.left, read), right)
        case StarJoin():
            # which rows are shed depends on keys, importance and time alone
            weights = frozenset(c for c in node.importance if c is not None)
            return _prune_join(node, needed | weights | frozenset(node.valid or ()))
        case Union(parts=parts):
            names = pick(node.schema, needed)
            return _over(node, *(keep(prune(p, frozenset(names)), names) for p in parts))
        case Emit(op=op, period=period) if op is StreamOp.RELATION or (op is StreamOp.RSTREAM and period is not None):
            return _over(node, _narrow(node.input, needed))
    return _over(node, *(prune(i, all_of(i)) for i in node.inputs))


def _prune_aggregate(node: Aggregate, needed: Names) -> Node:
    calls = tuple(c for c in node.calls if c.output in needed)
    if not calls and not node.keys:
        calls = node.calls[:1]
    below = frozenset(node.keys) | frozenset(c.column for c in calls if c.column is not None)
    return _same(node, Aggregate(_narrow(node.input, below), node.keys, calls, node.grid))


def _prune_join(node: Join | Semi | LeftJoin | StarJoin, needed: Names) -> Node:
    read = needed | _columns(node.equalities) | frozenset(c for r in node.residual for c in r.columns)
    return _over(node, *(_narrow(i, read) for i in node.inputs))


def _columns(equalities: Iterable[Equality]) -> Names:
    return frozenset(c for e in equalities for c in (e.left, e.right))


def _narrow(node: Node, needed: Names) -> Node:
    """Exactly the needed columns of an input that will be stored."""
    below = prune(node, needed)
    return keep(below, pick(below.schema, needed))


def pick(types: Mapping[str, pa.DataType], needed: Names) -> tuple[str, ...]:
    """The needed columns in their order; one cheap column if none is, for rows must still be counted."""
    names = tuple(n for n in types if n in needed)
    if names or not types:
        return names
    return (min(types, key=lambda n: _width(types[n])),)


def _width(t: pa.DataType) -> int:
    try:
        return t.bit_width
    except ValueError:
        return 1 << 20


def all_of(node: Node) -> Names:
    """All columns of a node."""
    return frozenset(node.schema)


def _same(old: Node, new: Node) -> Node:
    return old if old == new else new


def _over(node: Node, *inputs: Node) -> Node:
    return node if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) else node.with_inputs(*inputs)
