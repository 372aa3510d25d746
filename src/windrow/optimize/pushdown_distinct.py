"""Duplicate-elimination push-down: drop DISTINCT where rows are distinct already, else try it below joins and unions.

At every instant δ(A ⋈ B) = δA ⋈ δB, and δ(A ∪ B) = δ(δA ∪ δB). Below a join DISTINCT shrinks what the join stores and
makes, but it must then look at every input row. So the cost model decides. A table that does not reach back is met by
each row at its own time, so the first of equal rows cannot stand for all.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.optimize.rule import RuleContext, filtered, rewrite, with_root
from windrow.plan import nodes as n
from windrow.plan.expr import Expr
from windrow.plan.totality import key_safe


def pushdown_distinct(plan: n.QueryPlan, context: RuleContext) -> n.QueryPlan:
    """Drop needless DISTINCTs; move the others below joins and unions where that is cheaper.

    >>> from windrow.plan.words import sketch
    >>> sketch(rewrite(n.Distinct(n.Distinct(n.Scan("s", "s", (), "ts"))), lambda node: _step(node, RuleContext())))
    'distinct(scan[s ()])'
    """
    if not n.has(plan.root, n.Distinct):
        return plan
    return with_root(plan, rewrite(plan.root, lambda node: _step(node, context)))


def _step(node: n.Node, context: RuleContext) -> n.Node:
    if not isinstance(node, n.Distinct):
        return node
    if key(node.input) is not None:
        return node.input
    for candidate in (_below_join(node), _below_union(node)):
        if candidate is not None and context.cheaper(candidate, node):
            return candidate
    return node


def key(node: n.Node) -> frozenset[str] | None:
    """Columns on which no two rows of one instant agree; None if rows may repeat."""
    match node:
        case n.Distinct():
            return frozenset(node.schema)
        case n.Aggregate(keys=keys) | n.Holistic(keys=keys):
            return frozenset(keys)
        case n.Filter() | n.Quantise() | n.Call() | n.WindowBounds() | n.TopN() | n.Analytic():
            return key(node.input)
        case n.Semi() | n.Difference():
            return key(node.left)
        case n.Intersection():
            left = key(node.left)
            return key(node.right) if left is None else left
        case n.Project(outputs=outputs):
            below = key(node.input)
            copies = {e.column: name for name, e in outputs if e.column is not None}
            return None if below is None or not below <= copies.keys() else frozenset(copies[c] for c in below)
        case n.Join() | n.LeftJoin():
            return None if isinstance(node, n.Join) and any(node.internal) else _union([key(p) for p in node.inputs])
    return None


def _union(keys: list[frozenset[str] | None]) -> frozenset[str] | None:
    known = [k for k in keys if k is not None]
    return frozenset().union(*known) if len(known) == len(keys) else None


def _below_union(node: n.Distinct) -> n.Node | None:
    match node.input:
        case n.Union(parts=parts) as union if any(key(p) is None for p in parts):
            return n.Distinct(replace(union, parts=tuple(p if key(p) is not None else n.Distinct(p) for p in parts)))
    return None


def _below_join(node: n.Distinct) -> n.Node | None:
    """Over a join (under a projection and filters) whose columns the output determines: join distinct inputs."""
    project = node.input if isinstance(node.input, n.Project) else None
    below = project.input if project else node.input
    predicates: list[Expr] = []
    while isinstance(below, n.Filter):
        predicates.insert(0, below.predicate)
        below = below.input
    if not isinstance(below, n.Join) or any(below.internal) or any(map(_meets_once, n.walk(below))):
        return None
    types = below.schema
    # a predicate or expression that tells 0.0 from -0.0 would see which of two equal rows was kept
    if not all(key_safe(p, types) for p in (*predicates, *below.residual)):
        return None
    shown = {e.column for _, e in project.outputs if e.column} if project else set(types)
    if project and not all(e.column or key_safe(e, types) for _, e in project.outputs):
        return None
    if not types.keys() <= determined(below, shown):
        return None
    parts = tuple(p if key(p) is not None else n.Distinct(p) for p in below.parts)
    joined = filtered(replace(below, parts=parts), predicates)
    return n.Project(joined, project.outputs) if project else joined


def _meets_once(node: n.Node) -> bool:
    """Whether rows meet a table as it is when they come: equal rows of different times may meet different ones."""
    return isinstance(node, n.TableScan) and not node.retroactive and node.recall


def determined(join: n.Join, shown: set[str]) -> set[str]:
    """The columns whose value follows from those shown: an equality gives the other side."""
    known, size = set(shown), -1
    while len(known) != size:
        size = len(known)
        for e in join.equalities:
            if e.left in known or e.right in known:
                known |= {e.left, e.right}
    return known
