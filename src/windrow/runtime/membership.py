"""Which queries share, on the driver: families by name, and every query's membership in its family.

The driver holds no rows and no partials. It admits queries (epoch and synopsis, which mean the same everywhere) and
deploys the families; tasks follow them (`shared_aggregation`). What it settles is kept with the catalog, so that after
a restart every query finds its partials again. A family's name is never used twice in a home.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windrow.catalog.names import Names
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING
from windrow.plan.nodes import QueryPlan
from windrow.runtime.column_places import NOBODY, ColumnPlace, LeftColumns
from windrow.runtime.family_programs import FamilyProgram, JoinMembership, JoinProgram, SharedQuery, clock_name
from windrow.runtime.member_blocks import FamilyPlace, MemberBlocks
from windrow.runtime.state_reader import StateReader
from windrow.sharing.family import Counters, Family, FamilyMember
from windrow.sharing.joins.recognise import RecognisedJoin
from windrow.sharing.joins.registry import ALONE, JoinedQuery, JoinFamily
from windrow.sharing.member_columns import MemberColumns
from windrow.sharing.recognise import Recognised
from windrow.sharing.registry import FEW_ROWS, Functions, Rate, Registry, Served
from windrow.sharing.reused_partials import ReusedPartials, reused_partials
from windrow.sharing.windows import PAIRED

Place = tuple[str, int, int | None]
Token = tuple[Served, FamilyPlace, FamilyMember, Place] | tuple[JoinedQuery, JoinMembership, Place]
"""What is needed to take back a query that was removed."""


class Sharing(Registry):
    """The registry of a runtime; with several `partitions`, only what can be computed by group is shared."""

    def __init__(
        self,
        functions: Functions,
        sharing: str = "auto",
        slicing: str = PAIRED,
        rate: Rate | None = None,
        partitions: int = 1,
    ) -> None:
        super().__init__(functions, sharing, slicing, rate)
        self.partitions = partitions
        self.gathered: frozenset[str] = frozenset()  # families that lie in one place
        self.names: dict[object, str] = {}  # of the families
        self.members: dict[str, FamilyPlace] = {}
        self.of_family: dict[str, MemberBlocks] = {}
        self.join_members: dict[str, JoinMembership] = {}
        self.places: Names[Place] = Names()  # as the home keeps them: family, epoch, synopsis
        self.columns: Names[ColumnPlace] = Names()  # members in columns, by block
        self.on_clock: Counter[str] = Counter()  # queries by clock
        self.period: Callable[[Recognised | RecognisedJoin], int] = lambda query: query.member.window.slide
        self._next = 0
        self._saved: Mapping[str, Any] | None = None  # what a home was left with, while it is taken up again
        self._programs: dict[str, FamilyProgram] = {}
        self._join_programs: dict[str, JoinProgram] = {}
        self.readmitted = False  # since a home was taken up: what is saved of it is no longer so

    # joining and leaving

    def add(self, plan: QueryPlan, known: bool = False) -> SharedQuery | None:
        """Admit a query, if it can share; one that is `known` to the place it had when its home was left."""
        query = self._as_left(plan) if self._saved is not None else self.recognised(plan)
        if isinstance(query, RecognisedJoin) and self._saved is None and not self.worth(query):
            self.joins.alone[query.source] = query
            self.reasons[plan.name], query = ALONE, None
        return None if query is None else self.admit(query, known)

    def recognised(self, plan: QueryPlan) -> Recognised | RecognisedJoin | None:
        """The query as it would be served; None, and a reason, if it runs by itself."""
        query = super().recognised(plan)
        if query is not None and self.partitions > 1 and not query.by_group:
            self.reasons[plan.name] = "what it does with its groups needs them in one place"
            return None
        return query

    def _as_left(self, plan: QueryPlan) -> Recognised | RecognisedJoin | None:
        assert self._saved is not None
        if plan.name in self._saved["queries"]:
            return self.recognise(plan)
        if self.recognised(plan) is not None:
            self.reasons[plan.name] = FEW_ROWS
        return None

    def _admit_join(self, query: RecognisedJoin, known: bool) -> SharedQuery:
        """Let a query share its join."""
        if (period := self.period(query)) != query.member.slide:
            query = replace(query, member=replace(query.member, slide=period))
        name, source, entry = query.plan.name, query.source, None
        if self._saved is not None:
            family, epoch, _ = self._saved["queries"][name]
            if source not in self.names:
                self.names[source] = family
                self.joins.families.setdefault(source, JoinFamily()).resume(self._saved["families"][family][0])
            entry = JoinedQuery(query, epoch) if known else None
            self.readmitted |= not known
        elif source not in self.names:
            self._name(source)
        entry = self.joins.enter(query, entry)
        member = self.join_members[name] = JoinMembership(query, entry.epoch)
        self._take_place(name, (self.names[source], entry.epoch, None))
        self._join_programs.pop(self.names[source], None)
        return SharedQuery(member.uid, query.plan, self.names[source], entry.epoch)

    def admit(self, query: Recognised | RecognisedJoin, known: bool = False) -> SharedQuery:
        """Let a query that has been recognised join its family."""
        if isinstance(query, RecognisedJoin):
            return self._admit_join(query, known)
        window = query.member.window
        if (period := self.period(query)) != window.slide:
            query = replace(query, member=replace(query.member, window=replace(window, slide=period)))
        name, key = query.plan.name, self.key(query)
        family, left = self.family_of(query), None
        if self._saved is not None:
            left = self._saved["queries"][name]
            if key not in self.names:
                self.names[key] = left[0]
                family.resume(*self._saved["families"][left[0]])
        elif key not in self.names:
            self._name(key)
        if left is not None and known:
            family.serve(FamilyMember(query.member, BEGINNING, left[1], left[2]))
        else:
            family.join(query.member)
            self.readmitted |= left is not None
        entry = family.joined[name]
        member = FamilyPlace(query, entry.epoch, entry.synopsis)
        self._put(name, self.names[key], member)
        self.served[name] = Served(query, family)
        self._take_place(name, (self.names[key], entry.epoch, entry.synopsis))
        self._programs.pop(self.names[key], None)
        return SharedQuery(member.uid, query.plan, self.names[key], entry.epoch)

    @property
    def taking_up(self) -> bool:
        """Whether the queries of a home come back."""
        return self._saved is not None

    @property
    def takes_columns(self) -> bool:
        """Whether members may come in columns: all queries over the same rows are of one family."""
        return self.sharing in ("auto", "shards")

    def admit_columns(self, members: MemberColumns, left: LeftColumns | None = None) -> str:
        """Let many queries join their family; `left`: go on at the places they had. Returns the name of their clock."""
        key, family = self.key(members.query), self.family_of(members.query)
        if key not in self.names:
            if left is None or self._saved is None:
                self._name(key)
            else:
                self.names[key] = left.family
                family.resume(*self._saved["families"][left.family])
        if left is None:
            members = family.join_columns(members)
        else:
            members = replace(members, epoch=left.epoch, synopses=left.synopses)
            family.serve_columns(members)
            self.readmitted = True
        self._put_columns(ColumnPlace(members, self.names[key], NOBODY), len(members))
        return clock_name(self.names[key], members.epoch)

    def _name(self, key: object) -> None:
        """Give a new family a name that no other had."""
        self._next += 1
        self.names[key] = f"+{self._next}"

    def _put_columns(self, place: ColumnPlace, come: int) -> None:
        """Have a block of members, `come` more of which are there than before."""
        clock = place.clock
        self.columns = self.columns.put(place.members.uid, place)
        self.on_clock[clock] += come
        if not self.on_clock[clock]:
            del self.on_clock[clock]
        self._programs.pop(place.family, None)

    def remove_columns(self, block: str, places: Int64s) -> tuple[ColumnPlace, Family]:
        """Serve some members of a block no longer; what `reinstate_columns` needs to take them back."""
        before = self.columns[block]
        after, key = before.without(places), self.key(before.members.query)
        family = self.families[key]
        family.leave_columns(block, places)
        self._put_columns(after, len(before.left) - len(after.left))
        if block not in family.columns:
            self.columns = self.columns.without(block)
        if not len(family):
            del self.families[key], self.names[key]
            self.of_family.pop(before.family, None)
        return before, family

    def reinstate_columns(self, token: tuple[ColumnPlace, Family]) -> None:
        """Take back members that were removed."""
        place, family = token
        block, key = place.members.uid, self.key(place.members.query)
        now = self.columns.get(block)
        there = 0 if now is None else int(np.count_nonzero(now.alive))
        self.names.setdefault(key, place.family)
        self.families.setdefault(key, family)
        family.leave_columns(block, np.arange(len(place.members)))
        family.serve_columns(place.members)
        family.leave_columns(block, place.left)
        self._put_columns(place, int(np.count_nonzero(place.alive)) - there)

    def _put(self, name: str, family: str, member: FamilyPlace) -> None:
        self.members[name] = member
        if family not in self.of_family:
            self.of_family[family] = MemberBlocks()
        self.of_family[family].add(name, member)

    def _take_place(self, name: str, place: Place) -> None:
        self.places = self.places.put(name, place)
        self.on_clock[clock_name(*place[:2])] += 1

    def _give_up_place(self, name: str) -> None:
        clock = clock_name(*self.places[name][:2])
        self.places = self.places.without(name)
        self.on_clock[clock] -= 1
        if not self.on_clock[clock]:
            del self.on_clock[clock]

    def left_on(self, name: str) -> str | None:
        """The clock that a query had when its home was left, while that is taken up again."""
        left = None if self._saved is None else self._saved["queries"].get(name)
        return None if left is None else clock_name(*left[:2])

    def left_instances(self, queries: str) -> set[str]:
        """The instances of queries from a template that shared by themselves when the home was left."""
        left: Mapping[str, Any] = {} if self._saved is None else self._saved["queries"]
        return {name for name in left if name.startswith(f"{queries}(")}

    def left_columns(self, queries: str) -> list[LeftColumns]:
        """The members in columns that queries from a template had when the home was left, while it is taken up."""
        left: Sequence[LeftColumns] = () if self._saved is None else self._saved.get("left", ())
        return [c for c in left if c.queries.lower() == queries.lower()]

    def remove(self, name: str) -> None:
        """Serve a query no longer."""
        if name in self.joins.served:
            source = self.joins.served[name].query.source
            self.joins.remove(name)
            self.join_members.pop(name)
            self._give_up_place(name)
            self._join_programs.pop(self.names[source], None)
            if source not in self.joins.families:
                del self.names[source]
            return
        key = self.key(self.served[name].query)
        super().remove(name)
        self.members.pop(name)
        self.of_family[self.names[key]].remove(name)
        self._give_up_place(name)
        self._programs.pop(self.names[key], None)
        if key not in self.families:
            self.of_family.pop(self.names[key], None)
            del self.names[key]

    def token(self, name: str) -> Token:
        """What `reinstate` needs to take a query back that is removed."""
        if name in self.joins.served:
            return self.joins.served[name], self.join_members[name], self.places[name]
        served = self.served[name]
        return served, self.members[name], served.family.joined[name], self.places[name]

    def reinstate(self, token: Token) -> None:
        """Take back a query that was removed."""
        if len(token) == 3:
            joined, mine, place = token
            source = joined.query.source
            self.names.setdefault(source, place[0])
            self.joins.enter(joined.query, joined)
            self.join_members[joined.query.plan.name] = mine
            self._take_place(joined.query.plan.name, place)
            self._join_programs.pop(place[0], None)
            return
        served, member, entry, place = token
        name, key = served.query.plan.name, self.key(served.query)
        self.families.setdefault(key, served.family)
        self.names.setdefault(key, place[0])
        served.family.serve(entry)
        self.served[name] = served
        self._put(name, place[0], member)
        self._take_place(name, place)
        self._programs.pop(place[0], None)

    def count(self, counted: Mapping[str, Counters]) -> None:
        """Add what a task did, by family; those that did nothing cost nothing."""
        some = {name: did for name, did in counted.items() if any(vars(did).values())}
        for families in (self.families, self.joins.families) if some else ():
            for key, family in families.items():
                if (did := some.get(self.names[key])) is not None:
                    family.counters += did

    def used(self) -> None:
        """A tick has been committed: who joins from now on has not seen its rows."""
        for family in self.families.values():
            family.used()
        for join in self.joins.families.values():
            join.used()

    # for tasks and for the home

    def programs(self) -> dict[str, FamilyProgram]:
        """All families, for deployment."""
        for key, family in self.families.items():
            name = self.names[key]
            if name not in self._programs:
                blocks = self.of_family[name].blocks() if name in self.of_family else ()
                mine = [self.columns[block] for block in family.columns]
                some = self.served[next(iter(family.joined))].query if family.joined else mine[0].members.query
                columns, left = tuple(c.members for c in mine), {c.members.uid: c.left for c in mine}
                self._programs[name] = FamilyProgram(
                    name, some.source, self.slicing, family.epoch, blocks, name in self.gathered, columns, left
                )
        self._programs = {self.names[key]: self._programs[self.names[key]] for key in self.families}
        return dict(self._programs)

    def join_programs(self) -> dict[str, JoinProgram]:
        """All shared joins, for deployment."""
        for source, family in self.joins.families.items():
            name = self.names[source]
            if name not in self._join_programs:
                members = {n: self.join_members[n] for n in family.joined}
                self._join_programs[name] = JoinProgram(name, source, family.epoch, members, name in self.gathered)
        names = [self.names[source] for source in self.joins.families]
        self._join_programs = {name: self._join_programs[name] for name in names}
        return dict(self._join_programs)

    def not_by_group(self) -> set[str]:
        """Families of which some query cannot be computed by group: on several partitions they lie in one place."""
        alone = {self.names[self.key(s.query)] for s in self.served.values() if not s.query.by_group}
        return alone | {self.names[j.query.source] for j in self.joins.served.values() if not j.query.by_group}

    def gather(self, families: Iterable[str]) -> None:
        """Let these families lie in one place, and all others by group."""
        self.gathered, self._programs, self._join_programs = frozenset(families), {}, {}

    def worth_sharing(
        self, queries: Sequence[Recognised | RecognisedJoin], rate: Callable[[str], float]
    ) -> list[Recognised | RecognisedJoin]:
        """Of queries that come together, those that cost less together than apart."""
        over_joins = [q for q in queries if isinstance(q, RecognisedJoin)]
        together = self.joins.chosen(over_joins)
        self.reasons |= {q.plan.name: ALONE for q in over_joins if q not in together}
        return [*self.chosen([q for q in queries if isinstance(q, Recognised)], rate), *together]

    def reused_partials(self, asked: Recognised, state: StateReader) -> tuple[str, ReusedPartials] | None:
        """Of the queries that run in a state, the one whose partials have most of a question's window, with its family.

        While ticks go on: who has come, gone or failed since is not one of them.
        """
        family, name = self.families.get(asked.source), self.names.get(asked.source)
        if family is None or name is None:
            return None
        begun = [e for e in list(family.joined.values()) if clock_name(name, e.epoch) in state.clocks]
        there = (e for e in begun if e.member.name.lower() not in state.lapsed)
        found = reused_partials(asked, there, state.frontier, self.slicing)
        return None if found is None else (name, found)

    def saved(self) -> dict[str, Any]:
        """What a restart must know, as plain JSON."""
        families = {self.names[k]: (f.epoch, f.next_synopsis) for k, f in self.families.items()}
        families |= {self.names[s]: (f.epoch, 0) for s, f in self.joins.families.items()}
        return {"technique": self.sharing, "next": self._next, "families": families, "queries": self.places,
                "columns": self.columns}  # fmt: skip

    def take_up(self, saved: Mapping[str, Any]) -> None:
        """Admit the queries that come now where they were, until `settled`."""
        self._saved, self._next, self.readmitted = saved, saved["next"], False

    def settled(self) -> None:
        """All queries of the home are back: those that come from now on are new."""
        self._saved = None
