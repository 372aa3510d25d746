"""Types as written, to the names DuckDB knows: a closed list.

A type is read by the parser of the dialect and written anew from this page; the length of a text is dropped, as DuckDB
drops it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from windrow.scalar_engine import literal, quote

_PLAIN: Mapping[exp.DType, str] = {
    exp.DType.BOOLEAN: "BOOLEAN",
    exp.DType.TINYINT: "TINYINT", exp.DType.SMALLINT: "SMALLINT", exp.DType.INT: "INT", exp.DType.BIGINT: "BIGINT",
    exp.DType.INT128: "HUGEINT", exp.DType.UTINYINT: "UTINYINT", exp.DType.USMALLINT: "USMALLINT",
    exp.DType.UINT: "UINTEGER", exp.DType.UBIGINT: "UBIGINT", exp.DType.UINT128: "UHUGEINT",
    exp.DType.FLOAT: "FLOAT", exp.DType.DOUBLE: "DOUBLE",
    exp.DType.TEXT: "VARCHAR", exp.DType.VARCHAR: "VARCHAR", exp.DType.CHAR: "VARCHAR", exp.DType.NVARCHAR: "VARCHAR",
    exp.DType.BPCHAR: "VARCHAR", exp.DType.VARBINARY: "BLOB", exp.DType.BINARY: "BLOB", exp.DType.BLOB: "BLOB",
    exp.DType.BIT: "BIT", exp.DType.UUID: "UUID", exp.DType.JSON: "JSON", exp.DType.JSONB: "JSON",
    exp.DType.DATE: "DATE", exp.DType.TIME: "TIME", exp.DType.TIMETZ: "TIMETZ",
    exp.DType.TIMESTAMP: "TIMESTAMP", exp.DType.TIMESTAMPNTZ: "TIMESTAMP", exp.DType.DATETIME: "TIMESTAMP",
    exp.DType.TIMESTAMPTZ: "TIMESTAMPTZ", exp.DType.TIMESTAMPLTZ: "TIMESTAMPTZ",
    exp.DType.TIMESTAMP_S: "TIMESTAMP_S", exp.DType.TIMESTAMP_MS: "TIMESTAMP_MS",
    exp.DType.TIMESTAMP_NS: "TIMESTAMP_NS", exp.DType.TIME_NS: "TIME_NS", exp.DType.INTERVAL: "INTERVAL",
    exp.DType.BIGNUM: "BIGNUM", exp.DType.VARIANT: "VARIANT", exp.DType.GEOMETRY: "GEOMETRY",
}  # fmt: skip
_NAIVE = frozenset((exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATETIME))
_LENGTHS = frozenset(("VARCHAR", "BLOB", "BIT"))
_ALSO: Mapping[str, str] = {
    "bitstring": "BIT", "bool": "BOOLEAN", "bytea": "BLOB", "dec": "DECIMAL", "float4": "FLOAT", "float8": "DOUBLE",
    "guid": "UUID", "int1": "TINYINT", "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "int16": "SMALLINT",
    "int32": "INTEGER", "int64": "BIGINT", "int128": "HUGEINT", "integral": "INTEGER", "logical": "BOOLEAN",
    "long": "BIGINT", "oid": "BIGINT", "real": "FLOAT", "short": "SMALLINT", "signed": "INTEGER", "string": "VARCHAR",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "uint128": "UHUGEINT",
}  # fmt: skip
NAMES = tuple(sorted({*_PLAIN.values(), "DECIMAL", "INT", "LIST", "MAP", "STRING", "STRUCT", "TEXT"}))
ARRAY = 10_000
"""The longest array of fixed length: each row holds all of it, also where it is null."""


class UnknownType(Exception):
    """A type that is not on the list."""

    def __init__(self, name: str, hint: str | None = None) -> None:
        super().__init__(name)
        self.name, self.hint = name, hint


def type_name(tree: exp.Expr, places: int = 1) -> str:
    """DuckDB's name of a parsed type; `places`: how many of it there are in a row.

    >>> type_name(exp.DataType.build("STRUCT(a INT, b VARCHAR(3)[])", dialect="duckdb"))
    'STRUCT("a" INT, "b" VARCHAR[])'
    """
    kind = tree.this if isinstance(tree, exp.DataType) else None
    if kind in (exp.DType.ARRAY, exp.DType.LIST) and len(tree.expressions) == 1:
        return _listed(tree, places)
    if kind in (exp.DType.STRUCT, exp.DType.UNION) and tree.expressions:
        return f"{kind.value}({', '.join(_field(f, places) for f in tree.expressions)})"
    if kind is exp.DType.MAP and len(tree.expressions) == 2:
        return f"MAP({', '.join(type_name(t, places) for t in tree.expressions)})"
    if kind is exp.DType.DECIMAL:
        return _decimal(tree)
    if kind is exp.DType.ENUM and tree.expressions and all(e.is_string for e in tree.expressions):
        return f"ENUM({', '.join(literal(e.name) for e in tree.expressions)})"
    if kind in _NAIVE and tree.expressions:
        return _timestamp(tree)
    name = _PLAIN.get(kind) if kind is not None else None
    if name is None and kind is exp.DType.USERDEFINED:
        name = _ALSO.get(str(tree.args.get("kind") or "").lower())
    if name is None or (tree.expressions and name not in _LENGTHS):
        raise UnknownType(_shown(tree), "write TIMESTAMPTZ: microseconds" if name == "TIMESTAMPTZ" else None)
    return name


def _listed(tree: exp.Expr, places: int) -> str:
    (length,) = tree.args.get("values") or (None,)
    if length is None:
        return f"{type_name(tree.expressions[0])}[]"
    if not isinstance(length, exp.Literal) or length.is_string or not length.name.isdigit():
        raise UnknownType(_shown(tree))
    places *= int(length.name)
    if not 0 < places <= ARRAY:
        raise UnknownType(_shown(tree), f"an array has at most {ARRAY:,} places; a list has any number: []")
    return f"{type_name(tree.expressions[0], places)}[{int(length.name)}]"


def _field(field: exp.Expr, places: int) -> str:
    if not isinstance(field, exp.ColumnDef) or field.args.get("kind") is None:
        raise UnknownType(_shown(field), "write STRUCT(a INTEGER, b VARCHAR)")
    return f"{quote(field.name)} {type_name(field.args['kind'], places)}"


def _timestamp(tree: exp.Expr) -> str:
    """TIMESTAMP(3) as DuckDB has it: the unit that holds so many digits of a second."""
    (digits, *others) = [p.name for p in tree.expressions]
    if others or digits not in {*"0123456789"}:
        raise UnknownType(_shown(tree))
    return ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS")[-(-int(digits) // 3)]


def _decimal(tree: exp.Expr) -> str:
    digits = [p.name for p in tree.expressions]
    if len(digits) > 2 or not all(d.isdigit() for d in digits):
        raise UnknownType(_shown(tree))
    return f"DECIMAL({', '.join(str(int(d)) for d in digits)})" if digits else "DECIMAL"


def _shown(tree: exp.Expr) -> str:
    """The type as it may be shown, never to be run."""
    kind = tree.args.get("kind") if isinstance(tree, exp.DataType) else None
    named = tree.this if isinstance(tree, exp.DataType) else None
    return str(kind or (named.value if isinstance(named, exp.DType) else tree.name or tree.key.upper()))
