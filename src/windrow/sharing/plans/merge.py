"""The plan of several queries at once.

Queries with one canonical form are one plan, in which rows carry the number of the query they concern from the first
slot on at which conditions differ:

    routed at the last slot only    everything below is kept once; results part at the end
    routed at every slot            rows part where they are selected, and states above have the query among their keys

A slot that is routed first admits, below the joins of its block, only rows that some query may want. Select lists,
windows and keys are those of the canonical form.

Law: the rows of query q in the answer are the answer of q's own plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from windrow.operators.terms import QUERY, QUERY_TYPE
from windrow.optimize.pushdown_predicates import push
from windrow.plan import nodes as n
from windrow.plan.expr import Expr, column
from windrow.plan.timestamped import dates
from windrow.sharing.conditions import EVERYTHING, condition
from windrow.sharing.plans.canonical import Canonical, Slot
from windrow.sharing.plans.router import IndexRouter, of_query

OTHER = f"{QUERY}'"
"""The query's number on the right side of EXISTS."""


def merged(
    name: str,
    members: Mapping[int, Canonical],
    everywhere: bool,
    joined: bool = False,
    starts: Mapping[int, int] | None = None,
) -> n.QueryPlan:
    """The plan of queries by their numbers, which have one canonical form; `everywhere`: routed at every slot.

    `joined`: others may come when it has begun, if what they have in common remembers nothing.
    """
    first = next(iter(members.values()))
    made = _Merge(members, everywhere, dict(starts or {}))
    root, parting = made.late() if late(first, everywhere, joined) else (made.build(first.root), None)
    assert isinstance(root, n.Emit)
    output = tuple((c, c) for c in root.schema)
    return n.QueryPlan(name, root, output, first.plan.time_type, parting=parting)


def late(form: Canonical, everywhere: bool, joined: bool) -> bool:
    """Whether the answers of queries of this form part behind their common change log.

    That is where most of what happens below cancels before it is told apart; but what leaves the log is remembered
    for all, so it would make a plan closed that can be open.
    """
    slot = form.root.input
    assert isinstance(slot, Slot)
    return not everywhere or not (slot.apart or (joined and form.stateless))


@dataclass
class _Merge:
    members: Mapping[int, Canonical]
    everywhere: bool
    starts: dict[int, int]

    @property
    def first(self) -> Canonical:
        return next(iter(self.members.values()))

    def build(self, node: n.Node, tested: frozenset[str] = frozenset()) -> n.Node:
        """The node for all queries; `tested`: columns that a slot above reads besides those of the form."""
        match node:
            case Slot():
                return self._slot(node)
            case n.Scan() | n.TableScan():
                return self._scan(node)
            case n.Project():
                return self._project(node, tested)
            case n.Aggregate():
                below = self.build(node.input)
                keys = (*node.keys, QUERY) if QUERY in below.schema else node.keys
                return replace(node, input=below, keys=keys)
            case n.Semi():
                return self._semi(node, tested)
        return node.with_inputs(*(self.build(i, tested) for i in node.inputs))

    def late(self) -> tuple[n.Node, n.Parting]:
        """The change log of what all queries have in common, and how they part behind it."""
        form = self.first
        slot = form.root.input
        assert isinstance(slot, Slot)
        tested = frozenset().union(*(m.tested[slot.number] for m in self.members.values()))
        below = self._admitted(self.build(slot.input, tested), slot.number, True)
        common = _kept(below, sorted({*slot.keep, *tested}))
        conditions = {q: m.conditions[slot.number] for q, m in self.members.items()}
        router, op, times = IndexRouter(conditions), form.root.op, dates(common)
        if op is n.StreamOp.ISTREAM and times is not None and times <= {*slot.keep}:  # nothing can cancel
            return n.Emit(common, op), n.Parting(router, slot.keep, n.StreamOp.RELATION)
        return n.Emit(common), n.Parting(router, slot.keep, op)

    def _slot(
        self, slot: Slot, reduced: Callable[[n.Node], n.Node] = lambda node: node, beside: bool = False
    ) -> n.Node:
        """A selection for all queries; `reduced`: leaves rows out that concern none. `beside`: it is one side of a
        join, where fewer rows are worth a look of their own."""
        number = slot.number
        last = number == len(self.first.slots) - 1
        tested = frozenset().union(*(m.tested[number] for m in self.members.values()))
        below = self.build(slot.input, tested)
        apart = QUERY in below.schema
        if not (self.everywhere or last) or (apart and not self.first.slots[number]):
            return _kept(push(below, self.first.slots[number]), slot.keep)
        if apart:
            conditions = {q: of_query(q, m.conditions[number]) for q, m in self.members.items()}
            return n.Route(below, IndexRouter(conditions), slot.keep)
        conditions = {q: m.conditions[number] for q, m in self.members.items()}
        return n.Route(reduced(self._admitted(below, number, beside)), IndexRouter(conditions, self.starts), slot.keep)

    def _scan(self, node: n.Scan | n.TableScan) -> n.Node:
        read = {c: c for m in self.members.values() for c in m.columns[int(node.alias)]}
        return replace(node, columns=tuple(sorted(read, key=lambda c: c[0])))

    def _project(self, node: n.Project, tested: frozenset[str]) -> n.Node:
        below = self.build(node.input, tested)
        outputs, types = dict(node.outputs), below.schema
        for c in sorted((tested | {QUERY}) & types.keys()):
            outputs.setdefault(c, column(c, types[c]))
        return replace(node, input=below, outputs=tuple(outputs.items()))

    def _semi(self, node: n.Semi, tested: frozenset[str]) -> n.Node:
        left = self._slot(node.left, beside=True) if isinstance(node.left, Slot) else self.build(node.left, tested)
        if self.everywhere and isinstance(node.right, Slot) and isinstance(left, n.Route) and node.equalities:
            partners = left.input
            right = self._slot(node.right, lambda below: _partners(below, partners, node.equalities), True)
        else:
            right = self.build(node.right)
        if QUERY not in right.schema:
            return replace(node, left=left, right=right)
        renamed = [(c, column(c, t)) for c, t in right.schema.items() if c != QUERY]
        right = n.Project(right, (*renamed, (OTHER, column(QUERY, QUERY_TYPE))))
        return replace(node, left=left, right=right, equalities=(*node.equalities, n.Equality(QUERY, OTHER)))

    def _admitted(self, node: n.Node, slot: int, beside: bool = False) -> n.Node:
        """The block below a slot with only such rows in its joins as some query may want."""
        match node:
            case n.Scan() if beside:
                return self._admit(node, slot)
            case n.Window(spec=spec) if spec.kind is n.WindowKind.ROWS:
                return node  # other rows would be counted
            case n.Window() | n.Project():
                return node.with_inputs(self._admitted(node.inputs[0], slot, beside))
            case n.Join():
                return node.with_inputs(*(self._admitted(p, slot, True) for p in node.parts))
            case n.Semi(left=left):
                return replace(node, left=self._admitted(left, slot, True))
        return node

    def _admit(self, scan: n.Scan, slot: int) -> n.Node:
        mine = {q: _of_columns(m.slots[slot], scan.schema.keys()) for q, m in self.members.items()}
        conditions = {q: condition(conjuncts) for q, conjuncts in mine.items()}
        return scan if EVERYTHING in conditions.values() else n.Admit(scan, IndexRouter(conditions))


def _partners(right: n.Node, left: n.Node, equalities: Sequence[n.Equality]) -> n.Node:
    """The rows of the right side that have a partner on the left for some query."""
    types = left.schema
    keys = n.Project(left, tuple((f"{OTHER}{e.left}", column(e.left, types[e.left])) for e in equalities))
    met = tuple(n.Equality(e.right, f"{OTHER}{e.left}", e.null_safe) for e in equalities)
    return n.Semi(right, keys, met)


def _of_columns(conjuncts: Sequence[Expr], columns: object) -> list[Expr]:
    return [e for e in conjuncts if e.columns and e.columns <= columns]  # type: ignore[operator]


def _kept(node: n.Node, keep: Sequence[str]) -> n.Node:
    """The node with these columns, and whose row it is if that is known."""
    types = node.schema
    wanted = [*keep, *([QUERY] if QUERY in types else [])]
    if list(types) == wanted:
        return node
    return n.Project(node, tuple((c, column(c, types[c])) for c in wanted))
