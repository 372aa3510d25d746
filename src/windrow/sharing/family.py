"""A family: the aggregate queries over the same rows, advanced together.

    rows ── attributes, arguments, keys ── places ── per space: cell ──┬─ synopsis store    no GROUP BY: entries, totals
            (one call of the scalar engine)  (index)                  └─ shards    GROUP BY, values: blocks, matrices

Queries join and leave between advances; what they need is added to the index at the next advance with rows. A query
answers from the rows that came after it joined, and from the history it was given.

The family is an operator (`advance`, `state`, `restore`) over plain arrays. In parts, any number of processes
`reduce` the rows they see to partials, and those who `absorb` them (all entries, or the shards of some keys) answer.
Cost of an advance: the rows, what they reach, and the answers; nothing per query.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, Elements
from windrow.operators.protocol import State
from windrow.sharing.cells import CellSpace
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import Edges
from windrow.sharing.evaluate import Expressions
from windrow.sharing.feeds import PredicateSynopsis, ShardsKey, SpaceReaders
from windrow.sharing.index import PredicateIndex
from windrow.sharing.member import Counters, FamilyMember, Kind, Member, Spent, UserCall, cost_group
from windrow.sharing.query_group import Batch, Instants, QueryGroup, parts
from windrow.sharing.shard_blocks import DueQuery as ShardsDue
from windrow.sharing.shards import Shards
from windrow.sharing.synopsis_store import DueAnswers, Entries, SynopsisStore
from windrow.sharing.windows import PAIRED

Columns = Mapping[str, pa.Array]


class Family:
    """Queries over the rows of one stream (joined with tables or not)."""

    def __init__(self, functions: Mapping[str, Callable[..., object]] | None = None, technique: str = PAIRED) -> None:
        self.technique = technique
        self.expressions = Expressions(functions or {})
        self.joined: dict[str, FamilyMember] = {}
        self.failed: dict[str, RuntimeFailure] = {}
        self.synopsis_store = SynopsisStore()
        self.shards: dict[ShardsKey, Shards] = {}
        self.index = PredicateIndex()
        self.epoch = 0
        self.counters = Counters()
        self.last = BEGINNING
        self.unstarted: set[str] = set()  # whose clocks have not begun
        self._used = False  # rows have come in this epoch
        self._of_epoch: dict[Condition, int] = {}  # synopses that queries of this epoch share
        self._synopses: dict[int, PredicateSynopsis] = {}
        self._next_synopsis = 0
        self._users: Counter[Condition] = Counter()  # synopses, and queries that read shards
        self._reading: dict[ShardsKey, dict[str, FamilyMember]] = {}  # who reads which shards
        self._reach: dict[ShardsKey, tuple[int, set[Condition]]] = {}  # the longest windows, and the predicates
        self.deadlines: frozenset[str] = frozenset()  # members whose answers may be held back
        self.runs: dict[str, int] = {}  # the joint run of each of them in this advance
        self.spent: dict[str, Spent] = {}  # what their answers took in the last advance, by `cost_group`
        self._stale: dict[Condition, None] = {}  # conditions whose users have changed since the index was made
        self._rows_per_slice = 0.0
        self._feeds: dict[CellSpace, SpaceReaders] = {}
        self._types: dict[str, pa.DataType] = {}
        self._known: set[Kind] = set()  # whose needs are provided for
        self._query_groups: dict[object, QueryGroup] = {}

    def __len__(self) -> int:
        return len(self.joined)

    @property
    def functions(self) -> Mapping[str, Callable[..., object]]:
        return self.expressions.functions

    @functions.setter
    def functions(self, functions: Mapping[str, Callable[..., object]]) -> None:
        self.expressions.functions = functions

    # -- joining and leaving -----------------------------------------------------------------------------------------

    def join(self, member: Member, start: int = BEGINNING) -> None:
        """Serve one more query from now on; its clock starts at `start` (or with the first row)."""
        if member.name in self.joined:
            raise ValueError(f"{member.name} has joined already")
        if self._used:
            self.epoch, self._used, self._of_epoch = self.epoch + 1, False, {}
        entry = FamilyMember(member, start, self.epoch)
        if member.kind.shards is None:
            if member.condition not in self._of_epoch:
                self._of_epoch[member.condition] = self._next_synopsis
                self._next_synopsis += 1
            entry.synopsis = self._of_epoch[member.condition]
        self.serve(entry)

    def serve(self, entry: FamilyMember) -> None:
        """Serve a query whose epoch and synopsis have been settled, here or elsewhere."""
        member, kind = entry.member, entry.member.kind
        if kind not in self._known:
            self._provide(kind)
        self.expressions.add(kind)
        self.joined[member.name] = entry
        if kind.shards is None:
            self._open(entry)
        else:
            self._reading.setdefault(kind.shards, {})[member.name] = entry
            self._reach.pop(kind.shards, None)
            self._use(member.condition, 1)
            self._feed_shards(entry, 1)
        query_group = self._query_groups.get(kind.answered)
        if query_group is None:
            query_group = self._query_groups[kind.answered] = QueryGroup()
        query_group.add(member.name, member.window, entry.reader)
        if entry.start == BEGINNING:
            self.unstarted.add(member.name)
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

    def _use(self, condition: Condition, times: int) -> None:
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
            self._feeds[self.index.spaces[home[0]]].use(_shards(entry), home[1], entry.member.window, times)

    def begin(self, name: str, ts: int) -> None:
        """A query's clock starts."""
        entry = self.joined[name]
        entry.start = ts
        self.unstarted.discard(name)
        self._query_groups[entry.member.kind.answered].begin(name, ts)

    def _begin_all(self, ts: int) -> None:
        for name in self.unstarted:
            self.joined[name].start = ts
        if self.unstarted:
            self.unstarted.clear()
            for query_group in self._query_groups.values():
                query_group.begin_all(ts)

    def done(self, name: str) -> None:
        """A query has been answered up to the last frontier."""
        self._query_groups[self.joined[name].member.kind.answered].done(name)

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
        entry = self.joined.pop(name, None)
        if entry is None:
            return
        member = entry.member
        self.unstarted.discard(name)
        self.expressions.add(member.kind, -1)
        query_group = self._query_groups[member.kind.answered]
        query_group.remove(name)
        if not len(query_group):
            del self._query_groups[member.kind.answered]
        if entry.synopsis is not None:
            self._close(entry)
            return
        key = _shards(entry)
        self._feed_shards(entry, -1)
        self._use(member.condition, -1)
        del self._reading[key][name]
        self._reach.pop(key, None)
        if not self._reading[key]:
            del self._reading[key], self.shards[key]
            self._known = {k for k in self._known if k.shards != key}

    def _close(self, entry: FamilyMember) -> None:
        assert entry.synopsis is not None
        self.synopsis_store.leave(entry.reader)
        synopsis = self._synopses[entry.synopsis]
        synopsis.windows[entry.member.window] -= 1
        if not synopsis.windows[entry.member.window]:
            del synopsis.windows[entry.member.window]
        self._feed_synopsis(synopsis)
        if not synopsis.windows:
            del self._synopses[synopsis.number]
            self.synopsis_store.close(synopsis.number)
            self._use(synopsis.condition, -1)

    # -- the index ---------------------------------------------------------------------------------------------------

    def prepare(self, rows_per_slice: float) -> None:
        """Make the index now, for rows that come at this rate."""
        self._rows_per_slice = max(self._rows_per_slice, rows_per_slice)
        new = [c for c in self._stale if c in self._users and self._users[c] and c not in self.index.home]
        gone = [c for c in self._stale if not self._users[c] and c in self.index.home]
        for condition in self._stale:
            if not self._users[condition]:
                del self._users[condition]
        self._stale = {}
        if 2 * len(new) > len(self.index.home):  # much has changed: plan anew
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
        for entries in self._reading.values():
            for entry in entries.values():
                k, i = self.index.home[entry.member.condition]
                if self.index.spaces[k] in fresh:
                    self._feeds[self.index.spaces[k]].use(_shards(entry), i, entry.member.window, 1)

    # -- advancing ---------------------------------------------------------------------------------------------------

    def advance(self, ts: Int64s, columns: Columns, frontier: int) -> dict[str, Elements]:
        """Take in the rows up to `frontier`, sorted by time; the aggregate's elements of every query that is due."""
        self.take(ts, columns)
        return parts(self.finish(frontier))

    def take(self, ts: Int64s, columns: Columns) -> None:
        """Take in rows sorted by time; clocks that have not begun start with the first."""
        if len(ts):
            self._begin_all(int(ts[0]))
            self.settle(ts, columns)

    def settle(self, ts: Int64s, columns: Columns, only: frozenset[str] | None = None) -> None:
        """Partial aggregation: rows sorted by time into partials and entries, which end at edges of windows.

        `only`: history, which these queries alone may read. Queries whose expressions raise leave, named in `failed`.
        """
        if not len(ts) or not self.joined:
            return
        failed: dict[str, RuntimeFailure] = {}
        values = self._values(ts, columns, only, failed)
        self.failed |= failed
        for name in failed:
            self.leave(name)
        self._used = self._used or only is None
        entries = self._settled(ts, values, only, self.shards)
        for found in entries:
            self.synopsis_store.add(found)

    def reduce(
        self, ts: Int64s, columns: Columns, only: frozenset[str] | None = None
    ) -> dict[str, tuple[pa.Table, ...]]:
        """The partials of some rows in time order, to be added up elsewhere: nothing is kept here.

        `ledger`: entries of synopses; `shards ...`: partials with their keys in columns `key|...`. Queries whose
        expressions raise are named in `failed`; what is made for them means nothing.
        """
        if not len(ts) or not self.joined:
            return {}
        values = self._values(ts, columns, only, self.failed)
        shards = {key: mine.empty() for key, mine in self.shards.items()}
        found = {"ledger": tuple(e.table() for e in self._settled(ts, values, only, shards))}
        return found | {slot(key): tuple(r.table for r in mine.runs()) for key, mine in shards.items()}

    def _values(
        self, ts: Int64s, columns: Columns, only: frozenset[str] | None, failed: dict[str, RuntimeFailure]
    ) -> dict[str, pa.Array]:
        """The attributes, arguments and keys of rows."""
        self.counters.rows += len(ts)
        members = (e.member for e in self.joined.values())
        if only is None:
            return self.expressions.computed(members, columns, len(ts), failed)
        some = [m for m in members if m.name in only]
        expressions = Expressions(self.functions)
        for member in some:
            expressions.add(member.kind)
        return expressions.computed(some, columns, len(ts), failed)

    def _settled(
        self, ts: Int64s, values: Columns, only: frozenset[str] | None, shards: Mapping[ShardsKey, Shards]
    ) -> list[Entries]:
        """The entries of rows; their partials go into `shards`."""
        if only is None:
            if self._stale:
                self.prepare(self._rate(ts))
            index, feeds = self.index, self._feeds
        else:
            index, feeds = self._for(only)
        found = []
        places = index.places(values)
        for k, space in enumerate(index.spaces):
            feed = feeds[space]
            at, cell = _inside(index.cells(k, places, len(ts)))
            if feed.feeds_synopses:
                read = [c for c in self.synopsis_store.kept.reads if c in values]  # history has what its readers need
                mine = {c: values[c] if at is None else values[c].take(pa.array(at)) for c in read}
                self.counters.lifted += len(ts)
                if len(cell):
                    entries, partials = feed.entries(ts if at is None else ts[at], cell, mine, self.synopsis_store.kept)
                    self.counters.partials += partials
                    found.append(entries)
            for key, (edges, wanted) in feed.shards.items():
                self.counters.lifted += len(ts)
                rows = np.arange(len(ts)) if at is None else at
                self.counters.partials += shards[key].settle(
                    space, self.epoch, ts, rows, cell, edges, values, wanted, only
                )
        return found

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
                feeds[index.spaces[k]].use(_shards(entry), i, entry.member.window, 1)
        return index, feeds

    def _rate(self, ts: Int64s) -> float:
        """Rows per slice, about."""
        windows = {e.member.window for e in self.joined.values()}
        slices = Edges(((0, w) for w in windows), 1, self.technique).count(int(ts[0]) - 1, int(ts[-1]))
        return len(ts) / max(slices, 1)

    def hold_back(self, names: Iterable[str]) -> None:
        """Answers of these members may be held back: what they read is kept for one more period."""
        self.deadlines = frozenset(names)
        self._reach.clear()

    def finish(self, frontier: int, home: bool = True, held: Mapping[str, Instants] | None = None) -> list[Batch]:
        """Final aggregation: the answers of all that is due by `frontier`; without `home`, of queries with keys only.

        A clock that has not begun will begin beyond the frontier, so afterwards everybody is done up to here. `held`:
        at which multiples members that may be held back are answered.
        """
        found: list[Batch] = []
        self.spent = {}
        self.runs = {} if held is None else {name: run for name, (_, _, run) in held.items()}
        for key, query_group in self._query_groups.items():
            if home or key is True:
                which, first, counts = query_group.due(self.last, frontier)
                if held:
                    waiting, which, first, counts = query_group.held(held, which, first, counts)
                    if not isinstance(key, bool):
                        self.synopsis_store.start_over(query_group.reader[waiting])
                if len(which):
                    found += self._from_query_group(key, query_group, which, first, counts)
            query_group.all_done()
        self.counters.answers += sum(map(len, found))
        self.last = frontier
        self._forget()
        return found

    def _from_query_group(
        self, key: object, query_group: QueryGroup, which: Int64s, first: Int64s, counts: Int64s
    ) -> list[Batch]:
        if isinstance(key, bool):
            return self._from_shards(query_group, which, first, counts)
        begun = time.perf_counter()
        found = self._from_synopses(query_group, which, first, counts)
        if self.deadlines:
            late = [n for i in which.tolist() if (n := query_group.names[i]) in self.deadlines]
            self._note(late, 0, (time.perf_counter() - begun) * len(late) / len(which))
        return found

    def _note(self, names: Sequence[str], depth: int, seconds: float) -> None:
        """Remember what answers of members with deadlines took."""
        if names:
            group = cost_group(self.joined[names[0]].member)
            self.spent[group] = self.spent.get(group, Spent()) + Spent(depth, len(names), seconds)

    def _from_synopses(self, members: QueryGroup, which: Int64s, first: Int64s, counts: Int64s) -> list[Batch]:
        """The answers of queries with the same aggregates, all at once."""
        due = DueAnswers(
            members.reader[which], first, counts, members.slide[which], members.offset[which], members.lag[which]
        )
        calls = self.joined[members.names[0]].member.kind.calls
        answers, read = self.synopsis_store.answers(calls, due)
        self.counters.reads += read
        ts = due.ts
        columns = {call.output: answers[call].build(slice(None)) for call in calls}
        rows = Elements(ts, ts + np.repeat(due.slide, counts), np.ones(len(ts), np.int8), columns)
        return [Batch(members.names, counts, rows, which)]

    def _from_shards(self, members: QueryGroup, which: Int64s, first: Int64s, counts: Int64s) -> list[Batch]:
        """The answers of queries that read shards: those over the same values together, the others by themselves."""
        found = []
        for joint in self._joint(members, which, first, counts):
            begun = time.perf_counter()
            for name, rows in zip((n for n, _ in joint), self._answered(joint), strict=True):
                if len(rows):
                    found.append(Batch((name,), np.array([len(rows)]), rows))
            late = [n for n, _ in joint if n in self.deadlines]
            self._note(late, max(d.window.range for _, d in joint), time.perf_counter() - begun)
        return found

    def _joint(
        self, members: QueryGroup, which: Int64s, first: Int64s, counts: Int64s
    ) -> Iterable[list[tuple[str, ShardsDue]]]:
        """What is due, with those together that one pass can answer: equal values, predicates and functions."""
        groups: dict[object, list[tuple[str, ShardsDue]]] = {}
        for i, begin, count in zip(which.tolist(), first.tolist(), counts.tolist(), strict=True):
            entry = self.joined[members.names[i]]
            due = ShardsDue.of(entry.member, begin, begin + count - 1, entry.epoch)
            _, values = _shards(entry)
            if values and count == 1:
                since = self.shards[_shards(entry)].first_block(entry.epoch)
                alike = (_shards(entry), due.condition, due.calls, since, self.runs.get(entry.member.name))
            groups.setdefault(alike if values and count == 1 else i, []).append((entry.member.name, due))
        return groups.values()

    def _answered(self, joint: Sequence[tuple[str, ShardsDue]]) -> list[Elements]:
        names, dues = [n for n, _ in joint], [d for _, d in joint]
        shards = self.shards[_shards(self.joined[names[0]])]
        try:
            together = shards.answer_together(dues, names) if len(dues) > 1 else None
        except RuntimeFailure:  # of one of them: found when each is answered by itself
            together = None
        if together is not None:
            self.counters.reads += together[1]
            return together[0]
        found = []
        for name, due in joint:
            rows, read = shards.answer(due, name)
            self.counters.reads += read
            found.append(rows)
        return found

    def _forget(self) -> None:
        """Drop what no window will look at again."""
        if self.last == BEGINNING:
            return
        self.synopsis_store.forget(self.last)
        for key, entries in self._reading.items():
            if key not in self._reach:
                # what leaves a window is taken away at its next instant: it must be there until then
                windows = [(e.member.window, e.member.name in self.deadlines) for e in entries.values()]
                longest = max(w.range + w.slide * (2 if late else 1) + w.lag for w, late in windows)
                self._reach[key] = (longest, {e.member.condition for e in entries.values()})
            reach, conditions = self._reach[key]
            self.shards[key].forget(self.last - reach, conditions, entries.keys())

    # -- state -------------------------------------------------------------------------------------------------------

    def absorb(self, partials: Mapping[str, Sequence[pa.Table]]) -> None:
        """Add up partials that `reduce` made; the answers come with `finish`."""
        self._used = True
        self.synopsis_store.add_all(partials.get("ledger", ()))
        for key, shards in self.shards.items():
            for table in partials.get(slot(key), ()):
                shards.add(table)

    def held(self) -> State:
        """Entries and partials as runs; those that did not change are the same runs as before."""
        found = {"ledger": self.synopsis_store.runs(), **{slot(key): tuple(s.runs()) for key, s in self.shards.items()}}
        return {name: runs for name, runs in found.items() if runs}

    def hold(self, state: State, frontier: int) -> None:
        """Take entries and partials back that `held` named, answered up to `frontier`."""
        self.synopsis_store.restore(state.get("ledger", ()))
        for key, shards in self.shards.items():
            for run in state.get(slot(key), ()):
                shards.take_back(run)
        self.last = frontier


def _shards(entry: FamilyMember) -> ShardsKey:
    key = entry.member.kind.shards
    assert key is not None
    return key


def _inside(cell: Int64s) -> tuple[Int64s | None, Int64s]:
    """The rows that are in a cell (None: all), and their cells."""
    if not len(cell) or cell.min() >= 0:
        return None, cell
    at = np.flatnonzero(cell >= 0)
    return at, cell[at]


def slot(key: ShardsKey) -> str:
    """The name of shards: the same in every process."""
    return f"shards {hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}"


__all__ = ["Counters", "Family", "FamilyMember", "Kind", "Member", "UserCall", "slot"]
