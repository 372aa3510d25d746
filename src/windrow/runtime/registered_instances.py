"""Instances of templates that run as members in columns: in a family, or in a shared plan.

Cost: a change costs what it changes in arrays, whoever else there is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.runtime.change import ComingInstances, InstanceColumns
from windrow.runtime.column_places import LeftColumns
from windrow.runtime.instances import TemplateGroup
from windrow.runtime.member_blocks import unique
from windrow.runtime.plan_members import LeftInstances
from windrow.runtime.registered import RegisteredQueries
from windrow.sharing.member_columns import InstanceNames, MemberColumns
from windrow.sharing.plans.form_columns import FormColumns
from windrow.sharing.plans.places import LeftPlaces
from windrow.sharing.plans.shared_plan import OfferedColumns


class RegisteredInstances(RegisteredQueries):
    """What a ticker runs, with instances in columns among it."""

    def add_instances(
        self, group: TemplateGroup, come: ComingInstances, start: int | None = None, *, materialized: bool = False
    ) -> None:
        """Let a group have more instances: those in columns run from the next tick on, others when they are added."""
        planned, numbers = come.planned, group.come(come.rows)
        for columns in planned.columns:
            self._add_columns(group, columns, come.rows, numbers, start, come.left, materialized)
        group.place = group.place.update({name: int(numbers[place]) for name, place in planned.places.items()})
        self.groups.added(group, planned.plans)

    def _add_columns(
        self, group: TemplateGroup, come: InstanceColumns, rows: pa.Table, numbers: Int64s, start: int | None,
        left: LeftColumns | LeftInstances | None, materialized: bool,
    ) -> None:  # fmt: skip
        """Run instances as members in columns; `rows` and `numbers`: of all that come."""
        uid, mine = unique(), rows.take(pa.array(come.places)).combine_chunks()
        names = InstanceNames(uid, group.name, mine)
        if isinstance(come.query, FormColumns):
            block = OfferedColumns(
                uid, come.query.form, materialized, start, False, come.query, names, numbers[come.places]
            )
            if isinstance(left, LeftInstances):
                left = left.take(come.places)
                self.plans.offer_columns(block, LeftPlaces(left.plan, left.block, left.places, left.start))
            else:
                self.plans.offer_columns(block)
            self.undo.note(self.plans.leave_columns, uid, np.arange(len(block)))
            group.blocks = group.blocks.put(uid, block)
            self._deployment = None
            return
        assert come.conditions is not None and not isinstance(left, LeftInstances)
        members = MemberColumns(uid, come.query, come.conditions, names, numbers[come.places])
        clock = self.sharing.admit_columns(members, None if left is None else left.take(come.places))
        self.undo.note(self.sharing.remove_columns, uid, np.arange(len(members)))
        group.blocks = group.blocks.put(uid, members)
        self._deployment = None
        self.await_clock(clock)
        if start is not None and not self.has_clock(clock):
            self.starts[clock] = start

    def drop_query(self, name: str) -> None:
        """Stop a query, or an instance in columns, and forget its state."""
        instance = None if name.lower() in self.queries else self.groups.find(name.lower())
        if instance is None:
            super().drop_query(name)
        else:
            self.drop_columns(instance[0], instance[1], np.array([instance[2]]))

    def drop_columns(self, group: TemplateGroup, block: str, places: Int64s) -> None:
        """Stop some members of a block."""
        if self.plans.has_block(block):
            self._drop_from_plan(group, block, places)
            return
        token = self.sharing.remove_columns(block, places)
        self.undo.note(self.sharing.reinstate_columns, token)
        self._deployment = None
        if block not in self.sharing.columns:
            group.blocks = group.blocks.without(block)
        self.end_clock(token[0].clock)

    def _drop_from_plan(self, group: TemplateGroup, block: str, places: Int64s) -> None:
        name = self.plans.columns.get(block)
        plan = None if name is None else self.plans.plans[name]
        self.undo.note(self.plans.put_block, self.plans.block(block), plan)
        over = self.plans.leave_columns(block, places)
        self._deployment = None
        if not self.plans.has_block(block):
            group.blocks = group.blocks.without(block)
        if over is not None:
            self._plan_programs.pop(over, None)
            self.forget(over)

    def drop_blocks(self, plan: str) -> None:
        """Stop all instances that are in a shared plan as columns."""
        for block in list(self.plans.plans[plan].blocks.values()) if plan in self.plans.plans else ():
            group = self.groups.live[block.names.group.lower()]
            self.drop_columns(group, block.key, np.arange(len(block)))

    def left_columns(self, queries: str) -> list[LeftColumns | LeftInstances]:
        """The instances in columns that queries from a template had when the home was left, while it is taken up."""
        if not self.sharing.taking_up:
            return []
        return [*self.sharing.left_columns(queries), *self.plan_members.left_instances(queries)]

    def left_instances(self, queries: str) -> set[str]:
        """The instances of queries from a template, in lower case, that ran by themselves when the home was left."""
        if not self.sharing.taking_up:
            return set()
        mine = f"{queries.lower()}("
        alone = (q for q in (*self.plans.left, *self.manifest.clocks, *self.manifest.firsts) if q.startswith(mine))
        return {name.lower() for name in self.sharing.left_instances(queries)} | set(alone)
