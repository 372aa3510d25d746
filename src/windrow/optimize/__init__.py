"""The optimizer: a visible tuple of rules, run in order until nothing changes.

Every rule can be switched off by its name, and none changes an answer (`rule.py` states the laws).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from windrow.catalog import Catalog
from windrow.errors import BindingError
from windrow.optimize.announce_ends import announce_ends
from windrow.optimize.pushdown_distinct import pushdown_distinct
from windrow.optimize.pushdown_predicates import pushdown_predicates
from windrow.optimize.pushdown_projections import pushdown_projections
from windrow.optimize.rank_top_n import rank_top_n
from windrow.optimize.rule import Rule, RuleContext
from windrow.optimize.simplify_patterns import simplify_patterns
from windrow.plan.cost import Statistics, unit_of
from windrow.plan.nodes import QueryPlan
from windrow.plan.parametric import through
from windrow.plan.strategies import Strategy

__all__ = ["RULES", "Optimizer", "Rule", "RuleContext", "names", "optimize"]

RULES: tuple[Rule, ...] = (
    pushdown_predicates,
    rank_top_n,
    pushdown_projections,
    pushdown_distinct,
    simplify_patterns,
    announce_ends,
)

ROUNDS = 20
"""More rounds than any plan needs: every rule moves things one way, or lowers the cost."""


def names() -> tuple[str, ...]:
    """The names of all rules, in order.

    >>> names()[0]
    'pushdown_predicates'
    """
    return tuple(_name(rule) for rule in RULES)


def optimize(
    plan: QueryPlan,
    catalog: Catalog | None = None,
    off: Collection[str] = frozenset(),
    strategy: Strategy = Strategy.UPA,
    statistics: Statistics | None = None,
) -> QueryPlan:
    """The plan after all rules but those named in `off`; it says in `rules` which of them changed it.

    Plans that differ in constants only are rewritten once.
    """
    if statistics is not None:
        return _rewritten(plan, catalog, off, strategy, statistics)
    return through(plan, ("optimize", frozenset(off), strategy), lambda p: _rewritten(p, catalog, off, strategy))


@dataclass(frozen=True)
class Optimizer:
    """Makes plans as one engine runs them: without the rules that are `off`, for its strategy."""

    off: frozenset[str] = frozenset()
    strategy: Strategy = Strategy.UPA

    def best(self, plan: QueryPlan, catalog: Catalog | None = None) -> QueryPlan:
        """The plan of a query."""
        return optimize(plan, catalog, self.off, self.strategy)

    def archived(self, plan: QueryPlan, catalog: Catalog) -> QueryPlan:
        """The plan behind an archive: all of them run by patterns."""
        return optimize(plan, catalog, self.off)

    def asked(self, plan: QueryPlan, catalog: Catalog) -> QueryPlan:
        """The plan of a one-time question: it is looked at once, so nothing in it ends."""
        return optimize(plan, catalog, self.off | {_name(announce_ends)}, self.strategy)

    def as_kept(self, by_key: bool) -> Optimizer:
        """The same for a query whose state was written with results by key, or was not."""
        return self if by_key else replace(self, off=self.off | {_name(announce_ends)})


def _rewritten(
    plan: QueryPlan,
    catalog: Catalog | None,
    off: Collection[str],
    strategy: Strategy,
    statistics: Statistics | None = None,
) -> QueryPlan:
    unknown = sorted(set(off) - set(names()))
    if unknown:
        raise BindingError(f'unknown rule "{unknown[0]}"', hint=f"the rules are {', '.join(names())}")
    context = RuleContext(catalog, statistics or Statistics(), strategy, unit_of(plan))
    changed = set(plan.rules)
    made: dict[str, QueryPlan] = {}  # by each rule, which is idempotent: what it made it need not see again
    for _ in range(ROUNDS):
        before = plan
        for rule in RULES:
            name = _name(rule)
            if name in off or made.get(name) is plan:
                continue
            after = rule(plan, context)
            if after is not plan and after != plan:
                changed.add(name)
                plan = after
            made[name] = plan
        if plan is before or plan == before:
            break
    rules = tuple(n for n in names() if n in changed)
    return plan if rules == plan.rules else replace(plan, rules=rules)


def _name(rule: Rule) -> str:
    return rule.__name__
