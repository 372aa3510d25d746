"""A shared plan: continuous queries that are one dataflow, by their numbers, and what follows from who they are.

A query is in it by itself, or with many others that differ in compared constants only, as a block of columns: for those
nothing is done in Python for each. Numbers are never used twice.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Bools, Int64s, raw
from windrow.operators.elements import BEGINNING, INF, Elements
from windrow.operators.terms import QUERY
from windrow.plan.nodes import Admit, QueryPlan, Scan, walk
from windrow.sharing.conditions import condition
from windrow.sharing.member_columns import InstanceNames
from windrow.sharing.plans.answers import InstanceRows, ShownAnswer, of_many, of_one
from windrow.sharing.plans.canonical import Canonical
from windrow.sharing.plans.constants import value_of
from windrow.sharing.plans.form_columns import FormColumns
from windrow.sharing.plans.merge import merged
from windrow.sharing.plans.plan_routers import ManyMembers, Routers
from windrow.sharing.plans.readers import PlanReaders, Reader, lasting
from windrow.sharing.plans.routed_columns import RoutedColumns, of_queries, of_query
from windrow.sharing.plans.router import IndexRouter
from windrow.sharing.plans.shape import PlanColumns


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


@dataclass(frozen=True, eq=False)
class OfferedColumns(Offered):
    """Many queries that may share, which differ in compared constants; `key`: the name of their block.

    `numbers`: of the instances in their group. `places`: their numbers in the plan, in order, once they have any.
    `left`: which of them are gone. `reader`: of all of them, where a plan has readers and they do not differ below the
    last slot; where they do, each is one.
    """

    forms: FormColumns
    names: InstanceNames
    numbers: Int64s
    places: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    left: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    reader: int | None = None

    def __len__(self) -> int:
        return len(self.forms)

    @property
    def plan(self) -> QueryPlan:
        """The plan of all, with marks in it."""
        return self.form.plan

    @property
    def alive(self) -> Bools:
        """Which of them are there."""
        found = np.ones(len(self), np.bool_)
        found[self.left] = False
        return found

    def merged(self, start: int) -> ManyMembers:
        """As the plan of all has them."""
        clock = BEGINNING if self.start is None else self.start
        return ManyMembers(self.places, self.forms, self.alive, start, self.reader, clock)

    def among(self, queries: Int64s) -> tuple[Int64s, Int64s]:
        """Which of some numbers in the plan are of these: (where they stand, which each is)."""
        at = np.minimum(np.searchsorted(self.places, queries), len(self.places) - 1)
        rows = np.flatnonzero(self.places[at] == queries)
        return rows, at[rows]


@dataclass
class SharedPlan:
    """Queries that are one dataflow, by their numbers; many at once in `blocks`, by their names."""

    name: str
    common: Hashable
    everywhere: bool  # routed at every slot
    begun: bool = False
    next: int = 0
    members: dict[int, Offered] = field(default_factory=dict)
    blocks: dict[str, OfferedColumns] = field(default_factory=dict)
    readers: dict[int, Reader] | None = None  # who is told apart below the last slot; None: queries are, if anybody is
    reads: dict[int, int] = field(default_factory=dict)  # by query, its reader
    _reading: Counter[int] = field(default_factory=Counter)  # by reader, how many queries or blocks
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    plan: QueryPlan | None = None
    shape: PlanColumns | None = None  # settled when it begins
    before: Sequence[Canonical] = ()  # forms of queries that have come before it begins: others like them may
    _known: dict[str, Any] = field(default_factory=dict)  # what follows from the members
    _answers: dict[int, ShownAnswer] = field(default_factory=dict)  # of members that somebody has asked for
    _forms: dict[int, Canonical] = field(default_factory=dict)  # of members
    _starting: dict[int, int] = field(default_factory=dict)  # clocks of who is told apart, if they may begin later
    _routers: Routers = field(default_factory=Routers)
    _late: dict[int, int] = field(default_factory=dict)  # whose clock was to begin when the plan was last made
    _unsettled: list[Canonical] = field(default_factory=list)  # who has come since the shape was last looked at

    def changed(self) -> None:
        """Somebody has come or gone."""
        self.plan, self._known = None, {}

    @property
    def shown(self) -> dict[int, ShownAnswer]:
        """How every query shows its answer."""
        if len(self._answers) < len(self.members):
            new = self.members.keys() - self._answers.keys()
            self._answers |= {number: ShownAnswer.of(self.members[number].form) for number in new}
        return self._answers

    @property
    def saved(self) -> dict[str, Any]:
        """What a restart must know but for its members; the same object until somebody comes or goes."""
        if "saved" not in self._known:
            shape = self.settled().plain()
            self._known["saved"] = {"everywhere": self.everywhere, "next": self.next, "shape": shape}
            if self.readers is not None:
                told = {key: b.reader for key, b in self.blocks.items()}
                self._known["saved"]["readers"] = {
                    key: None if r is None else [r, self.readers[r].start] for key, r in told.items()
                }
        found: dict[str, Any] = self._known["saved"]
        return found

    @property
    def one(self) -> Offered:
        """One of the queries."""
        return next(iter(self.members.values() or self.blocks.values()))

    def __len__(self) -> int:
        """How many queries there are."""
        return len(self.members) + sum(len(b) - len(b.left) for b in self.blocks.values())

    def keys(self, number: int | None = None) -> list[str]:
        """The names of its queries, in lower case; `number`: of that one."""
        if number is not None and number in self.members:
            return [self.members[number].key]
        found = [m.key for m in self.members.values()] if number is None else []
        for block in self.blocks.values():
            there = np.flatnonzero(block.alive) if number is None else block.among(np.array([number]))[1]
            found += [block.names[i].lower() for i in there.tolist()]
        return found

    @property
    def open(self) -> bool:
        """Whether a query may join at any time."""
        return self.readers is not None or (self.everywhere and not self.one.remembers)

    @property
    def told_when(self) -> bool:
        """Whether its clock must be told when to start: nobody comes later, or it answers before the first row."""
        return not self.open or self.one.form.over_nothing

    def takes(self, query: Offered) -> bool:
        """Whether a query of its form may join at any time."""
        if not self.open:
            return False
        return (self.shape or self.settled()).fits(query.form, self.one.form)

    def join(self, query: Offered, before: Hashable = None, at: tuple[int, Reader | None] | None = None) -> int:
        """Have one more query; `before`: what has come before it. `at`: its number and reader, if it was here."""
        number, reader = (None, None) if at is None else at
        if self.readers is not None:
            reader = self._reader(query, before, reader)
            self._reading[reader.number] += 1
        number = self.next if number is None else number
        if reader is not None:
            self.reads[number] = reader.number
        self.members[number] = query
        self._answers.pop(number, None)
        self._forms[number] = query.form
        if self.readers is None and query.start is not None:
            self._starting[number] = query.start
        self._unsettled.append(query.form)
        self._routers.queries.add(number)
        self.next = max(self.next, number + 1)
        self.changed()
        return number

    def reader(self, number: int) -> Reader | None:
        """The reader of a query."""
        return None if self.readers is None else self.readers[self.reads[number]]

    def leave(self, number: int) -> None:
        """Have a query no longer."""
        del self.members[number]
        del self._forms[number]
        self._answers.pop(number, None)
        self._routers.queries.add(number)
        self._unread(self.reads.pop(number, None))
        self.changed()

    def join_columns(
        self, block: OfferedColumns, before: Hashable = None, reader: Reader | None = None
    ) -> OfferedColumns:
        """Have many more queries; those without numbers get some."""
        if self.readers is not None and not block.forms.early:
            if reader is None and block.reader is not None:  # it was here before
                reader = Reader(block.reader, block.form, block.start)
            made = self._reader(block, before, reader)
            block = replace(block, reader=made.number)
            self._reading[made.number] += block.key not in self.blocks
        if not len(block.places):
            block = replace(block, places=self.next + np.arange(len(block)))
        self.blocks[block.key] = block
        self._unsettled.append(block.form)
        self.next = max(self.next, int(block.places[-1]) + 1)
        self.changed()
        return block

    def leave_columns(self, key: str) -> None:
        """Have a block no longer."""
        self._unread(self.blocks.pop(key).reader)
        self.changed()

    # readers

    def _reader(self, query: Offered, before: Hashable, known: Reader | None) -> Reader:
        """The reader of a query that comes: one for which the same is kept, or a new one; or one that it had before."""
        assert self.readers is not None
        made = known or Reader(self.next, query.form, query.start, before)
        if known is None:
            alike = (r for r in self.readers.values() if r.before == before is not None and r.start == query.start)
            made = next((r for r in alike if r.selects == made.selects), made)
        self.next = max(self.next, made.number + 1)
        self._routers.readers.add(made.number)
        if made.start is not None:
            self._starting[made.number] = made.start
        return self.readers.setdefault(made.number, made)

    def _unread(self, reader: int | None) -> None:
        """Forget a reader that no query has any more."""
        if reader is not None and self.readers is not None:
            self._reading[reader] -= 1
            if not self._reading[reader]:
                del self._reading[reader], self.readers[reader]
                self._routers.readers.add(reader)

    def _lasting(self, form: Canonical) -> int:
        """For how long a row that came before a query may make a difference to it."""
        known: dict[Hashable, int] = self._known.setdefault("lasting", {})
        return known[form.sizes] if form.sizes in known else known.setdefault(form.sizes, lasting(form))

    @property
    def turns(self) -> list[tuple[int, int, int]]:
        """(when, reader, other): from when on nothing that is kept tells a reader from an older one."""
        if "turns" not in self._known:
            self._known["turns"] = sorted(self._turns())
        found: list[tuple[int, int, int]] = self._known["turns"]
        return found

    def _turns(self) -> Iterator[tuple[int, int, int]]:
        last: dict[int, int] = {}
        for number, read in self.reads.items():
            last[read] = max(last.get(read, 0), self._lasting(self.members[number].form))
        for block in self.blocks.values():
            if block.reader is not None:
                last[block.reader] = max(last.get(block.reader, 0), self._lasting(block.form))
        oldest: dict[Hashable, int] = {}
        for reader in sorted((self.readers or {}).values(), key=lambda r: (r.since, r.number)):
            other = oldest.setdefault(reader.selects, reader.number)
            if other != reader.number and last[reader.number] < INF:
                yield reader.since + last[reader.number], reader.number, other

    def turn(self, frontier: int) -> list[int]:
        """Let readers be one for which the same is kept by now; the queries that have another reader then."""
        into = {reader: other for at, reader, other in self.turns if at <= frontier}
        moved = [number for number, reader in self.reads.items() if reader in into]
        if into:
            assert self.readers is not None
            self.reads |= {number: into[self.reads[number]] for number in moved}
            for key, block in self.blocks.items():
                if block.reader in into:
                    self.blocks[key] = replace(block, reader=into[block.reader])
            for reader, other in into.items():
                self._reading[other] += self._reading.pop(reader)
                del self.readers[reader]
            self._routers.queries.update(moved)
            self._routers.readers.update(into)
            self.changed()
        return moved

    def planned(self, frontier: int = BEGINNING) -> QueryPlan:
        """The plan of all members; the same object until somebody comes or goes. What is up to `frontier` is over."""
        if self.plan is None:
            told = self.members if self.readers is None else self.readers
            late = self._starting = {q: at for q, at in self._starting.items() if q in told and at > frontier}
            changed = {q for q, _ in late.items() ^ self._late.items()}
            (self._routers.queries if self.readers is None else self._routers.readers).update(changed)
            starts = late if self.open else {}
            clocks = {q: BEGINNING if m.start is None else m.start for q, m in told.items()}
            many = [
                b.merged(b.start if self.open and b.start is not None and b.start > frontier else BEGINNING)
                for b in self.blocks.values()
            ]
            readers = None
            if self.readers is not None:
                readers = PlanReaders({r: reader.form for r, reader in self.readers.items()}, self.reads)
            shape = self.settled()
            self.plan = merged(
                self.name, self._forms, self.everywhere, self.open, starts, shape, self.next, many, readers,
                self._routers, clocks,
            )  # fmt: skip
            self._late = late
            self._routers.made()
            if shape.admits is None:  # which operators there are is settled
                admitted = (x.inputs[0] for x in walk(self.plan.root) if isinstance(x, Admit))
                self.shape = replace(shape, admits=frozenset(x.alias for x in admitted if isinstance(x, Scan)))
                self._known.pop("saved", None)
        return self.plan

    def settled(self) -> PlanColumns:
        """What its rows consist of, from now on."""
        if self.shape is None:
            forms = [m.form for m in (*self.members.values(), *self.blocks.values())]
            self.shape = replace(PlanColumns.of([*forms, *self.before]), began=self.next)
        elif self._unsettled and self.open and self.one.form.stateless:
            self.shape = self.shape.widened(self._unsettled)
        self._unsettled = []
        return self.shape

    def relation(self, rows: Elements, number: int) -> pa.Table:
        """What one query stands at, of the rows that the plan stands at."""
        form = self.members[number].form
        assert self.plan is not None
        if self.plan.parting is None:
            rows = of_one(rows, number)
        else:
            mine = condition(self.settled().tests(form.slots[-1]))
            router = IndexRouter({number: of_query(self.reads[number], mine) if self.reads else mine})
            at, _ = router.pairs({c: rows.columns[c] for c in router.reads}, len(rows))
            rows = rows.take(at)
        constants = {c: pa.repeat(value_of(e)[0], len(rows)) for c, e in form.constants}
        columns = {**rows.columns, **constants}
        return pa.table({name: columns[c] for name, c in form.output}) if form.output else pa.table({})

    def parted(self, rows: Elements) -> tuple[Elements, list[InstanceRows]]:
        """The rows of an answer that belong to queries by themselves, and those of blocks."""
        if not self.blocks or not len(rows):
            return rows, []
        query, found = raw(rows.columns[QUERY]).astype(np.int64), []
        rest = np.ones(len(rows), np.bool_)
        for block in self.blocks.values():
            at, which = block.among(query)
            rest[at] = False
            there = block.alive[which]
            if there.any():
                found.append(of_many(rows, block.key, block.forms, at[there], which[there]))
        return rows.filter(rest), found

    def relation_of_many(self, rows: Elements, block: OfferedColumns) -> tuple[pa.Table, Int64s]:
        """What the queries of a block stand at, and which of them each row is of."""
        assert self.plan is not None
        form = block.form
        if self.plan.parting is None:
            at, which = block.among(raw(rows.columns[QUERY]).astype(np.int64))
        else:
            conditions = block.forms.conditions(self.settled().tests(form.slots[-1]))
            if self.readers is not None:
                told = block.places if block.reader is None else np.full(len(block), block.reader)
                conditions = of_queries(told, conditions)
            router = IndexRouter({}, blocks=[RoutedColumns(np.arange(len(block)), conditions, block.alive)])
            at, which = router.pairs({c: rows.columns[c] for c in router.reads}, len(rows))
        there = block.alive[which]
        rows, which = rows.take(at[there]), which[there]
        columns = {**rows.columns, **block.forms.constants_of(which)}
        return pa.table({name: columns[c] for name, c in form.output}), which


def count(queries: Iterable[Offered]) -> int:
    """How many queries these are."""
    return sum(len(q) if isinstance(q, OfferedColumns) else 1 for q in queries)
