"""The paper's dynamic program over memory states (algorithms 3.1 to 3.3): the reference for `timeline.py`.

A vertex is a set of rows that memory can hold at the end of an instant; its value is the best total profit of a path to
it. At each instant expired rows leave, new rows that match an active fact may enter, and of what is then there at most
`capacity` rows stay; the rows that stay, but for new ones, earn their profit of this instant. (The paper has one
arrival per instant, so it evicts one row at most.) With profits of importance this is OSSJ, with profits of 1 per
result SJA-S.

Cost: instants times states, and there are up to (lifetime choose capacity) states: exponential in memory. For small
cases and figure 5 only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

State = tuple[int, ...]


def best_path(
    arrivals: Sequence[Sequence[int]],
    expires: Sequence[int],
    profits: Sequence[Mapping[int, float]],
    capacity: int,
    evict_first: bool = True,
) -> tuple[float, list[State]]:
    """The greatest total profit, and the memory states at the end of each instant on a path that has it.

    `arrivals[t]`: rows that may enter at instant t, numbered in order of arrival. `expires[row]`: the first instant it
    is gone. `profits[t][row]`: what the row earns at t if it is in memory. With `evict_first` a row that leaves at t
    earns nothing at t.

    >>> best_path([[0], [1], []], [3, 3], [{}, {0: 2.0}, {0: 1.0, 1: 5.0}], 1)
    (5.0, [(0,), (1,), (1,)])
    """
    values: dict[State, float] = {(): 0.0}
    came_from: list[dict[State, State]] = []
    for t, arriving in enumerate(arrivals):
        gain = profits[t]
        after: dict[State, float] = {}
        previous: dict[State, State] = {}
        for state, value in values.items():
            left = tuple(r for r in state if expires[r] > t)
            there = (*left, *arriving)
            earned = sum(gain.get(r, 0.0) for r in left)
            # a smaller state is never better than one that holds it
            for kept in combinations(there, min(capacity, len(there))):
                total = value + (sum(gain.get(r, 0.0) for r in kept) if evict_first else earned)
                if total > after.get(kept, -1.0):
                    after[kept] = total
                    previous[kept] = state
        values = after
        came_from.append(previous)
    state = max(values, key=lambda s: values[s])
    total = values[state]
    path = [state]
    for previous in reversed(came_from[1:]):
        path.append(previous[path[-1]])
    return total, path[::-1] if arrivals else []
