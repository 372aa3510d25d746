"""Functions OVER a partition: ROW_NUMBER, LAG, running aggregates, and QUALIFY.

    Project(arguments, keys) -> Analytic(partition, calls) [-> Analytic ...] -> Filter QUALIFY -> Project(select list)

A call becomes a column of an `Analytic` above what WHERE and GROUP BY leave; calls with one PARTITION BY share one.
Rows that tie in ORDER BY are ordered by all columns of FROM (of a grouped query: by its keys), ascending, nulls last,
wherever a function could tell: so an answer depends on the rows alone. Functions are those of the lists here and no
others; their text is written anew from names, numbers and bound expressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.builtins import AGGREGATES
from windrow.cql.pipeline import Pipeline
from windrow.cql.scope import resolved, span_of
from windrow.cql.walks import has
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.analytic import COPY, INSTANT
from windrow.operators.terms import SortKey
from windrow.plan.analytic_text import over_instant
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import Analytic, AnalyticCall

PEERS = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
PLACES = frozenset(("row_number", "ntile", "lag", "lead"))
CHOICES = frozenset(("first_value", "last_value", "nth_value"))
FUNCTIONS = PEERS | PLACES | CHOICES | (AGGREGATES.keys() - {"top_k", "count_star"})
_NULLS = (exp.IgnoreNulls, exp.RespectNulls)
_KINDS = frozenset(("ROWS", "RANGE", "GROUPS"))
_SIDES = frozenset(("PRECEDING", "FOLLOWING"))
_EXCLUDE = frozenset(("CURRENT ROW", "GROUP", "TIES", "NO OTHERS"))


def with_named_windows(select: exp.Select) -> exp.Select:
    """The SELECT with the windows of its WINDOW clause written where they are used."""
    named: dict[str, exp.Window] = {}
    for window in select.args.get("windows") or ():
        named[window.this.name.lower()] = _inlined(window, named)
    if not named:
        return select
    select = select.copy()
    select.set("windows", None)
    for window in list(own_windows(select)):
        window.replace(_inlined(window, named))
    return select


def _inlined(window: exp.Window, named: dict[str, exp.Window]) -> exp.Window:
    name = window.args.get("alias")
    base = named.get(name.name.lower()) if name is not None else None
    if base is None:
        return window.copy()
    made = window.copy()
    made.set("alias", None)
    for part in ("partition_by", "order", "spec"):
        if not made.args.get(part) and base.args.get(part):
            found = base.args[part]
            made.set(part, [p.copy() for p in found] if isinstance(found, list) else found.copy())
    return made


def own_windows(tree: exp.Expr) -> Iterator[exp.Window]:
    """The calls OVER something in a tree, those in subqueries left out."""
    inner = (n for n in tree.iter_expressions() if not isinstance(n, (exp.Query, exp.Subquery, exp.From, exp.Join)))
    if isinstance(tree, exp.Window):
        yield tree
    for node in inner:
        yield from own_windows(node)


@dataclass
class Analytics:
    """Collects the functions of one block while its expressions are rewritten."""

    pipeline: Pipeline
    ties: tuple[str, ...]
    calls: dict[tuple[str, ...], list[AnalyticCall]] = field(default_factory=dict)  # by partition

    def rewrite(self, tree: exp.Expr) -> exp.Expr:
        """The tree over the functions' columns."""
        if not has(tree, exp.Window) or next(own_windows(tree), None) is None:
            return tree
        return tree.copy().transform(lambda n: self._column(n) if isinstance(n, exp.Window) else n, copy=False)

    def finish(self) -> None:
        """Put the functions on top of the pipeline; what the first ones tell apart, the next ones do too."""
        told: tuple[str, ...] = ()
        for partition, calls in self.calls.items():
            made = tuple(replace(c, ties=(*c.ties, *told) if c.ties else ()) for c in calls)
            self.pipeline.node = Analytic(self.pipeline.node, partition, made)
            told += tuple(c.output for c in calls)

    def _column(self, window: exp.Window) -> exp.Expr:
        context = self.pipeline.context
        if (name := window.args.get("alias")) is not None:
            raise BindingError(
                f'unknown window "{name.name}"',
                hint=f"declare it after HAVING: WINDOW {name.name} AS (PARTITION BY a ORDER BY b)",
                span=span_of(window, context.source),
            )
        nested = next((w for w in own_windows(window) if w is not window), None)
        if nested is not None:
            raise BindingError(
                "a function OVER inside another", hint="use a subquery in FROM", span=span_of(nested, context.source)
            )
        partition = tuple(dict.fromkeys(self._value(p) for p in window.args.get("partition_by") or ()))
        order = window.args.get("order")
        keys = tuple(self._key(t) for t in (order.expressions if order is not None else ()))
        function, parts = self._call(window.this)
        frame = self._frame(window.args.get("spec"))
        ties = self.ties if function in PLACES | CHOICES or frame.startswith("ROWS") else ()
        made = AnalyticCall("", function, Expr(parts, pa.null()), keys, ties, frame)
        calls = self.calls.setdefault(partition, [])
        same = next((c for c in calls if replace(c, output="", call=replace(c.call, type=pa.null())) == made), None)
        if same is None:
            type_ = self._type(made, window)
            name = context.fresh(made.call.sql(lambda n: n), type_)
            same = replace(made, output=name, call=Expr(parts, type_))
            calls.append(same)
        return resolved(same.output, window)

    def _value(self, tree: exp.Expr) -> str:
        """The column that holds a key."""
        self.pipeline.provide(tree)
        return self.pipeline.materialise(self.pipeline.hoist(tree))

    def _key(self, term: exp.Ordered) -> SortKey:
        return SortKey(self._value(term.this), bool(term.args.get("desc")), bool(term.args.get("nulls_first")))

    def _call(self, tree: exp.Expr) -> tuple[str, tuple[str | Ref, ...]]:
        """The function's name and its call as text with holes."""
        condition, nulls = None, ""
        while isinstance(tree, (exp.Filter, *_NULLS)):
            if isinstance(tree, exp.Filter):
                condition = tree.expression.this
            else:
                nulls = " IGNORE NULLS" if isinstance(tree, exp.IgnoreNulls) else ""
            tree = tree.this
        name = tree.name.lower() if isinstance(tree, exp.Anonymous) else ""
        context = self.pipeline.context
        if name not in FUNCTIONS or name in context.catalog.functions:
            raise UnsupportedError(
                f"{name.upper() or tree.key.upper()} OVER (...)",
                hint=f"the functions are {', '.join(sorted(f.upper() for f in FUNCTIONS))}",
                span=span_of(tree, context.source),
            )
        arguments, distinct = list(tree.expressions), False
        if arguments and isinstance(arguments[0], exp.Distinct):
            arguments, distinct = [*arguments[0].expressions, *arguments[1:]], True
        parts: list[str | Ref] = [f"{name}({'DISTINCT ' * distinct}"]
        for i, argument in enumerate(arguments):
            if isinstance(argument, _NULLS):
                nulls = " IGNORE NULLS" if isinstance(argument, exp.IgnoreNulls) else nulls
                argument = argument.this
            parts += [", "] if i else []
            parts += ["*"] if isinstance(argument, exp.Star) else self._argument(argument)
        parts.append(f"{nulls})")
        if condition is not None:
            parts += [" FILTER (WHERE ", *context.predicate(self.pipeline.hoist(condition), "FILTER").parts, ")"]
        return name, tuple(parts)

    def _argument(self, tree: exp.Expr) -> list[str | Ref]:
        if isinstance(tree, (exp.Order, exp.Limit, exp.Alias)):
            raise UnsupportedError(
                "ORDER BY, LIMIT or names inside a function OVER",
                hint="order the window: OVER (ORDER BY a)",
                span=span_of(tree, self.pipeline.context.source),
            )
        return list(self.pipeline.expr(tree).parts)

    def _frame(self, spec: exp.Expr | None) -> str:
        if spec is None:
            return ""
        kind = str(spec.args.get("kind") or "").upper()
        start, end = (self._bound(spec, side, kind) for side in ("start", "end"))
        exclude = spec.args.get("exclude")
        left_out = exclude.name.upper() if exclude is not None else "NO OTHERS"
        if kind not in _KINDS or left_out not in _EXCLUDE:
            raise UnsupportedError("this frame", span=span_of(spec, self.pipeline.context.source))
        text = f"{kind} BETWEEN {start or 'UNBOUNDED PRECEDING'} AND {end or 'CURRENT ROW'}"
        return text if left_out == "NO OTHERS" else f"{text} EXCLUDE {left_out}"

    def _bound(self, spec: exp.Expr, which: str, kind: str) -> str:
        value, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
        if value is None:
            return ""
        if isinstance(value, str):
            text = value.upper()
            if text == "CURRENT ROW":
                return text
            if text == "UNBOUNDED" and side in _SIDES:
                return f"{text} {side}"
        elif side in _SIDES:
            constant = self.pipeline.context.expr(value)
            whole = kind == "RANGE" or (isinstance(value, exp.Literal) and value.name.isdigit())
            if not constant.columns and whole:
                return f"{constant.sql()} {side}"
        raise BindingError(
            "the bound of a frame is a constant",
            hint="write ROWS BETWEEN 10 PRECEDING AND CURRENT ROW",
            span=span_of(spec, self.pipeline.context.source),
        )

    def _type(self, call: AnalyticCall, window: exp.Window) -> pa.DataType:
        known = self.pipeline.context.types
        columns = {c: known[c] for c in call.columns}
        try:
            return types.expression_type(over_instant(call).sql, {**columns, INSTANT: pa.int64(), COPY: pa.int64()})
        except types.DuckDBRefusal as refusal:
            raise BindingError(
                f"{call.function.upper()} OVER cannot be computed",
                detail=refusal.short,
                hint="CAST the argument, or see what the function takes",
                span=span_of(window, self.pipeline.context.source),
            ) from None
