"""A family in parts and across restarts: partials add up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from windrow_tests_in_process import sliced

from windrow.engine.replay import Replay
from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.sharing import shard_partials
from windrow.sharing.family import Family
from windrow.sharing.recognise import recognise
from windrow.sharing.shards import Shards


def families(case: Any, count: int) -> tuple[list[Family], np.ndarray, dict[str, pa.Array]]:
    """Like families of the case's queries that join no table, and all rows of the stream."""
    alone = {n: t for n, t in case.queries.items() if ", k" not in t}
    script = (
        ";".join(f"CREATE QUERY {n} AS {t}" for n, t in alone.items()) or "SELECT count(*) FROM st [RANGE 3 SLIDE 2]"
    )
    replay = Replay.of(script, {"st": case.stream}, {})
    made = []
    for _ in range(count):
        family = Family()
        for plan in replay.catalog.queries.values():
            family.join(recognise(plan).member)
        made.append(family)
    ts, columns = sliced(replay, "st", {"st": 0}, 1000)
    return made, ts, {f"st.{n}": a for n, a in columns.items()}


def part(columns: dict[str, pa.Array], at: np.ndarray) -> dict[str, pa.Array]:
    picks = pa.array(at)
    return {n: a.take(picks) for n, a in columns.items()}


def bag(elements: Elements) -> list[str]:
    """Rows of elements in a comparable form."""
    columns = [c.to_pylist() for c in elements.columns.values()]
    return sorted(map(repr, zip(elements.ts.tolist(), elements.exp.tolist(), *columns, strict=True)))


@pytest.mark.parametrize("tasks", [3, 9, 20])
@pytest.mark.parametrize("similar", [1, 2, 7])
@pytest.mark.parametrize("seed", range(300, 308))
def test_partials_of_parts_add_up(
    make_case: Callable[[int], Any], seed: int, similar: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows dealt to any number of tasks, reduced there and absorbed in one place, give the answers of one pass.

    Half of the rows are dealt by time, so that blocks overlap here and there; merged soon or late.
    """
    monkeypatch.setattr(shard_partials, "MOST_SIMILAR", similar)
    (whole, parts), ts, columns = families(make_case(seed), 2)
    r = np.random.default_rng(seed)
    frontier = int(ts[-1]) + 30
    want = whole.advance(ts, columns, frontier)
    parts.prepare(5.0)
    for name in parts.joined:
        parts.begin(name, int(ts[0]))
    task = np.where(r.random(len(ts)) < 0.5, r.integers(0, tasks, len(ts)), np.arange(len(ts)) * tasks // len(ts))
    for k in range(tasks):
        at = np.flatnonzero(task == k)
        parts.absorb(parts.reduce(ts[at], part(columns, at)))
    got = parts.advance(np.zeros(0, np.int64), {}, frontier)
    assert want.keys() == got.keys()
    for name in want:
        assert bag(got[name]) == bag(want[name])


@pytest.mark.parametrize("seed", range(310, 318))
def test_state_and_restore(make_case: Callable[[int], Any], seed: int) -> None:
    """A family restored from runs goes on as if nothing had happened."""
    (whole, before, after), ts, columns = families(make_case(seed), 3)
    r = random.Random(seed)
    cut = r.randint(0, len(ts))
    middle = int(ts[cut - 1]) if cut else int(ts[0]) - 1
    cut = int(np.searchsorted(ts, middle, "right"))
    first, second = np.arange(cut), np.arange(cut, len(ts))
    frontier = int(ts[-1]) + 30
    want = whole.advance(ts, columns, frontier)
    one = before.advance(ts[first], part(columns, first), middle)
    after.hold(before.held(), middle)
    for name, entry in before.joined.items():
        if entry.start != BEGINNING:
            after.begin(name, entry.start)
        after.done(name)
    two = after.advance(ts[second], part(columns, second), frontier)
    for name in want:
        found = [f[name] for f in (one, two) if name in f]
        assert bag(concat(found)) == bag(want[name])


def test_only_those_whom_rows_concern_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many queries with GROUP BY a tick looks at those that have rows in some window, not at each of them."""
    script = ";".join(
        f"CREATE QUERY q{k} AS SELECT a, count(*) AS n FROM st [RANGE {9 + k % 2} SLIDE 2] WHERE a = {k} GROUP BY a"
        for k in range(40)
    )
    stream = pa.table({"a": [3, 8, 3], "ts": [1, 2, 3]})
    replay = Replay.of(script, {"st": stream}, {})
    family = Family()
    for plan in replay.catalog.queries.values():
        family.join(recognise(plan).member)
    asked: list[str] = []
    answer = Shards.answer
    monkeypatch.setattr(Shards, "answer", lambda self, due, name: (asked.append(name), answer(self, due, name))[1])
    ts, columns = sliced(replay, "st", {"st": 0}, 1000)
    found = family.advance(ts, {f"st.{n}": a for n, a in columns.items()}, 4)
    assert set(asked) == set(found) == {"q3", "q8"}
    for frontier in range(6, 60, 2):
        asked.clear()
        family.finish(frontier)
    assert not asked  # what they had read has gone
    assert not any(shards._totals for shards in family.shards.values())


def test_a_name_joins_once(make_case: Callable[[int], Any]) -> None:
    """Two queries of one name are an error, not a mixture."""
    (family,), _, _ = families(make_case(1), 1)
    with pytest.raises(ValueError, match="joined already"):
        family.join(next(iter(family.joined.values())).member)
