"""Duplicate-elimination push-down: when DISTINCT is needless, and when it is cheaper below."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from windrow.optimize import RuleContext, pushdown_distinct
from windrow.plan.cost import Statistics
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Aggregate,
    Aggregation,
    Distinct,
    Equality,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    Semi,
    Union,
    Window,
    WindowKind,
    WindowSpec,
)

Apply = Callable[..., str]
INT = pa.int64()
FEW = RuleContext(statistics=Statistics(values=5))
MANY = RuleContext(statistics=Statistics(values=1e9))
COUNT = (Aggregation("count", None, "n", INT),)


def w(name: str, *columns: str) -> Window:
    scan = Scan(name, name, tuple((f"{name}.{c}", c, INT) for c in columns or ("a",)), "ts")
    return Window(scan, WindowSpec(WindowKind.RANGE, 100, text="W"))


def take(node: Node, *names: str) -> Project:
    return Project(node, tuple((n, column(n, node.schema[n])) for n in names))


def test_needless_distinct_goes(apply: Apply) -> None:
    """Rows that are distinct already need no DISTINCT: another DISTINCT, groups with their keys, one row."""
    groups = Aggregate(w("s"), ("s.a",), COUNT)
    above = Filter(groups, Expr((Ref("n"), " > 1"), pa.bool_()))
    for node in (Distinct(w("s")), groups, above, take(groups, "s.a"), Aggregate(w("s"), (), COUNT)):
        assert not apply(pushdown_distinct, Distinct(node)).startswith("distinct(distinct")
        assert apply(pushdown_distinct, Distinct(node)) == apply(pushdown_distinct, node)


def test_groups_without_their_keys_may_repeat(apply: Apply) -> None:
    """Without the keys two groups can look alike, so DISTINCT stays."""
    node = Distinct(take(Aggregate(w("s"), ("s.a",), COUNT), "n"))
    assert apply(pushdown_distinct, node).startswith("distinct(project[n]")


def test_join_of_distincts(apply: Apply) -> None:
    """Few values: distinct inputs make the join small, and the join of distinct inputs is distinct."""
    join = Join((w("s"), w("u", "a", "b")), (Equality("s.a", "u.a"),))
    expected = "join[s.a = u.a](distinct(window[[W]](scan[s (a)])), distinct(window[[W]](scan[u (a, b)])))"
    assert apply(pushdown_distinct, Distinct(join), FEW) == expected
    shown = Distinct(take(join, "u.a", "u.b"))  # s.a follows from u.a
    assert apply(pushdown_distinct, shown, FEW) == f"project[u.a, u.b]({expected})"


def test_join_stays_when_the_output_does_not_determine_it(apply: Apply) -> None:
    """A column that is not shown may differ between rows that look alike."""
    join = Join((w("s", "a", "b"), w("u")), (Equality("s.a", "u.a"),))
    assert apply(pushdown_distinct, Distinct(take(join, "s.a")), FEW).startswith("distinct(")


def test_join_stays_when_it_is_cheaper_as_it_is(apply: Apply) -> None:
    """Many values: the inputs hardly shrink and the join is small, so DISTINCT stays above."""
    join = Join((w("s"), w("u")), (Equality("s.a", "u.a"),))
    assert apply(pushdown_distinct, Distinct(join), MANY).startswith("distinct(join")


def test_internal_windows_are_left_alone(apply: Apply) -> None:
    """Results of internal windows outlive their rows: DISTINCT does not commute with them."""
    join = Join((w("s"), w("u")), (Equality("s.a", "u.a"),), internal=(True, False))
    assert apply(pushdown_distinct, Distinct(join), FEW).startswith("distinct(join")


def test_union_is_cost_guarded(apply: Apply) -> None:
    """DISTINCT below a union never replaces the one above, and comes only if it pays."""
    node = Distinct(Union((w("s"), w("s"))))
    for context in (FEW, MANY):
        assert apply(pushdown_distinct, node, context).startswith("distinct(union all(")


def test_semi_join_keeps_its_left_key(apply: Apply) -> None:
    """EXISTS only removes left rows, so distinct left rows stay distinct."""
    semi = Semi(Distinct(w("s")), w("u"), (Equality("s.a", "u.a"),))
    assert apply(pushdown_distinct, Distinct(semi)).startswith("semi join")
