"""GROUP BY: keys and arguments computed below one `Aggregate`, everything else above it.

    Project(keys, arguments) -> Aggregate(keys, calls) -> [Filter HAVING] -> Project(select list)

A select item is rewritten from the top: a part equal to a key becomes the key's column, an aggregate call
becomes its output column, and a plain column that is left over is not grouped: an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from typing import Any

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.bounds import is_bound, is_fixed
from windrow.cql.builtins import AGGREGATES, HOLISTIC, REWRITTEN
from windrow.cql.expressions import BindingContext, find_aggregate, is_aggregate, is_unknown, unknown_function
from windrow.cql.holistic import HolisticText, holistic_expr, holistic_text
from windrow.cql.pipeline import Pipeline
from windrow.cql.scope import Scope, columns_of, is_resolved, operand, resolved, span_of
from windrow.cql.summaries import (
    basic_windows,
    most_values,
    no_distinct,
    parted,
    sketched,
    summary_arguments,
    summary_type,
)
from windrow.cql.value_sizes import COLUMN
from windrow.cql.walks import copied
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.aggregates.call import SKETCHED, SUMMARISED
from windrow.operators.types import has_interval
from windrow.plan.expr import Expr, column
from windrow.plan.nodes import (
    Aggregate,
    Aggregation,
    Equality,
    Holistic,
    HolisticCall,
    Join,
    LeftJoin,
    Node,
    Project,
    Union,
)

_PARAMETERS = {"quantile": 1, "quantile_cont": 1, "top_k": 1}
_NUMBER = re.compile(r"\d{1,18}(\.\d*)?|\.\d+")
_DUCKDB_NAMES = {"quantile": "quantile_disc"}


def _rewritten(call: exp.Expr) -> exp.Expr:
    """COUNT_IF, BOOL_AND and BOOL_OR by the aggregates they are."""
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name not in REWRITTEN or len(call.expressions) != 1:
        return call
    (argument,) = call.expressions
    if name in ("count_if", "countif"):
        return exp.Anonymous(this="sum", expressions=[exp.cast(operand(argument.copy()), "INTEGER")])
    kind = "max" if name in ("bool_or", "logical_or") else "min"
    return exp.Anonymous(this=kind, expressions=[exp.cast(operand(argument.copy()), "BOOLEAN")])


class BlockAggregates:
    """Collects the keys and calls of one block while its expressions are rewritten."""

    def __init__(
        self, pipeline: Pipeline, scope: Scope, sets: Sequence[list[exp.Expr]], above: Set[str] = frozenset()
    ) -> None:
        """`sets`: the sets of keys, mostly one; `above`: columns beside the aggregate's, in none of its arguments."""
        self.above = above
        self.below = pipeline
        self.context: BindingContext = pipeline.context
        self.scope = scope
        self.columns: dict[str, Expr] = {}  # what the Project below computes
        self.keys: dict[exp.Expr, str] = {}  # key -> column; trees are equal by what they say
        self.calls: dict[tuple[Any, ...], Aggregation] = {}
        self.holistic: list[HolisticCall] = []
        self.grouping: dict[tuple[str, ...], str] = {}  # of GROUPING(...): its keys -> column
        for key in (k for keys in sets for k in keys):
            if is_fixed(key):
                continue  # one value per evaluation: it groups nothing
            if (aggregate := find_aggregate(key, self.context.catalog)) is not None:
                raise BindingError(
                    "an aggregate in GROUP BY",
                    hint="group by columns; filter aggregates with HAVING",
                    span=span_of(aggregate, self.context.source),
                )
            self.keys[key.unnest()] = self._compute(key)
        trees = [dict.fromkeys(k.unnest() for k in keys if not is_fixed(k)) for keys in sets]
        self.sets = [tuple(dict.fromkeys(self.keys[t] for t in keys)) for keys in trees]

    def rewrite(self, tree: exp.Expr) -> exp.Expr:
        """The tree over the aggregate's output."""
        return copied(tree, self._replace)

    def finish(self, per_window: bool = False) -> Pipeline:
        """Build the nodes and go on above them; `per_window`: nothing is answered where there are no rows."""
        if per_window and () in self.sets:
            return self._filled()
        node = self.below.node
        if self.columns and tuple(self.columns) != tuple(node.schema):
            node = Project(node, tuple(self.columns.items()))
        if self.holistic and not self.calls and () in self.sets:
            self._count()  # it has a row even over nothing
        parts = [self._grouped(node, keys) for keys in self.sets]
        if len(parts) > 1 or self.grouping:
            parts = [self._of_set(part, keys, node) for part, keys in zip(parts, self.sets, strict=True)]
        return Pipeline(self.context, Union(tuple(parts)) if len(parts) > 1 else parts[0], grid=self.below.grid)

    def _grouped(self, node: Node, keys: tuple[str, ...]) -> Node:
        plain, summaries = parted(tuple(self.calls.values()))
        found: Node | None = (
            None if not plain and (self.holistic or summaries) and keys else Aggregate(node, keys, plain)
        )
        if summaries:
            grid = basic_windows(node, self.below.grid, summaries)
            summary = Aggregate(node, keys, summaries, grid)
            found = summary if not plain else self._joined(Aggregate(node, keys, plain), summary, keys)
        if self.holistic:
            whole = Holistic(node, keys, tuple(self.holistic))
            found = whole if found is None else self._joined(found, whole, keys)
        assert found is not None
        return found

    def _of_set(self, part: Node, keys: tuple[str, ...], node: Node) -> Node:
        """What one set of keys answers, with nulls for the other keys, and which ones these are."""
        shown = dict.fromkeys(self.keys.values())
        outputs = [(k, column(k, node.schema[k]) if k in keys else types.null_of(node.schema[k])) for k in shown]
        made = [c.output for c in self.calls.values()] + [c.output for c in self.holistic]
        outputs += [(name, column(name, part.schema[name])) for name in made]
        for asked, name in self.grouping.items():
            bits = int("".join("0" if k in keys else "1" for k in asked), 2)
            outputs.append((name, Expr((f"CAST({bits} AS BIGINT)",), pa.int64())))
        return Project(part, tuple(outputs))

    def _joined(self, plain: Node, other: Aggregate | Holistic, keys: tuple[str, ...]) -> Node:
        """Two kinds of aggregates of each group; without keys `plain` has a row even over nothing."""
        renamed = {k: self.context.fresh(k, plain.schema[k]) for k in keys}
        outputs = [(renamed.get(n, n), column(n, t)) for n, t in other.schema.items()]
        pairs = tuple(Equality(k, new, null_safe=True) for k, new in renamed.items())
        right = Project(other, tuple(outputs))
        return Join((plain, right), pairs) if keys else LeftJoin(plain, right)

    def _count(self) -> str:
        return self._call(exp.Anonymous(this="count", expressions=[exp.Star()]))

    def _filled(self) -> Pipeline:
        """One group of everything, where there is anything."""
        count = resolved(self._count())
        above = self.finish()
        above.filter(exp.GT(this=count, expression=exp.Literal.number(0)), "HAVING")
        return above

    def _replace(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.DataType, exp.Identifier, exp.Var, exp.Ordered)):
            return node
        if self.keys and (key := self.keys.get(node.unnest())) is not None:
            return resolved(key, node)
        if isinstance(node, exp.Literal):
            return node
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id"):
            return resolved(self._grouping(node), node)
        if is_aggregate(node, self.context.catalog):
            return resolved(self._call(node), node)
        if isinstance(node, exp.Anonymous) and is_unknown(node, self.context.catalog):
            raise unknown_function(node.name.lower(), node, self.context)
        if isinstance(node, exp.Column) and is_resolved(node) and (is_bound(node.name) or node.name in self.above):
            return node
        if isinstance(node, exp.Column) and is_resolved(node):
            written = node.meta.get("written", node.name)
            raise BindingError(
                f'column "{written}" is neither grouped nor aggregated',
                hint=f"add {written} to GROUP BY, or aggregate it: MAX({written})",
                span=span_of(node, self.context.source),
            )
        return node

    def _grouping(self, node: exp.Expr) -> str:
        """The column that says which of some keys a set does not have, one bit for each."""
        found = tuple(self.keys.get(a.unnest(), "") for a in node.expressions)
        if not found or "" in found:
            raise BindingError(
                "GROUPING asks about keys of GROUP BY",
                hint="write GROUPING(a) with GROUP BY ROLLUP (a)",
                span=span_of(node, self.context.source),
            )
        if found not in self.grouping:
            self.grouping[found] = self.context.fresh(f"grouping({', '.join(found)})", pa.int64())
        return self.grouping[found]

    def _compute(self, tree: exp.Expr) -> str:
        """The column below the aggregate that holds a key or an argument."""
        self._refuse_subquery(tree)
        expr = self.below.expr(tree)
        name = expr.column
        if name is None:
            same = next((n for n, e in self.columns.items() if e == expr), None)
            name = same or self.context.computed(expr)
        self.columns[name] = expr
        return name

    def _refuse_subquery(self, tree: exp.Expr) -> None:
        if not self.above.isdisjoint(columns_of(tree)):
            raise UnsupportedError(
                "a subquery inside an aggregate or in GROUP BY",
                hint="compute it in a subquery in FROM",
                span=span_of(tree, self.context.source),
            )

    def _call(self, node: exp.Expr) -> str:
        """The output column of an aggregate call; equal calls share one."""
        condition = None
        call = node
        if isinstance(node, exp.Filter):
            call, condition = node.this, node.expression.this
        if (text := holistic_text(call, condition)) is not None:
            return self._holistic(text, call)
        call = _rewritten(call)
        kind = self._kind(call)
        arguments, distinct = self._arguments(call, kind)
        self._check_nested((*arguments, *([condition] if condition is not None else [])))
        if kind in SKETCHED:
            distinct = kind == "approx_count_distinct"
            kind = sketched(kind, arguments, self.below.node, self.below.grid)
            distinct = distinct and kind not in SKETCHED
        if distinct and kind in SUMMARISED:
            raise no_distinct(call, self.context.source)
        argument, parameters = self._split(call, kind, arguments)
        argument = self._filtered(argument, condition)
        column = self._compute(argument) if argument is not None else None
        if argument is not None and column is not None and self._is_cast(kind, self.context.types[column]):
            column = self._compute(exp.cast(operand(argument.copy()), "TIMESTAMP"))
        distinct = distinct and kind not in ("min", "max") and column is not None
        key = (kind, column, distinct, parameters)
        if key not in self.calls:
            type_ = self._type(call, kind, column, parameters)
            shown = f"{kind}({'DISTINCT ' if distinct else ''}{column or '*'}{''.join(f', {p}' for p in parameters)})"
            output = self.context.fresh(shown, type_)
            if column is not None:  # as large as what it is of
                size = self.context.sizes.get(column, COLUMN) * most_values(kind, parameters)
                self.context.sizes.setdefault(output, size)
            self.calls[key] = Aggregation(kind, column, output, type_, distinct, parameters)
        return self.calls[key].output

    def _check_nested(self, parts: Iterable[exp.Expr]) -> None:
        for inner in parts:
            if (nested := find_aggregate(inner, self.context.catalog)) is not None:
                raise BindingError(
                    "aggregates cannot be nested",
                    hint="aggregate a subquery in FROM, or write SUM(WSTREAM(SUM(a))[ROWS 10])",
                    span=span_of(nested, self.context.source),
                )

    def _holistic(self, text: HolisticText, call: exp.Expr) -> str:
        """The output column of an aggregate that is computed anew from a group's rows."""
        parts = (*text.arguments, *text.order, *([text.condition] if text.condition is not None else []))
        self._check_nested(parts)
        for part in parts:
            self._refuse_subquery(part)
        expr = holistic_expr(text, self.below, self.scope, call)
        same = next((c for c in self.holistic if c.call == expr), None)
        if same is None:
            for name in expr.columns:
                self.columns[name] = column(name, self.context.types[name])
            same = HolisticCall(self.context.fresh(expr.sql(lambda n: n), expr.type), expr)
            self.holistic.append(same)
        return same.output

    def _kind(self, call: exp.Expr) -> str:
        name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
        if name not in AGGREGATES:
            raise UnsupportedError(
                f"the aggregate {name}" if name else f"{call.this.name.upper()} WITHIN GROUP",
                hint=f"use one of {', '.join(a.upper() for a in sorted({*AGGREGATES, *HOLISTIC}))}",
                span=span_of(call, self.context.source),
            )
        return AGGREGATES[name]

    def _arguments(self, call: exp.Expr, kind: str) -> tuple[list[exp.Expr], bool]:
        arguments = list(call.expressions)
        if arguments and isinstance(arguments[-1], exp.Order) and arguments[-1].this and kind not in _PARAMETERS:
            for term in arguments[-1].expressions:  # the order of rows makes no difference
                self.below.expr(term.this)
            arguments[-1] = arguments[-1].this
        distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions) + arguments[1:]
        for argument in arguments:
            if isinstance(argument, (exp.Order, exp.Limit, exp.IgnoreNulls, exp.RespectNulls, exp.Alias)):
                raise UnsupportedError(
                    "ORDER BY, LIMIT, names or null options inside an aggregate",
                    span=span_of(argument, self.context.source),
                )
        return arguments, distinct

    def _split(self, call: exp.Expr, kind: str, arguments: list[exp.Expr]) -> tuple[exp.Expr | None, tuple[Any, ...]]:
        """The one column argument (None: COUNT(*)) and the constant parameters."""
        if kind in SUMMARISED:
            return summary_arguments(call, kind, arguments, self.context.source)
        if kind == "count" and (not arguments or self._is_star(arguments[0])):
            return None, ()
        wanted = 1 + _PARAMETERS.get(kind, 0)
        if kind == "quantile" and len(arguments) == 1 and call.name.lower() != "quantile":
            arguments = [*arguments, exp.Literal.number("0.5")]
        if len(arguments) != wanted:
            raise BindingError(
                f"{call.name.upper()} takes {wanted} argument{'s' * (wanted > 1)}, not {len(arguments)}",
                hint=f"write {call.name.upper()}(a{', 0.9' if wanted > 1 else ''})",
                span=span_of(call, self.context.source),
            )
        return arguments[0], tuple(self._parameter(kind, call, p) for p in arguments[1:])

    def _is_star(self, argument: exp.Expr) -> bool:
        if isinstance(argument, exp.Star):
            return True
        if not (isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star)):
            return False
        entry = self.scope.entry(argument.table)
        if entry is None:
            raise self.scope.unknown(argument)
        if entry.nullable:
            raise UnsupportedError(
                f"COUNT({argument.table}.*) of the padded side of an outer join",
                hint="count one of its columns",
                span=span_of(argument, self.context.source),
            )
        return True

    def _parameter(self, kind: str, call: exp.Expr, node: exp.Expr) -> int | float:
        node = node.unnest()
        value = float(node.name) if isinstance(node, exp.Literal) and _NUMBER.fullmatch(node.name) else -1.0
        good = value == int(value) and value >= 1 if kind == "top_k" else 0 <= value <= 1
        if not good:
            wanted = "a whole number of at least 1" if kind == "top_k" else "a number between 0 and 1"
            raise BindingError(
                f"the second argument of {call.name.upper()} must be {wanted}",
                hint="write TOP_K(a, 10)" if kind == "top_k" else f"write {call.name.upper()}(a, 0.9)",
                span=span_of(node, self.context.source) or span_of(call, self.context.source),
            )
        return int(value) if kind == "top_k" else value

    def _filtered(self, argument: exp.Expr | None, condition: exp.Expr | None) -> exp.Expr | None:
        """FILTER (WHERE p): the argument where p holds, null elsewhere; aggregates skip nulls."""
        if condition is None:
            return argument
        self.context.predicate(self.below.hoist(condition), "FILTER")
        value = operand(argument.copy()) if argument is not None else exp.Literal.number(1)
        return exp.Case(ifs=[exp.If(this=condition.copy(), true=value)])

    @staticmethod
    def _is_cast(kind: str, type_: pa.DataType) -> bool:
        """Whether DuckDB casts the argument to microseconds first: dates, and plain timestamps of another unit."""
        plain = pa.types.is_timestamp(type_) and type_.tz is None and type_.unit != "us"
        return (plain and kind in ("avg", "quantile_cont")) or (
            pa.types.is_date(type_) and kind in ("avg", "quantile_cont", "median")
        )

    def _check_kind(self, call: exp.Expr, kind: str, type_: pa.DataType) -> None:
        """Refuse what no operator computes as DuckDB does.

        Months do not add up; of lists of intervals DuckDB has two orders; between two HUGEINTs are doubles, which
        DECIMAL(38, 0), the same type here, does not have.
        """
        ranked, nested = kind in ("median", "quantile", "quantile_cont"), pa.types.is_nested(type_)
        months = kind in ("avg", "median") and pa.types.is_interval(type_)
        huge = kind in ("median", "quantile_cont") and type_ == types.HUGEINT
        if months or huge or (ranked and nested and has_interval(type_)):
            raise UnsupportedError(
                f"{call.name.upper()} of a {types.sql_name(type_)}",
                hint=f"aggregate a number: {call.name.upper()}({'CAST(a AS DOUBLE)' if huge else 'epoch(a)'})",
                span=span_of(call, self.context.source),
            )

    def _type(self, call: exp.Expr, kind: str, column: str | None, parameters: tuple[Any, ...]) -> pa.DataType:
        if column is None or kind == "count":
            return pa.int64()
        type_ = self.context.types[column]
        self._check_kind(call, kind, type_)
        if kind == "top_k":
            return pa.list_(type_)
        if kind in SUMMARISED:
            return summary_type(call, kind, type_, self.context.source)
        extra = "".join(f", {p}" for p in parameters)
        try:
            return types.expression_type(f"{_DUCKDB_NAMES.get(kind, kind)}(c{extra})", {"c": type_})
        except types.DuckDBRefusal:
            raise BindingError(
                f"type mismatch: {call.name.upper()} of a {types.sql_name(type_)}",
                hint="CAST the argument to a type that can be aggregated so",
                span=span_of(call, self.context.source),
            ) from None
