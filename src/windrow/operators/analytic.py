"""Analytic functions: values that a row gets from the other rows of its partition, at every instant.

    LAG(x) OVER (PARTITION BY k ORDER BY y)      t=1  +(k, y=1)                 (1, null)
                                                 t=2  +(k, y=3)                 (1, null) (3, 1)
                                                 t=3  +(k, y=2)     -(3, 1)     (1, null) (2, 1) (3, 2)

Whenever rows of a partition come or go, the functions are computed anew over what is there then, by the scalar engine
and for all such instants and partitions together: a partition at an instant is one partition of the SQL. The answers of
consecutive instants are compared, so a row whose values stay is sent once however often its partition changes.

State: the rows that are there, and what was shown of them. Cost per advance: for each partition that changes, its rows
once per instant at which it does; partitions that do not change cost nothing. An advance with more than `AT_ONCE` rows
to compute is cut in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.elements import BEGINNING, INF, Elements, concat, concat_arrays
from windrow.operators.keys import factorize
from windrow.operators.keytable import KeyTable
from windrow.operators.linear import Formula
from windrow.operators.protocol import State, Unclocked
from windrow.operators.state.run import elements_of, run_of
from windrow.operators.state.surviving import surviving

INSTANT = "_instant"
"""The column by which the functions' SQL is partitioned: one value for each partition at each instant."""

COPY = "_copy"
"""The number of a row among its equals, for functions that count rows: all of them number equal rows alike."""

AT_ONCE = 2_000_000
_ROW = "_row"


@dataclass(frozen=True)
class _Timeline:
    """Rows of some partitions over time: row `row[i]` is there `copies[i]` times at the instant `at[i]`.

    Instants are those of one partition each, numbered by partition and time: `time[n]` is when, `first[p]` the first
    one of partition p, `count[p]` how many it has.
    """

    row: Int64s
    at: Int64s
    copies: Int64s
    time: Int64s
    first: Int64s
    count: Int64s

    @property
    def size(self) -> int:
        return int(self.copies.sum())


class AnalyticOperator(Unclocked):
    """Every row with the values of some functions over its partition; their SQL says PARTITION BY `INSTANT`."""

    def __init__(
        self, types: Mapping[str, pa.DataType], partition: Sequence[str], calls: Sequence[tuple[str, Formula]]
    ) -> None:
        self.types, self.partition, self.calls = dict(types), tuple(partition), tuple(calls)
        self.carried = self._carries()
        self.schema = {**{c: self.types[c] for c in self.carried}, **{name: f.type for name, f in calls}}
        self._reads = tuple(dict.fromkeys(c for _, f in calls for c in f.reads))
        self._forget()

    def _forget(self) -> None:
        self._groups = KeyTable({p: self.types[p] for p in self.partition})
        self._held, self._shown = Elements.empty(self.types), Elements.empty(self.schema)
        self._slots = self._shown_slots = np.zeros(0, np.int64)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (new,) = inputs
        slots = self._slots_of(new)
        touched = np.zeros(len(self._groups), np.bool_)
        touched[slots] = True
        touched[self._slots[self._held.exp <= frontier]] = True
        if not touched.any():
            return Elements.empty(self.schema)
        mine, seen = touched[self._slots], touched[self._shown_slots]
        rows, where = concat([self._held.filter(mine), new]), np.concatenate((self._slots[mine], slots))
        shown = self._shown.filter(seen)
        codes, before = self._codes(rows, where, shown, self._shown_slots[seen])
        timeline = _followed(rows, codes, where, int(mine.sum()), frontier)
        if timeline.size > AT_ONCE and len(times := distinct_values(timeline.time)) > 1:
            middle = int(times[(len(times) - 1) // 2])
            early = new.ts <= middle
            parts = [self.advance([new.filter(early)], middle), self.advance([new.filter(~early)], frontier)]
            return concat(parts)
        was, self._shown_slots = self._shown_slots[seen], self._shown_slots[~seen]
        self._shown = self._shown.filter(~seen)
        row, at = np.repeat(timeline.row, timeline.copies), np.repeat(timeline.at, timeline.copies)
        copy = np.arange(len(row)) - np.repeat(np.cumsum(timeline.copies) - timeline.copies, timeline.copies)
        picks, code, values = self._entries(rows, codes, where, row, {INSTANT: at, COPY: copy})
        code = np.concatenate((before, code))
        out = self._compared(rows, where, shown, was, row[picks], at[picks], code, values, timeline)
        rest = rows.exp > frontier
        kept, kept_slots = rows.filter(rest), where[rest]
        alive = surviving(kept, frontier)
        self._held = concat([self._held.filter(~mine), kept.take(alive)])
        self._slots = np.concatenate((self._slots[~mine], kept_slots[alive]))
        self._forget_groups()
        return out

    def _slots_of(self, rows: Elements) -> Int64s:
        return self._groups.slots({p: rows.columns[p] for p in self.partition}, len(rows))

    def _carries(self) -> tuple[str, ...]:
        """The columns of the input that are shown."""
        return tuple(self.types)

    def _codes(self, rows: Elements, slots: Int64s, shown: Elements, was: Int64s) -> tuple[Int64s, Int64s]:
        """Numbers by which equal rows are recognised, and those of what was shown."""
        both = [concat_arrays([rows.columns[c], shown.columns[c]]) for c in self.types]
        codes, _ = factorize([pa.array(np.concatenate((slots, was))), *both], len(rows) + len(shown))
        return codes[: len(rows)], codes[len(rows) :]

    def _entries(
        self, rows: Elements, codes: Int64s, slots: Int64s, row: Int64s, places: Mapping[str, Int64s]
    ) -> tuple[Int64s, Int64s, list[pa.Array]]:
        """What is shown of rows at instants: which of them, by what code it is recognised, and its values."""
        return np.arange(len(row)), codes[row], self._values(rows, row, places)

    def _compared(
        self,
        rows: Elements,
        slots: Int64s,
        shown: Elements,
        was: Int64s,
        row: Int64s,
        at: Int64s,
        code: Int64s,
        values: Sequence[pa.Array],
        timeline: _Timeline,
    ) -> Elements:
        """What changes from one instant to the next; what is shown at the last one is remembered."""
        # entries: what was shown before (index 0), then what is shown at the instants 1, 2, ... of its partition
        slot = np.concatenate((was, slots[row]))
        index = np.concatenate((np.zeros(len(was), np.int64), at - timeline.first[slots[row]] + 1))
        outputs = [concat_arrays([shown.columns[n], v]) for (n, _), v in zip(self.calls, values, strict=True)]
        same, _ = factorize([pa.array(code), *outputs], len(code))
        begin, end = _spans(same, index)
        where, last = slot[begin], index[end]
        ends = last < timeline.count[where]
        until = np.full(len(begin), INF, np.int64)
        until[ends] = timeline.time[(timeline.first[where] + last)[ends]]
        old = begin < len(was)
        gone, come = begin[old & ends], begin[~old] - len(was)
        ended = shown.take(gone).with_lifetimes(until[old & ends], np.full(len(gone), INF, np.int64)).negated()
        begun = Elements.positive(timeline.time[at[come]], until[~old], self._columns(rows, row, values, come))
        present = np.flatnonzero(index[len(was) :] == timeline.count[slots[row]])
        now = Elements.positive(np.zeros(len(present), np.int64), INF, self._columns(rows, row, values, present))
        self._shown = concat([self._shown, now])
        self._shown_slots = np.concatenate((self._shown_slots, slots[row[present]]))
        return concat([ended, begun])

    def _values(self, rows: Elements, row: Int64s, places: Mapping[str, Int64s]) -> list[pa.Array]:
        """The functions' values for each row at each instant."""
        picks = pa.array(row)
        columns = {c: rows.columns[c].take(picks) for c in self._reads}
        columns |= {name: pa.array(n) for name, n in {**places, _ROW: np.arange(len(row))}.items()}
        wanted = [(f.sql, f.type) for _, f in self.calls]
        *found, number = scalar.evaluate_over(columns, len(row), [*wanted, (f'"{_ROW}"', pa.int64())])
        back = np.empty(len(row), np.int64)  # the scalar engine leaves rows in the order of the last function
        back[number.to_numpy()] = np.arange(len(row))
        return [v.take(pa.array(back)) for v in found]

    def _columns(self, rows: Elements, row: Int64s, values: Sequence[pa.Array], which: Int64s) -> dict[str, pa.Array]:
        base, entries = pa.array(row[which]), pa.array(which)
        columns = {n: rows.columns[n].take(base) for n in self.carried}
        return columns | {n: v.take(entries) for (n, _), v in zip(self.calls, values, strict=True)}

    def _forget_groups(self) -> None:
        """Drop partitions without rows, when they are most."""
        if len(self._groups) > 1024 and len(self._groups) > 4 * len(self._slots):
            self._number_groups()

    def _number_groups(self) -> None:
        self._groups = KeyTable({p: self.types[p] for p in self.partition})
        self._slots, self._shown_slots = self._slots_of(self._held), self._slots_of(self._shown)

    def state(self) -> State:
        """The rows that are there, and what was shown of them."""
        return {"held": (run_of(self._held),), "shown": (run_of(self._shown),)}

    def restore(self, state: State, frontier: int) -> None:
        (held,), (shown,) = state["held"], state["shown"]
        self._held, self._shown = elements_of(held), elements_of(shown)
        self._number_groups()


def _followed(rows: Elements, codes: Int64s, slots: Int64s, held: int, frontier: int) -> _Timeline:
    """Which rows are there at each instant at which their partition changes; the first `held` were there before.

    Equal rows have equal `codes`; signs add up, so a negative element ends any of the rows that equal it.
    """
    went = np.flatnonzero(rows.exp <= frontier)
    row = np.concatenate((np.arange(len(rows)), went))
    time = np.maximum(np.concatenate((rows.ts, rows.exp[went])), BEGINNING + 1)  # rows of tables are new, too, once
    time[:held] = BEGINNING
    change = np.concatenate((rows.sign, -rows.sign[went])).astype(np.int64)
    order = np.lexsort((time, codes[row]))
    row, time, change = row[order], time[order], change[order]
    code = codes[row]
    last = np.append((np.diff(code) != 0) | (np.diff(time) != 0), True)  # of a row's changes at an instant
    total = np.cumsum(change)[last]
    row, time, code = row[last], time[last], code[last]
    opens = np.append(True, np.diff(code) != 0)
    before = np.append(0, total[:-1])[opens]  # cumulated over all rows before this one
    count = total - np.repeat(before, np.diff(np.append(np.flatnonzero(opens), len(code))))
    until = np.where(np.append(opens[1:], True), INF, np.append(time[1:], INF))
    return _expanded(row, slots, time, until, count)


def _expanded(row: Int64s, slots: Int64s, time: Int64s, until: Int64s, count: Int64s) -> _Timeline:
    """Rows that are there `count` times from `time` to `until`, at the instants of their partitions."""
    slot = slots[row]
    instants, moment = np.unique(time, return_inverse=True)
    width, begins = len(instants) + 1, int(instants[0] == BEGINNING)
    key = slot * width + moment
    events = distinct_values(key[time != BEGINNING])
    parts = int(slot.max()) + 1
    bounds = np.searchsorted(events, np.arange(parts + 1) * width)
    end = np.where(until == INF, width - 1, np.searchsorted(instants, until))
    low = np.searchsorted(events, slot * width + np.maximum(moment, begins))
    high = np.searchsorted(events, slot * width + end)
    reps = np.where(count > 0, high - low, 0)
    at = np.repeat(low - (np.cumsum(reps) - reps), reps) + np.arange(int(reps.sum()))
    instants[instants == BEGINNING + 1] = BEGINNING
    return _Timeline(
        np.repeat(row, reps), at, np.repeat(count, reps), instants[events % width], bounds[:-1], np.diff(bounds)
    )


def _spans(same: Int64s, index: Int64s) -> tuple[Int64s, Int64s]:
    """The first and last entry of each stretch of consecutive indices of entries that are the same.

    Entries that are the same at one index are told apart by their number.
    """
    if not len(same):
        return same, same
    order = np.lexsort((index, same))
    new = np.append(True, (np.diff(same[order]) != 0) | (np.diff(index[order]) != 0))
    starts = np.flatnonzero(new)
    copy = np.empty(len(order), np.int64)
    copy[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    if not new.all():
        order = np.lexsort((index, copy, same))
    s, c, i = same[order], copy[order], index[order]
    opens = np.append(True, (np.diff(s) != 0) | (np.diff(c) != 0) | (np.diff(i) != 1))
    return order[opens], order[np.append(opens[1:], True)]
