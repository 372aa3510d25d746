"""Many continuous queries of one canonical form, which differ in compared constants: the form, and columns of values.

    SELECT ISTREAM(sym, price) FROM trade [NOW] WHERE sym = $s AND price > $lim

is one form in which marks stand for the values of `s` and `lim`, and the conditions of its slots are columns of ends
(`condition_columns`), however many queries there are. The marks may stand in the conjuncts of slots and be shown as
they are (`$s AS rule`), as many as were written: then nothing else differs, and planning has folded none of them away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.plan.expr import Expr, Predicate
from windrow.plan.nodes import QueryPlan
from windrow.sharing.condition_columns import ConditionColumns, conditions_of
from windrow.sharing.plans.canonical import Canonical
from windrow.sharing.plans.canonicalise import canonicalise
from windrow.sharing.plans.constants import values_of
from windrow.sharing.recognise import NotShared


@dataclass(frozen=True, eq=False)
class FormColumns:
    """`size` queries of a form; `columns`: by mark, the values that it stands for."""

    form: Canonical
    columns: Mapping[Any, pa.Array]
    size: int
    _known: dict[tuple[Expr, ...], tuple[ConditionColumns, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.size

    @property
    def plan(self) -> QueryPlan:
        """The plan of all, with marks in it."""
        return self.form.plan

    def conditions(self, conjuncts: Sequence[Expr]) -> ConditionColumns:
        """Where all of some conjuncts hold, for each query."""
        return self._counted(conjuncts)[0]

    def marked(self, slot: int) -> int:
        """In how many places of a slot's conjuncts a mark stands."""
        return self._counted(self.form.slots[slot])[1]

    @cached_property
    def _constants(self) -> Mapping[str, tuple[pa.Array, int]]:
        return {name: values_of(e, self.columns, self.size) for name, e in self.form.constants}

    def constants_of(self, which: Int64s) -> dict[str, pa.Array]:
        """The constants that some of the queries show, a value for each."""
        return {name: values.take(pa.array(which)) for name, (values, _) in self._constants.items()}

    @property
    def marked_constants(self) -> int:
        """In how many places of what is shown a mark stands."""
        shown = [c for _, c in self.form.output]
        return sum(marks * shown.count(name) for name, (_, marks) in self._constants.items())

    @property
    def early(self) -> bool:
        """Whether queries differ in a slot below the last."""
        return any(self.marked(slot) for slot in range(len(self.form.slots) - 1))

    def _counted(self, conjuncts: Sequence[Expr]) -> tuple[ConditionColumns, int]:
        key = tuple(conjuncts)
        if key not in self._known:
            self._known[key] = conditions_of([_predicate(e) for e in key], self.columns, self.size)
        return self._known[key]


def form_columns(plan: QueryPlan, columns: Mapping[Any, pa.Array], places: int, count: int) -> FormColumns:
    """The queries that a plan with marks stands for; `places`: where marks were written.

    Raises `NotShared` or `Doubtful` if they must be looked at one by one.
    """
    if plan.budget is not None:
        raise NotShared("its rows may be shed")
    found = FormColumns(canonicalise(plan), columns, count)
    form = found.form
    constants = dict(form.constants)
    output = [(name, "" if c in constants else c) for name, c in form.output]
    said = repr((form.root, form.shown, form.columns, output, form.sizes))
    marked = sum(map(found.marked, range(len(form.slots)))) + found.marked_constants
    if marked != places or any(str(mark) in said for mark in columns):
        raise NotShared("its constants stand elsewhere, too")
    if found.early and form.routable:
        raise NotShared(form.routable)
    return found


def _predicate(e: Expr) -> Predicate:
    if e.predicate is None:
        raise NotShared("a condition is not told by tests")
    return e.predicate


__all__ = ["FormColumns", "form_columns"]
