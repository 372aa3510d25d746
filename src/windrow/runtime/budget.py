"""The driver's side of tick budgets: gates and their controllers, and the record of what was shed.

Before a tick, `quotas` says how many rows each task may keep of each stream; after its job, `record` takes in what the
tasks report, and before the answers leave, `mark` says which of their lines are approximate; when the tick is over,
`observe` tells the controllers how long it took.

An answer at t is approximate if a row was shed that would still have mattered at t: one with `ts <= t < ts + reach`,
where the reach is the length of the query's windows (`plan/weights.reach`). So for each query the record keeps spans
`[first shed, last shed + reach)`; when time has passed the last of them the answer is exact again. They are kept with
the state, so a restart does not forget that a window has holes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog.lengths import microseconds
from windrow.errors import WindrowError
from windrow.operators.elements import BEGINNING, INF
from windrow.plan.dataflow import no_answer
from windrow.plan.nodes import QueryPlan, Scan, TickBudget, walk
from windrow.plan.weights import gate_of, reach, weighed
from windrow.runtime.admission import Admission, Quotas
from windrow.runtime.controller import Controller, Model, TimeUse
from windrow.runtime.tick_work import KeptRows, Pace

LOG = logging.getLogger("windrow.engine")

APPROXIMATE = "_approximate"
"""The column that says of a line of an answer that rows are missing which it should have seen."""

RECENT = 0.2
"""The weight of the newest tick in running means."""


@dataclass
class Flow:
    """One stream at a gate: what came and passed in all, in the last tick, and in how many tasks."""

    seen: int = 0
    kept: int = 0
    importance_seen: float = 0.0
    importance_kept: float = 0.0
    tasks: int = 1
    arrivals: float = 0.0  # per tick, a running mean

    @property
    def share(self) -> float:
        return self.kept / self.seen if self.seen else 1.0


@dataclass
class BudgetGate:
    """A budget, the streams that pass through it, and the queries behind it."""

    budget: TickBudget
    controller: Controller
    flows: dict[str, Flow] = field(default_factory=dict)
    last: dict[str, Flow] = field(default_factory=dict)  # of the last tick
    newest: dict[str, Flow] = field(default_factory=dict)  # of the last tick that brought rows
    ticks: int = 0  # that shed
    shed_last: bool = False

    @property
    def shedding(self) -> bool:
        """Whether the newest rows were shed; a tick without rows changes nothing."""
        return any(f.kept < f.seen for f in self.newest.values())


@dataclass
class Budgets:
    """All gates of a runtime. `default_us`: the budget of queries that name none."""

    default_us: int | None = None
    gates: dict[str, BudgetGate] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)  # query -> gate
    plans: dict[str, QueryPlan] = field(default_factory=dict)
    spans: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)  # query -> approximate [from, to)
    ended: float | None = None  # when the last tick did
    _saved: dict[str, Any] = field(default_factory=dict)

    # queries

    def budgeted(self, plan: QueryPlan) -> QueryPlan | None:
        """The plan with the budget that it is under, if it is under one.

        A query with a deadline, which may be late instead, has no budget unless it names one.
        """
        if plan.budget is not None and plan.budget.us is not None:
            return plan
        if self.default_us is None or plan.root.at_most:
            return None
        importance = plan.budget.importance if plan.budget is not None else ()
        return replace(plan, budget=TickBudget(self.default_us, importance))

    def add(self, plan: QueryPlan) -> QueryPlan:
        """Take in a query; returns the plan to run, with aggregates that can be scaled."""
        found = self.budgeted(plan)
        if found is None:
            return plan
        plan = found
        assert plan.budget is not None and plan.budget.us is not None
        key, name = gate_of(plan), plan.name.lower()
        assert key is not None
        if key not in self.gates:
            made = BudgetGate(plan.budget, Controller(plan.budget.us / 1e6))
            _restore(made, self._saved.get("gates", {}).get(key))
            self.gates[key] = made
        self.behind[name] = key
        self.plans[name] = plan
        self.spans[name] = [tuple(s) for s in self._saved.get("spans", {}).get(name, ())]
        return weighed(plan)

    def dropped(self, name: str) -> tuple[str, BudgetGate, QueryPlan, list[tuple[int, int | None]]] | None:
        """Drop a query; what `reinstate` needs to take it back."""
        key = self.behind.get(name)
        found = None if key is None else (name, self.gates[key], self.plans[name], self.spans[name])
        self.drop(name)
        return found

    def reinstate(self, found: tuple[str, BudgetGate, QueryPlan, list[tuple[int, int | None]]] | None) -> None:
        """Take a dropped query back."""
        if found is not None:
            name, gate, plan, spans = found
            key = gate_of(plan)
            assert key is not None
            self.gates.setdefault(key, gate)
            self.behind[name], self.plans[name], self.spans[name] = key, plan, spans

    def drop(self, name: str) -> None:
        """Forget a query, and its gate if nobody else stands behind it."""
        key = self.behind.pop(name.lower(), None)
        for kept in (self.plans, self.spans):
            kept.pop(name.lower(), None)
        if key is not None and key not in self.behind.values():
            del self.gates[key]

    def streams(self, gate: str) -> list[str]:
        """The streams that pass a gate."""
        read = (s.lower() for q, key in self.behind.items() if key == gate for s in self.plans[q].streams)
        return list(dict.fromkeys(read))

    # ticks

    def quotas(self, tasks: Mapping[str, int] | None = None) -> Quotas:
        """The rows that a task may keep, by gate and stream; what is not named passes whole. `tasks`: how many read a
        stream, as many as in the last tick if not given."""
        found: dict[str, dict[str, int]] = {}
        for key, gate in self.gates.items():
            capacity = gate.controller.capacity
            total = sum(f.arrivals for f in gate.flows.values())
            if capacity is not None and total > 0:
                found[key] = {
                    s: max(1, int(capacity * f.arrivals / total / (tasks or {}).get(s, f.tasks)))
                    for s, f in gate.flows.items()
                    if f.arrivals > 0
                }
        return found

    @property
    def shedding(self) -> bool:
        """Whether any gate is lowered."""
        return any(g.controller.shedding for g in self.gates.values())

    def record(self, reports: Sequence[Admission]) -> None:
        """Take in what the tasks of a tick kept."""
        for gate in self.gates.values():
            gate.last = {}
        for report in reports:
            if report.gate not in self.gates:
                continue
            gate = self.gates[report.gate]
            for flow in (gate.flows.setdefault(report.stream, Flow()), gate.last.setdefault(report.stream, Flow(0))):
                flow.seen += report.seen
                flow.kept += report.kept
                flow.importance_seen += report.importance_seen
                flow.importance_kept += report.importance_kept
            gate.last[report.stream].arrivals += 1
            if report.first is not None and report.last is not None:
                self._approximate(report)
        for gate in self.gates.values():
            for stream, last in gate.last.items():
                flow = gate.flows[stream]
                flow.tasks = int(last.arrivals)
                share = 1.0 if flow.arrivals == 0 else RECENT
                flow.arrivals += share * (last.seen - flow.arrivals)
            gate.newest.update((s, f) for s, f in gate.last.items() if f.seen)
            gate.ticks += any(f.kept < f.seen for f in gate.last.values())

    def counters(self) -> dict[str, int]:
        """Rows of the last tick before and behind all gates."""
        flows = [f for g in self.gates.values() for f in g.last.values()]
        return {"gates.seen": sum(f.seen for f in flows), "gates.kept": sum(f.kept for f in flows)} if flows else {}

    def _approximate(self, report: Admission) -> None:
        assert report.first is not None and report.last is not None
        for name, key in self.behind.items():
            plan = self.plans[name]
            if key == report.gate and report.stream in (s.lower() for s in plan.streams):
                length = reach(plan)
                end = None if length is None else report.last + length
                self.spans[name] = _merged([*self.spans[name], (report.first, end)])

    def mark(self, name: str, table: pa.Table) -> pa.Table:
        """An answer with the column that says which of its lines are approximate; others pass as they are."""
        key = name.lower()
        if key not in self.behind:
            return table
        ts = table.column("_ts").cast(pa.int64()).to_numpy()
        found = np.zeros(len(ts), np.bool_)
        for first, end in self.spans[key]:
            found |= (ts >= first) & (ts < (INF if end is None else end))
        return table.append_column(APPROXIMATE, pa.array(found))

    def instance(self, plan: QueryPlan) -> tuple[QueryPlan, pa.Table]:
        """Some instance of a template as it runs, without being taken in, and its answer without rows."""
        found = self.budgeted(plan)
        run = plan if found is None else weighed(found)
        none = no_answer(run, run.root.schema)
        return run, none if found is None else none.append_column(APPROXIMATE, pa.array([], pa.bool_()))

    def observe(
        self, tick: int, seconds: float, frontier: int, kernels: float | None = None, ended: float | None = None
    ) -> None:
        """Tell the controllers how long a tick took (`kernels`: the part of it behind the gates; `ended`: when it did,
        in seconds of any clock), log what was shed, and forget spans that time has passed."""
        elapsed = None if ended is None or self.ended is None else ended - self.ended
        self.ended = ended
        for key, gate in self.gates.items():
            before = gate.controller.shedding
            seen, kept = (sum(getattr(f, n) for f in gate.last.values()) for n in ("seen", "kept"))
            if frontier != BEGINNING:  # else no work was done
                gate.controller.observe(seen, kept, seconds, kernels, frontier, elapsed, self._shape(key))
            if kept < seen:
                weight, whole = (
                    sum(getattr(f, n) for f in gate.last.values()) for n in ("importance_kept", "importance_seen")
                )
                begins = gate.shed_last is False
                LOG.log(
                    logging.WARNING if begins else logging.INFO,
                    "tick %d: %.2f s of %.2f s; shed %d of %d rows, importance kept %.0f %%",
                    tick, seconds, gate.controller.budget, seen - kept, seen, 100 * weight / whole if whole else 100,
                )  # fmt: skip
            if seen:
                gate.shed_last = kept < seen
            if before and not gate.controller.shedding:
                LOG.warning("tick %d: %.2f s; the load has passed, all rows are kept again", tick, seconds)
        for name, spans in self.spans.items():
            left = [(a, b) for a, b in spans if b is None or b > frontier]
            if spans and not left:
                LOG.warning("query %s: exact again from %d on", name, max(b or 0 for _, b in spans))
            self.spans[name] = left

    def _shape(self, gate: str) -> TimeUse:
        """The longest windows behind a gate, of those that end, and how often the most frequent query looks."""
        plans = [self.plans[q] for q, key in self.behind.items() if key == gate]
        found = [reach(p) for p in plans]
        known = self.gates[gate].controller.kept.ends
        endless = (known[-1] - known[0] if known else 1) if None in found else 1
        period = min((p.root.period or 1 for p in plans), default=1)
        return TimeUse(max(endless, *(r for r in found if r is not None), 1), period)

    # looking in

    def quality(self, name: str) -> dict[str, Any] | None:
        """What was shed before a query; None when nothing ever is."""
        key = self.behind.get(name.lower())
        if key is None:
            return None
        gate, plan, spans = self.gates[key], self.plans[name.lower()], self.spans[name.lower()]
        scans = [n.stream.lower() for n in walk(plan.root) if isinstance(n, Scan)]
        own = {s: gate.flows[s] for s in dict.fromkeys(scans) if s in gate.flows}
        recall = float(np.prod([own[s].share for s in scans if s in own]))
        recent = float(np.prod([gate.newest[s].share for s in scans if s in gate.newest]))
        whole = sum(f.importance_seen for f in own.values())
        seen, kept = sum(f.seen for f in own.values()), sum(f.kept for f in own.values())
        return {
            "budget_seconds": gate.controller.budget,
            "shedding": any(f.kept < f.seen for s, f in gate.newest.items() if s in own),
            "rows_seen": seen,
            "rows_shed": seen - kept,
            "importance_kept": round(sum(f.importance_kept for f in own.values()) / whole, 6) if whole else 1.0,
            "estimated_recall": round(recall, 6),
            "estimated_recall_last_tick": round(recent, 6),
            "exact": not spans,
            "approximate_since": min((a for a, _ in spans), default=None),
            "approximate_until": max((b for _, b in spans if b is not None), default=None),
            "approximate_for_ever": any(b is None for _, b in spans),
            "streams": {s: {"rows_seen": f.seen, "rows_shed": f.seen - f.kept} for s, f in own.items()},
        }  # fmt: skip

    def status(self) -> dict[str, Any]:
        """The gates, for the engine's status."""
        return {
            "default_seconds": None if self.default_us is None else self.default_us / 1e6,
            "gates": [
                {
                    "budget_seconds": g.controller.budget,
                    "importance": {s: e.sql() for s, e in g.budget.importance},
                    "shedding": g.shedding,
                    "rows_that_fit": None if g.controller.capacity is None else round(g.controller.capacity),
                    "ticks_that_shed": g.ticks,
                    "queries": sorted(self.plans[q].name for q, k in self.behind.items() if k == key),
                }
                for key, g in self.gates.items()
            ],
        }

    # state

    def dump(self) -> dict[str, Any]:
        """What is kept with the state, as plain JSON."""
        return {
            "gates": {
                k: {
                    "capacity": g.controller.capacity,
                    "models": [[list(m.past), m.error] for m in (g.controller.alone, g.controller.pairs)],
                    "rests": list(g.controller.rests),
                    "kept": [list(g.controller.kept.ends), list(g.controller.kept.rows)],
                    "pace": [list(p) for p in g.controller.pace.past],
                    "done": g.controller.done,
                    "ticks": g.ticks,
                    "flows": {s: asdict(f) for s, f in g.flows.items()},
                }
                for k, g in self.gates.items()
            },
            "spans": {q: [list(s) for s in spans] for q, spans in self.spans.items() if spans},
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was kept; queries that are added find theirs again."""
        self._saved = dict(saved)


def microseconds_of(setting: object, name: str) -> int | None:
    """A length of time given as an engine setting, in microseconds: "2 seconds", or a number of seconds."""
    if setting is None:
        return None

    try:
        us = round(float(setting) * 1e6) if isinstance(setting, int | float) else microseconds(str(setting))
    except (ValueError, WindrowError, OverflowError):
        us = 0
    if us <= 0:
        raise WindrowError(f"{name} is {setting!r}", hint='give a time greater than 0, such as "2 seconds"')
    return us


def _restore(gate: BudgetGate, saved: Mapping[str, Any] | None) -> None:
    if saved is not None:
        controller, (ends, rows) = gate.controller, saved["kept"]
        controller.capacity, gate.ticks, controller.done = saved["capacity"], saved["ticks"], saved["done"]
        controller.rests, controller.kept = tuple(saved["rests"]), KeptRows(tuple(ends), tuple(rows))
        controller.pace = Pace(tuple((span, seconds) for span, seconds in saved["pace"]))
        controller.alone, controller.pairs = (Model(tuple(past), error) for past, error in saved["models"])
        gate.flows = {s: Flow(**f) for s, f in saved["flows"].items()}


def _merged(spans: Sequence[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    """Spans in order, those that touch as one.

    >>> _merged([(5, 9), (1, 3), (8, None)])
    [(1, 3), (5, None)]
    """
    found: list[tuple[int, int | None]] = []
    for first, end in sorted(spans, key=lambda s: s[0]):
        if found and (found[-1][1] is None or first <= found[-1][1]):
            before = found[-1][1]
            found[-1] = (found[-1][0], None if before is None or end is None else max(before, end))
        else:
            found.append((first, end))
    return found
