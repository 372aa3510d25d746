"""The operator of a shared join: rows of both streams in, sums of every window that is due out.

    rows of side 0 ─┐
                    ├─ pairs, once ──► per reader group: interval and birth ──► synopsis ──► sums of due windows
    rows of side 1 ─┘   (by key)       (predicates, difference of lengths, groups)

Sums are those of the rows seen here: tasks that have other keys have others, and `combine` adds them up.

Cost of an advance: new rows, their pairs, then per reader group the pairs and the cheapest synopsis over them.
State: the rows of both sides (`side.py`). The synopses are made anew from them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import gcd

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.call import EXTREMES, MOMENTS
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.elements import BEGINNING
from windrow.operators.protocol import State
from windrow.operators.state.run import Run, ints
from windrow.sharing.joins.kernels import PairedRows, pairs
from windrow.sharing.joins.members import JoinMember, JoinSource, Pair, name_of
from windrow.sharing.joins.readers import JoinReader, ReaderGroup, ResultGrouping
from windrow.sharing.joins.side import Predicate, SideRows, columns_of, raises, unused
from windrow.sharing.joins.spending import JoinSpending
from windrow.sharing.joins.synopsis import Read, Requests, Results
from windrow.sharing.query_group import HeldInstants

MOST_PAIRS = 1 << 17
"""Pairs that are formed at a time, so that they are still in the cache when the last reader group reads them."""
_LOW32 = np.int64(0xFFFFFFFF)

Int32s = NDArray[np.int32]


class SharedJoin:
    """Queries over one join of two streams."""

    def __init__(self, source: JoinSource) -> None:
        self.source = source
        self.readers: dict[str, JoinReader] = {}
        self.failed: dict[str, RuntimeFailure] = {}
        self.reader_groups: dict[Hashable, ReaderGroup] = {}
        self._epochs: dict[Hashable, dict[int, ReaderGroup]] = {}  # those that are the same but for their epochs
        self.last = BEGINNING
        self.pairs = 0  # formed so far
        self.spending = JoinSpending()
        self._grids = False  # some queries can be read at multiples of a grid
        self._reaches: Pair | None = None  # while nobody comes or leaves
        self._keys = Groups([f.type for f, _ in source.keys])
        self._heads = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
        self.sides = [SideRows(s, [k[s] for k in source.keys]) for s in (0, 1)]
        self._waiting: list[list[pa.Table]] = [[], []]  # rows beyond the frontier

    # -- members -----------------------------------------------------------------------------------------------------

    def join(self, member: JoinMember, epoch: int = 0) -> None:
        """Serve one more query, from the rows that come in this epoch or later."""
        grouping = ResultGrouping(member.keys, member.counted)
        _need(member, self.sides)
        self.readers[member.name] = reader = JoinReader(member, epoch)
        self._reaches = None
        key = (member.filters, member.shifts, grouping)
        reader_group = self.reader_groups.setdefault((*key, epoch), ReaderGroup(*key, epoch))
        reader_group.members.append(reader)
        epochs = self._epochs.setdefault(key, {})
        epochs[epoch] = reader_group
        oldest = epochs[min(epochs)]
        if oldest is not reader_group:
            oldest.synopsis.cut(self.last)
            oldest.coming.append(reader)

    def leave(self, name: str) -> None:
        """Serve a query no longer."""
        gone, self._reaches = self.readers.pop(name, None), None
        for reader_group in self.reader_groups.values():
            reader_group.members = [s for s in reader_group.members if s is not gone]
            reader_group.coming = [s for s in reader_group.coming if s is not gone]
        self._close()
        needed = [SideRows(side, ()) for side in (0, 1)]
        for reader in self.readers.values():
            _need(reader.member, needed)
        for reader_group in self.reader_groups.values():
            reader_group.lay_out(self.sides)  # while what is not needed any more is still there
        for rows, mine in zip(self.sides, needed, strict=True):
            rows.release(mine)

    def _close(self) -> None:
        """Forget reader groups that nobody reads or will read."""
        self.reader_groups = {k: a for k, a in self.reader_groups.items() if a.members or a.coming}
        found = (
            (key, {e: a for e, a in epochs.items() if a.members or a.coming}) for key, epochs in self._epochs.items()
        )
        self._epochs = {key: epochs for key, epochs in found if epochs}

    def begin(self, name: str, ts: int) -> None:
        """A query's clock starts."""
        self.readers[name].start = ts

    @property
    def reaches(self) -> Pair:
        """The longest window of each side."""
        if self._reaches is None:
            every = [s.member.ranges for s in self.readers.values()] or [(0, 0)]
            self._reaches = max(r[0] for r in every), max(r[1] for r in every)
        return self._reaches

    # -- advancing ---------------------------------------------------------------------------------------------------

    def take(self, side: int, ts: Int64s, columns: Mapping[str, pa.Array], epoch: int = 0) -> None:
        """Take in rows of a side, in any order; they are looked at when the frontier has reached them."""
        if len(ts):
            self._waiting[side].append(pa.table({"_ts": ts, "_epoch": np.full(len(ts), epoch), **columns}))

    def cut(self, grids: Mapping[str, int]) -> None:
        """Cut intervals so that these queries can be read at multiples of their grids, too."""
        for reader_group in self.reader_groups.values() if grids or self._grids else ():
            names = (s.member.name for s in (*reader_group.members, *reader_group.coming))
            reader_group.grid = gcd(*(grids.get(name, 0) for name in names))
        self._grids = bool(grids)

    def advance(
        self, frontier: int, names: Sequence[str] | None = None, held: Mapping[str, HeldInstants] | None = None
    ) -> dict[ResultGrouping, list[pa.Table]]:
        """The sums of all windows that are due by `frontier`, one table or more per grouping.

        `names`: queries by the numbers that tables have; without them, the order in which queries are served. `held`:
        at which instants those are read that may be held back.
        """
        begin = [rows.base + len(rows) for rows in self.sides]
        for side, rows in enumerate(self.sides):
            new = self._arrived(side, frontier)
            if new is not None:
                self._find_failures(side, columns_of(new), new.num_rows)
                rows.append(new, self._keys)
                rows.keep(new)
        names = names or list(self.readers)
        numbers = {name: i for i, name in enumerate(names)}
        times = [rows.ts for rows in self.sides]
        requests = [a.requests(self.last, frontier, numbers, times, held or {}) for a in self.reader_groups.values()]
        found: dict[ResultGrouping, list[pa.Table]] = {}
        for reader_group, read, asked in self._swept(begin, requests, frontier, names):
            if reader_group.grouping.counted and not reader_group.grouping.keys and len(asked):
                found.setdefault(reader_group.grouping, []).append(_nothing(reader_group.grouping, asked))
            if len(read.request):
                found.setdefault(reader_group.grouping, []).append(self._table(reader_group, read, asked))
        for reader in self.readers.values():
            reader.fresh &= reader.start == BEGINNING
        self.last = frontier
        self._forget(frontier)
        return found

    def _arrived(self, side: int, frontier: int) -> pa.Table | None:
        """The rows that the frontier has reached, in the order of time; the others go on waiting."""
        if not self._waiting[side]:
            return None
        table = pa.concat_tables(self._waiting[side], promote_options="default").combine_chunks()
        ts = ints(table, "_ts")
        due = ts <= frontier
        self._waiting[side] = [] if due.all() else [table.filter(pa.array(~due))]
        found = table if due.all() else table.filter(pa.array(due))
        ts = ts[due]
        if (np.diff(ts) < 0).any():
            found = found.take(pa.array(np.argsort(ts, kind="stable")))
        return found if found.num_rows else None

    def _find_failures(self, side: int, columns: Mapping[str, pa.Array], rows: int) -> None:
        """Take out queries whose predicates raise on the new rows."""
        if not self.sides[side].failing(columns, rows):
            return
        for name, reader in list(self.readers.items()):
            error = raises(reader.member.filters[side], columns, rows)
            if error is not None:
                self.failed[name] = error
                self.leave(name)

    def _swept(
        self, begin: Sequence[int], requests: Sequence[Requests], frontier: int, names: Sequence[str] = ()
    ) -> Iterator[tuple[ReaderGroup, Read, Requests]]:
        """Form the pairs of rows from `begin` on, some at a time, and sweep reader groups with them: those that want a
        row of these, or of which windows are due. A pair has one of these rows, so it is nobody else's."""
        new = [_News(rows, first - rows.base) for rows, first in zip(self.sides, begin, strict=True)]
        every = zip(self.reader_groups.values(), requests, strict=True)
        concerned = [(a, asked) for a, asked in every if len(asked) or any(map(_News.concern, new, a.predicates))]
        reader_groups, requests = [a for a, _ in concerned], [asked for _, asked in concerned]
        times = [rows.ts for rows in self.sides]
        laid: dict[tuple[Hashable, ...], list[tuple[Int64s, Int64s, Bools]]] = {}
        axes, parts = [], []
        for reader_group, asked in zip(reader_groups, requests, strict=True):
            reader_group.lay_out(self.sides)
            key = (*reader_group.layout.lanes, None, *reader_group.layout.codes)
            if key not in laid:
                laid[key] = [reader_group.layout.of_rows(rows) for rows in self.sides]
            since = min(int(asked.low.min(initial=frontier)), frontier - reader_group.longest)
            axes.append(reader_group.axis(since, frontier, times))
            parts.append(self._parts(reader_group, axes[-1], laid[key]))
        done = [0] * len(reader_groups)
        for found, before in self._pairs(begin):
            for i, reader_group in enumerate(reader_groups):
                asked = requests[i]
                upto = len(asked) if before is None else int(np.searchsorted(asked.ts, before))
                now = asked[done[i] : upto]
                done[i] = upto
                results = Results(found, parts[i], self._segments(reader_group.grouping, found))
                begun = self.spending.stopwatch()
                read = reader_group.synopsis.sweep(axes[i], results, now)
                seconds = (self.spending.stopwatch() - begun) * reader_group.synopsis.read_share
                self.spending.reading(names, now.query, now.ts, seconds)
                reader_group.layout.carry(reader_group.synopsis.intervals.lanes)
                yield reader_group, read, now

    def _parts(
        self, reader_group: ReaderGroup, axis: Int64s, laid: Sequence[tuple[Int64s, Int64s, Bools]]
    ) -> tuple[PairedRows, PairedRows]:
        """The rows of both sides as a reader group sees them."""
        found = []
        for side, rows in enumerate(self.sides):
            wanted = rows.predicates[reader_group.predicates[side]]
            if reader_group.epoch and len(rows) and rows.epoch[0] < reader_group.epoch:
                wanted = wanted & (rows.epoch >= reader_group.epoch)
            place = _places(rows.ts, axis - reader_group.shifts[side])
            found.append(PairedRows(rows.ts, place, wanted, *laid[side]))
        return found[0], found[1]

    def _pairs(self, begin: Sequence[int]) -> Iterator[tuple[Int32s, int | None]]:
        """Pairs in the order of their birth, and the time before which all are known; None: all are."""
        a, b = self.sides
        self._heads = [_lengthened(h, self._keys.capacity) for h in self._heads]
        new = [np.arange(first - rows.base, len(rows)) for first, rows in zip(begin, self.sides, strict=True)]
        rows, side = np.concatenate(new), np.repeat([0, 1], [len(n) for n in new])
        when = np.concatenate((a.ts[new[0]], b.ts[new[1]]))
        order = np.argsort(when, kind="stable")
        events, side, when = rows[order], side[order], when[order]
        at, room, reach = 0, min(MOST_PAIRS, 1024 + 64 * len(events)), self.reaches
        while True:
            out = np.empty((room, 2), np.int32)
            end, n = pairs(
                events, side, at, a.ts, b.ts, a.key, b.key, *self._heads, a.prev, b.prev, a.base, b.base, *reach, out
            )
            if end < len(events) and n == 0:
                room *= 2  # one row has more pairs than fit
                continue
            self.pairs += n
            at, room = end, max(room, min(MOST_PAIRS, 2 * room))
            yield out[:n], int(when[at]) if at < len(events) else None
            if at == len(events):
                return

    def _segments(self, grouping: ResultGrouping, found: Int32s) -> Int64s | None:
        """The groups of pairs: the slots of both sides in one number."""
        if not grouping:
            return None
        segment = np.zeros(len(found), np.int64)
        for side in (0, 1):
            if mine := grouping.of_side(side):
                slots = self.sides[side].grouped[tuple(f.sql for _, f in mine)].slots[found[:, side]]
                segment |= slots if side else slots << 32
        return segment

    def _table(self, reader_group: ReaderGroup, read: Read, asked: Requests) -> pa.Table:
        """Sums for `combine`: whose, when, of which group; `key|...` and `value|...` are its columns."""
        rows = np.ascontiguousarray(read.sums.lanes[:, 0])
        columns: dict[str, pa.Array | np.ndarray] = {
            "query": asked.query[read.request], "ts": asked.ts[read.request], "until": asked.until[read.request],
            "rows": rows,
        }  # fmt: skip
        for side, slots in ((0, read.segment >> 32), (1, read.segment & _LOW32)):
            mine = reader_group.grouping.of_side(side)
            if mine:
                groups = self.sides[side].grouped[tuple(f.sql for _, f in mine)].groups
                for sided, array in zip(mine, groups.keys(slots), strict=True):
                    for mark, wanted in (("key", reader_group.grouping.keys), ("value", reader_group.grouping.counted)):
                        if sided in wanted:
                            columns[f"{mark}|{name_of(sided)}"] = array
        return pa.table(columns | reader_group.layout.columns(read.sums))

    # -- state -------------------------------------------------------------------------------------------------------

    def _settle(self, frontier: int) -> None:
        """Move queries to older reader groups once no row in their windows is from before them."""
        several = [epochs for epochs in self._epochs.values() if len(epochs) > 1]
        for epochs in several:
            oldest = epochs[min(epochs)]
            for reader_group in (a for a in epochs.values() if a is not oldest):
                for reader in [s for s in reader_group.members if self._is_past(s, frontier)]:
                    reader_group.members.remove(reader)
                    oldest.members.append(reader)
                    oldest.coming = [s for s in oldest.coming if s is not reader]
        if several:
            self._close()

    def _is_past(self, reader: JoinReader, frontier: int) -> bool:
        """Whether no row in a query's windows, or that waits, is from before it."""
        ranges = zip(self.sides, reader.member.ranges, strict=True)
        return all(rows.newest_before(reader.epoch) <= frontier - length for rows, length in ranges) and not any(
            (ints(t, "_epoch") < reader.epoch).any() for found in self._waiting for t in found
        )

    def _forget(self, frontier: int) -> None:
        self._settle(frontier)
        for reader_group in self.reader_groups.values():
            reader_group.synopsis.forget(frontier - reader_group.longest)
        for rows, reach in zip(self.sides, self.reaches, strict=True):
            rows.drop(frontier - reach)
        self._release_slots()

    def _release_slots(self) -> None:
        """Forget join keys and groups that no row and no interval has any more."""
        if len(self._keys) > 2 * sum(map(len, self.sides)) + 1024:
            dead = unused(self._keys, [rows.key for rows in self.sides])
            for heads in self._heads:
                heads[dead] = -1
            self._keys.release(dead)
        for side, rows in enumerate(self.sides):
            for key, mine in rows.grouped.items():
                held = [mine.slots]
                for reader_group in self.reader_groups.values():
                    if tuple(f.sql for _, f in reader_group.grouping.of_side(side)) == key:
                        segment = reader_group.synopsis.segment
                        held.append(segment & _LOW32 if side else segment >> 32)
                if len(mine.groups) > 2 * sum(map(len, held)) + 1024:
                    mine.groups.release(unused(mine.groups, held))

    def state(self) -> State:
        """The rows of both sides, and those that wait."""
        found = {str(side): rows.runs() for side, rows in enumerate(self.sides)}
        for side, tables in enumerate(self._waiting):
            found[f"{side} waiting"] = tuple(Run(t) for t in tables)
        return found

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state; the same queries have joined."""
        for side, rows in enumerate(self.sides):
            self._waiting[side] = [run.table for run in state.get(f"{side} waiting", ())]
            known = rows.take_back(state.get(str(side), ()))
            if known is not None:
                rows.append(known, self._keys)
        self.last = frontier
        none = [Requests.of(*(np.zeros(0, np.int64),) * 4)] * len(self.reader_groups)
        for _ in self._swept([0, 0], none, frontier):
            pass
        self._forget(frontier)


class _News:
    """The new rows of a side, and whom they concern."""

    def __init__(self, rows: SideRows, first: int) -> None:
        self._rows, self._first = rows, first
        self._known: dict[Predicate, bool] = {}

    def concern(self, predicate: Predicate) -> bool:
        """Whether a predicate holds for one of them."""
        if predicate not in self._known:
            self._known[predicate] = bool(self._rows.predicates[predicate][self._first :].any())
        return self._known[predicate]


def _need(member: JoinMember, sides: Sequence[SideRows]) -> None:
    """Let rows have what a query needs of them."""
    grouping = ResultGrouping(member.keys, member.counted)
    for side, rows in enumerate(sides):
        rows.need_predicate(member.filters[side])
        if mine := grouping.of_side(side):
            rows.need_groups([f for _, f in mine])
    arguments = {name_of(a): a for a in member.arguments}
    for call in () if grouping.counted else member.calls:
        if call.column is not None:
            side, formula = arguments[call.column]
            if call.kind in EXTREMES:
                sides[side].need_codes(formula, call.kind == "min")
            else:
                sides[side].need_lanes(formula, call.kind != "count", call.kind in MOMENTS)


def _nothing(grouping: ResultGrouping, asked: Requests) -> pa.Table:
    """That windows are due, whether or not there is a value in them."""
    n = len(asked)
    values = {f"value|{name_of(s)}": pa.nulls(n, s[1].type) for s in grouping.counted}
    nothing = {"query": asked.query, "ts": asked.ts, "until": asked.until, "rows": np.zeros(n, np.int64)}
    return pa.table({**nothing, **values})


def _places(ts: Int64s, edges: Int64s) -> Int32s:
    """The first edge at or after each time; times and edges are in order."""
    upto = np.searchsorted(ts, edges, "right")  # rows up to each edge
    counts = np.diff(np.concatenate(([0], upto, [len(ts)])))
    return np.repeat(np.arange(len(edges) + 1, dtype=np.int32), counts)


def _lengthened(heads: Int64s, size: int) -> Int64s:
    more = size - len(heads)
    return heads if more <= 0 else np.concatenate((heads, np.full(more + size // 2, -1, np.int64)))
