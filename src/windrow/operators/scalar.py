"""Scalar expressions on Arrow columns, with the values of DuckDB.

Expressions arrive as DuckDB SQL over quoted column names. What is common is evaluated by Arrow's kernels, which give
the same (`arrow_expressions.py`); everything else, and values on which the two may differ, by DuckDB. A bare column
never reaches either. One connection per process, one thread: order is kept and tasks do not compete.

Cost: about a millisecond per call of DuckDB plus vectorised work, so a call evaluates all expressions of an operator;
some microseconds for an expression that Arrow evaluates.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.errors import RuntimeFailure
from windrow.operators.arrow_expressions import Translations
from windrow.operators.at_exit import gate
from windrow.scalar_engine import IN_FLIGHT, bounded, connect, made, project, quote, reason, shown, way_out

if TYPE_CHECKING:
    import duckdb

_local = threading.local()
_translations = Translations()


def connection() -> duckdb.DuckDBPyConnection:
    """DuckDB for this thread."""
    if not hasattr(_local, "connection"):
        _local.connection = connect()
        gate.close_at_exit()  # after DuckDB is there, whose own end would else come first
        if threading.current_thread() is threading.main_thread():
            atexit.register(_local.__dict__.clear)  # threads let go of theirs when they end
    return _local.connection


def _leave(error: Exception) -> None:
    """Take another connection from now on, if an error is one of DuckDB's own, after which it answers nobody."""
    import duckdb

    if isinstance(error, duckdb.FatalException | duckdb.InternalException):
        vars(_local).pop("connection", None)


def evaluate(
    columns: Mapping[str, pa.Array], length: int, expressions: Sequence[tuple[str, pa.DataType]]
) -> list[pa.Array]:
    """One array per (SQL, type), in row order; those that make much are evaluated one after the other.

    >>> evaluate({"a": pa.array([1, 2])}, 2, [('"a" + 1', pa.int64())])[0].to_pylist()
    [2, 3]
    """
    with gate:
        if len(expressions) > 1 and sum(made(sql) for sql, _ in expressions) > IN_FLIGHT:
            with bounded(connection(), length):  # the time of one call for all of them
                return [_evaluated(columns, length, [expression])[0] for expression in expressions]
        return _evaluated(columns, length, expressions)


def evaluate_over(
    columns: Mapping[str, pa.Array], length: int, expressions: Sequence[tuple[str, pa.DataType]]
) -> list[pa.Array]:
    """One array per (SQL, type) of functions over windows: rows of all arrays in one order, which is DuckDB's."""
    with gate:
        return _by_duckdb(columns, length, expressions)


def _evaluated(
    columns: Mapping[str, pa.Array], length: int, expressions: Sequence[tuple[str, pa.DataType]]
) -> list[pa.Array]:
    if length == 0:
        return [pa.array([], type_) for _, type_ in expressions]
    known = _translations.values(connection, tuple([sql for sql, _ in expressions]), columns, length)
    if known is None:
        return _by_duckdb(columns, length, expressions)
    return [_typed(found, type_) for found, (_, type_) in zip(known, expressions, strict=True)]


def _by_duckdb(
    columns: Mapping[str, pa.Array], length: int, expressions: Sequence[tuple[str, pa.DataType]]
) -> list[pa.Array]:
    source = pa.table(dict(columns)) if columns else pa.table({"_row": np.zeros(length, np.int8)})
    items = ", ".join(f"{sql} AS c{i}" for i, (sql, _) in enumerate(expressions))
    try:
        result = project(connection(), source, items)
    except Exception as error:  # DuckDB's errors share no narrower public base across versions
        _leave(error)
        said = reason(error)
        raise RuntimeFailure(
            f"an expression failed: {said}", detail="; ".join(shown(s) for s, _ in expressions), hint=way_out(said)
        ) from error
    if result.num_rows != length:
        raise RuntimeFailure(
            f"an expression gave {result.num_rows} values for {length} rows",
            detail="; ".join(shown(s) for s, _ in expressions),
            hint="an expression gives one value for each row",
        )
    return [_as(result.column(i), type_) for i, (_, type_) in enumerate(expressions)]


def aggregated(
    columns: Mapping[str, pa.Array], length: int, key: str, aggregates: Sequence[tuple[str, pa.DataType]]
) -> tuple[NDArray[np.int64], list[pa.Array]]:
    """The groups of a column of integers, and one array per (SQL of an aggregate, type), group by group.

    >>> groups, (sums,) = aggregated({"g": pa.array([3, 3]), "a": pa.array([1, 2])}, 2, "g", [('sum("a")', pa.int64())])
    >>> groups.tolist(), sums.to_pylist()
    ([3], [3])
    """
    if length == 0:
        return np.zeros(0, np.int64), [pa.array([], type_) for _, type_ in aggregates]
    items = ", ".join(f"{sql} AS c{i}" for i, (sql, _) in enumerate(aggregates))
    with gate:
        try:
            with bounded(connection(), length):
                relation = connection().from_arrow(pa.table(dict(columns)))
                result = relation.aggregate(f"{quote(key)}, {items}", quote(key)).to_arrow_table()
        except Exception as error:  # as above
            _leave(error)
            said = reason(error)
            raise RuntimeFailure(
                f"an aggregate failed: {said}", detail="; ".join(shown(s) for s, _ in aggregates), hint=way_out(said)
            ) from error
    groups = _as(result.column(0), pa.int64()).to_numpy()
    return groups, [_as(result.column(i + 1), type_) for i, (_, type_) in enumerate(aggregates)]


def _as(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return _typed(array, type_)


def _typed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_null(type_):  # DuckDB gives a bare NULL the type of a number, which Arrow does not cast back
        return pa.nulls(len(array))
    return array if array.type == type_ else array.cast(type_)


def ordered(columns: Sequence[pa.Array], length: int) -> NDArray[np.int64]:
    """Row numbers in the order of the values, column by column, nulls last; for types that Arrow does not sort.

    >>> ordered([pa.array([[2], [1, 5], None])], 3).tolist()
    [1, 0, 2]
    """
    by = ", ".join(f"c{i} ASC NULLS LAST" for i in range(len(columns)))
    with gate:
        source = pa.table({**{f"c{i}": c for i, c in enumerate(columns)}, "_row": np.arange(length)})
        with bounded(connection(), length):
            found = connection().from_arrow(source).order(f"{by}, _row").project("_row").to_arrow_table()
        return found.column(0).to_numpy()
