"""`windrow explain`: show the plan of every query of a script, without running it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.cli.inputs import add_inputs, read_script
from windrow.plan.strategies import Strategy

if TYPE_CHECKING:
    from windrow.catalog import Catalog
    from windrow.cql import Explain
    from windrow.plan.nodes import QueryPlan
    from windrow.sharing.registry import Registry

FORMATS = ("text", "json", "dot", "svg")


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="windrow explain", description=__doc__, allow_abbrev=False)
    add_inputs(parser)
    parser.add_argument("--format", choices=FORMATS, help="default: text")
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("--query", metavar="NAME", help="this query only")
    options = parser.parse_args(argv)
    if options.json and options.format not in (None, "json"):
        parser.error(f"--json contradicts --format {options.format}")
    format_ = "json" if options.json else options.format or "text"

    plans = every = bound(read_script(options.file), dict(options.stream), dict(options.table))
    if options.query:
        named = {name.lower(): plan for name, plan in plans.items()}
        if options.query.lower() not in named:
            parser.error(f"no query named {options.query} in the script; it has {', '.join(plans) or 'none'}")
        plans = {options.query: named[options.query.lower()]}
    if format_ == "svg" and len(plans) > 1:
        parser.error(f"the script has {len(plans)} queries and a drawing shows one: choose it with --query")
    explainer = Explainer(options.strategy, options.no_rule, options.sharing, every.values())
    shown = [explainer.explain(plan, format_) for plan in plans.values()]
    if format_ == "json" and not options.query:
        shown = ["[" + ",\n".join(shown) + "]"]  # a list, however many there are
    print("\n".join(text.rstrip("\n") + "\n" for text in shown), end="", file=sys.stdout)
    return 0


def bound(script: str, streams: Mapping[str, str], tables: Mapping[str, str]) -> dict[str, QueryPlan]:
    """Plans by name: of every query, and of what EXPLAIN statements show. Data gives schemas that are not declared."""
    catalog = _catalog(script, streams, tables)
    plans = {plan.name: plan for plan in catalog.queries.values()}
    for number, statement in enumerate(_explained(script, catalog), 1):
        if statement.plan not in plans.values():
            plans[f"{statement.plan.name}{number}"] = replace(statement.plan, name=f"{statement.plan.name}{number}")
    return plans


def explanations(
    script: str,
    streams: Mapping[str, str],
    tables: Mapping[str, str],
    strategy: str,
    without: Sequence[str],
    sharing: str = "auto",
) -> list[str]:
    """What the EXPLAIN statements of a script show, each in its own format."""
    from windrow import cql
    from windrow.cql.statement_forms import ExplainStatement

    if not any(isinstance(s, ExplainStatement) for s in cql.parse(script)):
        return []  # data is read for its schema only where it is needed
    catalog = _catalog(script, streams, tables)
    explainer = Explainer(strategy, without, sharing, catalog.queries.values())
    return [explainer.explain(e.plan, e.format) for e in _explained(script, catalog)]


def _catalog(script: str, streams: Mapping[str, str], tables: Mapping[str, str]) -> Catalog:
    from windrow.catalog import Catalog
    from windrow.engine.functions import registered
    from windrow.engine.script import bind_script

    given = ({name.lower(): (name, path) for name, path in data.items()} for data in (streams, tables))
    return bind_script(script, Catalog(functions=registered()), *given)


def _explained(script: str, catalog: Catalog) -> list[Explain]:
    from windrow import cql
    from windrow.cql.statement_forms import ExplainStatement

    found = (cql.bind(s, catalog) for s in cql.parse(script) if isinstance(s, ExplainStatement))
    return [e for e in found if isinstance(e, cql.Explain)]


class Explainer:
    """Shows plans as they would run with all queries of the script registered."""

    def __init__(self, strategy: str, without: Sequence[str], sharing: str, plans: Iterable[QueryPlan]) -> None:
        from windrow.optimize import Optimizer

        self.optimizer = Optimizer(frozenset(without), Strategy(strategy))
        self.sharing = self.optimizer.strategy.sharing(sharing)
        self._plans = list(plans)
        self._registry: Registry | None = None

    def explain(self, plan: QueryPlan, format_: str) -> str:
        """One plan, after the optimizer."""
        from windrow.plan.explain import explain

        best = self.optimizer.best(plan)
        return explain(best, format_, self.optimizer.strategy, sharing=self._shared(best))

    def _shared(self, plan: QueryPlan) -> dict[str, Any] | None:
        if plan.root.period is None:
            return self._shared_plan(plan)
        from windrow.sharing.explain import sharing_of
        from windrow.sharing.registry import Registry

        if self._registry is None:
            self._registry = Registry({}, self.sharing)
            for other in self._plans:
                best = self.optimizer.best(other)
                query = self._registry.recognised(best)
                if query is not None:
                    self._registry.enter(query)
            self._registry.leave_alone()
        known = any(p.name == plan.name for p in self._plans)
        found = sharing_of(self._registry if known else self._registry.with_plan(plan), plan)
        return found if found["shared"] else self._shared_plan(plan) or found

    def _shared_plan(self, plan: QueryPlan) -> dict[str, Any] | None:
        """With whom a query would be one dataflow; None if it would run by itself."""
        from windrow.sharing.plans.explain import sharing_of_continuous
        from windrow.sharing.plans.registry import SharedPlans

        plans = SharedPlans(self.sharing in ("auto", "shards"))
        others = [self.optimizer.best(p) for p in self._plans if p.name != plan.name]
        for each in (*others, plan):
            plans.offer(each, materialized=False, start=None, retained=False)
        plans.settle({})
        return sharing_of_continuous(plans, plan) if plan.name.lower() in plans.place else None
