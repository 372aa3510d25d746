"""The driver, and which expressions count as total."""

from __future__ import annotations

import duckdb
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
from windrow.plan.totality import key_safe, total
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


TYPES = {"i": INT, "j": INT, "x": pa.float64(), "t": pa.string(), "ts": pa.timestamp("us"), "d": pa.decimal128(38, 0)}
TOTAL = [
    "(#i > 3)", "(#i = -1)", "(#i BETWEEN 1 AND 9)", "(#i IN (1, 2))", "(#i % 7 = 0)", "(#i / #j > 1)",
    "(#x * 2 + 1 > #x)", "(#t LIKE 'a%')", "(NOT #t IS NULL)", "(LOWER(#t) = 'it''s')", "(LENGTH(#t) > 3)",
    "(#ts > '2020-01-01')", "(#ts > CAST('2020-01-01 10:00:00' AS TIMESTAMP))", "(#i > 1.5)", "(#x > 1e300)",
]  # fmt: skip
RAISING = [
    "(#i + 1 > 3)", "(#i % #j = 0)", "(#i // #j = 0)", "(#i % 0 = 0)", "(CAST(#t AS INT) > 3)", "(#i > '3')",
    "(ABS(#i) > 1)", "(#ts > '2020-13-01')", "(#d > 0.5)", "(#i > 0.12345678901234567890)", "(#t || 'x' = 'ax')",
    "(#i - #j > 0)", "(#t = 'x' OR #i = 3)", "(#i ** 2 > 3)",
]  # fmt: skip


def parsed(text: str) -> Expr:
    """An expression from text in which `#name` is a column."""
    parts: list[str | Ref] = []
    for n, piece in enumerate(text.split("#")):
        name = next((k for k in sorted(TYPES, key=len, reverse=True) if n and piece.startswith(k)), "")
        parts += [Ref(name), piece[len(name) :]] if name else [piece]
    return Expr(tuple(parts), pa.bool_())


@pytest.mark.parametrize("text", TOTAL)
def test_total_expressions_never_raise(text: str) -> None:
    """What is called total has a value on extremes, nulls, zeros, NaN and odd strings."""
    e = parsed(text)
    assert total(e, TYPES)
    low, high = -(2**63), 2**63 - 1
    extremes = pa.table(
        {
            "i": pa.array([low, high, 0, None, -1], INT),
            "j": pa.array([0, -1, 0, 1, None], INT),
            "x": pa.array([float("inf"), float("nan"), -0.0, None, 1e308]),
            "t": pa.array(["", "%", "\\", None, "é'"]),
            "ts": pa.array([0, 2**62, -(2**61), None, 1], pa.timestamp("us")),
        }
    )
    with duckdb.connect() as connection:
        connection.register("extremes", extremes)
        assert len(connection.sql(f"SELECT {e.sql()} FROM extremes").fetchall()) == 5


@pytest.mark.parametrize("text", RAISING)
def test_expressions_that_may_raise(text: str) -> None:
    """What may raise, or is not known to be harmless, is not called total."""
    assert not total(parsed(text), TYPES)


def test_key_safe_tells_comparisons_from_looks() -> None:
    """Division and casts tell -0.0 from 0.0; comparisons and integers do not."""
    assert key_safe(parsed("(#x > 0.5)"), TYPES)
    assert key_safe(parsed("(CAST(#t AS INT) > 3)"), TYPES)
    assert not key_safe(parsed("(1 / #x > 0)"), TYPES)
    assert not key_safe(parsed("(CAST(#x AS VARCHAR) = '-0.0')"), TYPES)
