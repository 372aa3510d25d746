"""Shared answers are the answers: of the oracle, of the unshared circuits, whatever the technique and the batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.catalog import FunctionDef
from windrow.errors import RuntimeFailure, WindrowError
from windrow.replay import Replay
from windrow.sharing.group import Group, share
from windrow.sharing.recognise import NotShared, recognise
from windrow.testing import assert_same, oracle


def replayed(case: Any, sharing: str, slicing: str, batch_rows: int | None) -> tuple[dict[str, pa.Table], Group]:
    """The answers of the queries that a group serves, and the group."""
    replay = Replay.of(case.script, {"st": case.stream}, {"k": case.table})
    group, _ = share(replay.catalog.queries.values(), {}, replay.tables, sharing, slicing)
    parts = {name: [group.empty(name)] for name in group.served}
    begin = dict.fromkeys(replay.data, 0)
    for _, frontier in replay.frontiers(batch_rows):
        new = {k: replay._slice(k, begin, frontier) for k in replay.data}
        for name, table in group.shown(group.advance(new.__getitem__, frontier, replay.starts)):
            parts[name].append(table)
    return {name: pa.concat_tables(found) for name, found in parts.items()}, group


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
    got, group = replayed(case, sharing, r.choice(["paired", "paned"]), r.choice([None, 1, 3, 10]))
    assert set(got) == set(case.queries)
    assert not group.reasons
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
    group, _ = share(replay.catalog.queries.values(), {}, {}, "shards")
    new = replay._slice("st", {"st": 0}, 12)
    answers = dict(group.shown(group.advance(lambda _: new, 12, replay.starts)))
    assert answers["guarded"].to_pydict() == {"_ts": [5, 10], "s": [3, 3]}
    assert answers["fine"].to_pydict() == {"_ts": [5, 10], "c": [3, 3]}
    assert isinstance(group.failures["broken"], RuntimeFailure)
    assert "broken" not in group.served


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
    group, _ = share(replay.catalog.queries.values(), {n: f.fn for n, f in functions.items()}, {}, "shards")
    new = replay._slice("st", {"st": 0}, 12)
    answers = dict(group.shown(group.advance(lambda _: new, 12, replay.starts)))
    assert answers["a"].to_pydict() == {"_ts": [5, 10], "c": [3, 3]}
    assert answers["b"].to_pydict() == {"_ts": [5, 10], "c": [2, 2]}
    assert "no nines" in str(group.failures["c"])
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
    group, alone = share(replay.catalog.queries.values(), {}, {}, "shards")
    assert not alone
    assert len(group.families) == 1


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
