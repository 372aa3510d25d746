"""How much to shed when ticks take too long, and which rows.

    tick time = rest (fixed, and reading every row that comes) + cost * rows kept

Only the second part can be shed, so the time of the kernels is measured apart. The controller holds one number, the
rows that fit (`capacity`; unknown until a tick has been too long): after each tick it divides the time that the rest
leaves free, up to `AIM` of the budget, by the cost of a row. One odd tick does not decide: the rest is the second
greatest of the last five, the cost the median of the last three. Too long: at once. Short enough: by the square root
of the room, as if time grew with the square of the rows (joins do that), so that a quick tick does not open the gate
too far. It is a controller, not a switch: with a load that stays the same it settles, and when the load passes it keeps
everything again, and forgets.

The first tick of all may take long for other reasons (a cold start): if it does, it only lowers the gate to `FIRST`
rows and is forgotten. When the rest alone exceeds the budget, shedding cannot help; the kernels then get `LEAST` of it.

Rows are chosen by importance: the most important are kept for certain, and of the rest a few are drawn (`FLOOR` of what
is kept), each with the same known probability, so that sums over a shed stream can still be scaled without bias
(`estimate.py`). Without importance all rows are drawn alike. What is drawn depends on the rows' codes (hashes of their
values) alone, so a task that is run again keeps the same rows.

Nothing here reads a clock or rows: time and counts are given, so that a simulation can run it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windrow.operators.keys import mix

AIM = 0.85
LEAST = 0.1
GROWTH = 3.0
FIRST = 1000
FLOOR = 0.05
ROOM = 0.75


@dataclass
class Controller:
    """Decides how many of a tick's rows to keep, from what earlier ticks took. `budget` is in seconds."""

    budget: float
    capacity: float | None = None
    cold: bool = True  # no tick has been observed yet
    costs: tuple[float, ...] = ()  # seconds per row kept, of the last ticks
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

    def observe(self, arrived: int, kept: int, seconds: float, kernels: float | None = None) -> None:
        """Learn from a tick: rows that came, rows that were processed, and how long it took; `kernels`: the part of
        that time that grows with the rows kept, all of it if not given."""
        if kept == 0 or seconds <= 0:
            return
        spent = min(seconds, seconds if kernels is None else max(kernels, 1e-6))
        cold, self.cold = self.cold, False
        if cold and seconds > self.budget and kept * self.budget < FIRST * seconds:
            self.capacity = FIRST if arrived > FIRST else None
            return
        self.costs = (*self.costs[-2:], spent / kept)
        self.rests = (*self.rests[-4:], seconds - spent)
        rest = sorted(self.rests)[-2:][0]
        free = max(AIM * self.budget - rest, LEAST * self.budget)
        fits = free / float(np.median(self.costs))
        if self.capacity is None:
            if seconds > self.budget:
                self.capacity = max(1.0, fits)
        elif fits < self.capacity:
            # a tick within its budget that kept all it got says little of more rows
            self.capacity = max(1.0, fits) if seconds > self.budget or kept < arrived else self.capacity
        else:
            self.capacity = max(self.capacity, kept * min(GROWTH, max(1.0, fits / kept) ** 0.5))
        if self.capacity is not None and kept == arrived and arrived <= ROOM * self.capacity:
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
