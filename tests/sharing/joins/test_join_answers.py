"""Answers from shared joins are the answers: of the oracle, whatever the batches, tasks and restarts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.sharing.joins.synopsis import JoinSynopsis
from windrow.store.store import Store
from windrow.testing import assert_same, oracle

Case = Any
DECLARED = """
    CREATE STREAM r (ts BIGINT, k BIGINT, a BIGINT, w VARCHAR) TIMESTAMP BY ts;
    CREATE STREAM s (ts BIGINT, k BIGINT, x DOUBLE, b BIGINT) TIMESTAMP BY ts;
"""


@pytest.mark.parametrize("seed", range(12))
def test_shared_joins_equal_the_oracle(make_join_case: Callable[[int], Case], seed: int) -> None:
    """Random windows, predicates, keys and functions over one join, in one batch or many."""
    case, r = make_join_case(seed), random.Random(seed)
    want = oracle(case.script, case.streams)
    got = windrow.run(
        case.script, case.streams, runtime="local", sharing="shards", batch_rows=r.choice([None, 1, 5, 17])
    )
    for name in want:
        assert_same(got[name], want[name])


@pytest.mark.parametrize("seed", range(100, 112))
def test_tasks_and_restarts_change_nothing(
    make_join_case: Callable[[int], Case], in_process_job: Any, tmp_path: Path, seed: int
) -> None:
    """Several partitions, messages in any order, tasks that run twice, workers that forget, state from disk."""
    case, r = make_join_case(seed), random.Random(seed)
    want = windrow.run(case.script, case.streams, runtime="local", sharing="off")
    replay = Replay.of(case.script, dict(case.streams), {})
    partitions = r.choice([1, 2, 3])
    job = in_process_job(2, chaos=seed, partitions=partitions)
    with Store.open(str(tmp_path / "home")) as store:
        got = replay.on(job, store, r.choice([7, 20, None]), partitions=partitions, sharing="shards")
    for name in want:
        assert_same(got[name], want[name])


def played(case: Case, seed: int, sharing: str, home: str | None = None) -> dict[str, pa.Table]:
    """Push rows of both streams in batches; between them queries come and go, and the engine is started anew."""
    r = random.Random(seed)
    running = windrow.Engine(runtime="local", sharing=sharing, home=home)
    running.execute(DECLARED)
    running.start()
    waiting, here, answers = list(case.queries.items()), list[str](), dict[str, list[pa.Table]]()
    rows = {name: case.streams[name] for name in "rs"}
    at, until = 0, max((t["ts"].to_pylist()[-1] for t in rows.values() if t.num_rows), default=0)
    least = min((t["ts"].to_pylist()[0] for t in rows.values() if t.num_rows), default=0)
    now = least - 1
    while now < until or waiting:
        for _ in range(r.choice([0, 1, 2])):
            if waiting:
                name, text = waiting.pop()
                running.execute(f"CREATE QUERY {name} AS {text}")
                here.append(name)
        if len(here) > 1 and r.random() < 0.15:
            gone = here.pop(r.randrange(len(here)))
            answers.setdefault(gone, []).append(running[gone].results())
            running.execute(f"DROP QUERY {gone}")
        before, now = now, now + r.randint(1, 9)
        for name in "rs":
            new = rows[name].filter((pa.compute.field("ts") > before) & (pa.compute.field("ts") <= now))
            if new.num_rows:
                running.push(name, new)
        if home is not None and r.random() < 0.3:
            for name in here:
                answers.setdefault(name, []).append(running[name].results())
            running.stop()
            running = windrow.Engine(runtime="local", sharing=sharing, home=home)
            running.start()
        at += 1
    running.advance(90)
    running.stop()
    for name in here:
        answers.setdefault(name, []).append(running[name].results())
    return {name: pa.concat_tables(found) for name, found in answers.items()}


@pytest.mark.parametrize("seed", range(200, 208))
def test_queries_come_and_go(make_join_case: Callable[[int], Case], seed: int) -> None:
    """Whenever a query comes over a join, and whoever leaves, its answers are those that it has alone."""
    case = make_join_case(seed)
    want, got = played(case, seed, "off"), played(case, seed, "shards")
    assert want.keys() == got.keys()
    for name in want:
        assert_same(got[name], want[name])


@pytest.mark.parametrize("seed", range(300, 304))
def test_a_home_is_taken_up_again(make_join_case: Callable[[int], Case], tmp_path: Path, seed: int) -> None:
    """Engines that are started anew over a home go on with the joins that it was left with."""
    case = make_join_case(seed)
    want = played(case, seed, "off", str(tmp_path / "off"))
    got = played(case, seed, "shards", str(tmp_path / "on"))
    for name in want:
        assert_same(got[name], want[name])


def many(count: int, text: str) -> Mapping[str, str]:
    return {f"q{i}": text.format(n=5 + i, s=1 + i % 4) for i in range(count)}


def test_one_join_state_and_one_synopsis_for_many_windows() -> None:
    """Aggregates of different windows, periods and functions over one join form its pairs once."""
    texts = many(6, "SELECT sum(a) AS c FROM r [RANGE {n} SLIDE {s}], s [RANGE {n} SLIDE {s}] WHERE r.k = s.k")
    texts |= many(6, "SELECT r.w, max(x) AS c FROM s [RANGE {n} SLIDE {s}], r [RANGE {n} SLIDE {s}] "
                     "WHERE r.k = s.k GROUP BY r.w")  # fmt: skip
    running = windrow.Engine(runtime="local")
    running.execute(DECLARED + ";".join(f"CREATE QUERY {n} AS {t}" for n, t in texts.items()))
    sharing = running.runtime.sharing
    assert len(sharing.joins.families) == 1
    assert set(sharing.joins.served) == set(texts)
    running.start()
    running.push("r", {"ts": [1, 2, 3], "k": [1, 1, 2], "a": [5, 7, 9], "w": ["a", "b", "b"]})
    running.push("s", {"ts": [2, 3, 4], "k": [1, 2, 1], "x": [0.5, 1.5, 2.5], "b": [1, 1, 1]})
    running.advance(20)
    (family,) = sharing.joins.families.values()
    assert family.counters.partials == 5
    running.stop()


def test_readers_whom_no_row_concerns_are_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row costs the queries that want it, and those whose windows are due."""
    running = windrow.Engine(runtime="local")
    running.execute(DECLARED)
    running.start()
    for i in range(8):
        text = f"SELECT count(*) AS n FROM r [RANGE 9 SLIDE 50], s [RANGE 9 SLIDE 50] WHERE r.k = s.k AND r.k = {i}"
        running.execute(f"CREATE QUERY q{i} AS {text} AND s.k = {i}")

    def push(ts: int) -> None:
        running.push("r", {"ts": [ts], "k": [5], "a": [1], "w": ["x"]})
        running.push("s", {"ts": [ts], "k": [5], "x": [1.0], "b": [1]})

    swept, sweep = list[object](), JoinSynopsis.sweep
    for ts in range(41, 45):
        push(ts)
    monkeypatch.setattr(JoinSynopsis, "sweep", lambda self, *args: swept.append(self) or sweep(self, *args))
    for ts in range(45, 49):
        push(ts)
    assert len(swept) > 0
    assert len(set(map(id, swept))) == 1
    push(55)
    running.advance(60)
    assert len(set(map(id, swept))) == 8
    assert [running[f"q{i}"].results().column("n").to_pylist() for i in (4, 5)] == [[0], [7 * 7]]  # of 42 to 48
    running.stop()


def test_a_query_over_a_join_is_alone_until_another_comes() -> None:
    """The first runs by itself, and moves in with the second if nothing has run yet; later ones share without it."""
    text = "SELECT count(*) AS c FROM r [RANGE 9 SLIDE 3], s [RANGE 9 SLIDE 3] WHERE r.k = s.k"
    running = windrow.Engine(runtime="local")
    running.execute(f"{DECLARED} CREATE QUERY one AS {text}")
    assert not running.runtime.sharing.joins.served
    running.execute(f"CREATE QUERY two AS {text}")
    assert set(running.runtime.sharing.joins.served) == {"one", "two"}
    begun = windrow.Engine(runtime="local")
    begun.execute(f"{DECLARED} CREATE QUERY one AS {text}")
    begun.start()
    begun.push("r", {"ts": [1, 5], "k": [1, 1], "a": [5, 7], "w": ["a", "b"]})
    begun.push("s", {"ts": [1, 5], "k": [1, 1], "x": [0.5, 1.5], "b": [1, 1]})
    begun.execute(f"CREATE QUERY two AS {text}; CREATE QUERY three AS {text}")
    assert set(begun.runtime.sharing.joins.served) == {"two", "three"}
    begun.advance(20)
    assert begun["two"].results().column("_ts").to_pylist()[-1] == begun["one"].results().column("_ts").to_pylist()[-1]
    begun.stop()
    running.stop()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT count(*) AS c FROM r [ROWS 3], s [RANGE 9 SLIDE 3] WHERE r.k = s.k", "RANGE with a SLIDE"),
        (
            "SELECT count(*) AS c FROM r [RANGE 9 SLIDE 3], s [RANGE 9 SLIDE 3] "
            "WHERE r.k = s.k AND CAST(r.w AS INT) = 1",
            "above its join may raise",
        ),
        ("SELECT count(*) AS c FROM r [RANGE 9 SLIDE 3], s [RANGE 9 SLIDE 3] WHERE r.k = s.k AND r.a < s.b", "both"),
        ("SELECT sum(a + b) AS c FROM r [RANGE 9 SLIDE 3], s [RANGE 9 SLIDE 3] WHERE r.k = s.k", "both"),
        ("SELECT sum(a + 1) AS c FROM r [RANGE 9 SLIDE 3], s [RANGE 9 SLIDE 3] WHERE r.k = s.k", "may raise"),
        ("SELECT count(*) AS c FROM r [RANGE 9], s [RANGE 9] WHERE r.k = s.k", "not periodic"),
        ("SELECT count(*) AS c FROM TUMBLE(r, ts, 9) r, TUMBLE(s, ts, 9) s WHERE r.k = s.k", ""),
    ],
)
def test_what_does_not_share_says_why(text: str, why: str) -> None:
    """Joins that are not of two time windows by equality, or whose expressions read both sides or may raise."""
    running = windrow.Engine(runtime="local")
    running.execute(f"{DECLARED} CREATE QUERY one AS {text}; CREATE QUERY two AS {text}")
    assert why in running.runtime.sharing.reasons["two"]
    running.stop()


def test_a_predicate_that_raises_stops_its_query_alone() -> None:
    """A cast below the join fails on a row: its query ends with the error, the others go on."""
    text = "SELECT count(*) AS c FROM {} r, s [RANGE 9 SLIDE 3] WHERE r.k = s.k"
    fine, cast = text.format("r [RANGE 9 SLIDE 3]"), "(SELECT k FROM r [RANGE 9 SLIDE 3] WHERE CAST(w AS BIGINT) > 1)"
    running = windrow.Engine(runtime="local")
    running.execute(
        f"{DECLARED} CREATE QUERY fine AS {fine}; CREATE QUERY bad AS {text.format(cast)}; CREATE QUERY good AS {fine}"
    )
    assert len(running.runtime.sharing.joins.served) == 3
    running.start()
    running.push("r", {"ts": [1, 2], "k": [1, 1], "a": [5, 7], "w": ["7", "x"]})
    running.push("s", {"ts": [1, 2], "k": [1, 1], "x": [0.5, 1.5], "b": [1, 1]})
    running.advance(6)
    assert running["fine"].results()["c"].to_pylist() == running["good"].results()["c"].to_pylist() == [4, 4]
    assert "bad" in running.status()["failed"]
    running.stop()


def test_keys_and_groups_that_are_gone_are_forgotten() -> None:
    """A join whose keys are always new keeps those of its windows, not all there ever were."""
    text = "SELECT r.a, count(*) AS c FROM r [RANGE 9 SLIDE 3], s [RANGE 9 SLIDE 3] WHERE r.k = s.k GROUP BY r.a"
    running = windrow.Engine(runtime="local")
    running.execute(f"{DECLARED} CREATE QUERY one AS {text}; CREATE QUERY two AS {text}")
    running.start()
    for tick in range(12):
        new = list(range(tick * 2000, tick * 2000 + 2000))
        ts = [tick * 10 + 1] * 2000
        running.push("r", {"ts": ts, "k": new, "a": new, "w": ["a"] * 2000})
        running.push("s", {"ts": ts, "k": new, "x": [0.5] * 2000, "b": [1] * 2000})
    running.advance(200)
    assert running["one"].results().group_by("_ts").aggregate([("c", "sum")])["c_sum"].to_pylist() == [2000] * 36
    (states,) = (states for _, states in running.runtime.job.memory.attempts.values())
    (state,) = (s for s in states.values() if hasattr(s, "operator"))
    assert len(state.operator._keys) < 8000
    running.stop()


@pytest.mark.parametrize("window", ["TUMBLE({}, ts, 9)", "HOP({}, ts, 3, 9)", "HOP({}, ts, 3, 9, 1)"])
def test_windows_of_the_standard_are_not_taken_for_ranges(make_join_case: Callable[[int], Case], window: str) -> None:
    """TUMBLE and HOP hold what came before their end: shared or not, the answers are the oracle's."""
    case = make_join_case(6)
    text = f"SELECT count(*) AS c FROM {window.format('r')} r, {window.format('s')} s WHERE r.k = s.k"
    script = f"CREATE QUERY one AS {text}; CREATE QUERY two AS {text}"
    want = oracle(script, case.streams)
    got = windrow.run(script, case.streams, runtime="local", sharing="shards")
    for name in want:
        assert_same(got[name], want[name])


JOINED = "FROM r [RANGE {0} SLIDE {2}], s [RANGE {1} SLIDE {2}] WHERE r.k = s.k"
RULES = {
    "SS3": ("sum(a)", (8, 8, 2), (20, 20, 4), "AND a > 1"),
    "CS5": ("max(w)", (8, 8, 2), (20, 12, 4), "AND a > 1"),
    "CS4": ("sum(a)", (80, 80, 2), (80, 80, 4), "AND a > 1"),
    "CS8": ("sum(a)", (8, 8, 2), (8, 8, 4), "AND a > 1"),
}
"""An aggregate, windows and periods of two queries that share by a rule, and a predicate that makes them two kinds."""


@pytest.mark.parametrize("rule", RULES)
def test_explain_names_the_rule_of_a_join(rule: str) -> None:
    """EXPLAIN names the rule and the synopsis by which queries over a join share; not with another predicate."""
    what, one, two, predicate = RULES[rule]
    queries = {"a": one, "b": two, "c": two}
    running = windrow.Engine(runtime="local")
    running.execute(DECLARED + ";".join(
        f"CREATE QUERY {n} AS SELECT {what} AS x {JOINED.format(*w)} {predicate if n == 'c' else ''}"
        for n, w in queries.items()
    ))  # fmt: skip
    running.start()
    if rule == "CS4":  # no results, many windows: sums from each interval on
        for t in range(1, 40):
            running.push("r", {"ts": [t], "k": [t], "a": [1], "w": ["x"]})
            running.push("s", {"ts": [t], "k": [-t], "x": [0.5], "b": [1]})
    sharing, text = json.loads(running["a"].explain("json"))["sharing"], running["a"].explain()
    assert sharing["rules"][rule] == ["b"]
    assert f"rule {rule}: b\n" in text
    assert sharing["synopsis"]["kind"] == ("running join" if rule == "CS4" else sharing["synopsis"]["kind"])
    assert f"synopsis: {sharing['synopsis']['kind']}, up to" in text
    running.stop()
