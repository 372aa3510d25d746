"""Who is in a family, what they read, and the index over their predicates.

Queries join and leave between advances; what they need is added to the index at the next advance with rows. A query
answers from the rows that came after it joined (its epoch), and from the history it was given. Queries of one epoch
with the same predicate read one synopsis. Queries that differ in constants only may come as columns (`member_columns`),
each with a synopsis of its own.

Cost: joining and leaving cost what the query needs; the index is planned anew when much of it has changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, INF
from windrow.sharing.boxes import Conditions
from windrow.sharing.cells import CellSpace
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import Edges
from windrow.sharing.evaluate import Expressions
from windrow.sharing.feeds import PredicateSynopsis, ShardsKey, SpaceReaders
from windrow.sharing.index import PredicateIndex
from windrow.sharing.member import Counters, FamilyMember, Kind, Member, Spent
from windrow.sharing.member_columns import ColumnGroup, MemberColumns
from windrow.sharing.query_group import QueryGroup
from windrow.sharing.shards import Shards
from windrow.sharing.synopsis_store import SynopsisStore
from windrow.sharing.waiting import WaitingRows
from windrow.sharing.windows import PAIRED


class FamilyMembers:
    """The queries of a family, between two advances."""

    def __init__(self, functions: Mapping[str, Callable[..., object]] | None = None, technique: str = PAIRED) -> None:
        self.technique = technique
        self.expressions = Expressions(functions or {})
        self.joined: dict[str, FamilyMember] = {}
        self.columns: dict[str, MemberColumns] = {}  # members in columns, by block
        self.failed: dict[str, RuntimeFailure] = {}
        self.synopsis_store = SynopsisStore()
        self.shards: dict[ShardsKey, Shards] = {}
        self.index = PredicateIndex()
        self.epoch = 0
        self.counters = Counters()
        self.last = BEGINNING
        self.unstarted: dict[int, set[str]] = {}  # by epoch, whose clocks have not begun
        self._used = False  # rows have come in this epoch
        self._of_epoch: dict[Condition, int] = {}  # synopses that queries of this epoch share
        self._synopses: dict[int, PredicateSynopsis] = {}
        self._next_synopsis = 0
        self._users: Counter[Conditions] = Counter()  # synopses, and queries that read shards
        self._reading: dict[ShardsKey, dict[str, FamilyMember]] = {}  # who reads which shards
        self._wanting: dict[ShardsKey, dict[Condition, dict[str, None]]] = {}  # the same by predicate
        self._reach: dict[ShardsKey, int] = {}  # the longest windows
        self.deadlines: frozenset[str] = frozenset()  # members whose answers may be held back
        self.runs: dict[str, int] = {}  # the joint run of each of them in this advance
        self.stopwatch: Callable[[], float] = time.perf_counter  # measures what their answers take
        self.spent: dict[str, Spent] = {}  # what their answers took in the last advance, by `cost_group`
        self._stale: dict[Conditions, None] = {}  # conditions whose users have changed since the index was made
        self._rows_per_slice = 0.0
        self._feeds: dict[CellSpace, SpaceReaders] = {}
        self._types: dict[str, pa.DataType] = {}
        self._known: set[Kind] = set()  # whose needs are provided for
        self._query_groups: dict[object, QueryGroup] = {}
        self._column_groups: dict[str, ColumnGroup] = {}
        self._unread: list[str] = []  # blocks of them whose synopses have not been opened
        self._waiting = WaitingRows()  # that members who are there now read
        self._due_from = BEGINNING  # no member has an instant after the last frontier and before this

    def __len__(self) -> int:
        return len(self.joined) + sum(map(len, self._column_groups.values()))

    @property
    def functions(self) -> Mapping[str, Callable[..., object]]:
        return self.expressions.functions

    @functions.setter
    def functions(self, functions: Mapping[str, Callable[..., object]]) -> None:
        self.expressions.functions = functions

    def join(self, member: Member, start: int = BEGINNING) -> None:
        """Serve one more query from now on; its clock starts at `start` (or with the first row)."""
        if member.name in self.joined:
            raise ValueError(f"{member.name} has joined already")
        self._next_epoch()
        entry = FamilyMember(member, start, self.epoch)
        if member.kind.shards is None:
            if member.condition not in self._of_epoch:
                self._of_epoch[member.condition] = self._next_synopsis
                self._next_synopsis += 1
            entry.synopsis = self._of_epoch[member.condition]
        self.serve(entry)

    def catch_up(self, upto: int = INF) -> None:
        """Have the partials of all rows up to an instant that have come."""

    def _next_epoch(self) -> None:
        """Who joins now has not seen the rows that have come."""
        self.catch_up()
        if self._used:
            self.epoch, self._used, self._of_epoch = self.epoch + 1, False, {}

    def join_columns(self, members: MemberColumns) -> MemberColumns:
        """Serve many more queries from now on, each with a synopsis of its own; returns them with their places."""
        self._next_epoch()
        synopses = self._next_synopsis + np.arange(len(members))
        self._next_synopsis += len(members)
        placed = replace(members, epoch=self.epoch, synopses=synopses)
        self.serve_columns(placed)
        return placed

    def serve_columns(self, members: MemberColumns) -> None:
        """Serve many queries whose epoch and synopses have been settled, here or elsewhere."""
        self.catch_up()
        self._due_from = BEGINNING
        kind = members.kind
        if kind not in self._known:
            self._provide(kind)
        self.expressions.add(kind)
        self.columns[members.uid] = members
        self._column_groups[members.uid] = ColumnGroup(members)
        self._unread.append(members.uid)
        self._use(members.conditions, 1)
        self.unstarted.setdefault(members.epoch, set()).add(members.uid)

    def _open_columns(self) -> None:
        """Have members in columns read their synopses: put off, because who only reduces rows never needs them."""
        for block in self._unread:
            group, members = self._column_groups[block], self.columns[block]
            opened = self.synopsis_store.open_all(members.synopses[group.alive], members.window)
            group.reader[group.alive] = opened
        self._unread = []

    def leave_columns(self, block: str, places: Int64s) -> None:
        """Serve some of many queries no longer."""
        group, members = self._column_groups.get(block), self.columns.get(block)
        if group is None or members is None:
            return
        self.catch_up()
        gone = group.leave(places)
        if block not in self._unread:
            self.synopsis_store.leave(group.reader[gone])
            self.synopsis_store.close(members.synopses[gone])
        self._feed_columns(members)
        if not len(group):
            self._has_started(block, members.epoch)
            self.expressions.add(members.kind, -1)
            self._use(members.conditions, -1)
            del self.columns[block], self._column_groups[block]
            self._unread = [b for b in self._unread if b != block]

    def _feed_columns(self, members: MemberColumns) -> None:
        """Tell the feed of many synopses which of them are open; a space that is to come asks itself."""
        home = self.index.home.get(members.conditions)
        if home is not None:
            self._put_columns(members, self._feeds[self.index.spaces[home[0]]], home[1])

    def _put_columns(self, members: MemberColumns, feed: SpaceReaders, first: int) -> None:
        alive = self._column_groups[members.uid].alive
        feed.put_all(members.uid, members.synopses, alive, first, members.window)

    def serve(self, entry: FamilyMember) -> None:
        """Serve a query whose epoch and synopsis have been settled, here or elsewhere."""
        self.catch_up()
        self._due_from = BEGINNING
        member, kind = entry.member, entry.member.kind
        if kind not in self._known:
            self._provide(kind)
        self.expressions.add(kind)
        self.joined[member.name] = entry
        if kind.shards is None:
            self._open(entry)
        else:
            self._reading.setdefault(kind.shards, {})[member.name] = entry
            self._wanting.setdefault(kind.shards, {}).setdefault(member.condition, {})[member.name] = None
            self._reach.pop(kind.shards, None)
            self._use(member.condition, 1)
            self._feed_shards(entry, 1)
        query_group = self._query_groups.get(kind.answered)
        if query_group is None:
            query_group = self._query_groups[kind.answered] = QueryGroup(kind.calls)
        query_group.add(member.name, member.window, entry.reader)
        if entry.start == BEGINNING:
            self.unstarted.setdefault(entry.epoch, set()).add(member.name)
        else:
            query_group.begin(member.name, entry.start)

    def _provide(self, kind: Kind) -> None:
        """Keep what queries of a kind need from now on."""
        self._known.add(kind)
        self._types |= {name: f.type for name, f in kind.formulas.items()}
        if kind.shards is None:
            self.synopsis_store.provide(kind.calls, self._types)
            return
        if kind.shards not in self.shards:
            self.shards[kind.shards] = Shards(kind.shards[0], self._types, kind.shards[1])
        self.shards[kind.shards].provide(kind.calls)

    def _open(self, entry: FamilyMember) -> None:
        """Have a query read its synopsis, and the synopsis its rows."""
        member, number = entry.member, entry.synopsis
        assert number is not None
        entry.reader = self.synopsis_store.open(number, member.window)
        synopsis = self._synopses.get(number)
        if synopsis is None:
            synopsis = self._synopses[number] = PredicateSynopsis(number, member.condition)
            self._use(member.condition, 1)
        synopsis.windows[member.window] = synopsis.windows.get(member.window, 0) + 1
        self._feed_synopsis(synopsis)

    def _use(self, condition: Conditions, times: int) -> None:
        before = self._users[condition]
        self._users[condition] += times
        if not before or not self._users[condition]:
            self._stale[condition] = None

    def _feed_synopsis(self, synopsis: PredicateSynopsis) -> None:
        """Tell the feed of a synopsis's space about its windows; a space that is to come asks itself."""
        home = self.index.home.get(synopsis.condition)
        if home is not None:
            self._feeds[self.index.spaces[home[0]]].put(synopsis, home[1])

    def _feed_shards(self, entry: FamilyMember, times: int) -> None:
        home = self.index.home.get(entry.member.condition)
        if home is not None:
            self._feeds[self.index.spaces[home[0]]].use(shards_of(entry), home[1], entry.member.window, times)

    def begin(self, name: str, ts: int) -> None:
        """A query's clock starts."""
        entry = self.joined[name]
        entry.start = ts
        self._has_started(name, entry.epoch)
        self._query_groups[entry.member.kind.answered].begin(name, ts)

    def _has_started(self, name: str, epoch: int) -> None:
        waiting = self.unstarted.get(epoch, set())
        waiting.discard(name)
        if not waiting:
            self.unstarted.pop(epoch, None)

    def begin_epoch(self, epoch: int, ts: int) -> Collection[str]:
        """The clock of all who joined in an epoch starts; returns their names."""
        if len(self.unstarted) > 1:
            names = list(self.unstarted[epoch])
            for name in names:
                if name in self._column_groups:
                    self._column_groups[name].begin_all(ts)
                    self._has_started(name, epoch)
                else:
                    self.begin(name, ts)
            return names
        return self._begin_all(ts)

    def _begin_all(self, ts: int) -> list[str]:
        names = [name for names in self.unstarted.values() for name in names]
        for name in names:
            if name in self.joined:
                self.joined[name].start = ts
        if names:
            self.unstarted.clear()
            for query_group in self._query_groups.values():
                query_group.begin_all(ts)
            for column_group in self._column_groups.values():
                column_group.begin_all(ts)
        return names

    def done(self, name: str) -> None:
        """A query has been answered up to the last frontier."""
        self._query_groups[self.joined[name].member.kind.answered].done(name)

    def done_epoch(self, epoch: int) -> None:
        """So have all who joined in an epoch and wait for their clock."""
        for name in self.unstarted[epoch]:
            if name in self._column_groups:
                self._column_groups[name].all_done()
            else:
                self.done(name)

    @property
    def next_synopsis(self) -> int:
        """The number of the next synopsis that is opened; none is used twice."""
        return self._next_synopsis

    def resume(self, epoch: int, next_synopsis: int) -> None:
        """Go on numbering where another process, which may have seen rows since, has stopped."""
        self.epoch, self._next_synopsis, self._used = epoch, next_synopsis, True

    def used(self) -> None:
        """Rows have come: who joins from now on has not seen them."""
        self._used = True

    def leave(self, name: str) -> None:
        """Serve a query no longer."""
        self.catch_up()
        entry = self.joined.pop(name, None)
        if entry is None:
            self._leave_instance(name.lower())
            return
        member = entry.member
        self._has_started(name, entry.epoch)
        self.expressions.add(member.kind, -1)
        query_group = self._query_groups[member.kind.answered]
        query_group.remove(name)
        if not len(query_group):
            del self._query_groups[member.kind.answered]
        if entry.synopsis is not None:
            self._close(entry)
            return
        key = shards_of(entry)
        self._feed_shards(entry, -1)
        self._use(member.condition, -1)
        del self._reading[key][name]
        alike = self._wanting[key][member.condition]
        del alike[name]
        if not alike:
            del self._wanting[key][member.condition]
        self._reach.pop(key, None)
        self.shards[key].drop(name)
        if not self._reading[key]:
            del self._reading[key], self._wanting[key], self.shards[key]
            self._known = {k for k in self._known if k.shards != key}

    def _leave_instance(self, name: str) -> None:
        for members in list(self.columns.values()):
            place = members.names.place.get(name)
            if place is not None:
                self.leave_columns(members.uid, np.array([place]))

    def _close(self, entry: FamilyMember) -> None:
        assert entry.synopsis is not None
        self.synopsis_store.leave(np.array([entry.reader]))
        synopsis = self._synopses[entry.synopsis]
        synopsis.windows[entry.member.window] -= 1
        if not synopsis.windows[entry.member.window]:
            del synopsis.windows[entry.member.window]
        self._feed_synopsis(synopsis)
        if not synopsis.windows:
            del self._synopses[synopsis.number]
            self.synopsis_store.close(np.array([synopsis.number]))
            self._use(synopsis.condition, -1)

    def prepare(self, rows_per_slice: float) -> None:
        """Make the index now, for rows that come at this rate."""
        self._rows_per_slice = max(self._rows_per_slice, rows_per_slice)
        new = [c for c in self._stale if c in self._users and self._users[c] and c not in self.index.home]
        gone = [c for c in self._stale if not self._users[c] and c in self.index.home]
        for condition in self._stale:
            if not self._users[condition]:
                del self._users[condition]
        self._stale = {}
        if 2 * sum(map(len, new)) > sum(map(len, self.index.home)):  # much has changed: plan anew
            self.index = PredicateIndex(self._users, self._rows_per_slice)
            made = self.index.spaces
        else:
            made = self.index.changed(new, gone)
        self._lay_out(made)

    def _lay_out(self, made: Sequence[CellSpace]) -> None:
        """Feeds for spaces that are new, with their synopses and those who read shards."""
        self._feeds = {p: self._feeds.get(p) or SpaceReaders(p, self.technique) for p in self.index.spaces}
        fresh = set(made)
        if not fresh:
            return
        for synopsis in self._synopses.values():
            k, i = self.index.home[synopsis.condition]
            if self.index.spaces[k] in fresh:
                self._feeds[self.index.spaces[k]].put(synopsis, i)
        for members in self.columns.values():
            k, i = self.index.home[members.conditions]
            if self.index.spaces[k] in fresh:
                self._put_columns(members, self._feeds[self.index.spaces[k]], i)
        for entries in self._reading.values():
            for entry in entries.values():
                k, i = self.index.home[entry.member.condition]
                if self.index.spaces[k] in fresh:
                    self._feeds[self.index.spaces[k]].use(shards_of(entry), i, entry.member.window, 1)

    def _for(self, only: frozenset[str]) -> tuple[PredicateIndex, dict[CellSpace, SpaceReaders]]:
        """An index for some queries alone."""
        entries = [self.joined[n] for n in only if n in self.joined]
        index = PredicateIndex(e.member.condition for e in entries)
        feeds = {p: SpaceReaders(p, self.technique) for p in index.spaces}
        for entry in entries:
            k, i = index.home[entry.member.condition]
            if entry.synopsis is not None:
                feeds[index.spaces[k]].put(self._synopses[entry.synopsis], i)
            else:
                feeds[index.spaces[k]].use(shards_of(entry), i, entry.member.window, 1)
        return index, feeds

    def _rate(self, ts: Int64s) -> float:
        """Rows per slice, about."""
        windows = {e.member.window for e in self.joined.values()} | {m.window for m in self.columns.values()}
        slices = Edges(((0, w) for w in windows), 1, self.technique).count(int(ts[0]) - 1, int(ts[-1]))
        return len(ts) / max(slices, 1)


def shards_of(entry: FamilyMember) -> ShardsKey:
    key = entry.member.kind.shards
    assert key is not None
    return key
