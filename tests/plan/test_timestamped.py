"""Timestamped rows: equal rows live equally long, so nothing in their change log cancels."""

from __future__ import annotations

import pyarrow as pa
import pytest

import windrow
from windrow.operators.changes import Changes, Starting
from windrow.plan.dataflow import Circuit
from windrow.testing import assert_same, oracle
from windrow_bench.drive import planned

STREAMS = {
    "a": pa.table({"ts": [1, 1, 3, 4, 6, 9], "k": [1, 1, 1, 2, 1, 1], "v": [5, 5, 5, 5, 5, 5]}),
    "b": pa.table({"ts": [2, 4, 5, 7, 8, 9], "k": [1, 1, 2, 1, 1, 1], "v": [7, 7, 7, 7, 7, 7]}),
}
JOIN = "FROM a [RANGE 3], b [RANGE 4] WHERE a.k = b.k"


def last(text: str) -> object:
    flow = Circuit(planned(text, STREAMS), {}, {}).flow
    return flow.steps[-1].operator


@pytest.mark.parametrize(
    ("items", "timestamped"),
    [("a.ts, b.ts AS ts2, a.v", True), ("a.ts, a.v, b.v AS w", False), ("a.ts + 0 AS t, b.ts AS ts2", False)],
)
def test_rows_with_all_their_times_wait_for_no_end(items, timestamped):
    """ISTREAM keeps ends only where a row could leave just as an equal one enters; answers are the same."""
    text = f"SELECT ISTREAM({items}) {JOIN}"
    assert isinstance(last(text), Starting) is timestamped
    assert_same(windrow.run(text, STREAMS, runtime="local")["q1"], oracle(text, STREAMS)["q1"])


@pytest.mark.parametrize("text", [f"SELECT a.ts, b.ts AS ts2, a.v {JOIN}", "SELECT * FROM a [RANGE 2]"])
def test_a_timestamped_change_log_compares_nothing(text):
    """Every row is followed by its own end, even among equal rows."""
    operator = last(text)
    assert isinstance(operator, Changes) and operator.timestamped
    assert_same(windrow.run(text, STREAMS, runtime="local")["q1"], oracle(text, STREAMS)["q1"])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ISTREAM(ts, v) FROM a [ROWS 2]",
        "SELECT ISTREAM(*) FROM (SELECT ts, v FROM a [RANGE 2] UNION ALL SELECT ts, v FROM a [RANGE 3])",
        "SELECT ISTREAM(DISTINCT ts, v) FROM a [RANGE 2]",
    ],
)
def test_times_alone_do_not_date_every_row(text):
    """Windows by rows, unions and duplicate elimination end rows by other rules."""
    assert not isinstance(last(text), Starting)
