"""What DuckDB says: types of expressions, names of columns, known functions.

Types are never computed here. An expression is bound by DuckDB over one row of nulls of the right types; the answer's
Arrow type is the expression's type. One question costs about a millisecond and is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from windrow.errors import BindingError
from windrow.plan.expr import Expr, Part, Ref, sql_of
from windrow.plan.literal_classes import by_class
from windrow.scalar_engine import binding, literal, quote, reason, select, type_name

HUGEINT = pa.decimal128(38, 0)
"""DuckDB's HUGEINT, the SUM of integers, in Arrow. Read back it would be a DECIMAL, whose products overflow."""


class DuckDBRefusal(Exception):
    """DuckDB would not bind an expression; `short` is the one line that matters.

    `fails`: it binds, but there is no value. `missing`: the function that DuckDB does not know, when that is why.
    """

    def __init__(self, short: str, fails: bool = False) -> None:
        super().__init__(short)
        self.short, self.fails = short, fails
        found = re.search(r"function with name (\S+) does not exist", short, re.IGNORECASE)
        self.missing = found.group(1).strip('"').lower() if found else None


_INSTEAD = {
    "uuid": "VARCHAR", "enum": "VARCHAR", "bit": "VARCHAR", "bignum": "VARCHAR", "variant": "VARCHAR",
    "geometry": "BLOB", "union": "VARCHAR", "uhugeint": "HUGEINT", "time with time zone": "TIME",
}  # fmt: skip
"""Types whose values are no longer themselves once they have been in an Arrow column: by DuckDB's id, what to keep."""


class NotKept(DuckDBRefusal):
    """A value of a type that no column can hold; `instead`: one that can."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(f"a column cannot hold values of type {name}")
        self.instead = instead


def _check_kept(type_: Any) -> None:
    if type_.id in _INSTEAD:
        raise NotKept(str(type_), _INSTEAD[type_.id])
    if type_.id in ("list", "array", "struct", "map"):
        for name, child in type_.children:
            if name != "size":
                _check_kept(child)


def answer(query: str, check: Callable[[Any], None] | None = None) -> pa.Table:
    """What DuckDB answers to one SELECT of ours; `check` sees DuckDB's type of each column first."""
    import duckdb

    unbound = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.NotImplementedException)
    try:
        with binding() as connection:
            relation = select(connection, query)
            if check is not None:
                for type_ in relation.types:
                    check(type_)
            return relation.to_arrow_table()
    except duckdb.Error as error:
        raise DuckDBRefusal(reason(error), not isinstance(error, unbound)) from None


def _ask(query: str) -> pa.Schema:
    return answer(query, _check_kept).schema


@lru_cache(maxsize=512)
def sql_name(type_: pa.DataType) -> str:
    """DuckDB's name of an Arrow type.

    >>> sql_name(pa.int64()), sql_name(HUGEINT)
    ('BIGINT', 'HUGEINT')
    """
    if type_ == HUGEINT:
        return "HUGEINT"
    name = type_name(type_)
    if name is None:
        raise BindingError(
            f"columns of type {type_} cannot be used in expressions", hint="cast them when reading the source"
        )
    return name.replace('"NULL"', "INTEGER")


@lru_cache(maxsize=512)
def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a name from `type_names`, as DuckDB exports it."""
    return _ask(f"SELECT CAST(NULL AS {name}) AS c").field(0).type


def kept_type(name: str) -> pa.DataType | None:
    """The same; None if values of that type are for expressions only."""
    try:
        return arrow_type(name)
    except NotKept:
        return None


def null_of(type_: pa.DataType) -> Expr:
    """The null of a type."""
    return Expr((f"CAST(NULL AS {sql_name(type_)})",), type_)


def _null_row(columns: Iterable[tuple[str, str]]) -> str:
    """A SELECT of one row of nulls of given types."""
    return "SELECT " + ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in columns)


@lru_cache(maxsize=8192)
def _expression_type(text: str, columns: tuple[tuple[str, str], ...]) -> pa.DataType:
    source = f" FROM ({_null_row(columns)})" if columns else ""
    return _ask(f"SELECT {text} AS c{source}").field(0).type


def expression_type(text: str, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """The type of an expression over columns of given types.

    >>> expression_type('"a" + 1', {"a": pa.int64()})
    DataType(int64)
    """
    return _expression_type(text, tuple((n, sql_name(t)) for n, t in sorted(columns.items())))


_OPERATORS = re.compile(r"(?:[\s()+*/<>=,0-9.-]|''|\b(?:c\d+|AND|OR|NOT|BETWEEN|IN|LIKE|IS|NULL|DISTINCT|FROM)\b)*")
"""Texts over columns, by their places, that say nothing about what these are called."""


def type_of(parts: Sequence[Part], types: Mapping[str, pa.DataType], shape: Callable[[str], str] = str) -> pa.DataType:
    """The type of an expression, which `shape` makes one of the same type that many share.

    Operators look at types alone, so DuckDB is asked once for all columns of the same types, by their places, and for
    all numbers of a class; what it refuses, it refuses of the columns and numbers that are meant.

    >>> type_of(("(", Ref("s.a"), " + 1)"), {"s.a": pa.int64()})
    DataType(int64)
    """
    given = {p.name: sql_name(types[p.name]) for p in parts if isinstance(p, Ref)}
    places = {name: f"c{place}" for place, name in enumerate(given)}
    asked = by_class(shape(sql_of(parts, places.__getitem__)))
    named, columns = "", tuple((places[name], type_) for name, type_ in given.items())
    if not _OPERATORS.fullmatch(asked):
        named = shape(sql_of(parts))
        asked, columns = by_class(named), tuple(given.items())
    if asked != named:
        try:
            return _expression_type(asked, columns)
        except DuckDBRefusal:
            pass
    return _expression_type(named or shape(sql_of(parts)), tuple(sorted(given.items())))


def folded(text: str) -> pa.ChunkedArray:
    """The value of an expression without columns, as a column of one row."""
    return answer(f"SELECT {text} AS c").column(0)


def grows(text: str, columns: Mapping[str, pa.DataType]) -> bool:
    """Whether values of an expression have a size of their own; it is bound and not computed."""
    import duckdb

    source = f" FROM ({_null_row((n, sql_name(t)) for n, t in columns.items())})" if columns else ""
    try:
        with binding() as connection:
            (type_,) = select(connection, f"SELECT {text} AS c{source}").types
    except duckdb.Error as error:
        raise DuckDBRefusal(reason(error)) from None
    return type_.id in (
        "varchar",
        "blob",
        "bit",
        "bignum",
        "list",
        "array",
        "struct",
        "map",
        "union",
        "variant",
        "geometry",
    )


def selected(query: str) -> pa.Table:
    """The rows of a SELECT without tables."""
    return answer(query)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type that both are cast to when they meet in one column."""
    if left == right:
        return left
    text = f"CASE WHEN true THEN CAST(NULL AS {sql_name(left)}) ELSE CAST(NULL AS {sql_name(right)}) END"
    return _expression_type(text, ())


def comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Can two columns be compared with no cast that may fail on some row?"""
    if pa.types.is_null(left) or pa.types.is_null(right):
        return True
    try:
        common_type(left, right)
    except DuckDBRefusal:
        return False
    return is_string(left) == is_string(right)


@lru_cache(maxsize=512)
def can_cast(text: str, type_: pa.DataType) -> bool:
    """Does a string literal have a value of this type?"""
    try:
        _ask(f"SELECT CAST({literal(text)} AS {sql_name(type_)})")
    except DuckDBRefusal:
        return False
    return True


def shown_name(sql: str, tables: Mapping[str, Mapping[str, pa.DataType]]) -> str | None:
    """The name DuckDB gives to an unnamed select item over these relations; None when DuckDB cannot say."""
    import duckdb

    relations = ", ".join(
        f"({_null_row((n, sql_name(t)) for n, t in columns.items())}) AS {quote(alias)}"
        for alias, columns in tables.items()
        if columns
    )
    try:
        with binding() as connection:
            return str(select(connection, f"SELECT {sql} FROM {relations}").columns[0])
    except duckdb.Error:  # an aggregate DuckDB lacks, or one that it would not take
        return None


@lru_cache(maxsize=1)
def functions() -> Mapping[str, str]:
    """Names of DuckDB's functions in lower case, with their kind; a query may call those of `builtins`."""
    with binding() as connection:
        rows = connection.sql("SELECT function_name, function_type FROM duckdb_functions()").fetchall()
    kinds: dict[str, str] = {}
    for name, kind in rows:
        if kinds.get(name.lower()) != "aggregate":
            kinds[name.lower()] = kind
    return kinds


def is_string(type_: pa.DataType) -> bool:
    """Is it a character type?"""
    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value))


def is_time(type_: pa.DataType) -> bool:
    """Can a column of this type be a stream's time?"""
    return bool(pa.types.is_timestamp(type_) or pa.types.is_integer(type_))


def instant_type(type_: pa.DataType) -> pa.DataType:
    """The type of `_ts` for a time column: microseconds, or plain ticks.

    >>> instant_type(pa.timestamp("ms", "UTC")), instant_type(pa.int32())
    (TimestampType(timestamp[us, tz=UTC]), DataType(int64))
    """
    return pa.timestamp("us", type_.tz) if pa.types.is_timestamp(type_) else pa.int64()


def check_time(name: str, type_: pa.DataType) -> None:
    """Refuse a time column that does not order instants."""
    if not is_time(type_):
        raise BindingError(
            f'time column "{name}" has type {sql_name(type_)}',
            hint="a time is a TIMESTAMP or an integer that counts ticks; text in files is read as the declared type",
        )
