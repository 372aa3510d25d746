"""The lazy join: whenever it is evaluated and however seldom rows expire, its results are the eager ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import windrow
from windrow.errors import WindrowError
from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.operators.state.keyed import KeyedRuns
from windrow.testing import assert_same, oracle

END = 60
DECLARED = (
    "CREATE STREAM S (k BIGINT, x BIGINT, ts BIGINT) TIMESTAMP BY ts;"
    "CREATE STREAM T (k BIGINT, y BIGINT, ts BIGINT) TIMESTAMP BY ts;"
)


def windows(seed: int) -> list[Elements]:
    """Three windows of 9, 14 and 5 units, one of which is fast."""
    rng = np.random.default_rng(seed)
    found = []
    for i, (window, rows) in enumerate(((9, 30), (14, 20), (5, 120))):
        ts = np.sort(rng.integers(0, END, rows))
        columns = {f"s{i}.k": pa.array(rng.integers(0, 4, rows)), f"s{i}.n": pa.array(np.arange(rows))}
        found.append(Elements.positive(ts, ts + window, columns))
    return found


def made(given: list[Elements], interval: int) -> JoinOperator:
    parts = [Part({c: a.type for c, a in e.columns.items()}) for e in given]
    return JoinOperator(parts, [("s0.k", "s1.k", False), ("s1.k", "s2.k", False)], interval=interval)


def joined(join: JoinOperator, given: list[Elements], every: int) -> list[tuple[int, ...]]:
    """The results of a join that is evaluated every so many units: when each begins and ends, and its parts."""
    results = []
    for end in range(every - 1, END + every, every):
        new = [e.filter((e.ts > end - every) & (e.ts <= end)) for e in given]
        results.append(join.advance(new, end))
    found = concat(results)
    rows = zip(
        found.ts.tolist(), found.exp.tolist(), *(found.columns[f"s{i}.n"].to_pylist() for i in range(3)), strict=True
    )
    return sorted(rows)


@pytest.mark.parametrize("seed", range(5))
def test_lazy_results_carry_their_own_instants(seed: int) -> None:
    """Evaluated every 1, 7 or 25 units, expired every 0, 3 or 40: the same results at the same instants, none lost."""
    given = windows(seed)
    want = joined(made(given, 0), given, 1)
    assert len(want) > 100
    for every, interval in ((1, 3), (1, 40), (7, 0), (7, 40), (25, 3)):
        assert joined(made(given, interval), given, every) == want


def test_state_is_searched_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an interval of 30 units, what has ended is looked for every 30, and in the end nothing is left."""
    looks: list[int] = []
    search = KeyedRuns.expire
    monkeypatch.setattr(KeyedRuns, "expire", lambda self, now: (looks.append(now), search(self, now))[1])
    given = windows(1)
    for interval, times in ((0, [BEGINNING, *range(END + 39)]), (30, [BEGINNING, 0, 30, 60, 90])):
        looks.clear()
        join = made(given, interval)
        for end in range(END + 40):
            join.advance([e.filter(e.ts == end) for e in given], end)
        assert sorted(set(looks)) == times and sum(join._held()) == 0


def test_an_engine_sets_how_often_joins_expire() -> None:
    """`expire_every` counts ticks of tick streams; EXPLAIN says it, and no answer changes."""
    text = "SELECT S.x, T.y FROM S [RANGE 5], T [RANGE 8] WHERE S.k = T.k"
    rng = np.random.default_rng(2)
    streams = {
        name: pa.table({
            "k": rng.integers(0, 3, 40), value: rng.integers(0, 99, 40), "ts": np.sort(rng.integers(0, 60, 40))
        })
        for name, value in (("S", "x"), ("T", "y"))
    }  # fmt: skip
    want = oracle(text, streams, {}, None)["q1"]
    with windrow.Engine(runtime="local", expire_every=20) as engine:
        engine.execute(f"{DECLARED} CREATE QUERY q AS {text}")
        engine.start()
        for begin in range(0, 60, 5):
            for name, rows in streams.items():
                ts = rows.column("ts").to_numpy()
                engine.push(name, rows.filter(pa.array((ts >= begin) & (ts < begin + 5))))
        engine.drain()
        assert "expires every: 20 ticks" in engine["q"].explain()
        got = engine["q"].results()
    answered = int(got.schema.metadata[b"windrow.as_of"])
    assert answered > 50
    assert_same(got, want.filter(pa.array(want.column("_ts").to_numpy() <= answered)))
    with pytest.raises(WindrowError, match="expire_every"):
        windrow.Engine(runtime="local", expire_every=0)


def test_a_user_function_sees_only_what_satisfies_the_rest() -> None:
    """The dearest predicate comes last: a function of the user is called for rows that meet every other predicate."""
    seen: list[int] = []

    def near(x: pa.Array, y: pa.Array) -> pa.Array:
        seen.extend(x.to_pylist())
        return pc.less_equal(x, y)

    windrow.function("lazily_near", near, returns="boolean")
    n = 40
    streams = {
        "S": pa.table({"k": np.arange(n) % 2, "x": np.arange(n), "ts": np.arange(n)}),
        "T": pa.table({"k": np.arange(n) % 2, "y": np.arange(n), "ts": np.arange(n)}),
    }
    join = "SELECT S.x, T.y FROM S [RANGE 10], T [RANGE 10] WHERE {} S.k = T.k AND S.x + T.y > 70"
    rest = windrow.run(join.format(""), streams, runtime="local")["q1"]
    answer = windrow.run(join.format("lazily_near(S.x, T.y) AND"), streams, runtime="local")["q1"]
    results = int((rest.column("_op").to_numpy() > 0).sum())
    assert 0 < answer.num_rows < rest.num_rows
    assert len(seen) <= results
