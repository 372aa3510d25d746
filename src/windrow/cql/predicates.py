"""WHERE conjuncts as conditions of the predicate index (`sharing.conditions`).

The text of a plan expression is parsed again and turned into spans over attributes, with DuckDB's meaning:
three-valued logic, NaN the greatest number and equal to itself, text by its bytes, integers against decimals exact. A
form whose casts are not certain to be monotonic and exact is `Opaque`: a wrong index would be a wrong answer, a bit
is only slower.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from math import floor
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError

from windrow.cql import types
from windrow.cql.dialect import DIALECT, render
from windrow.operators.aggregates.order import encode, has_fixed_codes
from windrow.plan.expr import Expr, quote
from windrow.sharing.conditions import (
    And,
    Attribute,
    Condition,
    Constant,
    Cut,
    IsNull,
    Not,
    Opaque,
    Or,
    Span,
    Within,
    simplify,
)

_LOW, _HIGH = -(2**63), 2**63 - 1
_FLIP = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE, exp.EQ: exp.EQ, exp.NEQ: exp.NEQ}


class _Doubtful(Exception):
    """Not certain to mean what DuckDB means."""


def condition(expr: Expr, columns: dict[str, pa.DataType]) -> Condition:
    """The condition of a boolean expression over columns of the given types.

    >>> from windrow.plan.expr import Ref
    >>> condition(Expr((Ref("a"), " <= 7"), pa.bool_()), {"a": pa.int64()}).spans
    ((None, 8),)
    """
    reads = tuple(sorted(expr.columns))
    return _indexed(expr.sql(), tuple((c, columns[c]) for c in reads))


@lru_cache(maxsize=1024)
def _indexed(text: str, columns: tuple[tuple[str, pa.DataType], ...]) -> Condition:
    """Remembered: queries that differ in their windows have predicates in common."""
    try:
        tree = _parse(text)
    except (ParseError, _Doubtful):
        return Opaque(Attribute(text, pa.bool_(), tuple(c for c, _ in columns)), "does not parse")
    return simplify(_condition(tree, dict(columns)))


def _parse(text: str) -> exp.Expr:
    tree = DIALECT.parse(f"SELECT {text}")[0]
    if tree is None or len(tree.expressions) != 1:
        raise _Doubtful("not one expression")
    item: exp.Expr = tree.expressions[0]
    return item.unalias()


def _condition(tree: exp.Expr, columns: dict[str, pa.DataType]) -> Condition:
    match tree:
        case exp.Paren():
            return _condition(tree.this, columns)
        case exp.And():
            return And((_condition(tree.this, columns), _condition(tree.expression, columns)))
        case exp.Or():
            return Or((_condition(tree.this, columns), _condition(tree.expression, columns)))
        case exp.Not():
            return Not(_condition(tree.this, columns))
        case exp.Boolean():
            return Constant(bool(tree.this))
        case exp.Null():
            return Constant(None)
    try:
        return _atom(tree, columns)
    except _Doubtful as why:
        attribute = _attribute(tree, columns)
        if not pa.types.is_boolean(attribute.type):  # DuckDB casts it; so does the bit
            attribute = Attribute(f"CAST({attribute.sql} AS BOOLEAN)", pa.bool_(), attribute.reads)
        return Opaque(attribute, str(why))


def _atom(tree: exp.Expr, columns: dict[str, pa.DataType]) -> Condition:
    match tree:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _comparison(type(tree), tree.this, tree.expression, columns)
        case exp.Between():
            low = _comparison(exp.GTE, tree.this, tree.args["low"], columns)
            return And((low, _comparison(exp.LTE, tree.this, tree.args["high"], columns)))
        case exp.In() if tree.expressions and not tree.args.get("query") and not tree.args.get("unnest"):
            return Or(tuple(_comparison(exp.EQ, tree.this, value, columns) for value in tree.expressions))
        case exp.Is() if isinstance(tree.expression, exp.Null):
            return IsNull(_attribute(tree.this, columns))
        case exp.Column():
            attribute = _attribute(tree, columns)
            if pa.types.is_boolean(attribute.type):
                return Within(attribute, ((1, None),))
    raise _Doubtful(f"{type(tree).__name__.lower()} is not indexed")


def _comparison(kind: type[exp.Binary], left: exp.Expr, right: exp.Expr, columns: dict[str, pa.DataType]) -> Condition:
    if not _reads(left) and _reads(right):
        left, right, kind = right, left, _FLIP[kind]
    if _reads(right) or not _reads(left):
        raise _Doubtful("compares no attribute with a constant")
    attribute = _attribute(left, columns)
    value, type_ = _literal(right)
    if value is None:
        return Constant(None)
    below, through = _cuts(attribute.type, value, type_, _text(right))
    span: Span = {
        exp.LT: (None, below), exp.LTE: (None, through), exp.GT: (through, None), exp.GTE: (below, None),
        exp.EQ: (below, through), exp.NEQ: (below, through),
    }[kind]  # fmt: skip
    least, most = (0, 1) if pa.types.is_boolean(attribute.type) else (_LOW, _HIGH)
    found = Within(attribute, _bounded(span, least, most))
    return Not(found) if kind is exp.NEQ else found


def _bounded(span: Span, least: int, most: int) -> tuple[Span, ...]:
    """The span within the codes there are; nothing if it is empty."""
    low, high = span
    if isinstance(low, int):
        if low > most:
            return ()
        low = None if low <= least else low
    if isinstance(high, int):
        if high <= least:
            return ()
        high = None if high > most else high
    if low is not None and high is not None and not low < high:  # type: ignore[operator]
        return ()
    return ((low, high),)


def _reads(tree: exp.Expr) -> bool:
    return tree.find(exp.Column) is not None


def _text(tree: exp.Expr) -> str:
    return "".join(quote(text) if hole else text for hole, text in render(tree))


def _attribute(tree: exp.Expr, columns: dict[str, pa.DataType]) -> Attribute:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    pieces = render(tree)
    reads = tuple(sorted({text for hole, text in pieces if hole}))
    sql = "".join(quote(text) if hole else text for hole, text in pieces)
    if isinstance(tree, exp.Column):
        return Attribute(sql, columns[tree.name], reads)
    return Attribute(sql, types.expression_type(sql, {c: columns[c] for c in reads}), reads)


def _literal(tree: exp.Expr) -> tuple[Any, pa.DataType]:
    """The value and type of a constant; plain literals are read here, the rest is folded by DuckDB."""
    text = tree.name if isinstance(tree, exp.Literal) else ""
    if text and tree.is_string:
        return text, pa.string()
    if text.isdigit() and len(text) <= 18:
        return int(text), pa.int64()
    whole, point, fraction = text.partition(".")
    if point and whole.isdigit() and fraction.isdigit() and len(text) <= 18:
        return Decimal(text), pa.decimal128(len(text), len(fraction))
    return _constant(_text(tree))


@lru_cache(maxsize=8192)
def _constant(text: str) -> tuple[Any, pa.DataType]:
    """The value and type of an expression without columns, as DuckDB folds it."""
    try:
        with types._LOCK:
            column = types._connection().sql(f"SELECT {text} AS c").to_arrow_table().column(0)
    except Exception as error:  # whatever DuckDB refuses is left to DuckDB
        raise _Doubtful("its constant does not fold") from error
    type_ = column.type
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_time(type_):
        whole = column.cast(pa.int32() if pa.types.is_date32(type_) else pa.int64())
        return whole[0].as_py(), type_
    return column[0].as_py(), type_


def _cuts(attribute: pa.DataType, value: Any, type_: pa.DataType, text: str) -> tuple[Cut, Cut]:
    """(below, through): `x < value` is `code < below`, `x <= value` is `code < through`."""
    if pa.types.is_string(attribute) or pa.types.is_large_string(attribute):
        if not isinstance(value, str):
            raise _Doubtful("text against a value that is no text")
        data = value.encode()
        return data, data + b"\0"
    if not has_fixed_codes(attribute):
        raise _Doubtful(f"values of type {attribute} have no fixed codes")
    if pa.types.is_boolean(attribute):
        if not isinstance(value, bool):
            raise _Doubtful("a boolean against a value that is none")
        return int(value), int(value) + 1
    if pa.types.is_temporal(attribute):
        return _time_cuts(attribute, value, type_, text)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _Doubtful("a number against a value that is none")
    if pa.types.is_integer(attribute):
        shift = _LOW if pa.types.is_uint64(attribute) else 0
        return _whole_cuts(value, shift)
    if pa.types.is_float64(attribute):
        code = int(encode([pa.array([_double(value)], pa.float64())])[0][0][0])
        return code, code + 1
    if pa.types.is_decimal(attribute) and isinstance(value, int | Decimal):
        scaled = Decimal(value).scaleb(attribute.scale)
        if abs(Decimal(value).adjusted()) > 18 or len(Decimal(value).as_tuple().digits) > 18:
            raise _Doubtful("a decimal of many digits")
        below = -floor(-scaled)
        return below, floor(scaled) + 1
    raise _Doubtful(f"{attribute} against a constant of type {type_}")


def _whole_cuts(value: int | float | Decimal, shift: int) -> tuple[int, int]:
    if isinstance(value, float):
        # the column is cast to DOUBLE; below 2**53 that is exact, and beyond it cannot cross the constant
        if not np.isfinite(value) or abs(value) >= 2**53:
            raise _Doubtful("an integer against a very large float")
    elif isinstance(value, Decimal) and (-int(value.as_tuple().exponent) > 10 or value.adjusted() > 18):
        raise _Doubtful("an integer against a long decimal")
    below = -floor(-value)
    return below + shift, floor(value) + 1 + shift


def _double(value: float | Decimal) -> float:
    """The constant as DuckDB casts it to DOUBLE, where that is the nearest double."""
    if isinstance(value, float):
        return value
    digits = Decimal(value).as_tuple()
    if len(digits.digits) > 15 or not -22 <= int(digits.exponent) <= 22:
        raise _Doubtful("a float against a long decimal")
    return float(value)


def _time_cuts(attribute: pa.DataType, value: Any, type_: pa.DataType, text: str) -> tuple[int, int]:
    if type_ != attribute and pa.types.is_string(type_):
        value, type_ = _constant(f"CAST({text} AS {types.sql_name(attribute)})")
    if type_ != attribute or value is None:
        raise _Doubtful(f"{attribute} against {type_}")
    return value, value + 1
