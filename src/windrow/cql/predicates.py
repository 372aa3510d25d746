"""Conditions as trees of the plan (`plan.expr.Predicate`): what the binder understands of a WHERE, ON or HAVING.

Tests of one expression against constants are told apart, with AND, OR and NOT over them; constants are folded by
DuckDB. Everything else is a `Bit`: a boolean expression that the scalar engine computes. Nothing here may guess: a
tree that means something else than the text would be a wrong answer, a bit is only slower.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.rendering import Refused, render
from windrow.cql.walks import copied, find_all, has, nodes
from windrow.plan.expr import (
    Always,
    And,
    Bit,
    Comparison,
    Constant,
    Expr,
    IsNull,
    Not,
    OneOf,
    Or,
    Predicate,
    StartsWith,
    sql_of,
)
from windrow.plan.parametric import constant_of, negative

if TYPE_CHECKING:
    from windrow.cql.expressions import BindingContext

_OPERATORS = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NEQ: "="}
_PLAIN = re.compile(r"(?=.{1,18}$)\d+(\.\d+)?|\d+(\.\d+)?[eE][+-]?\d\d?")
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}


_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_ARITHMETIC = (exp.Neg, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Cast, exp.Literal, exp.DataType)


class _Bit(Exception):
    """Not one of the tests that are told apart."""


def predicate_of(tree: exp.Expr, context: BindingContext, whole: Expr | None = None) -> Predicate:
    """What a condition tests; the tree is resolved and bound, as `whole` where that is at hand."""
    match tree:
        case exp.Paren():
            return predicate_of(tree.this, context)
        case exp.And() | exp.Or():
            kind = And if isinstance(tree, exp.And) else Or
            parts = tuple(predicate_of(p, context) for p in tree.flatten())
            return kind(parts)
        case exp.Not():
            return Not((predicate_of(tree.this, context),))
        case exp.Boolean():
            return Always(bool(tree.this))
        case exp.Null():
            return Always(None)
    try:
        return _test(tree, context, whole)
    except (_Bit, Refused) as why:  # a part may not stand by itself: a collated side of a comparison
        return Bit(_boolean(whole or context.typed(tree)), str(why))


def with_numbers(tree: exp.Expr) -> exp.Expr:
    """The condition with numbers in the place of arithmetic on constants that something is compared with.

    `x > 10 * 2.5` is `x > 25.0`: nothing is computed for rows, and nothing can raise for one of them.
    """
    if all(_number(side) is None for side in _sides(tree)):
        return tree
    made = tree.copy()
    for side, number in [(side, _number(side)) for side in _sides(made)]:
        if number is not None:
            side.replace(number)
    return made


def _sides(tree: exp.Expr) -> list[exp.Expr]:
    return [side for test in find_all(tree, *_COMPARED) for side in test.iter_expressions()]


def _number(tree: exp.Expr) -> exp.Expr | None:
    """What arithmetic on constants gives, as a literal of the same kind; None if it is something else."""
    plain = isinstance(tree.this if isinstance(tree, exp.Neg) else tree, exp.Literal)
    if plain or isinstance(tree, exp.Column) or not all(isinstance(part, _ARITHMETIC) for part in nodes(tree)):
        return None
    try:
        constant = _folded(_text(tree))
    except _Bit:
        return None
    value, double = constant.value, constant.type == pa.float64()
    exact = pa.types.is_integer(constant.type) or pa.types.is_decimal(constant.type)
    if value is None or not (exact or (double and isfinite(value))):
        return None
    if pa.types.is_decimal(constant.type):
        shown = format(value.copy_abs(), "f")  # abs() would round to Python's 28 digits
    else:
        shown = repr(abs(value)) if double else str(abs(value))
    number = exp.Literal.number(f"{shown}e0" if double and "e" not in shown else shown)  # an exponent makes a DOUBLE
    return exp.Neg(this=number) if value < 0 else number


def _test(tree: exp.Expr, context: BindingContext, whole: Expr | None = None) -> Predicate:
    match tree:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            found = _comparison(_OPERATORS[type(tree)], tree.this, tree.expression, context, tree, whole)
            return Not((found,)) if isinstance(tree, exp.NEQ) else found
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            same = _same(tree.this, tree.expression, context)
            return Not((same,)) if isinstance(tree, exp.NullSafeNEQ) else same
        case exp.Between() if not tree.args.get("symmetric"):
            low = _comparison(">=", tree.this, tree.args["low"], context)
            return And((low, _comparison("<=", tree.this, tree.args["high"], context)))
        case exp.In() if tree.expressions and not tree.args.get("query") and not tree.args.get("unnest"):
            return _one_of(tree, context)
        case exp.Like():
            return _like(tree, context)
        case exp.Is():
            return _is(tree, context)
        case exp.Column():
            whole = context.typed(tree)
            if pa.types.is_boolean(whole.type):
                return Comparison(whole, whole, "=", Constant(True, pa.bool_()))
    raise _Bit(f"{type(tree).__name__.lower()} is not indexed")


def _comparison(
    operator: str,
    left: exp.Expr,
    right: exp.Expr,
    context: BindingContext,
    written: exp.Expr | None = None,
    whole: Expr | None = None,
) -> Predicate:
    """A comparison of two sides; `written`: the tree that has them, `whole`: its expression, if that is at hand."""
    if not _reads(left) and _reads(right):
        left, right, operator = right, left, _FLIPPED[operator]
    if _reads(right) or not _reads(left):
        raise _Bit("compares no attribute with a constant")
    tested = context.typed(_bare(left))
    constant = _constant_for(right, tested)
    if constant.value is None:
        return Always(None)
    kind = {"=": exp.EQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}[operator]
    if type(written) is not kind or written.this is not left:
        written, whole = kind(this=copied(left), expression=copied(right)), None
    return Comparison(whole or context.text(written), tested, operator, constant)


def _same(left: exp.Expr, right: exp.Expr, context: BindingContext) -> Predicate:
    """IS NOT DISTINCT FROM: never NULL."""
    if not _reads(left):
        left, right = right, left
    if not _reads(left) or _reads(right):
        raise _Bit("compares no attribute with a constant")
    null = IsNull(_is_null(left, context), context.typed(_bare(left)))
    found = _comparison("=", left, right, context)
    return null if found == Always(None) else And((found, Not((null,))))


def _one_of(tree: exp.In, context: BindingContext) -> Predicate:
    if any(_reads(v) for v in tree.expressions) or not _reads(tree.this):
        raise _Bit("compares no attribute with a constant")
    tested = context.typed(_bare(tree.this))
    constants = [_constant_for(v, tested) for v in tree.expressions]
    some = OneOf(context.text(tree), tested, tuple(c for c in constants if c.value is not None))
    return Or((some, Always(None))) if len(some.constants) < len(constants) else some


def _like(tree: exp.Like, context: BindingContext) -> Predicate:
    pattern, tested = tree.expression, context.typed(_bare(tree.this))
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and types.is_string(tested.type)):
        raise _Bit("like is not indexed")
    prefix, wild = pattern.name[:-1], pattern.name.endswith("%")
    if not wild or not prefix or "%" in prefix or "_" in prefix:
        raise _Bit("like is indexed for 'prefix%' only")
    return StartsWith(context.text(tree), tested, prefix)


def _is(tree: exp.Is, context: BindingContext) -> Predicate:
    if isinstance(tree.expression, exp.Null):
        return IsNull(context.text(tree), context.typed(_bare(tree.this)))
    tested = context.typed(_bare(tree.this))
    if not isinstance(tree.expression, exp.Boolean) or not pa.types.is_boolean(tested.type):
        raise _Bit("is is not indexed")
    whole = context.text(exp.EQ(this=tree.this.copy(), expression=tree.expression.copy()))
    found = Comparison(whole, tested, "=", Constant(bool(tree.expression.this), pa.bool_()))
    return And((found, Not((IsNull(_is_null(tree.this, context), tested),))))


def _is_null(tree: exp.Expr, context: BindingContext) -> Expr:
    return context.text(exp.Is(this=tree.copy(), expression=exp.Null()))


def _boolean(whole: Expr) -> Expr:
    """DuckDB casts what stands for a condition; so does the bit."""
    if pa.types.is_boolean(whole.type):
        return whole
    return Expr(("CAST(", *whole.parts, " AS BOOLEAN)"), pa.bool_(), whole.functions)


def _bare(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def _reads(tree: exp.Expr) -> bool:
    return has(tree, exp.Column)


# -- constants ---------------------------------------------------------------------------------------------------------


def _constant_for(tree: exp.Expr, tested: Expr) -> Constant:
    """A constant that an expression is compared with; text for a time is read as one."""
    constant = _constant(tree)
    if pa.types.is_temporal(tested.type) and pa.types.is_string(constant.type):
        return _folded(f"CAST({_text(tree)} AS {types.sql_name(tested.type)})")
    return constant


def _constant(tree: exp.Expr) -> Constant:
    """Plain literals are read here, the rest is folded by DuckDB."""
    if isinstance(tree, exp.Neg) and isinstance(tree.this, exp.Literal) and _PLAIN.fullmatch(tree.this.name):
        return _folded(_text(tree)) if tree.this.is_string else negative(constant_of(tree.this.name))
    if not isinstance(tree, exp.Literal):
        return _folded(_text(tree))
    if tree.is_string and tree.name:
        return Constant(tree.name, pa.string())
    return constant_of(tree.name) if not tree.is_string and _PLAIN.fullmatch(tree.name) else _folded(_text(tree))


def _text(tree: exp.Expr) -> str:
    return sql_of(render(tree))


@lru_cache(maxsize=8192)
def _folded(text: str) -> Constant:
    """An expression without columns, as DuckDB folds it."""
    try:
        column = types.folded(text)
    except types.DuckDBRefusal as error:  # whatever DuckDB refuses is left to DuckDB
        raise _Bit("its constant does not fold") from error
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type) or pa.types.is_time(column.type):
        whole: Any = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        return Constant(whole[0].as_py(), column.type)
    return Constant(column[0].as_py(), column.type)


__all__ = ["predicate_of", "with_numbers"]
