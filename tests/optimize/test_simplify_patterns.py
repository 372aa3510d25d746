"""Update-pattern simplification: strict operators above joins, or below where that is cheaper."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from windrow.optimize import RuleContext, simplify_patterns
from windrow.plan.cost import Statistics
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Append,
    Equality,
    Filter,
    Join,
    LeftJoin,
    Node,
    Project,
    Quantise,
    Scan,
    Semi,
    TableScan,
    Union,
    Window,
    WindowKind,
    WindowSpec,
    walk,
)
from windrow.plan.patterns import Pattern, lifetimes

Apply = Callable[..., str]
INT = pa.int64()


def w(name: str) -> Window:
    scan = Scan(name, name, ((f"{name}.a", "a", INT), (f"{name}.b", "b", INT)), "ts")
    return Window(scan, WindowSpec(WindowKind.RANGE, 100, text="W"))


def on(left: str, right: str) -> tuple[Equality, ...]:
    return (Equality(f"{left}.a", f"{right}.a"),)


def negation(right: Node | None = None) -> Semi:
    return Semi(w("s1"), right or w("s3"), on("s1", "s3"), anti=True)


RIGHT = Join((negation(), w("s2")), on("s1", "s2"))
LEFT = Semi(Join((w("s1"), w("s2")), on("s1", "s2")), w("s3"), on("s1", "s3"), anti=True)
SMALL_JOIN = RuleContext(statistics=Statistics(rates={"s1": 100, "s2": 1, "s3": 100}, values=1e5))
LARGE_JOIN = RuleContext(statistics=Statistics(rates={"s1": 10, "s2": 1000, "s3": 10}, values=20))


def strict_edges(root: Node) -> int:
    """How many edges of a plan carry negative elements."""
    known = lifetimes(root)
    return sum(known[node].pattern is Pattern.STRICT for node in walk(root))


def test_figure_3_5_pull_up(apply: Apply) -> None:
    """With a small join the right plan of figure 3.5 becomes the left one: fewer edges carry negatives."""
    for plan in (LEFT, RIGHT):
        assert apply(simplify_patterns, plan, SMALL_JOIN) == (
            "anti join[s1.a = s3.a](join[s1.a = s2.a](window[[W]](scan[s1 (a, b)]), window[[W]](scan[s2 (a, b)])), "
            "window[[W]](scan[s3 (a, b)]))"
        )
    assert strict_edges(LEFT) < strict_edges(RIGHT)


def test_figure_3_5_push_down(apply: Apply) -> None:
    """With a large join and a selective negation the left plan becomes the right one."""
    for plan in (LEFT, RIGHT):
        assert apply(simplify_patterns, plan, LARGE_JOIN).startswith("join[s1.a = s2.a](anti join[s1.a = s3.a](")


def test_push_down_through_dropped_columns(apply: Apply) -> None:
    """Columns that were dropped between join and negation do not hide the join."""
    join = LEFT.left
    narrow = Semi(Project(join, (("s1.a", column("s1.a", INT)),)), w("s3"), on("s1", "s3"), anti=True)
    assert apply(simplify_patterns, narrow, LARGE_JOIN).startswith("project[s1.a](join[s1.a = s2.a](anti join")
    assert apply(simplify_patterns, narrow, SMALL_JOIN).startswith("anti join[s1.a = s3.a](project[s1.a](join")


def test_pull_up_through_a_projection(apply: Apply) -> None:
    """A projection over the negation keeps the correlation column for as long as it is needed."""
    part = Project(negation(), (("d", Expr((Ref("s1.b"), " + 1"), INT)),))
    plan = Join((part, w("s2")), (Equality("d", "s2.a"),))
    assert apply(simplify_patterns, plan, SMALL_JOIN) == (
        "project[d, s2.a, s2.b](anti join[s1.a = s3.a](join[d = s2.a](project[s1.b + 1 AS d, s1.a]("
        "window[[W]](scan[s1 (a, b)])), window[[W]](scan[s2 (a, b)])), window[[W]](scan[s3 (a, b)])))"
    )


def test_nothing_strict_stays_below_a_table_join(apply: Apply) -> None:
    """A join with a table cannot undo matches, so negation goes above it whatever it costs."""
    table = TableScan("t", "t", (("t.a", "a", INT),))
    below = Join((negation(), table), on("s1", "t"))
    above = Semi(Join((w("s1"), table), on("s1", "t")), w("s3"), on("s1", "s3"), anti=True)
    for context in (SMALL_JOIN, LARGE_JOIN):
        for plan in (below, above):
            assert apply(simplify_patterns, plan, context).startswith("anti join[s1.a = s3.a](join[s1.a = t.a]")


def test_negation_of_a_table_is_a_selection(apply: Apply) -> None:
    """NOT EXISTS over a table that never changes is not strict and stays where it is."""
    table = TableScan("s3", "s3", (("s3.a", "a", INT),))
    plan = Join((negation(table), w("s2")), on("s1", "s2"))
    assert apply(simplify_patterns, plan, SMALL_JOIN).startswith("join[s1.a = s2.a](anti join")


def test_several_negations_move_in_one_run(apply: Apply) -> None:
    """Every negation of a join goes up, not just the first."""
    twice = Semi(negation(), w("s4"), on("s1", "s4"), anti=True)
    shown = apply(simplify_patterns, Join((twice, w("s2")), on("s1", "s2")), SMALL_JOIN)
    assert shown.startswith("anti join[s1.a = s4.a](anti join[s1.a = s3.a](join[s1.a = s2.a](window")


def test_internal_joins_are_left_alone(apply: Apply) -> None:
    """Results of internal windows do not end with their rows, so nothing moves across such a join."""
    plan = Join((negation(), w("s2")), on("s1", "s2"), internal=(False, True))
    assert apply(simplify_patterns, plan, SMALL_JOIN).startswith("join")


def test_left_join_moves_only_if_the_join_ignores_its_right_side(apply: Apply) -> None:
    """A left join goes above a join on its left columns, and never above one on its padded columns."""
    padded = LeftJoin(w("s1"), w("s3"), on("s1", "s3"))
    free = Join((padded, w("s2")), on("s1", "s2"))
    assert "left join[s1.a = s3.a](join[s1.a = s2.a]" in apply(simplify_patterns, free, SMALL_JOIN)
    tied = Join((padded, w("s2")), on("s3", "s2"))
    assert apply(simplify_patterns, tied, SMALL_JOIN).startswith("join[s3.a = s2.a](left join")


def test_idle_operators_go(apply: Apply) -> None:
    """Operators that change nothing are dropped, and two of one kind become one."""
    s = w("s1")
    identity = Project(s, tuple((n, column(n, t)) for n, t in s.schema.items()))
    true = Filter(identity, Expr(("TRUE",), pa.bool_()))
    node = Quantise(Quantise(Quantise(Union((Join((true,)),)), 1), 5), 10)
    assert apply(simplify_patterns, node) == "quantise[every 10 ticks](window[[W]](scan[s1 (a, b)]))"
    assert apply(simplify_patterns, Quantise(Quantise(s, 4), 10)).count("quantise") == 2


def test_projections_merge_unless_that_computes_twice(apply: Apply) -> None:
    """One projection does for two, except where a computed column would be computed twice."""
    inner = Project(w("s1"), (("d", Expr(("(", Ref("s1.a"), " * 2)"), INT)),))
    once = Project(inner, (("e", Expr(("(", Ref("d"), " + 1)"), INT)),))
    assert apply(simplify_patterns, once) == "project[(s1.a * 2) + 1 AS e](window[[W]](scan[s1 (a, b)]))"
    twice = Project(inner, (("e", Expr(("(", Ref("d"), " * ", Ref("d"), ")"), INT)),))
    assert apply(simplify_patterns, twice).count("project") == 2


def test_append_over_append_only_goes(apply: Apply) -> None:
    """What never ends needs no INTERNAL."""
    assert apply(simplify_patterns, Append(w("s1").input)) == "scan[s1 (a, b)]"
    assert apply(simplify_patterns, Append(w("s1"))).startswith("append")
