"""Who shares, on the driver: families by name, and every query's seat in its family.

The driver holds no rows and no partials. It seats queries (epoch and account, which mean the same everywhere) and ships
the rosters with the standing program; tasks follow them (`shared`). What it settles is kept with the catalog, so that
after a restart every query finds its partials again. A family's name is never used twice in a home.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from windrow.operators.elements import BEGINNING
from windrow.plan.nodes import Distinct, Filter, Node, Project, QueryPlan, StreamOp
from windrow.sharing.cohort import Shown
from windrow.sharing.family import Counters, Family, Joined
from windrow.sharing.recognise import Recognised, Source, recognise
from windrow.sharing.registry import FEW_ROWS, Functions, Rate, Registry, Served
from windrow.sharing.windows import PAIRED


@dataclass(frozen=True)
class Seat:
    """A query's place in its family; `packed` is the query as `recognise` split it."""

    uid: str
    packed: bytes
    epoch: int
    account: int | None


@dataclass(frozen=True)
class Roster:
    """A family as tasks see it: its rows, and who has joined, by name."""

    name: str
    source: Source
    slicing: str
    epoch: int
    seats: Mapping[str, Seat]

    def home(self, partitions: int) -> int:
        """The partition that has what is not spread by keys."""
        return int(self.name[1:]) % partitions


@dataclass(frozen=True)
class SharedProgram:
    """A query that is served by a family."""

    uid: str
    plan: QueryPlan
    family: str
    retain: None = None
    standing: bool = False

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """The columns of the answer's elements."""
        return dict(self.plan.root.schema)

    @cached_property
    def shown(self) -> Shown:
        """How the answer is shown, whose columns travel by number."""
        found = Shown.of(self.plan)
        place = {internal: str(i) for i, internal in enumerate(self.plan.root.schema, 1)}
        return replace(found, columns=tuple(place[c] for c in found.columns))

    @cached_property
    def counter(self) -> str:
        """The name under which its answers are counted: one text however many ticks are remembered."""
        return f"answers.{self.plan.name.lower()}"

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams read."""
        return frozenset(s.lower() for s in self.plan.streams)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables read."""
        return tuple(t.lower() for t in self.plan.tables)


class Sharing(Registry):
    """The registry of a Spark runtime."""

    def __init__(
        self, functions: Functions, sharing: str = "auto", slicing: str = PAIRED, rate: Rate | None = None
    ) -> None:
        super().__init__(functions, sharing, slicing, rate)
        self.names: dict[object, str] = {}  # of the families
        self.seats: dict[str, Seat] = {}
        self.places: dict[str, tuple[str, int, int | None]] = {}  # seats as the home keeps them: family, epoch, account
        self._next = 0
        self._saved: Mapping[str, Any] | None = None  # what a home was left with, while it is taken up again
        self._rosters: dict[str, Roster] = {}
        self.reseated = False  # since a home was taken up: what is saved of it is no longer so

    # joining and leaving

    def add(self, plan: QueryPlan, known: bool = False) -> SharedProgram | None:
        """Seat a query, if it can share; one that is `known` where it sat when its home was left."""
        query = self._as_left(plan) if self._saved is not None else self.recognised(plan)
        return None if query is None else self.seat(query, known)

    def recognised(self, plan: QueryPlan) -> Recognised | None:
        """The query as it would be served; None, and a reason, if it runs by itself."""
        query = super().recognised(plan)
        if query is not None and not _local_above(query):
            self.reasons[plan.name] = "what it does with its groups needs them in one place"
            return None
        return query

    def _as_left(self, plan: QueryPlan) -> Recognised | None:
        assert self._saved is not None
        if plan.name in self._saved["queries"]:
            return recognise(plan)
        if self.recognised(plan) is not None:
            self.reasons[plan.name] = FEW_ROWS
        return None

    def seat(self, query: Recognised, known: bool = False) -> SharedProgram:
        """Seat a query that has been recognised."""
        name, key = query.plan.name, self.key(query)
        family, left = self.family_of(query), None
        if self._saved is not None:
            left = self._saved["queries"][name]
            if key not in self.names:
                self.names[key] = left[0]
                family.resume(*self._saved["families"][left[0]])
        elif key not in self.names:
            self._next += 1
            self.names[key] = f"+{self._next}"
        if left is not None and known:
            family.seat(Joined(query.member, BEGINNING, left[1], left[2]))
        else:
            family.join(query.member)
            self.reseated |= left is not None
        entry = family.joined[name]
        seat = Seat(uuid.uuid4().hex, pickle.dumps(query), entry.epoch, entry.account)
        self.seats[name], self.served[name] = seat, Served(query, family)
        self.places[name] = (self.names[key], entry.epoch, entry.account)
        self._rosters.pop(self.names[key], None)
        return SharedProgram(seat.uid, query.plan, self.names[key])

    def remove(self, name: str) -> None:
        """Serve a query no longer."""
        key = self.key(self.served[name].query)
        super().remove(name)
        self.seats.pop(name)
        self.places.pop(name)
        self._rosters.pop(self.names[key], None)
        if key not in self.families:
            del self.names[key]

    def undo(self) -> Callable[[], None]:
        """What puts everybody back where they sit now."""
        served, seats, families, names = dict(self.served), dict(self.seats), dict(self.families), dict(self.names)
        entries = {n: s.family.joined[n] for n, s in served.items()}
        reasons, places = dict(self.reasons), dict(self.places)

        def back() -> None:
            for name in [n for n in self.served if self.seats[n] is not seats.get(n)]:
                self.remove(name)
            self.families, self.names, self.reasons = families, names, reasons
            for name in [n for n in served if n not in self.served]:
                served[name].family.seat(entries[name])
                self.served[name], self.seats[name] = served[name], seats[name]
            self.places, self._rosters = places, {}

        return back

    def count(self, family: str, counted: Counters) -> None:
        """Add what a task did."""
        found = self.family(family)
        if found is not None:
            for counter in fields(Counters):
                before = getattr(found.counters, counter.name)
                setattr(found.counters, counter.name, before + getattr(counted, counter.name))

    def used(self) -> None:
        """A tick has been committed: who joins from now on has not seen its rows."""
        for family in self.families.values():
            family.used()

    # for tasks and for the home

    def rosters(self) -> dict[str, Roster]:
        """All families, for the standing program."""
        for key, family in self.families.items():
            name = self.names[key]
            if name not in self._rosters:
                seats = {n: self.seats[n] for n in family.joined}
                source = next(iter(self.served[n].query.source for n in seats))
                self._rosters[name] = Roster(name, source, self.slicing, family.epoch, seats)
        self._rosters = {name: self._rosters[name] for name in self.names.values()}
        return dict(self._rosters)

    def family(self, name: str) -> Family | None:
        """A family by its name."""
        return next((self.families[k] for k, n in self.names.items() if n == name), None)

    def saved(self) -> dict[str, Any]:
        """What a restart must know, as plain JSON."""
        families = {self.names[k]: (f.epoch, f.next_account) for k, f in self.families.items()}
        return {"technique": self.sharing, "next": self._next, "families": families, "queries": dict(self.places)}

    def take_up(self, saved: Mapping[str, Any]) -> None:
        """Seat the queries that come now as they sat, until `settled`."""
        self._saved, self._next, self.reseated = saved, saved["next"], False

    def settled(self) -> None:
        """All queries of the home are back: those that come from now on are new."""
        self._saved = None


def _local_above(query: Recognised) -> bool:
    """Whether what stands above the aggregate can be computed for some groups by themselves.

    DISTINCT and differences compare rows: equal rows must be of one group, so they must show the keys.
    """
    keys = set(query.aggregate.keys)
    if not keys or query.chain is not None:
        return True
    path: list[Node] = []
    node: Node = query.plan.root.input
    while node is not query.aggregate:
        path.append(node)
        (node,) = node.inputs
    shown = {k: k for k in keys}  # key -> the column that shows it
    for above in reversed(path):
        match above:
            case Project():
                copies = {e.column: name for name, e in above.outputs if e.column is not None}
                shown = {k: copies[c] for k, c in shown.items() if c in copies}
            case Filter():
                pass
            case Distinct() if len(shown) < len(keys):
                return False
    return query.plan.root.op is StreamOp.RSTREAM or len(shown) == len(keys)
