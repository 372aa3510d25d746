"""Plans for the instances of templates: in columns where they share, one by one elsewhere.

    rows        s   lim   w         w belongs to the window, so each value of it is planned by itself;
                1   2.5   60        s and lim are only compared: one text with marks in their place is planned,
                2   7.0   60        and the marks of its conditions are columns of values
                3   1.0   120

What is computed of parameters and then compared (`price > 10 * $lim`) is computed for all rows at once and takes their
place. What is made so is compared with planning the first, the last, the least and the greatest instances alone; where
it differs, and where columns cannot say it (`sharing.condition_columns`), all are planned one by one. So are rows
with nulls, which are another text, and few rows. Periodic instances with GROUP BY are members one by one, but their
plans are made of one shape, without a text being read, and their conditions are taken from the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.catalog import Catalog, Instance, QueriesDef, TemplateDef
from windrow.catalog.instances import InstanceTable, name_of, row_numbers
from windrow.catalog.literals import literal
from windrow.errors import BindingError, WindrowError
from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import one
from windrow.optimize import Optimizer
from windrow.plan.nodes import QueryPlan
from windrow.plan.parametric import Class, class_of, constant_of
from windrow.runtime.change import InstanceColumns, PlannedInstances
from windrow.runtime.collector import without_collector
from windrow.sharing.condition_columns import ConditionColumns
from windrow.sharing.conditions import Condition
from windrow.sharing.plans.canonical import Canonical
from windrow.sharing.plans.canonicalise import canonicalise
from windrow.sharing.plans.constants import value_of
from windrow.sharing.plans.form_columns import FormColumns, form_columns
from windrow.sharing.recognise import NotShared, Recognised, recognise
from windrow.sharing.recognise_columns import InstanceConstants, recognise_columns, shape_of_columns
from windrow.sharing.spans import Doubtful

SAMPLES = 6
"""Instances of each columns that are planned by themselves, too, besides those with the extremes of values."""


class TemplatePlanner:
    """Plans instances as an engine runs queries: with its rules and its strategy."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._best = optimizer.best

    def planned(
        self, queries: QueriesDef, template: TemplateDef, rows: pa.Table, catalog: Catalog, few: int | None
    ) -> PlannedInstances:
        """The plans of instances; `few`: how many are too few for columns, None: all."""
        found = () if few is None else tuple(self._columns(queries.name, template, rows, catalog, few))
        columns = tuple(c for c in found if not c.grouped)
        rest = np.ones(rows.num_rows, np.bool_)
        for each in found:
            rest[each.places] = False
        places = [np.flatnonzero(rest)]
        plans = self._plans(queries.name, template, rows.take(pa.array(places[0])), catalog)
        for each in found:
            if each.grouped:
                plans |= self._plans(queries.name, template, rows.take(pa.array(each.places)), catalog, each)
                places.append(each.places)
        self._alike(queries.name, rows, columns, plans)
        return PlannedInstances(columns, plans, dict(zip(plans, np.concatenate(places).tolist(), strict=True)))

    def _plans(
        self, name: str, template: TemplateDef, rows: pa.Table, catalog: Catalog, many: InstanceColumns | None = None
    ) -> dict[str, QueryPlan]:
        """The plan of every instance, by its name; `many`: what all of them are but for their conditions."""
        from windrow.cql.templates import instances, writer

        write = writer(template)
        with without_collector():
            if many is None:
                return {i.name: self._plan(i, write.text(i.literals), catalog) for i in instances(name, rows)}
            made = self._shaped(template, many)
            found = enumerate(instances(name, rows))
            return {i.name: made(i, write.text(i.literals), place, catalog) for place, i in found}

    def _shaped(self, template: TemplateDef, many: InstanceColumns) -> Callable[..., QueryPlan]:
        """Makes the plans of instances of one shape; of the first of each class of constants, planning it, too."""
        from windrow.cql.templates import marks

        assert isinstance(many.query, Recognised) and many.conditions is not None
        marked = marks(template)
        shape = shape_of_columns(many.query, many.conditions, [mark for mark, _ in marked.values()])
        which = [i for i, name in enumerate(template.parameters) if name in marked]

        def made(instance: Instance, text: str, place: int, catalog: Catalog) -> QueryPlan:
            literals = tuple([instance.literals[i] for i in which])
            classes = tuple([c for literal in literals if (c := _class(literal)) is not None])
            if len(classes) < len(literals):
                return self._plan(instance, text, catalog)
            constants = InstanceConstants(instance.name, text, literals, classes, place)
            return shape.made(constants, lambda: self._plan(instance, text, catalog))

        return made

    def _alike(
        self, name: str, rows: pa.Table, columns: Iterable[InstanceColumns], plans: Mapping[str, QueryPlan]
    ) -> None:
        """Refuse instances that differ in the columns of their answers."""
        shown = {(tuple([n for n, _ in plan.output]), plan.has_op): own for own, plan in plans.items()}
        for each in columns:
            plan, first = each.query.plan, int(each.places[0])
            key = (tuple(n for n, _ in plan.output), plan.has_op)
            shown.setdefault(key, name_of(name, [c[first] for c in rows.columns]))
        if len(shown) > 1:
            first_name, other, *_ = shown.values()
            raise BindingError(
                f"{first_name} and {other} differ in the columns of their answers",
                hint="name every column of the SELECT list with AS",
            )

    def plan(
        self, queries: QueriesDef, template: TemplateDef, rows: pa.Table, place: int, catalog: Catalog
    ) -> QueryPlan:
        """The plan of one instance."""
        (plan,) = self._plans(queries.name, template, rows.slice(place, 1), catalog).values()
        return plan

    def _plan(self, instance: Instance, text: str, catalog: Catalog) -> QueryPlan:
        from windrow import cql

        try:
            plan = cql.compile_instance(text, catalog, instance.name)
        except WindrowError as error:
            raise BindingError(f"{instance.name}: {error.primary}", detail=error.detail, hint=error.hint) from None
        return self._best(plan, catalog)

    def like(self, template: TemplateDef, catalog: Catalog) -> QueryPlan:
        """The plan of some instance, for the columns of the answers."""
        from windrow.cql.templates import sample

        return self._best(sample(template, catalog), catalog)

    def wanted(self, queries: QueriesDef, template: TemplateDef, table: Callable[[str], pa.Table]) -> InstanceTable:
        """The instances that are named, or that the rows of a table ask for."""
        from windrow.cql.templates import rows_of, with_rows

        if queries.table is None:
            return queries.instances
        bare = replace(queries, instances=InstanceTable.empty(template.parameters))
        return with_rows(bare, rows_of(table(queries.table.lower()), template)).instances

    # -- in columns --------------------------------------------------------------------------------------------------

    def _columns(
        self, name: str, template: TemplateDef, rows: pa.Table, catalog: Catalog, few: int
    ) -> Iterator[InstanceColumns]:
        """Instances that differ in compared values only, set by set."""
        from windrow.cql.templates import marks

        if rows.num_rows < few:
            return
        computed, values = _computed(template, rows)
        tried = [marks(computed, shown=True), marks(computed)]
        for marked in tried if tried[0] != tried[1] else tried[1:]:
            found = tuple(self._marked(name, template, computed, rows, values, marked, catalog, few)) if marked else ()
            yield from found
            if found:
                return

    def _marked(
        self, name: str, template: TemplateDef, computed: TemplateDef, rows: pa.Table, values: pa.Table,
        marked: Mapping[str, tuple[str, int]], catalog: Catalog, few: int,
    ) -> Iterator[InstanceColumns]:  # fmt: skip
        for places in _sets(values, marked, few):
            mine, compared = rows.take(pa.array(places)), values.take(pa.array(places))
            try:
                found = self._recognised(name, computed, compared, marked, catalog)
            except (NotShared, Doubtful, WindrowError):
                continue
            made = InstanceColumns(places, *(found if isinstance(found, tuple) else (found,)))
            if made.grouped and computed is not template:
                continue  # their plans are made of their own literals
            if all(self._agrees(name, template, mine, i, found, catalog) for i in _samples(compared, marked)):
                yield made

    def _recognised(
        self, name: str, template: TemplateDef, rows: pa.Table, marked: Mapping[str, tuple[str, int]], catalog: Catalog
    ) -> tuple[Recognised, ConditionColumns] | FormColumns:
        """What all instances are, and their conditions."""
        from windrow import cql
        from windrow.cql.templates import writer

        literals = [marked[n][0] if n in marked else literal(rows.column(n)[0]) for n in template.parameters]
        plan = cql.compile_select(writer(template).text(literals), catalog, name)
        plan = self._best(plan, catalog)
        columns = {constant_of(mark).value: one(rows.column(n)) for n, (mark, _) in marked.items()}
        places = sum(times for _, times in marked.values())
        if plan.root.period is None:
            return form_columns(plan, columns, places, rows.num_rows)
        return recognise_columns(plan, columns, places, rows.num_rows)

    def _agrees(
        self, name: str, template: TemplateDef, rows: pa.Table, i: int,
        many: tuple[Recognised, ConditionColumns] | FormColumns, catalog: Catalog,
    ) -> bool:  # fmt: skip
        """Whether an instance is planned by itself as it is in columns."""
        (plan,) = self._plans(name, template, rows.slice(i, 1), catalog).values()
        if isinstance(many, FormColumns):
            try:
                return _same_form(canonicalise(plan), many, i)
            except NotShared:
                return False
        query, conditions = many
        found = recognise(plan)
        of = found.member.kind
        alike = (found.source, found.shown, found.member.window, of.calls, of.above, of.keys)
        mine, kind = query.member, query.member.kind
        return alike == (query.source, query.shown, mine.window, kind.calls, kind.above, kind.keys) and _merged(
            found.member.condition
        ) == _merged(conditions.condition(i))


def _computed(template: TemplateDef, rows: pa.Table) -> tuple[TemplateDef, pa.Table]:
    """The template with what it computes of its parameters as parameters, and the values of these; or as it is."""
    from windrow.cql.template_constants import computed_constants

    made, found = computed_constants(template)
    columns = {name: one(rows.column(name)) for name in template.parameters}
    try:
        arrays = scalar.evaluate(columns, rows.num_rows, [(c.sql, c.type) for c in found]) if found else []
    except WindrowError:
        return template, rows
    values = columns | dict(zip((c.name for c in found), arrays, strict=True))
    return made, pa.table({name: values[name] for name in made.parameters})


def _class(literal: str) -> Class | None:
    """The class of a literal that may have a sign; None for one whose text is not its value."""
    if "''" in literal[1:-1]:
        return None
    found = class_of(literal.removeprefix("-"))
    return (-1, *found) if isinstance(found, tuple) and literal.startswith("-") else found


def _same_form(found: Canonical, many: FormColumns, i: int) -> bool:
    """Whether a query has the form of many, and the conditions that these have at a place."""
    form = many.form
    if (found.root, found.columns, found.sizes, found.shown, found.plan.has_op) != (
        form.root, form.columns, form.sizes, form.shown, form.plan.has_op,
    ):  # fmt: skip
        return False
    mine = {name: value_of(e) for name, e in found.constants}
    theirs = many.constants_of(np.array([i]))
    if [(n, mine.get(c, c)) for n, c in found.output] != [(n, theirs.get(c, c)) for n, c in form.output]:
        return False
    conditions = [many.conditions(conjuncts).condition(i) for conjuncts in form.slots]
    return list(map(_merged, found.conditions)) == list(map(_merged, conditions))


def _merged(condition: Condition) -> frozenset[Any]:
    """A condition as a set of boxes with one span each: what its boxes are however they are put together."""
    found: set[Any] = set()
    for box in condition.boxes:
        spans = [[(a, s) for s in (*v.spans, *((None,) if v.null else ()))] for a, v in box]
        found |= set(product(*spans))
    return frozenset(found)


def _sets(rows: pa.Table, marked: Mapping[str, Any], few: int) -> Iterator[Int64s]:
    """Rows without nulls that agree in all that is not marked, where they are not few."""
    fixed = [n for n in rows.column_names if n not in marked]
    (of,) = row_numbers([rows.select(fixed)]) if fixed else (np.zeros(rows.num_rows, np.int64),)
    for name in rows.column_names:
        if rows.column(name).null_count:
            of = np.where(one(pc.is_null(rows.column(name))).to_numpy(zero_copy_only=False), -1, of)
    order = np.argsort(of, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
        if len(places) >= max(few, 1) and of[places[0]] >= 0:
            yield places


def _samples(rows: pa.Table, marked: Mapping[str, Any]) -> list[int]:
    """Instances to be planned by themselves: with the extremes of every value, and some others."""
    found = {*np.linspace(0, rows.num_rows - 1, SAMPLES).astype(int).tolist()}
    for name in marked:
        values = one(rows.column(name))
        order = pc.array_sort_indices(values)
        found |= {order[0].as_py(), order[-1].as_py()}
    return sorted(found)
