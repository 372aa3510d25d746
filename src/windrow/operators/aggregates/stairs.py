"""Staircases: MIN and MAX over elements that are never retracted.

An element that some other element outlives and equals or betters can never again be the answer; it is
dropped. What is left, by expiration, has strictly worsening values: the head is the answer and expiring it
uncovers the next.

State: the staircases only. Cost: each element enters and leaves once; where lifetimes end in arrival order
the new element only ever pops from the tail, otherwise it also moves the steps behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.answers import PointValues, coded
from windrow.operators.aggregates.kernels import latest, staircases
from windrow.operators.aggregates.order import CodeOrder, encode
from windrow.operators.aggregates.sweep import Sweep
from windrow.operators.aggregates.vectors import Bools, Int64s, validity
from windrow.operators.elements import concat_arrays


@dataclass(frozen=True)
class GroupedArrivals:
    """New elements of an advance in the order (group, ts); `firsts` delimits the groups of `slots`."""

    slots: Int64s  # [groups] ascending
    firsts: Int64s  # [groups + 1]
    rows: Int64s  # [elements] row of the argument columns
    ts: Int64s
    exp: Int64s

    def where(self, valid: Bools | None) -> GroupedArrivals:
        """Only the elements whose row is `valid`."""
        if valid is None:
            return self
        keep = valid[self.rows]
        before = np.concatenate(([0], np.cumsum(keep)))
        return GroupedArrivals(self.slots, before[self.firsts], self.rows[keep], self.ts[keep], self.exp[keep])


@dataclass(frozen=True)
class AnswerSteps:
    """The answer as it changes: entries of group g are `firsts[g]:firsts[g + 1]`, the first one before all time."""

    firsts: Int64s
    times: Int64s
    codes: Int64s
    some: Bools
    order: CodeOrder


class Stairs:
    """The staircases of one column, of the greatest values or of the least."""

    def __init__(self, type_: pa.DataType, least: bool) -> None:
        self.type, self.least = type_, least
        self.restore(np.zeros(0, np.int64), np.zeros(0, np.int64), pa.array([], type_))

    def restore(self, slot: Int64s, exp: Int64s, value: pa.Array) -> None:
        """Go on from staircases: by slot any order, within a slot by `exp`."""
        self.slot, self.exp, self.value = slot, exp, value

    def due(self, frontier: int) -> Int64s:
        """Slots of the groups in which a step ends by `frontier`."""
        return self.slot[self.exp <= frontier]

    def advance(self, arrivals: GroupedArrivals, column: pa.Array, position: Int64s, frontier: int) -> AnswerSteps:
        """Let elements arrive and expire up to `frontier`; `position[slot]` is a group's place in `arrivals`, or -1."""
        mine = position[self.slot] if len(self.slot) else np.zeros(0, np.int64)
        touched = np.flatnonzero(mine >= 0)
        touched = touched[np.argsort(mine[touched], kind="stable")]
        held_value = self.value.take(pa.array(touched))
        (codes, held_codes), order = encode([column, held_value])
        new = arrivals.where(validity(column))
        flip = np.int64(-1 if self.least else 0)
        held = np.concatenate(([0], np.cumsum(np.bincount(mine[touched], minlength=len(arrivals.slots)))))
        firsts, times, code, some, left, left_exp, left_code = staircases(
            new.firsts, new.ts, new.exp, codes[new.rows] ^ flip, held, self.exp[touched], held_codes ^ flip, frontier
        )
        untouched = np.flatnonzero(mine < 0)
        self.slot = np.concatenate((self.slot[untouched], np.repeat(arrivals.slots, np.diff(left))))
        self.exp = np.concatenate((self.exp[untouched], left_exp))
        kept = order.decode(left_code ^ flip)
        self.value = concat_arrays([self.value.take(pa.array(untouched)), kept]) if len(untouched) else kept
        return AnswerSteps(firsts, times, code ^ flip, some, order)


def shown(changes: AnswerSteps, sweep: Sweep, type_: pa.DataType) -> PointValues:
    """The answer at the points of a sweep over the same groups."""
    at = latest(sweep.firsts, sweep.times, changes.firsts, changes.times)
    some = changes.some[at]
    return coded(np.where(some, changes.codes[at], 0), None if some.all() else some, changes.order, type_)
