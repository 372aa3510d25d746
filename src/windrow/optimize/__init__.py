"""The optimizer: a visible tuple of rules, run in order until nothing changes.

Every rule can be switched off by its name, and none changes an answer (`rule.py` states the laws).
"""

from __future__ import annotations

from collections.abc import Collection

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

__all__ = ["RULES", "Rule", "RuleContext", "names", "optimize", "trace"]

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
    strategy: str = "upa",
    statistics: Statistics | None = None,
) -> QueryPlan:
    """The plan after all rules but those named in `off`; plans that differ in constants only are rewritten once."""
    if statistics is not None:
        return trace(plan, catalog, off, strategy, statistics)[0]
    return through(plan, ("optimize", frozenset(off), strategy), lambda p: trace(p, catalog, off, strategy)[0])


def trace(
    plan: QueryPlan,
    catalog: Catalog | None = None,
    off: Collection[str] = frozenset(),
    strategy: str = "upa",
    statistics: Statistics | None = None,
) -> tuple[QueryPlan, tuple[str, ...]]:
    """The optimised plan, and the names of the rules that changed it, in order."""
    unknown = sorted(set(off) - set(names()))
    if unknown:
        raise BindingError(f'unknown rule "{unknown[0]}"', hint=f"the rules are {', '.join(names())}")
    context = RuleContext(catalog, statistics or Statistics(), strategy, unit_of(plan))
    changed: set[str] = set()
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
    return plan, tuple(n for n in names() if n in changed)


def _name(rule: Rule) -> str:
    return rule.__name__
