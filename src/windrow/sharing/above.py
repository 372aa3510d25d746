"""What stands above a shared aggregate and stays each query's own: HAVING, select list, DISTINCT, stream operator.

Most of it is a chain, rows in, rows out; queries whose chains say the same are finished together (`finish`). The others
are a plan over a stream that stands for the aggregate, and whose rows live for one period.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from windrow.plan import nodes as n

SHARED = "#shared"
"""The stream that stands for the shared aggregate in what remains of a plan."""


class AboveAggregate:
    """A query that shares its aggregate, by what is above that."""

    plan: n.QueryPlan

    @property
    def aggregate(self) -> n.Aggregate:
        """The aggregate that is shared."""
        raise NotImplementedError

    @property
    def slide(self) -> int:
        """The period at which it is evaluated."""
        raise NotImplementedError

    @property
    def chained(self) -> bool:
        """Whether there is a `chain`, without a look at the plan."""
        raise NotImplementedError

    @property
    def above(self) -> n.QueryPlan:
        """The plan over the shared aggregate: a stream whose rows live for one period."""
        leaf = n.Scan(SHARED, SHARED, tuple((c, c, t) for c, t in self.aggregate.schema.items()), "")
        window = n.Window(leaf, n.WindowSpec(n.WindowKind.RANGE, self.slide))
        root = _replaced(self.plan.root, self.aggregate, window)
        assert isinstance(root, n.Emit)
        return replace(self.plan, root=root, made=None)

    @property
    def chain(self) -> tuple[n.Node, ...] | None:
        """What stands above the aggregate, lowest first, if it is rows in, rows out, and RSTREAM; else None."""
        return _chain(self.plan, self.aggregate)

    @property
    def by_group(self) -> bool:
        """Whether it can be computed for some groups by themselves.

        DISTINCT and differences compare rows: equal rows must be of one group, so they must show the keys.
        """
        if self.chained or not (aggregate := self.aggregate).keys:
            return True
        path: list[n.Node] = []
        node: n.Node = self.plan.root.input
        while node is not aggregate:
            path.append(node)
            (node,) = node.inputs
        keys = set(aggregate.keys)
        shown = {k: k for k in keys}  # key -> the column that shows it
        for above in reversed(path):
            match above:
                case n.Project():
                    copies = {e.column: name for name, e in above.outputs if e.column is not None}
                    shown = {k: copies[c] for k, c in shown.items() if c in copies}
                case n.Distinct() if len(shown) < len(keys):
                    return False
        return self.plan.root.op is n.StreamOp.RSTREAM or len(shown) == len(keys)


def said_above(plan: n.QueryPlan, aggregate: n.Aggregate, shown: Sequence[tuple[str, str]]) -> Hashable:
    """What stands above, in words that queries with equal chains share; the name of the query where it is no chain."""
    chain = _chain(plan, aggregate)
    return plan.name if chain is None else (tuple(shown), tuple(map(_said, chain)))


def _chain(plan: n.QueryPlan, aggregate: n.Aggregate) -> tuple[n.Node, ...] | None:
    node, found = plan.root.input, []
    while node is not aggregate:
        if not isinstance(node, n.Filter | n.Project | n.Call | n.WindowBounds):
            return None
        found.append(node)
        node = node.input
    return tuple(reversed(found)) if plan.root.op is n.StreamOp.RSTREAM else None


def _said(node: n.Node) -> Hashable:
    """What a node of a chain does."""
    match node:
        case n.Filter():
            return node.predicate.sql()
        case n.Project():
            return tuple((name, e.sql()) for name, e in node.outputs)
        case n.Call():
            return (node.output, node.function, node.arguments)
        case n.WindowBounds():
            return (tuple(name for name, _ in node.bounds), node.type)  # lengths may differ from query to query
    raise NotImplementedError(type(node).__name__)


def _replaced(node: n.Node, old: n.Node, new: n.Node) -> n.Node:
    if node is old:
        return new
    return node.with_inputs(*(_replaced(i, old, new) for i in node.inputs))
