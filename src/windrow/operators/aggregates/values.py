"""Multiplicities of values: what DISTINCT, order statistics and frequencies need to know of a group.

Within an advance the distinct values of each touched group (carried in or just seen) are its members,
numbered in (group, value) order. Events change multiplicities of members; a member that appears or vanishes
is an event for the DISTINCT aggregates. State: one (value, multiplicity) per distinct live value and group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.answers import PointValues, coded, exact_fraction, interpolated, lists
from windrow.operators.aggregates.call import Aggregation
from windrow.operators.aggregates.kernels import grouped, most_frequent, order_statistics
from windrow.operators.aggregates.order import CodeOrder, encode
from windrow.operators.aggregates.sweep import MultiplicityChanges, Sweep
from windrow.operators.aggregates.vectors import Int64s, opens, validity
from windrow.operators.elements import concat_arrays, one
from windrow.operators.state.run import Run, ints


@dataclass(frozen=True)
class Members:
    """The members of the groups of a sweep and the feed of their multiplicities."""

    firsts: Int64s  # [groups + 1]
    codes: Int64s  # [members]
    before: Int64s  # [members] multiplicity carried in
    feed: MultiplicityChanges  # rows are members
    order: CodeOrder

    @property
    def after(self) -> Int64s:
        """Multiplicities when all is done."""
        total = self.before.copy()
        np.add.at(total, self.feed.rows, self.feed.deltas)
        return total

    @cached_property
    def values(self) -> pa.Array:
        """The value of every member."""
        return self.order.decode(self.codes)

    @cached_property
    def distinct(self) -> Members:
        """The same with every multiplicity cut to one: events are appearances and disappearances."""
        feed = self.feed
        points = feed.points()
        by_member = grouped(np.arange(len(feed.rows)), feed.rows, len(self.codes))
        member, point = feed.rows[by_member], points[by_member]
        total = np.cumsum(feed.deltas[by_member])
        begin = np.flatnonzero(opens(member))
        base = np.where(begin > 0, total[begin - 1], 0) if len(begin) else begin
        total = total - np.repeat(base, np.diff(np.append(begin, len(member)))) + self.before[member]
        last = np.flatnonzero(np.append(opens(member, point), True)[1:])
        there = total[last] > 0
        was = np.empty(len(last), np.bool_)
        was[1:] = there[:-1]
        first = opens(member[last])
        was[first] = self.before[member[last[first]]] > 0
        changed = there != was
        rows, deltas, at = member[last[changed]], np.where(there[changed], 1, -1), point[last[changed]]
        by_point = np.argsort(at)
        ends = np.searchsorted(at[by_point], np.arange(len(feed.ends)), side="right")
        cut = MultiplicityChanges(rows[by_point], deltas[by_point], ends)
        return Members(self.firsts, self.codes, (self.before > 0).astype(np.int64), cut, self.order)


class Values:
    """The multiplicities of one column's values, per group."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.restore(np.zeros(0, np.int64), pa.array([], type_), np.zeros(0, np.int64))

    def restore(self, slot: Int64s, value: pa.Array, count: Int64s) -> None:
        """Go on from multiplicities, in any order."""
        self.slot, self.value, self.count = slot, value, count

    def runs(self, name: str) -> dict[str, Run]:
        """The multiplicities as runs, with `name` in their names."""
        table = pa.table({"slot": pa.array(self.slot), "count": pa.array(self.count), "value": self.value})
        return {f"values {name}": Run(table)}

    def restore_runs(self, name: str, runs: Mapping[str, Run]) -> None:
        """Go on from what `runs` gave."""
        table = runs[f"values {name}"].table
        self.restore(ints(table, "slot"), concat_arrays([one(table.column("value"))]), ints(table, "count"))

    def advance(self, sweep: Sweep, column: pa.Array, position: Int64s) -> Members:
        """Apply the sweep's events; `position[slot]` is the group's place in the sweep, or -1."""
        mine = position[self.slot] if len(self.slot) else np.zeros(0, np.int64)
        touched = np.flatnonzero(mine >= 0)
        (codes, held), order = encode([column, self.value.take(pa.array(touched))])
        feed = sweep.feed.where(validity(column))
        group = np.concatenate((sweep.group[feed.points()], mine[touched]))
        code = np.concatenate((codes[feed.rows], held))
        member, firsts, member_codes = _number(group, code, len(sweep.slots))
        before = np.zeros(len(member_codes), np.int64)
        events = len(feed.rows)
        before[member[events:]] = self.count[touched]
        members = Members(
            firsts, member_codes, before, MultiplicityChanges(member[:events], feed.deltas, feed.ends), order
        )
        self._keep(np.flatnonzero(mine < 0), sweep, members)
        return members

    def _keep(self, untouched: Int64s, sweep: Sweep, members: Members) -> None:
        after = members.after
        alive = np.flatnonzero(after != 0)
        slots = np.repeat(sweep.slots, np.diff(members.firsts))[alive]
        values = members.order.decode(members.codes[alive])
        self.slot = np.concatenate((self.slot[untouched], slots))
        self.count = np.concatenate((self.count[untouched], after[alive]))
        self.value = concat_arrays([self.value.take(pa.array(untouched)), values]) if len(untouched) else values


def _number(group: Int64s, code: Int64s, groups: int) -> tuple[Int64s, Int64s, Int64s]:
    """Number the distinct (group, code) pairs in order: each pair's member, the groups' first members, the codes."""
    by = grouped(np.argsort(code), group, groups)
    g, c = group[by], code[by]
    another = opens(g, c)
    member = np.empty(len(by), np.int64)
    member[by] = np.cumsum(another) - 1
    begin = np.flatnonzero(another)
    firsts = np.searchsorted(g[begin], np.arange(groups + 1))
    return member, firsts, c[begin]


_ENDS = {"min": (0, 1), "max": (1, 1), "median": (1, 2)}


def ranked(calls: list[Aggregation], sweep: Sweep, members: Members) -> list[PointValues]:
    """The answers of order statistics (MIN and MAX among them) over the same members."""
    exact = [exact_fraction(c.parameters[0]) if c.parameters else None for c in calls]
    tops = np.array(
        [_ENDS[c.kind][0] if f is None else f.numerator for c, f in zip(calls, exact, strict=True)], np.int64
    )
    bottoms = np.array(
        [_ENDS[c.kind][1] if f is None else f.denominator for c, f in zip(calls, exact, strict=True)], np.int64
    )
    fractions = np.array(
        [t / b if not c.parameters else float(c.parameters[0]) for c, t, b in zip(calls, tops, bottoms, strict=True)]
    )
    continuous = np.array([_interpolates(c, members.order.type) for c in calls])
    feed = members.feed
    low, high, total = order_statistics(
        sweep.firsts,
        feed.ends,
        feed.rows,
        feed.deltas,
        members.firsts,
        members.before.copy(),
        tops,
        bottoms,
        fractions,
        continuous,
    )
    valid = total > 0
    some = None if valid.all() else valid
    answers = []
    for k, call in enumerate(calls):
        if len(members.codes) == 0:
            answers.append(coded(np.zeros(len(valid), np.int64), valid, members.order, call.type))
        elif continuous[k]:
            place = np.maximum(total - 1, 0) * fractions[k]
            between = place - np.floor(place)
            answers.append(
                interpolated(members.codes[low[k]], members.codes[high[k]], between, valid, members.order, call.type)
            )
        else:
            answers.append(
                coded(np.where(valid, members.codes[low[k]], members.codes[0]), some, members.order, call.type)
            )
    return answers


def _interpolates(call: Aggregation, type_: pa.DataType) -> bool:
    """MEDIAN and QUANTILE_CONT interpolate where the type can; MEDIAN of the rest is a value at hand."""
    if call.kind == "quantile_cont":
        return True
    numeric = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    # between two intervals, or nanoseconds of a day, the scalar engine knows no other
    between = pa.types.is_temporal(type_) and not pa.types.is_interval(type_) and type_ != pa.time64("ns")
    return call.kind == "median" and (numeric or between)


def frequent(call: Aggregation, sweep: Sweep, members: Members) -> PointValues:
    """The answer of TOP_K."""
    k, feed = int(call.parameters[0]), members.feed
    found, version = most_frequent(
        sweep.firsts, feed.ends, feed.rows, feed.deltas, members.firsts, members.before.copy(), k
    )
    return lists(found, version, members.codes, members.order, call.type)
