"""A family: the aggregate queries over the same rows, advanced together.

    rows ── attributes, arguments, keys ── places ── per plot: cell ──┬─ ledger    no GROUP BY: entries, totals
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
from windrow.sharing.cells import Plot
from windrow.sharing.cohort import Batch, Cohort, Instants, parts
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import Edges
from windrow.sharing.evaluate import Expressions
from windrow.sharing.feeds import Account, Feed, ShardsKey
from windrow.sharing.index import PredicateIndex
from windrow.sharing.ledger import DueAnswers, Entries, Ledger
from windrow.sharing.member import Counters, Joined, Kind, Member, Spent, UserCall, cost_group
from windrow.sharing.shards import DueQuery as ShardsDue
from windrow.sharing.shards import Shards
from windrow.sharing.windows import PAIRED

Columns = Mapping[str, pa.Array]


class Family:
    """Queries over the rows of one stream (joined with tables or not)."""

    def __init__(self, functions: Mapping[str, Callable[..., object]] | None = None, technique: str = PAIRED) -> None:
        self.technique = technique
        self.expressions = Expressions(functions or {})
        self.joined: dict[str, Joined] = {}
        self.failed: dict[str, RuntimeFailure] = {}
        self.ledger = Ledger()
        self.shards: dict[ShardsKey, Shards] = {}
        self.index = PredicateIndex()
        self.epoch = 0
        self.counters = Counters()
        self.last = BEGINNING
        self.unstarted: set[str] = set()  # whose clocks have not begun
        self._used = False  # rows have come in this epoch
        self._of_epoch: dict[Condition, int] = {}  # accounts that queries of this epoch share
        self._accounts: dict[int, Account] = {}
        self._next_account = 0
        self._users: Counter[Condition] = Counter()  # accounts, and queries that read shards
        self._reading: dict[ShardsKey, dict[str, Joined]] = {}  # who reads which shards
        self._reach: dict[ShardsKey, tuple[int, set[Condition]]] = {}  # the longest windows, and the predicates
        self.deadlines: frozenset[str] = frozenset()  # members whose answers may be held back
        self.runs: dict[str, int] = {}  # the joint run of each of them in this advance
        self.spent: dict[str, Spent] = {}  # what their answers took in the last advance, by `cost_group`
        self._stale: dict[Condition, None] = {}  # conditions whose users have changed since the index was made
        self._rows_per_slice = 0.0
        self._feeds: dict[Plot, Feed] = {}
        self._types: dict[str, pa.DataType] = {}
        self._known: set[Kind] = set()  # whose needs are provided for
        self._cohorts: dict[object, Cohort] = {}

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
        entry = Joined(member, start, self.epoch)
        if member.kind.shards is None:
            if member.condition not in self._of_epoch:
                self._of_epoch[member.condition] = self._next_account
                self._next_account += 1
            entry.account = self._of_epoch[member.condition]
        self.seat(entry)

    def seat(self, entry: Joined) -> None:
        """Serve a query whose epoch and account have been settled, here or elsewhere."""
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
        cohort = self._cohorts.get(kind.answered)
        if cohort is None:
            cohort = self._cohorts[kind.answered] = Cohort()
        cohort.add(member.name, member.window, entry.reader)
        if entry.start == BEGINNING:
            self.unstarted.add(member.name)
        else:
            cohort.begin(member.name, entry.start)

    def _provide(self, kind: Kind) -> None:
        """Keep what queries of a kind need from now on."""
        self._known.add(kind)
        self._types |= {name: f.type for name, f in kind.formulas.items()}
        if kind.shards is None:
            self.ledger.provide(kind.calls, self._types)
            return
        if kind.shards not in self.shards:
            self.shards[kind.shards] = Shards(kind.shards[0], self._types, kind.shards[1])
        self.shards[kind.shards].provide(kind.calls)

    def _open(self, entry: Joined) -> None:
        """Have a query read its account, and the account its rows."""
        member, number = entry.member, entry.account
        assert number is not None
        entry.reader = self.ledger.open(number, member.window)
        account = self._accounts.get(number)
        if account is None:
            account = self._accounts[number] = Account(number, member.condition)
            self._use(member.condition, 1)
        account.windows[member.window] = account.windows.get(member.window, 0) + 1
        self._feed_account(account)

    def _use(self, condition: Condition, times: int) -> None:
        before = self._users[condition]
        self._users[condition] += times
        if not before or not self._users[condition]:
            self._stale[condition] = None

    def _feed_account(self, account: Account) -> None:
        """Tell the feed of an account's plot about its windows; a plot that is to come asks itself."""
        home = self.index.home.get(account.condition)
        if home is not None:
            self._feeds[self.index.plots[home[0]]].put(account, home[1])

    def _feed_shards(self, entry: Joined, times: int) -> None:
        home = self.index.home.get(entry.member.condition)
        if home is not None:
            self._feeds[self.index.plots[home[0]]].use(_shards(entry), home[1], entry.member.window, times)

    def begin(self, name: str, ts: int) -> None:
        """A query's clock starts."""
        entry = self.joined[name]
        entry.start = ts
        self.unstarted.discard(name)
        self._cohorts[entry.member.kind.answered].begin(name, ts)

    def _begin_all(self, ts: int) -> None:
        for name in self.unstarted:
            self.joined[name].start = ts
        if self.unstarted:
            self.unstarted.clear()
            for cohort in self._cohorts.values():
                cohort.begin_all(ts)

    def done(self, name: str) -> None:
        """A query has been answered up to the last frontier."""
        self._cohorts[self.joined[name].member.kind.answered].done(name)

    @property
    def next_account(self) -> int:
        """The number of the next account that is opened; none is used twice."""
        return self._next_account

    def resume(self, epoch: int, next_account: int) -> None:
        """Go on seating where another process, which may have seen rows since, has stopped."""
        self.epoch, self._next_account, self._used = epoch, next_account, True

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
        cohort = self._cohorts[member.kind.answered]
        cohort.remove(name)
        if not len(cohort):
            del self._cohorts[member.kind.answered]
        if entry.account is not None:
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

    def _close(self, entry: Joined) -> None:
        assert entry.account is not None
        self.ledger.leave(entry.reader)
        account = self._accounts[entry.account]
        account.windows[entry.member.window] -= 1
        if not account.windows[entry.member.window]:
            del account.windows[entry.member.window]
        self._feed_account(account)
        if not account.windows:
            del self._accounts[account.number]
            self.ledger.close(account.number)
            self._use(account.condition, -1)

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
            made = self.index.plots
        else:
            made = self.index.changed(new, gone)
        self._lay_out(made)

    def _lay_out(self, made: Sequence[Plot]) -> None:
        """Feeds for plots that are new, with their accounts and those who read shards."""
        self._feeds = {p: self._feeds.get(p) or Feed(p, self.technique) for p in self.index.plots}
        fresh = set(made)
        if not fresh:
            return
        for account in self._accounts.values():
            k, i = self.index.home[account.condition]
            if self.index.plots[k] in fresh:
                self._feeds[self.index.plots[k]].put(account, i)
        for entries in self._reading.values():
            for entry in entries.values():
                k, i = self.index.home[entry.member.condition]
                if self.index.plots[k] in fresh:
                    self._feeds[self.index.plots[k]].use(_shards(entry), i, entry.member.window, 1)

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
            self.ledger.add(found)

    def reduce(
        self, ts: Int64s, columns: Columns, only: frozenset[str] | None = None
    ) -> dict[str, tuple[pa.Table, ...]]:
        """The partials of some rows in time order, to be added up elsewhere: nothing is kept here.

        `ledger`: entries; `shards ...`: partials with their keys in columns `key|...`. Queries whose expressions raise
        are named in `failed`; what is made for them means nothing.
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
        for k, plot in enumerate(index.plots):
            feed = feeds[plot]
            at, cell = _inside(index.cells(k, places, len(ts)))
            if feed.feeds_accounts:
                read = [c for c in self.ledger.kept.reads if c in values]  # history has what its readers need
                mine = {c: values[c] if at is None else values[c].take(pa.array(at)) for c in read}
                self.counters.lifted += len(ts)
                if len(cell):
                    entries, partials = feed.entries(ts if at is None else ts[at], cell, mine, self.ledger.kept)
                    self.counters.partials += partials
                    found.append(entries)
            for key, (edges, wanted) in feed.shards.items():
                self.counters.lifted += len(ts)
                rows = np.arange(len(ts)) if at is None else at
                self.counters.partials += shards[key].settle(
                    plot, self.epoch, ts, rows, cell, edges, values, wanted, only
                )
        return found

    def _for(self, only: frozenset[str]) -> tuple[PredicateIndex, dict[Plot, Feed]]:
        """An index for some queries alone."""
        entries = [self.joined[n] for n in only if n in self.joined]
        index = PredicateIndex(e.member.condition for e in entries)
        feeds = {p: Feed(p, self.technique) for p in index.plots}
        for entry in entries:
            k, i = index.home[entry.member.condition]
            if entry.account is not None:
                feeds[index.plots[k]].put(self._accounts[entry.account], i)
            else:
                feeds[index.plots[k]].use(_shards(entry), i, entry.member.window, 1)
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
        for key, cohort in self._cohorts.items():
            if home or key is True:
                which, first, counts = cohort.due(self.last, frontier)
                if held:
                    waiting, which, first, counts = cohort.held(held, which, first, counts)
                    if not isinstance(key, bool):
                        self.ledger.start_over(cohort.reader[waiting])
                if len(which):
                    found += self._from_cohort(key, cohort, which, first, counts)
            cohort.all_done()
        self.counters.answers += sum(map(len, found))
        self.last = frontier
        self._forget()
        return found

    def _from_cohort(self, key: object, cohort: Cohort, which: Int64s, first: Int64s, counts: Int64s) -> list[Batch]:
        if isinstance(key, bool):
            return self._from_shards(cohort, which, first, counts)
        begun = time.perf_counter()
        found = self._from_ledger(cohort, which, first, counts)
        if self.deadlines:
            late = [n for i in which.tolist() if (n := cohort.names[i]) in self.deadlines]
            self._note(late, 0, (time.perf_counter() - begun) * len(late) / len(which))
        return found

    def _note(self, names: Sequence[str], depth: int, seconds: float) -> None:
        """Remember what answers of members with deadlines took."""
        if names:
            group = cost_group(self.joined[names[0]].member)
            self.spent[group] = self.spent.get(group, Spent()) + Spent(depth, len(names), seconds)

    def _from_ledger(self, members: Cohort, which: Int64s, first: Int64s, counts: Int64s) -> list[Batch]:
        """The answers of queries with the same aggregates, all at once."""
        due = DueAnswers(
            members.reader[which], first, counts, members.slide[which], members.offset[which], members.lag[which]
        )
        calls = self.joined[members.names[0]].member.kind.calls
        answers, read = self.ledger.answers(calls, due)
        self.counters.reads += read
        ts = due.ts
        columns = {call.output: answers[call].build(slice(None)) for call in calls}
        rows = Elements(ts, ts + np.repeat(due.slide, counts), np.ones(len(ts), np.int8), columns)
        return [Batch(members.names, counts, rows, which)]

    def _from_shards(self, members: Cohort, which: Int64s, first: Int64s, counts: Int64s) -> list[Batch]:
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
        self, members: Cohort, which: Int64s, first: Int64s, counts: Int64s
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
        self.ledger.forget(self.last)
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
        self.ledger.add_all(partials.get("ledger", ()))
        for key, shards in self.shards.items():
            for table in partials.get(slot(key), ()):
                shards.add(table)

    def held(self) -> State:
        """Entries and partials as runs; those that did not change are the same runs as before."""
        found = {"ledger": self.ledger.runs(), **{slot(key): tuple(s.runs()) for key, s in self.shards.items()}}
        return {name: runs for name, runs in found.items() if runs}

    def hold(self, state: State, frontier: int) -> None:
        """Take entries and partials back that `held` named, answered up to `frontier`."""
        self.ledger.restore(state.get("ledger", ()))
        for key, shards in self.shards.items():
            for run in state.get(slot(key), ()):
                shards.take_back(run)
        self.last = frontier


def _shards(entry: Joined) -> ShardsKey:
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


__all__ = ["Counters", "Family", "Joined", "Kind", "Member", "UserCall", "slot"]
