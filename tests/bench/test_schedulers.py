"""Algorithms 7 and 8 give latest-window-serializable histories, and no order of reads aborts less than TTU."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windrow.errors import WindrowError
from windrow_bench.isolation_model import (
    Isolation,
    Scheduler,
    commit_order_preserving,
    latest_window_serializable,
    oldest_first,
    ring_order,
    window_serializable,
    youngest_first,
)

CASES = 10_000
MOVE, READ = "M", "R"


def follow(events, n, order, *, length=None, restart=False, take_back=False):
    """Run one query through an interleaving; it is given a turn at every READ until it commits or aborts."""
    scheduler = Scheduler(n, order=order, take_back=take_back)
    execution = scheduler.begin("Q", length)
    for event in events:
        if execution.committed or (execution.aborts and not restart):
            break
        if event == MOVE:
            scheduler.move()
        else:
            scheduler.step(execution)
    return scheduler, execution


def aborts_of_every_order(n, events):
    """The fewest aborts (0 or 1) of any way to order the reads, deciding anew at every read; by brute force."""
    newest, ways, committed = n - 1, {frozenset()}, False
    for event in events:
        if event == MOVE:
            newest += 1
            ways = {w for w in ways if newest - n not in w}
        else:
            ways = {w | {v} for w in ways for v in range(newest - n + 1, newest + 1) if v not in w}
            committed |= any(len(w) == n for w in ways)
            ways = {w for w in ways if len(w) < n}
    return 0 if ways or committed else 1


@pytest.mark.parametrize("n", range(1, 6))
def test_no_order_aborts_less_than_ttu(n):
    """Theorem 7.4, exhaustively: every interleaving of up to 14 movements and reads, against every order of reads."""
    for length in range(1, 13 if n < 5 else 15):
        for events in product((MOVE, READ), repeat=length):
            if events[0] == MOVE:
                continue  # before the first read nothing can conflict
            scheduler, execution = follow(events, n, youngest_first)
            assert execution.aborts == aborts_of_every_order(n, events), events
            assert latest_window_serializable(scheduler.history())


def test_no_order_aborts_less_on_random_cases():
    """Theorem 7.4 on 10,000 random interleavings of larger windows; all that commits is latest-window-serializable."""
    rng, aborted = random.Random(7), Counter()
    for _ in range(CASES):
        n = rng.randint(2, 12)
        length, rate = rng.randint(1, n), rng.random()
        events = [MOVE if rng.random() < rate else READ for _ in range(4 * n)]
        orders = {
            "ttu": youngest_first,
            "oldest": oldest_first,
            "random": lambda execution, unread: rng.choice(unread),
            "ring": ring_order(n),
        }
        found = {}
        for name, order in orders.items():
            scheduler, execution = follow(events, n, order, length=length)
            found[name] = execution.aborts
            if execution.committed:
                assert latest_window_serializable(scheduler.history())
                assert commit_order_preserving(scheduler.history()) or length < n
        assert found["ttu"] == min(found.values()), (n, length, "".join(events), found)
        aborted.update(found)
    assert 0 < aborted["ttu"] < aborted["random"] < aborted["oldest"]


def test_one_movement_between_reads_never_aborts_ttu():
    """With at most one movement before a read, youngest first aborts nothing (7.5.2)."""
    for n in range(1, 7):
        for moves in product((0, 1), repeat=2 * n):
            events = [e for m in moves for e in (MOVE,) * m + (READ,)]
            assert follow(events, n, youngest_first)[1].aborts == 0


def test_with_restarts_an_order_that_fails_early_may_win():
    """What theorem 7.4 does not say: over all restarts of a query, TTU may be aborted more often."""
    events = "RMMRMRRMM" + "R" * 6
    assert follow(events, 3, youngest_first, restart=True)[1].aborts == 2
    fails_early = lambda execution, unread: unread[-1 if execution.aborts else 0]  # noqa: E731
    assert follow(events, 3, fails_early, restart=True)[1].aborts == 1


@pytest.mark.parametrize("n", range(1, 5))
def test_taking_back_is_least_with_ttu(n):
    """Without aborts: no order of reads scans fewer sub-windows a second time."""

    def fewest(events):
        newest, ways, done = n - 1, {(frozenset(), 0)}, []
        for event in events:
            if event == MOVE:
                newest += 1
                ways = {(w - {newest - n}, k + (newest - n in w)) for w, k in ways}
            else:
                ways = {(w | {v}, k) for w, k in ways for v in range(newest - n + 1, newest + 1) if v not in w}
                done += [k for w, k in ways if len(w) == n]
                ways = {(w, k) for w, k in ways if len(w) < n}
        return min(done + [k for _, k in ways])

    for length in range(1, 10):
        for events in product((MOVE, READ), repeat=length):
            events = (*events, *[READ] * n)
            scheduler, execution = follow(events, n, youngest_first, take_back=True)
            assert execution.committed
            assert execution.taken_back == fewest(events), events
            assert latest_window_serializable(scheduler.history())


def calendar(rng, newest, n):
    """Rows that a movement brings: any part of the calendar, by when they end."""
    return {newest + 1 - rng.randrange(n): (rng.random(),) for _ in range(rng.randrange(4))}


@given(
    n=st.integers(1, 7),
    isolation=st.sampled_from(Isolation),
    order=st.sampled_from([youngest_first, oldest_first]),
    take_back=st.booleans(),
    weak=st.booleans(),
    seed=st.integers(0, 2**32),
)
@example(n=3, isolation=Isolation.LATEST, order=oldest_first, take_back=True, weak=True, seed=1)
def test_answers_are_the_windows_they_say(n, isolation, order, take_back, weak, seed):
    """Whatever runs together: an answer is the window's rows as of its `as_of`; LATEST and SERIAL as of the commit."""
    rng, states, answers = random.Random(seed), {}, 0
    scheduler = Scheduler(n, isolation, order, take_back=take_back)
    states[scheduler.newest] = dict(scheduler.window)
    for i in range(60):
        event = rng.random()
        if event < 0.3:
            scheduler.move(calendar(rng, scheduler.newest + len(scheduler.waiting), n) if weak else {})
        elif event < 0.5:
            scheduler.begin(f"Q{i}", n if weak else rng.randint(1, n), rng.randrange(2))
        else:
            newest, found = scheduler.newest, scheduler.step()
            if found is not None and found[0].committed:
                done, answers = found[0], answers + 1
                want = states[done.as_of]
                assert sorted(done.read) == sorted(want)[n - done.length :]
                assert Counter(done.rows()) == Counter(r for v in done.read for r in want[v])
                if isolation is not Isolation.SNAPSHOT:
                    assert done.as_of == newest
        states.setdefault(scheduler.newest, dict(scheduler.window))
    history = scheduler.history()
    assert window_serializable(history)
    if isolation is not Isolation.SNAPSHOT:
        assert latest_window_serializable(history)


def test_time_to_update_counts_down():
    """After the fill TTU[i] = i + 1; a movement takes one from all and gives n to what it wrote."""
    scheduler = Scheduler(5)
    ttu = [i + 1 for i in range(5)]
    for j in range(5, 20):
        assert [scheduler.ttu(i) for i in range(5)] == ttu
        scheduler.move()
        ttu = [t - 1 for t in ttu]
        ttu[j % 5] = 5


def test_the_higher_priority_goes_first():
    """An important query suspends the others, adds no conflict, and they go on where they were."""
    scheduler = Scheduler(3)
    first, second = scheduler.begin("Q1"), None
    scheduler.step()
    second = scheduler.begin("Q2", priority=1)
    scheduler.move()
    assert [scheduler.step()[0] for _ in range(3)] == [second] * 3
    assert [scheduler.step()[0] for _ in range(2)] == [first] * 2
    assert str(scheduler.history()) == ("rQ1[2] w3[0] c3 rQ2[0] rQ2[2] rQ2[1] cQ2 rQ1[0] rQ1[1] cQ1")
    assert latest_window_serializable(scheduler.history())


def test_an_aborted_query_begins_again():
    """Algorithm 7 in ring order: what was read has left, the query is started anew and is latest in the end."""
    scheduler = Scheduler(3, order=ring_order(3))
    execution = scheduler.begin("Q")
    scheduler.step()
    assert scheduler.move() == [execution]
    for _ in range(3):
        scheduler.step()
    assert str(scheduler.history()) == "rQ[0] w3[0] c3 aQ rQ_1[0] rQ_1[1] rQ_1[2] cQ_1"
    assert execution.committed and scheduler.step() is None


def test_serial_holds_movements_up():
    """A locked window does not move; what waited moves when the lock is let go."""
    scheduler = Scheduler(2, Isolation.SERIAL)
    scheduler.begin("Q1")
    scheduler.step()
    scheduler.move()
    assert scheduler.newest == 1
    scheduler.begin("Q2", priority=9)
    scheduler.step()
    assert str(scheduler.history()) == "rQ1[1] rQ1[0] cQ1 w2[0] c2"


def test_bad_input_is_refused():
    """Windows without sub-windows, queries longer than their window, names used twice, rows for parts that are gone."""
    with pytest.raises(WindrowError, match="at least one"):
        Scheduler(0)
    scheduler = Scheduler(3)
    scheduler.begin("Q")
    with pytest.raises(WindrowError, match="no 4 youngest"):
        scheduler.begin("P", 4)
    with pytest.raises(WindrowError, match="executed before"):
        scheduler.begin("Q")
    with pytest.raises(WindrowError, match="not in the window"):
        scheduler.move({0: (1,)})
