"""Aggregates that are computed anew from a group's rows: which they are, and their calls as text.

Where the order of rows makes a difference and ORDER BY leaves it open, rows are taken in the order of time, then of the
values of all columns of FROM, ascending, nulls last; with DISTINCT, in the order of the argument. Text is written anew
from names of the lists here, numbers and bound expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.builtins import HOLISTIC, ORDERED
from windrow.cql.pipeline import Pipeline
from windrow.cql.scope import Scope, span_of
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.expr import Expr, Ref

_NULLS = (exp.IgnoreNulls, exp.RespectNulls)


@dataclass(frozen=True)
class HolisticText:
    """The arguments of a call, its ORDER BY and its FILTER, as written."""

    name: str
    arguments: tuple[exp.Expr, ...]
    order: tuple[exp.Ordered, ...]
    distinct: bool
    condition: exp.Expr | None


def holistic_text(call: exp.Expr, condition: exp.Expr | None) -> HolisticText | None:
    """The call of an aggregate that needs all values, taken apart; None for other aggregates."""
    order: list[exp.Ordered] = []
    if isinstance(call, exp.WithinGroup):
        order, call = list(call.expression.expressions), call.this
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name not in HOLISTIC:
        return None
    arguments, distinct = list(call.expressions), False
    if arguments and isinstance(arguments[-1], exp.Order):
        order = list(arguments[-1].expressions)
        arguments[-1] = arguments[-1].this
        if arguments[-1] is None:
            raise BindingError("an argument is missing before ORDER BY", hint="write STRING_AGG(a, ',' ORDER BY b)")
    if arguments and isinstance(arguments[0], exp.Distinct):
        arguments, distinct = [*arguments[0].expressions, *arguments[1:]], True
    return HolisticText(HOLISTIC[name], tuple(arguments), tuple(order), distinct, condition)


def holistic_expr(text: HolisticText, pipeline: Pipeline, scope: Scope, call: exp.Expr) -> Expr:
    """The call over columns of the pipeline, with its type."""
    context = pipeline.context
    for argument in text.arguments:
        if isinstance(argument, (exp.Limit, exp.Alias, exp.Star, *_NULLS)):
            raise UnsupportedError(
                "LIMIT, names, * or null options inside an aggregate",
                hint="filter nulls: FILTER (WHERE a IS NOT NULL)",
                span=span_of(argument, context.source) or span_of(call, context.source),
            )
    bound = [pipeline.expr(a) for a in text.arguments]
    parts: list[str | Ref] = [f"{text.name}({'DISTINCT ' * text.distinct}"]
    for i, expr in enumerate(bound):
        parts += [", " * bool(i), *expr.parts]
    terms = [_term(term, pipeline) for term in text.order]
    if text.name in ORDERED and text.distinct:
        terms += [(*bound[0].parts, " ASC NULLS LAST")] if not text.order else []
    elif text.name in ORDERED:
        terms += [(Ref(c), " ASC NULLS LAST") for c in _settling(pipeline, scope)]
    for i, term in enumerate(terms):
        parts += [", " if i else " ORDER BY ", *term]
    parts.append(")")
    if text.condition is not None:
        predicate = context.predicate(pipeline.hoist(text.condition), "FILTER")
        parts += [" FILTER (WHERE ", *predicate.parts, ")"]
    made = Expr(tuple(p for p in parts if p != ""), pa.null())
    try:
        type_ = types.expression_type(made.sql(), {c: context.types[c] for c in made.columns})
    except types.DuckDBRefusal as refusal:
        raise BindingError(
            f"type mismatch: {text.name.upper()} cannot be computed",
            detail=refusal.short,
            hint="CAST the argument to a type that can be aggregated so",
            span=span_of(call, context.source),
        ) from None
    return Expr(made.parts, type_)


def _term(term: exp.Ordered, pipeline: Pipeline) -> tuple[str | Ref, ...]:
    order = "DESC" if term.args.get("desc") else "ASC"
    nulls = "FIRST" if term.args.get("nulls_first") else "LAST"
    return (*pipeline.expr(term.this).parts, f" {order} NULLS {nulls}")


def _settling(pipeline: Pipeline, scope: Scope) -> Sequence[str]:
    """The columns that settle the order of rows: times first."""
    times = [e.time for e in scope.entries if e.time is not None]
    every = [c.internal for e in scope.entries for c in e.columns]
    return [c for c in dict.fromkeys([*times, *every]) if c in pipeline.node.schema]
