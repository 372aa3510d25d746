"""The cost model: cardinalities of the thesis, and what makes a plan dearer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from windrow.plan.cost import Statistics, estimate, selectivity, total_cost
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import (
    Aggregate,
    Aggregation,
    Distinct,
    Emit,
    Equality,
    Filter,
    Join,
    Quantise,
    Scan,
    Semi,
    TableScan,
    Window,
    WindowKind,
    WindowSpec,
)


def window(name: str, size: int = 100) -> Window:
    return Window(Scan(name, name, ((f"{name}.a", "a", pa.int64()),), "ts"), WindowSpec(WindowKind.RANGE, size))


TABLE_5_3 = Statistics(
    rates={"s1": 10, "s2": 1, "s3": 1, "s4": 3},
    distinct={"s1.a": 500, "s2.a": 50, "s3.a": 40, "s4.a": 5},
)


@pytest.mark.parametrize(("left", "right", "size"), [(1, 2, 200), (1, 3, 400), (1, 4, 600), (2, 3, 400), (3, 4, 1500)])
def test_join_sizes_of_table_5_4(left: int, right: int, size: float) -> None:
    """The size of a binary join is that of the thesis's table 5.4."""
    sizes = {1: 100, 2: 100, 3: 200, 4: 100}
    parts = tuple(window(f"s{i}", sizes[i]) for i in (left, right))
    join = Join(parts, (Equality(f"s{left}.a", f"s{right}.a"),))
    assert estimate(join, TABLE_5_3)[join].size == pytest.approx(size)


def test_three_way_join_size() -> None:
    """Joining a third window divides by the distinct values left: table 5.4's last rows."""
    parts = (window("s1"), window("s2"), window("s3", 200))
    join = Join(parts, (Equality("s1.a", "s2.a"), Equality("s2.a", "s3.a")))
    assert estimate(join, TABLE_5_3)[join].size == pytest.approx(200 * 200 / 50)


def test_window_size_is_rate_times_length() -> None:
    """A time window holds its rate times its length, counted in units of the clock."""
    node = window("s", 5_000_000)
    assert estimate(node, Statistics(rate=7), unit=1_000_000)[node].size == pytest.approx(35)


def test_negative_strategy_doubles_the_flow() -> None:
    """With negative tuples every operator above a window processes each row twice."""
    node = Filter(window("s"), Expr((Ref("s.a"), " > 1"), pa.bool_()))
    assert estimate(node, strategy="negative")[node].cost == 2 * estimate(node, strategy="upa")[node].cost


def test_direct_strategy_pays_for_scans() -> None:
    """Direct expiration is dearest where state is large and must be expired at once."""
    node = Emit(Distinct(window("s", 10_000)))
    costs = {s: total_cost(node, strategy=s) for s in ("upa", "negative", "direct")}
    assert costs["upa"] < costs["negative"] < costs["direct"]


def test_delta_star_state_is_twice_its_output() -> None:
    """The estimate of delta-star's state is two rows per distinct value."""
    node = Distinct(window("s", 10_000))
    found = estimate(node, Statistics(distinct={"s.a": 50}))[node]
    assert (found.size, found.state) == (50, 100)


def test_periodic_aggregate_changes_once_per_evaluation() -> None:
    """A periodic aggregate sends at most one change per group and evaluation."""
    calls = (Aggregation("count", None, "n", pa.int64()),)
    often = Aggregate(window("s"), (), calls)
    rarely = Aggregate(Quantise(window("s"), 50), (), calls)
    assert estimate(rarely)[rarely].rate_out == pytest.approx(1 / 50)
    assert estimate(often)[often].rate_out > 100


def test_selectivity_of_an_equality_is_one_in_its_values() -> None:
    """`a = x` keeps one value of those the column has; other predicates keep a third."""
    statistics = Statistics()
    equality = Expr(("(", Ref("s.a"), " = 3)"), pa.bool_())
    assert selectivity(equality, {"s.a": 20}, statistics) == pytest.approx(1 / 20)
    assert selectivity(Expr(("(", Ref("s.a"), " > 3)"), pa.bool_()), {"s.a": 20}, statistics) == pytest.approx(1 / 3)


def test_tables_have_no_rate() -> None:
    """Only stream rows make a join with a table work."""
    table = TableScan("t", "t", (("t.a", "a", pa.int64()),))
    join = Join((window("s"), table), (Equality("s.a", "t.a"),))
    found = estimate(join, Statistics(rate=10, rows={"t": 1000}, distinct={"t.a": 1000, "s.a": 1000}))
    assert found[table].rate_out == 0
    assert found[join].rate_out == pytest.approx(10)


def test_premature_ends_grow_with_the_right_side() -> None:
    """More arrivals on the negated side end more left rows early."""

    def negatives(rate: float) -> float:
        node = Semi(window("s"), window("u", 1), (Equality("s.a", "u.a"),), anti=True)
        return estimate(node, Statistics(rates={"u": rate}))[node].negative

    assert negatives(100) > negatives(1) > 0
