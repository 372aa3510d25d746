"""The plan of several queries at once.

Queries with one canonical form are one plan, in which rows carry the number of the query they concern from the first
slot on at which conditions differ:

    routed at the last slot only    everything below is kept once; results part at the end
    routed at every slot            rows part where they are selected, and states above have the query among their keys
    by readers                      rows part where they are selected, or come, by reader (`readers.py`); states above
                                    have the reader among their keys, and its rows part by query at the last slot

A slot that is routed first admits, below the joins of its block, only rows that some query may want. Windows are the
longest of all queries; where they differ rows carry the instant at which they came, and a route cuts them off. What is
shown is what any query shows; a route leaves to each what is its own. Keys are those of the canonical form.

Law: the rows of query q in the answer are the answer of q's own plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

import numpy as np
import pyarrow as pa

from windrow.operators.elements import INF
from windrow.operators.terms import CAME, QUERY, START, ClockStarts
from windrow.optimize.pushdown_predicates import push
from windrow.optimize.rule import filtered
from windrow.plan import nodes as n
from windrow.plan.expr import Expr, column
from windrow.plan.timestamped import dates
from windrow.scalar_engine import quote
from windrow.sharing.condition_columns import ConditionColumns, both_within
from windrow.sharing.conditions import EVERYTHING, Attribute, Condition, both, condition, within
from windrow.sharing.plans.canonical import Canonical, Slot, number_of
from windrow.sharing.plans.merged_nodes import (
    OTHER,
    admitted,
    kept,
    matched,
    meets,
    of_columns,
    over_groups,
    partners,
    renamed,
    window_of,
)
from windrow.sharing.plans.plan_routers import ManyMembers, Routers, clock_starts
from windrow.sharing.plans.readers import PlanReaders, ToldApart, told_apart
from windrow.sharing.plans.routed_columns import of_queries, of_query
from windrow.sharing.plans.shape import PlanColumns


def merged(
    name: str,
    members: Mapping[int, Canonical],
    everywhere: bool,
    joined: bool = False,
    starts: Mapping[int, int] | None = None,
    shape: PlanColumns | None = None,
    number: int = 0,
    many: Sequence[ManyMembers] = (),
    readers: PlanReaders | None = None,
    routers: Routers | None = None,
    clocks: Mapping[int, int] | None = None,
) -> n.QueryPlan:
    """The plan of queries by their numbers, which have one canonical form; `everywhere`: routed at every slot.

    `joined`: others may come when it has begun. `shape`: what its rows consist of, if that is settled. `number`: of the
    query that comes next. `many`: more of the queries. `readers`: rows are told apart by these below the last slot.
    `routers`: as the plan before had them.
    `clocks`: where those of all start who are told apart there; the beginning, if that is not known.
    """
    forms = [*members.values(), *(m.forms.form for m in many)]
    first = forms[0]
    shape = PlanColumns.of(forms) if shape is None else shape
    told = _told(first, joined, readers)
    made = _Merge(
        members, everywhere, dict(starts or {}), shape, number, told, many, readers, routers or Routers(),
        dict(clocks or {}),
    )  # fmt: skip
    root, parting = made.late() if made.parts_late(joined) else (made.build(first.root), None)
    assert isinstance(root, n.Emit)
    output = tuple((c, c) for c in root.schema)
    return n.QueryPlan(name, root, output, first.plan.time_type, parting=parting)


def _told(form: Canonical, joined: bool, readers: PlanReaders | None) -> ToldApart:
    """Where readers are told apart, and which rows say when they came."""
    if readers is not None:
        return told_apart(form)
    scans = tuple(x.alias for x in n.walk(form.root) if isinstance(x, n.Scan))
    return ToldApart(frozenset(), frozenset(), {0: scans} if joined and not form.stateless else {})


@dataclass
class _Merge:
    members: Mapping[int, Canonical]
    everywhere: bool
    starts: dict[int, int]
    shape: PlanColumns
    number: int  # of the query that comes next: rows say it that are remembered before they part
    told: ToldApart
    many: Sequence[ManyMembers] = ()
    readers: PlanReaders | None = None
    routers: Routers = field(default_factory=Routers)
    clocks: Mapping[int, int] = field(default_factory=dict)

    @property
    def first(self) -> Canonical:
        return next(iter(self.members.values())) if self.members else self.many[0].forms.form

    def parts_late(self, joined: bool) -> bool:
        """Whether the answers of queries part behind their common change log.

        That is where most of what happens below cancels before it is told apart; but what leaves the log is remembered
        for all, so it would make a plan closed that can be open, unless it has readers. Rows that end at different
        times part before it, and so do groups of rows that are selected differently: little of them cancels, and what
        HAVING leaves out of each is not made.
        """
        slot = self.first.root.input
        assert isinstance(slot, Slot)
        if not self.shape.stamped.isdisjoint(slot.windows) or self.first.root.period is not None:
            return False
        if self.readers is not None:
            return not self._groups
        return not self.everywhere or not (slot.apart or joined)

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
            case n.Quantise(before=True):  # the first evaluation sees what was there just before; `many` have none
                below = replace(self, starts={told: start - 1 for told, start in self.starts.items()})
                return replace(node, input=below.build(node.input, tested))
            case n.Aggregate():
                return self._aggregate(node)
            case n.Join():
                return matched(node, [self.build(i, tested) for i in node.parts])
            case n.Semi() | n.LeftJoin():
                return self._semi(node, tested)
        return node.with_inputs(*(self.build(i, tested) for i in node.inputs))

    def late(self) -> tuple[n.Node, n.Parting]:
        """The change log of what all queries have in common, and how they part behind it."""
        form = self.first
        slot = form.root.input
        assert isinstance(slot, Slot)
        below = admitted(self._below(slot), lambda scan: self._admit(scan, slot.number), True)
        common = kept(self._shown(below, slot), sorted({*self.shape.shown, *self._tested(slot)}))
        op, times = form.root.op, dates(common)
        blocks = [m.routed(self._conditions(m, slot.number)) for m in self.many]
        router = self.routers.router(
            ("log", slot.number),
            self.members,
            False,
            lambda q, m: self._condition(q, m, slot.number),
            blocks,
            lists=True,
        )  # fmt: skip
        keep, own = tuple(self.shape.shown), self.shape.own
        shared = set(keep).intersection(*self._lists()) if own is None else own
        by = None if own is None else tuple(c for c in keep if c in own)
        if op is n.StreamOp.ISTREAM and times is not None and times <= shared:  # nothing can cancel
            return n.Emit(common, op), n.Parting(router, keep, n.StreamOp.RELATION, by)
        return n.Emit(common), n.Parting(router, keep, op, by)

    @property
    def _groups(self) -> bool:
        """Whether readers' groups part before their change log."""
        return self.shape.differ and over_groups(self.first)

    @property
    def _own(self) -> tuple[str, ...] | None:
        """The columns by which rows lie over partitions where queries part, of those that they show."""
        if self.shape.own is None or not self.shape.kept:
            return None
        return tuple(c for c in self.shape.shown if c in self.shape.own)

    def _lists(self) -> set[tuple[str, ...]]:
        """The different lists of columns that queries show."""
        return {*(m.names for m in self.members.values()), *(m.shown for m in self.many)}

    def _tested(self, slot: Slot) -> frozenset[str]:
        """The columns that a slot reads besides those that it hands on."""
        came = (f"{CAME}{scan}" for scan in self.told.stamped.get(slot.number, ()))
        return self.shape.tested[slot.number].union(came) | {
            f"{START}{w}" for w in slot.windows if w in self.shape.stamped
        }

    def _those(self, slot: int) -> Mapping[int, Canonical]:
        """Who is told apart at a slot: readers below the last one, if there are any, else queries."""
        return self.members if self.readers is None or self._is_last(slot) else self.readers.forms

    def _blocks(self, slot: int) -> list[ManyMembers]:
        """The same of many queries."""
        return [m for m in self.many if m.reader is None or self._is_last(slot)]

    def _condition(self, number: int, form: Canonical, slot: int) -> Condition:
        """What somebody selects by at a slot; one that came later, among rows that did, too."""
        tests = self._tests(form, slot)
        found = form.conditions[slot] if tests == form.slots[slot] and not self.readers else condition(tests)
        if self.readers is not None and self._is_last(slot):
            return of_query(self.readers.of[number], found)
        for name in self._came(slot) if number >= self.shape.began else ():
            found = both(found, within(Attribute(quote(name), pa.int64(), (name,)), (number + 1, None)))
        return found

    def _conditions(self, many: ManyMembers, slot: int) -> ConditionColumns:
        """The same of many queries; all of them came at once, so rows that came later did behind the last of them."""
        found = many.forms.conditions(self._tests(many.forms.form, slot))
        if self.readers is not None and self._is_last(slot):
            told = many.numbers if many.reader is None else np.full(len(found), many.reader)
            return of_queries(told, found)
        for name in self._came(slot) if many.numbers[0] >= self.shape.began else ():
            later = np.full(len(found), many.numbers[-1] + 1)
            found = both_within(found, Attribute(quote(name), pa.int64(), (name,)), later, None)
        return found

    def _tests(self, form: Canonical, slot: int) -> tuple[Expr, ...]:
        """What somebody tests at a slot."""
        return self.shape.tests(form.slots[slot]) if self._is_last(slot) else form.slots[slot]

    def _came(self, slot: int) -> list[str]:
        """The columns that say which queries there were when a row came."""
        return [f"{CAME}{scan}" for scan in self.told.stamped.get(slot, ())]

    def _below(self, slot: Slot) -> n.Node:
        """What is below a slot, with all that is read at it."""
        read = (
            frozenset().union(*(e.columns for e in self.shape.shown.values()))
            if self._is_last(slot.number)
            else frozenset()
        )
        if not self._is_last(slot.number) or not self.shape.given:
            return self.build(slot.input, self._tested(slot) | read)
        given = [e for e in self.first.slots[slot.number] if e.sql() in self.shape.given]
        below = self.build(slot.input, self._tested(slot).union(read, *(e.columns for e in given)))
        return filtered(below, given)

    def _is_last(self, slot: int) -> bool:
        return slot == len(self.first.slots) - 1

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
        number, last = slot.number, self._is_last(slot.number)
        below = self._below(slot)
        apart = QUERY in below.schema
        keep = tuple(self.shape.shown) if last else slot.keep
        parts = last and self.readers is not None
        if not parts and (not (self.everywhere or last) or (apart and self._are_alike(slot))):
            below = push(below, self._tests(self.first, number))
            return kept(self._shown(below, slot) if last else below, keep)
        windows = {f"{START}{w}": w for w in slot.windows if w in self.shape.stamped}
        many = self._blocks(number)
        columns = [self._conditions(m, number) for m in many]
        if apart and not parts:
            columns = [of_queries(m.numbers, c) for m, c in zip(many, columns, strict=True)]
        if not apart:
            below = reduced(admitted(below, lambda scan: self._admit(scan, number), beside))
        if last:
            below = self._shown(below, slot)
        if parts and not self._groups:  # whichever reader a query reads from, it is told the same
            below = n.Emit(below)

        def wanted(query: int, form: Canonical) -> Condition:
            found = self._condition(query, form, number)
            return of_query(query, found) if apart and not parts else found

        blocks = [m.routed(c, list(windows), not apart) for m, c in zip(many, columns, strict=True)]
        those = self._those(number)
        router = self.routers.router(
            ("slot", number), those, those is not self.members, wanted, blocks, {} if apart else self.starts, windows,
            meets(slot.input), last,
        )  # fmt: skip
        return n.Route(below, router, keep, self._own if last else None)

    def _are_alike(self, slot: Slot) -> bool:
        """Whether a slot, where rows are told apart already, leaves to all queries what it has of theirs."""
        if self._tests(self.first, slot.number) or not self.shape.stamped.isdisjoint(slot.windows):
            return False
        return not self._is_last(slot.number) or len(self._lists()) == 1

    def _window(self, node: n.Window, tested: frozenset[str]) -> n.Node:
        number, below = number_of(node), self.build(node.input, tested)
        scans = {x.alias for x in n.walk(node) if isinstance(x, n.Scan)}
        if number is None:
            made: n.Node = replace(node, input=below)
            if node.spec.kind is n.WindowKind.ROWS and not scans.isdisjoint(self.told.counted):
                partition = (*node.spec.partition, QUERY)
                made = replace(node, input=self._parted(below), spec=replace(node.spec, partition=partition))
        else:
            told, endless = number in self.shape.stamped, number in (self.shape.endless or ())
            longest = INF if endless else self._longest(number)
            made = replace(node, input=below, spec=window_of(longest, told and not endless))
            made = n.Stamp(made, f"{START}{number}") if told else made
        return made if scans.isdisjoint(self.told.scans) else self._parted(made, self.starts)

    def _longest(self, window: int) -> int:
        """The longest that a window is for any query."""
        sizes = (*self.routers.sizes(self.members), *(m.forms.form.sizes for m in self.many))
        return max(each[window] for each in sizes)

    def _parted(self, node: n.Node, starts: Mapping[int, int] | None = None) -> n.Node:
        """Every row once for each reader, or for the one whose row it is; `starts`: not before its clock begins."""
        assert self.readers is not None
        apart, many = QUERY in node.schema, [m for m in self.many if m.reader is None]
        columns = [m.forms.conditions(()) for m in many]
        if apart:
            columns = [of_queries(m.numbers, c) for m, c in zip(many, columns, strict=True)]
        blocks = [m.routed(c, late=starts is not None) for m, c in zip(many, columns, strict=True)]
        place = ("scans", tuple(x.alias for x in n.walk(node) if isinstance(x, n.Scan)), apart, starts is not None)
        router = self.routers.router(
            place,
            self.readers.forms,
            True,
            lambda r, _: of_query(r, EVERYTHING) if apart else EVERYTHING,
            blocks,
            starts,
        )
        return n.Route(node, router, tuple(c for c in node.schema if c != QUERY))

    def _scan(self, node: n.Scan | n.TableScan) -> n.Node:
        made = replace(node, columns=self.shape.columns[int(node.alias)])
        if any(node.alias in scans for scans in self.told.stamped.values()):
            return n.Stamp(made, f"{CAME}{node.alias}", self.number)
        return made

    def _project(self, node: n.Project, tested: frozenset[str]) -> n.Node:
        below = self.build(node.input, tested)
        outputs, types = dict(node.outputs), below.schema
        for c in sorted((tested | {QUERY}) & types.keys()):
            outputs.setdefault(c, column(c, types[c]))
        return replace(node, input=below, outputs=tuple(outputs.items()))

    def _aggregate(self, node: n.Aggregate) -> n.Node:
        below = self.build(node.input)
        if QUERY not in below.schema:
            return replace(node, input=below)
        made = replace(node, input=below, keys=(*node.keys, QUERY))
        return made if node.keys else n.OverNothing(made, self._clocks())

    def _clocks(self) -> ClockStarts:
        """Where the clocks start of all who are told apart below the last slot."""
        return clock_starts(self.clocks, [m for m in self.many if self.readers is None or m.reader is None])

    def _semi(self, node: n.Semi | n.LeftJoin, tested: frozenset[str]) -> n.Node:
        left = self._slot(node.left, beside=True) if isinstance(node.left, Slot) else self.build(node.left, tested)
        if self.everywhere and isinstance(node.right, Slot) and isinstance(left, n.Route) and node.equalities:
            those = left.input
            right = self._slot(node.right, lambda below: partners(below, those, node.equalities), True)
        else:
            right = self.build(node.right, tested if isinstance(node, n.LeftJoin) else frozenset())
        if QUERY not in right.schema:
            return replace(node, left=left, right=right)
        others = chain((OTHER,), (f"{i}{QUERY}" for i in count()))
        taken = {*left.schema, *(f"{c}'" for c in left.schema if node.residual)}  # as lowering names them
        other = next(name for name in others if name not in taken)
        right = renamed(right, other)
        return replace(node, left=left, right=right, equalities=(*node.equalities, n.Equality(QUERY, other)))

    def _admit(self, scan: n.Scan, slot: int) -> n.Node:
        columns, settled = scan.schema.keys(), self.shape.admits
        many = [(m, of_columns(m.forms.form.slots[slot], columns)) for m in self._blocks(slot)]
        some = all(conjuncts for _, conjuncts in many) if settled is None else scan.alias in settled
        if not some:
            return scan
        blocks = [m.routed(m.forms.conditions(conjuncts)) for m, conjuncts in many]
        those = self._those(slot)
        router = self.routers.router(
            ("admit", slot, scan.alias), those, those is not self.members,
            lambda _, form: condition(of_columns(form.slots[slot], columns)), blocks,
        )  # fmt: skip
        return scan if settled is None and router.wants_all else n.Admit(scan, router)
