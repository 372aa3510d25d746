"""Windows over values answered together: one pass over the deepest, shorter ones on the way (rules CS1, CS2, CS7).

Windows that are due are put in order, those that begin last first, and a sweep goes from window to window as it goes
from instant to instant elsewhere. A partial comes in with the first window that begins before it, and stays:

    w0              (-------]            edge e:   +w0
    w1        (-----------]              edge f:   +w1
    w2    (------------------]           edge g:   +w0  -w1  +w2
                 f    e      g

Only what lies between the first end and the last one may come and leave again, so windows need not end at one instant
to be read together; the closer their ends, the less is read twice. Cost: the partials of the deepest window once,
those between the ends once per change, and every answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.partials import Partials
from windrow.operators.aggregates.sweep import Sweep, sweep_of, with_groups
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, concat_arrays

MOST_CHANGES = 1 << 22
_NONE: Int64s = np.zeros(0, np.int64)


@dataclass(frozen=True)
class RankedWindows:
    """Windows `(begin, end]`, those that begin last first; `order`: which of the given ones each is."""

    begin: Int64s
    end: Int64s
    order: Int64s

    @staticmethod
    def of(begin: Int64s, end: Int64s) -> RankedWindows:
        """The windows in order."""
        order = np.lexsort((end, -begin))
        return RankedWindows(begin[order], end[order], order)

    def changes(self, edge: Int64s) -> tuple[Int64s, Int64s, Int64s] | None:
        """When partials at these edges come and leave: (partial, window, +1 or -1); None if that is too much.

        >>> two = RankedWindows.of(np.array([0, 4]), np.array([10, 9]))
        >>> [a.tolist() for a in two.changes(np.array([3, 7, 10]))]
        [[0, 1, 2], [1, 0, 1], [1, 1, 1]]
        """
        first = np.searchsorted(-self.begin, -edge, "right")  # the first window that begins before the edge
        settled = np.flatnonzero((edge <= self.end.min()) & (first < len(self.begin)))
        young = np.flatnonzero(edge > self.end.min())
        if len(young) * len(self.begin) > MOST_CHANGES:
            return None
        there = np.zeros((len(young), len(self.begin) + 1), np.int8)
        there[:, 1:] = (np.arange(len(self.begin)) >= first[young, None]) & (edge[young, None] <= self.end)
        moved = np.diff(there, axis=1)
        which, when = np.nonzero(moved)
        return (
            np.concatenate((settled, young[which])),
            np.concatenate((first[settled], when)),
            np.concatenate((np.ones(len(settled), np.int64), moved[which, when].astype(np.int64))),
        )


@dataclass(frozen=True)
class ReadValues:
    """Partials that windows read: edge, group and multiplicity of each, and their values."""

    edge: Int64s
    slot: Int64s
    rows: Int64s
    values: Mapping[str, pa.Array]

    @staticmethod
    def concat(parts: Sequence[ReadValues], types: Mapping[str, pa.DataType]) -> ReadValues:
        """All of them; `types`: of the values, if there are none."""
        edge, slot, rows = (np.concatenate((_NONE, *(getattr(p, n) for p in parts))) for n in ("edge", "slot", "rows"))
        values = {v: concat_arrays([pa.array([], t), *(p.values[v] for p in parts)]) for v, t in types.items()}
        return ReadValues(edge, slot, rows, values)


@dataclass(frozen=True)
class AnsweredWindows:
    """The answers of all windows, in the order in which they were given: lines of each, groups, and columns."""

    counts: Int64s
    slots: Int64s
    columns: dict[str, pa.Array]


def answered(
    windows: RankedWindows,
    read: ReadValues,
    calls: Sequence[Aggregation],
    types: Mapping[str, pa.DataType],
    keyed: bool,
) -> AnsweredWindows | None:
    """The answers of windows over partials; without keys every window has one. None if it is too much at once."""
    changes = windows.changes(read.edge)
    if changes is None:
        return None
    rows, when, sign = changes
    table, local = np.unique(read.slot, return_inverse=True) if keyed else (np.zeros(1, np.int64), read.slot)
    sweep = sweep_of(local.reshape(-1)[rows], when, rows, sign * read.rows[rows])
    if not keyed and not len(sweep.slots):
        sweep = with_groups(sweep, np.zeros(1, np.int64))
    partials = Partials(calls, types, strict=True)
    partials.grow(len(table))
    alive, answers = partials.advance(sweep, read.values, None, 0)
    points = _points(sweep, len(windows.begin))  # [windows, groups]
    shown = alive[points] > 0 if keyed else np.ones(points.shape, np.bool_)
    given = np.empty_like(windows.order)
    given[windows.order] = np.arange(len(given))
    points, shown = points[given], shown[given]
    at = np.ascontiguousarray(points[shown])
    columns = {call.output: answer.build(at) for call, answer in zip(calls, answers, strict=True)}
    return AnsweredWindows(shown.sum(axis=1), table[sweep.slots[np.nonzero(shown)[1]]], columns)


def _points(sweep: Sweep, windows: int) -> Int64s:
    """The point of a sweep that shows each group in each window: the last one up to it."""
    times = np.where(sweep.times == BEGINNING, -1, sweep.times) + 1
    keys = sweep.group * (windows + 1) + times
    wanted = np.arange(len(sweep.slots)) * (windows + 1) + np.arange(1, windows + 1)[:, None]
    return np.searchsorted(keys, wanted.reshape(-1), "right").reshape(wanted.shape) - 1
