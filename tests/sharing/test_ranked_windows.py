"""Windows over values that are due in one tick are read in one pass, with the answers of the definition."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow
from windrow.testing import assert_same, oracle

DECLARED = "CREATE STREAM r (ts BIGINT, g VARCHAR, a BIGINT) TIMESTAMP BY ts;"
QUERIES = (
    "SELECT median(a) AS m FROM r [RANGE {r} SLIDE {s}]",
    "SELECT g, median(a) AS m FROM r [RANGE {r} SLIDE {s}] GROUP BY g",
    "SELECT count(DISTINCT a) AS n FROM r [RANGE {r} SLIDE {s}] WHERE a > 1",
    "SELECT g, top_k(a, 2) AS t FROM r [RANGE {r} SLIDE {s}] GROUP BY g",
    "SELECT count(DISTINCT g) AS n, sum(DISTINCT a) AS s FROM r [RANGE {r} SLIDE {s}]",
)
rows = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from(["x", "y", None]), st.one_of(st.none(), st.integers(0, 4))),
    min_size=1, max_size=30,
)  # fmt: skip
windows = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), min_size=2, max_size=5)


def table(given_rows: list[tuple[int, str | None, int | None]]) -> pa.Table:
    ts, g, a = zip(*sorted(given_rows, key=lambda r: r[0]), strict=True)
    return pa.table({"ts": pa.array(ts, pa.int64()), "g": pa.array(g, pa.string()), "a": pa.array(a, pa.int64())})


def created(text: str, shapes: list[tuple[int, int]], begin: int = 0) -> str:
    return ";".join(f"CREATE QUERY q{begin + i} AS {text.format(r=r, s=s)}" for i, (r, s) in enumerate(shapes))


@settings(deadline=None, max_examples=40)
@given(rows, windows, st.sampled_from(QUERIES), st.integers(1, 6))
def test_answers_equal_the_oracle(
    data: list[tuple[int, str | None, int | None]], shapes: list[tuple[int, int]], text: str, step: int
) -> None:
    """Ticks of a few instants each: windows that end together, and apart, and several instants of one query."""
    script, streamed = DECLARED + created(text, shapes), table(data)
    engine = windrow.Engine(runtime="local", sharing="shards")
    engine.execute(script)
    engine.start()
    ts = streamed["ts"].to_numpy()
    for begin in range(0, 26, step):
        part = streamed.filter(pa.array((ts >= begin) & (ts < begin + step)))
        if part.num_rows:
            engine.push("r", part)
    engine.advance(int(ts[-1]))
    want = oracle(script, {"r": streamed})
    for name in (f"q{i}" for i in range(len(shapes))):
        assert_same(engine[name].results(), want[name])
    engine.stop()


@pytest.mark.parametrize("text", QUERIES[:3])
def test_a_query_that_comes_later_does_not_read_what_was_before(text: str) -> None:
    """It has fewer rows than those it is answered with, until its window is full."""
    engine = windrow.Engine(runtime="local", sharing="shards")
    engine.execute(DECLARED + created(text, [(6, 1), (9, 1)]))
    engine.start()

    def push(first: int, last: int) -> None:
        for t in range(first, last):
            engine.push("r", {"ts": [t, t], "g": ["x", "y"], "a": [t % 5, (t * 3) % 7]})

    push(1, 12)
    engine.execute(created(text, [(9, 1), (4, 1)], begin=2))
    push(12, 31)
    long, late = (
        {r["_ts"]: r for r in engine[q].results().to_pylist() if r.get("g", "x") == "x"} for q in ("q1", "q2")
    )
    assert all(late[t] == long[t] for t in range(21, 30))
    engine.stop()
