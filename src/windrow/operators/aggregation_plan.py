"""Which inputs of an aggregation join aggregate early: measured, followed, described.

A plan is a string of bits, one per input: "00" aggregates late, "01" early on the second input, "11" on both. A running
operator can change its plan, because only the grain of the aggregation sets changes; the sets are carried over. Whoever
sees all partitions chooses (`runtime/join_choices.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregate_join_figures import PlanChoice, SideFigures
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import MOMENTS
from windrow.operators.aggregates.reduced import values_of
from windrow.operators.aggregation_sets import VALUE, AggregationSet, JoinSide
from windrow.operators.deltas import delta_schema
from windrow.operators.elements import BEGINNING, Elements
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.operators.keys import hash_rows
from windrow.operators.keytable import KeyTable
from windrow.operators.linear import Formula
from windrow.operators.sketch import DistinctSketch
from windrow.operators.statistics import InputStatistics, Seen, class_columns
from windrow.operators.table_versions import EPOCH, SINCE, UNTIL, TableVersions


class AggregationPlan:
    """The inputs of an aggregation join as aggregation sets under a plan."""

    def __init__(
        self,
        parts: Sequence[Part],
        equalities: Sequence[tuple[str, str, bool]],
        residual: Sequence[Formula],
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        *,
        period: int | None = None,
        plan: str | None = None,
        measures: bool = False,
        below: Mapping[int, str] | None = None,
    ) -> None:
        self.below = dict(below or {})  # for EXPLAIN: what an input was before it came here
        self.parts = tuple(Part(p.columns, p.strict, static=p.static) for p in parts)
        # an order that begins with a table is never followed; it is there because every input has one
        self._join = JoinOperator([Part(p.columns, p.strict) for p in self.parts], equalities, residual)
        self.classes = self._join.classes
        self.residual = tuple(residual)
        self.keys, self.aggregations, self.period = tuple(keys), tuple(aggregations), period
        self._owner = {c: i for i, p in enumerate(self.parts) for c in p.columns}
        self._versions = {i: TableVersions(p.columns) for i, p in enumerate(self.parts) if p.static}
        self._epoch = 0  # how often a table has changed
        types = {c: t for p in self.parts for c, t in p.columns.items()}
        self._sides = [self._side(p) for p in self.parts]
        self._tables = {members[0]: KeyTable({VALUE: types[members[0]]}) for members, _ in self.classes}
        self._coders = [self._coder(side) for side in self._sides]
        self.plan = plan or "1" * len(self.parts)
        if len(self.plan) != len(self.parts) or set(self.plan) - {"0", "1"}:
            raise ValueError(f"a plan for {len(self.parts)} inputs has as many bits, not {self.plan!r}")
        self.measures = measures and not plan
        self.sets = [
            AggregationSet(s, bit == "1", c) for s, bit, c in zip(self._sides, self.plan, self._coders, strict=True)
        ]
        self.schema = self._changed_types = delta_schema(self.keys, self.aggregations, types)
        self._grouping = [i for i, s in enumerate(self._sides) if s.group]
        self._values = values_of(self.aggregations)
        self._statistics = [InputStatistics(class_columns(self.classes, p.columns)) for p in self.parts]
        self._entries = [DistinctSketch() for _ in self.parts]
        self._matches = np.zeros((len(self.parts), 2))  # changes of each input, and the entries they met
        self._known = [(0.0, BEGINNING)] * len(
            self.parts
        )  # entries when a set was taken apart, and until when they count
        self._last = BEGINNING

    def _side(self, part: Part) -> JoinSide:
        mine = part.columns
        read = [c for f in self.residual for c in f.reads if c in mine]
        plain = [str(a.column) for a in self.aggregations if a.column in mine and not a.adds_up]
        sums: dict[str, tuple[bool, bool]] = {}
        for a in self.aggregations:
            if a.column in mine and a.adds_up:
                known = sums.get(str(a.column), (False, False))
                sums[str(a.column)] = (known[0] or a.kind != "count", known[1] or a.kind in MOMENTS)
        joined = tuple(c for members, _ in self.classes for c in members if c in mine)
        group = tuple(k for k in self.keys if k in mine)
        dates = () if not self._versions else (SINCE, UNTIL) if part.static else (EPOCH,)
        types = {**mine, **dict.fromkeys(dates, pa.int64())}
        return JoinSide(types, group, joined, tuple(dict.fromkeys((*read, *plain, *dates))), sums, part.strict)

    def _coder(self, side: JoinSide) -> dict[str, KeyTable]:
        return {c: self._tables[members[0]] for members, _ in self.classes for c in members if c in side.types}

    def _measure(self, i: int, new: Elements, frontier: int) -> None:
        if not self.measures:
            return
        self._statistics[i].observe(new, frontier)
        if len(new) and not self.sets[i].grouped:
            entry = self._sides[i].entry  # what changes in a table does not say since when it was there
            columns = [new.columns[c] for c in entry if c in new.columns]
            self._entries[i].add(hash_rows(columns, len(new)), int(new.exp.max()))
        self._entries[i].expire(frontier)

    def measured(self, samples: bool = True) -> tuple[Seen, ...]:
        """What is measured here, for whoever sees all partitions."""
        found = []
        for s, statistics, sketch, known in zip(self.sets, self._statistics, self._entries, self._known, strict=True):
            rows = float(np.abs(s.count[: len(s.table)]).sum())
            before = known[0] if self._last < known[1] else 0.0  # the sketch has not seen all of the window yet
            seen = statistics.seen(rows, samples)
            entries, sample = (float(len(s)), None) if s.grouped else (before, sketch.sample() if samples else None)
            found.append(replace(seen, entries=entries, entry_sample=sample))
        pairs = zip(found, self._matches.tolist(), strict=True)
        return tuple(replace(seen, events=events, met=met) for seen, (events, met) in pairs)

    def follow(self, plan: str) -> None:
        """Follow this plan from now on; the state is carried over."""
        if plan == self.plan:
            return
        for i, (s, bit) in enumerate(zip(self.sets, plan, strict=True)):
            if s.grouped and bit == "0":
                self._known[i] = (float(len(s)), s.ends.latest())
        self.sets = [s.regrouped(bit == "1") for s, bit in zip(self.sets, plan, strict=True)]
        self.plan = "".join("1" if s.grouped else "0" for s in self.sets)

    def described(
        self, plan: str, choice: PlanChoice | None, measured: Sequence[SideFigures], switches: int
    ) -> dict[str, Any]:
        """For EXPLAIN: the plan, the cost of each, the aggregation sets and the figures they rest on."""
        names = [p.name for p in self.parts]
        described: dict[str, Any] = {"plan": plan, "switches": switches}
        described["aggregation sets"] = {
            name: {"early": bit == "1", "grouped by": list(s.entry), "sums": list(s.sums)}
            for name, bit, s in zip(names, plan, self._sides, strict=True)
        }
        for i, text in self.below.items():
            described["aggregation sets"][names[i]]["below the join"] = text
        if choice is not None:
            described["costs"] = dict(choice.costs)
        if measured:
            described["statistics"] = {
                name: {"rate": f.rate, "rows": f.rows, "entries": f.entries, "distinct": dict(f.values)}
                for name, f in zip(names, measured, strict=True)
            }
        return described
