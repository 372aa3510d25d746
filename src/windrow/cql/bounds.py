"""window_start and window_end: the bounds of the window that an evaluation of a periodic query looks at.

They are the same for all rows of one evaluation, so nothing is computed from them before they must be shown: in the
tree they are symbols, `@window_end` and one `@window_start` per length of window. Grouping by a symbol, and equating a
symbol with itself, asks for nothing. Where an expression needs the value, a `WindowBounds` below it gives the column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from windrow.cql.scope import ScopeColumn, columns_of
from windrow.plan.nodes import Node, WindowBounds

_END = "@window_end"
_START = "@window_start "
NAMES = ("window_start", "window_end")


@dataclass(frozen=True)
class EvaluationGrid:
    """When a block is evaluated, and the type of its instants."""

    period: int
    offset: int
    type: pa.DataType


def bounds_of(size: int, type_: pa.DataType) -> tuple[ScopeColumn, ScopeColumn]:
    """The two columns of a window of this length."""
    return ScopeColumn("window_start", f"{_START}{size}", type_), ScopeColumn("window_end", _END, type_)


def is_bound(name: str) -> bool:
    """Is this internal name a symbol for a bound?"""
    return name == _END or name.startswith(_START)


def symbols(tree: exp.Expr) -> frozenset[str]:
    """The bounds that a resolved tree reads."""
    return frozenset(c for c in columns_of(tree) if is_bound(c))


def is_fixed(tree: exp.Expr) -> bool:
    """Does the tree read bounds and nothing else, so that it has one value per evaluation?"""
    names = columns_of(tree)
    return bool(names) and all(map(is_bound, names))


def is_symbol(tree: exp.Expr) -> bool:
    """Is the tree nothing but a bound?"""
    return isinstance(tree, exp.Column) and is_bound(tree.name)


def parted(conditions: Iterable[exp.Expr]) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Conditions that read no bounds, and those that do; what equates a bound with itself is true."""
    plain: list[exp.Expr] = []
    fixed: list[exp.Expr] = []
    for condition in conditions:
        if not is_trivial(condition):
            (fixed if symbols(condition) else plain).append(condition)
    return plain, fixed


def is_trivial(condition: exp.Expr) -> bool:
    """Does the condition equate a bound with itself?"""
    if not isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
        return False
    sides = [condition.this.unnest(), condition.expression.unnest()]
    return all(isinstance(s, exp.Column) and is_bound(s.name) for s in sides) and sides[0].name == sides[1].name


def with_bounds(node: Node, wanted: Iterable[str], grid: EvaluationGrid | None) -> Node:
    """The node with the columns of these bounds, each row once per evaluation."""
    missing = sorted(name for name in wanted if name not in node.schema)
    if not missing:
        return node
    assert grid is not None  # without one no name means a bound
    back = tuple((name, 0 if name == _END else int(name.removeprefix(_START))) for name in missing)
    return WindowBounds(node, grid.period, grid.offset, back, grid.type)
