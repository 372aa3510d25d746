"""Hybrid scheduling: shorten some periods so that queries meet (8.4.4), by dynamic programming.

A sub-group may run more often than it asks for. That costs more runs and saves those that fall together with a deeper
one. The best periods are found sub-group by sub-group, the dearest first; what matters to those that follow is only
which updates read how deep, so plans that agree on that are one state, of which the cheapest way is kept.

Law: a period p <= n / 2 is never needed, since 2p <= n runs at a subset of the same updates. So the candidates of a
period n are the integers in (n/2, n], and the program finds the best of all integer periods: in the thesis's example
2, 2 and 4 (10.75 per minute), where its own choice, which takes periods of other sub-groups only, is 2, 2 and 5 (11.4).

Never long: at most `STATES` states are kept (the cheapest), at most `CANDIDATES` periods are tried (beyond, those that
are multiples or divisors of others' periods), and cost looks at most `HORIZON` updates ahead. What is left out can
only make the plan dearer, and it is never dearer than conservative scheduling. Cost: sub-groups times candidates, each
a pass over the states' updates (240 queries in 8 groups: a third of a second).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windrow.schedule.arrival import candidates, horizon
from windrow_bench.schedule_model.cost import Floats, cost_per_update
from windrow_bench.schedule_model.tasks import SubGroup

STATES = 48

_Reduced = frozenset[tuple[Hashable, int, float]]
"""(synopsis, period, depth) of all reads that no other implies: states with equal ones go on alike."""


@dataclass(frozen=True)
class _States:
    """Plans for some sub-groups: what each costs, its periods, and how deep every update reads every synopsis."""

    cost: Floats  # [states]
    periods: list[tuple[int, ...]]
    reduced: list[_Reduced]
    depths: Mapping[Hashable, Floats]  # [states, updates]


def hybrid_periods(parts: Sequence[SubGroup], borrowed: bool = False) -> list[int]:
    """The period of every sub-group, of any groups; `borrowed`: only periods of sub-groups, as the thesis has it."""
    found = [p.period for p in parts]
    for group in dict.fromkeys(p.group for p in parts):
        at = [i for i, p in enumerate(parts) if p.group == group]
        for i, period in zip(at, _best([parts[i] for i in at], borrowed), strict=True):
            found[i] = period
    return found


def _best(parts: Sequence[SubGroup], borrowed: bool) -> list[int]:
    order = sorted(range(len(parts)), key=lambda i: (-parts[i].cost, parts[i].period))
    tried = [_borrowed(p, parts) if borrowed else candidates(p.period, {q.period for q in parts}) for p in parts]
    length, _ = horizon(p for mine in tried for p in mine)
    synopses = {s for p in parts for s in p.reads}
    states = _States(np.zeros(1), [()], [frozenset()], {s: np.zeros((1, length)) for s in synopses})
    for i in order:
        states = _extended(states, parts[i], tried[i])
    chosen = dict(zip(order, states.periods[int(np.argmin(states.cost))], strict=True))
    found = [chosen[i] for i in range(len(parts))]
    own = [p.period for p in parts]
    return found if cost_per_update(parts, found) < cost_per_update(parts, own) else own


def _extended(states: _States, part: SubGroup, tried: Sequence[int]) -> _States:
    """The cheapest states with one more sub-group."""
    cost = np.stack([states.cost + _added(states, part, p) for p in tried])  # [candidates, states]
    kept: dict[_Reduced, tuple[int, int]] = {}
    for flat in np.argsort(cost, axis=None, kind="stable").tolist():
        c, s = divmod(flat, len(states.cost))
        kept.setdefault(_reduced(states.reduced[s], part, tried[c]), (c, s))
        if len(kept) == STATES:
            break
    chosen = list(kept.values())
    before = [s for _, s in chosen]
    depths = {name: seen[before] for name, seen in states.depths.items()}
    for name, depth in part.reads.items():
        for row, (c, _) in enumerate(chosen):
            seen = depths[name][row, :: tried[c]]
            np.maximum(seen, depth, out=seen)
    periods = [(*states.periods[s], tried[c]) for c, s in chosen]
    return _States(np.array([cost[c, s] for c, s in chosen]), periods, list(kept), depths)


def _added(states: _States, part: SubGroup, period: int) -> Floats:
    """What a sub-group at some period adds to the cost of every state."""
    added = np.full(len(states.cost), part.finish / period)
    for name, depth in part.reads.items():
        seen = states.depths[name]
        added += np.maximum(depth - seen[:, ::period], 0.0).sum(axis=1) / seen.shape[1]
    return added


def _reduced(known: _Reduced, part: SubGroup, period: int) -> _Reduced:
    """The reads of all so far, without those that a deeper read at a divisor of their period implies."""
    fresh = {
        (s, period, d)
        for s, d in part.reads.items()
        if not any(s == t and period % p == 0 and d <= e for t, p, e in known)
    }
    if not fresh:
        return known
    implied = {(t, p, e) for t, p, e in known if any(s == t and p % q == 0 and e <= d for s, q, d in fresh)}
    return frozenset((known - implied) | fresh)


def _borrowed(part: SubGroup, parts: Sequence[SubGroup]) -> list[int]:
    return sorted({p.period for p in parts if p.period <= part.period}, reverse=True)
