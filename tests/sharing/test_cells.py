"""The predicate index says of every row what DuckDB says."""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest

from windrow.cql.predicates import condition
from windrow.operators import scalar
from windrow.plan.expr import Expr, Ref
from windrow.sharing.cells import Index, Plot
from windrow.sharing.conditions import Condition, Constant, IsNull, Not, Opaque, Within, attributes

NAN, INF = float("nan"), float("inf")
VALUES = {
    "a": ([None, -4, -3, 0, 1, 2, 3, 4, 5, 2**62, -(2**63), 2**63 - 1], pa.int64()),
    "u": ([None, 0, 1, 2**63, 2**64 - 1], pa.uint64()),
    "x": ([None, NAN, -0.0, 0.0, 0.1, 1.0, 2.5, 1e308, INF, -INF, 9007199254740993.0], pa.float64()),
    "f": ([None, 0.5, 1.5, NAN], pa.float32()),
    "d": ([None, "1.23", "1.24", "-5.00", "0.00"], pa.decimal128(10, 2)),
    "s": ([None, "", "a", "x'y", "m", "mm", "m\0", "l", "é", "zz"], pa.string()),
    "b": ([None, True, False], pa.bool_()),
    "t": ([None, 0, 1577836800000000, 1577836800000001], pa.timestamp("us")),
    "y": ([None, 0, 18262], pa.date32()),
}
PREDICATES = [
    "{a} > 1.5",
    "{a} <= -3",
    "3 < {a}",
    "{a} = 2",
    "{a} <> 5",
    "{a} IN (1, 2, NULL)",
    "{a} NOT IN (1, 2)",
    "NOT ({a} IN (1, NULL))",
    "{a} BETWEEN 0 AND 2.5",
    "{a} > 1e3",
    "{a} = 99999999999999999999",
    "{a} >= -9223372036854775808",
    "{a} <= 9223372036854775807",
    "{a} > 9223372036854775807",
    "{u} >= 9223372036854775808",
    "{u} < 2",
    "{u} > -1",
    "{x} > 0.1",
    "{x} <= 0.1",
    "{x} = CAST('nan' AS DOUBLE)",
    "{x} < CAST('nan' AS DOUBLE)",
    "{x} < CAST('inf' AS DOUBLE)",
    "{x} < 0",
    "{x} >= -0.0",
    "{x} = 9007199254740993",
    "{x} BETWEEN 1 AND 2.5 OR NOT {b}",
    "{f} < 1.5",
    "{d} < 1.234",
    "{d} = 1.23",
    "{d} > 1e0",
    "{s} = 'x''y'",
    "{s} >= 'm'",
    "{s} > 'm'",
    "{s} <= 'm'",
    "{s} <> ''",
    "{s} IN ('a', 'é')",
    "{s} LIKE 'm%'",
    "{b}",
    "NOT {b}",
    "{b} = FALSE",
    "{b} IS NULL",
    "{t} > TIMESTAMP '2020-01-01'",
    "{t} > '2020-01-01'",
    "{y} = DATE '2020-01-01'",
    "{a} % 2 = 1",
    "{a} < {x}",
    "({a} > 1) IS NULL",
    "{a} IS DISTINCT FROM 3",
    "TRUE",
    "{a} = NULL",
    "{a} > 1 AND NULL",
    "{x} + 1 > 2",
    "{a} + 0",
    "CASE WHEN {b} THEN {a} > 1 ELSE {x} > 0 END",
    "{s} = 'm' OR {a} IS NULL AND NOT ({x} > 1 OR {b})",
]


def expr(text: str) -> Expr:
    """An expression over columns written in braces."""
    parts = [Ref(p[1:-1]) if p.startswith("{") else p for p in re.split(r"(\{\w\})", f"({text})") if p]
    return Expr(tuple(parts), pa.bool_())


@pytest.fixture(scope="module")
def data() -> dict[str, pa.Array]:
    """Every value of every column, in random company."""
    r = random.Random(3)
    found = {}
    for name, (values, type_) in VALUES.items():
        plain = pa.string() if pa.types.is_decimal(type_) else type_
        found[name] = pa.array([r.choice(values) for _ in range(2000)], plain).cast(type_)
    return found


def made(texts: list[str]) -> list[Condition]:
    return [condition(expr(t), {n: t for n, (_, t) in VALUES.items()}) for t in texts]


def masks(conditions: list[Condition], data: dict[str, pa.Array], index: Index) -> list[np.ndarray]:
    """Where each condition is true, by its cells."""
    tested = {sql: a for c in conditions for sql, a in attributes(c).items()}
    asked = [(a.sql, a.type) for a in tested.values()]
    columns = dict(zip(tested, scalar.evaluate(data, 2000, asked) if asked else (), strict=True))
    places = index.places(columns)
    found = []
    for c in conditions:
        k, i = index.home[c]
        found.append(index.plots[k].membership[i][index.cells(k, places, 2000)])
    return found


@pytest.mark.parametrize("text", PREDICATES)
def test_a_predicate_means_what_duckdb_says(text: str, data: dict[str, pa.Array]) -> None:
    """NULLs, NaN, bounds of types, casts: cells of one predicate are the rows DuckDB keeps."""
    conditions = made([text])
    (mask,) = masks(conditions, data, Index(conditions))
    assert mask.tolist() == scalar.holds(data, 2000, [expr(text).sql()]).tolist()


@pytest.mark.parametrize("rows_per_slice", [1.0, 1e6])
def test_predicates_together(rows_per_slice: float, data: dict[str, pa.Array]) -> None:
    """Together, however plots are cut, every predicate keeps its rows."""
    conditions = made(PREDICATES)
    index = Index(conditions, rows_per_slice)
    for text, mask in zip(PREDICATES, masks(conditions, data, index), strict=True):
        assert mask.tolist() == scalar.holds(data, 2000, [expr(text).sql()]).tolist(), text


def test_no_product_of_unrelated_attributes() -> None:
    """Predicates on different attributes do not multiply their cells when there are many."""
    texts = [f"{{{c}}} > {k}" for c in ("a", "x", "d") for k in range(100)]
    index = Index(made(texts), rows_per_slice=300.0)
    assert sum(p.cells for p in index.plots) <= 320


def test_a_range_is_one_run() -> None:
    """Cells are ordered so that a range predicate is one run of them."""
    plot = Plot(made(["{b} AND {a} > 5", "{b} AND {a} > 7", "NOT {b} AND {a} < 6"]))
    first, _, _ = plot.runs
    assert np.diff(first).tolist() == [1, 1, 1]


def test_a_huge_grid_falls_back_to_bits(data: dict[str, pa.Array]) -> None:
    """Predicates whose grid would be too large get a bit each, and stay right."""
    texts = [" AND ".join(f"{{{c}}} <> {k + j}" for j, c in enumerate(("a", "u", "x", "d"))) for k in range(0, 80, 4)]
    conditions = made(texts)
    index = Index(conditions)
    assert any(p.solo for p in index.plots)
    for text, mask in zip(texts, masks(conditions, data, index), strict=True):
        assert mask.tolist() == scalar.holds(data, 2000, [expr(text).sql()]).tolist(), text


def test_what_is_indexed_and_what_is_a_bit() -> None:
    """Comparisons are spans; what is doubtful is opaque and says why."""
    types = {n: t for n, (_, t) in VALUES.items()}
    span = condition(expr("{a} > 1.5"), types)
    assert isinstance(span, Within)
    assert span.spans == ((2, None),)
    assert isinstance(condition(expr("{a} IS NULL"), types), IsNull)
    assert isinstance(condition(expr("{a} <> 1"), types), Not)
    assert condition(expr("{a} = NULL"), types) == Constant(None)
    opaque = condition(expr("{s} LIKE 'a%'"), types)
    assert isinstance(opaque, Opaque)
    assert opaque.why == "like is not indexed"


def test_an_index_keeps_plots_that_did_not_change() -> None:
    """A predicate that joins changes its own plot only."""
    conditions = made([f"{{{c}}} > {k}" for c in ("a", "x") for k in range(40)])
    old = Index(conditions, rows_per_slice=300.0)
    new = Index([*conditions, *made(["{a} > 99"])], rows_per_slice=300.0, old=old)
    assert any(p in old.plots for p in new.plots)
