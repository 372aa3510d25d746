"""Who is in which shared plan, as a home keeps it: written when somebody comes or goes, named by every manifest.

    manifest    plans/0/*1/members = run, run         key   number  start  come   reader  since
                                                      hot   1       -      true   0       -    written when it began
                                                      cold  2       40     true   0       -
                                                      --------------------------------------
                                                      hot   1       -      false  -       -    written when one had left

                q/9f..    = run, run              s  lim  number'  start'     the instances of a block, once
                                                      1  2.5  5        -
                                                      ----------------------------
                                                      place                       those that have left since

The runs of a plan, one behind the other, are a log: the last row of a number says whether that query is there, and what
it reads. When there are many runs the members are written anew. So what a tick writes does not grow with the members,
and what a change writes grows with what it changes, but for a rewrite now and then. Homes of older versions have the
members in their manifests; these are written here with the first tick.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.state.run import Run
from windrow.sharing.plans.places import LeftPlace, MemberChange, plan_member
from windrow.sharing.plans.registry import SharedPlans
from windrow.sharing.plans.shared_plan import OfferedColumns
from windrow.store.manifest import Manifest, SlotKey
from windrow.store.runs import RunPlace, RunRef

PLANS = "plans"
"""The stage under which a manifest names the members of shared plans."""
MEMBERS = "members"
MOST_RUNS = 8
"""Runs of a plan that are read one behind the other."""

_NUMBER, _START = "number'", "start'"  # names that no user can give
_SCHEMA = pa.schema([
    ("key", pa.string()), ("number", pa.int64()), ("start", pa.int64()), ("come", pa.bool_()),
    ("reader", pa.int64()), ("since", pa.int64()),
])  # fmt: skip


@dataclass(frozen=True, eq=False)
class LeftInstances:
    """The places that instances of a template had in a shared plan when their home was left; `block`: its name."""

    queries: str
    plan: str
    block: str
    rows: pa.Table
    places: Int64s
    start: int | None

    @property
    def clock(self) -> str:
        """The name of their clock."""
        return self.plan

    def take(self, places: Int64s) -> LeftInstances:
        """Some of them."""
        return replace(self, rows=self.rows.take(pa.array(places)), places=self.places[places])


class PlanMembers:
    """The members of shared plans as they are on disk."""

    def __init__(self, runs: RunPlace, manifest: Manifest) -> None:
        self._runs = runs
        named = {k[2:]: refs for k, refs in manifest.runs.items() if k[0] == PLANS}
        self._refs = {plan: refs for (plan, slot), refs in named.items() if slot == MEMBERS}
        self._blocks = {key: (refs, 0) for key, refs in named.items() if key[1] != MEMBERS}  # and how many have left
        self._taken_up = set(self._refs)  # of which it is not known yet who has come back

    def left(self, plans: Mapping[str, Any]) -> dict[str, LeftPlace]:
        """By query, where it was when the home was left; `plans`: as the manifest has them."""
        found: dict[str, LeftPlace] = {}
        for name, plan in plans.items():
            if isinstance(plan, Mapping):
                older = {key: LeftPlace(name, number, None) for key, number in plan.get("members", {}).items()}
                found |= older or self.members(name)
        return found

    def members(self, plan: str) -> dict[str, LeftPlace]:
        """The places of the members of a plan."""
        there: dict[int, tuple[str, LeftPlace]] = {}
        for ref in self._refs.get(plan, ()):
            for row in self._runs.read(ref, cached=False).table.to_pylist():
                key, number, start, come = (row[name] for name in _SCHEMA.names[:4])
                reader = row.get("reader")  # older homes have none
                there.pop(number, None)
                if come:
                    told = None if reader is None else (reader, row["since"])
                    there[number] = (key, LeftPlace(plan, number, start, told))
        return dict(there.values())

    def left_instances(self, queries: str) -> Iterator[LeftInstances]:
        """The places of instances when the home was left, block by block."""
        for (plan, slot), (refs, _) in self._blocks.items():
            owner, _, block = slot.rpartition("/")
            if owner != queries.lower():
                continue
            rows, *gone = (self._runs.read(ref, cached=False).table for ref in refs)
            alive = np.ones(rows.num_rows, np.bool_)
            for each in gone:
                alive[each.column("place").to_numpy()] = False
            rows = rows.filter(pa.array(alive))
            starts = rows.column(_START).unique().to_pylist()
            numbers = rows.column(_NUMBER).to_numpy()
            rows = rows.drop_columns([_NUMBER, _START])
            yield LeftInstances(queries, plan, block, rows, numbers, (starts or [None])[0])

    def slots(self, plans: SharedPlans, tick: int, over: Collection[str] = ()) -> dict[SlotKey, tuple[RunRef, ...]]:
        """What a manifest names, with what has changed since the last one written; `over`: plans that end with it."""
        if not self._runs.durable:
            plans.changes.clear()
            return {}
        changes: dict[str, list[MemberChange]] = {}
        for change in (c for c in plans.changes if c.number >= 0):
            changes.setdefault(change.plan, []).append(change)
        for name, plan in plans.plans.items():
            before, mine = self._refs.get(name, ()), changes.get(name, ())
            if not plan.members:
                self._refs.pop(name, None)
                continue
            if not before or len(before) + bool(mine) > MOST_RUNS or self._differ(name, plans):
                mine, before = [plan_member(plan, number) for number in plan.members], ()
            if mine:
                run = Run(_table(mine))
                self._refs[name] = (*before, *self._runs.write((PLANS, name), tick, [run]))
        plans.changes.clear()
        self._refs = {name: refs for name, refs in self._refs.items() if name in plans.plans}
        self._taken_up = set()
        found = {(PLANS, 0, name, MEMBERS): refs for name, refs in self._refs.items() if name not in over}
        blocks = self._write_blocks(plans, tick)
        return found | {(PLANS, 0, *key): refs for key, refs in blocks.items() if key[0] not in over}

    def _write_blocks(self, plans: SharedPlans, tick: int) -> dict[tuple[str, str], tuple[RunRef, ...]]:
        """The runs of blocks: their rows once, and who has left since."""
        before, self._blocks = self._blocks, {}
        for name, plan in plans.plans.items():
            for block in plan.blocks.values():
                key = (name, f"{block.names.group.lower()}/{block.key}")
                refs, left = before.get(key, ((), 0))
                if not refs:
                    refs = self._runs.write((PLANS, name), tick, [Run(_rows(block))])
                if left < len(block.left):
                    refs = refs[:1] if len(refs) == MOST_RUNS else refs
                    known = [self._runs.read(r, cached=False).table.column("place").to_numpy() for r in refs[1:]]
                    gone = np.setdiff1d(block.left, np.concatenate([block.left[:0], *known]))
                    refs = (*refs, *self._runs.write((PLANS, name), tick, [Run(pa.table({"place": gone}))]))
                elif left > len(block.left):  # some were taken back
                    gone = pa.table({"place": block.left})
                    refs = (refs[0], *self._runs.write((PLANS, name), tick, [Run(gone)]))
                self._blocks[key] = (refs, len(block.left))
        return {key: refs for key, (refs, _) in self._blocks.items()}

    def _differ(self, name: str, plans: SharedPlans) -> bool:
        """Whether somebody did not come back to a plan when its home was taken up."""
        return (
            name in self._taken_up and {m.key for m in plans.plans[name].members.values()} != self.members(name).keys()
        )


def _rows(block: OfferedColumns) -> pa.Table:
    """The instances of a block, with their places in the plan."""
    start = pa.array([block.start], pa.int64()).take(pa.array(np.zeros(len(block), np.int64)))
    return block.names.rows.append_column(_NUMBER, pa.array(block.places)).append_column(_START, start)


def _table(changes: Iterable[MemberChange]) -> pa.Table:
    rows = [(c.key, c.number, c.start, c.come, *(c.reader or (None, None))) for c in changes]
    columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(_SCHEMA.types)]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


__all__ = ["MEMBERS", "PLANS", "LeftInstances", "PlanMembers"]
