"""EXPLAIN in its four formats."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from windrow.errors import BindingError
from windrow.plan.drawing import COLOURS
from windrow.plan.explain import explain
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Aggregate,
    Aggregation,
    Call,
    Emit,
    Equality,
    Filter,
    Join,
    Project,
    Quantise,
    QueryPlan,
    Scan,
    Semi,
    StreamOp,
    Window,
    WindowKind,
    WindowSpec,
)
from windrow.plan.words import expression, words


def window(name: str) -> Window:
    columns = ((f"{name}.a", "a", pa.int64()), (f"{name}.b", "b", pa.string()))
    return Window(Scan(name, name, columns, "ts"), WindowSpec(WindowKind.RANGE, 60_000_000, text="RANGE 1 MINUTE"))


def figure() -> QueryPlan:
    s1 = Filter(window("s1"), Expr(("(", Ref("s1.b"), " = '<\"ftp\"> & more')"), pa.bool_()))
    join = Join((s1, window("s2")), (Equality("s1.a", "s2.a"),))
    root = Emit(Semi(join, window("s3"), (Equality("s1.a", "s3.a"),), anti=True))
    return QueryPlan("fig", root, (("a", "s1.a"),), pa.timestamp("us"), "SELECT ...")


def periodic() -> QueryPlan:
    total = Aggregation("sum", "s.a", "total", pa.decimal128(38, 0))
    root = Emit(Aggregate(Quantise(window("s"), 5_000_000), ("s.b",), (total,)), StreamOp.RSTREAM, 5_000_000)
    return QueryPlan("sums", root, (("b", "s.b"), ("total", "total")), pa.timestamp("us"))


def test_text_shows_one_operator_per_line_with_its_edge() -> None:
    """Each line has the operator, the pattern of its edge, its state and its estimates."""
    lines = explain(replace(figure(), rules=("pushdown_predicates",))).splitlines()
    assert lines[0] == "query fig: strict, continuous"
    assert lines[1].startswith("strategy upa, cost ")
    assert lines[2] == "rules applied: pushdown_predicates"
    assert re.search(r"^relation +strict +calendar ", lines[5])
    assert re.search(r"^└─ anti join s1.a = s3.a +strict +keyed runs ⋈ counts \+ calendar ", lines[6])
    assert re.search(r"^   ├─ join s1.a = s2.a +weak +keyed runs ⋈ keyed runs ", lines[7])
    assert re.search(r"│  │  └─ window \[RANGE 1 MINUTE\] +weakest +none ", lines[9])
    assert re.search(r"scan s3 \(a, b\) +monotonic +none +100 +0 +0$", lines[-1])


def test_text_of_a_periodic_query_names_its_period() -> None:
    """The header says how often a periodic query is evaluated."""
    assert explain(periodic()).startswith("query sums: monotonic, periodic, every 5 s\n")


def test_json_has_the_documented_keys() -> None:
    """Programs can rely on the keys of the JSON."""
    shown = json.loads(explain(replace(periodic(), rules=("simplify_patterns",)), "json"))
    assert set(shown) == {
        "query",
        "pattern",
        "clock",
        "strategy",
        "rules",
        "cost",
        "output",
        "text",
        "sharing",
        "plan",
        "tick_budget_us",
    }
    assert shown["clock"] == {"kind": "periodic", "period": 5_000_000, "unit": "microsecond"}
    assert shown["output"] == [{"name": "b", "type": "string"}, {"name": "total", "type": "decimal128(38, 0)"}]
    operator = shown["plan"]["inputs"][0]
    assert set(operator) == {"operator", "arguments", "pattern", "state", "estimate", "inputs"}
    assert operator["arguments"] == "SUM(s.a) by s.b"
    assert set(operator["estimate"]) == {"rows_in", "rows_out", "negatives_out", "rows", "state_rows", "cost"}


def test_dot_has_a_node_per_operator_and_labelled_edges() -> None:
    """The DOT text names every operator once and labels every edge with its pattern."""
    text = explain(figure(), "dot")
    assert text.startswith("digraph plan {")
    assert len(re.findall(r"^  n\d+ \[", text, re.M)) == 10
    assert sorted(re.findall(r'-> n\d+ \[label="(\w+)"', text)).count("weakest") == 4
    assert text.count("{") == text.count("}")


def test_svg_is_xml_with_boxes_that_do_not_overlap() -> None:
    """The drawing parses, escapes its text, labels its edges, and keeps its boxes apart and inside."""
    root = ElementTree.fromstring(explain(figure(), "SVG"))
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(float(r.get(k, "0")) for k in ("x", "y", "width", "height"))
        for r in root.iter(f"{space}rect")
        if r.get("rx") == "6"
    ]
    assert len(boxes) == 10
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and y >= 0 and x + w <= float(root.get("width", "0")) and y + h <= float(root.get("height", "0"))
        for u, v, w2, h2 in boxes[:i]:
            assert x + w <= u or u + w2 <= x or y + h <= v or v + h2 <= y
    texts = [t.text for t in root.iter(f"{space}text")]
    assert {"weakest", "weak", "strict", "monotonic"} <= set(texts)
    assert any('<"ftp"> & more' in (t or "") for t in texts)


def test_every_pattern_has_a_colour() -> None:
    """No two patterns share a colour."""
    assert len(set(COLOURS.values())) == 4


def test_unknown_format_is_refused() -> None:
    """A format that does not exist is named, with those that do."""
    with pytest.raises(BindingError, match="png"):
        explain(figure(), "png")


def test_words_of_operators() -> None:
    """Operators read like the query: windows, calls, projections, aggregates."""
    s = Scan("s", "x", (("x.a", "a", pa.int64()),), "ts")
    spec = WindowSpec(WindowKind.ROWS, 5, 2, ("x.a",), True)
    assert words(s) == ("scan", "s x (a)")
    assert words(Window(s, spec)) == ("window", "[PARTITION BY x.a ROWS 5 SLIDE 2 INTERNAL]")
    assert words(Call(s, "f(a)", "f", ("x.a",), pa.bool_())) == ("call", "f(x.a) AS f(a)")
    double = Expr(("(", Ref("x.a"), " * 2)"), pa.int64())
    assert words(Project(s, (("x.a", column("x.a", pa.int64())), ("d", double)))) == ("project", "x.a, x.a * 2 AS d")
    count = Aggregation("count", "x.a", "n", pa.int64(), distinct=True)
    assert words(Aggregate(s, (), (count,))) == ("aggregate", "COUNT(DISTINCT x.a)")


def test_expression_drops_only_outer_parentheses() -> None:
    """Parentheses around the whole go, others stay."""
    assert expression(Expr(("((", Ref("a"), " > 1) OR (", Ref("b"), " = ')'))"), pa.bool_())) == "(a > 1) OR (b = ')')"
