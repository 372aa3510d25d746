"""A family: the aggregate queries over the same rows, advanced together.

    rows ── attributes, arguments, keys ── places ── per plot: cell ──┬─ ledger    no GROUP BY: entries, differences
            (one call of the scalar engine)  (index)                  └─ shards    GROUP BY, values: blocks, matrices

Queries join and leave between advances. The index is made anew at the next advance with rows; plots whose predicates
did not change are kept. A query answers from the rows that came after it joined, and from the history it was given.

The family is an operator (`advance`, `state`, `restore`) over plain arrays. In parts, any number of processes
`reduce` the rows they see to partials, and those who `absorb` them (all entries, or the shards of some keys) answer.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators import scalar
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import EXTREMES
from windrow.operators.aggregates.order import has_fixed_codes
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING, Elements
from windrow.operators.linear import Call as CallOperator
from windrow.operators.linear import Formula
from windrow.operators.protocol import State
from windrow.operators.state.run import Run
from windrow.sharing.cells import Index, Plot
from windrow.sharing.cohort import Batch, Cohort, parts
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import Edges
from windrow.sharing.ledger import Accounts, Ledger, Reader, Sliced
from windrow.sharing.shards import Due, Shards
from windrow.sharing.windows import PAIRED, Window

_Key = tuple[tuple[str, ...], tuple[str, ...]]
"""Which shards: the keys, and the columns whose values are kept."""


@dataclass(frozen=True)
class UserCall:
    """A user's function as a column: its name, the function, and its arguments as formulas."""

    column: str
    function: str
    arguments: tuple[Formula, ...]
    type: pa.DataType


@dataclass(frozen=True)
class Member:
    """A query of a family, in the family's own names.

    `steps`: predicates and user calls in the order in which the plan has them; only when one of them raises is that
    order followed. `keys` and the columns of `calls` are SQL over the family's rows, found in `formulas`.
    """

    name: str
    window: Window
    condition: Condition
    keys: tuple[str, ...]
    calls: tuple[Aggregation, ...]
    formulas: Mapping[str, Formula]
    steps: tuple[Formula | UserCall, ...] = ()
    above: Hashable = ()  # what stands above the aggregate: the same for queries that are finished together

    @property
    def user_calls(self) -> tuple[UserCall, ...]:
        return tuple(s for s in self.steps if isinstance(s, UserCall))


@dataclass
class Joined:
    """A member and since when: its clock, its epoch, and its account or its shards."""

    member: Member
    start: int
    epoch: int
    account: int | None = None
    shards: _Key | None = None
    uid: str = ""  # tells it from others that had its name


@dataclass
class Counters:
    """What was done so far: rows seen, rows put into cells, partials formed, partials or entries read, answers."""

    rows: int = 0
    lifted: int = 0
    partials: int = 0
    reads: int = 0
    answers: int = 0


class Family:
    """Queries over the rows of one stream (joined with tables or not)."""

    def __init__(self, functions: Mapping[str, Callable[..., object]] | None = None, technique: str = PAIRED) -> None:
        self.functions, self.technique = functions or {}, technique
        self.joined: dict[str, Joined] = {}
        self.failed: dict[str, RuntimeFailure] = {}
        self.ledger = Ledger()
        self.shards: dict[_Key, Shards] = {}
        self.index = Index()
        self.epoch = 0
        self.counters = Counters()
        self.last = BEGINNING
        self._dirty, self._used = True, False  # the index is stale; rows have come in this epoch
        self._accounts: dict[Condition, int] = {}  # of this epoch
        self._known: dict[Condition, Condition] = {}
        self._next_account = 0
        self._rows_per_slice = 0.0
        self._feeds: list[_Feed] = []
        self._types: dict[str, pa.DataType] = {}
        self.unstarted: set[str] = set()  # whose clocks have not begun
        self._fresh: set[str] = set()  # who has not been looked at since joining
        self._cohorts: list[tuple[Cohort, list[Joined]]] | None = None
        self._computes: tuple[dict[str, Formula], dict[str, UserCall]] | None = None
        self._reach: tuple[dict[int, int], dict[_Key, int], dict[_Key, set[Condition]]] | None = None

    def __len__(self) -> int:
        return len(self.joined)

    # -- joining and leaving -----------------------------------------------------------------------------------------

    def join(self, member: Member, start: int = BEGINNING) -> None:
        """Serve one more query from now on; its clock starts at `start` (or with the first row)."""
        if member.name in self.joined:
            raise ValueError(f"{member.name} has joined already")
        if self._used:
            self.epoch, self._used, self._accounts = self.epoch + 1, False, {}
        member = replace(member, condition=self._known.setdefault(member.condition, member.condition))
        entry = Joined(member, start, self.epoch)
        if shards_of(member) is None:
            if member.condition not in self._accounts:
                self._accounts[member.condition] = self._next_account
                self._next_account += 1
            entry.account = self._accounts[member.condition]
        self.seat(entry)

    def seat(self, entry: Joined) -> None:
        """Serve a query whose epoch and account have been settled, here or elsewhere."""
        entry.shards = shards_of(entry.member)
        self._types |= {name: f.type for name, f in entry.member.formulas.items()}
        self._provide(entry)
        self.joined[entry.member.name] = entry
        self._fresh.add(entry.member.name)
        if entry.start == BEGINNING:
            self.unstarted.add(entry.member.name)
        self._dirty, self._reach, self._cohorts, self._computes = True, None, None, None

    def begin(self, name: str, ts: int) -> None:
        """A query's clock starts."""
        self.joined[name].start = ts
        self.unstarted.discard(name)
        self._cohorts = None

    def done(self, name: str) -> None:
        """A query has been answered up to the last frontier."""
        self._fresh.discard(name)
        self._cohorts = None

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

    def _provide(self, entry: Joined) -> None:
        """Keep what the query's aggregates need."""
        calls = entry.member.calls
        if entry.shards is None:
            self.ledger.provide(calls, self._types)
            return
        if entry.shards not in self.shards:
            self.shards[entry.shards] = Shards(entry.shards[0], self._types, entry.shards[1])
        self.shards[entry.shards].provide(calls)

    def leave(self, name: str) -> None:
        """Serve a query no longer."""
        self.joined.pop(name, None)
        self.unstarted.discard(name)
        self._fresh.discard(name)
        self._dirty, self._reach, self._cohorts, self._computes = True, None, None, None

    # -- advancing ---------------------------------------------------------------------------------------------------

    def advance(self, ts: Int64s, columns: Mapping[str, pa.Array], frontier: int) -> dict[str, Elements]:
        """Take in the rows up to `frontier`, sorted by time; the aggregate's elements of every query that is due."""
        self.take(ts, columns)
        return parts(self.finish(frontier))

    def take(self, ts: Int64s, columns: Mapping[str, pa.Array]) -> None:
        """Take in rows sorted by time; clocks that have not begun start with the first."""
        if len(ts):
            for name in list(self.unstarted):
                self.begin(name, int(ts[0]))
            self.settle(ts, columns)

    def settle(self, ts: Int64s, columns: Mapping[str, pa.Array], only: frozenset[str] | None = None) -> None:
        """Partial aggregation: rows sorted by time into partials and entries, which end at edges of windows.

        `only`: history, which these queries alone may read.
        """
        entries = [e for n, e in self.joined.items() if only is None or n in only]
        if not len(ts) or not entries:
            return
        values = self._evaluate(entries, columns, len(ts))
        entries = [e for e in entries if e.member.name in self.joined]
        index = self.index if only is None else Index(dict.fromkeys(e.member.condition for e in entries))
        self.counters.rows += len(ts)
        if not entries:
            return
        if only is None and self._dirty:
            self._reindex(entries, ts, int(ts[-1]))
            index = self.index
        if only is None:
            self._used = True
        self._settle(index, entries, ts, values, int(ts[-1]), only)

    def finish(self, frontier: int, home: bool = True) -> list[Batch]:
        """Final aggregation: the answers of all that is due by `frontier`; without `home`, of queries with keys only.

        A clock that has not begun will begin beyond the frontier, so afterwards everybody is done up to here.
        """
        found = self._due(frontier, home)
        if self._fresh:
            self._fresh, self._cohorts = set(), None
        self.last = frontier
        self._forget()
        return found

    def _reindex(self, entries: Sequence[Joined], ts: Int64s, frontier: int) -> None:
        slices = Edges(((0, e.member.window) for e in entries), 1, self.technique).count(int(ts[0]) - 1, frontier)
        self._rows_per_slice = max(self._rows_per_slice, len(ts) / slices)
        self.prepare(0.0)

    def _layout(self, entries: Sequence[Joined]) -> None:
        """Which accounts and shards each plot feeds, until queries join or leave."""
        self._feeds = self._laid_out(self.index, entries)

    def _laid_out(self, index: Index, entries: Sequence[Joined]) -> list[_Feed]:
        fed: list[list[Joined]] = [[] for _ in index.plots]
        for entry in entries:
            fed[index.home[entry.member.condition][0]].append(entry)
        old = {(f.plot, f.who): f for f in self._feeds}
        return [
            old.get((p, tuple(map(id, mine)))) or _Feed(index, p, mine, self.technique)
            for p, mine in zip(index.plots, fed, strict=True)
        ]

    def _settle(
        self, index: Index, entries: Sequence[Joined], ts: Int64s, values: Mapping[str, pa.Array], frontier: int,
        only: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        feeds = self._feeds if only is None else self._laid_out(index, entries)
        places = index.places(values)
        for k, (plot, feed) in enumerate(zip(index.plots, feeds, strict=True)):
            cell = index.cells(k, places, len(ts))
            if feed.accounts is not None:
                own = feed.edges.own(ts, frontier)
                rows = _sliced(ts, own[1], frontier)
                self.counters.lifted += len(ts)
                self.counters.partials += self.ledger.settle(plot, feed.accounts, own, cell, rows, values, feed.needed)
            for key, (edges, wanted) in feed.shards.items():
                rows = _sliced(ts, edges.own(ts, frontier)[1], frontier)
                self.counters.lifted += len(ts)
                self.counters.partials += self.shards[key].settle(plot, self.epoch, cell, rows, values, wanted, only)

    # -- in parts, and state -----------------------------------------------------------------------------------------

    def reduce(
        self, ts: Int64s, columns: Mapping[str, pa.Array], only: frozenset[str] | None = None
    ) -> dict[str, tuple[pa.Table, ...]]:
        """The partials of some rows in time order, to be added up elsewhere: nothing is kept here.

        `ledger`: entries, few; `shards ...`: partials with their keys in columns `key|...`. Both end at edges of
        windows, whatever the frontier, so rows beyond it need not wait. `only`: history, which these queries alone may
        read. Queries whose expressions raise are named in `failed`, and have nothing.
        """
        part = copy(self)
        part.ledger, part.shards, part.counters = Ledger(), {}, self.counters
        part.joined, part.failed, part._reach, part._cohorts = dict(self.joined), self.failed, None, None
        part._fresh, part.unstarted = set(), set()
        entries = [e for n, e in self.joined.items() if only is None or n in only]
        for entry in entries:
            part._provide(entry)
        if len(ts) and entries:
            if only is None and self._dirty:
                self._reindex(entries, ts, int(ts[-1]))
                part.index, part._feeds, part._dirty = self.index, self._feeds, False
            values = part._evaluate(entries, columns, len(ts))
            entries = [e for e in entries if e.member.name in part.joined]
            index = Index(dict.fromkeys(e.member.condition for e in entries)) if only is not None else part.index
            if only is None and part._dirty:
                part.prepare(0.0)
                index = part.index
            self.counters.rows += len(ts)
            part._settle(index, entries, ts, values, int(ts[-1]), only)
        return part.partials()

    def prepare(self, rows_per_slice: float) -> None:
        """Make the index now, for rows that come at this rate."""
        entries = list(self.joined.values())
        self._rows_per_slice = max(self._rows_per_slice, rows_per_slice)
        wanted = dict.fromkeys(e.member.condition for e in entries)
        new = [c for c in wanted if c not in self.index.home]
        gone = len(self.index.home) + len(new) - len(wanted)
        if 8 * (len(new) + gone) > len(self.index.home):  # much has changed: plan anew
            self.index = Index(wanted, self._rows_per_slice, old=self.index)
        elif new:
            self.index = self.index.extended(new)
        self._dirty = False
        self._layout(entries)

    def partials(self) -> dict[str, tuple[pa.Table, ...]]:
        """All entries and partials as tables, under the names that `absorb` knows."""
        found = {"ledger": (self.ledger.run().table,)}
        return found | {slot(key): tuple(r.table for r in shards.runs()) for key, shards in self.shards.items()}

    def absorb(self, partials: Mapping[str, Sequence[pa.Table]]) -> None:
        """Add up partials that `reduce` made; the answers come with `finish`."""
        self._used = True
        self.ledger.add_all(partials.get("ledger", ()))
        for key, shards in self.shards.items():
            for table in partials.get(slot(key), ()):
                shards.add(table)

    def held(self) -> State:
        """Entries and partials as runs; those that did not change are the same runs as before."""
        found = {slot(key): tuple(shards.runs()) for key, shards in self.shards.items()}
        return {"ledger": (self.ledger.run(),), **{n: runs for n, runs in found.items() if runs}}

    def hold(self, state: State, frontier: int) -> None:
        """Take entries and partials back that `held` named, answered up to `frontier`."""
        self.ledger.add_all([run.table for run in state.get("ledger", ())])
        for key, shards in self.shards.items():
            for run in state.get(slot(key), ()):
                shards.take_back(run)
        self._dirty, self._reach, self.last = True, None, frontier

    def state(self) -> State:
        """Partials, and who has joined since when."""
        about = {n: (e.start, e.epoch, e.account, n in self._fresh) for n, e in self.joined.items()}
        kept = pickle.dumps((about, self.epoch, self._used, self._next_account, self._accounts, self._rows_per_slice))
        clock = Run(pa.table({"last": [self.last]}).replace_schema_metadata({b"family": kept}))
        return {"clock": (clock,), **self.held()}

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state; the same queries have joined."""
        clock = state["clock"][0].table
        about, self.epoch, self._used, self._next_account, self._accounts, self._rows_per_slice = pickle.loads(
            clock.schema.metadata[b"family"]
        )
        for name, (start, epoch, account, fresh) in about.items():
            entry = self.joined[name]
            entry.epoch, entry.account = epoch, account
            if start != BEGINNING:
                self.begin(name, start)
            if not fresh:
                self.done(name)
        self.hold(state, frontier)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _due(self, upto: int, home: bool) -> list[Batch]:
        found: list[Batch] = []
        if self._cohorts is None:
            self._cohorts = self._formed(e for e in self.joined.values() if e.start != BEGINNING)
        reader = self.ledger.reader()
        for cohort, entries in self._cohorts:
            if home or entries[0].member.keys:
                first, counts = cohort.due(self.last, upto)
                if counts.any():
                    found += self._answers(cohort, entries, first, counts, reader)
        self.counters.answers += sum(map(len, found))
        return found

    def _formed(self, members: Iterable[Joined]) -> list[tuple[Cohort, list[Joined]]]:
        """Cohorts of queries; those that read shards stand alone."""
        alike: dict[object, list[Joined]] = {}
        for e in members:
            alone = e.account is None
            alike.setdefault(e.member.name if alone else (e.member.calls, e.member.above), []).append(e)
        found = []
        for entries in alike.values():
            names = [e.member.name for e in entries]
            cohort = Cohort(names, [e.member.window for e in entries], [e.start for e in entries])
            cohort.fresh = np.array([n in self._fresh for n in names])
            cohort.account = np.array([-1 if e.account is None else e.account for e in entries], np.int64)
            found.append((cohort, entries))
        return found

    def _answers(
        self, cohort: Cohort, entries: Sequence[Joined], first: Int64s, counts: Int64s, reader: Reader
    ) -> list[Batch]:
        member = entries[0].member
        if entries[0].shards is None:
            return [self._from_ledger(cohort, member.calls, first, counts, reader)]
        due = Due(
            member.condition, member.keys, member.calls, member.window, int(first[0]),
            int(first[0] + counts[0] - 1), entries[0].epoch,
        )  # fmt: skip
        rows, read = self.shards[entries[0].shards].answer(due, member.name)
        self.counters.reads += read
        return [Batch(cohort.names, np.array([len(rows)]), rows)] if len(rows) else []

    def _from_ledger(
        self, cohort: Cohort, calls: Sequence[Aggregation], first: Int64s, counts: Int64s, reader: Reader
    ) -> Batch:
        which = np.repeat(np.arange(len(counts)), counts)
        begins = np.cumsum(counts) - counts
        slide = cohort.slide[which]
        ts = (first[which] + np.arange(len(which)) - begins[which]) * slide + cohort.offset[which]
        end = ts - cohort.lag[which]
        low, high = reader.between(cohort.account[which], end - cohort.range[which], end)
        self.counters.reads += int((high - low).sum())
        answers = reader.answers(calls, low, high)
        columns = {call.output: answers[call].build(slice(None)) for call in calls}
        return Batch(cohort.names, counts, Elements(ts, ts + slide, np.ones(len(ts), np.int8), columns))

    def _reaches(self) -> tuple[dict[int, int], dict[_Key, int], dict[_Key, set[Condition]]]:
        """The longest window of each account and of each shards, and the predicates that read these."""
        if self._reach is None:
            reach: dict[int, int] = {}
            longest: dict[_Key, int] = {}
            alive: dict[_Key, set[Condition]] = {}
            for e in self.joined.values():
                window = e.member.window
                if e.account is not None:
                    reach[e.account] = max(reach.get(e.account, 0), window.range + window.lag)
                elif e.shards is not None:
                    # what leaves a window is taken away at its next instant: it must be there until then
                    whole = window.range + window.slide + window.lag
                    longest[e.shards] = max(longest.get(e.shards, 0), whole)
                    alive.setdefault(e.shards, set()).add(e.member.condition)
            self._reach = (reach, longest, alive)
        return self._reach

    def _forget(self) -> None:
        """Drop what no window will look at again."""
        if self.last == BEGINNING:
            return
        reach, longest, alive = self._reaches()
        self.ledger.forget({a: self.last - r for a, r in reach.items()})
        names = frozenset(self.joined)
        for key, shards in list(self.shards.items()):
            if key in longest:
                shards.forget(self.last - longest[key], frozenset(alive[key]), names)
            else:
                del self.shards[key]

    # -- columns -----------------------------------------------------------------------------------------------------

    def _evaluate(self, entries: Sequence[Joined], columns: Mapping[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        """All attributes, arguments and keys; queries whose expressions raise are taken out."""
        formulas, calls = self._wanted(entries)
        try:
            return _computed(formulas, self._called(calls, columns, rows), rows)
        except RuntimeFailure:
            return self._evaluate_apart(entries, columns, rows)

    def _wanted(self, entries: Sequence[Joined]) -> tuple[dict[str, Formula], dict[str, UserCall]]:
        """All that must be computed for some queries; for all of them, found once."""
        if self._computes is None or len(entries) != len(self.joined):
            formulas = {sql: f for e in entries for sql, f in e.member.formulas.items()}
            calls = {c.column: c for e in entries for c in e.member.user_calls}
            if len(entries) != len(self.joined):
                return formulas, calls
            self._computes = (formulas, calls)
        return self._computes

    def _called(self, calls: Mapping[str, UserCall], columns: Mapping[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        found = dict(columns)
        for call in calls.values():
            found[call.column] = self._call(call, columns, rows)
        return found

    def _call(self, call: UserCall, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        given = _computed({f.sql: f for f in call.arguments}, columns, rows)
        named = {f"a{i}": given[f.sql] for i, f in enumerate(call.arguments)}
        operator = CallOperator(call.column, call.function, self.functions[call.function], list(named), call.type)
        batch = Elements.positive(np.zeros(rows, np.int64), 1, named)
        return operator.advance([batch], 0).columns[call.column]

    def _evaluate_apart(
        self, entries: Sequence[Joined], columns: Mapping[str, pa.Array], rows: int
    ) -> dict[str, pa.Array]:
        """Something raised: follow each plan's own order, take out those that raise there too, and use NULL for the
        rest.

        A row on which an expression raises fails an earlier predicate of every query that is left, so NULL there does
        no harm.
        """
        results: dict[str, pa.Array] = dict(columns)
        for entry in entries:
            try:
                called = self._alone(entry.member, columns, rows)
            except RuntimeFailure as error:
                self.failed[entry.member.name] = error
                self.leave(entry.member.name)
            else:
                for name, (at, values) in called.items():
                    results[name] = _filled(results.get(name), at, values, rows)
        left = [e for e in entries if e.member.name in self.joined]
        formulas = {sql: f for e in left for sql, f in e.member.formulas.items()}
        return _computed(formulas, results, rows, attempt=True)

    def _alone(self, member: Member, columns: Mapping[str, pa.Array], rows: int) -> dict[str, tuple[Int64s, pa.Array]]:
        at = np.arange(rows)
        mine = dict(columns)
        called: dict[str, tuple[Int64s, pa.Array]] = {}
        for step in member.steps:
            if isinstance(step, UserCall):
                mine[step.column] = self._call(step, mine, len(at))
                called[step.column] = (at, mine[step.column])
                continue
            keep = np.flatnonzero(scalar.holds({c: mine[c] for c in step.reads}, len(at), [step.sql]))
            if len(keep) < len(at):
                picks = pa.array(keep)
                at, mine = at[keep], {c: a.take(picks) for c, a in mine.items()}
        wanted = {*member.keys, *(c.column for c in member.calls if c.column is not None)}
        _computed({s: f for s, f in member.formulas.items() if s in wanted}, mine, len(at))
        return called


def slot(key: _Key) -> str:
    """The name of shards: the same in every process."""
    return f"shards {hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}"


def shards_of(member: Member) -> _Key | None:
    """Which shards a query reads; None when entries of a ledger answer it."""
    types = {name: f.type for name, f in member.formulas.items()}
    if not member.keys and Ledger.takes(member.calls, types):
        return None
    return (member.keys, _valued(member.calls, types))


class _Feed:
    """What one plot feeds: accounts of the ledger, and shards."""

    def __init__(self, index: Index, plot: Plot, mine: Sequence[Joined], technique: str) -> None:
        # holding on to the entries keeps their identities from being given to others
        self.plot, self.mine, self.who = plot, tuple(mine), tuple(map(id, mine))
        numbers: dict[int, int] = {}  # account -> predicate of the plot
        for e in mine:
            if e.account is not None:
                numbers[e.account] = index.home[e.member.condition][1]
        order = sorted(numbers, key=lambda a: (numbers[a], a))
        position = {a: i for i, a in enumerate(order)}
        self.accounts = Accounts(plot, order, [numbers[a] for a in order]) if order else None
        windows = ((position[e.account], e.member.window) for e in mine if e.account is not None)
        self.edges = Edges(windows, len(order), technique)
        self.needed = frozenset(n for e in mine if e.account is not None for n in _needs(e.member.calls))
        self.shards: dict[_Key, tuple[Edges, Bools]] = {}
        grouped: dict[_Key, list[Joined]] = {}
        for e in mine:
            if e.shards is not None:
                grouped.setdefault(e.shards, []).append(e)
        for key, users in grouped.items():
            rows = sorted({index.home[e.member.condition][1] for e in users})
            edges = Edges(((0, e.member.window) for e in users), 1, technique)
            self.shards[key] = (edges, np.logical_or.reduce(plot.membership[rows], axis=0))


def _needs(calls: Sequence[Aggregation]) -> set[tuple[str, str]]:
    found = set()
    for call in calls:
        if call.column is not None:
            kind = {"min": "least", "max": "greatest"}.get(call.kind, "sums")
            found.add((call.column, kind))
    return found


def _valued(calls: Sequence[Aggregation], types: Mapping[str, pa.DataType]) -> tuple[str, ...]:
    """The columns whose values must be kept; none when lanes and codes say everything."""
    plain = all(
        c.column is None
        or (c.kind in EXTREMES and has_fixed_codes(types[c.column]))
        or (c.kind not in EXTREMES and Ledger.takes([c], types))
        for c in calls
    )
    return () if plain else tuple(dict.fromkeys(c.column for c in calls if c.column is not None))


def _sliced(ts: Int64s, edges: Int64s, frontier: int) -> Sliced:
    """Rows cut at the edges up to `frontier`; the rest is in the slice that is still open."""
    every = np.unique(edges)
    closed = int(np.searchsorted(every, frontier, "right"))
    every = every[: closed + 1]
    first = np.concatenate(([0], np.searchsorted(ts, every, "right")))
    return Sliced(first.astype(np.int64), every)


def _computed(
    formulas: Mapping[str, Formula], columns: Mapping[str, pa.Array], rows: int, attempt: bool = False
) -> dict[str, pa.Array]:
    """Every formula by its SQL; `attempt`: NULL where it raises."""
    found = {sql: columns[f.copies] for sql, f in formulas.items() if f.copies is not None}
    computed = [(sql, f) for sql, f in formulas.items() if f.copies is None]
    if computed:
        reads = {c: columns[c] for _, f in computed for c in f.reads}
        asked = [(f"TRY({f.sql})" if attempt else f.sql, f.type) for _, f in computed]
        found |= zip((sql for sql, _ in computed), scalar.evaluate(reads, rows, asked), strict=True)
    return found


def _filled(known: pa.Array | None, at: Int64s, values: pa.Array, rows: int) -> pa.Array:
    """Values at some rows, over what is known elsewhere."""
    picks = np.full(rows, -1, np.int64) if known is None else np.arange(rows)
    base = 0 if known is None else rows
    picks[at] = base + np.arange(len(at))
    source = values if known is None else pa.concat_arrays([known, values])
    return source.take(pa.array(picks, mask=picks < 0))
