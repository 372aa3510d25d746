"""Every aggregate function over every type it takes, against the scalar engine; and the exact arithmetic underneath."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow
from windrow.errors import RuntimeFailure
from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation, limbs
from windrow.operators.aggregates.order import encode
from windrow.operators.elements import INF, Elements

VALUES = {
    "BOOLEAN": ["true", "false", "true", "null"],
    "TINYINT": ["-128", "127", "3", "3", "null"],
    "UTINYINT": ["255", "0", "7"],
    "SMALLINT": ["-32768", "12", "12", "5"],
    "INTEGER": ["-2147483648", "2147483647", "1", "null"],
    "UINTEGER": ["4294967295", "1", "0"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "9223372036854775807", "1", "null"],
    "UBIGINT": ["18446744073709551615", "18446744073709551615", "0", "9223372036854775808"],
    "HUGEINT": ["12345678901234567890123456789", "-98765432109876543210", "5", "null"],
    "FLOAT": ["1.1::float", "2.7", "-0.0", "null", "'inf'::float"],
    "DOUBLE": ["1.1", "2.7", "-3.3", "1e-9", "null"],
    "DECIMAL(4,1)": ["1.1", "-2.2", "3.3", "null"],
    "DECIMAL(10,2)": ["1.11", "-1.16", "99999999.99", "-99999999.98"],
    "DECIMAL(38,3)": ["12345678901234567890123456789.123", "-1.116", "null", "7"],
    "DATE": ["'1960-02-29'", "'2020-01-01'", "'2020-01-02'", "null"],
    "TIMESTAMP": ["'1960-01-01 00:00:00.000001'", "'2020-01-01 10:00:00'", "'2020-01-02 10:00:00.000003'", "null"],
    "TIMESTAMPTZ": ["'1960-01-01 00:00:00.000001+00'", "'2020-01-01 10:00:00+00'"],
    "TIMESTAMP_S": ["'2020-01-01 10:00:00'", "'2020-01-01 10:00:01'"],
    "TIMESTAMP_MS": ["'2020-01-01 10:00:00.001'", "'1969-01-01 10:00:01'", "null"],
    "TIMESTAMP_NS": ["'2020-01-01 10:00:00.000001'", "'1969-01-01 10:00:01'", "null"],
    "TIMESTAMPTZ_NS": ["'2020-01-01 10:00:00.000000001'", "'1969-01-01 10:00:01'", "null"],
    "TIME_NS": ["'10:00:00.000000001'", "'11:00:01'", "null"],
    "INTERVAL": ["'1 month'", "'31 days'", "'-1 hour'", "null", "'30 days 1 second'"],
    "TIME": ["'01:02:03.000001'", "'23:00:00'", "'04:00:00'"],
    "VARCHAR": ["'b'", "'a'", "''", "'é'", "'zz'", "null", "'zz'"],
    "INTEGER[]": ["[1, 2]", "[1]", "[]", "[null]", "null", "[1, null]", "[1, 2]"],
    "DOUBLE[]": ["[0.0]", "['nan'::double]", "[-1.5, null]", "['-0.0'::double]"],
    "INTEGER[2]": ["[1, 2]", "[1, null]", "null", "[1, 0]"],
    "INTERVAL[]": ["['1 month'::interval]", "['31 days'::interval]", "['30 days'::interval]"],
    "STRUCT(a INTEGER, b VARCHAR)": ["{a: 1, b: 'x'}", "{a: null, b: 'x'}", "null", "{a: 1, b: ''}"],
    "MAP(VARCHAR, INTEGER)": ["MAP {'a': 1}", "MAP {'a': null}", "MAP {}", "null"],
    "BLOB": ["'\\xFF'", "'a'", "'\\x00b'", "null"],
}

FUNCTIONS = [
    ("count", (), False),
    ("count", (), True),
    ("sum", (), False),
    ("sum", (), True),
    ("avg", (), False),
    ("avg", (), True),
    ("min", (), False),
    ("max", (), False),
    ("var_samp", (), False),
    ("var_pop", (), False),
    ("stddev_samp", (), False),
    ("stddev_pop", (), False),
    ("median", (), False),
    ("quantile", (0.3,), False),
    ("quantile_cont", (0.7,), False),
    ("quantile_cont", (0.3,), False),
    ("quantile_disc", (0.5,), False),
    ("quantile_disc", (1.0,), False),
    ("quantile_disc", (0.0,), True),
]


REFUSED = {
    ("avg", "INTERVAL"), ("median", "INTERVAL"),
    ("median", "INTERVAL[]"), ("quantile", "INTERVAL[]"), ("quantile_disc", "INTERVAL[]"),
}  # fmt: skip
"""What the binder refuses: sums of months, days and time, and an order that the scalar engine itself is not sure of."""


def one_answer(array: pa.Array, call: Aggregation, strict: bool):
    operator = ContinuousAggregate((), [call], {"x": array.type}, strict=strict)
    operator.start(0)
    output = operator.advance([Elements.positive(np.zeros(len(array), np.int64), INF, {"x": array})], 0)
    (column,) = output.columns.values()
    assert column.type == call.type
    return column.to_pylist()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("type_", VALUES)
def test_functions_agree_with_the_scalar_engine(type_, strict):
    """Values and types of all functions are those of DuckDB, for no rows, one row and several."""
    engine = duckdb.connect()
    for n in range(len(VALUES[type_]) + 1):
        rows = ", ".join(f"({v})" for v in VALUES[type_][:n]) or "(null)"
        table = engine.sql(f"SELECT x::{type_} AS x FROM (VALUES {rows}) t(x) LIMIT {n}").to_arrow_table()
        array = (
            pa.concat_arrays(table["x"].chunks) if table["x"].num_chunks else pa.array([], table.schema.field("x").type)
        )
        engine.register("t", table)
        for kind, parameters, distinct in FUNCTIONS:
            arguments = ", ".join(["DISTINCT x" if distinct else "x", *map(str, parameters)])
            try:
                expected = engine.sql(f"SELECT {kind}({arguments}) AS a FROM t").to_arrow_table()
            except duckdb.Error:
                continue
            if (kind, type_) in REFUSED:
                continue
            call = Aggregation(kind, "x", "a", expected.schema.field("a").type, distinct, parameters)
            assert same(one_answer(array, call, strict), expected["a"].to_pylist()), (kind, parameters, distinct, n)


def same(found, expected):
    (a,), (b,) = found, expected
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same([x], [y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-12)
    return a == b


@settings(max_examples=200)
@given(st.lists(st.integers(-(10**6), 10**6) | st.integers(-(2**60), 2**60), min_size=1, max_size=9))
def test_means_of_times_are_rounded_as_the_scalar_engine_rounds(micros):
    """To the nearest microsecond, ties towards zero, and everything before 1970 towards zero."""
    exact = Fraction(sum(micros), len(micros))
    want = math.ceil(exact - Fraction(1, 2)) if exact > 0 else math.ceil(exact)
    type_ = pa.timestamp("us")
    operator = ContinuousAggregate((), [Aggregation("avg", "x", "a", type_)], {"x": type_})
    operator.start(0)
    rows = Elements.positive(np.zeros(len(micros), np.int64), INF, {"x": pa.array(micros, type_)})
    assert operator.advance([rows], 0).columns["a"].cast(pa.int64()).to_pylist() == [want]
    if all(abs(m) < 10**15 for m in micros):
        engine = duckdb.from_arrow(pa.table({"x": rows.columns["x"]})).aggregate("epoch_us(avg(x))")
        assert engine.fetchall() == [(want,)]


wide = st.integers(-(10**38) + 1, 10**38 - 1) | st.sampled_from([10**38 - 1, 1 - 10**38, 1, -1, 2**127 - 10**38])


@settings(max_examples=200)
@given(st.lists(wide, min_size=1, max_size=8), st.booleans())
def test_sums_of_wide_decimals_are_exact_or_fail(values, distinct):
    """What does not fit in 38 digits is an error, never another number, whatever the sum is on the way there."""
    type_ = pa.decimal128(38, 0)
    call = Aggregation("sum", "x", "a", type_, distinct)
    total = sum(set(values) if distinct else values)
    array = pa.array([Decimal(v) for v in values], type_)
    if abs(total) < 10**38:
        assert one_answer(array, call, False) == [Decimal(total)]
    else:
        with pytest.raises(RuntimeFailure, match="a SUM overflows"):
            one_answer(array, call, False)


doubles = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20)


@settings(max_examples=200)
@given(doubles)
def test_sums_and_means_of_doubles_are_rounded_once(values):
    """SUM and AVG are the doubles nearest to the exact rational values, whatever the exponents."""
    array = pa.array(values, pa.float64())
    total = sum(map(Fraction, values))
    for kind, exact in (("sum", total), ("avg", total / len(values))):
        assert one_answer(array, Aggregation(kind, "x", "a", pa.float64()), False) == [to_double(exact)]


def to_double(exact):
    try:
        return float(exact) + 0.0
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(
            st.integers(-(2**62), 2**62) | st.sampled_from([0, 2**31, -(2**31), 2**52, 2**53 + 1]),
            min_size=4,
            max_size=4,
        )
    )
)
def test_limbs_round_to_nearest_even(rows):
    """A number in limbs, carried or not, becomes the nearest double."""
    matrix = np.array(rows, np.int64).reshape(-1, 4)
    exact = [sum(Fraction(v) * 2 ** (32 * k) for k, v in enumerate(row)) for row in rows]
    assert limbs.round_sums(matrix, 0, 4, 0).tolist() == [float(e) for e in exact]
    carried = matrix.copy()
    limbs.carry(carried, 0, 4)
    assert limbs.round_sums(carried, 0, 4, 0).tolist() == [float(e) for e in exact]
    assert (np.abs(carried[:, :3]) <= 2**31).all()


def test_variance_of_a_constant_is_zero():
    """No rounding is left behind by equal values, nor by values that came and went."""
    types = {"x": pa.float64()}
    operator = ContinuousAggregate(
        (), [Aggregation("stddev", "x", "a", pa.float64()), Aggregation("sum", "x", "s", pa.float64())], types
    )
    operator.start(0)
    values = pa.array([0.1, 0.1, 0.1, 1e300, math.nan, math.inf])
    ends = np.array([9, 9, 9, 2, 2, 2])
    operator.advance([Elements.positive(np.zeros(6, np.int64), ends, {"x": values})], 1)
    output = operator.advance([Elements.empty(types)], 3)
    positive = np.flatnonzero(output.sign > 0)
    assert [c.take(pa.array(positive)).to_pylist() for c in output.columns.values()] == [
        [0.0],
        [float(3 * Fraction(0.1))],
    ]


def test_codes_keep_the_order_of_the_scalar_engine():
    """NaN is the greatest number, -0.0 equals 0.0, text compares by its bytes."""
    (codes,), order = encode([pa.array([math.nan, math.inf, 1.0, 0.0, -0.0, -1.0, -math.inf])])
    assert np.argsort(-codes, kind="stable").tolist() == [0, 1, 2, 3, 4, 5, 6] and codes[3] == codes[4]
    assert order.decode(codes).to_pylist()[1:] == [math.inf, 1.0, 0.0, 0.0, -1.0, -math.inf]
    (codes,), order = encode([pa.array(["\U0001f600", "\uffff", "a", "", "B"])])
    assert np.argsort(codes).tolist() == [3, 4, 2, 1, 0]


def test_lanes_that_are_zero_for_a_while_keep_their_place():
    """Integers that are multiples of 2**32, looked at while nothing happens to them."""
    rows = {"ts": [0, 1, 2], "v": [2**40, 2**41, 3 * 2**40]}
    ticks = {"ts": list(range(3, 40))}
    query = "SELECT SUM(v) AS s, VARIANCE(v) AS w, MEDIAN(v) AS m FROM S [RANGE 100 SLIDE 1]"
    found = windrow.run(query, {"S": rows, "T": ticks}, runtime="local", batch_rows=1, sharing="off")["q1"]
    assert found["s"].to_pylist()[2:] == [6 * 2**40] * 38
