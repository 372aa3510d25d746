"""One expression, as DuckDB reads it, for every engine.

Relations are flattened before anything is computed, so that a column `price` of `close` is called `close__price`
everywhere; an engine then needs no scopes, and no name is one of its reserved words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import exp

from windrow.errors import BindingError

Columns = Mapping[str, Sequence[str]]


def flat(alias: str, column: str) -> str:
    """The name of a relation's column after flattening.

    >>> flat("Close", "price")
    'close__price'
    """
    return f"{alias}__{column}".lower()


def translate(sql: str, columns: Columns, engine: str) -> str:
    """`sql` over flattened columns for `engine` ("spark" or "flink").

    >>> translate("AVG(T.size) / 2 > price", {"t": ["size", "price"]}, "spark")
    'AVG(`t__size`) / 2 > `t__price`'
    >>> translate("AVG(T.size)", {"t": ["size"]}, "flink")
    'AVG(CAST(`t__size` AS DOUBLE))'
    """
    tree = sqlglot.parse_one(sql, read="duckdb").transform(lambda node: _flattened(node, columns))
    if engine == "flink":  # whose AVG and / of integers are integers
        tree = tree.transform(_floating)
    return str(tree.sql(dialect="spark"))


def names(sql: str, columns: Columns) -> set[tuple[str, str]]:
    """The (alias, column) pairs that an expression reads."""
    return {_owner(c, columns) for c in sqlglot.parse_one(sql, read="duckdb").find_all(exp.Column)}


def _flattened(node: Any, columns: Columns) -> Any:
    if isinstance(node, exp.Column):
        return exp.column(flat(*_owner(node, columns)), quoted=True)
    return node


def _owner(node: Any, columns: Columns) -> tuple[str, str]:
    name, table = node.name.lower(), node.table.lower()
    owners = [alias for alias, has in columns.items() if name in has and table in ("", alias)]
    if len(owners) != 1:
        said = "is in no relation" if not owners else f"is in {', '.join(owners)}"
        raise BindingError(f"column {node.sql()} {said}", hint="qualify it with the name of its stream or table")
    return owners[0], name


def _floating(node: Any) -> Any:
    if isinstance(node, exp.Avg):
        return exp.Avg(this=exp.cast(node.this, "double"))
    if isinstance(node, exp.Div):
        node.set("this", exp.cast(node.this, "double"))
    return node
