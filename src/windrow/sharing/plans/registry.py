"""Which continuous queries are one dataflow.

Queries that have come since the last tick are offered; when the next one is planned they are put together:

    open      nothing is remembered below the places where rows part, or only the sides of joins, whose rows say which
              queries there were when they came: a query may join and leave at any time
    closed    aggregates, anti-joins or windows of rows are kept once below them: only those who come together share

A query that is the first of its form runs by itself, as if nothing were shared; from the second on there is a shared
plan. So one query of each form costs what it costs alone, and the others next to nothing.

A shared plan's name and the numbers of its queries are never used twice in a home.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from windrow.errors import StateError
from windrow.operators.elements import BEGINNING, Elements
from windrow.plan.nodes import QueryPlan
from windrow.sharing.plans.answers import ShownAnswer, of_one
from windrow.sharing.plans.canonical import Canonical, canonical
from windrow.sharing.plans.merge import merged
from windrow.sharing.plans.router import IndexRouter
from windrow.sharing.plans.shape import PlanColumns
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


@dataclass(frozen=True)
class Offered:
    """A query that may share; `start`: where its clock starts, if that is known."""

    key: str
    form: Canonical
    materialized: bool
    start: int | None
    retained: bool  # it is given rows from before it came

    def common(self) -> Hashable:
        """What all who share with it must have in common, wherever they part."""
        form = self.form
        nested = tuple(bool(c) for c in form.slots)
        return (form.root, form.plan.time_type, self.materialized, self.retained, nested[1:])

    @property
    def remembers(self) -> bool:
        """Whether a shared plan of its form remembers rows that belong to all, and so must begin for all at once.

        In a replay, where nothing is materialized, all begin at once anyway."""
        return self.retained or not (self.form.stateless or self.form.joins) or not self.materialized


@dataclass
class SharedPlan:
    """Queries that are one dataflow, by their numbers."""

    name: str
    common: Hashable
    everywhere: bool  # routed at every slot
    begun: bool = False
    next: int = 0
    members: dict[int, Offered] = field(default_factory=dict)
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    plan: QueryPlan | None = None
    shape: PlanColumns | None = None  # settled when it begins
    _known: dict[str, Any] = field(default_factory=dict)  # what follows from the members

    def changed(self) -> None:
        """Somebody has come or gone."""
        self.plan, self._known = None, {}

    @property
    def shown(self) -> dict[int, ShownAnswer]:
        """How every query shows its answer."""
        if "shown" not in self._known:
            self._known["shown"] = {number: ShownAnswer.of(m.form) for number, m in self.members.items()}
        found: dict[int, ShownAnswer] = self._known["shown"]
        return found

    @property
    def saved(self) -> dict[str, Any]:
        """What a restart must know but for its members; the same object until somebody comes or goes."""
        if "saved" not in self._known:
            shape = self.settled().plain()
            self._known["saved"] = {"everywhere": self.everywhere, "next": self.next, "shape": shape}
        found: dict[str, Any] = self._known["saved"]
        return found

    @property
    def open(self) -> bool:
        """Whether a query may join at any time."""
        return self.everywhere and not next(iter(self.members.values())).remembers

    def takes(self, query: Offered) -> bool:
        """Whether a query of its form may join at any time."""
        if not self.open:
            return False
        member = next(iter(self.members.values()))
        return (self.shape or self.settled()).fits(query.form, member.form)

    def join(self, query: Offered, number: int | None = None) -> int:
        """Have one more query."""
        number = self.next if number is None else number
        self.members[number] = query
        self.next = max(self.next, number + 1)
        self.changed()
        return number

    def planned(self, frontier: int = BEGINNING) -> QueryPlan:
        """The plan of all members; the same object until somebody comes or goes. What is up to `frontier` is over."""
        if self.plan is None:
            late = {q: m.start for q, m in self.members.items() if m.start is not None and m.start > frontier}
            starts = late if self.open else {}
            forms = {q: m.form for q, m in self.members.items()}
            self.plan = merged(self.name, forms, self.everywhere, self.open, starts, self.settled(), self.next)
        return self.plan

    def settled(self) -> PlanColumns:
        """What its rows consist of, from now on."""
        forms = [m.form for m in self.members.values()]
        if self.shape is None:
            self.shape = replace(PlanColumns.of(forms), began=self.next)
        elif self.open and forms[0].stateless:
            self.shape = self.shape.widened(forms)
        return self.shape

    def relation(self, rows: Elements, number: int) -> pa.Table:
        """What one query stands at, of the rows that the plan stands at."""
        form = self.members[number].form
        assert self.plan is not None
        if self.plan.parting is None:
            rows = of_one(rows, number)
        else:
            router = IndexRouter({number: form.conditions[-1]})
            at, _ = router.pairs({c: rows.columns[c] for c in router.reads}, len(rows))
            rows = rows.take(at)
        return pa.table({name: rows.columns[c] for name, c in form.output}) if form.output else pa.table({})


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
                names = ", ".join(q for q, at in self.left.items() if at[0] == name)
                raise StateError(
                    "this home was written by an older version of windrow, whose state of continuous queries that "
                    "share is not read",
                    detail=f"they are {names}; nothing has been changed",
                    hint="drop them with the version that wrote the home, and create them again with this one",
                )
            shape = PlanColumns.read(saved["shape"])
            self.plans[name] = SharedPlan(name, query.common(), saved["everywhere"], True, saved["next"], shape=shape)
        self.plans[name].join(query, number)
        self.place[query.key] = (name, number)

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
        if plan.members:
            return None
        del self.plans[name]
        return name

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

    # putting together

    def settle(self, starts: Mapping[str, int]) -> list[str]:
        """Put those together that have come; the keys of all that have found a place."""
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
            if len(members) > 1 or (everywhere and not one.remembers and common in self._seen):
                found += self._join(self._new(common, everywhere), members)
            else:
                self.reasons[one.key] = BEGUN if common in self._seen else FIRST
        return found

    def _divided(self, queries: Sequence[Offered]) -> Iterator[tuple[bool, list[Offered]]]:
        """Queries of one form as those who share, and whether they part everywhere."""
        alike: dict[Hashable, list[Offered]] = {}
        for query in queries:
            start = query.start if query.remembers else None
            alike.setdefault((query.form.fixed, start), []).append(query)
        why = queries[0].form.routable
        single = len(queries[0].form.slots) == 1
        if not single and not why and len(alike) > 1 and FEWER * len(alike) > len(queries):
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
