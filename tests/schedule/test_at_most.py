"""SLIDE AT MOST: what it means in a replay, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same, oracle

QUERIES = (
    "SELECT count(*) AS n, sum(a) AS s FROM r [RANGE {r} SLIDE {s}]",
    "SELECT b, max(a) AS m FROM r [RANGE {r} SLIDE {s}] WHERE a > 1 GROUP BY b",
    "SELECT ISTREAM(b, count(*)) FROM r [RANGE {r} SLIDE {s}] GROUP BY b",
    "SELECT DSTREAM(b) FROM r [RANGE {r} SLIDE {s}] WHERE a > 1",
    "SELECT a, b FROM r [RANGE {r} SLIDE {s}]",
    "SELECT count(*) AS n FROM r [RANGE {r} SLIDE {s}], q [RANGE {r} SLIDE {s}] WHERE r.b = q.b",
)
rows = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=25)


def table(given_rows: list[tuple[int, int, int]]) -> pa.Table:
    ts, a, b = zip(*sorted(given_rows), strict=True)
    return pa.table({"ts": list(ts), "a": list(a), "b": list(b)})


@settings(deadline=None, max_examples=20)
@given(rows, rows, st.integers(1, 12), st.integers(1, 6), st.sampled_from(QUERIES))
def test_a_replay_of_one_equals_the_other(
    one: list[tuple[int, int, int]], two: list[tuple[int, int, int]], r: int, s: int, text: str
) -> None:
    """In a replay a deadline is met at every multiple: AT MOST changes nothing, and the oracle agrees."""
    streams = {"r": table(one), "q": table(two)}
    plain, deadline = text.format(r=r, s=s), text.format(r=r, s=f"AT MOST {s}")
    got = windrow.run(deadline, streams, runtime="local")["q1"]
    assert_same(got, windrow.run(plain, streams, runtime="local")["q1"])
    assert_same(got, oracle(deadline, streams)["q1"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT count(*) FROM r [ROWS 5 SLIDE AT MOST 2]", "SLIDE AT MOST on a window of rows"),
        ("SELECT count(*) FROM r [RANGE 5 AT MOST 2]", "AT"),
        ("SELECT count(*) FROM r [PARTITION BY b ROWS 5 SLIDE AT MOST 2]", "SLIDE AT MOST on a window of rows"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT MOST]", "length of time after SLIDE"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT MOST 1.5]", "not a whole number of ticks"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT MOST 99999999999999999999]", "too long a time"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT MOST 2 AT MOST 3]", "expected SLIDE, INTERNAL or ]"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT MOST 0]", "SLIDE 0 is not positive"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT MOST -3]", "SLIDE -3 is not positive"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT MOST 2 SECONDS]", "has a unit"),
        ("SELECT count(*) FROM r [RANGE 5 SLIDE AT 2]", "length of time"),
        ("SELECT RSTREAM_RESTORE(a) FROM r [RANGE 5 SLIDE AT MOST 2]", "RESTORE with SLIDE AT MOST"),
        ("SELECT ISTREAM_RESTORE(a) FROM r [RANGE 5 SLIDE AT MOST 2]", "RESTORE with SLIDE AT MOST"),
        ("SELECT r.a FROM r [RANGE 5 SLIDE AT MOST 2], q [RANGE 5 SLIDE 2] WHERE r.a = q.a", "has a deadline"),
        ("SELECT r.a FROM r [RANGE 5 SLIDE AT MOST 2], q [RANGE 5 SLIDE AT MOST 3] WHERE r.a = q.a", "differs from"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    """Rows, continuous queries, zero periods, RESTORE, windows that disagree: an error that points into the text."""
    with pytest.raises(WindrowError) as raised:
        windrow.run(text, {"r": table([(1, 1, 1)]), "q": table([(1, 1, 1)])}, runtime="local")
    assert message in str(raised.value)
    assert raised.value.span is not None


def test_explain_tells_a_deadline_from_a_period() -> None:
    """EXPLAIN says `at least every` of a query with a deadline."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM r (ts BIGINT, a BIGINT) TIMESTAMP BY ts")
    (deadline,) = engine.execute("EXPLAIN SELECT count(*) AS n FROM r [RANGE 10 SLIDE AT MOST 5]")
    (period,) = engine.execute("EXPLAIN SELECT count(*) AS n FROM r [RANGE 10 SLIDE 5]")
    assert "periodic, at least every 5" in deadline
    assert "periodic, every 5" in period
    engine.stop()


def test_a_live_engine_answers_at_exact_instants() -> None:
    """Every answer carries the instant for which it is exact."""
    engine = windrow.Engine(runtime="local")
    engine.execute(
        "CREATE STREAM r (ts BIGINT, a BIGINT) TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT sum(a) AS s FROM r [RANGE 10 SLIDE AT MOST 5]"
    )
    engine.start()
    for ts in range(1, 32):
        engine.push("r", {"ts": [ts], "a": [ts]})
    for row in engine["q"].results().to_pylist():
        assert row["s"] == sum(t for t in range(1, 32) if row["_ts"] - 10 < t <= row["_ts"])
    engine.stop()


def test_periods_without_a_common_multiple_are_taken_as_they_are() -> None:
    """Periods and windows whose least common multiple explodes, over a stream and over a join: planned at once, late
    only at their own multiples, and answered."""
    primes = [p for p in range(10_007, 10_400) if all(p % d for d in range(2, 101))][:24]
    engine = windrow.Engine(runtime="local", sharing="shards", tick_budget="1 us", schedule="hybrid")
    engine.execute("".join(f"CREATE STREAM {s} (ts BIGINT, a BIGINT) TIMESTAMP BY ts;" for s in "rq"))
    for i, p in enumerate(primes):
        r, q = (f"{s} [RANGE {11 * p + i} SLIDE AT MOST {p}]" for s in "rq")
        text = f"SELECT median(a) AS m FROM {r}" if i % 2 else f"SELECT sum(r.a) AS m FROM {r}, {q} WHERE r.a = q.a"
        engine.execute(f"CREATE QUERY x{i} AS {text}")
    engine.start()
    for ts in range(1, 300_000, 4_000):
        for stream in "rq":
            engine.push(stream, {"ts": [ts], "a": [ts % 3]})
    for i, p in enumerate(primes):
        found = engine.status()["queries"][f"x{i}"]["deadline"]
        assert (found["period"], found["scheduled"]) == (p, True)
        instants = set(engine[f"x{i}"].results()["_ts"].to_pylist())
        assert instants and all(t % p == 0 for t in instants)
    engine.stop()
