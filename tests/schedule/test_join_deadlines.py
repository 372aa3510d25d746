"""SLIDE AT MOST over joins: late in a fair order, and exact for the instants that answers carry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.schedule import two_streams
from tests.schedule.two_streams import DECLARED

import windrow
from windrow.catalog import Catalog
from windrow.engine.script import bind_script
from windrow.operators.elements import BEGINNING
from windrow.optimize import optimize
from windrow.runtime.deadline_program import Deadline, DeadlineProgram, evaluated
from windrow.runtime.deadlines import DeadlineRecord, Deadlines
from windrow.runtime.evaluation_costs import RunCost
from windrow.runtime.job import Feed
from windrow.runtime.tick import Ticker
from windrow.store.store import Store
from windrow.testing import assert_same, oracle

JOIN = "FROM r [RANGE {0} SLIDE AT MOST {2}], s [RANGE {1} SLIDE AT MOST {2}] WHERE r.k = s.k"
TEXTS = {
    "sums": f"SELECT count(*) AS n, sum(a) AS x {JOIN.format(8, 8, 4)}",
    "long": f"SELECT count(*) AS n, sum(a) AS x {JOIN.format(20, 20, 10)}",
    "odd": f"SELECT count(*) AS n, sum(a) AS x {JOIN.format(9, 9, 3)}",
    "best": f"SELECT max(b) AS x {JOIN.format(6, 12, 6)}",
    "keyed": f"SELECT r.k, count(*) AS n, min(a) AS x {JOIN.format(12, 12, 4)} GROUP BY r.k",
    "values": f"SELECT r.k, median(b) AS x {JOIN.format(10, 10, 5)} GROUP BY r.k HAVING count(*) > 1",
    "some": f"SELECT avg(b) AS x {JOIN.format(15, 15, 5)} AND a > 3",
}
SCRIPT = DECLARED + ";".join(f"CREATE QUERY {n} AS {t}" for n, t in TEXTS.items())


rows = partial(two_streams.rows, each=2)


STEPS = [(t, t + 3) for t in range(1, 80, 3)]


def at_every_instant() -> dict[str, pa.Table]:
    """What the definition has at every instant."""
    script = re.sub(r"SLIDE AT MOST \d+", "SLIDE 1", SCRIPT)
    return oracle(script, {s: rows(s, 1, 82) for s in "rs"})


def check_exact(got: pa.Table, want: pa.Table) -> None:
    """What was answered for an instant is what the definition has there."""
    instants = pa.array(sorted(set(got["_ts"].to_pylist())), pa.int64())
    assert_same(got, want.filter(pa.compute.is_in(want["_ts"], instants)))


def engine(budget: str | None, home: str | None = None, **given: Any) -> windrow.Engine:
    return windrow.Engine(runtime="local", tick_budget=budget, home=home, **given)


def pushed(running: windrow.Engine, steps: Iterable[tuple[int, int]]) -> None:
    for first, last in steps:
        for stream in "rs":
            running.push(stream, rows(stream, first, last))


def deadline(running: windrow.Engine, name: str) -> dict[str, Any]:
    found: dict[str, Any] = running.status()["queries"][name]["deadline"]
    return found


def test_with_time_to_spare_every_multiple_is_answered() -> None:
    """Without a budget, or with a large one, AT MOST over a join is SLIDE."""
    streams = {s: rows(s, 1, 82) for s in "rs"}
    want = windrow.run(SCRIPT.replace("AT MOST ", ""), streams, runtime="local", sharing="off")
    for budget, schedule in ((None, "late-pending"), ("1 hour", "conservative")):
        running = engine(budget, schedule=schedule)
        running.execute(SCRIPT)
        running.start()
        pushed(running, STEPS)
        running.advance(81)
        for name in TEXTS:
            assert_same(running[name].results(), want[name])
            found = deadline(running, name)
            assert (found["scheduled"], found["skipped"], found["late_most"]) == (True, 0, 0)
        running.stop()


@pytest.mark.parametrize("schedule", ["edf", "conservative", "hybrid", "late-pending"])
def test_under_overload_answers_are_late_but_exact(schedule: str) -> None:
    """With hardly any time the windows over a join take turns; each answer is right for the instant it names."""
    want, running = at_every_instant(), engine("1 us", schedule=schedule)
    running.execute(SCRIPT)
    running.start()
    pushed(running, STEPS)
    found = {name: deadline(running, name) for name in TEXTS}
    for name in TEXTS:
        got = running[name].results()
        assert got.num_rows
        check_exact(got, want[name])
        assert found[name]["evaluations"] >= 2
    assert sum(f["skipped"] for f in found.values()) > 5
    assert max(f["late_most"] for f in found.values()) > 0
    running.stop()


def test_windows_of_one_synopsis_are_read_at_one_instant() -> None:
    """Late-pending reads all that are late of one synopsis at the newest instant that its cuts allow."""
    running = engine("1 us", schedule="late-pending")
    three = {
        n: f"SELECT count(*) AS n {JOIN.format(r, r, s)}" for n, r, s in (("a", 8, 4), ("b", 20, 10), ("c", 30, 6))
    }
    other = f"SELECT sum(a) AS x {JOIN.format(8, 8, 2)} AND b > 2"
    texts = ";".join(f"CREATE QUERY {n} AS {t}" for n, t in {**three, "other": other}.items())
    running.execute(DECLARED + texts)
    running.start()
    pushed(running, STEPS)
    seen = [set(running[n].results()["_ts"].to_pylist()) for n in three]
    assert len(seen[0] & seen[1] & seen[2]) > 2
    assert any(t % 10 for t in seen[1]), "between two multiples of its period"
    assert all(t % 2 == 0 for t in set.union(*seen))
    running.stop()


def test_a_query_that_is_alone_over_its_join_may_be_late() -> None:
    """With a budget it shares its join with nobody rather than run in a way that cannot be late."""
    running = engine("1 us")
    running.execute(DECLARED + f"CREATE QUERY q AS {TEXTS['sums']}")
    assert deadline(running, "q")["scheduled"]
    running.stop()
    running = engine(None)
    running.execute(DECLARED + f"CREATE QUERY q AS {TEXTS['sums']}")
    assert deadline(running, "q")["why"] == "it is alone over its join"
    running.stop()


def test_queries_come_and_go(tmp_path: Path) -> None:
    """A query that cuts intervals finer, one that leaves, and engines that are started anew change no answer."""
    want, home = at_every_instant(), str(tmp_path / "home")
    running, parts = engine("1 us", home, schedule="edf"), dict[str, list[pa.Table]]()
    running.execute(DECLARED)
    running.start()
    waiting, here = list(TEXTS), list[str]()
    for n, step in enumerate(STEPS):
        if n % 3 == 0 and waiting:
            here.append(waiting.pop(0))
            running.execute(f"CREATE QUERY {here[-1]} AS {TEXTS[here[-1]]}")
            parts[here[-1]] = []
        if n == 20:
            here.remove("odd")
            parts["odd"].append(running["odd"].results())
            running.execute("DROP QUERY odd")
        pushed(running, [step])
        if n % 7 == 6:
            for name in here:
                parts[name].append(running[name].results())
            running.stop()
            running = engine("1 us", home, schedule="edf")
            running.start()
    for name in here:
        parts[name].append(running[name].results())
    running.stop()
    for n, name in enumerate(TEXTS):
        got, full = pa.concat_tables(parts[name]), STEPS[3 * n][0] + 20  # who comes later sees what comes after it
        check_exact(got.filter(pa.compute.field("_ts") >= full), want[name])


def test_tasks_decide_alike(in_process_job: Any, tmp_path: Path) -> None:
    """Several partitions, tasks that run twice and forget: every partition answers the same instants."""
    want, catalog = at_every_instant(), bind_script(SCRIPT, Catalog())
    job = in_process_job(2, chaos=1, partitions=3)
    got: dict[str, list[pa.Table]] = {}
    with Store.open(str(tmp_path / "home")) as store:
        ticker = Ticker(store, {}, 3, "shards")
        ticker.deadlines = Deadlines(1e-6)
        for stream in catalog.streams.values():
            ticker.add_stream(stream)
        for plan in catalog.queries.values():
            ticker.add_query(optimize(plan, catalog), "upa")
        for first, last in STEPS[:16]:
            tick = ticker.run(job, [Feed(s, rows(s, first, last)) for s in "rs"])
            ticker.take_apart(tick)
            ticker.commit(tick)
            assert tick.spent >= 0
            for name, table in tick.answers.items():
                got.setdefault(name, []).append(table)
        assert all(cost.read or cost.finish for cost in ticker.deadlines.costs.groups.values())
    assert set(got) == set(TEXTS)
    for name, parts in got.items():
        check_exact(pa.concat_tables(parts), want[name])


def joined(period: int, depth: int) -> DeadlineRecord:
    return DeadlineRecord(period, period, "g", depth, synopsis="s")


def of(deadlines: Deadlines, previous: int) -> Iterator[tuple[int, int]]:
    program = deadlines.program(previous)
    assert program is not None
    return zip(program.grid.tolist(), program.fine.tolist(), strict=True)


def test_a_grid_that_becomes_finer_serves_full_windows() -> None:
    """What all periods and windows have in common; finer for a window only when all that it holds came since."""
    deadlines = Deadlines(1.0)
    deadlines.add("a", joined(10, 40))
    assert list(of(deadlines, 0)) == [(10, BEGINNING)]
    deadlines.add("b", joined(4, 8))
    assert list(of(deadlines, 100)) == [(2, 140), (2, BEGINNING)]
    deadlines.drop("b")
    assert list(of(deadlines, 110)) == [(10, 140)]


def test_a_grid_is_not_much_finer_than_windows() -> None:
    """Periods and windows with hardly anything in common are read at multiples of their own periods."""
    deadlines = Deadlines(1.0)
    deadlines.add("a", joined(1_000_003, 60_000_000))
    deadlines.add("b", joined(700_001, 30_000_000))
    assert [grid for grid, _ in of(deadlines, 0)] == [1_000_003, 700_001]


def test_over_a_join_only_what_comes_can_be_read() -> None:
    """At the newest instant of the tick on the grid; at none if there is none, and the query goes on waiting."""
    late = Deadline(10, 20, "g", 40, grid=4, fine=36)
    cases = {(33, 35): None, (33, 39): (9, 4), (29, 34): (3, 10), (27, 29): None}
    for (previous, frontier), at in cases.items():
        program = DeadlineProgram.of({"q": late}, {"g": RunCost(finish=1.0)}, 0.5, previous)
        found = evaluated(program, frontier, {"q": 0})
        assert (tuple(found["q"])[::3] if found else None) == at, (previous, frontier)
