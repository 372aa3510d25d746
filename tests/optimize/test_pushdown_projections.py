"""Projection push-down: which columns go, and which must stay."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from windrow.optimize import pushdown_projections
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Aggregate,
    Aggregation,
    Append,
    Call,
    Difference,
    Distinct,
    Emit,
    Equality,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    Semi,
    StreamOp,
    TableScan,
    Union,
    Window,
    WindowKind,
    WindowSpec,
)

Apply = Callable[..., str]
INT = pa.int64()


def s(name: str = "s") -> Scan:
    return Scan(name, name, tuple((f"{name}.{c}", c, INT) for c in "abc"), "ts")


def take(node: Node, *names: str) -> Project:
    return Project(node, tuple((n, column(n, node.schema[n])) for n in names))


def test_scans_read_what_is_used(apply: Apply) -> None:
    """A scan keeps the columns of the output, of predicates and of partitions."""
    rows = Window(s(), WindowSpec(WindowKind.ROWS, 5, partition=("s.c",)))
    assert (
        apply(pushdown_projections, take(rows, "s.a"))
        == "project[s.a](window[[PARTITION BY s.c ROWS 5]](scan[s (a, c)]))"
    )
    node = take(Filter(s(), Expr((Ref("s.b"), " > 1"), pa.bool_())), "s.a")
    assert apply(pushdown_projections, node) == "project[s.a](filter[s.b > 1](scan[s (a, b)]))"


def test_join_stores_only_what_is_needed_above(apply: Apply) -> None:
    """A column that only a filter reads is dropped before the join stores it."""
    left = Filter(s(), Expr((Ref("s.b"), " > 1"), pa.bool_()))
    node = take(Join((left, s("u")), (Equality("s.a", "u.a"),)), "u.c")
    assert apply(pushdown_projections, node) == (
        "project[u.c](join[s.a = u.a](project[s.a](filter[s.b > 1](scan[s (a, b)])), scan[u (a, c)]))"
    )


def test_semi_join_keeps_correlation_columns(apply: Apply) -> None:
    """The right side of EXISTS is reduced to what the condition reads."""
    node = take(Semi(s(), s("u"), (Equality("s.a", "u.b"),)), "s.c")
    assert apply(pushdown_projections, node) == "project[s.c](semi join[s.a = u.b](scan[s (a, c)], scan[u (b)]))"


def test_unused_calls_and_aggregates_go(apply: Apply) -> None:
    """A user's function or an aggregate that nobody reads is not computed; a global aggregate keeps its row."""
    call = Call(s(), "f", "f", ("s.b",), pa.bool_())
    calls = (Aggregation("sum", "s.b", "total", INT), Aggregation("count", None, "n", INT))
    node = take(Aggregate(call, ("s.a",), calls), "n")
    assert apply(pushdown_projections, node) == "project[n](aggregate[COUNT(*) by s.a](scan[s (a)]))"
    one = Project(Aggregate(s(), (), calls), (("one", Expr(("1",), INT)),))
    assert apply(pushdown_projections, one) == "project[1 AS one](aggregate[SUM(s.b)](scan[s (b)]))"


def test_counting_rows_needs_one_column(apply: Apply) -> None:
    """COUNT(*) reads no column, but rows must be there: the function beside it is still dropped."""
    call = Call(s(), "f", "f", ("s.b",), pa.bool_())
    node = Aggregate(call, (), (Aggregation("count", None, "n", INT),))
    assert apply(pushdown_projections, node) == "aggregate[COUNT(*)](scan[s (a)])"


@pytest.mark.parametrize("whole", [Distinct(s()), Difference(s(), s()), Append(s()), Emit(s(), StreamOp.ISTREAM)])
def test_whole_rows_are_compared_whole(apply: Apply, whole: Node) -> None:
    """Operators that compare rows see all their columns."""
    assert "(b)" not in apply(pushdown_projections, take(whole, "s.b"))
    assert "(a, b, c)" in apply(pushdown_projections, take(whole, "s.b"))


def test_count_window_over_a_derived_stream_keeps_its_order(apply: Apply) -> None:
    """Rows of one instant are ordered by all their values, so all values stay."""
    derived = Window(s(), WindowSpec(WindowKind.ROWS, 5), derived=True)
    assert "(a, b, c)" in apply(pushdown_projections, take(derived, "s.b"))
    timed = Window(s(), WindowSpec(WindowKind.RANGE, 5), derived=True)
    assert "(b)" in apply(pushdown_projections, take(timed, "s.b"))


def test_union_parts_keep_equal_columns(apply: Apply) -> None:
    """All parts of a union lose the same columns, even one that cannot lose them inside."""
    node = take(Union((s(), Distinct(s()))), "s.c")
    assert apply(pushdown_projections, node) == (
        "project[s.c](union all(scan[s (c)], project[s.c](distinct(scan[s (a, b, c)]))))"
    )


def test_periodic_rstream_may_lose_columns(apply: Apply) -> None:
    """RSTREAM of a periodic block repeats rows without comparing them; a continuous one compares answers."""
    assert "scan[s (b)]" in apply(pushdown_projections, take(Emit(s(), StreamOp.RSTREAM, 5), "s.b"))
    assert "(a, b, c)" in apply(pushdown_projections, take(Emit(s(), StreamOp.RSTREAM), "s.b"))


def test_root_keeps_the_output_columns(apply: Apply) -> None:
    """Only the columns of the answer reach the end."""
    assert apply(pushdown_projections, s(), None, ("s.b",)) == "scan[s (b)]"


def test_active_interval_of_a_table_stays(apply: Apply) -> None:
    """The columns of VALID FROM ... TO are kept."""
    table = TableScan("t", "t", tuple((f"t.{c}", c, INT) for c in "abc"), valid=("t.b", "t.c"))
    assert apply(pushdown_projections, take(table, "t.a")) == "project[t.a](table[t (a, b, c)])"
