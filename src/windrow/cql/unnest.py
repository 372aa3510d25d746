"""UNNEST in a select list: one row for each element.

All calls in one list are unnested side by side, as DuckDB does: the longest says how many rows there are. They are
computed by one `Unnest` below the rest of the list, which then sees columns.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.pipeline import Pipeline
from windrow.cql.scope import resolved, span_of
from windrow.cql.walks import nodes
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.nodes import Unnest

NAMES = frozenset(("unnest", "unlist"))

Name = TypeVar("Name")


def unnested(items: list[tuple[Name, exp.Expr]], pipeline: Pipeline) -> list[tuple[Name, exp.Expr]]:
    """The items with every UNNEST replaced by the column that holds the elements."""
    if not any(is_unnest(node) for _, tree in items for node in nodes(tree)):
        return items
    found: dict[str, tuple[str, str, pa.DataType]] = {}  # by the column of lists
    replaced = [(name, tree.copy().transform(_replace, pipeline, found, copy=False)) for name, tree in items]
    pipeline.node = Unnest(pipeline.node, tuple(found.values()))
    return replaced


def is_unnest(node: exp.Expr) -> bool:
    """Whether it is a call of UNNEST."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in NAMES


def _replace(node: exp.Expr, pipeline: Pipeline, found: dict[str, tuple[str, str, pa.DataType]]) -> exp.Expr:
    if not is_unnest(node):
        return node
    context = pipeline.context
    if len(node.expressions) != 1 or any(map(is_unnest, node.expressions[0].walk())):
        raise UnsupportedError(
            "UNNEST of several levels",
            hint="unnest one level, or write UNNEST(flatten(a))",
            span=span_of(node, context.source),
        )
    lists = pipeline.materialise(pipeline.hoist(node.expressions[0]))
    type_ = context.types[lists]
    if not (pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_)):
        raise BindingError(
            f"UNNEST of a {types.sql_name(type_)}",
            hint="name its fields: a.x, a.y" if pa.types.is_struct(type_) else "unnest a list, such as map_entries(a)",
            span=span_of(node, context.source),
        )
    if lists not in found:
        context.unnested(lists, node)
        output = context.fresh(f"unnest({lists})", type_.value_type)
        found[lists] = (output, lists, type_.value_type)
    return resolved(found[lists][0], node)
