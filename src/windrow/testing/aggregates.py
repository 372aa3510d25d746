"""Aggregates that DuckDB lacks or leaves to the order of rows, defined on the list of a group's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

import duckdb
import pyarrow as pa

from windrow.testing.tokens import Tokens, closing, is_at

TOP_K = """
CREATE MACRO __top_k(l, k) AS list_transform(list_slice(list_sort(list_transform(
    list_filter(l, lambda v, i: len(list_filter(l[:i - 1], lambda w: w = v)) = 0), lambda v:
    {n: -len(list_filter(l, lambda w: w = v)), v: v})), 1, k), lambda s: s.v)
"""


def variance(values: Sequence[float] | None, sample: bool) -> float | None:
    """The variance, computed exactly and rounded once: equal data give equal answers in any order.

    Of several values one of which is not finite it is NaN; of one, as DuckDB has it, 0 whatever the value.

    >>> variance([1.0, 2.0, 3.0], sample=True), variance([1.0], sample=True), variance([math.nan], sample=False)
    (1.0, None, 0.0)
    """
    if values is None or len(values) <= sample:
        return None
    if len(values) == 1:
        return 0.0
    if not all(math.isfinite(v) for v in values):
        return math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    return float(sum((v - mean) ** 2 for v in exact) / (len(exact) - sample))


def deviation(values: Sequence[float] | None, sample: bool) -> float | None:
    """The square root of the variance."""
    squared = variance(values, sample)
    return None if squared is None else math.sqrt(squared)


def _each(function: Callable[[Sequence[float] | None, bool], float | None], sample: bool) -> Callable[..., pa.Array]:
    """A function over the groups of a column; in Arrow, for DuckDB takes a NaN that Python returns for a null."""
    return lambda groups: pa.array([function(v, sample) for v in groups.to_pylist()], pa.float64(), from_pandas=False)


VARIANCES = {
    "__var_samp": _each(variance, True),
    "__var_pop": _each(variance, False),
    "__stddev_samp": _each(deviation, True),
    "__stddev_pop": _each(deviation, False),
}


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    found = duckdb.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'")
    return frozenset(str(name).upper() for (name,) in found.fetchall()) | {
        "TOP_K",
        "FREQUENT",
        "FREQUENT_DELTA",
        "APPROX_TOP_K",
    }


def calls_aggregate(tokens: Tokens) -> bool:
    """Whether a select list has an aggregate, outside of subqueries and window functions."""
    for i in (i for i, t in enumerate(tokens) if t.upper in _names() and is_at(tokens, i + 1, "(")):
        end = closing(tokens, i + 1) + 1
        end = closing(tokens, end + 1) + 1 if is_at(tokens, end, "FILTER", "(") else end
        inside = any(t.upper == "SELECT" and _around(tokens, k, i) for k, t in enumerate(tokens))
        if not is_at(tokens, end, "OVER") and not inside:
            return True
    return False


def _around(tokens: Tokens, select: int, i: int) -> bool:
    """Whether the subquery whose SELECT is at `select` holds the token at `i`."""
    return select > 0 and tokens[select - 1].text == "(" and select < i < closing(tokens, select - 1)
