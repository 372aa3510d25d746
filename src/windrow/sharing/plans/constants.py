"""Columns of an answer that read no column of their query's rows: its constants.

    SELECT k, 17 AS rule, v FROM s WHERE v > 3      shown of every row: k, v; of the query: rule

A constant makes no difference to which rows an answer has, nor to when they come and go. So it is no column of a shared
plan: it is put beside the rows of its query when these have been parted, and queries that differ in their constants, or
have none, are one form. Of queries in columns a constant is a column of values, one for each query.

Cost: a value for each query of an answer, and one gather for all rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from windrow.operators import scalar
from windrow.plan.expr import Expr
from windrow.plan.parametric import constant_of
from windrow.sharing.recognise import NotShared

_INTEGER = re.compile(r"-?\d{1,18}|CAST\((-?\d{1,18}) AS (?:BIGINT|INTEGER)\)", re.ASCII)
_TEXT = re.compile(r"'[^']*'|CAST\(('[^']*') AS VARCHAR\)")
NOTHING = ("TRUE", Expr(("TRUE",), pa.bool_()))
"""What queries show to each other that show constants only."""


def is_constant(e: Expr) -> bool:
    """Whether an expression has the same value on every row; users' functions are called as often as they were."""
    return not e.columns and not e.functions


@lru_cache(maxsize=1024)
def value_of(e: Expr) -> pa.Array:
    """The value of a constant, as an array of one.

    >>> value_of(Expr(("-17",), pa.int64())).to_pylist(), value_of(Expr(("'a'",), pa.string())).to_pylist()
    ([-17], ['a'])
    """
    text = e.sql()
    if pa.types.is_integer(e.type) and (found := _INTEGER.fullmatch(text)):
        return pa.array([int(found[1] or text)], e.type)
    if pa.types.is_string(e.type) and (found := _TEXT.fullmatch(text)):
        return pa.array([(found[1] or text)[1:-1]], e.type)
    (array,) = scalar.evaluate({}, 1, [(text, e.type)])
    return array


def values_of(e: Expr, columns: Mapping[Any, pa.Array], size: int) -> tuple[pa.Array, int]:
    """The values of a constant of many queries, in which marks may stand, and in how many places they do.

    `columns`: by mark, the values that it stands for. Raises `NotShared` where more is made of a mark than its value.
    """
    text = e.sql()
    if not any(str(mark) in text for mark in columns):
        return pa.repeat(value_of(e)[0], size), 0
    written = re.fullmatch(r"CAST\((.+) AS [A-Z]+\)", text)
    literal = text if written is None else written[1]
    found = columns.get(constant_of(literal).value) if re.fullmatch(r"'[^']*'|[\d.]+", literal) else None
    if found is None or found.type != e.type:  # a number that is written is of its own type, and not of its column's
        raise NotShared("something is computed of its constants")
    return found, 1


__all__ = ["NOTHING", "is_constant", "value_of", "values_of"]
