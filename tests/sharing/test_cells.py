"""The predicate index says of every row what DuckDB says."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.catalog import Catalog, StreamDef
from windrow.cql import compile_select
from windrow.operators import scalar
from windrow.operators.conjunction import holds
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import Filter, walk
from windrow.sharing.boxes import Axis
from windrow.sharing.cells import CellSpace
from windrow.sharing.conditions import NOTHING, Attribute, Condition, bits, condition
from windrow.sharing.index import PredicateIndex

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
    "{a} >= 4611686018427387904.0000000001",
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


CATALOG = Catalog().add(StreamDef("st", {"ts": pa.int64(), **{n: t for n, (_, t) in VALUES.items()}}, "ts"))


def bound(text: str) -> list[Expr]:
    """The conjuncts of a predicate over columns written in braces, as the binder has them."""
    where = text.replace("{", "").replace("}", "")
    plan = compile_select(f"SELECT ts FROM st [RANGE 1] WHERE {where}", CATALOG, "q")
    found = [n.predicate for n in walk(plan.root) if isinstance(n, Filter)]
    columns = CATALOG.streams["st"].columns
    bare = {f"st.{c}": Expr((Ref(c),), t) for c, t in columns.items()}
    return [e.substitute(bare) for e in found]


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
    return [condition(bound(t)) for t in texts]


def wanted(text: str, data: dict[str, pa.Array]) -> list[bool]:
    """Where DuckDB says that a predicate is true."""
    return holds(data, 2000, [text.replace("{", '"').replace("}", '"')]).tolist()


def masks(conditions: list[Condition], data: dict[str, pa.Array], index: PredicateIndex) -> list[np.ndarray]:
    """Where each condition is true, by its cells."""
    tested = {sql: a for c in conditions for sql, a in c.attributes.items()}
    asked = [(a.sql, a.type) for a in tested.values()]
    columns = dict(zip(tested, scalar.evaluate(data, 2000, asked) if asked else (), strict=True))
    places = index.places(columns)
    cells = [index.cells(k, places, 2000) for k in range(len(index.spaces))]
    homes = [index.home[c] for c in conditions]
    return [index.spaces[k].inside(i, cells[k]) for k, i in homes]


@pytest.mark.parametrize("text", PREDICATES)
def test_a_predicate_means_what_duckdb_says(text: str, data: dict[str, pa.Array]) -> None:
    """NULLs, NaN, bounds of types, casts: cells of one predicate are the rows DuckDB keeps."""
    conditions = made([text])
    (mask,) = masks(conditions, data, PredicateIndex(conditions))
    assert mask.tolist() == wanted(text, data)


@pytest.mark.parametrize("rows_per_slice", [1.0, 1e6])
def test_predicates_together(rows_per_slice: float, data: dict[str, pa.Array]) -> None:
    """Together, however spaces are cut, every predicate keeps its rows."""
    conditions = made(PREDICATES)
    index = PredicateIndex(conditions, rows_per_slice)
    for text, mask in zip(PREDICATES, masks(conditions, data, index), strict=True):
        assert mask.tolist() == wanted(text, data), text


def test_no_product_of_unrelated_attributes() -> None:
    """Predicates on different attributes do not multiply their cells when there are many."""
    texts = [f"{{{c}}} > {k}" for c in ("a", "x", "d") for k in range(100)]
    index = PredicateIndex(made(texts), rows_per_slice=300.0)
    assert sum(p.cells for p in index.spaces) <= 320


def test_equalities_are_keys() -> None:
    """Ranges within a key have the cuts of that key alone: as many cells as predicates, not keys times ranges."""
    texts = [f"{{a}} = {k} AND {{x}} > {j * 50 + k}" for k in range(50) for j in range(6)]
    (space,) = PredicateIndex(made(texts)).spaces
    assert space.keys == 1
    assert space.cells <= 50 * 9
    assert not space.boxed


@pytest.mark.parametrize("texts", [["{a} > 2", "{a} BETWEEN -4 AND -3"], ["{b} AND {x} > 1", "{b} AND {x} > 2"]])
def test_a_row_that_nobody_wants_is_in_no_cell(texts: list[str], data: dict[str, pa.Array]) -> None:
    """A row is in a cell if, and only if, some predicate has it."""
    index = PredicateIndex(made(texts))
    cells = index.cells(0, index.places({a: data[a[1:-1]] for a in index.axes}), 2000)
    assert len(index.spaces) == 1
    assert (cells >= 0).tolist() == np.any([wanted(t, data) for t in texts], axis=0).tolist()


def test_a_range_is_one_run() -> None:
    """Cells are ordered so that a range predicate is one run of them."""
    space = CellSpace(made(["{b} AND {a} > 5", "{b} AND {a} > 7", "NOT {b} AND {a} < 6"]))
    assert np.diff(space.runs.first).tolist() == [1, 1, 1]


def test_huge_grids_keep_their_boxes(data: dict[str, pa.Array]) -> None:
    """Predicates whose grid would be too large are tested, and stay right."""
    texts = [" AND ".join(f"{{{c}}} <> {k + j}" for j, c in enumerate(("a", "u", "x", "d"))) for k in range(0, 80, 4)]
    conditions = made(texts)
    index = PredicateIndex(conditions)
    assert any(p.boxed for p in index.spaces)
    for text, mask in zip(texts, masks(conditions, data, index), strict=True):
        assert mask.tolist() == wanted(text, data), text


@pytest.mark.parametrize("boxed", [False, True])
def test_whom_cells_concern(boxed: bool) -> None:
    """The predicates that have one of some cells are those that have it one by one, in runs and in boxes."""
    texts = [f"{{a}} = {k} AND {{x}} > {j * 5 + k}" for k in range(9) for j in range(3)]
    space = CellSpace(made([*texts, "{a} IN (1, 2) AND {x} < 4"]))
    space.boxed = boxed
    for cells in (np.arange(0, space.cells, step) for step in (1, 4, 7, space.cells)):
        inside = [p for p in range(space.predicates) if space.inside(p, cells).any()]
        assert space.concerned(cells).tolist() == inside
    assert not len(space.concerned(np.zeros(0, np.int64)))


def test_what_is_indexed_and_what_is_a_bit() -> None:
    """Comparisons are spans; what is doubtful is a bit and says why."""

    def box(text: str) -> tuple[str, tuple[object, ...], bool]:
        (((attribute, values),),) = made([text])[0].boxes
        return attribute.sql, values.spans, values.null

    assert box("{a} > 1.5") == ('"a"', ((2, None),), False)
    assert box("{a} IS NULL") == ('"a"', (), True)
    assert box("{a} <> 1") == ('"a"', ((None, 1), (2, None)), False)
    assert box("{a} IN (1, 2, 7)") == ('"a"', ((1, 2), (2, 3), (7, 8)), False)
    assert box("{s} LIKE 'ab%'") == ('"s"', ((b"ab", b"ac"),), False)
    assert made(["{a} = NULL"]) == [NOTHING]
    assert bits(made(["{s} LIKE '%a'"])[0]) == {"(\"s\" LIKE '%a')": "like is indexed for 'prefix%' only"}
    assert not bits(made(["{a} > 1 AND ({x} < 2 OR {s} = 'a')"])[0])


def test_predicates_come_and_go(data: dict[str, pa.Array]) -> None:
    """However the index got there, every predicate keeps its rows, and spaces of like predicates stay few."""
    r = random.Random(5)
    texts = [*PREDICATES, *(f"{{a}} = {k % 7} AND {{x}} > {k}" for k in range(300))]
    conditions = list(dict.fromkeys(made(texts)))
    index, there = PredicateIndex(), set()
    for _ in range(60):
        new = [c for c in r.sample(conditions, r.randint(0, 12)) if c not in there]
        gone = [c for c in there if r.random() < 0.03]
        there = (there | set(new)) - set(gone)
        index.changed(new, gone)
        assert set(index.home) == there
    here = [c for c in conditions if c in there]
    alone = [masks([c], data, PredicateIndex([c]))[0].tolist() for c in here]
    assert [m.tolist() for m in masks(here, data, index)] == alone
    assert len(index.spaces) < len(PREDICATES) + 6


@given(
    cuts=st.lists(st.integers(-100, 100), min_size=1, max_size=80, unique=True),
    base=st.sampled_from((0, 1 << 40, (1 << 63) - 200, -(1 << 63) + 200)),
    values=st.lists(st.one_of(st.none(), st.integers(-300, 300)), max_size=50),
)
def test_places_of_close_cuts_are_those_of_a_search(cuts, base, values):
    """Codes that lie close together are looked up in a list; the places are those of a binary search."""
    cuts = np.sort(np.array(cuts, np.int64)) + base
    given_ = [None if v is None else min(max(v + base, -(1 << 63)), (1 << 63) - 1) for v in values]
    found = Axis(Attribute("a", pa.int64(), ("a",)), cuts).places(pa.array(given_, pa.int64()))
    wanted = [len(cuts) + 1 if v is None else int(np.searchsorted(cuts, v, "right")) for v in given_]
    assert found.tolist() == wanted
