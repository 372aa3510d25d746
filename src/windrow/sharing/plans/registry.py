"""Which continuous queries are one dataflow.

Queries that have come since the last tick are offered; when the next one is planned they are put together:

    open      nothing is remembered below the places where rows part, or only the sides of joins, whose rows say which
              queries there were when they came: a query may join and leave at any time
    readers   aggregates, anti-joins, windows of rows and the like are kept by reader: a query that joins later has one
              of its own, until the windows have turned over (`readers.py`)
    closed    they are kept once: only those who come together share. So it is in a replay, where all do; where queries
              are given what a stream has kept; and where rows cannot be told apart below

A query that comes as the first of its form, and alone, runs by itself, as if nothing were shared, and goes on so; those
who come together, or later where plans are open, have a shared plan. Instances of a template in columns always have.

A shared plan's name and the numbers of its queries are never used twice in a home.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windrow.errors import StateError, WindrowError
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import INF
from windrow.plan.nodes import QueryPlan
from windrow.sharing.plans.canonical import Canonical
from windrow.sharing.plans.canonicalise import canonicalise
from windrow.sharing.plans.places import LeftPlace, LeftPlaces, MemberChange, plan_member
from windrow.sharing.plans.readers import Reader, told_apart
from windrow.sharing.plans.shape import PlanColumns
from windrow.sharing.plans.shared_plan import Offered, OfferedColumns, SharedPlan, count
from windrow.sharing.recognise import NotShared

FIRST = "it is the first of its kind"
BEGUN = "others of its kind have begun, and keep what they have in common below what tells them apart"
WIDER = 2
"""Queries that remember nothing in common share if they show at most so many times more columns together than each."""
KNOWN = 16
"""Queries of a form that are remembered for what they show and read: a plan that begins later has that, too."""
FEWER = 8
"""Queries part at the end only, if there are so many times fewer different ones below that."""


class SharedPlans:
    """The shared plans of a runtime; `place` says in which one a query is, `reasons` why others are in none.

    `changes`: who has come and gone since somebody last took note. `left`: by query, its plan, its number and where its
    clock was to start when its home was left, while that is taken up again.
    """

    def __init__(
        self,
        enabled: bool,
        saved: Mapping[str, Any] | None = None,
        left: Mapping[str, LeftPlace] | None = None,
    ) -> None:
        self.enabled = enabled
        self.changes: list[MemberChange] = []
        self.left = left or {}
        self.plans: dict[str, SharedPlan] = {}
        self.place: dict[str, tuple[str, int]] = {}
        self.reasons: dict[str, str] = {}
        self.columns: dict[str, str] = {}  # by block, in which plan it is
        self._waiting: dict[str, Offered] = {}
        self._settled = 0  # how often
        self._rows: Callable[[Iterable[str]], int] = lambda _: 0
        self._seen: dict[Hashable, dict[Hashable, Canonical]] = {}  # some forms of queries that have come
        self._due: int | None = None  # the least instant at which readers may become one; None: to be found
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
            query = Offered(key, canonicalise(plan), materialized, start, retained)
        except NotShared as why:
            self.reasons[key] = str(why)
            return
        if left is None:
            self._waiting[key] = query
        else:
            self._rejoin(query, left)

    def taken_up(self) -> None:
        """All queries of a home are back: those that come from now on are new, also under the name of one that goes."""
        self.left = {}
        for plan in self.plans.values():
            if plan.shape is not None and plan.shape.endless is None:
                plan.shape = plan.shape.of_older(m.form for m in (*plan.members.values(), *plan.blocks.values()))
                plan.changed()

    def _rejoin(self, query: Offered, left: LeftPlace) -> None:
        name, number, start, told = left
        saved, query = self._saved[name], replace(query, start=start)
        self._due = None
        if name not in self.plans:
            if "shape" not in saved:
                raise self._older(name)
            shape = PlanColumns.read(saved["shape"])
            made = SharedPlan(name, query.common(), saved["everywhere"], True, saved["next"], shape=shape)
            self.plans[name] = made
            made.readers = {} if "readers" in saved else None
        known = self.plans[name].shape
        if self.plans[name].common != query.common() or known is None:
            raise self._older(name)
        query = replace(query, form=query.form.showing(known.shown))  # an older home has constants among its columns
        known.check(query.form)
        reader = None if told is None else Reader(told[0], query.form, told[1])
        if isinstance(query, OfferedColumns):
            self.plans[name].join_columns(query, None, reader)
            self.columns[query.key] = name
            return
        self.plans[name].join(query, None, (number, reader))
        self.place[query.key] = (name, number)

    def _older(self, name: str) -> StateError:
        names = ", ".join(q for q, at in self.left.items() if at.plan == name)
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
        told = self._saved[left.plan].get("readers", {}).get(left.block)
        self._rejoin(block, LeftPlace(left.plan, 0, left.start, told))

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
        del self.columns[key]
        plan.leave_columns(key)
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
        plan.leave(number)
        self._due = None
        self.changes.append(MemberChange(name, key, number, None, False))
        return self._ended(plan)

    def token(self, key: str) -> tuple[Any, ...]:
        """What `reinstate` needs to take a query back that is removed."""
        name, number = self.place.get(key, (None, 0))
        plan = None if name is None else self.plans[name]
        query = None if plan is None else plan.members[number]
        return (key, self._waiting.get(key), plan, number, query, None if plan is None else plan.reader(number))

    def reinstate(self, token: tuple[Any, ...]) -> None:
        """Take back a query that was removed."""
        key, waiting, plan, number, query, reader = token
        if waiting is not None:
            self._waiting[key] = waiting
        if plan is not None:
            self.plans.setdefault(plan.name, plan)
            plan.join(query, None, (number, reader))
            self.place[key] = (plan.name, number)
            self._note(plan, number)

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

    def settle(self, starts: Mapping[str, int], rows: Callable[[Iterable[str]], int] = lambda _: 0) -> list[str]:
        """Put those together that have come; the keys of all that have found a place, queries and blocks.

        `rows`: how many some streams have had so far."""
        self._rows, self._settled = rows, self._settled + 1
        waiting = [replace(w, start=starts.get(k, w.start)) for k, w in self._waiting.items()]
        self._waiting = {}
        alike: dict[Hashable, list[Offered]] = {}
        for query in waiting:
            alike.setdefault(query.common(), []).append(query)
        found: list[str] = []
        for common, queries in alike.items():
            found += self._together(common, queries)
            seen = self._seen.setdefault(common, {})
            for form in (q.form for q in queries):
                if len(seen) < KNOWN:
                    seen.setdefault((form.sizes, form.shown, form.columns, form.tested), form)
        return found

    def turn(self, frontier: int) -> bool:
        """Let readers be one for which the same is kept by now; whether there were any."""
        if self._due is None:
            self._due = min((plan.turns[0][0] for plan in self.plans.values() if plan.turns), default=INF)
        if frontier < self._due:
            return False
        for plan in [p for p in self.plans.values() if p.turns and p.turns[0][0] <= frontier]:
            for number in plan.turn(frontier):
                self._note(plan, number)
        self._due = None
        return True

    def _note(self, plan: SharedPlan, number: int) -> None:
        """Remember for the home where a query is now."""
        self.changes.append(plan_member(plan, number))

    def _together(self, common: Hashable, queries: list[Offered]) -> list[str]:
        found, left = list[str](), list[Offered]()
        for query in queries:
            plan = self._taking(common, query)
            found += self._join(plan, [query]) if plan is not None else []
            left += [query] if plan is None else []
        for everywhere, members in (d for alike in _by_list(left) for d in self._divided(alike)):
            if self._begin(common, everywhere, members):
                found += self._join(self._new(common, everywhere, members), members)
            else:
                self.reasons[members[0].key] = BEGUN if common in self._seen else FIRST
        return found

    def _taking(self, common: Hashable, query: Offered) -> SharedPlan | None:
        """A plan that a query may join now."""
        return next((p for p in self.plans.values() if p.common == common and p.takes(query)), None)

    def _begin(self, common: Hashable, everywhere: bool, members: Sequence[Offered]) -> bool:
        """Whether queries begin a plan."""
        one = members[0]
        many = any(isinstance(m, OfferedColumns) for m in members)  # they run in no other way
        open_ = everywhere and (_takes_readers(one) or not one.remembers)
        return many or len(members) > 1 or (open_ and common in self._seen)

    def coming(self, key: str) -> tuple[SharedPlan | None, list[Offered]] | str | None:
        """Where a query that waits will be: in a plan that is there, if one takes it, and the others that will come to
        it, too; or why it will be alone. None: it does not wait."""
        query = self._waiting.get(key)
        if query is None:
            return None
        common, said = query.common(), dict(self.reasons)
        alike = [(w, self._taking(common, w)) for w in self._waiting.values() if w.common() == common]
        mine = next(plan for w, plan in alike if w is query)
        if mine is not None:
            return mine, [w for w, plan in alike if plan is mine and w is not query]
        left = [w for w, plan in alike if plan is None]
        divided = [d for each in _by_list(left) for d in self._divided(each)]
        why, self.reasons = self.reasons.get(key), said
        everywhere, members = next((e, m) for e, m in divided if any(w is query for w in m))
        if self._begin(common, everywhere, members):
            return None, [w for w in members if w is not query]
        return why or (BEGUN if common in self._seen else FIRST)

    def _divided(self, queries: Sequence[Offered]) -> Iterator[tuple[bool, list[Offered]]]:
        """Queries of one form as those who share, and whether they part everywhere."""
        if _takes_readers(queries[0]):
            yield True, list(queries)
            return
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

    def _new(self, common: Hashable, everywhere: bool, queries: Sequence[Offered]) -> SharedPlan:
        self._next += 1
        made = self.plans[f"*{self._next}"] = SharedPlan(f"*{self._next}", common, everywhere)
        if everywhere and _takes_readers(queries[0]):
            made.readers = {}
        if made.readers is not None or not queries[0].remembers:  # others may come, who are like those who came before
            before = list(self._seen.get(common, {}).values())
            made.before = before if _together([*(q.form for q in queries), *before]) else ()
        return made

    def _join(self, plan: SharedPlan, queries: Sequence[Offered]) -> list[str]:
        before = self._before(queries[0].form)
        self._due = None
        for query in queries:
            if isinstance(query, OfferedColumns):
                plan.join_columns(query, before)
                self.columns[query.key] = plan.name
                continue
            number = plan.join(query, before)
            self.place[query.key] = (plan.name, number)
            self._note(plan, number)
            self.reasons.pop(query.key, None)
        return [q.key for q in queries]

    def _before(self, form: Canonical) -> Hashable:
        """What has come before queries of a form: rows, or, where they answer without any, ticks."""
        return ("ticks", self._settled) if form.over_nothing else ("rows", self._rows(form.plan.streams))

    # for the home

    def saved(self, over: Collection[str] = ()) -> dict[str, Any]:
        """What a restart must know but for who is in them, as plain JSON; `over`: plans that end."""
        if not self._next:
            return {}
        found: dict[str, Any] = {"next": self._next}
        found |= {name: plan.saved for name, plan in self.plans.items() if name not in over}
        return found


def _takes_readers(query: Offered) -> bool:
    """Whether what a shared plan of its form remembers is kept by reader."""
    if query.retained or not query.materialized or (len(query.form.slots) == 1 and not query.remembers):
        return False
    try:
        return bool(told_apart(query.form))
    except NotShared:
        return False


def _by_list(queries: Sequence[Offered]) -> list[list[Offered]]:
    """Queries that are to share though they show different columns: all, or those that show the same."""
    lists: dict[Hashable, list[Offered]] = {}
    for query in queries:
        lists.setdefault(tuple(name for name, _ in query.form.shown), []).append(query)
    if queries and _together([query.form for query in queries]):
        return [list(queries)]
    return list(lists.values())


def _together(forms: Sequence[Canonical]) -> bool:
    """Whether queries share though they show different columns.

    What is remembered once is worth more columns; rows that only pass are copied with all of them.
    """
    shown = {name for form in forms for name, _ in form.shown}
    each = sum(len(form.shown) for form in forms) / len(forms)
    return not forms[0].passes or len(shown) <= WIDER * each
