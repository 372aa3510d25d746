"""Joins over what nobody wishes for: missing conditions, keys of several types, nulls, NaN, one key, long strings."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.errors import BindingError
from windrow.operators import join as joins
from windrow.plan import steps
from windrow.runtime import stage as stages
from windrow.testing import assert_same, oracle


def stream(keys: list[object], type_: pa.DataType | None = None) -> pa.Table:
    """Rows with these keys, one per tick."""
    ts = np.arange(len(keys))
    return pa.table({"ts": ts, "id": ts, "k": pa.array(keys, type_)})


def check(query: str, streams: dict[str, pa.Table], job, home) -> pa.Table:
    """One process and two numbers of partitions answer as the definition does."""
    want = oracle(query, streams, {}, None)["q1"]
    assert_same(windrow.run(query, streams, runtime="local", batch_rows=7)["q1"], want)
    for partitions in (1, 3):
        got = Replay.of(query, streams, {}, None).in_home(
            str(home / str(partitions)), job(2), 5, "upa", partitions=partitions
        )
        assert_same(got["q1"], want)
    return want


PAIRS = "SELECT a.id, b.id AS i FROM A [RANGE 9] a, B [RANGE 9] b WHERE a.k = b.k"
COUNTS = "SELECT b.k, COUNT(*) AS n FROM A [RANGE 9] a, B [RANGE 9] b WHERE a.k = b.k GROUP BY b.k"


@pytest.mark.parametrize("runtime", ["local", "spark"])
def test_a_missing_condition_is_named(runtime: str) -> None:
    """Inputs that nothing links are an error that says which, and how to ask for the product."""
    given = {n: stream([1, 2]) for n in "ABC"}
    query = "SELECT a.id FROM A [RANGE 3] a, B [RANGE 3] b, C [RANGE 3] c WHERE a.k = b.k"
    with pytest.raises(BindingError) as caught:
        windrow.run(query, given, runtime=runtime)
    said = str(caught.value)
    assert "c" in said.lower() and "CROSS JOIN" in said


def test_keys_of_different_types_compare_as_sql_says(in_process_job, tmp_path) -> None:
    """Whole numbers meet decimals and doubles by value; text and numbers as DuckDB casts them."""
    whole, double = stream([1, 2, 3, 2, 1]), stream([1.0, 2.5, 3.0, 2.0, math.nan])
    assert check(PAIRS, {"A": whole, "B": double}, in_process_job, tmp_path / "d").num_rows
    small = stream([1, 2, 3, 2, 1], pa.int16())
    assert check(PAIRS, {"A": whole, "B": small}, in_process_job, tmp_path / "s").num_rows


def test_text_and_numbers_answer_or_refuse(in_process_job, tmp_path) -> None:
    """A key that is text on one side: the definition's answer, or an error that names both types."""
    streams = {"A": stream([1, 2, 3]), "B": stream(["1", "2", "x"])}
    try:
        want = oracle(PAIRS, streams, {}, None)["q1"]
    except Exception:
        with pytest.raises(windrow.errors.WindrowError):
            windrow.run(PAIRS, streams, runtime="local")
    else:
        assert_same(windrow.run(PAIRS, streams, runtime="local")["q1"], want)


@pytest.mark.parametrize("query", [PAIRS, COUNTS])
def test_nulls_match_nothing_and_nan_matches_nan(query: str, in_process_job, tmp_path) -> None:
    """SQL's nulls; DuckDB's NaN, which equals itself; 0 equals -0."""
    keys = [None, math.nan, 0.0, -0.0, 1.5, None, math.nan, -math.inf, math.inf]
    streams = {"A": stream(keys, pa.float64()), "B": stream(keys[::-1], pa.float64())}
    assert check(query, streams, in_process_job, tmp_path).num_rows > 8


@pytest.mark.parametrize("query", [PAIRS, COUNTS])
def test_one_key_for_all_rows(query: str, in_process_job, tmp_path) -> None:
    """Every row meets every other."""
    streams = {"A": stream([7] * 30), "B": stream([7] * 30)}
    assert check(query, streams, in_process_job, tmp_path).num_rows > 10


@pytest.mark.parametrize("query", [PAIRS, COUNTS])
def test_strings_longer_than_a_page(query: str, in_process_job, tmp_path) -> None:
    """Keys of 100,000 characters that differ in the last one."""
    long = "x" * 100_000
    streams = {"A": stream([long + c for c in "abca"]), "B": stream([long + c for c in "cabb"])}
    assert check(query, streams, in_process_job, tmp_path).num_rows


def test_a_large_result_is_handed_out_in_parts(in_process_job, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task sends its answer in pieces of bounded size, and never has more between the join and the answer."""
    monkeypatch.setattr(joins, "PART_ROWS", 500)
    monkeypatch.setattr(steps, "PART_ROWS", 500)
    sizes = []
    send = stages.Stage._answer

    def watched(self, name, rows):
        sizes.append(len(rows))
        send(self, name, rows)

    monkeypatch.setattr(stages.Stage, "_answer", watched)
    rows = {"ts": np.arange(80), "id": np.arange(80), "k": np.zeros(80, np.int64)}
    streams = {"A": pa.table(rows), "B": pa.table(rows)}
    query = "SELECT ISTREAM(a.ts AS s, a.id, b.ts AS t, b.id AS i) FROM A [RANGE 90] a, B [RANGE 90] b WHERE a.k = b.k"
    want = windrow.run(query, streams, runtime="local")["q1"]
    assert want.num_rows == 6400
    got = Replay.of(query, streams, {}, None).in_home(str(tmp_path), in_process_job(1), 1 << 19, "upa", partitions=2)[
        "q1"
    ]
    assert_same(got, want)
    assert len([s for s in sizes if s]) > 5 and max(sizes) <= 1000
