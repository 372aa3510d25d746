"""The importance of rows: IMPORTANCE(...) expressions, bound to streams, and read in a select list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.expressions import BindingContext, has_user_function
from windrow.cql.pipeline import extend
from windrow.cql.relations import From
from windrow.cql.scope import Entry, Scope, resolve, resolved, span_of
from windrow.cql.shed_syntax import SHED, ShedClause
from windrow.cql.walks import nodes
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.expr import Expr

if TYPE_CHECKING:
    pass


@dataclass
class Importance:
    """The importance of each stream's rows, by position in FROM: the internal column, and the expression it was bound
    from."""

    columns: dict[int, str] = field(default_factory=dict)
    exprs: dict[int, Expr] = field(default_factory=dict)


def shed_clause(select: exp.Select) -> ShedClause | None:
    """The SHED clause of a SELECT."""
    return select.meta.get(SHED)


def is_call(node: exp.Expr) -> bool:
    """Is the node IMPORTANCE()?"""
    return isinstance(node, exp.Anonymous) and node.name.upper() == "IMPORTANCE" and not node.expressions


def reads_importance(select: exp.Select) -> exp.Expr | None:
    """The first IMPORTANCE() of a SELECT, not looking into subqueries."""
    for node in nodes(select, exp.Query):
        if isinstance(node, exp.Anonymous) and is_call(node):
            return node
    return None


def bind_importance(clause: ShedClause, from_: From, context: BindingContext) -> Importance:
    """Bind IMPORTANCE for every stream of FROM, computing it below the join where it is not a plain column."""
    bound = Importance()
    if not clause.importance:
        return bound
    streams = [(i, part.entries[0]) for i, part in enumerate(from_.inputs) if not part.entries[0].is_table]
    for tree in clause.importance:
        _refuse_constant(tree, context)
        if has_user_function(tree, context.catalog):
            raise UnsupportedError(
                "a user function in IMPORTANCE",
                hint="name a column, or an expression of columns: IMPORTANCE price * size",
                span=span_of(tree, context.source),
            )
        named = {c.table.lower() for c in tree.find_all(exp.Column) if c.table}
        if len(named) > 1:
            raise BindingError(
                "one importance of two streams",
                hint="write one expression per stream: IMPORTANCE r.imp, s.imp",
                span=span_of(tree, context.source),
            )
        wanted = [(i, e) for i, e in streams if not named or e.alias.lower() in named]
        if not wanted:
            resolve(tree, Scope(context.source, [e for _, e in streams]))  # says what is unknown
        for i, entry in wanted:
            if i not in bound.columns:
                _bind_one(tree, i, entry, from_, bound, context)
    for i, entry in streams:
        if i not in bound.columns:
            raise BindingError(
                f'no importance for stream "{entry.alias}"',
                hint=f"add it: IMPORTANCE ..., {entry.alias}.column",
                span=context.source.span(clause.offset),
            )
    return bound


def _bind_one(tree: exp.Expr, i: int, entry: Entry, from_: From, bound: Importance, context: BindingContext) -> None:
    expr = context.expr(resolve(tree, Scope(context.source, [entry]), using_aliases=False))
    if not (pa.types.is_integer(expr.type) or pa.types.is_floating(expr.type) or pa.types.is_decimal(expr.type)):
        raise BindingError(
            f"importance is a number, not a {types.sql_name(expr.type)}",
            hint="name a numeric column: IMPORTANCE imp",
            span=span_of(tree, context.source),
        )
    bound.exprs[i] = expr
    if expr.column is not None:
        bound.columns[i] = expr.column
        return
    name = context.computed(expr, name=f"importance of {entry.alias}")
    part = from_.inputs[i]
    part.node = extend(part.node, {name: expr})
    bound.columns[i] = name


def _refuse_constant(tree: exp.Expr, context: BindingContext) -> None:
    """A constant that no row could have as importance."""
    constant = tree.this if isinstance(tree, exp.Neg) else tree
    if isinstance(constant, exp.Null):
        shown = "NULL"
    elif isinstance(constant, exp.Literal) and not constant.is_string:
        value = float(constant.name) * (-1 if isinstance(tree, exp.Neg) else 1)
        if 0 < value < float("inf"):
            return
        shown = ("-" if isinstance(tree, exp.Neg) else "") + constant.name
    else:
        return
    raise BindingError(
        f"importance is {shown}",
        hint="importance is a finite number greater than 0",
        span=span_of(tree, context.source) or context.source.span(int(tree.meta.get("start", 0))),
    )


def with_importance(select: exp.Select, importance: Importance, context: BindingContext) -> exp.Select:
    """The SELECT with IMPORTANCE() replaced: the least importance of a result's rows (paper, 2.1)."""
    call = reads_importance(select)
    if call is None:
        return select
    if not importance.columns:
        raise BindingError(
            "IMPORTANCE() without an importance",
            hint="say what matters at the end of the SELECT: SHED BY ... KEEP ... ROWS IMPORTANCE imp",
            span=span_of(call, context.source),
        )
    columns = [importance.columns[i] for i in sorted(importance.columns)]
    meta = dict(select.meta)

    def value(at: exp.Expr) -> exp.Expr:
        parts = [resolved(c, at) for c in columns]
        return parts[0] if len(parts) == 1 else exp.Anonymous(this="least", expressions=parts)

    copy = select.copy()
    holder: exp.Expr = _stream_items(copy) or copy
    items = [exp.alias_(value(i), "importance") if is_call(i) else i for i in holder.expressions]
    holder.set("expressions", items)
    copy.transform(lambda n: value(n) if is_call(n) else n, copy=False)
    copy.meta.update(meta)
    return copy


def _stream_items(select: exp.Select) -> exp.Expr | None:
    from windrow.cql.dialect import StreamItems

    items = select.expressions
    return items[0] if len(items) == 1 and isinstance(items[0], StreamItems) else None
