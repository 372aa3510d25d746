"""A family: the aggregate queries over the same rows, advanced together.

    rows ── attributes, arguments, keys ── places ── per space: cell ──┬─ synopsis store    no GROUP BY: entries, totals
            (one call of the scalar engine)  (index)                  └─ shards    GROUP BY, values: blocks, matrices

Queries join and leave between advances (`family_members.py`).

The family is an operator (`advance`, `state`, `restore`) over plain arrays. In parts, any number of processes
`reduce` the rows they see to partials, and those who `absorb` them (all entries, or the shards of some keys) answer.
Cost of an advance: the rows, what they reach, and the answers; nothing per query.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.stretches import WIDE, breaks_of, pieces
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, INF, Elements, concat
from windrow.operators.protocol import State
from windrow.sharing.evaluate import Expressions
from windrow.sharing.family_members import FamilyMembers, shards_of
from windrow.sharing.feeds import ShardsKey
from windrow.sharing.member import Counters, FamilyMember, Kind, Member, Spent, UserCall, cost_group
from windrow.sharing.member_columns import ColumnGroup
from windrow.sharing.query_group import Batch, HeldInstants, QueryGroup, parts
from windrow.sharing.shard_blocks import DueQuery as ShardsDue
from windrow.sharing.shard_summaries import summarises
from windrow.sharing.shards import Shards
from windrow.sharing.synopsis_store import DueAnswers, Entries

Columns = Mapping[str, pa.Array]


class Family(FamilyMembers):
    """Queries over the rows of one stream (joined with tables or not)."""

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

        They wait for that until somebody is due (`waiting.py`). `only`: history, which these queries alone may read.
        Queries whose expressions raise leave, named in `failed`.
        """
        if not len(ts) or not len(self):
            return
        failed: dict[str, RuntimeFailure] = {}
        values = self._values(ts, columns, only, failed)
        self.failed |= failed
        for name in failed:
            self.leave(name)
        self._used = self._used or only is None
        if only is not None:
            self._form(ts, values, only)
            return
        self._waiting.add(ts, values)
        if self._waiting.full:
            self.catch_up()

    def catch_up(self, upto: int = INF) -> None:
        """Have the partials of rows that wait, up to an instant."""
        if self._waiting.count:
            self._form(*self._waiting.take(upto), None)

    def _form(self, ts: Int64s, values: Columns, only: frozenset[str] | None) -> None:
        """Have the partials of rows."""
        if not len(ts):
            return
        entries = self._settled(ts, values, only, self.shards)
        if entries:
            self._open_columns()
        for found in entries:
            self.synopsis_store.add(found)

    def reduce(
        self, ts: Int64s, columns: Columns, only: frozenset[str] | None = None
    ) -> dict[str, tuple[pa.Table, ...]]:
        """The partials of some rows in time order, to be added up elsewhere: nothing is kept here.

        `ledger`: entries of synopses; `shards ...`: partials with their keys in columns `key|...`. Queries whose
        expressions raise are named in `failed`; what is made for them means nothing.
        """
        if not len(ts) or not len(self):
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

    def hold_back(self, names: Iterable[str]) -> None:
        """Answers of these members may be held back: what they read is kept for one more period."""
        self.deadlines = frozenset(names)
        self._reach.clear()

    def finish(self, frontier: int, home: bool = True, held: Mapping[str, HeldInstants] | None = None) -> list[Batch]:
        """Final aggregation: the answers of all that is due by `frontier`; without `home`, of queries with keys only.

        A clock that has not begun will begin beyond the frontier, so afterwards everybody is done up to here. `held`:
        at which multiples members that may be held back are answered.
        """
        found: list[Batch] = []
        self.spent = {}
        self.runs = {} if held is None else {name: at.run for name, at in held.items()}
        if frontier < self._due_from and not self.deadlines:
            self.last = frontier
            return found
        done, self._due_from = self._instants(frontier)
        self.catch_up(INF if self.deadlines else done)
        for key, query_group in self._query_groups.items():
            if home or key is True:
                which, first, counts = query_group.due(self.last, frontier)
                if key is True and len(which):
                    concerned = np.zeros(len(query_group), np.bool_)
                    concerned[query_group.places(self._concerned())] = True
                    some = concerned[which]
                    which, first, counts = which[some], first[some], counts[some]
                if held:
                    waiting, which, first, counts = query_group.held(held, which, first, counts)
                    if not isinstance(key, bool):
                        self.synopsis_store.start_over(query_group.reader[waiting])
                if len(which):
                    found += self._from_query_group(key, query_group, which, first, counts)
            query_group.all_done()
        for column_group in self._column_groups.values():
            if home:
                which, first, counts = column_group.due(self.last, frontier)
                if len(which):
                    self._open_columns()
                    found += self._from_synopses(column_group, which, first, counts)
            column_group.all_done()
        self.counters.answers += sum(map(len, found))
        if frontier != self.last:
            self.last = frontier
            self._forget()
        return found

    def _instants(self, at: int) -> tuple[int, int]:
        """The last instant of all members up to one, and their first after it, whenever their clocks start."""
        groups: list[QueryGroup | ColumnGroup] = [*self._query_groups.values(), *self._column_groups.values()]
        found = [g.instants_around(at) for g in groups]
        return max((last for last, _ in found), default=BEGINNING), min((first for _, first in found), default=INF)

    def _from_query_group(
        self, key: object, query_group: QueryGroup, which: Int64s, first: Int64s, counts: Int64s
    ) -> list[Batch]:
        if isinstance(key, bool):
            return self._from_shards(query_group, which, first, counts)
        begun = self.stopwatch()
        found = self._from_synopses(query_group, which, first, counts)
        if self.deadlines:
            late = [n for i in which.tolist() if (n := query_group.names[i]) in self.deadlines]
            self._note(late, 0, (self.stopwatch() - begun) * len(late) / len(which))
        return found

    def _note(self, names: Sequence[str], depth: int, seconds: float) -> None:
        """Remember what answers of members with deadlines took."""
        if names:
            group = cost_group(self.joined[names[0]].member)
            self.spent[group] = self.spent.get(group, Spent()) + Spent(depth, len(names), seconds)

    def _from_synopses(
        self, members: QueryGroup | ColumnGroup, which: Int64s, first: Int64s, counts: Int64s
    ) -> list[Batch]:
        """The answers of queries with the same aggregates, all at once."""
        if counts.max() >= WIDE:
            return self._over_stretches(members, which, first, counts)
        due = _due(members, which, first, counts)
        return [Batch(members.names, counts, self._read(members, due, due.slide), which)]

    def _read(self, members: QueryGroup | ColumnGroup, due: DueAnswers, lives: Int64s) -> Elements:
        """Answers from synopses, each of which lives for so long."""
        calls = members.calls
        answers, read = self.synopsis_store.answers(calls, due)
        self.counters.reads += read
        ts = due.ts
        columns = {call.output: answers[call].build(slice(None)) for call in calls}
        return Elements(ts, ts + np.repeat(lives, due.count), np.ones(len(ts), np.int8), columns)

    def _over_stretches(
        self, members: QueryGroup | ColumnGroup, which: Int64s, first: Int64s, counts: Int64s
    ) -> list[Batch]:
        """The same with long stretches of equal answers as one."""
        found = []
        edges = self.synopsis_store.edges(members.reader[which])
        for i, begin, count, mine in zip(which.tolist(), first.tolist(), counts.tolist(), edges, strict=True):
            range_ = self.synopsis_store.range_of(int(members.reader[i]))
            breaks = breaks_of(mine, range_, int(members.slide[i]), int(members.offset[i] - members.lag[i]))
            found.append(pieces(begin, count, breaks))
        of, begins, many, lengths = (
            np.concatenate(parts)
            for parts in (
                [np.full(len(p.first), i) for i, p in zip(which.tolist(), found, strict=True)],
                *([getattr(p, name) for p in found] for name in ("first", "count", "length")),
            )
        )
        due = _due(members, of, begins, many)
        rows = self._read(members, due, due.slide * lengths)
        answered = np.array([p.count.sum() for p in found], np.int64)
        return [Batch(members.names, answered, rows, which, members.slide[which])]

    def _from_shards(self, members: QueryGroup, which: Int64s, first: Int64s, counts: Int64s) -> list[Batch]:
        """The answers of queries that read shards: those over the same values together, the others by themselves."""
        found = []
        for joint in self._joint(members, which, first, counts):
            begun = self.stopwatch()
            for name, rows in zip((n for n, _ in joint), self._answered(joint), strict=True):
                if len(rows):
                    window = self.joined[name].member.window
                    periods = np.array([window.slide]) if (rows.exp - rows.ts).max() > window.slide else None
                    found.append(Batch((name,), np.array([len(rows)]), rows, periods=periods))
            late = [n for n, _ in joint if n in self.deadlines]
            self._note(late, max(d.window.range for _, d in joint), self.stopwatch() - begun)
        return found

    def _concerned(self) -> Iterator[str]:
        """Who may have an answer of those with keys, which have none where there are no rows, and may be named twice.

        Whoever has deadlines is among them: that it found nothing is what its answer took.
        """
        yield from self.deadlines
        for key, shards in self.shards.items():
            wanting = self._wanting[key]
            yield from shards.summarised
            for condition in shards.conditions & wanting.keys():
                yield from wanting[condition]

    def _joint(
        self, members: QueryGroup, which: Int64s, first: Int64s, counts: Int64s
    ) -> Iterable[list[tuple[str, ShardsDue]]]:
        """What is due, with those together that one pass can answer: equal values, predicates and functions."""
        groups: dict[object, list[tuple[str, ShardsDue]]] = {}
        for i, begin, count in zip(which.tolist(), first.tolist(), counts.tolist(), strict=True):
            entry = self.joined[members.names[i]]
            due = ShardsDue.of(entry.member, begin, begin + count - 1, entry.epoch)
            _, values = shards_of(entry)
            if values and count == 1:
                since = self.shards[shards_of(entry)].first_block(entry.epoch)
                alike = (shards_of(entry), due.condition, due.calls, since, self.runs.get(entry.member.name))
            groups.setdefault(alike if values and count == 1 else i, []).append((entry.member.name, due))
        return groups.values()

    def _answered(self, joint: Sequence[tuple[str, ShardsDue]]) -> list[Elements]:
        names, dues = [n for n, _ in joint], [d for _, d in joint]
        shards = self.shards[shards_of(self.joined[names[0]])]
        try:
            together = shards.answer_together(dues, names) if len(dues) > 1 else None
        except RuntimeFailure:  # of one of them: found when each is answered by itself
            together = None
        if together is not None:
            self.counters.reads += together[1]
            return together[0]
        found = []
        for name, due in joint:
            deep = not shards.has_summaries(name)
            whole = due.last - due.first < WIDE or summarises(due.calls)
            answers = []
            for part in [due] if whole else due.pieces(shards.edges):
                rows, read = shards.answer(part, name)
                self.counters.reads += read
                answers.append(rows)
            if deep and shards.has_summaries(name):
                self._reach.pop(shards_of(self.joined[name]), None)
            found.append(concat(answers))
        return found

    def _forget(self) -> None:
        """Drop what no window will look at again."""
        if self.last == BEGINNING:
            return
        self.synopsis_store.forget(self.last)
        for key, entries in self._reading.items():
            if key not in self._reach:
                self._reach[key] = max(self._depth(e, self.shards[key]) for e in entries.values())
            self.shards[key].forget(self.last - self._reach[key], self._wanting[key].keys(), entries.keys())

    def _depth(self, entry: FamilyMember, shards: Shards) -> int:
        """How far back a query may look: what leaves a window is taken away at its next instant, so it stays till then.

        One that has summaries needs the partials of its open period alone.
        """
        window, late = entry.member.window, entry.member.name in self.deadlines
        length = window.slide if shards.has_summaries(entry.member.name) else window.range
        return length + window.slide * (2 if late else 1) + window.lag

    # -- state -------------------------------------------------------------------------------------------------------

    def absorb(self, partials: Mapping[str, Sequence[pa.Table]]) -> None:
        """Add up partials that `reduce` made; the answers come with `finish`."""
        self._used = True
        if "ledger" in partials:
            self._open_columns()
            self.synopsis_store.add_all(partials["ledger"])
        for key, shards in self.shards.items():
            for table in partials.get(slot(key), ()):
                shards.add(table)

    def held(self) -> State:
        """Entries and partials as runs; those that did not change are the same runs as before."""
        self.catch_up()
        found = {"ledger": self.synopsis_store.runs(), **{slot(key): tuple(s.runs()) for key, s in self.shards.items()}}
        return {name: runs for name, runs in found.items() if runs}

    def hold(self, state: State, frontier: int) -> None:
        """Take entries and partials back that `held` named, answered up to `frontier`."""
        if "ledger" in state:
            self._open_columns()
        self.synopsis_store.restore(state.get("ledger", ()))
        for key, shards in self.shards.items():
            for run in state.get(slot(key), ()):
                shards.take_back(run)
        self.last = frontier


def _due(members: QueryGroup | ColumnGroup, which: Int64s, first: Int64s, counts: Int64s) -> DueAnswers:
    return DueAnswers(
        members.reader[which], first, counts, members.slide[which], members.offset[which], members.lag[which]
    )


def _inside(cell: Int64s) -> tuple[Int64s | None, Int64s]:
    """The rows that are in a cell (None: all), and their cells."""
    if not len(cell) or cell.min() >= 0:
        return None, cell
    at = np.flatnonzero(cell >= 0)
    return at, cell[at]


@functools.cache
def slot(key: ShardsKey) -> str:
    """The name of shards: the same in every process."""
    return f"shards {hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}"


__all__ = ["Counters", "Family", "FamilyMember", "Kind", "Member", "UserCall", "slot"]
