"""Deadlines of a live engine: which queries with SLIDE AT MOST are evaluated in a tick (thesis 8.4).

A query with a deadline is evaluated at multiples of its period, as one with a period is, while there is time. When the
budget of a tick does not suffice for all that are due, they are taken in the order of their deadlines, each at the
newest multiple only: what lies before it is skipped, nothing that is answered is wrong, and every answer carries the
instant for which it is exact. Who has to wait is late, and the first of the next tick; so nobody starves.

Law: of the multiples up to the frontier before, only the newest is ever evaluated in this tick. State must be kept for
one period longer than windows need, so that this one can be.

`evaluated` is a pure function of what the driver ships and the frontier, so that all tasks and the driver decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windrow.operators.elements import BEGINNING


@dataclass(frozen=True)
class Deadline:
    """A query's period, the instant for which it was evaluated last, and the seconds that an evaluation takes."""

    period: int
    done: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class DeadlineProgram:
    """All queries with deadlines, by name in lower case, and the seconds there are for them; None: what it takes."""

    queries: Mapping[str, Deadline] = field(default_factory=dict)
    allowance: float | None = None
    previous: int = BEGINNING  # the frontier before this tick


Instants = tuple[int, int]
"""(the first multiple of the period, how many)."""


def evaluated(program: DeadlineProgram, frontier: int, starts: Mapping[str, int]) -> dict[str, Instants]:
    """At which multiples of their periods queries are evaluated by `frontier`; those that wait are left out.

    >>> two = {"a": Deadline(5, 10, 1.0), "b": Deadline(3, 9, 1.0)}
    >>> evaluated(DeadlineProgram(two), 20, {"a": 0, "b": 0})
    {'a': (3, 2), 'b': (4, 3)}
    >>> evaluated(DeadlineProgram(two, 1.5), 20, {"a": 0, "b": 0})
    {'b': (6, 1)}
    """
    due: dict[str, Instants] = {}
    deadlines: dict[str, int] = {}
    for name, query in program.queries.items():
        start = starts.get(name)
        if start is None or start > frontier:
            continue
        after = start - 1 if query.done is None else max(start - 1, query.done)
        undone, last = after // query.period + 1, frontier // query.period
        if last >= undone:
            first = max(undone, min(last, program.previous // query.period + 1))
            due[name], deadlines[name] = (first, last - first + 1), undone * query.period
    needed = sum(program.queries[name].seconds * count for name, (_, count) in due.items())
    if program.allowance is None or needed <= program.allowance:
        return due
    return _in_order(program, due, deadlines)


def _in_order(
    program: DeadlineProgram, due: Mapping[str, Instants], deadlines: Mapping[str, int]
) -> dict[str, Instants]:
    """The queries for which there is time, earliest deadline first, each at its newest multiple; at least one."""
    found: dict[str, Instants] = {}
    assert program.allowance is not None
    left = program.allowance
    for name in sorted(due, key=lambda n: (deadlines[n], n)):
        if found and program.queries[name].seconds > left:
            break
        first, count = due[name]
        found[name] = (first + count - 1, 1)
        left -= program.queries[name].seconds
    return found
