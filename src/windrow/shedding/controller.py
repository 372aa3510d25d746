"""How much to shed when ticks take too long, and which rows.

    tick time = rest (fixed, and reading every row that comes) + cost * rows kept

Only the second part can be shed, so the time of the kernels is measured apart. The controller holds one number, the
rows that fit (`capacity`; unknown until a tick has been too long). Two models say what the kernels' time comes from,
and the one that foretold the last ticks better is believed:

    a * kept        the rows of this tick, each alike
    b * held^2      `held`, the rows kept per tick as a mean over the length of the windows: rows wait for the frontier,
                    and in a join they meet what windows hold

With `free` the time that the rest leaves, up to `AIM` of the budget, `free / a` or `sqrt(free / b)` rows fit (upwards,
a cube root of the room instead: what was let in is seen late). By the second the gate does not open while windows are
still empty, to meet the bill later, nor close further while they still hold what was let in before. One odd tick opens
nothing: while ticks are short enough, `a` and `b` are medians of the last three, and the rest is the second greatest of
the last five. It is a controller, not a switch: with a load that stays the same it settles, and when the load passes it
keeps everything again, and forgets.

The first tick of all may take long for other reasons (a cold start): if it does, it only lowers the gate to `FIRST`
rows and is forgotten. When the rest alone exceeds the budget, shedding cannot help; the kernels then get `LEAST` of it.

Rows are chosen by importance: the most important are kept for certain, and of the rest a few are drawn (`FLOOR` of what
is kept), each with the same known probability, so that sums over a shed stream can still be scaled without bias
(`estimate.py`). Without importance all rows are drawn alike. What is drawn depends on the rows' codes (hashes of their
values) alone, so a task that is run again keeps the same rows.

Nothing here reads a clock or rows: time and counts are given, so that a simulation can run it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windrow.operators.keys import mix

AIM = 0.8
LEAST = 0.1
GROWTH = 1.5
FIRST = 1000
FLOOR = 0.05
ROOM = 0.75
FORGET = 0.3


@dataclass
class Model:
    """Time as a multiple of something: the multiples of the last ticks, and how far off the last forecasts were."""

    past: tuple[float, ...] = ()
    error: float = 1.0

    def learn(self, spent: float, what: float, late: bool) -> float:
        """Take in a tick; the multiple to believe now: the last if it was too long, else the median."""
        if self.past:
            self.error += FORGET * (abs(math.log(spent / (self.past[-1] * what))) - self.error)
        self.past = (*self.past[-2:], spent / what)
        return self.past[-1] if late else float(np.median(self.past))


@dataclass
class Controller:
    """Decides how many of a tick's rows to keep, from what earlier ticks took. `budget` is in seconds."""

    budget: float
    capacity: float | None = None
    cold: bool = True  # no tick has been observed yet
    own: Model = field(default_factory=Model)
    windows: Model = field(default_factory=Model)
    rests: tuple[float, ...] = ()  # seconds of the last ticks that shedding does not change

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
        self, arrived: int, kept: int, seconds: float, kernels: float | None = None, held: float | None = None
    ) -> None:
        """Learn from a tick: rows that came, rows that were processed, and how long it took.

        `kernels`: the part of that time that grows with the rows kept, all of it if not given. `held`: the mean of rows
        kept per tick over the length of the windows, those of this tick if not given.
        """
        if kept == 0 or seconds <= 0:
            return
        cold, self.cold = self.cold, False
        if cold and seconds > self.budget and kept * self.budget < FIRST * seconds:
            self.capacity = FIRST if arrived > FIRST else None
            return
        spent = min(seconds, seconds if kernels is None else max(kernels, 1e-6))
        late = seconds > self.budget
        self.rests = (*self.rests[-4:], seconds - spent)
        free = max(AIM * self.budget - sorted(self.rests)[-2:][0], LEAST * self.budget)
        own, windows = self.own.learn(spent, float(kept), late), self.windows.learn(spent, (held or kept) ** 2.0, late)
        if self.own.error < self.windows.error:
            fits = max(1.0, free / own)
        else:
            base = held or kept
            room = free / (windows * base**2)
            fits = max(1.0, base * room ** (0.5 if room < 1 else 1 / 3))
        if late:
            self.capacity = fits
        elif self.capacity is not None and kept < arrived:
            self.capacity = min(fits, GROWTH * kept)
        elif self.capacity is not None:  # all were kept: it says little of more rows, but nothing against them
            self.capacity = max(self.capacity, min(fits, GROWTH * kept))
            if seconds <= AIM * self.budget and arrived <= ROOM * self.capacity:
                self.capacity = None  # the load has passed: all rows fit with room to spare


@dataclass(frozen=True)
class Choice:
    """Which rows of a tick are kept: their positions in order, and the probability with which each was kept."""

    rows: NDArray[np.int64]
    probability: NDArray[np.float64]
    importance_seen: float
    importance_kept: float


def choose(codes: NDArray[np.uint64], wanted: int, importance: NDArray[np.float64] | None = None) -> Choice:
    """Choose so many of a tick's rows, the least important shed first; `codes` are hashes of the rows.

    >>> chosen = choose(np.arange(10, dtype=np.uint64), 5, np.arange(10.0))
    >>> chosen.rows[-4:].tolist(), len(chosen.rows)
    ([6, 7, 8, 9], 5)
    """
    rows = len(codes)
    weights = np.ones(rows) if importance is None else importance
    seen = float(weights.sum())
    if wanted >= rows:
        return Choice(np.arange(rows), np.ones(rows), seen, seen)
    drawn = wanted if importance is None else min(wanted, max(1, round(FLOOR * wanted))) if wanted > 0 else 0
    sure, rest = _split(weights, codes, max(0, wanted) - drawn)
    # mixed anew: among equal importance the codes have already decided
    sample = rest[_least(mix(codes[rest] ^ np.uint64(0xA5A5A5A5A5A5A5A5)), drawn)]
    kept = np.concatenate([sure, sample])
    probability = np.concatenate([np.ones(len(sure)), np.full(drawn, drawn / max(1, len(rest)))])
    by_place = np.argsort(kept)
    kept, probability = kept[by_place], probability[by_place]
    return Choice(kept, probability, seen, float(weights[kept].sum()))


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
