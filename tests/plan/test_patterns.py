"""Update patterns of plans, and the state structures they choose."""

from __future__ import annotations

import pyarrow as pa
import pytest

from windrow.errors import BindingError
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import (
    Aggregate,
    Aggregation,
    Append,
    Difference,
    Distinct,
    Emit,
    Equality,
    Filter,
    Intersection,
    Join,
    LeftJoin,
    Node,
    Quantise,
    Scan,
    Semi,
    StreamOp,
    TableScan,
    Union,
    Window,
    WindowKind,
    WindowSpec,
)
from windrow.plan.patterns import Pattern, annotate, pattern, state_structure

MONOTONIC, WEAKEST, WEAK, STRICT = Pattern


def scan(name: str) -> Scan:
    return Scan(name, name, ((f"{name}.a", "a", pa.int64()), (f"{name}.b", "b", pa.int64())), "ts")


def ranged(name: str, size: int = 10) -> Window:
    return Window(scan(name), WindowSpec(WindowKind.RANGE, size))


def rows(name: str, size: int = 10) -> Window:
    return Window(scan(name), WindowSpec(WindowKind.ROWS, size))


def table(retroactive: bool = False) -> TableScan:
    return TableScan("t", "t", (("t.a", "a", pa.int64()),), retroactive)


def on(left: str, right: str) -> tuple[Equality, ...]:
    return (Equality(f"{left}.a", f"{right}.a"),)


def filtered(node: Node, name: str) -> Filter:
    return Filter(node, Expr((Ref(name), " > 1"), pa.bool_()))


COUNT = (Aggregation("count", None, "n", pa.int64()),)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (scan("s"), MONOTONIC),
        (table(), MONOTONIC),
        (ranged("s"), WEAKEST),
        (Window(scan("s"), WindowSpec(WindowKind.NOW)), WEAKEST),
        (Window(scan("s"), WindowSpec(WindowKind.UNBOUNDED)), MONOTONIC),
        (rows("s"), STRICT),
        (filtered(ranged("s"), "s.a"), WEAKEST),
        (filtered(rows("s"), "s.a"), STRICT),
    ],
)
def test_leaves_and_unary_operators(node: Node, expected: Pattern) -> None:
    """Base windows have the patterns of rule 0, and unary weakest operators keep them (rule 1)."""
    assert pattern(node) is expected


@pytest.mark.parametrize(
    ("size", "period", "expected"), [(10, 5, WEAKEST), (10, 10, WEAKEST), (10, 4, WEAK), (3, 10, WEAKEST)]
)
def test_quantise_keeps_weakest_only_if_lifetimes_stay_equal(size: int, period: int, expected: Pattern) -> None:
    """A window of 10 looked at every 4 is seen twice or three times; one of 3 every 10 once or never."""
    assert pattern(Quantise(ranged("s", size), period)) is expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((ranged("s"), ranged("u")), WEAKEST),
        ((ranged("s", 10), ranged("u", 20)), WEAK),
        ((Quantise(ranged("s", 3), 20), ranged("u", 20)), WEAKEST),
        ((scan("s"), scan("u")), MONOTONIC),
        ((scan("s"), ranged("u")), WEAK),
        ((ranged("s"), rows("u")), STRICT),
    ],
)
def test_union(parts: tuple[Node, ...], expected: Pattern) -> None:
    """A merge is as complex as its inputs, and weakest only if all live equally long (rule 2)."""
    assert pattern(Union(parts)) is expected


@pytest.mark.parametrize(
    ("parts", "internal", "expected"),
    [
        ((ranged("s"), ranged("u")), (), WEAK),
        ((ranged("s"), rows("u")), (), STRICT),
        ((scan("s"), scan("u")), (), MONOTONIC),
        ((scan("s"), ranged("u")), (), WEAK),
        ((ranged("s"), ranged("u")), (True, True), MONOTONIC),
        ((ranged("s"), ranged("u")), (True, False), WEAK),
        ((ranged("s"), scan("u")), (True, False), MONOTONIC),
        ((ranged("s"), table()), (), WEAKEST),
        ((scan("s"), table()), (), MONOTONIC),
        ((ranged("s"), filtered(table(), "t.a")), (), WEAKEST),
        ((ranged("s"), ranged("u"), table()), (), WEAK),
        ((ranged("s"), table(retroactive=True)), (), STRICT),
    ],
)
def test_join(parts: tuple[Node, ...], internal: tuple[bool, ...], expected: Pattern) -> None:
    """Joins of windows are weak, tables change nothing, retroactive tables make all strict (rules 1, 3, 4)."""
    assert pattern(Join(parts, internal=internal)) is expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Distinct(ranged("s")), WEAK),
        (Distinct(scan("s")), MONOTONIC),
        (Distinct(rows("s")), STRICT),
        (Aggregate(ranged("s"), ("s.a",), COUNT), STRICT),
        (Aggregate(scan("s"), (), COUNT), STRICT),
        (Difference(ranged("s"), ranged("s")), STRICT),
        (Intersection(ranged("s"), ranged("s")), STRICT),
        (Semi(ranged("s"), ranged("u"), on("s", "u"), anti=True), STRICT),
        (Semi(ranged("s"), ranged("u"), on("s", "u")), STRICT),
        (Semi(scan("s"), scan("u"), on("s", "u")), MONOTONIC),
        (Semi(scan("s"), scan("u"), on("s", "u"), anti=True), STRICT),
        (Semi(ranged("s"), table(), on("s", "t"), anti=True), WEAKEST),
        (Semi(ranged("s"), table(retroactive=True), on("s", "t")), STRICT),
        (LeftJoin(ranged("s"), ranged("u"), on("s", "u")), STRICT),
        (LeftJoin(ranged("s"), table(), on("s", "t")), WEAKEST),
        (Append(Join((ranged("s"), ranged("u")), on("s", "u"))), MONOTONIC),
        (Emit(ranged("s")), WEAKEST),
        (Emit(rows("s"), StreamOp.ISTREAM), MONOTONIC),
    ],
)
def test_other_operators(node: Node, expected: Pattern) -> None:
    """Distinct is weak over what is not strict; negation, aggregation and bags are strict; streams are monotonic."""
    assert pattern(node) is expected


def test_figure_3_5() -> None:
    """The two plans of the thesis's figure 3.5 carry the printed annotations."""
    s1, s2, s3 = (filtered(ranged(n), f"{n}.b") for n in ("s1", "s2", "s3"))
    join = Join((s1, s2), on("s1", "s2"))
    left = Semi(join, s3, on("s1", "s3"), anti=True)
    found = annotate(left)
    assert [found[n] for n in (s1, s2, s3, join, left)] == [WEAKEST, WEAKEST, WEAKEST, WEAK, STRICT]

    negation = Semi(s1, s3, on("s1", "s3"), anti=True)
    right = Join((negation, s2), on("s1", "s2"))
    found = annotate(right)
    assert [found[n] for n in (s1, s2, s3, negation, right)] == [WEAKEST, WEAKEST, WEAKEST, STRICT, STRICT]


def test_negative_strategy_makes_every_window_strict() -> None:
    """Negative tuples announce every expiration, so only monotonic edges are below strict."""
    join = Join((ranged("s"), ranged("u")), on("s", "u"))
    assert set(annotate(join, "negative").values()) == {MONOTONIC, STRICT}
    assert annotate(join, "direct") == annotate(join, "upa")


def test_unknown_strategy_is_refused() -> None:
    """A strategy that does not exist is named, with those that do."""
    with pytest.raises(BindingError, match="eager"):
        annotate(scan("s"), "eager")


@pytest.mark.parametrize(
    ("node", "upa", "negative", "direct"),
    [
        (scan("s"), "none", "none", "none"),
        (ranged("s"), "none", "FIFO", "none"),
        (rows("s"), "FIFO", "FIFO", "FIFO"),
        (filtered(ranged("s"), "s.a"), "none", "none", "none"),
        (Emit(ranged("s")), "FIFO", "none", "list"),
        (Emit(Distinct(ranged("s"))), "none", "none", "list"),
        (Emit(scan("s")), "none", "none", "none"),
        (Distinct(ranged("s")), "delta-star", "counts", "counts + list"),
        (Distinct(rows("s")), "counts + calendar", "counts", "counts + list"),
        (Aggregate(ranged("s"), (), COUNT), "group array + calendar", "group array", "group array + list"),
        (
            Join((ranged("s"), rows("u"), table())),
            "keyed runs ⋈ keyed + tombstones ⋈ keyed table",
            "keyed + tombstones ⋈ keyed + tombstones ⋈ keyed table",
            "keyed list ⋈ keyed + tombstones ⋈ keyed table",
        ),
        (
            Semi(ranged("s"), ranged("u"), on("s", "u"), anti=True),
            "keyed runs ⋈ counts + calendar",
            "keyed + tombstones ⋈ counts",
            "keyed list ⋈ counts + list",
        ),
    ],
)
def test_state_structures(node: Node, upa: str, negative: str, direct: str) -> None:
    """What an operator keeps follows from its inputs' patterns and the strategy."""
    assert [state_structure(node, s) for s in ("upa", "negative", "direct")] == [upa, negative, direct]
