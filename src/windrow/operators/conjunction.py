"""Which rows satisfy all of some predicates: the dear ones are asked only of the rows that the others leave.

Conjuncts are asked in ascending order of rank (selectivity - 1) / cost, the order that costs least for independent
ones (TR CS-2003-01 section 6 leaves dear predicates of joins open). Both are measured, on the first rows of a batch
and again from time to time. Cheap ones are asked together: cutting rows costs more than they do.

This is the one place where conjuncts are put in order: selections, and what joins ask beyond equalities, end here. User
functions are asked above joins and behind every predicate that cannot raise (`optimize/pushdown_predicates.py`), and
keep the order in which they are written, since one may guard the next.

Law: only predicates that are known to raise on no row (`total`) are asked of fewer rows; the others see all of them, so
that neither what a batch holds nor how long anything took decides whether a query fails.
Cost: small batches, one evaluation; others, a measure of `SAMPLE` rows in `AGAIN` batches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from time import thread_time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators import scalar

LARGE, SAMPLE, AGAIN = 4096, 1024, 64
"""Rows of a batch in which an order pays, rows on which it is measured, batches for which a measure holds."""

DEAR = 2e-7
"""Seconds a row, from which on a predicate is asked by itself."""

KNOWN = 256
"""Conjunctions whose order is remembered."""

_orders: OrderedDict[tuple[str, ...], MeasuredOrder] = OrderedDict()


@dataclass
class MeasuredOrder:
    """Predicates in the order of their ranks, those that are cheap together, and for how many batches it holds."""

    steps: tuple[tuple[str, ...], ...]
    batches: int = AGAIN


def holds(
    columns: Mapping[str, pa.Array], length: int, predicates: Sequence[str], total: Collection[str] = ()
) -> NDArray[np.bool_]:
    """Where all predicates are true (not false, not null); those in `total` may be put in order.

    >>> holds({"a": pa.array([1, None, 3])}, 3, ['"a" > 1']).tolist()
    [False, False, True]
    """
    if length < LARGE or len(predicates) < 2 or not total:
        return _all_hold(columns, length, predicates)
    steps = _steps(columns, tuple(predicates), total)
    found = _all_hold(columns, length, steps[0])
    for step in steps[1:]:
        left = np.flatnonzero(found)
        if not len(left):
            break
        at = pa.array(left)
        found[left] = _all_hold({n: c.take(at) for n, c in columns.items()}, len(left), step)
    return found


def ordered(figures: Mapping[str, tuple[float, float]], total: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Predicates by rank, given the share of rows that each keeps and its seconds a row; the cheap ones first.

    >>> figures = {"dear": (0.5, 1e-3), "cheap": (0.9, 1e-8), "keen": (0.1, 1e-3), "raises": (0.2, 1e-3)}
    >>> ordered(figures, {"dear", "cheap", "keen"})
    (('cheap', 'raises'), ('keen',), ('dear',))
    """
    first = tuple(p for p, (_, seconds) in figures.items() if seconds < DEAR or p not in total)
    dear = [p for p in figures if p not in first]
    dear.sort(key=lambda p: (figures[p][0] - 1) / figures[p][1])
    return (*((first,) if first else ()), *((p,) for p in dear))


def _steps(
    columns: Mapping[str, pa.Array], predicates: tuple[str, ...], total: Collection[str]
) -> tuple[tuple[str, ...], ...]:
    known = _orders.get(predicates)
    if known is not None and known.batches > 0:
        known.batches -= 1
        _orders.move_to_end(predicates)
        return known.steps
    few = {n: c.slice(0, SAMPLE) for n, c in columns.items()}
    figures = {}
    for p in predicates:
        kept = np.count_nonzero(_all_hold(few, SAMPLE, [p]))  # what is done once for an expression is done
        begin = thread_time()
        _all_hold(few, SAMPLE, [p])
        figures[p] = kept / SAMPLE, max((thread_time() - begin) / SAMPLE, 1e-12)
    _orders[predicates] = MeasuredOrder(ordered(figures, total))
    if len(_orders) > KNOWN:
        _orders.popitem(last=False)
    return _orders[predicates].steps


def _all_hold(columns: Mapping[str, pa.Array], length: int, predicates: Sequence[str]) -> NDArray[np.bool_]:
    sql = " AND ".join(f"({p})" for p in predicates)
    (array,) = scalar.evaluate(columns, length, [(f"coalesce(({sql}), false)", pa.bool_())])
    return np.array(array)
