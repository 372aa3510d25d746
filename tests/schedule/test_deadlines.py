"""Which queries with deadlines are evaluated when time is short: the earliest deadlines, and nobody starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.runtime.deadlines import Deadline, DeadlineProgram, evaluated

queries = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(Deadline, st.integers(1, 9), st.one_of(st.none(), st.integers(0, 40)), st.floats(0, 2)),
    min_size=1,
)


def deadline(query: Deadline) -> int:
    """The first multiple that has not been evaluated, of a clock that starts at 0."""
    return 0 if query.done is None else (query.done // query.period + 1) * query.period


@given(queries, st.integers(0, 60), st.integers(0, 60), st.one_of(st.none(), st.floats(0, 5)))
def test_what_is_evaluated(found: dict[str, Deadline], one: int, two: int, allowance: float | None) -> None:
    """Only what is due, at multiples, none twice; within the allowance, or one; the earliest deadlines first."""
    previous, frontier = sorted((one, two))
    starts = dict.fromkeys(found, 0)
    chosen = evaluated(DeadlineProgram(found, allowance, previous), frontier, starts)
    everything = evaluated(DeadlineProgram(found, previous=previous), frontier, starts)
    assert chosen.keys() <= everything.keys()
    assert bool(chosen) == bool(everything)
    for name, (first, count) in chosen.items():
        last = (first + count - 1) * found[name].period
        assert count > 0 and last <= frontier < last + found[name].period
        assert count == 1 or first * found[name].period > previous
        assert first * found[name].period > (-1 if found[name].done is None else found[name].done)
    if allowance is not None and chosen != everything:
        assert len(chosen) == 1 or sum(found[n].seconds for n in chosen) <= allowance + 1e-9
        waiting = everything.keys() - chosen.keys()
        assert all(deadline(found[n]) >= max(deadline(found[m]) for m in chosen) for n in waiting)


@given(queries, st.integers(1, 7), st.floats(0, 5))
def test_nobody_starves(found: dict[str, Deadline], step: int, allowance: float) -> None:
    """However little time there is: a query that is due waits for no more evaluations than two of each other."""
    starts, frontier = dict.fromkeys(found, 0), 0
    waits: dict[str, list[str]] = {n: [] for n in found}
    found = {n: Deadline(q.period, None, q.seconds + 0.1) for n, q in found.items()}
    for _ in range(40):
        previous, frontier = frontier, frontier + step
        due = evaluated(DeadlineProgram(found, previous=previous), frontier, starts)
        chosen = evaluated(DeadlineProgram(found, allowance, previous), frontier, starts)
        for name in due.keys() - chosen.keys():
            waits[name] += chosen
        for name, (first, count) in chosen.items():
            waits[name] = []
            found[name] = Deadline(found[name].period, (first + count - 1) * found[name].period, found[name].seconds)
        assert all(len(w) <= 2 * len(found) for w in waits.values())
