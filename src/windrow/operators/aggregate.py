"""Continuous aggregation: the answer of GROUP BY as a relation that changes.

    rows of a group     [----------)
                             [-----------)
    its answer          [ a )[ b   )[ c  )      one element per stretch of constant answer

At every instant t the sum of the output is the GROUP BY answer over the rows alive at t. A stretch that ends within the
advance has its exact lifetime; the last one is sent as `[t, INF)` and a later advance ends it with `-[t', INF)`.

State: a slot per live group with its partials (`aggregates`), and the pending ends of live rows. Rows may come
reduced (`aggregates/reduced`). Cost per advance: the events (arrivals and ends) times the lanes, plus a sort of the
events by (group, time).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import PointValues
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.partials import Partials
from windrow.operators.aggregates.pending import PendingEnds, RowEnds
from windrow.operators.aggregates.reduced import ReducedInput, Reduction, is_reduced, kept_columns, row_weights
from windrow.operators.aggregates.stairs import GroupedArrivals
from windrow.operators.aggregates.sweep import Sweep, in_order, sweep_of, with_groups, with_point
from windrow.operators.aggregates.vectors import Bools, Int64s, distinct_values
from windrow.operators.elements import BEGINNING, INF, Elements, concat_arrays, one
from windrow.operators.protocol import State
from windrow.operators.state.run import Run, ints


@dataclass(frozen=True)
class Swept:
    """What happened to groups in one advance: their points, whether they are alive there, and their answers."""

    sweep: Sweep
    alive: Bools
    answers: Sequence[PointValues]


class GroupedAggregate(ReducedInput):
    """Groups, partials and pending ends: what continuous and periodic aggregation share."""

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        *,
        strict: bool = False,
        expiration: str = "calendar",
    ) -> None:
        super().__init__()
        self.keys, self.aggregations = tuple(keys), tuple(aggregations)
        self.schema = {**{k: types[k] for k in keys}, **{a.output: a.type for a in aggregations}}
        self._strict = strict
        self._types = types
        self._groups = Groups([types[k] for k in keys])
        self._partials = Partials(aggregations, types, strict)
        self._pending = PendingEnds(expiration)
        self._previous = BEGINNING
        self._begun = False
        self._saved: dict[str, tuple[Run, ...]] = {}
        if not keys:
            self._partials.grow(1)

    @cached_property
    def reduction(self) -> Reduction:
        """How rows may be reduced before they come here."""
        return Reduction(self.keys, self.aggregations, self._types, self._strict)

    # -- one advance -------------------------------------------------------------------------------------------------

    def _sweep(self, inputs: Sequence[Elements], frontier: int, every_group: bool = False) -> Swept | None:
        """Take in all events up to `frontier`; None when nothing happens to any group."""
        elements = self._on_time(inputs, frontier)
        due = self._pending.take(frontier)
        if self._start == BEGINNING and len(elements):
            self._start = int(elements.ts.min())
        begins = not self.keys and not self._begun and BEGINNING < self._start <= frontier
        idle = not len(elements) and not due and not begins and not every_group
        if idle and (self._partials.needs_ends or not len(self._partials.due(frontier))):
            return None
        if not self.keys and not (self._begun or begins):
            return None
        slots = self._slots(elements)
        others = self._groups.slots if every_group and self.keys else None
        step = self._with_ends if self._partials.needs_ends else self._without_ends
        sweep, rows, answers = step(elements, slots, due, frontier, begins, others)
        alive = rows > 0
        if not self.keys:
            alive[:] = True
            alive[0] = self._begun
        self._begun = self._begun or begins
        self._saved = {}
        return Swept(sweep, alive, answers)

    def _slots(self, elements: Elements) -> Int64s:
        if not self.keys:
            return np.zeros(len(elements), np.int64)
        slots = self._groups.lookup([elements.columns[k] for k in self.keys], len(elements))
        self._partials.grow(self._groups.capacity)
        return slots

    def _key_columns(self, slots: Int64s) -> dict[str, pa.Array]:
        """The key columns of groups."""
        return dict(zip(self.keys, self._groups.keys(slots), strict=True)) if self.keys else {}

    def _mark(self, sweep: Sweep, begins: bool, every_group: Int64s | None) -> Sweep:
        """The sweep with the points it must have: the start of a global answer, and groups to be shown though idle."""
        if begins:
            return with_point(sweep, 0, max(self._start, BEGINNING + 1))
        if not self.keys and len(sweep.slots) == 0:
            return with_groups(sweep, np.zeros(1, np.int64))
        if every_group is None:
            return sweep
        idle = np.zeros(len(self._partials.rows), np.bool_)
        idle[every_group] = True
        idle[sweep.slots] = False
        return with_groups(sweep, np.flatnonzero(idle))

    def _with_ends(
        self, elements: Elements, slots: Int64s, due: list[RowEnds], frontier: int, begins: bool, others: Int64s | None
    ) -> tuple[Sweep, Int64s, Sequence[PointValues]]:
        n = len(elements)
        ended = np.flatnonzero(elements.exp <= frontier)
        self._keep(elements, slots, frontier)
        sign = elements.sign.astype(np.int64)
        row = np.arange(n + sum(len(d) for d in due))
        sweep = sweep_of(
            np.concatenate([slots, slots[ended], *(d.slot.astype(np.int64) for d in due)]),
            np.maximum(np.concatenate([elements.ts, elements.exp[ended], *(d.exp for d in due)]), self._start),
            np.concatenate((row[:n], ended, row[n:])),
            np.concatenate([sign, -sign[ended], *(-d.sign.astype(np.int64) for d in due)]),
        )
        arrivals = self._arrivals(sweep, elements, n) if self._partials.stairs else None
        sweep = self._mark(sweep, begins, others)
        if arrivals is not None and len(sweep.slots) > len(arrivals.slots):
            arrivals = _with_idle(arrivals, sweep.slots)
        blocks = [elements.columns, *(d.columns for d in due)]
        lengths = [n, *(len(d) for d in due)]
        sums = {c: s for (c, distinct), s in self._partials.sums.items() if not distinct}
        weights = row_weights(blocks, lengths, sums) if any(map(is_reduced, blocks)) else None
        wanted = self._partials.columns if weights is None else tuple(self._partials.values)
        parts = {c: [b[c] for b in blocks] for c in wanted}
        columns = {c: concat_arrays([p for p in found if len(p)] or found[:1]) for c, found in parts.items()}
        if weights is not None:
            columns = {**elements.columns, **columns}
        rows, answers = self._partials.advance(sweep, columns, arrivals, frontier, weights)
        return sweep, rows, answers

    def _keep(self, elements: Elements, slots: Int64s, frontier: int) -> None:
        """Let rows that end later wait."""
        later = np.flatnonzero((elements.exp > frontier) & (elements.exp != INF))
        if len(later) == 0:
            return
        columns = kept_columns(elements.columns, self._partials.columns, self._partials.values)
        rows = RowEnds(elements.exp, slots.astype(np.int32), elements.sign, columns)
        self._pending.put(rows if len(later) == len(elements) else rows.take(later))

    def _arrivals(self, sweep: Sweep, elements: Elements, n: int) -> GroupedArrivals:
        """The new elements in the sweep's order."""
        feed = sweep.feed
        new = (feed.rows < n) & (feed.deltas > 0)
        before = np.concatenate(([0], np.cumsum(new)))
        rows = feed.rows[new]
        firsts = before[np.append(feed.ends[sweep.firsts[:-1]], len(feed.rows))]
        return GroupedArrivals(
            sweep.slots, firsts, rows, np.maximum(elements.ts[rows], self._start), elements.exp[rows]
        )

    def _without_ends(
        self, elements: Elements, slots: Int64s, due: list[RowEnds], frontier: int, begins: bool, others: Int64s | None
    ) -> tuple[Sweep, Int64s, Sequence[PointValues]]:
        ts = np.maximum(elements.ts, self._start)
        order = in_order(slots, ts)
        everyone = [slots, self._partials.due(frontier)]
        if others is not None:
            everyone.append(others)
        if not self.keys:
            everyone.append(np.zeros(1, np.int64))
        touched = distinct_values(np.concatenate(everyone))
        firsts = np.searchsorted(slots[order], np.append(touched, INF))
        arrivals = GroupedArrivals(touched, firsts, order, ts[order], elements.exp[order])
        return self._partials.glide(arrivals, elements.columns, frontier, self._start if begins else None)

    def _release(self, dead: Int64s) -> None:
        """Forget groups that are left without rows, unless rows that cancel each other still wait there."""
        if not self.keys:
            return
        if self._strict and len(dead):
            waiting = np.zeros(self._groups.capacity, np.bool_)
            for slots in self._pending.slots():
                waiting[slots] = True
            dead = dead[~waiting[dead]]
        if len(dead):
            self._groups.release(dead)
            self._partials.forget(dead)

    # -- state -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The groups (one run), what is kept per value or step (a run each), the pending ends, and the clock."""
        if not self._saved:
            slots = self._groups.slots if self.keys else np.zeros(1, np.int64)
            keys = {f"key|{k}": c for k, c in self._key_columns(slots).items()}
            groups = pa.table({"_slot": pa.array(slots), **self._partials.group_columns(slots), **keys})
            self._saved = {"groups": (Run(groups),)}
            self._saved |= {name: (run,) for name, run in self._partials.value_runs().items()}
        clock = pa.table({"start": [self._start], "previous": [self._previous], "begun": [self._begun]})
        return {**self._saved, **super().state(), "pending": self._pending.runs(), "clock": (Run(clock),)}

    def restore(self, state: State, frontier: int = BEGINNING) -> None:
        """Go on from a state."""
        super().restore(state, frontier)
        self._saved = {n: r for n, r in state.items() if n not in ("pending", "clock", "early")}
        clock = state["clock"][0].table.to_pylist()[0]
        self._start, self._previous, self._begun = clock["start"], clock["previous"], clock["begun"]
        groups = state["groups"][0].table
        slots = ints(groups, "_slot")
        if self.keys:
            self._groups.restore(slots, [one(groups.column(f"key|{k}")) for k in self.keys])
        self._partials.restore_groups(slots, groups)
        self._partials.restore_values({name: runs[0] for name, runs in self._saved.items()})
        self._pending.restore(state["pending"], self._previous)


def _with_idle(arrivals: GroupedArrivals, slots: Int64s) -> GroupedArrivals:
    """Arrivals over more groups, which get none."""
    firsts = np.full(len(slots) + 1, len(arrivals.rows), np.int64)
    firsts[: len(arrivals.firsts)] = arrivals.firsts
    return GroupedArrivals(slots, firsts, arrivals.rows, arrivals.ts, arrivals.exp)


class ContinuousAggregate(GroupedAggregate):
    """GROUP BY over signed lifetimes; `strict` when negative elements may come."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """The stretches of constant answer that begin, and the ends of those sent before."""
        swept = self._sweep(inputs, frontier)
        self._previous = frontier
        if swept is None:
            return Elements.empty(self.schema)
        output = self._stretches(swept)
        self._release(swept.sweep.slots[~swept.alive[swept.sweep.last]])
        return output

    def _stretches(self, swept: Swept) -> Elements:
        sweep = swept.sweep
        alive, virtual = swept.alive, sweep.virtual
        turns = np.flatnonzero(_turns(swept) | virtual)
        same_group = np.zeros(len(turns), np.bool_)
        same_group[:-1] = ~virtual[turns[1:]]
        until = np.full(len(turns), INF, np.int64)
        until[:-1][same_group[:-1]] = sweep.times[turns[1:][same_group[:-1]]]
        old = virtual[turns]
        show = np.flatnonzero(alive[turns] & (~old | same_group))
        points, old, until = turns[show], old[show], until[show]
        ts = np.where(old, until, sweep.times[points])
        exp = np.where(old, INF, until)
        columns = self._key_columns(sweep.slots[sweep.group[points]])
        columns |= {a.output: answer.build(points) for a, answer in zip(self.aggregations, swept.answers, strict=True)}
        return Elements(ts, exp, np.where(old, -1, 1).astype(np.int8), columns)


def _turns(swept: Swept) -> Bools:
    """Where the answer row is another than at the point before."""
    alive = swept.alive
    turns = np.zeros(len(alive), np.bool_)
    turns[1:] = alive[1:] != alive[:-1]
    for answer in swept.answers:
        turns |= answer.differs()
    return turns
