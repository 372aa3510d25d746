"""The plan of several queries at once.

Queries with one canonical form are one plan, in which rows carry the number of the query they concern from the first
slot on at which conditions differ:

    routed at the last slot only    everything below is kept once; results part at the end
    routed at every slot            rows part where they are selected, and states above have the query among their keys

A slot that is routed first admits, below the joins of its block, only rows that some query may want. Windows are the
longest of all queries; where they differ rows carry the instant at which they came, and a route cuts them off. What is
shown is what any query shows; a route leaves to each what is its own. Keys are those of the canonical form.

Law: the rows of query q in the answer are the answer of q's own plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING
from windrow.operators.terms import CAME, QUERY, QUERY_TYPE, START
from windrow.optimize.pushdown_predicates import push
from windrow.plan import nodes as n
from windrow.plan.expr import Expr, column
from windrow.plan.timestamped import dates
from windrow.scalar_engine import quote
from windrow.sharing.condition_columns import ConditionColumns, both_within
from windrow.sharing.conditions import EVERYTHING, Attribute, Condition, both, condition, within
from windrow.sharing.plans.canonical import Canonical, Slot, number_of, window_of
from windrow.sharing.plans.form_columns import FormColumns
from windrow.sharing.plans.router import IndexRouter, RoutedColumns, of_queries, of_query
from windrow.sharing.plans.shape import PlanColumns

OTHER = f"{QUERY}'"
"""The query's number on the right side of EXISTS."""


@dataclass(frozen=True, eq=False)
class ManyMembers:
    """Queries of one form by their numbers, in order, and which of them are there; `start`: if they began late."""

    numbers: Int64s
    forms: FormColumns
    alive: Bools
    start: int = BEGINNING

    @property
    def shown(self) -> tuple[str, ...]:
        """What each of them shows."""
        return tuple(name for name, _ in self.forms.form.shown)

    def routed(self, conditions: ConditionColumns, windows: Sequence[str] = (), late: bool = False) -> RoutedColumns:
        """The same as a router has them; `windows`: the columns of those whose lengths differ."""
        sizes = {column: self.forms.form.sizes[int(column[len(START) :])] for column in windows}
        return RoutedColumns(
            self.numbers, conditions, self.alive, self.start if late else BEGINNING, sizes, self.shown
        )  # fmt: skip


def merged(
    name: str,
    members: Mapping[int, Canonical],
    everywhere: bool,
    joined: bool = False,
    starts: Mapping[int, int] | None = None,
    shape: PlanColumns | None = None,
    number: int = 0,
    many: Sequence[ManyMembers] = (),
) -> n.QueryPlan:
    """The plan of queries by their numbers, which have one canonical form; `everywhere`: routed at every slot.

    `joined`: others may come when it has begun. `shape`: what its rows consist of, if that is settled. `number`: of the
    query that comes next. `many`: more of the queries.
    """
    forms = [*members.values(), *(m.forms.form for m in many)]
    first = forms[0]
    shape = PlanColumns.of(forms) if shape is None else shape
    came = number if joined and not first.stateless else None
    made = _Merge(members, everywhere, dict(starts or {}), shape, came, many)
    root, parting = made.late() if late(first, everywhere, joined, shape) else (made.build(first.root), None)
    assert isinstance(root, n.Emit)
    output = tuple((c, c) for c in root.schema)
    return n.QueryPlan(name, root, output, first.plan.time_type, parting=parting)


def late(form: Canonical, everywhere: bool, joined: bool, shape: PlanColumns) -> bool:
    """Whether the answers of queries of this form part behind their common change log.

    That is where most of what happens below cancels before it is told apart; but what leaves the log is remembered
    for all, so it would make a plan closed that can be open. Rows that end at different times part before it.
    """
    slot = form.root.input
    assert isinstance(slot, Slot)
    if not shape.stamped.isdisjoint(slot.windows):
        return False
    return not everywhere or not (slot.apart or joined)


@dataclass
class _Merge:
    members: Mapping[int, Canonical]
    everywhere: bool
    starts: dict[int, int]
    shape: PlanColumns
    came: int | None = None  # the number of the query that comes next, where rows are to say it
    many: Sequence[ManyMembers] = ()

    @property
    def first(self) -> Canonical:
        return next(iter(self.members.values())) if self.members else self.many[0].forms.form

    def build(self, node: n.Node, tested: frozenset[str] = frozenset()) -> n.Node:
        """The node for all queries; `tested`: columns that a slot above reads besides those of the form."""
        match node:
            case Slot():
                return self._slot(node)
            case n.Scan() | n.TableScan():
                return self._scan(node)
            case n.Project():
                return self._project(node, tested)
            case n.Window():
                return self._window(node, tested)
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
        below = self._admitted(self._below(slot), slot.number, True)
        common = _kept(self._shown(below, slot), sorted({*self.shape.shown, *self._tested(slot)}))
        op, times = form.root.op, dates(common)
        conditions = {q: m.conditions[slot.number] for q, m in self.members.items()}
        blocks = [m.routed(m.forms.conditions(m.forms.form.slots[slot.number])) for m in self.many]
        router, keep = IndexRouter(conditions, shown=self._lists(), blocks=blocks), tuple(self.shape.shown)
        own = self.shape.own
        shared = set(keep).intersection(*self._lists().values(), *(m.shown for m in self.many)) if own is None else own
        by = None if own is None else tuple(c for c in keep if c in own)
        if op is n.StreamOp.ISTREAM and times is not None and times <= shared:  # nothing can cancel
            return n.Emit(common, op), n.Parting(router, keep, n.StreamOp.RELATION, by)
        return n.Emit(common), n.Parting(router, keep, op, by)

    def _lists(self) -> dict[int, tuple[str, ...]]:
        """What every query shows."""
        return {q: tuple(name for name, _ in m.shown) for q, m in self.members.items()}

    def _tested(self, slot: Slot) -> frozenset[str]:
        """The columns that a slot reads besides those that it hands on."""
        came = () if self.came is None else self._came
        return self.shape.tested[slot.number].union(came) | {
            f"{START}{w}" for w in slot.windows if w in self.shape.stamped
        }

    @property
    def _came(self) -> list[str]:
        """The columns that say which queries there were when a row came."""
        return [f"{CAME}{scan.alias}" for scan in n.walk(self.first.root) if isinstance(scan, n.Scan)]

    def _condition(self, query: int, slot: int) -> Condition:
        """What a query selects by at a slot; one that came later, among rows that did, too."""
        found = self.members[query].conditions[slot]
        if self.came is None or query < self.shape.began:
            return found
        for name in self._came:
            found = both(found, within(Attribute(quote(name), pa.int64(), (name,)), (query + 1, None)))
        return found

    def _conditions(self, many: ManyMembers, slot: int) -> ConditionColumns:
        """The same of many queries; all of them came at once, so rows that came later did behind the last of them."""
        found = many.forms.conditions(many.forms.form.slots[slot])
        if self.came is None or many.numbers[0] < self.shape.began:
            return found
        for name in self._came:
            later = np.full(len(found), many.numbers[-1] + 1)
            found = both_within(found, Attribute(quote(name), pa.int64(), (name,)), later, None)
        return found

    def _below(self, slot: Slot) -> n.Node:
        """What is below a slot, with all that is read at it."""
        read = (
            frozenset().union(*(e.columns for e in self.shape.shown.values())) if self._is_last(slot) else frozenset()
        )
        return self.build(slot.input, self._tested(slot) | read)

    def _is_last(self, slot: Slot) -> bool:
        return slot.number == len(self.first.slots) - 1

    def _shown(self, below: n.Node, slot: Slot) -> n.Node:
        """What all queries together show, and what tells them apart."""
        types = below.schema
        outputs = dict(self.shape.shown)
        for c in sorted((self._tested(slot) | {QUERY}) & types.keys()):
            outputs.setdefault(c, column(c, types[c]))
        if all(e.column == name for name, e in outputs.items()):
            return below  # a route keeps what it is to keep
        return n.Project(below, tuple(outputs.items()))

    def _slot(
        self, slot: Slot, reduced: Callable[[n.Node], n.Node] = lambda node: node, beside: bool = False
    ) -> n.Node:
        """A selection for all queries; `reduced`: leaves rows out that concern none. `beside`: it is one side of a
        join, where fewer rows are worth a look of their own."""
        number, last = slot.number, self._is_last(slot)
        below = self._below(slot)
        apart = QUERY in below.schema
        lists = self._lists() if last else None
        different = {*(lists or {}).values(), *(m.shown for m in self.many)}
        alike = self.shape.stamped.isdisjoint(slot.windows) and (lists is None or len(different) == 1)
        keep = tuple(self.shape.shown) if last else slot.keep
        if not (self.everywhere or last) or (apart and not self.first.slots[number] and alike):
            below = push(below, self.first.slots[number])
            return _kept(self._shown(below, slot) if last else below, keep)
        windows = self._windows(slot)
        conditions = {q: self._condition(q, number) for q in self.members}
        columns = [self._conditions(m, number) for m in self.many]
        if apart:
            conditions = {q: of_query(q, c) for q, c in conditions.items()}
            columns = [of_queries(m.numbers, c) for m, c in zip(self.many, columns, strict=True)]
        else:
            below = reduced(self._admitted(below, number, beside))
        if last:
            below = self._shown(below, slot)
        starts = {} if apart else self.starts
        blocks = [m.routed(c, list(windows), not apart) for m, c in zip(self.many, columns, strict=True)]
        return n.Route(below, IndexRouter(conditions, starts, windows, _meets(slot.input), lists, blocks), keep)

    def _windows(self, slot: Slot) -> dict[str, dict[int, int]]:
        """The lengths that windows have for queries, where they differ."""
        stamped = [w for w in slot.windows if w in self.shape.stamped]
        return {f"{START}{w}": {q: m.sizes[w] for q, m in self.members.items()} for w in stamped}

    def _window(self, node: n.Window, tested: frozenset[str]) -> n.Node:
        number, below = number_of(node), self.build(node.input, tested)
        if number is None:
            return replace(node, input=below)
        forms = (*self.members.values(), *(m.forms.form for m in self.many))
        made = replace(node, input=below, spec=window_of(max(form.sizes[number] for form in forms)))
        return n.Stamp(made, f"{START}{number}") if number in self.shape.stamped else made

    def _scan(self, node: n.Scan | n.TableScan) -> n.Node:
        made = replace(node, columns=self.shape.columns[int(node.alias)])
        if self.came is None or isinstance(made, n.TableScan):
            return made
        return n.Stamp(made, f"{CAME}{node.alias}", self.came)

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
            case n.Window() | n.Project() | n.Stamp():
                return node.with_inputs(self._admitted(node.inputs[0], slot, beside))
            case n.Join():
                return node.with_inputs(*(self._admitted(p, slot, True) for p in node.parts))
            case n.Semi(left=left) | n.LeftJoin(left=left):
                return replace(node, left=self._admitted(left, slot, True))
        return node

    def _admit(self, scan: n.Scan, slot: int) -> n.Node:
        mine = {q: _of_columns(m.slots[slot], scan.schema.keys()) for q, m in self.members.items()}
        conditions = {q: condition(conjuncts) for q, conjuncts in mine.items()}
        columns = [_of_columns(m.forms.form.slots[slot], scan.schema.keys()) for m in self.many]
        if EVERYTHING in conditions.values() or not all(columns):
            return scan
        blocks = [m.routed(m.forms.conditions(c)) for m, c in zip(self.many, columns, strict=True)]
        return n.Admit(scan, IndexRouter(conditions, blocks=blocks))


def _meets(node: n.Node) -> bool:
    """Whether rows may meet others within a block, and so be older than the instant at which they leave it."""
    if isinstance(node, n.Join | n.Semi | n.LeftJoin):
        return True
    return not isinstance(node, Slot) and any(map(_meets, node.inputs))


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
