"""LATERAL subqueries that equalities link to the row before them, as joins.

    FROM i, LATERAL (SELECT a FROM s WHERE s.k = i.k ORDER BY a DESC LIMIT 2) AS t
    FROM i JOIN (SELECT a, s.k AS "~k0" FROM s QUALIFY ROW_NUMBER() OVER (PARTITION BY s.k ORDER BY a DESC) <= 2) AS t
        ON i.k = t."~k0"

Grouped subqueries are grouped by the links as well, LIMIT counts within them. What is linked by anything else, or has
one row whatever happens (an aggregate without GROUP BY), is left as it is, and refused with what to write.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from windrow.cql.scope import conjuncts
from windrow.cql.shapes import sources_of

_OTHERS = ("having", "qualify", "windows", "distinct", "offset", "with_")
"""Clauses that would have to know of the links."""


def join_laterals(tree: exp.Expr, aggregates: Callable[[exp.Expr], bool]) -> None:
    """Put joins in the place of such subqueries, in the tree itself; `aggregates`: whether an item is an aggregate."""
    for select in list(tree.find_all(exp.Select)):
        before: list[str] = []
        for source in sources_of(select):
            inner = (
                source.this.this if isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery) else None
            )
            if isinstance(inner, exp.Select) and isinstance(source.parent, exp.Join):
                _join(source, inner, before, select, aggregates)
            before.append((source.alias or source.name).lower())


def _join(
    source: exp.Expr, inner: exp.Select, before: list[str], select: exp.Select, aggregates: Callable[[exp.Expr], bool]
) -> None:
    join, alias = source.parent, source.alias
    assert join is not None
    from_ = inner.args.get("from_")
    plain = from_ is not None and isinstance(from_.this, exp.Table | exp.Subquery)
    starred = any(i.is_star for i in (*select.expressions, *inner.expressions))
    grouped = inner.args.get("group")
    if not plain or starred or not alias or any(inner.args.get(k) for k in _OTHERS):
        return
    if grouped is None and any(aggregates(i) for i in inner.expressions):
        return
    own = {(s.alias or s.name).lower() for s in sources_of(inner)}

    def outside(node: exp.Expr) -> bool:
        return any(c.table.lower() in before and c.table.lower() not in own for c in node.find_all(exp.Column))

    where = inner.args.get("where")
    links, kept = [], []
    for condition in conjuncts(where.this) if where is not None else ():
        if not outside(condition):
            kept.append(condition)
            continue
        sides = [condition.this, condition.expression] if isinstance(condition, exp.EQ) else []
        sides.sort(key=outside)
        if (
            len(sides) != 2
            or outside(sides[0])
            or not all(c.table.lower() in before for c in sides[1].find_all(exp.Column))
        ):
            return
        links.append(sides)
    inner.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
    if not links or outside(inner):
        inner.set("where", where)
        return
    _limit(inner, [inside for inside, _ in links])
    names = [exp.to_identifier(f"~k{i}", quoted=True) for i in range(len(links))]
    for name, (inside, _) in zip(names, links, strict=True):
        inner.append("expressions", exp.alias_(inside.copy(), name.copy()))
        if grouped is not None:
            grouped.append("expressions", inside.copy())
    on = join.args.get("on")
    equal = [
        exp.EQ(this=there.copy(), expression=exp.column(name.copy(), table=exp.to_identifier(alias)))
        for name, (_, there) in zip(names, links, strict=True)
    ]
    if on is not None and not isinstance(on, exp.Boolean):
        equal.append(on)
    join.set("on", exp.and_(*equal, copy=False))
    join.set("kind", None)
    made = exp.Subquery(this=inner, alias=source.args["alias"])
    made.meta.update(source.meta)
    source.replace(made)


def _limit(inner: exp.Select, keys: list[exp.Expr]) -> None:
    """LIMIT within each of the links; rows that tie are ordered by the select list."""
    limit, order = inner.args.get("limit"), inner.args.get("order")
    inner.set("order", None)
    if not isinstance(limit, exp.Limit):
        return
    terms = [
        *(order.expressions if order is not None else ()),
        *(exp.Ordered(this=i.unalias().copy()) for i in inner.expressions),
    ]
    named = {i.alias.lower(): i.this for i in inner.expressions if isinstance(i, exp.Alias)}
    for term in terms:
        if isinstance(term.this, exp.Column) and not term.this.table and term.this.name.lower() in named:
            term.set("this", named[term.this.name.lower()].copy())
    number = exp.Window(
        this=exp.Anonymous(this="row_number"),
        partition_by=[k.copy() for k in keys],
        order=exp.Order(expressions=[t.copy() for t in terms]),
    )
    inner.set("qualify", exp.Qualify(this=exp.LTE(this=number, expression=limit.expression)))
    inner.set("limit", None)
