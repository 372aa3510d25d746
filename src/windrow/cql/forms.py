"""Forms of SQL that are said by other forms, rewritten in the tree before anything is bound.

    a BETWEEN SYMMETRIC b AND c          a BETWEEN b AND c OR a BETWEEN c AND b
    s SEMI JOIN t ON c, s ANTI JOIN t    WHERE [NOT] EXISTS (SELECT 1 FROM t WHERE c); also LEFT SEMI, LEFT ANTI, USING
    (VALUES (1, 'a')) AS v(i, x)         UNNEST([{i: 1, x: 'a'}]), a column for each field
    generate_series(1, 9) AS g(i)        UNNEST(generate_series(1, 9)) AS g(i); also range
    LATERAL VIEW [OUTER] explode(l) t AS x        CROSS JOIN UNNEST(l) AS t(x), LEFT JOIN ... ON TRUE; also posexplode
    [f(x) FOR x IN l IF c]               list_transform(list_filter(l, lambda x: c), lambda x: f(x))
    LIMIT n BY k                         QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ...) <= n
    ARRAY(SELECT a FROM t ORDER BY b)    coalesce((SELECT list(a ORDER BY b) FROM t), [])
    any(a) that nothing is compared with   any_value(a)
    a IS JSON, a ~* 'p', (a, b) OVERLAPS (c, d), LIMIT ALL, WITH t(a, b) AS (SELECT ...)

Nothing here knows types or catalogs; what cannot be said so is left as it is, and the binder says why it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from windrow.cql.walks import kinds_of, nodes

FIELDS = "fields"  # meta key of an UNNEST: its elements are rows, and each field is a column
_SERIES = ("generate_series", "range")
_SEMI = {"SEMI": False, "ANTI": True}


def respell_forms(tree: exp.Expr) -> None:
    """Put forms that the binder knows in the place of others, in the tree itself."""
    found = nodes(tree)
    for cte in [node for node in found if isinstance(node, exp.CTE)]:
        _name_columns(cte)
    for select in [node for node in found if isinstance(node, exp.Select)]:
        _limit(select)
        _lateral_views(select)
        _semi_joins(select)
    found = nodes(tree)
    there = kinds_of(found)
    for kind, rule in _RULES.items():
        before = [node for node in found if isinstance(node, kind)] if kind in there else []
        for node in reversed(before):  # what is inside others first
            made = rule(node)
            if made is not None:
                made.meta.update((k, v) for k, v in node.meta.items() if k == "start")
                node.replace(made)
                found = nodes(tree)
                there |= kinds_of(nodes(made))


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call of a function."""
    made = exp.Anonymous(this=name, expressions=list(arguments))
    place = next((n.meta["start"] for a in arguments for n in a.walk() if "start" in n.meta), None)
    if place is not None:
        made.meta["start"] = place
    return made


# -- clauses ---------------------------------------------------------------------------------------------------------


def _name_columns(cte: exp.CTE) -> None:
    """WITH t(a, b) AS (SELECT ...): the names go to the select list, or to VALUES."""
    alias = cte.args.get("alias")
    names = alias.args.get("columns") if alias is not None else None
    first = cte.this
    while isinstance(first, exp.SetOperation | exp.Subquery | exp.Paren):
        first = first.this
    if alias is None or not names or not isinstance(first, exp.Select):
        return
    items = first.expressions
    from_ = first.args.get("from_")
    if from_ is not None and isinstance(from_.this, exp.Values) and len(items) == 1 and isinstance(items[0], exp.Star):
        from_.this.args["alias"].set("columns", names)
    elif len(names) <= len(items) and not any(i.is_star for i in items):
        renamed = [exp.alias_(i.unalias(), n.copy(), copy=False) for i, n in zip(items, names, strict=False)]
        first.set("expressions", [*renamed, *items[len(names) :]])
    else:
        return
    alias.set("columns", None)


def _limit(select: exp.Select) -> None:
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit):
        return
    if isinstance(limit.expression, exp.Var) and limit.expression.name.upper() == "ALL":
        select.set("limit", None)
    elif keys := limit.expressions:  # so many of each
        number = exp.Window(this=exp.Anonymous(this="row_number"), partition_by=keys, order=select.args.get("order"))
        first = exp.LTE(this=number, expression=limit.expression)
        before = select.args.get("qualify")
        select.set("qualify", exp.Qualify(this=first if before is None else exp.and_(before.this, first, copy=False)))
        select.set("limit", None)
        select.set("order", None)


def _lateral_views(select: exp.Select) -> None:
    left = []
    for view in select.args.get("laterals") or ():
        function = view.this
        name = function.name.lower() if isinstance(function, exp.Anonymous) else ""
        alias = view.args.get("alias")
        if name not in ("explode", "posexplode") or len(function.expressions) != 1 or alias is None:
            left.append(view)
            continue
        source: exp.Expr = exp.Unnest(expressions=function.expressions, alias=alias)
        if name == "posexplode":  # places are counted from 0, and stand first
            names = [n.name for n in alias.args.get("columns") or ()] or ["pos", "col"]
            inner = exp.alias_(source, "u", table=["e", "n"])
            inner.set("offset", True)
            place = exp.Sub(this=exp.column("n", "u"), expression=exp.Literal.number(1))
            query = exp.select(exp.alias_(place, names[0]), exp.alias_(exp.column("e", "u"), names[-1])).from_(inner)
            source = exp.Lateral(this=exp.Subquery(this=query), alias=exp.TableAlias(this=alias.this))
        outer = view.args.get("outer")
        on = exp.Boolean(this=True) if outer else None
        select.append("joins", exp.Join(this=source, side="LEFT" if outer else None, on=on, kind=None))
    select.set("laterals", left or None)


def _semi_joins(select: exp.Select) -> None:
    joins = list(select.args.get("joins") or ())
    from_ = select.args.get("from_")
    if from_ is None or any((j.args.get("side") or "").upper() in ("RIGHT", "FULL") for j in joins):
        return
    sources = [from_.this]
    for join in joins:
        anti = _SEMI.get((join.args.get("kind") or "").upper())
        condition = _on(join, sources)
        if anti is None or condition is None:
            sources.append(join.this)
            continue
        join.pop()
        there = exp.Exists(
            this=exp.Select(
                expressions=[exp.Literal.number(1)],
                from_=exp.From(this=join.this),
                where=exp.Where(this=condition),
            )
        )
        test = exp.Not(this=there) if anti else there
        where = select.args.get("where")
        select.set("where", exp.Where(this=test if where is None else exp.and_(where.this, test, copy=False)))


def _on(join: exp.Join, before: list[exp.Expr]) -> exp.Expr | None:
    """The condition of a join, if it can be said without the columns of its sides."""
    if (on := join.args.get("on")) is not None:
        return on
    names = join.args.get("using") or []
    if not names or len(before) != 1:
        return None
    sides = [s.alias_or_name for s in (before[0], join.this)]
    if not all(sides):
        return None
    pairs = [[exp.column(n.copy(), table=side) for side in sides] for n in names]
    return exp.and_(*(exp.EQ(this=a, expression=b) for a, b in pairs), copy=False)


# -- one node ----------------------------------------------------------------------------------------------------------


def _any_value(node: exp.Any) -> exp.Expr | None:
    compared = isinstance(node.parent, exp.Binary) or not isinstance(node.this.unnest(), exp.Column)
    return None if compared else call("any_value", node.this.unnest())


def _symmetric(node: exp.Between) -> exp.Expr | None:
    if not node.args.pop("symmetric", None):
        return None
    value, low, high = node.this, node.args["low"], node.args["high"]
    other = exp.Between(this=value.copy(), low=high.copy(), high=low.copy())
    return exp.Paren(this=exp.Or(this=node.copy(), expression=other))


def _values(node: exp.Values) -> exp.Expr | None:
    """Rows of constants, as a list of structs."""
    rows = [r.expressions if isinstance(r, exp.Tuple) else [r] for r in node.expressions]
    alias = node.args.get("alias") or exp.TableAlias()
    given = [n.name for n in alias.args.get("columns") or ()]
    if not rows or any(len(row) != len(rows[0]) for row in rows) or not isinstance(node.parent, exp.From | exp.Join):
        return None
    names = given + [f"col{i}" for i in range(len(given), len(rows[0]))]
    structs = [
        exp.Struct(
            expressions=[
                exp.PropertyEQ(this=exp.to_identifier(n, quoted=True), expression=value)
                for n, value in zip(names, row, strict=False)
            ]
        )
        for row in rows
    ]
    alias.set("columns", [exp.to_identifier(n) for n in names])
    made = exp.Unnest(expressions=[exp.Array(expressions=structs, bracket_notation=True)], alias=alias)
    made.meta[FIELDS] = True
    return made


def _series(node: exp.Table) -> exp.Expr | None:
    function = node.this
    if not isinstance(function, exp.Anonymous) or function.name.lower() not in _SERIES:
        return None
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(function.name))
    if not alias.args.get("columns"):
        alias.set("columns", [exp.to_identifier(function.name.lower())])
    return exp.Unnest(expressions=[function], alias=alias)


def _comprehension(node: exp.Array) -> exp.Expr | None:
    made = node.expressions[0] if len(node.expressions) == 1 else None
    if not isinstance(made, exp.Comprehension) or made.args.get("position") is not None:
        return None
    name, values, condition = made.args["expression"], made.args["iterator"], made.args.get("condition")
    if condition is not None:
        values = call("list_filter", values, _lambda(condition, name))
    return call("list_transform", values, _lambda(made.this, name))


def _lambda(body: exp.Expr, name: exp.Expr) -> exp.Lambda:
    """A function of one parameter; in its body a column of that name is the parameter."""
    holder = exp.Paren(this=body.copy())
    for column in list(holder.find_all(exp.Column)):
        if column.parts[0].name.lower() == name.name.lower():
            first, *rest = (p.copy() for p in column.parts)
            value: exp.Expr = first
            for part in rest:
                value = exp.Dot(this=value, expression=part)
            column.replace(value)
    return exp.Lambda(this=holder.this, expressions=[name.copy()])


def _array(node: exp.Anonymous) -> exp.Expr | None:
    query = node.expressions[0].unnest() if len(node.expressions) == 1 else None
    if node.name.lower() != "array" or not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return None
    if any(query.args.get(k) for k in ("group", "having", "distinct", "limit", "qualify")) or query.is_star:
        return None
    item, order = query.expressions[0].unalias(), query.args.get("order")
    value = item if order is None else exp.Order(this=item, expressions=order.expressions)
    query.set("expressions", [call("list", value)])
    query.set("order", None)
    return call("coalesce", exp.Subquery(this=query), exp.Array(expressions=[], bracket_notation=True))


def _is_json(node: exp.Is) -> exp.Expr | None:
    kind = node.expression
    if not isinstance(kind, exp.JSON) or kind.this or kind.args.get("unique"):
        return None
    return call("json_valid", node.this)


def _overlaps(node: exp.Overlaps) -> exp.Expr | None:
    """Two periods, each from its earlier to its later end, have an instant in common, or begin at the same."""
    sides = [side.expressions for side in (node.this, node.expression) if isinstance(side, exp.Tuple)]
    if len(sides) != 2 or any(len(side) != 2 for side in sides):
        return None
    (a, b), (c, d) = ([call(f, *(e.copy() for e in side)) for f in ("least", "greatest")] for side in sides)
    meet = exp.And(this=exp.LT(this=a, expression=d), expression=exp.LT(this=c, expression=b))
    return exp.Paren(this=exp.Or(this=exp.EQ(this=a.copy(), expression=c.copy()), expression=exp.Paren(this=meet)))


def _matches(node: exp.RegexpILike) -> exp.Expr:
    return call("regexp_matches", node.this, node.expression, exp.Literal.string("i"))


_RULES: dict[type[exp.Expr], Callable[[Any], exp.Expr | None]] = {
    exp.Between: _symmetric, exp.Values: _values, exp.Table: _series, exp.Array: _comprehension,
    exp.Anonymous: _array, exp.Any: _any_value, exp.Is: _is_json, exp.Overlaps: _overlaps, exp.RegexpILike: _matches,
}  # fmt: skip
_CLAUSES = (exp.CTE, exp.Limit, exp.Lateral, exp.Join)
_OF_ALL = (exp.Table, exp.Anonymous)  # of which those with some names alone are others
WANTED: frozenset[type | str] = frozenset(
    {*_CLAUSES, *_SERIES, "array", *(kind for kind in _RULES if kind not in _OF_ALL)}
)
