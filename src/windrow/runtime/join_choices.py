"""What running queries choose, by what all their partitions measure: orders of joins, plans of aggregation joins.

Tasks report what they saw of each join (`statistics`); the driver adds the parts up, and when a figure has drifted it
chooses again. The choice goes to all tasks with the next tick, and is followed by every partition at the same tick.
Choices change no answer, so they need not be exact, and a restart may forget what they rest on; the choices themselves
are kept with the manifest, so that state is not rebuilt for nothing.

Samples of keys change slowly and are the greater part of a report: tasks send them every `SAMPLES` ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.aggregate_join_figures import PlanChoice, SideFigures, figures
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import JoinOrders, JoinReport, Matches, Probes
from windrow.operators.protocol import Operator
from windrow.operators.statistics import Observed, Seen, merged
from windrow.runtime.undo_log import LoggedDict, UndoLog

SAMPLES = 4
DRIFT = 1.25
"""A choice is thought over when some figure has changed by this factor."""

Chosen = Mapping[str, Mapping[int, Any]]
"""By query and step: orders, or the bits of a plan."""

JoinMeasurement = JoinReport | tuple[Seen, ...]


def sampled(tick: int) -> bool:
    """Whether reports of this tick carry samples of keys."""
    return tick <= 2 * SAMPLES or tick % SAMPLES == 0


def report(operator: Operator | None, samples: bool) -> JoinMeasurement | None:
    """What a task tells of an operator."""
    if isinstance(operator, (JoinOperator, AggregateDeltas)) and operator.measures:
        return operator.measured(samples)
    return None


def scaled(told: JoinMeasurement, shares: Sequence[float]) -> JoinMeasurement:
    """The report of inputs of which only a share is this partition's own: the rest are copies of heavy keys' rows."""
    inputs = told.inputs if isinstance(told, JoinReport) else told
    own = tuple(
        replace(s, elements=share * s.elements, rows=share * s.rows) for s, share in zip(inputs, shares, strict=True)
    )
    return replace(told, inputs=own) if isinstance(told, JoinReport) else own


def follow(operator: Operator | None, chosen: Any) -> None:
    """Let an operator do as the driver says."""
    if isinstance(operator, (JoinOperator, AggregateDeltas)):
        operator.follow(chosen)


@dataclass
class ChoiceInForce:
    """A choice in force: what it is, what it rests on, and the newest report of each partition."""

    operator: JoinOperator | AggregateDeltas
    copies: tuple[int, ...]  # of each input's rows
    value: Any
    choice: JoinOrders | PlanChoice | None = None
    planned: Sequence[Observed] | Sequence[SideFigures] = ()
    matches: Matches = field(default_factory=dict)
    changes: int = 0
    parts: dict[int, JoinMeasurement] = field(default_factory=dict)


class JoinChoices:
    """The choices of all queries; the driver's."""

    def __init__(self, undo: UndoLog) -> None:
        self._in_force: LoggedDict[tuple[str, int], ChoiceInForce] = LoggedDict(undo)

    def register(
        self, query: str, step: int, operator: JoinOperator | AggregateDeltas, copies: Sequence[int], kept: Any
    ) -> None:
        """Begin to choose for a step; `kept`: what was chosen before a restart."""
        value = kept if kept is not None else operator.orders if isinstance(operator, JoinOperator) else operator.plan
        if isinstance(operator, JoinOperator):
            value = tuple(tuple(o) for o in value)
        self._in_force[query, step] = ChoiceInForce(operator, tuple(copies), value)

    def forget(self, query: str) -> None:
        """A query is gone."""
        self._in_force.keep(lambda key: key[0] != query)

    def chosen(self) -> dict[str, dict[int, Any]]:
        """What tasks are to follow."""
        found: dict[str, dict[int, Any]] = {}
        for (query, step), held in self._in_force.items():
            found.setdefault(query, {})[step] = held.value
        return found

    def take(self, reports: Iterable[tuple[int, Mapping[tuple[str, int], JoinMeasurement]]]) -> None:
        """Take in what the partitions of a tick measured, and choose again where figures have drifted."""
        touched = set()
        for partition, told in reports:
            for key, part in told.items():
                if key in self._in_force:
                    held = self._in_force[key]
                    held.parts[partition] = _with_samples(part, held.parts.get(partition))
                    touched.add(key)
        for key in touched:
            _reconsider(self._in_force[key])

    def describe(self, query: str) -> list[dict[str, Any]]:
        """For EXPLAIN: each join of a query, with its choice, cost, alternatives and statistics."""
        return [_described(s) for (q, _), s in sorted(self._in_force.items()) if q == query]


def _with_samples(new: JoinMeasurement, old: JoinMeasurement | None) -> JoinMeasurement:
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


def _inputs(held: ChoiceInForce) -> tuple[Seen, ...]:
    """Each input, over all partitions."""
    parts = [p.inputs if isinstance(p, JoinReport) else p for p in held.parts.values()]
    return tuple(merged(own, copies) for own, copies in zip(zip(*parts, strict=True), held.copies, strict=True))


def _matches(held: ChoiceInForce) -> Matches:
    found: dict[tuple[frozenset[int], int], Probes] = {}
    for part in held.parts.values():
        if isinstance(part, JoinReport):
            for step, seen in part.probes.items():
                found[step] = found.get(step, Probes()) + seen
    return found


def _reconsider(held: ChoiceInForce) -> None:
    from windrow.optimize.order_joins import plan_orders
    from windrow.plan.aggregate_join_cost import choose_plan

    operator, seen = held.operator, _inputs(held)
    if isinstance(operator, JoinOperator):
        if len(operator.parts) < 3:
            return
        now = [s.observed for s in seen]
        if not _drifted(now, held.planned):
            return
        held.matches = _matches(held)
        made: JoinOrders | PlanChoice = plan_orders(now, held.value, held.matches)
        value: Any = made.orders if isinstance(made, JoinOrders) else None
        held.planned = now
    else:
        sides = figures(seen)
        if not _drifted(sides, held.planned):
            return
        made = choose_plan(sides, held.value, operator.period)
        value, held.planned = made.plan, sides
    held.changes += value != held.value
    held.value, held.choice = value, made


def _drifted(now: Sequence[Any], planned: Sequence[Any]) -> bool:
    return not planned or max(a.drift(b) for a, b in zip(now, planned, strict=True)) >= DRIFT


def _described(held: ChoiceInForce) -> dict[str, Any]:
    operator = held.operator
    seen = _inputs(held) if held.parts else ()
    if isinstance(operator, JoinOperator):
        choice = held.choice if isinstance(held.choice, JoinOrders) else None
        observed = [s.observed for s in seen]
        return operator.described(held.value, choice, observed, _matches(held), held.changes)
    plan = held.choice if isinstance(held.choice, PlanChoice) else None
    return operator.described(held.value, plan, figures(seen), held.changes)
