"""Arrow tables as JSON: both ways of writing mean the same, and what is written is JSON."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.sinks.json_text import rows_json, table_json, written_by_duckdb

TIMES = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "boolean": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us"), TIMES),
    "zoned": (pa.timestamp("us", "UTC"), TIMES),
    "milli": (pa.timestamp("ms"), TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    "whole": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "decimal": (pa.decimal128(18, 3), st.integers(-(10**17), 10**17).map(lambda i: Decimal(i).scaleb(-3))),
    "nothing": (pa.null(), st.none()),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Small tables of plain columns, nulls among them."""
    rows = draw(st.integers(1, 6))
    chosen = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    columns = [
        pa.array(draw(st.lists(st.none() | KINDS[k][1], min_size=rows, max_size=rows)), KINDS[k][0]) for k in chosen
    ]
    return pa.table(columns, names=["same name"] * len(columns))


@given(tables())
def test_both_writers_mean_the_same(table: pa.Table) -> None:
    """A few rows written here and many written by DuckDB read the same, number for number."""
    assert json.loads(rows_json(table)) == json.loads(written_by_duckdb(table))


@given(tables())
def test_values_survive(table: pa.Table) -> None:
    """Integers, texts, booleans and finite floats are read back as they were."""
    for given_, read in zip(_rows(table), json.loads(rows_json(table)), strict=True):
        for value, found in zip(given_, read, strict=True):
            if (
                isinstance(value, int | str | bool)
                or value is None
                or (isinstance(value, float) and math.isfinite(value))
            ):
                assert found == value
            elif isinstance(value, datetime.datetime):
                assert datetime.datetime.fromisoformat(found) == value
            elif isinstance(value, Decimal):
                assert Decimal(found) == value


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


@pytest.mark.parametrize(
    ("values", "type_", "written"),
    [
        ([[1.0, float("nan")], None, []], pa.list_(pa.float64()), [[1.0, "nan"], None, []]),
        ([[[1.0], [float("inf")]]], pa.list_(pa.list_(pa.float64())), [[[1.0], ["inf"]]]),
        ([{"it's": float("-inf")}, None], pa.struct([("it's", pa.float64())]), [{"it's": "-inf"}, None]),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int64()), [[{"key": "k", "value": 1}]]),
        ([b"\x00\xff", None], pa.binary(), ["00ff", None]),
        ([datetime.date(2024, 2, 29)], pa.date32(), ["2024-02-29"]),
        ([datetime.time(1, 2, 3)], pa.time64("us"), ["01:02:03"]),
    ],
)
def test_other_types(values: list[Any], type_: pa.DataType, written: list[Any]) -> None:
    """Nested values, bytes, dates and times have a stated form."""
    assert json.loads(rows_json(pa.table([pa.array(values, type_)], names=["v"]))) == [[w] for w in written]


def test_an_empty_table_has_its_columns() -> None:
    """No rows is not nothing."""
    found = json.loads(table_json(pa.schema([("a", pa.int64())]).empty_table(), total=0))
    assert found == {"total": 0, "columns": [{"name": "a", "type": "int64"}], "rows": []}
