"""What a tick has to do, from the rows that were kept and the times they are of.

Work is not done when rows come, but when the frontier, or for a periodic query the next evaluation, has passed them;
and in a join a row meets what windows hold then, which was let in earlier. So the rows kept are remembered by their
time, as a line of pieces of even density, and the work of any stretch of time can be told: the rows in it, and their
pairs with the rows within reach before them. The same line, drawn on at some density, tells the work of ticks to come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PAST = 60
"""Pieces remembered."""

_PARTS = 8
"""A stretch is looked at in so many parts."""


@dataclass(frozen=True)
class KeptRows:
    """Rows kept, by their time: `rows[i]` lie evenly in `(ends[i], ends[i + 1]]`."""

    ends: tuple[float, ...] = ()
    rows: tuple[float, ...] = ()

    def plus(self, end: float, rows: float) -> KeptRows:
        """With rows up to `end`; without new time they go to the last piece."""
        if not self.ends:
            return KeptRows((end - 1, end), (rows,))
        if end <= self.ends[-1]:
            return KeptRows(self.ends, (*self.rows[:-1], self.rows[-1] + rows))
        return KeptRows((*self.ends[-PAST:], end), (*self.rows[-PAST + 1 :], rows))

    def work(self, low: float, high: float, reach: float) -> tuple[float, float]:
        """Rows of `(low, high]`, and their pairs with rows of the `reach` before each.

        >>> KeptRows((0, 10, 20), (100, 100)).work(10, 20, 5)
        (100.0, 5000.0)
        """
        if high <= low or not self.rows:
            return 0.0, 0.0
        at = np.linspace(low, high, _PARTS + 1)
        middle = (at[1:] + at[:-1]) / 2
        rows = np.diff(self._until(at))
        return float(rows.sum()), float((rows * (self._until(middle) - self._until(middle - reach))).sum())

    def _until(self, times: np.ndarray) -> np.ndarray:
        return np.interp(times, self.ends, np.concatenate(([0.0], np.cumsum(self.rows))))


@dataclass(frozen=True)
class Pace:
    """How time passes: by how much a batch moved time on, and how long it was until the next, of the last ticks."""

    past: tuple[tuple[float, float], ...] = ()

    def plus(self, span: float, seconds: float) -> Pace:
        return Pace((*self.past[-9:], (span, seconds)))

    @property
    def speed(self) -> float:
        """Stream time per second."""
        return sum(s for s, _ in self.past) / sum(w for _, w in self.past)

    def after(self, seconds: float) -> float:
        """The stream time that a batch brings after a tick of so many seconds; it has one unit of arrival at least."""
        return max(min(s for s, _ in self.past[-5:]), self.speed * seconds)


def reached(time: float, period: int) -> float:
    """The time up to which work is done when the frontier is at `time`."""
    return time // period * period
