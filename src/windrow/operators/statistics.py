"""The statistics of one input of a running operator: rate, live rows, distinct keys.

The rate is the number of elements over the ticks they came in, smoothed over the last few advances, so that a change of
rate shows within two or three of them. Live rows are rate times mean lifetime where lifetimes are known, else what the
operator counts.

A query that is spread over partitions is measured in parts: `seen` is what one partition saw, and `merged` adds parts
up, samples by their union.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.elements import BEGINNING, INF, Elements
from windrow.operators.keys import hash_rows
from windrow.operators.sketch import DistinctSketch, estimate, union

SMOOTHING = 0.5
"""Weight of the newest advance in the rate."""


@dataclass(frozen=True)
class Observed:
    """One input as measured: elements per tick, rows alive, distinct values by class of equal columns."""

    rate: float
    rows: float
    values: Mapping[str, float] = field(default_factory=dict)

    def drift(self, other: Observed) -> float:
        """The greatest ratio between the two, in any figure."""
        pairs = [(self.rate, other.rate), (self.rows, other.rows)]
        pairs += [(v, other.values.get(c, v)) for c, v in self.values.items()]
        return max((max(a, b) + 1e-9) / (min(a, b) + 1e-9) for a, b in pairs)


@dataclass(frozen=True)
class Seen:
    """What one partition saw of one input: elements and the ticks they came in, their mean life, rows alive, samples.

    `entries`: the rows that an early aggregation would tell apart, and a sample of them where they are not counted.
    `events`, `met`: changes of the input, and the entries of others that they met.
    """

    elements: float
    ticks: float
    life: float
    rows: float
    samples: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)
    entries: float = 0.0
    entry_sample: NDArray[np.uint64] | None = None
    events: float = 0.0
    met: float = 0.0

    @property
    def observed(self) -> Observed:
        """The figures."""
        rate = self.elements / self.ticks if self.ticks else 0.0
        alive = self.rows
        if 0 < self.life < float("inf"):
            alive = min(alive, rate * self.life) if alive else rate * self.life
        return Observed(rate, max(alive, 1e-6), {n: max(1.0, estimate(s)) for n, s in self.samples.items()})


def merged(parts: Sequence[Seen], copies: int = 1) -> Seen:
    """What all partitions saw together; `copies`: in how many of them each row is."""
    lives = [p.life for p in parts if p.life]
    names = {n for p in parts for n in p.samples}
    sampled = [p.entry_sample for p in parts if p.entry_sample is not None]
    return Seen(
        sum(p.elements for p in parts) / copies,
        max((p.ticks for p in parts), default=0.0),
        sum(lives) / len(lives) if lives else 0.0,
        sum(p.rows for p in parts) / copies,
        {n: union([p.samples[n] for p in parts if n in p.samples]) for n in names},
        sum(p.entries for p in parts) / copies,
        union(sampled) if sampled else None,
        sum(p.events for p in parts),
        sum(p.met for p in parts),
    )


class InputStatistics:
    """What is measured of one input; `columns` maps a class of equal columns to this input's column."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = dict(columns)
        self._distinct = {name: DistinctSketch() for name in columns}
        self._last = BEGINNING
        self._elements = self._ticks = 0.0
        self._life = 0.0
        self._seen = 0
        self._advances = 0

    def observe(self, new: Elements, frontier: int) -> None:
        """Take in the elements of one advance."""
        first = self._last if self._last != BEGINNING else (int(new.ts.min()) - 1 if len(new) else frontier - 1)
        self._last = frontier
        self._elements = SMOOTHING * len(new) + (1 - SMOOTHING) * self._elements
        self._ticks = SMOOTHING * max(1, frontier - first) + (1 - SMOOTHING) * self._ticks
        self._seen += len(new)
        if len(new):
            known = np.count_nonzero(new.exp != INF)
            if known:
                life = float((new.exp[:1024] - new.ts[:1024]).mean()) if known == len(new) else float("inf")
                self._life = life if not self._life else 0.5 * (self._life + life)
        # keys change more slowly than rates: after a start, every fourth advance is enough
        self._advances += 1
        due = self._advances <= 8 or self._advances % 4 == 0
        for name, sketch in self._distinct.items():
            if len(new) and (due or sketch.stale(frontier)):
                sketch.add(hash_rows([new.columns[self.columns[name]]], len(new)), int(new.exp.max()))
            sketch.expire(frontier)

    def observed(self, rows: float) -> Observed:
        """The figures now; `rows`: elements that the operator holds."""
        return self.seen(rows).observed

    def seen(self, rows: float, samples: bool = True) -> Seen:
        """What was seen so far, for `merged`."""
        found = {n: s.sample() for n, s in self._distinct.items()} if samples else {}
        return Seen(self._elements, self._ticks, self._life, rows, found)


def class_columns(classes: Sequence[tuple[Sequence[str], bool]], columns: Mapping[str, pa.DataType]) -> dict[str, str]:
    """For each class that has a column of this input: the class's name and that column."""
    found = {}
    for members, _ in classes:
        own = [c for c in members if c in columns]
        if own:
            found[members[0]] = own[0]
    return found
