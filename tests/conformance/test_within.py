"""Joins WITHIN a range as ksql writes them: a condition on the times, padded where nothing is within it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.testing import assert_same, oracle

TICKS = "CREATE STREAM {0} (id BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts;"
TIMES = "CREATE STREAM {0} (id BIGINT, v BIGINT, ts TIMESTAMP) TIMESTAMP BY ts;"
SIDES = ("JOIN", "INNER JOIN", "LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN", "FULL JOIN", "FULL OUTER JOIN")


def rows(seed: int, unit: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, 40, 30))
    times = pa.array(ts * unit, pa.timestamp("us")) if unit else pa.array(ts)
    return pa.table({"id": rng.integers(0, 4, 30), "v": rng.integers(0, 9, 30), "ts": times})


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("windows", [("", ""), (" [RANGE 9]", " [RANGE 6]"), (" [RANGE 12 SLIDE 4]", "")])
def test_joins_within_ticks(side: str, windows: tuple[str, str]) -> None:
    """Every side, over all rows and over windows, continuous and periodic."""
    for within in ("3", "(2, 5)", "(4, 0)"):
        query = (
            f"SELECT a.id AS i, b.id AS j, a.v AS x, b.v AS y FROM a{windows[0]} {side} b{windows[1]} "
            f"WITHIN {within} ON a.id = b.id"
        )
        case = (TICKS.format("a") + TICKS.format("b") + query, {"a": rows(1), "b": rows(2)})
        assert_same(windrow.run(*case, runtime="local")["q1"], oracle(*case)["q1"])


@pytest.mark.parametrize("side", ("LEFT JOIN", "FULL JOIN"))
def test_joins_within_time(side: str) -> None:
    """Lengths have units, an alias stands before the range, and other conditions go with it."""
    for within in ("2 MINUTES", "(1 MINUTE, 150 SECONDS)"):
        query = f"SELECT l.v AS x, r.v AS y FROM a l {side} b r WITHIN {within} ON l.id = r.id AND l.v < r.v"
        case = (TIMES.format("a") + TIMES.format("b") + query, {"a": rows(3, 30_000_000), "b": rows(4, 30_000_000)})
        assert_same(windrow.run(*case, runtime="local")["q1"], oracle(*case)["q1"])


@pytest.mark.parametrize("sides", [("JOIN", "JOIN"), ("LEFT JOIN", "LEFT JOIN"), ("FULL JOIN", "LEFT JOIN"),
                                   ("JOIN", "RIGHT JOIN"), ("LEFT JOIN", "FULL JOIN")])  # fmt: skip
def test_joins_of_three_streams(sides: tuple[str, str]) -> None:
    """What is joined already comes with its later row, and waits for the third from then."""
    script = "".join(map(TICKS.format, "abc"))
    data = {name: rows(seed) for seed, name in enumerate("abc", 5)}
    short = f"FROM a {sides[0]} b WITHIN 2 ON a.id = b.id {sides[1]} c WITHIN (1, 3) ON a.id = c.id"
    long = (
        f"FROM a {sides[0]} b ON a.id = b.id AND b.ts BETWEEN a.ts - 2 AND a.ts + 2 {sides[1]} c ON a.id = c.id AND "
        "c.ts >= greatest(a.ts, b.ts) - 1 AND c.ts <= greatest(a.ts, b.ts) + 3"
    )
    items = "SELECT a.v AS x, b.v AS y, c.v AS z, c.id AS k "
    want = oracle(script + items + long, data)["q1"]
    assert_same(windrow.run(script + items + short, data, runtime="local")["q1"], want)


def test_a_grace_that_the_streams_grant() -> None:
    """Rows that are late by as much are joined, as ksql joins them."""
    script = TICKS.format("a").replace("BY ts", "BY ts WITHIN 4") + TICKS.format("b").replace("BY ts", "BY ts WITHIN 5")
    late = rows(2).take(pa.array(np.argsort(np.arange(30) + np.tile([0, 2, -2], 10))))
    data = {"a": rows(1), "b": late}
    short = "SELECT a.v AS x, b.v AS y FROM a LEFT JOIN b WITHIN 3 GRACE PERIOD 4 ON a.id = b.id"
    long = "SELECT a.v AS x, b.v AS y FROM a LEFT JOIN b ON a.id = b.id AND b.ts BETWEEN a.ts - 3 AND a.ts + 3"
    assert_same(windrow.run(script + short, data, runtime="local")["q1"], oracle(script + long, data)["q1"])
    with pytest.raises(UnsupportedError, match='"a", which does not wait that long'):
        windrow.run(script + short.replace("4", "5"), data, runtime="local")


def test_within_is_what_its_condition_says() -> None:
    """The same as BETWEEN, written out: once the last row has come, one left row and what is near it."""
    data = {"a": {"id": [1, 2], "v": [1, 2], "ts": [10, 20]}, "b": {"id": [1, 1, 2], "v": [5, 6, 7], "ts": [8, 12, 30]}}
    script = TICKS.format("a") + TICKS.format("b")
    short = "SELECT a.v AS x, b.v AS y FROM a LEFT JOIN b WITHIN (2, 2) ON a.id = b.id"
    long = "SELECT a.v AS x, b.v AS y FROM a LEFT JOIN b ON a.id = b.id AND b.ts BETWEEN a.ts - 2 AND a.ts + 2"
    got, want = (windrow.run(script + q, data, runtime="local")["q1"] for q in (short, long))
    assert_same(got, want)
    assert [tuple(r.values()) for r in got.to_pylist()] == [(10, 1, 1, 5), (12, 1, 1, 6), (20, 1, 2, None)]


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("SELECT * FROM a WITHIN 3", BindingError, "without a join"),
        ("SELECT a.id FROM a JOIN p WITHIN 3 ON a.id = p.id", BindingError, "two streams"),
        ("SELECT a.id FROM a JOIN b WITHIN -3 ON a.id = b.id", WindrowError, "syntax error"),
        ("SELECT a.id FROM a JOIN b WITHIN 3 GRACE PERIOD 1 ON a.id = b.id", UnsupportedError, "ts WITHIN 1"),
        ("SELECT a.id FROM a JOIN b WITHIN 3 HOURS ON a.id = b.id", BindingError, "."),
    ],
)
def test_ranges_that_mean_nothing_are_refused(text: str, error: type[Exception], match: str) -> None:
    """Without two streams, with a clock of another kind, or with ksql's grace."""
    script = TICKS.format("a") + TICKS.format("b") + "CREATE TABLE p (id BIGINT);"
    with pytest.raises(error, match=match):
        windrow.run(script + text, {"a": rows(1), "b": rows(2)}, {"p": {"id": [1]}}, runtime="local")


def test_a_stream_may_be_called_within() -> None:
    """The word is a name where no length follows."""
    got = windrow.run(
        TICKS.format("a") + "SELECT within.id AS i FROM a within WHERE within.v >= 0", {"a": rows(1)}, runtime="local"
    )
    assert got["q1"].num_rows == 30
