"""Grids of partitions: rows that can join meet in exactly one cell."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from windrow.engine.replay import Replay
from windrow.operators.elements import INF, Elements
from windrow.runtime.grid import GridPlacement
from windrow.runtime.heavy_keys import HeavyKeys, Threshold, frequent
from windrow.runtime.placement import How, Partitioning
from windrow.runtime.program import QueryProgram

CHAIN = (
    GridPlacement((("a.k",), ()), ((0,), (0, 1), (1,))),
    GridPlacement((("b.k",), ("b.j",)), ((0,), (0, 1), (1,))),
    GridPlacement(((), ("c.j",)), ((0,), (0, 1), (1,))),
)


def rows(**columns: list[int]) -> Elements:
    """Elements with columns `a_k` for `a.k`."""
    arrays = {n.replace("_", "."): pa.array(v) for n, v in columns.items()}
    size = len(next(iter(arrays.values())))
    return Elements.positive(np.zeros(size, np.int64), INF, arrays)


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 6, 8, 13])
def test_what_joins_meets_once(partitions: int) -> None:
    """In a chain of three inputs, every triple that joins has one cell in common, and no cell is out of range."""
    keys = list(range(60))
    a, c = rows(a_k=keys), rows(c_j=keys)
    pairs = list(product(keys, keys))
    b = rows(b_k=[k for k, _ in pairs], b_j=[j for _, j in pairs])
    in_a, in_b, in_c = (
        [set(map(int, row)) for row in grid.cells(e, partitions)] for grid, e in zip(CHAIN, (a, b, c), strict=True)
    )
    for at, (k, j) in enumerate(pairs):
        assert len(in_a[k] & in_b[at] & in_c[j]) == 1
    assert max(max(s) for s in (*in_a, *in_b, *in_c)) < partitions
    assert len(set().union(*in_b)) == np.prod(CHAIN[1].sizes(partitions))


def test_sizes_share_the_load() -> None:
    """The axis of more inputs is cut into more pieces; the rows of one heavy key are cut on both sides."""
    assert CHAIN[0].sizes(4) == (2, 2)
    assert CHAIN[0].copies(4) == 2 and CHAIN[1].copies(4) == 1
    both = GridPlacement((("l.id",), ()), ((0,), (1,)))
    assert both.sizes(16) == (4, 4) and both.sizes(1) == (1, 1)


def placed(query: str, names: str = "AB"):
    """The spreads by which the join of a query reads."""
    empty = pa.schema([(c, pa.int64()) for c in ("k", "id", "ts")]).empty_table()
    (plan,) = Replay.of(query, dict.fromkeys(names, empty), {}).catalog.queries.values()
    placement = QueryProgram("", plan, "upa", {}).layout.placement
    return [e.partitioning for e in placement.reads.values() if e.stage == 1], placement


def test_only_joins_whose_reader_can_do_without_the_key_are_split() -> None:
    """Rows told apart by ids may lie anywhere; a group by the key needs it whole; equal rows need to stay together."""
    join = "FROM A [RANGE 5] a, B [RANGE 5] b WHERE a.k = b.k"
    free, _ = placed(f"SELECT a.id, b.id AS i {join}")
    assert all(s.split is not None for s in free)
    kept, placement = placed(f"SELECT a.k, a.id {join}")
    assert all(s.split is not None for s in kept) and placement.last_stage == 1 and len(placement.moves) == 2
    alone, _ = placed(f"SELECT a.k {join}")
    assert all(s.split is None for s in alone)
    counted, _ = placed(f"SELECT a.k, COUNT(*) AS n {join} GROUP BY a.k")
    assert all(s.split is None for s in counted)


def test_a_key_is_heavy_by_its_share() -> None:
    """A key with more than half of what a partition should have, and enough rows, is heavy from the next tick on."""
    spread = Partitioning(How.COLUMNS, ("l.k",))
    new = rows(l_k=[7] * 4000 + list(range(100, 4100)))
    for share, rows_needed, heavy in ((0.5, 2000, True), (0.5, 5000, False), (3.0, 10, False)):
        keys = HeavyKeys(4, Threshold(share, rows_needed))
        keys.take(3, [{("q", 2): frequent(new, spread, 4)}])
        assert bool(keys.since(4)) is heavy
        assert not keys.since(3)
    assert not HeavyKeys(1).since(9)
