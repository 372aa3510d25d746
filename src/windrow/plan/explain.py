"""EXPLAIN: a plan as text, JSON, DOT or SVG.

All four show the same `Report`: for every operator its arguments, the update pattern of its output edge, its state
structure and its estimates. The caller optimises first; the plan says which rules changed it.

The JSON has these keys, and they stay:

    query, pattern, strategy, rules, text, tick_budget_us
    sharing     null for a continuous query; else what `sharing.explain` lists
    clock       {"kind": "continuous" | "periodic", "period": ticks or null, "unit": "microsecond" | "tick"}
    output      [{"name", "type"}]
    cost        rows touched per second (per tick for tick streams) by the whole plan
    plan        {"operator", "arguments", "pattern", "state", "estimate", "inputs": [...]}
    joins       of a running query: what each join does, at which cost, what else was priced, and the statistics
    reduced     of a running query on several partitions: {"rows", "sent"} that went to its groups
    estimate    {"rows_in", "rows_out", "negatives_out": per second or tick, "rows", "state_rows", "cost"}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windrow.errors import BindingError
from windrow.plan import drawing
from windrow.plan.cost import Estimate, Statistics, estimate, unit_of
from windrow.plan.nodes import Node, QueryPlan
from windrow.plan.patterns import Pattern, lifetimes, state_structure
from windrow.plan.words import duration, words

FORMATS = ("text", "json", "dot", "svg")


@dataclass(frozen=True)
class ExplainedOperator:
    """One operator as EXPLAIN shows it."""

    name: str
    arguments: str
    pattern: Pattern
    state: str
    estimate: Estimate
    inputs: tuple[ExplainedOperator, ...]

    @property
    def cost(self) -> float:
        """The cost of the operator and of everything below it."""
        return self.estimate.cost + sum(i.cost for i in self.inputs)


@dataclass(frozen=True)
class Report:
    """What EXPLAIN shows of a query."""

    plan: QueryPlan
    strategy: str
    root: ExplainedOperator
    joins: tuple[Mapping[str, Any], ...] = ()
    reduced: Mapping[str, int] | None = None  # rows that were to be grouped elsewhere, and those sent
    sharing: Mapping[str, Any] | None = None  # as `sharing.explain` has it, with the lines of its text

    @property
    def per(self) -> str:
        """The unit of time of all rates."""
        return "s" if unit_of(self.plan) > 1 else "tick"

    @property
    def clock(self) -> str:
        """When the query is evaluated."""
        period = self.plan.root.period
        if period is None:
            return "continuous"
        often = "at least every" if self.plan.root.at_most else "every"
        return f"periodic, {often} {duration(period, unit_of(self.plan))}"


def explain(
    plan: QueryPlan,
    format: str = "text",
    strategy: str = "upa",
    statistics: Statistics | None = None,
    joins: Sequence[Mapping[str, Any]] = (),
    sharing: Mapping[str, Any] | None = None,
    reduced: Mapping[str, int] | None = None,
) -> str:
    """Show a plan in one of FORMATS; `joins`: what the joins of a running query tell of themselves.

    `reduced`: how many rows were sent to its groups, and how many they were before.
    """
    renderers = {"text": as_text, "json": as_json, "dot": as_dot, "svg": as_svg}
    if format.lower() not in renderers:
        raise BindingError(f'unknown EXPLAIN format "{format}"', hint=f"one of {', '.join(FORMATS)}")
    shown = report(plan, strategy, statistics)
    return renderers[format.lower()](replace(shown, joins=tuple(joins), sharing=sharing, reduced=reduced))


def report(plan: QueryPlan, strategy: str = "upa", statistics: Statistics | None = None) -> Report:
    """Gather everything that EXPLAIN shows."""
    how = plan.run_by(strategy)
    known = lifetimes(plan.root, how)
    unit = unit_of(plan)
    estimates = estimate(plan.root, statistics, how, unit)

    def operator(node: Node) -> ExplainedOperator:
        name, arguments = words(node, unit)
        inputs = tuple(operator(i) for i in node.inputs)
        return ExplainedOperator(
            name, arguments, known[node].pattern, state_structure(node, how, known), estimates[node], inputs
        )

    return Report(plan, how, operator(plan.root))


def as_text(shown: Report) -> str:
    """An indented tree, one operator per line, figures in columns."""
    rows = [("", "pattern", "state", f"rows/{shown.per}", "state rows", "cost")]
    for prefix, o in _lines(shown.root):
        e = o.estimate
        title = f"{prefix}{o.name} {o.arguments}".rstrip()
        rows.append((title, o.pattern.word, o.state, figure(e.rate_out), figure(e.state), figure(e.cost)))
    widths = [max(len(r[i]) for r in rows) for i in range(6)]
    table = [
        "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))).rstrip()
        for r in rows
    ]
    told = [line for i, join in enumerate(shown.joins) for line in ("", f"running join {i + 1}", *_told(join, "  "))]
    shared = ["", *shown.sharing["text"]] if shown.sharing is not None else []
    sent = shown.reduced
    if sent is not None:
        told += ["", f"to its groups {sent['rows']:,} rows travelled as {sent['sent']:,}, by group and instant"]
    return "\n".join([*header(shown), "", *table, *shared, *told, ""])


def _told(what: Mapping[str, Any], lead: str) -> Iterator[str]:
    """Nested figures, one name per line."""
    for name, value in what.items():
        if isinstance(value, Mapping):
            yield f"{lead}{name}:"
            yield from _told(value, lead + "  ")
        elif isinstance(value, list | tuple):
            yield f"{lead}{name}: {', '.join(str(v) for v in value)}"
        else:
            yield f"{lead}{name}: {figure(value) if isinstance(value, float) else value}"


def header(shown: Report) -> list[str]:
    """What holds for the whole plan."""
    kept = " (results by key: most would end early)" if shown.plan.by_key else ""
    lines = [
        f"query {shown.plan.name}: {shown.root.pattern.word}, {shown.clock}",
        f"strategy {shown.strategy}{kept}, cost {figure(shown.root.cost)} rows/{shown.per}",
        f"rules applied: {', '.join(shown.plan.rules) or 'none'}",
    ]
    budget = shown.plan.budget
    if budget is not None and budget.us is not None:
        weights = ", ".join(f"{stream}: {e.sql(lambda c: c)}" for stream, e in budget.importance)
        lines.append(f"shed when a tick takes over {budget.us / 1e6:g} s, by {weights or 'chance'}")
    return lines


def _lines(o: ExplainedOperator, lead: str = "", branch: str = "") -> Iterator[tuple[str, ExplainedOperator]]:
    yield lead + branch, o
    below = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    for i, child in enumerate(o.inputs):
        yield from _lines(child, below, "└─ " if i == len(o.inputs) - 1 else "├─ ")


def as_json(shown: Report) -> str:
    """The report with the keys the module's docstring lists."""
    plan, unit = shown.plan, unit_of(shown.plan)
    types = plan.root.schema
    document = {
        "query": plan.name,
        "pattern": shown.root.pattern.word,
        "clock": {
            "kind": "continuous" if plan.root.period is None else "periodic",
            "period": plan.root.period,
            "unit": "microsecond" if unit > 1 else "tick",
        },
        "strategy": shown.strategy,
        "rules": list(plan.rules),
        "cost": round(shown.root.cost, 3),
        "output": [{"name": name, "type": str(types[column])} for name, column in plan.output],
        "text": plan.text,
        "sharing": {k: v for k, v in shown.sharing.items() if k != "text"} if shown.sharing is not None else None,
        "tick_budget_us": plan.budget.us if plan.budget is not None else None,
        "plan": _json(shown.root),
    }
    if shown.joins:
        document["joins"] = list(shown.joins)
    if shown.reduced is not None:
        document["reduced"] = dict(shown.reduced)
    return json.dumps(document, indent=2, ensure_ascii=False)


def _json(o: ExplainedOperator) -> dict[str, Any]:
    e = o.estimate
    return {
        "operator": o.name,
        "arguments": o.arguments,
        "pattern": o.pattern.word,
        "state": o.state,
        "estimate": {
            "rows_in": round(e.rate_in, 3),
            "rows_out": round(e.rate_out, 3),
            "negatives_out": round(e.negative, 3),
            "rows": round(e.size, 3),
            "state_rows": round(e.state, 3),
            "cost": round(e.cost, 3),
        },
        "inputs": [_json(i) for i in o.inputs],
    }


def as_dot(shown: Report) -> str:
    """A Graphviz drawing."""
    return drawing.dot(_box(shown.root, shown.per), header(shown))


def as_svg(shown: Report) -> str:
    """A drawing that needs no other program."""
    return drawing.svg(_box(shown.root, shown.per), header(shown))


def _box(o: ExplainedOperator, per: str) -> drawing.Box:
    e = o.estimate
    figures = f"{figure(e.rate_out)} rows/{per} · cost {figure(e.cost)}"
    state = "" if o.state == "none" else f"{o.state}: {figure(e.state)} rows"
    lines = tuple(line for line in (o.arguments, state, figures) if line)
    return drawing.Box(o.name, lines, o.pattern.word, tuple(_box(i, per) for i in o.inputs))


def figure(number: float) -> str:
    """A number with three digits that matter.

    >>> figure(0), figure(0.0123), figure(12.34), figure(1234.5), figure(5.6e7)
    ('0', '0.012', '12.3', '1,234', '5.6e+07')
    """
    if number == 0:
        return "0"
    if number >= 1e7 or number < 1e-3:
        return f"{number:.2g}"
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}".removesuffix(".0") if number >= 1 else f"{number:.2g}"
