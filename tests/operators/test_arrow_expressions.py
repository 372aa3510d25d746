"""Expressions by Arrow's kernels: for whatever values, what DuckDB gives, or a refusal that sends them to DuckDB."""

from __future__ import annotations

import os
from datetime import date, datetime

import duckdb
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.poison import PATTERNS, poisoned

from windrow.operators.arrow_expressions import REPEATED, Inexact, Translations, translated
from windrow.scalar_engine import connect, project

CONNECTION = connect()
MOST = int(os.environ.get("WINDROW_EXAMPLES", 300))
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    0.1,
    1e-300,
    5e-324,
    1e308,
    -1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    2.0**53,
    9.3e18,
]
TIMES = [datetime(1970, 1, 1), datetime(2024, 2, 29, 23, 59, 59, 999999), datetime(1, 1, 1)]


def _integers(bits: int) -> list[int]:
    return [0, 1, -1, 2, 7, -7, 100, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 2)]


VALUES = {
    "i8": (pa.int8(), _integers(8)), "i16": (pa.int16(), _integers(16)), "i32": (pa.int32(), _integers(32)),
    "i64": (pa.int64(), [*_integers(64), 2**53, 2**53 + 1]), "j64": (pa.int64(), _integers(64)),
    "f64": (pa.float64(), FLOATS), "g64": (pa.float64(), FLOATS), "f32": (pa.float32(), [0.0, -0.0, 1.5, float("nan")]),
    "b": (pa.bool_(), [True, False]), "c": (pa.bool_(), [True, False]),
    "t": (pa.string(), ["", "a", "A", "ab", "é", "\U0001f600", "z"]), "u": (pa.string(), ["", "a", "ab"]),
    "d": (pa.date32(), [date(1970, 1, 1), date(2024, 2, 29)]),
    "ts": (pa.timestamp("us"), TIMES), "us": (pa.timestamp("us"), TIMES), "ns": (pa.timestamp("ns"), TIMES[:2]),
    "u64": (pa.uint64(), [0, 1, 2**64 - 1]), "dec": (pa.decimal128(10, 2), [0, 1, -5]),
}  # fmt: skip
NUMBERS = ["i8", "i16", "i32", "i64", "j64", "f64", "g64", "f32", "u64", "dec"]
CONSTANTS = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "100",
    "300",
    "70000",
    "5000000000",
    "0.5",
    "2.5",
    "1e3",
    "0.1",
    "CAST(3 AS BIGINT)",
    "(2 * 3)",
]
OTHERS = {
    "t": ["u", "'a'", "''", "'ab'", "NULL"], "ts": ["us", "CAST('2024-02-29' AS TIMESTAMP)", "d", "'2024-01-01'"],
    "d": ["ts", "DATE '2024-02-29'"], "ns": ["ts"], "b": ["c", "TRUE"],
}  # fmt: skip
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def _column(name: str) -> str:
    return f'"{name}"' if name in VALUES else name


@st.composite
def numbers(draw, depth: int = 2) -> str:
    """An expression that is a number."""
    if depth == 0 or draw(st.booleans()):
        return _column(draw(st.sampled_from([*NUMBERS, *CONSTANTS])))
    inner = numbers(depth - 1)
    kind = draw(st.sampled_from(["+", "-", "*", "/", "%", "neg", "cast", "coalesce", "case", "only"]))
    if kind == "neg":
        return f"(-({draw(inner)}))"
    if kind == "cast":
        return f"CAST({draw(inner)} AS {draw(st.sampled_from(['BIGINT', 'INTEGER', 'SMALLINT', 'DOUBLE', 'VARCHAR']))})"
    if kind == "coalesce":
        return f"coalesce({draw(inner)}, {draw(inner)})"
    if kind == "case":
        first, second = (f"WHEN {draw(conditions(depth - 1))} THEN {draw(inner)}" for _ in range(2))
        return f"CASE {first} {second} ELSE {draw(inner)} END"
    if kind == "only":
        return f"CASE WHEN {draw(conditions(depth - 1))} THEN {draw(inner)} END"
    return f"({draw(inner)} {kind} {draw(inner)})"


@st.composite
def conditions(draw, depth: int = 2) -> str:
    """An expression that is true, false or NULL."""
    kind = draw(
        st.sampled_from(
            ["compare", "other", "null", "between", "in", "b", "and", "or", "not"][: 6 if depth == 0 else 9]
        )
    )
    sign, number = draw(st.sampled_from(COMPARISONS)), numbers(max(0, depth - 1))
    if kind == "compare":
        return f"({draw(number)} {sign} {draw(number)})"
    if kind == "other":
        left = draw(st.sampled_from(sorted(OTHERS)))
        return f"({_column(left)} {sign} {_column(draw(st.sampled_from(OTHERS[left])))})"
    if kind == "null":
        word = draw(st.sampled_from(["IS NULL", "IS NOT NULL"]))
        return f"({_column(draw(st.sampled_from(sorted(VALUES))))} {word})"
    if kind == "between":
        return f"({draw(number)} BETWEEN {draw(number)} AND {draw(number)})"
    if kind == "in":
        word = draw(st.sampled_from(["IN", "NOT IN"]))
        return f"({draw(number)} {word} ({', '.join(draw(st.lists(number, min_size=1, max_size=3)))}))"
    if kind == "b":
        return draw(st.sampled_from(['"b"', '"c"', "TRUE"]))
    inner = conditions(depth - 1)
    return f"(NOT {draw(inner)})" if kind == "not" else f"({draw(inner)} {kind.upper()} {draw(inner)})"


@st.composite
def tables(draw) -> dict[str, pa.Array]:
    """Columns of every type, with or without nulls, over whatever lies under those."""
    rows, found = draw(st.integers(1, 4)), {}
    nulls, pattern = draw(st.booleans()), draw(st.sampled_from(PATTERNS))
    for name, (type_, values) in VALUES.items():
        some = st.sampled_from([*values, None] if nulls else values)
        found[name] = poisoned(pa.array(draw(st.lists(some, min_size=rows, max_size=rows)), type_), pattern)
    return found


def _of_duckdb(columns: dict[str, pa.Array], sql: str) -> pa.ChunkedArray | None:
    try:
        return project(CONNECTION, pa.table(columns), f"{sql} AS c").column(0)
    except duckdb.Error:
        return None


@settings(max_examples=MOST, deadline=None)
@given(tables(), st.one_of(conditions(), numbers()))
def test_kernels_give_what_duckdb_gives(columns, sql):
    """Types and values, NaN, infinities, both zeros and nulls included; where DuckDB raises, kernels refuse."""
    length = len(columns["b"])
    expression = translated(CONNECTION, sql, {n: c.type for n, c in columns.items()})
    event(f"translated: {expression is not None}")
    if expression is None:
        return
    wanted = _of_duckdb(columns, sql)
    try:
        found = expression.values(columns, length)
    except Inexact:
        event("refused at run time")
        return
    assert wanted is not None, "DuckDB raises"
    assert (found.type, repr(found.to_pylist())) == (wanted.type, repr(wanted.to_pylist()))


@pytest.mark.parametrize(
    "sql",
    [
        "(\"f64\" > 0.5)", '("i64" = 3)', "(\"f64\" * 2 + 1)", '("i64" % 10)', '("i64" / 2)', "(\"t\" = 'ab')",
        "(\"ts\" > TIMESTAMP '2024-01-01 00:00:00')", '("i64" IN (1, 2))', '("f64" BETWEEN 1 AND 2.5)', '(NOT "b")',
        'coalesce((("f64" > 0.5) AND ("i64" <> 7)), FALSE)', 'CASE WHEN "b" THEN "f64" END', 'CAST("i32" AS DOUBLE)',
        '("i32" + "i64")', '("i64" < "f64")', '("t" IS NULL)', "1", "'x'",
    ],
)  # fmt: skip
def test_what_is_common_is_translated(sql):
    """Ordinary values of ordinary expressions never reach DuckDB."""
    columns = {n: pa.array([values[1]], t) for n, (t, values) in VALUES.items()}
    expression = translated(CONNECTION, sql, {n: c.type for n, c in columns.items()})
    assert expression is not None
    wanted = _of_duckdb(columns, sql)
    assert wanted is not None
    assert repr(expression.values(columns, 1).to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.parametrize(
    "sql", ["1; SELECT 2", "a FROM s", "(SELECT 1)", "count(*)", '"i64" LIMIT 1', "x", "*", "upper(t)", '("i64" > 0.5)']
)
def test_what_is_not_known_stays_with_duckdb(sql):
    """A second item or statement, a clause, a function, a comparison of decimals."""
    assert translated(CONNECTION, sql, {n: t for n, (t, _) in VALUES.items()}) is None


def test_expressions_are_translated_together_or_not():
    """What changes the order of rows is asked of DuckDB with the numbers of the rows."""
    columns = {"a": pa.array([3, 1, 2])}
    known, together = Translations(), ('"a"', 'row_number() OVER (ORDER BY "a" DESC)')
    for _ in range(REPEATED + 1):
        assert known.values(lambda: CONNECTION, together, columns, 3) is None
    found = [known.values(lambda: CONNECTION, ('("a" + 1)', '"a"'), columns, 3) for _ in range(REPEATED + 1)]
    assert found[:2] == [None, None]
    assert [[a.to_pylist() for a in arrays] for arrays in found[2:]] == [[[4, 2, 3], [3, 1, 2]]] * 2


def test_a_text_means_what_its_columns_are():
    """The same text over columns of other types is another expression."""
    known = Translations()
    for _ in range(REPEATED):
        found = known.values(lambda: CONNECTION, ('("a" / 2)',), {"a": pa.array([3])}, 1)
    assert found is not None
    assert found[0].to_pylist() == [1.5]
    assert known.values(lambda: CONNECTION, ('("a" / 2)',), {"a": pa.array(["3"])}, 1) is None
