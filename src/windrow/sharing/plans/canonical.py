"""What a plan is but for names, conditions, lengths of windows and the select list.

Two queries can be one dataflow if they differ in names (aliases, names of columns, the order of conjuncts), conditions,
lengths of windows by time and select lists only. The canonical form of a plan has none of these: columns are named by
the place of their scan and by what is computed, and selections are taken out and lifted as far as they commute with
what is above them. Where they stay is a slot; its conjuncts are kept beside the tree, and so are the lengths of the
windows below it, since a row that is cut off after a join ends as if its window had been shorter.

    SELECT x.k FROM s [RANGE 9] x, r [RANGE 5] y WHERE x.k = y.k AND x.v > 3
    emit(slot 0(join[0.k = 1.k](window(scan r), window(scan s))))     slot 0: (1.v > 3), windows 5 and 9; shown: 1.k

What is shown and reads no column (`17 AS rule`) is kept beside the tree, too, and is no part of what is shown of rows.

A periodic plan is the same plan with `Quantise` in it, with which selections commute and lengths do not. What else
commutes is said in `canonicalise.py`, which makes the form.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from windrow.plan import nodes as n
from windrow.plan.expr import Expr
from windrow.sharing.conditions import Condition, condition
from windrow.sharing.plans.constants import NOTHING


@dataclass(frozen=True)
class Slot(n.Unary):
    """Where a selection stands; `keep`: the columns that what is above it reads (of the topmost: those that each query
    shows). `apart`: rows are told apart by query below it already, if they are at all. `windows`: the numbers of those
    whose lengths are told here."""

    number: int = 0
    keep: tuple[str, ...] = ()
    apart: bool = False
    windows: tuple[int, ...] = ()


Columns = tuple[tuple[str, str, pa.DataType], ...]


@dataclass(frozen=True)
class Canonical:
    """A plan apart: the tree, what it selects by at each slot, what its scans read, and how its answer is shown.

    Scans in the tree have no columns, windows by time no length (`sizes`, by their numbers), and projections only those
    columns that are read above the next slot. `shown`: what the answer is made of, over the columns below the
    last slot; `constants`: the rest of it, which reads none.
    """

    plan: n.QueryPlan
    root: n.Emit
    slots: tuple[tuple[Expr, ...], ...]
    columns: tuple[Columns, ...]  # by scan
    output: tuple[tuple[str, str], ...]
    sizes: tuple[int, ...] = ()
    shown: tuple[tuple[str, Expr], ...] = ()
    constants: tuple[tuple[str, Expr], ...] = ()

    def showing(self, columns: Container[str]) -> Canonical:
        """The same with those constants as columns that a plan has among its columns: one that began with them."""
        back = [c for c in self.constants if c[0] in columns]
        if not back:
            return self
        shown = sorted([*(s for s in self.shown if s != NOTHING), *back], key=lambda kv: kv[0])
        return replace(self, shown=tuple(shown), constants=tuple(c for c in self.constants if c not in back))

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conjuncts of every slot as the index has them."""
        return tuple(condition(conjuncts) for conjuncts in self.slots)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns that it shows."""
        return tuple(name for name, _ in self.shown)

    @cached_property
    def tested(self) -> tuple[frozenset[str], ...]:
        """The columns that every slot's conjuncts read."""
        return tuple(frozenset().union(*(e.columns for e in conjuncts)) for conjuncts in self.slots)

    @cached_property
    def routable(self) -> str:
        """Why rows cannot be told apart by query at every slot; empty if they can."""
        for node in n.walk(self.root):
            match node:
                case n.Join(parts=parts) if sum(map(has_slot, parts)) > 1:
                    return "it joins subqueries that select for themselves"
                case n.Semi(left=left, right=right) if has_slot(right) and not isinstance(left, Slot):
                    return "what must not exist is a subquery that selects for itself"
        return ""

    @cached_property
    def stateless(self) -> bool:
        """Whether nothing is remembered below the slots at which rows are first told apart."""
        if any(isinstance(x, n.Semi) for x in n.walk(self.root)):
            return False  # the right side meets what the left side of all queries has
        first = [s for s in n.walk(self.root) if isinstance(s, Slot) and not s.apart]
        below = [x for s in first for x in n.walk(s)]
        leaves = sum(isinstance(x, n.Scan | n.TableScan) for x in n.walk(self.root))
        return all(map(_keeps_nothing, below)) and leaves == sum(isinstance(x, n.Scan) for x in below)

    @cached_property
    def over_nothing(self) -> bool:
        """Whether it answers, from its clock on, though there are no rows: an aggregate without GROUP BY does."""
        return any(isinstance(x, n.Aggregate) and not x.keys for x in n.walk(self.root))

    @property
    def passes(self) -> bool:
        """Whether it only selects: rows meet no others before they are told apart for good."""
        return len(self.slots) == 1 and self.stateless

    @cached_property
    def joins(self) -> bool:
        """Whether only the sides of joins are remembered: rows that say when they came tell whose a result is."""
        kinds = n.Scan | n.TableScan | n.Project | n.Join | Slot | n.Emit
        by_time = (isinstance(x, n.Window) and x.spec.kind is not n.WindowKind.ROWS for x in n.walk(self.root))
        nodes = zip(n.walk(self.root), by_time, strict=True)
        return len(self.slots) == 1 and all(time or isinstance(x, kinds) for x, time in nodes)

    @cached_property
    def fixed(self) -> tuple[object, ...]:
        """The conjuncts of all slots but the last, and the lengths of the windows below those."""
        last = self.root.input
        assert isinstance(last, Slot)
        sizes = tuple(size for number, size in enumerate(self.sizes) if number not in last.windows)
        return (*(frozenset(conjuncts) for conjuncts in self.slots[:-1]), sizes)


LENGTH = "length "


def number_of(node: n.Node) -> int | None:
    """The number of a window whose length is told at the slot above."""
    if not isinstance(node, n.Window) or not node.spec.text.startswith(LENGTH):
        return None
    return int(node.spec.text[len(LENGTH) :])


def _keeps_nothing(node: n.Node) -> bool:
    if isinstance(node, n.Window):
        return node.spec.kind is not n.WindowKind.ROWS
    return isinstance(node, n.Scan | n.Project | Slot)


def has_slot(node: n.Node) -> bool:
    """Whether a selection stands at the node or below it."""
    return any(isinstance(x, Slot) for x in n.walk(node))
