"""WSTREAM, rewritten into a window on a subquery whose windows count as INTERNAL (thesis, section 3.4)."""

from __future__ import annotations

from sqlglot import exp

from windrow.cql.dialect import WINDOW, WSTREAM, StreamItems
from windrow.cql.scope import span_of
from windrow.cql.source import ScriptText
from windrow.cql.windows import WindowClause
from windrow.errors import BindingError, UnsupportedError

WANTED: frozenset[type | str] = frozenset((StreamItems, WSTREAM.lower()))
INTERNAL = "internal"  # meta key: the block feeds a WSTREAM, so its windows count as INTERNAL


def expand_all(tree: exp.Expr, source: ScriptText) -> exp.Expr:
    """The query with every WSTREAM in it rewritten, the innermost first."""
    for select in reversed(list(tree.find_all(exp.Select))):
        expanded = expand_wstream(select, source)
        if expanded is not select:
            tree = expanded if select is tree else tree
            select.replace(expanded)
    return tree


def expand_wstream(select: exp.Select, source: ScriptText) -> exp.Select:
    """Rewrite WSTREAM into a window on a subquery whose windows are INTERNAL.

    SELECT WSTREAM(a)[w] FROM ...       ->  SELECT * FROM (SELECT a FROM ...) [w]
    SELECT SUM(WSTREAM(a)[w]) FROM ...  ->  SELECT SUM(w1) FROM (SELECT a AS w1 FROM ...) [w]
    """
    items = select.expressions
    first = items[0] if items else None
    if isinstance(first, StreamItems) and first.this == WSTREAM:
        inner = select.copy()
        inner.set("expressions", [e.copy() for e in first.expressions])
        if first.args.get("distinct"):
            inner.set("distinct", exp.Distinct())
        return _over(inner, [exp.Star()], first.meta[WINDOW])
    calls = [
        f
        for f in select.find_all(exp.Anonymous)
        if f.name.upper() == WSTREAM and WINDOW in f.meta and f.parent_select is select
    ]
    if not calls:
        return select
    if len({(f, f.meta[WINDOW].text) for f in calls}) > 1:
        raise UnsupportedError(
            "different WSTREAMs in one SELECT", hint="put each in a subquery of its own", span=span_of(calls[1], source)
        )
    arguments = calls[0].expressions
    star = isinstance(arguments[0], exp.Star) if arguments else True
    if len(arguments) > 1 and not star:
        raise BindingError(
            "WSTREAM inside an aggregate takes one expression",
            hint="write SUM(WSTREAM(a)[ROWS 10])",
            span=span_of(calls[0], source),
        )
    inner = select.copy()
    inner.set("expressions", [exp.Star()] if star else [exp.alias_(arguments[0].copy(), "w1")])
    outer_items = [item.copy() for item in items]
    for i, item in enumerate(outer_items):
        outer_items[i] = item.transform(lambda n: _stand_in(n, star), copy=False)
    return _over(inner, outer_items, calls[0].meta[WINDOW])


def _stand_in(node: exp.Expr, star: bool) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and node.name.upper() == WSTREAM and WINDOW in node.meta:
        column = exp.Star() if star else exp.column("w1")
        column.meta["start"] = node.meta.get("start", 0)
        return column
    return node


def _over(inner: exp.Select, items: list[exp.Expr], clause: WindowClause) -> exp.Select:
    inner.meta[INTERNAL] = True
    alias = exp.TableAlias()
    alias.meta[WINDOW] = clause
    return exp.Select(expressions=items, from_=exp.From(this=exp.Subquery(this=inner, alias=alias)))
