"""The offline optimum: the paper's example, its dynamic program, and the flow that replaces it."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from windrow.errors import SourceError, UnsupportedError, WindrowError
from windrow_bench.optimum import optimal
from windrow_bench.optimum.timeline import place_tokens

R = pa.table({"ts": [0, 1, 2, 3, 4, 5], "a": [1, 0, 1, 0, 2, 5], "imp": [5, 1, 4, 8, 3, 2]})
S = pa.table({"ts": [0, 1, 2, 3, 4, 5], "b": [1, 3, 3, 8, 3, 5], "imp": [1, 5, 2, 6, 4, 3]})
F = pa.table(
    {
        "a": [0, 1, 0, 4, 1, 5],
        "b": [3, 5, 8, 5, 3, 8],
        "begin": pa.array([-1, -1, -1, -1, -1, 3]),
        "end": pa.array([None, None, None, None, 5, None], pa.int64()),
    }
)


@pytest.mark.parametrize("method", ["flow", "states"])
@pytest.mark.parametrize(
    ("memory", "objective", "size", "importance"),
    [(8, "importance", 15, {43}), (4, "importance", 11, {38}), (4, "size", 12, {34, 35})],
)
def test_the_worked_example(method: str, memory: int, objective: str, size: int, importance: set[int]) -> None:
    """Section 3.1.1: 15 results of importance 43 exact, 11 of 38 at memory 4, 12 for SJA-S (34 in print; another
    answer has 35)."""
    best = optimal({"r": R, "s": S}, F, lifetime=4, memory=memory, objective=objective, method=method)
    assert best.size == best.results.num_rows == size
    assert best.importance in importance
    assert best.importance == sum(best.results["importance"].to_pylist())


def test_the_optimal_path_of_the_example() -> None:
    """Memory holds at most two rows of each stream, and every result's older row is in memory when its newer row
    arrives."""
    best = optimal({"r": R, "s": S}, F, lifetime=4, memory=4)
    states = dict(best.states())
    assert list(states) == [0, 1, 2, 3, 4, 5]
    assert all(len(rows) <= 2 for held in states.values() for rows in held.values())
    for row in best.results.to_pylist():
        for name in "rs":
            if row[name] != row["_ts"]:
                assert row[name] in states[row["_ts"]][name]


def random_case(rng: random.Random, dense: bool) -> tuple[dict[str, pa.Table], pa.Table, int]:
    domain = rng.choice([2, 3, 4])
    streams = {}
    for name, key in (("r", "a"), ("s", "b")):
        length = rng.randint(0, 14)
        ts = np.arange(length) if dense else np.sort([rng.randint(0, 16) for _ in range(length)])
        columns = {
            "ts": pa.array(ts, pa.int64()),
            key: pa.array([rng.randrange(domain) for _ in range(length)], pa.int64()),
        }
        streams[name] = pa.table({**columns, "imp": pa.array([rng.randint(1, 9) for _ in range(length)], pa.int64())})
    facts = rng.sample(list(product(range(domain), repeat=2)), rng.randint(0, domain * domain))
    begin = [rng.choice([None, rng.randint(0, 8)]) for _ in facts]
    end = [rng.choice([None, (b or 0) + rng.randint(0, 9)]) for b in begin]
    columns = {"a": pa.array([a for a, _ in facts], pa.int64()), "b": pa.array([b for _, b in facts], pa.int64())}
    return (
        streams,
        pa.table({**columns, "begin": pa.array(begin, pa.int64()), "end": pa.array(end, pa.int64())}),
        rng.randint(1, 8),
    )


@pytest.mark.parametrize("evict_first", [True, False])
@pytest.mark.parametrize("objective", ["importance", "size"])
def test_the_flow_equals_the_dynamic_program(objective: str, evict_first: bool) -> None:
    """On random small cases both find the same optimum, with and without pre-filtering."""
    rng = random.Random(5)
    for trial in range(120):
        streams, facts, lifetime = random_case(rng, dense=trial % 2 == 0)
        memory = rng.randint(2, 7)
        options = {"lifetime": lifetime, "memory": memory, "objective": objective, "evict_first": evict_first}
        flow = optimal(streams, facts, **options)
        states = optimal(streams, facts, method="states", prefilter=trial % 3 == 0, **options)
        value = (lambda o: o.size) if objective == "size" else (lambda o: o.importance)
        assert value(flow) == value(states), trial
        for held in (held for _, held in flow.states()):
            assert all(len(rows) <= memory // 2 for rows in held.values()), trial


def test_windows_of_the_search_change_nothing() -> None:
    """A search that sees little of the line at first finds the same optimum as one that sees all of it."""
    for seed in range(400):
        rng = np.random.default_rng(seed)
        tokens, length, capacity = int(rng.integers(5, 60)), int(rng.integers(2, 8)), int(rng.integers(1, 4))
        start = np.sort(rng.integers(0, tokens, tokens))
        chosen = [np.flatnonzero(rng.random(length) < rng.random()) + 1 for _ in range(tokens)]
        stop = np.concatenate([s + c for s, c in zip(start, chosen, strict=True)])
        profit = np.concatenate([np.cumsum(rng.integers(1, 6, len(c))) for c in chosen]).astype(float)
        ptr = np.concatenate([[0], np.cumsum([len(c) for c in chosen])])
        line = (start, ptr, stop, profit, tokens + length, capacity)
        assert place_tokens(*line, window=1)[1] == place_tokens(*line, window=10**6)[1], seed


def test_more_memory_is_never_worse_and_shared_memory_is_better() -> None:
    """The optimum grows with memory up to the exact answer; memory divided by need is at least as good as divided
    evenly."""
    rng = random.Random(7)
    for _ in range(30):
        streams, facts, lifetime = random_case(rng, dense=True)
        exact = optimal(streams, facts, lifetime=lifetime, memory=1000)
        values = [optimal(streams, facts, lifetime=lifetime, memory=m).importance for m in (2, 4, 6, 40)]
        assert values == sorted(values)
        assert values[-1] == exact.importance
        shared = [optimal(streams, facts, lifetime=lifetime, memory=m, divide="need").importance for m in (2, 4, 6)]
        assert all(s >= v for s, v in zip(shared, values, strict=False))


def test_a_window_join_needs_no_relation() -> None:
    """Without a relation the streams are joined on the columns they share."""
    r = pa.table({"ts": [0, 1, 2], "k": [1, 2, 1], "imp": [1.0, 2.0, 3.0]})
    s = pa.table({"ts": [1, 2, 3], "k": [1, 2, 1], "imp": [5.0, 5.0, 5.0]})
    best = optimal({"r": r, "s": s}, lifetime=4, memory=100)
    assert {(x["r"], x["s"]) for x in best.results.to_pylist()} == {(0, 0), (0, 2), (1, 1), (2, 0), (2, 2)}
    assert best.importance == 1 + 1 + 2 + 3 + 3


def test_one_stream_needs_no_memory() -> None:
    """A semi-streaming join is exact: every row meets the facts active at its time."""
    best = optimal({"r": R}, F, lifetime=4, memory=2)
    # rows 0, 2 meet two facts, rows 1, 3 two; 4 none; 5 one
    assert best.size == 2 + 2 + 2 + 2 + 0 + 1
    assert best.importance == 2 * (5 + 1 + 4 + 8) + 2


def test_bad_input_is_refused() -> None:
    """Errors say what is allowed."""
    streams = {"r": R, "s": S}
    for memory in (0, 1):
        with pytest.raises(WindrowError, match=f"memory of {memory}"):
            optimal(streams, F, lifetime=4, memory=memory)
    with pytest.raises(UnsupportedError, match="3 streams"):
        optimal({**streams, "q": R}, F, lifetime=4, memory=4)
    with pytest.raises(WindrowError, match="objective"):
        optimal(streams, F, lifetime=4, memory=4, objective="speed")
    reversed_ = F.set_column(3, "end", pa.array([-5] + [None] * 5, pa.int64()))
    with pytest.raises(SourceError, match="ends before it begins"):
        optimal(streams, reversed_, lifetime=4, memory=4)
    for bad in (0.0, -1.0, float("inf"), float("nan")):
        broken = R.set_column(2, "imp", pa.array([1.0, bad, 1.0, 1.0, 1.0, 1.0]))
        with pytest.raises(SourceError, match="row 1"):
            optimal({"r": broken, "s": S}, F, lifetime=4, memory=4)
