"""Aggregates by cell answer what a row for every query would have answered."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation
from windrow.operators.cell_aggregate import CellAggregate
from windrow.operators.changes import Changes
from windrow.operators.elements import INF, Elements
from windrow.operators.query_sets import QuerySets
from windrow.operators.query_sets import packed as packed_set
from windrow.operators.route import RouteOperator, RouteSets
from windrow.operators.terms import QUERIES, QUERIES_TYPE, QUERY, QUERY_TYPE
from windrow.sharing.conditions import Attribute, within
from windrow.sharing.plans.router import IndexRouter

TYPES = {"k": pa.string(), "v": pa.int64(), "x": pa.float64()}
CALLS = [
    Aggregation("count", None, "n", pa.int64()),
    Aggregation("count", "x", "m", pa.int64()),
    Aggregation("sum", "v", "s", pa.decimal128(38, 0)),
    Aggregation("sum", "x", "f", pa.float64()),
    Aggregation("avg", "x", "a", pa.float64()),
    Aggregation("stddev", "v", "d", pa.float64()),
]
V = Attribute('"v"', pa.int64(), ("v",))


def queries(r: random.Random, late: bool) -> IndexRouter:
    """Some queries with a span of values each; `late`: the clocks of some begin at 12."""
    found = {}
    for number in r.sample(range(40), 9):
        low = r.randint(0, 8)
        found[number] = within(V, (low, low + r.randint(1, 9)))
    return IndexRouter(found, dict.fromkeys(list(found)[:3], 12) if late else {})


def batch(r: random.Random, low: int, high: int, live: list[tuple]) -> Elements:
    """Rows of some instants, some of them for ever, some ended early by a negative element."""
    rows = []
    for ts in sorted(r.randint(low, high) for _ in range(r.randint(0, 9))):
        exp = r.choice([ts + 1, ts + 4, ts + 20, INF])
        row = (r.choice("abc"), r.randint(0, 12), r.choice([None, 0.1, 1e300, -2.5, float("inf")]))
        rows.append((ts, exp, 1, *row))
        live.append(rows[-1])
        if r.random() < 0.3:
            _, exp, _, *row = live.pop(r.randrange(len(live)))
            if exp > high:
                rows.append((high, exp, -1, *row))
    columns = {c: pa.array([row[3 + i] for row in rows], t) for i, (c, t) in enumerate(TYPES.items())}
    ts, exp, sign = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return Elements(ts, exp, sign.astype(np.int8), columns)


def log(parts: list[Elements]) -> list[str]:
    """What is shown of a query when, whatever the elements it was told by."""
    shown = Changes()
    rows = []
    for frontier, part in enumerate(parts):
        found = shown.advance([part], 10 * frontier + 9)
        names = sorted(found.columns)
        columns = [found.columns[c].to_pylist() for c in names]
        rows += [f"{ts} {s} {values}" for ts, s, *values in zip(found.ts, found.sign, *columns, strict=True)]
    return sorted(rows)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_a_cell_is_a_row_for_each(seed: int, late: bool) -> None:
    """Random signed elements, nulls and infinities among them: both ways tell the same changes, restarts and all."""
    r = random.Random(seed)
    router = queries(r, late)
    pairs, sets = RouteOperator(router, tuple(TYPES)), RouteSets(router, tuple(TYPES))
    apart = ContinuousAggregate(("k", QUERY), CALLS, {**TYPES, QUERY: QUERY_TYPE}, strict=True)

    def made() -> CellAggregate:
        return CellAggregate(("k",), CALLS, {**TYPES, QUERIES: QUERIES_TYPE}, router)

    cells, live = made(), list[tuple]()
    want, got = [], []
    for tick in range(8):
        rows, frontier = batch(r, 10 * tick, 10 * tick + 9, live), 10 * tick + 9
        want.append(apart.advance([pairs.advance([rows], frontier)], frontier))
        got.append(cells.advance([sets.advance([rows], frontier)], frontier))
        if r.random() < 0.4:
            again = made()
            again.restore(cells.state(), frontier)
            cells = again
    assert log(got) == log(want)


def test_bounds_leave_out_what_having_would_drop() -> None:
    """A stretch that HAVING surely drops does not leave the operator; what it keeps does."""
    router = IndexRouter({q: within(V, (q, None)) for q in range(4)})
    one = CellAggregate(("k",), CALLS[:1], {**TYPES, QUERIES: QUERIES_TYPE}, router)
    one.having = IndexRouter({q: within(Attribute('"n"', pa.int64(), ("n",)), (3, None)) for q in range(4)})
    v = np.array([0, 1, 2, 3])
    columns = {"k": pa.array(["a"] * 4), "v": pa.array(v), "x": pa.nulls(4, pa.float64())}
    rows = RouteSets(router, tuple(TYPES)).advance([Elements.positive(v, INF, columns)], 9)
    found = one.advance([rows], 9)
    assert sorted(zip(found.columns[QUERY].to_pylist(), found.columns["n"].to_pylist(), strict=True)) == [
        (0, 3), (0, 4), (1, 3),
    ]  # fmt: skip


def test_what_others_ask_for_binds_nobody() -> None:
    """A mean of nothing is outside of the bounds of whoever asks for it, and no matter to the others."""
    router = IndexRouter({q: within(V, (0, None)) for q in range(2)})
    one = CellAggregate(("k",), CALLS[:1] + CALLS[4:5], {**TYPES, QUERIES: QUERIES_TYPE}, router)
    mean = within(Attribute('"a"', pa.float64(), ("a",)), (0, None))
    one.having = IndexRouter({0: mean, 1: within(Attribute('"n"', pa.int64(), ("n",)), (1, None))})
    columns = {"k": pa.array(["a"]), "v": pa.array([1]), "x": pa.nulls(1, pa.float64())}
    rows = RouteSets(router, tuple(TYPES)).advance([Elements.positive(np.array([3]), INF, columns)], 9)
    assert one.advance([rows], 9).columns[QUERY].to_pylist() == [1]


def test_sets_that_no_row_has_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are given again, and queries that are gone are in no cell."""
    monkeypatch.setattr("windrow.operators.query_sets._MANY", 2)
    sets = QuerySets(range(8))

    def column(*given: tuple[int, ...]) -> pa.DictionaryArray:
        values = [packed_set(np.array(s)) for s in given]
        return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(given)), pa.int32()), pa.array(values))

    assert sets.cells(column((0, 1), (2,), (3, 4, 5))).tolist() == [0, 1, 2]
    sets.tidy(lambda: np.array([2]))
    assert sets.cells(column((6,), (3, 4, 5), (7,))).tolist() in ([0, 2, 1], [1, 2, 0])
    sets.only([3, 5, 6])
    spans, members = sets.members
    assert sets.numbers[members[spans[2, 0] : spans[2, 1]]].tolist() == [3, 5]
