"""Scaled aggregates over a sampled stream, from their definition: what weighted aggregates must agree with.

Row i was kept with probability p_i (all the same when rows are shed uniformly; 1 for rows too important to be shed), so
the Horvitz-Thompson sums are unbiased:

    COUNT ~ sum of 1 / p_i        SUM(x) ~ sum of x_i / p_i        AVG(x) ~ SUM / COUNT

and the variance of a sum of y is estimated by the sum of y_i^2 (1 - p_i) / p_i^2 over the kept rows (Poisson sampling).
AVG is a ratio: its variance is that of the sum of (x_i - AVG), over COUNT squared. A bound is z standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A scaled aggregate: the value, and how far from the truth it may be (`z` standard errors)."""

    value: float
    bound: float

    @property
    def interval(self) -> tuple[float, float]:
        return self.value - self.bound, self.value + self.bound

    @property
    def exact(self) -> bool:
        return self.bound == 0.0


def scaled_count(kept: Floats, z: float = 1.96) -> Estimate:
    """COUNT of all rows, from the probability with which each kept row was kept.

    >>> scaled_count(np.array([0.5, 0.5, 1.0])).value
    5.0
    """
    return scaled_sum(np.ones(len(kept)), kept, z)


def scaled_sum(values: Floats, kept: Floats, z: float = 1.96) -> Estimate:
    """SUM over all rows, from the kept rows' values and the probabilities with which they were kept."""
    _check(values, kept)
    weighted = values / kept
    variance = float((weighted**2 * (1.0 - kept)).sum())
    return Estimate(math.fsum(weighted), z * math.sqrt(variance))


def scaled_average(values: Floats, kept: Floats, z: float = 1.96) -> Estimate | None:
    """AVG over all rows; None when no row was kept."""
    _check(values, kept)
    if not len(values):
        return None
    count = math.fsum(1.0 / kept)
    average = math.fsum(values / kept) / count
    residual = (values - average) / kept
    return Estimate(average, z * math.sqrt(float((residual**2 * (1.0 - kept)).sum())) / count)


def shares(seen: Sequence[int], kept: Sequence[int]) -> Floats:
    """The probability of each class of rows to be kept, from its counts; a class of which nothing came or nothing
    stayed has 1 and 0.

    >>> shares([10, 4, 0], [5, 4, 0]).tolist()
    [0.5, 1.0, 1.0]
    """
    total = np.asarray(seen, np.float64)
    return np.divide(np.asarray(kept, np.float64), total, out=np.ones(len(total)), where=total > 0)


def _check(values: Floats, kept: Floats) -> None:
    if len(values) != len(kept):
        raise ValueError(f"{len(values)} values, {len(kept)} probabilities")
    if len(kept) and not ((kept > 0) & (kept <= 1)).all():
        raise ValueError("a kept row was kept with a probability in (0, 1]")
