"""Before the kernels: which rows of a batch a gate lets through.

A gate is a tick budget with the importance it weighs rows by (`gate_of`); queries that say the same share one, and see
the same rows. The driver gives a gate a quota per stream, the rows that one task may keep; none means all. A task that
has more rows than its quota keeps the most important ones and draws a few of the others (`controller.choose`), and
reports what it saw and kept. Quotas are counts, not shares, so that a batch which is larger than anybody expected does
not take longer for it.

Law: what is kept depends on the rows and the quota alone, so a task that is run again keeps the same.
Cost: a hash and a partial sort of the rows, and one pass over the columns kept; nothing without a quota.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.errors import SourceError
from windrow.operators import scalar
from windrow.operators.keys import hash_rows
from windrow.plan.nodes import TickBudget
from windrow.plan.weights import WEIGHT
from windrow.runtime.controller import choose

Ints = NDArray[np.int64]
Columns = Mapping[str, pa.Array]
Quotas = Mapping[str, Mapping[str, int]]
"""By gate and stream: the rows a task may keep."""


@dataclass(frozen=True)
class Admission:
    """What one task saw and kept of a stream's rows; `first` and `last` are the times of what was shed."""

    gate: str
    stream: str
    seen: int
    kept: int
    importance_seen: float
    importance_kept: float
    first: int | None = None
    last: int | None = None


def admit(
    gate: str, budget: TickBudget, stream: str, ts: Ints, columns: Columns, quota: int | None
) -> tuple[Ints, Columns, Admission]:
    """The rows that pass, with their weights, and what is to be reported."""
    importance = _importance(budget, stream, ts, columns)
    rows = len(ts)
    seen = float(rows) if importance is None else float(importance.sum())
    if quota is None or rows <= quota:
        return ts, unweighed(rows, columns), Admission(gate, stream, rows, rows, seen, seen)
    codes = hash_rows(list(columns.values()), rows).view(np.uint64)
    choice = choose(codes, quota, importance)
    picks = pa.array(choice.rows)
    shed = np.ones(rows, np.bool_)
    shed[choice.rows] = False
    first, last = int(ts[shed].min()), int(ts[shed].max())
    passed = {n: a.take(picks) for n, a in columns.items()} | {WEIGHT: pa.array(1.0 / choice.probability)}
    report = Admission(gate, stream, rows, len(choice.rows), seen, choice.importance_kept, first, last)
    return ts[choice.rows], passed, report


def unweighed(rows: int, columns: Columns) -> Columns:
    """All rows, each standing for itself."""
    return {**columns, WEIGHT: pa.array(np.ones(rows))}


def _importance(budget: TickBudget, stream: str, ts: Ints, columns: Columns) -> NDArray[np.float64] | None:
    expr = next((e for s, e in budget.importance if s.lower() == stream), None)
    if expr is None or not len(ts):
        return None
    if expr.column is not None:
        found = columns[expr.column].cast(pa.float64())
    else:
        reads = {c: columns[c] for c in expr.columns}
        (found,) = scalar.evaluate(reads, len(ts), [(f"CAST({expr.sql()} AS DOUBLE)", pa.float64())])
    values: NDArray[np.float64] = found.to_numpy(zero_copy_only=False)
    _check(values, stream, ts)
    return values


def _check(values: NDArray[np.float64], stream: str, ts: Ints) -> None:
    """Importance is a finite number above zero (paper, 2.1)."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))  # null reads as NaN
    if len(bad):
        first = int(bad[0])
        shown = "NULL" if np.isnan(values[first]) else f"{values[first]:g}"
        raise SourceError(
            f'importance {shown} in stream "{stream}"',
            detail=f"the row at time {int(ts[first])}; {len(bad)} such rows in this batch",
            hint="importance is a finite number greater than 0; compute it, as in IMPORTANCE coalesce(imp, 1)",
        )
