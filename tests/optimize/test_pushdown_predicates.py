"""Selection push-down: where a predicate goes, and where it must stay."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from windrow.optimize import pushdown_predicates
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
    Intersection,
    Join,
    LeftJoin,
    Node,
    Project,
    Quantise,
    Scan,
    Semi,
    StreamOp,
    Union,
    Window,
    WindowKind,
    WindowSpec,
)

Apply = Callable[..., str]

INT, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()


def s(name: str = "s") -> Scan:
    columns = (("a", INT), ("x", FLOAT), ("t", TEXT))
    return Scan(name, name, tuple((f"{name}.{c}", c, t) for c, t in columns), "ts")


def window(kind: WindowKind = WindowKind.RANGE, partition: tuple[str, ...] = (), name: str = "s") -> Window:
    return Window(s(name), WindowSpec(kind, 5, partition=partition, text="W"))


def p(*parts: str | Ref) -> Expr:
    return Expr(("(", *parts, ")"), BOOL)


A = p(Ref("s.a"), " > 1")
X = p(Ref("s.x"), " > 0.5")
CASTS = p("CAST(", Ref("s.t"), " AS INT) = 1")
SHOWS_SIGN = p("CAST(", Ref("s.x"), " AS VARCHAR) = '-0.0'")
SAME_KEY = (Equality("s.a", "u.a"),)


@pytest.mark.parametrize("kind", [WindowKind.RANGE, WindowKind.NOW, WindowKind.UNBOUNDED])
def test_below_time_windows(apply: Apply, kind: WindowKind) -> None:
    """A time window holds a row for its time alone, so rows may be dropped before it."""
    assert apply(pushdown_predicates, Filter(window(kind), A)) == "window[[W]](filter[s.a > 1](scan[s (a, x, t)]))"


def test_not_below_count_windows(apply: Apply) -> None:
    """`[ROWS n]` counts rows before the selection."""
    assert apply(pushdown_predicates, Filter(window(WindowKind.ROWS), A)).startswith("filter[s.a > 1](window")


def test_below_partitioned_windows_only_on_their_columns(apply: Apply) -> None:
    """Dropping whole partitions changes no other partition."""
    node = window(WindowKind.ROWS, ("s.a",))
    assert apply(pushdown_predicates, Filter(Filter(node, X), A)) == (
        "filter[s.x > 0.5](window[[W]](filter[s.a > 1](scan[s (a, x, t)])))"
    )


def test_partition_predicate_that_splits_equal_keys_stays(apply: Apply) -> None:
    """0.0 and -0.0 are one partition; a predicate that tells them apart stays above."""
    node = window(WindowKind.ROWS, ("s.x",))
    assert apply(pushdown_predicates, Filter(node, SHOWS_SIGN)).startswith("filter")
    assert apply(pushdown_predicates, Filter(node, X)).startswith("window")


def test_through_projection_by_substitution(apply: Apply) -> None:
    """A predicate on a computed column tests the expression below."""
    node = Project(s(), (("d", Expr(("(", Ref("s.a"), " * 2)"), INT)), ("s.x", column("s.x", FLOAT))))
    assert apply(pushdown_predicates, Filter(node, p(Ref("d"), " > 1"))) == (
        "project[s.a * 2 AS d, s.x](filter[(s.a * 2) > 1](scan[s (a, x, t)]))"
    )


def test_below_calls_unless_they_compute_it(apply: Apply) -> None:
    """A predicate goes below a user's function whose result it does not read, and saves the function work."""
    call = Call(s(), "f", "f", ("s.a",), BOOL)
    node = Filter(Filter(call, p(Ref("f"), " = TRUE")), A)
    assert apply(pushdown_predicates, node) == "filter[f = TRUE](call[f(s.a) AS f](filter[s.a > 1](scan[s (a, x, t)])))"


def test_below_quantise_distinct_union_append(apply: Apply) -> None:
    """Selection by value commutes with what treats equal rows alike."""
    node = Append(Quantise(Distinct(Union((s(), Filter(s(), X)))), 10))
    assert apply(pushdown_predicates, Filter(node, A)) == (
        "append[results never expire](quantise[every 10 ticks](distinct(union all("
        "filter[s.a > 1](scan[s (a, x, t)]), filter[s.a > 1](filter[s.x > 0.5](scan[s (a, x, t)]))))))"
    )


def test_join_parts_and_equalities(apply: Apply) -> None:
    """A predicate on one part goes there; an equality across parts becomes part of the join; others stay."""
    join = Join((s(), s("u")), residual=(p(Ref("u.a"), " < 7"), p(Ref("s.t"), " = ", Ref("u.t"))))
    node = Filter(Filter(Filter(join, A), p(Ref("u.a"), " = ", Ref("s.a"))), p(Ref("s.x"), " < ", Ref("u.x")))
    assert apply(pushdown_predicates, node) == (
        "filter[s.x < u.x](join[s.t = u.t AND u.a = s.a]("
        "filter[s.a > 1](scan[s (a, x, t)]), filter[u.a < 7](scan[u (a, x, t)])))"
    )


def test_equality_of_different_types_stays_a_filter(apply: Apply) -> None:
    """Only columns of one type are equal by key."""
    node = Filter(Join((s(), s("u"))), p(Ref("s.a"), " = ", Ref("u.x")))
    assert apply(pushdown_predicates, node).startswith("filter[s.a = u.x](join[always]")


def test_raising_predicates_see_no_new_rows(apply: Apply) -> None:
    """A cast that may fail stays above whatever removes rows, and behind the predicates before it."""
    assert apply(pushdown_predicates, Filter(Join((s(), s("u")), SAME_KEY), CASTS)).startswith("filter[CAST")
    assert apply(pushdown_predicates, Filter(Quantise(s(), 5), CASTS)).startswith("filter[CAST")
    guarded = Filter(Filter(window(), p(Ref("s.t"), " <> ''")), CASTS)
    assert apply(pushdown_predicates, guarded) == (
        "window[[W]](filter[CAST(s.t AS INT) = 1](filter[s.t <> ''](scan[s (a, x, t)])))"
    )
    rows = window(WindowKind.ROWS, ("s.a",))
    behind = Filter(Filter(rows, X), p("CAST(", Ref("s.a"), " AS TINYINT) = 1"))
    assert apply(pushdown_predicates, behind).startswith("filter[CAST(s.a AS TINYINT) = 1](filter[s.x > 0.5](window")


def test_total_predicates_overtake(apply: Apply) -> None:
    """A predicate that cannot raise passes one that stays."""
    node = Filter(Filter(Join((s(), s("u")), SAME_KEY), CASTS), A)
    assert apply(pushdown_predicates, node) == (
        "filter[CAST(s.t AS INT) = 1](join[s.a = u.a](filter[s.a > 1](scan[s (a, x, t)]), scan[u (a, x, t)]))"
    )


def test_semi_join_left_side(apply: Apply) -> None:
    """A predicate above EXISTS tests left rows; what the condition asks of the right alone is tested there."""
    semi = Semi(s(), s("u"), residual=(p(Ref("u.a"), " = ", Ref("s.a")), p(Ref("u.x"), " > 2")), anti=True)
    assert apply(pushdown_predicates, Filter(semi, A)) == (
        "anti join[s.a = u.a](filter[s.a > 1](scan[s (a, x, t)]), filter[u.x > 2](scan[u (a, x, t)]))"
    )


def test_left_join_padding(apply: Apply) -> None:
    """Left predicates go left; right ones see padded rows and stay; right conditions of ON go right."""
    join = LeftJoin(s(), s("u"), SAME_KEY, (p(Ref("u.x"), " > 2"), p(Ref("s.x"), " > 3")))
    node = Filter(Filter(join, p(Ref("u.a"), " IS NULL")), A)
    assert apply(pushdown_predicates, node) == (
        "filter[u.a IS NULL](left join[s.a = u.a AND s.x > 3]("
        "filter[s.a > 1](scan[s (a, x, t)]), filter[u.x > 2](scan[u (a, x, t)])))"
    )


def test_aggregate_keys_only(apply: Apply) -> None:
    """HAVING on keys selects groups, so it can select rows; on aggregates it cannot."""
    count = (Aggregation("count", None, "n", INT),)
    node = Filter(Filter(Aggregate(s(), ("s.a",), count), p(Ref("n"), " > 1")), A)
    assert apply(pushdown_predicates, node) == (
        "filter[n > 1](aggregate[COUNT(*) by s.a](filter[s.a > 1](scan[s (a, x, t)])))"
    )
    never = Filter(Aggregate(s(), (), count), Expr(("FALSE",), BOOL))
    assert apply(pushdown_predicates, never).startswith("filter[FALSE](aggregate")


@pytest.mark.parametrize("bag", [Difference, Intersection])
def test_bag_operators_on_both_sides(apply: Apply, bag: type[Difference] | type[Intersection]) -> None:
    """A selection of a difference is the difference of selections; one that may raise stays."""
    node = bag(s(), s())
    assert apply(pushdown_predicates, Filter(node, A)).count("filter[s.a > 1](scan") == 2
    assert apply(pushdown_predicates, Filter(node, CASTS)).startswith("filter")


@pytest.mark.parametrize(
    ("op", "period", "goes"),
    [
        (StreamOp.ISTREAM, None, True),
        (StreamOp.DSTREAM, 5, True),
        (StreamOp.RSTREAM, 5, True),
        (StreamOp.RSTREAM, None, False),
        (StreamOp.ISTREAM_RESTORE, 5, True),
    ],
)
def test_stream_operators(apply: Apply, op: StreamOp, period: int | None, goes: bool) -> None:
    """Stream operators work row by row, but a continuous RSTREAM repeats all when anything changes."""
    node: Node = Filter(Emit(window(), op, period), A)
    assert apply(pushdown_predicates, node).startswith(op.value) is goes
