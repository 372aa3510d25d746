"""Queries from templates while they run: many queries, one answer.

Every instance has a number in its group. Those that differ in conditions only run as members in columns, and are
nowhere looked at one by one; the others are queries like any other, under the name that their values give them. What a
group adds is its answer: the answers of all instances in one table, with the values of the parameters before the
SELECT list.

    members  0  1  2 ...               batch of the family: counts 1, 2; rows |t=30 |t=30 t=40 |
    numbers  7  8  9                   answer of q:  _ts  sym  lim  n        values taken by number, once for a batch

Cost of a tick: the rows of the answers; names are looked up once for a list of members that stays as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np
import pyarrow as pa

from windrow.catalog import QueriesDef, TemplateDef
from windrow.catalog.instances import InstanceTable, positions
from windrow.catalog.names import Names
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import one
from windrow.plan.nodes import QueryPlan
from windrow.runtime.instance_answers import AnswerPart, Columns, in_order
from windrow.runtime.kept_answers import AnyAnswer, rows_of
from windrow.runtime.undo_log import LoggedDict, UndoLog
from windrow.sharing.member_columns import InstanceNames, MemberColumns
from windrow.sharing.plans.answers import InstanceRows
from windrow.sharing.plans.shared_plan import OfferedColumns
from windrow.sharing.query_group import Batch, Shown

FEW = 64
"""Fewer instances that differ in conditions only run by themselves, so that blocks of members stay few."""

REMEMBERED = 64
"""Lists of members whose places are remembered."""


Block = MemberColumns | OfferedColumns
"""Instances in columns: members of a family, or of a shared plan."""


class TemplateGroup:
    """The instances of one name, and the values of their parameters by number."""

    def __init__(self, definition: QueriesDef, template: TemplateDef, like: QueryPlan, none: pa.Table) -> None:
        """`like`: the plan of some instance; `none`: its answer without rows."""
        self.definition, self.template, self.like = definition, template, like
        self.plan = replace(like, name=definition.name)  # under the name of all
        self.place: Names[int] = Names()  # the numbers of those that run by themselves, by name
        self.blocks: Names[Block] = Names()  # the others
        self._none = none
        self._rows = pa.schema(list(template.parameters.items())).empty_table()
        self._numbers: Int64s = np.zeros(0, np.int64)  # of the rows, in order
        self._gone: Bools = np.zeros(0, np.bool_)
        self._next = 0

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def instances(self) -> InstanceTable:
        """The values of those that are there."""
        return InstanceTable(self._rows.filter(pa.array(~self._gone)))

    def __len__(self) -> int:
        return int(np.count_nonzero(~self._gone))

    @property
    def empty(self) -> pa.Table:
        """The answer of no instance."""
        return self.shown(self._none, self.values(np.zeros(0, np.int64)))

    @property
    def empty_relation(self) -> pa.Table:
        """The relation of no instance: the parameters and the SELECT list."""
        columns = len(self.template.parameters) + len(self.like.output)
        return self.empty.select(list(range(2, 2 + columns)))

    def copy(self) -> TemplateGroup:
        """The group as it is now: what happens to one of the two does not happen to the other."""
        return copy(self)

    def come(self, rows: pa.Table) -> Int64s:
        """Have more instances; their numbers."""
        numbers = self._next + np.arange(rows.num_rows)
        self._next += rows.num_rows
        self._rows = pa.concat_tables([self._rows, rows.cast(self._rows.schema)])
        self._numbers = np.concatenate((self._numbers, numbers))
        self._gone = np.concatenate((self._gone, np.zeros(len(numbers), np.bool_)))
        return numbers

    def go(self, rows: pa.Table) -> Int64s:
        """Have instances with these values no longer; their numbers."""
        there = np.flatnonzero(~self._gone)
        at = positions(rows, self._rows.filter(pa.array(~self._gone)))
        gone = there[at[at >= 0]]
        numbers = self._numbers[gone]
        self._gone = self._gone.copy()
        self._gone[gone] = True
        if 2 * np.count_nonzero(self._gone) > len(self._gone) + 128:  # answers may still name those that go now
            late = ~self._gone
            late[gone] = True
            self._rows, self._numbers, self._gone = (
                self._rows.filter(pa.array(late)),
                self._numbers[late],
                self._gone[late],
            )
        return numbers

    def values(self, numbers: Int64s) -> Columns:
        """The values of the parameters of instances, by their numbers."""
        if any(c.num_chunks > 1 for c in self._rows.columns):
            self._rows = self._rows.combine_chunks()
        known = self._numbers
        together = len(known) > 0 and known[-1] - known[0] == len(known) - 1  # nobody between them has gone
        picks = pa.array(numbers - known[0] if together else np.searchsorted(known, numbers))
        return [one(column).take(picks) for column in self._rows.columns]

    def numbers(self, rows: pa.Table) -> Int64s:
        """The numbers of the instances with these values; -1 for values that none has."""
        known = np.append(self._numbers[~self._gone], -1)  # the last is of nobody
        return known[positions(rows, self.instances.rows)]

    def find(self, name: str) -> tuple[str, int] | None:
        """The block and the place in it of an instance that is called so, in lower case."""
        if not name.startswith(f"{self.name.lower()}("):
            return None
        found = ((b, m.names.place.get(name)) for b, m in self.blocks.items())
        return next(((b, place) for b, place in found if place is not None), None)

    def shown(self, table: pa.Table, values: Columns) -> pa.Table:
        """Rows of instances, with the values of their parameters before the SELECT list."""
        first = 2 if self.like.has_op else 1
        columns, names = table.columns, table.column_names
        arrays = [*columns[:first], *values, *columns[first:]]
        return pa.Table.from_arrays(arrays, names=[*names[:first], *self.template.parameters, *names[first:]])

    def with_values(self, relation: pa.Table, name: str) -> pa.Table:
        """The rows of an instance's relation, with the values of its parameters before them."""
        values = self.values(np.full(relation.num_rows, self.place[name]))
        names = [*self.template.parameters, *relation.column_names]
        return pa.Table.from_arrays([*values, *relation.columns], names=names)


class TemplateGroups:
    """All groups of an engine; `of` says to which an instance that runs by itself belongs."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self.live: LoggedDict[str, TemplateGroup] = LoggedDict(undo)
        self.of: LoggedDict[str, str] = LoggedDict(undo)
        self._known: OrderedDict[int, tuple[Sequence[str], list[tuple[TemplateGroup | None, Int64s, Int64s]]]] = (
            OrderedDict()
        )

    def changing(self, key: str) -> TemplateGroup:
        """A group in which instances come and go: another than before."""
        self._known.clear()
        self._undo.note(self._known.clear)
        group = self.live[key] = self.live[key].copy()
        return group

    def added(self, group: TemplateGroup, come: Iterable[str]) -> None:
        """Instances that run by themselves have come."""
        self._known.clear()
        self.of.update(dict.fromkeys(come, group.name.lower()))

    def ended(self, gone: Iterable[str]) -> None:
        """Instances that ran by themselves have gone."""
        self._known.clear()
        for name in gone:
            del self.of[name]

    def find(self, name: str) -> tuple[TemplateGroup, str, int] | None:
        """An instance among members in columns, by its name in lower case: its group, block, and place."""
        for group in self.live.values():
            found = group.find(name)
            if found is not None:
                return group, *found
        return None

    def put_together(
        self,
        answers: dict[str, AnyAnswer],
        batches: Sequence[Batch],
        shown: Callable[[str], Shown],
        instances: Sequence[InstanceRows] = (),
    ) -> list[Batch]:
        """Put the answers of instances together in `answers`; returns the batches of the other queries."""
        parts: dict[str, list[AnswerPart]] = {}
        if self.of:
            for name in [n for n in answers if n in self.of]:
                table, mine = rows_of(answers.pop(name)), self.live[self.of[name]]
                numbers, counts = np.array([mine.place[name]]), np.array([table.num_rows])
                parts.setdefault(mine.name, []).append(AnswerPart(table, numbers, counts))
        others: list[Batch] = []
        for batch in batches:
            for group, part, numbers in self._split(batch):
                if group is None:
                    others.append(part)
                elif len(part):
                    one_ = group.blocks.get(part.one)
                    how = shown(part.one.lower()) if one_ is None else Shown.of(one_.plan)
                    parts.setdefault(group.name, []).append(AnswerPart(_table(part, how), numbers, part.counts))
        for each in instances:
            for group in self.live.values():
                members = group.blocks.get(each.block)
                if members is not None:
                    numbers, counts = members.numbers[each.which], np.ones(len(each.which), np.int64)
                    parts.setdefault(group.name, []).append(AnswerPart(each.table, numbers, counts))
        for name, found in parts.items():
            group = self.live[name.lower()]
            schema = group.empty.schema
            table = group.shown(*in_order(found, group.values))
            answers[name] = table if table.schema == schema else table.cast(schema)
        return others

    def _split(self, batch: Batch) -> Iterable[tuple[TemplateGroup | None, Batch, Int64s]]:
        """A batch by the groups of its queries, with the numbers of the instances that its counts are about."""
        if isinstance(batch.names, InstanceNames):
            return self._of_block(batch, batch.names.block)
        if not self.of or not len(batch):
            return [(None, batch, np.zeros(0, np.int64))]
        whose = self._whose(batch.names)
        if len(whose) == 1:
            (group, _, place) = whose[0]
            return [(group, batch, place if group is None else place[batch.numbers])]
        found: list[tuple[TemplateGroup | None, Batch, Int64s]] = []
        for group, members, place in whose:
            mine = np.zeros(len(batch.names), bool)
            mine[members] = True
            mine = mine[batch.numbers]
            rows = batch.rows.take(np.flatnonzero(np.repeat(mine, batch.counts)))
            part = Batch(batch.names, batch.counts[mine], rows, batch.numbers[mine])
            found.append((group, part, place if group is None else place[part.numbers]))
        return found

    def _of_block(self, batch: Batch, block: str) -> list[tuple[TemplateGroup | None, Batch, Int64s]]:
        """The answers of members in columns; nobody's, if their group has gone."""
        for group in self.live.values():
            members = group.blocks.get(block)
            if members is not None:
                return [(group, batch, members.numbers[batch.numbers])]
        return []

    def _whose(self, names: Sequence[str]) -> list[tuple[TemplateGroup | None, Int64s, Int64s]]:
        """The groups of queries: which are of it, and for all of the list the place of each (of others, any)."""
        known = self._known.get(id(names))
        if known is not None and known[0] is names:
            return known[1]
        by: dict[str | None, list[int]] = {}
        for i, name in enumerate(names):
            by.setdefault(self.of.get(name), []).append(i)
        found = []
        for key, members in by.items():
            place, group = np.zeros(len(names), np.int64), None if key is None else self.live[key]
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


__all__ = ["TemplateGroup", "TemplateGroups"]
