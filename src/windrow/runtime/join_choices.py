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
from windrow.operators.join_steps import JoinOrders, JoinReport, Matches, Orders, Probes
from windrow.operators.protocol import Operator
from windrow.operators.statistics import Observed, Seen, merged
from windrow.runtime.undo_log import LoggedDict, UndoLog

SAMPLES = 4
DRIFT = 1.25
"""A choice is thought over when some figure has changed by this factor."""

Choice = Orders | str
"""The orders of a join, or the bits of an aggregation join's plan."""

Chosen = Mapping[str, Mapping[int, Choice]]
"""By query and step."""

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


def follow(operator: Operator | None, chosen: Choice) -> None:
    """Let an operator do as the driver says."""
    if isinstance(operator, JoinOperator):
        assert not isinstance(chosen, str)
        operator.follow(chosen)
    elif isinstance(operator, AggregateDeltas):
        assert isinstance(chosen, str)
        operator.follow(chosen)


@dataclass
class ChoiceInForce:
    """A choice in force: how many copies there are of each input's rows, and the newest report of each partition."""

    copies: tuple[int, ...]
    changes: int = field(default=0, init=False)
    parts: dict[int, JoinMeasurement] = field(default_factory=dict, init=False)

    def inputs(self) -> tuple[Seen, ...]:
        """Each input, over all partitions."""
        parts = [p.inputs if isinstance(p, JoinReport) else p for p in self.parts.values()]
        return tuple(merged(own, copies) for own, copies in zip(zip(*parts, strict=True), self.copies, strict=True))


@dataclass
class OrdersInForce(ChoiceInForce):
    """The orders of a join, and what they rest on."""

    operator: JoinOperator
    value: Orders
    choice: JoinOrders | None = None
    planned: Sequence[Observed] = ()

    def reconsider(self) -> None:
        """Choose again if figures have drifted."""
        from windrow.optimize.order_joins import plan_orders

        now = [s.observed for s in self.inputs()]
        if len(now) > 2 and _drifted(now, self.planned):
            self.planned, self.choice = now, plan_orders(now, self.value, self._matches())
            self.changes += self.choice.orders != self.value
            self.value = self.choice.orders

    def described(self) -> dict[str, Any]:
        """For EXPLAIN."""
        observed = [s.observed for s in self.inputs()] if self.parts else []
        return self.operator.described(self.value, self.choice, observed, self._matches(), self.changes)

    def _matches(self) -> Matches:
        found: dict[tuple[frozenset[int], int], Probes] = {}
        for part in self.parts.values():
            if isinstance(part, JoinReport):
                for step, seen in part.probes.items():
                    found[step] = found.get(step, Probes()) + seen
        return found


@dataclass
class PlanInForce(ChoiceInForce):
    """The plan of an aggregation join, and what it rests on."""

    operator: AggregateDeltas
    value: str
    choice: PlanChoice | None = None
    planned: Sequence[SideFigures] = ()

    def reconsider(self) -> None:
        """Choose again if figures have drifted."""
        from windrow.plan.aggregate_join_cost import choose_plan

        now = figures(self.inputs())
        if _drifted(now, self.planned):
            self.planned, self.choice = now, choose_plan(now, self.value, self.operator.period)
            self.changes += self.choice.plan != self.value
            self.value = self.choice.plan

    def described(self) -> dict[str, Any]:
        """For EXPLAIN."""
        measured = figures(self.inputs() if self.parts else ())
        return self.operator.described(self.value, self.choice, measured, self.changes)


class JoinChoices:
    """The choices of all queries; the driver's."""

    def __init__(self, undo: UndoLog) -> None:
        self._in_force: LoggedDict[tuple[str, int], OrdersInForce | PlanInForce] = LoggedDict(undo)

    def register(
        self, query: str, step: int, operator: JoinOperator | AggregateDeltas, copies: Sequence[int], kept: Any
    ) -> None:
        """Begin to choose for a step; `kept`: what was chosen before a restart."""
        if isinstance(operator, JoinOperator):
            orders = tuple(tuple(o) for o in (operator.orders if kept is None else kept))
            self._in_force[query, step] = OrdersInForce(tuple(copies), operator, orders)
        else:
            plan = operator.plan if kept is None else kept
            self._in_force[query, step] = PlanInForce(tuple(copies), operator, plan)

    def forget(self, query: str) -> None:
        """A query is gone."""
        self._in_force.keep(lambda key: key[0] != query)

    def chosen(self) -> dict[str, dict[int, Choice]]:
        """What tasks are to follow."""
        found: dict[str, dict[int, Choice]] = {}
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
            self._in_force[key].reconsider()

    def describe(self, query: str) -> list[dict[str, Any]]:
        """For EXPLAIN: each join of a query, with its choice, cost, alternatives and statistics."""
        return [s.described() for (q, _), s in sorted(self._in_force.items()) if q == query]


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


def _drifted(now: Sequence[Any], planned: Sequence[Any]) -> bool:
    return not planned or max(a.drift(b) for a, b in zip(now, planned, strict=True)) >= DRIFT
