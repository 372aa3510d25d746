"""Random cases: they make sense, cover the language, and the oracle's shortcut holds on them."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings

from windrow.testing import assert_same, cases, oracle, queries, seeded_case, smaller, streams
from windrow.testing.strategies import SHAPES, TICKS, TIMESTAMPS, Case


@settings(max_examples=60, derandomize=True)
@given(cases())
def test_drawn_cases_have_an_answer(case: Case) -> None:
    """Every case that Hypothesis draws can be evaluated."""
    assert oracle(*case)["q1"].column_names[0] == "_ts"


def test_seeded_cases_have_an_answer() -> None:
    """Every case of a seed can be evaluated, and most have something to say."""
    said = sum(oracle(*seeded_case(seed))["q1"].num_rows > 0 for seed in range(100))
    assert said > 60


@pytest.mark.parametrize("shape", sorted(set(SHAPES)))
def test_the_shortcut_is_exact(shape: str) -> None:
    """Looking only when a row enters or leaves, all at once, equals looking at every instant by itself."""
    for seed in range(6):
        case = seeded_case(seed, clock=TICKS, shapes=(shape,), max_rows=12)
        assert_same(oracle(*case)["q1"], oracle(*case, every_instant=True)["q1"])


def test_a_seed_is_a_case() -> None:
    """The same seed gives the same case, and shifting a clock to timestamps keeps it valid."""
    assert seeded_case(7) == seeded_case(7)
    assert oracle(*seeded_case(7, clock=TIMESTAMPS))["q1"].schema.field("_ts").type == pa.timestamp("us")


@settings(max_examples=30, derandomize=True)
@given(streams(slack=3))
def test_streams_stay_within_their_slack(stream: pa.Table) -> None:
    """Rows are out of order by at most the slack."""
    greatest = None
    for ts in stream["ts"].to_pylist():
        assert greatest is None or ts >= greatest - 3
        greatest = ts if greatest is None else max(ts, greatest)


@settings(max_examples=10, derandomize=True)
@given(queries(shapes=("join",)))
def test_a_shape_can_be_asked_for(query: str) -> None:
    """Queries of one shape only."""
    assert query.startswith("SELECT")


def test_smaller_keeps_what_fails() -> None:
    """Only the rows that a failure needs remain."""
    data = pa.table({"a": list(range(20)), "ts": list(range(20))})
    case = Case("SELECT a FROM S [NOW]", {"S": data}, {}, None)
    least = smaller(case, lambda c: {3, 11} <= set(c.streams["S"]["a"].to_pylist()))
    assert least.streams["S"]["a"].to_pylist() == [3, 11]


def test_hypothesis_is_not_imported_for_the_oracle() -> None:
    """The oracle works where Hypothesis is not installed."""
    code = "import sys, windrow.testing as t; t.oracle; sys.exit('hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
