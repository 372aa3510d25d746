"""Many queries that differ in compared constants, recognised at once: one plan with marks, and columns of values.

The marks may stand in conditions on rows alone, as many as were written: then nothing but conditions differs, and
planning has folded none of them away. Nothing that is computed from rows may raise: a query that raises stops alone,
and these are not alone. Deadlines (SLIDE AT MOST) are periods here: an engine with a tick budget has no such queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from windrow.plan.expr import Atom, Bit, Compound, Expr, Predicate
from windrow.plan.nodes import QueryPlan
from windrow.plan.parametric import Constants, PlanShape
from windrow.plan.totality import total
from windrow.sharing.condition_columns import ConditionColumns, conditions_of
from windrow.sharing.member import Kind, Member
from windrow.sharing.recognise import Alike, FamilyRows, NotShared, Recognised, recognised_rows, tested_formula


def recognise_columns(
    plan: QueryPlan, columns: Mapping[Any, pa.Array], places: int, count: int
) -> tuple[Recognised, ConditionColumns]:
    """The query that all are but for their conditions, and these; `places`: where marks were written."""
    found, rows = recognised_rows(plan)
    kind = found.member.kind
    if not found.chained or kind.user_calls or plan.budget is not None:
        raise NotShared("it compares the rows of its answer, calls functions, or may be shed")
    predicates = [s.predicate for s in rows.steps if isinstance(s, Expr)]
    if None in predicates or not _cannot_raise(found, rows, predicates):
        raise NotShared("it may raise")
    made = [p for p in predicates if p is not None]
    conditions, used = conditions_of(made, columns, count)
    said = repr((kind.above, kind.calls, kind.keys, found.shown, sorted(conditions.attributes)))
    if used != places or any(str(mark) in said for mark in columns):
        raise NotShared("its constants stand elsewhere, too")
    # with the marks some tests may hold nowhere, and have been left out
    formulas = {**kind.formulas, **{a.sql: tested_formula(a) for a in conditions.attributes.values()}}
    whole = Kind.of(kind.keys, kind.calls, formulas, (), kind.above)
    return replace(found, member=replace(found.member, kind=whole, steps=())), conditions


@dataclass(frozen=True)
class InstanceConstants(Constants):
    """The constants of one of many queries; `place`: which one it is."""

    place: int = 0


def shape_of_columns(query: Recognised, conditions: ConditionColumns, marks: Sequence[str]) -> PlanShape:
    """The shape of many queries that are members by themselves: what `recognise` finds of each stands in columns."""
    shape = PlanShape.of(query.plan, marks)
    shape.notes[Alike] = _InColumns(query, conditions)
    return shape


@dataclass(frozen=True, eq=False)
class _InColumns:
    query: Recognised
    conditions: ConditionColumns

    def recognised(self, plan: QueryPlan, constants: Constants) -> Recognised:
        assert isinstance(constants, InstanceConstants)
        like, mine = self.query, self.query.member
        member = Member(plan.name, mine.window, self.conditions.condition(constants.place), mine.kind, ())
        return Recognised(plan, like.source, member, like.columns, like.shown)


def _cannot_raise(found: Recognised, rows: FamilyRows, predicates: list[Predicate | None]) -> bool:
    tested = [e for p in predicates if p is not None for e in _operands(p)]
    computed = [rows.columns[str(c.column)] for c in found.aggregate.calls if c.column is not None]
    computed += [rows.columns[key] for key in found.aggregate.keys]
    return all(total(e, rows.types) for e in (*tested, *computed))


def _operands(predicate: Predicate) -> Iterator[Expr]:
    """What is computed of a row for a predicate."""
    match predicate:
        case Compound(parts):
            for part in parts:
                yield from _operands(part)
        case Bit(expr, _):
            yield expr
        case Atom(left=left):
            yield left
