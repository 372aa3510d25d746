"""An expression as DuckDB binds it: every function with the types that it gets, every cast that DuckDB adds.

DuckDB binds a SELECT of the expression over one row of nulls and writes its plan as JSON, before any rule has touched
it. Nothing is parsed or typed here, so what is read is what is computed. What this page does not name is "unknown".

Cost: 0.3 to 0.8 ms for an expression that nobody has asked about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from windrow.plan.expr import Part, Ref, sql_of
from windrow.plan.literal_classes import by_class
from windrow.scalar_engine import binding, type_name


class BoundType(NamedTuple):
    """A type by DuckDB's name; `width` and `scale` of a DECIMAL."""

    name: str
    width: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"{self.name}({self.width}, {self.scale})" if self.width else self.name


@dataclass(frozen=True)
class BoundPart:
    """A part of an expression: what it does to its own parts, and the type of what it makes.

    `does`: the name of a function, or "column", "constant", "cast", "try_cast", "try", "case" (conditions and values in
    turn, then the last value), "test" (comparisons, logic, null tests, IN), "coalesce", "unknown". `value`: of a
    constant, as the plan has it.
    """

    does: str
    type: BoundType
    parts: tuple[BoundPart, ...] = ()
    value: Any = None

    def all(self) -> Iterator[BoundPart]:
        """The part and those below it."""
        yield self
        for part in self.parts:
            yield from part.all()


def question(parts: Sequence[Part], types: Mapping[str, pa.DataType]) -> str | None:
    """The SELECT that computes an expression, whose columns are named by their places; None if a type is not known.

    Expressions that differ in numbers of one class are one question.

    >>> question((Ref("s.a"), " > 1"), {"s.a": pa.int64()})
    'SELECT (c0 > 1) AS c FROM (SELECT CAST(NULL AS BIGINT) AS c0)'
    """
    names = dict.fromkeys(p.name for p in parts if isinstance(p, Ref))
    places = {name: f"c{place}" for place, name in enumerate(names)}
    given = [type_name(types[name]) for name in names]
    if None in given:
        return None
    row = ", ".join(f"CAST(NULL AS {type_}) AS {place}" for type_, place in zip(given, places.values(), strict=True))
    return f"SELECT ({by_class(sql_of(parts, places.__getitem__))}) AS c{f' FROM (SELECT {row})' if row else ''}"


def bound(asked: str) -> BoundPart | None:
    """The expression of a question as DuckDB binds it; None if it does not."""
    with binding() as connection:
        ((found,),) = connection.execute("SELECT json_serialize_plan(?, optimize := false)", [asked]).fetchall()
    try:
        plan = json.loads(found)
    except ValueError:  # a constant that is no number is written as one
        return None
    if plan["error"] or len(plan["plans"]) != 1 or plan["plans"][0]["type"] != "LOGICAL_PROJECTION":
        return None
    (whole,) = plan["plans"][0]["expressions"]
    return _part(whole)


def _part(node: Mapping[str, Any]) -> BoundPart:
    parts, kind = [_part(n) for n in node.get("children", ())], node["expression_class"]
    match kind:
        case "BOUND_REF":
            return BoundPart("column", _type(node["return_type"]))
        case "BOUND_CONSTANT":
            return BoundPart("constant", _type(node["value"]["type"]), value=node["value"].get("value"))
        case "BOUND_CONJUNCTION":
            return BoundPart("test", _BOOLEAN, tuple(parts))
        case "BOUND_BETWEEN":
            return BoundPart("test", _BOOLEAN, tuple(_part(node[n]) for n in ("input", "lower", "upper")))
        case "BOUND_CASE":
            parts = [_part(check[n]) for check in node["case_checks"] for n in ("when_expr", "then_expr")]
            return BoundPart("case", _type(node["return_type"]), (*parts, _part(node["else_expr"])))
        case "BOUND_FUNCTION" | "BOUND_OPERATOR":
            return BoundPart(_does(node), _type(node["return_type"]), tuple(parts))
    return BoundPart("unknown", BoundType(kind))


_BOOLEAN = BoundType("BOOLEAN")
_OPERATORS = {
    **dict.fromkeys(("OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"), "test"),
    "OPERATOR_COALESCE": "coalesce",
    "OPERATOR_TRY": "try",
}


def _does(node: Mapping[str, Any]) -> str:
    kind: str = node["type"]
    if kind == "OPERATOR_CAST":
        return "try_cast" if node["function_data"]["try_cast"] else "cast"
    if kind == "BOUND_FUNCTION":
        name: str = node["qname"]["path"][-1]
        return name
    return "test" if kind.startswith("COMPARE_") else _OPERATORS.get(kind, "unknown")


def _type(given: Mapping[str, Any]) -> BoundType:
    info = given.get("type_info") or {}
    return BoundType(given["id"], info.get("width", 0), info.get("scale", 0))
