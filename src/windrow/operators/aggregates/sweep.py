"""Events in the order (group, time), and the points at which groups are looked at.

    group 0:  |  t1   t1  t4        group 1:  |  t2        events
    points:   v  t1       t4                  v  t2        v: before all events, shows what was carried in

Invariant: every group of a sweep has its first point at BEGINNING, then one point per instant with an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windrow.operators.aggregates.vectors import Bools, Int64s, opens
from windrow.operators.elements import BEGINNING
from windrow.operators.radix import stable_order


@dataclass(frozen=True)
class MultiplicityChanges:
    """Changes of multiplicity: event e adds `deltas[e]` copies of `rows[e]`; `ends[p]` is past point p's last event."""

    rows: Int64s
    deltas: Int64s
    ends: Int64s

    def where(self, valid: Bools | None) -> MultiplicityChanges:
        """Only the events of rows that are `valid`."""
        if valid is None:
            return self
        keep = valid[self.rows]
        before = np.concatenate(([0], np.cumsum(keep)))
        return MultiplicityChanges(self.rows[keep], self.deltas[keep], before[self.ends])

    def points(self) -> Int64s:
        """The point of every event."""
        return np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))


@dataclass(frozen=True)
class Sweep:
    """The groups an advance touches, their points, and the feed of all rows."""

    slots: Int64s  # [groups]
    firsts: Int64s  # [groups + 1] first point of each group
    times: Int64s  # [points]
    feed: MultiplicityChanges

    @cached_property
    def group(self) -> Int64s:
        """The group of every point."""
        return np.repeat(np.arange(len(self.slots)), np.diff(self.firsts))

    @cached_property
    def last(self) -> Int64s:
        """The last point of every group."""
        return self.firsts[1:] - 1

    @cached_property
    def virtual(self) -> Bools:
        """Which points stand before all events."""
        mask = np.zeros(len(self.times), np.bool_)
        mask[self.firsts[:-1]] = True
        return mask


def in_order(slot: Int64s, time: Int64s) -> Int64s:
    """A permutation that sorts by (slot, time); what shares both has no order."""
    if len(slot) == 0:
        return np.zeros(0, np.int64)
    low, high = int(time.min()), int(time.max())
    span = high - low + 1
    if span * (int(slot.max()) + 1) < 2**63:
        return stable_order(slot * span + (time - low))
    return np.lexsort((time, slot))


def sweep_of(slot: Int64s, time: Int64s, rows: Int64s, deltas: Int64s) -> Sweep:
    """The sweep over events, in any order."""
    order = in_order(slot, time)
    s, t = slot[order], time[order]
    opens_group = np.ones(len(s), np.bool_)
    opens_group[1:] = s[1:] != s[:-1]
    opens_point = opens_group.copy()
    opens_point[1:] |= t[1:] != t[:-1]
    starts = np.flatnonzero(opens_point)
    first = opens_group[starts]
    at = np.arange(len(starts)) + np.cumsum(first)  # every group before and this one has a point of its own
    points = len(starts) + int(first.sum())
    times = np.full(points, BEGINNING, np.int64)
    times[at] = t[starts]
    ends = np.empty(points, np.int64)
    ends[at] = np.append(starts[1:], len(s)) if len(starts) else starts
    ends[at[first] - 1] = starts[first]
    feed = MultiplicityChanges(rows[order], deltas[order], ends)
    return Sweep(s[starts[first]], np.append(at[first] - 1, points), times, feed)


def with_point(sweep: Sweep, slot: int, time: int) -> Sweep:
    """The sweep of the only group, `slot`, with a point at `time` even if nothing happens there."""
    none = np.zeros(0, np.int64)
    if len(sweep.slots) == 0:
        times = np.array([BEGINNING, time])
        return Sweep(np.array([slot]), np.array([0, 2]), times, MultiplicityChanges(none, none, np.zeros(2, np.int64)))
    at = int(np.searchsorted(sweep.times, time))
    if at < len(sweep.times) and sweep.times[at] == time:
        return sweep
    feed = MultiplicityChanges(
        sweep.feed.rows, sweep.feed.deltas, np.insert(sweep.feed.ends, at, sweep.feed.ends[at - 1])
    )
    times = np.insert(sweep.times, at, time)
    return Sweep(sweep.slots, np.array([0, len(times)]), times, feed)


def with_groups(sweep: Sweep, slots: Int64s) -> Sweep:
    """The sweep with more groups, to which nothing happens."""
    if len(slots) == 0:
        return sweep
    ends = np.full(len(slots), len(sweep.feed.rows), np.int64)
    feed = MultiplicityChanges(sweep.feed.rows, sweep.feed.deltas, np.concatenate((sweep.feed.ends, ends)))
    points = len(sweep.times)
    firsts = np.concatenate((sweep.firsts, np.arange(points + 1, points + len(slots) + 1)))
    times = np.concatenate((sweep.times, np.full(len(slots), BEGINNING, np.int64)))
    return Sweep(np.concatenate((sweep.slots, slots)), firsts, times, feed)


def sweep_at(slots: Int64s, group: Int64s, time: Int64s) -> Sweep:
    """A sweep without events over all of `slots`, with points at the given (group, time) pairs."""
    order = in_order(group, time)
    g, t = group[order], time[order]
    first = opens(g, t)
    g, t = g[first], t[first]
    firsts = np.concatenate(([0], np.cumsum(np.bincount(g, minlength=len(slots)) + 1)))
    times = np.full(len(g) + len(slots), BEGINNING, np.int64)
    times[np.arange(len(g)) + g + 1] = t
    none = np.zeros(0, np.int64)
    return Sweep(slots, firsts, times, MultiplicityChanges(none, none, np.zeros(len(times), np.int64)))
