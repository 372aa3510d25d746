"""Queries from templates while they run: many queries, one answer.

Every instance is a query like any other, under the name that its values give it; it shares, fails and recovers as any
other does. What a group adds is its answer: the answers of all instances in one table, with the values of the
parameters before the SELECT list.

    names   q(1, 2.5)  q(2, 7)         batch of the family: counts 1, 2; rows |t=30 |t=30 t=40 |
    place   0          1               answer of q:  _ts  sym  lim  n        values taken by place, once for a batch

Cost of a tick: the rows of the answers; names are looked up once for a list of members that stays as it is.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import Instance, QueriesDef, TemplateDef
from windrow.catalog.names import Names
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import Elements
from windrow.plan.dataflow import answer
from windrow.plan.nodes import QueryPlan
from windrow.runtime.kept_answers import AnyAnswer, rows_of
from windrow.sharing.query_group import Batch, Shown

REMEMBERED = 64
"""Lists of members whose places are remembered."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Make many objects that stay, without the garbage collector looking at all of them again and again."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class TemplateGroup:
    """The instances of one name, and the values of their parameters by place."""

    def __init__(self, definition: QueriesDef, template: TemplateDef, like: QueryPlan) -> None:
        """`like`: the plan of some instance."""
        self.definition, self.template, self.like = definition, template, like
        self.plan = replace(like, name=definition.name)  # under the name of all
        self.instances: Names[Instance] = Names()
        self.place: dict[str, int] = {}  # of those that have gone too, until they are many
        self._values: list[list[Any]] = [[] for _ in template.parameters]
        self._columns: list[pa.Array] = []

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def empty(self) -> pa.Table:
        """The answer of no instance."""
        return self.shown(answer(self.like, Elements.empty(self.like.root.schema)), np.zeros(0, np.int64))

    def put(self, come: Iterable[Instance], gone: Iterable[str]) -> None:
        """Have other instances."""
        kept = self.instances.without(*gone)
        self.instances = kept.update({i.name: i for i in come})
        if len(self.place) > 2 * len(self.instances) + 64:
            self.place, self._values = {}, [[] for _ in self.template.parameters]
        for name, instance in self.instances.items() if not self.place else ((i.name, i) for i in come):
            self.place[name] = len(self.place)
            for values, value in zip(self._values, instance.values, strict=True):
                values.append(value)
        self._columns = []

    def values(self, places: Int64s) -> list[pa.Array]:
        """The values of the parameters of instances, by their places."""
        if not self._columns:
            types = self.template.parameters.values()
            self._columns = [pa.array(v, t) for v, t in zip(self._values, types, strict=True)]
        picks = pa.array(places)
        return [column.take(picks) for column in self._columns]

    def shown(self, table: pa.Table, places: Int64s) -> pa.Table:
        """Rows of instances at places, with the values of their parameters before the SELECT list."""
        first = 2 if self.like.has_op else 1
        columns, names = table.columns, table.column_names
        arrays = [*columns[:first], *self.values(places), *columns[first:]]
        return pa.Table.from_arrays(arrays, names=[*names[:first], *self.template.parameters, *names[first:]])

    def with_values(self, relation: pa.Table, name: str) -> pa.Table:
        """The rows of an instance's relation, with the values of its parameters before them."""
        values = self.values(np.full(relation.num_rows, self.place[name]))
        names = [*self.template.parameters, *relation.column_names]
        return pa.Table.from_arrays([*values, *relation.columns], names=names)


class TemplateGroups:
    """All groups of an engine; `of` says which an instance belongs to."""

    def __init__(self) -> None:
        self.live: dict[str, TemplateGroup] = {}
        self.of: dict[str, TemplateGroup] = {}
        self._known: OrderedDict[int, tuple[Sequence[str], list[tuple[TemplateGroup | None, Int64s, Int64s]]]] = (
            OrderedDict()
        )

    def changed(self) -> None:
        """Instances have come or gone."""
        self._known.clear()
        self.of = {name: group for group in self.live.values() for name in group.instances}

    def added(self, group: TemplateGroup, come: Iterable[Instance]) -> None:
        """Instances have come."""
        self._known.clear()
        for instance in come:
            self.of[instance.name] = group

    def put_together(
        self, answers: dict[str, AnyAnswer], batches: Sequence[Batch], shown: Mapping[str, Shown]
    ) -> list[Batch]:
        """Put the answers of instances together in `answers`; returns the batches of the other queries."""
        parts: dict[str, list[pa.Table]] = {}
        if self.of:
            for name in [n for n in answers if n in self.of]:
                table, mine = rows_of(answers.pop(name)), self.of[name]
                places = np.full(table.num_rows, mine.place[name])
                parts.setdefault(mine.name, []).append(mine.shown(table, places))
        others: list[Batch] = []
        for batch in batches:
            for group, part, places in self._split(batch):
                if group is None:
                    others.append(part)
                elif len(part):
                    table = _table(part, shown[part.names[int(part.numbers[0])].lower()])
                    parts.setdefault(group.name, []).append(group.shown(table, places))
        for name, found in parts.items():
            answers[name] = _in_order(found, self.live[name.lower()].empty.schema)
        return others

    def _split(self, batch: Batch) -> Iterable[tuple[TemplateGroup | None, Batch, Int64s]]:
        """A batch by the groups of its queries, with the place of every row's instance."""
        if not self.of or not len(batch):
            return [(None, batch, np.zeros(0, np.int64))]
        whose = self._whose(batch.names)
        if len(whose) == 1:
            (group, _, place) = whose[0]
            return [(group, batch, place if group is None else np.repeat(place[batch.numbers], batch.counts))]
        found: list[tuple[TemplateGroup | None, Batch, Int64s]] = []
        for group, members, place in whose:
            mine = np.zeros(len(batch.names), bool)
            mine[members] = True
            mine = mine[batch.numbers]
            rows = batch.rows.take(np.flatnonzero(np.repeat(mine, batch.counts)))
            part = Batch(batch.names, batch.counts[mine], rows, batch.numbers[mine])
            found.append((group, part, place if group is None else np.repeat(place[part.numbers], part.counts)))
        return found

    def _whose(self, names: Sequence[str]) -> list[tuple[TemplateGroup | None, Int64s, Int64s]]:
        """The groups of queries: which are of it, and for all of the list the place of each (of others, any)."""
        known = self._known.get(id(names))
        if known is not None and known[0] is names:
            return known[1]
        by: dict[int, tuple[TemplateGroup | None, list[int]]] = {}
        for i, name in enumerate(names):
            group = self.of.get(name)
            by.setdefault(id(group), (group, []))[1].append(i)
        found = []
        for group, members in by.values():
            place = np.zeros(len(names), np.int64)
            if group is not None:
                place[members] = [group.place[names[i]] for i in members]
            found.append((group, np.array(members), place))
        self._known[id(names)] = (names, found)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


def _table(batch: Batch, shown: Shown) -> pa.Table:
    """The rows of a batch as users see them, without saying whose they are."""
    return shown.table(pa.array(batch.rows.ts).cast(shown.time_type), batch.rows.columns, 0, len(batch))


def _in_order(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Parts of one answer as one table in the order of time."""
    cast = [p if p.schema == schema else p.cast(schema) for p in parts]
    table = cast[0] if len(cast) == 1 else pa.concat_tables(cast).combine_chunks()
    ts = table.column("_ts").cast(pa.int64()).to_numpy()
    return table if (np.diff(ts) >= 0).all() else table.take(pa.array(np.argsort(ts, kind="stable")))


__all__ = ["TemplateGroup", "TemplateGroups"]
