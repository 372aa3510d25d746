"""Subqueries that are linked to the rows around them, as joins: LATERAL, and one value of ORDER BY ... LIMIT 1.

    FROM i, LATERAL (SELECT a FROM s WHERE s.k = i.k ORDER BY a DESC LIMIT 2) AS t
    FROM i JOIN (SELECT a, s.k AS "~k0" FROM s QUALIFY ROW_NUMBER() OVER (PARTITION BY s.k ORDER BY a DESC) <= 2) AS t
        ON i.k = t."~k0"

Grouped subqueries are grouped by the links as well, LIMIT counts within them. Comparisons other than equalities are
made with the distinct values that rows around have, so that again equalities link (the domain of Neumann and Kemper):

    (SELECT MAX(a) FROM s WHERE s.k = i.k AND s.b <= i.b)
    (SELECT MAX(a) FROM s, (SELECT DISTINCT k AS "~c0", b AS "~c1" FROM i) AS "~o"
        WHERE s.k = "~o"."~c0" AND s.b <= "~o"."~c1" AND "~o"."~c0" = i.k AND "~o"."~c1" = i.b)

A row with a null there meets nothing, as it does by the comparisons. An aggregate without GROUP BY in FROM has one row
whatever happens: each of its columns is a subquery that stands for a value, where the select list, WHERE and QUALIFY
read it. What is linked otherwise is left as it is, and refused with what to write.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from windrow.cql.dialect import StreamItems
from windrow.cql.scope import conjuncts
from windrow.cql.shapes import sources_of

_STRICT = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_LOOSE = (exp.Coalesce, exp.Case, exp.Anonymous, exp.Query, exp.Is, exp.Or, exp.Not, exp.If, exp.Lambda)
"""Comparisons that hold for no null, and what may hold for one."""
_OTHERS = ("having", "qualify", "windows", "distinct", "offset", "with_")
"""Clauses that would have to know of the links."""
_ELSEWHERE = (exp.Group, exp.Having, exp.Join, exp.Order)
"""Where no subquery stands for a value."""


def decorrelate(tree: exp.Expr, aggregates: Callable[[exp.Expr], bool]) -> None:
    """Put joins in the place of such subqueries, in the tree itself; `aggregates`: whether an item is an aggregate."""
    for select in list(tree.find_all(exp.Select)):
        _read_as_values(select, aggregates)
        for value in _values(select):
            _link_by_equalities(value.this, {_name(s): s for s in sources_of(select)})
            _join_first(value, select, aggregates)
        before: dict[str, exp.Expr] = {}
        for source in sources_of(select):
            if (inner := _lateral(source)) is not None:
                if not source.alias:
                    name = exp.to_identifier(f"lateral {len(before)}", quoted=True)
                    source.set("alias", exp.TableAlias(this=name))
                _link_by_equalities(inner, before)
                _join(source, inner, list(before), select, aggregates)
            before[_name(source)] = source


def _name(source: exp.Expr) -> str:
    return str(source.alias or source.name).lower()


def _values(select: exp.Select) -> list[exp.Subquery]:
    """The subqueries that stand for one value in the expressions of a SELECT itself."""
    parts = [p for key in ("expressions", "where", "having", "qualify") for p in _listed(select.args.get(key))]
    found = [q for part in parts for q in part.find_all(exp.Subquery)]
    return [
        q
        for q in found
        if isinstance(q.this, exp.Select)
        and q.find_ancestor(exp.Select) is select
        and not isinstance(q.parent, exp.Exists | exp.In | exp.Any | exp.All)
    ]


def _listed(part: exp.Expr | list[exp.Expr] | None) -> list[exp.Expr]:
    return part if isinstance(part, list) else [part] if part is not None else []


def _lateral(source: exp.Expr) -> exp.Select | None:
    """The SELECT of an item of FROM that is LATERAL."""
    inner = source.this.this if isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery) else None
    return inner if isinstance(inner, exp.Select) and isinstance(source.parent, exp.Join) else None


def _is_plain(inner: exp.Select) -> bool:
    """Whether it reads a stream, a table or a subquery."""
    from_ = inner.args.get("from_")
    return from_ is not None and isinstance(from_.this, exp.Table | exp.Subquery)


def _read_as_values(select: exp.Select, aggregates: Callable[[exp.Expr], bool]) -> None:
    """Let the columns of a LATERAL that has one row be subqueries where they are read."""
    for source in sources_of(select):
        inner, join = _lateral(source), source.parent
        others = (*_OTHERS, "group", "limit", "joins")
        if inner is None or join is None or not source.alias or any(inner.args.get(k) for k in others):
            continue
        if not _is_plain(inner) or not all(isinstance(i, exp.Alias) and aggregates(i) for i in inner.expressions):
            continue
        if join.args.get("on") not in (None, exp.true()):
            continue
        _unstar(select, source, inner)
        items = {i.alias.lower(): i.unalias() for i in inner.expressions}
        named = [c for c in select.find_all(exp.Column) if c.name.lower() in items]
        read = [
            c for c in named if c.table.lower() in ("", _name(source)) and c.find_ancestor(exp.Lateral) is not source
        ]
        if not all(c.find_ancestor(exp.Select, *_ELSEWHERE) is select for c in read):
            continue
        for column in read:
            value = exp.Subquery(this=inner.copy())
            value.this.set("expressions", [items[column.name.lower()].copy()])
            value.this.set("order", None)
            value.meta.update(column.meta)
            bare = column.parent is select or isinstance(column.parent, StreamItems)
            called = exp.to_identifier(column.name, quoted=True)
            column.replace(exp.Alias(this=value, alias=called) if bare else value)
        join.pop()


def _link_by_equalities(inner: exp.Select, around: dict[str, exp.Expr]) -> None:
    """Let a subquery compare with the distinct values of the rows around it, where it does more than equate."""
    own = {_name(s) for s in sources_of(inner)}
    read = [c for c in inner.find_all(exp.Column) if c.table.lower() in around and c.table.lower() not in own]
    where = inner.args.get("where")
    if where is None:
        return
    linking = [c for c in conjuncts(where.this) if any(n in read for n in c.find_all(exp.Column))]
    owners = {c.table.lower() for c in read}
    if (
        len(owners) != 1
        or all(isinstance(c, exp.EQ) for c in linking)
        or not all(isinstance(c, _STRICT) and not c.find(*_LOOSE) for c in linking)
        or any(
            not isinstance(c.this, exp.Identifier) or c.find_ancestor(exp.Select, exp.Join, exp.From) is not inner
            for c in read
        )
    ):
        return
    source = around[owners.pop()]
    names = list(dict.fromkeys(c.name.lower() for c in read))
    columns = {n: exp.to_identifier(f"~c{i}", quoted=True) for i, n in enumerate(names)}
    given = [exp.alias_(exp.column(n), columns[n].copy()) for n in names]
    domain = exp.select(*given).distinct().from_(source.copy())
    equal = []
    for column in read:
        name = column.name.lower()
        value = exp.column(columns[name].copy(), table=exp.to_identifier("~o", quoted=True))
        value.meta.update(column.meta)
        equal.append(exp.EQ(this=value.copy(), expression=column.copy()))
        column.replace(value)
    alias = exp.TableAlias(this=exp.to_identifier("~o", quoted=True))
    inner.append("joins", exp.Join(this=exp.Subquery(this=domain, alias=alias)))
    inner.set("where", exp.Where(this=exp.and_(*conjuncts(where.this), *dict.fromkeys(equal), copy=False)))


def _join_first(value: exp.Subquery, select: exp.Select, aggregates: Callable[[exp.Expr], bool]) -> None:
    """A value of ORDER BY ... LIMIT 1 comes by a join with such a row, or with none."""
    inner, around = value.this, {_name(s) for s in sources_of(select)}
    own = {_name(s) for s in sources_of(inner)}
    limit, items = inner.args.get("limit"), [*inner.expressions, *select.expressions]
    linked = any(c.table.lower() in around - own for c in inner.find_all(exp.Column))
    first = isinstance(limit, exp.Limit) and limit.expression == exp.Literal.number(1) and not limit.expressions
    if (
        not linked
        or not first
        or len(inner.expressions) != 1
        or select.args.get("group")
        or any(map(aggregates, items))
    ):
        return
    name = exp.to_identifier(f"~s{len(sources_of(select))}", quoted=True)
    shown = exp.to_identifier("~v", quoted=True)
    item = inner.expressions[0]
    called = item.alias_or_name or item.sql()
    inner.set("expressions", [exp.alias_(item.unalias(), shown.copy())])
    column = exp.column(shown, table=name.copy())
    column.meta.update(value.meta)
    bare = value.arg_key == "expressions" and (value.parent is select or isinstance(value.parent, StreamItems))
    value.replace(exp.alias_(column, called, quoted=True) if bare else column)
    lateral = exp.Lateral(this=exp.Subquery(this=inner), alias=exp.TableAlias(this=name))
    select.append("joins", exp.Join(this=lateral, side="LEFT", on=exp.true()))


def _join(
    source: exp.Expr, inner: exp.Select, before: list[str], select: exp.Select, aggregates: Callable[[exp.Expr], bool]
) -> None:
    join, alias = source.parent, source.alias
    assert join is not None
    starred = any(i.is_star for i in inner.expressions)
    grouped = inner.args.get("group")
    if not _is_plain(inner) or starred or not alias or any(inner.args.get(k) for k in _OTHERS):
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
    _unstar(select, source, inner)
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


def _unstar(select: exp.Select, source: exp.Expr, inner: exp.Select) -> None:
    """Write `*` out as all columns but those that link."""
    for items in (select, *(i for i in select.expressions if isinstance(i, StreamItems))):
        shown: list[exp.Expr] = []
        for item in items.expressions:
            if isinstance(item, exp.Star) and not any(item.args.values()):
                for other in sources_of(select):
                    every = exp.Column(this=exp.Star(), table=exp.to_identifier(other.alias or other.name))
                    shown.extend(_shown(source, inner) if other is source else [every])
            elif isinstance(item, exp.Column) and item.is_star and item.table.lower() == _name(source):
                shown.extend(_shown(source, inner))
            else:
                shown.append(item)
        items.set("expressions", shown)


def _shown(source: exp.Expr, inner: exp.Select) -> list[exp.Expr]:
    return [
        exp.column(i.alias_or_name, table=source.alias) for i in inner.expressions if not source.alias.startswith("~")
    ]


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
