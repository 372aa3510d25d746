"""An expression as a tree of parts, read by DuckDB's own parser.

Only what this page names is read: columns, literals, casts, comparisons, logic, null tests, CASE, COALESCE, IN, BETWEEN
and arithmetic. Anything else raises `Unknown`. Every part carries its text, so that DuckDB can be asked about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windrow.scalar_engine import literal, quote

if TYPE_CHECKING:
    import duckdb

MOST_PARTS = 100
"""Larger expressions are not read."""

CASTS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "DATE", "TIMESTAMP")
"""The types of casts that are read."""

COMPARED = {
    "COMPARE_EQUAL": ("=", "equal"), "COMPARE_NOTEQUAL": ("<>", "not_equal"),
    "COMPARE_LESSTHAN": ("<", "less"), "COMPARE_LESSTHANOREQUALTO": ("<=", "less_equal"),
    "COMPARE_GREATERTHAN": (">", "greater"), "COMPARE_GREATERTHANOREQUALTO": (">=", "greater_equal"),
}  # fmt: skip
COMPUTED = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_FORMS = {  # how a part is written, and what it does, by the name of Arrow's kernel
    "CONJUNCTION_AND": (" AND ", "and_kleene"), "CONJUNCTION_OR": (" OR ", "or_kleene"),
    "OPERATOR_NOT": ("NOT {0}", "invert"), "OPERATOR_IS_NULL": ("{0} IS NULL", "is_null"),
    "OPERATOR_IS_NOT_NULL": ("{0} IS NOT NULL", "is_valid"),
}  # fmt: skip


class Unknown(Exception):
    """An expression that is not read here."""


@dataclass(frozen=True)
class ExpressionPart:
    """A part of an expression: what it does to its own parts, and its text, which DuckDB can be asked about."""

    does: str
    parts: tuple[ExpressionPart, ...]
    text: str
    constant: bool = False

    def all(self) -> Iterator[ExpressionPart]:
        yield self
        for part in self.parts:
            yield from part.all()


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> ExpressionPart:
    """The parts of one expression, or `Unknown`."""
    ((found,),) = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT ({sql})"]).fetchall()
    statements = json.loads(found).get("statements", ())
    if len(statements) != 1:
        raise Unknown
    node = statements[0]["node"]
    if node["from_table"]["type"] != "EMPTY" or len(node["select_list"]) != 1:
        raise Unknown
    return _part(node["select_list"][0], [MOST_PARTS])


def _part(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    left[0] -= 1
    kind = node["class"]
    if left[0] < 0 or kind not in _READ:
        raise Unknown
    return _READ[kind](node, left)


def _made(does: str, parts: Sequence[ExpressionPart], text: str) -> ExpressionPart:
    return ExpressionPart(does, tuple(parts), f"({text})", all(p.constant for p in parts))


def _column(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    (name,) = node["column_names"] if len(node["column_names"]) == 1 else (None,)
    if name is None:
        raise Unknown
    return ExpressionPart(name, (), quote(name))


def _constant(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    kind, text = node["literal"]["kind"], node["literal"].get("text", "")
    written = {"INTEGER": text, "NUMERIC": text, "BOOLEAN": text, "STRING": literal(text), "NULL_LITERAL": "NULL"}
    if kind not in written:
        raise Unknown
    return ExpressionPart("NULL" if kind == "NULL_LITERAL" else "constant", (), written[kind], constant=True)


def _cast(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    name = node["type_expr"]["type_name"].upper()
    if node["try_cast"] or node["type_expr"]["children"] or name not in CASTS:
        raise Unknown
    inner = _part(node["child"], left)
    return _made("cast", [inner], f"CAST({inner.text} AS {name})")


def _comparison(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    sign, does = COMPARED.get(node["type"], ("", ""))
    if not sign:
        raise Unknown
    parts = _part(node["left"], left), _part(node["right"], left)
    return _made(does, parts, f"{parts[0].text} {sign} {parts[1].text}")


def _conjunction(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    word, does = _FORMS[node["type"]]
    parts = [_part(n, left) for n in node["children"]]
    return _made(does, parts, word.join(p.text for p in parts))


def _operator(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    kind, parts = node["type"], [_part(n, left) for n in node["children"]]
    listed = ", ".join(p.text for p in parts)
    if kind == "OPERATOR_COALESCE":
        return _made("coalesce", parts, f"coalesce({listed})")
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        among = ", ".join(p.text for p in parts[1:])
        word = "IN" if kind == "COMPARE_IN" else "NOT IN"
        return _made(word, parts, f"{parts[0].text} {word} ({among})")
    form, does = _FORMS[kind]
    return _made(does, parts, form.format(*(p.text for p in parts)))


def _between(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    parts = [_part(node[n], left) for n in ("input", "lower", "upper")]
    return _made("between", parts, f"{parts[0].text} BETWEEN {parts[1].text} AND {parts[2].text}")


def _case(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    parts = [_part(check[n], left) for check in node["case_checks"] for n in ("when_expr", "then_expr")]
    parts.append(_part(node["else_expr"], left))
    whens = " ".join(f"WHEN {when.text} THEN {then.text}" for when, then in zip(parts[:-1:2], parts[1::2], strict=True))
    return _made("case", parts, f"CASE {whens} ELSE {parts[-1].text} END")


def _function(node: Mapping[str, Any], left: list[int]) -> ExpressionPart:
    name = node["function_name"]
    if not node["is_operator"] or node["distinct"] or node["filter"] is not None:
        raise Unknown
    parts = [_part(argument["expression"], left) for argument in node["arguments"]]
    if name == "-" and len(parts) == 1:
        return _made("negate", parts, f"-{parts[0].text}")
    if len(parts) != 2 or name not in (*COMPUTED, "/", "%"):
        raise Unknown
    return _made(name, parts, f"{parts[0].text} {name} {parts[1].text}")


_READ: Mapping[str, Callable[[Mapping[str, Any], list[int]], ExpressionPart]] = {
    "COLUMN_REF": _column, "CONSTANT": _constant, "CAST": _cast, "COMPARISON": _comparison, "BETWEEN": _between,
    "CONJUNCTION": _conjunction, "OPERATOR": _operator, "CASE": _case, "FUNCTION": _function,
}  # fmt: skip
