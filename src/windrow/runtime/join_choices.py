"""What running queries choose, by what all their partitions measure: orders of joins, plans of aggregation joins.

Tasks report what they saw of each join (`statistics`); the driver adds the parts up, and when a figure has drifted it
asks the same planners that a join in one process asks. The choice goes to all tasks with the next tick, and is followed
by every partition at the same tick. Choices change no answer, so they need not be exact, and a restart may forget what
they rest on; the choices themselves are kept with the manifest, so that state is not rebuilt for nothing.

Samples of keys change slowly and are the greater part of a report: tasks send them every `SAMPLES` ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.operators.aggregate_join import Meeting, PlanChoice, SideFigures, figures
from windrow.operators.join import Choice, Join, JoinReport, Matches, Orders, Probes
from windrow.operators.protocol import Operator
from windrow.operators.statistics import Observed, Seen, merged

SAMPLES = 4
DRIFT = 1.25
"""Choices are thought over when some figure has changed by this factor."""

Chosen = Mapping[str, Mapping[int, Any]]
"""By query and step: orders, or the bits of a plan."""

Report = JoinReport | tuple[Seen, ...]


def watch_orders(observed: Sequence[Observed], orders: Orders, matches: Matches) -> Choice:
    """The planner of a join that is told from outside which orders to follow."""
    return Choice(orders, 0.0)


def watch_plan(measured: Sequence[SideFigures], plan: str, period: int | None) -> PlanChoice:
    """The planner of an aggregation join that is told from outside."""
    return PlanChoice(plan, {})


def sampled(tick: int) -> bool:
    """Whether reports of this tick carry samples of keys."""
    return tick <= 2 * SAMPLES or tick % SAMPLES == 0


def report(operator: Operator | None, samples: bool) -> Report | None:
    """What a task tells of an operator."""
    return operator.measured(samples) if isinstance(operator, Join | Meeting) else None


def scaled(told: Report, shares: Sequence[float]) -> Report:
    """The report of inputs of which only a share is this partition's own: the rest are copies of heavy keys' rows."""
    inputs = told.inputs if isinstance(told, JoinReport) else told
    own = tuple(
        replace(s, elements=share * s.elements, rows=share * s.rows) for s, share in zip(inputs, shares, strict=True)
    )
    return replace(told, inputs=own) if isinstance(told, JoinReport) else own


def follow(operator: Operator | None, chosen: Any) -> None:
    """Let an operator do as the driver says."""
    if isinstance(operator, Join):
        operator.follow(tuple(tuple(o) for o in chosen))
    elif isinstance(operator, Meeting):
        operator.follow(chosen)


@dataclass
class Standing:
    """A choice in force: what it is, what it rests on, and the newest report of each partition."""

    operator: Join | Meeting
    copies: tuple[int, ...]  # of each input's rows
    value: Any
    choice: Choice | PlanChoice | None = None
    planned: Sequence[Observed] | Sequence[SideFigures] = ()
    matches: Matches = field(default_factory=dict)
    changes: int = 0
    parts: dict[int, Report] = field(default_factory=dict)


class Choices:
    """The choices of all queries; the driver's."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, int], Standing] = {}

    def register(self, query: str, step: int, operator: Join | Meeting, copies: Sequence[int], kept: Any) -> None:
        """Begin to choose for a step; `kept`: what was chosen before a restart."""
        value = kept if kept is not None else operator.orders if isinstance(operator, Join) else operator.plan
        if isinstance(operator, Join):
            value = tuple(tuple(o) for o in value)
        self._standing[query, step] = Standing(operator, tuple(copies), value)

    def copy(self) -> Choices:
        """The same choices, apart."""
        made = Choices()
        made._standing = {k: replace(s, parts=dict(s.parts)) for k, s in self._standing.items()}
        return made

    def forget(self, query: str) -> None:
        """A query is gone."""
        self._standing = {k: v for k, v in self._standing.items() if k[0] != query}

    def chosen(self) -> dict[str, dict[int, Any]]:
        """What tasks are to follow."""
        found: dict[str, dict[int, Any]] = {}
        for (query, step), standing in self._standing.items():
            found.setdefault(query, {})[step] = standing.value
        return found

    def take(self, reports: Iterable[tuple[int, Mapping[tuple[str, int], Report]]]) -> None:
        """Take in what the partitions of a tick measured, and choose again where figures have drifted."""
        touched = set()
        for partition, told in reports:
            for key, part in told.items():
                if key in self._standing:
                    standing = self._standing[key]
                    standing.parts[partition] = _with_samples(part, standing.parts.get(partition))
                    touched.add(key)
        for key in touched:
            _think_over(self._standing[key])

    def describe(self, query: str) -> list[dict[str, Any]]:
        """For EXPLAIN: each join of a query, with its choice, cost, alternatives and statistics."""
        return [_described(s) for (q, _), s in sorted(self._standing.items()) if q == query]


def _with_samples(new: Report, old: Report | None) -> Report:
    """The report with the samples of the last one that had any."""
    if isinstance(new, JoinReport):
        before = old.inputs if isinstance(old, JoinReport) else (None,) * len(new.inputs)
        return replace(new, inputs=tuple(_sampled(n, o) for n, o in zip(new.inputs, before, strict=True)))
    before = old if isinstance(old, tuple) else (None,) * len(new)
    return tuple(_sampled(n, o) for n, o in zip(new, before, strict=True))


def _sampled(new: Seen, old: Seen | None) -> Seen:
    if old is None or new.samples:
        return new
    return replace(new, samples=old.samples, entry_sample=new.entry_sample if new.entries else old.entry_sample)


def _inputs(standing: Standing) -> tuple[Seen, ...]:
    """Each input, over all partitions."""
    parts = [p.inputs if isinstance(p, JoinReport) else p for p in standing.parts.values()]
    return tuple(merged(own, copies) for own, copies in zip(zip(*parts, strict=True), standing.copies, strict=True))


def _matches(standing: Standing) -> Matches:
    found: dict[tuple[frozenset[int], int], Probes] = {}
    for part in standing.parts.values():
        if isinstance(part, JoinReport):
            for step, seen in part.probes.items():
                found[step] = found.get(step, Probes()) + seen
    return found


def _think_over(standing: Standing) -> None:
    from windrow.optimize.order_joins import plan_orders
    from windrow.plan.aggregate_join_cost import choose_plan

    operator, seen = standing.operator, _inputs(standing)
    if isinstance(operator, Join):
        if len(operator.parts) < 3:
            return
        now = [s.observed for s in seen]
        if not _drifted(now, standing.planned):
            return
        standing.matches = _matches(standing)
        made: Choice | PlanChoice = plan_orders(now, standing.value, standing.matches)
        value: Any = made.orders if isinstance(made, Choice) else None
        standing.planned = now
    else:
        sides = figures(seen)
        if not _drifted(sides, standing.planned):
            return
        made = choose_plan(sides, standing.value, operator.period)
        value, standing.planned = made.plan, sides
    standing.changes += value != standing.value
    standing.value, standing.choice = value, made


def _drifted(now: Sequence[Any], planned: Sequence[Any]) -> bool:
    return not planned or max(a.drift(b) for a, b in zip(now, planned, strict=True)) >= DRIFT


def _described(standing: Standing) -> dict[str, Any]:
    operator = standing.operator
    seen = _inputs(standing) if standing.parts else ()
    if isinstance(operator, Join):
        choice = standing.choice if isinstance(standing.choice, Choice) else None
        observed = [s.observed for s in seen]
        return operator.described(standing.value, choice, observed, _matches(standing), standing.changes)
    plan = standing.choice if isinstance(standing.choice, PlanChoice) else None
    return operator.described(standing.value, plan, figures(seen), standing.changes)
