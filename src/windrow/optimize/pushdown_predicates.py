"""Selection push-down: test rows as early as possible.

Selection commutes with everything that treats rows one by one or by value. It does not commute with `[ROWS n]` (other
rows would be counted), nor with the padded side of a left join, nor with a continuous RSTREAM (which repeats the answer
when anything in it changes).

Order: predicates keep their relative order, except that one which can never raise (`totality`) may overtake others.
One that may raise goes down only where it sees exactly the rows it saw before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_not

import pyarrow as pa

from windrow.optimize.rule import RuleContext, filtered, with_root
from windrow.plan import nodes as n
from windrow.plan.expr import Expr, Ref
from windrow.plan.totality import key_safe, total


def pushdown_predicates(plan: n.QueryPlan, context: RuleContext) -> n.QueryPlan:
    """Move every filter as far down as it goes, and make equalities across a join part of the join.

    >>> from windrow.plan.words import sketch
    >>> s = n.Scan("s", "s", (("s.a", "a", pa.int64()),), "ts")
    >>> young = n.Window(s, n.WindowSpec(n.WindowKind.RANGE, 5))
    >>> sketch(push(n.Filter(young, Expr((Ref("s.a"), " > 1"), pa.bool_())), []))
    'window[[RANGE 5]](filter[s.a > 1](scan[s (a)]))'
    """
    return with_root(plan, push(plan.root, []))


def push(node: n.Node, predicates: Sequence[Expr]) -> n.Node:
    """The node under the predicates (first innermost), each as far down as it goes."""
    if isinstance(node, n.Filter):
        made = push(node.input, [node.predicate, *predicates])
        return node if not predicates and _stayed(node, made) else made
    if isinstance(node, n.Join):
        return _push_join(node, predicates)
    if isinstance(node, n.Semi | n.LeftJoin):
        node = _push_right(node)
    down, stay = _split(predicates, node)
    inputs = [push(i, _into(node, k, down)) for k, i in enumerate(node.inputs)]
    same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
    return filtered(node if same else node.with_inputs(*inputs), stay)


def _stayed(before: n.Node, after: n.Node) -> bool:
    """Whether filters are where they were: then the nodes stay the same, and so do all above them."""
    while isinstance(before, n.Filter) and isinstance(after, n.Filter) and before.predicate is after.predicate:
        before, after = before.input, after.input
    return before is after


def _split(predicates: Sequence[Expr], node: n.Node) -> tuple[list[Expr], list[Expr]]:
    """Predicates that go below the node, and those that stay above it."""
    if not predicates:
        return [], []
    types, passes = node.schema, _passes(node)
    down: list[Expr] = []
    stay: list[Expr] = []
    for p in predicates:
        goes = passes(p) and (not stay or total(p, types))
        (down if goes else stay).append(p)
    return down, stay


def _into(node: n.Node, position: int, down: Sequence[Expr]) -> list[Expr]:
    """The predicates in terms of one input of the node."""
    if isinstance(node, n.Project):
        outputs = dict(node.outputs)
        return [p.substitute(outputs) for p in down]
    if isinstance(node, n.Semi | n.LeftJoin | n.AsofJoin) and position == 1:
        return []
    return list(down)


def _passes(node: n.Node) -> Callable[[Expr], bool]:
    """Whether a predicate on the node's output may be tested on its inputs instead."""
    types = node.schema

    def never_raises(p: Expr) -> bool:
        return total(p, types)

    def by_value(p: Expr) -> bool:
        return key_safe(p, types)

    match node:
        case n.Call(output=output):
            return lambda p: output not in p.columns
        case n.Quantise() | n.Semi() | n.Append():
            return never_raises
        case n.TopN(partition=partition) | n.Analytic(partition=partition) | n.Holistic(keys=partition):
            return lambda p: bool(p.columns) and p.columns <= set(partition) and by_value(p)
        case n.Session(keys=keys):  # whole partitions stay or go, so sessions are the same
            return lambda p: bool(p.columns) and p.columns <= set(keys) and by_value(p)
        case n.WindowBounds(bounds=bounds):
            shown = {name for name, _ in bounds}
            return lambda p: p.columns.isdisjoint(shown) and never_raises(p)
        case n.Union() | n.Project():
            return lambda p: True
        case n.Window(spec=spec):
            if spec.kind is not n.WindowKind.ROWS:
                return lambda p: True
            # whole partitions stay or go, so the rows counted in each are the same
            return lambda p: bool(p.columns) and p.columns <= set(spec.partition) and by_value(p)
        case n.Distinct():
            return by_value
        case n.Aggregate(keys=keys):
            return lambda p: bool(keys) and p.columns <= set(keys) and by_value(p)
        case n.LeftJoin(left=left) | n.AsofJoin(left=left):
            names = left.schema.keys()
            return lambda p: p.columns <= names
        case n.Difference() | n.Intersection():
            names = node.right.schema.keys()
            return lambda p: p.columns <= names and never_raises(p)
        case n.Emit(op=op, period=period):
            by_row = op in (n.StreamOp.RELATION, n.StreamOp.ISTREAM, n.StreamOp.DSTREAM) or period is not None
            return never_raises if by_row else lambda p: False
    return lambda p: False


def _push_join(node: n.Join, predicates: Sequence[Expr]) -> n.Node:
    types = node.schema
    owner = {name: k for k, part in enumerate(node.parts) for name in part.schema}
    per_part: list[list[Expr]] = [[] for _ in node.parts]
    equalities = list(node.equalities)

    def absorbed(p: Expr) -> bool:
        owners = {owner[c] for c in p.columns}
        if len(owners) == 1 and total(p, types):
            per_part[owners.pop()].append(p)
            return True
        equality = as_equality(p, types)
        if equality is None or len(owners) != 2:
            return False
        if equality not in equalities:
            equalities.append(equality)
        return True

    residual = tuple(p for p in node.residual if not absorbed(p))
    above = [p for p in predicates if not absorbed(p)]
    parts = tuple(push(part, mine) for part, mine in zip(node.parts, per_part, strict=True))
    changed = len(equalities) > len(node.equalities) or len(residual) < len(node.residual)
    if changed or any(map(is_not, parts, node.parts)):
        node = replace(node, parts=parts, equalities=tuple(equalities), residual=residual)
    return filtered(node, above)


def _push_right(node: n.Semi | n.LeftJoin) -> n.Semi | n.LeftJoin:
    """Test on the right input what the join condition asks of it alone, and find its equalities."""
    left, right = node.left.schema, node.right.schema
    types = {**left, **right}
    equalities, residual, below = list(node.equalities), [], []
    for p in node.residual:
        equality = as_equality(p, types)
        if p.columns and p.columns <= right.keys() and total(p, types):
            below.append(p)
        elif equality and equality.left in left and equality.right in right:
            equalities.append(equality)
        elif equality and equality.right in left and equality.left in right:
            equalities.append(n.Equality(equality.right, equality.left, equality.null_safe))
        else:
            residual.append(p)
    return replace(node, right=filtered(node.right, below), equalities=tuple(equalities), residual=tuple(residual))


def as_equality(p: Expr, types: dict[str, pa.DataType]) -> n.Equality | None:
    """`a = b` between two columns of one type, as a join sees it; None for anything else.

    >>> as_equality(Expr(("(", Ref("a"), " = ", Ref("b"), ")"), pa.bool_()), {"a": pa.int64(), "b": pa.int64()})
    Equality(left='a', right='b', null_safe=False)
    """
    text = "".join("?" if isinstance(part, Ref) else part for part in p.parts)
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    signs = {"? = ?": False, "? IS NOT DISTINCT FROM ?": True}
    if text not in signs:
        return None
    left, right = (part.name for part in p.parts if isinstance(part, Ref))
    if types[left] != types[right] or pa.types.is_nested(types[left]):
        return None
    return n.Equality(left, right, signs[text])
