"""COLUMNS(...) in an item of a select list: the item once for each column that is chosen.

    COLUMNS(*), COLUMNS(t.*), COLUMNS(* EXCLUDE (a))     as `*` shows them
    COLUMNS('^price_')                                   those whose names a pattern is found in
    COLUMNS(['bid', 'ask'])                              those named
    * LIKE 'p%', * ILIKE 'P%', * SIMILAR TO 'p.*'        those whose names are so
    coalesce(*COLUMNS(['a', 'b']))                       all of them, as arguments of one call

`SELECT k, MAX(COLUMNS('^price_')) FROM ...` is `SELECT k, MAX(price_bid) AS price_bid, MAX(price_ask) AS price_ask`. In
an alias, `\\1` is the first group of the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sqlglot import exp

from windrow.cql import types
from windrow.cql.dialect import UNPACKED
from windrow.cql.scope import Scope, did_you_mean, span_of
from windrow.cql.walks import find_all
from windrow.errors import BindingError, UnsupportedError
from windrow.scalar_engine import literal

Columns = list[tuple[str, exp.Expr]]  # by the name that is shown
Star = Callable[[exp.Expr], Iterable[tuple[str, exp.Expr]]]


def one_for_each(item: exp.Expr, scope: Scope, star: Star) -> list[exp.Expr] | None:
    """The items that one with COLUMNS stands for, each with its name; None if it has none. `star`: what `*` shows."""
    if (filtered := _filtered_star(item)) is not None:
        return [exp.alias_(tree, name, quoted=True) for name, tree in _like(*filtered, scope, star)]
    calls = [c for c in find_all(item, exp.Anonymous) if is_columns(c)]
    if not calls:
        return None
    if any(c != calls[0] for c in calls):
        raise UnsupportedError(
            "different COLUMNS in one expression",
            hint="write an item for each; one COLUMNS may stand in an expression several times",
            span=span_of(calls[1], scope.source),
        )
    chosen = _chosen(calls[0], scope, star)
    if all(c.meta.get(UNPACKED) for c in calls):
        return [_unpacked(item.copy(), [tree for _, tree in chosen])]
    return [_named(item, name, calls[0], _with(item.copy(), tree)) for name, tree in chosen]


def is_columns(node: exp.Expr) -> bool:
    """Is the node a call of COLUMNS?"""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "columns" and len(node.expressions) == 1


def _with(item: exp.Expr, column: exp.Expr) -> exp.Expr:
    """The item with a column in the place of COLUMNS."""
    return item.transform(lambda node: column.copy() if is_columns(node) else node, copy=False)


def _unpacked(item: exp.Expr, columns: list[exp.Expr]) -> exp.Expr:
    """The item with all columns as arguments of the call around COLUMNS."""
    for call in [c for c in find_all(item, exp.Anonymous) if is_columns(c)]:
        if call.parent is not None and isinstance(call.parent, exp.Anonymous):
            around = call.parent
            listed = [[c.copy() for c in columns] if a is call else [a] for a in around.expressions]
            around.set("expressions", [a for part in listed for a in part])
    return item


def _named(item: exp.Expr, name: str, call: exp.Expr, made: exp.Expr) -> exp.Expr:
    """The item under the column's name, or its own."""
    if not isinstance(item, exp.Alias):
        return exp.alias_(made, name, quoted=True)
    pattern = call.expressions[0]
    shown = str(item.alias)
    if isinstance(pattern, exp.Literal):
        shown = re.sub(r"\\(\d)", lambda m: _group(name, pattern.name, int(m[1])), shown)
    return exp.alias_(made.unalias(), shown, quoted=True)


def _group(name: str, pattern: str, number: int) -> str:
    found = types.answer(f"SELECT regexp_extract({literal(name)}, {literal(pattern)}, {number}) AS c")
    return str(found["c"][0].as_py())


def _chosen(call: exp.Anonymous, scope: Scope, star: Star) -> Columns:
    """The columns that a COLUMNS stands for."""
    choice = call.expressions[0]
    every = list(star(exp.Star()))
    if isinstance(choice, exp.Star) or (isinstance(choice, exp.Column) and isinstance(choice.this, exp.Star)):
        return list(star(choice))
    if isinstance(choice, exp.Literal) and choice.is_string:
        return _found(every, f"regexp_matches(c, {literal(choice.name)})", choice, scope)
    if isinstance(choice, exp.Array) and all(isinstance(e, exp.Literal) and e.is_string for e in choice.expressions):
        called = {_called(every, e, scope)[0] for e in choice.expressions}
        return [(name, tree) for name, tree in every if name in called]  # in the order of the columns
    raise UnsupportedError(
        "COLUMNS of this kind",
        hint="write a pattern, COLUMNS('^price_'), names, COLUMNS(['bid', 'ask']), or COLUMNS(* EXCLUDE (a))",
        span=span_of(call, scope.source),
    )


def _called(every: Columns, name: exp.Expr, scope: Scope) -> tuple[str, exp.Expr]:
    found = next(((n, tree) for n, tree in every if n.lower() == name.name.lower()), None)
    if found is None:
        raise BindingError(
            f'unknown column "{name.name}" in COLUMNS',
            hint=did_you_mean(name.name, [n for n, _ in every]) or f"columns are {', '.join(n for n, _ in every)}",
            span=span_of(name, scope.source),
        )
    return found


def _filtered_star(item: exp.Expr) -> tuple[exp.Expr, str, exp.Expr] | None:
    """`*`, how names are compared, and with what, of `* LIKE 'p%'`."""
    operators: dict[type[exp.Expr], str] = {exp.Like: "LIKE", exp.ILike: "ILIKE", exp.SimilarTo: "SIMILAR TO"}
    if isinstance(item, exp.Star) and item.args.get("ilike") is not None:
        return item, "ILIKE", item.args["ilike"]
    operator = operators.get(type(item))
    pattern = item.args.get("expression")
    starred = isinstance(item.this, exp.Star) or (isinstance(item.this, exp.Column) and item.this.is_star)
    if operator is None or not starred or not isinstance(pattern, exp.Literal):
        return None
    return item.this, operator, pattern


def _like(choice: exp.Expr, operator: str, pattern: exp.Expr, scope: Scope, star: Star) -> Columns:
    return _found(list(star(choice)), f"c {operator} {literal(pattern.name)}", pattern, scope)


def _found(every: Columns, condition: str, at: exp.Expr, scope: Scope) -> Columns:
    """The columns whose names satisfy a condition, which DuckDB knows."""
    names = ", ".join(literal(name) for name, _ in every)
    try:
        kept = types.answer(f"SELECT {condition} AS k FROM (SELECT unnest([{names}]) AS c)")["k"].to_pylist()
    except types.DuckDBRefusal as refusal:
        raise BindingError(f"{at.sql()} is no pattern", detail=refusal.short, span=span_of(at, scope.source)) from None
    found = [pair for pair, keep in zip(every, kept, strict=True) if keep]
    if not found:
        raise BindingError(
            f"no column is called like {at.sql()}",
            hint=f"columns are {', '.join(name for name, _ in every)}",
            span=span_of(at, scope.source),
        )
    return found
