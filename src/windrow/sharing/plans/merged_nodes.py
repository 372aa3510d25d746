"""Parts of the plan of several queries: nodes over nodes in which a column says whose row it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from windrow.operators.elements import INF
from windrow.operators.terms import QUERY, QUERY_TYPE
from windrow.plan import nodes as n
from windrow.plan.expr import Expr, column
from windrow.sharing.plans.canonical import Canonical, Slot

OTHER = f"{QUERY}'"
"""The number of whose row it is on the other side of what meets."""


def window_of(size: int, varies: bool) -> n.WindowSpec:
    """The window by time of some length; `varies`: who comes and goes makes it another, but no other operator."""
    if varies:
        return n.WindowSpec(n.WindowKind.RANGE, size, text="[RANGE UNBOUNDED]" if size == INF else "")
    if size == INF:
        return n.WindowSpec(n.WindowKind.UNBOUNDED)
    return n.WindowSpec(n.WindowKind.NOW) if size == 1 else n.WindowSpec(n.WindowKind.RANGE, size)


def over_groups(form: Canonical) -> bool:
    """Whether what parts at the last slot are the groups of an aggregate."""
    node = form.root.inputs[0].inputs[0]
    while isinstance(node, n.Project):
        node = node.input
    return isinstance(node, n.Aggregate)


def meets(node: n.Node) -> bool:
    """Whether rows may meet others within a block, and so be older than the instant at which they leave it."""
    if isinstance(node, n.Join | n.Semi | n.LeftJoin):
        return True
    return not isinstance(node, Slot) and any(map(meets, node.inputs))


def partners(right: n.Node, left: n.Node, equalities: Sequence[n.Equality]) -> n.Node:
    """The rows of the right side that have a partner on the left for some query."""
    types = left.schema
    keys = n.Project(left, tuple((f"{OTHER}{e.left}", column(e.left, types[e.left])) for e in equalities))
    met = tuple(n.Equality(e.right, f"{OTHER}{e.left}", e.null_safe) for e in equalities)
    return n.Semi(right, keys, met)


def matched(node: n.Join, parts: Sequence[n.Node]) -> n.Node:
    """The join over other inputs, in which rows of one query meet rows of the same."""
    told = [i for i, part in enumerate(parts) if QUERY in part.schema]
    made, equalities = list(parts), list(node.equalities)
    for i in told[1:]:
        other = f"{OTHER}{i}"
        made[i] = renamed(parts[i], other)
        equalities.append(n.Equality(QUERY, other))
    return replace(node, parts=tuple(made), equalities=tuple(equalities))


def renamed(node: n.Node, other: str) -> n.Node:
    """The node with another name for whose row it is."""
    outputs = [(c, column(c, t)) for c, t in node.schema.items() if c != QUERY]
    return n.Project(node, (*outputs, (other, column(QUERY, QUERY_TYPE))))


def of_columns(conjuncts: Sequence[Expr], columns: object) -> list[Expr]:
    """The conjuncts that read some of these columns, and no others."""
    return [e for e in conjuncts if e.columns and e.columns <= columns]  # type: ignore[operator]


def kept(node: n.Node, keep: Sequence[str]) -> n.Node:
    """The node with these columns, and whose row it is if that is known."""
    types = node.schema
    wanted = [*keep, *([QUERY] if QUERY in types else [])]
    if list(types) == wanted:
        return node
    return n.Project(node, tuple((c, column(c, types[c])) for c in wanted))


def admitted(node: n.Node, admit: Callable[[n.Scan], n.Node], beside: bool = False) -> n.Node:
    """The block below a slot with only such rows in its joins as some query may want, which `admit` lets through;
    `beside`: it is one side of a join."""
    match node:
        case n.Scan() if beside:
            return admit(node)
        case n.Window(spec=spec) if spec.kind is n.WindowKind.ROWS:
            return node  # other rows would be counted
        case n.Window() | n.Project() | n.Stamp() | n.Route() | n.Filter() | n.Quantise():
            return node.with_inputs(admitted(node.inputs[0], admit, beside))
        case n.Join():
            return node.with_inputs(*(admitted(p, admit, True) for p in node.parts))
        case n.Semi(left=left) | n.LeftJoin(left=left) | n.AsofJoin(left=left):
            return replace(node, left=admitted(left, admit, True))
    return node
