"""Deadlines on a simulated clock: figure 8.6, lateness, and that nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow_bench.deadline_scheduler import DeadlineScheduler
from windrow_bench.schedule_model.tasks import PeriodicQuery
from windrow_bench.schedule_model.technique import (
    AGGRESSIVE,
    CONSERVATIVE,
    HYBRID,
    HYBRID_LATE,
    HYBRID_LATE_PENDING,
    IN_STEP,
    NO_SHARING,
    TECHNIQUES,
    Technique,
)
from windrow_bench.schedule_simulation import simulate


@st.composite
def workloads(draw: st.DrawFn, most: int = 8, period: int = 12) -> list[PeriodicQuery]:
    """Queries of a few groups over one or two synopses each."""
    return [
        PeriodicQuery(
            f"q{i}",
            draw(st.sampled_from("gh")),
            draw(st.integers(1, period)),
            {s: draw(st.integers(0, 30)) for s in draw(st.sets(st.sampled_from("st"), min_size=1))},
            float(draw(st.integers(0, 5))),
        )
        for i in range(draw(st.integers(1, most)))
    ]


def schedule(example: list[PeriodicQuery], technique: Technique, updates: int) -> list[tuple[int, list[int]]]:
    """(update, periods of the tasks) of every run with time to spare."""
    outcome = simulate(example, technique, updates=updates, speed=1e9)
    return [(r.update, [t.period for t in r.tasks]) for r in outcome.runs]


def test_schedules_of_figure_8_6(example: list[PeriodicQuery]) -> None:
    """Aggressive runs all every two minutes; conservative runs together what falls together; hybrid 2 and 4."""
    assert schedule(example, AGGRESSIVE, 6) == [(2, [2]), (4, [2]), (6, [2])]
    assert schedule(example, CONSERVATIVE, 6) == [(2, [2]), (3, [3]), (4, [2]), (5, [5]), (6, [2, 3])]
    assert schedule(example, HYBRID, 8) == [(2, [2]), (4, [2, 4]), (6, [2]), (8, [2, 4])]


def late_by(scheduler: DeadlineScheduler, now: int) -> list[int]:
    return [t.period for t in scheduler.next(now)]


def test_what_runs_together_in_overload() -> None:
    """Figure 8.6(d): with 2 and 3 late and 5 due, late-pending runs all, late the late ones, conservative one kind."""
    queries = [PeriodicQuery(f"q{n}", "g", n, {"s": n}) for n in (2, 3, 5)]
    done = {"q2": 2, "q3": 1, "q5": 0}  # at 5: d = -1, -1, 0
    for technique, together in (
        (CONSERVATIVE, [2, 3]),
        (Technique("C-LS", CONSERVATIVE.forming, HYBRID_LATE.joint), [2, 3]),
        (Technique("C-LP", CONSERVATIVE.forming, HYBRID_LATE_PENDING.joint), [2, 3, 5]),
        (NO_SHARING, [3]),
    ):
        scheduler = DeadlineScheduler(technique=technique)
        scheduler.replan(queries, 5, done)
        assert late_by(scheduler, 5) == together, technique.name
    scheduler = DeadlineScheduler(technique=Technique("C-LS", CONSERVATIVE.forming, HYBRID_LATE.joint))
    scheduler.replan(queries, 6, {"q2": 2, "q3": 2, "q5": 0})  # at 6: d = -2, -1, -1
    assert late_by(scheduler, 6) == [2, 3, 5]


def test_a_late_task_gets_its_full_period_again() -> None:
    """Algorithm 9: d is set to n however late the task was."""
    scheduler = DeadlineScheduler([PeriodicQuery("a", "g", 3, {"s": 1})], HYBRID_LATE_PENDING)
    scheduler.ran(scheduler.next(5), 5)
    assert (scheduler.next(7), [t.period for t in scheduler.next(8)]) == ([], [3])


def test_in_step_a_task_that_was_a_little_late_keeps_to_its_multiples() -> None:
    """Late by up to half a period, it is due at its next multiple; later than that, a full period on."""
    scheduler = DeadlineScheduler([PeriodicQuery("a", "g", 4, {"s": 1})], IN_STEP)
    scheduler.ran(scheduler.next(6), 6)
    assert (scheduler.next(7), [t.period for t in scheduler.next(8)]) == ([], [4])
    scheduler.ran(scheduler.next(11), 11)
    assert (scheduler.next(14), [t.period for t in scheduler.next(15)]) == ([], [4])


def test_a_task_runs_only_with_news() -> None:
    """A task that has run on these synopses does not run again, early or not."""
    scheduler = DeadlineScheduler([PeriodicQuery("a", "g", 3, {"s": 1})], early=True)
    scheduler.ran(scheduler.next(1), 1)
    assert scheduler.next(1) == []
    assert scheduler.next(2) != []


def test_replanning_keeps_deadlines() -> None:
    """A query that joins begins now and moves nobody's deadline; one that leaves takes only itself."""
    a, b = PeriodicQuery("a", "g", 4, {"s": 1}), PeriodicQuery("b", "h", 4, {"t": 1})
    scheduler = DeadlineScheduler([a], now=0)
    scheduler.replan([a, b], 3)
    assert scheduler.done == {"a": 0, "b": 3}
    assert [t.queries for t in scheduler.next(4)] == [("a",)]
    scheduler.replan([b], 5)
    assert scheduler.done == {"b": 3}


def test_lateness_is_told_by_the_own_period() -> None:
    """A query whose period was shortened is late only beyond what it asked for."""
    queries = [PeriodicQuery("a", "g", 2, {"s": 9}), PeriodicQuery("b", "g", 3, {"s": 14})]
    scheduler = DeadlineScheduler(queries, HYBRID)
    assert [t.period for t in scheduler.tasks] == [2]
    assert (scheduler.late(2), scheduler.late(3), scheduler.late(5)) == ({}, {"a": 1}, {"a": 3, "b": 2})


@settings(deadline=None, max_examples=60)
@given(workloads(), st.sampled_from(TECHNIQUES), st.floats(0.2, 50))
def test_no_query_starves(queries: list[PeriodicQuery], technique: Technique, speed: float) -> None:
    """However slow the machine: a late task is chosen before any other is chosen twice."""
    outcome = simulate(queries, technique, updates=120, speed=speed)
    tasks = DeadlineScheduler(queries, technique).tasks
    for task in tasks:
        mine = [r for r in outcome.runs if any(t.queries == task.queries for t in r.tasks)]
        marks = [0, *(r.update for r in mine)]
        begins = [0.0, *(r.begin for r in mine)]
        ends = [*(r.begin for r in mine), float("inf")]
        for mark, begin, end in zip(marks, begins, ends, strict=True):
            waiting = [r for r in outcome.runs if begin < r.begin < end and r.update > mark + task.period]
            assert len(waiting) <= len(tasks)


@settings(deadline=None, max_examples=40)
@given(workloads(), st.sampled_from(TECHNIQUES))
def test_with_time_to_spare_nobody_is_late(queries: list[PeriodicQuery], technique: Technique) -> None:
    """On a fast machine every query runs at least every period, and on exactly its multiples if none is shortened."""
    outcome = simulate(queries, technique, updates=60, speed=1e9)
    assert outcome.latency == 0
    assert outcome.longest == 0
    if technique in (NO_SHARING, CONSERVATIVE):
        for query in queries:
            at = [r.update for r in outcome.runs if any(query.name in t.queries for t in r.tasks)]
            assert at == list(range(query.period, 61, query.period))


def test_throughput_and_latency_are_those_of_the_thesis() -> None:
    """8.5.1: a period of two updates and three between executions is a latency of one."""
    outcome = simulate([PeriodicQuery("a", "g", 2, {"s": 3})], NO_SHARING, updates=30)
    assert outcome.latency == pytest.approx(1.0, abs=0.2)
    assert outcome.throughput == pytest.approx(1 / 3, abs=0.03)
