"""Resolved trees as text for DuckDB: what is not written here cannot be said to DuckDB.

A rule per kind of node says what it becomes: operators and keywords from this page, functions, types, parts of dates
and units from closed lists, names and texts through `quote` and `literal`, columns as `Ref`s. A node without a rule, or
with an argument its rule does not know, is refused. So no text of a query passes through, and no SELECT, FROM or second
statement can come out. Operands are written in the order and with the parentheses they had, so DuckDB's precedence
holds.

Cost: linear, without recursion, so that the length of a chain of operators is bounded by DuckDB and not by Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sqlglot import exp

from windrow.cql.builtins import (
    AGGREGATES,
    ARITIES,
    COLLATIONS,
    DATE_PARTS,
    HOLISTIC,
    INTERVAL_UNITS,
    LIST_AGGREGATES,
    LIST_AGGREGATORS,
    REWRITTEN,
    SCALARS,
    names,
)
from windrow.cql.type_names import UnknownType, type_name
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.plan.expr import Part, Ref
from windrow.scalar_engine import literal, quote

Piece = Part | exp.Expr
Rule = Callable[[exp.Expr], Sequence[Piece]]

_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class Refused(Exception):
    """What a query may not say, and the node that says it. `function`: the name, if it is a call."""

    def __init__(
        self,
        node: exp.Expr,
        what: str,
        hint: str | None = None,
        function: str | None = None,
        error: type[WindrowError] = UnsupportedError,
    ) -> None:
        super().__init__(what)
        self.node, self.what, self.hint, self.function, self.error = node, what, hint, function, error


def render(tree: exp.Expr, column: Rule | None = None, more: Mapping[type[exp.Expr], Rule] | None = None) -> list[Part]:
    """The texts and `Ref`s of a resolved tree, or `Refused`.

    >>> tree = exp.Add(this=exp.column("s.a", quoted=True), expression=exp.Literal.number(1))
    >>> render(tree)
    [Ref(name='s.a'), ' + 1']
    """
    found: list[Part] = []
    stack: list[Piece] = [tree]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.Expr):
            stack.extend(reversed(_expand(part, column, more)))
        elif isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found


def _expand(node: exp.Expr, column: Rule | None, more: Mapping[type[exp.Expr], Rule] | None) -> Sequence[Piece]:
    kind = type(node)
    if column is not None and kind is exp.Column:
        return column(node)
    if more is not None and kind in more:
        return more[kind](node)
    if kind not in _RULES:
        raise _unknown(node)
    rule, known = _RULES[kind]
    if extra := _strange(node, known):
        raise Refused(node, f"{extra[0].replace('_', ' ')} in {node.key.upper()}")
    return rule(node)


def _unknown(node: exp.Expr) -> Refused:
    if isinstance(node, exp.Star):
        return Refused(node, "* cannot stand in an expression", "name the columns", error=BindingError)
    if isinstance(node, exp.Func):
        return Refused(node, node.sql_name().lower(), function=node.sql_name().lower())
    if isinstance(node, exp.Comprehension):
        return Refused(node, "a list comprehension", "write list_transform(l, lambda x: x + 1)")
    if isinstance(node, (exp.Placeholder, exp.Parameter)):
        return Refused(node, "a parameter outside of a template", "write the value")
    return Refused(node, f"{node.key.upper()} in an expression")


# -- operators -----------------------------------------------------------------------------------------------

_BINARY: Mapping[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%", exp.DPipe: "||",
    exp.And: "AND", exp.Or: "OR",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>",
    exp.ArrayContainsAll: "@>", exp.ArrayContainedBy: "<@", exp.ArrayOverlaps: "&&", exp.Distance: "<->",
    exp.JSONExtract: "->", exp.JSONExtractScalar: "->>",
    exp.Like: "LIKE", exp.ILike: "ILIKE", exp.SimilarTo: "SIMILAR TO", exp.Glob: "GLOB",
}  # fmt: skip
_CALLS: Mapping[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Pow: ("POWER", ("this", "expression")),
    exp.RegexpLike: ("REGEXP_MATCHES", ("this", "expression")),
    exp.StartsWith: ("STARTS_WITH", ("this", "expression")),
    exp.Abs: ("ABS", ("this",)),
    exp.Substring: ("SUBSTRING", ("this", "start", "length")),
    exp.StrPosition: ("STRPOS", ("this", "substr")),
    exp.Overlay: ("OVERLAY", ("this", "expression", "from_", "for_")),
    exp.Map: ("MAP", ("keys", "values")),
}
"""Syntax that is the call of a function."""


def _binary(node: exp.Expr) -> Sequence[Piece]:
    word = _BINARY[type(node)]
    if node.args.get("negate"):
        word = f"NOT {word}"
    left, right = node.this, node.expression
    if isinstance(node, _COMPARISONS) and (collations := _collations(left) or _collations(right)):
        left, right = (_collated(side, collations) for side in (left, right))
    return [left, f" {word} ", right]


def _collations(side: exp.Expr) -> list[str]:
    """The functions that a collated side of a comparison stands for."""
    side = side.unnest()
    if not isinstance(side, exp.Collate):
        return []
    names = side.expression.name.lower().split(".")
    if (unknown := next((n for n in names if n not in COLLATIONS), None)) is not None:
        raise Refused(side, f'the collation "{unknown}"', f"the collations are {', '.join(COLLATIONS)}")
    return [COLLATIONS[n] for n in names]


def _collated(side: exp.Expr, functions: Iterable[str]) -> exp.Expr:
    bare = side.unnest()
    found = bare.this if isinstance(bare, exp.Collate) else side
    for name in functions:
        found = exp.Anonymous(this=name, expressions=[found.copy()])
    return found


def _collate(node: exp.Expr) -> Sequence[Piece]:
    raise Refused(node, "COLLATE outside of a comparison", "write a COLLATE nocase = b, or lower(a)")


def _call_of(node: exp.Expr) -> Sequence[Piece]:
    name, keys = _CALLS[type(node)]
    return _call(name, [node.args[k] for k in keys if node.args.get(k) is not None])


def _call(name: str, arguments: Iterable[Piece]) -> Sequence[Piece]:
    return [f"{name}(", *_listed(arguments), ")"]


def _listed(parts: Iterable[Piece]) -> list[Piece]:
    found: list[Piece] = []
    for part in parts:
        found += [", ", part] if found else [part]
    return found


def _not(node: exp.Expr) -> Sequence[Piece]:
    """NOT stands where it was written: `a IS NOT NULL`, `a NOT IN (1)`, `a NOT BETWEEN 1 AND 2`, or before."""
    inner = node.this
    if isinstance(inner, exp.Is):
        return [inner.this, " IS NOT ", inner.expression]
    if isinstance(inner, exp.In) and not _strange(inner, ("this", "expressions")):
        return [inner.this, " NOT IN (", *_listed(inner.expressions), ")"]
    return ["NOT ", inner]


def _strange(node: exp.Expr, known: Collection[str]) -> list[str]:
    """The arguments of a node that its rule does not know."""
    return [name for name, value in node.args.items() if name not in known and value not in (None, False, [])]


# -- values --------------------------------------------------------------------------------------------------


def _column(node: exp.Expr) -> Sequence[Piece]:
    if not node.meta.get("resolved") and len(node.parts) > 1:  # type: ignore[attr-defined]
        raise Refused(node, f'the column "{node.name}" here')
    return [Ref(node.name)]


def _literal(node: exp.Expr) -> Sequence[Piece]:
    text = str(node.this)
    if node.is_string:
        return [literal(text)]
    if not _NUMBER.fullmatch(text):
        raise Refused(node, f"{text} is not a number")
    return [text]


def _parameter(node: exp.Expr) -> Sequence[Piece]:
    """A bare identifier is the parameter of a lambda around it."""
    above = node.parent
    while above is not None:
        if isinstance(above, exp.Lambda) and any(p.name.lower() == node.name.lower() for p in above.expressions):
            return [quote(node.name)]
        above = above.parent
    raise Refused(node, f'the name "{node.name}" here')


def _lambda(node: exp.Expr) -> Sequence[Piece]:
    if not isinstance(node.parent, exp.Anonymous):
        raise Refused(node, "a lambda outside of a function's arguments")
    return [f"LAMBDA {', '.join(quote(p.name) for p in node.expressions)} : ", node.this]


def _interval(node: exp.Expr) -> Sequence[Piece]:
    value, unit = node.this, node.args.get("unit")
    if value is None:
        raise Refused(node, "an INTERVAL without a length", "write INTERVAL 5 MINUTES")
    if unit is None:
        return ["INTERVAL ", value]
    if not isinstance(unit, exp.Var) or unit.name.upper() not in INTERVAL_UNITS:
        raise Refused(node, f"the unit {unit.name or unit.key.upper()}", "write INTERVAL 5 MINUTES, HOURS or DAYS")
    if node.args.get("fraction_in_string"):  # written '1.5 hours'; '1.5' HOURS would be one hour
        return [f"INTERVAL {literal(f'{value.name} {unit.name}')}"]
    if isinstance(value, (exp.Literal, exp.Paren)):
        return ["INTERVAL ", value, f" {unit.name.upper()}"]
    return ["INTERVAL (", value, f") {unit.name.upper()}"]


def _extract(node: exp.Expr) -> Sequence[Piece]:
    part = node.this.name.upper()
    if part not in DATE_PARTS:
        raise Refused(node, f'"{node.this.name}" is no part of a time', "write EXTRACT(HOUR FROM ts)")
    return [f"EXTRACT({part} FROM ", node.expression, ")"]


def _cast(node: exp.Expr) -> Sequence[Piece]:
    word = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    try:
        return [f"{word}(", node.this, f" AS {type_name(node.args['to'])})"]
    except UnknownType as unknown:
        raise Refused(node, f'unknown type "{unknown.name}"', unknown.hint, error=BindingError) from None


def _case(node: exp.Expr) -> Sequence[Piece]:
    parts: list[Piece] = ["CASE"]
    if node.this is not None:
        parts += [" ", node.this]
    for branch in node.args["ifs"]:
        parts += [" WHEN ", branch.this, " THEN ", branch.args["true"]]
    if node.args.get("default") is not None:
        parts += [" ELSE ", node.args["default"]]
    return [*parts, " END"]


def _if(node: exp.Expr) -> Sequence[Piece]:
    other = [" ELSE ", node.args["false"]] if node.args.get("false") is not None else []
    return ["CASE WHEN ", node.this, " THEN ", node.args["true"], *other, " END"]


def _bracket(node: exp.Expr) -> Sequence[Piece]:
    whole = isinstance(node.this, (exp.Column, exp.Paren, exp.Anonymous, exp.Array, exp.Bracket, exp.Identifier))
    base: list[Piece] = [node.this] if whole else ["(", node.this, ")"]
    return [*base, "[", *_listed(node.expressions), "]"]


def _slice(node: exp.Expr) -> Sequence[Piece]:
    if not isinstance(node.parent, exp.Bracket):
        raise Refused(node, "a slice outside of brackets")
    ends = [[] if e is None else [e] for e in (node.this, node.expression)]
    step = node.args.get("step")
    return [*ends[0], ":", *ends[1], *([":", step] if step is not None else [])]


def _struct(node: exp.Expr) -> Sequence[Piece]:
    parts: list[Piece] = []
    for entry in node.expressions:
        if not isinstance(entry, exp.PropertyEQ):
            raise Refused(entry, "a struct's field without a name", "write {'name': value}")
        parts += [", " if parts else "", f"{literal(entry.this.name)}: ", entry.expression]
    return ["{", *parts, "}"]


def _map(node: exp.Expr) -> Sequence[Piece]:
    parts: list[Piece] = []
    entries = node.this.expressions if isinstance(node.this, exp.Struct) else [node]
    for entry in entries:
        if not isinstance(entry, exp.PropertyEQ):
            raise Refused(entry, "this way to write a map", "write MAP {'key': value}")
        parts += [", " if parts else "", entry.this, ": ", entry.expression]
    return ["MAP {", *parts, "}"]


def _named(node: exp.Expr) -> Sequence[Piece]:
    """`name := value` among the arguments of a function."""
    if not isinstance(node.parent, exp.Anonymous):
        raise Refused(node, ":= outside of a function's arguments")
    return [f"{quote(node.this.name)} := ", node.expression]


def _dot(node: exp.Expr) -> Sequence[Piece]:
    """A field of a struct, or a function called as a method: `x.f(y)` is `f(x, y)`."""
    base, member = node.this, node.expression
    if isinstance(member, exp.Identifier):
        return _call("STRUCT_EXTRACT", [base, literal(member.name)])
    if isinstance(member, exp.Anonymous):
        return [exp.Anonymous(this=member.name, expressions=[base.copy(), *(a.copy() for a in member.expressions)])]
    raise Refused(node, f"{member.key.upper()} after a dot")


def _trim(node: exp.Expr) -> Sequence[Piece]:
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(str(node.args.get("position") or "").upper(), "TRIM")
    return _call(name, [a for a in (node.this, node.expression) if a is not None])


def _function(node: exp.Expr) -> Sequence[Piece]:
    name = node.name.lower()
    if name not in SCALARS:
        raise Refused(node, name, function=name)
    if len(node.expressions) < ARITIES.get(name, 0):
        raise Refused(node, name, function=name)
    if name in LIST_AGGREGATORS:
        which = node.expressions[1] if len(node.expressions) > 1 else None
        if not isinstance(which, exp.Literal) or which.name.lower() not in LIST_AGGREGATES:
            known = ", ".join(sorted(LIST_AGGREGATES))
            raise Refused(node, f"{name} without the name of an aggregate", f"the second argument is one of {known}")
    return _call(name.upper(), node.expressions)


def _aggregate(node: exp.Expr) -> Sequence[Piece]:
    """A call in a select item as written, whose name is asked for: an aggregate, or a scalar."""
    name = node.name.lower()
    known = name in AGGREGATES or name in HOLISTIC or name in REWRITTEN
    return _call(name.upper(), node.expressions) if known else _function(node)


AGGREGATE_SYNTAX: Mapping[type[exp.Expr], Rule] = {
    exp.Anonymous: _aggregate,
    exp.Star: lambda n: ["*"],
    exp.Distinct: lambda n: ["DISTINCT ", *_listed(n.expressions)],
    exp.Filter: lambda n: [n.this, " FILTER (WHERE ", n.expression.this, ")"],
}
"""Rules for what only stands in a select item before its aggregates are taken out of it."""

_RULES: Mapping[type[exp.Expr], tuple[Rule, frozenset[str]]] = {
    kind: (rule, names(known))
    for rule, known, kinds in (
        (_binary, "this expression negate typed safe only_json_types scalar_only", tuple(_BINARY)),
        (_call_of, "this expression start length substr from_ for_ keys values", tuple(_CALLS)),
        (lambda n: [n.this, " IS ", n.expression], "this expression", (exp.Is,)),
        (lambda n: [n.this, " ESCAPE ", n.expression], "this expression", (exp.Escape,)),
        (lambda n: [n.this, " AT TIME ZONE ", n.args["zone"]], "this zone", (exp.AtTimeZone,)),
        (lambda n: ["(", n.this, ")"], "this", (exp.Paren,)),
        (lambda n: ["~", n.this], "this", (exp.BitwiseNot,)),
        (lambda n: ["NULL"], "", (exp.Null,)),
        (lambda n: ["TRUE" if n.this else "FALSE"], "this", (exp.Boolean,)),
        (lambda n: [literal(str(n.this))], "this", (exp.RawString, exp.ByteString)),
        (lambda n: ["(", *_listed(n.expressions), ")"], "expressions", (exp.Tuple,)),
        (lambda n: ["[", *_listed(n.expressions), "]"], "expressions value_constructor bracket_notation", (exp.Array,)),
        (_not, "this", (exp.Not,)),
        (lambda n: ["- " if isinstance(n.this, exp.Neg) else "-", n.this], "this", (exp.Neg,)),  # -- opens a comment
        (lambda n: [n.this, " IN (", *_listed(n.expressions), ")"], "this expressions", (exp.In,)),
        (lambda n: [n.this, " BETWEEN ", n.args["low"], " AND ", n.args["high"]], "this low high", (exp.Between,)),
        (lambda n: ["ANY(", n.this.this if isinstance(n.this, exp.Paren) else n.this, ")"], "this", (exp.Any,)),
        (_collate, "this expression", (exp.Collate,)),
        (_column, "this table db catalog", (exp.Column,)),
        (_literal, "this is_string", (exp.Literal,)),
        (_parameter, "this quoted", (exp.Identifier,)),
        (_lambda, "this expressions colon", (exp.Lambda,)),
        (_interval, "this unit fraction_in_string", (exp.Interval,)),
        (_extract, "this expression", (exp.Extract,)),
        (_cast, "this to safe", (exp.Cast, exp.TryCast)),
        (_case, "this ifs default", (exp.Case,)),
        (_if, "this true false", (exp.If,)),
        (_bracket, "this expressions offset safe", (exp.Bracket,)),
        (_slice, "this expression step", (exp.Slice,)),
        (_struct, "expressions", (exp.Struct,)),
        (_map, "this", (exp.ToMap,)),
        (_named, "this expression", (exp.PropertyEQ, exp.Kwarg)),
        (_dot, "this expression", (exp.Dot,)),
        (_trim, "this expression position", (exp.Trim,)),
        (_function, "this expressions", (exp.Anonymous,)),
    )
    for kind in kinds
}
