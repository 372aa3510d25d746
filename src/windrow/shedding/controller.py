"""How much to shed when ticks take too long, and which rows.

The controller holds one number, the rows that fit a tick's budget (`capacity`; unknown until a tick has been too long).
After each tick it corrects the number by the ratio of the time wanted to the time taken. Too long: at once. Short
enough: by at most `GROWTH` per tick, so that one quick tick does not open the gate. Ticks aim at `AIM` of the budget.
It is a controller, not a switch: with a load that stays the same it settles, and when the load passes it keeps
everything again, and forgets.

    tick time = fixed + cost * rows: the correction is a fixed-point iteration that contracts by fixed / (fixed + cost *
    rows) per tick

Rows are chosen by importance: the most important are kept for certain, and of the rest a few are drawn (`FLOOR` of what
is kept), each with the same known probability, so that sums over a shed stream can still be scaled without bias
(`estimate.py`). Without importance all rows are drawn alike.

Nothing here reads a clock or rows: time and counts are given, so that a simulation can run it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

AIM = 0.9
GROWTH = 1.5
FLOOR = 0.05
ROOM = 0.75


@dataclass
class Controller:
    """Decides which share of a tick's rows to keep, from what earlier ticks took. `budget` is in seconds."""

    budget: float
    capacity: float | None = field(default=None, init=False)

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

    def observe(self, arrived: int, kept: int, seconds: float) -> None:
        """Learn from a tick: rows that came, rows that were processed, and how long it took."""
        aim = AIM * self.budget
        if kept == 0 or seconds <= 0:
            return
        fits = kept * aim / seconds
        if seconds > self.budget:
            self.capacity = fits
        elif self.capacity is not None:
            self.capacity = min(max(fits, self.capacity if seconds <= aim else 0.0), self.capacity * GROWTH)
        if self.capacity is not None and kept == arrived and arrived <= ROOM * self.capacity:
            self.capacity = None  # the load has passed: all rows fit with room to spare


@dataclass(frozen=True)
class Choice:
    """Which rows of a tick are kept: their positions in order, and the probability with which each was kept."""

    rows: NDArray[np.int64]
    probability: NDArray[np.float64]
    importance_seen: float
    importance_kept: float


def choose(
    rows: int, share: float, importance: NDArray[np.float64] | None = None, *, seed: int = 0, tick: int = 0
) -> Choice:
    """Choose a share of a tick's rows, the least important shed first; the same arguments choose the same rows.

    >>> chosen = choose(10, 0.5, np.arange(10.0))
    >>> chosen.rows[-4:].tolist(), len(chosen.rows)
    ([6, 7, 8, 9], 5)
    """
    weights = np.ones(rows) if importance is None else importance
    seen = float(weights.sum())
    wanted = min(rows, int(np.ceil(share * rows)))
    if wanted >= rows:
        return Choice(np.arange(rows), np.ones(rows), seen, seen)
    generator = np.random.Generator(np.random.Philox(key=[seed, tick]))
    drawn = wanted if importance is None else min(wanted, max(1, round(FLOOR * wanted))) if wanted else 0
    # equal importance is ordered at random, so that no place in the tick is favoured
    order = np.lexsort((generator.random(rows), weights))
    sure, rest = order[rows - (wanted - drawn) :], order[: rows - (wanted - drawn)]
    sample = generator.choice(rest, drawn, replace=False) if drawn else rest[:0]
    kept = np.concatenate([sure, sample])
    probability = np.concatenate([np.ones(len(sure)), np.full(drawn, drawn / max(1, len(rest)))])
    by_place = np.argsort(kept)
    kept, probability = kept[by_place], probability[by_place]
    return Choice(kept, probability, seen, float(weights[kept].sum()))
