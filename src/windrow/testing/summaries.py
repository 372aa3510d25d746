"""FREQUENT by its definition (thesis 6.2), and APPROX_QUANTILE by its digests, over values with their slices.

A slice (basic window) is what a window holds from one evaluation to another: rows that are always seen together. In a
window of rows it is `slide` consecutive rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa

from windrow.testing.bags import grouping_key, sort_key
from windrow.testing.lifetimes import OracleWindow
from windrow.testing.tokens import Tokens, is_at

SUMMARISED = frozenset({"FREQUENT", "FREQUENT_DELTA", "APPROX_QUANTILE"})
EXACT = {"APPROX_TOP_K": "TOP_K"}
"""Sketches that are exact for as few values as tests have."""
SLICE = "__slice"
"""The column that says which slice a row lies in."""

FREQUENT = """
CREATE MACRO __frequent(l, s, k, t) AS list_transform(
    __frequent_at(l, s, k, t), lambda r: {value: l[r.i], at_least: r.low, at_most: r.high})
"""


def summarises(tokens: Tokens) -> bool:
    """Whether an expression has an aggregate that looks at slices."""
    return any(t.upper in SUMMARISED and is_at(tokens, i + 1, "(") for i, t in enumerate(tokens))


def slices(
    window: OracleWindow,
    period: tuple[int, int] | None,
    groups: Sequence[Hashable],
    ends: Sequence[tuple[int, int]],
) -> list[int]:
    """The number of each row's slice."""
    if window.rows is not None:
        seen: Counter[Hashable] = Counter()
        found: list[Hashable] = []
        for group in groups:
            seen[group] += 1
            found.append((group, -(-seen[group] // (window.slide or 1))))
    else:
        step, offset = period or (1, 0)
        found = [tuple(-((offset - t) // step) for t in both) for both in ends]
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in found]


def frequent(values: Sequence[Any], slice_of: Sequence[int], k: int) -> tuple[int, dict[Hashable, tuple[int, int]]]:
    """Delta, and for each value of a summary its counter and the greatest count that it may have.

    >>> frequent(["a", "a", "b", "a", "c", "c"], [0, 0, 0, 1, 1, 1], 1)
    (4, {'a': (2, 4), 'c': (2, 4)})
    """
    inside: dict[int, Counter[Hashable]] = {}
    shown: dict[Hashable, Any] = {}
    for value, number in zip(values, slice_of, strict=True):
        inside.setdefault(number, Counter())[grouping_key(value)] += 1
        shown.setdefault(grouping_key(value), value)
    delta, counter, covered = 0, Counter[Hashable](), Counter[Hashable]()
    for counts in inside.values():
        best = sorted(counts, key=lambda v: (-counts[v], sort_key(shown[v])))
        least = counts[best[k - 1]] if len(best) > k else 0
        delta += least
        for value in best[:k]:
            counter[value] += counts[value]
            covered[value] += least
    return delta, {v: (n, n + delta - covered[v]) for v, n in counter.items()}


def _frequent_at(values: Sequence[Any], slice_of: Sequence[int], k: int, threshold: Any) -> list[dict[str, int]]:
    """The values above delta and the threshold, by the place of one of their occurrences."""
    delta, found = frequent(values, slice_of, k)
    place = {grouping_key(v): i + 1 for i, v in reversed(list(enumerate(values)))}
    enough = threshold if isinstance(threshold, int) else float(threshold) * len(values)
    above = [v for v, (low, _) in found.items() if low > delta and low > enough]
    above.sort(key=lambda v: (-found[v][0], sort_key(values[place[v] - 1])))
    return [{"i": place[v], "low": found[v][0], "high": found[v][1]} for v in above]


def approx_quantile(values: Sequence[Any], slice_of: Sequence[int], fraction: Any, _: Any) -> float | None:
    """The quantile of the t-digests of slices, each of its finite values in order, merged in the order of slices."""
    whole = datasketches.tdigest_double(1000)
    inside: dict[int, list[float]] = {}
    for value, number in zip(values, slice_of, strict=True):
        if math.isfinite(float(value)):
            inside.setdefault(number, []).append(float(value))
    for number in sorted(inside):
        part = datasketches.tdigest_double(1000)
        part.update(np.sort(np.array(inside[number])))
        part.compress()
        whole.merge(part)
    return None if whole.is_empty() else float(whole.get_quantile(float(fraction)))


def by_row(function: Callable[..., Any], returns: pa.DataType) -> Callable[..., pa.Array]:
    """A function of lists (null: none) and numbers as DuckDB calls it."""

    def call(*columns: Any) -> pa.Array:
        rows = zip(*(c.to_pylist() for c in columns), strict=True)
        return pa.array([function(v or [], s or [], *rest) for v, s, *rest in rows], returns)

    return call


_PAIRS = pa.list_(pa.struct([("i", pa.int64()), ("low", pa.int64()), ("high", pa.int64())]))
FUNCTIONS = {
    "__frequent_at": (by_row(_frequent_at, _PAIRS), "STRUCT(i BIGINT, low BIGINT, high BIGINT)[]"),
    "__approx_quantile": (by_row(approx_quantile, pa.float64()), "DOUBLE"),
    "__frequent_delta": (by_row(lambda v, s, k, _: frequent(v, s, k)[0], pa.int64()), "BIGINT"),
}
