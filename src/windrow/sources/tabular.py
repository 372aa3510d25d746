"""Any bounded data as one Arrow table.

`to_table` accepts Arrow tables, batches and readers, every frame that speaks the Arrow C stream protocol (pandas,
polars, DuckDB relations; none of them is imported here), a mapping of columns, a list of rows, and paths to files or
directories.

Invariant: row order is arrival order and never changes; columns have the plain type that the operators work on: no
dictionaries, views, extensions or large offsets. Cost: no copy for plain types that are already contiguous.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from windrow.errors import SourceError
from windrow.sources.casting import conform
from windrow.sources.files import read_path, without_rows


def to_table(
    data: Any, what: str, schema: Mapping[str, pa.DataType] | None = None, added: Collection[str] = ()
) -> pa.Table:
    """Return `data` as a table; `what` names it in errors, `schema` chooses, orders and casts its columns, of which
    those that were `added` may be missing.

    >>> to_table({"a": [1, 2]}, "stream s", {"A": pa.float64()}).to_pylist()
    [{'A': 1.0}, {'A': 2.0}]
    """
    if isinstance(data, str | os.PathLike):
        table = read_path(os.fspath(data), what, schema, added)
    elif isinstance(data, list) and not data and schema is not None:
        return pa.schema(list(schema.items())).empty_table()
    else:
        table = _from_memory(data, what)
    table = _plain(table, what, schema)
    if schema is None or (table.schema.names == list(schema) and table.schema.types == list(schema.values())):
        return table
    return conform(table, what, schema, added)


def described(data: Any, what: str) -> pa.Table:
    """A table with the columns that `to_table` gives; without rows, where columns can be told without reading."""
    if isinstance(data, str | os.PathLike):
        from windrow.sources.given_files import columns_of_files, is_listed

        if is_listed(os.fspath(data)):
            return _plain(columns_of_files(os.fspath(data), what), what)
        empty = without_rows(os.fspath(data), what)
        if empty is not None:
            return _plain(empty, what)
        table = to_table(data, what)
        if not table.num_rows:
            raise SourceError(
                f"{what}: {os.fspath(data)} has no rows, so nobody knows the types of its columns",
                hint="declare them: CREATE STREAM s (..., ts TIMESTAMP) TIMESTAMP BY ts",
            )
        return table
    return to_table(data, what)


def _from_memory(data: Any, what: str) -> pa.Table:
    try:
        match data:
            case pa.Table():
                return data
            case pa.RecordBatch():
                return pa.Table.from_batches([data])
            case pa.RecordBatchReader():
                return data.read_all()
            case Mapping():
                return pa.table(dict(data))
            case list() if all(isinstance(row, Mapping) for row in data):
                return of_rows(data)
        if (pandas := sys.modules.get("pandas")) and isinstance(data, pandas.DataFrame):
            return _from_pandas(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"{what}: the data cannot be read as a table", detail=_said(error)) from error
    raise SourceError(
        f"{what}: cannot read rows from {type(data).__name__}",
        hint="give a pyarrow Table, a pandas or polars frame, a mapping of columns, a list of rows, or a path",
    )


def _said(error: Exception) -> str:
    """The parts of a message; pyarrow adds the column as a second one."""
    return "; ".join(map(str, error.args)) or type(error).__name__


def of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as mappings from columns to values; a column that a row does not name is null in it.

    >>> of_rows([{"a": 1}, {"a": 2, "b": "x"}]).to_pylist()
    [{'a': 1, 'b': None}, {'a': 2, 'b': 'x'}]
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _from_pandas(frame: Any) -> pa.Table:
    """A named index is data (its own C stream would lose it); unnamed row labels are not."""
    named = any(n is not None for n in frame.index.names)
    table = pa.Table.from_pandas(frame, preserve_index=named)
    return table.drop_columns([n for n in table.column_names if n.startswith("__index_level_")])


def _plain(table: pa.Table, what: str, schema: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """The table with plain types, one chunk per column, distinct names and no metadata; with a `schema` columns that
    are only nulls still wait for a type, and others than it names may be repeated."""
    names = table.column_names
    asked = None if schema is None else {n.lower() for n in schema}
    repeated = sorted({n for n in names if names.count(n) > 1 and (asked is None or n.lower() in asked)})
    if repeated:
        raise SourceError(f'{what}: column "{repeated[0]}" appears more than once', hint="rename one of them")
    fields = list(table.schema)
    if not table.schema.metadata and all(f.nullable and f.metadata is None and f.type.id in _PLAIN for f in fields):
        return table if all(c.num_chunks == 1 for c in table.itercolumns()) else table.combine_chunks()
    columns = []
    for field, column in zip(table.schema, table.itercolumns(), strict=True):
        if isinstance(field.type, pa.BaseExtensionType):
            column = pa.chunked_array([c.storage for c in column.chunks], field.type.storage_type)
        plain = column.type if schema is not None and pa.types.is_null(column.type) else plain_type(column.type)
        try:
            columns.append(column if column.type.equals(plain) else column.cast(plain))
        except pa.ArrowException as error:
            raise SourceError(f'{what}: column "{field.name}" cannot be read as {plain}', detail=str(error)) from error
    return pa.table(columns, names=names).combine_chunks()


_PLAIN = {
    t.id
    for t in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"),
    )
}  # fmt: skip
"""Types that are plain whatever their parameters."""


@cache
def plain_type(type_: pa.DataType) -> pa.DataType:
    """The plain type that holds the same values.

    >>> plain_type(pa.dictionary(pa.int8(), pa.large_string()))
    DataType(string)
    """
    t = pa.types
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if t.is_large_string(type_) or t.is_string_view(type_):
        return pa.string()
    if t.is_large_binary(type_) or t.is_binary_view(type_):
        return pa.binary()
    if t.is_large_list(type_) or t.is_list(type_):
        return pa.list_(plain_type(type_.value_type))
    if t.is_null(type_):
        return pa.int32()  # what DuckDB makes of a bare NULL
    return type_
