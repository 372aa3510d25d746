"""Arrow tables as JSON text.

    {"columns": [{"name": "_ts", "type": "timestamp[us]"}, ...], "rows": [[...], ...]}

Law: what is written is JSON to the letter, whatever the values. Times are ISO 8601 with six decimals (`Z` at the end if
they carry a zone); NaN and the infinities are the strings "nan", "inf" and "-inf", at any depth; decimals with a
fraction are strings, which no reader rounds; bytes are hexadecimal; integers are numbers of any size.

DuckDB writes them, whole columns at a time and without Python's lock: a millisecond to plan, then 0.4 microseconds a
value. A few rows of plain columns, which is what a tick changes, are written here in a tenth of that time; the texts
mean the same.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.operators import scalar
from windrow.scalar_engine import literal

FEW = 500
"""Up to so many rows, planning costs more than writing."""

TIME = "%Y-%m-%dT%H:%M:%S"


def table_json(table: pa.Table, **more: Any) -> bytes:
    """An object with the columns and rows of a table, and whatever else is to be said.

    >>> table_json(pa.table({"a": [1, 2]}), tick=7)
    b'{"tick": 7, "columns": [{"name": "a", "type": "int64"}], "rows": [[1], [2]]}'
    """
    head = json.dumps({**more, "columns": columns(table.schema)}, ensure_ascii=False)
    return f'{head[:-1]}, "rows": {rows_json(table)}}}'.encode(errors="replace")


def columns(schema: pa.Schema) -> list[dict[str, str]]:
    """Names and types."""
    return [{"name": f.name, "type": str(f.type)} for f in schema]


def rows_json(table: pa.Table) -> str:
    """The rows as an array of arrays."""
    if not table.num_rows or not table.num_columns:
        return json.dumps([[]] * table.num_rows)
    if table.num_rows <= FEW and all(_is_plain(t) for t in table.schema.types):
        return json.dumps(list(zip(*(_values(c) for c in table.columns), strict=True)), ensure_ascii=False)
    return written_by_duckdb(table)


def written_by_duckdb(table: pa.Table) -> str:
    """The rows of a table with rows and columns."""
    cells = ", ".join(json_value(f"c{i}", t) for i, t in enumerate(table.schema.types))
    joined = _computed(table, f"string_agg(json_array({cells})::VARCHAR, ',')")
    return f"[{joined[0].as_py()}]"


def row_objects(table: pa.Table) -> pa.ChunkedArray:
    """Each row as the text of an object, for readers with typed columns: a number that is not finite is null.

    >>> row_objects(pa.table({"a": [1, 2], "b": [0.5, float("inf")]})).to_pylist()
    ['{"a":1,"b":0.5}', '{"a":2,"b":null}']
    """
    plain = pa.table([_finite(c) for c in table.columns], names=table.column_names)
    cells = ", ".join(f"{literal(f.name)}, {json_value(f'c{i}', f.type)}" for i, f in enumerate(table.schema))
    return _computed(plain, f"json_object({cells})::VARCHAR")


def _computed(table: pa.Table, expression: str) -> pa.ChunkedArray:
    named = table.rename_columns([f"c{i}" for i in range(table.num_columns)])  # names may repeat
    connection = scalar.connection()
    connection.register("answer", named)
    try:
        return connection.sql(f"SELECT {expression} AS text FROM answer").to_arrow_table().column("text")
    finally:
        connection.unregister("answer")


def _finite(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def _is_plain(type_: pa.DataType) -> bool:
    t = pa.types
    kinds = (t.is_integer, t.is_floating, t.is_boolean, t.is_string, t.is_timestamp, t.is_decimal, t.is_null)
    return any(is_kind(type_) for is_kind in kinds)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """What `json` writes as the law says."""
    t, type_ = pa.types, column.type
    if t.is_floating(type_):
        return [v if v is None or v - v == 0 else str(v) for v in column.to_pylist()]  # ∞ - ∞ and NaN are NaN
    if t.is_timestamp(type_):
        us = column.cast(pa.timestamp("us", type_.tz), safe=False)
        return pc.strftime(us, TIME + ("Z" if type_.tz else "")).to_pylist()
    if t.is_decimal(type_):
        return [None if v is None else str(v) if type_.scale else int(v) for v in column.to_pylist()]
    return column.to_pylist()


def json_value(value: str, type_: pa.DataType, depth: int = 0) -> str:
    """An expression that gives JSON; `depth`: of the lists around it."""
    t = pa.types
    if t.is_floating(type_):
        return (
            f"CASE WHEN isfinite({value}) THEN to_json({value}::DOUBLE) WHEN isnan({value}) THEN to_json('nan') "
            f"WHEN {value} IS NOT NULL THEN to_json({value}::VARCHAR) END"
        )
    if t.is_timestamp(type_):
        plain = f"timezone('UTC', {value}), '{TIME}.%fZ'" if type_.tz else f"{value}::TIMESTAMP, '{TIME}.%f'"
        return f"to_json(strftime({plain}))"
    if t.is_decimal(type_):
        return f"to_json({value}::{'VARCHAR' if type_.scale else 'HUGEINT'})"
    if t.is_binary(type_) or t.is_large_binary(type_) or t.is_fixed_size_binary(type_):
        return f"to_json(lower(hex({value})))"
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        inner = f"e{depth}"
        return f"to_json(list_transform({value}, lambda {inner}: {json_value(inner, type_.value_type, depth + 1)}))"
    if t.is_struct(type_):
        parts = ", ".join(
            f"{literal(f.name)}, {json_value(f'{value}[{literal(f.name)}]', f.type, depth)}" for f in type_
        )
        return f"CASE WHEN {value} IS NOT NULL THEN json_object({parts}) END"
    if t.is_map(type_):
        entries = pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))
        return json_value(f"map_entries({value})", entries, depth)
    return f"to_json({value})"
