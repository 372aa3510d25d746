"""Random columns of every type that a column may have, and queries over them.

The columns a and b stay numbers, of any width and kind, so that what is written for them holds: they are compared,
joined and added up across types. The columns s and x, keys and values of everything else, have any type at all; those
of two streams may differ where DuckDB compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from windrow.testing.choices import Choices, Chooser
from windrow.testing.given import connected
from windrow.testing.random_data import Column, Columns
from windrow.testing.random_queries import SHAPES, Writer

VALUES = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127", "0"],
    "SMALLINT": ["-32768", "7"],
    "INTEGER": ["1", "-5", "2147483647"],
    "BIGINT": ["9223372036854775807", "-9223372036854775808", "1"],
    "UTINYINT": ["255", "0"],
    "USMALLINT": ["65535", "1"],
    "UINTEGER": ["4294967295", "1"],
    "UBIGINT": ["18446744073709551615", "0", "9223372036854775808"],
    "HUGEINT": ["12345678901234567890123456789", "-98765432109876543210", "5"],
    "FLOAT": ["1.5", "'nan'", "'-0.0'", "0.0", "'inf'"],
    "DOUBLE": ["1.5", "'nan'", "'-0.0'", "0.0", "'-inf'"],
    "DECIMAL(4, 1)": ["1.5", "-2.5"],
    "DECIMAL(18, 3)": ["1.125", "-2.5"],
    "DECIMAL(38, 5)": ["12345678901234567890123456789.12345", "1"],
    "DECIMAL(38, 0)": ["12345678901234567890123456789012345678", "-1"],
    "VARCHAR": ["'a'", "''", "'é'", "'A'"],
    "JSON": ["'{\"a\": 1}'", "'[1]'"],
    "BLOB": ["'a'", "'\\xFF\\x00'", "''"],
    "DATE": ["'2020-01-01'", "'1960-02-29'", "'2020-01-04'"],
    "TIME": ["'01:02:03.000001'", "'23:00:00'"],
    "TIME_NS": ["'01:02:03.000001'", "'23:00:00'"],
    "TIMESTAMP": ["'2020-01-01 10:00:00.000001'", "'1960-01-01'"],
    "TIMESTAMP_S": ["'2020-01-01 10:00:00'", "'1960-01-01'"],
    "TIMESTAMP_MS": ["'2020-01-01 10:00:00.001'", "'1960-01-01'"],
    "TIMESTAMP_NS": ["'2020-01-01 10:00:00.000000501'", "'1960-01-01'"],
    "TIMESTAMPTZ": ["'2020-01-01 10:00:00.000001+02'", "'1960-01-01'"],
    "INTERVAL": ["'1 month'", "'30 days'", "'1 day'", "'-1 hour'"],
    "INTEGER[]": ["[1, 2]", "[1, NULL]", "[]", "[NULL]"],
    "DOUBLE[]": ["[0.0]", "['-0.0'::DOUBLE]", "['nan'::DOUBLE]", "[1.5]"],
    "INTEGER[2]": ["[1, 2]", "[1, NULL]"],
    "VARCHAR[][]": ["[['a'], []]", "[NULL]"],
    "INTERVAL[]": ["['1 month'::INTERVAL]", "['30 days'::INTERVAL]"],
    "STRUCT(a INTEGER, b VARCHAR)": ["{a: 1, b: 'x'}", "{a: NULL, b: NULL}", "{a: 1, b: ''}"],
    "MAP(VARCHAR, INTEGER)": ["MAP {'a': 1}", "MAP {'a': NULL}", "MAP {}"],
    "STRUCT(l INTEGER[], m MAP(INTEGER, DOUBLE))[]": [
        "[{l: [1], m: MAP {1: 'nan'::DOUBLE}}]", "[{l: NULL, m: NULL}]", "[]",
    ],
}  # fmt: skip
"""Every type that a column may have, with values of it in SQL: the ends, both zeros, what is equal but not alike."""

SIGNED = ("BIGINT", "TINYINT", "SMALLINT", "INTEGER")
UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
FRACTIONS = ("DOUBLE", "FLOAT", "DECIMAL(4, 1)", "DECIMAL(18, 3)", "DECIMAL(38, 5)")
NUMBERS = (*SIGNED, *FRACTIONS)
WHOLE = (*SIGNED, "HUGEINT")
TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
COMPARED = (TIMES, ("INTEGER[]", "DOUBLE[]"))
"""Types whose values DuckDB compares with those of the others of a group; but a HUGEINT, which is DECIMAL(38, 0) to
windrow, takes fractions off in DuckDB, so it is not among numbers that have some."""
TYPES = tuple(t for t in VALUES if t != "INTEGER[2]")
"""The types that random columns have: in outer joins DuckDB reads arrays of a fixed size where there are none."""

OF_VALUE = {
    "VARCHAR": ("upper({})", "{} || 'z'", "length({})"),
    "BLOB": ("octet_length({})",),
    "INTERVAL": ("{} + INTERVAL '1 day'",),
    "INTEGER[]": ("len({})", "{}[1]"),
    "DOUBLE[]": ("len({})", "{}[1]"),
    "VARCHAR[][]": ("{}[1]",),
    "STRUCT(a INTEGER, b VARCHAR)": ("struct_extract({}, 'a')", "struct_extract({}, 'b')"),
    "MAP(VARCHAR, INTEGER)": ("map_keys({})", "cardinality({})"),
    **dict.fromkeys(TIMES, ("{} + INTERVAL '1 day'", "date_trunc('month', {})", "year({})", "CAST({} AS DATE)")),
    **dict.fromkeys((*UNSIGNED, *NUMBERS), ("CAST({} AS DOUBLE)", "CAST({} AS VARCHAR)", "{} / 2")),
}
"""Expressions of a value of some types."""

TYPED_SHAPES = tuple(shape for shape in SHAPES if shape != "frequent")


@cache
def _array(type_: str, values: tuple[str, ...]) -> pa.Array:
    with connected({}) as connection:
        rows = ", ".join(f"(CAST({v} AS {type_}))" for v in values)
        return connection.sql(f"SELECT x FROM (VALUES {rows}) AS v(x)").to_arrow_table()["x"].combine_chunks()


def column(type_: str, values: Sequence[str]) -> Column:
    """A column of a type that may hold values, which are SQL."""
    return Column(type_, _array(type_, tuple(values)))


@dataclass(frozen=True)
class RandomTypes:
    """The columns of S, T, U, P and V."""

    columns: Mapping[str, Columns]

    def of(self, name: str) -> str | None:
        """The type of a column, None where streams differ."""
        first, *rest = {self.columns[stream][name].type for stream in "STU"}
        return None if rest else first


def random_types(choose: Chooser, specials: bool, extremes: bool) -> RandomTypes:
    """Types for a case; `specials` lets floating numbers be NaN and infinite, `extremes` integers be the greatest."""
    keys, measures = _alike(choose, (*NUMBERS, "HUGEINT")), _alike(choose, (*NUMBERS, "HUGEINT", *UNSIGNED))
    if extremes:
        measures = dict.fromkeys(measures, choose.pick(*SIGNED, *UNSIGNED))
    texts, others = (_alike(choose, TYPES) for _ in "sx")
    boolean = column("BOOLEAN", VALUES["BOOLEAN"])
    found: dict[str, Columns] = {}
    for name in ("S", "T", "U"):
        found[name] = {
            "a": column(keys[name], [str(n) for n in range(4)]),
            "b": column(measures[name], _measured(measures[name], specials, extremes)),
            "x": column(others[name], VALUES[others[name]]),
            "s": column(texts[name], VALUES[texts[name]]),
            "f": boolean,
        }
    shown = choose.pick(*(t for t in TYPES if t not in ("TIMESTAMP_NS", "TIME_NS")))
    numbers = [str(n / 4) for n in range(-4, 9)]
    w = choose.pick("DOUBLE", "FLOAT", "DECIMAL(18, 3)")
    k = column(keys["P"], [str(n) for n in range(4)])
    table = {"k": k, "v": column(shown, VALUES[shown]), "w": column(w, numbers)}
    return RandomTypes({**found, "P": table, "V": table})


def _alike(choose: Chooser, types: Sequence[str]) -> dict[str, str]:
    """A type for every relation: one for all, or types whose values are compared with each other."""
    one = choose.pick(*types)
    group = next((g for g in (NUMBERS, WHOLE, *COMPARED) if one in g), (one,))
    if choose.chance(2):
        return dict.fromkeys("STUP", one)
    return {name: choose.pick(*group) for name in "STUP"}


def _measured(type_: str, specials: bool, extremes: bool) -> list[str]:
    low = 0 if type_ in UNSIGNED else -4
    found = [str(n) for n in range(low, 7)]
    if type_ in FRACTIONS:
        found += ["0.5", "-2.5"]
    if specials and type_ in ("FLOAT", "DOUBLE"):
        found += ["'nan'", "'inf'", "'-inf'"] * 3
    return found + (VALUES[type_] * 2 if extremes else [])


class TypedWriter(Writer):
    """Writes a query over columns of any types: what needs a number takes a or b, the rest takes any column."""

    measure = "b"
    tables_in_time = False

    def __init__(self, choices: Choices, clock: str, specials: bool, extremes: bool, types: RandomTypes) -> None:
        super().__init__(choices, clock, specials, extremes)
        self.types = types

    def length(self, alias: str) -> str:
        return f"CASE WHEN {alias}.s IS NULL THEN 0 ELSE 1 END"

    def integer(self, alias: str) -> str:
        plain = [f"{alias}.a", f"{alias}.b"]
        return self.pick(*plain, *plain, f"{alias}.a % 3", f"coalesce({alias}.a, 1)", f"{alias}.a + 1")

    def floating(self, alias: str) -> str:
        return self.pick(f"{alias}.b", f"{alias}.a / 2", f"{alias}.a * 0.5")

    def literal(self, type_: str) -> str:
        """A value of a type."""
        return f"CAST({self.pick(*VALUES[type_])} AS {type_})"

    def any(self, alias: str) -> str:
        """A column of any type, or something made of it."""
        name = self.pick("s", "x")
        whole = f"{alias}.{name}"
        if not self.chance(3):
            return whole
        more = [whole, f"{whole} IS NULL", f"CASE WHEN {alias}.f THEN {whole} END", f"[{whole}]", f"{{'k': {whole}}}"]
        if (type_ := self.types.of(name)) is not None:
            literal = self.literal(type_)
            more += [f"coalesce({whole}, {literal})", f"nullif({whole}, {literal})", f"{whole} < {literal}"]
            more += [text.format(whole) for text in OF_VALUE.get(type_, ())]
        return self.pick(*more)

    def value(self, alias: str) -> str:
        return self.pick(self.any(alias), self.any(alias), self.integer(alias), f"{alias}.f", f"{alias}.ts")

    def predicate(self, alias: str, depth: int = 1) -> str:
        if depth and self.chance(3):
            left, right = self.predicate(alias, depth - 1), self.predicate(alias, depth - 1)
            return self.pick(f"({left} OR {right})", f"{left} AND {right}", f"NOT ({left})")
        name = self.pick("s", "x")
        compared = f"{alias}.{name} IS NOT NULL"
        if (type_ := self.types.of(name)) is not None:
            compared = f"{alias}.{name} {self.pick('=', '<>', '<', '>=', 'IS DISTINCT FROM')} {self.literal(type_)}"
        return self.pick(compared, compared, compared, f"{alias}.a < 2", f"{alias}.b > 0", f"{alias}.f")

    def aggregate(self, alias: str) -> str:
        value, other, number = self.any(alias), f"{alias}.{self.pick('s', 'x')}", f"{alias}.{self.pick('a', 'b')}"
        calls = [
            "COUNT(*)", f"COUNT({value})", f"COUNT(DISTINCT {value})", f"MIN({value})", f"MAX({value})",
            f"MIN({other})", f"MAX({other})", f"TOP_K({other}, {self.number(1, 2)})", f"SUM({number})",
            f"SUM(DISTINCT {number})", f"AVG({alias}.a)", f"ARG_MAX({value}, {alias}.ts)", f"MODE({other})",
            f"ARG_MIN({alias}.ts, {other})", f"LIST({value} ORDER BY {other}, {alias}.ts)", f"LIST(DISTINCT {other})",
            f"FIRST({value} ORDER BY {alias}.ts)", f"BOOL_OR({other} IS NULL)",
        ]  # fmt: skip
        if not (self.exact or self.specials or self.extremes):
            calls += [f"{self.pick('STDDEV', 'VAR_POP')}({number})", f"AVG({number})"]
        call = self.pick(*calls)
        return f"{call} FILTER (WHERE {self.predicate(alias, 0)})" if self.chance(5) else call

    def grouped(self, aliases: Sequence[str]) -> tuple[str, str]:
        alias = self.pick(*aliases)
        keys = [f"{alias}.{k}" for k in self.pick("", "s", "s", "x", "x", "a", "b", "s x", "x f").split()]
        values = [*keys, *(self.aggregate(self.pick(*aliases)) for _ in range(self.number(1, 3)))]
        clauses = f" GROUP BY {', '.join(keys)}" if keys else ""
        if self.chance(4):
            condition = self.pick("COUNT(*) > 1", f"MAX({alias}.a) >= 1", f"MAX({alias}.x) IS NOT NULL")
            clauses += f" HAVING {condition}"
        return ", ".join(f"{v} AS c{i}" for i, v in enumerate(values)), clauses

    def chain(self, aliases: Sequence[str], texts: Sequence[str]) -> tuple[str, list[str]]:
        text, conditions = texts[0], []
        comma = self.chance(2)
        for left, right, part in zip(aliases, aliases[1:], texts[1:], strict=False):
            same = [f"{left}.{name} = {right}.{name}" for name in "sxa"]
            on = self.pick(*same, *same, f"{right}.b = {left}.a")
            if self.chance(3):
                more = [f"{left}.{name} {self.pick('<', '<>', '>=')} {right}.{name}" for name in "sxb"]
                on += f" AND {self.pick(*more, *same)}"
            text += f", {part}" if comma else f" JOIN {part} ON {on}"
            conditions += [on] if comma else []
        return text, conditions
