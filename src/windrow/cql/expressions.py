"""From resolved trees to `Expr`: rendering, types, and user functions hoisted into `Call` nodes.

A `Pipeline` is the chain of one-input nodes above a join: expressions are bound at its top, and a call of a
user's function adds the nodes that compute it, so that the rest of the expression sees a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql import types
from windrow.cql.bounds import EvaluationGrid, symbols, with_bounds
from windrow.cql.dialect import WSTREAM, render
from windrow.cql.predicates import predicate_of
from windrow.cql.scope import did_you_mean, resolved, span_of
from windrow.cql.source import ScriptText
from windrow.cql.types import DuckDBRefusal
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import Call, Filter, Node, Project
from windrow.scalar_engine import quote

AGGREGATES: Mapping[str, str] = {
    "count": "count", "count_star": "count", "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max",
    "variance": "variance", "var_samp": "variance", "stddev": "stddev", "stddev_samp": "stddev",
    "var_pop": "var_pop", "stddev_pop": "stddev_pop", "median": "median",
    "quantile": "quantile", "quantile_disc": "quantile", "quantile_cont": "quantile_cont", "top_k": "top_k",
}  # fmt: skip
"""Aggregate functions by the name written, with the kind the plan calls them."""

ORDERED = frozenset(("arg_max", "arg_min", "first", "last", "any_value", "string_agg", "list", "mode"))
"""Aggregates whose value depends on the order of rows."""

HOLISTIC: Mapping[str, str] = {
    "arg_max": "arg_max", "max_by": "arg_max", "argmax": "arg_max",
    "arg_min": "arg_min", "min_by": "arg_min", "argmin": "arg_min",
    "first": "first", "last": "last", "first_value": "first", "last_value": "last", "any_value": "any_value",
    "arbitrary": "first", "string_agg": "string_agg", "group_concat": "string_agg", "listagg": "string_agg",
    "list": "list", "array_agg": "list", "bit_and": "bit_and", "bit_or": "bit_or", "bit_xor": "bit_xor",
    "product": "product", "geometric_mean": "geomean", "geomean": "geomean", "histogram": "histogram", "mad": "mad",
    "entropy": "entropy",
    **{f: f for f in (
        "mode", "corr", "covar_pop", "covar_samp", "skewness", "kurtosis", "kurtosis_pop", "regr_avgx", "regr_avgy",
        "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "sem",
    )},
}  # fmt: skip
"""Aggregates that are computed anew from all rows of a group, by the name written, with DuckDB's."""

REWRITTEN = frozenset(("count_if", "countif", "bool_and", "bool_or", "every", "logical_and", "logical_or"))
"""Aggregates that are others with another argument."""

_VOLATILE = {
    "now", "current_timestamp", "transaction_timestamp", "get_current_timestamp", "today", "current_date",
    "get_current_time", "current_localtime", "current_localtimestamp", "random", "uuid", "gen_random_uuid", "uuidv4",
    "uuidv7", "nextval", "currval", "setseed", "txid_current",
}  # fmt: skip
_ROWS = frozenset(("unnest", "unlist", "generate_subscripts", "regexp_split_to_table"))
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_NUMBER = re.compile(r"\d{1,9}|\d{1,9}\.\d{1,9}")  # those whose type DuckDB tells from the digits
_COMPLETE = (exp.Column, exp.Literal, exp.Anonymous, exp.Cast, exp.Paren, exp.Null, exp.Boolean, exp.Case)


@dataclass
class BindingContext:
    """What binding one query knows: the catalog, the text, the types of all internal columns, the names taken."""

    catalog: Catalog
    source: ScriptText
    types: dict[str, pa.DataType] = field(default_factory=dict)  # of every internal column
    taken: set[str] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)  # where each alias of FROM was written

    def fresh(self, name: str, type_: pa.DataType) -> str:
        """A unique internal name like `name`, with its type noted."""
        unique, n = name, 1
        while unique.lower() in self.taken:
            n += 1
            unique = f"{name}#{n}"
        self.taken.add(unique.lower())
        self.types[unique] = type_
        return unique

    def expr(self, tree: exp.Expr) -> Expr:
        """The expression of a resolved tree, with the type DuckDB gives it."""
        if has_user_function(tree, self.catalog):
            raise UnsupportedError(
                "a user function in the condition of an outer join or between a subquery and the query around it",
                hint="compute it in a subquery in FROM",
                span=span_of(tree, self.source),
            )
        check_functions(tree, self)
        return self.typed(tree)

    def typed(self, tree: exp.Expr) -> Expr:
        """The expression of a resolved tree whose functions have been checked."""
        if isinstance(tree, exp.Column):
            return column(tree.name, self.types[tree.name])
        pieces = _operand(tree)
        columns = {text: self.types[text] for hole, text in pieces if hole}
        try:
            type_ = types.expression_type(_shape(tree, pieces), columns)
        except DuckDBRefusal as refusal:
            raise self._mismatch(tree, refusal) from None
        return Expr(self._parts(pieces), type_)

    def text(self, tree: exp.Expr) -> Expr:
        """The expression of a comparison or another test, which is a boolean."""
        return Expr(self._parts(_operand(tree)), pa.bool_())

    def _parts(self, pieces: list[tuple[bool, str]]) -> tuple[str | Ref, ...]:
        parts: list[str | Ref] = []
        for hole, text in pieces:
            parts += self._hole(text) if hole else [text]
        return tuple(parts)

    def _hole(self, name: str) -> list[str | Ref]:
        hugeint = self.types[name] == types.HUGEINT
        return ["CAST(", Ref(name), " AS HUGEINT)"] if hugeint else [Ref(name)]

    def _mismatch(self, tree: exp.Expr, refusal: DuckDBRefusal) -> WindrowError:
        """Place DuckDB's refusal at the smallest part that it refuses."""
        if isinstance(refusal, types.NotKept):
            return UnsupportedError(
                "a value of this type in an answer or between operators",
                detail=refusal.short,
                hint=f"CAST it AS {refusal.instead}",
                span=span_of(tree, self.source),
            )
        for call in tree.find_all(exp.Anonymous):
            if call.name.lower() == refusal.missing:
                return unknown_function(call, self)
        for part in tree.iter_expressions():
            if not isinstance(part, exp.Condition) or isinstance(part, exp.Interval) or part.find(exp.Lambda):
                continue
            try:
                self.typed(part)
            except BindingError as inner:
                return inner
        return BindingError(
            "type mismatch",
            detail=refusal.short,
            hint="CAST one side to the type that is meant",
            span=span_of(tree, self.source),
        )

    def predicate(self, tree: exp.Expr, clause: str) -> Expr:
        """The expression of a condition: a boolean."""
        expr = self.expr(tree)
        if pa.types.is_boolean(expr.type):
            return replace(expr, predicate=predicate_of(tree, self))
        if pa.types.is_integer(expr.type) or pa.types.is_null(expr.type):
            return Expr(("CAST(", *expr.parts, " AS BOOLEAN)"), pa.bool_())
        raise BindingError(
            f"{clause} needs a condition, not a {types.sql_name(expr.type)}",
            hint="compare it with something, such as a > 0",
            span=span_of(tree, self.source),
        )


@dataclass
class Pipeline:
    """A node that grows upwards, and the user-function calls it has computed."""

    context: BindingContext
    node: Node
    calls: dict[str, str] = field(default_factory=dict)
    grid: EvaluationGrid | None = None

    def expr(self, tree: exp.Expr) -> Expr:
        """Bind a resolved tree at the top of the pipeline."""
        self.provide(tree)
        return self.context.expr(self.hoist(tree))

    def provide(self, tree: exp.Expr) -> None:
        """Compute the bounds of the window that a tree reads."""
        self.node = with_bounds(self.node, symbols(tree), self.grid)

    def filter(self, tree: exp.Expr, clause: str) -> None:
        """Keep the rows for which the condition holds."""
        self.provide(tree)
        predicate = self.context.predicate(self.hoist(tree), clause)
        self.node = Filter(self.node, predicate)

    def hoist(self, tree: exp.Expr) -> exp.Expr:
        """The tree with every call of a user function replaced by the column that a `Call` computes."""
        if not has_user_function(tree, self.context.catalog):
            return tree
        return tree.copy().transform(self._hoist_call, copy=False)

    def _is_user(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Anonymous) and node.name.lower() in self.context.catalog.functions

    def _hoist_call(self, node: exp.Expr) -> exp.Expr:
        if not self._is_user(node):
            return node
        function = self.context.catalog.functions[node.name.lower()]
        arguments = [self.hoist(a) for a in node.expressions]
        key = f"{function.name}({', '.join(a.sql() for a in arguments)})"
        if key not in self.calls:
            names = tuple(self.materialise(a) for a in arguments)
            output = self.context.fresh(f"{function.name}({', '.join(names)})", function.returns)
            self.node = Call(self.node, output, function.name, names, function.returns)
            self.calls[key] = output
        return resolved(self.calls[key], node)

    def materialise(self, tree: exp.Expr) -> str:
        """The name of a column that holds the tree's value, added by a `Project` if there is none."""
        expr = self.context.expr(tree)
        if expr.column is not None and expr.column in self.node.schema:
            return expr.column
        name = self.context.fresh(expr.sql(lambda n: n), expr.type)
        self.node = extend(self.node, {name: expr})
        return name


def extend(node: Node, added: Mapping[str, Expr]) -> Node:
    """The node's columns and more."""
    kept = tuple((n, column(n, t)) for n, t in node.schema.items())
    return Project(node, kept + tuple(added.items()))


def _operand(tree: exp.Expr) -> list[tuple[bool, str]]:
    """The pieces of a tree, in parentheses if it needs them."""
    pieces = render(tree)
    if isinstance(tree, _COMPLETE):
        return pieces
    (first, head), *rest = pieces
    pieces = [(False, "("), *pieces] if first else [(False, "(" + head), *rest]
    (last, tail) = pieces[-1]
    return [*pieces, (False, ")")] if last else [*pieces[:-1], (False, tail + ")")]


def _shape(tree: exp.Expr, pieces: list[tuple[bool, str]]) -> str:
    """An expression of the same type that many trees share: DuckDB is asked about one comparison for all numbers of as
    many digits.

    The type of a literal is made by its digits, and whatever it is, a comparison that can be made is a boolean.
    """
    sql = "".join(quote(text) if hole else text for hole, text in pieces)
    if not isinstance(tree, _COMPARISONS) or not isinstance(tree.expression, exp.Literal):
        return sql
    number = tree.expression.name
    if tree.expression.is_string or not _NUMBER.fullmatch(number) or not sql.endswith(f" {number})"):
        return sql
    zeros = len(number) - len(number.lstrip("0"))  # they say nothing, so they count for no width
    return f"{sql[: -len(number) - 1]}{number[:zeros]}{re.sub(r'[0-9]', '1', number[zeros:])})"


def has_user_function(tree: exp.Expr, catalog: Catalog) -> bool:
    """Does the tree call a function the user registered?"""
    return bool(catalog.functions) and any(f.name.lower() in catalog.functions for f in tree.find_all(exp.Anonymous))


def is_aggregate(node: exp.Expr, catalog: Catalog) -> bool:
    """Is the node itself a call of an aggregate function (one we run or one only DuckDB knows)?"""
    if _is_over(node):
        return False
    if isinstance(node, (exp.Filter, exp.WithinGroup)):
        return True
    if not isinstance(node, exp.Anonymous):
        return False
    name = node.name.lower()
    if name in catalog.functions:
        return False
    known = name in AGGREGATES or name in HOLISTIC or name in REWRITTEN
    return known or types.functions().get(name) == "aggregate"


def _is_over(node: exp.Expr) -> bool:
    """Is the node the function of an OVER, and so computed for every row?"""
    while isinstance(node.parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)) and node.arg_key == "this":
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def find_aggregate(tree: exp.Expr, catalog: Catalog) -> exp.Expr | None:
    """The first aggregate call in the tree, not looking into subqueries."""
    for node in tree.walk(prune=lambda n: isinstance(n, (exp.Query, exp.Subquery))):
        if is_aggregate(node, catalog):
            return node
    return None


def check_functions(tree: exp.Expr, context: BindingContext) -> None:
    """Refuse what an expression may not hold: unknown or volatile functions, comparisons that cannot hold."""
    for node in tree.walk():
        if isinstance(node, exp.Star):
            span = span_of(node, context.source)
            raise BindingError("* cannot stand in an expression", hint="name the columns", span=span)
        if isinstance(node, (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime)):
            raise _volatile(node.sql_name().lower(), context, node)
        if isinstance(node, exp.Anonymous):
            _check_call(node, context)
        for one, other in _compared(node):
            _check_comparison(one, other, context)


def _volatile(name: str, context: BindingContext, node: exp.Expr) -> UnsupportedError:
    return UnsupportedError(
        f"{name}() changes by itself, so an answer would not depend on the rows alone",
        hint="use the stream's time column",
        span=span_of(node, context.source),
    )


def _check_call(node: exp.Anonymous, context: BindingContext) -> None:
    name = node.name.lower()
    if name in context.catalog.functions:
        return
    if name in _VOLATILE:
        raise _volatile(name, context, node)
    if name in _ROWS:
        raise UnsupportedError(
            f"{name}() makes rows, which only UNNEST in a select list may do",
            hint="unnest in a subquery: FROM (SELECT UNNEST(l) AS x FROM s [RANGE 10]) q",
            span=span_of(node, context.source),
        )
    if name == WSTREAM.lower():
        raise BindingError(
            "WSTREAM stands around the whole select list or inside one aggregate",
            hint="write SELECT WSTREAM(*)[ROWS 10] or SUM(WSTREAM(SUM(a))[ROWS 10])",
            span=span_of(node, context.source),
        )


def unknown_function(node: exp.Anonymous, context: BindingContext) -> BindingError:
    """The error for a function that neither the user nor DuckDB has."""
    choices = [*types.functions(), *AGGREGATES, *(f.name for f in context.catalog.functions.values())]
    near = did_you_mean(node.name, choices)
    return BindingError(
        f'unknown function "{node.name}"',
        hint=near or f'register it: windrow.function("{node.name}", fn, returns="boolean")',
        span=span_of(node, context.source),
    )


def _compared(node: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """The pairs of values that a node compares."""
    if isinstance(node, _COMPARISONS):
        yield node.this, node.expression
    elif isinstance(node, exp.Between):
        yield node.this, node.args["low"]
        yield node.this, node.args["high"]
    elif isinstance(node, exp.In):
        for value in node.expressions:
            yield node.this, value


def _check_comparison(one: exp.Expr, other: exp.Expr, context: BindingContext) -> None:
    """DuckDB casts the string of a comparison row by row and fails on the first that is no number: refuse it here."""
    if isinstance(one, exp.Literal):
        one, other = other, one
    if not isinstance(one, exp.Column) or one.name not in context.types:
        return
    left = context.types[one.name]
    if isinstance(other, exp.Literal) and other.is_string and not types.is_string(left):
        if types.can_cast(other.name, left):
            return
        shown = f"{types.sql_name(left)} with '{other.name}'"
    elif isinstance(other, exp.Column) and other.name in context.types:
        right = context.types[other.name]
        if types.comparable(left, right):
            return
        shown = f"{types.sql_name(left)} with {types.sql_name(right)}"
    else:
        return
    raise BindingError(
        "type mismatch",
        detail=f"cannot compare {shown}",
        hint="CAST one side to the type that is meant",
        span=span_of(one, context.source),
    )
