"""Readers: the queries of a shared plan for which the same rows are kept.

What a plan remembers below the place where its queries part is older than a query that comes later. So there rows are
told apart by *reader*: some queries that select alike below that place, and that came with the same tick.

    queries    a b c (together)      d (later)      e (later still)      HAVING count(*) > 1, > 2, ... > 5
    readers          1                  5                 7
    states     a count for each group and reader; at the last slot a reader's rows part by query

A row is for every reader that was there when it came. So a reader's states have no row from before it came, as if its
queries ran alone; and when the windows have turned over, they have all that an older reader's have. Then the two are
one: the queries of the younger one read what is kept for the older one, and nothing more is kept for the younger.

Law: two readers that select alike are one from the instant on at which the last row is over that only one of them has.
Cost: what n queries cost that come in n ticks within a window; those of all earlier ones cost what one does.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from windrow.operators.elements import BEGINNING, INF
from windrow.plan import nodes as n
from windrow.sharing.plans.canonical import Canonical, Slot, number_of
from windrow.sharing.recognise import NotShared


@dataclass(frozen=True)
class Reader:
    """`form`: of one of its queries. `start`: where its clock starts, and no row is younger that came before it; None:
    no row had come. `before`: what had come before it, as far as it makes a difference; None: that is not known."""

    number: int
    form: Canonical
    start: int | None
    before: Hashable = None

    @property
    def selects(self) -> Hashable:
        """What it selects by; readers that select alike may become one."""
        return self.form.fixed

    @property
    def since(self) -> int:
        """Up to where rows may have come before it."""
        return BEGINNING if self.start is None else self.start


@dataclass(frozen=True)
class PlanReaders:
    """The readers of a plan: by its number, the form of one of its queries; `of`: the reader of every query."""

    forms: Mapping[int, Canonical]
    of: Mapping[int, int]


class ToldApart(NamedTuple):
    """Where rows are told apart: at early slots, and elsewhere as they leave the windows over `scans`.

    `counted`: of these, those below windows of rows, which count the rows of each reader. `stamped`: by slot, the scans
    below whose rows say when they came, since they are remembered before they part.
    """

    scans: frozenset[str]
    counted: frozenset[str]
    stamped: Mapping[int, tuple[str, ...]]


def told_apart(form: Canonical) -> ToldApart:
    """Where readers are told apart in the plans of a form; raises `NotShared` where they cannot be."""
    found = _Places(len(form.slots) - 1)
    if not found.told(form.root.input):
        raise NotShared("it reads no stream")
    return ToldApart(frozenset(found.scans), frozenset(found.counted), found.stamped)


@dataclass
class _Places:
    last: int
    scans: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    stamped: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def told(self, node: n.Node) -> bool:
        """Whether the rows of a node are told apart; those of tables are not."""
        match node:
            case n.Scan():
                raise NotShared("its rows are in no window")
            case n.AsofJoin():
                raise NotShared("what it takes of rows from before a query came is not told apart")
            case n.Window():
                scans = _scans(node)
                self.scans.update(scans)
                self.counted.update(scans if node.spec.kind is n.WindowKind.ROWS else ())
                return bool(scans)
            case n.TableScan():
                return False
            case Slot() if node.number != self.last and parts_here(node):
                scans = _scans(node)
                if any(isinstance(x, n.Join) for x in n.walk(node)):
                    self.stamped[node.number] = scans
                return True
        below = [self.told(x) for x in node.inputs]
        match node:
            case n.Semi(left=Slot(), right=Slot() as right) if parts_here(right):  # it meets the keys of the left side
                self.stamped[right.number] = _scans(right)
        if isinstance(node, n.Join):
            return any(below)
        if not below[0] and (any(below) or _counts(node) or (isinstance(node, Slot) and node.number != self.last)):
            raise NotShared("rows of a table are there before the query that they are for")
        if isinstance(node, n.Union | n.Difference | n.Intersection) and not all(below):
            raise NotShared("rows of a table are there before the query that they are for")
        return below[0]


def _counts(node: n.Node) -> bool:
    """Whether there is a row from when the clock of a query starts."""
    return isinstance(node, n.Aggregate) and not node.keys


def parts_here(slot: Slot) -> bool:
    """Whether rows can be told apart at an early slot: what is remembered below are the sides of joins, if anything."""
    kinds = n.TableScan | n.Project | n.Join | Slot
    return bool(_scans(slot)) and not slot.apart and all(
        isinstance(x, kinds | n.Scan) or (isinstance(x, n.Window) and x.spec.kind is not n.WindowKind.ROWS)
        for x in n.walk(slot)
    )  # fmt: skip


def _scans(node: n.Node) -> tuple[str, ...]:
    return tuple(x.alias for x in n.walk(node) if isinstance(x, n.Scan))


def lasting(form: Canonical) -> int:
    """For how long a row that came before a query may make a difference to it."""
    return _lasting(form, form.root)


def _lasting(form: Canonical, node: n.Node) -> int:
    match node:
        case n.Quantise(period=period, input=below):
            last = _lasting(form, below)
            return INF if last == INF else last + period
        case n.TableScan():
            return 0  # rows meet a table as it is when they come
        case n.Scan():
            return INF
        case n.Window(spec=spec):
            number = number_of(node)
            if number is not None:
                return form.sizes[number]
            if spec.kind is n.WindowKind.NOW:
                return 1
            return INF if spec.kind is not n.WindowKind.RANGE or spec.size is None else spec.size
    return max(_lasting(form, x) for x in node.inputs)
