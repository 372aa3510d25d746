"""Aggregates of many queries whose windows differ answer what a row for every query would have answered."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from windrow.errors import StateError
from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation, row_lists
from windrow.operators.changes import Changes
from windrow.operators.elements import Elements, concat
from windrow.operators.length_aggregate import LengthAggregate
from windrow.operators.route import RouteOperator, RouteSets
from windrow.operators.state.run import Run
from windrow.operators.terms import QUERIES, QUERIES_TYPE, QUERY, QUERY_TYPE
from windrow.sharing.conditions import EVERYTHING, Attribute, within
from windrow.sharing.plans.router import IndexRouter

TYPES = {"k": pa.string(), "v": pa.int64(), "x": pa.float64()}
SINCE = "start'0"
CALLS = [
    Aggregation("count", None, "n", pa.int64()),
    Aggregation("sum", "v", "s", pa.decimal128(38, 0)),
    Aggregation("sum", "x", "f", pa.float64()),
    Aggregation("avg", "x", "a", pa.float64()),
    Aggregation("stddev", "v", "d", pa.float64()),
]
V = Attribute('"v"', pa.int64(), ("v",))
HAVING = {"n": pa.int64(), "a": pa.float64()}


class Queries:
    """Some queries with a window each; some select, some began late; they come and go."""

    def __init__(self, r: random.Random, alike: bool) -> None:
        self.r, self.alike = r, alike
        self.conditions, self.sizes, self.late, self.having = {}, {}, {}, {}
        for number in range(9):
            self.come(number, 4 if r.random() < 0.2 else None)

    def come(self, number: int, start: int | None) -> None:
        """Have one more query; `start`: where its clock begins."""
        r, low = self.r, self.r.randint(0, 8)
        self.conditions[number] = EVERYTHING if self.alike else within(V, (low, low + r.randint(1, 9)))
        self.sizes[number] = r.choice([1, 2, 5, 11, 30, 31, 90])
        column = r.choice([*HAVING, None])
        spans = {"n": (r.randint(1, 4), None), "a": (None, 0x4004000000000000)}  # at least so many; a mean below 2.5
        self.having[number] = (
            EVERYTHING if column is None else within(Attribute(f'"{column}"', HAVING[column], (column,)), spans[column])
        )
        if start is not None:
            self.late[number] = start

    def change(self, frontier: int) -> None:
        """One comes and begins with the next row, one leaves; clocks that have begun are nothing special."""
        self.late = {q: start for q, start in self.late.items() if start > frontier}
        self.come(max(self.conditions) + 1, self.r.choice([None, frontier + 3]))
        gone = self.r.choice([q for q in self.conditions if q not in self.late])
        for of in (self.conditions, self.sizes, self.having):
            del of[gone]

    @property
    def router(self) -> IndexRouter:
        """Who wants which rows, and how long."""
        return IndexRouter(self.conditions, self.late, {SINCE: self.sizes})

    @property
    def wanted(self) -> IndexRouter:
        """Who wants which answers."""
        return IndexRouter(self.having)


def batch(r: random.Random, low: int, high: int, longest: int, hot: bool) -> Elements:
    """Rows of some instants; `hot`: most of them of one group."""
    ts = np.sort(np.array([r.randint(low, high) for _ in range(r.choice([0, 1, 9, 30]))], np.int64))
    columns = {
        "k": pa.array([("a" if hot and r.random() < 0.9 else r.choice("abc")) for _ in ts], pa.string()),
        "v": pa.array([r.randint(0, 12) for _ in ts], pa.int64()),
        "x": pa.array([r.choice([None, 0.1, 1e300, -2.5, 7.0, float("inf")]) for _ in ts], pa.float64()),
        SINCE: pa.array(ts),
    }
    return Elements.positive(ts, ts + longest, columns)


def log(parts: list[tuple[Elements, IndexRouter, int]]) -> Counter[str]:
    """What queries that are there show when, of what HAVING keeps."""
    shown, rows = Changes(), Counter[str]()
    for part, wanted, frontier in parts:
        number = part.columns[QUERY].to_numpy(zero_copy_only=False)
        tested = {c: part.columns[c] for c in wanted.reads}
        at, query = wanted.pairs(tested, len(part)) if len(part) else (number, number)
        found = shown.advance([part.take(at[query == number[at]]) if len(part) else part], frontier)
        names = sorted(found.columns)
        columns = [found.columns[c].to_pylist() for c in names]
        for ts, sign, *values in zip(found.ts.tolist(), found.sign.tolist(), *columns, strict=True):
            rows[f"{ts} {values}"] += sign
    return Counter({row: times for row, times in rows.items() if times})


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_a_window_is_two_places(seed: int, alike: bool, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever windows, selections and clocks, over restarts and reduced rows: the changes are those of rows apart."""
    monkeypatch.setattr(row_lists, "_FEW", 4)
    r = random.Random(seed)
    queries = Queries(r, alike)
    apart = ContinuousAggregate(("k", QUERY), CALLS, {**TYPES, QUERY: QUERY_TYPE}, strict=True)
    types = {**TYPES, SINCE: pa.int64(), QUERIES: QUERIES_TYPE}

    def made() -> LengthAggregate:
        operator = LengthAggregate(("k",), CALLS, types, queries.router, SINCE)
        operator.having = queries.wanted
        return operator

    lengths, frontier = made(), -1
    want, got = [], []
    held = Elements.empty({**TYPES, QUERY: QUERY_TYPE})
    for tick in range(13):
        low, frontier = frontier + 1, frontier + (200 if tick == 12 else r.choice([1, 3, 10, 40] if beside else [1, 2]))
        rows = batch(r, low, frontier, max(queries.sizes.values()), not beside)
        one_by_one = concat([held, RouteOperator(queries.router, tuple(TYPES)).advance([rows], frontier)])
        held = one_by_one.filter(one_by_one.ts > frontier)
        one_by_one = one_by_one.filter(one_by_one.ts <= frontier)
        sets = RouteSets(queries.router, (*TYPES, SINCE), True).advance([rows], frontier)
        if r.random() < 0.3:
            sets = lengths.reduction.reduced(sets)
        want.append((apart.advance([one_by_one], frontier), queries.wanted, frontier))
        got.append((lengths.advance([sets], frontier), queries.wanted, frontier))
        if r.random() < 0.3:
            again = made()
            again.restore(lengths.state(), frontier)
            lengths = again
        if r.random() < 0.2 and tick < 11:
            queries.change(frontier)
            lengths.follow(made())
    assert log(got) == log(want)


def test_states_of_another_kind_are_refused() -> None:
    """State that was kept by cell is named, not misread."""
    one = LengthAggregate(
        ("k",), CALLS[:1], {**TYPES, SINCE: pa.int64()}, Queries(random.Random(1), True).router, SINCE
    )
    with pytest.raises(StateError, match="older version"):
        one.restore({"cells": (Run(pa.table({"_cell": [0]})),)}, 3)
