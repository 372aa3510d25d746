"""PIVOT in FROM, as aggregates with FILTER.

    FROM s [RANGE 10] PIVOT (SUM(a) FOR k IN (1, 2 AS two))
    FROM (SELECT b, SUM(a) FILTER (WHERE k = 1) AS "1", SUM(a) FILTER (WHERE k = 2) AS two FROM s [RANGE 10] GROUP BY b)

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
        if len(pivots) == 1 and names and not pivots[0].args.get("unpivot"):
            _expand(source, pivots[0], names)


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
    inner = source.copy()
    inner.set("pivots", None)
    called = pivot.args.get("alias") or exp.TableAlias(this=exp.to_identifier(source.alias_or_name or "pivot"))
    select = exp.select(*keys, *(exp.alias_(c, n.name, quoted=True) for c, n in zip(cells, shown, strict=True)))
    made = exp.Subquery(this=select.from_(inner).group_by(*(k.copy() for k in keys)), alias=called.copy())
    made.meta["start"] = next((n.meta["start"] for n in source.walk() if "start" in n.meta), 0)
    source.replace(made)
