"""Rows wait for the next instant at which somebody is due, and nobody can tell."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

import windrow
from windrow.sharing import waiting
from windrow.sharing.family import Counters
from windrow.testing import assert_same

STREAM = "CREATE STREAM t (ts BIGINT, k BIGINT, x DOUBLE) TIMESTAMP BY ts WITHIN 4;"
QUERIES = {
    "total": "SELECT count(*) AS n, sum(x) AS s, max(x) AS m FROM t [RANGE 30 SLIDE 12]",
    "groups": "SELECT k, count(*) AS n, avg(x) AS a FROM t [RANGE 9 SLIDE 9] GROUP BY k",
    "long": "SELECT k, sum(x) AS s FROM t [RANGE 80 SLIDE 10] WHERE x > 1 GROUP BY k HAVING count(*) > 1",
    "some": "SELECT count(DISTINCT k) AS n FROM t [RANGE 40 SLIDE 20] WHERE k < 3",
    "changes": "SELECT ISTREAM count(*) AS n FROM t [RANGE 14 SLIDE 7]",
    "computed": "SELECT sum(k * 2) AS s FROM t [RANGE 25 SLIDE 25]",
    "hops": "SELECT k, min(x) AS m FROM HOP(t, ts, 15, 30) GROUP BY k, window_start, window_end",
}


def engine(sharing: str) -> windrow.Engine:
    """An engine without a home, over one stream whose rows may come a little late."""
    made = windrow.Engine(runtime="local", sharing=sharing)
    made.execute(STREAM)
    made.start()
    return made


def rows(seed: int, count: int = 160) -> pa.Table:
    """Rows in nearly the order of their times, with gaps."""
    r = random.Random(seed)
    at, found = 1, []
    for _ in range(count):
        at += r.choice([0, 0, 1, 1, 2, 5, 30] if r.random() < 0.5 else [0, 1])
        found.append({"ts": max(1, at - r.randint(0, 4)), "k": r.randint(0, 5), "x": r.choice([0.1, 1.5, 2.25, 7.0])})
    return pa.Table.from_pylist(found, pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("x", pa.float64())]))


def played(seed: int, sharing: str, names: Sequence[str]) -> dict[str, pa.Table]:
    """Small pushes; between them queries come, go and come again, and somebody looks at the state."""
    r, running, given = random.Random(seed), engine(sharing), rows(seed)
    coming, here, answers, at = list(names), list[str](), dict[str, pa.Table](), 0
    while at < given.num_rows:
        if coming and (not here or r.random() < 0.4):
            name = coming.pop()
            running.execute(f"CREATE QUERY {name} AS {QUERIES[name.partition('_')[0]]}")
            here.append(name)
        elif len(here) > 1 and r.random() < 0.1:
            name = here.pop(r.randrange(len(here)))
            answers[name] = running[name].results()
            running.execute(f"DROP QUERY {name}")
            if not name.endswith("_again"):
                coming.append(f"{name}_again")
        elif r.random() < 0.1:
            running.status()
        size = r.choice([1, 1, 2, 7])
        running.push("t", given.slice(at, size))
        at += size
    running.advance(int(given["ts"].to_numpy().max()) + 200)
    running.stop()
    return answers | {name: running[name].results() for name in here}


@pytest.mark.parametrize("full", [(1, 1), (5, 100), (1000, 3), (1 << 16, 1 << 8)])
@pytest.mark.parametrize("seed", range(6))
def test_whoever_comes_and_goes_has_the_answers_of_queries_apart(
    seed: int, full: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long rows wait, and whatever happens meanwhile, answers are those that every query has alone."""
    monkeypatch.setattr(waiting, "MOST_ROWS", full[0])
    monkeypatch.setattr(waiting, "MOST_BATCHES", full[1])
    names = random.Random(seed).sample(sorted(QUERIES), 1 + seed % 4)
    want, got = played(seed, "off", names), played(seed, "shards", names)
    assert want.keys() == got.keys()
    for name in want:
        assert_same(got[name], want[name])


def counted(running: windrow.Engine) -> Counters:
    """What has been done for the only family."""
    (family,) = running.runtime.sharing.families.values()
    return family.counters


def test_partials_are_formed_when_somebody_is_due() -> None:
    """Ticks between two instants look at no cell and form no partial; the rows of an instant are one pass."""
    running = engine("auto")
    running.execute("CREATE QUERY q AS SELECT k, count(*) AS n FROM t [RANGE 100 SLIDE 100] GROUP BY k")
    for ts in range(1, 100):
        running.push("t", {"ts": [ts], "k": [ts % 3], "x": [1.0]})
    assert (counted(running).rows, counted(running).lifted) == (99, 0)
    running.push("t", {"ts": [110], "k": [0], "x": [1.0]})
    assert (counted(running).rows, counted(running).lifted, counted(running).partials) == (100, 99, 3)
    running.stop()
    assert running["q"].results()["n"].to_pylist() == [33, 33, 33]


def test_who_looks_at_the_state_finds_all_rows() -> None:
    """What a status says of the state has the rows that wait, and what was done for it is counted once."""
    running = engine("auto")
    running.execute("CREATE QUERY q AS SELECT k, count(*) AS n FROM t [RANGE 100 SLIDE 100] GROUP BY k")
    running.push("t", {"ts": [1, 2, 3], "k": [0, 1, 2], "x": [1.0, 1.0, 1.0]})
    assert running.status()["queries"]["q"]["state_bytes"] > 0
    running.push("t", {"ts": [4], "k": [2], "x": [1.0]})
    running.advance(100)
    assert (counted(running).rows, counted(running).lifted) == (4, 4)
    running.stop()
    assert running["q"].results()["n"].to_pylist() == [1, 1, 2]


def test_an_expression_raises_with_its_row() -> None:
    """A query whose expression raises fails with the tick of the row, though nobody is due; the others go on."""
    running = engine("auto")
    running.execute(
        "CREATE QUERY fine AS SELECT count(*) AS n FROM t [RANGE 100 SLIDE 100];"
        "CREATE QUERY bad AS SELECT sum(CAST(k AS TINYINT)) AS s FROM t [RANGE 100 SLIDE 100]"
    )
    running.push("t", {"ts": [1], "k": [1], "x": [1.0]})
    assert not running.status()["failed"]
    running.push("t", {"ts": [2], "k": [1000], "x": [1.0]})
    assert list(running.status()["failed"]) == ["bad"]
    running.push("t", {"ts": [3], "k": [1], "x": [1.0]})
    running.advance(100)
    running.stop()
    assert running["fine"].results()["n"].to_pylist() == [3]
