"""How much to shed when ticks take too long, and which rows.

    tick time = rest (fixed, and reading every row that comes) + time of the kernels

Only the second part can be shed, so it is measured apart. Two models say what it comes from, and the one that foretold
the last ticks clearly better is believed, or the one that expects more:

    a * rows        the rows that the tick had to work on, each alike
    b * pairs       their pairs with the rows that windows held

Both are told from the rows kept and their times (`tick_work.py`), so that neither work that comes a tick late nor
windows that are still filling, or still full, mislead. The controller asks at which density, rows per unit of stream
time, the next ticks, and ticks for ever after, would take no longer than `AIM` of the budget; the rows that fit
(`capacity`; unknown until a tick has been too long) are that density times the stream time of the next batch: a batch
that comes after a long tick is longer, but not denser.

It is a controller, not a switch: with a load that stays the same it settles, and when the load passes it keeps
everything again, and forgets. One odd tick opens nothing: while ticks are short enough, `a` and `b` are medians of the
last three, and the rest is the second greatest of the last five.

The first tick of all may take long for other reasons (a cold start): if it does, it only lowers the gate to `FIRST`
rows and is forgotten. When the rest alone exceeds the budget, shedding cannot help; the kernels then get `LEAST` of it.

Rows are chosen by importance: the most important are kept for certain, and of the rest a few are drawn (`FLOOR` of what
is kept), each with the same known probability, so that sums over a shed stream can still be scaled without bias
(`plan/weights.py`). Without importance all rows are drawn alike. What is drawn depends on the rows' codes (hashes of
their values) alone, so a task that is run again keeps the same rows.

Nothing here reads a clock or rows: time and counts are given, so that a simulation can run it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windrow.operators.keys import mix
from windrow.runtime.tick_work import KeptRows, Pace, reached

AIM, LEAST = 0.8, 0.1
"""Shares of the budget: what a tick should take, and what kernels get when the rest takes more."""
GROWTH = 1.5
"""The most by which the gate opens from one tick to the next."""
FIRST = 1000
"""Rows that pass after a cold start that took too long."""
FLOOR = 0.05
"""The share of rows kept that is drawn from the unimportant ones."""
ROOM = 0.85
"""All rows are kept again when they are so much of what would fit."""
FORGET = 0.3
"""The weight of the newest tick in a model's error."""
CLEARLY = 0.6
"""A model is clearly better if its error is less than so much of the other's."""
AHEAD = 3
"""Ticks that are looked ahead."""


@dataclass
class Model:
    """Time as a multiple of something: the multiples of the last ticks, and how far off the last forecasts were."""

    past: tuple[float, ...] = ()
    error: float = 1.0
    late: bool = False  # the last tick was too long

    def learn(self, spent: float, what: float, late: bool) -> None:
        """Take in a tick."""
        if self.past:
            self.error += FORGET * (abs(math.log(spent / (self.past[-1] * what))) - self.error)
        self.past = (*self.past[-2:], spent / what)
        self.late = late

    @property
    def multiple(self) -> float:
        """The multiple to believe: the last if that tick was too long, else the median."""
        return self.past[-1] if self.late else float(np.median(self.past))


@dataclass(frozen=True)
class TimeUse:
    """What the queries behind a gate do with time: how long a row matters, and at which multiples they look."""

    reach: float = 1
    period: int = 1


@dataclass
class Controller:
    """Decides how many of a tick's rows to keep, from what earlier ticks took. `budget` is in seconds."""

    budget: float
    capacity: float | None = None
    cold: bool = True  # no tick has been observed yet
    alone: Model = field(default_factory=Model)
    pairs: Model = field(default_factory=Model)
    rests: tuple[float, ...] = ()  # seconds of the last ticks that shedding does not change
    kept: KeptRows = field(default_factory=KeptRows)
    pace: Pace = field(default_factory=Pace)
    done: float | None = None  # the time up to which work is done

    def __post_init__(self) -> None:
        if not self.budget > 0:
            raise ValueError(f"a budget of {self.budget} seconds")

    @property
    def shedding(self) -> bool:
        """Whether the last ticks were too long, so that rows may be shed now."""
        return self.capacity is not None

    def keep(self, rows: int) -> float:
        """The share of a tick of so many rows to keep."""
        if self.capacity is None or rows <= self.capacity:
            return 1.0
        return self.capacity / rows

    def observe(
        self,
        arrived: int,
        kept: int,
        seconds: float,
        kernels: float | None = None,
        frontier: float | None = None,
        elapsed: float | None = None,
        shape: TimeUse | None = None,
    ) -> None:
        """Learn from a tick: rows that came, rows that were processed, and how long it took.

        `kernels`: the part of that time that grows with the rows kept, all of it if not given. `frontier`: the stream
        time reached, `elapsed`: seconds since the tick before ended; without them, batches do not grow with ticks.
        """
        shape = shape or TimeUse()
        before = self.kept.ends[-1] if self.kept.ends else None
        now = frontier if frontier is not None else (before or 0) + 1
        self.kept = self.kept.plus(now, kept)
        span = now - before if before is not None else 1
        if span > 0:
            self.pace = self.pace.plus(span, math.inf if frontier is None else max(seconds, elapsed or 0.0, 1e-6))
        begin = self.done if self.done is not None else reached(now, shape.period) - span
        self.done = max(begin, reached(now, shape.period))
        if kept == 0 or seconds <= 0 or not self.pace.past:
            return
        cold, self.cold = self.cold, False
        if cold and seconds > self.budget and kept * self.budget < FIRST * seconds:
            self.capacity = FIRST if arrived > FIRST else None
            return
        late = seconds > self.budget
        spent = min(seconds, seconds if kernels is None else max(kernels, 1e-6))
        self.rests = (*self.rests[-4:], seconds - spent)
        rows, pairs = self.kept.work(begin, self.done, shape.reach)
        if late and not rows and not self.alone.past:  # nothing else is known
            rows, pairs = float(kept), float(kept) ** 2
        if rows:
            self.alone.learn(spent, rows, late)
            self.pairs.learn(spent, max(pairs, 1.0), late)
        if not self.alone.past or not (late or self.shedding):
            return
        next_span = self.pace.after(seconds)
        density = self._density(now, seconds, shape)
        fits = max(1.0, next_span * density)
        if late or self.capacity is None:
            self.capacity = fits
        elif kept < arrived:
            self.capacity = min(fits, GROWTH * kept * (next_span / span if span > 0 else 1.0))
        else:  # all were kept: it says little of more rows, but nothing against them
            self.capacity = max(self.capacity, min(fits, GROWTH * kept))
            if seconds <= AIM * self.budget and arrived <= ROOM * density * max(span, 1e-9):
                self.capacity = None  # the load has passed: all rows fit with room to spare

    def _density(self, now: float, seconds: float, shape: TimeUse) -> float:
        """The most rows per unit of stream time at which no tick to come takes longer than the aim."""
        rest = sorted(self.rests)[-2:][0]
        aim = max(AIM * self.budget, rest + LEAST * self.budget)
        first = self._longest(0.0, rest, now, seconds, shape, True) <= aim  # else what is let in already is too much

        def fits(density: float) -> bool:
            return self._longest(density, rest, now, seconds, shape, first) <= aim

        low, high = 0.0, 1.0
        while fits(high) and high < 1e15:
            low, high = high, 4 * high
        while high - low > 1e-7 * high and high > 1e-12:
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _longest(self, density: float, rest: float, now: float, seconds: float, shape: TimeUse, first: bool) -> float:
        """The longest of the next ticks, the next one only if `first`, and of those for ever after, at a density."""
        for_ever = self.pace.after(AIM * self.budget)
        longest = rest + self._kernels(density * for_ever, density**2 * for_ever * shape.reach)
        kept, done, took = self.kept, self.done or now, seconds
        for tick in range(AHEAD):
            span = self.pace.after(took)
            now += span
            kept = kept.plus(now, density * span)
            until = max(done, reached(now, shape.period))
            took = rest + self._kernels(*kept.work(done, until, shape.reach))
            done = until
            if tick or first:
                longest = max(longest, took)
        return longest

    def _kernels(self, rows: float, pairs: float) -> float:
        """The time of the kernels by the model that is clearly better; if none is, by the one that says more."""
        alone, paired = self.alone.multiple * rows, self.pairs.multiple * pairs
        if self.alone.error < CLEARLY * self.pairs.error:
            return alone
        if self.pairs.error < CLEARLY * self.alone.error:
            return paired
        return max(alone, paired)


@dataclass(frozen=True)
class KeptSample:
    """Which rows of a tick are kept: their positions in order, and the probability with which each was kept."""

    rows: NDArray[np.int64]
    probability: NDArray[np.float64]
    importance_seen: float
    importance_kept: float


def choose(codes: NDArray[np.uint64], wanted: int, importance: NDArray[np.float64] | None = None) -> KeptSample:
    """Choose so many of a tick's rows, the least important shed first; `codes` are hashes of the rows.

    >>> chosen = choose(np.arange(10, dtype=np.uint64), 5, np.arange(10.0))
    >>> chosen.rows[-4:].tolist(), len(chosen.rows)
    ([6, 7, 8, 9], 5)
    """
    rows = len(codes)
    weights = np.ones(rows) if importance is None else importance
    seen = float(weights.sum())
    if wanted >= rows:
        return KeptSample(np.arange(rows), np.ones(rows), seen, seen)
    drawn = wanted if importance is None else min(wanted, max(1, round(FLOOR * wanted))) if wanted > 0 else 0
    sure, rest = _split(weights, codes, max(0, wanted) - drawn)
    # mixed anew: among equal importance the codes have already decided
    sample = rest[_least(mix(codes[rest] ^ np.uint64(0xA5A5A5A5A5A5A5A5)), drawn)]
    kept = np.concatenate([sure, sample])
    probability = np.concatenate([np.ones(len(sure)), np.full(drawn, drawn / max(1, len(rest)))])
    by_place = np.argsort(kept)
    kept, probability = kept[by_place], probability[by_place]
    return KeptSample(kept, probability, seen, float(weights[kept].sum()))


def _split(
    weights: NDArray[np.float64], codes: NDArray[np.uint64], top: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The `top` rows of greatest weight, among equals those of least code; and the others."""
    rows = len(weights)
    chosen = np.zeros(rows, np.bool_)
    if top:
        bar = np.partition(weights, rows - top)[rows - top]
        chosen = weights > bar
        equal = np.flatnonzero(weights == bar)
        chosen[equal[_least(codes[equal], top - int(chosen.sum()))]] = True
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def _least(codes: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """The positions of the `count` least codes; of equal ones those that come first."""
    if count >= len(codes):
        return np.arange(len(codes))
    if count <= 0:
        return np.zeros(0, np.int64)
    bar = np.partition(codes, count - 1)[count - 1]
    below = np.flatnonzero(codes < bar)
    equal = np.flatnonzero(codes == bar)
    return np.concatenate([below, equal[: count - len(below)]])
