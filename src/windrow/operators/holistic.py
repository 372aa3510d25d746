"""Aggregates that need all values of a group at once: LIST, MODE, CORR, ARG_MAX and the like.

No partial result of fixed size can be added to or taken from, so a group in which rows come or go is computed anew from
its rows, by the scalar engine, for all groups and instants of an advance together; one row per group is shown, and
sent when it changes. State and cost are those of `analytic`: the rows of the groups, and for each group that changes
its rows once per instant at which it does. Rows are gathered for some instants at a time (`PIECE`), and what an advance
answers is bounded (`MOST`): a long list at each of many instants is more than anybody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.analytic import INSTANT, AnalyticOperator
from windrow.operators.elements import Elements
from windrow.operators.keys import factorize
from windrow.scalar_engine import made, shown

PIECE = 64 << 20
"""Bytes of rows, and of what calls make of them, that are gathered at a time."""

MOST = 1 << 30
"""Bytes of the values of an advance."""


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
        at = places[INSTANT]
        wanted = [(f.sql, f.type) for _, f in self.calls]
        found, size = [], 0
        for piece in self._pieces(rows, at):
            picks = pa.array(row[piece])
            columns = {c: rows.columns[c].take(picks) for c in self._reads} | {INSTANT: pa.array(at[piece])}
            found.append(scalar.aggregated(columns, len(picks), INSTANT, wanted))
            size += sum(v.nbytes for v in found[-1][1])
            if size > MOST:
                raise RuntimeFailure(
                    f"aggregates make more than {MOST >> 30} GB of values at once",
                    detail="; ".join(shown(sql) for sql, _ in wanted),
                    hint="shorten the window, write a SLIDE, so that fewer instants are answered, or aggregate less",
                )
        groups = np.concatenate([g for g, _ in found])
        values = [pa.concat_arrays(list(v)) for v in zip(*(v for _, v in found), strict=True)]
        first = np.zeros(int(at.max()) + 1 if len(at) else 0, np.int64)
        first[at[::-1]] = np.arange(len(at) - 1, -1, -1)
        return first[groups], slots[row[first[groups]]], values

    def _pieces(self, rows: Elements, at: Int64s) -> Iterator[Int64s | slice]:
        """Which entries are computed together: those of whole instants, in the order of these if there are several."""
        each = sum(made(f.sql) for _, f in self.calls)
        each += sum(rows.columns[c].nbytes for c in self._reads) // max(1, len(rows))
        together = max(1, PIECE // max(1, each))
        if len(at) <= together:
            yield slice(None)
            return
        order = np.argsort(at, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(at[order])) + 1, len(at))  # behind the rows of each instant
        begin = 0
        while begin < len(at):
            last = np.searchsorted(ends, begin + together, side="right") - 1
            end = (
                int(ends[last])
                if last >= 0 and ends[last] > begin
                else int(ends[np.searchsorted(ends, begin, "right")])
            )
            yield order[begin:end]
            begin = end
