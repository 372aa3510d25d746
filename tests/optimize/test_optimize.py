"""The driver, and which expressions count as total."""

from __future__ import annotations

import pyarrow as pa
import pytest

from windrow.errors import BindingError
from windrow.optimize import RULES, names, optimize
from windrow.plan.cost import Statistics
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Distinct,
    Emit,
    Equality,
    Filter,
    Join,
    Project,
    QueryPlan,
    Scan,
    Semi,
    Window,
    WindowKind,
    WindowSpec,
)
from windrow.plan.words import sketch

INT = pa.int64()


def plan() -> QueryPlan:
    windows = [
        Window(Scan(n, n, tuple((f"{n}.{c}", c, INT) for c in "abc"), "ts"), WindowSpec(WindowKind.RANGE, 9, text="W"))
        for n in ("s", "u")
    ]
    join = Join(tuple(windows), (Equality("s.a", "u.a"),))
    chosen = Filter(join, Expr(("(", Ref("s.b"), " = 3)"), pa.bool_()))
    root = Emit(Distinct(Project(chosen, (("s.a", column("s.a", INT)),))))
    return QueryPlan("q", root, (("a", "s.a"),), INT)


def negated() -> QueryPlan:
    windows = [
        Window(Scan(n, n, tuple((f"{n}.{c}", c, INT) for c in "abc"), "ts"), WindowSpec(WindowKind.RANGE, 100))
        for n in ("s", "u", "v")
    ]
    join = Join(tuple(windows[:2]), (Equality("s.a", "u.a"),))
    semi = Semi(join, windows[2], (Equality("s.b", "v.b"),), anti=True)
    return QueryPlan("q", Emit(Project(semi, (("s.b", column("s.b", INT)),))), (("a", "s.b"),), INT)


def test_rules_work_together() -> None:
    """Predicates, columns and DISTINCT all go down in one run."""
    done = optimize(plan())
    assert sketch(done.root).startswith("relation(")
    assert "window[[W]](filter[s.b = 3](scan[s (a, b)]))" in sketch(done.root)
    assert "scan[u (a)]" in sketch(done.root)
    assert done.rules[:2] == ("pushdown_predicates", "pushdown_projections")


@pytest.mark.parametrize("values", [2, 100, 1e6])
@pytest.mark.parametrize("query", [plan(), negated()])
def test_a_fixed_point_is_reached(query: QueryPlan, values: float) -> None:
    """Optimising twice changes nothing more, whatever the statistics make of it."""
    statistics = Statistics(values=values, rates={"u": 1000})
    once = optimize(query, statistics=statistics)
    again = optimize(once, statistics=statistics)
    assert (again, again.rules) == (once, once.rules)


def test_negation_goes_where_it_is_cheaper() -> None:
    """The whole run considers both plans of figure 3.5 and chooses by cost."""
    large, small = Statistics(values=20, rates={"u": 1000}, rate=10), Statistics(values=1e6)
    assert "join[s.a = u.a](anti join[s.b = v.b](" in sketch(optimize(negated(), statistics=large).root)
    assert sketch(optimize(negated(), statistics=small).root).startswith("relation(anti join")


@pytest.mark.parametrize("name", names())
def test_every_rule_can_be_switched_off(name: str) -> None:
    """A rule that is off does not appear among those applied."""
    assert name not in optimize(plan(), off={name}).rules
    assert optimize(plan(), off=set(names())) == plan()


def test_unknown_rule_is_refused() -> None:
    """A misspelt rule is named, with those that exist."""
    with pytest.raises(BindingError, match="pushdown_predicate"):
        optimize(plan(), off={"pushdown_predicate"})


def test_rules_are_named_by_their_files() -> None:
    """One rule per file, and the file has the rule's name."""
    assert all(rule.__module__ == f"windrow.optimize.{rule.__name__}" for rule in RULES)
