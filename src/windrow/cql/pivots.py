"""PIVOT in FROM, as aggregates with FILTER, and UNPIVOT, as a SELECT for each column.

    FROM s [RANGE 10] PIVOT (SUM(a) FOR k IN (1, 2 AS two))
    FROM (SELECT b, SUM(a) FILTER (WHERE k = 1) AS "1", SUM(a) FILTER (WHERE k = 2) AS two FROM s [RANGE 10] GROUP BY b)

    FROM s [RANGE 10] UNPIVOT (v FOR k IN (a, b))
    FROM (SELECT c, 'a' AS k, a AS v FROM s [RANGE 10] WHERE a IS NOT NULL UNION ALL SELECT c, 'b' AS k, b AS v ...)

Rows are grouped by all columns that neither the aggregates nor FOR name, so they must be known: those of a stream or
table, or of a subquery that lists them. Anything else is left as it is, and refused with what to write.
"""

from __future__ import annotations

from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.shapes import unwrap


def expand_pivots(tree: exp.Expr, catalog: Catalog) -> None:
    """Put subqueries in the place of such items of FROM, in the tree itself."""
    for source in list(tree.find_all(exp.Table, exp.Subquery)):
        pivots = source.args.get("pivots") or []
        names = _columns(source, catalog)
        if len(pivots) == 1 and names:
            (_unpivot if pivots[0].args.get("unpivot") else _expand)(source, pivots[0], names)


def _columns(source: exp.Expr, catalog: Catalog) -> list[str]:
    """The columns of an item of FROM, where they are written somewhere."""
    if isinstance(source, exp.Table):
        known = catalog.streams.get(source.name.lower()) or catalog.tables.get(source.name.lower())
        return list(known.columns) if known is not None else []
    select = unwrap(source.this)
    items = select.expressions if isinstance(select, exp.Select) else []
    return [] if any(i.is_star or not i.alias_or_name for i in items) else [i.alias_or_name for i in items]


def _expand(source: exp.Expr, pivot: exp.Pivot, names: list[str]) -> None:
    fields, aggregates = pivot.args.get("fields") or [], pivot.expressions
    shown = pivot.args.get("columns") or []
    if len(fields) != 1 or pivot.args.get("group") or not isinstance(fields[0], exp.In):
        return
    (field,) = fields
    values = [v.this if isinstance(v, exp.PivotAlias | exp.Alias) else v for v in field.expressions]
    if not all(isinstance(v, exp.Literal) for v in values) or len(shown) != len(values) * len(aggregates):
        return
    used = {c.name.lower() for part in (field.this, *aggregates) for c in part.find_all(exp.Column)}
    keys = [exp.column(exp.to_identifier(n, quoted=True)) for n in names if n.lower() not in used]
    cells = [
        exp.Filter(
            this=aggregate.unalias().copy(),
            expression=exp.Where(this=exp.EQ(this=field.this.copy(), expression=value.copy())),
        )
        for value in values
        for aggregate in aggregates
    ]
    select = exp.select(*keys, *(exp.alias_(c, n.name, quoted=True) for c, n in zip(cells, shown, strict=True)))
    _put(source, pivot, select.from_(_inner(source)).group_by(*(k.copy() for k in keys)))


def _unpivot(source: exp.Expr, pivot: exp.Pivot, names: list[str]) -> None:
    fields, values = pivot.args.get("fields") or [], pivot.expressions
    if len(fields) != 1 or len(values) != 1 or not isinstance(fields[0], exp.In):
        return
    (field,), (value,) = fields, values
    known = {n.lower(): n for n in names}
    chosen = [(v.this, v.args["alias"]) if isinstance(v, exp.PivotAlias) else (v, v) for v in field.expressions]
    if not chosen or not all(isinstance(c, exp.Column) and c.name.lower() in known for c, _ in chosen):
        return
    taken = {c.name.lower() for c, _ in chosen}
    rest = [exp.column(exp.to_identifier(n, quoted=True)) for n in names if n.lower() not in taken]
    selects: list[exp.Query] = []
    for column, called in chosen:
        shown = exp.Literal.string(known.get(called.name.lower(), called.name) if called is column else called.name)
        items = (exp.alias_(shown, field.this.name, quoted=True), exp.alias_(column.copy(), value.name, quoted=True))
        select = exp.select(*(r.copy() for r in rest), *items).from_(_inner(source))
        if not pivot.args.get("include_nulls"):
            select = select.where(exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null())))
        selects.append(select)
    made = selects[0]
    for more in selects[1:]:
        made = exp.Union(this=made, expression=more, distinct=False)
    _put(source, pivot, made)


def _inner(source: exp.Expr) -> exp.Expr:
    """What stands before PIVOT."""
    inner = source.copy()
    inner.set("pivots", None)
    return inner


def _put(source: exp.Expr, pivot: exp.Pivot, query: exp.Query) -> None:
    """Put a query in the place of the item of FROM."""
    called = pivot.args.get("alias") or exp.TableAlias(this=exp.to_identifier(source.alias_or_name or "pivot"))
    made = exp.Subquery(this=query, alias=called.copy())
    made.meta["start"] = next((n.meta["start"] for n in source.walk() if "start" in n.meta), 0)
    source.replace(made)
