"""What aggregates of many queries at once have in common: groups, sets of queries, lanes, and what HAVING asks for.

Rows come once, with the set of queries that want them (`route.py`). Partials are lanes of integers, of which the first
counts rows (`aggregates/sums.py`), so they add up in any order and are taken back exactly. What is kept of them, and by
what, is up to the operators (`cell_aggregate.py`, `length_aggregate.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import ldexp

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import MOMENTS
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.pending import PendingEnds, RowEnds
from windrow.operators.aggregates.reduced import ReducedInput, Reduction, is_reduced, laid_out, row_weights
from windrow.operators.aggregates.sums import SumLanes, Sums, relaid
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import BEGINNING, Elements, concat_arrays, one
from windrow.operators.protocol import State
from windrow.operators.query_sets import QuerySets
from windrow.operators.state.run import Run, ints
from windrow.operators.terms import QUERIES, QUERY, Router

CELL = "cell'"
"""The column of rows that wait for their end in which their cell is."""

Bounds = tuple[np.ndarray, Int64s, np.ndarray, np.ndarray]


class QueryAggregate(ReducedInput):
    """GROUP BY for the queries of `router`; `having`: which of their answers are wanted, if that is tested."""

    def __init__(
        self, keys: Sequence[str], aggregations: Sequence[Aggregation], types: Mapping[str, pa.DataType], router: Router
    ) -> None:
        super().__init__()
        self.keys, self.aggregations = tuple(keys), tuple(aggregations)
        self.having: Router | None = None
        self._types = types
        self._groups = Groups([types[k] for k in keys])
        self._sets = QuerySets(router.queries)
        self._sums = {c: self._lanes_of(c, types) for c in dict.fromkeys(a.column for a in aggregations) if c}
        self._layouts = [SumLanes() for _ in self._sums]
        self._pending = PendingEnds("calendar")
        self._saved: dict[str, tuple[Run, ...]] = {}
        self._known: Bounds | None = None

    def _lanes_of(self, column: str, types: Mapping[str, pa.DataType]) -> Sums:
        kinds = {a.kind for a in self.aggregations if a.column == column}
        return Sums(types[column], kinds != {"count"}, bool(kinds & MOMENTS))

    @cached_property
    def reduction(self) -> Reduction:
        """How rows may be reduced before they come here."""
        return Reduction((*self.keys, QUERIES), self.aggregations, self._types, True)

    def follow(self, other: QueryAggregate) -> None:
        """Go on for the queries of another, which has not begun: what those had that are gone is forgotten."""
        self.having, self._known = other.having, None
        self._sets.only(other._sets.numbers)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """The stretches of constant answer that begin, and the ends of those sent before."""
        raise NotImplementedError

    # -- state -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The groups, the sets of queries, what else is kept, the rows that wait for their end, and the clock."""
        if not self._saved:
            slots = self._groups.slots
            keys = {f"key|{k}": c for k, c in zip(self.keys, self._groups.keys(slots), strict=True)}
            groups = Run(pa.table({"_slot": pa.array(slots), **keys}))
            kept = {"groups": groups, "sets": Run(self._sets.table()), **self._kept()}
            self._saved = {name: (run,) for name, run in kept.items()}
        clock = Run(pa.table({"start": [self._start]}))
        return {**self._saved, **super().state(), "pending": self._pending.runs(), "clock": (clock,)}

    def _kept(self) -> dict[str, Run]:
        """What is kept beside the rows."""
        return {}

    def restore(self, state: State, frontier: int = BEGINNING) -> None:
        """Go on from a state."""
        super().restore(state, frontier)
        self._saved = {name: runs for name, runs in state.items() if name not in ("pending", "clock", "early")}
        groups, sets, clock = (state[name][0].table for name in ("groups", "sets", "clock"))
        self._start = int(ints(clock, "start")[0])
        self._groups.restore(ints(groups, "_slot"), [one(groups.column(f"key|{k}")) for k in self.keys])
        self._sets.restore(sets)
        self._pending.restore(state["pending"], frontier)

    # -- lanes -------------------------------------------------------------------------------------------------------

    def _matrix(self, rows: Sequence[Elements | RowEnds]) -> Int64s:
        """The lanes of rows, one after the other; lane 0 counts them."""
        blocks, lengths = [r.columns for r in rows], [len(r) for r in rows]
        if any(map(is_reduced, blocks)):
            weights = row_weights(blocks, lengths, self._sums)
            found = [weights.rows[:, None], *(laid_out(s, *weights.lanes[c]) for c, s in self._sums.items())]
        else:
            found = [np.ones((sum(lengths), 1), np.int64)]
            for column, sums in self._sums.items():
                parts = [b[column] for b in blocks]
                found.append(sums.lift(concat_arrays([p for p in parts if len(p)] or parts[:1])))
        layouts = [s.layout for s in self._sums.values()]
        if layouts != self._layouts:
            self._widened(layouts)
        return np.concatenate(found, axis=1) if len(found) > 1 else found[0]

    def _widened(self, layouts: Sequence[SumLanes]) -> None:
        """Have the lanes of other layouts, too."""
        self._kept_lanes([self._relaid(lanes, layouts) for lanes in self._kept_lanes()])
        self._layouts, self._known = list(layouts), None

    def _kept_lanes(self, now: Sequence[Int64s] | None = None) -> Sequence[Int64s]:
        """The arrays of lanes that are kept; those that are given in their place."""
        raise NotImplementedError

    def _relaid(self, lanes: Int64s, layouts: Sequence[SumLanes]) -> Int64s:
        at, parts = 1, [lanes[:, :1]]
        for old, new in zip(self._layouts, layouts, strict=True):
            parts.append(relaid(lanes[:, at : at + old.width], old, new))
            at += old.width
        return np.concatenate(parts, axis=1)

    @property
    def _width(self) -> int:
        return 1 + sum(layout.width for layout in self._layouts)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _places(self) -> dict[str, tuple[SumLanes, int]]:
        """The layout of every column's lanes, and where they begin."""
        at, found = 1, {}
        for column, layout in zip(self._sums, self._layouts, strict=True):
            found[column] = (layout, at)
            at += layout.width
        return found

    def _shown(self) -> Int64s:
        """The lanes in which answers differ if they differ."""
        rows = any(a.column is None or a.kind != "sum" for a in self.aggregations)
        rows |= any(layout.nulls for layout in self._layouts) or not self._sums
        return np.arange(0 if rows else 1, self._width)

    def _bounds(self) -> Bounds:
        """What HAVING surely asks for: measures as weights of lanes, whether they are means, their least and most."""
        if self._known is None:
            self._known = self._asked_for()
        return self._known

    def _asked_for(self) -> Bounds:
        both = ((self._measure(a), self._asked(a)) for a in self.aggregations)
        found = [(m, b) for m, b in both if m is not None and b is not None]
        weights = np.array([m[0] for m, _ in found], np.float64).reshape(len(found), self._width)
        counted = np.array([m[1] for m, _ in found], np.int64)
        queries = len(self._sets.numbers)
        low, high = (
            np.stack([b[k] for _, b in found], axis=1) if found else np.zeros((queries, 0)) for k in (0, 1)
        )  # fmt: skip
        return weights, counted, low, high

    def _asked(self, call: Aggregation) -> tuple[np.ndarray, np.ndarray] | None:
        """The bounds of a call by the places of those who are told apart."""
        return None if self.having is None else self.having.bounds(call.output, self._sets.numbers)

    def _measure(self, call: Aggregation) -> tuple[list[float], int] | None:
        """A call's answer as a sum of weighted lanes, over the rows counted by a lane if it is a mean; None if not."""
        weights = [0.0] * self._width
        if call.column is None:
            return [1.0, *weights[1:]], -1
        layout, at = self._places()[call.column]
        if call.kind == "count":
            weights[0] = 1.0
            if layout.nulls:
                weights[at] = -1.0
            return weights, -1
        if call.kind not in ("sum", "avg") or layout.specials or pa.types.is_temporal(call.type):
            return None
        type_ = self._sums[call.column].type
        scale = 10.0**type_.scale if pa.types.is_decimal(type_) else 1.0
        for k in range(*layout.sums):
            power = 32 * k - (1074 if pa.types.is_floating(type_) else 0)
            if power > 900:
                return None
            weights[at + layout.sums_at + k - layout.sums[0]] = ldexp(1.0, power) / scale
        return weights, (at if layout.nulls else 0) if call.kind == "avg" else -1

    def _output(self, stretches: Int64s, lanes: Int64s) -> Elements:
        query, group, ts, exp, sign = stretches.T
        columns = dict(zip(self.keys, self._groups.keys(group), strict=True))
        columns[QUERY] = pa.array(self._sets.numbers[query].astype(np.int32))
        rows, everything = lanes[:, 0], np.arange(len(lanes))
        for call in self.aggregations:
            if call.column is None:
                columns[call.output] = pa.array(rows).cast(call.type)
            else:
                layout, at = self._places()[call.column]
                lowering = Lowering(lanes, layout, self._sums[call.column].type, rows, at)
                columns[call.output] = lowering.answer(call).build(everything)
        return Elements(np.ascontiguousarray(ts), np.ascontiguousarray(exp), sign.astype(np.int8), columns)
