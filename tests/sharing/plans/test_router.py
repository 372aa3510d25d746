"""A router that has changed is the router that would be made anew."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from windrow.operators.terms import QUERY
from windrow.sharing.condition_columns import ColumnBox, ConditionColumns, Ends
from windrow.sharing.conditions import Attribute, Condition, both, within
from windrow.sharing.plans.routed_columns import RoutedColumns, of_query
from windrow.sharing.plans.router import IndexRouter

A, B, C = (Attribute(f'"{name}"', pa.int64(), (name,)) for name in "abc")
SINCE = "since"


def _condition(r: random.Random) -> Condition:
    found = within(A, (k := r.randrange(5), k + 1))
    if r.random() < 0.7:
        found = both(found, within(B, (r.randrange(9), None)))
    return found if r.random() < 0.9 else within(C, (None, r.randrange(9)))


def _block(r: random.Random) -> RoutedColumns:
    """Queries in columns, one of which has left."""
    low = np.array([r.randrange(9) for _ in range(4)])
    conditions = ConditionColumns(4, (ColumnBox({B: Ends(low, low + 2)}, np.ones(4, np.bool_)),))
    return RoutedColumns(1000 + np.arange(4), conditions, np.arange(4) != 2, sizes={SINCE: 3}, shown=("x",))


def _life(router: IndexRouter, kind: int) -> tuple[int, ...]:
    """From when on a class sees rows, and for how long."""
    if router.lives is None or kind < 0:
        return ()
    return (int(router.lives.start[kind]), *(int(each[kind]) for each in router.lives.sizes.values()))


def _answers(router: IndexRouter) -> tuple[object, ...]:
    """All that a router says of some rows."""
    r = np.random.default_rng(3)
    rows = 200
    columns = {name: pa.array(r.integers(0, 10, rows)) for name in (*"abc", f"age'{SINCE}")}
    columns[QUERY] = pa.array(r.integers(0, 3, rows).astype(np.int32))
    read = {c: columns[c] for c in router.reads}
    row, query = router.pairs(read, rows)
    kinds = router.classes(query).tolist() if router.lives is not None else [-1] * len(query)
    at, sets, classes = router.sets(read, rows)
    of = [-1] * len(at) if classes is None else classes.tolist()
    packs = zip(at.tolist(), sets.to_pylist(), of, strict=True)
    members = [(i, q, _life(router, kind)) for i, set_, kind in packs for q in np.frombuffer(set_, np.int32).tolist()]
    told = router.queries
    bounds = router.bounds("b", told)
    shown = {}
    for column in "xyz":
        mine = router.lists(column)
        shown[column] = [q for q in router.queries.tolist() if mine is None or mine[q]]
    return (
        sorted(zip(row.tolist(), query.tolist(), [_life(router, kind) for kind in kinds], strict=True)),
        sorted(members),
        router.wanted(read, rows).tolist(), router.queries.tolist(), shown, router.wants_all,
        None if bounds is None else [ends.tolist() for ends in bounds],
        {c: router.lists(c) is None for c in "xyz"} if router.conditions else None,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_a_changed_router_is_one_made_anew(seed: int) -> None:
    """Whoever came, left, or changed its condition, its clock or its list: rows go where they would have gone."""
    r = random.Random(seed)
    windows, shows, late, told = (r.random() < 0.5 for _ in range(4))
    conditions: dict[int, Condition] = {}
    starts: dict[int, int] = {}
    sizes: dict[int, int] = {}
    shown: dict[int, tuple[str, ...]] = {}
    number, router = 0, None
    blocks = [] if told or r.random() < 0.4 else [_block(r)]
    for _ in range(40):
        gone = [q for q in conditions if r.random() < 0.1]
        again = [q for q in conditions if q not in gone and r.random() < 0.05]
        come = list(range(number, number := number + r.choice([0, 1, 1, 2, 6])))
        for q in gone:
            for each in (conditions, starts, sizes, shown):
                each.pop(q, None)
        for q in [*again, *come]:
            found = _condition(r)
            conditions[q] = of_query(q % 3, found) if told else found
            starts.pop(q, None)
            if late and r.random() < 0.3:
                starts[q] = r.randrange(1, 3)
            sizes[q], shown[q] = r.choice([3, 5]), tuple(sorted(r.sample("xyz", r.randint(1, 3))))
        new = dict.fromkeys([*again, *come])
        lengths = {SINCE: dict(sizes)} if windows else {}
        anew = IndexRouter(conditions, starts, lengths, windows, shown if shows else None, blocks)
        if router is None:
            router = anew
        else:
            was = _answers(router)
            before, router = router, router.changed(
                {q: conditions[q] for q in new}, gone, {q: s for q, s in starts.items() if q in new},
                {SINCE: {q: sizes[q] for q in new}}, {q: shown[q] for q in new},
            )  # fmt: skip
            assert _answers(before) == was  # it stays what it was
        assert _answers(router) == _answers(anew)
