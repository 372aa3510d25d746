"""SLIDE AT MOST in a live engine: answers are exact for their instants, and under overload late in a fair order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow
from windrow.catalog import Catalog
from windrow.engine.script import bind_script
from windrow.optimize import optimize
from windrow.runtime.deadline_program import Deadline, DeadlineProgram, evaluated
from windrow.runtime.deadlines import DeadlineRecord, Deadlines
from windrow.runtime.evaluation_costs import EvaluationCosts, RunCost
from windrow.runtime.job import Feed
from windrow.runtime.tick import Ticker
from windrow.schedule.technique import Joint
from windrow.sharing.member import Spent
from windrow.sharing.query_group import HeldInstants
from windrow.store.manifest_values import LastEvaluation
from windrow.store.store import Store
from windrow.testing import assert_same, oracle

DECLARED = "CREATE STREAM r (ts BIGINT, g BIGINT, a BIGINT) TIMESTAMP BY ts;"
TEXTS = {
    f"q{i}": text.format(r=8 + 3 * i, s=2 + i)
    for i, text in enumerate(
        (
            "SELECT g, median(a) AS m FROM r [RANGE {r} SLIDE AT MOST {s}] GROUP BY g",
            "SELECT count(*) AS n, sum(a) AS s FROM r [RANGE {r} SLIDE AT MOST {s}] WHERE a > 3",
            "SELECT g, sum(a) AS s FROM r [RANGE {r} SLIDE AT MOST {s}] GROUP BY g HAVING count(*) > 1",
            "SELECT count(DISTINCT a) AS n, max(a) AS m FROM r [RANGE {r} SLIDE AT MOST {s}]",
            "SELECT min(a) AS m, avg(a) AS v FROM r [RANGE {r} SLIDE AT MOST {s}]",
            "SELECT g, count(*) AS n FROM r [RANGE 40 SLIDE AT MOST 3] GROUP BY g",
        )
    )
}
SCRIPT = DECLARED + ";".join(f"CREATE QUERY {n} AS {t}" for n, t in TEXTS.items())


def rows(first: int, last: int) -> pa.Table:
    """Three rows at every instant."""
    each = [(t, k) for t in range(first, last) for k in range(3)]
    return pa.table({
        "ts": [t for t, _ in each], "g": [(t + 3 * k) % 4 for t, k in each],
        "a": [(7 * k + t * t) % 11 for t, k in each],
    })  # fmt: skip


def engine(budget: str | None, home: str | None = None) -> windrow.Engine:
    return windrow.Engine(runtime="local", sharing="shards", tick_budget=budget, home=home)


def created(running: windrow.Engine) -> windrow.Engine:
    running.execute(SCRIPT)
    running.start()
    return running


def whole() -> dict[str, pa.Table]:
    """The answers at every multiple."""
    return windrow.run(SCRIPT, {"r": rows(1, 101)}, runtime="local", sharing="off")


def batches() -> Iterator[pa.Table]:
    return (rows(t, t + 4) for t in range(1, 101, 4))


def check_exact(got: pa.Table, want: pa.Table) -> None:
    """What was answered for an instant is what the definition has there."""
    instants = pa.array(sorted(set(got["_ts"].to_pylist())), pa.int64())
    assert_same(got, want.filter(pa.compute.is_in(want["_ts"], instants)))


def test_with_time_to_spare_every_multiple_is_answered() -> None:
    """Without a budget, or with a large one, AT MOST is SLIDE."""
    want = whole()
    for budget in (None, "1 hour"):
        running = created(engine(budget))
        for batch in batches():
            running.push("r", batch)
        running.advance(100)
        for name in TEXTS:
            assert_same(running[name].results(), want[name])
            status = running.status()["queries"][name]["deadline"]
            assert (status["skipped"], status["late_most"]) == (0, 0)
        running.stop()


def test_under_overload_answers_are_late_but_exact_and_nothing_is_shed() -> None:
    """With hardly any time, queries take turns; each answer is right for the instant it names."""
    want, running = whole(), created(engine("1 us"))
    for batch in batches():
        running.push("r", batch)
    status = running.status()["queries"]
    for name in TEXTS:
        got = running[name].results()
        assert got.num_rows
        check_exact(got, want[name])
        assert status[name]["deadline"]["evaluations"] >= 2
        assert status[name]["quality"] is None
    assert sum(status[n]["deadline"]["skipped"] for n in TEXTS) > 5
    running.stop()


EVERY_MULTIPLE = {
    "SELECT ISTREAM(g, count(*)) FROM r [RANGE 9 SLIDE AT MOST 4] GROUP BY g": "it answers with changes",
    "SELECT DSTREAM(sum(a)) FROM r [RANGE 9 SLIDE AT MOST 4]": "it answers with changes",
    "SELECT DISTINCT count(*) AS n FROM r [RANGE 9 SLIDE AT MOST 4] GROUP BY g": "it compares the rows of its answer",
    "SELECT DISTINCT g FROM r [RANGE 9 SLIDE AT MOST 4]": "it is no aggregate of one window",
    "SELECT g, a FROM r [RANGE 9 SLIDE AT MOST 4]": "it is no aggregate of one window (quantise)",
    "SELECT g, a FROM r [RANGE 9 SLIDE AT MOST 4] ORDER BY a LIMIT 2": "",
    "SELECT g, a, rank() OVER (PARTITION BY g ORDER BY a) AS n FROM r [RANGE 9 SLIDE AT MOST 4]": "",
    "SELECT r.g FROM r [RANGE 9 SLIDE AT MOST 4] WHERE NOT EXISTS "
    "(SELECT 1 FROM q [RANGE 9 SLIDE AT MOST 4] WHERE q.g = r.g AND q.a > r.a)": "",
    "SELECT count(*) AS n FROM r [RANGE 9 SLIDE AT MOST 4] LEFT JOIN q [RANGE 9 SLIDE AT MOST 4] ON r.a = q.a": "",
    "SELECT count(*) AS n FROM r [RANGE 9 SLIDE AT MOST 4], q [RANGE 9 SLIDE AT MOST 4] WHERE r.a = q.a AND r.g < q.g":
        "it compares columns of both streams",
    "SELECT r.a FROM r [RANGE 9 SLIDE AT MOST 4], q [RANGE 9 SLIDE AT MOST 4] WHERE r.a = q.a":
        "it is no aggregate of a join",
    "SELECT frequent(a, 4) AS f FROM r [RANGE 8 SLIDE AT MOST 4]":
        "its basic windows are its periods, which must not move (SLIDE AT MOST)",
}  # fmt: skip


@pytest.mark.parametrize("text", EVERY_MULTIPLE)
def test_what_cannot_be_late_is_answered_at_every_multiple_and_says_so(text: str) -> None:
    """Other kinds of periodic queries fall back on their multiples, whatever the budget; status has the reason."""
    script = f"{DECLARED} CREATE STREAM q (ts BIGINT, g BIGINT, a BIGINT) TIMESTAMP BY ts; CREATE QUERY x AS {text}"
    streams = {"r": rows(1, 33), "q": rows(1, 33)}
    running = windrow.Engine(runtime="local", tick_budget="1 us")
    running.execute(script)
    running.start()
    for first in range(1, 33, 8):
        for stream in "rq":
            running.push(stream, rows(first, first + 8))
    running.advance(32)
    assert_same(running["x"].results(), windrow.run(script, streams, runtime="local", until=32)["x"])
    status = running.status()["queries"]["x"]["deadline"]
    assert (status["scheduled"], status["period"], status["done"], status["late"]) == (False, 4, 32, 0)
    assert EVERY_MULTIPLE[text] in status["why"]
    running.stop()


def test_a_home_remembers_how_far_queries_were_evaluated(tmp_path: Path) -> None:
    """An engine that is started anew repeats no answer and goes on where deadlines stood."""
    want, home, parts = whole(), str(tmp_path / "home"), dict[str, list[pa.Table]]()
    running = created(engine("1 us", home))
    for n, batch in enumerate(batches()):
        running.push("r", batch)
        if n % 7 == 6:
            for name in TEXTS:
                parts.setdefault(name, []).append(running[name].results())
            running.stop()
            running = engine("1 us", home)
            running.start()
    for name in TEXTS:
        check_exact(pa.concat_tables([*parts[name], running[name].results()]), want[name])
    running.stop()


MEETING = {"a": (10, 2), "b": (6, 2), "c": (15, 3), "d": (20, 5), "e": (30, 7)}
"""(RANGE, SLIDE AT MOST) of medians in one group: hybrid lets some of the later ones run more often, to meet others."""


def medians(slides: Mapping[str, int | str]) -> str:
    text = "CREATE QUERY {} AS SELECT g, median(a) AS m FROM r [RANGE {} SLIDE {}] GROUP BY g"
    return DECLARED + ";".join(text.format(n, MEETING[n][0], slides[n]) for n in slides)


@pytest.mark.parametrize("schedule", ["hybrid", "aggressive"])
def test_a_period_that_was_shortened_is_a_period(tmp_path: Path, schedule: str) -> None:
    """With time to spare a query is answered at every multiple of the period that was chosen, after a restart, too."""
    home, parts = str(tmp_path / "home"), dict[str, list[pa.Table]]()
    running = windrow.Engine(runtime="local", home=home, tick_budget="1 hour", schedule=schedule)
    running.execute(medians({n: f"AT MOST {s}" for n, (_, s) in MEETING.items()}))
    chosen = {n: running.status()["queries"][n]["deadline"]["period"] for n in MEETING}
    assert all(chosen[n] <= s for n, (_, s) in MEETING.items())
    assert any(chosen[n] < s for n, (_, s) in MEETING.items())
    running.start()
    for k, batch in enumerate(batches()):
        running.push("r", batch)
        if k == 11:
            parts = {n: [running[n].results()] for n in MEETING}
            running.stop()
            running = windrow.Engine(runtime="local", home=home, tick_budget="1 hour", schedule=schedule)
            running.start()
    running.advance(100)
    want = oracle(medians(chosen), {"r": rows(1, 101)}, until=100)
    for name, period in chosen.items():
        assert running.status()["queries"][name]["deadline"]["period"] == period
        assert_same(pa.concat_tables([*parts[name], running[name].results()]), want[name])
    running.stop()


def test_under_overload_a_shortened_period_is_exact_where_it_is_answered() -> None:
    """Late answers carry instants between the multiples that were asked for, and are exact there."""
    running = windrow.Engine(runtime="local", tick_budget="1 us", schedule="late-pending")
    running.execute(medians({n: f"AT MOST {s}" for n, (_, s) in MEETING.items()}))
    running.start()
    for batch in batches():
        running.push("r", batch)
    want = oracle(medians(dict.fromkeys(MEETING, 1)), {"r": rows(1, 101)})
    between = set()
    for name, (_, asked) in MEETING.items():
        got = running[name].results()
        check_exact(got, want[name])
        between |= {t for t in got["_ts"].to_pylist() if t % asked}
    assert between
    running.stop()


def test_a_replay_knows_no_shorter_period() -> None:
    """A replay evaluates at every multiple of the period that was asked for, and at no other instant."""
    script = medians({n: f"AT MOST {s}" for n, (_, s) in MEETING.items()})
    for name, table in windrow.run(script, {"r": rows(1, 101)}, runtime="local").items():
        asked = MEETING[name][1]
        assert set(table["_ts"].to_pylist()) == set(range(asked, 101, asked))


@pytest.mark.parametrize("seed", range(3))
def test_tasks_decide_alike(in_process_job: Any, tmp_path: Path, seed: int) -> None:
    """Several partitions, tasks that run twice and forget: every partition answers the same instants."""
    want, catalog = whole(), bind_script(SCRIPT, Catalog())
    job = in_process_job(2, chaos=seed, partitions=3)
    got: dict[str, list[pa.Table]] = {}
    with Store.open(str(tmp_path / "home")) as store:
        ticker = Ticker(store, {}, 3, "shards")
        ticker.deadlines = Deadlines(1e-6)
        for stream in catalog.streams.values():
            ticker.add_stream(stream)
        for plan in catalog.queries.values():
            ticker.add_query(optimize(plan, catalog), "upa")
        for batch in batches():
            tick = ticker.run(job, [Feed("r", batch)])
            ticker.take_apart(tick)
            ticker.commit(tick)
            for name, table in tick.answers.items():
                got.setdefault(name, []).append(table)
    assert set(got) == set(TEXTS)
    for name, parts in got.items():
        check_exact(pa.concat_tables(parts), want[name])


def record(period: int, done: int | None = None) -> DeadlineRecord:
    return DeadlineRecord(period, period, "q", 0, done)


def test_lateness_is_what_lies_between() -> None:
    """A query of period 5 that is evaluated at 10, and when time has come to 27 for 25, was late by 12 and says so."""
    deadlines = Deadlines()
    deadlines.add("q", record(5))
    deadlines.ran({"q": HeldInstants(2, 1, 0, 5)}, {"q": Spent(0, 1, 0.5)}, 10, 8)
    deadlines.ran({"q": HeldInstants(5, 1, 0, 5)}, {"q": Spent(0, 1, 0.5)}, 27, 23)
    status = deadlines.status("q", 32)
    assert status is not None
    assert (status["done"], status["due"], status["late"]) == (25, 30, 2)
    assert (status["late_last"], status["late_most"], status["late_sum"]) == (12, 12, 12)
    assert (status["skipped"], status["evaluations"], status["on_time"]) == (2, 2, 1)
    assert status["seconds"] == 0.5


def test_what_was_evaluated_without_a_budget_is_done() -> None:
    """That follows from the frontier, and is not written; with a budget it is."""
    deadlines = Deadlines()
    deadlines.add("q", record(5, 10))
    assert deadlines.program(12) is None
    deadlines.free(33)
    assert deadlines.done(deadlines.records["q"]) == 30
    assert deadlines.saved() == {}
    deadlines.budget = 1.0
    assert deadlines.saved() == {"q": LastEvaluation(5, 30)}


@given(st.floats(0, 1e-3), st.floats(0, 1e-3), st.lists(st.tuples(st.integers(1, 100), st.integers(1, 9)), min_size=1))
def test_costs_are_those_of_the_runs(read: float, finish: float, runs: list[tuple[int, int]]) -> None:
    """What runs like those that were seen will take is foretold, whether or not the two parts can be told apart."""
    costs = EvaluationCosts()
    for depth, answers in runs:
        costs.observe({"g": Spent(depth, answers, read * depth + finish * answers)})
    found = costs.groups["g"]
    assert found.read >= 0 and found.finish >= 0
    if len({d / a for d, a in runs}) == 1:
        assert all(found.read * d + found.finish * a == pytest.approx(read * d + finish * a) for d, a in runs)


JOINTS = st.sampled_from(list(Joint))
queries = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Deadline, st.integers(1, 9), st.one_of(st.none(), st.integers(0, 40)), st.sampled_from("xy"), st.integers(0, 9)
    ),
    min_size=1,
)
costs = st.fixed_dictionaries({g: st.builds(RunCost, st.floats(0, 1), st.floats(0, 2)) for g in "xy"})


def deadline(query: Deadline) -> int:
    """The first multiple that is not done, of a clock that starts at 0; the one that `done` is nearest to is."""
    if query.done is None:
        return 0
    before, beyond = divmod(query.done, query.period)
    return (before + (1 if 2 * beyond <= query.period else 2)) * query.period


@given(queries, costs, st.integers(0, 60), st.integers(0, 60), st.one_of(st.none(), st.floats(0, 5)), JOINTS)
def test_what_is_evaluated(
    found: dict[str, Deadline], cost: dict[str, RunCost], one: int, two: int, allowance: float | None, joint: Joint
) -> None:
    """Only what is due, at multiples, none twice; within the allowance, or one run; the earliest deadlines first."""
    previous, frontier = sorted((one, two))
    starts = dict.fromkeys(found, 0)
    chosen = evaluated(DeadlineProgram.of(found, cost, allowance, previous, joint), frontier, starts)
    everything = evaluated(DeadlineProgram.of(found, cost, None, previous, joint), frontier, starts)
    assert chosen.keys() <= everything.keys()
    assert bool(chosen) == bool(everything)
    for name, (first, count, run, _) in chosen.items():
        last = (first + count - 1) * found[name].period
        assert count > 0 and last <= frontier < last + found[name].period
        assert count == 1 or first * found[name].period > previous
        assert first * found[name].period > (-1 if found[name].done is None else found[name].done)
        assert run == everything[name][2]
    runs: dict[int, list[str]] = {}
    for name, (_, _, run, _) in everything.items():
        runs.setdefault(run, []).append(name)
    for members in runs.values():
        assert len({found[n].group for n in members}) == 1
        late = [deadline(found[n]) <= previous for n in members]
        if joint is Joint.NONE:
            assert len({found[n].period for n in members}) == 1
        if joint is Joint.LATE:
            assert len(set(late)) == 1
    if allowance is not None and chosen != everything:
        first_of = {run: min(deadline(found[n]) for n in members) for run, members in runs.items()}
        done = {chosen[n][2] for n in chosen}
        late_first = [max(0, previous + 1 - first_of[run]) for run in sorted(runs)]
        assert late_first == sorted(late_first, reverse=True)
        assert done == set(range(len(done)))


@given(queries, costs, st.integers(1, 7), st.floats(0, 5), JOINTS)
def test_nobody_starves(
    found: dict[str, Deadline], cost: dict[str, RunCost], step: int, allowance: float, joint: Joint
) -> None:
    """However little time there is: a query that is due waits for no more evaluations than two of each other."""
    starts, frontier = dict.fromkeys(found, 0), 0
    waits: dict[str, list[str]] = {n: [] for n in found}
    found = {n: Deadline(q.period, None, q.group, q.depth) for n, q in found.items()}
    for _ in range(40):
        previous, frontier = frontier, frontier + step
        due = evaluated(DeadlineProgram.of(found, cost, None, previous, joint), frontier, starts)
        chosen = evaluated(DeadlineProgram.of(found, cost, allowance, previous, joint), frontier, starts)
        for name in due.keys() - chosen.keys():
            waits[name] += chosen
        for name, (first, count, _, _) in chosen.items():
            waits[name] = []
            q = found[name]
            found[name] = Deadline(q.period, (first + count - 1) * q.period, q.group, q.depth)
        assert all(len(w) <= 2 * len(found) for w in waits.values())
