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
from windrow.plan import nodes as n

Names = frozenset[str]


def pushdown_projections(plan: n.QueryPlan, context: RuleContext) -> n.QueryPlan:
    """Drop columns, computed outputs, aggregates and user calls that nobody reads.

    >>> from windrow.plan.words import sketch
    >>> s = n.Scan("s", "s", (("s.a", "a", pa.int64()), ("s.b", "b", pa.int64())), "ts")
    >>> sketch(prune(s, frozenset({"s.b"})))
    'scan[s (b)]'
    """
    return with_root(plan, prune(plan.root, frozenset(c for _, c in plan.output)))


def prune(node: n.Node, needed: Names) -> n.Node:
    """The node with at least the `needed` of its columns, and as few others as it can."""
    match node:
        case n.Scan(columns=columns):
            kept = pick(node.schema, needed)
            return (
                node if len(kept) == len(columns) else replace(node, columns=tuple(c for c in columns if c[0] in kept))
            )
        case n.TableScan(columns=columns):
            kept = pick(node.schema, needed | frozenset(node.valid or ()))
            return _same(node, replace(node, columns=tuple(c for c in columns if c[0] in kept)))
        case n.Filter(predicate=predicate):
            return _over(node, prune(node.input, needed | predicate.columns))
        case n.Quantise():
            return _over(node, prune(node.input, needed))
        case n.TopN(partition=partition, order=order, ties=ties):
            read = frozenset((*partition, *(k.column for k in order), *ties))
            kept_rank = node if node.output in needed else replace(node, output=None)
            return _over(kept_rank, prune(node.input, (needed & all_of(node.input)) | read))
        case n.Holistic(keys=keys, calls=calls):
            held = tuple(c for c in calls if c.output in needed) or calls[:1]
            inner = frozenset(keys).union(*(c.call.columns for c in held))
            return _over(replace(node, calls=held), prune(node.input, inner))
        case n.Analytic(partition=partition, calls=calls):
            wanted = tuple(c for c in calls if c.output in needed)
            if not wanted:
                return prune(node.input, needed)
            read = frozenset(partition).union(*(c.columns for c in wanted))
            below = prune(node.input, (needed & all_of(node.input)) | read)
            return _over(replace(node, calls=wanted), below)
        case n.Session(keys=keys):
            return _over(node, prune(node.input, needed | frozenset(keys)))
        case n.WindowBounds(bounds=bounds):
            shown = tuple(b for b in bounds if b[0] in needed)
            if not shown:
                return prune(node.input, needed)
            below = prune(node.input, needed - frozenset(name for name, _ in shown))
            return _same(node, replace(node, input=below, bounds=shown))
        case n.Project(outputs=outputs):
            kept = pick(node.schema, needed)
            outputs = tuple((name, e) for name, e in outputs if name in kept)
            read = frozenset(c for _, e in outputs for c in e.columns)
            return _same(node, n.Project(prune(node.input, read), outputs))
        case n.Call(output=output, arguments=arguments):
            if output not in needed:
                return prune(node.input, needed)
            return _over(node, prune(node.input, (needed - {output}) | frozenset(arguments)))
        case n.Unnest(lists=lists):  # all of them count: the longest says how many rows there are
            made = frozenset(output for output, _, _ in lists)
            return _over(node, prune(node.input, (needed - made) | frozenset(column for _, column, _ in lists)))
        case n.Window(spec=spec, derived=derived):
            whole = derived and spec.kind is n.WindowKind.ROWS
            return _over(node, prune(node.input, all_of(node.input) if whole else needed | frozenset(spec.partition)))
        case n.Aggregate():
            return _prune_aggregate(node, needed)
        case n.Join() | n.Semi() | n.LeftJoin():
            return _prune_join(node, needed)
        case n.AsofJoin(times=times, derived=derived):
            read = needed | _columns(node.equalities) | frozenset(times)
            # right rows that tie may be ordered by all their columns
            right = prune(node.right, all_of(node.right)) if derived else _narrow(node.right, read)
            return _over(node, _narrow(node.left, read), right)
        case n.StarJoin():
            # which rows are shed depends on keys, importance and time alone
            weights = frozenset(c for c in node.importance if c is not None)
            return _prune_join(node, needed | weights | frozenset(node.valid or ()))
        case n.Union(parts=parts):
            names = pick(node.schema, needed)
            return _over(node, *(keep(prune(p, frozenset(names)), names) for p in parts))
        case n.Emit(op=op) if op is n.StreamOp.RELATION or (op is n.StreamOp.RSTREAM and node.period is not None):
            return _over(node, _narrow(node.input, needed))
    return _over(node, *(prune(i, all_of(i)) for i in node.inputs))


def _prune_aggregate(node: n.Aggregate, needed: Names) -> n.Node:
    calls = tuple(c for c in node.calls if c.output in needed)
    if not calls and not node.keys:
        calls = node.calls[:1]
    below = frozenset(node.keys) | frozenset(c.column for c in calls if c.column is not None)
    return _same(node, n.Aggregate(_narrow(node.input, below), node.keys, calls, node.grid))


def _prune_join(node: n.Join | n.Semi | n.LeftJoin | n.StarJoin, needed: Names) -> n.Node:
    read = needed | _columns(node.equalities) | frozenset(c for r in node.residual for c in r.columns)
    return _over(node, *(_narrow(i, read) for i in node.inputs))


def _columns(equalities: Iterable[n.Equality]) -> Names:
    return frozenset(c for e in equalities for c in (e.left, e.right))


def _narrow(node: n.Node, needed: Names) -> n.Node:
    """Exactly the needed columns of an input that will be stored."""
    below = prune(node, needed)
    return keep(below, pick(below.schema, needed))


def pick(types: Mapping[str, pa.DataType], needed: Names) -> tuple[str, ...]:
    """The needed columns in their order; one cheap column if none is, for rows must still be counted."""
    names = tuple(name for name in types if name in needed)
    if names or not types:
        return names
    return (min(types, key=lambda n: _width(types[n])),)


def _width(t: pa.DataType) -> int:
    try:
        return t.bit_width
    except ValueError:
        return 1 << 20


def all_of(node: n.Node) -> Names:
    """All columns of a node."""
    return frozenset(node.schema)


def _same(old: n.Node, new: n.Node) -> n.Node:
    return old if old == new else new


def _over(node: n.Node, *inputs: n.Node) -> n.Node:
    return node if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) else node.with_inputs(*inputs)
