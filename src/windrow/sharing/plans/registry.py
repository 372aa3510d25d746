"""Which continuous queries are one dataflow.

Queries that have come since the last tick are offered; when the next one is planned they are put together:

    open      nothing is remembered below the places where rows part, or only the sides of joins, whose rows say which
              queries there were when they came: a query may join and leave at any time
    closed    aggregates, anti-joins or windows of rows are kept once below them: only those who come together share

A query that comes as the first of its form, and alone, runs by itself, as if nothing were shared, and goes on so; those
who come together, or later where plans are open, have a shared plan. Instances of a template in columns always have.

A shared plan's name and the numbers of its queries are never used twice in a home.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from windrow.errors import StateError, WindrowError
from windrow.operators.aggregates.vectors import Int64s
from windrow.plan.nodes import QueryPlan
from windrow.sharing.plans.canonical import canonical
from windrow.sharing.plans.shape import PlanColumns
from windrow.sharing.plans.shared_plan import Offered, OfferedColumns, SharedPlan, count
from windrow.sharing.recognise import NotShared

FIRST = "it is the first of its kind"
BEGUN = "others of its kind have begun, and keep what they have in common below what tells them apart"
WIDER = 2
"""Queries that remember nothing in common share if they show at most so many times more columns together than each."""
FEWER = 8
"""Queries part at the end only, if there are so many times fewer different ones below that."""


class MemberChange(NamedTuple):
    """A query that has come to a plan, or left it."""

    plan: str
    key: str
    number: int
    start: int | None
    come: bool


class LeftPlaces(NamedTuple):
    """The places that many queries had in a plan when their home was left."""

    plan: str
    places: Int64s
    start: int | None


class SharedPlans:
    """The shared plans of a runtime; `place` says in which one a query is, `reasons` why others are in none.

    `changes`: who has come and gone since somebody last took note. `left`: by query, its plan, its number and where its
    clock was to start when its home was left.
    """

    def __init__(
        self,
        enabled: bool,
        saved: Mapping[str, Any] | None = None,
        left: Mapping[str, tuple[str, int, int | None]] | None = None,
    ) -> None:
        self.enabled = enabled
        self.changes: list[MemberChange] = []
        self.left = left or {}
        self.plans: dict[str, SharedPlan] = {}
        self.place: dict[str, tuple[str, int]] = {}
        self.reasons: dict[str, str] = {}
        self.columns: dict[str, str] = {}  # by block, in which plan it is
        self._waiting: dict[str, Offered] = {}
        self._seen: set[Hashable] = set()
        self._saved = dict(saved or {})
        self._next = self._saved.pop("next", 0)

    # coming and going

    def offer(
        self, plan: QueryPlan, *, materialized: bool, start: int | None, retained: bool, known: bool = False
    ) -> None:
        """Let a query share from the next tick on, if it can; one that is `known` goes on where it was."""
        key = plan.name.lower()
        self.reasons.pop(key, None)
        left = self.left.get(key) if known else None
        if not self.enabled or (known and left is None):
            return
        try:
            query = Offered(key, canonical(plan), materialized, start, retained)
        except NotShared as why:
            self.reasons[key] = str(why)
            return
        if left is None:
            self._waiting[key] = query
        else:
            self._rejoin(query, *left)

    def _rejoin(self, query: Offered, name: str, number: int, start: int | None) -> None:
        saved, query = self._saved[name], replace(query, start=start)
        if name not in self.plans:
            if "shape" not in saved:
                raise self._older(name)
            shape = PlanColumns.read(saved["shape"])
            self.plans[name] = SharedPlan(name, query.common(), saved["everywhere"], True, saved["next"], shape=shape)
        known = self.plans[name].shape
        if self.plans[name].common != query.common() or known is None:
            raise self._older(name)
        known.check(query.form)
        if isinstance(query, OfferedColumns):
            self.plans[name].join_columns(query)
            self.columns[query.key] = name
            return
        self.plans[name].join(query, number)
        self.place[query.key] = (name, number)

    def _older(self, name: str) -> StateError:
        names = ", ".join(q for q, at in self.left.items() if at[0] == name)
        return StateError(
            "this home was written by an older version of windrow, whose state of continuous queries that share is not "
            "read",
            detail=f"they are {names}; nothing has been changed",
            hint="drop them with the version that wrote the home, and create them again with this one",
        )

    def offer_columns(self, block: OfferedColumns, left: LeftPlaces | None = None) -> None:
        """Let many queries share from the next tick on; `left`: the places they go on at."""
        if left is None:
            self._waiting[block.key] = block
            return
        block = replace(block, places=left.places, start=left.start)
        self._rejoin(block, left.plan, 0, left.start)

    def block(self, key: str) -> OfferedColumns:
        """A block by its name, whether it has a place or not."""
        found = self._waiting[key] if key in self._waiting else self.plans[self.columns[key]].blocks[key]
        assert isinstance(found, OfferedColumns)
        return found

    def has_block(self, key: str) -> bool:
        """Whether there is a block of this name."""
        return key in self.columns or key in self._waiting

    def put_block(self, block: OfferedColumns, plan: SharedPlan | None) -> None:
        """Let a block have other members; `plan`: in which it is, if it is in one."""
        if plan is None:
            self._waiting[block.key] = block
            return
        self.plans.setdefault(plan.name, plan)
        plan.join_columns(block)
        self.columns[block.key] = plan.name
        self.changes.append(MemberChange(plan.name, block.key, -1, None, False))

    def leave_columns(self, key: str, places: Int64s) -> str | None:
        """Serve some of many queries no longer; the name of their shared plan if that is over."""
        before = self.block(key)
        block = replace(before, left=np.union1d(before.left, places))
        name = self.columns.get(key)
        plan = None if name is None else self.plans[name]
        if len(block.left) < len(block):
            self.put_block(block, plan)
            return None
        self._waiting.pop(key, None)
        if plan is None:
            return None
        del plan.blocks[key], self.columns[key]
        plan.changed()
        self.changes.append(MemberChange(plan.name, key, -1, None, False))
        return self._ended(plan)

    def _ended(self, plan: SharedPlan) -> str | None:
        """The name of a plan that nobody is in any more, which is forgotten."""
        if plan.members or plan.blocks:
            return None
        del self.plans[plan.name]
        return plan.name

    def remove(self, key: str) -> str | None:
        """Serve a query no longer; the name of its shared plan if that is over."""
        self._waiting.pop(key, None)
        self.reasons.pop(key, None)
        name, number = self.place.pop(key, (None, 0))
        if name is None:
            return None
        plan = self.plans[name]
        del plan.members[number]
        plan.changed()
        self.changes.append(MemberChange(name, key, number, None, False))
        return self._ended(plan)

    def token(self, key: str) -> tuple[Any, ...]:
        """What `reinstate` needs to take a query back that is removed."""
        name, number = self.place.get(key, (None, 0))
        plan = None if name is None else self.plans[name]
        return (key, self._waiting.get(key), plan, number, None if plan is None else plan.members[number])

    def reinstate(self, token: tuple[Any, ...]) -> None:
        """Take back a query that was removed."""
        key, waiting, plan, number, query = token
        if waiting is not None:
            self._waiting[key] = waiting
        if plan is not None:
            self.plans.setdefault(plan.name, plan)
            plan.join(query, number)
            self.place[key] = (plan.name, number)
            self.changes.append(MemberChange(plan.name, key, number, query.start, True))

    def failing(self, query: str, error: WindrowError, member: int | None) -> dict[str, WindrowError]:
        """The queries that cannot go on: one by itself, all of a plan, or one of its members."""
        plan = self.plans.get(query)
        if plan is None:
            return {query: error}
        return {
            key: type(error)(error.primary.replace(f'"{query}"', f'"{key}"'), detail=error.detail, hint=error.hint)
            for key in plan.keys(member)
        }

    # putting together

    def settle(self, starts: Mapping[str, int]) -> list[str]:
        """Put those together that have come; the keys of all that have found a place, queries and blocks."""
        waiting = [replace(w, start=starts.get(k, w.start)) for k, w in self._waiting.items()]
        self._waiting = {}
        alike: dict[Hashable, list[Offered]] = {}
        for query in waiting:
            alike.setdefault(query.common(), []).append(query)
        found: list[str] = []
        for common, queries in alike.items():
            found += self._together(common, queries)
            self._seen.add(common)
        return found

    def _together(self, common: Hashable, queries: list[Offered]) -> list[str]:
        found, left = list[str](), list[Offered]()
        for query in queries:
            plan = next((p for p in self.plans.values() if p.common == common and p.takes(query)), None)
            found += self._join(plan, [query]) if plan is not None else []
            left += [query] if plan is None else []
        for everywhere, members in (d for alike in _by_list(left) for d in self._divided(alike)):
            one = members[0]
            many = any(isinstance(m, OfferedColumns) for m in members)  # they run in no other way
            if many or len(members) > 1 or (everywhere and not one.remembers and common in self._seen):
                found += self._join(self._new(common, everywhere), members)
            else:
                self.reasons[one.key] = BEGUN if common in self._seen else FIRST
        return found

    def _divided(self, queries: Sequence[Offered]) -> Iterator[tuple[bool, list[Offered]]]:
        """Queries of one form as those who share, and whether they part everywhere."""
        early = [q for q in queries if isinstance(q, OfferedColumns) and q.forms.early]
        alike: dict[Hashable, list[Offered]] = {}
        for query in queries:
            start = query.start if query.remembers else None
            alike.setdefault((query.form.fixed, start), []).append(query)
        why = queries[0].form.routable
        single = len(queries[0].form.slots) == 1
        different = len(alike) + count(early) - len(early)
        if not single and not why and (early or (different > 1 and FEWER * different > count(queries))):
            by_start: dict[int | None, list[Offered]] = {}
            for query in queries:
                by_start.setdefault(query.start if query.remembers else None, []).append(query)
            yield from ((True, members) for members in by_start.values())
            return
        for members in alike.values():
            yield single, members
            if why and len(members) == 1:
                self.reasons[members[0].key] = why

    def _new(self, common: Hashable, everywhere: bool) -> SharedPlan:
        self._next += 1
        made = self.plans[f"*{self._next}"] = SharedPlan(f"*{self._next}", common, everywhere)
        return made

    def _join(self, plan: SharedPlan, queries: Sequence[Offered]) -> list[str]:
        for query in queries:
            if isinstance(query, OfferedColumns):
                plan.join_columns(query)
                self.columns[query.key] = plan.name
                continue
            number = plan.join(query)
            self.place[query.key] = (plan.name, number)
            self.changes.append(MemberChange(plan.name, query.key, number, query.start, True))
            self.reasons.pop(query.key, None)
        return [q.key for q in queries]

    # for the home

    def saved(self, over: Collection[str] = ()) -> dict[str, Any]:
        """What a restart must know but for who is in them, as plain JSON; `over`: plans that end."""
        if not self._next:
            return {}
        found: dict[str, Any] = {"next": self._next}
        found |= {name: plan.saved for name, plan in self.plans.items() if name not in over}
        return found


def _by_list(queries: Sequence[Offered]) -> list[list[Offered]]:
    """Queries that are to share though they show different columns: all, or those that show the same.

    What is remembered once is worth more columns; rows that only pass are copied with all of them.
    """
    lists: dict[Hashable, list[Offered]] = {}
    for query in queries:
        lists.setdefault(tuple(name for name, _ in query.form.shown), []).append(query)
    shown = {name for query in queries for name, _ in query.form.shown}
    each = sum(len(query.form.shown) for query in queries) / max(len(queries), 1)
    together = not lists or not queries[0].form.stateless or len(shown) <= WIDER * each
    return [list(queries)] if together and queries else list(lists.values())
