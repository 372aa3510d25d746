"""An expression of the same type that many share, so that DuckDB is asked once for all of them.

    a > 57 OR b IN (12, 3)          a > 11 OR b IN (11, 1)        all numbers of as many digits
    a + 2 BETWEEN 3 AND 250         a + 2 BETWEEN 1 AND 111
    s = 'x', s LIKE 'ab%'           s = '', s LIKE ''             all texts, where s is a column of texts

Law: the type of a number is made by its digits, and a text that texts are compared with is not cast; whatever they are,
a comparison that can be made is a boolean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from windrow.cql.types import is_string
from windrow.cql.walks import nodes
from windrow.scalar_engine import literal

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_TESTS = (*_COMPARISONS, exp.Between, exp.In)
_CONDITIONS = frozenset((*_TESTS, exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier, exp.Literal))
_NUMBER = re.compile(r"\d{1,9}|\d{1,9}\.\d{1,9}")  # those whose type DuckDB tells from the digits


def alike(tree: exp.Expr, sql: str, columns: Mapping[str, pa.DataType]) -> str:
    """The text of a tree, over columns of these types, or one that stands for many."""
    if '"' not in sql and _tests_numbers(tree):
        return _digits(sql)
    ends = _ends(tree)
    if all(_is_number(e) for e in ends):
        written = " AND ".join(e.name for e in ends)
        shared = _digits(written)
    elif ends[0].is_string and tree.this.name in columns and is_string(columns[tree.this.name]):
        written, shared = literal(ends[0].name), "''"
    else:
        return sql
    return f"{sql[: -len(written) - 1]}{shared})" if ends and sql.endswith(f" {written})") else sql


def _tests_numbers(tree: exp.Expr) -> bool:
    """Whether a tree is a condition of columns that are tested with numbers, and nothing else."""
    return all(
        type(node) in _CONDITIONS
        and (type(node) is not exp.Literal or (isinstance(node.parent, _TESTS) and _is_number(node)))
        for node in nodes(tree)
    )


def _is_number(node: exp.Expr) -> bool:
    return not node.is_string and _NUMBER.fullmatch(node.name) is not None


def _ends(tree: exp.Expr) -> list[exp.Expr]:
    """The literals that something is compared with."""
    if isinstance(tree, exp.Between):
        ends = [tree.args["low"], tree.args["high"]]
    else:
        ends = [tree.expression] if isinstance(tree, (*_COMPARISONS, exp.Like)) else []
    return ends if all(isinstance(e, exp.Literal) for e in ends) else []


def _digits(text: str) -> str:
    """The text with ones in the place of digits; zeros in front say nothing, so they count for no width.

    >>> _digits("c0 IN (00012.50, 7)")
    'c0 IN (00011.11, 1)'
    """
    return re.sub(r"(?<![\w.])(?=\d)(0*)([\d.]*)", lambda n: n[1] + re.sub(r"\d", "1", n[2]), text)
