"""Numbers of one class: DuckDB makes the same of expressions that differ in them only."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from windrow.cql.types import expression_type
from windrow.plan.bound_parts import BoundPart, bound
from windrow.plan.literal_classes import by_class, greatest, number_class, others
from windrow.plan.raising import may_raise

TYPES = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(), "UBIGINT": pa.uint64(), "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(), "DECIMAL(6,2)": pa.decimal128(6, 2), "DECIMAL(18,3)": pa.decimal128(18, 3),
}  # fmt: skip
FORMS = (
    *("c0 % {a} = {b}", "abs(c0 - {a}) > {b}", "c0 > c1 * {a}", "c0 + {a}", "{a} - c0", "c0 / {a}", "c0 // {a} < {b}"),
    *("CASE WHEN c0 > {a} THEN {b} ELSE c1 END", "coalesce(c0, {a})", "greatest(c0, {a}, c1)", "-{a} * c0", "{a}"),
    *("CAST({a} AS BIGINT) + c0", "c0 IN ({a}, {b})", "c0 BETWEEN {a} AND {b}", "CAST({a} AS DOUBLE) * c1"),
)
LITERALS = (
    *(
        "0",
        "1",
        "2",
        "9",
        "10",
        "99",
        "100",
        "127",
        "128",
        "129",
        "200",
        "255",
        "256",
        "999",
        "32767",
        "32768",
        "65535",
    ),
    *("65536", "2147483647", "2147483648", "4294967296", "123456789012", "0.5", "0.05", "1.5", "2.50", "10.5", "99.99"),
    *("100.0", "1.0", "0.0", "123456.789"),
)


def with_numbers(r: random.Random) -> Iterator[tuple[str, str]]:
    """Pairs of expressions that differ in numbers of one class."""
    for form in FORMS:
        for _ in range(12):
            first = {name: r.choice(LITERALS) for name in "ab"}
            other = {name: r.choice([*of(v)]) for name, v in first.items()}
            yield form.format(**first), form.format(**other)


def of(literal: str) -> Iterator[str]:
    """Numbers of the class of one."""
    yield literal
    if number_class(literal):
        yield from (greatest(literal), *others(literal))


def shape(part: BoundPart | None) -> object:
    """What DuckDB binds, but for the values of constants."""
    return None if part is None else (part.does, part.type, tuple(map(shape, part.parts)))


def answered(ask: Callable[[], object]) -> object:
    """What is answered, or that it is refused."""
    try:
        return ask()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_a_class_are_bound_alike(seed: int) -> None:
    """Types, casts and functions are the same, and so is whether something may raise."""
    r = random.Random(seed)
    for first, other in with_numbers(r):
        one, two = r.choice(list(TYPES)), r.choice(list(TYPES))
        row = f"FROM (SELECT CAST(NULL AS {one}) AS c0, CAST(NULL AS {two}) AS c1)"
        columns = {"c0": TYPES[one], "c1": TYPES[two]}
        a, b = (bound(f"SELECT ({text}) AS c {row}") for text in (first, other))
        assert shape(a) == shape(b), (first, other, one, two)
        assert (a is None or may_raise(a)) == (b is None or may_raise(b)), (first, other, one, two)
        mine, theirs = (answered(partial(expression_type, text, columns)) for text in (first, other))
        assert mine == theirs, (first, other, one, two)
        assert by_class(first) == by_class(other)


def test_numbers_have_the_class_of_its_members() -> None:
    """What is listed for a class is of it, and 0 and 1 are alone, as is what is the least of a type."""
    for literal in LITERALS:
        found = [*of(literal)]
        assert {number_class(x) for x in found} == {number_class(literal)}
        assert number_class(literal) is not None or float(literal) in (0, 1, 128, 32768, 2**31)


@pytest.mark.parametrize(
    "text",
    ["round(c0, 2)", "c0[12]", "CAST(c0 AS DECIMAL(12, 2))", "c0 > INTERVAL 12 HOUR", "'12' || c0", "t_12 > '12'",
     '"a 12" = \'12\'', "substr(c0, 12)", "12e3 * c0", "'12' = c0"],
)  # fmt: skip
def test_other_numbers_stay(text: str) -> None:
    """Values that make types, and digits of names and texts."""
    assert by_class(text) == text


@pytest.mark.parametrize("text", ["'rule 17'", "('it''s')", "CAST('17' AS VARCHAR)"])
def test_a_text_by_itself_is_a_text(text: str) -> None:
    """Whatever it says."""
    assert by_class(text) == "''"
