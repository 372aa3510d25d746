"""From resolved trees to `Expr`: what may be called, what an expression may grow to, and the type DuckDB gives it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql import types
from windrow.cql.alike import alike
from windrow.cql.builtins import AGGREGATES, HOLISTIC, REDUCERS, REWRITTEN, SCALARS, names
from windrow.cql.dialect import WSTREAM
from windrow.cql.predicates import predicate_of, with_numbers
from windrow.cql.rendering import Refused, render
from windrow.cql.scope import did_you_mean, span_of
from windrow.cql.source import ScriptText
from windrow.cql.spellings import NAMES as SPELLED
from windrow.cql.synonyms import ELSEWHERE
from windrow.cql.types import DuckDBRefusal
from windrow.cql.value_sizes import COLUMN, LIMIT, MADE, check_value_sizes
from windrow.cql.walks import nodes
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.plan.expr import Expr, Part, Ref, column, sql_of
from windrow.scalar_engine import noted, way_out

PARTS = 10_000
"""The most parts an expression may have with all that it reads from subqueries written out in place."""
_NAME = 200  # internal names are texts of expressions; from here on they are cut
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_TESTS = (*_COMPARISONS, exp.Between, exp.In)
_CALLS = (exp.Anonymous, exp.Filter, exp.WithinGroup)
_NOT_FOR_QUERIES = (
    (
        names(
            """
            now proctime current_timestamp transaction_timestamp get_current_timestamp today current_date
            get_current_time ago
            getdate sysdate sysdatetime mz_now utc_timestamp
            age current_time current_localtime current_localtimestamp localtime localtimestamp random uuid
            gen_random_uuid uuidv4 uuidv7 nextval currval setseed txid_current
            """
        ),
        "{}() changes by itself, so an answer would not depend on the rows alone",
        "use the stream's time column; the last five minutes are a window: FROM s [RANGE 5 MINUTES]; when rows came is "
        "PROCTIME(), on a stream that is declared TIMESTAMP BY ... AS PROCTIME()",
    ),
    (
        names("row_number rank rank_dense dense_rank percent_rank cume_dist ntile lag lead nth_value first_value fill"),
        "{}() looks at the order of rows, and a relation has none",
        "count with COUNT(*), keep the newest with [ROWS 10], or the most frequent with TOP_K(a, 10)",
    ),
    (
        names("rollup cube grouping_sets grouping grouping_id"),
        "{} belongs to GROUP BY",
        "write GROUP BY ROLLUP (a, b), and GROUPING(a) in the select list of such a query",
    ),
    (
        names("unnest unlist generate_subscripts regexp_split_to_table explode"),
        "{}() makes rows, which only UNNEST in a select list may do",
        "unnest in a subquery: FROM (SELECT UNNEST(l) AS x FROM s [RANGE 10]) q",
    ),
    (
        names("columns"),
        "COLUMNS() stands for several columns, which only an item of a select list may",
        "name the columns",
    ),
)
_COMPLETE = (exp.Column, exp.Literal, exp.Anonymous, exp.Cast, exp.Paren, exp.Null, exp.Boolean, exp.Case)


@dataclass
class BindingContext:
    """What binding one query knows: the catalog, the text, the types of all internal columns, the names taken."""

    catalog: Catalog
    source: ScriptText
    types: dict[str, pa.DataType] = field(default_factory=dict)  # of every internal column
    sizes: dict[str, int] = field(default_factory=dict)  # of those that are computed: `growth`, and parts written out
    parts: dict[str, int] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)  # where each alias of FROM was written
    _size: dict[Expr, int] = field(default_factory=dict)
    _unnested: int = 1  # how many times more rows than its input has the query makes by lists that it makes itself

    def fresh(self, name: str, type_: pa.DataType) -> str:
        """A unique internal name like `name`, with its type noted."""
        name = name if len(name) <= _NAME else f"{name[:_NAME]}..."
        unique, n = name, 1
        while unique.lower() in self.taken:
            n += 1
            unique = f"{name}#{n}"
        self.taken.add(unique.lower())
        self.types[unique] = type_
        if not _varies(type_):
            self.sizes[unique] = 1
        return unique

    def computed(self, expr: Expr, name: str | None = None) -> str:
        """A unique internal name for what an expression computes."""
        unique = self.fresh(name or expr.sql(lambda n: n), expr.type)
        size = self._size.get(expr) if expr.column is None else self.sizes.get(expr.column)
        self.sizes.setdefault(unique, COLUMN if size is None else size)
        self.parts[unique] = self._parts(expr)
        return unique

    def merged(self, name: str, *columns: str) -> None:
        """Note that a column holds what others hold."""
        self.sizes.setdefault(name, max(self.sizes.get(c, COLUMN) for c in columns))
        self.parts[name] = max(self.parts.get(c, 1) for c in columns)

    def unnested(self, lists: str, node: exp.Expr) -> None:
        """Note that a column of lists becomes rows: lists that the text makes may not multiply them without bound."""
        self._unnested *= max(1, self.sizes.get(lists, COLUMN) // COLUMN)
        if self._unnested * COLUMN > LIMIT:
            raise UnsupportedError(
                f"UNNEST of up to {self._unnested * COLUMN:,} elements of one row",
                detail="the lists of several UNNEST multiply",
                hint=f"at most {LIMIT:,} rows can be made from one, where a list of the row counts as {COLUMN}",
                span=span_of(node, self.source),
            )

    def expr(self, tree: exp.Expr) -> Expr:
        """The expression of a resolved tree, with the type DuckDB gives it."""
        if isinstance(tree, exp.Column) and self._fits(name := tree.name):
            return column(name, self.types[name])
        if has_user_function(tree, self.catalog):
            raise UnsupportedError(
                "a user function in the condition of an outer join or between a subquery and the query around it",
                hint="compute it in a subquery in FROM",
                span=span_of(tree, self.source),
            )
        found = nodes(tree)
        _check_functions(found, self)
        try:
            size = check_value_sizes(tree, self.sizes)  # before DuckDB is asked anything
            self._check_reductions(found)
            expr = self._typed(tree)
        except Refused as refused:
            raise self._refused(refused) from None
        except DuckDBRefusal as refusal:
            raise self._mismatch(tree, refusal) from None
        self._size[expr] = size
        if self._parts(expr) > PARTS:
            raise UnsupportedError(
                f"an expression of more than {PARTS:,} parts",
                detail="what it reads from subqueries counts, as often as it is read",
                span=span_of(tree, self.source),
            )
        return expr

    def _fits(self, name: str) -> bool:
        """Whether a column has values of a size, and is made of parts, that any expression may have."""
        return self.sizes.get(name, COLUMN) <= LIMIT and self.parts.get(name, 1) <= PARTS

    def _parts(self, expr: Expr) -> int:
        return sum(self.parts.get(p.name, 1) if isinstance(p, Ref) else 1 for p in expr.parts)

    def typed(self, tree: exp.Expr) -> Expr:
        """The expression of a resolved tree whose functions have been checked."""
        try:
            return self._typed(tree)
        except DuckDBRefusal as refusal:
            raise self._mismatch(tree, refusal) from None

    def _typed(self, tree: exp.Expr) -> Expr:
        if isinstance(tree, exp.Column):
            return column(tree.name, self.types[tree.name])
        parts = _operand(tree)
        return Expr(self._read(parts), types.type_of(parts, self.types, lambda sql: alike(tree, sql, self.types)))

    def text(self, tree: exp.Expr) -> Expr:
        """The expression of a comparison or another test, which is a boolean."""
        return Expr(self._read(_operand(tree)), pa.bool_())

    def _read(self, parts: list[Part]) -> tuple[Part, ...]:
        """The parts of an expression; read back from Arrow, a HUGEINT must be told what it is."""
        found: list[Part] = []
        for part in parts:
            hugeint = isinstance(part, Ref) and self.types[part.name] == types.HUGEINT
            found += ["CAST(", part, " AS HUGEINT)"] if hugeint else [part]
        return tuple(found)

    def _check_reductions(self, found: list[exp.Expr]) -> None:
        """A fold is applied to what it made: it may make numbers and the like, but nothing that grows."""
        for call in found:
            if not isinstance(call, exp.Anonymous) or call.name.lower() not in REDUCERS:
                continue
            parts = _operand(call)
            columns = {p.name: self.types[p.name] for p in parts if isinstance(p, Ref)}
            if call.find_ancestor(exp.Lambda) is not None or types.grows(sql_of(parts), columns):
                raise Refused(call, "a reduction that makes texts or lists", "list_string_agg and flatten make them")

    def _refused(self, refused: Refused) -> WindrowError:
        """The error for what may not be said to DuckDB."""
        if refused.function is not None:
            return unknown_function(refused.function, refused.node, self)
        return refused.error(refused.what, hint=refused.hint, span=span_of(refused.node, self.source))

    def _mismatch(self, tree: exp.Expr, refusal: DuckDBRefusal) -> WindrowError:
        """Place DuckDB's refusal at the smallest part that it refuses."""
        if isinstance(refusal, types.NotKept):
            return UnsupportedError(
                "a value of this type in an answer or between operators",
                detail=refusal.short,
                hint=f"CAST it AS {refusal.instead}",
                span=span_of(tree, self.source),
            )
        part: exp.Expr | None = tree
        while part is not None:
            tree, part = part, None
            for child in tree.iter_expressions():
                if not isinstance(child, exp.Condition) or isinstance(child, exp.Interval) or child.find(exp.Lambda):
                    continue
                try:
                    self._typed(child)
                except (Refused, types.NotKept):  # no expression by itself, or well inside another
                    continue
                except DuckDBRefusal as inner:
                    part, refusal = child, inner
                    break
        span = span_of(tree, self.source)
        if refusal.fails:
            return BindingError(f"it has no value: {refusal.short}", hint=way_out(refusal.short), span=span)
        return BindingError("type mismatch", detail=refusal.short, hint=_mended(refusal.short), span=span)

    def predicate(self, tree: exp.Expr, clause: str) -> Expr:
        """The expression of a condition: a boolean."""
        expr, written = self.expr(tree), tree
        if pa.types.is_boolean(expr.type):
            tree = with_numbers(written)
            expr = expr if tree is written else self.expr(tree)
            return replace(expr, predicate=predicate_of(tree, self, expr))
        if pa.types.is_integer(expr.type) or pa.types.is_null(expr.type):
            return Expr(("CAST(", *expr.parts, " AS BOOLEAN)"), pa.bool_())
        raise BindingError(
            f"{clause} needs a condition, not a {types.sql_name(expr.type)}",
            hint="compare it with something, such as a > 0",
            span=span_of(tree, self.source),
        )


def _varies(type_: pa.DataType) -> bool:
    """Do values of the type have a size of their own?"""
    return not pa.types.is_primitive(type_.value_type if pa.types.is_dictionary(type_) else type_)


_OTHERS = {
    "'trunc(TIMESTAMP": "write date_trunc('hour', ts)",
    "'to_timestamp(VARCHAR": "write strptime(text, '%Y-%m-%d %H:%M:%S')",
}
"""Calls that other systems take with these arguments, and what they are here."""


def _mended(short: str) -> str:
    """What to do about values that do not fit."""
    if "no function matches" not in short:
        return "CAST one side to the type that is meant"
    known = next((hint for call, hint in _OTHERS.items() if call in short), None)
    return known or "it takes arguments of other types, or another number of them: CAST them to what it takes"


def _operand(tree: exp.Expr) -> list[Part]:
    """The parts of a tree, in parentheses if it needs them; one that makes much says so."""
    parts = render(tree) if isinstance(tree, _COMPLETE) else _enclosed(render(tree))
    return [noted(tree.meta[MADE]), *parts] if MADE in tree.meta else parts


def _enclosed(parts: list[Part]) -> list[Part]:
    """The parts in parentheses, texts beside each other being one."""
    first, last = parts[0], parts[-1]
    begin: list[Part] = [f"({first}"] if isinstance(first, str) else ["(", first]
    if len(parts) == 1:
        return [f"({first})"] if isinstance(first, str) else ["(", first, ")"]
    return [*begin, *parts[1:-1], *([f"{last})"] if isinstance(last, str) else [last, ")"])]


def has_user_function(tree: exp.Expr, catalog: Catalog) -> bool:
    """Does the tree call a function the user registered?"""
    return bool(catalog.functions) and any(f.name.lower() in catalog.functions for f in tree.find_all(exp.Anonymous))


def is_aggregate(node: exp.Expr, catalog: Catalog) -> bool:
    """Is the node itself a call of an aggregate function (one we run or one only DuckDB knows)?"""
    if _is_over(node):
        return False
    if isinstance(node, exp.Filter | exp.WithinGroup):
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
    inside = () if isinstance(tree, exp.Query) else nodes(tree, exp.Query)
    return next((node for node in inside if isinstance(node, _CALLS) and is_aggregate(node, catalog)), None)


def _check_functions(found: list[exp.Expr], context: BindingContext) -> None:
    """Refuse what an expression may not hold: functions that are not for queries, comparisons that cannot hold."""
    for node in found:
        if isinstance(node, exp.Anonymous):
            _check_call(node, context)
        elif isinstance(node, _TESTS):
            for one, other in _compared(node):
                _check_comparison(one, other, context)


def _check_call(node: exp.Anonymous, context: BindingContext) -> None:
    name = node.name.lower()
    if name == WSTREAM.lower():
        raise BindingError(
            "WSTREAM stands around the whole select list or inside one aggregate",
            hint="write SELECT WSTREAM(*)[ROWS 10] or SUM(WSTREAM(SUM(a))[ROWS 10])",
            span=span_of(node, context.source),
        )
    if name not in SCALARS and name not in context.catalog.functions:
        raise unknown_function(name, node, context)


def is_unknown(call: exp.Anonymous, catalog: Catalog) -> bool:
    """Whether nobody knows a function of this name."""
    name = call.name.lower()
    known = (SCALARS, AGGREGATES, HOLISTIC, REWRITTEN, SPELLED, catalog.functions, catalog.macros)
    return not any(name in each for each in known) and types.functions().get(name) is None


def unknown_function(name: str, node: exp.Expr, context: BindingContext) -> WindrowError:
    """The error for a function that is not on the list, by why it is not."""
    span = span_of(node, context.source)
    for kinds, primary, hint in _NOT_FOR_QUERIES:
        if name in kinds:
            return UnsupportedError(primary.format(name), hint=hint, span=span)
    if types.functions().get(name) is not None:
        return UnsupportedError(
            f"{name}() is not a function of queries",
            detail="a query computes from the rows alone: no files, settings, clocks or chance",
            span=span,
        )
    known = [*SCALARS, *AGGREGATES, *SPELLED, *context.catalog.functions, *context.catalog.macros]
    near = ELSEWHERE.get(name) or did_you_mean(name, known)
    return BindingError(
        f'unknown function "{node.name or name}"',
        hint=near or f'declare it: CREATE FUNCTION {name}(a BIGINT) AS a + 1, or windrow.function("{name}", fn, ...)',
        span=span,
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
