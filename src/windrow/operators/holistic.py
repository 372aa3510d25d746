"""Aggregates that need all values of a group at once: LIST, MODE, CORR, ARG_MAX and the like.

No partial result of fixed size can be added to or taken from, so a group in which rows come or go is computed anew from
its rows, by the scalar engine, for all groups and instants of an advance together; one row per group is shown, and
sent when it changes. State and cost are those of `analytic`: the rows of the groups, and for each group that changes
its rows once per instant at which it does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.analytic import INSTANT, AnalyticOperator
from windrow.operators.elements import Elements
from windrow.operators.keys import factorize


class HolisticOperator(AnalyticOperator):
    """One row for every group that has rows: its keys and the values of some aggregates."""

    def _carries(self) -> tuple[str, ...]:
        return self.partition

    def _codes(self, rows: Elements, slots: Int64s, shown: Elements, was: Int64s) -> tuple[Int64s, Int64s]:
        codes, _ = factorize([pa.array(slots), *(rows.columns[c] for c in self.types)], len(rows))
        return codes, was

    def _entries(
        self, rows: Elements, codes: Int64s, slots: Int64s, row: Int64s, places: Mapping[str, Int64s]
    ) -> tuple[Int64s, Int64s, list[pa.Array]]:
        at, picks = places[INSTANT], pa.array(row)
        columns = {c: rows.columns[c].take(picks) for c in self._reads} | {INSTANT: pa.array(at)}
        wanted = [(f.sql, f.type) for _, f in self.calls]
        groups, values = scalar.aggregated(columns, len(row), INSTANT, wanted)
        first = np.zeros(int(at.max()) + 1 if len(at) else 0, np.int64)
        first[at[::-1]] = np.arange(len(at) - 1, -1, -1)
        return first[groups], slots[row[first[groups]]], values
