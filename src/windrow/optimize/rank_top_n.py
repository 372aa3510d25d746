"""Ranks with a bound become a top-n: `ROW_NUMBER() OVER (...) <= 10` needs ten rows of each partition, not all.

A filter right above one of ROW_NUMBER, RANK or DENSE_RANK that compares the rank with constants says which ranks are
shown; the operator that follows the first rows of each partition then replaces both. It costs what changes among the
first rows, where ranks alone cost a whole partition per instant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from windrow.optimize.rule import RuleContext, filtered, rewrite, with_root
from windrow.plan.expr import And, Comparison, Expr, Predicate
from windrow.plan.nodes import Analytic, Filter, Node, QueryPlan, TopN, has

KINDS = frozenset(("row_number", "rank", "dense_rank"))


def rank_top_n(plan: QueryPlan, context: RuleContext) -> QueryPlan:
    """Follow the first rows where a filter bounds their rank.

    >>> import pyarrow as pa
    >>> from windrow.plan.expr import Constant, Ref, column
    >>> from windrow.plan.nodes import AnalyticCall, Scan
    >>> from windrow.plan.words import sketch
    >>> s = Scan("s", "s", (("s.a", "a", pa.int64()),), "ts")
    >>> ranked = Analytic(s, ("s.a",), (AnalyticCall("r", "rank", Expr(("rank()",), pa.int64())),))
    >>> text = Expr((Ref("r"), " <= 3"), pa.bool_())
    >>> test = Comparison(text, column("r", pa.int64()), "<=", Constant(3, pa.int64()))
    >>> sketch(_bounded(Filter(ranked, Expr(text.parts, text.type, predicate=test))))
    'top[3 by rank of each s.a](scan[s (a)])'
    """
    return with_root(plan, rewrite(plan.root, _bounded)) if has(plan.root, Analytic) else plan


def _bounded(node: Node) -> Node:
    if not isinstance(node, Filter):
        return node
    predicates: list[Expr] = []
    below: Node = node
    while isinstance(below, Filter):
        predicates.insert(0, below.predicate)
        below = below.input
    if not isinstance(below, Analytic) or len(below.calls) != 1 or below.calls[0].function not in KINDS:
        return node
    rank = below.calls[0]
    low, high, rest = 0, math.inf, []
    for predicate in predicates:
        bounds = _bounds(predicate, rank.output)
        if bounds is None:
            rest.append(predicate)
            continue
        if (high < math.inf and bounds[1] < math.inf) or (low and bounds[0]):
            return node  # which of two bounds is the tighter one depends on constants: that is for the rows to say
        low, high = max(low, bounds[0]), min(high, bounds[1])
    if high == math.inf or high <= low:
        return node
    top = TopN(below.input, below.partition, rank.order, rank.ties, int(high) - low, low, rank.function, rank.output)
    return filtered(top, rest)


def _bounds(predicate: Expr, rank: str) -> tuple[int, float] | None:
    """`(low, high]` if that is all a condition asks of a rank."""
    low, high = 0, math.inf
    parts = [] if predicate.predicate is None else list(_parts(predicate.predicate))
    if not parts or len(parts) > 2:
        return None
    for part in parts:
        if not isinstance(part, Comparison) or part.left.column != rank or not isinstance(part.constant.value, int):
            return None
        value = part.constant.value
        match part.operator:
            case "=":
                low, high = max(low, value - 1), min(high, value)
            case "<":
                high = min(high, value - 1)
            case "<=":
                high = min(high, value)
            case ">":
                low = max(low, value)
            case ">=":
                low = max(low, value - 1)
    return low, high


def _parts(predicate: Predicate) -> Iterator[Predicate]:
    if isinstance(predicate, And):
        for part in predicate.parts:
            yield from _parts(part)
    else:
        yield predicate
