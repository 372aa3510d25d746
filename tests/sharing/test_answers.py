"""Shared answers are the answers: of the oracle, of the unshared circuits, whatever the technique and the batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.catalog import FunctionDef
from windrow.engine.replay import Replay
from windrow.errors import RuntimeFailure, WindrowError
from windrow.runtime.job import Feed, LocalJob
from windrow.runtime.membership import Sharing
from windrow.runtime.tick import Ticker
from windrow.runtime.tick_result import TickResult
from windrow.sharing.recognise import NotShared, recognise
from windrow.store.store import MemoryStore
from windrow.testing import assert_same, oracle


def served(replay: Replay, sharing: str = "shards", slicing: str = "paired") -> tuple[LocalJob, Ticker]:
    """A job and a ticker whose queries share."""
    job = LocalJob()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windrow.runtime.registered.Sharing", partial(Sharing, slicing=slicing))
        return job, replay.registered(job, MemoryStore(), "upa", sharing=sharing)


def replayed(case: Any, sharing: str, slicing: str, batch_rows: int | None) -> tuple[dict[str, pa.Table], Sharing]:
    """The answers of all queries, and who shares."""
    replay = Replay.of(case.script, {"st": case.stream}, {"k": case.table})
    job, ticker = served(replay, sharing, slicing)
    return replay.play(ticker, job, batch_rows), ticker.sharing


def one_tick(replay: Replay) -> tuple[TickResult, Ticker]:
    """All rows up to 12 in one tick."""
    job, ticker = served(replay)
    tick = ticker.run(job, [Feed("st", replay.data["st"].rows)], 12)
    ticker.commit(tick)
    ticker.take_apart(tick)
    return tick, ticker


@pytest.mark.parametrize("seed", range(12))
def test_shared_answers_equal_the_oracle(make_case: Callable[[int], Any], seed: int) -> None:
    """All queries of a random set, on the public door."""
    case, r = make_case(seed), random.Random(seed)
    want = oracle(case.script, {"st": case.stream}, {"k": case.table})
    for sharing in ("auto", "shards"):
        options = {"sharing": sharing, "batch_rows": r.choice([None, 1, 7])}
        got = windrow.run(case.script, {"st": case.stream}, {"k": case.table}, runtime="local", **options)
        for name in want:
            assert_same(got[name], want[name])


@pytest.mark.parametrize("sharing", ["slices", "fragments", "shards"])
@pytest.mark.parametrize("seed", range(100, 106))
def test_every_technique_gives_the_unshared_answers(make_case: Callable[[int], Any], seed: int, sharing: str) -> None:
    """Slices, fragments and shards, paired and paned, in one batch or many."""
    case, r = make_case(seed), random.Random(seed)
    want = windrow.run(case.script, {"st": case.stream}, {"k": case.table}, runtime="local", sharing="off")
    got, registry = replayed(case, sharing, r.choice(["paired", "paned"]), r.choice([None, 1, 3, 10]))
    assert set(got) == set(case.queries) == set(registry.served)
    assert not registry.reasons
    for name in want:
        assert_same(got[name], want[name])


ROWS = pa.table({"ts": [1, 2, 3, 12], "g": ["a", "b", "a", "c"], "v": ["1", "2", "x", "4"], "n": [5, 7, 9, 11]})


def test_an_expression_that_raises_stops_its_query_alone() -> None:
    """A cast that fails on a row that an earlier predicate removes does no harm; where it is reached, it does."""
    guarded = "SELECT sum(CAST(v AS BIGINT)) AS s FROM st [RANGE 10 SLIDE 5] WHERE n <> 9"
    broken = "SELECT sum(CAST(v AS BIGINT)) AS s FROM st [RANGE 10 SLIDE 5]"
    fine = "SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5]"
    script = f"CREATE QUERY guarded AS {guarded}; CREATE QUERY broken AS {broken}; CREATE QUERY fine AS {fine}"
    replay = Replay.of(script, {"st": ROWS}, {})
    tick, ticker = one_tick(replay)
    answers = tick.answers
    assert answers["guarded"].to_pydict() == {"_ts": [5, 10], "s": [3, 3]}
    assert answers["fine"].to_pydict() == {"_ts": [5, 10], "c": [3, 3]}
    assert isinstance(tick.failed["broken"], RuntimeFailure)
    assert "broken" not in ticker.sharing.served


def test_a_python_predicate_shares_and_may_raise() -> None:
    """A user's predicate is a bit; one that raises stops its query with the user's error."""

    def odd(values: pa.Array) -> list[bool]:
        return [v % 2 == 1 for v in values.to_pylist()]

    def picky(values: pa.Array) -> list[bool]:
        if 9 in values.to_pylist():
            raise ValueError("no nines")
        return [True] * len(values)

    functions = {n: FunctionDef(n, f, pa.bool_()) for n, f in (("odd", odd), ("picky", picky))}
    script = (
        "CREATE QUERY a AS SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5] WHERE odd(n);"
        "CREATE QUERY b AS SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5] WHERE n < 9 AND picky(n);"
        "CREATE QUERY c AS SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5] WHERE picky(n)"
    )
    replay = Replay.of(script, {"st": ROWS}, {}, functions=functions)
    tick, _ = one_tick(replay)
    answers = tick.answers
    assert answers["a"].to_pydict() == {"_ts": [5, 10], "c": [3, 3]}
    assert answers["b"].to_pydict() == {"_ts": [5, 10], "c": [2, 2]}
    assert "no nines" in str(tick.failed["c"])
    with pytest.raises(RuntimeFailure, match="picky"):
        windrow.run(script, {"st": ROWS}, runtime="local", functions=functions, sharing="shards")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT count(*) FROM st [RANGE 10]", "periodic"),
        ("SELECT n FROM st [RANGE 10 SLIDE 5]", "aggregate"),
        ("SELECT count(*) FROM st [RANGE UNBOUNDED SLIDE 5]", "RANGE"),
        ("SELECT count(*) FROM st [RANGE 10 SLIDE 5] a, st [RANGE 10 SLIDE 5] b WHERE a.n = b.n", "streams"),
    ],
)
def test_what_does_not_share(text: str, why: str) -> None:
    """A query that cannot share says why."""
    replay = Replay.of(f"CREATE QUERY q AS {text}", {"st": ROWS}, {})
    with pytest.raises(NotShared, match=why):
        recognise(replay.catalog.queries["q"])


def test_aliases_do_not_matter() -> None:
    """Queries that name the stream differently are of one family."""
    script = (
        "CREATE QUERY a AS SELECT sum(p.n) FROM st p [RANGE 10 SLIDE 5] WHERE p.n > 3;"
        "CREATE QUERY b AS SELECT sum(Q.N) FROM ST Q [RANGE 8 SLIDE 2] WHERE Q.g = 'a'"
    )
    replay = Replay.of(script, {"st": ROWS}, {})
    _, ticker = served(replay)
    assert set(ticker.sharing.served) == {"a", "b"}
    assert len(ticker.sharing.families) == 1


def test_unknown_techniques_are_refused() -> None:
    """The error names the techniques there are."""
    with pytest.raises(WindrowError, match="unknown sharing") as caught:
        windrow.run("SELECT count(*) FROM st [RANGE 1 SLIDE 1]", {"st": ROWS}, runtime="local", sharing="some")
    assert "fragments" in str(caught.value)


def test_many_groups() -> None:
    """Grouped partials with more groups than a dense table would hold."""
    n = 60_000
    table = pa.table(
        {"ts": [i // 600 for i in range(n)], "g": [i * 7919 % 50_000 for i in range(n)], "v": list(range(n))}
    )
    script = (
        "CREATE QUERY a AS SELECT g, sum(v) AS s, max(v) AS m FROM st [RANGE 50 SLIDE 30] WHERE v % 2 = 0 GROUP BY g;"
        "CREATE QUERY b AS SELECT g, sum(v) AS s, max(v) AS m FROM st [RANGE 40 SLIDE 20] "
        "WHERE v > 1000 AND v < 50000 GROUP BY g"
    )
    want = windrow.run(script, {"st": table}, runtime="local", sharing="off")
    got = windrow.run(script, {"st": table}, runtime="local", sharing="shards", batch_rows=25_000)
    for name in want:
        order = [("_ts", "ascending"), ("g", "ascending")]
        assert got[name].sort_by(order).equals(want[name].sort_by(order))
