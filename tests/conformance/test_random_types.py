"""Columns of every type in every shape of query: the oracle's answers, of the oracle's types, however they are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.optimize import names
from windrow.testing import assert_same, oracle
from windrow.testing.random_types import TYPES, VALUES
from windrow.testing.strategies import Case, typed_case, typed_life

GROUP = 20
WAYS: tuple[dict[str, Any], ...] = (
    {"batch_rows": 7, "strategy": "negative"},
    {"batch_rows": 3, "strategy": "direct"},
    {"batch_rows": 2, "without": names()},
)


def checked(case: Case, seed: int, run: Callable[[Case], dict[str, pa.Table]]) -> None:
    """Compare a way of running a case with the oracle: rows and types."""
    want = oracle(*case)
    try:
        got = run(case)
        for name in want:
            assert_same(got[name], want[name])
            assert got[name].schema.types == want[name].schema.types
    except Exception as error:
        raise AssertionError(f"seed {seed}: {case.script}\n{error}") from error


def ran(**way: Any) -> Callable[[Case], dict[str, pa.Table]]:
    return lambda case: windrow.run(case.script, case.streams, case.tables, runtime="local", until=case.until, **way)


@pytest.mark.parametrize("first", range(0, 60, GROUP))
def test_random_cases_equal_the_oracle(first: int) -> None:
    """Keys of joins and groups, DISTINCT, arguments of aggregates, values compared across types."""
    for seed in range(first, first + GROUP):
        checked(typed_case(seed), seed, ran())
        checked(typed_case(seed), seed, ran(**WAYS[seed % 3]))


@pytest.mark.parametrize("first", range(2000, 2020, 10))
def test_tasks_and_partitions_equal_the_oracle(first: int, in_process_job: Any, tmp_path: Path) -> None:
    """The same rows between partitions and in state that is written and read again."""

    def played(case: Case) -> dict[str, pa.Table]:
        replay = Replay.of(case.script, case.streams, case.tables, case.until, strategy="upa")
        return replay.in_home(str(tmp_path / str(seed)), in_process_job(2, chaos=seed), 5, "upa", partitions=3)

    for seed in range(first, first + 10):
        checked(typed_case(seed), seed, played)


def test_every_type_is_drawn_for_keys_and_values() -> None:
    """A few hundred seeds have every type in both of the columns that may have any."""
    drawn: dict[str, set[str]] = {"s": set(), "x": set()}
    for seed in range(400):
        script = typed_case(seed, max_rows=0).script
        first = script.split("\n")[0]
        for name, seen in drawn.items():
            seen |= {t for t in VALUES if f", {name} {t}, " in first}
    assert drawn == {"s": set(TYPES), "x": set(TYPES)}


def test_a_life_of_a_seed_has_its_types() -> None:
    """The rows of ticks have the columns of the case."""
    life, case = typed_life(7), typed_case(7)
    rows = [table for moment in life.moments for table in moment.rows.values()]
    assert rows and {t.schema for t in rows} <= {t.schema for t in case.streams.values()}
